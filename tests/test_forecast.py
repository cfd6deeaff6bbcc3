"""The forecast against what runs then took, and against conversations whose every turn is known."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import episode, question, settings_in

from lib import forecast
from lib.backends import prices
from lib.episodes import Episode, Writer, read
from lib.files import read_jsonl, write_json
from lib.forecast import costs, pilot, stages
from lib.mistakes import EXAMPLES
from lib.settings import ROOT, load

PRICE = prices.find("tinker", "Qwen/Qwen3.8-27B")
TINY = ROOT / "data" / "runs" / "tiny"


def took(i: int, turns: int, first: int, growth: int, answer: int, **kind: Any) -> Episode:
    """An episode whose turn t has a prompt of first + (t - 1) * growth tokens."""
    one = episode("base", question("dev", i), kind.pop("sample", 0), "strict", **kind)
    prompt = sum(first + t * growth for t in range(turns))
    return dataclasses.replace(one, turns=turns, tokens={"prompt": prompt, "sampled": turns * answer})


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.integers(1, 8), min_size=2, max_size=30).filter(lambda found: len(set(found)) > 1),
    first=st.integers(1, 9000),
    growth=st.integers(0, 3000),
    answer=st.integers(1, 500),
)
def test_the_turns_of_a_conversation_that_grows_evenly_are_found(
    turns: list[int], first: int, growth: int, answer: int
) -> None:
    found = pilot([took(i, t, first, growth, answer) for i, t in enumerate(turns)])
    last = np.array([first + (t - 1) * growth for t in turns])
    assert found.tokens[:, 1] == pytest.approx(last, rel=1e-6)
    assert found.tokens[:, 3] == pytest.approx(last + answer, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 9000), st.integers(1, 500)), min_size=1, max_size=20),
    st.none() | st.floats(0, 1),
)
def test_caching_never_costs_more(rollouts: list[tuple[int, int, int]], cached: float | None) -> None:
    found = pilot([took(i, turns, first, 50, answer) for i, (turns, first, answer) in enumerate(rollouts)])
    each = costs(found, stages(settings_in(Path("nowhere"))), PRICE, cached)
    for cost in each:
        assert cost.cached[0] <= cost.upper[0] * (1 + 1e-12)
        assert cost.cached[1] <= cost.cached[2] and cost.upper[1] <= cost.upper[2]
    assert each[-1].upper[0] == pytest.approx(sum(cost.upper[0] for cost in each[:-1]))


def test_the_interval_covers_what_the_average_question_costs() -> None:
    rng = random.Random(0)
    planned = stages(settings_in(Path("nowhere")))

    def drawn(questions: int) -> forecast.Pilot:
        return pilot([took(i, rng.choice([1, 2, 2, 3, 8]), 400, 60, rng.randint(5, 90)) for i in range(questions)])

    truth = costs(drawn(4_000), planned, PRICE)[-1].upper[0]
    held = [low <= truth <= high for _, low, high in (costs(drawn(40), planned, PRICE)[-1].upper for _ in range(120))]
    assert 0.87 <= np.mean(held) <= 0.99


def test_groups_of_equal_rewards_are_paid_for_and_not_trained() -> None:
    def group(i: int, outcomes: list[str]) -> list[Episode]:
        return [
            dataclasses.replace(
                took(i, 2, 100, 20, 10, phase="train", update=0, sample=sample), reward=float(outcome == "strict")
            )
            for sample, outcome in enumerate(outcomes)
        ]

    found = pilot([*group(0, ["strict", "wrong"]), *group(1, ["strict", "strict"])])
    assert found.tokens[:, 4] == pytest.approx([found.tokens[0, 3], 0])


def test_what_a_fault_ended_says_nothing_of_lengths_and_rewards() -> None:
    whole = [
        dataclasses.replace(took(0, 3, 100, 20, 10, phase="train", update=0, sample=i), reward=1.0) for i in (0, 1)
    ]
    broken = dataclasses.replace(whole[0], id="broken", sample=2, turns=1, reward=0.0, fault="it went away")
    found = pilot([*whole, dataclasses.replace(broken, tokens={"prompt": 100, "sampled": 0})])
    assert found.rollouts == 2 and found.tokens.tolist() == pilot(whole).tokens.tolist()
    with pytest.raises(forecast.ForecastError, match="ended by itself"):
        pilot([broken])


def test_every_rollout_that_a_run_makes_is_counted() -> None:
    run = settings_in(Path("nowhere"), train={"seeds": (3, 4), "updates": 20, "dev_every": 7})
    q, t = run.questions, run.train
    dev, tests = q.dev * t.dev_samples, (q.held_out_instances + q.held_out_structures) * (run.evaluate.samples + 1)
    assert {stage.name: stage.rollouts for stage in stages(run)} == {
        "pilot on dev": dev,
        **{f"train, seed {seed}": 20 * t.groups * t.rollouts for seed in (3, 4)},
        **{f"dev curve, seed {seed}": 4 * dev for seed in (3, 4)},  # after 0, 7, 14 and all updates
        **{f"evaluate, {arm}": tests for arm in ("base", "control", "trained-3", "trained-4")},
        "worked examples": len(EXAMPLES) * run.evaluate.samples * 4,
    }


needs_the_run = pytest.mark.skipif(not TINY.is_dir(), reason="the default run isn't here: make study")


@needs_the_run
def test_the_default_runs_rollouts_are_those_forecast() -> None:
    planned = {stage.name: stage.rollouts for stage in stages(load(ROOT / "profiles" / "tiny.yaml"))}
    assert planned["train, seed 0"] == len(read(TINY / "train" / "seed-0" / "episodes.jsonl"))
    assert planned["dev curve, seed 0"] == len(read(TINY / "train" / "seed-0" / "dev.jsonl"))
    assert planned["evaluate, control"] == len(read(TINY / "evaluate" / "control.jsonl"))
    assert planned["worked examples"] >= len(read(TINY / "examples.jsonl")) > 0


@needs_the_run
@pytest.mark.parametrize("part", ["the first updates", "the base model's evaluation"])
def test_a_part_of_the_default_run_forecasts_the_rest(part: str) -> None:
    whole = read(TINY / "train" / "seed-0" / "episodes.jsonl")
    first = [e for e in whole if e.update is not None and e.update < 4]
    rest = [e for e in whole if e.update is not None and e.update >= 4]
    known = first if part == "the first updates" else read(TINY / "evaluate" / "base.jsonl")
    forecasted = pilot(known).tokens.mean(axis=0) * len(rest)
    prompt, sampled = (sum(e.tokens[kind] for e in rest) for kind in ("prompt", "sampled"))
    assert forecasted[0] == pytest.approx(prompt, rel=0.2)
    assert forecasted[2] == pytest.approx(sampled, rel=0.2)
    assert forecasted[0] >= prompt * 0.98  # practice shortens episodes, so that the forecast errs to the safe side


@needs_the_run
def test_the_tokens_trained_are_those_that_the_service_counted() -> None:
    counted = sum(update["tokens_trained"] or 0 for update in read_jsonl(TINY / "train" / "seed-0" / "updates.jsonl"))
    episodes = read(TINY / "train" / "seed-0" / "episodes.jsonl")
    assert pilot(episodes).tokens[:, 4].mean() * len(episodes) == pytest.approx(counted, rel=0.01)


@pytest.fixture
def piloted(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """A file of episodes of a run whose plan names a model."""

    def written(model: dict[str, Any]) -> Path:
        file = tmp_path / "runs" / "pilot" / "evaluate" / "base.jsonl"
        rng = random.Random(0)
        with Writer(file) as writer:
            for i in range(12):
                writer.write(took(i, rng.randint(1, 4), 90, 30, rng.randint(5, 30)))
        write_json(tmp_path / "runs" / "pilot" / "plan.json", {"settings": {"model": model}})
        return file

    return written


def test_the_command_says_what_it_costs_and_whose_pilot_it_is(
    piloted: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ROOT / "profiles" / "tiny.yaml"
    own = json.loads(json.dumps(dataclasses.asdict(load(tiny).model)))
    forecast.main([str(piloted(own)), "--params", str(tiny)])
    said = capsys.readouterr().out
    assert "costs nothing" in said and "$" not in said.splitlines()[1] and "ANOTHER MODEL" not in said


def test_the_command_prices_it_elsewhere(
    piloted: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(piloted({"name": "Qwen/Qwen3.8-27B"})),
        "--params",
        str(ROOT / "profiles" / "tiny.yaml"),
        *("--provider", "tinker", "--model"),
    ]
    forecast.main([*arguments, "Qwen/Qwen3.8-27B"])
    said = capsys.readouterr().out
    assert "at most, $" in said and "prices of 2026" in said and "ANOTHER MODEL" not in said
    forecast.main([*arguments, "Qwen/Qwen3.5-9B", "--cached", "0"])
    said = capsys.readouterr().out
    assert "ANOTHER MODEL" in said
    with pytest.raises(SystemExit, match="no price of model"):
        forecast.main([*arguments, "Qwen/Qwen0"])
    with pytest.raises(SystemExit, match=r"cached = 1\.5"):
        forecast.main([*arguments, "Qwen/Qwen3.5-9B", "--cached", "1.5"])
    with pytest.raises(SystemExit, match=r"absent\.jsonl missing"):
        forecast.main(["absent.jsonl"])


def test_the_refusal_says_what_the_run_would_cost(piloted: Callable[[dict[str, Any]], Path], tmp_path: Path) -> None:
    run = settings_in(tmp_path, run="mine")
    assert "There is no forecast" in forecast.in_words(run, "tinker", "Qwen/Qwen3.8-27B")
    file = piloted({"name": "Qwen/Qwen3.8-27B"})
    said = forecast.in_words(run, "tinker", "Qwen/Qwen3.8-27B")
    cost = costs(pilot(read(file)), stages(run), PRICE)[-1]
    assert f"${cost.cached[0]:.2f} with caching and ${cost.upper[0]:.2f} without" in said and "ANOTHER MODEL" in said
