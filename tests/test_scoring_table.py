"""The tricky pairs of docs/scoring.md: each verdict, both ways round, against BIRD's own rule, and in the document."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from lib.reward import score
from tests.scoring_table import DOCUMENT, document, pairs

PAIRS = pairs()
NUMBERED = [pytest.param(pair, id=f"{number}: {pair['why'][:40]}") for number, pair in enumerate(PAIRS, 1)]


@pytest.mark.parametrize("pair", NUMBERED)
def test_the_verdict_of_each_preset(pair):
    got, want, ordered = pair["got"], pair["want"], pair.get("ordered", False)
    found = score(got, want, ordered=ordered)
    strict, lenient, f1 = pair["graph"]
    assert (found.strict, found.lenient) == (strict, lenient)
    assert found.lenient_literal == pair.get("literal", lenient)
    assert found.f1 == pytest.approx(f1, abs=1e-6)
    assert found.reward == (1.0 if strict else min(found.f1, 0.99))
    assert score(got, want, "bird-ex", ordered).strict == pair["bird"]
    if got is not None:
        back = score(want, got, ordered=ordered)
        assert (back.strict, back.f1) == (found.strict, found.f1)


def as_sqlite(rows: Any) -> list[tuple] | None:
    """What a cursor of sqlite3 gives for a query that returns these rows; None where no query can."""
    if rows is None or not all(isinstance(row, list) and len(row) == len(rows[0]) > 0 for row in rows):
        return None
    for value in (value for row in rows for value in row):
        if isinstance(value, bool | list | dict) or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(value, int) and abs(value) >= 2**63:
            return None
    places = ", ".join("(" + ", ".join("?" * len(row)) + ")" for row in rows)
    with closing(sqlite3.connect(":memory:")) as connection:
        if not rows:
            return connection.execute("SELECT 1 WHERE 0").fetchall()
        return connection.execute(f"VALUES {places}", [value for row in rows for value in row]).fetchall()


def test_bird_ex_is_birds_rule_on_all_pairs_that_sqlite_can_return():
    compared = 0
    for pair in PAIRS:
        got, want = as_sqlite(pair["got"]), as_sqlite(pair["want"])
        if got is not None and want is not None:
            compared += 1
            assert score(got, want, "bird-ex").strict == (set(got) == set(want)), pair["why"]
    assert compared >= 55


def test_there_are_enough_pairs_of_kinds_that_the_rules_dont_name():
    assert len(PAIRS) >= 60 and sum(not pair.get("named", False) for pair in PAIRS) >= 20
    assert len({repr((pair["got"], pair["want"], pair.get("ordered"))) for pair in PAIRS}) == len(PAIRS)


def test_the_document_shows_these_very_pairs():
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.scoring_table"
