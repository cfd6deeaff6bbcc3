"""The published study's figures, recomputed by this study's functions as far as its published counts allow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lib import bootstrap

PUBLISHED = Path(__file__).parent.parent.parent / "shared" / "data" / "published" / "study_numbers.json"
ARMS = ("base", "control", "trained")
OUTCOMES = ("strict", "form", "wrong", "wrong_turns")


@pytest.fixture(scope="module")
def published():
    if not PUBLISHED.exists():
        pytest.skip(f"the published study's numbers are not at {PUBLISHED}")
    return json.loads(PUBLISHED.read_text())


@pytest.fixture(scope="module")
def counts(published):
    """Samples by outcome and arm, in this study's words."""
    return {arm: dict(zip(OUTCOMES, published["sample_outcomes"][arm].values(), strict=True)) for arm in ARMS}


def scores(questions, rate, samples):
    """0/1 scores of so many questions whose mean is the printed rate; which are right makes no difference to a mean."""
    right = round(rate * questions * samples)
    return (np.arange(questions * samples) < right).reshape(questions, samples).astype(float)


def test_rates_are_those_of_the_counts(published, counts):
    for arm in ARMS:
        total = sum(counts[arm].values())
        assert total == published["n_questions"] * published["samples_per_question"]
        strict = counts[arm]["strict"] / total
        assert round(strict, 4) == published["accuracy"]["strict"][arm][0]
        assert (
            round((counts[arm]["strict"] + counts[arm]["form"]) / total, 4) == published["accuracy"]["lenient"][arm][0]
        )
        assert np.mean(published["strict_per_pass"][arm]) == pytest.approx(strict, abs=5e-5)
    gains = {arm: (counts[arm]["strict"] - counts["control"]["strict"]) / 744 for arm in ARMS}
    assert round(gains["trained"], 3) == 0.062 and round(-gains["base"], 3) == 0.012


def test_net_changes_between_outcomes_and_bounds_on_form(counts):
    net = {name: counts["trained"][name] - counts["control"][name] for name in OUTCOMES}
    assert net == {"strict": 46, "form": -23, "wrong": -24, "wrong_turns": 1}
    assert bootstrap.form_and_substance(counts["control"], counts["trained"]) == (46, 23, 23)
    lenient = (net["strict"] + net["form"]) / 744
    assert round(lenient, 3) == 0.031


def test_tiers(published):
    """By tier each arm has the printed rate, and all tiers together its overall one."""
    tiers, samples = published["by_tier"], published["samples_per_question"]
    labels = [tier for tier, row in tiers.items() for _ in range(row["n"])]
    arms = {arm: np.vstack([scores(row["n"], row[arm], samples) for row in tiers.values()]) for arm in ARMS}
    found = bootstrap.by_label(labels, arms)
    assert len(labels) == published["n_questions"]
    for tier, row in tiers.items():
        assert found[tier]["questions"] == row["n"]
        assert {arm: round(rate, 4) for arm, rate in found[tier]["mean"].items()} == {arm: row[arm] for arm in ARMS}
    for arm in ARMS:
        assert round(bootstrap.mean(arms[arm]).mean, 4) == published["accuracy"]["strict"][arm][0]
    gains = {tier: round(one["mean"]["trained"] - one["mean"]["control"], 3) for tier, one in found.items()}
    assert gains == {"simple": 0.084, "moderate": -0.05, "challenging": 0.05}


def test_never_sometimes_always(published, counts):
    """Groups by the pooled untrained arms: their rates, and what they add up to."""
    rows, samples = published["by_untrained_group"], published["samples_per_question"]
    labels = [name for name, row in rows.items() for _ in range(row["n"])]
    trained = np.vstack([scores(row["n"], row["trained"], samples) for row in rows.values()])
    right = {name: round(row["untrained"] * row["n"] * 2 * samples) for name, row in rows.items()}
    assert sum(right.values()) == counts["base"]["strict"] + counts["control"]["strict"]
    untrained = np.concatenate([np.full(row["n"], right[name] / row["n"] / 2 / samples) for name, row in rows.items()])
    found = bootstrap.groups(untrained, {"untrained": untrained, "trained": trained})
    assert found == {
        name: found[name] | one
        for name, one in bootstrap.by_label(labels, {"untrained": untrained, "trained": trained}).items()
    }
    for name, row in rows.items():
        assert found[name]["questions"] == row["n"]
        assert round(found[name]["mean"]["untrained"], 3) == row["untrained"]
        assert round(found[name]["mean"]["trained"], 4) == row["trained"]
    assert trained.sum() == counts["trained"]["strict"]


def test_change_against_the_pooled_untrained_arms(published, counts):
    histogram = {float(change): n for change, n in published["change_against_pooled_untrained"].items()}
    change = np.repeat(list(histogram), list(histogram.values()))
    nothing = np.zeros_like(change)
    found = bootstrap.paired(nothing, change)
    assert (found.method, found.units) == ("exact", published["n_questions"])
    assert (round(found.delta, 4), round(found.low, 4), round(found.high, 4)) == (0.0679, 0.0383, 0.0974)
    assert (found.up, found.down, found.same) == (80, 30, 76)
    untrained = (counts["base"]["strict"] + counts["control"]["strict"]) / 1488
    assert found.delta == pytest.approx(counts["trained"]["strict"] / 744 - untrained)
    assert bootstrap.changes(nothing, change) == histogram
    assert bootstrap.sign_flip(nothing, change).p < 1e-4  # the same by another way
