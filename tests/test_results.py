"""The cache of results changes nothing but the time that it takes."""

from __future__ import annotations

import asyncio

from lib.graph.query import CAP, QueryError, Reader, Rows
from lib.graph.results import Results


def test_the_cache_changes_nothing_that_is_returned(uri):
    queries = [
        "MATCH (t:Tag) RETURN t.tagName AS name, {n: t.count, l: [t.tagId]} AS x ORDER BY name",
        "MATCH (p:Post) RETURN p.postId ORDER BY p.postId",
        "MATCH (n:Nothing) RETURN n",
        "RETURN 1 / 0",
        "MATCH (n:Tag RETURN n",
        "CREATE (n:Q)",
    ]

    async def answer(reader, text, limit):
        try:
            return await reader.run(text, limit)
        except QueryError as e:
            return type(e), e.message

    async def go():
        plain, caching = Reader(uri), Reader(uri, cache=2**20)
        try:
            for limit in (3, 200, 10, CAP, 1):
                for text in queries:
                    wanted = await answer(plain, text, limit)
                    found = await asyncio.gather(*[answer(caching, text, limit) for _ in range(4)])
                    assert found == [wanted] * 4, (text, limit)
                    if isinstance(wanted, Rows) and wanted.rows:
                        found[0].rows[0][0] = "spoilt"
                        if text == queries[0]:
                            found[1].rows[0][1]["l"].append("spoilt")
            return caching.counts["cached"], caching.counts["asked"], plain.counts["cached"], caching.report()
        finally:
            await plain.close()
            await caching.close()

    cached, asked, none, report = asyncio.run(go())
    assert none == 0 and asked == 120
    assert cached >= 50
    assert f"{cached / asked:.0%} from the cache" in report and "20 refused" in report


def test_chance_and_clocks_are_never_remembered(uri):
    async def go():
        reader = Reader(uri, cache=2**20)
        try:
            return [
                [(await reader.run(text, 1)).rows for _ in range(2)]
                for text in ("RETURN rand()", "RETURN randomUUID() AS x", "RETURN datetime.realtime() AS x",
                             "RETURN `rand`()", "RETURN r\\u0061nd()", "RETURN timestamp() + 0 * rand() + rand()")
            ]  # fmt: skip
        finally:
            await reader.close()

    assert all(a != b for a, b in asyncio.run(go()))


def test_the_cache_is_bounded():
    results = Results(100_000)
    for n in range(1000):
        results.put(f"query {n}", Rows(["x"], [["y" * 1000]], 1, False))
        assert results.used <= 100_000
    assert results.get("query 999", 1) and not results.get("query 0", 1)
    results.put("large", Rows(["x"], [["y" * 200_000]], 1, False))
    assert results.get("large", 1) is None and results.get("query 999", 1)
