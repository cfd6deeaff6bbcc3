"""Scores files of answers from the command line, for people with predictions of their own: `python -m lib.reward`.

What fails is put where it belongs: a prediction's query that fails is a wrong answer; a reference query that fails says
nothing about the prediction, whose question is left out and named; a database that can't be asked ends the command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib.answers import Answer, read
from lib.databases import Database, DatabaseFault, Graph, QueryFault, SQLite
from lib.files import write_text
from lib.reward import PRESETS, Score, score

SCORED, SOME_LEFT_OUT, UNUSABLE, DATABASE_GONE = range(4)  # exit codes
RATES = ("strict", "lenient", "lenient_literal", "f1", "reward")
NEITHER = "it has a query: say where to run it, with --sqlite, --graph or --neo4j"

EPILOG = """
Files, by their ending (a question has the same id in both):
  .jsonl   an object a line: `id`, and `rows` or `query` (null: no answer); `db_id` and `ordered` (true where the order
           of the rows counts) may be there. The study's own questions, data/questions/*.jsonl, are such files; the study
           scores their rows in any order.
  .json    BIRD's predictions {"0": "SELECT ...\\t----- bird -----\\tdb_id"}, or BIRD's or Spider's questions (dev.json)
  others   a query a line (Spider), in GOLD followed by a tab and the database's name (BIRD, Spider); in PRED, too, if
           each line has one, else a tab is part of its query

Examples:
  python -m lib.reward gold.jsonl mine.jsonl
  python -m lib.reward dev_gold.sql predict_dev.json --preset bird-ex --sqlite dev_databases
  python -m lib.reward dev_gold.sql predicted.sql --sqlite spider/database --items verdicts.jsonl
  python -m lib.reward data/questions/dev.jsonl mine.jsonl --graph data/graph
  NEO4J_URI=bolt://localhost:7687 NEO4J_PASSWORD=... python -m lib.reward gold.jsonl mine.jsonl --neo4j

Of each question are printed: strict, lenient, lenient_literal, f1, reward, extra_columns, flagged (why the verdict
deserves a look), error (why the prediction has no rows) and gold_error (why the reference has none: then there is no
verdict, and the question is left out of the totals). docs/scoring.md shows what each counts as right.

Queries can only read. On SQLite each runs in a process of its own, whose CPU time is limited; on a graph the server
counts the time. The exit code is 0 where every question has a verdict, 1 where some references failed, 2 where the
files can't be used, 3 where a database can't be asked: then nothing is scored, since that is no model's mistake.
"""


def pairs(gold_file: Path, pred_file: Path, missing_are_wrong: bool) -> dict[str, tuple[Answer, Answer]]:
    """(reference, prediction) by id, in the order of the reference's file.

    Raises ValueError where the files don't belong together or can't be used, OSError where one can't be read.
    """
    gold = read(gold_file)
    pred = read(pred_file, gold)
    for want in gold.values():
        if want.rows is None and want.query is None:
            raise ValueError(f"{want.where}: a reference needs rows or a query")
    if unknown := pred.keys() - gold.keys():
        raise ValueError(_differ(unknown, f"of {pred_file} are not in {gold_file}", "are these two a pair?"))
    if (missing := gold.keys() - pred.keys()) and not missing_are_wrong:
        way_out = "add them, or count them as wrong with --missing-are-wrong"
        raise ValueError(_differ(missing, f"of {gold_file} are missing in {pred_file}", way_out))
    found = {name: (want, pred.get(name, Answer("missing"))) for name, want in gold.items()}
    for want, got in found.values():
        if want.database and got.database and want.database != got.database:
            raise ValueError(
                f"{got.where} is about database {got.database!r}, but {want.where} about {want.database!r}"
            )
    return found


def _differ(names: set[str], where: str, way_out: str) -> str:
    shown = ", ".join(sorted(names)[:5]) + (" ..." if len(names) > 5 else "")
    return f"{len(names)} ids {where}: {shown}; {way_out}"


def verdict(want: Answer, got: Answer, preset: str, database: Database | None) -> dict[str, Any]:
    """The fields of a Score, `error` and `gold_error`; the Score's are None where the reference failed."""
    name = want.database or got.database
    reference, gold_error = _rows(want, database, name)
    if reference is None:
        return {**dict.fromkeys(Score._fields), "error": None, "gold_error": gold_error}
    rows, error = _rows(got, database, name)
    return {**score(rows, reference, preset, want.ordered)._asdict(), "error": error, "gold_error": None}


def _rows(answer: Answer, database: Database | None, name: str | None) -> tuple[list[Any] | None, str | None]:
    """(rows, why there are none)."""
    if answer.rows is not None:
        return answer.rows, None
    if answer.query is None:
        return None, "no answer"
    assert database is not None
    try:
        return database.run(answer.query, name), None
    except QueryFault as e:
        return None, str(e)


def totals(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates over the questions that have a verdict (None where there is none), and counts of what deserves a look."""
    scored = [v for v in verdicts if v["gold_error"] is None]
    rates = {name: round(sum(v[name] for v in scored) / len(scored), 6) if scored else None for name in RATES}
    counts = {
        "with_extra_columns": sum(v["extra_columns"] > 0 for v in scored),
        "flagged": sum(bool(v["flagged"]) for v in scored),
        "without_rows": sum(v["error"] is not None for v in scored),
        "left_out": len(verdicts) - len(scored),
    }
    return {"items": len(scored), **rates, **counts}


@contextlib.contextmanager
def _database(options: argparse.Namespace) -> Iterator[Database | None]:
    if options.sqlite:
        with contextlib.closing(SQLite(options.sqlite, options.seconds, options.most_rows)) as database:
            yield database
    elif options.graph or options.neo4j:
        with (
            _address(options.graph) as uri,
            contextlib.closing(Graph(uri, options.seconds, options.most_rows)) as graph,
        ):
            yield graph
    else:
        yield None


@contextlib.contextmanager
def _address(folder: Path | None) -> Iterator[str]:
    from lib.graph import server
    from lib.graph.jars import JarError

    if folder is None:
        if not (uri := os.environ.get("NEO4J_URI")):
            raise ValueError("--neo4j asks the database that NEO4J_URI names, and it isn't set; see --help")
        yield uri
        return
    with contextlib.ExitStack() as stack:
        try:
            uri = stack.enter_context(server.running(folder))
        except (server.ServerError, JarError) as e:
            raise DatabaseFault(str(e)) from e
        yield uri


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lib.reward",
        description="Score a file of answers against reference answers, rows or queries. Prints a JSON line per question,\n"
        "in the order of GOLD, and a last one with the rates over all of them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("gold", type=Path, metavar="GOLD", help="the reference answers")
    parser.add_argument("pred", type=Path, metavar="PRED", help="the answers to score")
    parser.add_argument("--preset", choices=PRESETS, default="graph", help="rules of comparison (default: %(default)s)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--sqlite", type=Path, metavar="PATH", help="run SQL on this file, or on PATH/<db_id>/<db_id>.sqlite"
    )
    where.add_argument(
        "--graph", type=Path, metavar="FOLDER", help="run Cypher on a built graph, loaded by the pipeline"
    )
    where.add_argument("--neo4j", action="store_true", help="run Cypher on the database that NEO4J_URI names, as it is")
    parser.add_argument(
        "--seconds", type=_positive, default=30.0, metavar="S", help="a query may take (default: %(default)g)"
    )
    parser.add_argument(
        "--most-rows", type=int, default=1_000_000, metavar="N",
        help="a query may return (default: %(default)s; 25,000 at most on a graph)",
    )  # fmt: skip
    parser.add_argument(
        "--items", type=Path, metavar="FILE", help="write the lines per question to FILE, not to stdout"
    )
    parser.add_argument("--missing-are-wrong", action="store_true", help="score ids that PRED lacks as no result")
    return parser


def _positive(text: str) -> float:
    if not 0 < (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time above 0")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        found = pairs(options.gold, options.pred, options.missing_are_wrong)
        if not (options.sqlite or options.graph or options.neo4j):
            for answer in (answer for pair in found.values() for answer in pair):
                if answer.query is not None:
                    raise ValueError(f"{answer.where}: {NEITHER}")
        lines = []
        with _database(options) as database:
            for name, (want, got) in tqdm(found.items(), disable=None, unit="question", delay=2):
                lines.append({"id": name, **verdict(want, got, options.preset, database)})
        printed = "".join(json.dumps(line) + "\n" for line in lines)
        if options.items:
            write_text(options.items, printed)
    except (OSError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return UNUSABLE
    except DatabaseFault as e:
        print(f"error: {e}; nothing is scored, since this is no model's mistake", file=sys.stderr)
        return DATABASE_GONE
    _print(("" if options.items else printed) + json.dumps({"total": totals(lines)}) + "\n")
    for line in lines:
        if line["gold_error"] is not None:
            print(f"left out: {found[line['id']][0].where}: {line['gold_error']}", file=sys.stderr)
    return SOME_LEFT_OUT if any(line["gold_error"] is not None for line in lines) else SCORED


def _print(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:  # whoever reads has seen enough (`| head`); Python would try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
