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


def digest(model: torch.nn.Module) -> str:
    """Hash of all weights: who the model is, whichever route it came by."""
    hash_ = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        hash_.update(name.encode())
        hash_.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hash_.hexdigest()


@dataclass(frozen=True)
class Weights:
    """A frozen model to sample from, with its tokenizer and the base model's name."""

    model: Any
    tokenizer: Any
    base_model: str

    @cached_property
    def digest(self) -> str:
        return digest(self.model)

    @property
    def context(self) -> int:
        """The longest prompt and answer together, in tokens."""
        return int(getattr(self.model.config, "max_position_embeddings", 2048))


def load_base(path: str, device: str) -> Weights:
    """A base model in float32: a sampler whose log-probabilities aren't the trainer's would bias the gradient.

    Raises ValueError where the folder holds no causal language model that transformers can load.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # one bar per file would drown the study's own
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa")
        tokenizer = lock_tokenizer(path)
    except (OSError, ValueError, KeyError) as e:
        known = "" if Path(path).is_dir() else " (there is no such folder)"
        raise ValueError(f"base_model {path!r} can't be loaded{known}: {e}") from e
    finally:
        if bars:
            logging.enable_progress_bar()
    frozen: Any = model
    return Weights(frozen.to(device).eval().requires_grad_(False), tokenizer, path)


def trainable(base: Weights, rank: int | None, seed: int) -> Any:
    """A copy to train: the whole model (rank None), or a LoRA adapter on every linear layer but the output's.

    The output layer is left alone because it is often tied to the embeddings. The model stays in evaluation mode
    for good: dropout would make the trainer's log-probabilities differ from the sampler's.
    """
    model = copy.deepcopy(base.model)
    if rank is None:
        return model.requires_grad_(True).eval()
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapter = LoraConfig(r=rank, lora_alpha=LORA_ALPHA, lora_dropout=0.0, target_modules="all-linear")
        return get_peft_model(model, adapter).eval()


def snapshot(model: Any, base: Weights) -> Weights:
    """Freeze a copy of the model in training; an adapter is merged into it."""
    frozen = copy.deepcopy(model)
    if hasattr(frozen, "merge_and_unload"):
        frozen = frozen.merge_and_unload()
    return Weights(frozen.requires_grad_(False).eval(), base.tokenizer, base.base_model)
