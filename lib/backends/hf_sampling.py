"""Sampling from any causal language model through transformers, on a CPU or a GPU.

Requests are gathered into batches with a key-value cache; a batch loses its rows as they finish, and up to
BATCHES_AT_ONCE of them take turns, so that newcomers don't wait for stragglers. Draws are the request's own; rounding
of the logits can depend on the company here, which the fast sampler for small models excludes (see sampler.py).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib.backends.models import Weights
from lib.backends.requests import Request, draw

ROWS = 128  # of a batch, at most
BATCHES_AT_ONCE = 4
GATHER = 0.002  # seconds that a first request waits for company


class HFSampler:
    """Samples from one snapshot; all methods are called by one thread.

    `tokens_at_once`: whose keys and values its batches may hold together, padding and tokens to come included; a single
    row is played whatever it takes.
    """

    def __init__(self, weights: Weights, tokens_at_once: int):
        self.weights, self.model, self.tokens_at_once = weights, weights.model, tokens_at_once
        self.queue: list[tuple[Request, int]] = []
        self.batches: list[_Batch] = []

    def add(self, request: Request) -> None:
        if request.scored:
            self._score(request)
        self.queue += [(request, sample) for sample in range(request.samples)]
        request.answer()

    def step(self) -> bool:
        """One token for every row in flight; False when nothing is left to do."""
        if self.queue and len(self.batches) < BATCHES_AT_ONCE:
            rows = self._next_rows()
            taken = {(id(r), s) for r, s in rows}
            self.queue = [(r, s) for r, s in self.queue if (id(r), s) not in taken]
            if rows:
                self.batches.append(_Batch(self.model, rows))
        self.batches = [batch for batch in self.batches if batch.step()]
        return bool(self.batches or self.queue)

    def _next_rows(self) -> list[tuple[Request, int]]:
        """The first waiting rows of one kind that there is room for."""
        room = self.tokens_at_once - sum(batch.tokens_held for batch in self.batches)
        kind, prompt, answer = _kind(self.queue[0][0]), 0, 0
        rows: list[tuple[Request, int]] = []
        for request, sample in self.queue:
            if _kind(request) != kind:
                continue
            prompt, answer = max(prompt, len(request.prompt)), max(answer, request.max_tokens)
            fits = (len(rows) + 1) * (prompt + answer) <= room or not (rows or self.batches)
            if not fits or len(rows) == ROWS:
                break
            rows.append((request, sample))
        return rows

    def wait_for_company(self) -> None:
        time.sleep(GATHER)

    def fail(self, error: BaseException) -> None:
        for request, _ in self.queue + [row for batch in self.batches for row in batch.rows]:
            request.fail(error)
        self.queue, self.batches = [], []

    @torch.inference_mode()
    def _score(self, request: Request) -> None:
        tokens = torch.tensor([request.prompt], device=self.model.device)
        logits = self.model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
        logprobs = logits.log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0]
        request.score(logprobs.cpu().numpy())


def _kind(request: Request) -> tuple[float, int, float]:
    """Rows are drawn together only where the same rule applies to all of them."""
    return request.params.temperature, request.params.top_k, request.params.top_p


class _Batch:
    """Rows that were prefilled together, padded on the left, and step together."""

    @torch.inference_mode()
    def __init__(self, model: Any, rows: list[tuple[Request, int]]):
        self.model, self.rows, self.params = model, rows, rows[0][0].params
        device = model.device
        longest, most = max(len(r.prompt) for r, _ in rows), max(r.max_tokens for r, _ in rows)
        tokens = torch.zeros(len(rows), longest, dtype=torch.long)
        self.mask = torch.zeros(len(rows), longest, dtype=torch.long, device=device)
        uniforms = np.zeros((len(rows), most), np.float32)
        for i, (request, sample) in enumerate(rows):
            tokens[i, longest - len(request.prompt) :] = torch.tensor(request.prompt)
            self.mask[i, longest - len(request.prompt) :] = 1
            uniforms[i, : request.max_tokens] = request.uniforms(sample)
        self.uniforms = torch.from_numpy(uniforms).to(device)
        self.tokens: list[list[int]] = [[] for _ in rows]
        self.logprobs: list[list[float]] = [[] for _ in rows]
        self.positions = self.mask.sum(-1)  # of the next token
        self.drawn, self.width = 0, longest + most
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        out = model(
            input_ids=tokens.to(device),
            attention_mask=self.mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache, self.logits = out.past_key_values, out.logits[:, -1].float()

    @property
    def tokens_held(self) -> int:
        """At the most, with those to come."""
        return len(self.rows) * self.width

    @torch.inference_mode()
    def step(self) -> bool:
        """Draw a token for each row, answer finished ones, run the model for the others; False when none is left."""
        tokens, logprobs = draw(self.logits, self.uniforms[:, self.drawn], self.params)
        self.drawn += 1
        going = []
        for i, (token, logprob) in enumerate(zip(tokens.tolist(), logprobs.tolist(), strict=True)):
            self.tokens[i].append(token)
            self.logprobs[i].append(logprob)
            request, sample = self.rows[i]
            stopped = request.stops(self.tokens[i])
            if stopped or self.drawn >= request.max_tokens:
                request.finish(sample, np.array(self.tokens[i]), np.array(self.logprobs[i]), stopped)
            else:
                going.append(i)
        if not going:
            return False
        if len(going) < len(self.rows):
            self._keep(going)
            tokens = tokens[going]
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], dim=-1)
        out = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask,
            position_ids=self.positions[:, None],
            past_key_values=self.cache,
            use_cache=True,
        )
        self.positions = self.positions + 1
        self.cache, self.logits = out.past_key_values, out.logits[:, -1].float()
        return True

    def _keep(self, rows: list[int]) -> None:
        index: Tensor = torch.tensor(rows, device=self.mask.device)
        self.cache.reorder_cache(index)
        self.mask, self.uniforms, self.positions = self.mask[index], self.uniforms[index], self.positions[index]
        self.rows = [self.rows[i] for i in rows]
        self.tokens, self.logprobs = [self.tokens[i] for i in rows], [self.logprobs[i] for i in rows]
