"""Intervals are right where they can be known: by enumeration, by other libraries, by simulation, by published figures."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.proportion import proportion_confint

from lib import bootstrap
from lib.bootstrap import paired


def arms(questions, gain=0.05, samples=4, seed=0, ties=False):
    """0/1 scores of two arms like the study's: rates between questions spread widely, most at 0 or 1."""
    random = np.random.default_rng(seed)
    rate = random.choice([0.0, 0.3, 0.7, 1.0], questions, p=[0.2, 0.15, 0.25, 0.4])
    better = np.clip(rate + gain * (random.random(questions) < 0.5) * 2, 0, 1) if not ties else rate
    return (random.random((2, questions, samples)) < np.stack([rate, better])[..., None]).astype(float)


# --- the paired interval


def enumerated(values, clusters, tail):
    """All equally likely draws of clusters, none left out."""
    pools = [values[[c == name for c in clusters]] for name in dict.fromkeys(clusters)]
    draws = itertools.product(pools, repeat=len(pools))
    means = np.sort([np.concatenate(draw).mean() for draw in draws])
    skip = int(np.ceil(tail * len(means) - 1e-9)) - 1
    return means[max(skip, 0)], means[::-1][max(skip, 0)]


@given(
    st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 0.75]), min_size=1, max_size=5),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.integers(1, 2),
)
def test_exact_interval_is_that_of_all_draws(change, confidence, size):
    values = np.repeat(change, size) + np.tile([0.0, 0.25], len(change))[: len(change) * size]
    labels = [f"s{i // size}" for i in range(len(values))]
    found = paired(np.zeros_like(values), values, labels, confidence=confidence)
    assert found.method == "exact" and found.units == len(change)
    expected = enumerated(values, labels, (1 - confidence) / 2)
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)


def test_clusters_of_one_question_are_independent_questions():
    a, b = arms(50)
    alone, labelled = paired(a, b), paired(a, b, clusters=range(50))
    assert (alone.low, alone.high, alone.method) == (labelled.low, labelled.high, "exact")


def test_exchanging_the_arms_mirrors_the_interval():
    a, b = arms(186)
    there, back = paired(a, b), paired(b, a)
    assert (there.low, there.high, there.up) == pytest.approx((-back.high, -back.low, back.down))


CHANGES = st.lists(
    st.tuples(st.sampled_from([-0.75, -0.5, 0.0, 0.25, 1.0]), st.integers(0, 4)), min_size=2, max_size=12
)


@given(CHANGES, st.sampled_from([0.0, np.sqrt(2) * 1e-3]))
def test_exchanging_the_arms_mirrors_what_is_drawn_to_the_last_bit(rows, off_lattice):
    change, labels = (np.array(column) for column in zip(*rows, strict=True))
    change = change + off_lattice * np.arange(len(change))
    arms = np.zeros(len(change)), change
    there, back = (paired(*pair, labels.tolist(), 300, widened=True) for pair in (arms, arms[::-1]))
    assert (there.low, there.high, there.delta) == (-back.high, -back.low, -back.delta)
    flips = [bootstrap.sign_flip(*pair, labels.tolist(), 300) for pair in (arms, arms[::-1])]
    assert flips[0] == flips[1]


def test_agrees_with_scipy():
    """Both ends are those of scipy's 200,000 resamples, as far as so many can tell: four standard errors of a share."""
    a, b = arms(186)
    found = paired(a, b)
    change = b.mean(1) - a.mean(1)
    reference = stats.bootstrap((change,), np.mean, n_resamples=200_000, method="percentile", batch=2000, rng=0)
    drawn, error = reference.bootstrap_distribution, 4 * np.sqrt(0.025 * 0.975 / 200_000)
    assert np.mean(drawn < found.low - 1e-9) - error < 0.025 < np.mean(drawn < found.low + 1e-9) + error
    assert np.mean(drawn > found.high + 1e-9) - error < 0.025 < np.mean(drawn > found.high - 1e-9) + error
    step = 1 / 4 / 186
    assert _ends(found) == pytest.approx(tuple(reference.confidence_interval), abs=step + 1e-9)


@pytest.mark.parametrize(("units", "confidence"), [(8, 0.95), (24, 0.95), (186, 0.9)])
def test_widened_percentiles_are_those_of_students_t(units, confidence):
    """Of normal values the widened interval is the t-interval, and the plain one is too narrow by a known ratio."""
    normal = stats.norm.ppf((np.arange(units) + 0.5) / units) + np.sqrt(2) * 1e-3  # on no lattice
    nothing = np.zeros(units)
    plain, wide = (paired(nothing, normal, None, 100_000, 0, confidence, widened) for widened in (False, True))
    low, high = stats.t.interval(confidence, units - 1, normal.mean(), stats.sem(normal))
    assert _ends(wide) == pytest.approx((low, high), abs=0.035 * (high - low))
    ratio = stats.norm.ppf((1 + confidence) / 2) * np.sqrt(1 - 1 / units) / stats.t.ppf((1 + confidence) / 2, units - 1)
    assert (plain.high - plain.low) / (wide.high - wide.low) == pytest.approx(ratio, rel=0.04)


def test_one_unit_has_no_spread_to_widen():
    alone = paired([0.0], [0.5], widened=True)
    assert (alone.delta, *_ends(alone)) == (0.5, 0.5, 0.5)
    two = paired([0.0, 0.0], [0.0, 0.5], widened=True)
    assert _ends(two) == (0.0, 0.5)  # all that can be drawn


LABELS = st.sampled_from([0, 1, "1", ("a", 1), ("a", 2), None])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), LABELS), min_size=1, max_size=12), st.randoms())
def test_order_of_questions_and_names_of_clusters_decide_nothing(rows, random):
    def found(rows):
        a, b, labels = zip(*rows, strict=True)
        return paired(np.array(a) / 4, np.array(b) / 4, labels, resamples=200, widened=True)

    shuffled = random.sample(rows, len(rows))
    names = {label: f"structure {i}" for i, label in enumerate(dict.fromkeys(label for *_, label in shuffled))}
    assert found(rows) == found(shuffled) == found([(a, b, names[label]) for a, b, label in shuffled])
    assert found(rows).units == len(names)


@given(st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=30), st.sampled_from([0.5, 0.95, 0.999]))
def test_widening_only_widens_and_no_end_leaves_the_values(change, confidence):
    plain, wide = (
        paired(np.zeros(len(change)), change, None, 100, 0, confidence, widened) for widened in (False, True)
    )
    assert min(change) <= wide.low <= plain.low <= plain.high <= wide.high <= max(change)


def test_resampling_agrees_with_the_exact_way():
    a, b = arms(186)
    exact = paired(a, b)
    off_lattice = b + np.sqrt(2) * 1e-7 * np.arange(4)  # the same but for what no lattice has
    resampled = paired(a, off_lattice, resamples=40_000)
    assert (exact.method, resampled.method) == ("exact", "resampled")
    assert (exact.low, exact.high) == pytest.approx((resampled.low, resampled.high), abs=0.0015)


def test_clusters_of_unequal_sizes_are_resampled_whole():
    random = np.random.default_rng(1)
    labels = [f"s{i}" for i, size in enumerate(random.integers(1, 9, 60)) for _ in range(size)]
    gain = dict(zip(dict.fromkeys(labels), random.normal(0.1, 0.2, 60), strict=True))
    change = np.array([gain[label] for label in labels])
    found = paired(np.zeros_like(change), change, labels, resamples=4000)
    assert (found.method, found.units) == ("resampled", 60) and found.delta == pytest.approx(change.mean())

    names = np.array(labels)
    pools = [change[names == name] for name in gain]
    means = [np.concatenate([pools[i] for i in random.integers(0, 60, 60)]).mean() for _ in range(4000)]
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.006)
    assert found.high - found.low > 1.5 * np.diff(np.array(_ends(paired(np.zeros_like(change), change))))[0]


def _ends(found):
    return found.low, found.high


def test_resampling_is_the_same_for_the_same_seed():
    a, b = arms(40)
    labels = [i % 7 for i in range(40)]  # of unequal sizes
    one, again, other = (paired(a, b, labels, 500, seed) for seed in (1, 1, 2))
    assert one == again and _ends(one) != _ends(other)


def test_numbers_of_samples_may_differ():
    a, b = np.array([[1, 0, 0], [1, 1, 1]]), np.array([[1, 0], [1, 1]])
    found = paired(a, b)
    assert found.delta == pytest.approx(1 / 12) and (found.up, found.down, found.same) == (1, 0, 1)
    assert found.method == "exact"


def test_nothing_changed():
    found = paired(np.ones((30, 4)), np.ones((30, 4)))
    assert (found.delta, found.low, found.high, found.same) == (0.0, 0.0, 0.0, 30)
    assert "only 0 questions changed" in found.warnings


def test_warnings_say_where_an_interval_may_cover_less():
    a, b = arms(186)
    assert paired(a, b).warnings == ()
    assert paired(a, b, [i % 8 for i in range(186)]).warnings == ("only 8 clusters",)
    assert "questions changed" in paired(*arms(12)).warnings[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[1.0], [0.0]]), "a has 1 questions, b has 2"),
        (([[np.nan]], [[1.0]]), "a has 1 scores missing"),
        (([], []), r"a has the shape \(0,\)"),
        (([[[1.0]]], [[1.0]]), "a has the shape"),
        (([1.0, 1.0], [0.0, 1.0], ["x"]), "1 cluster labels for 2 questions"),
        (([1.0], [0.0], None, 10, 0, 95), "confidence is 95"),
        (([1.0], [0.0], None, 10, 0, 1 - 1e-9), "confidence is 0.999999999"),
        (([1.0], [np.inf]), "b has 1 scores missing"),
        (([0.0] * 3, [0.0, 1.0, 1.0], ["x", "x", "y"], 20), "resamples is 20: too few"),
    ],
)
def test_what_can_not_be_compared_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        paired(*arguments)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_the_interval_holds_the_difference_and_grows_with_confidence(seed):
    a, b = arms(30, seed=seed)
    narrow, wide = paired(a, b, confidence=0.5), paired(a, b, confidence=0.99)
    assert wide.low <= narrow.low <= narrow.delta <= narrow.high <= wide.high


def test_one_arms_mean():
    scores = arms(186)[0]
    found, against_nothing = bootstrap.mean(scores), paired(np.zeros(186), scores)
    assert found.mean == pytest.approx(scores.mean()) and found.method == "exact"
    assert _ends(found) == _ends(against_nothing)


# --- coverage and false alarms, by simulation


def coverage(runs, one):
    return sum(low <= truth <= high for low, high, truth in map(one, range(runs))) / runs


def test_coverage_with_independent_questions():
    rates = np.random.default_rng(0).choice([0.0, 0.25, 0.6, 0.9, 1.0], (100_000,), p=[0.2, 0.1, 0.2, 0.2, 0.3])
    gains = np.where((rates > 0) & (rates < 1), 0.1, 0.0)

    def one(seed):
        random = np.random.default_rng(seed)
        drawn = random.integers(0, len(rates), 186)
        a = random.binomial(4, rates[drawn]) / 4
        b = random.binomial(4, rates[drawn] + gains[drawn]) / 4
        return *_ends(paired(a, b)), gains.mean()

    assert 0.93 <= coverage(1000, one) <= 0.97


def test_coverage_with_questions_that_share_a_structure():
    """24 structures with 8 questions each whose gains differ: only drawing whole structures comes near."""

    def one(seed, clustered):
        random = np.random.default_rng(seed)
        gains = np.repeat(random.normal(0.05, 0.15, 24), 8)
        labels = np.repeat(np.arange(24), 8) if clustered else None
        rate = random.uniform(0.3, 0.7, 192)
        a = random.binomial(4, rate) / 4
        b = random.binomial(4, np.clip(rate + gains, 0, 1)) / 4
        return *_ends(paired(a, b, labels)), 0.05

    assert coverage(500, lambda seed: one(seed, clustered=True)) > 0.90
    assert coverage(500, lambda seed: one(seed, clustered=False)) < 0.85


def test_false_alarms_of_an_interval_above_zero():
    alarms = sum(paired(*arms(186, ties=True, seed=seed)).low > 0 for seed in range(600))
    assert alarms / 600 <= 0.045  # 2.5% one-sided, and three standard errors of the simulation


# --- other tests


@given(st.integers(1, 500), st.data())
def test_wilson_is_that_of_statsmodels(n, data):
    right = data.draw(st.integers(0, n))
    assert bootstrap.wilson(right, n, 0.9) == pytest.approx(proportion_confint(right, n, 0.1, "wilson"), abs=1e-9)


def test_t_interval_is_that_of_scipy():
    gains = [0.05, 0.08, 0.03]
    reference = stats.t.interval(0.95, 2, np.mean(gains), stats.sem(gains))
    assert bootstrap.t_interval(gains) == pytest.approx(reference)
    with pytest.raises(ValueError, match="1 gain: an interval over seeds needs two at least"):
        bootstrap.t_interval([0.05])
    with pytest.raises(ValueError, match="leave out the seeds"):
        bootstrap.t_interval([0.05, float("nan")])


def changes_of(questions, trainings, seed=0):
    random = np.random.default_rng(seed)
    shared = random.normal(0.05, 0.2, (questions, 1)) + random.normal(0, 0.03, trainings)
    return np.round(4 * (shared + random.normal(0, 0.3, (questions, trainings)))) / 4


def test_mean_squares_over_trainings_and_questions_are_those_of_statsmodels():
    """The interval from statsmodels' two-way analysis of variance, by the published formula."""
    y = changes_of(40, 3)
    question, training = (grid.ravel() for grid in np.indices(y.shape))
    table = anova_lm(
        ols("y ~ C(question) + C(training)", {"y": y.ravel(), "question": question, "training": training}).fit()
    )
    squares = table["sum_sq"] / table["df"]
    spread = squares["C(training)"] + max(squares["C(question)"] - squares["Residual"], 0)
    freedom = spread**2 / (squares["C(training)"] ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(spread / y.size)
    found = bootstrap.crossed(y)
    assert (found.mean, *_ends(found)) == pytest.approx((y.mean(), y.mean() - half, y.mean() + half))
    assert found.units == 3 and found.warnings == () and bootstrap.crossed(y[:, :2]).warnings == ("only 2 trainings",)


def test_trainings_that_are_alike_leave_the_interval_over_questions_or_clusters():
    """With nothing between trainings, it is a t-interval over questions, or statsmodels' cluster-robust one."""
    one = changes_of(60, 1)
    y = np.hstack([one, one, one])
    normal = stats.norm.interval(0.95, one.mean(), stats.sem(one[:, 0]))
    assert _ends(bootstrap.crossed(y)) == pytest.approx(normal)
    labels = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 9, 8, 7, 6, 5, 4])
    fit = OLS(one[:, 0], np.ones(60)).fit(cov_type="cluster", cov_kwds={"groups": labels, "use_correction": False})
    error = fit.bse[0] * np.sqrt(12 / 11)
    found = bootstrap.crossed(y, labels.tolist())
    assert found.high - found.low == pytest.approx(2 * stats.norm.ppf(0.975) * error)


def test_no_spread_is_made_up_over_trainings():
    assert _ends(bootstrap.crossed(np.full((5, 2), 0.25))) == (0.25, 0.25)
    for changes, labels in (
        (np.ones((5, 1)), None),
        (np.ones((1, 3)), None),
        ([[0.0, np.nan]] * 3, None),
        (np.ones((3, 2)), "xxx"),
    ):
        with pytest.raises(ValueError, match=r"two questions and trainings|1 cluster"):
            bootstrap.crossed(changes, labels)


# --- sign flips


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.75]), min_size=1, max_size=9), st.integers(1, 3))
def test_sign_flips_are_those_of_all_choices(change, size):
    labels = [i // size for i in range(len(change))]
    sums = [sum(change[i] for i in range(len(change)) if labels[i] == name) for name in dict.fromkeys(labels)]
    choices = [abs(np.dot(signs, sums)) for signs in itertools.product((-1, 1), repeat=len(sums))]
    found = bootstrap.sign_flip(np.zeros(len(change)), change, labels)
    assert found.method == "exact" and found.units == np.count_nonzero(sums)
    assert found.p == pytest.approx(np.mean(np.array(choices) >= abs(sum(sums)) - 1e-9))


def test_sign_flips_agree_with_scipy_and_with_their_own_sampling():
    a, b = arms(186, gain=0.02)
    change = b.mean(1) - a.mean(1)
    exact = bootstrap.sign_flip(a, b)
    reference = stats.permutation_test((change,), np.sum, permutation_type="samples", n_resamples=20_000, rng=0)
    off_lattice = bootstrap.sign_flip(a / np.sqrt(2), b / np.sqrt(2), resamples=20_000)
    assert (exact.method, off_lattice.method) == ("exact", "resampled")
    error = 4 * np.sqrt(exact.p * (1 - exact.p) / 20_000)
    assert reference.pvalue == pytest.approx(exact.p, abs=error) and off_lattice.p == pytest.approx(exact.p, abs=error)
    assert bootstrap.sign_flip(b, a) == exact


def test_sign_flips_of_one_sample_are_mcnemars():
    a, b = (scores[:, 0] for scores in arms(186, gain=0.1))
    assert bootstrap.sign_flip(a, b).p == pytest.approx(bootstrap.mcnemar(a, b).p)


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_the_smallest_of_ps_are_exact_too(wrong):
    """Counted in whole numbers, where a float of one has no digits left."""
    change = np.array([0.25] * 40 + [1.0] * 30)
    change[:wrong] *= -1
    ways = [1]
    for step in [1] * 40 + [4] * 30:
        ways = [a + b for a, b in zip(ways + [0] * step, [0] * step + ways, strict=True)]
    as_far = 2 * sum(ways[: wrong + 1])  # as many positive ones as that, or fewer, in quarters; and the other side
    assert bootstrap.sign_flip(np.zeros(70), change).p == pytest.approx(as_far / 2**70, rel=1e-9)
    assert bootstrap.sign_flip(np.zeros(3000), np.ones(3000)).p > 0


def test_sign_flips_at_the_ends():
    assert bootstrap.sign_flip(np.ones(5), np.ones(5)).p == 1
    assert bootstrap.sign_flip(np.zeros(100), np.ones(100)).p == pytest.approx(2.0**-99)  # below rounding, yet not 0
    assert bootstrap.sign_flip([0, 1], [1, 0]).p == 1
    with pytest.raises(ValueError, match="a has 1 questions"):
        bootstrap.sign_flip([0], [0, 1])


def test_equivalence_needs_the_whole_interval_within_the_margin():
    a, b = arms(600, ties=True)
    found = bootstrap.equivalence(a, b, margin=0.04)
    ninety = paired(a, b, confidence=0.9)
    assert found.equivalent and _ends(found) == pytest.approx(_ends(ninety))
    few = bootstrap.equivalence(a[:20], b[:20], margin=0.04)
    assert not few.equivalent and few.low <= 0 <= few.high  # includes zero, and shows nothing
    a, b = arms(600, gain=0.2)
    assert not bootstrap.equivalence(a, b, margin=0.04).equivalent


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_that_of_statsmodels(pairs):
    a, b = np.array(pairs).T
    found = bootstrap.mcnemar(a, b)
    table = [[np.sum(a & b), np.sum(a & ~b)], [np.sum(~a & b), np.sum(~a & ~b)]]
    assert (found.up, found.down) == (table[1][0], table[0][1])
    assert found.p == pytest.approx(min(1.0, reference_mcnemar(table, exact=True).pvalue))


def test_mcnemar_wants_one_sample():
    with pytest.raises(ValueError, match="one sample of the same questions"):
        bootstrap.mcnemar([[1, 0]], [[1, 1]])
    for missing in (np.nan, 0.5):
        with pytest.raises(ValueError, match="other than 0 and 1"):
            bootstrap.mcnemar([1, missing], [1, 1])


@given(st.integers(1, 7), st.data())
def test_pass_at_k_and_pass_hat_k_by_enumeration(n, data):
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([True] * right + [False] * (n - right), k))
    assert bootstrap.pass_at_k(n, right, k) == pytest.approx(sum(map(any, draws)) / comb(n, k))
    assert bootstrap.pass_hat_k(n, right, k) == pytest.approx(sum(map(all, draws)) / comb(n, k))


def test_pass_k_of_arrays_and_of_what_is_impossible():
    assert bootstrap.pass_at_k(4, np.array([0, 1, 4]), 2) == pytest.approx([0, 0.5, 1])
    assert bootstrap.pass_hat_k(4, np.array([0, 2, 4]), 2) == pytest.approx([0, 1 / 6, 1])
    assert bootstrap.pass_at_k(4.0, 1, 2.0) == bootstrap.pass_at_k(4, 1, np.float64(2)) == 0.5
    for n, right, k in ((4, 2, 5), (4, 5, 1), (4, 2, 0), (4, -1, 2), (4, 1.5, 2), (4, 1, 1.5)):
        with pytest.raises(ValueError, match="1 <= k <= n"):
            bootstrap.pass_at_k(n, right, k)


def test_pass_k_of_more_samples_than_binomials_fit_in_a_float():
    assert bootstrap.pass_at_k(5000, 1, 2500) == pytest.approx(0.5)
    assert bootstrap.pass_hat_k(5000, 4999, 2500) == pytest.approx(0.5)


def test_pass_k_with_intervals():
    """Unbiased values per question go through the same bootstrap; for k = 1 they are the rates themselves."""
    scores, n = arms(186)[1], np.full(186, 4)
    right = scores.sum(1)
    assert bootstrap.mean(bootstrap.pass_at_k(n, right, 1)) == bootstrap.mean(scores)
    any_of_two = bootstrap.mean(bootstrap.pass_at_k(n, right, 2))
    assert any_of_two.method == "exact" and any_of_two.low < any_of_two.mean < any_of_two.high


# --- what a gain is made of

OUTCOMES = ["strict", "form", "wrong", "wrong_turns"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((10, 5), (14, 8), (4, 0, 4)),  # form grew too: none of the gain can be form, in net terms
        ((10, 9), (12, 1), (2, 2, 0)),  # all of it can be
        ((10, 5), (8, 2), (-2, 0, -2)),  # a loss
    ],
)
def test_bounds_on_form_and_substance(before, after, expected):
    found = bootstrap.form_and_substance(*({"strict": strict, "form": form} for strict, form in (before, after)))
    assert found == expected


def test_flows_are_expected_over_independent_samples():
    before = [["strict", "wrong"], ["form", "form"]]
    after = [["strict", "strict", "strict", "wrong"], ["strict"]]
    flow = bootstrap.flows(before, after, OUTCOMES)
    assert flow.sum() == pytest.approx(1)
    assert flow.sum(1) == pytest.approx([0.25, 0.5, 0.25, 0])  # the arm before
    assert flow.sum(0) == pytest.approx([0.875, 0, 0.125, 0])  # the arm after
    assert flow[1, 0] == 0.5 and flow[2, 0] == pytest.approx(0.25 * 0.75)
    with pytest.raises(ValueError, match="no outcome other than strict, form"):
        bootstrap.flows([["right"]], [["wrong"]], OUTCOMES)
    for before, after in (([[]], [["wrong"]]), ([], [])):
        with pytest.raises(ValueError, match="a question without samples"):
            bootstrap.flows(before, after, OUTCOMES)


def test_groups_show_regression_to_the_mean():
    random = np.random.default_rng(0)
    rate = random.uniform(0, 1, 2000)
    base, control = (random.random((2, 2000, 4)) < rate[:, None]).astype(float)
    found = bootstrap.groups(base, {"base": base, "control": control})
    assert list(found) == ["never", "sometimes", "always"] and sum(g["questions"] for g in found.values()) == 2000
    assert found["never"]["mean"]["base"] == 0 and found["always"]["mean"]["base"] == 1
    # nothing was trained, yet never-solved questions seem to rise and always-solved ones to fall
    assert found["never"]["mean"]["control"] > 0.1 and found["always"]["mean"]["control"] < 0.9
    assert found["never"]["above_zero"]["base"] == 0 < found["never"]["above_zero"]["control"]
    assert bootstrap.groups(np.ones((3, 4)), {"x": np.ones((3, 4))})["never"]["mean"] == {"x": None}


def test_by_label():
    found = bootstrap.by_label(["simple", "hard", "simple"], {"a": [[1, 0], [0, 0], [1, 1]]})
    assert list(found) == ["simple", "hard"]
    assert found["simple"] == {"questions": 2, "mean": {"a": 0.75}, "above_zero": {"a": 2}}
    assert list(bootstrap.by_label([1, "1", (2, 3)], {"a": [1, 0, 1]})) == [1, "1", (2, 3)]
    with pytest.raises(ValueError, match="groups of 2 questions, but b has 3"):
        bootstrap.by_label(["simple", "hard"], {"a": [1, 0], "b": [1, 0, 1]})
