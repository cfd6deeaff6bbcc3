"""The default study's model: a decoder of about a million parameters and its own small tokenizer, as a folder that transformers loads.

The vocabulary is made from the study's own training texts: the words of the training wordings, fragments of Cypher, and
the fixed strings of the chat format (the system prompt, the opening of a tool call) are one token each. Everything else,
names and numbers above all, is spelled in pieces of one or two characters, alike in a question and inside a query's
quotes, so that a name can be copied without having been seen. No text is out of vocabulary: bytes are the last resort.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import Lfm2Config, Lfm2ForCausalLM, PreTrainedTokenizerFast

from lib.settings import Model

# What a Cypher text falls into: nodes, relationships, counts and properties whole, then words, digits and signs.
CYPHER = re.compile(
    r"\([a-z]:[A-Z][A-Za-z]+\)|\([a-z]\)|count\(DISTINCT|count\(\*\)|\b[a-z]\.[A-Za-z]+|<?-\[[a-z]?:[A-Z_]+\]->?"
    r"|[A-Za-z_]+|\d|\s|[^\w\s]"
)
WORD = re.compile(r"[A-Za-z]+|[^A-Za-z]")
CALL, CALL_END = '<tool_call>\n{"name": "run_cypher", "arguments": {"query": "', '"}}\n</tool_call>'
SHOWN, SHOWN_END = "<tool_response>\n", "\n</tool_response>"
CHAT = ["<|im_start|>system\n", "\n<|im_start|>user\n", "\n<|im_start|>assistant\n", "<|im_start|>", "<|im_end|>"]
PIECES = 260  # two-character pieces kept: the most frequent in the training names


def build_tokenizer(
    system: str, sentences: Iterable[str], queries: Iterable[str], shown: Iterable[str], names: Iterable[str]
) -> PreTrainedTokenizerFast:
    """A tokenizer for one study.

    system: the whole system prompt. sentences: wordings with their slots taken out. queries: query templates likewise.
    shown: words that results consist of. names: values that must be copied; only their two-character pieces are used.
    """
    words, fragments = _forms(sentences, WORD), _forms([*queries, *shown], CYPHER)
    pieces = _pieces(names)
    whole = [*filter(None, [system]), CALL, CALL_END, SHOWN, SHOWN_END, *CHAT]
    signs = [" " + s for s in "(='>,;|<"]
    vocabulary = dict.fromkeys(
        ["<pad>", *whole, *map(chr, range(32, 127)), "\n", *words, *fragments, *signs, *pieces]
        + [f"<0x{i:02X}>" for i in range(256)]
    )
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(vocabulary)}, merges=[], ignore_merges=True, byte_fallback=True
        )
    )
    pattern = _pattern(whole, [*words, *fragments], signs, pieces)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )


def build_model(vocabulary: int, settings: Model) -> Lfm2ForCausalLM:
    """A randomly initialised decoder: short convolutions with attention among them (LFM2).

    The convolutions see the previous two tokens, which is what copying a name starts from; measured on the cold start,
    the same size of pure attention learned to copy later. Float32; deterministic by `settings.seed`.
    """
    torch.manual_seed(settings.seed)
    config = Lfm2Config(
        vocab_size=vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.feed_forward,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=len(settings.layers),
        layer_types=list(settings.layers),
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.context,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.06,  # about 1/sqrt(2 * hidden); transformers' default of 0.02 starts slower
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Lfm2ForCausalLM(config).eval()


def save(folder: Path, tokenizer: PreTrainedTokenizerFast, model: Lfm2ForCausalLM) -> None:
    """Write both as one Hugging Face folder."""
    model.config.eos_token_id = tokenizer.eos_token_id
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _forms(texts: Iterable[str], unit: re.Pattern[str]) -> list[str]:
    """The units that occur, each with a leading space where it occurs so; single characters are there anyway."""
    found: Counter[str] = Counter()
    for text in texts:
        for match in unit.finditer(text):
            if len(match[0]) > 1:
                spaced = match.start() > 0 and text[match.start() - 1] == " "
                found[" " * spaced + match[0]] += 1
    return sorted(found)


def _pieces(names: Iterable[str]) -> list[str]:
    counts: Counter[str] = Counter()
    for name in names:
        for word in re.findall(r"[A-Za-z]+", name):
            counts.update(word[i : i + 2] for i in range(len(word) - 1))
    return sorted(sorted(counts, key=lambda p: (-counts[p], p))[:PIECES])


def _pattern(whole: list[str], units: list[str], signs: list[str], pieces: list[str]) -> str:
    """One expression that cuts any text; earlier alternatives win, longer units before shorter ones."""
    units = sorted(units, key=lambda u: (-len(u), u))
    worded = [u for u in units if u[-1].isalpha()]
    return "|".join(
        [
            *map(_escape, whole),
            *(_escape(u) for u in units if not u[-1].isalpha()),
            # A word counts only as a whole one: "in" is no token inside "Lindor".
            "(?:" + "|".join(_guarded(u) for u in worded) + ")(?![A-Za-z])",
            *map(_escape, signs),
            *map(_escape, pieces),
            r"[\s\S]",
        ]
    )


def _guarded(unit: str) -> str:
    return _escape(unit) if unit.startswith(" ") else "(?<![A-Za-z])" + _escape(unit)


def _escape(text: str) -> str:
    """re.escape, less the escapes that the tokenizer's regular expressions don't know."""
    return re.sub(r"\\([ \n'\"<>=:,;&#~-])", r"\1", re.escape(text))
