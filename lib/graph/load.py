"""Writes a graph's CSV files into an empty database, and proves that what arrived is what was counted."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import neo4j
from tqdm import tqdm

BATCH = 2_000  # rows; about 2 MB of texts at most, far below the server's limit for one transaction
VERSION = "1"  # to be raised when the same CSV should give another store

CONSTRAINTS = [
    ("User", "userId"),
    ("Post", "postId"),
    ("Comment", "commentId"),
    ("Vote", "voteId"),
    ("PostHistory", "postHistoryId"),
    ("Tag", "tagId"),
    ("Tag", "tagName"),
    ("Badge", "name"),
]
RANGE_INDEXES = [
    ("User", "displayName"),
    ("User", "reputation"),
    ("User", "location"),
    ("User", "creationDate"),
    ("Post", "score"),
    ("Post", "viewCount"),
    ("Post", "creationDate"),
    ("Question", "postId"),  # an index on Post doesn't serve a query that says Question
    ("Question", "score"),
    ("Question", "creationDate"),
    ("Answer", "postId"),
    ("Answer", "score"),
    ("Answer", "creationDate"),
    ("Comment", "score"),
    ("Comment", "creationDate"),
    ("Vote", "creationDate"),
]
TEXT_INDEXES = [
    ("Post", "title"),
    ("Question", "title"),
    ("Post", "body"),
    ("Comment", "text"),
    ("PostHistory", "text"),
    ("User", "aboutMe"),
]
PARSERS: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "text": str,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
}


class LoadError(RuntimeError):
    """The graph didn't arrive whole."""


class HoldsAnother(LoadError):
    """The database isn't empty and holds something else; it was left as it is."""


def files(graph: Path) -> list[Path]:
    return sorted([*(graph / "nodes").glob("*.csv"), *(graph / "relationships").glob("*.csv")])


def size(graph: Path) -> int:
    """Bytes of CSV."""
    return sum(file.stat().st_size for file in files(graph))


def fingerprint(graph: Path) -> str:
    """Name of the store of these very CSV files."""
    whole = hashlib.sha256(f"{VERSION} {CONSTRAINTS} {RANGE_INDEXES} {TEXT_INDEXES}".encode())
    for file in files(graph):
        whole.update(f"{file.parent.name}/{file.name}\n".encode())
        with file.open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:16]


def load(uri: str, graph: Path) -> None:
    """Fill the database behind `uri` with the graph, or find that it holds it already.

    Raises HoldsAnother (nothing was changed) and LoadError (counts differ from counts.json after loading).
    """
    from lib.graph.server import auth, database  # it imports this module, too

    expected = json.loads((graph / "counts.json").read_text())["database"]
    with (
        neo4j.GraphDatabase.driver(uri, auth=auth(uri), notifications_min_severity="OFF") as driver,
        driver.session(database=database(uri)) as session,
    ):
        found = contents(session)
        if found == expected:
            return
        if any(found["nodes"].values()):
            raise HoldsAnother(
                f"its database {database(uri)!r} holds another graph than {graph}: {_difference(found, expected)}"
            )
        _constraints(session)
        _write(session, graph)
        _indexes(session)
        if (found := contents(session)) != expected:
            raise LoadError(
                f"Loading {graph} went wrong: {_difference(found, expected)}; remove the database and load again"
            )


def contents(session: neo4j.Session) -> dict[str, dict[str, int]]:
    """Nodes by label, relationships by type, and the sum of each label's integer key: enough to know one graph again."""
    nodes = session.run("MATCH (n) UNWIND labels(n) AS label RETURN label, count(*) AS n ORDER BY label")
    by_label = dict(nodes.values())
    relationships = session.run("MATCH ()-[r]->() RETURN type(r) AS type, count(*) AS n ORDER BY type")
    by_type = dict(relationships.values())
    sums = {}
    for label, key in CONSTRAINTS:
        if by_label.get(label) and key.endswith("Id"):
            record = session.run(f"MATCH (n:{label}) RETURN sum(n.{key})").single(strict=True)
            sums[f"{label}.{key}"] = record[0]
    return {"nodes": by_label, "relationships": by_type, "key_sums": sums}


def _difference(found: dict[str, dict[str, int]], expected: dict[str, dict[str, int]]) -> str:
    for part, wanted in expected.items():
        for name in sorted({*wanted, *found[part]}):
            if found[part].get(name, 0) != wanted.get(name, 0):
                return f"{part} of {name}: {found[part].get(name, 0)} there, {wanted.get(name, 0)} expected"
    return "no difference"


def _constraints(session: neo4j.Session) -> None:
    for label, key in CONSTRAINTS:
        name = f"unique_{label}_{key}"
        session.run(f"CREATE CONSTRAINT {name} IF NOT EXISTS FOR (n:{label}) REQUIRE n.{key} IS UNIQUE").consume()


def _indexes(session: neo4j.Session) -> None:
    for kind, indexes in (("RANGE", RANGE_INDEXES), ("TEXT", TEXT_INDEXES)):
        for label, name in indexes:
            statement = f"CREATE {kind} INDEX {kind.lower()}_{label}_{name} IF NOT EXISTS FOR (n:{label}) ON (n.{name})"
            session.run(statement).consume()
    session.run("CALL db.awaitIndexes(600)").consume()


def _write(session: neo4j.Session, graph: Path) -> None:
    total = size(graph)
    with tqdm(total=total, desc="loading the graph", unit="B", unit_scale=True, file=sys.stderr) as bar:
        for file in files(graph):
            write = _nodes if file.parent.name == "nodes" else _relationships
            write(session, file)
            bar.update(file.stat().st_size)


def _batches(file: Path) -> Iterator[tuple[list[str], list[list[Any]]]]:
    """Header and rows, values parsed by the type in the header (`score:integer`); an empty cell is None."""
    csv.field_size_limit(sys.maxsize)
    with file.open(newline="", encoding="utf-8") as text:
        reader = csv.reader(text)
        header = next(reader)
        names = [column.rpartition(":")[0] or column for column in header]
        parsers = [PARSERS.get(column.rpartition(":")[2], str) for column in header]
        while batch := list(islice(reader, BATCH)):
            yield (
                names,
                [[parse(cell) if cell else None for parse, cell in zip(parsers, row, strict=True)] for row in batch],
            )


def _nodes(session: neo4j.Session, file: Path) -> None:
    """First column: the labels, joined by ';'."""
    for names, rows in _batches(file):
        by_labels: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            properties = {name: value for name, value in zip(names[1:], row[1:], strict=True) if value is not None}
            by_labels.setdefault(row[0].replace(";", ":"), []).append(properties)
        for labels, nodes in by_labels.items():
            session.execute_write(_run, f"UNWIND $rows AS row CREATE (n:{labels}) SET n = row", nodes)


def _relationships(session: neo4j.Session, file: Path) -> None:
    """File TYPE.csv or TYPE.Start.csv; first two columns `:START(Label.key):type` and `:END(Label.key):type`."""
    kind = file.name.split(".")[0]
    for names, rows in _batches(file):
        start, end = (name[name.index("(") + 1 : -1].split(".") for name in names[:2])
        query = (
            f"UNWIND $rows AS row MATCH (a:{start[0]} {{{start[1]}: row[0]}}) MATCH (b:{end[0]} {{{end[1]}: row[1]}}) "
            f"CREATE (a)-[r:{kind}]->(b) SET r = row[2]"
        )
        packed = [
            [row[0], row[1], {name: value for name, value in zip(names[2:], row[2:], strict=True) if value is not None}]
            for row in rows
        ]
        session.execute_write(_run, query, packed)


def _run(transaction: neo4j.ManagedTransaction, query: str, rows: list[Any]) -> None:
    transaction.run(query, rows=rows).consume()
