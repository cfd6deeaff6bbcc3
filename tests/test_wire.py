"""Every kind of value that the server knows is shown in one readable form, is JSON, and is scored by what it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from lib.graph.query import QueryFailed, Reader, Rows
from lib.graph.wire import plain, weight
from lib.graph.world import LONGEST_CELL, show, show_error
from lib.reward import score
from lib.settings import load
from tests import hostile

SETTINGS = load().agent

FORMS = {
    "datetime('2010-07-19T12:00:00.500[Europe/Berlin]')": "2010-07-19T12:00:00.5+02:00",
    "datetime('2010-07-19T10:00Z')": "2010-07-19T10:00:00+00:00",
    "localdatetime('2010-07-19T19:39:07.120')": "2010-07-19T19:39:07.12",
    "date('0001-01-01')": "0001-01-01",
    "time('10:00:00.25+01:00')": "10:00:00.25+01:00",
    "localtime('10:00')": "10:00:00",
    "duration('P1Y2M3DT4H5M6.70S')": "P1Y2M3DT4H5M6.7S",
    "duration({days: 1, hours: -30})": "P1DT-30H",
    "point({x: 1, y: 2})": '{"srid": 7203, "coordinates": [1.0, 2.0]}',
    "point({latitude: 1.5, longitude: 2, height: 3})": '{"srid": 4979, "coordinates": [2.0, 1.5, 3.0]}',
    "vector([1, 2, 3], 3, INTEGER8)": "[1, 2, 3]",
    "vector([1.5, 2.5], 2, FLOAT32)": "[1.5, 2.5]",
    "0.0 / 0.0": "nan",
    "1.0 / 0.0": "inf",
    "-1.0 / 0.0": "-inf",
    "9223372036854775807": "9223372036854775807",
    "0.1 + 0.2": "0.3",
    "true": "true",
    "null": "null",
    "''": "",
    "'007'": "007",
    "[1, [null, 'x'], date('2010-01-01')]": '[1, [null, "x"], "2010-01-01"]',
    "{a: {b: [duration('PT1.50S')]}}": '{"a": {"b": ["PT1.5S"]}}',
    "'line\\nbreak | bar'": "line\nbreak | bar",
}
SAME = [
    ("datetime('2010-07-19T12:00:00[Europe/Berlin]')", "datetime('2010-07-19T10:00:00Z')", True),
    ("datetime('2010-07-19T12:00:00Z')", "localdatetime('2010-07-19T12:00:00')", False),
    ("localdatetime('2010-07-19T12:00')", "localdatetime('2010-07-19T12:00:00.000')", True),
    ("date('2010-07-19')", "localdatetime('2010-07-19T00:00')", False),
    ("duration('PT1.50S')", "duration('PT1.5S')", True),
    ("duration('P1D')", "duration('PT24H')", False),
    ("0.0 / 0.0", "1.0 / 0.0 - 1.0 / 0.0", True),
    ("1.0 / 0.0", "2.0 / 0.0", True),
    ("1.0 / 0.0", "-1.0 / 0.0", False),
    ("-0.0", "0", True),
    ("1", "1.0", True),
    ("1", "true", False),
    ("7", "'7'", False),
    ("null", "''", False),
    ("[1, 2]", "[2, 1]", False),
    ("{a: 1, b: 2}", "{b: 2.0, a: 1}", True),
    ("point({x: 1, y: 2})", "point({x: 1.0, y: 2.0})", True),
    ("point({x: 1, y: 2})", "point({longitude: 1, latitude: 2})", False),
    ("vector([1, 2], 2, INTEGER8)", "vector([1, 2], 2, INTEGER64)", True),
    ("COLLECT { MATCH (t:Tag) RETURN t ORDER BY t.tagId LIMIT 1 }",
     "COLLECT { MATCH (t:Tag) RETURN properties(t) ORDER BY t.tagId LIMIT 1 }", True),
]  # fmt: skip


def rows(uri, *queries, limit=5):
    async def go():
        reader = Reader(uri)
        try:
            return await asyncio.gather(*[reader.run(q, limit) for q in queries], return_exceptions=True)
        finally:
            await reader.close()

    return asyncio.run(go())


def test_each_kind_has_one_readable_form(uri):
    for (expression, wanted), found in zip(FORMS.items(), rows(uri, *[f"RETURN {e} AS x" for e in FORMS]), strict=True):
        assert isinstance(found, Rows), (expression, found)
        assert show(found, SETTINGS) == f"1 row\nx\n{wanted}", expression
        assert score(json.loads(json.dumps(found.rows)), found.rows).strict, expression


def test_values_are_scored_by_what_they_are(uri):
    found = rows(uri, *[f"RETURN {e} AS x" for pair in SAME for e in pair[:2]])
    for (a, b, same), left, right in zip(SAME, found[::2], found[1::2], strict=True):
        assert score(left.rows, right.rows).strict == same, (a, b, left, right)


def test_paths_nodes_and_relationships_are_their_properties(uri):
    path, parts = rows(
        uri,
        "MATCH p = (:User)-[:EARNED]->(:Badge) RETURN p ORDER BY elementId(relationships(p)[0]) LIMIT 1",
        "MATCH (u:User)-[e:EARNED]->(b:Badge) RETURN [u, e, b] ORDER BY elementId(e) LIMIT 1",
    )
    assert path.rows == parts.rows
    assert plain(b"\x00\xff") == "00ff"


def test_what_has_no_readable_form_is_the_query_s_fault(uri):
    texts = [
        "RETURN date('-0044-03-15')",
        "RETURN [date('+12345-01-01')]",
        "RETURN {a: [localdatetime('+12345-01-01T00')]}",
        "RETURN datetime({year: 2020, timezone: 'SystemV/AST4'})",
    ]
    texts += [f"RETURN reduce(l = [], i IN range(1, {depth}) | [l])" for depth in (51, 200, 450, 1200)]
    texts += [f"RETURN reduce(m = {{}}, i IN range(1, {depth}) | {{m: m}})" for depth in (51, 200, 900)]
    for text, found in zip(texts, rows(uri, *texts), strict=True):
        assert isinstance(found, QueryFailed), (text, found)
        assert found.kind == "error" and "toString" in found.message
    (deep,) = rows(uri, "RETURN reduce(l = [], i IN range(1, 45) | [l]) AS x")
    assert score(json.loads(json.dumps(deep.rows)), deep.rows).strict


@pytest.mark.parametrize("cache", [0, 2**20])
def test_what_can_be_read_depends_on_no_limit_and_no_cache(uri, cache):
    (text,) = [q for q in hostile.PLANNED if "x = 150" in q]

    async def go():
        reader = Reader(uri, cache=cache)
        try:
            return await asyncio.gather(
                *[reader.run(hostile.fill(text, n), n) for n in (1, 149, 150)], return_exceptions=True
            )
        finally:
            await reader.close()

    assert [type(found) for found in asyncio.run(go())] == [QueryFailed] * 3


def test_times_with_a_zone_are_dear_and_a_row_holds_fewer_of_them(uri):
    text = "RETURN [x IN range(1, {}) | datetime({{epochSeconds: x * 86400, timezone: 'Europe/Stockholm'}})] AS l"
    few, many, local = rows(uri, text.format(3_000), text.format(20_000), "RETURN range(1, 20000) AS l")
    assert len(few.rows[0][0]) == 3_000 and len(local.rows[0][0]) == 20_000
    assert isinstance(many, QueryFailed) and many.kind == "memory error" and "in one row" in many.message


def test_a_cut_result_says_so_and_how_long_it_was(uri):
    text, many, more, wide = rows(
        uri,
        "RETURN reduce(s = '', i IN range(1, 3000) | s + 'é') AS x, 1 AS y",
        "UNWIND range(1, 100) AS x RETURN x",
        "UNWIND range(1, 30000) AS x RETURN x",
        "UNWIND range(1, 5) AS x RETURN " + ", ".join(f"range(1, 300) AS c{i}" for i in range(20)),
    )
    shown = show(text, SETTINGS)
    assert shown == "1 row\nx | y\n" + "é" * LONGEST_CELL + " ... (3,000 characters) | 1"
    assert show(many, SETTINGS).startswith("100 rows\nx\n1\n2\n3") and many.cut
    assert show(more, SETTINGS).startswith("25000 rows or more\n")
    shown = show(wide, replace(SETTINGS, shown_characters=500))
    assert len(shown) < 540 and shown.endswith("characters)") and " ... (" in shown
    assert show_error(QueryFailed("x" * 9000), replace(SETTINGS, shown_errors="message"))[:7] == "error: "


@pytest.mark.parametrize("value", ["x" * 1000, ["x" * 1000], {"a": "x" * 1000}, list(range(100)), [[[["x" * 1000]]]]])
def test_weight_is_at_least_what_a_value_holds(value):
    assert 900 < weight(value) < 10_000
