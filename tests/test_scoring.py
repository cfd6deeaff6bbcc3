"""The command that scores files of answers: what it reads, where it runs queries, and whose fault a failure is."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lib.answers import Answer, read
from lib.databases import DatabaseFault, QueryFault, SQLite
from lib.scoring import main

REPOSITORY = Path(__file__).parent.parent
# one call of a function, within which SQLite looks at no clock: ten million places, ten million bytes compared at each
ENDLESS = "SELECT instr(zeroblob(20000000), CAST(zeroblob(10000000) || x'01' AS BLOB))"


def write(path: Path, lines: list[dict]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict], dict, str]:
    """(exit code, lines by question, totals, what was said on stderr)."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    return code, lines[:-1], lines[-1]["total"] if lines else {}, captured.err


@pytest.fixture
def gold(tmp_path: Path) -> str:
    return write(
        tmp_path / "gold.jsonl",
        [{"id": "q1", "rows": [[1], [2]], "ordered": True}, {"id": "q2", "rows": [["a"]]}, {"id": 3, "rows": [[True]]}],
    )


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as BIRD and Spider have it, with one database, `pets`."""
    folder = tmp_path_factory.mktemp("databases")
    (folder / "pets").mkdir()
    with sqlite3.connect(folder / "pets" / "pets.sqlite") as connection:
        connection.execute("CREATE TABLE pet (name TEXT, age INTEGER, note)")
        rows = [("ann", 3, None), ("bob", 4, ""), ("cid", 4, b"\x00")]
        connection.executemany("INSERT INTO pet VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO pet VALUES (CAST(x'ff41' AS TEXT), 9, 1.5)")
    return folder


@pytest.fixture(scope="module")
def asked(databases: Path):
    with_limits = SQLite(databases, 1.0, 1000)
    yield with_limits
    with_limits.close()


# --- rows


def test_it_prints_verdicts_and_totals(tmp_path, gold):
    pred = write(
        tmp_path / "pred.jsonl",
        [{"id": 3, "rows": None}, {"id": "q1", "rows": [[2], [1]]}, {"id": "q2", "rows": [["a", 0]]}],
    )
    command = [sys.executable, "-m", "lib.reward", gold, pred]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("id") for line in lines] == ["q1", "q2", "3", None]
    assert lines[0]["strict"] is False and lines[0]["f1"] == 1.0 and lines[1]["lenient"] is True
    assert [line.get("error") for line in lines[:3]] == [None, None, "no answer"]
    total = lines[-1]["total"]
    assert (total["items"], total["strict"], total["with_extra_columns"], total["without_rows"]) == (3, 0.0, 1, 1)
    assert total["lenient"] == pytest.approx(1 / 3, abs=1e-6)


def test_items_go_to_a_file_if_told(tmp_path, gold, capsys):
    code, lines, total, _ = run(capsys, gold, gold, "--items", tmp_path / "new" / "items.jsonl")
    assert (code, lines, total["strict"]) == (0, [], 1.0)
    written = [json.loads(line) for line in (tmp_path / "new" / "items.jsonl").read_text().splitlines()]
    assert [(line["id"], line["strict"]) for line in written] == [("q1", True), ("q2", True), ("3", True)]


def test_presets_and_help(tmp_path, gold, capsys):
    rows = (("q1", [[2], [1]]), ("q2", []), ("3", [[1]]))
    pred = write(tmp_path / "pred.jsonl", [{"id": name, "rows": found} for name, found in rows])
    assert run(capsys, gold, pred, "--preset", "bird-ex")[2]["strict"] == pytest.approx(2 / 3, abs=1e-6)
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0 and "----- bird -----" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "q1", "rows": [[1]]}\n{"id": "q2", "ro', "pred.jsonl, line 2: no JSON"),
        ('{"id": "q1"}\n', "line 1: need an object with `id` and `rows`, or `id` and `query`"),
        ('{"id": "q1", "rows": "x"}\n', "line 1: `rows` of 'q1' must be a list of rows"),
        ('{"id": "q1", "query": 7}\n', "line 1: `query` of 'q1' must be a text"),
        ('{"id": "q1", "rows": []}\n{"id": "q1", "rows": []}\n', "line 2: id 'q1' was there before, in .*line 1"),
        ('{"id": "q1", "rows": []}\n', "2 ids of .* are missing in .*: 3, q2; .*--missing-are-wrong"),
        ('{"id": "q9", "rows": []}\n', "1 ids of .* are not in .*: q9"),
        ('{"id": "q1", "rows": ' + "[" * 100_000 + "\n", "line 1: no JSON"),
        (
            "".join(f'{{"id": "{n}", "query": "SELECT 1"}}\n' for n in ("q1", "q2", 3)),
            "line 1: it has a query: .*--sqlite",
        ),
        ("", "no answers in it"),
        ("\xff\xfe", "no UTF-8"),
    ],
)
def test_it_names_what_is_wrong_with_a_file(tmp_path, gold, capsys, content, message):
    pred = tmp_path / "pred.jsonl"
    pred.write_text(content, encoding="latin-1")
    code, lines, _, said = run(capsys, gold, pred)
    assert (code, lines) == (2, []) and said.startswith("error: ")
    assert re.search(message, said)


def test_missing_answers_are_wrong_if_told(tmp_path, gold, capsys):
    pred = write(tmp_path / "pred.jsonl", [{"id": "q2", "rows": [["a"]]}])
    code, lines, total, _ = run(capsys, gold, pred, "--missing-are-wrong")
    assert code == 0 and total["strict"] == pytest.approx(1 / 3, abs=1e-6) and lines[0]["error"] == "no answer"
    code, _, _, said = run(capsys, gold, tmp_path / "none.jsonl")
    assert code == 2 and "none.jsonl" in said


# --- forms of files


def test_blank_lines_at_the_end_of_predictions_are_no_answers(tmp_path, databases, capsys):
    gold, pred = tmp_path / "gold.sql", tmp_path / "predicted.sql"
    gold.write_text("SELECT age FROM pet\tpets\nSELECT name FROM pet\tpets\nSELECT 1\tpets\n")
    pred.write_text("SELECT age FROM pet\n\n\n")
    code, lines, _, _ = run(capsys, gold, pred, "--sqlite", databases)
    assert code == 0 and [line["error"] for line in lines] == [None, "no answer", "no answer"]


def test_a_tab_in_a_predicted_query_is_a_blank_of_it(tmp_path, databases, capsys):
    gold, pred = tmp_path / "gold.sql", tmp_path / "predicted.sql"
    gold.write_text("SELECT age FROM pet\tpets\nSELECT name FROM pet\tpets\n")
    for text in ("SELECT\tage FROM pet\nSELECT name\tFROM pet\n", "SELECT age FROM pet\nSELECT\tname FROM\tpet\n",
                 "SELECT\tage FROM pet\tpets\nSELECT name FROM pet\tpets\n"):  # fmt: skip
        pred.write_text(text)
        code, lines, _, _ = run(capsys, gold, pred, "--sqlite", databases)
        assert code == 0 and [line["strict"] for line in lines] == [True, True]
    pred.write_text(json.dumps({"0": "SELECT\tage FROM pet\t----- bird -----\tpets", "1": "SELECT\tname FROM pet"}))
    pred = pred.rename(tmp_path / "predicted.json")
    assert [line["strict"] for line in run(capsys, gold, pred, "--sqlite", databases)[1]] == [True, True]


def test_databases_that_only_the_predictions_name_are_theirs(tmp_path, databases, capsys):
    gold = write(tmp_path / "gold.jsonl", [{"id": 0, "rows": [[4]]}])
    (tmp_path / "pred.sql").write_text("SELECT count(*) FROM pet\tpets\n")
    code, lines, _, _ = run(capsys, gold, tmp_path / "pred.sql", "--sqlite", databases)
    assert code == 0 and lines[0]["strict"]


def test_a_reader_that_has_seen_enough_breaks_nothing(tmp_path):
    many = [{"id": n, "rows": [[n]]} for n in range(3000)]  # more than a pipe holds
    gold = write(tmp_path / "gold.jsonl", many)
    command = [sys.executable, "-m", "lib.reward", gold, gold]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["strict"] is True
        process.stdout.close()
        assert process.wait() == 0 and process.stderr.read() == b""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gold.jsonl", '{"id": 1, "rows": [[1]], "ordered": "true"}\n', "`ordered`"),
        ("gold.json", '{"0": "SELECT 1", "0": "SELECT 2"}', "'0' is there twice"),
    ],
)
def test_what_would_be_misread_in_silence_is_refused(tmp_path, capsys, name, text, said):
    (tmp_path / name).write_text(text)
    (tmp_path / "pred.jsonl").write_text('{"id": 1, "rows": [[1]]}\n')
    code, _, _, err = run(capsys, tmp_path / name, tmp_path / "pred.jsonl")
    assert code == 2 and said in err


def test_an_empty_answer_to_an_unknown_question_is_named(tmp_path, capsys):
    (tmp_path / "gold.jsonl").write_text('{"id": 1, "rows": [[1]]}\n')
    (tmp_path / "pred.jsonl").write_text('{"id": 1, "rows": [[1]]}\n{"id": 2, "rows": null}\n')
    code, _, _, err = run(capsys, tmp_path / "gold.jsonl", tmp_path / "pred.jsonl")
    assert code == 2 and "1 ids of" in err


def test_birds_files(tmp_path, databases, capsys):
    gold, pred = tmp_path / "dev_gold.sql", tmp_path / "predict_dev.json"
    gold.write_text("SELECT age FROM pet\tpets\nSELECT name, age FROM pet WHERE age = 4\tpets\nSELECT 1 \t pets\n\n")
    mark = "\t----- bird -----\tpets"
    pred.write_text(
        json.dumps({"0": f"SELECT DISTINCT age FROM pet{mark}", "1": f"SELECT age, name FROM pet{mark}", "2": 0})
    )
    code, lines, total, _ = run(capsys, gold, pred, "--preset", "bird-ex", "--sqlite", databases)
    assert code == 0 and [line["strict"] for line in lines] == [True, False, False]
    assert [line["error"] for line in lines] == [None, None, "no answer"] and total["items"] == 3
    questions = [
        {"question_id": 7, "db_id": "pets", "SQL": line.split("\t")[0]} for line in gold.read_text().split("\n")[:3]
    ]
    (tmp_path / "dev.json").write_text(json.dumps(questions))
    assert run(capsys, tmp_path / "dev.json", pred, "--preset", "bird-ex", "--sqlite", databases)[1] == lines
    pred.write_text(pred.read_text().replace("pets", "cars"))
    code, _, _, said = run(capsys, gold, pred, "--sqlite", databases)
    assert code == 2 and "entry '0' is about database 'cars'" in said and "line 1 about 'pets'" in said


def test_spiders_files(tmp_path, databases, capsys):
    gold, pred = tmp_path / "gold.txt", tmp_path / "pred.txt"
    gold.write_text("SELECT name\tFROM pet WHERE age = 3\tpets\r\nSELECT count(*) FROM pet\tpets\r\nSELECT 2\tpets\n")
    pred.write_text("SELECT name FROM pet WHERE age = 3\n\nSELECT 1 + 1\n")
    code, lines, _, _ = run(capsys, gold, pred, "--sqlite", databases)
    assert code == 0 and [line["strict"] for line in lines] == [True, False, True] and lines[1]["error"] == "no answer"
    one_file = run(capsys, gold, pred, "--sqlite", databases / "pets" / "pets.sqlite")
    assert one_file[1] == lines


def test_a_reference_that_is_missing_is_named(tmp_path, databases, capsys):
    (tmp_path / "gold.sql").write_text("SELECT 1\tpets\n\nSELECT 2\tpets\n")
    code, _, _, said = run(capsys, tmp_path / "gold.sql", tmp_path / "gold.sql", "--sqlite", databases)
    assert code == 2 and "line 2: a reference needs rows or a query" in said


def test_rows_go_before_the_query_that_gave_them(tmp_path):
    path = tmp_path / "gold.jsonl"
    write(path, [{"id": 1, "rows": [[1]], "query": "RETURN 1", "question": "?"}, {"id": 2, "query": "RETURN 2"}])
    assert read(path) == {
        "1": Answer(f"{path}, line 1", rows=[[1]]),
        "2": Answer(f"{path}, line 2", query="RETURN 2"),
    }


# --- whose fault


def test_a_reference_that_fails_is_no_mistake_of_the_prediction(tmp_path, databases, capsys):
    queries = ["SELECT nope FROM pet", "SELECT a.age FROM pet a, pet b, pet c, pet d, pet e", "SELECT 1"]
    gold = write(tmp_path / "gold.jsonl", [{"id": n, "query": q, "db_id": "pets"} for n, q in enumerate(queries)])
    code, lines, total, said = run(capsys, gold, gold, "--sqlite", databases, "--most-rows", 1000)
    assert code == 1 and (total["items"], total["left_out"], total["strict"]) == (1, 2, 1.0)
    assert [line["strict"] for line in lines] == [None, None, True]
    assert "no such column: nope" in lines[0]["gold_error"] and lines[1]["gold_error"] == "more than 1,000 rows"
    assert "gold.jsonl, line 1: " in said


def test_a_prediction_that_fails_is_wrong_and_says_why(tmp_path, databases, capsys):
    gold = write(tmp_path / "gold.jsonl", [{"id": n, "rows": []} for n in range(3)])
    bad = ["SELECT nope FROM pet", "DELETE FROM pet", "-- nothing"]
    pred = write(tmp_path / "pred.jsonl", [{"id": n, "query": q, "db_id": "pets"} for n, q in enumerate(bad)])
    code, lines, total, _ = run(capsys, gold, pred, "--sqlite", databases)
    assert code == 0 and total["strict"] == 0.0 and total["without_rows"] == 3
    assert [line["error"].split(":")[0] for line in lines] == ["SQLITE_ERROR", "SQLITE_AUTH", "no query"]


@pytest.mark.parametrize("spoilt", [b"", b"SQLite format 3\x00" + b"\x07" * 5000])
def test_a_database_that_cant_be_read_is_nobodys_mistake(tmp_path, capsys, spoilt):
    gold = write(tmp_path / "gold.jsonl", [{"id": 1, "query": "SELECT name FROM pet"}])
    file = tmp_path / "pets.sqlite"
    file.write_bytes(spoilt)
    code, lines, _, said = run(capsys, gold, gold, "--sqlite", file)
    # an empty file is an empty database, in which the reference finds no table
    assert code == (3 if spoilt else 1) and (lines == []) == bool(spoilt)
    assert ("no model's mistake" in said and str(file) in said) == bool(spoilt)


def test_paths_that_dont_fit_are_named(tmp_path, databases, capsys, monkeypatch):
    gold = write(tmp_path / "gold.jsonl", [{"id": 1, "query": "SELECT 1"}])
    other = write(tmp_path / "other.jsonl", [{"id": 1, "query": "SELECT 1", "db_id": "../cars"}])
    assert run(capsys, gold, gold, "--sqlite", tmp_path / "none")[::3] == (
        2,
        f"error: {tmp_path / 'none'} doesn't exist; name a SQLite file, or the folder of BIRD's or Spider's databases\n",
    )
    for file, options, code, message in [
        (gold, ("--sqlite", databases), 2, "don't say which database"),
        (other, ("--sqlite", databases), 3, "cars.sqlite is no file"),
        (gold, ("--graph", tmp_path), 3, "holds no graph"),
        (gold, ("--neo4j",), 2, "NEO4J_URI names, and it isn't set"),
    ]:
        found, _, _, said = run(capsys, file, file, *options)
        assert found == code and message in said


# --- hostile SQL


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO pet VALUES ('x', 1, 1)",
        "WITH old AS (SELECT 1) DELETE FROM pet",
        "DROP TABLE pet",
        "CREATE TEMP TABLE mine (a)",
        "ATTACH '{folder}/new.sqlite' AS new",
        "VACUUM INTO '{folder}/copy.sqlite'",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('mine')",
        "SELECT readfile('/etc/hostname')",
        "SELECT 1; DROP TABLE pet",
        "BEGIN EXCLUSIVE",
        "SELECT \0 1",
        "SELECT '\ud800'",
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT zeroblob(2000000000)",
        "SELECT a.age FROM pet a, pet b, pet c, pet d, pet e, pet f, pet g",
        "SELECT :name",
        "",
    ],
)
def test_sql_that_does_more_than_read_a_little_is_a_fault_of_the_query(asked, databases, query):
    before = hashlib.sha256((databases / "pets" / "pets.sqlite").read_bytes()).digest()
    with pytest.raises(QueryFault):
        asked.run(query.replace("{folder}", str(databases)), "pets")
    assert hashlib.sha256((databases / "pets" / "pets.sqlite").read_bytes()).digest() == before
    assert [path.name for path in databases.rglob("*")] == ["pets", "pets.sqlite"]
    assert asked.run("SELECT count(*) FROM pet", "pets") == [(4,)]


def test_time_is_up_even_within_one_function_call(databases):
    asked = SQLite(databases / "pets" / "pets.sqlite", 0.5, 1000)
    try:
        for query in (ENDLESS, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"):
            with pytest.raises(QueryFault, match=r"time out: more than 0\.5 s of CPU"):
                asked.run(query, None)
            assert asked.run("SELECT 1", None) == [(1,)]
    finally:
        asked.close()


def test_values_come_as_sqlite_has_them(asked):
    rows = asked.run("SELECT name, age, note FROM pet ORDER BY age, name", "pets")
    assert rows == [("ann", 3, None), ("bob", 4, ""), ("cid", 4, b"\x00"), ("\udcffA", 9, 1.5)]


def test_a_process_that_dies_is_nobodys_mistake(asked):
    asked.run("SELECT 1", "pets")
    asked._worker._process.kill()
    with pytest.raises(DatabaseFault, match="has ended"):
        asked.run("SELECT 1", "pets")
    asked.close()
    assert asked.run("SELECT 1", "pets") == [(1,)]


# --- a graph


def test_cypher_runs_on_a_server(tmp_path, capsys, monkeypatch, uri):
    monkeypatch.setenv("NEO4J_URI", uri)
    count = "MATCH (t:Tag) RETURN count(*)"
    queries = {
        "same": count,
        "write": "CREATE (:Tag) RETURN 1",
        "broken": "RETURN nope",
        "all": "MATCH (t:Tag) RETURN t",
    }
    gold = write(tmp_path / "gold.jsonl", [{"id": name, "query": count} for name in queries])
    pred = write(tmp_path / "pred.jsonl", [{"id": name, "query": query} for name, query in queries.items()])
    code, lines, total, _ = run(capsys, gold, pred, "--neo4j", "--most-rows", 5)
    assert code == 0 and [line["strict"] for line in lines] == [True, False, False, False]
    assert lines[0]["error"] is None and "nope" in lines[2]["error"] and "more than 5 rows" in lines[3]["error"]
    assert total["without_rows"] == 3
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")
    monkeypatch.setattr("lib.graph.query.RETURNS_WITHIN", 0.5)
    code, _, _, said = run(capsys, gold, pred, "--neo4j")
    assert code == 3 and "no model's mistake" in said
