"""What the read-only tool costs over the bare driver, and whether it survives a day of hostile company.

    python benchmarks/query.py                    # speed (ratios of medians), then a soak of 10,000 queries, 200 hostile
    python benchmarks/query.py --queries 1000     # a shorter soak; --queries 0 for the speed alone

Speed: the same reads by `Reader` with its cache off and by the driver alone, 24 at once, taking turns. `repeated`: texts
that the server knows. `new values`: texts that differ from known ones in values. `new texts`: every variable has a new
name, so that the server must parse and plan.

Soak: harmless reads with hostile queries among them (writes, bombs, endless loops, huge results), 24 at once. Afterwards
the graph's digest is what it was, every harmless query had the rows of a quiet run, and memory stayed bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import neo4j
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib import graph
from lib.files import read_jsonl
from lib.graph import server
from lib.graph.query import QueryError, Reader, Refused, Rows
from lib.graph.wire import plain
from lib.questions.generate import generate
from tests import hostile

AT_ONCE = 24
VARIABLE = re.compile(r"'[^']*'|(?<![\w:.`])(?:[a-z]|[a-z]\d)(?![\w(`])")
TIMEOUT = 15.0  # seconds a query in the soak; a harmless one takes a hundredth on a quiet machine
SHARES = {"REFUSED": 6, "HUGE": 2, "JOINS": 1, "PLANNED": 1, "LOOPS": 1, "BOMBS": 1}  # of the hostile ones

Ask = Callable[[str], Awaitable[Any]]


def harmless(uri: str, folder: Path, count: int) -> list[str]:
    """Queries of generated questions, each once."""
    sizes = {"train": count, "dev": 0, "held_out_instances": 0, "held_out_structures": 0, "demonstrations": 0}
    generate(uri, sizes, 0, folder)
    return list(dict.fromkeys(q["query"] for q in read_jsonl(folder / "train.jsonl")))


# ---------------------------------------------------------------- speed


def renamed(query: str, mark: str) -> str:
    """The query with other names for its variables."""
    return VARIABLE.sub(lambda m: m[0] if m[0][0] == "'" else m[0] + mark, query)


async def medians(uri: str, queries: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds: kind of query -> {driver, tool}, medians over all calls; the two take turns, each beginning half the time."""
    reader = Reader(uri, AT_ONCE)
    driver = neo4j.AsyncGraphDatabase.driver(uri, notifications_min_severity="OFF")

    async def bare(query: str) -> Any:
        async with driver.session(database="neo4j", default_access_mode=neo4j.READ_ACCESS) as session:
            result = await session.run(query)  # type: ignore[arg-type]  # it wants a literal
            return [[plain(value) for value in record.values()] async for record in result]

    async def tool(query: str) -> Any:
        return await reader.run(query, 25_000)

    ways: dict[str, Ask] = {"driver": bare, "tool": tool}
    known, unseen = queries[::3], {"driver": queries[1::3], "tool": queries[2::3]}
    taken: dict[str, dict[str, list[float]]] = {}
    for turn in range(rounds):
        for way in sorted(ways, reverse=turn % 2 == 1):
            kinds = {
                "repeated": known,
                "new values": unseen[way] if turn == 1 else [],
                "new texts": [renamed(q, f"_{way}{turn}") for q in known],
            }
            for kind, texts in kinds.items():
                seconds = await latencies(ways[way], texts)
                if turn:  # the first warms up
                    taken.setdefault(kind, {}).setdefault(way, []).extend(seconds)
    await reader.close()
    await driver.close()
    return {kind: {way: statistics.median(s) for way, s in by_way.items()} for kind, by_way in taken.items()}


async def latencies(ask: Ask, queries: Sequence[str]) -> list[float]:
    """Seconds of each query, AT_ONCE of them at a time."""
    waiting, seconds = iter(queries), []

    async def worker() -> None:
        for query in waiting:
            started = time.perf_counter()
            await ask(query)
            seconds.append(time.perf_counter() - started)

    await asyncio.gather(*[worker() for _ in range(AT_ONCE)])
    return seconds


# ---------------------------------------------------------------- soak


def digest(uri: str) -> str:
    """SHA-256 of everything in the database: nodes, relationships, names, constraints, indexes."""
    parts = [
        "MATCH (n) RETURN elementId(n) AS id, labels(n), properties(n) ORDER BY id",
        "MATCH (a)-[r]->(b) RETURN elementId(r) AS id, type(r), elementId(a), elementId(b), properties(r) ORDER BY id",
        "CALL db.labels() YIELD label RETURN label ORDER BY label",
        "CALL db.relationshipTypes() YIELD relationshipType AS name RETURN name ORDER BY name",
        "CALL db.propertyKeys() YIELD propertyKey AS name RETURN name ORDER BY name",
        "SHOW CONSTRAINTS YIELD name, type, properties RETURN name, type, properties ORDER BY name",
        "SHOW INDEXES YIELD name, type, state, properties RETURN name, type, state, properties ORDER BY name",
    ]
    whole = hashlib.sha256()
    with neo4j.GraphDatabase.driver(uri) as driver, driver.session(database="neo4j") as session:
        for part in parts:
            for record in session.run(part):  # type: ignore[arg-type]
                whole.update(json.dumps(plain(record.values()), sort_keys=True).encode() + b"\n")
    return whole.hexdigest()


def mixture(reads: Sequence[str], count: int, bad: int, rng: random.Random) -> list[tuple[str, str]]:
    """(kind, query): `count` in all, `bad` of them hostile, anywhere among the harmless ones; no hostile text twice."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    pools: dict[str, list[str]] = {kind: [] for kind in kinds}
    mixed = [("harmless", rng.choice(reads)) for _ in range(count - bad)]
    for n in range(bad):
        kind = kinds[n % len(kinds)]
        pools[kind] = pools[kind] or rng.sample(queries := getattr(hostile, kind), len(queries))
        mixed.append((kind, hostile.fill(pools[kind].pop(), n + 1)))
    rng.shuffle(mixed)
    return mixed


async def soak(uri: str, reads: Sequence[str], count: int, bad: int, seed: int = 0) -> dict[str, Any]:
    """What a mixture did: harmless queries whose rows differ from a quiet run's, hostile ones that passed, memory."""
    quiet = Reader(uri, 4)
    expected = dict(zip(reads, await asyncio.gather(*[quiet.run(q, 200) for q in reads]), strict=True))
    await quiet.close()
    reader = Reader(uri, AT_ONCE, TIMEOUT, cache=2**16)  # small, so that harmless queries reach the server all the time
    waiting = iter(mixture(reads, count, bad, random.Random(seed)))
    wrong: list[str] = []
    outcomes: dict[str, Counter[str]] = {}
    took: dict[str, list[float]] = {}

    async def worker() -> None:
        for kind, query in waiting:
            started = time.monotonic()
            found: Rows | QueryError
            try:
                found = await reader.run(query, 200)
            except QueryError as e:
                found = e
            took.setdefault(kind, []).append(time.monotonic() - started)
            name = found.kind if isinstance(found, QueryError) else "rows"
            outcomes.setdefault(kind, Counter())[name] += 1
            fine = found == expected[query] if kind == "harmless" else isinstance(found, Refused) or kind != "REFUSED"
            if not fine:
                wrong.append(f"{query}: {found}")

    started = time.monotonic()
    with peaks(uri) as peak:
        await asyncio.gather(*[worker() for _ in range(AT_ONCE)])
    report = reader.report()
    await reader.close()
    afterwards = Reader(uri)  # it waits for a server that the last hostile query has cost
    await afterwards.run("RETURN 1", 1)
    await afterwards.close()
    return {
        "seconds": round(time.monotonic() - started),
        "outcomes": {kind: dict(sorted(c.items())) for kind, c in sorted(outcomes.items())},
        "longest_seconds": {kind: round(max(s), 1) for kind, s in sorted(took.items())},
        "wrong": len(wrong),
        "first_wrong": wrong[:10],
        "peak_mb": {who: size >> 20 for who, size in peak.items()},
        "report": report,
    }


@contextlib.contextmanager
def peaks(uri: str) -> Iterator[dict[str, int]]:
    """The most resident memory of this process and of the server's, looked at ten times a second until the block ends."""
    most = {"ours": 0, "server": 0}
    pid_file = server._replaceable[uri]

    async def look() -> None:
        while True:
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                most["ours"] = max(most["ours"], psutil.Process().memory_info().rss)
                most["server"] = max(most["server"], psutil.Process(int(pid_file.read_text())).memory_info().rss)
            await asyncio.sleep(0.1)

    task = asyncio.ensure_future(look())
    try:
        yield most
    finally:
        task.cancel()


# ---------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000, help="of the soak (default: 10,000), one in 50 hostile")
    parser.add_argument("--rounds", type=int, default=4, help="of the speed measurement; the first warms up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        graph.build("twin", 0.015, 0, "", folder / "graph")
        with server.running(folder / "graph") as uri:
            reads = harmless(uri, folder, 360)
            for kind, by_way in asyncio.run(medians(uri, reads, options.rounds)).items():
                line = {way: round(1000 * s, 2) for way, s in by_way.items()}
                print(json.dumps({"queries": kind, "ms": line, "ratio": round(by_way["tool"] / by_way["driver"], 2)}))
            if options.queries:
                before = digest(uri)
                found = asyncio.run(soak(uri, reads, options.queries, options.queries // 50))
                found["digest_unchanged"] = digest(uri) == before
                print(json.dumps(found, indent=1))
                if found["wrong"] or not found["digest_unchanged"]:
                    sys.exit("the soak failed")


if __name__ == "__main__":
    main()
