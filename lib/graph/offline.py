"""Fills a database that doesn't run yet: `neo4j-admin database import` reads a graph's CSV files as they are."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from pathlib import Path

from lib.graph import load

MAIN_CLASS = "org.neo4j.cli.AdminTool"  # the wrapper script's own class starts a second JVM, without the flags
OFF_HEAP = "512m"
TYPES = {
    "integer": "long",
    "float": "double",
    "boolean": "boolean",
    "text": "string",
    "datetime": "localdatetime",
    "date": "date",
}
END = re.compile(r":(START|END)\((\w+)\.\w+\):\w+")


def run(graph: Path, home: Path, java: list[str], lock: int | None = None) -> None:
    """Import the graph into the empty home of a server. `java`: the program with its flags and class path.

    `lock` stays held while the importer runs, also if this process is killed. Raises LoadError.
    """
    (home / "conf").mkdir(exist_ok=True)
    (home / "import").mkdir(exist_ok=True)
    (home / "conf" / "neo4j.conf").touch()
    command = [
        *java, MAIN_CLASS, "database", "import", "full", "neo4j",
        "--auto-skip-subsequent-headers=true",  # ours come before each file; its own first line is the study's
        "--path-pattern-style=none",
        "--multiline-fields=true","--threads=1","--high-parallel-io=off",
        "--ignore-empty-strings=true",
        f"--max-off-heap-memory={OFF_HEAP}",
        f"--report-file={home / 'import' / 'report.txt'}",
        *_inputs(graph, home / "import"),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=home,
        env={**os.environ, "NEO4J_HOME": str(home), "NEO4J_CONF": str(home / "conf")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the study, which then stops the importer
        pass_fds=() if lock is None else (lock,),
    )
    if done.returncode:
        raise load.LoadError(f"Importing {graph} failed: {_reason(done.stdout)}")


def _inputs(graph: Path, headers: Path) -> list[str]:
    """The importer's arguments: each file behind a header that it understands."""
    arguments = []
    for file in load.files(graph):
        with file.open(newline="", encoding="utf-8") as text:
            columns = next(csv.reader(text))
        header = headers / f"{file.parent.name}.{file.name}"
        if file.parent.name == "nodes":
            cells, option = _node_header(file.stem, columns), "--nodes="
        else:
            cells, option = _relationship_header(columns), f"--relationships={file.name.split('.')[0]}="
        header.write_text(",".join(cells) + "\n")
        arguments.append(f"{option}{header},{file.resolve()}")
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
    """The line that says what is wrong, out of a page of advice."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"(?:Exception|Error)\b.*:", line) and not line.startswith("at ")]
    return json.dumps((causes or lines or ["the importer said nothing"])[-1])
