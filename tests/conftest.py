"""What tests share: a real server with the default twin, and where the trial data lie."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import graph
from lib.graph import server

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"

# A shell's background job has interrupts ignored, and what it starts as well: the tests of interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A server of the user's own must not be filled by tests.
for name in ("NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD", "NEO4J_DATABASE"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph's files: the twin at the default scale, which is also the study's."""
    folder = tmp_path_factory.mktemp("twin") / "graph"
    graph.build("twin", 0.015, 0, "", folder)
    return folder


@pytest.fixture(scope="session")
def uri(graph_folder: Path) -> Iterator[str]:
    """A managed server that holds `graph_folder`; its store is cached in data/neo4j like the study's."""
    with server.running(graph_folder) as address:
        yield address


@pytest.fixture(scope="session")
def reads(uri: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Queries of the study's own generator, one or two of each structure."""
    from benchmarks.query import harmless

    return harmless(uri, tmp_path_factory.mktemp("reads"), 88)


@pytest.fixture(scope="session")
def dumps() -> dict[str, Path]:
    """Two small Stack Exchange dumps by their letter."""
    folders = {letter: DATA / f"stackexchange_{letter}" for letter in "ac"}
    if missing := [str(folder) for folder in folders.values() if not folder.is_dir()]:
        pytest.skip(f"the trial dumps aren't here: {', '.join(missing)}")
    return folders


@pytest.fixture(scope="session")
def bird() -> Path:
    """The folder of BIRD's questions and metadata."""
    folder = DATA / "bird"
    if not folder.is_dir():
        pytest.skip(f"BIRD's metadata aren't here: {folder}")
    return folder
