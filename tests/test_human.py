"""People's questions: every reference is checked from two sides, every doubt is said, and none of it reaches training."""

import ast
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lib import evaluate, graph, human_results, human_set, tiny
from lib.episodes import DECODES, read
from lib.files import read_jsonl, write_jsonl
from lib.graph import server, twin
from lib.graph.world import CypherWorld
from lib.measures import Arm, Method
from lib.questions import human, human_answers, human_sources, sql
from lib.questions.generate import generate
from lib.questions.structures import STRUCTURES
from lib.reward import score
from lib.settings import SETS
from tests import planted
from tests.conftest import DATA, ROOT
from tests.synthetic import episode, question, settings_in
from tests.test_pipeline import closure, imported

BIRD = DATA / "bird" / "codebase_community_186.json"
MAKERS = tuple(f"lib/questions/{name}.py" for name in ("human", "human_answers", "human_sources", "sql"))
TEST = Method(0.95, 1000)


@pytest.fixture(scope="module")
def asked():
    return human_sources.bird(BIRD) if BIRD.is_file() else []


@pytest.fixture(scope="module")
def settings(asked, tmp_path_factory):
    """A run's folder with the planted twin as its graph; where BIRD's questions aren't, only with what needs none."""
    data = tmp_path_factory.mktemp("human")
    file = planted.write(asked, data / "planted.sqlite")
    graph.build("bird", 1.0, 0, str(file), data / "graph")
    return settings_in(
        data,
        graph={"source": "bird", "path": str(file)},
        human={"questions": str(BIRD)},
        model={**SMALL, "context": 65536},
        agent={"max_tokens": 4096, "max_trajectory_tokens": 65536},
    )


@pytest.fixture(scope="module")
def database(settings):
    return settings.data / "planted.sqlite"


@pytest.fixture(scope="module")
def address(settings, uri):  # the twin's store comes first: with it comes Java's archive, which is made once
    with server.running(settings.graph_dir) as own:
        yield own


@pytest.fixture(scope="module")
def made(asked, settings, database, address, bird):
    """The human set, written where evaluation reads questions: (lines by id, summary)."""
    summary = human.make(asked, address, database, settings.human_dir)
    return {line["id"]: line for line in read_jsonl(settings.human_dir / human_set.FILE)}, summary


# ---------------------------------------------------------------- BIRD's questions


def test_the_release_is_pinned(asked, bird):
    assert len(asked) == human_sources.RELEASE.questions == 186
    assert sum(q.hint is not None for q in asked) == human_sources.RELEASE.hints == 175
    assert set(human_answers.answers()) == {int(q.id.removeprefix("bird-")) for q in asked}


def test_a_whole_dev_json_is_the_same_release(asked, tmp_path, bird):
    entries = [{("SQL" if k == "sql" else k): v for k, v in e.items()} for e in json.loads(BIRD.read_text())]
    other = {**entries[0], "db_id": "superhero", "question_id": 0}
    (tmp_path / "dev.json").write_text(json.dumps([other, *entries]))
    assert human_sources.bird(tmp_path / "dev.json") == asked


def test_another_release_is_named(tmp_path, bird):
    entries = json.loads(BIRD.read_text())
    entries[3]["evidence"] = ""
    (tmp_path / "dev.json").write_text(json.dumps(entries))
    with pytest.raises(
        human_set.HumanError, match=r"is not the BIRD dev set of 2023.*186 questions.*, 174 with a hint.*of your own"
    ):
        human_sources.bird(tmp_path / "dev.json")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"db_id": "codebase_community", "question_id": 1}]'])
def test_a_file_that_isn_t_birds_is_named(tmp_path, content):
    (tmp_path / "dev.json").write_text(content)
    with pytest.raises(human_set.HumanError, match=r"dev\.json"):
        human_sources.bird(tmp_path / "dev.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(human_set.HumanError, match=r"none\.json is missing: `python -m lib\.fetch bird`"):
        human_sources.bird(tmp_path / "none.json")
    with pytest.raises(human_set.HumanError, match=r"none\.jsonl is missing: write one JSON object a line"):
        human_sources.own(tmp_path / "none.jsonl")
    with pytest.raises(sql.SqlError, match="is no file"), sql.opened(tmp_path / "none.sqlite"):
        pass


def test_sql_and_cypher_return_the_same_rows(made):
    """All 186 by the study's own scorer; where the words ask for something else, a second Cypher answers them."""
    lines, summary = made
    assert summary["questions"] == len(lines) == 186
    disagree = {name: line["reason"] for name, line in lines.items() if "the Cypher" in (line["reason"] or "")}
    assert disagree == {}
    empty = {name: line["reason"] for name, line in lines.items() if human_set.is_empty(line["rows"])}
    print(f"{summary['not_empty']} of 186 aren't empty; the others: {empty}")
    assert summary["not_empty"] >= 170 and all(empty.values())


def test_each_difference_to_the_words_is_explained_and_shown(made, asked):
    """Every suspicion shows on the planted twin: its Cypher returns other rows than the SQL, and every difference is one."""
    lines, summary = made
    explained = {q.id for q in asked if q.suspect}
    differing = {name for name, line in lines.items() if not line["answer"]["right"]}
    assert differing == explained and len(explained) == 67
    for name in explained:
        line = lines[name]
        assert line["status"] == human_set.SUSPECT and line["reason"].startswith("the SQL ")
        assert not human_set.is_empty(line["answer"]["rows"]), "a broken query would return nothing as well"
    assert summary["statuses"] == dict.fromkeys(human_set.STATUSES, 0) | {human_set.SUSPECT: 67, human_set.USABLE: 119}


def test_lines_have_a_generated_question_s_fields(made):
    lines, summary = made
    fields = {
        "id",
        "question",
        "hint",
        "query",
        "rows",
        "ordered",
        "structure",
        "hops",
        "split",
        "source",
        "difficulty",
    }
    for line in lines.values():
        assert set(line) == fields | {"sql", "status", "reason", "bird_difficulty", "answer"}
        assert (line["structure"], line["split"], line["source"]) == (None, "human", "human")
    assert summary["difficulties"] == {"simple": 151, "moderate": 30, "challenging": 5}
    assert summary["hints"] == 175 and summary["release"]["sha256"] == human_sources.RELEASE.sha256
    assert [name for name, line in lines.items() if line["ordered"]] == ["bird-658", "bird-694"]


def test_the_planted_twin_has_the_same_bytes_twice(asked, database, tmp_path):
    assert planted.write(asked, tmp_path / "again.sqlite").read_bytes() == database.read_bytes()


def with_model(settings, lines):
    """The settings' run with generated questions to ask (one each) and a small random model, to which the system prompt is
    one word as it is to the study's."""
    rows = [[json.loads((settings.graph_dir / "counts.json").read_text())["database"]["nodes"]["Tag"]]]
    tags = {"question": "How many tags?", "query": "MATCH (t:Tag) RETURN count(t)", "hint": None, "rows": rows}
    for split in ("dev", *SETS):
        write_jsonl(settings.questions_dir / f"{split}.jsonl", [{**question(split, 0), **tags}])
    bare, queries = settings.run_dir / "bare", [line["query"] or "" for line in lines]
    tiny.build_tokenizer("", [], queries, [], []).save_pretrained(bare)
    renderer = evaluate.renderer_for(settings, bare)
    world = CypherWorld(None, renderer, graph.schema_text(settings.graph_dir), settings.agent)
    tokenizer = tiny.build_tokenizer(world.prompt(tags)[0]["content"], [], queries, [], [])
    tiny.save(settings.base_dir, tokenizer, tiny.build_model(len(tokenizer), settings.model))


SMALL = {"hidden": 32, "heads": 2, "feed_forward": 64, "layers": ("conv", "full_attention"), "context": 128}


def test_people_s_questions_run_end_to_end(made, settings, address, monkeypatch):
    """The path of a full-size study's headline test: plan, validation, two arms' episodes, all and clean, a contrast."""
    monkeypatch.setenv("NEO4J_URI", address)  # the server that runs already holds this graph
    lines, _ = made
    with_model(settings, lines.values())
    assert evaluate.validate(settings)["human"] == {
        "oracle": 1.0, "null": 0.0, "question_too_long": [], "answer_too_long": [], "no_query": []
    }  # fmt: skip

    limits = {"max_turns": 1, "max_tokens": 20, "max_trajectory_tokens": SMALL["context"]}
    quick = replace(settings, run="quick", model=replace(settings.model, **SMALL), agent=replace(settings.agent, **limits),
                    evaluate=replace(settings.evaluate, samples=1))  # fmt: skip
    with_model(quick, lines.values())
    kept = {name: read(evaluate.evaluate(quick, name)) for name in ("base", "control")}
    assert {len(found) for found in kept.values()} == {2 * (186 + 2)}
    arms = {
        decode: {
            name: Arm.of(name, [e for e in found if (e.set, e.decode) == ("human", decode)])
            for name, found in kept.items()
        }
        for decode in DECODES
    }
    unfit = unanswerable(quick, lines.values())
    results = human_results.section(human_set.frozen(quick.human_dir), arms, [("base", "control")], unfit, TEST)
    assert sum(results["counts"].values()) == 186 and sum(results["suspected"].values()) == 67
    for part, n in (("all", 186), ("clean", 119)):
        one = results["sampled"][part]
        assert one["questions"] == one["arms"]["base"]["episodes"] == n and one["arms"]["base"]["strict"]["rate"] == 0
        assert one["contrasts"]["control - base"]["strict"]["questions"] == n
    # what doesn't fit is no silent zero
    greedy = [e for e in kept["base"] if (e.set, e.decode) == ("human", "greedy")]
    never_began = sorted(e.question for e in greedy if e.tokens["sampled"] == 0)
    assert 0 < len(never_began) < 186 and never_began == sorted(unfit["question_too_long"])
    assert results["unanswerable"]["question_too_long"]["all"] == len(never_began)
    assert results["sampled"]["all"]["arms"]["base"]["no_room"] >= len(never_began)


def unanswerable(settings, lines):
    renderer = evaluate.renderer_for(settings)
    world = CypherWorld(None, renderer, graph.schema_text(settings.graph_dir), settings.agent)
    return evaluate.unanswerable(list(lines), world, renderer, settings)


def test_questions_that_do_not_fit_are_told_with_the_way_out(address, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NEO4J_URI", address)
    (tmp_path / "graph").symlink_to(settings.graph_dir)
    long = {"question": "How many tags are there, in other words" + " and again in other words" * 40 + "?"}
    write_jsonl(tmp_path / "own.jsonl", [OWN[0], {**OWN[0], **long}])
    tight = replace(settings, data=tmp_path, model=replace(settings.model, **{**SMALL, "context": 300}),
                    human=replace(settings.human, questions=str(tmp_path / "own.jsonl")),
                    agent=replace(settings.agent, max_tokens=100, max_trajectory_tokens=300))  # fmt: skip
    human.make_for(tight)
    with_model(tight, evaluate.questions(tight, "human"))
    monkeypatch.setattr(evaluate, "load", lambda: tight)
    monkeypatch.setattr(sys, "argv", ["evaluate", "validate"])
    evaluate.main()
    said = capsys.readouterr()
    found = json.loads(said.out)["human"]
    assert found == {
        "oracle": 1.0, "null": 0.0, "question_too_long": ["own-0002"], "answer_too_long": [], "no_query": []
    }  # fmt: skip
    assert "1 of people's questions leave no room" in said.err
    assert "agent.max_trajectory_tokens = 300" in said.err and "model.context" in said.err


def test_a_repeated_row_alone_is_nine_suspicions(made):
    """Sets of rows are equal, but the words ask for users and the SQL returns one for each of their badges or posts."""
    lines, _ = made
    repeating = [line for line in lines.values() if "repeats a user" in (line["reason"] or "")]
    assert len(repeating) == 9
    for line in repeating:
        rows, words = line["rows"], line["answer"]["rows"]
        assert score(distinct(words), distinct(rows)).strict and not score(words, rows).strict, line["id"]


def distinct(rows):
    return [json.loads(row) for row in sorted({json.dumps(row) for row in rows})]


# ---------------------------------------------------------------- a person's own, and every status

OWN = [
    {"question": "How many tags?", "query": "MATCH (t:Tag) RETURN count(t)", "hint": "a tag is a tag"},
    {"question": "How many tags?", "sql": "SELECT COUNT(*) FROM tags", "difficulty": "simple"},
    {"question": "Both?", "sql": "SELECT AVG(Score) FROM posts", "query": "MATCH (p:Post) RETURN avg(p.score)"},
    {"question": "Nobody?", "sql": "SELECT DisplayName FROM users WHERE DisplayName = 'nobody at all'"},
    {"question": "None?", "sql": "SELECT COUNT(*), MAX(Age) FROM users WHERE Age > 200"},
    {"question": "None?", "query": "MATCH (u:User) WHERE u.age > 200 RETURN u.age"},
    {"question": "Who?", "sql": "SELECT DisplayName FROM users ORDER BY DownVotes LIMIT 1"},
    {"question": "Any?", "sql": "SELECT DisplayName FROM users LIMIT 3"},
    {"question": "Its post?", "sql": "SELECT Id FROM posts WHERE OwnerUserId = (SELECT Id FROM users ORDER BY DownVotes LIMIT 1)"},
    {"question": "Off?", "sql": "SELECT COUNT(*) FROM users", "query": "MATCH (u:User) RETURN count(u) + 1"},
    {"question": "Broken?", "sql": "SELECT COUNT(*) FROM users", "query": "MATCH (u:User RETURN count(u)"},
    {"question": "Which one?", "sql": "SELECT SUM(Views) FROM users WHERE DisplayName IN ('planted twin', 'no one')"},
    {"question": "Best?", "id": "mine", "sql": "SELECT Title FROM posts WHERE Title > '' ORDER BY Score DESC LIMIT 2"},
]  # fmt: skip
EXPECTED = [human_set.USABLE] * 3 + [human_set.EMPTY] * 3 + [human_set.TIED] * 3 + [human_set.DISAGREE] * 2
EXPECTED += [human_set.AMBIGUOUS, human_set.USABLE]


def test_own_questions_load_the_same_way(address, database, tmp_path):
    write_jsonl(tmp_path / "own.jsonl", OWN)
    asked = human_sources.own(tmp_path / "own.jsonl")
    summary = human.make(asked, address, database, tmp_path)
    lines = read_jsonl(tmp_path / human_set.FILE)
    assert [line["status"] for line in lines] == EXPECTED
    assert [line["id"] for line in lines] == [f"own-{i:04d}" for i in range(1, len(OWN))] + ["mine"]
    assert {line["source"] for line in lines} == {"own"} and summary["release"] is None
    assert lines[0]["rows"] == lines[1]["rows"] and lines[0]["hint"] == "a tag is a tag"
    assert lines[1]["query"] is None and lines[1]["bird_difficulty"] == "simple"
    assert [line["query"] for line in lines[9:11]] == [None, None], "a query that returns other rows replays nothing"
    assert lines[-1]["ordered"] and not lines[2]["ordered"]
    assert "rows are sorted alike where 1 is taken" in lines[6]["reason"]
    assert "rows in no order where 3 are taken" in lines[7]["reason"]
    assert "the Cypher fails" in lines[10]["reason"] and lines[11]["reason"] == "2 users have a name in the question"
    assert summary["statuses"][human_set.EMPTY] == 3
    human.make(asked[:1], address, None, tmp_path)  # Cypher needs no SQLite file


def test_a_suspicion_that_makes_no_difference_is_a_note(address, database, tmp_path):
    same = human_sources.Asked("q", "How many tags?", None, None, "own", "SELECT COUNT(*) FROM tags",
                       "MATCH (t:Tag) RETURN count(t)", "MATCH (t:Tag) RETURN count(*)", "counts rows")  # fmt: skip
    human.make([same], address, database, tmp_path)
    (line,) = read_jsonl(tmp_path / human_set.FILE)
    assert (line["status"], line["reason"]) == (human_set.USABLE, "the SQL counts rows, which makes no difference here")


@pytest.mark.parametrize(
    "line, message",
    [
        ("[]", "line 2: no object"),
        ("{", "line 2: no JSON"),
        ('{"question": "a"}', "line 2: needs `question`, and the answer as `query`"),
        ('{"query": "RETURN 1"}', "line 2: needs `question`"),
        ('{"question": "a", "query": ""}', "line 2: query is ''; it must be a text"),
        ('{"question": "a", "query": "RETURN 1", "ordered": 1}', "line 2: ordered is 1; it must be true or false"),
        ('{"question": "a", "cypher": "RETURN 1"}', "line 2: 'cypher' is unknown; allowed: question, hint"),
        ('{"question": "a", "query": "RETURN 1", "id": "own-0001"}', "id 'own-0001' is there twice"),
        ('{"question": "a", "query": "RETURN 1", "id": "dev-0001"}', "line 2: id is 'dev-0001'; use letters"),
        ('{"question": "a", "query": "RETURN 1", "id": "a/b"}', "line 2: id is 'a/b'; use letters"),
    ],
)
def test_a_damaged_line_of_one_s_own_is_named(tmp_path, line, message):
    (tmp_path / "own.jsonl").write_text('{"question": "a", "query": "RETURN 1"}\n' + line + "\n")
    with pytest.raises(human_set.HumanError, match=re.escape(message)):
        human_sources.own(tmp_path / "own.jsonl")


def test_no_question_at_all_is_named(tmp_path):
    (tmp_path / "own.jsonl").write_text("")
    with pytest.raises(human_set.HumanError, match="holds no question"):
        human_sources.own(tmp_path / "own.jsonl")


@pytest.mark.parametrize(
    "answer, message",
    [
        ({"sql": "SELECT Nowhere FROM users"}, "own-0001: its SQL fails (no such column: Nowhere)"),
        ({"sql": "DELETE FROM users"}, "own-0001: its SQL does more than read, which is refused: DELETE FROM users"),
        ({"query": "MATCH (u:User) DELETE u"}, "own-0001: its Cypher fails ("),
        ({"query": "MATCH (u"}, "own-0001: its Cypher fails ("),
        ({"query": "UNWIND range(1, 30000) AS i RETURN i"}, "own-0001: its Cypher returns more than 25,000 rows"),
    ],
)
def test_a_reference_that_can_t_be_had_is_named(address, database, tmp_path, answer, message):
    write_jsonl(tmp_path / "own.jsonl", [{"question": "a", **answer}])
    with pytest.raises(human_set.HumanError, match=re.escape(message)):
        human.make(human_sources.own(tmp_path / "own.jsonl"), address, database, tmp_path)
    assert not (tmp_path / human_set.FILE).exists()


def test_sql_without_a_file_is_named(address, tmp_path):
    write_jsonl(tmp_path / "own.jsonl", [{"question": "a", "sql": "SELECT 1"}])
    with pytest.raises(human_set.HumanError, match="own-0001 has its answer in SQL, which runs on the SQLite"):
        human.make(human_sources.own(tmp_path / "own.jsonl"), address, None, tmp_path)


# ---------------------------------------------------------------- SQL


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    file = tmp_path_factory.mktemp("small") / "small.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, ""), (2, None), (3, "y"), (3, "y")])
        connection.commit()
    return file


@pytest.mark.parametrize(
    "code",
    [
        "INSERT INTO t VALUES (1, 2)", "DELETE FROM t", "UPDATE t SET a = 1", "DROP TABLE t", "CREATE TEMP TABLE s (a)",
        "ATTACH 'other.sqlite' AS o", "PRAGMA writable_schema = ON", "VACUUM", "BEGIN", "SELECT load_extension('x')",
        "WITH s AS (SELECT 1) INSERT INTO t SELECT 1, 2",
    ],
)  # fmt: skip
def test_sql_that_does_more_than_read_is_refused(small, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = small.read_bytes()
    with sql.opened(small) as connection, pytest.raises(sql.SqlError, match="does more than read"):
        sql.run(connection, code)
    assert small.read_bytes() == before and list(tmp_path.iterdir()) == []


def test_sql_that_fails_or_never_ends_is_named(small):
    with sql.opened(small) as connection:
        for code in ("SELECT 1; SELECT 2", "SELECT", "SELECT c FROM t"):
            with pytest.raises(sql.SqlError, match="fails"):
                sql.run(connection, code)
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
        with pytest.raises(sql.SqlError, match=r"took longer than 0\.2 s"):
            sql.run(connection, endless, 0.2)
        assert sql.run(connection, "SELECT b FROM t WHERE a = 2") == [[None], [None]]


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "x.sqlite").write_text("no database, but long enough to be looked at as one")
    with pytest.raises(sql.SqlError, match="is no SQLite database"), sql.opened(tmp_path / "x.sqlite"):
        pass


@pytest.mark.parametrize(
    "code, found",
    [
        ("SELECT a FROM t ORDER BY a LIMIT 1", None),
        ("SELECT a FROM t ORDER BY a LIMIT 2", None),  # two rows alike in what is selected
        ("SELECT a, b IS NULL FROM t ORDER BY a LIMIT 2", "2 rows are sorted alike where 2 are taken"),
        ("SELECT b FROM t ORDER BY a DESC LIMIT 1", None),
        ("SELECT b FROM t WHERE a > 5 ORDER BY a LIMIT 1", None),
        ("SELECT a FROM t LIMIT 5", None),
        ("select a from t limit 4", "5 rows in no order where 4 are taken"),
        ("SELECT COUNT(*) FROM t ORDER BY a LIMIT 1", None),
        ("SELECT a FROM t GROUP BY a ORDER BY COUNT(*) DESC, MAX(b, 'z') LIMIT 1", "2 rows are sorted alike where 1 is taken"),
        ("SELECT 1 WHERE 2 = (SELECT a FROM t WHERE a IN (2, 3) ORDER BY a * 0 LIMIT 1)", "4 rows are sorted alike where 1 is taken"),
    ],
)  # fmt: skip
def test_ties_at_the_cut(small, code, found):
    with sql.opened(small) as connection:
        assert sql.tied(connection, code) == found


def test_constants_and_what_they_are_compared_with():
    code = (
        "SELECT STRFTIME('%Y', T1.x), 'it''s' FROM t AS T1 WHERE T1.DisplayName IN ('a', \"b\", 'c') AND `Name` = 'd' "
        "AND Age BETWEEN 1.5 AND 3 AND UserDisplayName = 'e' AND Title LIKE '%f%' LIMIT 7"
    )
    found = [(x.value, x.column) for x in sql.literals(code)]
    assert [value for value, _ in found] == ["%Y", "it's", "a", "c", "d", 1.5, 3, "e", "%f%", 7]
    assert found[4][1] == "Name" and found[8][1] == "Title"
    assert sql.names("SELECT 1 FROM users WHERE DisplayName = 'a' OR DisplayName IN ('b', 'a')") == ["a", "b"]


def test_an_answer_s_parameters():
    code = "SELECT 1 FROM t WHERE a = 'O''Hara \\' AND b LIKE '%Big%' AND c = '2011' AND d = '2012-03-14 01:02:03.0' AND e = '<r>'"
    given = "$1 $2 $3:like $4:year $5:moment $6:tag $q:moment"
    assert human_answers.filled(given, code, "On 3/4/2012 5:06:07 PM?") == (
        "1 'O\\'Hara \\\\' 'big' 2011 localdatetime('2012-03-14T01:02:03') 'r' localdatetime('2012-03-04T17:06:07')"
    )
    for wrong in ("$9", "$2:year", "$1:like", "$2:nothing", "$q:moment"):
        with pytest.raises(human_answers.AnswerError, match=re.escape(wrong)):
            human_answers.filled(wrong, code, "When?")


def test_a_twin_as_bird_s_file(graph_folder, tmp_path):
    file = sql.write(tmp_path / "a.sqlite", twin.tables(0.015, 0))
    assert file.read_bytes() == sql.write(tmp_path / "b.sqlite", twin.tables(0.015, 0)).read_bytes()
    with sql.opened(file) as connection:
        typos = sql.run(connection, "SELECT COUNT(CreaionDate), COUNT(LasActivityDate) FROM posts")[0]
    nodes = json.loads((graph_folder / "counts.json").read_text())["database"]["nodes"]
    assert typos == [nodes["Post"]] * 2
    with pytest.raises(FileExistsError, match="is there already"):
        sql.write(file, [])


# ---------------------------------------------------------------- the plan and the report


@pytest.fixture
def frozen_folder(address, database, tmp_path):
    write_jsonl(tmp_path / "own.jsonl", OWN)
    human.make(human_sources.own(tmp_path / "own.jsonl"), address, database, tmp_path)
    return tmp_path


def test_what_the_plan_freezes(frozen_folder):
    found = human_set.frozen(frozen_folder)
    assert found["questions"] == sum(map(len, found["statuses"].values())) == len(OWN)
    assert found["statuses"][human_set.AMBIGUOUS] == ["own-0012"] and found["clean"] == human_set.USABLE
    assert found["reasons"]["own-0012"] == "2 users have a name in the question"
    assert json.loads(json.dumps(found)) == found
    file = frozen_folder / human_set.FILE
    file.write_text(file.read_text().replace(human_set.AMBIGUOUS, human_set.USABLE))
    with pytest.raises(human_set.HumanError, match=r"human\.jsonl has the sha256 .*make both anew"):
        human_set.frozen(frozen_folder)
    file.unlink()
    with pytest.raises(human_set.HumanError, match=r"human\.jsonl is missing: make it with"):
        human_set.frozen(frozen_folder)


ASKED = [
    {"id": f"q{i}", "split": "human", "structure": None, "hops": 1, "question": "?", "rows": [[i]]} for i in range(8)
]


def test_results_with_all_and_with_the_clean_ones():
    frozen = {
        "statuses": {human_set.EMPTY: ["q0", "q1"], human_set.USABLE: [f"q{i}" for i in range(2, 8)]},
        "clean": human_set.USABLE,
    }
    right = {"control": {"q0", "q2"}, "trained": {"q2", "q3", "q4"}}
    kept = {
        name: [episode(name, q, s, "strict" if q["id"] in right[name] else "wrong") for q in ASKED for s in range(2)]
        for name in right
    }
    kept["control"][4] = episode("control", ASKED[2], 0, "error")
    arms = {name: Arm.of(name, found) for name, found in kept.items()}
    found = human_results.table(frozen, arms, [("control", "trained")], TEST)
    assert found["all"]["arms"]["control"]["strict"]["rate"] == 2 / 8
    assert found["clean"]["arms"]["control"]["strict"]["rate"] == 1 / 6
    assert (found["clean"]["arms"]["control"]["episodes"], found["clean"]["arms"]["control"]["faulty"]) == (11, 1)
    every, clean = (found[part]["contrasts"]["trained - control"]["strict"] for part in ("all", "clean"))
    assert (every["delta"], every["up"], every["down"]) == (1 / 8, 2, 1)
    assert (round(clean["delta"], 9), clean["up"], clean["down"]) == (round(2 / 6, 9), 2, 0)
    with pytest.raises(ValueError, match="control has no episode of 'q7'"):
        human_results.table(frozen, {**arms, "control": Arm.of("control", kept["control"][:-2])}, [], TEST)
    with pytest.raises(ValueError, match="isn't in the frozen set"):
        human_results.table({**frozen, "statuses": {human_set.USABLE: ["q0"]}}, arms, [], TEST)


def test_results_without_a_clean_question():
    arms = {name: Arm.of(name, [episode(name, ASKED[0], 0, "strict")]) for name in ("control", "trained")}
    frozen = {"statuses": {human_set.EMPTY: ["q0"], human_set.USABLE: []}, "clean": human_set.USABLE}
    found = human_results.table(frozen, arms, [("control", "trained")], TEST)
    assert found["clean"]["questions"] == 0 and "strict" not in found["clean"]["arms"]["control"]
    assert found["all"]["arms"]["control"]["strict"]["rate"] == 1 and found["clean"]["contrasts"] == {
        "trained - control": {}
    }


def test_a_run_without_people_s_questions(tmp_path, capsys):
    """The default: an empty set, well-formed, frozen, asked by nobody, and told."""
    human.main(["--params", str(ROOT / "profiles" / "tiny.yaml"), "--data", str(tmp_path)])
    assert "human.questions in params.yaml is empty" in capsys.readouterr().out
    assert read_jsonl(tmp_path / "human" / human_set.FILE) == []
    frozen = human_set.frozen(tmp_path / "human")
    assert frozen["questions"] == 0 and frozen["statuses"] == {status: [] for status in human_set.STATUSES}
    assert human_results.section(frozen, {}, [], {}, TEST) is None
    settings = settings_in(tmp_path)
    for split in SETS:
        write_jsonl(settings.questions_dir / f"{split}.jsonl", [question(split, 0)])
    assert list(evaluate.asked_sets(settings)) == list(SETS)


def test_planned_questions_that_nobody_was_asked_are_named():
    frozen = {"questions": 1, "statuses": {human_set.USABLE: ["q0"]}, "reasons": {}, "clean": human_set.USABLE}
    with pytest.raises(ValueError, match="no sampled episode answers one of the people's questions: run 5_evaluate"):
        human_results.section(frozen, {}, [], {}, TEST)


# ---------------------------------------------------------------- the ledger of the separation

GENERATORS = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "lib" / "questions").glob("*.py")
    if str(file.relative_to(ROOT)) not in {*MAKERS, "lib/questions/browse.py"}  # which shows any set
)
# Who may know ids and statuses: plan, evaluation, comparison and report, none of which makes questions. The words stand in
# the set's file alone, which only evaluation opens.
READERS = {*MAKERS, "lib/human_set.py", "lib/human_results.py", "lib/plan.py", "lib/compare.py", "reports/human.py"}
READERS |= {"benchmarks/load.py", "lib/databases.py"}  # SQLite files, by lib/questions/sql.py
READERS |= {"lib/composition.py"}  # writes an empty set: its evaluation asks no people's questions


def test_no_generator_imports_the_human_questions():
    assert len(GENERATORS) >= 10 and "lib/questions/draw.py" in closure("import lib.questions.generate")
    for file in GENERATORS:
        assert not closure((ROOT / file).read_text()) & {*MAKERS, "lib/human_set.py"}, file
    for stage in ("1_graph", "2_questions", "3_base", "4_train"):
        cells = json.loads((ROOT / "notebooks" / f"{stage}.ipynb").read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        assert not closure(code) & set(MAKERS), stage


def test_only_evaluation_and_audit_import_them():
    sources = [f for folder in ("lib", "reports", "benchmarks") for f in (ROOT / folder).rglob("*.py")]
    found = {str(f.relative_to(ROOT)) for f in sources if imported(f.read_text()) & {*MAKERS, "lib/human_set.py"}}
    assert found <= READERS, found - READERS


def test_no_generator_names_their_files():
    """Nor imports by a name that only shows at run time. Docstrings may say what is imitated."""
    telling = re.compile(r"human|dev\.json|evidence|question_id|codebase_community|importlib|__import__")
    for file in GENERATORS:
        tree = ast.parse((ROOT / file).read_text())
        told = _docstrings(tree)
        words = [
            n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and n not in told
        ]
        words += [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
        words += [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
        assert [w for w in words if telling.search(w)] == [], file


def _docstrings(tree):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [n.body[0].value for n in ast.walk(tree) if isinstance(n, kinds) and ast.get_docstring(n, False) is not None]


opened_files: list[str] | None = None


def _note(event, arguments):
    if opened_files is not None and event in ("open", "sqlite3.connect"):
        opened_files.append(str(arguments[0]))


def test_making_questions_opens_none_of_their_files(settings, address, tmp_path, monkeypatch):
    """Proved by execution: the interpreter itself reports each file that is opened meanwhile. A few structures do, since
    none has code of its own."""
    monkeypatch.setattr("lib.questions.generate.STRUCTURES", STRUCTURES[::8])
    global opened_files
    few = {"train": 12, "dev": 6, "held_out_instances": 6, "held_out_structures": 6, "demonstrations": 12}
    sys.addaudithook(_note)
    opened_files = []
    try:
        generate(address, few, 0, tmp_path, settings.graph_dir)
        seen = list(opened_files)
    finally:
        opened_files = None
    assert any(name.endswith("train.jsonl.part") for name in seen), "the hook sees files"
    assert all(len(read_jsonl(tmp_path / f"{split}.jsonl")) > 0 for split in few)
    assert [name for name in seen if "human" in Path(name).name or "/bird/" in name or name.endswith(".sqlite")] == []


def test_no_name_or_text_of_bird_s_stands_in_the_repository(asked, bird):
    """No run of eight words of a question, hint or SQL, and no name, title or text that the SQL compares with."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    files = [f for f in listed.stdout.split() if Path(f).suffix in (".py", ".yaml", ".yml", ".md", ".ipynb", ".qmd")]
    assert "lib/questions/human_answers.yaml" in files
    runs = set()
    for q in asked:
        for text in (q.question, q.hint or ""):
            words = re.findall(r"\w+", text.lower())
            runs |= {" ".join(words[i : i + 8]) for i in range(len(words) - 7)}
    names = {
        str(x.value) for q in asked for x in sql.literals(q.sql)
        if x.column in ("DisplayName", "Title", "Text", "WebsiteUrl") and isinstance(x.value, str) and "%" not in x.value
    } - {"Community"}  # the system's own user  # fmt: skip
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        words = re.findall(r"\w+", text.lower())
        assert not runs & {" ".join(words[i : i + 8]) for i in range(len(words) - 7)}, file
        assert [n for n in names if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", text)] == [], file


def test_the_answers_hold_no_text_at_all():
    for number, answer in human_answers.answers().items():
        for query in [answer] if isinstance(answer, str) else [answer["words"], answer["sql"]]:
            assert set(re.findall(r"'([^']*)'|\"([^\"]*)\"", query)) <= {("<", ""), (">", ""), ("", "")}, number


# ---------------------------------------------------------------- the command


@pytest.fixture
def parameters(settings, tmp_path):
    """Writes a parameter file for the planted twin, with another file of questions."""

    def write(questions, **graph):
        given = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text())
        given["human"]["questions"] = str(questions)
        given["graph"] |= {"source": "bird", "path": settings.graph.path, **graph}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(given))
        return ["--params", str(tmp_path / "params.yaml"), "--data", str(settings.data)]

    return write


def test_the_command(parameters, made, settings, address, tmp_path, monkeypatch, capsys):
    """A person's own questions take the way of BIRD's, in place of them; and BIRD's give the same bytes twice."""
    monkeypatch.setenv("NEO4J_URI", address)  # the server that runs already holds this graph
    files = [settings.human_dir / name for name in (human_set.FILE, human_set.SUMMARY)]
    before = [file.read_bytes() for file in files]
    write_jsonl(tmp_path / "own.jsonl", [*OWN[:2], OWN[3]])
    human.main(parameters(tmp_path / "own.jsonl"))
    said = capsys.readouterr().out
    assert (
        said.startswith("own-0003: no rows\n")
        and json.loads(said[said.index("{") :])["statuses"][human_set.USABLE] == 2
    )
    assert [line["id"] for line in evaluate.questions(settings, "human")] == ["own-0001", "own-0002", "own-0003"]
    human.main(parameters(BIRD))
    assert [file.read_bytes() for file in files] == before


def test_the_command_names_what_it_lacks(parameters, settings, tmp_path):
    with pytest.raises(SystemExit, match=r"human: .*none\.json is missing"):
        human.main(parameters(tmp_path / "none.json"))
    with pytest.raises(
        SystemExit, match=r"human: .*human\.questions = 'mine\.csv' must be BIRD's \.json file or a \.jsonl"
    ):
        human.main(parameters("mine.csv"))


def test_sql_of_one_s_own_runs_on_the_twin_s_own_file(graph_folder, uri, tmp_path, monkeypatch):
    """The default graph needs no file: the twin's tables are made anew, and removed."""
    monkeypatch.setenv("NEO4J_URI", uri)
    (tmp_path / "graph").symlink_to(graph_folder)
    write_jsonl(tmp_path / "own.jsonl", [OWN[1], OWN[2]])
    settings = settings_in(tmp_path, human={"questions": str(tmp_path / "own.jsonl")})
    assert human.make_for(settings)["statuses"][human_set.USABLE] == 2
    assert not (tmp_path / "work" / "human").exists()
