"""A small version of `benchmarks/query.py`: hostile company changes no graph, no harmless query's rows, and no memory."""

from __future__ import annotations

import asyncio

import psutil

from benchmarks.query import digest, soak


def test_hostile_company_hurts_nobody(uri, reads):
    before, ours = digest(uri), psutil.Process().memory_info().rss >> 20
    found = asyncio.run(soak(uri, reads, 300, 12))
    assert found["first_wrong"] == []
    assert found["outcomes"]["harmless"] == {"rows": 288}
    assert sum(sum(c.values()) for c in found["outcomes"].values()) == 300
    assert found["peak_mb"]["ours"] - ours < 500
    assert found["peak_mb"]["server"] < 1500
    assert digest(uri) == before
