"""The reader lets every read through and nothing else, ends in time, and blames the query only for what the query did."""

import asyncio
import gc
import json
import time

import neo4j
import psutil
import pytest
from neo4j.exceptions import Neo4jError

from benchmarks.query import digest
from lib.graph import query, server
from lib.graph.errors import one_line
from lib.graph.literals import apart
from lib.graph.query import CAP, HEAVIEST, QueryFailed, Reader, Refused, Rows, TimedOut, Unavailable
from lib.graph.vet import LONGEST_QUERY
from lib.graph.wire import weight
from tests import hostile

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
    "MATCH (t:Tag) RETURN CASE WHEN t.count > 5 THEN t.count ELSE 0 END AS use ORDER BY t.tagId LIMIT 1",
    "UNWIND [1, 2] AS use RETURN CASE WHEN true THEN use ELSE use END AS explain",
    "MATCH (n:Tag) WITH DISTINCT n.count AS use RETURN use ORDER BY use LIMIT 1",
    "RETURN {use: 1, `USE neo4j`: 2} AS x",
    "RETURN 'a; b' AS x; // done",
    "CALL db.labels() YIELD label RETURN label ORDER BY label",
    "CALL db.schema.nodeTypeProperties() YIELD nodeType RETURN count(*)",
    "LET x = 1 FILTER x > 0 RETURN x NEXT RETURN x + 1 AS y",
    "WHEN true THEN RETURN 1 AS x ELSE RETURN 2 AS x",
    "MATCH (n:$('Tag')) RETURN count(n)",
    "MATCH REPEATABLE ELEMENTS (a:Tag)-[r]-(b) RETURN count(*)",
    "MATCH p = SHORTEST 1 (a:Tag)--+(b:Tag) RETURN length(p) LIMIT 1",
    "MATCH (n:Tag) WHERE n.count > 0 FINISH",
    "MATCH (u:User {userId: CASE WHEN true THEN COUNT { MATCH (t:Tag) WHERE t.count > 3 } END}) RETURN count(u)",
    "MATCH (call:User) WHERE call.userId = CASE WHEN true THEN COUNT { MATCH (t:Tag) } END RETURN count(*)",
    "MATCH (case:User) RETURN " + ", ".join(f"case.views + {n}" for n in range(20)) + " LIMIT 1",
    "WITH 1 AS x CALL (x) { WITH x, [x] AS use UNWIND use AS y RETURN y } RETURN y",
    "MATCH (use:Tag) CALL (use) { WITH use MATCH (use)--(n) RETURN count(n) AS k } RETURN sum(k)",
    "MATCH (call:Tag) WITH call AS show MATCH (show)--(load) RETURN show.tagName AS terminate ORDER BY terminate LIMIT 1",
    "RETURN COLLECT { MATCH (b:Badge) RETURN b.name AS n ORDER BY n } AS names, EXISTS { (:Tag) } AS any",
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


def test_what_is_no_read_is_refused_and_changes_nothing(uri):
    before = digest(uri)
    queries = [hostile.fill(q, n) for n, q in enumerate(hostile.REFUSED, 1)]
    answers = ask(uri, *queries, at_once=24)
    assert [(q, a) for q, a in zip(queries, answers, strict=True) if not isinstance(a, Refused)] == []
    assert all("allowed" in a.message and len(a.message) < 400 for a in answers)
    assert digest(uri) == before


def test_the_server_itself_writes_nothing_and_reaches_nothing(uri):
    """Were the tool's own refusals wrong, these settings would still hold; the session here asks to write."""
    said = {}
    with neo4j.GraphDatabase.driver(uri) as driver, driver.session(database="neo4j") as session:
        for query in ("CREATE (n:Q)", "CREATE INDEX FOR (n:Tag) ON (n.x)", "CALL db.createLabel('Q')",
                      "LOAD CSV FROM 'http://127.0.0.1:9/x' AS l RETURN l", "LOAD CSV FROM 'file:///etc/passwd' AS l RETURN l"):  # fmt: skip
            with pytest.raises(Neo4jError) as failed:
                session.run(query).consume()
            said[query] = failed.value.message
    assert sum("read-only" in m for m in said.values()) == 3
    assert "blocked" in said["LOAD CSV FROM 'http://127.0.0.1:9/x' AS l RETURN l"]
    assert "is false" in said["LOAD CSV FROM 'file:///etc/passwd' AS l RETURN l"]


def test_words_alone_refuse_nothing(uri):
    answers = ask(uri, *HARMLESS)
    failed = {q: a for q, a in zip(HARMLESS, answers, strict=True) if isinstance(a, Exception)}
    assert failed == {}


def test_size_is_limited(uri):
    (answer,) = ask(uri, "RETURN '" + "x" * LONGEST_QUERY + "'")
    assert isinstance(answer, Refused)
    assert "characters" in answer.message


def test_what_is_too_deep_is_said_to_be(uri):
    plan, nested = ask(
        uri, "RETURN 1 AS x " + "UNION RETURN 1 AS x " * 380, "RETURN reduce(l = [], i IN range(1, 400) | [l])"
    )
    assert isinstance(plan, QueryFailed) and "plan" in plan.message
    assert isinstance(nested, QueryFailed) and "levels" in nested.message


def test_a_query_that_someone_else_ends_runs_again(uri):
    async def go():
        reader = Reader(uri)
        try:
            asked = asyncio.create_task(reader.run("UNWIND range(1, 10000000) AS x RETURN sum(x % 7) AS s", 1))
            theirs = "SHOW TRANSACTIONS YIELD transactionId AS id, currentQuery AS q WHERE q STARTS WITH 'UNWIND' "
            with neo4j.GraphDatabase.driver(uri) as driver:
                while not (found := driver.execute_query(theirs + "RETURN id").records) and not asked.done():
                    await asyncio.sleep(0.01)
                for record in found:
                    driver.execute_query("TERMINATE TRANSACTIONS $id", id=record["id"])
            return len(found), await asked
        finally:
            await reader.close()

    ended, rows = asyncio.run(go())
    assert (ended, rows.total) == (1, 1)


def test_rows_are_counted_beyond_the_limit_and_up_to_the_cap(uri):
    few, many = ask(uri, "UNWIND range(1, 7) AS x RETURN x", f"UNWIND range(1, {CAP + 10}) AS x RETURN x", limit=3)
    assert (few.columns, few.rows, few.total, few.cut) == (["x"], [[1], [2], [3]], 7, True)
    assert (many.total, many.cut) == (CAP, True)
    assert (few.more, many.more) == (False, True)
    (whole,) = ask(uri, "UNWIND range(1, 7) AS x RETURN x", limit=7)
    assert not whole.cut
    (exact,) = ask(uri, f"UNWIND range(1, {CAP}) AS x RETURN x", limit=CAP)
    assert (exact.total, exact.cut, exact.more, len(exact.rows)) == (CAP, False, False, CAP)


def test_no_result_is_too_large_for_this_process(uri):
    before = psutil.Process().memory_info().rss
    answers = ask(uri, *[hostile.fill(q, 1) for q in hostile.HUGE], limit=CAP, timeout=10.0, at_once=2)
    for text, answer in zip(hostile.HUGE, answers, strict=True):
        if isinstance(answer, Rows):
            assert answer.cut and answer.more and weight(answer.rows) <= 2 * HEAVIEST, text
        else:
            assert answer.kind in ("time out", "memory error"), (text, answer)
    assert sum(isinstance(a, Rows) for a in answers) >= 3
    assert psutil.Process().memory_info().rss - before < 500 * 2**20


def test_a_pause_of_this_process_is_nobody_s_time_out():
    async def go():
        deadlines = query.Deadlines()

        async def patient():
            async with deadlines.within(0.6):
                await asyncio.sleep(0.4)
                return "answered"

        asked = [asyncio.create_task(patient()) for _ in range(3)]
        await asyncio.sleep(0.1)
        time.sleep(1.5)  # as while it reads another's huge answer
        found = await asyncio.gather(*asked)
        with pytest.raises(TimeoutError):
            async with deadlines.within(0.3):
                await asyncio.sleep(5)
        return found

    assert asyncio.run(go()) == ["answered"] * 3


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
    assert answer.message.startswith("Neo.ClientError.Statement.")


def test_failures_name_no_part_of_the_server(uri):
    wrong = [
        "MATCH (n:Tag) RETURN sum(n.tagName)",
        "MATCH (u:User) WITH collect(u)[0] AS u, [1] AS l RETURN l[u.displayName]",
        "RETURN [1]['a']",
    ]
    for answer in ask(uri, *wrong):
        assert isinstance(answer, QueryFailed)
        assert "org.neo4j" not in answer.message and "Slotted" not in answer.message, answer.message
        assert answer.message.startswith("Neo.ClientError.") and len(answer.message) > 60


def test_failures_say_where_and_show_nothing_of_the_machine(uri):
    answers = ask(
        uri,
        "MATCH (n:Tag)\n RETRUN n",
        "MATCH (n:Tag) RETURN n." + "x" * 5000 + " FOO",
        "CALL db.index.fulltext.queryNodes('none', 'x')",
        "CALL db.index.vector.queryNodes('none', 1, [1.0])",
        "RETURN date('/home/someone/secret.txt')",
        "RETURN localdatetime('x')",
        "RETURN point({x: 'a'})",
        "RETURN duration('nonsense')",
        "RETURN 'a' =~ '('",
        "RETURN 9223372036854775807 + 1",
        "RETURN \ud800",
        "",
    )
    assert [a for a in answers if not isinstance(a, QueryFailed)] == []
    messages = [a.message for a in answers]
    assert messages[0].endswith("(line 2, column 2 (offset: 15))")
    assert messages[1].endswith("(line 1, column 5025 (offset: 5024))")
    assert all(0 < len(m) <= 300 and "\n" not in m and "java." not in m and "secret" not in m for m in messages), (
        messages
    )
    assert [a.kind for a in answers][:2] == ["syntax error"] * 2 and answers[-2].kind == "syntax error"


def test_slow_queries_end_in_time(uri):
    started = time.monotonic()
    answers = ask(
        uri, "MATCH (a), (b), (c), (d) WHERE a.score + b.score > c.score + d.score RETURN count(*)", timeout=1.0
    )
    assert isinstance(answers[0], TimedOut)
    assert time.monotonic() - started < 15
    assert "1 s" in answers[0].message


def test_a_loop_that_nothing_stops_costs_the_server_and_nobody_else(uri):
    """Told "timed out" within seconds, replaced within seconds more; whoever was in flight is run again."""
    count = "MATCH (t:Tag) RETURN count(t)"
    slow = "UNWIND range(1, 60000000) AS x RETURN sum(x % 7)"  # in flight when the server is replaced
    started = time.monotonic()

    async def go():
        quick, patient = Reader(uri, timeout=1.0), Reader(uri, timeout=120.0)
        try:
            before = server._replaceable[uri].read_text()
            bystander = asyncio.create_task(patient.run(slow, 1))
            with pytest.raises(TimedOut, match="1 s"):
                await quick.run(LOOP, 1)
            told = time.monotonic() - started
            while server._replaceable[uri].read_text() == before:
                assert time.monotonic() - started < 60
                await asyncio.sleep(0.05)
            replaced = time.monotonic() - started
            assert (await quick.run(count, 1)).rows[0][0] > 0
            return told, replaced, (await bystander).total, quick.counts["servers replaced"]
        finally:
            await quick.close()
            await patient.close()

    told, replaced, total, times = asyncio.run(go())
    assert told < 1 + query.GRACE + 3
    assert replaced < told + query.LOOKS * (query.PAUSE + 3) + 3
    assert (total, times) == (1, 1)


def test_on_a_server_of_one_s_own_work_stops_with_a_clear_word(uri, monkeypatch):
    monkeypatch.setattr(server, "replace", lambda uri: False)  # as on a server that this process doesn't run

    async def go():
        reader = Reader(uri, timeout=1.0)
        try:
            with pytest.raises(TimedOut):
                await reader.run(LOOP, 1)
            for _ in range(300):
                if reader._barred:
                    break
                await asyncio.sleep(0.1)
            with pytest.raises(Unavailable, match="restart it"):
                await reader.run("RETURN 1", 1)
        finally:
            await reader.close()

    asyncio.run(go())
    monkeypatch.undo()
    assert server.replace(uri)


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
    """Two of them, so that the server also falls while the others wait for their turn to run alone."""
    bombs = [hostile.fill(hostile.BOMBS[0], n) for n in range(2)]
    slow = [f"UNWIND range(1, 4000000) AS x RETURN sum(x % 7) * 0 + {i}" for i in range(6)]
    answers = ask(uri, *bombs, *slow, timeout=60.0, at_once=8)
    assert all(isinstance(a, QueryFailed | TimedOut) for a in answers[:2])
    assert [a.rows if isinstance(a, Rows) else a for a in answers[2:]] == [[[i]] for i in range(6)]


@pytest.mark.parametrize("times", [query.RERUNS, query.RERUNS + 1])
def test_bad_company_is_borne_a_few_times_and_not_for_ever(uri, times):
    """As when the server is replaced under a query because of another's, `times` times in a row."""
    text = "UNWIND range(1, 12000000) AS x RETURN sum(x % 7) AS s"

    async def go():
        reader = Reader(uri, timeout=60.0)
        try:
            asked = asyncio.create_task(reader.run(text, 1))
            theirs = "SHOW TRANSACTIONS YIELD transactionId AS id, currentQuery AS q WHERE q STARTS WITH 'UNWIND' "
            with neo4j.GraphDatabase.driver(uri) as driver:
                ended = set()
                while len(ended) < times and not asked.done():
                    await asyncio.sleep(0.01)
                    for (id,) in driver.execute_query(theirs + "RETURN id").records:
                        if id not in ended:
                            query._replaced[uri] += 1
                            driver.execute_query("TERMINATE TRANSACTIONS $id", id=id)
                            ended.add(id)
            return len(ended), (await asyncio.gather(asked, return_exceptions=True))[0]
        finally:
            await reader.close()

    ended, answer = asyncio.run(go())
    assert ended == times
    assert isinstance(answer, Rows if times == query.RERUNS else TimedOut), answer


def test_one_look_at_the_server_s_functions_is_enough_for_all(uri, monkeypatch):
    class Looking(Reader):
        looks = 0

        async def _listed(self):
            self.looks += 1
            return await super()._listed()

    async def ask_all(reader, cancelled=False):
        tasks = [asyncio.create_task(reader.run("RETURN 1 AS x", 1)) for _ in range(20)]
        await asyncio.sleep(0)
        if cancelled:
            tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def go():
        there, gone = Looking(uri), Looking("bolt://127.0.0.1:9")
        try:
            first, *others = await ask_all(there, cancelled=True)
            unavailable = await ask_all(gone) + await ask_all(gone)
            return first, others, unavailable, there.looks, gone.looks
        finally:
            await there.close()
            await gone.close()

    monkeypatch.setattr(query, "RETURNS_WITHIN", 0.5)
    first, others, unavailable, looks, looks_in_vain = asyncio.run(go())
    assert isinstance(first, asyncio.CancelledError) and all(isinstance(a, Rows) for a in others)
    assert all(isinstance(a, Unavailable) for a in unavailable)
    assert (looks, looks_in_vain) == (1, 2)  # a failure isn't remembered


def test_nothing_stays_of_what_was_refused(uri):
    """Verdicts are remembered by the thousand, and a plan can take megabytes."""

    async def go():
        reader = Reader(uri)
        try:
            with pytest.raises(Refused):
                await reader.run(hostile.fill(hostile.WRITES[-1], 1), 1)
            gc.collect()
            return [o for o in gc.get_objects() if type(o) is dict and "operatorType" in o]
        finally:
            await reader.close()

    assert asyncio.run(go()) == []


def test_first_come_first_served(uri):
    """A task with many queries doesn't keep another one's single query waiting until the end."""

    async def go():
        reader, done = Reader(uri, at_once=2), []

        async def one(name, text):
            await reader.run(text, 1)
            done.append(name)

        try:
            many = [one("many", f"UNWIND range(1, 300000) AS x RETURN sum(x) + {n}") for n in range(40)]
            tasks = [asyncio.create_task(m) for m in many[:20]]
            tasks += [asyncio.create_task(one("single", "RETURN 1"))]
            tasks += [asyncio.create_task(m) for m in many[20:]]
            await asyncio.gather(*tasks)
            return done
        finally:
            await reader.close()

    assert 15 <= asyncio.run(go()).index("single") <= 25


def test_a_message_that_repeats_a_long_query_is_cut_before_it_is_searched():
    started = time.process_time()
    for name in ("a." * 10_000, "a/" * 10_000, " " * 20_000):
        line = one_line(ValueError(f"Variable `{name}` not defined (line 1, column 8 (offset: 7))"))
        assert line.endswith("(line 1, column 8 (offset: 7))") and len(line) <= 300
    apart("RETURN 1 " + "/* " * 6_600)
    assert time.process_time() - started < 0.5
