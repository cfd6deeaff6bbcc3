"""A trial of two updates through the real loop, paid for at a stand-in; and a paid training that won't start without one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tinker
from paid_service import Bill, Service

from lib import evaluate, parity, train, trial, trialled
from lib.backends import ledger, local, prices
from lib.backends.prices import Price
from lib.cold_start import system_prompt
from lib.episodes import read
from lib.files import write_json, write_text
from lib.findings import LOOK, Finding
from lib.settings import Settings
from tests import synthetic
from tests.taught import KINDS, study

PRICE = Price(
    prefill=1.86,
    cached=0.372,
    sample=5.595,
    train=4.103,
    storage=0.10,
    checkpoint_gb=0.01,
    date="2026-11-30",
    source="tests",
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, graph_folder: Path) -> Settings:
    """A hosted run, its base model taken."""
    here = study(tmp_path_factory.mktemp("data"), graph_folder, local.CPU)
    sizes = dataclasses.replace(here.train, backend="tinker", groups=2, rollouts=4, grad_clip_norm=0.0, updates=20)
    found = dataclasses.replace(here, local=None, train=sizes, agent=dataclasses.replace(here.agent, max_turns=2))
    evaluate.lock_tokenizer(found.base_model).save_pretrained(found.base_dir)
    write_json(found.run_dir / "base.json", {})
    write_text(found.run_dir / "system_prompt.txt", system_prompt(evaluate.renderer_for(found), found))
    return found


@pytest.fixture
def bill(tmp_path: Path) -> Any:
    """`tinker.ServiceClient` is a service that asks money, as far as the study can tell the usual one."""
    asked, serving = Bill(), local.serving(tmp_path / "tinker", seed=1, training="lora", grad_clip_norm=0.0)
    with serving as client, pytest.MonkeyPatch.context() as monkeypatch:  # undone before the service ends
        monkeypatch.setattr(tinker, "ServiceClient", lambda **_: Service(asked, client))
        monkeypatch.setattr(prices, "find", lambda *_: PRICE)
        yield asked


def test_a_paid_run_is_tried_first(
    settings: Settings, uri: str, bill: Bill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEO4J_URI", uri)
    monkeypatch.setenv("ALLOW_SPEND", "5")
    monkeypatch.setattr(parity, "pace", lambda *_: Finding("pace", LOOK, "a test hangs on no clock"))
    with pytest.raises(trialled.TrialMissing, match=r"`python -m lib\.trial` first"):
        train.train(settings, 0)
    assert bill.calls == 0

    found = trial.trial(settings)
    assert found == json.loads(trialled.path(settings).read_text())
    assert found["passed"], [one for one in found["findings"] if one["outcome"] == "refused"]
    outcomes = {one["check"]: one["outcome"] for one in found["findings"]}
    assert {
        "right answers",
        "no answers",
        "wrong answers",
        "fresh session",
        "no-op adapter",
        "second route",
    } <= outcomes.keys()
    assert len(found["updates"]) == trial.UPDATES
    trialled.must_have(settings)  # the whole may start

    short = trial.of(settings)
    assert short.run == "named-trial" and {e.run for e in read(short.train_dir(0) / "episodes.jsonl")} == {short.run}
    account = ledger.read(ledger.path(settings.run_dir))
    assert set(account.stages) == {trial.STAGE} and not ledger.path(short.run_dir).exists()
    cost = found["cost"]
    assert cost["trial"]["upper"] == pytest.approx(account.upper) and account.upper >= bill.dollars
    assert 0 < trial.UPDATES * cost["update"]["estimate"] < cost["training"]["estimate"] < cost["trial"]["estimate"]
    mean, low, high = cost["whole"]["upper"]
    assert low <= mean <= high and mean > cost["training"]["upper"]
    assert found["time"]["whole_hours"][1] <= found["time"]["whole_hours"][0] <= found["time"]["whole_hours"][2]
    assert "an update cost $" in trial.in_words(found)


def test_other_settings_need_another_trial(settings: Settings, tmp_path: Path) -> None:
    there = dataclasses.replace(settings, data=tmp_path)
    write_text(there.run_dir / "system_prompt.txt", (settings.run_dir / "system_prompt.txt").read_text())
    passed = {"digest": trialled.digest(there), "passed": True, "findings": []}
    write_json(trialled.path(there), passed)
    trialled.must_have(there)
    longer = dataclasses.replace(there, train=dataclasses.replace(there.train, updates=99, seeds=(0, 1, 2)))
    trialled.must_have(longer)
    for change in ({"learning_rate": 1.0}, {"lora_rank": 2}, {"rollouts": 3}, {"loss": "ppo"}):
        other = dataclasses.replace(there, train=dataclasses.replace(there.train, **change))
        with pytest.raises(trialled.TrialMissing, match="other settings, code or packages"):
            trialled.must_have(other)
    failed = {**passed, "passed": False, "findings": [{"check": "fresh session", "outcome": "refused"}]}
    write_json(trialled.path(there), failed)
    with pytest.raises(trialled.TrialMissing, match=r"did not pass \(fresh session"):
        trialled.must_have(there)
    trialled.must_have(dataclasses.replace(there, local=local.CPU, run="another"))  # free, so it needs none


def test_a_pre_pass_is_part_of_what_the_seconds_were_for(settings: Settings) -> None:
    made = [
        synthetic.episode("trained-0", synthetic.question("train", i), 0, "strict", "RETURN 1", phase="train", update=0)
        for i in range(4)
    ]
    looked = [dataclasses.replace(one, arm="base") for one in made]
    alone, both = (trial._time(settings, made, some, 60.0)["whole_hours"] for some in ([], looked))
    assert both == pytest.approx([hours / 2 for hours in alone])


def test_a_reward_that_is_not_what_the_answer_is_worth_is_caught() -> None:
    want = dict.fromkeys(KINDS, 0.5)
    assert trial.on_sheet("wrong", want, want).outcome == "ok"
    found = trial.on_sheet("wrong", {**want, KINDS[0]: 1.0}, want)
    assert found.outcome == "refused" and f"{KINDS[0]}: 1.0, not 0.5" in found.said
    assert trial.on_sheet("wrong", {KINDS[1]: 0.5}, want).outcome == "refused"  # one that got none


def test_a_run_without_a_base_model_is_told_so(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(trial.TrialError, match="makes or takes the base model first"):
        trial.trial(dataclasses.replace(settings, data=tmp_path))


def test_a_run_that_has_the_trials_name_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    there = dataclasses.replace(settings, data=tmp_path)
    other = trial.of(there)
    for file in (there.run_dir / "base.json", other.run_dir / "base.json", other.episodes("base")):
        write_json(file, {})
    with pytest.raises(trial.TrialError, match="named-trial is a run of its own"):
        trial.trial(there)
    assert other.episodes("base").exists()
