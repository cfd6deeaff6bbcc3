"""How long a full-size site takes from its tables to a server that is ready, as ratios measured in one run.

Compared with `neo4j-admin database import` alone on the same CSV files (with the importer's own number of threads), and
with batched UNWIND writes over Bolt into a running, empty server. The site is the twin, written as BIRD's SQLite file
before the clock starts; the archive of Java's classes, once in the life of a checkout, is made before, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# BIRD's file as a graph
NODES = {"User": 40_325, "Post": 91_966, "Comment": 174_285, "Vote": 38_930, "PostHistory": 303_155, "Tag": 1_032}
NODES |= {"Badge": 153}
RELATIONSHIPS = 1_380_394
sys.path.insert(0, str(ROOT))

from lib import graph  # noqa: E402
from lib.graph import load, mapping, offline, server, twin  # noqa: E402
from lib.graph.database import session  # noqa: E402
from lib.questions.sql import write  # noqa: E402


def seconds(what: str, run: Callable[[], object]) -> float:
    before = os.times()
    start = time.perf_counter()
    run()
    taken, after = time.perf_counter() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(f"{what:<68} {taken:7.1f} s   {cpu:7.1f} s of CPU", flush=True)
    return taken


def peak(who: int) -> int:
    """Bytes that this process, or the largest of its children, has held at most."""
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def ready(folder: Path, data: Path) -> None:
    with server.running(folder, data):
        pass


def with_archive(place: Path) -> Path:
    """A data folder that has Java's archive of classes."""
    data = place / "data"
    (data / "neo4j").mkdir(parents=True)
    for name in ("jars.json", server._archive(server.DATA).name):
        if (server.DATA / "neo4j" / name).is_file():
            shutil.copy(server.DATA / "neo4j" / name, data / "neo4j")
    graph.build("twin", 0.0001, 0, "", place / "small")
    ready(place / "small", data)
    return data


def imported(folder: Path, home: Path, data: Path, threads: int) -> tuple[float, float]:
    """Seconds of the importer itself, and of making the files that it reads."""
    (home / "import").mkdir(parents=True)
    start = time.perf_counter()
    offline.inputs(folder, home / "import")
    copying = time.perf_counter() - start
    java = server.importer(folder, data)
    taken = seconds(
        f"neo4j-admin import, {threads} thread(s), {copying:.1f} s of it copying",
        lambda: offline.run(folder, home, java, threads=threads),
    )
    return taken - copying, copying


def served(what: str, home: Path, data: Path, folder: Path, then: Callable[[str], object]) -> tuple[float, float]:
    """Seconds until a server on `home` answers, and what `then` takes."""
    lock = server._lock(home.with_suffix(".lock"))
    start = time.perf_counter()
    with server._serving(home, data, lock, server.Size.of(folder), None, loader=True) as uri:
        starting = time.perf_counter() - start
        taken = seconds(f"{what}; the server had started in {starting:.1f} s", lambda: then(uri))
    os.close(lock)
    return starting, taken


def written(uri: str, folder: Path) -> None:
    """Nodes and relationships over Bolt, into a database that has the constraints by which it finds their ends."""
    with session(uri) as opened:
        load._together(opened, load._constraints(mapping.community()))
        load._write(opened, folder)


def measure(scale: float, place: Path) -> None:
    file, folder, home = place / "codebase_community.sqlite", place / "graph", place / "home"
    print(f"twin at scale {scale:g}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    data = with_archive(place)
    write(file, twin.tables(scale, 0))
    counts: dict[str, Any] = {}
    tables = seconds("tables to CSV", lambda: counts.update(graph.build("bird", 1.0, 0, str(file), folder)))
    importing = imported(folder, home, data, 1)
    indexing = served("constraints and indexes", home, data, folder, lambda uri: load.complete(uri, folder))
    memory = peak(resource.RUSAGE_SELF) + peak(resource.RUSAGE_CHILDREN)
    loading = sum(importing) + sum(indexing)
    os.rename(home, data / "neo4j" / load.fingerprint(folder))
    again = seconds("a further run on the loaded store: its copy, start and stop", lambda: ready(folder, data))
    alone, _ = imported(folder, place / "alone", data, os.cpu_count() or 1)
    shutil.rmtree(place / "alone")
    (place / "bolt").mkdir()
    _, unwind = served("batched UNWIND writes", place / "bolt", data, folder, lambda uri: written(uri, folder))
    print(
        f"\n{counts['nodes']:,} nodes, {counts['relationships']:,} relationships, {load.size(folder) / 1e6:.0f} MB of CSV"
    )
    if scale == 1:
        same = all(counts["database"]["nodes"][label] == n for label, n in NODES.items())
        off = counts["relationships"] / RELATIONSHIPS - 1
        print(
            f"nodes of each label {'as' if same else 'NOT as'} in BIRD's file; relationships {off:+.3%} (target: 0.1%)"
        )
    print(f"memory: at most {memory / 1e9:.2f} GB, this process and the largest Java together (target: under 3)")
    print(f"tables to a running server with constraints and indexes: {tables + loading:.1f} s")
    print(f"  / neo4j-admin import alone: {(tables + loading) / alone:.2f} (target: at most 2.5)")
    print(f"  and to a run's own copy of it: {(tables + loading + again) / alone:.2f}")
    print(f"batched UNWIND writes of the same CSV, constraints there and indexes not: {unwind:.1f} s")
    print(f"  / the import, from CSV to store: {unwind / sum(importing):.2f} (target: at least 5)")
    print(f"  both with start, constraints and indexes: {(unwind + sum(indexing)) / loading:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full site's size (default: 1)")
    with tempfile.TemporaryDirectory(dir=server.DATA if server.DATA.is_dir() else None) as place:
        measure(parser.parse_args().scale, Path(place))


if __name__ == "__main__":
    main()
