"""Tiny random models with a tokenizer of whole words, for the tests of the backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY = 211  # odd on purpose: no multiple of a vector's width
END = 0  # <|im_end|>
WORDS = ["<|im_end|>", "<|im_start|>", "user", "assistant", "system", "<unk>"]


def lfm2(folder: Path) -> Path:
    """Short convolutions and attention, as in the study's own small model."""
    options = _options(layer_types=["conv", "full_attention"] * 2, block_auto_adjust_ff_dim=False)
    return _save(transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**options)), folder)


def qwen3(folder: Path) -> Path:
    """Grouped keys, and norms on queries and keys."""
    options = _options(num_key_value_heads=2, head_dim=24)
    return _save(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**options)), folder)


def llama(folder: Path) -> Path:
    """No norms on queries and keys: scores without a bound."""
    options = _options(tie_word_embeddings=False)
    return _save(transformers.LlamaForCausalLM(transformers.LlamaConfig(**options)), folder)


def gpt2(folder: Path) -> Path:
    """An architecture that only the generic sampler knows."""
    options = {"vocab_size": VOCABULARY, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256}
    return _save(transformers.GPT2LMHeadModel(transformers.GPT2Config(**options, initializer_range=0.1)), folder)


def _options(**own: Any) -> dict[str, Any]:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 256,
        "initializer_range": 0.15,
        "eos_token_id": END,
        "pad_token_id": END,
        "bos_token_id": None,
    }
    return shape | own


def _save(model: Any, folder: Path) -> Path:
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
        else:  # norms: not all ones, or a lost weight would go unnoticed
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    words = [*WORDS, *(f"w{i}" for i in range(len(WORDS), VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=WORDS[0], pad_token=WORDS[0], unk_token="<unk>"
    ).save_pretrained(folder)
    return folder
