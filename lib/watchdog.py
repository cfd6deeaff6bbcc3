"""Deletes what a dead run left on a hosted service, asks the service whether it is gone, and goes on until it is.

    python -m lib.watchdog RUN                        what the run created there and isn't known to be gone
    python -m lib.watchdog RUN --delete               delete what nobody needs any more of processes that have ended
    python -m lib.watchdog RUN --delete --abandon     and the weights that an unfinished training would go on from

It keeps a finished training's final weights (those in checkpoint.json), and what a living process made. A paid run starts one
of its own, which waits until the run's process is gone, however it ended, and then does the second. What is left is named,
with the exit status 1. It creates nothing itself. Notes: data/runs/RUN/spend/remote.jsonl; lib.backends.remote writes them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import tinker
from tinker import types

from lib.backends import remote
from lib.backends.remote import TAG, Thing
from lib.settings import ROOT
from lib.updates import Kept

PAUSES = (0.0, 2.0, 5.0, 15.0, 60.0, 240.0, 600.0)  # seconds before each try: a service may take minutes to forget
PATIENCE = 120.0  # seconds for an answer


class WatchdogError(RuntimeError):
    """What was asked for can't be done; the message says why."""


class Host(Protocol):
    """What the watchdog asks of a service. Raises whatever the service's client raises where it doesn't answer."""

    kinds: tuple[str, ...]  # of things that can be there by themselves

    def there(self, thing: Thing) -> bool: ...

    def delete(self, thing: Thing) -> None: ...

    def holds(self, thing: Thing, path: str) -> bool:
        """Whether the weights of this path are the thing, or go with it."""
        ...


class Tinker:
    """Weights are deleted one by one. A session can't be ended from outside: it ends by itself when its client is silent."""

    kinds: tuple[str, ...] = ("weights", "session")

    def __init__(self, base_url: str):
        self.rest = tinker.RestClient(base_url=base_url or None)  # opens no session, as a ServiceClient would

    def there(self, thing: Thing) -> bool:
        if thing.kind == "session":
            active: Any = [types.ActiveSessionStatusQuery()]
            asked = types.SessionSearchRequest(user_metadata={TAG: thing.name}, statuses=active)
            return bool(self.rest.search_sessions(asked).result(timeout=PATIENCE).sessions)
        run = types.ParsedCheckpointTinkerPath.from_tinker_path(thing.where).training_run_id
        try:
            listed = self.rest.list_checkpoints(run).result(timeout=PATIENCE).checkpoints
        except tinker.NotFoundError:
            return False
        return any(checkpoint.tinker_path == thing.where for checkpoint in listed)

    def delete(self, thing: Thing) -> None:
        if thing.kind == "weights":
            self.rest.delete_checkpoint_from_tinker_path(thing.where).result(timeout=PATIENCE)

    def holds(self, thing: Thing, path: str) -> bool:
        return thing.where == path


def host(backend: str, base_url: str) -> Host:
    if backend == "tinker":
        return Tinker(base_url)
    made: Host = import_module(f"lib.backends.{backend}").Host(base_url)
    return made


def needed(run: Path, abandon: bool = False) -> set[str]:
    """Paths of the weights to keep: each training's final ones, and those that an unfinished one would go on from or
    go back to."""
    paths = {path for file in run.glob("train/*/checkpoint.json") for path in json.loads(file.read_text()).values()}
    if not abandon:  # a trial that was killed goes on from nothing, so its states aren't among them
        for file in (run.parents[1] / "work" / run.name).glob(f"train-seed-*/{Kept.NAME}"):
            kept = Kept.read(file.parent)
            paths |= {path for path in (kept.state, kept.good, kept.sampler) if path is not None}
    return paths


def sweep(
    run: Path, abandon: bool = False, pauses: tuple[float, ...] = PAUSES, hosts: Callable[[str, str], Host] = host
) -> dict[Thing, str]:
    """Delete what nobody needs of processes that have ended, and cross out what the service no longer shows.

    run: the run's folder. pauses: seconds before each try; their number is the most tries. Returns what is left, with the
    reason. What was being saved when its process ended may appear later, so it is looked for until the last try.

    Raises WatchdogError where `abandon` would take what a living process goes on from.
    """
    if abandon and any(not remote.gone(run, thing.owner) for thing in remote.things(run)):
        raise WatchdogError(f"run {run.name!r} is going on, and may need what would be abandoned: end it first")
    hosts = cache(hosts)
    left = dict.fromkeys(_unneeded(run, abandon, hosts), "not tried")
    saving = _saving(run)
    for tried, pause in enumerate(pauses, 1):
        if not left:
            break
        time.sleep(pause)
        for thing in list(left):
            try:
                service = hosts(thing.backend, thing.base_url)
                if tried < len(pauses) and thing.owner in saving and not service.there(thing):
                    left[thing] = "it was being saved when its process ended, and may appear yet"
                else:
                    left[thing] = _delete(service, thing)
            except Exception as e:  # an SDK may raise anything; the next try may do better
                left[thing] = f"{type(e).__name__}: {e}"
            if not left[thing]:
                remote.append(run, {"event": "gone", "thing": thing.name})
                del left[thing]
    return left


def _unneeded(run: Path, abandon: bool, hosts: Callable[[str, str], Host]) -> Iterator[Thing]:
    keep = needed(run, abandon)
    for thing in remote.things(run):
        if not remote.gone(run, thing.owner):
            continue
        service = hosts(thing.backend, thing.base_url)
        if thing.kind in service.kinds and not any(service.holds(thing, path) for path in keep):
            yield thing


def _saving(run: Path) -> set[str]:
    """Owners whose last saves were never answered: the service may finish them after their process has ended."""
    answered = {line["thing"] for line in remote._lines(remote.path(run)) if line.get("event") == "made"}
    return {thing.owner for thing in remote.things(run) if thing.kind == "weights" and thing.name not in answered}


def _delete(service: Host, thing: Thing) -> str:
    """Why it is still there; empty where the service no longer shows it."""
    if not service.there(thing):
        return ""
    service.delete(thing)
    return "the service was asked to delete it, and still shows it" if service.there(thing) else ""


def listed(run: Path) -> str:
    """What isn't known to be gone, a line each."""
    keep = needed(run)
    lines = []
    for thing in remote.things(run):
        state = "its process has ended" if remote.gone(run, thing.owner) else "in use"
        state = "kept: final, or to go on from" if thing.where in keep else state
        lines.append(f"{thing}  {state}")
    return "\n".join(lines) or "nothing that isn't known to be gone"


def main(arguments: list[str] | None = None) -> None:
    """Command line: list, or delete; exit status 1 where something is left, or nothing can be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.watchdog", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="its name, as in params.yaml")
    parser.add_argument("--delete", action="store_true", help="delete what nobody needs any more")
    parser.add_argument("--abandon", action="store_true", help="even what an unfinished training would go on from")
    parser.add_argument("--after", metavar="OWNER", help="wait until this process has ended, then --delete")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="another data folder than the project's")
    given = parser.parse_args(arguments)
    if given.abandon and not given.delete:
        parser.error("--abandon says what --delete may take: say both")
    run = given.data / "runs" / given.run
    if not given.run or not run.is_dir():
        sys.exit(f"watchdog: there is no run {given.run!r} in {given.data / 'runs'}")
    if given.after:
        remote.gone(run, given.after, wait=True)
    try:
        if not (given.delete or given.after):
            print(listed(run))
            return
        left = sweep(run, given.abandon, PAUSES)
    except (WatchdogError, tinker.TinkerError, ImportError, OSError, ValueError) as e:
        sys.exit(f"watchdog: {e}")
    if left:
        lines = "\n".join(f"  {thing}: {why}" for thing, why in left.items())
        sys.exit(f"watchdog: left on the service:\n{lines}\nSay `python -m lib.watchdog {given.run} --delete` again later, or "
                 "end it in the service's console")  # fmt: skip
    print("nothing is left that isn't kept")


if __name__ == "__main__":
    main()
