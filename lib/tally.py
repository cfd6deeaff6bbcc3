"""How often each question was answered, and from that how much questions differ in truth: what every forecast starts from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lib.episodes import Episode

LEAST_LIKENESS = 1e-3  # below, rates don't differ
MOST_LIKENESS = 0.99  # each question is answered always or never


class Count(NamedTuple):
    """Of one question: attempts that count, and how many of them were strictly right."""

    samples: int
    right: int


def counts(episodes: Iterable[Episode]) -> dict[str, Count]:
    """The count of each question, in the order of their ids. Sampled episodes count that no fault ended."""
    found: dict[str, Count] = {}
    for episode in episodes:
        if episode.decode == "sampled" and episode.fault is None:
            samples, right = found.get(episode.question, (0, 0))
            found[episode.question] = Count(samples + 1, right + episode.strict)
    return {question: found[question] for question in sorted(found)}


def beta(samples: ArrayLike, right: ArrayLike) -> tuple[float, float] | None:
    """The beta distribution (its two parameters) of questions' true rates; None where no difference between them shows.

    samples, right: per question, shape (questions,). Observed rates spread more than true ones, by luck; so it is fitted by
    moments (Kleinman 1973), where right * (right - 1) / (samples * (samples - 1)) has the mean of a squared true rate. With
    two samples each it is what maximum likelihood gives, with more nearly so. With one sample a question nothing is known
    of their spread.
    """
    n, r = np.asarray(samples, float), np.asarray(right, float)
    mean, many = float(np.mean(r / n)), n > 1
    if not many.any() or not 0 < mean < 1:
        return None
    squared = float(np.mean(r[many] * (r[many] - 1) / (n[many] * (n[many] - 1))))
    likeness = (squared - mean**2) / (mean * (1 - mean))  # 0: all the same; 1: each question always or never
    if likeness < LEAST_LIKENESS:
        return None
    both = 1 / min(likeness, MOST_LIKENESS) - 1
    return mean * both, (1 - mean) * both
