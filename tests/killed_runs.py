"""Training that is killed at one point after another, each time by SIGKILL, until it comes to its end; for the tests.

python -m tests.killed_runs DATA UNDISTURBED OUT: the same in UNDISTURBED without a kill; writes to OUT what was kept after each.
Each run is a process of its own, forked before any thread was started, since importing takes longest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tinker_cookbook.renderers.base import Message

from lib import evaluate, faults, plan, train, updates
from lib.agent import Attempt, Question, QuestionGroup, Verdict
from lib.backends import checkpoints, training
from lib.episodes import Episode, Writer
from lib.graph import server
from lib.reward import score
from lib.settings import InBand, Prepass, Replacement, Settings, load
from tests.conftest import ROOT

SYSTEM = "Answer"
STEPS = 4


class Words:
    """A world without a database: nothing is asked of it, and nothing is right."""

    def prompt(self, question: Question) -> list[Message]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question["question"]}]

    def begin(self) -> Attempt:
        return Attempt()

    async def verdict(self, question: Question, attempt: Attempt) -> Verdict:
        return Verdict(None, [], 0, None, score(None, question["rows"]))


def settings_in(data: Path) -> Settings:
    """The miniature's with a few more updates, and with all that must remember what came before: a pre-pass, questions by
    their rates so far, groups that are stopped early and replaced."""
    chosen = load(ROOT / "profiles" / "miniature.yaml", data=data)
    band = InBand(
        kind="band", low=0.2, high=0.8, sure=0.5, easy=0.1, never=0.1, every=1, half_life=2.0, rest=1,
        prepass=Prepass(questions=3, samples=2),
    )  # fmt: skip
    t = dataclasses.replace(
        chosen.train,
        updates=STEPS,
        dev_every=2,
        dev_samples=2,
        seeds=(0,),
        questions=band,
        replacement=Replacement(extra=1, first=2),
        faults=dataclasses.replace(chosen.train.faults, least_rollouts=2),
    )
    return dataclasses.replace(chosen, train=t)


def isolate() -> None:
    """No database and no plan; rewards by what was said, since a random model is never right."""
    graded = QuestionGroup._graded

    async def by_words(self: QuestionGroup, *args: Any) -> Episode:
        episode = await graded(self, *args)
        return dataclasses.replace(episode, reward=zlib.crc32(json.dumps(episode.messages).encode()) % 3 / 2)

    @contextlib.asynccontextmanager
    async def world_for(settings: Settings, uri: str, timeout: float) -> AsyncIterator[Any]:
        yield Words(), evaluate.renderer_for(settings)

    for owner, name, value in (
        (QuestionGroup, "_graded", by_words),
        (train, "world_for", world_for),
        (server, "running", lambda *_: contextlib.nullcontext("")),
        (plan, "digest", lambda _: "0" * 64),
    ):
        setattr(owner, name, value)


def note_answers(path: Path) -> None:
    """Write down each answer that the sampler gave, and was kept, by its name."""
    file, keep = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), faults.Answers.keep

    def noted(self: faults.Answers, name: str, answer: Any) -> None:
        keep(self, name, answer)
        os.write(file, f"{name}\n".encode())

    setattr(faults.Answers, "keep", noted)  # noqa: B010


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nothing(*_: Any, **__: Any) -> None:
    """Of a call that isn't begun."""


def at(
    owner: Any, name: str, which: Callable[..., bool], half: Callable[..., Any] | None = nothing
) -> Callable[[], None]:
    """Makes a run die in the first call of a function for which `which` holds, having done `half` of it; None: all of it."""

    def arm() -> None:
        usual = getattr(owner, name)

        def deadly(*args: Any, **options: Any) -> Any:
            if not which(*args):
                return usual(*args, **options)
            (usual if half is None else half)(*args, **options)
            die()

        setattr(owner, name, deadly)

    return arm


def half_a_line(writer: Writer, episode: Episode, timing: Any = None) -> None:
    os.write(writer._file._fd, episode.line()[:100])


def half_a_file(tensors: Any, path: Path) -> None:
    path.write_bytes(b"half of it")


def half_a_folder(folder: Path, **_: Any) -> None:
    (folder / "kept.json").unlink()


def episode(phase: str, update: int, sample: int) -> Callable[..., bool]:
    return lambda _, e, *__: (e.phase, e.update, e.sample) == (phase, update, sample)


def file(kind: str, name: str) -> Callable[..., bool]:
    return lambda _, path: (path.parent.name, path.stem) == (kind, name)


def always(*_: Any) -> bool:
    return True


# In the order in which a run comes by; each is met by the run that goes on from what the one before it left.
POINTS: dict[str, Callable[[], None]] = {
    "half an episode of the pre-pass": at(Writer, "write", lambda _, e, *__: e.arm == "base", half_a_line),
    "half an episode of the first look": at(Writer, "write", episode("dev", 0, 1), half_a_line),
    "half an episode of the first update": at(Writer, "write", episode("train", 0, 2), half_a_line),
    "before the first step": at(training.Trainer, "step", always),
    "after the first step": at(training.Trainer, "step", always, None),
    "half a state": at(checkpoints, "save_file", file("weights", "000001"), half_a_file),
    "before a state is noted": at(updates, "write_json", lambda _, kept: kept["update"] == 1),
    "before the old state is deleted": at(updates, "write_json", lambda _, kept: kept["update"] == 2, None),
    "half of the last state": at(checkpoints, "save_file", file("weights", "final"), half_a_file),
    "half of the last weights for sampling": at(
        checkpoints, "save_file", file("sampler_weights", "final"), half_a_file
    ),
    "before the last look": at(train.DevCurve, "__call__", lambda _, __, update: update == STEPS),
    "half an episode of the last look": at(Writer, "write", episode("dev", STEPS, 0), half_a_line),
    "when episodes are sorted": at(Writer, "finish", always, None),
    "while the checkpoint is copied": at(train, "copy_checkpoints", always, None),
    "before the last file": at(train, "lines", always),
    "while the work folder goes": at(
        shutil, "rmtree", lambda path, *_: Path(path).name == "train-seed-0", half_a_folder
    ),
}


def run(data: Path, arm: Callable[[], None] | None = None) -> tuple[bool, dict[str, Any]]:
    """Whether a run in a process of its own was killed, and what is kept then."""
    settings = settings_in(data)
    child = os.fork()
    if child == 0:
        note_answers(data / "answers.txt")
        os.dup2(os.open(data / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        if arm is not None:
            arm()
        train.train(settings, 0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and status:
        raise RuntimeError(f"the run failed: {(data / 'stderr.txt').read_text()[-2000:]}")
    work = data / "work" / settings.run / "train-seed-0"
    return killed, dataclasses.asdict(updates.Kept.read(work))


def main(data: Path, undisturbed: Path, out: Path) -> None:
    isolate()
    if run(undisturbed)[0]:
        raise RuntimeError("the undisturbed run was killed")
    told = {name: run(data, arm) for name, arm in POINTS.items()}
    told["never"] = run(data)
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
