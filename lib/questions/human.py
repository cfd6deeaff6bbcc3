"""Questions that people asked, for evaluation and audit only: with reference rows, and with what is wrong with them said first.

BIRD's 186 questions come with SQL, which gives their reference rows; a Cypher answer to each was written by hand
(human_answers.yaml) and must return the same rows from the graph, or the difference is explained. A person's own
questions load the same way from a JSONL file. Every question gets a status before any model's output is seen.

No module that makes training questions may import this one or read its files; tests/test_human.py proves that none does.

    python -m lib.questions.human --bird data/raw/bird/dev.json --sqlite data/raw/bird/codebase_community.sqlite
    python -m lib.questions.human --own mine.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib import loop
from lib.files import write_json, write_jsonl
from lib.graph import server
from lib.graph.query import CAP, QueryError, Reader, Unavailable
from lib.questions import sql
from lib.questions.human_sources import RELEASE, Asked, HumanError, bird, own
from lib.questions.sql import Rows, SqlError
from lib.questions.verify import steady
from lib.reward import score
from lib.settings import ROOT

SPLIT = "human"
FILE, SUMMARY = f"{SPLIT}.jsonl", f"{SPLIT}_summary.json"
TIMEOUT = 120.0  # seconds of a Cypher answer, as in evaluation

SUSPECT, EMPTY, TIED = "suspected wrong reference", "empty", "tied at the cut"
DISAGREE, AMBIGUOUS, USABLE = "SQL and Cypher disagree", "ambiguous name", "usable"
STATUSES = (SUSPECT, EMPTY, TIED, DISAGREE, AMBIGUOUS, USABLE)  # a question's is the first that fits
DIFFICULTIES = ("simple", "moderate", "challenging")

Line = dict[str, Any]


def make(asked: Sequence[Asked], uri: str, database: Path | None, out: Path) -> dict[str, Any]:
    """Write human.jsonl and human_summary.json to folder `out`; return the summary.

    A line has the fields of a generated question (structure is None, hops is 0 where no Cypher is known, `query` asks for
    the reference rows) and besides: sql, status, reason, bird_difficulty, and `answer`, the Cypher that answers the words:
    {query, right: whether it returns the reference rows, rows: what it returns where they differ}.

    uri: a server that holds the graph. database: the SQLite file for questions with SQL. The same questions, graph and
    file give the same bytes.

    Raises HumanError naming the question whose reference can't be had, Unavailable for a lost server.
    """
    lines = loop.run(_lines(asked, uri, database))
    write_jsonl(out / FILE, lines)
    summary = summarise(lines, hashlib.sha256((out / FILE).read_bytes()).hexdigest())
    write_json(out / SUMMARY, summary)
    return summary


async def _lines(asked: Sequence[Asked], uri: str, database: Path | None) -> list[Line]:
    if database is None and (needs := [a.id for a in asked if a.sql]):
        raise HumanError(f"{needs[0]} has its answer in SQL: name the SQLite file to run it on (--sqlite)")
    reader = Reader(uri, at_once=4, timeout=TIMEOUT)
    try:
        if database is None:
            return [await _line(a, reader, None) for a in tqdm(asked, desc=SPLIT, unit="question")]
        with sql.opened(database) as connection:
            return [await _line(a, reader, connection) for a in tqdm(asked, desc=SPLIT, unit="question")]
    except SqlError as e:
        raise HumanError(str(e)) from e
    finally:
        await reader.close()


async def _line(asked: Asked, reader: Reader, connection: sqlite3.Connection | None) -> Line:
    found = await _found(asked.repeats, reader)
    rows = _by_sql(asked, connection) if asked.sql and connection else found
    if not isinstance(rows, list):
        raise HumanError(f"{asked.id}: its Cypher {rows}")
    words = found if asked.words == asked.repeats else await _found(asked.words, reader)
    reasons = _reasons(asked, _kept(rows, asked), found, words, connection)
    right = isinstance(words, list) and score(words, rows).strict
    hops = 0 if asked.repeats is None else len(re.findall(r"-\[[^\]]*\]-", asked.repeats))
    return {
        "id": asked.id,
        "question": asked.question,
        "hint": asked.hint,
        "query": asked.repeats,
        "rows": _kept(rows, asked),
        "ordered": asked.ordered,
        "structure": None,
        "hops": hops,
        "split": SPLIT,
        "source": asked.source,
        "difficulty": {"hops": hops},
        "bird_difficulty": asked.difficulty,
        "sql": asked.sql,
        "status": next((status for status in STATUSES if status in reasons), USABLE),
        "reason": "; ".join(reasons[status] for status in (*STATUSES, _NOTE) if status in reasons) or None,
        "answer": {
            "query": asked.words,
            "right": right,
            "rows": None if right or not isinstance(words, list) else _kept(words, asked),
        },
    }


def _kept(rows: Rows, asked: Asked) -> Rows:
    """In an order of their own unless theirs counts, floats to the digits that don't depend on the order of adding."""
    rows = [[steady(value) for value in row] for row in rows]
    return rows if asked.ordered else sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, ensure_ascii=False))


def _by_sql(asked: Asked, connection: sqlite3.Connection) -> Rows:
    assert asked.sql is not None
    try:
        return sql.run(connection, asked.sql)
    except SqlError as e:
        raise HumanError(f"{asked.id}: its SQL {e}") from e


async def _found(query: str | None, reader: Reader) -> Rows | str:
    """The query's rows, or why there are none."""
    if query is None:
        return "isn't known"
    try:
        found = await reader.run(query, CAP)
    except QueryError as e:
        return f"fails ({e.message})"
    return f"returns more than {CAP:,} rows" if found.cut else found.rows


_NOTE = "note"  # what changes no status


def _reasons(
    asked: Asked, rows: Rows, found: Rows | str, words: Rows | str, connection: sqlite3.Connection | None
) -> dict[str, str]:
    """Each status that fits, with its reason; and a note."""
    reasons = {}
    if is_empty(rows):
        reasons[EMPTY] = "no rows" if not rows else "nothing but NULL and zero, which a wrong query returns as easily"
    if asked.sql is None or connection is None:
        return reasons
    if asked.suspect is not None:
        wrong = not isinstance(words, list) or not score(words, rows).strict
        # What can be wrong with a query need not show in every database.
        which = SUSPECT if wrong else _NOTE
        reasons[which] = f"the SQL {asked.suspect}" + ("" if wrong else ", which makes no difference here")
    if (why := sql.tied(connection, asked.sql)) is not None:
        reasons[TIED] = why
    if isinstance(found, str):
        if asked.repeats is not None:
            reasons[DISAGREE] = f"the Cypher {found}"
    elif not score(found, rows).strict:
        reasons[DISAGREE] = f"the SQL returns {len(rows)} rows, the Cypher {len(found)}, and they aren't the same"
    if (users := _namesakes(sql.names(asked.sql), connection)) > 1:
        reasons[AMBIGUOUS] = f"{users} users have a name in the question"
    return reasons


def _namesakes(names: Sequence[str], connection: sqlite3.Connection) -> int:
    """How many users have the one of the names that most have."""
    counts = [0]
    for name in names:
        literal = "'" + name.replace("'", "''") + "'"
        try:
            counts += sql.run(connection, f"SELECT COUNT(*) FROM users WHERE DisplayName = {literal}")[0]
        except SqlError:  # a database of one's own need not have such a table
            break
    return max(counts)


def is_empty(rows: Rows) -> bool:
    """Whether rows say nothing: none, or nothing but NULL and zero."""
    return all(value is None or (not isinstance(value, str) and value == 0) for row in rows for value in row)


def summarise(lines: Sequence[Line], sha256: str) -> dict[str, Any]:
    """Counts of lines as `make` writes them. sha256: of their file."""
    by_status = {status: [line for line in lines if line["status"] == status] for status in STATUSES}
    difficulties = Counter(str(line["bird_difficulty"]) for line in lines)
    in_order = [d for d in DIFFICULTIES if d in difficulties] + sorted(set(difficulties) - set(DIFFICULTIES))
    return {
        "sha256": sha256,
        "release": {"name": RELEASE.name, "sha256": RELEASE.sha256}
        if any(line["source"] == "human" for line in lines)
        else None,
        "questions": len(lines),
        "sources": dict(sorted(Counter(line["source"] for line in lines).items())),
        "hints": sum(line["hint"] is not None for line in lines),
        "not_empty": sum(not is_empty(line["rows"]) for line in lines),
        "answers_right": sum(line["answer"]["right"] for line in lines),
        "difficulties": {name: difficulties[name] for name in in_order},
        "statuses": {status: len(found) for status, found in by_status.items()},
        "by_difficulty": {
            status: {name: sum(str(line["bird_difficulty"]) == name for line in found) for name in in_order}
            for status, found in by_status.items()
        },
        "reasons": {line["id"]: line["reason"] for line in lines if line["reason"] is not None},
    }


def frozen(folder: Path) -> dict[str, Any]:
    """What the plan writes down of the human set before any model answers: its hash, and each question's status.

    folder: where `make` wrote. Returns {sha256, release, questions, statuses: {status: [ids]}, clean: the status of the
    questions that results are shown with apart}. Raises HumanError where a file is missing, or isn't the one that the
    summary was made of.
    """
    try:
        written = (folder / FILE).read_bytes()
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise HumanError(
            f"{Path(str(e.filename)).name} is missing: make it with `python -m lib.questions.human`"
        ) from e
    found = hashlib.sha256(written).hexdigest()
    if found != summary["sha256"]:
        raise HumanError(
            f"{FILE} has the sha256 {found}, its summary another one ({summary['sha256']}): make both anew"
        )
    lines = [json.loads(line) for line in written.decode().splitlines()]
    return {
        "sha256": found,
        "release": summary["release"],
        "questions": len(lines),
        "statuses": {status: [line["id"] for line in lines if line["status"] == status] for status in STATUSES},
        "clean": USABLE,
    }


# ---------------------------------------------------------------- the command


def twin_file(graph: Path, path: Path) -> Path:
    """The SQLite file of the twin that a graph's folder was made of, written to `path` unless it is there.

    Raises HumanError where the graph is no twin: its source has a file of its own, or none.
    """
    about = json.loads((graph / "counts.json").read_text(encoding="utf-8"))
    if not path.exists():
        if about["source"] != "twin":
            raise HumanError(
                f"{path} is no file, and only a twin's can be made; the graph's source is {about['source']}"
            )
        from lib.graph.twin import tables

        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)
        sql.write(part, tables(about["scale"], about["seed"])).rename(path)
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.questions.human",
        description="Gives people's questions their reference rows and a status, and writes human.jsonl and "
        "human_summary.json.",
    )
    parser.add_argument(
        "--bird", type=Path, metavar="JSON", help="BIRD's questions: dev.json, or those of this database"
    )
    parser.add_argument("--own", type=Path, metavar="JSONL", help="your own: `question` and `query` or `sql` a line")
    parser.add_argument(
        "--sqlite", type=Path, metavar="FILE", help="what SQL runs on; made where it is missing and the graph is a twin"
    )
    parser.add_argument("--graph", type=Path, default=ROOT / "data" / "graph", help="folder of the graph that is asked")
    parser.add_argument("--out", type=Path, default=ROOT / "data" / SPLIT, help="folder of what is written")
    chosen = parser.parse_args(arguments)
    if chosen.bird is None and chosen.own is None:
        parser.error("name questions: --bird, --own or both")
    try:
        asked = (bird(chosen.bird) if chosen.bird else []) + (own(chosen.own) if chosen.own else [])
        with server.running(chosen.graph) as uri:
            database = twin_file(chosen.graph, chosen.sqlite) if chosen.sqlite else None
            summary = make(asked, uri, database, chosen.out)
    except (HumanError, server.ServerError, Unavailable, OSError) as e:
        sys.exit(f"human: {e}")
    print(json.dumps({key: summary[key] for key in ("questions", "hints", "not_empty", "statuses")}, indent=1))


if __name__ == "__main__":
    main()
