"""Runs a person's SQL on a SQLite file without trusting it, and reads off its text what a check of the question needs.

SQL gives the reference rows of questions that were asked of tables. It can't write, can't run for ever, and says more
than its rows: which names it compares, and whether a tie decided who is in.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lib.graph import mapping
from lib.graph.cells import text

SQL_TYPES = {"integer": "INTEGER", "text": "TEXT", "datetime": "DATETIME", "date": "DATE"}
SECONDS = 120.0  # a query on BIRD's file, which has no indexes, takes seconds; more than this is a mistake
STEPS = 10_000  # of SQLite's machine between two looks at the clock
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|\d+(?:\.\d+)?|\w+|<=|>=|<>|!=|.", re.DOTALL)
NAMES = ("DisplayName", "UserDisplayName")
DIRECTION = re.compile(r"\s+(?:ASC|DESC)\s*$", re.IGNORECASE)

Rows = list[list[Any]]


class SqlError(RuntimeError):
    """SQL that was refused, failed or took too long; the message says which, with SQLite's words."""


@dataclass(frozen=True)
class Literal:
    """A constant in a query: its value, and the column that it is compared with, if that stands right before it."""

    value: str | int | float
    column: str | None


# ---------------------------------------------------------------- running


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can only read. Raises SqlError naming a file that is missing or no database."""
    if not path.is_file():
        raise SqlError(
            f"{path} is no file; `python -m lib.fetch bird` fetches BIRD's database, and write() makes one of a twin"
        )
    with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as connection:
        connection.text_factory = _text
        try:
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.Error as e:
            raise SqlError(f"{path} is no SQLite database that can be read ({e})") from e
        connection.set_authorizer(only_reads)
        yield connection


def run(connection: sqlite3.Connection, sql: str, seconds: float = SECONDS) -> Rows:
    """All rows of one query. An empty text becomes None, as in the graph, which stores neither.

    Raises SqlError for SQL that would change anything, that fails, or that runs longer than `seconds`.
    """
    with _limited(connection, sql, seconds):
        return [[_plain(value) for value in row] for row in connection.execute(sql)]


@contextmanager
def _limited(connection: sqlite3.Connection, sql: str, seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as e:
        if "interrupted" in str(e):
            raise SqlError(f"took longer than {seconds:g} s: {_short(sql)}") from e
        if any(words in str(e) for words in ("not authorized", "authorization denied", "prohibited")):
            raise SqlError(f"does more than read, which is refused: {_short(sql)}") from e
        raise SqlError(f"fails ({e}): {_short(sql)}") from e
    finally:
        connection.set_progress_handler(None, STEPS)


def only_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in ("load_extension", "readfile", "writefile"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else None if value == "" else value


def _text(given: bytes) -> str:
    return text(given)  # bad bytes are replaced, as they are when the graph is made


def _short(sql: str) -> str:
    line = " ".join(sql.split())
    return line if len(line) <= 100 else line[:97] + "..."


# ---------------------------------------------------------------- reading its text


def literals(sql: str) -> list[Literal]:
    """The constants of a query in the order of its text, formats and limits among them."""
    tokens = [token for token in TOKEN.findall(sql) if not token.isspace()]
    found: list[Literal] = []
    column = None  # that a list or a comparison has begun with
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token[0] == "'" or token[0].isdigit():
            fits = before in ("=", "<", ">", "<=", ">=", "<>", "!=", "(", ",") or before.upper() in ("LIKE", "BETWEEN")
            found.append(Literal(_value(token), column if fits else None))
        elif re.fullmatch(r"\w+|`[^`]*`|\"[^\"]*\"", token):
            if token.upper() not in ("IN", "LIKE", "BETWEEN"):
                column = token.strip('`"')
        elif token == ")":
            column = None
    return found


def _value(token: str) -> str | int | float:
    if token[0] == "'":
        return token[1:-1].replace("''", "'")
    return float(token) if "." in token else int(token)


def names(sql: str) -> list[str]:
    """The texts that a query compares with a user's display name, in order, each once."""
    return list(dict.fromkeys(str(x.value) for x in literals(sql) if x.column in NAMES))


def is_ordered(sql: str) -> bool:
    """Whether the outermost query sorts more than one row."""
    cut = next((cut for cut in _cuts(sql) if cut.depth == 0), None)
    if cut is not None:
        return bool(cut.keys) and cut.limit > 1
    depth, words = 0, []
    for token in TOKEN.findall(sql):
        depth += (token == "(") - (token == ")")
        words += [token.upper()] if depth == 0 else []
    return "ORDER" in words


@dataclass(frozen=True)
class _Cut:
    """A SELECT with LIMIT: the parts of its text, and how deep in brackets it stands."""

    items: str
    body: str
    keys: tuple[str, ...]  # with ASC or DESC
    limit: int
    depth: int


def _cuts(sql: str) -> list[_Cut]:
    tokens, depths, depth = TOKEN.findall(sql), [], 0
    for token in tokens:
        depth -= token == ")"
        depths.append(depth)
        depth += token == "("
    found = []
    for end, token in enumerate(tokens):
        if token.upper() == "LIMIT":
            level = depths[end]
            start = max((i for i in range(end) if depths[i] < level), default=-1) + 1
            if (cut := _cut(tokens[start:], depths[start:], end - start, level)) is not None:
                found.append(cut)
    return found


def _cut(tokens: list[str], depths: list[int], end: int, level: int) -> _Cut | None:
    """The query that begins with these tokens and has its LIMIT at `end`."""
    words = {t.upper(): i for i, t in reversed(list(enumerate(tokens[:end]))) if depths[i] == level}
    limit = "".join(tokens[end + 1 : end + 3]).strip()
    if "SELECT" not in words or "FROM" not in words or not limit.isdigit():
        return None
    order = words.get("ORDER", end)
    keys: list[str] = []
    key = ""
    for i in range(order, end):
        if tokens[i] == "," and depths[i] == level:
            keys, key = [*keys, key], ""
        elif depths[i] > level or tokens[i].upper() not in ("ORDER", "BY"):
            key += tokens[i]
    return _Cut(
        "".join(tokens[words["SELECT"] + 1 : words["FROM"]]), "".join(tokens[words["FROM"] : order]),
        tuple(k.strip() for k in (*keys, key) if k.strip()), int(limit), level,
    )  # fmt: skip


def tied(connection: sqlite3.Connection, sql: str, seconds: float = SECONDS) -> str | None:
    """Why it is chance which rows a LIMIT in the query lets in, or None where it isn't.

    Each SELECT with a LIMIT, nested ones too, is run on beyond it, to the end of the rows that are sorted alike: they
    must be equal in what is selected, or there must be none beyond. Raises SqlError as `run` does.
    """
    for cut in _cuts(sql):
        # a nested query that looks at the outer one can't run alone; none of BIRD's does
        if (found := _tie(connection, cut, seconds)) is not None:
            return found
    return None


def _tie(connection: sqlite3.Connection, cut: _Cut, seconds: float) -> str | None:
    keys = [DIRECTION.sub("", key) for key in cut.keys]
    order = f" ORDER BY {', '.join(cut.keys)}" if keys else ""
    probe = f"SELECT {', '.join([cut.items.strip(), *keys])} {cut.body.strip()}{order}"
    with _limited(connection, probe, seconds):
        seen = 0
        for _, group in groupby(connection.execute(probe), key=lambda row: row[len(row) - len(keys) :]):
            rows = [row[: len(row) - len(keys)] for row in group]
            if seen < cut.limit < seen + len(rows) and len(set(rows)) > 1:
                how = f"{len(rows)} rows are sorted alike" if keys else f"{len(rows)} rows in no order"
                return f"{how} where {cut.limit} {'is' if cut.limit == 1 else 'are'} taken"
            seen += len(rows)
            if seen >= cut.limit:
                break
    return None


# ---------------------------------------------------------------- a file like BIRD's


def write(path: Path, tables: Iterable[tuple[str, Iterable[dict[str, Any]]]]) -> Path:
    """Fill a new database at `path` with a community's tables, column for column as BIRD spells them, and return it.

    tables: name and rows of each, as lib.graph.twin.tables yields them; those that aren't named are empty. Equal rows
    give equal bytes. Raises FileExistsError where there is a file.
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already; remove it, or choose another name")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for name, table in mapping.community().tables.items():
            columns = ", ".join(f"{column} {SQL_TYPES[kind]}" for column, kind in table.columns.items())
            connection.execute(f"CREATE TABLE {name} ({columns})")  # no key: dirty files have rows twice
        for name, rows in tables:
            named = list(mapping.community().tables[name].columns)
            marks = ", ".join("?" * len(named))
            values = ([row.get(column) for column in named] for row in rows)
            connection.executemany(f"INSERT INTO {name} ({', '.join(named)}) VALUES ({marks})", values)
        connection.commit()
    return path
