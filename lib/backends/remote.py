"""Notes whatever a run creates on a hosted service before it is created, so that what a dead run left there can be found.

A line in data/runs/<run>/spend/remote.jsonl says what is about to be made, and another what the service called it; lib.watchdog
deletes and crosses out. The file is only appended to. A line that a kill has torn is skipped: a torn intention created
nothing, and of any other the one before it still stands.

What is created: sessions (one a client, in which the service keeps its jobs and samplers) and weights that are saved under a
name. Serverless training makes no deployment.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lib.backends.futures import then
from lib.settings import ROOT

TAG = "noted_as"  # the key of a session's metadata under which its name here stands


def path(run: Path) -> Path:
    """Where the notes of a run's folder lie."""
    return run / "spend" / "remote.jsonl"


@dataclass(frozen=True)
class Thing:
    """One that was created, or that may have been. `where`: the service's own name for it; empty while nobody knows it."""

    name: str
    kind: str  # session or weights
    owner: str
    backend: str
    base_url: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where or f'{self.name} (its name on the service never arrived)'}"


class Book:
    """One stage's notes. Nothing is written, and no watchdog started, before something is about to be created.

    While the process lives it holds a lock, which the system releases however it ends: that is how others know. The watchdog,
    a process of its own, waits for it, and then deletes what nobody needs any more.
    """

    def __init__(self, run: Path, stage: str, backend: str, base_url: str):
        self.run, self.about = run, {"stage": stage, "backend": backend, "base_url": base_url}
        self.owner = f"{stage}-{uuid.uuid4().hex[:12]}"
        self._mutex, self._things = threading.Lock(), 0
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._lock is not None:
            self._lock.close()

    def intend(self, kind: str, where: str = "") -> str:
        """Note what is about to be created; returns its name. where: the service's name, if it is known beforehand."""
        with self._mutex:
            if self._lock is None:
                self._open()
            name = f"{self.owner}-{self._things}"
            self._things += 1
        append(self.run, {"event": "intended", "thing": name, "owner": self.owner, "kind": kind, "where": where})
        return name

    def made(self, thing: str, where: str) -> None:
        """Note the name that the service gave."""
        append(self.run, {"event": "made", "thing": thing, "where": where})

    def _open(self) -> None:
        file = lock_file(self.run, self.owner)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = file.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        append(self.run, {"event": "opened", "owner": self.owner, **self.about})
        watch(self.run, self.owner)


def watch(run: Path, owner: str) -> None:
    """Start the watchdog that waits for the end of a process; what it says goes to spend/watchdog.log."""
    data = run.parents[1].resolve()
    with (run / "spend" / "watchdog.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "lib.watchdog", run.name, "--data", str(data), "--after", owner],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt from the terminal is for the run alone
        )


def lock_file(run: Path, owner: str) -> Path:
    return run / "spend" / "locks" / owner


def gone(run: Path, owner: str, wait: bool = False) -> bool:
    """Has the process ended that noted as `owner`? wait: until it has."""
    try:
        with lock_file(run, owner).open("rb") as file:
            # shared, so that two who ask at once don't take each other for the living process
            fcntl.flock(file, fcntl.LOCK_SH if wait else fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def append(run: Path, line: dict[str, Any]) -> None:
    """Write a line to the disk, in one piece, after the end of whatever a kill has torn.

    Raises OSError where the disk takes only part of it, so that nothing is created whose note can't be read.
    """
    with path(run).open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        torn = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
        content = b"\n" * bool(torn) + json.dumps(line, sort_keys=True).encode() + b"\n"
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, "the disk takes no more: make room, and start the step again", str(path(run)))
        os.fsync(file.fileno())


def things(run: Path) -> list[Thing]:
    """What isn't crossed out, in the order in which it was noted; nothing where no run noted anything."""
    owners: dict[str, dict[str, str]] = {}
    found: dict[str, Thing] = {}
    for line in _lines(path(run)):
        match line:
            case {"event": "opened", "owner": owner, "backend": backend, "base_url": url}:
                owners[owner] = {"backend": backend, "base_url": url}
            case {"event": "intended", "thing": name, "owner": owner, "kind": kind, "where": where} if owner in owners:
                found[name] = Thing(name, kind, owner, where=where, **owners[owner])
            case {"event": "made", "thing": name, "where": where} if name in found:
                found[name] = Thing(**{**vars(found[name]), "where": where})
            case {"event": "gone", "thing": name}:
                found.pop(name, None)
    return list(found.values())


def _lines(file: Path) -> list[Any]:
    lines = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # torn
    return lines


def noted(service: Callable[..., Any], book: Book) -> Callable[..., Any]:
    """A maker of clients like `service` whose clients note in the book what they create."""

    def client(*args: Any, user_metadata: dict[str, str] | None = None, **options: Any) -> ServiceClient:
        session = book.intend("session")
        tagged = {**(user_metadata or {}), TAG: session}
        return ServiceClient(book, session, service(*args, user_metadata=tagged, **options))

    return client


class _Over:
    """What creates nothing that stays goes through as it is."""

    def __init__(self, book: Book, client: Any):
        self.book, self.client = book, client

    def __getattr__(self, name: str) -> Any:
        if name in ("book", "client"):
            raise AttributeError(name)
        return getattr(self.client, name)


class ServiceClient(_Over):
    """`tinker.ServiceClient` whose session is noted, and whose training clients note what they save.

    Only the methods that give a future are wrapped: the meter, which is around this, calls no others.
    """

    def __init__(self, book: Book, session: str, client: Any):
        super().__init__(book, client)
        self.session = session

    def create_lora_training_client(self, *args: Any, **options: Any) -> Any:
        return self._training(self.client.create_lora_training_client(*args, **options))

    def create_training_client_from_state(self, *args: Any, **options: Any) -> Any:
        return self._training(self.client.create_training_client_from_state(*args, **options))

    def create_training_client_from_state_with_optimizer(self, *args: Any, **options: Any) -> Any:
        return self._training(self.client.create_training_client_from_state_with_optimizer(*args, **options))

    def _training(self, client: Any) -> Any:
        def found(made: Any) -> TrainingClient:
            # Fireworks' session has a name from here on; Tinker's is found by its metadata.
            if where := getattr(self.client, "session_name", None):
                self.book.made(self.session, where)
            return TrainingClient(self.book, made)

        return then(client, found)


class TrainingClient(_Over):
    """`tinker.TrainingClient` whose named weights are noted."""

    def save_state(self, name: str, *args: Any, **options: Any) -> Any:
        return self._save(self.client.save_state, "weights", name, *args, **options)

    def save_weights_for_sampler(self, name: str, *args: Any, **options: Any) -> Any:
        return self._save(self.client.save_weights_for_sampler, "sampler_weights", name, *args, **options)

    def _save(self, save: Callable[..., Any], kind: str, name: str, *args: Any, **options: Any) -> Any:
        run = getattr(self.client, "model_id", None)  # Fireworks has none: there, weights go with their session
        thing = self.book.intend("weights", f"tinker://{run}/{kind}/{name}" if run else "")

        def found(answer: Any) -> Any:
            self.book.made(thing, answer.path)
            return answer

        return then(save(name, *args, **options), found)
