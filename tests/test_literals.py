"""A query whose values are sent apart is the same query: same rows, same columns, same errors."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.graph import query
from lib.graph.literals import apart
from lib.graph.query import QueryError, Reader, Rows
from lib.questions.structures import STRUCTURES

VALUES = {
    "name": "Tomar Velin", "tag": "regression", "badge": "Teacher", "location": "Oslo", "word": "model", "prefix": "re",
    "date": "2012-03-05", "year": "2012", "question": "1", "score": "2", "reputation": "100", "count": "3",
}  # fmt: skip


def filled(template, values=VALUES):
    return re.sub(r"\{([a-z]+)\d?\}", lambda slot: values[slot[1]], template)


GENERATED = [filled(s.query) for s in STRUCTURES]
QUERIES = [
    # strings and numbers, compared in each way
    "MATCH (t:Tag) WHERE t.tagName = 'regression' RETURN t.tagName, t.count",
    'MATCH (t:Tag) WHERE t.tagName = "regression" OR t.tagName = \'time-series\' RETURN t.tagName ORDER BY t.tagName',
    "MATCH (t:Tag) WHERE t.tagName STARTS WITH 're' AND t.tagName ENDS WITH 'n' RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName CONTAINS 'e' AND NOT t.tagName CONTAINS '' RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName < 'm' AND 'a' <= t.tagName RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName =~ 're.*' RETURN count(*)",
    "MATCH (q:Question) WHERE q.score > 2 AND q.score <> 3 AND q.score <= 40 RETURN count(*)",
    "MATCH (q:Question) WHERE 2<q.score<=10 RETURN count(*)",
    "MATCH (q:Question) WHERE q.score >= -1 AND q.score > 0.5 AND q.score < 1e3 RETURN count(*)",
    "MATCH (q:Question) WHERE q.score = 0x2 OR q.score = 0o7 OR q.score = 1_0 RETURN count(*)",
    "MATCH (q:Question) WHERE q.score > 1 + 2 * 3 RETURN count(*)",
    "MATCH (q:Question) WHERE q.score > 7 / 2 AND q.score < 2 ^ 5 RETURN count(*)",
    "MATCH (u:User) WHERE u.reputation > 9223372036854775807 RETURN count(*)",
    "MATCH (u:User) WHERE u.reputation > 007 RETURN count(*)",
    "MATCH (u:User) WHERE u.creationDate.year = 2012 RETURN count(*)",
    "MATCH (u:User) WHERE date(u.creationDate) > date('2012-03-05') RETURN count(*)",
    "MATCH (u:User) WHERE u.creationDate > localdatetime('2012-03-05T00:00:00') RETURN count(*)",
    "MATCH (u:User) WHERE u.creationDate > datetime({year: 2012, month: 3}) RETURN count(*)",
    # lists, maps, lengths of paths
    "MATCH (t:Tag) WHERE t.tagName IN ['regression', 'r', 'it''s'] RETURN t.tagName ORDER BY t.tagName",
    "MATCH (q:Question) WHERE q.score IN [1, 2, 3] AND [1, 2][0] = 1 RETURN count(*)",
    "MATCH (t:Tag {tagName: 'regression'}) WHERE {a: 1} = {a: 1} RETURN t.count",
    "MATCH (u:User)-[:OWNS]->(q) WHERE u.reputation > 100 AND size([x IN [1, 2, 3] WHERE x > 1]) = 2 RETURN count(q)",
    "MATCH (u:User)-[*1..2]-(t:Tag) WHERE t.tagName = 'regression' RETURN count(DISTINCT u)",
    "MATCH (u:User) (()-[]->()){1,2} (t:Tag) WHERE t.tagName = 'regression' RETURN count(DISTINCT u)",
    "MATCH (u:User) WHERE EXISTS { (u)-[:OWNS]->(q:Question) WHERE q.score > 3 } RETURN count(u)",
    "MATCH (u:User) WHERE CASE u.reputation WHEN 1 THEN 'a' ELSE 'b' END = 'b' RETURN count(u)",
    # columns are called after their expressions; what comes after them keeps its values
    "MATCH (q:Question) WHERE q.score > 5 RETURN q.score > 5, 'x' = 'x', 1 = 1 ORDER BY q.postId LIMIT 2",
    "MATCH (t:Tag) WHERE t.count > 3 RETURN t.tagName ORDER BY t.tagName SKIP 1 LIMIT 3",
    "MATCH (t:Tag) WHERE t.count > 3 WITH t WHERE t.count < 9 RETURN count(*), count(*) = 2",
    "MATCH (t:Tag) WHERE t.count > 3 ORDER BY t.tagName LIMIT 3 RETURN t.tagName, t.count = 4",
    "MATCH (t:Tag) WHERE t.count = 3 RETURN t.count = 3 UNION MATCH (t:Tag) WHERE t.count = 4 RETURN t.count = 3",
    "UNWIND [1, 2, 3] AS x MATCH (t:Tag) WHERE t.tagId = x RETURN t.tagId, x = 2 ORDER BY x",
    "MATCH (t:Tag) WHERE t.tagName STARTS\nWITH 're' AND t.count > 1 RETURN t.tagName, 1 > 0 ORDER BY t.tagName",
    # what only looks like a value or a clause
    "MATCH (t:Tag) // WHERE t.count = 3 RETURN\nWHERE t.count = 4 RETURN count(*)",
    "MATCH (t:Tag) // ends here: 'a\rWHERE t.count = 4 RETURN count(*)",
    "MATCH (t:Tag) /* t.count = '3 */ WHERE /* = */ t.count = /* 5 */ 4 RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName <> 'RETURN = 1' AND t.count = 4 RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName <> \"it's = 'x'\" AND t.tagName <> '\"' RETURN count(*)",
    "MATCH (`t = 1`:Tag) WHERE `t = 1`.count = 4 AND `t = 1`.tagName <> 'a``b' RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName <> 'http://x' AND t.tagName <> '/*' AND t.count > 1 RETURN count(*) // = 3",
    "MATCH (value0:Tag) WHERE value0.count = 4 RETURN count(value0)",
    "MATCH (t:Tag) WHERE t.count1 = 1 OR t.count = 4 RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName = '' OR t.tagName <> 'Ünï ☃ \U0001f600' RETURN count(*)",
    "MATCH (t:Tag) WHERE t.tagName > 'a\nb' RETURN count(*)",
    # faults of the query stay what they are
    "MATCH (t:Tag) WHERE t.count = 4 RETURN m",
    "MATCH (t:Tag) WHERE t.count > 1 AND RETURN t",
    "MATCH (t:Tag) WHERE date('today') = date('2012-01-01') RETURN t",
    "MATCH (t:Tag) WHERE t.count / 0 = 1 RETURN count(t)",
    "MATCH (t:Tag) WHERE t.count = 'four' AND 1 RETURN count(t)",
    "MATCH (t:Tag) WHERE t.tagName = 'unclosed RETURN count(t)",
    "MATCH (t:Tag) WHERE t.count > $given RETURN count(t)",
    "MATCH (t:Tag) WHERE t.count > 3 RETURN count(t), $value0",
]  # fmt: skip


async def answer(awaited):
    """Columns and rows, or what is said about the query."""
    try:
        rows: Rows = await awaited
    except QueryError as e:
        return type(e), e.kind, e.message
    return rows.columns, rows.rows, rows.total


def test_the_answer_is_the_same(uri):
    """Asked as the model asks, and whole."""

    async def both(reader, text):
        return await answer(reader.run(text, 50)), await answer(reader._persistently(text, 50, {}))

    async def go():
        reader = Reader(uri, at_once=4)
        try:
            return await asyncio.gather(*[both(reader, text) for text in GENERATED + QUERIES])
        finally:
            await reader.close()

    answers = asyncio.run(go())
    other = [text for text, (sent, whole) in zip(GENERATED + QUERIES, answers, strict=True) if sent != whole]
    assert other == []
    ran = [text for text, (sent, _) in zip(GENERATED + QUERIES, answers, strict=True) if len(sent) == 3 and sent[2]]
    assert len(ran) > 0.5 * len(answers)


@pytest.mark.parametrize("structure", [s for s in STRUCTURES if " WHERE " in s.query and " IN [" not in s.query])
def test_questions_of_one_structure_are_one_text_to_the_server(structure):
    others = {**VALUES, "name": "Else", "tag": "other", "score": "7", "year": "2010", "word": "w", "reputation": "3000"}
    texts = {apart(filled(structure.query, values))[0].partition(" RETURN ")[0] for values in (VALUES, others)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("MATCH (t) WHERE t.a = 'x' AND t.b > 12 RETURN 1 = 1", ["x", 12]),
        ("MATCH (t) WHERE t.a = 007 RETURN t", []),
        ("MATCH (t) WHERE t.a = 1234567890123456 RETURN t", []),
        ("MATCH (t) WHERE t.a = 'it\\'s' AND t.b = 'plain' RETURN t", []),
        ("MATCH (t) WHERE t.a = 'c:\\\\' AND t.b = 'plain' RETURN t", []),
        ("MATCH (t) // = 'a'\n WHERE t.a = 'b' RETURN t", ["b"]),
        ("MATCH (t) // = 'a'\r WHERE t.a = 'b' RETURN t", ["b"]),
        ("MATCH (t) WHERE t.a = \"= 'b'\" RETURN t", ["= 'b'"]),
        ("MATCH (t) WHERE t.a = $x AND t.b = 'c' RETURN t", []),
        ("MATCH (t) WHERE t.a = '$x' RETURN t", ["$x"]),
        ("MATCH (t) WHERE t.a = 'b' RETURN t, $value0", []),
        ("MATCH (t) WHERE t.a = 'b' RETURN t, '$value0' // $", ["b"]),
        ("MATCH (t) WHERE t.a = -1 AND t.b = 1.5 AND t.c = 1e3 AND t.d = .5 RETURN t", []),
        ("MATCH (t) WITH t WHERE t.a = 1 RETURN t", []),
        ("MATCH (t) WHERE t.a ENDS WITH 'b' AND t.c = 1 RETURN t", ["b", 1]),
    ],
)
def test_only_compared_values_before_the_first_column_are_sent_apart(text, values):
    assert list(apart(text)[1].values()) == values


PIECES = ["= ", "< ", " 'a' ", "'=1'", '"b"', "\\", "'", '"', "`", " 12 ", " 07 ", "//", "\n", "\r", "/*", "*/", " $p ", " RETURN ", "x"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40))
def test_putting_the_values_back_gives_the_text(text):
    """Each name stands where its value stood, and nothing else was touched."""
    parts, values = apart(text)
    for name, value in values.items():
        written = [str(value)] if isinstance(value, int) else [f"'{value}'", f'"{value}"']
        before, found, after = parts.partition(f"${name}")
        assert found
        (kept,) = [w for w in written if text.startswith(before + w)]
        parts = before + kept + after
    assert parts == text


def test_what_runs_is_the_text_that_was_vetted(uri, monkeypatch):
    """And it is vetted once, whatever its values."""
    sent = []
    made = Reader._query

    def noted(self, text, name):
        sent.append(text)
        return made(self, text, name)

    monkeypatch.setattr(Reader, "_query", noted)
    text = "MATCH (t:Tag) WHERE t.tagName <> 'delete' AND t.count > 3 RETURN count(*)"

    async def go():
        reader = Reader(uri)
        try:
            await reader.run(text, 5)
            await reader.run(text.replace("delete", "keep").replace("3", "4"), 5)
        finally:
            await reader.close()

    asyncio.run(go())
    apart_from_values = apart(text)[0]
    assert sent == [query.EXPLAIN + apart_from_values, apart_from_values, apart_from_values]
