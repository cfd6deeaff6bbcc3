"""The pipeline as dvc.yaml says it is what the code needs, and a whole miniature study runs through it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Set
from functools import cache
from pathlib import Path

import pytest
import yaml

from lib import fingerprints
from reports import fallback
from tests.conftest import know_java

ROOT = Path(__file__).resolve().parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PASSED_BY_PARAMETERS = {"lib/__init__.py", "lib/settings.py", "lib/notebook.py"}


@cache
def imported(source: str) -> frozenset[str]:
    """Files of lib/ that Python source imports, at any depth of nesting, but not what those import."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    names = {name for name in found if name.split(".")[0] in ("lib", "reports")}
    parents = {".".join(name.split(".")[:i]) for name in names for i in range(1, name.count(".") + 2)}
    files = {Path(*name.split(".")) for name in names | parents}
    candidates = {f.with_suffix(".py") for f in files} | {f / "__init__.py" for f in files}
    return frozenset(str(f) for f in candidates if (ROOT / f).is_file())


def closure(source: str) -> set[str]:
    """All files of lib/ that Python source imports, directly or not."""
    found: set[str] = set()
    new: Set[str] = imported(source)
    while new:
        found |= new
        new = set().union(*(imported((ROOT / file).read_text()) for file in new)) - found
    return found - PASSED_BY_PARAMETERS


def code_of(stage: dict) -> str:
    """The Python source that a stage's command runs: the notebook's cells, or an import of the module."""
    words = stage["cmd"].split()
    if words[2] == "lib.notebook":
        notebook = json.loads((ROOT / words[3]).read_text())
        return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    pages = [line for line in stage["deps"] if line.endswith(".qmd")]
    cells = [cell.code for page in pages for cell in fallback.parse(ROOT / page, {}).cells]
    return "\n".join([f"import {words[2]}", *cells])


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_the_code_that_it_runs(name: str):
    stage = STAGES[name]
    needed = closure(code_of(stage)) | {word for word in stage["cmd"].split() if word.startswith("notebooks/")}
    if "lib/graph/server.py" in needed:
        needed |= {"lib/graph/watchdog.py", "lib/graph/jars.sha256"}
    if "lib/fingerprints.py" in needed:
        needed |= {
            *fingerprints.AGENT,
            *fingerprints.SCORER,
            *fingerprints.PROMPT,
            fingerprints.LOCK,
            fingerprints.DATABASE,
        }
    if "lib/plots.py" in needed:
        needed |= {"lib/plots.mplstyle"}
    if "lib/graph/mapping.py" in needed:
        needed |= {"lib/graph/mappings/community.yaml"}
    if "lib/questions/human_answers.py" in needed:
        needed |= {"lib/questions/human_answers.yaml"}
    named = {d for d in stage["deps"] if not d.startswith("data/")}
    missing = {file for file in needed if not named & {file, *map(str, Path(file).parents)}}
    assert not missing, f"dvc.yaml, stage {name}: add {', '.join(sorted(missing))}"
    assert not {file for file in named if not (ROOT / file).exists()}, f"dvc.yaml, stage {name}: these don't exist"
    unneeded = {file for file in named if file.startswith("lib/") and not any(n.startswith(file) for n in needed)}
    assert not unneeded, f"dvc.yaml, stage {name}: remove {', '.join(sorted(unneeded))}"


def test_the_pipeline_reads_as_a_table_of_contents():
    assert all(stage["desc"].endswith(".") for stage in STAGES.values())
    numbered = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]_*.ipynb"))
    used = {
        word.removeprefix("notebooks/") for s in STAGES.values() for word in s["cmd"].split() if "notebooks/" in word
    }
    assert used >= set(numbered) and len(numbered) == 6


MINE = [
    {"question": "How many tags are there?", "query": "MATCH (t:Tag) RETURN count(t)"},
    {"question": "How many users are there?", "sql": "SELECT COUNT(*) FROM users", "hint": "a user is a User"},
    {"question": "Whose age is above 200?", "query": "MATCH (u:User) WHERE u.age > 200 RETURN u.displayName"},
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, uri: str) -> Path:
    """The working tree's files in a repository of their own, with the miniature's parameters and a person's questions."""
    folder = tmp_path_factory.mktemp("study") / "project"
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and name != "dvc.lock":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    parameters = (ROOT / "profiles" / "miniature.yaml").read_text()
    (folder / "params.yaml").write_text(parameters.replace('questions: ""', "questions: mine.jsonl"))
    (folder / "mine.jsonl").write_text("".join(json.dumps(one) + "\n" for one in MINE))
    know_java(folder / "data")  # `uri` made Java's archive, if no session had: it is made once for all
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


def say(folder: Path, *command: str) -> str:
    """Standard output of a command in a checkout, run by the Python that runs the tests; the rest goes to the terminal."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("DVC_STAGE", None)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-3000:]}"
    return done.stdout


@pytest.mark.study
def test_a_whole_miniature_study(checkout: Path, capfd: pytest.CaptureFixture[str]):
    with capfd.disabled():  # minutes of silence would look like a hang
        say(checkout, "dvc", "repro")
    run = checkout / "data" / "runs" / "miniature"
    results = json.loads((run / "results.json").read_text())
    assert results["verdict"]["verdict"] in ("success", "no success")
    assert results["checks"]["plan"]["stands"], results["checks"]["plan"]["differences"]
    validated = json.loads((run / "validate.json").read_text())
    assert all((rates["oracle"], rates["null"]) == (1.0, 0.0) for rates in validated.values())
    episodes = {path.stem: path.read_text().splitlines() for path in (run / "evaluate").glob("*.jsonl")}
    assert set(episodes) == {"base", "control", "trained-0", "trained-1"}
    assert {len(lines) for lines in episodes.values()} == {(40 + 16 + len(MINE)) * (2 + 1)}  # x (samples + one greedy)
    assert results["human"]["counts"] | {"usable": 2, "empty": 1} == results["human"]["counts"]
    assert results["human"]["unanswerable"]["no_query"]["all"] == 1  # the one that has only SQL
    again = [json.loads(line) for line in (run / "examples.jsonl").read_text().splitlines()]
    chosen = {one["question"] for one in results["examples"].values() if one}
    assert len(again) == len({e["id"] for e in again}) == len(chosen) * 4 * 2  # arms, samples
    assert all("/fresh/" in e["id"] and e["question"] in chosen for e in again)
    for page in ("miniature", "miniature-figures", "index", "compare", "methods", "glossary", "sources"):
        assert "<html" in (checkout / "reports" / "_site" / f"{page}.html").read_text()[:500]
    last = say(checkout, "python", "-m", "lib.study", "verdict").splitlines()[-1]
    assert last.startswith(results["verdict"]["verdict"]) and last.endswith("reports/_site/miniature.html")


@pytest.mark.study
def test_a_second_run_does_nothing_and_a_commit_is_recognised(checkout: Path):
    before = (checkout / "dvc.lock").read_text()
    assert "Running stage" not in say(checkout, "dvc", "repro")
    assert (checkout / "dvc.lock").read_text() == before
    assert "No dvc.lock is committed yet" in say(checkout, "python", "-m", "lib.study", "check")
    subprocess.run(["git", "add", "dvc.lock"], cwd=checkout, check=True)
    commit = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "run"]
    subprocess.run(commit, cwd=checkout, check=True)
    assert not subprocess.run(["git", "status", "--short"], cwd=checkout, capture_output=True, text=True).stdout
    count = say(checkout, "python", "-m", "lib.study", "check").split()
    assert count[0] == count[2] and "differ" not in count
