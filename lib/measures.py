"""What is measured on evaluation episodes, each a pure function, so that every number in a report can be tested alone.

All rates lie between 0 and 1. An episode that ended by a fault outside the model is in none of them; it is counted apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lib import bootstrap, episodes, tally
from lib.episodes import Episode

OUTCOMES = tuple(outcome for outcome in episodes.OUTCOMES if outcome != "error")
WIDE_SPREAD = 0.02  # between trainings; beyond it an interval over few of them covers less than it says
SCORES = ("strict", "lenient", "lenient_literal", "f1")


@dataclass
class Arm:
    """The episodes of one arm on one set of questions with one way of decoding, faulty ones apart."""

    name: str
    by_question: dict[str, list[Episode]] = field(default_factory=dict)  # in order of seed and sample
    faulty: list[Episode] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, episodes: Iterable[Episode]) -> Arm:
        arm = cls(name)
        for episode in sorted(episodes, key=lambda e: (e.question, e.seed, e.arm, e.sample)):
            if episode.outcome == "error":
                arm.faulty.append(episode)
            else:
                arm.by_question.setdefault(episode.question, []).append(episode)
        return arm

    @property
    def episodes(self) -> list[Episode]:
        return [episode for found in self.by_question.values() for episode in found]

    def values(self, questions: Sequence[str], value: Callable[[Episode], float]) -> np.ndarray:
        """Array (questions, samples) of a value; NaN fills up where a question has fewer episodes than another."""
        found = [[value(episode) for episode in self.by_question[question]] for question in questions]
        width = max((len(row) for row in found), default=0)
        return np.array([row + [np.nan] * (width - len(row)) for row in found], float).reshape(len(found), width)

    def scores(self, questions: Sequence[str], score: str) -> np.ndarray:
        return self.values(questions, lambda episode: float(getattr(episode, score)))


@dataclass(frozen=True)
class Method:
    """How contrasts are tested, as the plan says."""

    confidence: float
    resamples: int
    seed: int = 0


def shared(*arms: Arm) -> list[str]:
    """Questions that every arm has a usable episode of, sorted."""
    return sorted(set.intersection(*(set(arm.by_question) for arm in arms)))


def structures(arm: Arm, questions: Sequence[str]) -> list[str]:
    """The structure of each question; a person's question has none and stands for itself."""
    return [arm.by_question[question][0].structure or question for question in questions]


def summary(arm: Arm, test: Method) -> dict[str, Any]:
    """Rates of one arm with intervals (bootstrap by structure, and Wilson's over samples), each pass, and its faults.

    ran: share of its queries that ran without an error.
    """
    questions = sorted(arm.by_question)
    out: dict[str, Any] = {
        "questions": len(questions),
        "episodes": len(arm.episodes),
        "faulty": len(arm.faulty),
        "passes": passes(arm),
        "turns": mean(episode.turns for episode in arm.episodes),
        "calls": mean(len(episode.calls) for episode in arm.episodes),
        "ran": mean(not call["error"] for episode in arm.episodes for call in episode.calls),
        "tokens_sampled": mean(episode.tokens["sampled"] for episode in arm.episodes),
        "retries": retries(arm),
    }
    for score in SCORES:
        out[score] = rate(arm, questions, score, test)
        if score != "f1":
            right = int(np.nansum(arm.scores(questions, score)))
            out[score]["wilson"] = list(bootstrap.wilson(right, len(arm.episodes), test.confidence))
    return out


def rate(arm: Arm, questions: Sequence[str], score: str, test: Method) -> dict[str, Any]:
    """A score's mean over questions that the arm answered, with its interval: bootstrap by structure, widened."""
    found = bootstrap.mean(
        per_question(arm.scores(questions, score)), structures(arm, questions), test.resamples, test.seed,
        test.confidence, widened=True,
    )  # fmt: skip
    return {"rate": found.mean, "low": found.low, "high": found.high}


def passes(arm: Arm) -> list[dict[str, Any]]:
    """Strict and lenient rate of each pass: the n-th sample of every question, seed by seed."""
    groups: dict[tuple[str, int], list[Episode]] = defaultdict(list)
    for episode in arm.episodes:
        groups[episode.arm, episode.sample].append(episode)
    return [
        {
            "arm": name,
            "sample": sample,
            "strict": mean(episode.strict for episode in found),
            "lenient": mean(episode.lenient for episode in found),
        }
        for (name, sample), found in sorted(groups.items())
    ]


def retries(arm: Arm) -> dict[str, Any]:
    """After a first query that visibly failed (an error): how often another was tried, and how often it ended right."""
    failed = [episode for episode in arm.episodes if episode.calls and episode.calls[0].get("error")]
    again = [episode for episode in failed if len(episode.calls) > 1]
    return {"failed": len(failed), "tried_again": len(again), "right": sum(episode.strict for episode in again)}


def contrast(
    before: Arm, after: Arm, score: str, test: Method, questions: Collection[str] | None = None
) -> dict[str, Any]:
    """Paired difference after - before of a score's mean, over `questions` or all that were asked.

    low, high: bootstrap by structure, widened (the test's interval); by_question: the interval over questions as if they
    were independent draws; sign_flip: p of that test by structure, a check on other grounds; up, down, same: questions;
    left_out: questions without a usable episode in one of the arms.
    """
    asked = set(before.by_question) | set(after.by_question) if questions is None else set(questions)
    both = [question for question in shared(before, after) if question in asked]
    scores = before.scores(both, score), after.scores(both, score)
    return {**difference(*scores, structures(after, both), test), "left_out": len(asked) - len(both)}


def difference(before: np.ndarray, after: np.ndarray, clusters: Sequence[str], test: Method) -> dict[str, Any]:
    """The same for arrays (questions, samples); empty where there is no question.

    warnings: why the interval may cover less than it says. Where there are few structures, low and high are the outer
    ends of both intervals: one structure resampled has no spread at all.
    """
    if not len(before):
        return {"questions": 0}
    complete = not (np.isnan(before).any() or np.isnan(after).any())
    if not complete:
        before, after = per_question(before), per_question(after)
    clustered = bootstrap.paired(
        before, after, list(clusters), test.resamples, test.seed, test.confidence, widened=True
    )
    single = bootstrap.paired(before, after, None, test.resamples, test.seed, test.confidence, widened=True)
    few = clustered.units < bootstrap.FEW_CLUSTERS
    return {
        "questions": len(before),
        "structures": len(set(clusters)),
        "before": float(np.mean(per_question(before))),
        "after": float(np.mean(per_question(after))),
        "delta": clustered.delta,
        "low": min(clustered.low, single.low) if few else clustered.low,
        "high": max(clustered.high, single.high) if few else clustered.high,
        "by_question": [single.low, single.high],
        "sign_flip": bootstrap.sign_flip(before, after, list(clusters), test.resamples, test.seed).p,
        "up": clustered.up,
        "down": clustered.down,
        "same": clustered.same,
        "warnings": list(clustered.warnings),
    }


def outcomes(arm: Arm) -> dict[str, int]:
    """Episodes by outcome, faulty ones as `error`."""
    counts = Counter(episode.outcome for episode in arm.episodes)
    return {**{name: counts[name] for name in OUTCOMES}, "error": len(arm.faulty)}


def flows(before: Arm, after: Arm) -> dict[str, dict[str, float]]:
    """Expected flow from outcome to outcome as shares of all episodes; see bootstrap.flows."""
    questions = shared(before, after)
    left, right = ([[e.outcome for e in arm.by_question[q]] for q in questions] for arm in (before, after))
    flow = bootstrap.flows(left, right, OUTCOMES)
    return {a: {b: float(flow[i, j]) for j, b in enumerate(OUTCOMES)} for i, a in enumerate(OUTCOMES)}


def form_and_substance(flow: dict[str, dict[str, float]]) -> dict[str, float]:
    """How much of the strict gain is form at most, and substance at least, from the flow's margins."""
    before = {name: sum(flow[name].values()) for name in OUTCOMES}
    after = {name: sum(flow[other][name] for other in OUTCOMES) for name in OUTCOMES}
    gain, form, substance = bootstrap.form_and_substance(before, after)
    return {"gain": gain, "form_at_most": form, "substance_at_least": substance}


def crossed(control: Arm, trained: Sequence[Arm], test: Method) -> dict[str, Any]:
    """The strict gain's interval over trainings and structures both, as if others of either had been drawn; None where
    there is one of them alone. See bootstrap.crossed. warnings: why it may cover less than it says."""
    questions = shared(control, *trained)
    before, *after = (per_question(arm.scores(questions, "strict")) for arm in (control, *trained))
    changes, clusters = np.hstack(after) - before, structures(control, questions)
    if len(trained) < 2 or len(set(clusters)) < 2:
        return {"low": None, "high": None, "warnings": ["only 1 training or structure"]}
    found = bootstrap.crossed(changes, clusters, test.confidence)
    spread = float(changes.mean(axis=0).std(ddof=1))
    wide = (f"trainings differ by {100 * spread:.1f} points (standard deviation)",) if spread > WIDE_SPREAD else ()
    return {"low": found.low, "high": found.high, "warnings": [*found.warnings, *wide]}


def reach(arms: Sequence[Arm], samples: int, test: Method) -> list[dict[str, Any]]:
    """Unbiased pass@k (any of k right) and pass^k (all of k right) for k = 1..samples, with intervals by structure.

    A question counts by its mean over the arms (the seeds of one, say). Where faults left it fewer than k samples in one of
    them, it is left out of that k; a k without any question is left out.
    """
    questions = shared(*arms)
    counts = [tally.counts(arm.episodes) for arm in arms]
    n, right = np.moveaxis(np.array([[one[question] for one in counts] for question in questions]), -1, 0)
    clusters = np.array(structures(arms[0], questions))
    rows = []
    for k in range(1, samples + 1):
        enough = n.min(axis=1) >= k  # a question that lost samples to faults has no pass@k for the largest k
        if not enough.any():
            break
        row: dict[str, Any] = {"k": k}
        for name, chance in (("any", bootstrap.pass_at_k), ("all", bootstrap.pass_hat_k)):
            each = chance(n[enough], right[enough], k)
            found = bootstrap.mean(each, clusters[enough], test.resamples, test.seed, test.confidence, widened=True)
            row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
        rows.append(row)
    return rows


def reach_gain(control: Arm, trained: Sequence[Arm], test: Method) -> dict[str, Any]:
    """Contrast of `any of a question's samples right` and of `all of them right`, trained seeds side by side."""
    questions = shared(control, *trained)

    def pooled(arms: Sequence[Arm], over: Callable[..., Any]) -> np.ndarray:
        return np.array([[over(e.strict for e in arm.by_question[q]) for arm in arms] for q in questions], float)

    clusters = structures(control, questions)
    return {
        name: difference(pooled([control], over), pooled(trained, over), clusters, test)
        for name, over in (("any", any), ("all", all))
    }


def by_untrained(grouping: Sequence[Arm], shown: Sequence[Arm]) -> dict[str, Any]:
    """Questions grouped by how often the arms of `grouping` had them right (never, sometimes, always), and the rates of
    the arms `shown` on them; above_zero: questions that the last of these answered at all."""
    questions = shared(*grouping, *shown)
    formed = np.hstack([arm.scores(questions, "strict") for arm in grouping])
    arms = {arm.name: per_question(arm.scores(questions, "strict"))[:, 0] for arm in shown}
    return {
        name: {
            "questions": one["questions"],
            **{arm: value if one["questions"] else None for arm, value in one["mean"].items()},
            "above_zero": one["above_zero"][shown[-1].name],
        }
        for name, one in bootstrap.groups(per_question(formed)[:, 0], arms).items()
    }


def provenance(
    arms: Mapping[str, Arm], before: str, after: str, similarity: Callable[[Episode], float], test: Method
) -> dict[str, Any]:
    """Mean similarity of the nodes that answers and references look at, by arm, and the contrast after - before.

    similarity: of an episode, 0 to 1, NaN where it isn't known; those are counted, and left out.
    """
    values = {name: arm.values(sorted(arm.by_question), similarity) for name, arm in arms.items()}
    both = [
        question
        for question in shared(arms[before], arms[after])
        if not any(np.isnan(arms[name].values([question], similarity)).all() for name in (before, after))
    ]
    first, second = (arms[name].values(both, similarity) for name in (before, after))
    return {
        "rates": {name: mean(found[~np.isnan(found)]) for name, found in values.items()},
        "unknown": {name: sum(bool(np.isnan(similarity(e))) for e in arm.episodes) for name, arm in arms.items()},
        "contrast": difference(first, second, structures(arms[before], both), test),
    }


def changes(before: Arm, after: Arm) -> list[dict[str, Any]]:
    """How many questions changed their strict rate by how much, ascending."""
    questions = shared(before, after)
    found = bootstrap.changes(*(per_question(arm.scores(questions, "strict")) for arm in (before, after)))
    return [{"change": change, "questions": number} for change, number in found.items()]


def equivalence(before: Arm, after: Arm, margin: float, test: Method) -> dict[str, Any]:
    """Two one-sided tests that the strict rates differ by less than the margin; see bootstrap.equivalence.

    Where there are few structures, both intervals must lie within the margin, and low and high are their outer ends, as
    in `difference`. confidence: that of the interval, 2 * test.confidence - 1.
    """
    questions = shared(before, after)
    left, right = (per_question(arm.scores(questions, "strict")) for arm in (before, after))
    clusters, alpha = structures(after, questions), 1 - test.confidence
    found = [bootstrap.equivalence(left, right, margin, clusters, test.resamples, test.seed, alpha, widened=True)]
    if len(set(clusters)) < bootstrap.FEW_CLUSTERS:
        found.append(bootstrap.equivalence(left, right, margin, None, test.resamples, test.seed, alpha, widened=True))
    return {
        "delta": found[0].delta,
        "low": min(one.low for one in found),
        "high": max(one.high for one in found),
        "confidence": 1 - 2 * alpha,
        "margin": margin,
        "holds": all(one.equivalent for one in found),
    }


def by_structure(before: Arm, after: Arm) -> list[dict[str, Any]]:
    """Strict rate before and after in each structure, largest gain first."""
    groups: dict[str, list[str]] = defaultdict(list)
    both = shared(before, after)
    for structure, question in zip(structures(after, both), both, strict=True):
        groups[structure].append(question)
    rows = []
    for structure, questions in groups.items():
        x = mean(np.nanmean(before.scores(questions, "strict"), axis=1))
        y = mean(np.nanmean(after.scores(questions, "strict"), axis=1))
        hops = after.by_question[questions[0]][0].hops
        rows.append({"structure": structure, "hops": hops, "questions": len(questions), "before": x, "after": y})
    return sorted(rows, key=lambda row: (row["before"] - row["after"], row["structure"]))


def shares(episodes: Sequence[Episode]) -> dict[str, float]:
    counts = Counter(episode.outcome for episode in episodes)
    return {name: counts[name] / len(episodes) for name in OUTCOMES}


def per_question(values: np.ndarray) -> np.ndarray:
    return np.nanmean(values, axis=1, keepdims=True)


def mean(values: Iterable[Any]) -> float | None:
    found = np.fromiter((float(value) for value in values), float)
    return float(found.mean()) if len(found) else None
