"""Reads a SQLite database, BIRD's above all, as the tables that a mapping declares, a row at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lib.graph import mapping as mappings
from lib.graph.cells import text
from lib.graph.mapping import Mapping, Table
from lib.graph.tables import Row, SourceError, Tables

WAY_OUT = (
    "set graph.path to a database such as BIRD's codebase_community.sqlite (`python -m lib.fetch bird` fetches it), or "
    "declare its tables in a .yaml file of the same name beside it"
)


def tables(path: Path) -> tuple[Mapping, Tables]:
    """The mapping for the database in a file, and its tables, streamed. Raises SourceError naming the file.

    The mapping is the file of the same name that ends in .yaml, or the one of `mappings` whose tables the database has.
    """
    if not path.is_file():
        raise SourceError(f"graph.path = {str(path)!r} is no file; {WAY_OUT}")
    try:
        with closing(_open(path)) as connection:
            found = {name: _columns(connection, name) for name in _names(connection)}
    except sqlite3.Error as e:
        raise SourceError(f"{path} is no SQLite database that can be read ({e}); {WAY_OUT}") from e
    mapping = _mapping(path, found)
    for table in mapping.tables.values():
        there = {column.lower() for column in found[table.name.lower()]}
        if missing := [column for column in table.columns if column.lower() not in there]:
            raise SourceError(
                f"{path}: table {table.name} has no column {missing[0]!r}; it has {', '.join(found[table.name.lower()])}"
            )
    return mapping, ((name, _rows(path, table)) for name, table in mapping.tables.items())


def _mapping(path: Path, found: dict[str, list[str]]) -> Mapping:
    own = path.with_suffix(".yaml")
    if own.is_file():
        mapping = mappings.read(own)
        if missing := [name for name in mapping.tables if name.lower() not in found]:
            raise SourceError(f"{path} has no table {missing[0]!r}, which {own} declares; it has {', '.join(found)}")
        return mapping
    lacking = {}
    for file in sorted(mappings.FOLDER.glob("*.yaml")):
        mapping = mappings.community() if file.stem == "community" else mappings.read(file)
        lacking[file.stem] = [name for name in mapping.tables if name.lower() not in found]
        if not lacking[file.stem]:
            return mapping
    nearest = min(lacking, key=lambda stem: len(lacking[stem]))
    raise SourceError(
        f"{path} fits no known mapping (for {nearest} it lacks {', '.join(lacking[nearest])}; it has "
        f"{', '.join(found) or 'no table'}); {WAY_OUT}"
    )


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)


def _names(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    return [name.lower() for (name,) in connection.execute(query)]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _rows(path: Path, table: Table) -> Iterator[Row]:
    """In the order in which they are stored."""
    columns = list(table.columns)
    query = f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(table.name)}"
    seen = 0
    try:
        with closing(_open(path)) as connection:
            for values in _lenient(connection, query):
                seen += 1
                yield dict(zip(columns, values, strict=True))
    except sqlite3.Error as e:
        raise SourceError(
            f"{path}: table {table.name} can't be read after {seen} rows ({e}); fetch the file again"
        ) from e


def _lenient(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """All rows; from the first text that isn't UTF-8 on, bad bytes are replaced, which takes longer."""
    seen = 0
    try:
        for values in connection.execute(query):
            seen += 1
            yield values
    except sqlite3.OperationalError as e:
        if "decode" not in str(e):
            raise
        connection.text_factory = text
        yield from connection.execute(f"{query} LIMIT -1 OFFSET {seen}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
