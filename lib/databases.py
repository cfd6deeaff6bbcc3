"""Runs queries that nobody vouches for, on SQLite files or a graph, and tells a query's fault from the database's.

Either kind has `run(query, name)`, which returns rows or raises QueryFault (the query's own) or DatabaseFault (nobody's
query is to blame). A query on a SQLite file runs in a process of its own, which ends when the time is up: SQLite
looks at no clock within one call of a function, and one of instr() can take days.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from lib.questions import sql

MEMORY = 1 << 30  # bytes that SQLite may take for one query, what it sorts included
LONGEST = 100 << 20  # bytes of one value
HEAVIEST = 512 << 20  # bytes of memory of a result's values
# SQLite's words for what no query is to blame for
ITS_OWN = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_LOCKED",
           "SQLITE_FULL", "SQLITE_PROTOCOL")  # fmt: skip

Rows = list[Any]


class QueryFault(Exception):
    """The query's own fault: it fails, is refused, takes too long or returns too much. The message says which."""


class DatabaseFault(RuntimeError):
    """The database can't be asked, whatever the query; the message names the cause and the way out."""


class Database(Protocol):
    def run(self, query: str, name: str | None) -> Rows:
        """All rows of a query on the database called `name`, where there are several."""
        ...


# ---------------------------------------------------------------- SQLite


class SQLite:
    """A SQLite file, or a folder with `<name>/<name>.sqlite` in it as BIRD and Spider have them.

    seconds: of CPU, so that a busy machine fails no query; a fraction counts as a whole one. most_rows: beyond which a result is a fault of its query.
    Raises ValueError for a path that isn't there, or a folder where no database is named.
    """

    def __init__(self, path: Path, seconds: float, most_rows: int):
        if not path.exists():
            raise ValueError(f"{path} doesn't exist; name a SQLite file, or the folder of BIRD's or Spider's databases")
        self.path, self.seconds, self.most_rows = path, seconds, most_rows
        self._worker: _Worker | None = None

    def run(self, query: str, name: str | None) -> Rows:
        if self._worker is None:
            self._worker = _Worker()
        kind, found = self._worker.ask(self._file(name), query, self.seconds, self.most_rows)
        if kind == "rows":
            return found
        if kind == "query":
            raise QueryFault(found)
        self.close()
        if kind == "late":
            raise QueryFault(f"time out: more than {self.seconds:g} s of CPU")
        raise DatabaseFault(found)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _file(self, name: str | None) -> Path:
        if self.path.is_file():
            return self.path
        if name is None:
            raise ValueError(
                f"{self.path} is a folder, and the answers don't say which database: name one file instead"
            )
        file = self.path / name / f"{name}.sqlite"
        if Path(name).name != name or not file.is_file():
            raise DatabaseFault(f"{file} is no file; {self.path} must hold <name>/<name>.sqlite for each database")
        return file


class _Worker:
    """A process that answers one query after the other, until one costs it its life."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end,), daemon=True)
        self._process.start()
        end.close()

    def ask(self, file: Path, query: str, seconds: float, most_rows: int) -> tuple[str, Any]:
        try:
            self._pipe.send((file, query, seconds, most_rows))
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            if self._process.exitcode == -signal.SIGXCPU:
                return "late", None
            return "database", "the process that runs SQL has ended, maybe for want of memory; try again"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(EOFError, KeyboardInterrupt):  # the one who asks has gone
        while True:
            file, query, seconds, most_rows = pipe.recv()
            # kept by the system, so that no query outlives the one who asks; whole seconds
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + seconds), most))
            answer = _answer(file, query, most_rows)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            pipe.send(answer)


def _answer(file: Path, query: str, most_rows: int) -> tuple[str, Any]:
    try:
        with _opened(file) as connection:
            return "rows", _rows(connection, query, most_rows)
    except sql.SqlError as e:
        return "database", str(e)
    except QueryFault as e:
        return "query", str(e)
    except (sqlite3.Error, sqlite3.Warning) as e:
        name = getattr(e, "sqlite_errorname", "")
        return ("database" if name.startswith(ITS_OWN) else "query"), f"{name or type(e).__name__}: {e}"
    except (MemoryError, ValueError) as e:  # ValueError: a NUL in the query
        return "query", f"{type(e).__name__}: {e}"


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    with sql.opened(file) as connection:  # it lets nothing but reads through
        connection.set_authorizer(None)
        connection.execute(f"PRAGMA hard_heap_limit = {MEMORY}")
        connection.execute("PRAGMA temp_store = MEMORY")  # else a sort could fill the disk
        connection.set_authorizer(sql.only_reads)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.text_factory = _text
        yield connection


def _text(given: bytes) -> str:
    return given.decode("utf-8", "surrogateescape")  # two texts stay two, however broken


def _rows(connection: sqlite3.Connection, query: str, most_rows: int) -> Rows:
    rows: Rows = []
    heavy = 0
    cursor = connection.execute(query)
    for row in cursor:
        rows.append(row)
        heavy += sum(map(sys.getsizeof, row))
        if len(rows) > most_rows:
            raise QueryFault(f"more than {most_rows:,} rows")
        if heavy > HEAVIEST:
            raise QueryFault(f"more than {HEAVIEST >> 20} MB in the result")
    if cursor.description is None:
        raise QueryFault("no query: it returns no table")
    return rows


# ---------------------------------------------------------------- a graph


class Graph:
    """A Neo4j server, asked by the study's own read-only tool. seconds: by the clock, as the server counts them."""

    def __init__(self, uri: str, seconds: float, most_rows: int):
        from lib.graph.query import CAP, Reader

        self.most_rows = min(most_rows, CAP)
        self._runner = asyncio.Runner()
        self._reader = self._runner.run(_made(Reader, uri, seconds))

    def run(self, query: str, name: str | None) -> Rows:
        from lib.graph.query import QueryError, Unavailable

        try:
            found = self._runner.run(self._reader.run(query, self.most_rows))
        except QueryError as e:
            raise QueryFault(e.message) from e
        except Unavailable as e:
            raise DatabaseFault(str(e)) from e
        if found.more or found.cut:
            raise QueryFault(f"more than {self.most_rows:,} rows, or more than the tool takes in")
        return found.rows

    def close(self) -> None:
        self._runner.run(self._reader.close())
        self._runner.close()


async def _made(reader: Any, uri: str, seconds: float) -> Any:
    return reader(uri, at_once=1, timeout=seconds)  # within the loop that it will run in
