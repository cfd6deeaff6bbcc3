"""The reader lets every read through and nothing else, ends in time, and blames the query only for what the query did."""

import asyncio
import json
import time

import pytest

from lib.graph import query, server
from lib.graph.vet import LONGEST_QUERY
from lib.graph.query import CAP, QueryError, QueryFailed, Reader, Refused, TimedOut

HOSTILE = [
    "CREATE (n:Post)",
    "INSERT (n:Post)",
    "/* harmless */ CREATE (n:Post)",
    "// harmless\nMERGE (n:Post {postId: -5}) RETURN n",
    "CYPHER 5 CREATE (n:Post)",
    "CYPHER 25 MATCH (n:Tag) SET n.count = 0",
    "match (n:Tag) set n.count = 0",
    "MATCH (n:Tag) REMOVE n.count",
    "MATCH (n:Tag) DETACH DELETE n",
    "MATCH (n:Tag) FOREACH (x IN [1] | SET n.count = x)",
    "MATCH (n:Tag) CALL (n) { SET n.count = 1 } RETURN count(n)",
    "MATCH (n:Tag) CALL (n) { SET n.count = 1 } IN TRANSACTIONS OF 5 ROWS",
    "CALL { CREATE (n:Post) } RETURN 1",
    "CREATE INDEX sneaky FOR (n:Tag) ON (n.count)",
    "DROP CONSTRAINT unique_User_userId",
    "LOAD CSV FROM 'http://127.0.0.1:9/x.csv' AS line RETURN line",
    "LOAD CSV FROM 'file:///etc/passwd' AS line RETURN line",
    "MATCH (t:Tag) LOAD /* */ CSV FROM 'http://127.0.0.1:9/' + t.tagName AS line RETURN line",
    "TERMINATE TRANSACTION 'neo4j-transaction-1'",
    "TERMINATE TRANSACTIONS 'neo4j-transaction-1' YIELD message RETURN message",
    "SHOW SETTINGS",
    "SHOW TRANSACTIONS YIELD currentQuery RETURN currentQuery",
    "SHOW DATABASES",
    "SHOW USERS",
    "CALL dbms.listConfig() YIELD name, value RETURN name, value",
    "CALL db.awaitIndexes(1)",
    "ALTER CURRENT USER SET PASSWORD FROM 'a' TO 'b'",
    "USE neo4j MATCH (n) RETURN count(n)",
    "use system MATCH (n) RETURN count(n)",
    "/* a */ USE neo4j MATCH (n) RETURN count(n)",
    "CALL { USE neo4j MATCH (n:Tag) RETURN n } RETURN count(n)",
    "EXPLAIN MATCH (n) RETURN n",
    "explain\nMATCH (n) RETURN n",
    "/* EXPLAIN */ EXPLAIN MATCH (n) RETURN n",
    "CYPHER 25 EXPLAIN MATCH (n) RETURN n",
    "PROFILE MATCH (n) RETURN n",
    "MATCH (n:Tag) RETURN n UNION USE neo4j MATCH (n:Tag) RETURN n",
]
HARMLESS = [
    "MATCH (a:Asset) RETURN a",
    "MATCH (a:Post {title: 'CREATE or DELETE, SET or CALL'}) RETURN a.postId",
    "MATCH (use:Tag) WITH use ORDER BY use.tagId RETURN use.tagName LIMIT 1",
    "MATCH (t:Tag) WHERE t.tagName CONTAINS \"load csv\" RETURN count(t) AS load",
    "MATCH (t:Tag) RETURN {create: t.count, show: 1} AS merge ORDER BY t.tagId LIMIT 1",
    "MATCH (u:User) CALL (u) { MATCH (u)-[:OWNS]->(p) RETURN count(p) AS n } RETURN sum(n)",
    "MATCH (n) RETURN count(n) AS `DETACH DELETE`",
    "CYPHER 25 MATCH (n:Tag) RETURN count(n)",
    "RETURN 'EXPLAIN' AS x",
    "// SHOW what there is\nMATCH (b:Badge) RETURN count(b)",
]  # fmt: skip


LOOP = "RETURN reduce(a = 0, i IN range(1, 100000000) | a + reduce(b = 0, j IN range(1, 100000) | b + j % 7))"


def ask(uri, *queries, limit=5, timeout=20.0, at_once=4):
    """Results or errors of queries that run side by side."""

    async def go():
        reader = Reader(uri, at_once=at_once, timeout=timeout)
        try:
            return await asyncio.gather(*(reader.run(q, limit) for q in queries), return_exceptions=True)
        finally:
            await reader.close()

    return asyncio.run(go())


def test_hostile_queries_are_refused_and_change_nothing(uri):
    counts = "MATCH (n) RETURN count(n), sum(n.count)"
    before, *answers, after = [ask(uri, q)[0] for q in (counts,)] + ask(uri, *HOSTILE) + [ask(uri, counts)[0]]
    passed = [q for q, a in zip(HOSTILE, answers, strict=True) if not isinstance(a, Refused)]
    assert passed == []
    assert before.rows == after.rows


def test_two_statements_are_no_query(uri):
    (answer,) = ask(uri, "MATCH (n:Tag) RETURN n; MATCH (n:Tag) DELETE n")
    assert isinstance(answer, QueryError)


def test_words_alone_refuse_nothing(uri):
    answers = ask(uri, *HARMLESS)
    failed = {q: a for q, a in zip(HARMLESS, answers, strict=True) if isinstance(a, Exception)}
    assert failed == {}


def test_size_is_limited(uri):
    (answer,) = ask(uri, "RETURN '" + "x" * LONGEST_QUERY + "'")
    assert isinstance(answer, Refused)
    assert "characters" in answer.message


def test_rows_are_counted_beyond_the_limit_and_up_to_the_cap(uri):
    few, many = ask(uri, "UNWIND range(1, 7) AS x RETURN x", f"UNWIND range(1, {CAP + 10}) AS x RETURN x", limit=3)
    assert (few.columns, few.rows, few.total, few.cut) == (["x"], [[1], [2], [3]], 7, True)
    assert (many.total, many.cut) == (CAP, True)
    (whole,) = ask(uri, "UNWIND range(1, 7) AS x RETURN x", limit=7)
    assert not whole.cut


def test_values_are_json(uri):
    row = (
        "localdatetime('2010-07-19T19:39:07'), localdatetime('2010-07-19T19:39:07.120'), date('2010-07-20'), "
        "time('10:00:00Z'), duration('P1DT2H'), 1, 1.5, true, null, 'x', [1, date('2010-07-20')], {a: [null]}"
    )
    (values,), (path,), (node,) = (
        answer.rows
        for answer in ask(
            uri,
            f"RETURN {row}",
            "MATCH p = (:User)-[:EARNED]->(:Badge) RETURN p LIMIT 1",
            "MATCH (t:Tag) RETURN t ORDER BY t.tagId LIMIT 1",
        )
    )
    assert values == [
        "2010-07-19T19:39:07", "2010-07-19T19:39:07.12", "2010-07-20", "10:00:00+00:00", "P1DT2H", 1, 1.5, True, None,
        "x", [1, "2010-07-20"], {"a": [None]},
    ]  # fmt: skip
    user, earned, badge = path[0]
    assert set(badge) == {"name"} and set(earned) == {"badgeId", "date"} and "userId" in user
    assert set(node[0]) == {"tagId", "tagName", "count"}
    json.dumps([values, path, node])


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("MATCH (n:Tag RETURN n", "syntax error", "column"),
        ("MATCH (n:Tag) RETURN m.tagName", "name error", "`m` not defined"),
        ("RETURN nope(1)", "name error", "nope"),
        ("MATCH (n:Tag) RETURN $missing", "name error", "missing"),
        ("RETURN 1 / 0", "error", "zero"),
        ("MATCH (n:Tag) CALL (n) { RETURN n.count AS c } RETURN m", "name error", "column 55"),
    ],
)
def test_failures_say_what_is_wrong_in_one_line(uri, text, kind, said):
    (answer,) = ask(uri, text)
    assert isinstance(answer, QueryFailed)
    assert answer.kind == kind
    assert said in answer.message and "\n" not in answer.message and len(answer.message) <= 300


def test_slow_queries_end_in_time(uri):
    started = time.monotonic()
    answers = ask(
        uri, "MATCH (a), (b), (c), (d) WHERE a.score + b.score > c.score + d.score RETURN count(*)", timeout=1.0
    )
    assert isinstance(answers[0], TimedOut)
    assert time.monotonic() - started < 15
    assert "1 s" in answers[0].message


def test_a_loop_that_nothing_stops_costs_the_server_and_nobody_else(uri, monkeypatch):
    monkeypatch.setattr(query, "GRACE", 1.0)
    monkeypatch.setattr(query, "PAUSE", 0.5)
    pid_file = server._replaceable[uri]

    async def go():
        reader = Reader(uri, timeout=1.0)
        before = pid_file.read_text()
        try:
            with pytest.raises(TimedOut):
                await reader.run(LOOP, 1)
            for _ in range(900):
                if pid_file.read_text() != before:
                    return (await Reader(uri).run("MATCH (t:Tag) RETURN count(t)", 1)).rows[0][0]
                await asyncio.sleep(0.1)
        finally:
            await reader.close()

    assert asyncio.run(go())


def test_a_dead_server_comes_back_and_queries_are_run_again(uri):
    async def go():
        reader = Reader(uri, timeout=30)
        try:
            tags = (await reader.run("MATCH (t:Tag) RETURN t.tagName ORDER BY t.tagName", 100)).rows
            slow = asyncio.create_task(reader.run("UNWIND range(1, 3000000) AS x RETURN sum(x)", 5))
            await asyncio.sleep(0.3)
            assert server.replace(uri)
            again = await reader.run("MATCH (t:Tag) RETURN t.tagName ORDER BY t.tagName", 100)
            return tags, again.rows, (await slow).rows
        finally:
            await reader.close()

    before, after, in_flight = asyncio.run(go())
    assert before == after
    assert in_flight == [[3000000 * 3000001 // 2]]


def test_a_query_that_kills_the_server_is_blamed_and_the_others_are_not(uri):
    bomb = "RETURN size(reduce(s = 'a', i IN range(1, 40) | s + s))"
    killed, *others = ask(uri, bomb, *(f"MATCH (t:Tag) RETURN count(t) + {i}" for i in range(3)), timeout=40.0)
    assert isinstance(killed, QueryFailed | TimedOut)
    assert [a.rows for a in others] == [[[others[0].rows[0][0] + i]] for i in range(3)]
