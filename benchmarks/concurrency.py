"""How much of a sampler's time the study uses, with a sampler that is slow and no clock that runs.

    python benchmarks/concurrency.py        # prints a JSON line for evaluation and one for practice

A sampler with 64 slots takes 1 to 60 seconds for an answer, and rollouts take 1 to 4 of them. The code is the study's own, from
the episode file down to the environments; only the clock of its event loop is another, which leaps to whatever comes next.
In evaluation `busy` is the share of the slots' time that is used. Practice waits for the slowest rollout of each update,
since an update's rollouts are the model's of that moment: there `busy` is compared with `allowed`, what is left of the
slots' time if all rollouts of an update begin at once and the next update's begin as soon as the last of them has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import random
import selectors
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tinker import types

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib import dry_run, evaluate, train
from lib.backends import rollout_key
from lib.rehearsal import rehearsed
from lib.settings import ROOT, Settings, load

SLOTS = 64
SECONDS = (1.0, 60.0)  # of an answer
TURNS = 4  # at most
UPDATES = 6
CALL = '<tool_call>\n{"name": "no_such_tool", "arguments": {}}\n</tool_call>'  # a turn for which no database is needed


class _Leaping(selectors.SelectSelector):
    """Instead of waiting, moves the clock on. What is farther off than any sample can only be a limit: before that comes a
    thread's answer, and it waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        moment = timeout is not None and timeout <= SECONDS[1]
        ready = super().select(0 if moment else None)
        if not ready and timeout:
            self.now += timeout
        return ready


class Simulated(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now


class SlowSampler:
    """A script for a rehearsal: answers queue for the slots, first come, first served."""

    def __init__(self, settings: Settings):
        tokenizer = evaluate.renderer_for(settings).tokenizer
        self._call = tokenizer.encode(CALL)
        self._random = random.Random("slow sampler")
        self._free = [0.0] * SLOTS  # when each slot is free again
        self.answers: list[tuple[float, float]] = []  # when each began and ended
        self.practised: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # of these, by training rollout

    def __call__(self, prompt: types.ModelInput, params: types.SamplingParams) -> tuple[float, list[int]]:
        assert isinstance(params.stop, list)
        now = asyncio.get_running_loop().time()
        slot = min(range(SLOTS), key=self._free.__getitem__)
        began = max(now, self._free[slot])
        self._free[slot] = began + self._random.uniform(*SECONDS)
        self.answers.append((began, self._free[slot]))
        if "/train/" in (key := rollout_key.get() or ""):
            self.practised[key].append(self.answers[-1])
        more = self._random.random() < 1 - 1 / TURNS
        return self._free[slot] - now, [*(self._call if more else []), int(params.stop[0])]

    def busy(self) -> float:
        """Share of the slots' time between the first answer's begin and the last one's end."""
        span = max(end for _, end in self.answers) - min(begin for begin, _ in self.answers)
        return sum(end - begin for begin, end in self.answers) / (SLOTS * span)


def simulate(step: Callable[[Settings, Path], Coroutine[Any, Any, Any]], settings: Settings) -> SlowSampler:
    """Play one step of a run to its end; returns the sampler, which knows when it was asked."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        small = dry_run.prepared(settings, Path(folder))
        sampler = SlowSampler(small)
        with (
            rehearsed(Path(folder) / "work", settings.train.training, sampler),
            asyncio.Runner(loop_factory=Simulated) as runner,
        ):
            runner.run(step(small, Path(folder) / "work"))
    return sampler


def evaluation(settings: Settings) -> dict[str, float]:
    sampler = simulate(lambda small, work: evaluate._evaluate(small, "base", dry_run.NOWHERE, work), settings)
    return {"answers": len(sampler.answers), "busy": round(sampler.busy(), 3)}


def practice(settings: Settings) -> dict[str, float]:
    """`allowed` is of this very run: the sum of its updates' slowest rollouts, as if nothing else took any time."""
    sampler = simulate(
        lambda small, work: train.practise(small, 0, dry_run.NOWHERE, work, small.train_dir(0)), settings
    )
    sampler.answers = [answer for rollout in sampler.practised.values() for answer in rollout]
    slowest: dict[str, float] = {}
    for key, answers in sampler.practised.items():
        update = key.split("/")[4]
        slowest[update] = max(slowest.get(update, 0.0), sum(end - begin for begin, end in answers))
    used = sum(end - begin for begin, end in sampler.answers)
    busy, allowed = sampler.busy(), used / (SLOTS * sum(slowest.values()))
    return {
        "updates": len(slowest),
        "busy": round(busy, 3),
        "allowed": round(allowed, 3),
        "share": round(busy / allowed, 3),
    }


def profile() -> Settings:
    """The hosted profile's test, and a few updates of its practice."""
    chosen = load(ROOT / "profiles" / "tinker-27b.yaml")
    return dataclasses.replace(
        chosen,
        human=dataclasses.replace(chosen.human, questions=""),
        agent=dataclasses.replace(chosen.agent, max_turns=TURNS, renderer="qwen3_instruct"),
        train=dataclasses.replace(chosen.train, updates=UPDATES, dev_every=UPDATES),
    )


if __name__ == "__main__":
    print(json.dumps({"step": "evaluation", "slots": SLOTS, **evaluation(profile())}), flush=True)
    print(json.dumps({"step": "practice", "slots": SLOTS, **practice(profile())}), flush=True)
