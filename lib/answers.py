"""Reads files of answers in the forms in which people have them, so that predictions of any making can be scored.

- `.jsonl`: an object a line with `id` and either `rows` or `query` (null: no answer); may be there: `db_id`, `ordered`.
- `.json`: BIRD's predictions, {"0": "SELECT ...\\t----- bird -----\\tdb_id"}; or its questions (dev.json), or Spider's,
  a list of objects with `SQL` or `query`, and `db_id`. An answer's id is its number, from 0.
- any other ending: Spider's and BIRD's lines, one query each, in a file of reference queries followed by a tab and the
  database's name. An answer's id is the number of its line, from 0. Predictions may have the names, too: what follows a
  line's last tab is one if that holds for each line, else a part of the query.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIRD_MARK = "----- bird -----"


@dataclass(frozen=True)
class Answer:
    """Rows, or a query that gives them; neither is no answer. `where` names file and line, for messages."""

    where: str
    rows: list[Any] | None = None
    query: str | None = None
    database: str | None = None  # its name, where there are several
    ordered: bool = False


def read(path: Path, asked: Mapping[str, Answer] | None = None) -> dict[str, Answer]:
    """The answers of a file by id, in its order. asked: the references, if it is a file of predictions; they say whether
    a blank line at its end is an answer, and which databases there are.

    Raises ValueError naming the file, the line or entry, and what it should be; OSError for a file that can't be read.
    """
    form = {".jsonl": _jsonl, ".json": _json}.get(path.suffix.lower(), functools.partial(_lines, asked=asked))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise ValueError(f"{path}: no UTF-8 text ({e}); save it as UTF-8") from e
    answers: dict[str, Answer] = {}
    for name, answer in form(path, text):
        if name in answers:
            raise ValueError(
                f"{answer.where}: id {name!r} was there before, in {answers[name].where}; ids name questions"
            )
        answers[name] = answer
    if not answers:
        raise ValueError(f"{path}: no answers in it")
    return answers


def _jsonl(path: Path, text: str) -> Iterator[tuple[str, Answer]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise ValueError(f"{where}: no JSON ({e}); a .jsonl file has one object a line") from e
            yield _object(where, entry)


def _object(where: str, entry: Any) -> tuple[str, Answer]:
    if not isinstance(entry, dict) or "id" not in entry or not ("rows" in entry or "query" in entry):
        raise ValueError(f"{where}: need an object with `id` and `rows`, or `id` and `query`")
    name, rows, query = str(entry["id"]), entry.get("rows"), entry.get("query")
    if rows is not None and not isinstance(rows, list):
        raise ValueError(f"{where}: `rows` of {name!r} must be a list of rows (or null: no result)")
    for key in ("query", "db_id"):
        if not isinstance(entry.get(key), str | None):
            raise ValueError(f"{where}: `{key}` of {name!r} must be a text (or null), not {entry[key]!r}")
    if not isinstance(entry.get("ordered", False), bool):
        raise ValueError(f"{where}: `ordered` of {name!r} must be true or false, not {entry['ordered']!r}")
    if "rows" in entry:  # a question of the study has both, and its rows are what its query gave
        query = None
    return name, Answer(where, rows, query, entry.get("db_id"), entry.get("ordered", False))


def _json(path: Path, text: str) -> Iterator[tuple[str, Answer]]:
    try:
        entries = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path}: no JSON ({e}); lines of objects belong into a .jsonl file") from e
    if isinstance(entries, dict):
        for name, value in entries.items():
            yield name, _bird(f"{path}, entry {name!r}", value)
    elif isinstance(entries, list):
        for number, entry in enumerate(entries):
            where = f"{path}, entry {number}"
            query = entry.get("SQL", entry.get("query")) if isinstance(entry, dict) else None
            if not isinstance(query, str) or not isinstance(entry.get("db_id"), str):
                raise ValueError(f"{where}: need an object with `SQL` (or `query`) and `db_id`, as BIRD's dev.json has")
            yield str(number), Answer(where, query=query, database=entry["db_id"])
    else:
        raise ValueError(f"{path}: need BIRD's predictions (an object) or questions (a list)")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    (name, times), *_ = Counter(name for name, _ in pairs).most_common(1) or [("", 0)]
    if times > 1:
        raise ValueError(f"{name!r} is there twice")
    return dict(pairs)


def _bird(where: str, value: Any) -> Answer:
    if not isinstance(value, str):  # BIRD's own scripts write 0 where a model said nothing
        return Answer(where)
    query, mark, database = value.rpartition(f"\t{BIRD_MARK}\t")
    return Answer(where, query=query if mark else value, database=database.strip() if mark else None)


def _lines(path: Path, text: str, asked: Mapping[str, Answer] | None) -> Iterator[tuple[str, Answer]]:
    lines = text.split("\n")
    while lines and not lines[-1].strip() and str(len(lines) - 1) not in (asked or {}):
        lines.pop()
    named = asked is None or _all_named(lines, {answer.database for answer in asked.values()})
    for number, line in enumerate(lines):
        query, database = _split(line) if named else (line, None)
        yield str(number), Answer(f"{path}, line {number + 1}", query=query.strip() or None, database=database)


def _all_named(lines: list[str], databases: set[str | None]) -> bool:
    tails = [_split(line)[1] or "" for line in lines if line.strip()]
    known = databases - {None}
    return all(tail in known if known else tail.isidentifier() for tail in tails)


def _split(line: str) -> tuple[str, str | None]:
    """(query, database); a line that has no tab but at its ends is all query."""
    query, _, database = line.strip("\r\n").rpartition("\t") if "\t" in line.strip() else (line, "", "")
    return query, database.strip() or None
