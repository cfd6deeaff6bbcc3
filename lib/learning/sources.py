"""Which questions an update practises: sources over a pool of questions, for `lib.updates.run`.

A `Curriculum` says what share of an update each part of the pool takes; `Chosen` picks the questions, and `Dynamic` puts
other questions in the place of those whose rollouts were all worth the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tinker_cookbook.rl.types import TrajectoryGroup

from lib.agent import Question
from lib.learning.rates import Tries
from lib.updates import Group, Rolled, Update

Ask = Callable[
    [Question, int], Group
]  # a question's group for an update; the group must have the question as `.question`


@dataclass(frozen=True)
class Part:
    """Part of an update: its share, and how far a question is from belonging there (0: it does; inf: it never may)."""

    name: str
    share: float
    distance: Callable[[Question], float]


class Curriculum(Protocol):
    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        """The parts of an update, their shares summing to 1; `tries` may be read as they were before it."""
        ...


class Chosen:
    """So many questions an update, by a curriculum; no question comes twice within an update."""

    def __init__(
        self,
        pool: Sequence[Question],
        groups: int,
        seed: int,
        curriculum: Curriculum,
        tries: Tries,
        ask: Ask,
        rest: int,
    ):
        """groups: an update. rest: updates before a question that was asked counts as fresh again.

        ValueError for a pool of fewer than `groups` questions.
        """
        raise NotImplementedError

    def groups(self, update: int, rolled: Sequence[Rolled]) -> Sequence[Group]:
        raise NotImplementedError

    def others(self, update: int, many: int, rolled: Sequence[Rolled]) -> Sequence[Group]:
        """So many groups of questions that aren't in `rolled`; fewer where the pool has no more."""
        raise NotImplementedError

    def tell(self, update: Update) -> None:
        """A guard: adds to the figures how the questions were chosen."""
        raise NotImplementedError


class Dynamic:
    """A source whose constant groups are replaced within the update, by at most `extra` groups of other questions."""

    def __init__(self, source: Chosen, extra: int, mixed: Callable[[TrajectoryGroup], bool]):
        """mixed: whether a group teaches anything, as `Objective.mixed`."""
        raise NotImplementedError

    def groups(self, update: int, rolled: Sequence[Rolled]) -> Sequence[Group]:
        raise NotImplementedError
