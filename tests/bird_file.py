"""Writes tables as the SQLite file that BIRD distributes, column for column, since the real one is too large to have here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from lib.graph import mapping

SQL_TYPES = {"integer": "INTEGER", "text": "TEXT", "datetime": "DATETIME", "date": "DATE"}


def write(path: Path, tables: Iterable[tuple[str, Iterable[dict[str, Any]]]]) -> Path:
    """Fill a new database at `path` with the community's tables; those that aren't named are empty."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for name, table in mapping.community().tables.items():
            columns = ", ".join(f"{column} {SQL_TYPES[kind]}" for column, kind in table.columns.items())
            connection.execute(f"CREATE TABLE {name} ({columns})")  # no key: dirty files have rows twice
        for name, rows in tables:
            columns = list(mapping.community().tables[name].columns)
            marks = ", ".join("?" * len(columns))
            values = ([row.get(column) for column in columns] for row in rows)
            connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", values)
        connection.commit()
    return path
