"""A notebook is run so that a repeat changes no byte, a failure is understood, and nothing outlives its caller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from lib import notebook

ROOT = Path(__file__).resolve().parents[1]
RUN = """
import sys
from pathlib import Path
from lib import notebook
try:
    notebook.run(Path(sys.argv[1]), Path(sys.argv[2]), {}, Path(sys.argv[3]), [])
except notebook.StepError as error:
    sys.exit(str(error))
"""
WAITS = """
import subprocess, time
from pathlib import Path
child = subprocess.Popen(["sleep", "300"])
Path(folder, "child").write_text(str(child.pid))
try:
    time.sleep(300)
finally:
    child.kill()
    child.wait()
    Path(folder, "closed").touch()
"""


def written(path: Path, *cells: str) -> Path:
    """A notebook of code cells, the first of which holds the parameters."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel})
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, path)
    return path


def outputs(path: Path) -> str:
    return "".join(str(cell.get("outputs")) for cell in nbformat.read(path, as_version=4).cells)


def test_a_repeat_changes_no_byte(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    source = written(
        tmp_path / "step.ipynb",
        "seed: int = 0  # which seed",
        "from tqdm import tqdm\nfor _ in tqdm(range(3), desc='counting'):\n    pass\nprint('seed', seed)",
        "import pandas as pd\npd.Series([1, 3, 2]).plot();",
        "object()",
        "from lib.settings import ROOT\nstr(ROOT / 'data')",
    )
    for name in ("once", "again"):
        notebook.run(source, tmp_path / name / "step.ipynb", {"seed": 7}, tmp_path / "timings", [])
    once = (tmp_path / "once" / "step.ipynb").read_bytes()
    assert once == (tmp_path / "again" / "step.ipynb").read_bytes()
    assert b"seed 7" in once and b"image/png" in once
    assert b"<object>" in once
    assert str(ROOT).encode() not in once and b"100%" not in once
    assert "counting: 100%" in capfd.readouterr().err
    timing = json.loads((tmp_path / "timings" / "step.json").read_text())
    assert timing["finished"] and timing["wall_seconds"] > 0 and timing["cpu_seconds"] > 0
    assert timing["peak_memory_bytes"] > 2**20
    assert not list((tmp_path / "timings").glob("*.ipynb"))


def test_a_failure_names_the_cell_and_keeps_the_notebook_as_far_as_it_got(tmp_path: Path):
    source = written(tmp_path / "step.ipynb", "", "print('so far')", "# why\nx = [1]\nx[2]")
    with pytest.raises(notebook.StepError) as failed:
        notebook.run(source, tmp_path / "out.ipynb", {}, tmp_path / "timings", [])
    message = str(failed.value)
    assert "step.ipynb failed in cell [2] (x[2])" in message and "IndexError: list index out of range" in message
    assert not (tmp_path / "out.ipynb").exists()
    assert "so far" in outputs(tmp_path / "timings" / "out.unfinished.ipynb")
    assert not json.loads((tmp_path / "timings" / "out.json").read_text())["finished"]


@pytest.mark.parametrize("cause", ["", " from error"])
def test_a_failure_after_another_one_names_the_line_of_the_cell(tmp_path: Path, cause: str):
    broken = f"""
def careful():
    try:
        [][1]
    except IndexError as error:
        raise ValueError("no such place"){cause}

careful()  # here
"""
    source = written(tmp_path / "step.ipynb", "", broken)
    with pytest.raises(notebook.StepError, match=r"failed in cell \[1\] \(careful\(\)  # here\)\n.*no such place"):
        notebook.run(source, tmp_path / "out.ipynb", {}, tmp_path / "timings", [])


def test_a_kernel_that_is_killed_is_a_clear_failure(tmp_path: Path):
    source = written(tmp_path / "step.ipynb", "", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(notebook.StepError, match=r"lost its kernel; .* ran out of memory .*; start it again to go on"):
        notebook.run(source, tmp_path / "out.ipynb", {}, tmp_path / "timings", [])


def test_an_unknown_parameter_is_refused_before_anything_runs(tmp_path: Path):
    source = written(tmp_path / "step.ipynb", "seed: int = 0  # which seed")
    with pytest.raises(notebook.StepError, match="has no parameter sed; it has: seed"):
        notebook.run(source, tmp_path / "out.ipynb", {"sed": 1}, tmp_path / "timings", [])
    with pytest.raises(notebook.StepError, match="missing"):
        notebook.run(tmp_path / "no.ipynb", tmp_path / "out.ipynb", {}, tmp_path / "timings", [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_notebook_close_what_it_opened(tmp_path: Path, number: signal.Signals):
    process, child = waiting(tmp_path)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 1 and f"was stopped by {number.name}; start it again to go on" in error
    assert (tmp_path / "closed").exists() and gone(child)
    assert not (tmp_path / "out.ipynb").exists()


def test_nothing_goes_on_when_the_pipeline_is_killed(tmp_path: Path):
    """As under DVC: a pipeline, a shell, the runner, a kernel, and what the kernel started."""
    process, child = waiting(tmp_path, under="dvc")
    family = process_family(process.pid)
    process.kill()
    process.communicate(timeout=30)
    until(lambda: all(gone(pid) for pid in [*family, child]), 20)
    assert (tmp_path / "closed").exists()


def test_the_kernel_ends_when_the_runner_is_killed(tmp_path: Path):
    process, child = waiting(tmp_path)
    family = process_family(process.pid)
    process.kill()
    until(lambda: all(gone(pid) for pid in family if pid != child), 20)
    psutil.Process(child).kill()  # what a kernel starts has to look after itself


def waiting(tmp_path: Path, under: str = "") -> tuple[subprocess.Popen[str], int]:
    """A runner whose notebook waits, and the id of a process that the notebook started."""
    source = written(tmp_path / "step.ipynb", f"folder: str = {str(tmp_path)!r}", WAITS)
    command = [sys.executable, "-c", RUN, str(source), str(tmp_path / "out.ipynb"), str(tmp_path / "timings")]
    environment = {**os.environ}
    environment.pop("DVC_STAGE", None)
    if under:
        environment["DVC_STAGE"] = "waits"
        shell = ["bash", "-c", '"$@"; true', "bash", *command]  # a shell that stays, since more follows
        command = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *shell]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    child = tmp_path / "child"
    until(lambda: process.poll() is not None or (child.exists() and child.read_text()), 60)
    assert process.poll() is None, process.communicate()[1]
    return process, int(child.read_text())


def process_family(pid: int) -> list[int]:
    return [process.pid for process in psutil.Process(pid).children(recursive=True)]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_what_was_begun_from_other_inputs_is_not_gone_on_with(tmp_path: Path):
    work, out = tmp_path / "work", tmp_path / "episodes.jsonl"
    first, other = {"stage": "s", "inputs": [{"md5": "a"}]}, {"stage": "s", "inputs": [{"md5": "b"}]}

    def leave() -> None:
        work.mkdir(exist_ok=True)
        out.write_text("{}\n")

    leave()
    notebook.keep_if_same_inputs([out, work], first)  # nothing says what these were made from
    assert not out.exists() and not work.exists()
    leave()
    notebook.keep_if_same_inputs([out, work], first)
    assert out.exists() and work.exists()
    notebook.keep_if_same_inputs([out, work], None)  # by hand: kept
    assert out.exists() and work.exists()
    (tmp_path / "inputs-work.json").write_text("{}")  # half of it is from elsewhere: none is kept
    notebook.keep_if_same_inputs([out, work], first)
    assert not out.exists() and not work.exists()
    leave()
    notebook.keep_if_same_inputs([out, work], other)
    assert not out.exists() and not work.exists()
