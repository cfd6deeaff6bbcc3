"""The record of what a run may have cost, kept so that no kill, crash or second process loses a cent of it.

A line is written before a call is sent, with the most that it can cost, and another when its outcome is known. A call
without an outcome (in flight, or its process was killed) counts in full, and so does one that failed: the service may have
charged for it. All processes of a run share one file, and each looks at what the others have written before it spends.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lib.backends.prices import Price, Usage


class LimitReached(RuntimeError):
    """A call that could pass the limit wasn't sent; the message says what is spent and how to go on."""


def path(run: Path) -> Path:
    """Where the ledger of a run's folder lies."""
    return run / "spend" / "ledger.jsonl"


@dataclass
class Spent:
    """Sums of one stage, in calls, tokens and US dollars."""

    calls: int = 0
    failed: int = 0
    prompt: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0
    upper: float = 0.0
    estimate: float = 0.0


class Account:
    """What a ledger's lines add up to."""

    def __init__(self) -> None:
        self.sessions: list[dict[str, Any]] = []  # a line each time that a stage began to spend
        self.stages: dict[str, Spent] = defaultdict(Spent)
        self.unknown: dict[str, float] = {}  # calls without an outcome, and the most that each can cost

    @property
    def upper(self) -> float:
        """US dollars that the run has cost at most."""
        return sum(stage.upper for stage in self.stages.values()) + self.in_flight

    @property
    def in_flight(self) -> float:
        """Of these, what calls without an outcome may cost."""
        return sum(self.unknown.values())

    @property
    def estimate(self) -> float:
        """US dollars with the caching that the service reports, of the calls that were answered."""
        return sum(stage.estimate for stage in self.stages.values())

    def add(self, line: dict[str, Any]) -> None:
        """Raises KeyError or ValueError for a line that no ledger holds."""
        event = line["event"]
        if event == "opened":
            self.sessions.append(line)
        elif event == "sent":
            self.unknown[line["call"]] = float(line["upper"])
        elif event in ("paid", "failed"):
            stage = self.stages[self.sessions[int(line["call"].split("-")[0])]["stage"]]
            most = self.unknown.pop(line["call"])
            stage.calls += 1
            stage.upper += line["upper"] if event == "paid" else most
            if event == "failed":
                stage.failed += 1
                return
            stage.estimate += line["estimate"]
            for name in ("prompt", "cached", "sampled", "trained"):
                setattr(stage, name, getattr(stage, name) + line[name])
        else:
            raise ValueError(f"unknown event {event!r}")


class Ledger:
    """One stage's hold on the ledger of its run. `limit`: US dollars that all stages of the run may cost at most."""

    def __init__(self, file: Path, stage: str, limit: float, about: dict[str, Any]):
        """about: what else the first line says, such as the model and its price. Raises LimitReached where all is spent."""
        self.file, self.limit, self.account = file, limit, Account()
        self._mutex, self._size, self._lines, self._calls = threading.Lock(), 0, 0, 0
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a+b", buffering=0)
        self._fd = self._file.fileno()
        with self._alone():
            self._allow(0.0)
            self._session = len(self.account.sessions)
            self._append({"event": "opened", "stage": stage, "limit": limit, **about})

    def send(self, kind: str, upper: float) -> str:
        """Note a call that is about to be sent and can cost `upper` US dollars; returns its name.

        Raises LimitReached, and notes nothing, where it could pass the limit.
        """
        with self._alone():
            self._allow(upper)
            call = f"{self._session}-{self._calls}"
            self._calls += 1
            self._append({"event": "sent", "call": call, "kind": kind, "upper": upper})
        return call

    def paid(self, call: str, price: Price, used: Usage) -> None:
        """Note a call that was answered."""
        costs = {"upper": price.upper(used), "estimate": price.estimate(used)}
        with self._alone():
            self._append({"event": "paid", "call": call, **costs, **asdict(used)})

    def failed(self, call: str, error: BaseException) -> None:
        """Note a call that wasn't answered; where not even that can be written, it counts as in flight, which is as much."""
        with suppress(OSError), self._alone():
            self._append({"event": "failed", "call": call, "error": type(error).__name__})

    def _allow(self, upper: float) -> None:
        spent, in_flight = self.account.upper, self.account.in_flight
        if spent + upper > self.limit or spent >= self.limit:
            raise LimitReached(
                f"a call of up to ${upper:.4f} would pass the limit of ${self.limit:.2f} for this run: up to ${spent:.4f} "
                f"is spent, ${in_flight:.4f} of it by calls in flight or cut off ({self.file}). Set ALLOW_SPEND to a higher "
                "limit for the whole run and start the step again: it goes on from its last checkpoint"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds other threads and processes off, having read what they wrote."""
        with self._mutex:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                self._catch_up()
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        size = os.fstat(self._fd).st_size
        if size == self._size:
            return
        new = os.pread(self._fd, size - self._size, self._size)
        if not new.endswith(b"\n"):  # a writer was killed at it; what it meant to send, it hadn't sent
            new = new[: new.rfind(b"\n") + 1]
            os.ftruncate(self._fd, self._size + len(new))
        self._lines = _add(self.account, new, self.file, self._lines)
        self._size += len(new)

    def _append(self, line: dict[str, Any]) -> None:
        content = json.dumps(line, sort_keys=True).encode() + b"\n"
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self.account.add(line)
        self._size, self._lines = self._size + len(content), self._lines + 1


def read(file: Path) -> Account:
    """What a ledger adds up to, whether its run goes on or not. Raises ValueError for a damaged line."""
    account = Account()
    content = file.read_bytes()
    _add(account, content[: content.rfind(b"\n") + 1], file, 0)
    return account


def _add(account: Account, content: bytes, file: Path, number: int) -> int:
    """Add whole lines, of which `number` came before; returns how many there are now."""
    for line in content.splitlines():
        number += 1
        try:
            account.add(json.loads(line))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
            raise ValueError(
                f"{file}, line {number}: {e!r}; put the line right by hand, or remove it only if you know that its call "
                "wasn't paid for"
            ) from e
    return number
