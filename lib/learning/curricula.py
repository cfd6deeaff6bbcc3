"""Curricula: what share of an update each part of the questions takes. Each is a few lines over `sources.Curriculum`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lib.agent import Question
from lib.learning.rates import Rate, Tries
from lib.learning.sources import Ask, Part


class Everything:
    """All questions alike, in a seeded order: what lib/train.py practises."""

    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Band:
    """Questions that are answered about half of the time, with a share for easy ones and one for never-solved ones."""

    pool: Sequence[Question]
    low: float
    high: float
    easy: float
    never: float
    every: int  # updates between two cuts by fresh rollouts; 0: the pre-pass decides once and for all
    half_life: float  # updates

    def rates(self, update: int, tries: Tries) -> dict[str, Rate]:
        """What is known of each question's rate at an update, to be kept beside the run."""
        raise NotImplementedError

    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Steps:
    """From the first level to the last over the updates; no level ever takes less than the floor."""

    levels: dict[str, int]  # by question id, 0 first
    updates: int
    floor: float  # least share of a level

    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        raise NotImplementedError


def by_hops(pool: Sequence[Question]) -> dict[str, int]:
    """Levels: fewest hops first."""
    raise NotImplementedError


def by_rate(pool: Sequence[Question], rates: dict[str, Rate], levels: int) -> dict[str, int]:
    """Levels: quantiles of the measured pass rate, highest first."""
    raise NotImplementedError


def by_length(pool: Sequence[Question], levels: int) -> dict[str, int]:
    """Levels: quantiles of the reference query's length in characters, shortest first."""
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Again:
    """A share for questions whose last group was all wrong, which `hint_after_wrong` asks with their hint."""

    rest: Everything | Band | Steps
    share: float

    def parts(self, update: int, tries: Tries) -> Sequence[Part]:
        raise NotImplementedError


def hint_after_wrong(ask: Ask, tries: Tries) -> Ask:
    """Asks without the hint, and with it where the question's last group was all wrong."""
    raise NotImplementedError
