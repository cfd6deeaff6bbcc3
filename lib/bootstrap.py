"""How sure a difference between two arms is: intervals, and what a gain is made of, from scores per question and sample.

Questions are what is drawn at random; the samples of one question belong together. So a question counts by its mean,
arms are compared question by question, and intervals come from drawing questions anew (or whole clusters of them:
questions of one structure are no independent draws). Where all differences are multiples of one step, as they are with
0/1 scores and equally many samples, the bootstrap distribution is computed instead of simulated.

Arrays of scores have the shape (questions, samples) or (questions,), values mostly between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

Labels = Sequence[Any] | NDArray[Any]  # one per question

FINEST_STEP = 240  # differences are looked for in multiples of 1, 1/2, ... 1/240: pools of samples up to that many
LONGEST = 1 << 22  # points of a distribution that is computed exactly
CHUNK = 1 << 22  # draws held in memory at once
FEW_CHANGES = 20  # questions; below, the percentile interval covers less than it says
FEW_CLUSTERS = 20


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval. `warnings`: why it may cover less than `confidence`."""

    mean: float
    low: float
    high: float
    confidence: float
    method: str  # "exact" (computed) or "resampled"
    units: int  # independent ones: questions, or clusters of them
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Paired:
    """Difference b - a of two arms' means over the same questions, with its bootstrap interval."""

    delta: float
    low: float
    high: float
    up: int  # questions that b answers more often than a
    down: int
    same: int
    confidence: float
    method: str
    units: int
    warnings: tuple[str, ...]


def paired(
    a: ArrayLike,
    b: ArrayLike,
    clusters: Labels | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Paired:
    """Paired percentile bootstrap of mean(b) - mean(a) (Efron and Tibshirani 1993, chapter 13).

    a, b: scores of the two arms on the same questions in the same order; their numbers of samples may differ.
    clusters: a label per question; whole clusters are drawn, and a draw's mean is over the questions in it.
    resamples, seed: used only where the distribution can't be computed. Same arguments, same result.

    Computed exactly if the questions' differences are multiples of 1/240 or coarser, for independent questions and for
    clusters of equal sizes. Raises ValueError for missing scores, and for arms or clusters of other lengths.
    """
    before, after = _per_question(a, "a"), _per_question(b, "b")
    if len(before) != len(after):
        raise ValueError(f"a has {len(before)} questions, b has {len(after)}: pass the ones that both arms answered")
    change = after - before
    up, down = int(np.sum(change > 1e-9)), int(np.sum(change < -1e-9))
    found = _bootstrap(change, clusters, resamples, seed, confidence)
    warnings = found.warnings
    if up + down < FEW_CHANGES:
        warnings += (f"only {up + down} questions changed",)
    same = len(change) - up - down
    return Paired(found.mean, found.low, found.high, up, down, same, confidence, found.method, found.units, warnings)


def mean(
    scores: ArrayLike,
    clusters: Labels | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """One arm's mean with the same bootstrap over questions or clusters; arguments as in `paired`.

    Intervals of two arms may overlap while that of their paired difference excludes zero: most of an arm's spread is
    that between questions, which the pairing removes.
    """
    return _bootstrap(_per_question(scores, "scores"), clusters, resamples, seed, confidence)


def _per_question(scores: ArrayLike, name: str) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=float)
    if values.ndim not in (1, 2) or not values.size:
        raise ValueError(f"{name} has the shape {values.shape}: need (questions, samples) or (questions,), none empty")
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} has {np.sum(~np.isfinite(values))} scores missing: leave out faulty samples and pass means"
        )
    return values if values.ndim == 1 else values.mean(axis=1)


def _bootstrap(
    values: NDArray[np.float64], clusters: Labels | None, resamples: int, seed: int, confidence: float
) -> Interval:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: need a share between 0 and 1, such as 0.95")
    lattice = _lattice(values)
    sums: NDArray[Any]
    sums, scale = (values, 1) if lattice is None else lattice  # in units of 1 / scale
    sizes = np.ones(len(values), dtype=np.int64)
    warnings: tuple[str, ...] = ()
    if clusters is not None:
        if len(clusters) != len(values):
            raise ValueError(f"{len(clusters)} cluster labels for {len(values)} questions: need one each")
        _, member = np.unique(np.asarray(clusters), return_inverse=True)
        sizes = np.bincount(member)
        sums = np.bincount(member, weights=sums).astype(sums.dtype)  # lattice points stay whole: far below 2**53
        if len(sizes) < FEW_CLUSTERS:
            warnings = (f"only {len(sizes)} clusters",)
    centre, tail = float(sums.sum()) / scale / len(values), (1 - confidence) / 2
    if lattice is not None and sizes.min() == sizes.max() and len(sums) * np.ptp(sums) < LONGEST:
        low, high = (end / scale / len(values) for end in _exact_ends(sums, tail))
        return Interval(centre, low, high, confidence, "exact", len(sizes), warnings)
    low, high = np.quantile(_resampled(sums, sizes, resamples, seed) / scale, [tail, 1 - tail])
    return Interval(centre, float(low), float(high), confidence, "resampled", len(sizes), warnings)


def _lattice(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int] | None:
    """Whole numbers and the smallest scale with values = numbers / scale; None if there is none."""
    for scale in range(1, FINEST_STEP + 1):
        points = np.rint(values * scale)
        if np.abs(values * scale - points).max() < 1e-9:
            return points.astype(np.int64), scale
    return None


def _exact_ends(points: NDArray[Any], tail: float) -> tuple[int, int]:
    """Percentiles of the sum of len(points) draws from `points` with replacement.

    Its distribution is the n-fold convolution of the empirical one, a power in the Fourier domain. The ends are the
    lowest sum with P(S <= sum) >= tail and the highest with P(S >= sum) >= tail, so that exchanging the arms mirrors them.
    """
    n, least = len(points), int(points.min())
    single = np.bincount(points - least) / n
    length = n * (len(single) - 1) + 1
    size = fft.next_fast_len(length, real=True)
    sums = np.maximum(np.fft.irfft(np.fft.rfft(single, size) ** n, size)[:length], 0.0)
    enough = tail - 1e-12  # rounding in the transform must not move an end
    low = int(np.argmax(np.cumsum(sums) >= enough))
    high = length - 1 - int(np.argmax(np.cumsum(sums[::-1]) >= enough))
    return n * least + low, n * least + high


def _resampled(sums: NDArray, sizes: NDArray[np.int64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Means over questions of `resamples` draws of len(sums) clusters with replacement."""
    random, n = np.random.default_rng(seed), len(sums)
    means = []
    for start in range(0, resamples, rows := max(1, CHUNK // n)):
        drawn = random.integers(0, n, size=(min(rows, resamples - start), n))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return np.concatenate(means)


# --- Other intervals and tests


def wilson(right: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a share (Wilson 1927). It takes all n samples as independent, which samples of one question are
    not: beside `mean`, it says how much of the spread is that of sampling."""
    interval = stats.binomtest(right, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def t_interval(gains: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the mean gain over trainings, Student's t with len(gains) - 1 degrees of freedom.

    gains: one per seed. Few seeds can't be resampled: a bootstrap of two or three covers 82 to 89%. Raises ValueError
    for fewer than two, of whose spread nothing is known.
    """
    if len(gains) < 2:
        raise ValueError(f"{len(gains)} gain: an interval over seeds needs two at least")
    half = float(stats.t.ppf((1 + confidence) / 2, len(gains) - 1) * stats.sem(gains))
    return float(np.mean(gains)) - half, float(np.mean(gains)) + half


@dataclass(frozen=True)
class Equivalence:
    """Whether two arms differ by less than a margin; low and high at confidence 1 - 2 * alpha."""

    delta: float
    low: float
    high: float
    margin: float
    equivalent: bool


def equivalence(
    a: ArrayLike,
    b: ArrayLike,
    margin: float,
    clusters: Labels | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    alpha: float = 0.05,
) -> Equivalence:
    """Two one-sided tests at alpha (Schuirmann 1987): equivalent if the paired interval at 1 - 2 * alpha lies within the
    margin. That an interval includes zero shows nothing of the kind: with few questions it always does."""
    found = paired(a, b, clusters, resamples, seed, 1 - 2 * alpha)
    return Equivalence(found.delta, found.low, found.high, margin, -margin < found.low and found.high < margin)


@dataclass(frozen=True)
class McNemar:
    up: int
    down: int
    p: float


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Exact two-sided McNemar test for one sample per question: given that a question changed, up is as likely as down.

    a, b: right or wrong, shape (questions,).
    """
    before, after = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    if before.ndim != 1 or before.shape != after.shape:
        raise ValueError(f"shapes {before.shape} and {after.shape}: need one sample of the same questions in both arms")
    up, down = int(np.sum(after & ~before)), int(np.sum(before & ~after))
    return McNemar(up, down, float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0)


def pass_at_k(n: ArrayLike, right: ArrayLike, k: int) -> Any:
    """Chance that any of k samples is right, unbiased from `right` of n samples: 1 - C(n - right, k) / C(n, k)
    (Chen et al. 2021). Arrays give arrays. ValueError unless right <= n and 1 <= k <= n."""
    n, right = _samples(n, right, k)
    return 1 - special.comb(n - right, k) / special.comb(n, k)


def pass_hat_k(n: ArrayLike, right: ArrayLike, k: int) -> Any:
    """pass^k, the chance that all of k samples are right: C(right, k) / C(n, k) (Yao et al. 2024); as `pass_at_k`."""
    n, right = _samples(n, right, k)
    return special.comb(right, k) / special.comb(n, k)


def _samples(n: ArrayLike, right: ArrayLike, k: int) -> tuple[NDArray, NDArray]:
    n, right = np.asarray(n), np.asarray(right)
    if k < 1 or np.any(n < k) or np.any(right > n) or np.any(right < 0):
        raise ValueError(f"k is {k}, n {n}, right {right}: need 1 <= k <= n and 0 <= right <= n")
    return n, right


# --- What a gain is made of


def changes(a: ArrayLike, b: ArrayLike) -> dict[float, int]:
    """Number of questions by their change of mean from a to b, ascending."""
    change = np.round(_per_question(b, "b") - _per_question(a, "a"), 9) + 0.0  # no -0.0
    return {float(value): int(number) for value, number in zip(*np.unique(change, return_counts=True), strict=True)}


def flows(
    before: Sequence[Sequence[str]], after: Sequence[Sequence[str]], outcomes: Sequence[str]
) -> NDArray[np.float64]:
    """Expected flow between outcomes, shape (outcomes before, outcomes after), as shares that add up to 1.

    before, after: per question the outcomes of its samples (any number of them). The samples of two arms are independent
    draws, so no single one turns into another: each of a question's samples before is paired with each after. Rows and
    columns add up to the arms' own shares, with every question counting the same.
    """
    shares = [
        np.array([[list(samples).count(outcome) / len(samples) for outcome in outcomes] for samples in arm])
        for arm in (before, after)
    ]
    if shares[0].shape != shares[1].shape or not np.allclose([s.sum() for s in shares], len(before)):
        raise ValueError(f"need the same questions in both arms, and no outcome other than {', '.join(outcomes)}")
    return shares[0].T @ shares[1] / len(before)


def form_and_substance(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, float, float]:
    """(strict gain, at most so much of it is form, at least so much substance), from outcomes in counts or shares.

    Form is what was right in another shape before. In net terms: strict can gain no more from it than it lost, and what
    the rest lost was wrong before. A gain of `form` is no part of a strict gain.
    """
    gain = after["strict"] - before["strict"]
    form = min(max(before["form"] - after["form"], 0), max(gain, 0))
    return gain, form, gain - form


def groups(formed_on: ArrayLike, arms: Mapping[str, ArrayLike]) -> dict[str, dict[str, Any]]:
    """Questions that one arm never, sometimes or always answered, and each arm's mean on them.

    Returns per group `questions`, `mean` by arm (None for an empty group) and `above_zero`: questions that the arm
    answered at all. Form the
    groups on one arm and measure them on another that is no better (control on base's groups, and the reverse): what
    moves there is regression to the mean, and only what moves beyond it is a gain.
    """
    formed = _per_question(formed_on, "formed_on")
    members = {"never": formed <= 0, "sometimes": (formed > 0) & (formed < 1), "always": formed >= 1}
    return {name: _measured(chosen, arms) for name, chosen in members.items()}


def by_label(labels: Labels, arms: Mapping[str, ArrayLike]) -> dict[Any, dict[str, Any]]:
    """The same by a label of each question (its tier, its hops), in the order of the labels' first appearance."""
    found = np.asarray(labels)
    return {label: _measured(found == label, arms) for label in dict.fromkeys(labels)}


def _measured(chosen: NDArray[np.bool_], arms: Mapping[str, ArrayLike]) -> dict[str, Any]:
    means = {name: _per_question(scores, name)[chosen] for name, scores in arms.items()}
    return {
        "questions": int(chosen.sum()),
        "mean": {name: float(values.mean()) if len(values) else None for name, values in means.items()},
        "above_zero": {name: int(np.sum(values > 0)) for name, values in means.items()},
    }
