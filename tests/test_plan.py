"""The plan: written once, the same bytes for the same inputs, and no longer to be changed when training has begun."""

from __future__ import annotations

import json

import pytest
import synthetic

from lib import plan
from lib.files import write_json


@pytest.fixture
def settings(tmp_path):
    made = synthetic.settings_in(tmp_path)
    synthetic.inputs(made)
    return made


def begin_training(settings):
    for seed in settings.train.seeds:
        folder = settings.train_dir(seed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.sha256").write_text(plan.digest(settings) + "\n")


def test_the_same_inputs_give_the_same_bytes(settings):
    first = plan.write(settings).read_bytes()
    assert plan.write(settings).read_bytes() == first
    assert str(settings.data).encode() not in first


def test_a_plan_that_stands_has_no_differences(settings):
    plan.write(settings)
    begin_training(settings)
    assert plan.check(settings) == []


def test_it_says_what_is_tested(settings):
    written = json.loads(plan.write(settings).read_text())
    first = written["first_endpoint"]
    assert (first["score"], first["samples"], first["contrast"]) == ("strict", 4, ["control", "trained"])
    assert first["bar"] == settings.test.bar and written["equivalence"]["margin"] == settings.test.margin
    assert written["second_endpoint"]["decode"] == "greedy"
    assert written["sets"]["held_out_instances"] == {"questions": 96, "structures": 6}
    assert "held_out_structures" in written["exploratory"]


def test_an_edited_file_is_found_out(settings):
    file = plan.write(settings)
    file.write_text(file.read_text().replace('"bar": 0.05', '"bar": 0.01', 1))
    begun = plan.check(settings)
    assert any("was edited" in line for line in begun)
    with pytest.raises(plan.PlanError, match="was edited"):
        plan.digest(settings)


def test_it_says_why_and_when_it_stops(settings):
    written = json.loads(plan.write(settings).read_text())
    assert all(one["foretold"] and one["because"] for one in written["predictions"].values())
    assert written["hypothesis"].keys() == {"claim", "because", "against"} and "after a look" in written["stopping"]
    assert {"loop", "agent", "environment", "scorer", "prompt"} < written["inputs"].keys()
    assert written["inputs"]["environment"]["torch"] in (synthetic.ROOT / "requirements.lock").read_text()


@pytest.mark.parametrize("name", ["scorer", "environment", "loop", "agent", "prompt"])
def test_what_else_a_result_hangs_on_is_named(settings, name, monkeypatch):
    plan.write(settings)
    begin_training(settings)
    assert plan.check(settings) == []
    synthetic.tamper(settings, name, monkeypatch)
    assert [line for line in plan.check(settings) if line.startswith(f"inputs.{name}")]
    with pytest.raises(plan.PlanError, match=rf"inputs\.{name}"):
        plan.digest(settings)


def test_an_evaluation_is_stamped_with_the_plan_and_what_had_changed_by_then(settings, monkeypatch):
    plan.write(settings)
    begin_training(settings)
    settings.episodes("base").parent.mkdir(parents=True)
    settings.episodes("base").touch()
    assert plan.check(settings) == [
        "the evaluation of base recorded no plan (data/runs/tiny/evaluate/plan-base.json is missing)"
    ]
    plan.stamp(settings, "base")
    assert plan.check(settings) == []
    with monkeypatch.context() as for_now:
        synthetic.tamper(settings, "scorer", for_now)
        plan.stamp(settings, "base")
    (found,) = plan.check(settings)
    assert found.startswith("inputs.scorer") and found.endswith("when base was evaluated")
    write_json(settings.episodes("base").with_name("plan-base.json"), {"plan": "0" * 64, "differences": []})
    assert plan.check(settings) == ["base was evaluated under another plan (000000000000 instead of this one)"]


@pytest.mark.parametrize("name", ["questions", "base", "seed"])
def test_changed_inputs_are_named(settings, name):
    plan.write(settings)
    begin_training(settings)
    if name == "questions":
        with (settings.questions_dir / "held_out_instances.jsonl").open("a") as file:
            file.write(json.dumps(synthetic.question("held_out_instances", 999)) + "\n")
        expected = "inputs.questions.held_out_instances"
    elif name == "base":
        (settings.base_dir / "config.json").write_text('{"hidden": 1}\n')
        expected = "inputs.base"
    else:
        (settings.train_dir(0) / "plan.sha256").write_text("0" * 64)
        expected = "seed 0 was trained under another plan"
    assert any(expected in line for line in plan.check(settings))


def test_a_plan_cannot_change_after_training_began(settings):
    before = plan.write(settings).read_bytes()
    begin_training(settings)
    changed = synthetic.settings_in(settings.data, test={"bar": 0.01})
    with pytest.raises(plan.PlanError, match=r"first_endpoint.bar: planned 0.05, now 0.01.*undo the change"):
        plan.write(changed)
    assert plan.path(settings).read_bytes() == before


def test_it_cannot_slip_in_by_deleting_the_file_either(settings):
    plan.write(settings)
    begin_training(settings)
    plan.path(settings).unlink()
    with pytest.raises(plan.PlanError, match="is gone"):
        plan.write(synthetic.settings_in(settings.data, test={"bar": 0.01}))
    plan.write(settings)  # the very plan that it started with may be put back


def test_it_may_change_before_training(settings):
    plan.write(settings)
    plan.write(synthetic.settings_in(settings.data, test={"bar": 0.01}))
    assert plan.read(settings)["first_endpoint"]["bar"] == 0.01


def test_missing_inputs_name_the_step(settings):
    (settings.questions_dir / "dev.jsonl").unlink()
    with pytest.raises(plan.PlanError, match=r"dev\.jsonl is missing.*2_questions"):
        plan.write(settings)


def test_training_without_a_plan_says_what_to_do(settings):
    with pytest.raises(plan.PlanError, match=r"python -m lib\.plan"):
        plan.digest(settings)


def test_command_line(settings, tmp_path, capsys):
    arguments = ["--params", str(synthetic.ROOT / "profiles" / "tiny.yaml"), "--data", str(tmp_path)]
    plan.main(arguments)
    assert capsys.readouterr().out.strip().endswith("plan.json")
    with pytest.raises(SystemExit) as stop:
        plan.main([*arguments, "--check"])
    assert stop.value.code == 1  # no seed has recorded it yet


def test_it_says_what_the_test_can_see(settings):
    written = json.loads(plan.write(settings).read_text())["power"]
    assert (
        written["rate"] == pytest.approx(26 / 48, abs=1e-3) and written["rates_from"] == "the rates of single questions"
    )
    assert written["smallest_gain"] > settings.test.bar
    by_gain = {row["gain"]: row for row in written["needs"]}
    assert by_gain[0.03]["questions"] is None and by_gain[0.03]["questions_without_bar"] > by_gain[0.15]["questions"]


def test_a_confidence_without_equivalence_is_refused(settings):
    with pytest.raises(plan.PlanError, match=r"test\.confidence is 0\.5.*above 0\.5"):
        plan.write(synthetic.settings_in(settings.data, test={"confidence": 0.5}))


def test_no_folder_of_this_machine_is_in_plan_or_messages(settings):
    dump = synthetic.settings_in(settings.data, graph={"source": "stackexchange", "path": str(settings.data)})
    file = plan.write(dump)
    assert (
        str(settings.data) not in file.read_text()
        and plan.read(dump)["settings"]["graph"]["source"] == dump.graph.source
    )
    file.write_text(file.read_text().replace('"bar": 0.05', '"bar": 0.01', 1))
    (settings.questions_dir / "dev.jsonl").unlink()
    found = plan.check(dump)
    assert any("data/questions/dev.jsonl is missing" in text for text in found)
    assert not any(str(settings.data) in text for text in found)
