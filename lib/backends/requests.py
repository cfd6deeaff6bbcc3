"""A sampling request and what both samplers do alike: its random numbers, its stop conditions, its answer.

A draw depends on the seed, the weights, the rollout, the prompt, the sample's number and the position, and on nothing
else: not on the order of arrival, not on who shares the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tinker import types
from torch import Tensor


@dataclass(eq=False)
class Request:
    """What a caller asked for. `samples` 0 asks for the prompt's log-probabilities alone."""

    id: str
    prompt: list[int]
    samples: int
    max_tokens: int
    params: types.SamplingParams
    key: bytes  # what the draws depend on, apart from sample and position
    stop_tokens: frozenset[int]
    stop_strings: tuple[str, ...]
    tokenizer: Any
    scored: bool = False  # the prompt's log-probabilities are wanted
    scored_last: int | None = None  # only those of so many last tokens
    future: Future[types.SampleResponse] = field(default_factory=Future)
    sequences: dict[int, types.SampledSequence] = field(default_factory=dict)
    prompt_logprobs: np.ndarray | None = None

    def uniforms(self, sample: int) -> np.ndarray:
        """One number in [0, 1 - 2**-22] per position, float32: the sample's own stream of SHAKE-128, 24 bits a number.

        The bound keeps `u * total < total` in float32, so that a draw can't run past the last possible token.
        """
        stream = hashlib.shake_128(self.key + sample.to_bytes(4, "little")).digest(4 * self.max_tokens)
        numbers = (np.frombuffer(stream, "<u4") >> 8).astype(np.float32) * np.float32(2**-24)
        return np.minimum(numbers, np.float32(1 - 2**-22))

    def stops(self, tokens: list[int]) -> bool:
        """Whether the answer ends with its last token. A stop string may span tokens, so the tail is decoded."""
        if tokens[-1] in self.stop_tokens:
            return True
        if not self.stop_strings:
            return False
        tail = tokens[-(max(map(len, self.stop_strings)) + 8) :]
        text = self.tokenizer.decode(tail)
        return any(s in text for s in self.stop_strings)

    def finish(self, sample: int, tokens: np.ndarray, logprobs: np.ndarray, stopped: bool) -> None:
        """Keep one sample; the answer goes out with the last."""
        self.sequences[sample] = types.SampledSequence(
            stop_reason="stop" if stopped else "length",
            sequence_id=f"{self.id}-{sample}",
            tokens_np=np.asarray(tokens, np.int32),
            logprobs_np=np.asarray(logprobs, np.float32),
        )
        self.answer()

    def answer(self) -> None:
        if len(self.sequences) < self.samples or (self.scored and self.prompt_logprobs is None):
            return
        response = types.SampleResponse(
            sequences=[self.sequences[i] for i in range(self.samples)], prompt_logprobs_np=self.prompt_logprobs
        )
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(response)

    def score(self, logprobs: np.ndarray) -> None:
        """Keep the log-probabilities of all prompt tokens but the first, whose own is unknown (NaN)."""
        self.prompt_logprobs = np.concatenate([[np.nan], logprobs]).astype(np.float32)
        if self.scored_last is not None:
            self.prompt_logprobs[: -self.scored_last] = np.nan

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def stop_conditions(stop: Any, tokenizer: Any) -> tuple[frozenset[int], tuple[str, ...]]:
    """Tokens and strings that end an answer: None means the tokenizer's end of text, an empty list nothing."""
    if stop is None:
        end = tokenizer.eos_token_id
        return frozenset() if end is None else frozenset([end]), ()
    stop = [stop] if isinstance(stop, str) else list(stop)
    return frozenset(s for s in stop if isinstance(s, int)), tuple(s for s in stop if isinstance(s, str) and s)


Draw = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def draw(logits: Tensor, uniforms: Tensor, params: types.SamplingParams) -> tuple[Tensor, Tensor]:
    """A token per row and its log-probability.

    `logits` [rows, vocabulary] float32, `uniforms` [rows]. The log-probability is the model's own, at temperature 1
    and over the whole vocabulary, because that is what the trainer computes for the same token. The draw inverts the
    cumulative distribution: one number per token, whatever the vocabulary.
    """
    shifted = logits - logits.amax(-1, keepdim=True)
    cumulative = shifted.exp().cumsum(-1)
    if params.temperature <= 0:
        tokens = shifted.argmax(-1, keepdim=True)
    elif params.top_k <= 0 and params.top_p >= 1:
        scaled = cumulative if params.temperature == 1 else (shifted / params.temperature).exp().cumsum(-1)
        tokens = _invert(scaled, uniforms)
    else:
        tokens = _restricted(shifted / params.temperature, uniforms, params)
    logprobs = shifted.gather(-1, tokens) - cumulative[:, -1:].log()
    return tokens[:, 0], logprobs[:, 0]


def _invert(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    return torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)


def _restricted(scaled: Tensor, uniforms: Tensor, params: types.SamplingParams) -> Tensor:
    """The `top_k` most likely tokens, of them the fewest whose probabilities reach `top_p`."""
    k = min(params.top_k, scaled.shape[-1]) if params.top_k > 0 else scaled.shape[-1]
    best, tokens = scaled.sort(dim=-1, descending=True, stable=True)
    weights = best[:, :k].softmax(-1)
    before = weights.cumsum(-1) - weights
    weights = weights * (before < params.top_p)
    return tokens.gather(-1, _invert(weights.cumsum(-1), uniforms))
