"""Looks into wrong answers: what kind of mistake they make, which questions nobody solves, and which ones to show.

Only here does the comparison know about queries, through the kinds of mistakes that the demonstrations were given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lib.episodes import Episode
from lib.measures import Arm, Method, contrast, difference, mean, shared, shares, structures
from lib.questions.demonstrations import mistake_kind

OTHER, SILENT = "another mistake", "no query"
Question = dict[str, Any]


@lru_cache(maxsize=100_000)
def category(query: str | None, reference: str) -> str | None:
    """What is wrong with a query: the name of the planted mistake that makes it out of the reference, or that it's other."""
    if query is None:
        return SILENT
    return mistake_kind(query, reference) or OTHER


def mistakes(
    arms: Sequence[Arm],
    control: Arm,
    trained: Arm,
    questions: dict[str, Question],
    test: Method,
    taught: bool = True,
) -> dict[str, Any]:
    """Episodes that aren't strictly right, by what is wrong with the scored query, and each kind's part of the gain.

    Every episode is either strict or in exactly one kind, so the falls of the kinds from control to trained add up to
    the strict gain. `planted` is the part of the kinds that the demonstrations were given; None of a
    model that wasn't `taught` from any.
    """

    def wrong(episode: Episode) -> str | None:
        return None if episode.strict else category(episode.query, questions[episode.question]["query"])

    both = shared(control, trained)
    kinds = sorted({kind for arm in (*arms, control, trained) for e in arm.episodes if (kind := wrong(e))})
    planted = [kind for kind in kinds if kind not in (OTHER, SILENT)]
    rows = []
    for kind in [*planted, *(kind for kind in (OTHER, SILENT) if kind in kinds)]:
        rates = {arm.name: mean(np.nanmean(_is(arm, sorted(arm.by_question), wrong, {kind}), axis=1)) for arm in arms}
        fall = np.nanmean(_is(control, both, wrong, {kind}), axis=1) - np.nanmean(
            _is(trained, both, wrong, {kind}), axis=1
        )
        rows.append({"kind": kind, "planted": taught and kind in planted, "rates": rates, "part_of_gain": mean(fall)})
    removed = difference(
        -_is(control, both, wrong, set(planted)),
        -_is(trained, both, wrong, set(planted)),
        structures(control, both),
        test,
    )
    gain = contrast(control, trained, "strict", test)["delta"]
    share = removed["delta"] / gain if gain > 0 else None
    part = {"gain": removed["delta"], "low": removed["low"], "high": removed["high"], "share_of_gain": share}
    return {"kinds": rows, "planted": part if taught else None}


def never_solved(arms: Sequence[Arm], questions: dict[str, Question]) -> list[dict[str, Any]]:
    """Questions that no sample of any arm had strictly right, each with its most frequent outcome and mistake."""
    found = []
    for question in shared(*arms):
        episodes = [episode for arm in arms for episode in arm.by_question[question]]
        if any(episode.strict for episode in episodes):
            continue
        asked = questions[question]
        wrong = [category(episode.query, asked["query"]) for episode in episodes]
        found.append(
            {
                "question": question,
                "text": asked["question"],
                "structure": asked["structure"],
                "hops": asked["hops"],
                "outcome": _most(episode.outcome for episode in episodes),
                "mistake": _most(kind for kind in wrong if kind),
            }
        )
    return found


EXAMPLES: dict[str, tuple[str, Callable[[dict[str, float], dict[str, float]], float], str, str]] = {
    "form": (
        "largest fall of right values in the wrong shape that became strictly right",
        lambda before, after: min(before["form"] - after["form"], after["strict"] - before["strict"]),
        "form",
        "strict",
    ),
    "substance": (
        "largest gain in right values, whatever their shape",
        lambda before, after: after["strict"] + after["form"] - before["strict"] - before["form"],
        "wrong",
        "strict",
    ),
    "regression": (
        "largest fall of the strict rate",
        lambda before, after: before["strict"] - after["strict"],
        "strict",
        "wrong",
    ),
}


def examples(before: Arm, after: Arm, questions: dict[str, Question]) -> dict[str, Any]:
    """One question for each rule in EXAMPLES (ties: the first id), with pooled counts and an episode of either arm.

    The episodes shown are the first of the outcome that the rule is about, or of the most frequent one where there is
    none. None where no question moved that way.
    """
    both = {q: (shares(before.by_question[q]), shares(after.by_question[q])) for q in shared(before, after)}
    chosen: dict[str, Any] = {}
    for name, (rule, measure, start, end) in EXAMPLES.items():
        best = max(sorted(both), key=lambda q: measure(*both[q]), default=None)
        if best is None or measure(*both[best]) <= 0:
            chosen[name] = None
            continue
        chosen[name] = {
            "rule": rule,
            "question": best,
            **{key: questions[best].get(key) for key in ("structure", "hops", "hint", "query")},
            "text": questions[best]["question"],
            "counts": {arm.name: dict(Counter(e.outcome for e in arm.by_question[best])) for arm in (before, after)},
            "before": _typical(before.by_question[best], start),
            "after": _typical(after.by_question[best], end),
        }
    return chosen


def _typical(episodes: list[Episode], outcome: str) -> str:
    wanted = outcome if any(e.outcome == outcome for e in episodes) else _most(e.outcome for e in episodes)
    return next(episode.id for episode in episodes if episode.outcome == wanted)


def _is(arm: Arm, questions: Sequence[str], kind: Callable[[Episode], str | None], among: set[str]) -> np.ndarray:
    return arm.values(questions, lambda episode: float(kind(episode) in among))


def _most(values: Iterable[str]) -> str | None:
    """The most frequent value; the first in the alphabet among equals."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value), default=None)
