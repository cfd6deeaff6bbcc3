"""How long the large set of questions takes to make, beside what its queries take by themselves.

    python benchmarks/questions.py               # the twin at the study's scale: target 90 s on two quiet cores
    python benchmarks/questions.py --scale 1     # the full size: at most 3 times the queries' own time

The queries' own time: that of each question's query, one after another, as its text stands, by the driver alone, on the
same server right afterwards. Processor time is shown for this process and the server, since a busy machine stretches the
wall's. Last, on a server that holds the graph anew, each query is run again by the tool: no rows may differ.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib import graph
from lib.files import read_jsonl
from lib.graph import server
from lib.graph.database import session
from lib.graph.query import Reader
from lib.questions.generate import generate
from lib.questions.supply import SPLITS, Line
from lib.questions.verify import MOST_ROWS, settled

TRAINING = {"training": {"questions": 300, "structures": 135}}


def made(uri: str, folder: Path, out: Path, most: int) -> tuple[dict[str, Any], float]:
    """The summary, and seconds of wall time."""
    java = psutil.Process(int(server._replaceable[uri].read_text()))
    before, own, start = sum(java.cpu_times()[:2]), time.process_time(), time.perf_counter()
    summary = generate(uri, {**TRAINING, "most": most}, 0, out, folder, "all")
    wall, own, theirs = time.perf_counter() - start, time.process_time() - own, sum(java.cpu_times()[:2]) - before
    short = f"{summary['share with one hop or none']:.0%} with one hop or none"
    print(f"{summary['structures']} structures, {short}; questions: {sum(summary['counts'][s] for s in SPLITS):,}")
    print(f"{wall:.1f} s; {own:.1f} s of CPU here, {theirs:.1f} s in the server; load {os.getloadavg()[0]:.1f}")
    return summary, wall


def alone(uri: str, questions: list[Line]) -> float:
    """Seconds of the questions' queries by the driver, one after another."""
    taken = 0.0
    with session(uri, "READ") as opened:
        for q in questions:
            start = time.perf_counter()
            opened.run(q["query"]).values()
            taken += time.perf_counter() - start
    return taken


async def different(uri: str, questions: list[Line]) -> int:
    """How many questions have other rows now, as the tool reads them."""
    reader = Reader(uri, at_once=4, timeout=600.0)  # a busy machine is no difference

    async def same(q: Line) -> bool:
        rows = (await reader.run(q["query"], MOST_ROWS + 1)).rows
        return settled(rows, q["ordered"]) == q["rows"]

    try:
        return (await asyncio.gather(*map(same, questions))).count(False)
    finally:
        await reader.close()


def measure(scale: float, folder: Path, place: Path, most: int) -> None:
    if not folder.is_dir():
        graph.build("twin", scale, 0, "", folder)
    with server.running(folder) as uri:
        _, wall = made(uri, folder, place / "questions", most)
        questions = [q for split in SPLITS for q in read_jsonl(place / "questions" / f"{split}.jsonl")]
        own = alone(uri, questions)
    print(
        f"the queries by themselves: {own:.1f} s; all of it / these: {wall / own:.2f} (target at full size: at most 3)"
    )
    with server.running(folder) as uri:
        print(
            f"rows that differ when each query is run on the graph served anew: {asyncio.run(different(uri, questions))}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scale", type=float, default=0.015, help="share of the full site's size (default: %(default)s)"
    )
    parser.add_argument("--graph", type=Path, help="folder of a graph to ask about instead of the twin")
    parser.add_argument("--most", type=int, default=0, help="structures to try (default: all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        measure(args.scale, args.graph or Path(place) / "graph", Path(place), args.most)


if __name__ == "__main__":
    main()
