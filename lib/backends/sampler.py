"""Sampling from small models: continuous batching over a prefix cache, repeatable to the last bit.

Each step feeds up to ROWS tokens: the newest token of every running sequence, and with the rows that are left the next
tokens of prompts. Sequences enter and leave at any step, so nobody waits for a batch to fill or to finish.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch

from lib.backends import kernels
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


@dataclass
class _Step:
    """The rows of one step, padded to a size of the decoder's; the first `drawing` of them are drawn for."""

    slots: np.ndarray
    positions: np.ndarray
    tokens: np.ndarray
    drawing: int
    fills: list[
        tuple[_Sequence, slice, bool]
    ]  # prompts that are fed: rows (but the last token's), and whether to the end


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
        self.temperature = np.zeros(slots, np.float32)
        self.restricted = np.zeros(slots, bool)  # draws follow top_k or top_p

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
        step = self._rows()
        scored = [fill for fill in step.fills if fill[0].scored]
        wanted = len(step.slots) if scored else step.drawing
        logits = self.decoder.run(step.tokens, step.positions, self.blocks[step.slots], wanted, self.pool)
        if scored:
            self._score(scored, step.positions, torch.from_numpy(logits))
        if step.drawing:
            self._draw(step.slots[: step.drawing], logits[: step.drawing])
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
        self.temperature[slot] = request.params.temperature
        self.restricted[slot] = request.params.top_k > 0 or request.params.top_p < 1
        if request.samples:
            self.stop[slot, [t for t in request.stop_tokens if t < self.decoder.vocabulary]] = True
            self.uniforms[slot, : request.max_tokens] = request.uniforms(sequence.sample)

    def _rows(self) -> _Step:
        """First the newest tokens of running sequences, then the last tokens of prompts that end here, then the rest."""
        going = np.flatnonzero(self.sampling)
        room = ROWS - len(going)
        feeds: list[tuple[_Sequence, int, int, bool]] = []  # from, to (without the last token, if that is fed)
        for sequence in self.filling:
            if room == 0:
                break
            start, length = int(self.fed[sequence.slot]), len(sequence.request.prompt)
            stop = min(start + room, length)
            room -= stop - start
            complete = stop == length
            feeds.append((sequence, start, stop - complete, complete))
            self._mark_fed(sequence, stop, complete)
        last = [(f[0].slot, f[2], f[0].request.prompt[f[2]]) for f in feeds if f[3]]
        rows = [(f[0].slot, p, f[0].request.prompt[p]) for f in feeds for p in range(f[1], f[2])]
        table = np.array([*last, *rows], np.int64).reshape(-1, 3)
        used, drawing = len(going) + len(table), len(going) + len(last)
        size = self.decoder.size(used)
        slots, positions, tokens = np.full(size, ROWS, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
        slots[: len(going)], positions[: len(going)], tokens[: len(going)] = going, self.fed[going], self.token[going]
        slots[len(going) : used], positions[len(going) : used], tokens[len(going) : used] = table.T
        self.fed[going] += 1
        fills, at = [], drawing
        for sequence, start, stop, complete in feeds:
            fills.append((sequence, slice(at, at + stop - start), complete))
            at += stop - start
        return _Step(slots, positions, tokens, drawing, fills)

    def _mark_fed(self, sequence: _Sequence, stop: int, complete: bool) -> None:
        assert sequence.entry is not None
        self.fed[sequence.slot] = sequence.entry.filled = stop
        if complete:
            self.filling = [s for s in self.filling if s is not sequence]

    def _score(self, scored: list[tuple[_Sequence, slice, bool]], positions: np.ndarray, logits: torch.Tensor) -> None:
        """Log-probability of each fed prompt token's successor."""
        normed = logits.log_softmax(-1)
        for sequence, rows, complete in scored:
            prompt = sequence.request.prompt
            following = torch.tensor([prompt[p + 1] for p in positions[rows]], dtype=torch.long)
            known = self.logprobs[sequence.slot]
            known[positions[rows]] = normed[rows].gather(-1, following[:, None])[:, 0].numpy()
            if complete:
                sequence.request.score(known[: len(prompt) - 1].copy())

    def _draw(self, here: np.ndarray, logits: np.ndarray) -> None:
        """Draw for the sequences in these slots; those that end are answered and leave."""
        uniforms = self.uniforms[here, self.drawn[here]]
        tokens, logprobs = np.empty(len(here), np.int64), np.empty(len(here), np.float32)
        kernels.draw(logits, uniforms, self.temperature[here], tokens, logprobs)
        if (tokens < 0).any():
            raise FloatingPointError("the model's logits are not numbers (NaN): training has broken its weights")
        for i in np.flatnonzero(self.restricted[here]).tolist():
            row, uniform = torch.from_numpy(logits[i : i + 1]), torch.from_numpy(uniforms[i : i + 1])
            tokens[i], logprobs[i] = map(float, draw(row, uniform, self.running[here[i]].request.params))
        number = self.drawn[here]
        self.tokens[here, number], self.logprobs[here, number] = tokens, logprobs
        self.token[here], self.drawn[here], self.sampling[here] = tokens, number + 1, True
        stopped = self.stop[here, tokens]
        for i in np.flatnonzero(self.stop_strings[here]).tolist():
            stopped[i] = self.running[here[i]].request.stops(self.tokens[here[i], : number[i] + 1].tolist())
        for i in np.flatnonzero(stopped | (number + 1 >= self.most[here])).tolist():
            self._leave(self.running.pop(int(here[i])), bool(stopped[i]))

    def _leave(self, sequence: _Sequence, stopped: bool) -> None:
        """Answer for a sequence that ended, and keep its keys for the turn that may follow."""
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
