"""What a test is said to see beforehand is what it sees in simulation."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from lib import bootstrap, measures, power
from lib.power import Design

PILOT = np.repeat([0, 1, 2, 3, 4], [45, 20, 25, 36, 60])  # right of 4 samples: 186 questions, most at the ends
RATES = power.true_rates(PILOT, np.full(186, 4))


def succeeded(rates, gain, design, runs=400, seed=0):
    """Share of simulated runs that the planned test ends in success."""
    random, wins = np.random.default_rng(seed), 0
    after = power.moved(rates, gain)
    for _ in range(runs):
        drawn = random.integers(0, len(rates), design.questions)
        control = random.binomial(design.samples, rates[drawn]) / design.samples
        many = design.samples * design.seeds
        found = bootstrap.paired(control, random.binomial(many, after[drawn]) / many, confidence=design.confidence)
        wins += found.low > 0 and found.delta >= design.bar
    return wins / runs


@pytest.mark.parametrize(
    "design", [Design(186, 4), Design(186, 4, seeds=2, bar=0.05), Design(40, 8, seeds=3)], ids=["one", "bar", "few"]
)
def test_the_smallest_gain_is_found_as_often_as_wanted(design):
    gain = power.smallest_gain(RATES, design)
    assert gain is not None and power.chance(RATES, gain, design) == pytest.approx(0.8, abs=1e-4)
    assert succeeded(RATES, gain, design) == pytest.approx(0.8, abs=0.03 + 2 * 0.02)  # and two errors of 400 runs


def test_needed_numbers_are_the_least_that_are_enough():
    design = Design(200, 2, structures=50, bar=0.02)
    for what in power.MOST:
        number = power.needed(what, RATES, 0.07, design)
        assert number is not None and power.chance(RATES, 0.07, design.resized(what, number)) >= 0.8
        assert number == 1 or power.chance(RATES, 0.07, design.resized(what, number - 1)) < 0.8
    unreached = dataclasses.replace(design, bar=0.07)  # half of all gains measured lie below the true one
    assert power.needed("questions", RATES, 0.07, unreached) is None
    assert power.needed("seeds", RATES, 0.02, Design(186, 4)) is None  # the control's own luck stays


@given(st.floats(0.01, 0.2), st.integers(40, 400), st.integers(1, 8), st.integers(1, 4))
def test_more_of_anything_never_costs_power(gain, questions, samples, seeds):
    design = Design(questions, samples, seeds, bar=0.01)
    chance = power.chance(RATES, gain, design)
    assert 0 <= chance <= 1
    for what in power.MOST:
        more = design.resized(what, 2 * getattr(design, what))
        assert chance < 0.5 or power.chance(RATES, gain, more) >= chance - 1e-9
    clustered = dataclasses.replace(design, structures=max(1, questions // 4))
    assert chance < 0.5 or power.chance(RATES, gain, clustered) <= chance + 1e-9


@given(st.lists(st.integers(0, 2), min_size=2, max_size=160), st.integers(1, 2))
def test_any_pilot_has_an_outlook(right, samples):
    """Also of questions that are always or never right, and of rates that don't differ."""
    found = power.outlook(np.minimum(right, samples), np.full(len(right), samples), Design(480, 4, 2, 44, 0.05))
    assert 0 <= found["rate"] <= 1
    assert found["smallest_gain"] is None or 0 < found["smallest_gain"] < 1
    for one in found["needs"]:
        assert 0 <= one["chance"] <= 1


@pytest.mark.parametrize("middle", range(6))
def test_a_pilot_of_always_and_never_has_an_outlook(middle):
    right = np.repeat([0, 1, 2], [80, middle, 80 - middle])
    assert power.outlook(right, np.full(160, 2), Design(480, 4, 2, 44, 0.05))["rate"] <= 0.5


@given(st.floats(0.0, 0.3))
def test_a_gain_moves_the_middle_and_not_the_ends(gain):
    after = power.moved(RATES, gain)
    assert after.mean() - RATES.mean() == pytest.approx(gain, abs=1e-6)
    assert np.all(after >= RATES - 1e-12) and np.all(np.diff(after) >= -1e-12)


def test_true_rates_spread_less_than_observed_ones():
    random = np.random.default_rng(1)
    true = random.beta(0.8, 0.5, 4000)
    for samples in (2, 8):
        found = power.true_rates(random.binomial(samples, true), np.full(4000, samples))
        assert found.mean() == pytest.approx(true.mean(), abs=0.02) and found.std() == pytest.approx(
            true.std(), abs=0.02
        )
    assert np.ptp(power.true_rates(random.binomial(1, true), np.ones(4000))) == 0  # one sample: their mean alone
    alike = power.true_rates(random.binomial(4, np.full(4000, 0.5)), np.full(4000, 4))
    assert alike.std() < 0.05 < np.std(random.binomial(4, np.full(4000, 0.5)) / 4)


def test_a_pilot_at_either_end_leaves_nothing_to_see():
    for right in (0, 4):
        found = power.outlook(np.full(20, right), np.full(20, 4), Design(186, 4))
        assert found["smallest_gain"] is None and found["needs"] == []
    with pytest.raises(power.PilotError, match="out of reach"):
        power.moved(np.full(10, 0.9), 0.2)
    for right, samples in (([0, 3], [2, 2]), ([1, np.nan], [2, 2]), ([1, 1], [2, np.nan]), ([1, 1], [2, np.inf])):
        with pytest.raises(power.PilotError, match=r"question 1 has .* need 0 <= right <= samples"):
            power.true_rates(right, samples)


def test_a_test_of_one_structure_sees_nothing():
    assert power.chance(RATES, 0.2, Design(186, 4, structures=1)) == 0


def test_the_command_reads_episodes_and_counts(tmp_path, capsys):
    asked = [synthetic.question("dev", i) for i in range(12)]
    kept = [synthetic.answered("base", one, sample, 0.6) for one in asked for sample in range(3)]
    lines = [dataclasses.asdict(episode) for episode in kept]
    right = measures.Arm.of("base", kept).scores([one["id"] for one in asked], "strict").sum(1)
    counts = [{"question": one["id"], "right": int(r), "samples": 3} for one, r in zip(asked, right, strict=True)]
    said = []
    for name, rows in (("episodes", lines), ("counts", counts)):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        power.main([str(file), "--questions", "186", "--json"])
        said.append(json.loads(capsys.readouterr().out))
        power.main([str(file), "--questions", "186", "--structures", "24"])
        assert "questions, no bar" in capsys.readouterr().out
    assert said[0] == said[1] and said[0]["needs"][0]["gain"] == 0.03


@pytest.mark.parametrize("text", ['{"question": "q", "right": 1}\n', '{"strict": true}\n', ""])
def test_a_pilot_that_tells_nothing_is_named(tmp_path, capsys, text):
    file = tmp_path / "pilot.jsonl"
    file.write_text(text)
    with pytest.raises(SystemExit) as stop:
        power.main([str(file), "--questions", "186"])
    assert stop.value.code == 1 and ("line 1" in (said := capsys.readouterr().err) or "shape (0,)" in said)
