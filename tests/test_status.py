"""How far a run is: counted from files that grow, whatever is missing from them or cut off."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinker_cookbook.utils import ml_log

from lib import loggers, status
from lib.backends import ledger, prices
from lib.backends.ledger import Ledger
from lib.episodes import Writer
from lib.files import write_json, write_jsonl
from reports import browser, check
from tests import synthetic

OUTCOMES = ("strict", "wrong", "wrong", "no_query")
TRAIN = {"updates": 3, "groups": 2, "rollouts": 2, "seeds": (0, 1), "questions": {"kind": "all"}}


def practised(seed: int, update: int) -> list[Any]:
    asked = [synthetic.question("train", 2 * update + i) for i in range(2)]
    return [
        synthetic.episode(
            f"trained-{seed}", question, sample, OUTCOMES[2 * i + sample], "RETURN 1", phase="train", update=update
        )
        for i, question in enumerate(asked)
        for sample in range(2)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Planned, the base asked, and in the second update of the first seed's practice."""
    chosen = synthetic.settings_in(tmp_path, train=TRAIN)
    folder = chosen.run_dir
    plain = json.loads(
        json.dumps({"train": TRAIN, "evaluate": {"samples": 1}, "questions": dict.fromkeys(status.SETS, 2)})
    )
    write_json(folder / "plan.json", {"settings": plain, "human": {"questions": 0}})
    for arm in ("base", "control"):
        write_json(folder / "evaluate" / f"plan-{arm}.json", {})
    with Writer(folder / "evaluate" / "base.jsonl") as base:
        for split in status.SETS:
            for i in range(2):
                for decode in ("sampled", "greedy"):
                    base.write(
                        synthetic.episode("base", synthetic.question(split, i), 0, "strict", "RETURN 1", decode=decode)
                    )
    begun = folder / "train" / "seed-0" / "plan.sha256"
    begun.parent.mkdir(parents=True)
    begun.write_text("digest\n")
    with Writer(folder / "train" / "seed-0" / "episodes.jsonl") as writer:
        for episode in [*practised(0, 0), *practised(0, 1)[:2]]:
            writer.write(episode)
    for file, when in (
        (base.path, 40),
        (folder / "evaluate" / "plan-control.json", 50),
        (begun, 100),
        (writer.path, 160),
    ):
        os.utime(file, (when, when))
    return folder


def test_it_says_where_a_run_is(run: Path) -> None:
    found = status.status(run)
    assert found["stage"] == "train, seed 0"
    assert {part["name"]: (part["done"], part["of"]) for part in found["parts"]} == {
        "evaluate, base": (8, 8),
        "evaluate, control": (0, 8),
        "train, seed 0": (6, 12),
        "train, seed 1": (0, 12),
        "evaluate, trained-0": (0, 8),
        "evaluate, trained-1": (0, 8),
    }
    first, second = found["updates"]
    assert (first["update"], first["rollouts"], first["reward"], first["strict"]) == (0, 4, 0.25, 0.25)
    assert (first["signal"], first["masked"], second["rollouts"], second["strict"]) == (0.5, 0.0, 2, 0.5)
    assert found["seconds_left"] == 10 * (6 + 12 + 3 * 8)  # ten seconds a rollout so far
    assert [one["outcome"] for one in found["last"]] == ["wrong", "wrong", "no_query", "strict", "wrong"]
    assert found["cost"] is None and found["masked"] == 0
    assert "train, seed 0" in status.described(found) and "6 of 12 (50%)" in status.described(found)


def test_a_pre_pass_is_a_step_of_its_own(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["settings"]["train"]["questions"] = {"kind": "band", "prepass": {"questions": 3, "samples": 2}}
    plan["settings"]["questions"] |= {"training": None, "train": 9}
    write_json(run / "plan.json", plan)
    second = run / "train" / "seed-1"
    second.mkdir()
    (second / "plan.sha256").write_text("digest\n")
    with Writer(second / "prepass.jsonl") as writer:
        for sample in range(2):
            writer.write(
                synthetic.episode("base", synthetic.question("train", 0), sample, "wrong", "RETURN 1", phase="train")
            )
    found = status.status(run)
    assert found["stage"] == "pre-pass, seed 1" and len(found["updates"]) == 2
    steps = {part["name"]: (part["done"], part["of"]) for part in found["parts"]}
    assert steps["pre-pass, seed 1"] == (2, 6) and steps["pre-pass, seed 0"] == (0, 6)
    assert list(steps).index("pre-pass, seed 1") + 1 == list(steps).index("train, seed 1")


def test_a_training_whose_groups_were_stopped_early_ends(run: Path) -> None:
    folder = run / "train" / "seed-0"
    with Writer(folder / "episodes.jsonl") as writer:
        for episode in [practised(0, 1)[2], *practised(0, 2)[:3]]:  # a group of one in either
            writer.write(episode)
    done = lambda: {part["name"]: part["done"] for part in status.status(run)["parts"]}["train, seed 0"]  # noqa: E731
    assert done() == 4 + 4 + 3
    write_jsonl(folder / "updates.jsonl", [])
    assert done() == 12 and status.status(run)["stage"] != "train, seed 0"


def test_faults_are_no_part_of_the_means(run: Path) -> None:
    file = run / "train" / "seed-0" / "episodes.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0] |= {"fault": "the service went away", "outcome": "error"}  # the one that was right
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first = status.status(run)["updates"][0]
    assert (first["strict"], first["masked"], first["signal"], first["rollouts"]) == (0.0, 0.25, 0.0, 4)


def test_what_replaces_a_lost_rollout_makes_no_step_end_early(run: Path) -> None:
    file = run / "train" / "seed-0" / "episodes.jsonl"
    when = file.stat().st_mtime
    with Writer(file) as writer:
        for sample in range(2, 8):
            writer.write(
                synthetic.episode("trained-0", synthetic.question("train", 0), sample, "wrong", "RETURN 1", phase="train", update=0)
            )  # fmt: skip
    os.utime(file, (when, when))
    found = status.status(run)
    assert found["stage"] == "train, seed 0" and "6 of 12 (50%)" in status.described(found)
    assert found["seconds_left"] == 10 * (6 + 12 + 3 * 8)


def test_the_pace_is_that_since_the_last_start(run: Path) -> None:
    write_jsonl(run / "train" / "seed-0" / "interruptions.jsonl", [{"update": 0}, {"update": 1}])
    found = status.status(run)
    assert found["seconds_left"] == 30 * (6 + 12 + 3 * 8)  # of six rollouts, four were there when it was started again


def test_a_models_text_cant_steer_the_terminal(run: Path) -> None:
    file = run / "train" / "seed-0" / "episodes.jsonl"
    lines = [{**json.loads(line), "query": "RETURN \x1b[2J1"} for line in file.read_text().splitlines()]
    write_jsonl(file, lines)
    said = status.described(status.status(run))
    assert "RETURN [2J1" in said and "\x1b" not in said


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1))
def test_a_file_that_is_being_written_counts_by_its_whole_lines(run: Path, share: float) -> None:
    file = run / "train" / "seed-0" / "episodes.jsonl"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[: int(len(whole) * share)])
        found = status.status(run)
        [part] = [part for part in found["parts"] if part["name"] == "train, seed 0"]
        assert part["done"] == file.read_bytes().count(b"\n") == sum(line["rollouts"] for line in found["updates"])
        assert found["run"] in status.described(found)
    finally:
        file.write_bytes(whole)


def test_looking_changes_nothing(run: Path) -> None:
    def everything() -> dict[Path, tuple[bytes, int]]:
        return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in run.rglob("*") if file.is_file()}

    before = everything()
    with Writer(run / "train" / "seed-0" / "episodes.jsonl"):  # held by its writer
        status.described(status.status(run))
    assert everything() == before


def test_the_cost_is_the_ledgers(run: Path) -> None:
    price = prices.find("tinker", "Qwen/Qwen3.8-27B")
    book = Ledger(ledger.path(run), "train-seed-0", 25.0, {})
    book.paid(book.send("sample", 0.5), price, prices.Usage(prompt=1000, cached=500, sampled=100))
    book.send("sample", 0.25)
    found = status.status(run)
    account = ledger.read(ledger.path(run))
    assert found["cost"] == {
        "estimate": account.estimate, "at_most": account.upper, "in_flight": 0.25, "limit": 25.0,
    }  # fmt: skip
    assert "of $25.00 allowed" in status.described(found)


@pytest.mark.parametrize(
    ("files", "stage"), [([], "not begun"), (["base.json"], "base model ready"), (["results.json"], "compared")]
)
def test_a_run_that_has_no_plan_yet_or_is_over(tmp_path: Path, files: list[str], stage: str) -> None:
    folder = tmp_path / "runs" / "early"
    folder.mkdir(parents=True)
    for name in files:
        write_json(folder / name, {})
    assert status.status(folder)["stage"] == stage


def test_an_unknown_run_is_told_which_there_are(run: Path) -> None:
    with pytest.raises(status.StatusError, match=r"no run 'nowhere' in .*; there is tiny"):
        status.status(run.parent / "nowhere")


def test_each_update_is_logged_once_and_only_when_it_is_over(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    sink = loggers.Sink(lambda seed: ml_log.JsonLogger(folder / str(seed)))
    sink.take(status.status(run))
    with Writer(run / "train" / "seed-0" / "episodes.jsonl") as writer:
        for episode in [*practised(0, 1)[2:], *practised(0, 2)]:
            writer.write(episode)
    for _ in range(2):
        sink.take(status.status(run))
    sink.close()
    logged = [json.loads(line) for line in (folder / "0" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["rollouts"]) for line in logged] == [(0, 4), (1, 4), (2, 4)]
    assert logged[0]["strict"] == 0.25


def test_an_update_that_goes_on_isnt_logged_where_nothing_is_planned(run: Path, tmp_path: Path) -> None:
    """As in a trial's folder, of which no plan says how long it is."""
    trial = run.rename(run.with_name("another-trial"))
    (trial / "plan.json").unlink()
    shutil.rmtree(trial / "evaluate")
    sink = loggers.Sink(lambda seed: ml_log.JsonLogger(tmp_path / "logs" / str(seed)))
    sink.take(status.status(trial))
    sink.close()
    logged = (tmp_path / "logs" / "0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in logged] == [0]


def test_a_missing_package_is_said_first(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="the package wandb isn't installed"):
        status.main([run.name, "--data", str(run.parents[1]), "--wandb", str(tmp_path / "logs")])
    assert not (tmp_path / "logs").exists()


def test_a_folder_of_its_name_is_no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(loggers.LoggerMissing, match="the package wandb isn't installed"):
        loggers.sinks("tiny", None, tmp_path / "logs")


def test_for_other_programs_it_is_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status.main([run.name, "--data", str(run.parents[1]), "--json"])
    assert json.loads(capsys.readouterr().out)["stage"] == "train, seed 0"


@pytest.mark.skipif(browser.installed() is None, reason=browser.MISSING)
def test_the_page_is_read_by_everyone_and_asks_for_nothing(run: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    status.main([run.name, "--data", str(run.parents[1]), "--html", str(site / "status.html")])
    assert list(check.problems(site)) == []
