"""How sure a difference between two arms is: intervals, and what a gain is made of, from scores per question and sample.

Questions are what is drawn at random; the samples of one question belong together. So a question counts by its mean,
arms are compared question by question, and intervals come from drawing questions anew (or whole clusters of them:
questions of one structure are no independent draws). Where all differences are multiples of one step, as they are with
0/1 scores and equally many samples, the bootstrap distribution is computed instead of simulated. docs/statistics.md says
which method is used when, and how well each covers.

Arrays of scores have the shape (questions, samples) or (questions,), values mostly between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

Labels = Sequence[Any] | NDArray[Any]  # one per question

FINEST_STEP = 240  # differences are looked for in multiples of 1, 1/2, ... 1/240: pools of samples up to that many
LONGEST = 1 << 22  # points of a distribution that is computed exactly
ADDITIONS = 1 << 28  # of chances, for a test that is computed exactly
CHUNK = 1 << 22  # draws held in memory at once
FEW_CHANGES = 20  # questions; below, the percentile interval covers less than it says
FEW_CLUSTERS = 20
FEW_SEEDS = 3
SUREST = 1 - 1e-6  # a confidence; beyond it the tails are of the size of rounding in the transform
LEAST_P = 1e-300  # that floats hold; a p below it is given as this, for none is zero


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval. `warnings`: why it may cover less than `confidence`."""

    mean: float
    low: float
    high: float
    confidence: float
    method: str  # "exact" (computed), "resampled" or, of `crossed`, "two-way"
    units: int  # independent ones: questions, clusters of them or, of `crossed`, trainings
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
    widened: bool = False,
) -> Paired:
    """Paired percentile bootstrap of mean(b) - mean(a) (Efron and Tibshirani 1993, chapter 13).

    a, b: scores of the two arms on the same questions in the same order; their numbers of samples may differ.
    clusters: a label per question; whole clusters are drawn, and a draw's mean is over the questions in it.
    resamples, seed: used only where the distribution can't be computed. Same arguments, same result; exchanging the arms
    gives the same interval with the other sign.
    widened: take the percentiles further out, by as much as the plain ones are too narrow with n units (Hesterberg 2015,
    "expanded percentile"): at the normal tail of sqrt(n / (n - 1)) * t, with Student's t for n - 1 degrees of freedom, or
    fewer where few units make up most of the spread. It matters with few clusters and with few questions that change.

    Computed exactly if the questions' differences are multiples of 1/240 or coarser, for independent questions and for
    clusters of equal sizes. Raises ValueError for missing scores, and for arms or clusters of other lengths.
    """
    before, after = _per_question(a, "a"), _per_question(b, "b")
    if len(before) != len(after):
        raise ValueError(f"a has {len(before)} questions, b has {len(after)}: pass the ones that both arms answered")
    change = after - before
    up, down = int(np.sum(change > 1e-9)), int(np.sum(change < -1e-9))
    found = _bootstrap(change, clusters, resamples, seed, confidence, widened)
    warnings = found.warnings
    if up + down < FEW_CHANGES:
        warnings += (f"only {_counted(up + down, 'question')} changed",)
    same = len(change) - up - down
    return Paired(found.mean, found.low, found.high, up, down, same, confidence, found.method, found.units, warnings)


def mean(
    scores: ArrayLike,
    clusters: Labels | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    widened: bool = False,
) -> Interval:
    """One arm's mean with the same bootstrap over questions or clusters; arguments as in `paired`.

    Intervals of two arms may overlap while that of their paired difference excludes zero: most of an arm's spread is
    that between questions, which the pairing removes.
    """
    return _bootstrap(_per_question(scores, "scores"), clusters, resamples, seed, confidence, widened)


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
    values: NDArray[np.float64],
    clusters: Labels | None,
    resamples: int,
    seed: int,
    confidence: float,
    widened: bool,
) -> Interval:
    _confident(confidence)
    sums, sizes, scale = _units(values, clusters)
    few = clusters is not None and len(sums) < FEW_CLUSTERS
    warnings = (f"only {_counted(len(sums), 'cluster')}",) if few else ()
    centre, tail = math.fsum(sums) / (scale or 1) / len(values), _tail(confidence, sums, sizes, widened)
    if scale and sizes.min() == sizes.max() and len(sums) * np.ptp(sums) < LONGEST:
        low, high = (end / scale / len(values) for end in _exact_ends(sums, tail))
        return Interval(centre, low, high, confidence, "exact", len(sums), warnings)
    if resamples * (1 - confidence) < 2:
        raise ValueError(f"resamples is {resamples}: too few for an interval at {confidence}, 10,000 are usual")
    means = _resampled(sums, sizes, resamples, seed) / (scale or 1)
    low, high = float(np.quantile(means, tail)), -float(np.quantile(-means, tail))
    return Interval(centre, low, high, confidence, "resampled", len(sums), warnings)


def _confident(confidence: float) -> None:
    if not 0 < confidence <= SUREST:
        raise ValueError(f"confidence is {confidence}: need a share between 0 and {SUREST}, such as 0.95")


def _tail(confidence: float, sums: NDArray[Any], sizes: NDArray[np.int64], widened: bool) -> float:
    """Probability left out at either end; see `paired`. Where nothing differs, there is nothing to widen.

    Degrees of freedom of the variance by Satterthwaite (1946): with the kurtosis k of the units, a sample variance has the
    relative variance (k - 3) / n + 2 / (n - 1). Clusters of unequal sizes count as n = sum(sizes)**2 / sum(sizes**2) (Kish
    1965).
    """
    apart = np.sort(
        np.abs(sums - sizes * (math.fsum(sums) / sizes.sum()))
    )  # sorted: added alike if the arms are exchanged
    if not widened or not apart[-1] > 1e-9:
        return (1 - confidence) / 2
    n = float(sizes.sum()) ** 2 / float((sizes**2).sum())
    kurtosis = float(np.mean(apart**4) / np.mean(apart**2) ** 2)
    freedom = 2 / (max(kurtosis - 3, 0.0) / n + 2 / (n - 1))
    return float(special.ndtr(-math.sqrt(n / (n - 1)) * special.stdtrit(freedom, (1 + confidence) / 2)))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _units(values: NDArray[np.float64], clusters: Labels | None) -> tuple[NDArray[Any], NDArray[np.int64], int | None]:
    """What is drawn: sums and sizes of the clusters (or of questions), and the lattice's scale, None where there is none.

    On a lattice the sums are whole numbers, in units of 1 / scale. In ascending order, so that neither the questions'
    order nor the clusters' names decide which is drawn.
    """
    points = _lattice(values)
    sums: NDArray[Any]
    sums, scale = (values, None) if points is None else points
    sizes = np.ones(len(values), dtype=np.int64)
    if clusters is not None:
        member = _members(clusters, len(values))
        sizes = np.bincount(member)
        sums = np.bincount(member, weights=sums).astype(sums.dtype)  # lattice points stay whole: far below 2**53
    order = np.lexsort((sizes, sums))
    return sums[order], sizes[order], scale


def _members(clusters: Labels, questions: int) -> NDArray[np.int64]:
    """Each question's cluster as a number. Labels are compared as they are: 1 isn't "1"."""
    if len(clusters) != questions:
        raise ValueError(f"{len(clusters)} cluster labels for {questions} questions: need one each")
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in clusters])


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
    """Means over questions of `resamples` draws of len(sums) clusters with replacement.

    Half of them are drawn as if the arms were exchanged, by the same choices, so that no end depends on which arm is
    called the first.
    """
    other = np.lexsort((sizes, -sums))
    here, there = (
        _drawn(*units, (resamples + 1) // 2, seed) for units in ((sums, sizes), (-sums[other], sizes[other]))
    )
    return np.concatenate([here, -there])


def _drawn(sums: NDArray, sizes: NDArray[np.int64], resamples: int, seed: int) -> NDArray[np.float64]:
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

    gains: one per seed. Few seeds can't be resampled: a bootstrap of two or three covers 82 to 89%. It takes the
    questions as they are: that others could have been asked is left out, see `crossed`. Raises ValueError for fewer than
    two, of whose spread nothing is known, and for missing ones.
    """
    _confident(confidence)
    if len(gains) < 2:
        raise ValueError(f"{_counted(len(gains), 'gain')}: an interval over seeds needs two at least")
    if not np.isfinite(gains).all():
        raise ValueError(f"gains are {list(gains)}: leave out the seeds that have none")
    half = float(stats.t.ppf((1 + confidence) / 2, len(gains) - 1) * stats.sem(gains))
    return float(np.mean(gains)) - half, float(np.mean(gains)) + half


def crossed(changes: ArrayLike, clusters: Labels | None = None, confidence: float = 0.95) -> Interval:
    """Interval of the mean gain over trainings *and* questions, both taken as drawn from many, every question meeting
    every training.

    changes: per question and training the change of the question's mean, shape (questions, trainings). clusters as in
    `paired`; `units` are the trainings. From the mean squares of trainings (T), questions (Q) and both (R), the variance
    of the mean of q questions and t trainings is (T + max(Q - R, 0)) / (q t), with Hillis's (2007) degrees of freedom,
    (T + max(Q - R, 0))**2 / (T**2 / (t - 1)); the analysis in which several readers judge the same cases. Clusters of
    unequal sizes enter by their linearised means. Raises ValueError for fewer than two trainings or clusters.
    """
    _confident(confidence)
    values = np.asarray(changes, dtype=float)
    if values.ndim != 2 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise ValueError(
            f"changes have the shape {values.shape}: need two questions and trainings at least, none missing"
        )
    member = _members(range(len(values)) if clusters is None else clusters, len(values))
    sizes, centre = np.bincount(member), values.mean(axis=0)
    if len(sizes) < 2:
        raise ValueError("1 cluster: of the spread between clusters nothing is known")
    sums = np.array([np.bincount(member, weights=column) for column in (values - centre).T]).T
    cases = centre + sums * len(sizes) / len(values)  # for clusters of one question: the values themselves
    q, t = cases.shape
    by_question, by_training, mean = cases.mean(axis=1), cases.mean(axis=0), float(cases.mean())
    rest = cases - by_question[:, None] - by_training + mean
    trainings = q * float(by_training.var(ddof=1))
    questions = t * float(by_question.var(ddof=1)) - float((rest**2).sum()) / ((q - 1) * (t - 1))
    variance = trainings + max(questions, 0.0)
    freedom = (t - 1) * (variance / trainings) ** 2 if trainings > 1e-12 * variance else np.inf
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance / (q * t))
    warnings = (f"only {t} trainings",) if t < FEW_SEEDS else ()
    return Interval(mean, mean - half, mean + half, confidence, "two-way", t, warnings)


@dataclass(frozen=True)
class SignFlip:
    """Two-sided p-value; `method` is "exact" (computed) or "resampled", `units` those that could be flipped."""

    p: float
    method: str
    units: int


def sign_flip(
    a: ArrayLike, b: ArrayLike, clusters: Labels | None = None, resamples: int = 10_000, seed: int = 0
) -> SignFlip:
    """Paired sign-flip test of no difference (Fisher 1935, section 21): were the arms alike, each question's (or whole
    cluster's) change could as well have the other sign; p is the share of all choices of signs whose sum is as far from
    zero as the one found.

    A check beside the interval that rests on other grounds. Computed exactly for changes on a lattice; else by `resamples`
    choices of signs, the found one counted in (Phipson and Smyth 2010). Arguments and errors as in `paired`.
    """
    before, after = _per_question(a, "a"), _per_question(b, "b")
    if len(before) != len(after):
        raise ValueError(f"a has {len(before)} questions, b has {len(after)}: pass the ones that both arms answered")
    sums, _, scale = _units(after - before, clusters)
    sums = sums[np.abs(sums) > 1e-9]
    found, sizes = abs(math.fsum(sums)), np.sort(np.abs(sums))
    if not len(sums):
        return SignFlip(1.0, "exact", 0)
    if scale and len(sizes) * int(sizes.sum()) < ADDITIONS:
        return SignFlip(_flipped_as_far(sizes, int(found)), "exact", len(sums))
    random, as_far = np.random.default_rng(seed), 0
    for start in range(0, resamples, rows := max(1, CHUNK // len(sums))):
        signs = random.integers(0, 2, size=(min(rows, resamples - start), len(sums))) * 2 - 1
        as_far += int(np.sum(np.abs(signs @ sizes) >= found - 1e-9))
    return SignFlip((1 + as_far) / (1 + resamples), "resampled", len(sums))


def _flipped_as_far(sizes: NDArray[np.int64], found: int) -> float:
    """Chance that whole numbers of these sizes with signs by lot add up to `found` or more, or to -found or less.

    Chances of the sum of those that are positive, one number after the other. Only sums of positive terms: a difference
    from one, as a Fourier transform would give it, is lost in rounding where p is small.
    """
    if found == 0:
        return 1.0
    chances = np.ones(1)
    for size in map(int, sizes):
        without, with_it = (np.pad(chances, gap) for gap in ((0, size), (size, 0)))
        chances = (without + with_it) / 2
    # positive ones that add up to x make the whole 2 * x - sum(sizes); as far on the other side is as likely
    return min(max(2 * float(chances[: (int(sizes.sum()) - found) // 2 + 1].sum()), LEAST_P), 1.0)


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
    widened: bool = False,
) -> Equivalence:
    """Two one-sided tests at alpha (Schuirmann 1987): equivalent if the paired interval at 1 - 2 * alpha lies within the
    margin. That an interval includes zero shows nothing of the kind: with few questions it always does."""
    found = paired(a, b, clusters, resamples, seed, 1 - 2 * alpha, widened)
    return Equivalence(found.delta, found.low, found.high, margin, -margin < found.low and found.high < margin)


@dataclass(frozen=True)
class McNemar:
    up: int
    down: int
    p: float


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Exact two-sided McNemar test for one sample per question: given that a question changed, up is as likely as down.

    a, b: right or wrong, shape (questions,). Raises ValueError for anything else: a missing score isn't wrong.
    """
    scores = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if scores[0].ndim != 1 or scores[0].shape != scores[1].shape:
        shapes = f"{scores[0].shape} and {scores[1].shape}"
        raise ValueError(f"shapes {shapes}: need one sample of the same questions in both arms")
    if not np.isin(scores, (0, 1)).all():
        raise ValueError("scores other than 0 and 1: leave out what is missing, and use `paired` for means")
    before, after = (found == 1 for found in scores)
    up, down = int(np.sum(after & ~before)), int(np.sum(before & ~after))
    return McNemar(up, down, float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0)


def pass_at_k(n: ArrayLike, right: ArrayLike, k: float) -> Any:
    """Chance that any of k samples is right, unbiased from `right` of n samples: 1 - C(n - right, k) / C(n, k)
    (Chen et al. 2021).

    Arrays give arrays; `mean` and `paired` of them give intervals. Raises ValueError unless all are whole numbers (of any
    type) with 0 <= right <= n and 1 <= k <= n.
    """
    n, right, k = _samples(n, right, k)
    return 1 - _all_among(n - right, n, k)


def pass_hat_k(n: ArrayLike, right: ArrayLike, k: float) -> Any:
    """pass^k, the chance that all of k samples are right: C(right, k) / C(n, k) (Yao et al. 2024); as `pass_at_k`."""
    n, right, k = _samples(n, right, k)
    return _all_among(right, n, k)


def _all_among(chosen: NDArray, n: NDArray, k: int) -> Any:
    """C(chosen, k) / C(n, k) factor by factor: the binomials themselves leave the floats from n = 1030 on."""
    chance: Any = 1.0
    for drawn in range(k):
        chance = chance * np.maximum(chosen - drawn, 0) / (n - drawn)
    return chance


def _samples(n: ArrayLike, right: ArrayLike, k: float) -> tuple[NDArray, NDArray, int]:
    n, right = np.asarray(n), np.asarray(right)
    whole = all(np.all(np.equal(np.mod(x, 1), 0)) for x in (n, right, k))
    if not whole or k < 1 or np.any(n < k) or np.any(right > n) or np.any(right < 0):
        raise ValueError(f"k is {k}, n {n}, right {right}: need whole numbers, 1 <= k <= n and 0 <= right <= n")
    return n, right, int(k)


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
    if not len(before) or not all(map(len, (*before, *after))):
        raise ValueError("a question without samples, or none at all: leave out what wasn't answered in both arms")
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
    answered at all. Form the groups on one arm and measure them on another that is no better (control on base's groups,
    and the reverse): what moves there is regression to the mean, and only what moves beyond it is a gain.
    """
    formed = _per_question(formed_on, "formed_on")
    members = {"never": formed <= 0, "sometimes": (formed > 0) & (formed < 1), "always": formed >= 1}
    return {name: _measured(chosen, arms) for name, chosen in members.items()}


def by_label(labels: Labels, arms: Mapping[str, ArrayLike]) -> dict[Any, dict[str, Any]]:
    """The same by a label of each question (its tier, its hops), in the order of the labels' first appearance."""
    names = list(dict.fromkeys(labels))
    member = _members(labels, len(labels))
    return {name: _measured(member == number, arms) for number, name in enumerate(names)}


def _measured(chosen: NDArray[np.bool_], arms: Mapping[str, ArrayLike]) -> dict[str, Any]:
    found = {name: _per_question(scores, name) for name, scores in arms.items()}
    if unlike := [f"{name} has {len(values)}" for name, values in found.items() if len(values) != len(chosen)]:
        raise ValueError(f"groups of {len(chosen)} questions, but {', '.join(unlike)}: pass the same questions")
    means = {name: values[chosen] for name, values in found.items()}
    return {
        "questions": int(chosen.sum()),
        "mean": {name: float(values.mean()) if len(values) else None for name, values in means.items()},
        "above_zero": {name: int(np.sum(values > 0)) for name, values in means.items()},
    }
