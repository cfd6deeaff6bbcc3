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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib import episodes, loop
from lib.files import read_jsonl, write_jsonl
from lib.graph import server, vet
from lib.graph.query import CAP, QueryError, Reader, Unavailable
from lib.settings import SETS, Settings, SettingsError, load

# What these queries cost is planning, and a crowd of new plans keeps the server from answering anybody.
AT_ONCE = 4
UNLIKE = frozenset(
    ("call", "union", "unwind", "let", "filter")
)  # behind these, a match isn't what the query starts with
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

    async def one(query: str) -> Nodes:
        async with gate:
            return await matched_nodes(reader, query)

    try:
        nodes = dict(zip(queries, await asyncio.gather(*map(one, queries)), strict=True))
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
    """Ids of the nodes that a query's patterns match; None where they can't be asked for, are too many, or take too long."""
    asked = asking_for_nodes(query)
    if asked is None:
        return None
    try:
        rows = await reader.run(asked, CAP)
    except QueryError:
        return None
    return None if rows.cut else frozenset(row[0] for row in rows.rows if row[0] is not None)


def asking_for_nodes(query: str) -> str | None:
    """The query up to its first RETURN or WITH, asking for the ids of all nodes in its patterns, those without a name too.

    None for a query of another build: one that doesn't begin with matches alone, or has no node in them.
    """
    tokens = [(str(match.lastgroup), match[0]) for match in vet.TOKEN.finditer(query)]
    head, before, names, braces, brackets, pattern = "", "", dict[str, None](), 0, 0, False
    for i, (kind, text) in enumerate(tokens):
        word = text.lower() if kind == "word" and braces == 0 else ""
        if word in UNLIKE or (word == "where" and brackets > 0):  # a condition inside a pattern may hold any brackets
            return None
        if word == "return" or (word == "with" and before not in ("starts", "ends")):
            asked = f"UNWIND [{', '.join(names)}] AS matched_node RETURN DISTINCT elementId(matched_node)"
            return head + asked if names else None
        pattern = word == "match" or (pattern and word != "where")
        braces += {"{": 1, "}": -1}.get(text, 0)
        brackets += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0)
        head += text
        if pattern and braces == 0 and text == "(" and (name := _name(tokens[i + 1 :])) is not None:
            head += "" if name else f"matched_{len(names)}"
            names[name or f"matched_{len(names)}"] = None
        before = word if kind != "blank" else before
    return None


def _name(rest: Iterable[tuple[str, str]]) -> str | None:
    """What stands behind an opening bracket: a node's name, '' for a node without one, None where it is no node."""
    kind, text = next(((kind, text) for kind, text in rest if kind != "blank"), ("", ""))
    if kind in ("word", "quoted"):
        return text
    return "" if text in (":", ")", "{") else None


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
