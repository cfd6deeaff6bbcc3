"""Measures how busy a step keeps its sampler, from the calls that are in flight.

A slot is a call that the step has had in flight at its busiest; `idle` is the share of the slots' time, between the first
call and the last answer, in which none was. Times differ from run to run, so they stand with the other timings and are
part of no result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lib.files import write_json

EVERY = 30.0  # seconds, between notes of a step that goes on
SAMPLES = {"sample", "sample_async"}


class Gauge:
    """How many calls are in flight, over time. `file`: where that is noted; `clock`: seconds."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic):
        self._file, self._clock, self._lock = file, clock, threading.Lock()
        self._began = self._last = self._noted = clock()
        self._flying = self._slots = 0
        self._used = 0.0  # slots x seconds

    def look(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if name not in SAMPLES:
            return method(*args, **options)
        self._change(1)
        try:
            sent = method(*args, **options)
        except BaseException:
            self._change(-1)
            raise
        if asyncio.iscoroutine(sent):
            return self._waited(sent)
        sent.future().add_done_callback(lambda _: self._change(-1))
        return sent

    async def _waited(self, sent: Any) -> Any:
        try:
            return await sent
        finally:
            self._change(-1)

    def _change(self, by: int) -> None:
        with self._lock:
            now = self._clock()
            if not self._slots:
                self._began = now
            self._used += self._flying * (now - self._last)
            self._flying, self._last = self._flying + by, now
            self._slots = max(self._slots, self._flying)
            if now - self._noted > EVERY:
                self._noted = now
                self._note()

    def idle(self) -> float | None:
        """Share of the slots' time that was idle until the last call began or ended; None before the first answer."""
        whole = self._slots * (self._last - self._began)
        return 1 - self._used / whole if whole > 0 else None

    def close(self) -> None:
        with self._lock:
            self._note()

    def _note(self) -> None:
        if (idle := self.idle()) is not None:
            seconds = round(self._last - self._began, 1)
            write_json(self._file, {"slots": self._slots, "seconds": seconds, "idle": round(idle, 4)})


@contextlib.contextmanager
def measured(timings: Path, step: str) -> Iterator[None]:
    """Inside the block, which stands inside of one that serves a backend, its samples are measured.

    timings: the run's folder of them.
    """
    import tinker  # slow to import, and of no use to who only reads the figures

    from lib.backends.seen import Seen

    service, gauge = tinker.ServiceClient, Gauge(timings / "sampling" / f"{step}.json")
    tinker.ServiceClient = lambda *args, **options: Seen(service(*args, **options), gauge.look)  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        tinker.ServiceClient = service  # type: ignore[misc]
        gauge.close()


def read(timings: Path) -> dict[str, float]:
    """Step -> share of its sampler's time that was idle, of a run's folder of timings."""
    return {file.stem: json.loads(file.read_text())["idle"] for file in sorted(timings.glob("sampling/*.json"))}
