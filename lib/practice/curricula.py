"""Curricula: what share of an update each part of the questions takes. Each is a few lines over `sources.Curriculum`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lib.agent import Question
from lib.practice.rates import Rate, Tries, rates, within
from lib.practice.sources import Ask, Asked, Curriculum, Part


class Everything:
    """All questions alike: each once, in the seeded order, as long as there are any."""

    def parts(self, update: int, tries: Tries) -> list[Part]:
        return [Part("all", 1.0, lambda question: 0.0)]


@dataclass(frozen=True, kw_only=True)
class Band:
    """Questions answered about half of the time, where a group of rollouts most often has a signal: those whose rate lies from
    `low` to `high` with a probability of `sure` at least, then those of which that is less probable.

    Floors keep a share for easy questions, above the band, and one for those that were never solved, or they'd be forgotten.
    The rates come from the pre-pass and the run's own rollouts, cut anew every so many updates.
    """

    pool: Sequence[Question]
    low: float
    high: float
    sure: float
    easy: float  # share
    never: float  # share
    every: int  # updates between two cuts; 0: the pre-pass decides once and for all
    half_life: float = math.inf  # updates after which an attempt counts half beside newer ones (`rates.rates`)
    alike: Literal["structure", "hops"] = "structure"

    def rates(self, update: int, tries: Tries) -> dict[str, Rate]:
        """What is known of each question's rate at an update's cut, by id."""
        return rates(self.pool, tries, self._cut(update), lambda question: question[self.alike], self.half_life)

    def parts(self, update: int, tries: Tries) -> list[Part]:
        known, cut = self.rates(update, tries), self._cut(update)
        probable = within(known, self.low, self.high)

        def rate(question: Question) -> float:
            return known[question["id"]].mean

        def unsolved(question: Question) -> float:
            """0 where all attempts were wrong; of the others those never asked come first, by how seldom they are answered."""
            samples, right = tries.total(question["id"], cut)
            return rate(question) + (right > 0) if right or not samples else 0.0

        return [
            Part("band", 1 - self.easy - self.never, lambda q: max(self.sure - probable[q["id"]], 0.0)),
            Part("easy", self.easy, lambda q: max(self.high - rate(q), 0.0)),
            Part("never", self.never, unsolved),
        ]

    def _cut(self, update: int) -> int:
        return update - update % self.every if self.every else 0


@dataclass(frozen=True, kw_only=True)
class Steps:
    """From the first level to the last over a run; at each update the two nearest levels share what the floors leave.

    Raises ValueError where the floors leave nothing.
    """

    levels: Mapping[str, int]  # by question id, from 0; each level has a question
    updates: int  # of the run
    floor: float  # least share of each level

    def __post_init__(self) -> None:
        if not 0 <= self.floor * self._number <= 1:
            raise ValueError(f"floor = {self.floor:g} for each of {self._number} levels is more than there is")

    def parts(self, update: int, tries: Tries) -> list[Part]:
        centre = (self._number - 1) * update / max(1, self.updates - 1)
        left = 1 - self.floor * self._number
        return [
            Part(
                f"level {level}",
                self.floor + left * max(0.0, 1 - abs(level - centre)),
                lambda question, level=level: float(abs(self.levels[question["id"]] - level)),  # type: ignore[misc]
            )
            for level in range(self._number)
        ]

    @property
    def _number(self) -> int:
        return max(self.levels.values()) + 1


def by_hops(pool: Sequence[Question]) -> dict[str, int]:
    """Levels for `Steps`: a level for each number of hops, fewest first."""
    known = sorted({question["hops"] for question in pool})
    return {question["id"]: known.index(question["hops"]) for question in pool}


def by_rate(known: Mapping[str, Rate], levels: int) -> dict[str, int]:
    """Levels for `Steps`: quantiles of the measured pass rate, highest first."""
    return _quantiles({name: -rate.mean for name, rate in known.items()}, levels)


def by_length(pool: Sequence[Question], levels: int) -> dict[str, int]:
    """Levels for `Steps`: quantiles of the reference query's length in characters, shortest first."""
    return _quantiles({question["id"]: float(len(question["query"])) for question in pool}, levels)


def _quantiles(values: Mapping[str, float], levels: int) -> dict[str, int]:
    """Levels of equal size; ties by id."""
    ranked = sorted(values, key=lambda name: (values[name], name))
    return {name: rank * levels // len(ranked) for rank, name in enumerate(ranked)}


@dataclass(frozen=True, kw_only=True)
class Again:
    """A share for questions with a hint whose one group so far was all wrong; `hint_after_wrong` asks them with it.

    They come back in a later update: within one, no question is asked twice.
    """

    others: Curriculum
    share: float

    def parts(self, update: int, tries: Tries) -> list[Part]:
        def distance(question: Question) -> float:
            once = len(tries.practised(question["id"], update)) == 1
            return 0.0 if question["hint"] and once and _all_wrong(question, update, tries) else math.inf

        others = [replace(p, share=p.share * (1 - self.share)) for p in self.others.parts(update, tries)]
        return [*others, Part("again", self.share, distance)]


def hint_after_wrong(ask: Ask, tries: Tries) -> Ask:
    """Asks without a hint, but where the question's last group was all wrong."""

    def asked(question: Question, update: int) -> Asked:
        return ask(question if _all_wrong(question, update, tries) else {**question, "hint": None}, update)

    return asked


def _all_wrong(question: Question, update: int, tries: Tries) -> bool:
    practised = tries.practised(question["id"], update)
    return bool(practised) and practised[-1][1].samples > 0 and practised[-1][1].right == 0
