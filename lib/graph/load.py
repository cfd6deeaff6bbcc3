"""Writes a graph's CSV files into an empty database over Bolt, and proves that what arrived is what was counted."""

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
from neo4j.exceptions import ClientError
from tqdm import tqdm

from lib.graph import mapping as mappings
from lib.graph.database import contents, difference, session
from lib.graph.mapping import Mapping

BATCH = 2_000  # rows; about 2 MB of texts at most, far below the server's limit for one transaction
VERSION = "2"  # to be raised when the same CSV should give another store

PARSERS: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "float": float,
    "boolean": {"true": True, "false": False}.__getitem__,
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
    mapping = _mapping(graph)
    whole = hashlib.sha256(
        f"{VERSION} {_constraints(mapping)} {_range_indexes(mapping)} {_text_indexes(mapping)}".encode()
    )
    for file in files(graph):
        whole.update(f"{file.parent.name}/{file.name}\n".encode())
        with file.open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:16]


def load(uri: str, graph: Path) -> None:
    """Fill the database behind `uri` with the graph, or find that it holds it already, by its counts and sums of keys.

    Raises HoldsAnother (nothing was changed) and LoadError (counts differ from counts.json after loading).
    """
    expected = counted(graph)
    with session(uri) as opened:
        found = contents(opened, expected)
        if found == expected:
            return
        if found["total"]["nodes"]:
            raise HoldsAnother(f"its database holds another graph than {graph}: {difference(found, expected)}")
        mapping = _mapping(graph)
        _together(opened, _constraints(mapping))
        _write(opened, graph)
        _finish(opened, mapping, graph)


def complete(uri: str, graph: Path) -> None:
    """Add constraints and indexes to a database whose nodes and relationships are there already.

    Raises LoadError where these are not the graph's.
    """
    with session(uri) as opened:
        mapping = _mapping(graph)
        _together(opened, _constraints(mapping))
        _finish(opened, mapping, graph)


def check(uri: str, graph: Path) -> None:
    """Raises HoldsAnother where the database behind `uri` hasn't, or has no longer, the counts that the graph's folder says."""
    expected = counted(graph)
    with session(uri, neo4j.READ_ACCESS) as opened:
        if (found := contents(opened, expected)) != expected:
            raise HoldsAnother(f"it is no longer what {graph} says: {difference(found, expected)}")


def _finish(session: neo4j.Session, mapping: Mapping, graph: Path) -> None:
    for statement in _text_indexes(mapping):  # one by one, so that two are filled side by side: words take long
        session.run(statement).consume()
    _together(session, _range_indexes(mapping))
    expected = counted(graph)
    if (found := contents(session, expected)) != expected:  # counted while the indexes are being filled
        raise LoadError(
            f"Loading {graph} went wrong: {difference(found, expected)}; remove the database and load again"
        )
    _await_indexes(session)


def _together(session: neo4j.Session, statements: list[str]) -> None:
    """In one transaction, so that all are filled in one pass over the nodes."""
    with session.begin_transaction() as transaction:
        for statement in statements:
            transaction.run(statement).consume()
        transaction.commit()


def _await_indexes(session: neo4j.Session) -> None:
    """Until all are ready. An index can't hold a text of more than 32 KB (a range index, 8 KB): one that meets such a text
    fails and is left out, since without it a query is slower but no less right."""
    while True:
        try:
            session.run("CALL db.awaitIndexes(600)").consume()
            return
        except ClientError:
            failed = session.run("SHOW INDEXES YIELD name, state WHERE state = 'FAILED' RETURN name ORDER BY name")
            names = [name for (name,) in failed.values()]
            if not names:
                raise
            for name in names:
                print(f"left out index {name}: some texts are too long for it", file=sys.stderr)
                session.run(f"DROP INDEX {name}").consume()


def counted(graph: Path) -> dict[str, dict[str, int]]:
    """What a database with this graph has to hold, as `contents` gives it."""
    counts = json.loads((graph / "counts.json").read_text())
    return {**counts["database"], "total": {"nodes": counts["nodes"]}}


def _mapping(graph: Path) -> Mapping:
    mapping = mappings.of(graph)
    if mapping is None:
        raise LoadError(f"{graph} has no rows: it describes a running database, which is not to be loaded")
    return mapping


def _constraints(mapping: Mapping) -> list[str]:
    return [
        f"CREATE CONSTRAINT unique_{label}_{key} IF NOT EXISTS FOR (n:{label}) REQUIRE n.{key} IS UNIQUE"
        for label, key in mapping.constraints
    ]


def _range_indexes(mapping: Mapping) -> list[str]:
    return [_index("RANGE", *place) for place in mapping.range_indexes]


def _text_indexes(mapping: Mapping) -> list[str]:
    return [_index("TEXT", *place) for place in mapping.text_indexes]


def _index(kind: str, label: str, name: str) -> str:
    return f"CREATE {kind} INDEX {kind.lower()}_{label}_{name} IF NOT EXISTS FOR (n:{label}) ON (n.{name})"


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
