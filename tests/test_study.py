"""The last lines of a run say plainly what it repeated and what came out."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from lib import settings, study

ROOT = Path(__file__).resolve().parents[1]


def lock(**outs: str) -> str:
    return yaml.safe_dump({"stages": {"stage": {"outs": [{"path": path, "md5": md5} for path, md5 in outs.items()]}}})


def test_a_run_says_which_outputs_have_the_committed_hashes():
    same = study.compare_locks(lock(a="1", b="2"), lock(a="1", b="2"))
    assert same == "2 of 2 outputs have the committed run's hashes."
    other = study.compare_locks(lock(a="1", b="3", c="4"), lock(a="1", b="2"))
    assert other.startswith("1 of 3 outputs") and "These differ: b." in other and "another kind of processor" in other
    assert other.endswith("The committed run doesn't have these: c.")
    assert "no run to compare" in study.compare_locks(lock(a="1"), None)


def test_the_report_is_not_compared_since_it_shows_timings():
    assert study.outputs(lock(**{"reports/_site/tiny.html": "1", "data/graph": "2"})) == {"data/graph": "2"}


def test_times_are_a_table_with_a_sum(tmp_path: Path):
    found = settings.load(ROOT / "profiles" / "tiny.yaml", data=tmp_path)
    assert study.times(found) == "no step has been timed yet"
    found.timings_dir.mkdir(parents=True)
    for step, seconds, finished in (("1_graph", 3.0, True), ("4_train-seed-0", 40.0, False)):
        figures = {"step": step, "finished": finished, "wall_seconds": seconds, "cpu_seconds": 2 * seconds}
        (found.timings_dir / f"{step}.json").write_text(json.dumps(figures | {"peak_memory_bytes": 2**30}))
    lines = study.times(found).splitlines()
    assert "4_train-seed-0 (unfinished)" in lines[2]
    assert lines[-1].split() == ["all", "43", "86", "1.0"]


def test_the_verdict_is_one_line_with_the_report(tmp_path: Path):
    found = settings.load(ROOT / "profiles" / "tiny.yaml", data=tmp_path)
    found.run_dir.mkdir(parents=True)
    (found.run_dir / "results.json").write_text(json.dumps({"verdict": {"verdict": "success", "reason": "it grew"}}))
    assert study.verdict(found) == "success: it grew | report: reports/_site/tiny.html"
