"""Runs one notebook as a pipeline step: the same results give the same bytes, and nothing outlives its caller.

python -m lib.notebook notebooks/4_train.ipynb data/runs/tiny/notebooks/4_train-seed-0.ipynb -p seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import psutil
import yaml
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from lib.files import write_text
from lib.settings import ROOT, SettingsError, load

SHELLS = {"sh", "bash", "dash", "zsh", "fish"}
GRACE = 10.0  # seconds for a kernel to close its database and files after an interrupt
ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
CHAINED = re.compile(
    r"^(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):$",
    re.M,
)
POINTED_AT = re.compile(r"^-+> *\d+ (.*)$", re.M)
SOCKET_PATH = 100  # characters; the shortest limit of the systems is 104, with the closing zero
PERIOD = 0.5  # seconds between looks at the processes


class StepError(RuntimeError):
    """The notebook did not run to its end; the message says where it stopped, why, and where to look."""


def run(source: Path, out: Path, parameters: dict[str, Any], timings: Path, resume: list[Path]) -> None:
    """Run `source` with `parameters` and write it to `out`, in one piece and only if it ran to its end.

    timings: folder for the step's wall time, CPU time and peak memory, and for the notebook while it runs and after a
    failure. resume: files that a killed try may have left half done; see `keep_if_same_inputs`.

    Raises StepError.
    """
    _check_parameters(source, parameters)
    if resume:
        keep_if_same_inputs(resume, stage_inputs())
    timings.mkdir(parents=True, exist_ok=True)
    unfinished = timings / f"{out.stem}.unfinished.ipynb"
    watch = Watch(timings / f"{out.stem}.json")
    watch.start()
    finished = False
    try:
        _execute(source, unfinished, parameters)
        finished = True
    except Exception as error:
        raise StepError(f"{source} {_failure(error, watch)}\n  as far as it got: {_relative(unfinished)}") from error
    finally:
        watch.close(finished)
    write_text(out, serialise(normalise(nbformat.read(unfinished, as_version=4))))
    unfinished.unlink()


def _execute(source: Path, out: Path, parameters: dict[str, Any]) -> None:
    # a kernel of the user's own named python3 would be another Python with other packages
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    # bars are plain tqdm, since widgets would change the bytes; a log file needs few of their lines
    os.environ.setdefault("TQDM_MININTERVAL", "0.5" if sys.stderr.isatty() else "30")
    os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm: there are no widgets, on purpose
    os.environ.setdefault("TQDM_NCOLS", str(min(100, shutil.get_terminal_size().columns)))
    with warnings.catch_warnings(), _sockets() as sockets:
        warnings.simplefilter("ignore")
        papermill.execute_notebook(
            str(source),
            str(out),
            parameters=parameters,
            kernel_name="python3",
            cwd=str(ROOT),
            progress_bar=False,
            stderr_file=sys.stderr,  # as it comes
            # no port that others could connect to; `ip` is then the beginning of the sockets' path
            config=Config({"KernelManager": {"transport": "ipc", "ip": str(sockets / "k")}}),
        )


@contextlib.contextmanager
def _sockets() -> Iterator[Path]:
    """A fresh folder for the kernel's sockets, which would else stay behind in the working directory."""
    usual = tempfile.gettempdir()
    folder = "/tmp" if len(usual) + len("/kernel-12345678/k-99999") > SOCKET_PATH else usual
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=folder, ignore_cleanup_errors=True) as made:
        yield Path(made)


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what no two runs share: times, ids, progress bars, versions, this machine's folder."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index:03d}"
        for key in ("papermill", "execution", "ExecuteTime", "collapsed"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs = [_shared(o) for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def _shared(output: Any) -> Any:
    """An output without this machine's folder and without addresses in memory."""
    if isinstance(output, str):
        return ADDRESS.sub("", output.replace(f"{ROOT}/", ""))
    if isinstance(output, dict):
        return nbformat.NotebookNode({key: _shared(value) for key, value in output.items()})
    return [_shared(value) for value in output] if isinstance(output, list) else output


def serialise(notebook: nbformat.NotebookNode) -> str:
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def stage_inputs() -> dict[str, Any] | None:
    """What the DVC stage that calls this process depends on: file hashes and parameters. None outside of DVC."""
    name = os.environ.get("DVC_STAGE")
    if name is None:
        return None
    from dvc.repo import Repo  # a second to import, and only resumable steps need it

    with Repo(os.environ["DVC_ROOT"]) as repo:
        (stage,) = repo.stage.collect(name.split(":")[-1])
        for dependency in stage.deps:
            dependency.save()
        return {"stage": name, "inputs": [dependency.dumpd() for dependency in stage.deps]}


def keep_if_same_inputs(paths: list[Path], inputs: dict[str, Any] | None) -> None:
    """Keep what a killed try left in `paths` if all of it was begun from the same inputs; otherwise remove all of it.

    DVC keeps outputs marked `persist` whatever changed; a run that goes on from episodes of other settings would mix
    two experiments. The inputs stand beside each path, in `inputs-<name>.json`.
    """
    if inputs is None:  # run by hand: whoever does that decides what to keep
        return
    text = json.dumps(inputs, indent=1, sort_keys=True) + "\n"
    records = [path.with_name(f"inputs-{path.stem}.json") for path in paths]
    left = [(path, record) for path, record in zip(paths, records, strict=True) if path.exists()]
    same = all(record.exists() and record.read_text(encoding="utf-8") == text for _, record in left)
    for path, _ in left:
        if same:
            print(f"going on from what is in {_relative(path)}", file=sys.stderr)
        else:
            print(f"{_relative(path)} was made from other inputs: starting over", file=sys.stderr)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for record in records:
        write_text(record, text)


def _check_parameters(source: Path, parameters: dict[str, Any]) -> None:
    if not source.exists():
        raise StepError(f"{source} is missing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = papermill.inspect_notebook(str(source))
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise StepError(f"{source} has no parameter {', '.join(unknown)}; it has: {', '.join(known) or 'none'}")


def _failure(error: Exception, watch: Watch) -> str:
    if watch.stopping:
        return f"{watch.stopping}; start it again to go on"
    if isinstance(error, PapermillExecutionError):
        traceback = ANSI.sub("", "\n".join(error.traceback))
        last = CHAINED.split(traceback)[-1]  # what was met on the way stands before
        line = POINTED_AT.search(last)  # the first one is the cell's, the rest is inside what it called
        return f"failed in cell [{error.exec_count}] ({line[1] if line else ''})\n  {error.ename}: {error.evalue}"
    if isinstance(error, DeadKernelError):
        peak = f"{watch.peak / 2**30:.1f} GB"
        cause = f"most often the machine ran out of memory (the step's peak was {peak})"
        return f"lost its kernel; {cause}; start it again to go on"
    return f"failed: {type(error).__name__}: {error}"


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


class Watch(threading.Thread):
    """Looks at this process's family while a notebook runs: how much it uses, and whether it should still run.

    A kernel is in a session of its own: it would go on training (or spending) after DVC was killed.
    """

    def __init__(self, record: Path) -> None:
        super().__init__(daemon=True)
        self.record = record
        self.started = time.monotonic()
        self.done = threading.Event()
        self.stopping = ""  # why
        self.me = psutil.Process()
        self.callers = _callers(self.me) if "DVC_STAGE" in os.environ else []
        self.peak = 0  # bytes, resident, summed over the family
        self.cpu: dict[tuple[int, float], tuple[str, float]] = {}  # process -> name, seconds
        self.handlers = {
            number: signal.signal(number, lambda number, _: self.stop(f"was stopped by {signal.Signals(number).name}"))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }

    def run(self) -> None:
        while not self.done.wait(PERIOD):
            self.look()
            if not self.stopping and not all(_alive(caller) for caller in self.callers):
                self.stop("stopped, because the pipeline that started it is gone")

    def stop(self, why: str) -> None:
        """Interrupt the kernel, so that it closes its database and files, and end it if that takes too long."""
        if not self.stopping:
            last_resort = threading.Timer(GRACE, self.end)
            last_resort.daemon = True
            last_resort.start()
        self.stopping = why
        for kernel in self.me.children():
            kernel.send_signal(signal.SIGINT)

    def end(self) -> None:
        for process in self.me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        os._exit(1)

    def look(self) -> None:
        memory = 0
        for process in [self.me, *self.me.children(recursive=True)]:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    memory += process.memory_info().rss
                    self.cpu[process.pid, process.create_time()] = process.name(), times.user + times.system
            except psutil.Error:
                continue
        self.peak = max(self.peak, memory)

    def close(self, finished: bool) -> None:
        self.look()
        self.done.set()
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        by_name: dict[str, float] = {}
        for name, seconds in self.cpu.values():
            by_name[name] = by_name.get(name, 0.0) + seconds
        figures = {
            "step": self.record.stem,
            "finished": finished,
            "wall_seconds": round(time.monotonic() - self.started, 2),
            "cpu_seconds": round(sum(by_name.values()), 2),
            "cpu_seconds_by_program": {name: round(seconds, 2) for name, seconds in sorted(by_name.items())},
            "peak_memory_bytes": self.peak,
        }
        with contextlib.suppress(OSError):  # a record of times must not hide why a step failed: a full disk, say
            write_text(self.record, json.dumps(figures, indent=1) + "\n")


def _callers(process: psutil.Process) -> list[psutil.Process]:
    """The shells between this process and the pipeline, and the pipeline."""
    callers = []
    for parent in process.parents():
        callers.append(parent)
        if parent.name() not in SHELLS:
            break
    return callers


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main(arguments: list[str] | None = None) -> None:
    """Command line: run one notebook; exit status 1 and one message where it failed."""
    parser = argparse.ArgumentParser(prog="python -m lib.notebook", description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, help="the notebook")
    parser.add_argument("out", type=Path, help="where the executed notebook goes")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a parameter")
    parser.add_argument("--resume", type=Path, nargs="+", default=[], help="what a killed try may have left half done")
    chosen = parser.parse_args(arguments)
    try:
        timings = load().timings_dir
        run(chosen.source, chosen.out, {k: yaml.safe_load(v) for k, v in chosen.p}, timings, chosen.resume)
    except (StepError, SettingsError) as error:
        parser.exit(1, f"{error}\n")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        parser.exit(1, f"{chosen.source}: {error.strerror or error}{where}; mend that and run it again, it goes on\n")


if __name__ == "__main__":
    main()
