"""Runs jobs side by side, each in one of two processes with a database server of its own: the sampler and the trainer use one
core each, and a stuck server can only be replaced by the process that started it."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import cache
from multiprocessing import get_context, parent_process, util
from pathlib import Path

from tqdm import tqdm

PROCESSES = 2


class JobFailed(RuntimeError):
    """A job ended by an error, which stands in the message; those that were begun have ended."""


def side_by_side(jobs: Mapping[str, Callable[[], object]], what: str, processes: int = PROCESSES) -> None:
    """Do all jobs, by name; each must be picklable. Bars inside them aren't shown: they would overwrite each other.

    Raises JobFailed with the first error; jobs that weren't begun are left out then, and done when called again.
    """
    os.environ["TQDM_DISABLE"] = "1"  # read when a process imports tqdm: by those that are started now, not by this one
    pool = ProcessPoolExecutor(min(processes, len(jobs) or 1), get_context("spawn"), _end_with_parent)
    try:
        running = [pool.submit(_done, name, job) for name, job in jobs.items()]
        for ended in tqdm(as_completed(running), desc=what, total=len(jobs), unit="job"):
            ended.result()
    except BrokenProcessPool:
        raise JobFailed("a process was killed, most often for want of memory; start again to go on") from None
    finally:
        pool.shutdown(cancel_futures=True)
        del os.environ["TQDM_DISABLE"]


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for its next job for ever."""
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _done(name: str, job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as error:  # in words, since not every error can be sent from one process to another
        traceback.print_exc(file=sys.stderr)
        raise JobFailed(f"{name}: {type(error).__name__}: {error}") from None


@cache
def database(graph: Path, data: Path) -> str:
    """The Bolt URI of this process's own server, which runs until the process ends. Raises what `server.running` raises."""
    from lib.graph import server  # seconds to import, and not every job needs it

    opened = ExitStack()
    util.Finalize(None, opened.close, exitpriority=1)
    return opened.enter_context(server.running(graph, data))
