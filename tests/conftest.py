"""What tests share: a real server with the default twin, and where the trial data lie."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from lib import graph
from lib.files import read_jsonl
from lib.graph import server
from lib.questions.generate import generate

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"

# A shell's background job has interrupts ignored, and what it starts as well: the tests of interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("steady", deadline=None, derandomize=True)  # a busy machine is no failure
settings.load_profile("steady")

# A server of the user's own must not be filled by tests.
for name in ("NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD", "NEO4J_DATABASE"):
    os.environ.pop(name, None)


# A file goes to one worker, so what takes longest comes first: begun last, it would keep that worker alone at the end.
LONGEST = (
    "pipeline", "query", "human", "any_schema", "enumerated", "campaign", "soak", "server", "resuming", "foreign",
    "local_backend", "pages", "literals",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


# The set that the tests of the generator look at, and that others take harmless queries from.
SIZES = {"train": 88, "dev": 44, "held_out_instances": 88, "held_out_structures": 24, "demonstrations": 264}


def know_java(data: Path) -> Path:
    """A data folder that has what the tests' has: where the jars lie, and Java's archive of classes if there is one, whose
    making takes longer than all else that a first server does."""
    (data / "neo4j").mkdir(parents=True)
    for known in (server.DATA / "neo4j" / "jars.json", server._archive(server.DATA)):
        if known.is_file():
            (data / "neo4j" / known.name).symlink_to(known)
    return data


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """once(name, make): a folder that `make` fills, one for all workers; who comes later waits, and only reads it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place = shared / name
        with server._locked(place.with_suffix(".lock")):
            if not place.is_dir():
                half = place.with_suffix(".half")
                shutil.rmtree(half, ignore_errors=True)
                make(half)
                half.rename(place)
        return place

    return folder


@pytest.fixture(scope="session")
def graph_folder(once) -> Path:
    """The graph's files: the twin at the default scale, which is also the study's."""
    return once("twin", lambda folder: graph.build("twin", 0.015, 0, "", folder))


@pytest.fixture(scope="session")
def uri(graph_folder: Path) -> Iterator[str]:
    """A managed server that holds `graph_folder`; its store is cached in data/neo4j like the study's."""
    with server.running(graph_folder) as address:
        yield address


@pytest.fixture(scope="session")
def small_set(uri: str, once) -> Path:
    """The small set of questions about it, of SIZES."""
    return once("questions", lambda folder: generate(uri, SIZES, 0, folder))


@pytest.fixture(scope="session")
def reads(small_set: Path) -> list[str]:
    """Queries of the study's own generator, one or two of each structure."""
    return [q["query"] for q in read_jsonl(small_set / "train.jsonl")]


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
