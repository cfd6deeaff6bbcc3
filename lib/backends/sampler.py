"""Sampling from small models: continuous batching over a prefix cache, repeatable to the last bit.

Each step feeds ROWS tokens: the newest token of every running sequence, and with the rows that are left the next
tokens of prompts. Sequences enter and leave at any step, so nobody waits for a batch to fill or to finish.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from tinker import types

from lib.backends.decoder import ROWS, Decoder
from lib.backends.models import Weights
from lib.backends.prefix_cache import BLOCK, BlockPool, Entry, prefix_hashes
from lib.backends.requests import Request, draw

LOOK_AHEAD = 4 * ROWS  # waiting sequences considered for a free place


@dataclass(eq=False)
class _Sequence:
    """One sample of one request; `hashes` are of the prompt's prefixes."""

    request: Request
    sample: int
    hashes: list[int]
    scored: bool  # the prompt's log-probabilities come from this one
    entry: Entry | None = None
    slot: int = -1


class FastSampler:
    """Samples from one snapshot; all methods are called by one thread."""

    def __init__(self, weights: Weights, decoder: Decoder, pool: BlockPool):
        self.decoder, self.pool = decoder, pool
        self.owner = int(weights.digest, 16)
        self.reused = 0  # prompt tokens that were found in the cache
        self.waiting: deque[_Sequence] = deque()
        self.filling: list[_Sequence] = []  # whose prompts aren't yet in, oldest first
        self.running: dict[int, _Sequence] = {}  # by slot, those in `filling` included
        context, slots = decoder.context, ROWS + 1  # the last slot stands for unused rows, in the scratch block
        self.blocks = np.zeros((slots, -(-context // BLOCK)), np.int64)
        self.fed = np.zeros(slots, np.int64)  # tokens whose keys are in the pool
        self.token = np.zeros(slots, np.int64)  # to be fed next
        self.drawn = np.zeros(slots, np.int64)
        self.most = np.zeros(slots, np.int64)
        self.sampling = np.zeros(slots, bool)
        self.uniforms = np.zeros((slots, context), np.float32)
        self.tokens = np.zeros((slots, context), np.int32)
        self.logprobs = np.zeros((slots, context), np.float32)
        self.stop = np.zeros((slots, decoder.vocabulary), bool)
        self.stop_strings = np.zeros(slots, bool)
        self.rule = np.zeros(slots, np.int64)  # which of `rules` its draws follow
        self.rules: dict[tuple[float, int, float], tuple[int, types.SamplingParams]] = {}

    def add(self, request: Request) -> None:
        hashes = prefix_hashes(self.owner, request.prompt)
        for sample in range(max(1, request.samples)):
            self.waiting.append(_Sequence(request, sample, hashes, request.scored and sample == 0))

    def wait_for_company(self) -> None:
        """Nothing to wait for: company can join at any step."""

    def fail(self, error: BaseException) -> None:
        for sequence in [*self.waiting, *self.running.values()]:
            sequence.request.fail(error)
            if sequence.entry is not None:
                self.pool.drop(sequence.entry)
        self.waiting.clear()
        self.running.clear()
        self.filling = []
        self.sampling[:] = False

    def step(self) -> bool:
        """Admit what fits, feed one batch of rows, draw; False when nothing is left to do."""
        self._admit()
        slots, positions, tokens, fills = self._rows()
        batch = self.decoder.batch(tokens, positions, self.blocks[slots])
        hidden = self.decoder.run(batch, self.pool)
        drawing = self.sampling[slots]
        ended = [(sequence, row) for sequence, _, row in fills if row >= 0]
        for _, row in ended:
            drawing[row] = True
        scored = [(sequence, rows) for sequence, rows, _ in fills if sequence.scored]
        if drawing.any() or scored:
            logits = self.decoder.logits(hidden)
            self._score(scored, positions, logits)
            self._draw(slots, np.flatnonzero(drawing), logits)
        return bool(self.running or self.waiting)

    def _admit(self) -> None:
        """Give free slots to waiting sequences, in order; one whose prefix is just being computed is passed over."""
        later: list[_Sequence] = []
        free = [slot for slot in range(ROWS) if slot not in self.running] if self.waiting else []
        while free and self.waiting and len(later) < LOOK_AHEAD:
            sequence = self.waiting.popleft()
            request = sequence.request
            # the last token is always fed, since its logits give the first draw; scoring needs all of them
            most = 0 if sequence.scored else len(request.prompt) - 1
            source, shared = self.pool.find(self.owner, request.prompt, sequence.hashes, most)
            if source is not None and source.filled < shared:
                later.append(sequence)
                continue
            capacity = len(request.prompt) + (request.max_tokens if request.samples else 0)
            entry = self.pool.start(self.owner, request.prompt, sequence.hashes, capacity, source, shared)
            if entry is None:
                later.append(sequence)
                break
            sequence.entry = entry
            self.reused += shared
            self._occupy(sequence, entry, free.pop(0))
        self.waiting.extendleft(reversed(later))

    def _occupy(self, sequence: _Sequence, entry: Entry, slot: int) -> None:
        request = sequence.request
        sequence.slot = slot
        self.running[slot] = sequence
        self.filling.append(sequence)
        self.blocks[slot, : len(entry.blocks)] = entry.blocks
        self.fed[slot], self.drawn[slot], self.sampling[slot] = entry.filled, 0, False
        self.most[slot] = request.max_tokens if request.samples else 1
        self.stop[slot], self.stop_strings[slot] = False, bool(request.stop_strings)
        rule = (request.params.temperature, request.params.top_k, request.params.top_p)
        self.rule[slot] = self.rules.setdefault(rule, (len(self.rules), request.params))[0]
        if request.samples:
            self.stop[slot, [t for t in request.stop_tokens if t < self.decoder.vocabulary]] = True
            self.uniforms[slot, : request.max_tokens] = request.uniforms(sequence.sample)

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[_Sequence, slice, int]]]:
        """Slots, positions and tokens of this step's rows, and for each prompt being fed its rows and its last token's row (or -1)."""
        slots = np.full(ROWS, ROWS, np.int64)
        positions, tokens = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64)
        going = np.flatnonzero(self.sampling)
        used = len(going)
        slots[:used], positions[:used], tokens[:used] = going, self.fed[going], self.token[going]
        self.fed[going] += 1
        fills: list[tuple[_Sequence, slice, int]] = []
        for sequence in list(self.filling):
            if used == ROWS:
                break
            prompt, slot = sequence.request.prompt, sequence.slot
            start = int(self.fed[slot])
            count = min(ROWS - used, len(prompt) - start)
            rows = slice(used, used + count)
            slots[rows], positions[rows] = slot, np.arange(start, start + count)
            tokens[rows] = prompt[start : start + count]
            used += count
            self.fed[slot] = start + count
            assert sequence.entry is not None
            sequence.entry.filled = start + count
            complete = start + count == len(prompt)
            fills.append((sequence, rows, used - 1 if complete else -1))
            if complete:
                self.filling.remove(sequence)
        return slots, positions, tokens, fills

    def _score(self, scored: list[tuple[_Sequence, slice]], positions: np.ndarray, logits: torch.Tensor) -> None:
        """Log-probability of each fed prompt token's successor."""
        if not scored:
            return
        normed = logits.log_softmax(-1)
        for sequence, rows in scored:
            prompt = sequence.request.prompt
            after = positions[rows] + 1
            inside = after < len(prompt)
            following = torch.tensor([prompt[p] for p in after[inside]], dtype=torch.long)
            values = normed[rows][torch.from_numpy(inside)].gather(-1, following[:, None])[:, 0].numpy()
            self.logprobs[sequence.slot, after[inside] - 1] = values
            if not inside.all():
                sequence.request.score(self.logprobs[sequence.slot, : len(prompt) - 1].copy())

    def _draw(self, slots: np.ndarray, rows: np.ndarray, logits: torch.Tensor) -> None:
        """Draw for these rows; sequences that end are answered and leave."""
        if len(rows) == 0:
            return
        uniforms = torch.from_numpy(self.uniforms[slots, self.drawn[slots]])
        tokens, logprobs = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.float32)
        for number, params in self.rules.values():
            own = rows[self.rule[slots[rows]] == number]
            if len(own):  # all rows are drawn for, since the shape must not depend on the company
                drawn, drawn_logprobs = draw(logits, uniforms, params)
                tokens[own], logprobs[own] = drawn.numpy()[own], drawn_logprobs.numpy()[own]
        here, tokens, logprobs = slots[rows], tokens[rows], logprobs[rows]
        number = self.drawn[here]
        self.tokens[here, number], self.logprobs[here, number] = tokens, logprobs
        self.token[here], self.drawn[here], self.sampling[here] = tokens, number + 1, True
        stopped = self.stop[here, tokens]
        for i in np.flatnonzero(self.stop_strings[here]).tolist():
            stopped[i] = self.running[here[i]].request.stops(self.tokens[here[i], : number[i] + 1].tolist())
        for i in np.flatnonzero(stopped | (number + 1 >= self.most[here])).tolist():
            self._leave(self.running.pop(int(here[i])), bool(stopped[i]))

    def _leave(self, sequence: _Sequence, stopped: bool) -> None:
        request, slot, entry = sequence.request, sequence.slot, sequence.entry
        assert entry is not None
        self.sampling[slot] = False
        count = int(self.drawn[slot])
        # the last token was never fed, so its keys aren't there
        fed = request.prompt + self.tokens[slot, : count - 1].tolist()
        self.pool.finish(
            entry, fed, sequence.hashes + prefix_hashes(sequence.hashes[-1], fed[len(request.prompt) :])[1:]
        )
        if request.samples == 0:
            request.answer()
        else:
            request.finish(
                sequence.sample, self.tokens[slot, :count].copy(), self.logprobs[slot, :count].copy(), stopped
            )
