"""What an update's rewards teach: objectives for `lib.updates.run` that differ from its own at one on-policy step.

All of it is about training. Evaluation scores correctness alone and knows nothing of this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import tinker
from tinker_cookbook.rl.types import TrajectoryGroup

from lib.agent import QuestionGroup
from lib.settings import Faults

Scored = Callable[[tinker.ModelInput], Awaitable[list[float | None]]]  # a text's log-probabilities, as compute_logprobs


class Counted(QuestionGroup):
    """A group that also tells, per rollout, how many calls were `repeated` and how many `failed`: for the penalties."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """An objective by its options; with none set it is `lib.updates.centred`, to the byte."""

    credit: Literal["reward", "strict", "f1", "lenient"] = "reward"
    most: float = 0.99  # what a wrong answer can be worth at most
    repeated: float = 0.0  # taken off per call that was made before in the rollout
    failed: float = 0.0  # and per call that no query came of
    cap: float = 0.0  # most that is taken off a rollout
    spread: bool = False  # advantages are divided by the group's standard deviation
    constant: float = 1.0  # the sum over tokens is divided by it
    kl: float = 0.0  # weight of the distance from the base
    base: Scored | None = None  # needed for it: `patient_logprobs` of the frozen base model's client
    masked: tuple[
        str, ...
    ] = ()  # stop reasons whose rollouts are in no mean and aren't trained; TRUNCATED for cut ones
    shuffled: int | None = None  # seed: rewards change places within each group

    async def __call__(self, groups: list[TrajectoryGroup]) -> list[tinker.Datum]:
        raise NotImplementedError

    def worths(self, group: TrajectoryGroup) -> list[float]:
        """What each rollout is worth, the masked ones left out."""
        raise NotImplementedError

    def mixed(self, group: TrajectoryGroup) -> bool:
        """Whether a group's rollouts differ in worth: what `sources.Dynamic` asks."""
        raise NotImplementedError


def patient_logprobs(client: Any, faults: Faults) -> Scored:
    """A sampling client's compute_logprobs, asked as often as the settings allow."""
    raise NotImplementedError
