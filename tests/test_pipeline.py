"""The pipeline as dvc.yaml says it is what the code needs, and a whole miniature study runs through it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
SOURCES = {
    f"lib/graph/{name}.py" for name in ("twin", "twin_plan", "prose", "stackexchange")
}  # only `graph` runs these
PASSED_BY_PARAMETERS = {"lib/__init__.py", "lib/settings.py", "lib/notebook.py"}


def imported(source: str) -> set[str]:
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
    return {str(f) for f in candidates if (ROOT / f).is_file()}


def closure(source: str) -> set[str]:
    """All files of lib/ that Python source imports, directly or not."""
    found: set[str] = set()
    new = imported(source)
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
    return f"import {words[2]}" + (", reports.parts" if words[2] == "reports.render" else "")


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_the_code_that_it_runs(name: str):
    stage = STAGES[name]
    needed = closure(code_of(stage)) | {word for word in stage["cmd"].split() if word.startswith("notebooks/")}
    if name != "graph":
        needed -= SOURCES
    if "lib/graph/server.py" in needed:
        needed |= {"lib/graph/watchdog.py", "lib/graph/jars.sha256"}
    named = {d for d in stage["deps"] if not d.startswith("data/")}
    missing = {file for file in needed if not named & {file, str(Path(file).parent)}}
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
