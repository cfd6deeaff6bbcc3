"""Headroom: what is said beforehand is what groups then hold, and a run that has none stops before its first update."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from lib import headroom, power, tally, train
from lib.headroom import NoHeadroom

COUNTS = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.tuples(st.just(n), st.integers(0, n)), min_size=1, max_size=30)
)


def test_shares_of_known_counts():
    found = headroom.headroom([(4, 0), (4, 4), (4, 2), (4, 2)], 4)
    assert (found["one"], found["any"], found["all"]) == (0.5, 0.75, 0.25)
    assert (found["never"], found["sometimes"], found["always"]) == (0.25, 0.5, 0.25)
    assert (found["signal"], found["gain"], found["method"]) == (0.5, 0.25, "unbiased")


def test_unbiased_where_there_are_enough_attempts():
    """Mean over all draws of 6 attempts at a rate of 0.3 equals the truth for groups of 3."""
    chance = np.array([0.7**6 * np.prod([(6 - i) / (i + 1) * 3 / 7 for i in range(r)]) for r in range(7)])
    found = [headroom.headroom([(6, r)], 3) for r in range(7)]
    assert chance @ [one["signal"] for one in found] == pytest.approx(1 - 0.3**3 - 0.7**3)
    assert chance @ [one["gain"] for one in found] == pytest.approx(1 - 0.7**3 - 0.3)


def test_attempts_are_counted_by_question_without_faults_and_greedy_ones():
    asked = [synthetic.question("dev", i) for i in range(3)]
    made = [synthetic.answered("base", one, sample, 0.5) for one in reversed(asked) for sample in range(4)]
    greedy = [synthetic.episode("base", one, 0, "strict", one["query"], decode="greedy") for one in asked]
    lost = [synthetic.episode("base", asked[0], 9, "error")]
    found = tally.counts([*greedy, *made, *lost])
    assert list(found) == [one["id"] for one in asked]
    assert found == {q["id"]: (4, sum(e.strict for e in made if e.question == q["id"])) for q in asked}


@given(COUNTS)
def test_power_and_headroom_see_the_same_rates(counts):
    """Of groups of eight, by hundreds of rates that stand for the distribution and by its own formula."""
    n, right = np.array(counts).T
    rates, found = power.true_rates(right, n), headroom.headroom(counts, 8)
    if found["method"] == "beta-binomial":
        assert found["signal"] == pytest.approx(np.mean(1 - rates**8 - (1 - rates) ** 8), abs=0.01)
        assert found["gain"] == pytest.approx(np.mean(1 - (1 - rates) ** 8 - rates), abs=0.01)


@pytest.mark.parametrize(("a", "b"), [(0.4, 0.5), (2.0, 2.0), (0.2, 1.0)])
def test_two_attempts_foretell_groups_of_eight(a, b):
    random = np.random.default_rng(0)
    rates = random.beta(a, b, 4000)
    found = headroom.headroom([(2, int(right)) for right in random.binomial(2, rates)], 8)
    assert found["method"] == "beta-binomial"
    assert found["signal"] == pytest.approx(np.mean(1 - rates**8 - (1 - rates) ** 8), abs=0.03)
    assert found["gain"] == pytest.approx(np.mean(1 - (1 - rates) ** 8 - rates), abs=0.03)


@given(COUNTS, st.integers(2, 10))
def test_shares_stay_shares(counts, rollouts):
    found = headroom.headroom(counts, rollouts)
    assert found["never"] + found["sometimes"] + found["always"] == pytest.approx(1)
    assert found["all"] <= found["one"] + 1e-9 and found["one"] <= found["any"] + 1e-9
    assert -1e-9 <= found["gain"] <= found["signal"] + 1e-9 and found["signal"] <= 1 + 1e-9


@pytest.mark.parametrize("counts", [[(4, 0)] * 50, [(4, 4)] * 50, [(4, 0), (4, 4)] * 25])
def test_a_model_that_is_always_or_never_right_has_no_room(counts):
    found = headroom.headroom(counts, 8)
    assert found["signal"] < 0.03 and found["gain"] < 0.02
    with pytest.raises(NoHeadroom, match=r"less than test\.least_headroom = 0\.05"):
        headroom.must_have(found, 0.05)


def test_one_attempt_says_nothing_of_groups():
    found = headroom.headroom([(1, 0), (1, 1)], 8)
    assert found["signal"] is None and found["gain"] is None and found["one"] == 0.5
    headroom.must_have(found, 0.0)
    with pytest.raises(NoHeadroom, match="unknown"):
        headroom.must_have(found, 0.05)


@pytest.mark.parametrize("least", [0.0, 0.05])
def test_the_look_before_the_first_update_stops_a_run_without_headroom(tmp_path, monkeypatch, least):
    settings = synthetic.settings_in(tmp_path, test={"least_headroom": least})
    asked = synthetic.inputs(settings)["dev"]

    async def always_right(policy, questions, samples, label, *rest, **named):
        keep = rest[3]
        for one in questions:
            for sample in range(samples):
                keep(
                    synthetic.episode(
                        "trained-0", one, sample, "strict", one["query"], phase="dev", update=label.update
                    )
                )

    monkeypatch.setattr(train, "rollouts", always_right)
    with train.Writer(tmp_path / "dev.jsonl") as writer:
        curve = train.DevCurve(settings, 0, None, None, writer)
        if least:
            with pytest.raises(NoHeadroom, match="24 dev questions 100% were always right"):
                asyncio.run(curve(None, update=0))
        else:
            asyncio.run(curve(None, update=0))
        asyncio.run(curve(None, update=10))
        assert len(writer.done) == len(asked) * settings.train.dev_samples * 2  # what was looked at is kept either way


def test_command_line(tmp_path, capsys):
    settings = synthetic.make(tmp_path, train={"seeds": (0,), "updates": 4})
    arguments = ["--params", str(synthetic.ROOT / "profiles" / "tiny.yaml"), "--data", str(tmp_path)]
    headroom.main(arguments)
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["samples"], found["rollouts"]) == (96, 4, 8)
    headroom.main([*arguments, str(settings.train_dir(0) / "episodes.jsonl")])
    assert json.loads(capsys.readouterr().out)["method"] == "unbiased"
    headroom.main([*arguments, str(settings.train_dir(0) / "dev.jsonl")])
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["samples"]) == (24, 2)  # the first look alone
    settings.episodes("base").unlink()
    with pytest.raises(SystemExit, match=r"base\.jsonl is missing.*evaluate@base"):
        headroom.main(arguments)
