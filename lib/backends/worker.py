"""The thread in which all sampling happens, for as many snapshots as are in use."""

from __future__ import annotations

import threading
from typing import Any

import torch

from lib.backends.decoder import Decoder, supports
from lib.backends.hf_sampling import HFSampler
from lib.backends.models import Weights
from lib.backends.prefix_cache import BlockPool
from lib.backends.requests import Request
from lib.backends.sampler import FastSampler

Sampler = FastSampler | HFSampler


class SamplingWorker:
    """Hands requests to their samplers and lets those that have work take turns; sleeps when none has.

    `cache_bytes`: for the keys and values of running and past sequences of the fast sampler; snapshots of one shape
    share them. `tokens_at_once`: whose keys and values the general sampler may hold, for each snapshot.
    """

    def __init__(self, cache_bytes: int, tokens_at_once: int) -> None:
        self._cache_bytes, self._tokens_at_once = cache_bytes, tokens_at_once
        self.pools: dict[Any, BlockPool] = {}
        self._inbox: list[tuple[Sampler, Request]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    def sampler(self, weights: Weights) -> Sampler:
        """The fast one where it knows the architecture."""
        if not supports(weights.model):
            return HFSampler(weights, self._tokens_at_once)
        decoder = Decoder(weights.model)
        shape = tuple(decoder.block_shapes())
        with self._wake:
            if shape not in self.pools:
                self.pools[shape] = BlockPool(decoder.block_shapes(), self._cache_bytes, decoder.blocks_of_context)
            return FastSampler(weights, decoder, self.pools[shape])

    def submit(self, sampler: Sampler, request: Request) -> None:
        with self._wake:
            if self._closed:
                raise RuntimeError("the local service has ended: sample inside the `serving` block")
            self._inbox.append((sampler, request))
            self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        busy: dict[Sampler, None] = {}  # an ordered set
        while not self._closed:
            self._take(busy)
            for sampler in list(busy):
                try:
                    if not sampler.step():
                        del busy[sampler]
                except Exception as e:  # whatever it is, the callers must hear of it
                    sampler.fail(e)
                    del busy[sampler]
        for sampler in busy:
            sampler.fail(RuntimeError("the local service ended before this request was answered"))

    def _take(self, busy: dict[Sampler, None]) -> None:
        """Move requests from the inbox to their samplers; wait for some where there is nothing else to do."""
        with self._wake:
            idle = not busy
            while not (self._inbox or busy or self._closed):
                self._wake.wait()
        if idle and self._inbox:
            self._inbox[0][0].wait_for_company()
        with self._wake:
            taken, self._inbox = self._inbox, []
        for sampler, request in taken:
            try:
                sampler.add(request)
                busy[sampler] = None
            except Exception as e:
                request.fail(e)
