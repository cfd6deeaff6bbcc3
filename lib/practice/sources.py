"""Which questions an update practises: sources over a pool of questions, for `lib.updates.run`.

A `Curriculum` says what share of an update each part of the pool takes, `Chosen` picks the questions, `Dynamic` puts other
questions in the place of those whose rollouts teach nothing, and `Stoppable` ends such a group before all its rollouts are made.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tinker_cookbook.rl.types import TrajectoryGroup

from lib.agent import Question
from lib.practice.objectives import Counted
from lib.practice.rates import Tries
from lib.updates import Group, Rolled, Update

GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples' fractions spread evenly (Weyl)


class Asked(Group, Protocol):
    """A group that knows its question, as `lib.agent.QuestionGroup`."""

    question: Question


Ask = Callable[[Question, int], Asked]  # a question's group for an update


@dataclass(frozen=True)
class Part:
    """Part of an update: its share, and how far a question is from belonging there (0: it does; inf: it never may)."""

    name: str
    share: float
    distance: Callable[[Question], float]


class Curriculum(Protocol):
    """Says what an update is made of."""

    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        """One part or more, their shares summing to 1, from nothing but the tries before the update."""
        ...


class Chosen:
    """So many questions an update, by a curriculum; no question comes twice within an update.

    A part takes its share's number of questions; of a share that is no whole number it gets one more or one fewer, evenly
    over the updates. It takes fresh questions that belong to it, those never asked first. Where it has too few, it is
    widened: the nearest fresh ones come next. Where the whole pool isn't fresh, questions are reused: those come first that
    were asked least recently. What a part still lacks goes to the others, the largest first.
    """

    def __init__(
        self,
        pool: Sequence[Question],
        size: int,
        seed: int,
        curriculum: Curriculum,
        tries: Tries,
        ask: Ask,
        rest: float = math.inf,
    ):
        """size: questions an update. rest: updates that must lie between two groups of a question for it to be fresh again.

        Raises ValueError for a pool of fewer than `size` questions.
        """
        if len(pool) < size:
            raise ValueError(
                f"an update of {size} questions needs as many, and the pool has {len(pool)}: take a larger one"
            )
        self.size, self.curriculum, self.tries, self.ask, self.rest = size, curriculum, tries, ask, rest
        self._pool = list(pool)
        random.Random(f"practice {seed}").shuffle(self._pool)
        self._place = {question["id"]: place for place, question in enumerate(self._pool)}
        self._told: Counter[str] = Counter()

    def groups(self, update: int, rolled: Sequence[Rolled]) -> list[Asked]:
        """As `lib.updates.Source`."""
        if rolled:
            return []
        self._told = Counter(widened=0, reused=0, missing=0)
        return self._chosen(update, self.size, frozenset())

    def others(self, update: int, many: int, rolled: Sequence[Rolled]) -> list[Asked]:
        """So many groups of questions that aren't in `rolled`, in the same shares; fewer where the pool has no more."""
        return self._chosen(update, many, frozenset(question_of(one)["id"] for one in rolled))

    def tell(self, update: Update) -> None:
        """A guard that adds to the figures, as `chosen`: how many groups each part took, how many were of a question from
        beyond the part (`widened`) or of one asked earlier in the run (`reused`), and how many the pool lacked (`missing`)."""
        update.figures["chosen"] = dict(sorted(self._told.items()))

    def _chosen(self, update: int, many: int, taken: frozenset[str]) -> list[Asked]:
        parts = self.curriculum.parts(update, self.tries)
        largest_first = sorted(parts, key=lambda part: -part.share)
        picked: dict[str, Question] = {}
        for part, number in zip(parts, shared_out([p.share for p in parts], many, update + len(taken)), strict=True):
            self._pick(part, number, update, taken, picked)
        for part in largest_first:
            self._pick(part, many - len(picked), update, taken, picked)
        self._told["missing"] += many - len(picked)
        return [self.ask(question, update) for question in picked.values()]

    def _pick(self, part: Part, many: int, update: int, taken: frozenset[str], picked: dict[str, Question]) -> None:
        """Add so many of a part's questions to `picked`."""

        def rank(question: Question) -> tuple[float, ...]:
            far, last, place = part.distance(question), self._last(question, update), self._place[question["id"]]
            fresh = last is None or update - last > self.rest
            before = -1 if last is None else last
            return (0, far, before, place) if fresh else (1, before, far, place)

        free = (q for q in self._pool if q["id"] not in taken and q["id"] not in picked)
        for question in heapq.nsmallest(many, (q for q in free if part.distance(q) < math.inf), key=rank):
            picked[question["id"]] = question
            self._told[part.name] += 1
            self._told["widened"] += part.distance(question) > 0
            self._told["reused"] += self._last(question, update) is not None

    def _last(self, question: Question, update: int) -> int | None:
        """The last update before this one at which a question was asked."""
        practised = self.tries.practised(question["id"], update)
        return practised[-1][0] if practised else None


class Dynamic:
    """A source whose groups are replaced within the update where they teach nothing, by at most `extra` further groups.

    It asks until as many groups teach as an update has, or the budget or the pool is used up. A replaced group stays in what
    was rolled out: it is paid for, counted, and another term of the objective may need it. Others are of other questions
    (`Chosen.others`), so no group is doubled and none mixes two questions.
    """

    def __init__(self, source: Chosen, extra: int, mixed: Callable[[TrajectoryGroup], bool], least: int):
        """extra: groups an update. mixed: whether rollouts differ in worth, as `Objective.mixed`. least: rollouts that a
        group must have to be trained, as `train.faults.least_rollouts`."""
        self.source, self.extra, self.mixed, self.least = source, extra, mixed, least

    def groups(self, update: int, rolled: Sequence[Rolled]) -> list[Asked]:
        """As `lib.updates.Source`."""
        if not rolled:
            return self.source.groups(update, rolled)
        missing = self.source.size - sum(map(self._teaches, rolled))
        left = self.extra - (len(rolled) - self.source.size)
        return self.source.others(update, min(missing, left), rolled) if min(missing, left) > 0 else []

    def tell(self, update: Update) -> None:
        """A guard that adds to what `Chosen.tell` says how many groups were `stopped`."""
        self.source.tell(update)
        whole = (one.group for one in update.rolled if self._whole(one))
        update.figures["chosen"] |= {"stopped": sum(isinstance(group, Stoppable) and group.stopped for group in whole)}

    def _teaches(self, one: Rolled) -> bool:
        return self._whole(one) and self.mixed(one.rollouts)

    def _whole(self, one: Rolled) -> bool:
        return len(one.rollouts.trajectories_G) >= self.least


class Stoppable(Counted):
    """A group that is stopped after its first rollouts where they are worth the same; else it has all, with one mean over them.

    What that costs: groups whose later rollouts would have differed. Where right or wrong is all that counts, a question's expected
    gradient keeps its direction and loses weight about as fast as rollouts are saved: answered one time in ten, 4 and then 4 rollouts
    give 65% of the weight of 8 for 67% of their number, and only a question that is always or never right is all gain.
    With graded rewards the direction changes too, since which rewards meet depends on the first rollouts.
    """

    def __init__(self, *group: Any, rest: int, mixed: Callable[[TrajectoryGroup], bool]):
        """group: as `Counted`, of the first rollouts. rest: how many follow. mixed: as of `Dynamic`."""
        super().__init__(*group)
        self.rest, self.mixed, self.stopped = rest, mixed, False

    def further(self, made: TrajectoryGroup) -> int:
        """As `lib.updates.Group`."""
        self.stopped = not self.mixed(made)
        return 0 if self.stopped else self.rest


def question_of(one: Rolled) -> Question:
    """The question of a group that came from `Chosen`."""
    return cast(Asked, one.group).question


def shared_out(shares: Sequence[float], many: int, turn: int) -> list[int]:
    """Whole numbers that sum to `many`, each its share of it rounded up or down, and over many turns its share on average.

    Systematic sampling (Madow 1949) with starting points that are spread evenly instead of drawn.
    """
    start = turn * GOLDEN % 1
    edges = [min(many, math.floor(edge * many + start + 1e-9)) for edge in itertools.accumulate(shares)][:-1]
    return [after - before for before, after in itertools.pairwise([0, *edges, many])]
