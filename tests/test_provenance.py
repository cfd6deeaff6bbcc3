"""Which nodes a query's patterns match, on the real database, and how alike those of two queries are."""

from __future__ import annotations

import asyncio
import re

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from lib import compare, provenance
from lib.files import write_jsonl
from lib.graph import patterns
from lib.graph.query import Reader
from lib.measures import Arm, Method

NODES = st.frozensets(st.sampled_from("abcdef"))


@given(NODES, NODES)
def test_similarity_is_a_share_symmetric_and_one_only_for_equals(one, other):
    found = provenance.similarity(one, other)
    assert 0 <= found <= 1 and found == provenance.similarity(other, one) and (found == 1) == (one == other)
    assert provenance.similarity(one, None) is None and provenance.similarity(None, other) is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("MATCH (u:User)-[:OWNS]->(:Question)-->() WHERE u.age > 3 RETURN u.age LIMIT 1", "u, matched_1, matched_2"),
        ("match (u) where u.displayName starts with 'x (v) with' with u return u", "u"),
        ("MATCH (u:User {age: size('a')}) MATCH (u)--(`my node`) WHERE NOT (u)-->(u) RETURN 1", "u, `my node`"),
        ("MATCH (u) WHERE EXISTS { MATCH (u)-->(v) RETURN v } RETURN u", "u"),
    ],
)
def test_all_nodes_of_the_patterns_are_asked_for(query, names):
    asked = patterns.asking_for_nodes(query)
    assert re.search(r"UNWIND \[(.*)\] AS matched_node RETURN DISTINCT elementId\(matched_node\)$", asked)[1] == names
    assert asked.lower().startswith(query.lower().split(" where")[0].split(" return")[0][:8])


@pytest.mark.parametrize(
    "query",
    [
        "RETURN 1",
        "CALL db.labels()",
        "UNWIND [1] AS x MATCH (u) RETURN u",
        "MATCH (p:Post WHERE (p.score) > 1)--(u:User) RETURN u",
        "MATCH (u",
        "",
    ],
)
def test_a_query_of_another_build_is_not_known(query):
    assert patterns.asking_for_nodes(query) is None


def test_on_the_database(uri):
    tags = "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName STARTS WITH 'p' RETURN "
    queries = {
        "titles": tags + "q.title",
        "count": tags + "count(*)",
        "unnamed": "MATCH (:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName STARTS WITH 'p' RETURN t.tagName",
        "all": "MATCH (q:Question)-[:TAGGED]->(t:Tag) RETURN q.title",
        "users": "MATCH (u:User) RETURN u.displayName",
        "wrong": "MATCH (q:Question) WHERE q.title = RETURN q",
    }

    async def ask():
        reader = Reader(uri)
        try:
            return {name: await provenance.matched_nodes(reader, query) for name, query in queries.items()}
        finally:
            await reader.close()

    found = asyncio.run(ask())
    assert found["titles"] and found["titles"] == found["count"] == found["unnamed"]
    assert 0 < provenance.similarity(found["titles"], found["all"]) < 1
    assert provenance.similarity(found["titles"], found["users"]) == 0 and found["wrong"] is None


def test_arms_are_compared_by_it(tmp_path):
    asked = [synthetic.question("held_out_instances", i) for i in range(6)]
    known = [
        {"question": q["id"], "query": q["query"], "similarity": 1.0 if i < 4 else None} for i, q in enumerate(asked)
    ]
    other = [{"question": q["id"], "query": "other", "similarity": 0.25} for q in asked]
    settings = synthetic.settings_in(tmp_path)
    write_jsonl(settings.run_dir / "provenance.jsonl", known + other)

    def arm(name, right):
        made = [(q, ("strict", q["query"]) if i in right else ("wrong", "other")) for i, q in enumerate(asked[:5])]
        silent = synthetic.episode(name, asked[5], 0, "no_query", None)
        return Arm.of(name, [*(synthetic.episode(name, q, 0, *how) for q, how in made), silent])

    stranger = synthetic.episode("base", asked[0], 0, "wrong", "MATCH (x) RETURN x")
    group = {"base": arm("base", {0}), "control": arm("control", {0}), "trained": arm("trained", {0, 1, 2, 3, 4})}
    found = compare.provenance(settings, group, Method(0.95, 200))
    with pytest.raises(compare.CompareError, match=r"provenance\.jsonl lacks the query of base/.*lib\.provenance"):
        compare.provenance(settings, {**group, "base": Arm.of("base", [stranger])}, Method(0.95, 200))
    assert found["rates"] == {"base": 2 / 6, "control": 2 / 6, "trained": 4 / 5}
    assert found["unknown"] == {"base": 0, "control": 0, "trained": 1}
    assert found["contrast"]["questions"] == 5 and found["contrast"]["delta"] == pytest.approx(3 * 0.75 / 5)
