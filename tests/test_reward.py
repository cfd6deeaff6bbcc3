"""An answer counts as right exactly when scoring.md says so: named traps, properties, and a brute-force second opinion."""

from __future__ import annotations

import datetime
import enum
import itertools
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neo4j.time import Date, DateTime, Duration

from lib import pairing
from lib.reward import Preset, digest, score

REPOSITORY = Path(__file__).parent.parent
NAN, INF = float("nan"), float("inf")


class Shade(enum.StrEnum):
    DARK = "dark"


class Broken:
    """A value none of whose methods works."""

    def __str__(self):
        raise RuntimeError

    __repr__ = __hash__ = __eq__ = __len__ = __iter__ = __getattr__ = __str__


class BrokenText(str):
    __str__ = __repr__ = Broken.__str__


def equal(a, b, preset="graph") -> bool:
    """Whether two values are one, asked of whole tables, in both directions."""
    there, back = (score([[x]], [[y]], preset).strict for x, y in ((a, b), (b, a)))
    assert there == back
    return there


# --- values

SAME = [
    (1, 1.0),
    (0, -0.0),
    (0.0, -0.0),
    (NAN, float("nan")),
    (INF, INF),
    (0.1 + 0.2, 0.3),
    (2.9999999999999996, 3),
    (1 / 3, 0.3333333333333333),
    (sum([0.1] * 1_000_000), 100_000),
    (1e20, 10**20),
    (2**53 + 1, float(2**53)),  # the float may have been rounded
    (2.0**53, 2.0**53 + 2),  # so may both
    (2.5e17, 2.5e17 + 64),
    (Decimal(2**53 + 1), 2**53 + 1),
    (Decimal("1E+400"), 10**400),
    (Decimal("10E+9998"), Decimal("1E+9999")),
    (Decimal("-0E+9999"), 0),
    (Fraction(1, 3), 1 / 3),
    (Fraction(10**5000, 3), Fraction(2 * 10**5000, 6)),
    (Fraction(6, 3), 2),
    (1e305, 1e305 * (1 + 1e-12)),
    (Decimal("2.50"), 2.5),
    (Decimal("7"), 7),
    (np.float64(0.5), 0.5),
    (np.int64(7), 7),
    (np.bool_(True), True),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.datetime64("2010-07-19T19:12:12", "ns"), "2010-07-19 19:12:12"),
    (np.datetime64("NaT"), None),
    (pd.NaT, None),
    (pd.Timestamp("2010-07-19 19:12:12"), "2010-07-19 19:12:12"),
    (bytearray(b"a"), b"a"),
    (Shade.DARK, "dark"),
    (None, None),
    ("Zo\u00eb", "Zoe\u0308"),
    ("2010-07-19T19:12:12", "2010-07-19 19:12:12"),
    ("2010-07-19T19:12:12", "2010-07-19T19:12:12.000000000"),
    ("2010-07-19T19:12:12.5", "2010-07-19 19:12:12.500"),
    ("2010-07-19T19:12", "2010-07-19T19:12:00"),  # the server leaves out seconds that are zero
    ("2010-07-19T19:12:12Z", "2010-07-19T21:12:12+02:00"),
    ("2010-07-19T21:12:12+02:00[Europe/Berlin]", "2010-07-19T19:12:12+0000"),
    ("2010-07-19T21:12:12+02", "2010-07-19 19:12:12Z"),
    ("2010-07-19 19:12:12", datetime.datetime(2010, 7, 19, 19, 12, 12)),
    ("2010-07-19T19:12:12Z", DateTime(2010, 7, 19, 19, 12, 12, tzinfo=datetime.UTC)),
    ("2010-07-19", datetime.date(2010, 7, 19)),
    ("2010-07-19", Date(2010, 7, 19)),
    ("1890-01-01T00:53:28+00:53:28[Europe/Berlin]", "1890-01-01T00:00:00Z"),  # before there were zones
    ("P1DT2H", Duration(days=1, hours=2)),
    ([1, 2.0], [1.0, 2]),
    ([1, 2], (1, 2)),
    ({"a": 1, "b": [0.3]}, {"b": [0.1 + 0.2], "a": 1}),
    ({"a": None}, {"a": None}),
    ({"\u00eb": 1, "e\u0308": 2}, {"e\u0308": 2, "\u00eb": 1}),  # two keys that NFC would make one
    ({1: "a", "b": 2}, {"b": 2, 1.0: "a"}),
    ({10**5000: 1}, {10**5000: 1}),
    (
        {"identity": 1, "start": 2, "end": 3, "type": "OWNS", "properties": {"since": 1}},
        {"since": 1},
    ),
    (
        {"elementId": "5:x:1", "startNodeElementId": "a", "endNodeElementId": "b", "type": "OWNS", "properties": {}},
        {},
    ),
    (
        {"identity": 7, "elementId": "4:x:7", "labels": ["User"], "properties": {"userId": 3}},
        {"userId": 3},
    ),
    (
        {"elementId": "4:x:7", "labels": ["User"], "properties": {"userId": 3}},
        {"elementId": "4:y:9", "labels": ["User"], "properties": {"userId": 3}},
    ),
]
OTHER = [
    (0.001, 0.002),
    (1_000_000, 1_000_001),
    (1_000_000.0, 1_000_001.0),
    (10**12, 10**12 + 1),
    (10**12, 10.0**12 + 1),
    (10_000_000.01, 10_000_000.02),
    (2**53, 2**53 + 1),
    (2.0**53 + 2, 2**53 + 10**7),
    (Decimal(2**53 + 1), 2**53),
    (Decimal("1E-9999"), 0),
    (Fraction(1, 10**400), 0),
    (Fraction(10**400, 3), Fraction(10**400 + 1, 3)),
    (10**400, INF),
    (10**400, 10**400 + 1),
    ({1: "a"}, {"1": "a"}),
    ({1: "a"}, {True: "a"}),
    (1 + 0j, 1),
    (b"a", "a"),
    (1e-30, 2e-30),
    (0, 1e-20),
    (INF, -INF),
    (INF, 1.7e308),
    (NAN, None),
    (NAN, 0),
    (NAN, "nan"),
    (7, "7"),
    (7, "007"),
    ("7", "007"),
    (0.5, "0.5"),
    (True, 1),
    (False, 0),
    (True, "true"),
    (False, None),
    (None, ""),
    (None, 0),
    (None, "None"),
    (None, "null"),
    ("", 0),
    ("a", "A"),
    ("a", "a "),
    ("a  b", "a b"),
    ("2010-07-19", "2010-07-19T00:00:00"),
    ("2010-07-19T19:12:12", "2010-07-19T19:12:12Z"),  # a local time is no instant
    ("2010-07-19T19:12:12", "2010-07-19T19:12:13"),
    ("2010-02-31T10:00:00", "2010-02-31 10:00:00"),  # no date, so text
    ("2010-07-19T19:12:12[Europe/Berlin]", "2010-07-19T19:12:12"),
    ("2010-07-19T19:12.5", "2010-07-19T19:12:00.5"),
    ({"type": "A", "properties": {"a": 1}}, {"type": "B", "properties": {"a": 1}}),  # no ids: somebody's own map
    # somebody's own maps: no labels, or no ends
    ({"id": 1, "properties": {"a": 1}}, {"id": 2, "properties": {"a": 1}}),
    ({"id": 1, "type": "A", "properties": {"a": 1}}, {"id": 1, "type": "B", "properties": {"a": 1}}),
    ({"id": 1, "labels": "A", "properties": {"a": 1}}, {"a": 1}),
    # ways to write a time that the rules don't cover
    ("20100719T191212", "2010-07-19T19:12:12"),
    ("2010-07-19T24:00:00", "2010-07-20T00:00:00"),
    ("19:12", "19:12:00"),
    ("at 2010-07-19T19:12", "at 2010-07-19 19:12"),
    ([1, 2], [2, 1]),
    ([1], 1),
    ([], None),
    ([1, None], [1]),
    ([True], [1]),
    ({"a": 1}, {"b": 1}),
    ({"a": None}, {}),
    ({"a": 1}, [["a", 1]]),
    ("[1, 2]", [1, 2]),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_one_value(a, b):
    assert equal(a, b)


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_two_values(a, b):
    assert not equal(a, b)


def test_tolerance_has_no_rounding_boundary():
    draw = random.Random(0)
    for _ in range(2000):
        x = draw.uniform(-1, 1) * 10 ** draw.randint(-12, 12)
        assert equal(x, x * (1 + 1e-13))
        assert not equal(x, x * (1 + 1e-7))


def test_large_whole_numbers_stay_apart_beside_noise_between_them():
    n = 10**11
    assert score([[n], [n + 1]], [[n + 1e-4], [n + 1 - 1e-4]]).strict
    assert not score([[n], [n], [n + 1]], [[n + 1e-4], [n + 1 - 1e-4], [n + 1]]).strict
    many = [[n + k] for k in range(1000)]
    assert score([*many, [0.5]], [[0.5], *many[::-1]]).strict
    assert not score([*many[:-1], [n], [0.5]], [*many, [0.5]]).strict


def test_date_is_midnight_only_where_the_preset_says_so():
    assert equal("2010-07-19", "2010-07-19 00:00", Preset(date_is_midnight=True))
    assert not equal("2010-07-19", "2010-07-19 00:01", Preset(date_is_midnight=True))


# --- tables


def test_names_of_the_columns_are_free_and_their_order_too():
    assert score([["a", 1], ["b", 2]], [[2, "b"], [1, "a"]]) == (True, True, True, 1.0, 1.0, 0, "")
    assert score([{"n": 1, "name": "a"}], [["a", 1]]).strict


def test_swapped_cells_in_one_row_are_another_answer():
    want = [["ann", "bob"], ["cid", "dot"], ["eve", "fay"]]
    got = [["ann", "bob"], ["dot", "cid"], ["eve", "fay"]]
    assert score(got, want) == (False, False, True, pytest.approx(2 / 3), pytest.approx(2 / 3), 0, "")


def test_duplicates_count():
    assert not score([[1], [1], [2]], [[1], [2], [2]]).strict
    assert score([[1], [1], [2]], [[1], [2], [2]]).f1 == pytest.approx(2 / 3)
    assert score([[1], [1]], [[1]]).f1 == pytest.approx(2 / 3)
    assert not score([[1], [1]], [[1]]).lenient_literal


def test_extra_columns_pass_leniently_and_are_counted():
    want = [["a"], ["b"]]
    assert score([[1, "b", 5], [2, "a", 6]], want) == (False, True, True, 0.0, 0.0, 2, "")
    assert score([["a", "x"], ["c", "d"]], want) == (False, False, False, 0.0, 0.0, 1, "")
    assert score(want, [[1, "b"], [2, "a"]]).lenient is False  # a missing column isn't made up for


def test_literal_rule_is_laxer_and_reported_apart():
    verdict = score([["b", 1], ["a", 2]], [["a"], ["b"]])
    assert verdict.lenient and verdict.lenient_literal
    verdict = score([["a", 2], ["b", 1]], [[1, "a"], [2, "b"]])  # right values, wrong rows
    assert not verdict.lenient and verdict.lenient_literal
    assert not score([["a", 2], ["b", 1], ["b", 1]], [[1, "a"], [2, "b"]]).lenient_literal


def test_each_returned_column_is_used_once():
    assert not score([[1, 9], [2, 9]], [[1, 1], [2, 2]]).lenient
    assert score([[1, 9, 1], [2, 9, 2]], [[1, 1], [2, 2]]).lenient


def test_order_counts_when_the_question_asks_for_it():
    want = [["a", 1], ["b", 2]]
    assert score([[1, "a"], [2, "b"]], want, ordered=True).strict
    swapped = score([[2, "b"], [1, "a"]], want, ordered=True)
    assert (swapped.strict, swapped.lenient, swapped.f1, swapped.reward) == (False, False, 1.0, 0.99)
    assert score([[0, 1, "a"], [0, 2, "b"]], want, ordered=True).lenient
    assert not score([[0, 2, "b"], [0, 1, "a"]], want, ordered=True).lenient
    assert not score([["a", 1]], want, ordered=True).lenient


def test_empty_results():
    assert score([], []) == (True, True, True, 1.0, 1.0, 0, "empty reference")
    assert score([], [[1]]) == (False, False, False, 0.0, 0.0, 0, "")
    assert score([[1]], []) == (False, False, False, 0.0, 0.0, 0, "empty reference")
    assert score(None, []) == (False, False, False, 0.0, 0.0, 0, "empty reference")
    assert score(None, [[1]]) == (False, False, False, 0.0, 0.0, 0, "")
    assert score([[None]], [[None]]).strict


def test_an_integer_beside_a_double_of_its_value_counts_whichever_comes_first():
    n = 2**53
    for a, b in itertools.permutations([[n], [float(n)]]):
        for got in itertools.permutations([a, b, [n + 1]]):
            assert score(got, [[n], [n], [n + 1]]).strict and score([[n], [n], [n + 1]], got).strict
            assert not score(got, [[n], [n + 1], [n + 1]]).strict


def test_what_stands_in_an_extra_column_brings_no_two_numbers_together():
    step = 0.9e-10
    got, want = [[1.0, "a"], [5.0, "b"]], [[1 + 20 * step], [5.0]]
    assert not score(got, want).lenient
    between = [1 + k * step for k in range(21)]
    assert not score([[*got[0], between], [*got[1], None]], want).lenient
    assert not score([[*got[0], between], [*got[1], None]], want, ordered=True).lenient
    assert score([[*got[0], between], [*got[1], None]], [[1 + step / 2], [5.0]]).lenient


def test_what_no_rule_covers_is_flagged_and_never_right():
    for value in ({1, 2}, frozenset("ab"), (n for n in "ab"), object(), Broken(), pd.NA, np.timedelta64(5, "ns")):
        for table in ([[value]], [[1, [value]]], [[{"a": value}]]):
            for preset in ("graph", "bird-ex"):
                verdict = score(table, table, preset)
                assert verdict[:6] == (False, False, False, 0.0, 0.0, 0)
                assert verdict.flagged.startswith("not to be compared: a value of type " + type(value).__name__)
    for nothing in (5, "ab", {"a": 1}, object(), Broken(), np.array(5)):
        assert score(nothing, [[1]]).flagged.startswith("not to be compared: no table of rows but ")
        assert score([[1]], nothing).reward == 0.0
    assert score([[BrokenText("a")]], [["a"]]).strict
    with pytest.raises(ValueError, match="a value of type set"):
        digest([[{1}]])


def test_whatever_gives_rows_is_a_table():
    want = [[1, "a"], [2, None]]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        assert score(connection.execute("VALUES (2, NULL), (1, 'a')"), want).strict
    assert score((row for row in want), iter(want)).strict
    assert score(pd.DataFrame([[1, "a"], [2, "b"]]), [["b", 2], ["a", 1]]).strict
    assert score({(1, "a"), (2, None)}, want).strict
    assert score(np.array([[1, 2.5], [3, 4]]), [[3, 4], [1, 2.5]]).strict
    assert score(np.array(["2010-07-19T19:12:12"], "M8[ns]"), [["2010-07-19 19:12:12"]]).strict


def test_one_wide_row_costs_no_more_than_its_cells():
    want = [[i, i + 0.5] for i in range(20_000)]
    verdict, taken = seconds([*want, list(range(2000))], want)
    assert verdict.flagged == "ragged rows" and verdict.f1 == pytest.approx(40_000 / 40_001) and taken < 5


def test_ragged_rows_are_flagged_and_a_missing_cell_is_no_null():
    assert score([[1, 2], [3]], [[3], [1, 2]]) == (True, True, True, 1.0, 1.0, 0, "ragged rows")
    assert not score([[1, 2], [3]], [[1, 2], [3, None]]).strict
    assert score([[1], [2, 3, 4]], [[1, 2]]).flagged == "ragged rows"
    assert score([[], []], [[]]).f1 == pytest.approx(2 / 3)
    assert not score([1, "ab"], [[1], ["a"]]).strict  # what is no row counts as a row of one cell


def test_deep_nesting_is_flagged():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert score([[deep]], [[deep]]).flagged == "values nested too deeply to compare"


def test_reward_is_one_only_if_strict():
    want = [[i] for i in range(1000)]
    nearly = score([*want[:-1], [-1]], want)
    assert nearly.f1 == pytest.approx(0.999) and nearly.reward == 0.99


def test_bird_ex_is_birds_own_rule():
    assert score([[1, "a"], [1, "a"]], [[1, "a"]], "bird-ex").strict  # sets of rows
    assert score([[2], [1]], [[1], [2]], "bird-ex", ordered=True).strict  # which have no order
    assert score([], [], "bird-ex").strict
    assert equal(True, 1, "bird-ex") and equal(1, 1.0, "bird-ex")
    assert not equal(0.1 + 0.2, 0.3, "bird-ex")
    assert not equal("2010-07-19T19:12:12", "2010-07-19 19:12:12", "bird-ex")
    permuted = score([["a", 1]], [[1, "a"]], "bird-ex")
    assert (permuted.strict, permuted.lenient, permuted.f1) == (False, True, 0.0)
    assert score([[NAN]], [[NAN]], "bird-ex").strict
    assert score([[[1]]], [[[1]]], "bird-ex").strict  # a list doesn't crash the set


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="unknown preset 'spider': choose one of graph, bird-ex"):
        score([], [], "spider")


def test_digest_is_of_the_result_not_of_its_order():
    rows = [[1, "a"], [2.0, None], [0.1 + 0.2, {"b": 1, "a": [True]}]]
    same = [[0.3, {"a": [True], "b": 1.0}], [2, None], [1.0, "a"]]
    assert digest(rows) == digest(same)
    others: list[list] = [rows, rows[:2], [[1]], [[True]], [["1"]], [[None]], [], [[]], [[1], [1]]]
    assert len(set(map(digest, others))) == len(others)
    seen = "from lib.reward import digest; print(digest([[{'b': 1, 'a': 'x'}, 'y']]))"
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", seen], cwd=REPOSITORY, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert found.stdout.strip() == digest([[{"a": "x", "b": 1}, "y"]])


# --- properties

cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(
        [0.1 + 0.2, 0.3, 1.0, -0.0, NAN, INF, 1e300, "", "a", "1", "2010-07-19T19:12", "2010-07-19 19:12:00"]
    ),
    st.lists(st.integers(0, 1), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def tables(width, cells=cells, most=6):
    return st.lists(st.lists(cells, min_size=width, max_size=width), max_size=most)


@st.composite
def pairs(draw, widths=(1, 2, 3, 4), cells=cells):
    """(got, want): unrelated, or one made from the other by moving rows and columns and perhaps changing a cell."""
    want = draw(tables(draw(st.sampled_from(widths)), cells))
    if not want or draw(st.booleans()):
        return draw(tables(draw(st.sampled_from(widths)), cells)), want
    order = draw(st.permutations(range(len(want[0]))))
    got = [[row[i] for i in order] for row in draw(st.permutations(want))]
    if draw(st.booleans()):
        got = [[*row, draw(cells)] for row in got]
    if draw(st.booleans()):
        got[0][draw(st.integers(0, len(got[0]) - 1))] = draw(cells)
    return got, want


@given(pairs(), st.booleans(), st.sampled_from(["graph", "bird-ex"]))
def test_implications(pair, ordered, preset):
    got, want = pair
    s = score(got, want, preset, ordered)
    assert s.strict <= s.lenient <= s.lenient_literal
    if preset == "graph":
        assert s.lenient_literal <= (len(got) == len(want))
        if not ordered:
            assert s.strict == (s.f1 == 1.0)
    assert 0.0 <= s.reward <= 1.0 and (s.reward == 1.0) == s.strict
    assert s.reward == (1.0 if s.strict else min(s.f1, 0.99))
    assert s.extra_columns >= 0


@given(pairs(), st.booleans(), st.sampled_from(["graph", "bird-ex"]))
def test_symmetry(pair, ordered, preset):
    got, want = pair
    there, back = score(got, want, preset, ordered), score(want, got, preset, ordered)
    assert (there.strict, there.f1, there.reward) == (back.strict, back.f1, back.reward)


@given(pairs(), st.randoms(use_true_random=False))
def test_moving_rows_and_columns_changes_nothing(pair, random_):
    got, want = pair

    def moved(table):
        order = random_.sample(range(len(table[0])), len(table[0])) if table else []
        return [[row[i] for i in order] for row in random_.sample(table, len(table))]

    assert score(moved(got), moved(want)) == score(got, want)


nasty = st.sampled_from(
    [0, 1, 1.0, 1 + 1e-13, 1 - 5e-11, 1 + 1.5e-10, 0.1 + 0.2, 0.3, 10**11, 10**11 + 1, 1e11 + 0.5, 2**53, 2.0**53,
     2**53 + 1, 2.0**53 + 2, -(2**53), 10**20, 1e20, 10**400, 10**400 + 1, INF, -INF, 1.7976931348623157e308, 5e-324,
     NAN, Decimal("0.3"), Decimal(2**53 + 1), Fraction(1, 3), 1 / 3, True, None, [1.0, [0.3]], [1 + 1e-13, [0.1 + 0.2]],
     {"a": 0.3}, {"a": 0.1 + 0.2}, {1: 1}, b"a", "\ud800", "a", datetime.date(2010, 7, 19), "2010-07-19"]
)  # fmt: skip


@given(pairs(cells=nasty), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=400)
def test_nasty_values_keep_every_rule(pair, random_, ordered):
    got, want = pair
    there, back = score(got, want, ordered=ordered), score(want, got, ordered=ordered)
    assert (there.strict, there.f1, there.reward) == (back.strict, back.f1, back.reward)
    assert there.strict <= there.lenient <= there.lenient_literal <= (len(got) == len(want))
    assert (there.reward == 1.0) == there.strict and there.flagged in ("", "empty reference")
    moved = [[list(row) for row in random_.sample(table, len(table))] for table in (got, want)]
    assert ordered or score(*moved) == there
    backwards = [[row[::-1] for row in table] for table in (got, want)]
    assert score(*backwards, ordered=ordered) == there
    if not ordered and there.lenient and got:  # what nobody can use changes nothing
        assert score([[*row, "beside", 1 + 7e-11] for row in got], want).lenient
    if there.f1 > 0 and got:
        assert score([*got, ["no such value"] * len(got[0])], want).f1 < there.f1


@given(pairs())
def test_a_wrong_row_lowers_f1(pair):
    got, want = pair
    before = score(got, want)
    if before.f1 > 0 and got:
        after = score([*got, ["no such value"] * len(got[0])], want)
        assert after.f1 < before.f1 and not after.strict


@given(tables(3))
def test_a_result_equals_itself(table):
    assert score(table, json.loads(json.dumps(table))).strict
    assert score(table, table, ordered=True).strict


@given(st.lists(st.lists(anything, max_size=3), max_size=4), st.lists(st.lists(anything, max_size=3), max_size=4))
@settings(max_examples=200)
def test_nothing_crashes_it(got, want):
    for preset, ordered in itertools.product(("graph", "bird-ex"), (False, True)):
        score(got, want, preset, ordered)
        assert score(got, got, preset, ordered).strict
    digest(got)


def brute_force(got, want):
    """The definitions, word for word, for values that need no rules."""

    def common(table):
        return sum((Counter(table) & Counter(map(tuple, want))).values())

    width = len(want[0])
    choices = [[tuple(r[i] for i in p) for r in got] for p in itertools.permutations(range(len(got[0])), width)]
    most = max(map(common, choices), default=0)
    lenient = len(got) == len(want) and most == len(want)
    overlap = most if len(got[0]) == width else 0
    return lenient and len(got[0]) == width, lenient, 2 * overlap / (len(got) + len(want))


@given(pairs(widths=(3, 4, 5), cells=st.integers(0, 2)))
@settings(max_examples=300)
def test_search_finds_what_trying_all_pairings_finds(pair):
    got, want = pair
    if got and want:
        s = score(got, want)
        assert (s.strict, s.lenient, s.f1) == brute_force(got, want) and not s.flagged


# --- size


def seconds(got, want, **options):
    start = time.process_time()
    verdict = score(got, want, **options)
    return verdict, time.process_time() - start


ROWS = 25_000


def test_25_000_rows_dont_blow_up():
    draw = random.Random(0)
    want = [[i, f"name {i % 997}", draw.random(), f"2010-07-19 19:12:{i % 60:02d}"] for i in range(ROWS)]
    got = [row[::-1] for row in want]
    draw.shuffle(got)
    verdict, taken = seconds(got, want)
    assert verdict.strict and taken < 15  # half a second; pairs of all rows would take minutes
    got[5] = ["x", *got[5][1:]]
    verdict, taken = seconds(got, want)
    assert verdict.f1 == pytest.approx(1 - 1 / ROWS) and not verdict.flagged and taken < 15


def test_20_equal_columns_dont_blow_up():
    want = [[i] * 20 for i in range(ROWS)]
    got = want[::-1]
    verdict, taken = seconds(got, want)
    assert verdict.strict and taken < 1
    got = [[*got[0][:-1], -1], *got[1:]]
    verdict, taken = seconds(got, want)
    assert not verdict.strict and verdict.f1 == pytest.approx(1 - 1 / ROWS) and not verdict.flagged and taken < 15


def test_20_columns_with_the_same_contents_are_told_apart_by_their_rows():
    draw = random.Random(0)
    columns = [draw.sample(range(2000), 2000) for _ in range(20)]
    want = [list(row) for row in zip(*columns, strict=True)]
    got = [row[::-1] for row in want[::-1]]
    assert score(got, want).strict
    got[0] = [-1, *got[0][1:]]
    assert score(got, want).f1 == pytest.approx(1 - 1 / 2000)


def test_past_its_bound_the_search_says_so(monkeypatch):
    monkeypatch.setattr(pairing, "BUDGET", 20_000)
    draw = random.Random(0)
    got, want = ([[draw.random() < 0.5 for _ in range(16)] for _ in range(2000)] for _ in range(2))
    verdict, taken = seconds(got, want)
    assert verdict.flagged == "columns too alike to try every pairing" and not verdict.strict and taken < 2
    assert verdict.f1 >= score(got, want, Preset(positional=True)).f1  # a lower bound, and the obvious one at least


def test_a_thousand_columns_are_beyond_the_search_and_said_to_be():
    draw = random.Random(0)
    got, want = ([[draw.random() < 0.5 for _ in range(1000)] for _ in range(30)] for _ in range(2))
    assert score(got, want).flagged == "columns too alike to try every pairing"
    order = draw.sample(range(1000), 1000)
    moved = score([[row[i] for i in order] for row in want], want)
    assert (moved.strict, moved.flagged) == (True, "")


def test_small_results_take_microseconds():
    got, want = [["ann", 3], ["bob", 4], ["cid", 5]], [[3, "ann"], [4, "bob"], [6, "cid"]]
    runs = []
    for _ in range(20):
        start = time.process_time()
        for _ in range(100):
            score(got, want)
        runs.append((time.process_time() - start) / 100)
    assert min(runs) < 200e-6
