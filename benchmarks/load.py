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
from lib.graph import load, offline, server, twin  # noqa: E402
from tests.bird_file import write  # noqa: E402


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


def alone(folder: Path, place: Path, data: Path, threads: int) -> float:
    """Seconds of the importer itself: making the files that it reads is not counted."""
    home = place / f"alone-{threads}"
    (home / "import").mkdir(parents=True)
    start = time.perf_counter()
    offline.inputs(folder, home / "import")
    copying = time.perf_counter() - start
    taken = seconds(
        f"neo4j-admin import, {threads} thread(s), with {copying:.1f} s of copying",
        lambda: offline.run(folder, home, server.importer(folder, data), threads=threads),
    )
    shutil.rmtree(home)
    return taken - copying


def over_bolt(folder: Path, place: Path, data: Path) -> float:
    home = place / "bolt"
    home.mkdir()
    lock = server._lock(home.with_suffix(".lock"))
    with server._serving(home, data, lock, server._memory(folder), None) as uri:
        return seconds("batched UNWIND writes, constraints and indexes", lambda: load.load(uri, folder))


def measure(scale: float, place: Path) -> None:
    file = place / "codebase_community.sqlite"
    print(f"twin at scale {scale:g}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    data = with_archive(place)
    write(file, twin.tables(scale, 0))
    folder = place / "graph"
    counts: dict[str, Any] = {}
    tables = seconds("tables to CSV", lambda: counts.update(graph.build("bird", 1.0, 0, str(file), folder)))
    loading = seconds("CSV to a store with constraints and indexes", lambda: server._loaded(folder, data))
    starting = seconds("store to a ready server (a copy of its own, started and stopped)", lambda: ready(folder, data))
    memory = peak(resource.RUSAGE_SELF) + peak(resource.RUSAGE_CHILDREN)
    one, several = (alone(folder, place, data, threads) for threads in (1, os.cpu_count() or 1))
    unwind = over_bolt(folder, place, data)
    total = tables + loading + starting
    print(
        f"\n{counts['nodes']:,} nodes, {counts['relationships']:,} relationships, {load.size(folder) / 1e6:.0f} MB of CSV"
    )
    if scale == 1:
        same = all(counts["database"]["nodes"][label] == n for label, n in NODES.items())
        off = counts["relationships"] / RELATIONSHIPS - 1
        print(
            f"nodes of each label {'as' if same else 'NOT as'} in BIRD's file; relationships {off:+.3%} (target: 0.1%)"
        )
    print(f"memory: at most {memory / 1e9:.2f} GB (this process and the largest Java together; the target is under 3)")
    print(f"tables to ready server: {total:.1f} s")
    print(
        f"  / neo4j-admin import alone:   {total / several:.2f} (one thread: {total / one:.2f}; the target is at most 2.5)"
    )
    print(f"batched UNWIND: {unwind:.1f} s, from the same CSV")
    print(f"  / CSV to store by the import: {unwind / loading:.2f} (the target is at least 5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full site's size (default: 1)")
    with tempfile.TemporaryDirectory(dir=server.DATA if server.DATA.is_dir() else None) as place:
        measure(parser.parse_args().scale, Path(place))


if __name__ == "__main__":
    main()
