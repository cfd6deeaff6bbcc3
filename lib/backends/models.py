"""Loading Hugging Face causal language models, and frozen snapshots of them to sample from."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lib.backends.tokenizer import lock_tokenizer

LORA_ALPHA = 32  # Tinker's; the adapter's output is scaled by alpha / rank


def digest(state: dict[str, torch.Tensor], below: str = "") -> str:
    """Hash of all weights: who the model is, whichever route it came by. below: hash of those that an adapter is for."""
    hash_ = hashlib.blake2b(below.encode(), digest_size=16)
    for name, tensor in sorted(state.items()):
        hash_.update(name.encode())
        hash_.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hash_.hexdigest()


@dataclass(frozen=True)
class Weights:
    """A frozen model to sample from, with its tokenizer and the base model's name.

    `adapts`: the base whose weights it shares under an adapter, where it does.
    """

    model: Any
    tokenizer: Any
    base_model: str
    adapts: Weights | None = None

    @cached_property
    def digest(self) -> str:
        if self.adapts is None:
            return digest(self.model.state_dict())
        return digest({n: t for n, t in self.model.state_dict().items() if ".lora_" in n}, self.adapts.digest)

    @property
    def context(self) -> int:
        """The longest prompt and answer together, in tokens."""
        return int(getattr(self.model.config, "max_position_embeddings", 2048))


def load_base(path: str, device: str = "cpu", dtype: str = "float32") -> Weights:
    """A base model of a folder, or of the hub. In bfloat16 a sampler's and a trainer's log-probabilities differ by its
    rounding, for which the policy losses weigh each token by their ratio; in float32 they agree.

    Raises ValueError where there is no causal language model that transformers can load, or no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("local.device = 'cuda': torch finds no card here; use cpu, or another profile")
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # one bar per file would drown the study's own
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), attn_implementation="sdpa")
        tokenizer = lock_tokenizer(path)
    except (OSError, ValueError, KeyError) as e:
        known = "" if Path(path).is_dir() else " (there is no such folder)"
        raise ValueError(f"base_model {path!r} can't be loaded{known}: {e}") from e
    finally:
        if bars:
            logging.enable_progress_bar()
    frozen: Any = model
    return Weights(frozen.to(device).eval().requires_grad_(False), tokenizer, path)


def trainable(base: Weights, rank: int | None, seed: int, checkpointing: bool = False) -> Any:
    """A copy to train: the whole model (rank None), or a LoRA adapter, in float32, on every linear layer but the output's.

    The output layer is left alone because it is often tied to the embeddings. The model stays in evaluation mode
    for good: dropout would make the trainer's log-probabilities differ from the sampler's. checkpointing: layers keep
    only their inputs, and are computed again for the gradient.
    """
    if rank is None:
        model = copy.deepcopy(base.model).requires_grad_(True).eval()
    else:
        model = _adapted(_sharing_frozen(base.model), rank, seed).eval()
    return _checkpointed(model) if checkpointing else model


def _adapted(model: Any, rank: int, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapter = LoraConfig(r=rank, lora_alpha=LORA_ALPHA, lora_dropout=0.0, target_modules="all-linear")
        return get_peft_model(model, adapter)


def _sharing_frozen(model: Any) -> Any:
    """A copy whose frozen weights are the model's own: of a large one there is room for one set only."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


def _checkpointed(model: Any) -> Any:
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = (
                True  # which is when it takes effect; of the layer alone, its parts stay in evaluation mode
            )
    return model


def snapshot(model: Any, base: Weights) -> Weights:
    """Freeze a copy of the model in training. An adapter is merged into it, but for bfloat16, whose rounding would lose
    most of what was learned; there it stays beside the weights, which the copy shares."""
    if base.model.dtype != torch.float32:
        frozen, adapts = _sharing_frozen(model), base
    else:
        frozen, adapts = merged(model), None
    return Weights(frozen.requires_grad_(False).eval(), base.tokenizer, base.base_model, adapts)


def merged(model: Any) -> Any:
    """A copy with its adapter, if any, merged into the weights."""
    other = copy.deepcopy(model)
    return other.merge_and_unload() if hasattr(other, "merge_and_unload") else other
