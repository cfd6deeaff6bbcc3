"""Questions with known pass rates, groups of them without a model, and toy_training's groups with a question; for the tests of
lib/learning."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Env, Metrics, Trajectory, TrajectoryGroup, Transition

from lib.agent import Label, QuestionGroup
from lib.episodes import Episode
from lib.practice.rates import Tries
from lib.practice.sources import Asked
from lib.settings import load
from lib.updates import Rolled, Source
from tests import synthetic, toy_training
from tests.conftest import ROOT
from tests.killed_runs import Words

AGENT = load(ROOT / "profiles" / "miniature.yaml").agent
SIZE = 4  # rollouts a group


def pool(many: int) -> list[dict[str, Any]]:
    """Questions of six structures; the rate of each is synthetic.difficulty."""
    return [synthetic.question("train", i) for i in range(many)]


def ask(question: dict[str, Any], update: int) -> QuestionGroup:
    """A real group, whose prompts nobody renders."""
    label = Label("toy", "trained-0", 0, "train", update=update)
    return QuestionGroup(question, SIZE, Words(), None, AGENT, label)  # type: ignore[arg-type]


def episodes(question: dict[str, Any], update: int, rights: Sequence[bool]) -> list[Episode]:
    return [
        synthetic.episode(
            "trained-0", question, i, "strict" if right else "wrong", "RETURN 1", phase="train", update=update
        )
        for i, right in enumerate(rights)
    ]


def said(*tokens: int, stop: str | None = None) -> Trajectory:
    """A rollout of one turn."""
    action = TokensWithLogprobs(tokens=list(tokens), maybe_logprobs=[-0.5] * len(tokens), stop_reason="stop")
    turn = Transition(tinker.ModelInput.from_ints([7, 8]), action, 0.0, episode_done=True)
    return Trajectory([turn], tinker.ModelInput.empty(), stop)


def scored(*worths: float, **metrics: Sequence[float]) -> TrajectoryGroup:
    """A group of rollouts with these rewards; each says something else."""
    found: dict[str, Sequence[float]] = {
        "strict": [float(w == 1) for w in worths],
        "f1": worths,
        "lenient": worths,
        **metrics,
    }
    by_rollout: list[Metrics] = [{name: values[i] for name, values in found.items()} for i in range(len(worths))]
    return TrajectoryGroup([said(10 + i, 11 + i) for i in range(len(worths))], list(worths), by_rollout)


def rolled(group: Asked, rights: Sequence[bool]) -> Rolled:
    return Rolled(group, scored(*map(float, rights)), [])


def play(
    source: Source,
    updates: Sequence[int],
    tries: Tries,
    rate: Callable[[dict[str, Any]], float] = synthetic.difficulty,
) -> list[list[Rolled]]:
    """What a run rolls out, without a model: each question is answered at its rate, by draws of its update."""
    run = []
    for update in updates:
        found: list[Rolled] = []
        while groups := source.groups(update, found):
            for group in groups:
                question = group.question  # type: ignore[attr-defined]
                rng = random.Random(f"{question['id']} {update}")
                rights = [rng.random() < rate(question) for _ in range(SIZE)]
                tries.note(episodes(question, update, rights))
                found.append(rolled(group, rights))  # type: ignore[arg-type]
        run.append(found)
    return run


def names(run: Sequence[Sequence[Rolled]]) -> list[list[str]]:
    """The questions of each update, by id."""
    return [[one.group.question["id"] for one in found] for found in run]  # type: ignore[attr-defined]


class Known(toy_training.Group):
    """toy_training's group with a question; a rollout is right where its reward is 1. Each is kept as an episode."""

    def __init__(
        self, question: dict[str, Any], update: int, keep: Callable[[Episode], None], first: int = 0, size: int = 4
    ):
        super().__init__(int(question["id"].split("-")[1]), first, size)
        self.question, self.update, self.keep = question, update, keep

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        await super().compute_group_rewards(trajectory_group, env_group)
        graded: list[tuple[float, Metrics]] = []
        for trajectory, env in zip(trajectory_group, env_group, strict=True):
            right = sum(turn.reward for turn in trajectory.transitions) >= 1
            [episode] = episodes(self.question, self.update, [right])
            sample = int(env.key.split("/")[1])  # type: ignore[attr-defined]
            self.keep(dataclasses.replace(episode, id=f"{self.update}/{self.question['id']}/{sample}", sample=sample))
            graded.append((0.0, {"strict": float(right)}))
        return graded

    def more(self, size: int) -> Known:
        return Known(self.question, self.update, self.keep, self.first + self.size, size)
