"""Fills a database that doesn't run yet: `neo4j-admin database import` reads a graph's CSV files behind headers of its own."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

from lib.graph import load, watchdog

MAIN_CLASS = "org.neo4j.cli.AdminTool"  # the wrapper script's own class starts a second JVM, without the flags
OFF_HEAP = "512m"
PATIENCE = 5.0  # seconds to end in order; what it has written by then isn't used
TYPES = {
    "integer": "long",
    "float": "double",
    "boolean": "boolean",
    "text": "string",
    "datetime": "localdatetime",
    "date": "date",
}
END = re.compile(r":(START|END)\((\w+)\.\w+\):\w+")


def run(graph: Path, home: Path, java: list[str], lock: int | None = None, threads: int = 1) -> None:
    """Import the graph into the empty home of a server. `java`: the program with its flags and class path.

    `lock` stays held until the importer is gone; if this process is killed, a watchdog stops it. With one thread the
    same files give the same store; more are a little faster, but leave the rows in another order each time. Raises
    LoadError.
    """
    (home / "conf").mkdir(exist_ok=True)
    (home / "import").mkdir(exist_ok=True)
    (home / "conf" / "neo4j.conf").touch()
    command = [
        *java, MAIN_CLASS, "database", "import", "full", "neo4j",
        "--path-pattern-style=none",
        "--multiline-fields=true",
        f"--threads={threads}",
        "--high-parallel-io=off",
        "--ignore-empty-strings=true",
        f"--max-off-heap-memory={OFF_HEAP}",
        f"--report-file={home / 'import' / 'report.txt'}",
        *inputs(graph, home / "import"),
    ]  # fmt: skip
    with subprocess.Popen(
        watchdog.guarded(command, str(home / "import" / "java.pid"), PATIENCE),
        cwd=home,
        env={**os.environ, "NEO4J_HOME": str(home), "NEO4J_CONF": str(home / "conf")},
        stdin=subprocess.PIPE,  # its end, however it comes, tells the watchdog to stop the importer
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the study, which then stops the importer
        pass_fds=() if lock is None else (lock,),
    ) as importer:
        assert importer.stdout is not None
        said = importer.stdout.read()
    shutil.rmtree(home / "import")
    if importer.returncode:
        raise load.LoadError(f"Importing {graph} failed: {_reason(said)}")


def inputs(graph: Path, folder: Path) -> list[str]:
    """The importer's arguments, for copies of the files in `folder` with headers that it understands."""
    arguments = []
    for file in load.files(graph):
        copy = folder / f"{file.parent.name}.{file.name}"
        with file.open("rb") as source, copy.open("wb") as target:
            columns = next(csv.reader([source.readline().decode()]))
            nodes = file.parent.name == "nodes"
            header = _node_header(file.stem, columns) if nodes else _relationship_header(columns)
            target.write((",".join(header) + "\n").encode())
            shutil.copyfileobj(source, target, 1 << 20)
        arguments.append(f"--nodes={copy}" if nodes else f"--relationships={file.name.split('.')[0]}={copy}")
    return arguments


def _node_header(label: str, columns: list[str]) -> list[str]:
    key, _, kind = columns[1].rpartition(":")
    return [":LABEL", f"{key}:ID({label}){{id-type:{TYPES[kind]}}}", *map(_typed, columns[2:])]


def _relationship_header(columns: list[str]) -> list[str]:
    ends = []
    for column in columns[:2]:
        m = END.fullmatch(column)
        assert m is not None, column
        ends.append(f":{m[1]}_ID({m[2]})")
    return [*ends, *map(_typed, columns[2:])]


def _typed(column: str) -> str:
    name, _, kind = column.rpartition(":")
    return f"{name}:{TYPES[kind]}"


def _reason(output: str) -> str:
    """What the importer says is wrong, out of a page of progress and advice."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -")]
    if "Command Failed" in lines:
        said = lines[lines.index("Command Failed") + 1 :]
        return " ".join(line for line in said if not line.startswith(("Full exception", "Please provide")))
    return "; ".join(lines[-3:]) or "the importer said nothing"
