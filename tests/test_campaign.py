"""A short campaign of faults: benchmarks/faults.py with a few of the 500 that docs/faults.md tells of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lib.graph import server
from tests.conftest import ROOT


def test_a_study_among_faults_ends_as_if_nothing_had_happened(uri: str, graph_folder: Path) -> None:
    there = [str(graph_folder), uri, str(server._replaceable[uri])]
    command = [sys.executable, "benchmarks/faults.py", "--faults", "30", "--server", *there]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout)
    assert found["compared"] == 2 * 8 and found["other bytes!"] == []
    assert found["lives"].keys() == {"done", "killed", "stopped"} and found["lives"]["done"] == 2
    assert found["endings"].keys() >= {"mended within the tries", "rollout lost", "process killed, gone on"}
    assert found["checks"]["samples paid for"] > found["checks"]["samples paid for whose answer was lost or spoilt"] > 0
    assert {name for name, n in found["checks"].items() if name.endswith("!") and n} == set()
