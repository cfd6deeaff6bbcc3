"""Questions that people asked, for evaluation and audit only: with reference rows, and with what is wrong with them said first.

BIRD's 186 questions come with SQL, which gives their reference rows; a Cypher answer to each was written by hand
(human_answers.yaml) and must return the same rows from the graph, or the difference is explained. A person's own
questions load the same way from a JSONL file. Every question gets a status before any model's output is seen.

No module that makes training questions may import this one or read its files; tests/test_human.py proves that none does.

The rule for "suspected wrong reference": the SQL returns other rows than the words ask for, by the study's own scoring.
That counts rows, so a reference that repeats a user for each of their badges, comments or posts, where the words ask for
users, is suspected as well, although sets of rows, which is how BIRD compares, see no difference: it would call the
answer to the words wrong and the repetition right. Nine of BIRD's are suspected for that alone. Where such a fault makes
no difference in a graph, the question is usable there, with a note.

    python -m lib.questions.human    # asks what params.yaml names as human.questions
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib import human_set, loop
from lib.graph import server
from lib.graph.query import CAP, QueryError, Reader, Unavailable
from lib.human_set import AMBIGUOUS, DISAGREE, EMPTY, STATUSES, SUSPECT, TIED, USABLE, HumanError, Line, is_empty
from lib.questions import sql
from lib.questions.human_sources import RELEASE, Asked, asked_in
from lib.questions.sql import Rows, SqlError
from lib.questions.verify import steady
from lib.reward import score
from lib.settings import HUMAN, ROOT, Settings, SettingsError, load

TIMEOUT = 120.0  # seconds of a Cypher answer, as in evaluation


def make(asked: Sequence[Asked], uri: str, database: Path | None, out: Path) -> dict[str, Any]:
    """Write human.jsonl and human_summary.json to folder `out`; return the summary.

    A line has the fields of a generated question (structure is None, hops is 0 where no Cypher is known, `query` returns
    the reference rows, None where no Cypher is known that does) and besides: sql, status, reason, bird_difficulty, and
    `answer`, the Cypher that answers the words: {query, right: whether it returns the reference rows, rows: what it
    returns where they differ}.

    uri: a server that holds the graph. database: the SQLite file for questions with SQL. The same questions, graph and
    file give the same bytes.

    Raises HumanError naming the question whose reference can't be had, Unavailable for a lost server.
    """
    release = {"name": RELEASE.name, "sha256": RELEASE.sha256} if any(a.source == HUMAN for a in asked) else None
    return human_set.write(loop.run(_lines(asked, uri, database)), release, out)


async def _lines(asked: Sequence[Asked], uri: str, database: Path | None) -> list[Line]:
    if database is None and (needs := [a.id for a in asked if a.sql]):
        raise HumanError(
            f"{needs[0]} has its answer in SQL, which runs on the SQLite file behind a graph of source bird or twin alone: "
            "give its answer in Cypher (`query`)"
        )
    reader = Reader(uri, at_once=4, timeout=TIMEOUT)
    try:
        if database is None:
            return [await _line(a, reader, None) for a in tqdm(asked, desc=HUMAN, unit="question")]
        with sql.opened(database) as connection:
            return [await _line(a, reader, connection) for a in tqdm(asked, desc=HUMAN, unit="question")]
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
    repeated = isinstance(found, list) and score(found, rows).strict
    right = isinstance(words, list) and score(words, rows).strict
    hops = 0 if asked.repeats is None else len(re.findall(r"-\[[^\]]*\]-", asked.repeats))
    return {
        "id": asked.id,
        "question": asked.question,
        "hint": asked.hint,
        "query": asked.repeats if repeated else None,
        "rows": _kept(rows, asked),
        "ordered": asked.ordered,
        "structure": None,
        "hops": hops,
        "split": HUMAN,
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


# ---------------------------------------------------------------- the command


def make_for(settings: Settings) -> dict[str, Any]:
    """Write data/human for a run: the questions in the file human.questions, judged on its graph; none where it is empty.

    Returns the summary. Raises HumanError, server.ServerError and Unavailable.
    """
    if not settings.human.questions:
        return human_set.write([], None, settings.human_dir)
    asked = asked_in(Path(settings.human.questions))
    with server.running(settings.graph_dir, settings.data) as uri:
        if not any(a.sql for a in asked):
            return make(asked, uri, None, settings.human_dir)
        with _sqlite(settings) as database:
            return make(asked, uri, database, settings.human_dir)


@contextmanager
def _sqlite(settings: Settings) -> Iterator[Path | None]:
    """The SQLite file whose tables became the graph; a twin's is made and removed. None where the source has no such file."""
    about = json.loads((settings.graph_dir / "counts.json").read_text(encoding="utf-8"))
    if about["source"] != "twin":
        yield Path(settings.graph.path) if about["source"] == "bird" else None
        return
    from lib.graph.twin import tables

    work = settings.data / "work" / HUMAN
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield sql.write(work / "twin.sqlite", tables(about["scale"], about["seed"]))
    finally:
        shutil.rmtree(work)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.questions.human",
        description="Gives the people's questions that params.yaml names their reference rows and a status.",
    )
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    chosen = parser.parse_args(arguments)
    try:
        settings = load(chosen.params, chosen.data)
        summary = make_for(settings)
    except (HumanError, SettingsError, server.ServerError, Unavailable, OSError) as e:
        sys.exit(f"human: {e}")
    if not summary["questions"]:
        print("human.questions in params.yaml is empty: no people's questions are asked in this run")
        return
    for name, reason in human_set.frozen(settings.human_dir)["reasons"].items():
        print(f"{name}: {reason}")
    print(json.dumps({key: summary[key] for key in ("questions", "hints", "not_empty", "statuses")}, indent=1))


if __name__ == "__main__":
    main()
