"""The thread in which all sampling happens, for as many snapshots as are in use."""

from __future__ import annotations

import threading
from typing import Any

import torch

from lib.backends.hf_sampling import HFSampler
from lib.backends.models import Weights
from lib.backends.requests import Request


class SamplingWorker:
    """Hands requests to their samplers and lets those that have work take turns; sleeps when none has."""

    def __init__(self) -> None:
        self._inbox: list[tuple[HFSampler, Request]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    def sampler(self, weights: Weights) -> HFSampler:
        return HFSampler(weights)

    def submit(self, sampler: HFSampler, request: Request) -> None:
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
        busy: dict[Any, None] = {}  # an ordered set
        while not self._closed:
            self._take(busy)
            for sampler in list(busy):
                try:
                    if not sampler.step():
                        del busy[sampler]
                except Exception as e:  # noqa: BLE001  # whatever it is, its callers must hear of it
                    sampler.fail(e)
                    del busy[sampler]
        for sampler in busy:
            sampler.fail(RuntimeError("the local service ended before this request was answered"))

    def _take(self, busy: dict[Any, None]) -> None:
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
            except Exception as e:  # noqa: BLE001
                request.fail(e)
