"""A batch's judgement is that of each value by itself; the way without vetting is for the generator alone."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from lib.graph.query import QueryError, Reader, TimedOut
from lib.graph.trusted import Trusted
from lib.questions.structures import Structure
from lib.questions.together import Together
from lib.questions.verify import Rejected, Verifier
from tests.conftest import ROOT

NAMED = "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = '{name}'"
SCORED = "MATCH (u:User)-[:OWNS]->(q:Question) WHERE q.score > {score}"
TEMPLATES = [
    f"{NAMED} RETURN q.title",
    f"{NAMED} RETURN count(*)",
    f"{NAMED} RETURN 100.0 * count(CASE WHEN q.score > {{score}} THEN 1 END) / count(*)",
    f"{NAMED} AND q.score IS NOT NULL RETURN q.title ORDER BY q.score DESC LIMIT 1",
    f"{NAMED} AND q.score IS NOT NULL RETURN q.title ORDER BY q.score DESC",
    f"{SCORED} RETURN u.displayName, count(*) ORDER BY count(*) DESC LIMIT {{count}}",
    f"{SCORED} WITH u, count(*) AS n RETURN u.displayName ORDER BY n DESC LIMIT 1",
    f"{SCORED} WITH u, count(*) AS n WHERE n > {{count}} RETURN u.displayName",
    f"{SCORED} RETURN q.title",
]
BATCH = 6


def batch(template: str, names: list[str]) -> list[dict]:
    values = {"name": [*names, "Nobody of that name"], "score": [0, 1, 3, 8, 1000], "count": [3, 5, 10]}
    used = re.findall(r"\{(\w+)\}", template)
    return [{k: {"value": values[k][i % len(values[k])], "kind": k} for k in used} for i in range(BATCH)]


async def judged(judge: Together | Verifier, names: list[str]) -> list[list]:
    """What it makes of a batch of values for each template."""
    structures = [Structure(f"s{i}", t, (), ordered=t.endswith("DESC")) for i, t in enumerate(TEMPLATES)]
    return [await judge.judged(s, batch(s.query, names)) for s in structures]


@pytest.fixture(scope="module")
def names(uri) -> list[str]:
    """Users with the most questions."""

    async def run() -> list[str]:
        trusted = Trusted(uri)
        query = "MATCH (u:User)-[:OWNS]->(:Question) RETURN u.displayName AS name, count(*) AS n ORDER BY n DESC, name"
        found = await trusted.run(f"{query} LIMIT $most", 4, {"most": 4})
        await trusted.close()
        return [name for name, _ in found.rows]

    return asyncio.run(run())


@pytest.fixture(scope="module")
def alone(uri, names) -> list[list]:
    """What each value is judged to be by itself; the second name is one that several share."""

    async def run() -> list[list]:
        reader = Reader(uri)
        try:
            return await judged(Verifier(reader, frozenset(names[1:2])), names)
        finally:
            await reader.close()

    return asyncio.run(run())


@pytest.mark.parametrize("whole", [True, False])
def test_values_judged_together_are_judged_as_each_by_itself(uri, names, alone, monkeypatch, whole):
    """Also where no batch comes back in time, and each value has to show whether it is to blame."""
    if not whole:

        async def late(*_: Any, **__: Any) -> None:
            raise TimedOut("too slow together")

        monkeypatch.setattr(Together, "_ask", late)

    async def run() -> list[list]:
        trusted = Trusted(uri)
        try:
            return await judged(Together(trusted, frozenset(names[1:2])), names)
        finally:
            await trusted.close()

    kept: Counter[str] = Counter()
    for query, one, other in zip(TEMPLATES, asyncio.run(run()), alone, strict=True):
        for a, b in zip(one, other, strict=True):
            of_nothing = "/ count" in query and isinstance(b, Rejected)  # NULL together, an error by itself
            assert isinstance(a, Rejected) if of_nothing else a == b, query
        kept[query] = sum(not isinstance(rows, Rejected) for rows in one)
    assert all(kept[t] for t in TEMPLATES[:3]) and kept.total() < BATCH * len(TEMPLATES)


def test_trusted_queries_only_read(uri):
    async def run() -> None:
        trusted = Trusted(uri)
        try:
            with pytest.raises(QueryError):
                await trusted.run("CREATE (:Intruder)", 1)
            assert (await trusted.run("MATCH (x:Intruder) RETURN count(*)", 1)).rows == [[0]]
        finally:
            await trusted.close()

    asyncio.run(run())


def test_no_text_of_a_model_reaches_a_query_that_is_not_vetted():
    users = {
        f for f in (ROOT / "lib").rglob("*.py") if re.search(r"^(?:from|import) .*\btrusted\b", f.read_text(), re.M)
    }
    assert {str(f.relative_to(ROOT)) for f in users} == {"lib/questions/enumerated.py", "lib/questions/together.py"}
