"""How much of the right part of the graph an answer's query looked at, though its rows may be wrong: a second measure.

It is CypherBench's provenance subgraph similarity (Feng, Papicchio and Rahman 2024, arXiv 2412.18702): the Jaccard
similarity of the nodes that the patterns of the answer's and of the reference's query match. A query that asks for the
wrong column of the right nodes has 1, one that starts from another node has little.

`python -m lib.provenance` writes data/runs/<run>/provenance.jsonl, a line for each question of the first endpoint and
each query that was scored there. It asks the database, and changes no episode.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from lib import episodes, loop
from lib.files import read_jsonl, write_jsonl
from lib.graph import server
from lib.graph.patterns import asking_for_nodes
from lib.graph.query import CAP, QueryError, Reader, TimedOut, Unavailable
from lib.settings import SETS, Settings, SettingsError, load

# What these queries cost is planning, and a crowd of new plans keeps the server from answering anybody.
AT_ONCE = 4
Nodes = frozenset[str] | None  # ids of the nodes; None: not known


def provenance(settings: Settings) -> Path:
    """Write data/runs/<run>/provenance.jsonl: `question`, `query` and `similarity` (0 to 1, or null where it isn't known).

    Raises ServerError or Unavailable where there is no database, FileNotFoundError where an arm isn't evaluated.
    """
    references = {q["id"]: q["query"] for q in read_jsonl(settings.questions_dir / f"{SETS[0]}.jsonl")}
    scored = {
        (episode.question, episode.query)
        for arm in settings.arms
        for episode in episodes.read(settings.episodes(arm))
        if (episode.set, episode.decode) == (SETS[0], "sampled") and episode.query is not None
    }
    with server.running(settings.graph_dir, settings.data) as uri:
        found = loop.run(_similarities(uri, settings, references, sorted(scored)))
    file = settings.run_dir / "provenance.jsonl"
    write_jsonl(file, found)
    return file


async def _similarities(
    uri: str, settings: Settings, references: dict[str, str], scored: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    reader = Reader(uri, AT_ONCE, settings.agent.evaluation_query_timeout)
    queries = sorted({query for _, query in scored} | {references[question] for question, _ in scored})
    gate = asyncio.Semaphore(AT_ONCE)  # the reader's own limit doesn't hold for its first question of a server

    late: list[str] = []

    async def one(query: str) -> Nodes:
        async with gate:
            try:
                return await matched_nodes(reader, query)
            except TimedOut:
                late.append(query)
                return None

    try:
        nodes = dict(zip(queries, await asyncio.gather(*map(one, queries)), strict=True))
        for query in late.copy():  # alone, so that no crowd decides what is known
            nodes[query] = await one(query)
    finally:
        await reader.close()
    return [
        {"question": name, "query": query, "similarity": similarity(nodes[query], nodes[references[name]])}
        for name, query in scored
    ]


def similarity(answer: Nodes, reference: Nodes) -> float | None:
    """Jaccard similarity of two sets, 1 where both are empty; None where one isn't known."""
    if answer is None or reference is None:
        return None
    either = answer | reference
    return round(len(answer & reference) / len(either), 6) if either else 1.0


async def matched_nodes(reader: Reader, query: str) -> Nodes:
    """Ids of the nodes that a query's patterns match; None where they can't be asked for or are too many. Raises TimedOut."""
    asked = asking_for_nodes(query)
    if asked is None:
        return None
    try:
        rows = await reader.run(asked, CAP)
    except TimedOut:
        raise
    except QueryError:
        return None
    return None if rows.cut else frozenset(row[0] for row in rows.rows if row[0] is not None)


def main(arguments: list[str] | None = None) -> None:
    """Command line: write the file of the run in params.yaml; exit status 1 where that isn't possible."""
    argparse.ArgumentParser(prog="python -m lib.provenance", description=__doc__.split("\n\n")[0]).parse_args(arguments)
    try:
        print(provenance(load()))
    except FileNotFoundError as problem:
        sys.exit(f"{problem.filename} is missing: evaluate that arm (5_evaluate) first")
    except (SettingsError, server.ServerError, Unavailable, ValueError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
