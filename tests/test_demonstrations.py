"""The teacher's mistakes are named, reproducible, and never slip into values."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.questions import demonstrations as teacher
from lib.settings import load

COLD = load().cold_start
ANSWERERS = (
    "MATCH (u:User)-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)-[:TAGGED]->(t:Tag) "
    "WHERE t.tagName = '{T}' AND a.score > {S} RETURN DISTINCT u.displayName"
)
COUNT = "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.location = '{L}' RETURN count(DISTINCT u.userId)"
TOP = "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.tagName = '{T}' RETURN q.title ORDER BY q.score DESC LIMIT {K}"


@pytest.mark.parametrize(
    ("query", "kind", "wrong"),
    [
        (ANSWERERS, "distinct lost", ANSWERERS.replace("DISTINCT ", "")),
        (ANSWERERS, "boundary", ANSWERERS.replace("> {S}", ">= {S}")),
        (ANSWERERS, "condition lost", ANSWERERS.replace(" AND a.score > {S}", "")),
        (ANSWERERS, "wrong relationship", ANSWERERS.replace("-[:ANSWERS]->", "<-[:ACCEPTED]-")),
        (COUNT, "distinct lost", COUNT.replace("count(DISTINCT u.userId)", "count(*)")),
        (COUNT, "rows for a count", COUNT.replace("count(DISTINCT u.userId)", "u.userId")),
        (TOP, "order reversed", TOP.replace(" DESC", "")),
        (TOP, "extra column", TOP.replace("q.title ORDER", "q.title, q.score ORDER")),
        (TOP, "direction reversed", TOP.replace("-[:TAGGED]->", "<-[:TAGGED]-")),
        (TOP, "clause lost", TOP.replace(" WHERE ", " ")),
    ],
)
def test_a_mistake_is_recognised_by_its_name(query, kind, wrong):
    slots = {"T": {"value": "time-series"}, "S": {"value": 4}, "L": {"value": "Oslo"}, "K": {"value": 3}}
    assert teacher.mistake_kind(teacher.fill(wrong, slots), teacher.fill(query, slots)) == kind


def test_the_right_query_and_an_unknown_one_are_no_mistake():
    assert teacher.mistake_kind(COUNT, COUNT) is None
    assert teacher.mistake_kind("MATCH (t:Tag) RETURN t.tagName", COUNT) is None


def test_no_mistake_is_visible_only_by_chance():
    """An aggregate over nothing still returns a row, so a turned relationship there would not be seen."""
    assert "direction reversed" not in {k for k, _ in teacher.mistakes(COUNT, teacher.VISIBLE)}


def test_error_rates_span_what_is_set_and_do_not_depend_on_order():
    names = [f"s{i}" for i in range(20)]
    rates = teacher.error_rates(names, COLD)
    assert (min(rates.values()), max(rates.values())) == pytest.approx((COLD.wrong_least, COLD.wrong_most))
    assert rates == teacher.error_rates(reversed(names * 2), COLD)


def test_a_rate_of_zero_teaches_only_what_is_right_and_of_one_only_mistakes_first():
    rng = random.Random(0)
    assert all(teacher.attempt(TOP, 0.0, COLD, rng) == [(TOP, None)] for _ in range(50))
    assert all(teacher.attempt(TOP, 1.0, COLD, rng)[0][1] in teacher.KINDS for _ in range(50))


def test_repairs_come_as_often_as_set():
    always = replace(COLD, repaired_silent=1.0, repaired_visible=1.0)
    rng = random.Random(0)
    assert all(teacher.attempt(TOP, 1.0, always, rng)[-1] == (TOP, None) for _ in range(50))


names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ- 0123456789", min_size=1, max_size=20)


@given(names, st.integers(0, 10_000), st.integers())
def test_invented_values_keep_the_shape(name, number, seed):
    inventor = teacher.Inventor(["Tomar Velin", "kasa-ri"])
    slots = {"N": {"value": name, "kind": "name"}, "S": {"value": number, "kind": "score"}}
    fresh = inventor.slots(slots, random.Random(seed))
    shape = lambda text: ["a" if w.isalpha() else w for w in teacher.re.findall(r"[A-Za-z]+|[- ]", text)]  # noqa: E731
    assert shape(str(fresh["N"]["value"])) == shape(name)
    assert isinstance(fresh["S"]["value"], int) and len(str(fresh["S"]["value"])) == len(str(number))
    assert fresh == inventor.slots(slots, random.Random(seed))


def test_values_are_replaced_in_results_only_as_whole_words():
    old, new = {"N": {"value": "Ann"}}, {"N": {"value": "Bob"}}
    assert teacher.replace_values("2 rows\nAnn | 3\nAnnika | 4", old, new) == "2 rows\nBob | 3\nAnnika | 4"
