"""Writes a graph's CSV files into an empty database over Bolt, and proves that what arrived is what was counted."""

from __future__ import annotations

import contextlib
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

from lib.graph import mapping as mappings
from lib.graph.mapping import NAME, Mapping

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
    whole = hashlib.sha256(f"{VERSION} {_schema_statements(_mapping(graph))}".encode())
    for file in files(graph):
        whole.update(f"{file.parent.name}/{file.name}\n".encode())
        with file.open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:16]


def load(uri: str, graph: Path) -> None:
    """Fill the database behind `uri` with the graph, or find that it holds it already.

    Raises HoldsAnother (nothing was changed) and LoadError (counts differ from counts.json after loading).
    """
    expected = counted(graph)
    with _session(uri) as session:
        found = contents(session, expected)
        if found == expected:
            return
        if any(found["nodes"].values()):
            raise HoldsAnother(f"its database holds another graph than {graph}: {difference(found, expected)}")
        mapping = _mapping(graph)
        for statement in _constraints(mapping):
            session.run(statement).consume()
        _write(session, graph)
        for statement in _indexes(mapping):
            session.run(statement).consume()
        _finish(session, graph)


def complete(uri: str, graph: Path) -> None:
    """Add constraints and indexes to a database whose nodes and relationships are there already.

    Raises LoadError where these are not the graph's.
    """
    with _session(uri) as session:
        for statement in _schema_statements(_mapping(graph)):
            session.run(statement).consume()
        _finish(session, graph)


def check(uri: str, graph: Path) -> None:
    """Raises HoldsAnother where the database behind `uri` isn't, or is no longer, what the graph's folder says."""
    expected = counted(graph)
    with _session(uri) as session:
        if (found := contents(session, expected)) != expected:
            raise HoldsAnother(f"it is no longer what {graph} says: {difference(found, expected)}")


def _finish(session: neo4j.Session, graph: Path) -> None:
    session.run("CALL db.awaitIndexes(600)").consume()
    expected = counted(graph)
    if (found := contents(session, expected)) != expected:
        raise LoadError(
            f"Loading {graph} went wrong: {difference(found, expected)}; remove the database and load again"
        )


@contextlib.contextmanager
def _session(uri: str) -> Iterator[neo4j.Session]:
    from lib.graph.server import auth, database  # it imports this module, too

    with (
        neo4j.GraphDatabase.driver(uri, auth=auth(uri), notifications_min_severity="OFF") as driver,
        driver.session(database=database(uri)) as session,
    ):
        yield session


def counted(graph: Path) -> dict[str, dict[str, int]]:
    """What a database with this graph has to hold, as `contents` gives it."""
    expected: dict[str, dict[str, int]] = json.loads((graph / "counts.json").read_text())["database"]
    return expected


def contents(session: neo4j.Session, like: dict[str, dict[str, int]] | None = None) -> dict[str, dict[str, int]]:
    """Nodes by label, relationships by type (from the counts that the server keeps), and the sums of the keys that `like`
    has sums of: enough to know one graph again."""

    def count(listed: str, query: str) -> dict[str, int]:
        names = sorted(name for (name,) in session.run(listed).values())
        counts = {name: session.run(query.format(quoted(name))).single(strict=True)[0] for name in names}
        return {name: n for name, n in counts.items() if n}

    sums = {}
    for name in (like or {}).get("key_sums", {}):
        label, key = name.split(".")
        sums[name] = session.run(f"MATCH (n:{label}) RETURN sum(n.{key})").single(strict=True)[0]
    return {
        "nodes": count("CALL db.labels()", "MATCH (n:{}) RETURN count(n)"),
        "relationships": count("CALL db.relationshipTypes()", "MATCH ()-[r:{}]->() RETURN count(r)"),
        "key_sums": sums,
    }


def quoted(name: str) -> str:
    """A label, type or property as a query can name it."""
    return name if NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def difference(found: dict[str, dict[str, int]], expected: dict[str, dict[str, int]]) -> str:
    for part, wanted in expected.items():
        for name in sorted({*wanted, *found[part]}):
            if found[part].get(name, 0) != wanted.get(name, 0):
                return f"{part} of {name}: {found[part].get(name, 0)} there, {wanted.get(name, 0)} expected"
    return "no difference"


def _mapping(graph: Path) -> Mapping:
    mapping = mappings.of(graph)
    if mapping is None:
        raise LoadError(f"{graph} has no rows: it describes a running database, which is not to be loaded")
    return mapping


def _schema_statements(mapping: Mapping) -> list[str]:
    return [*_constraints(mapping), *_indexes(mapping)]


def _constraints(mapping: Mapping) -> list[str]:
    return [
        f"CREATE CONSTRAINT unique_{label}_{key} IF NOT EXISTS FOR (n:{label}) REQUIRE n.{key} IS UNIQUE"
        for label, key in mapping.constraints
    ]


def _indexes(mapping: Mapping) -> list[str]:
    return [
        f"CREATE {kind} INDEX {kind.lower()}_{label}_{name} IF NOT EXISTS FOR (n:{label}) ON (n.{name})"
        for kind, indexes in (("RANGE", mapping.range_indexes), ("TEXT", mapping.text_indexes))
        for label, name in indexes
    ]


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
