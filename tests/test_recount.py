"""The second count: it comes to the same figures, and notices where the record doesn't fit the rows."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from lib import compare, recount
from lib.reward import score
from reports import short

CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -0.0]), st.text("ab1é", max_size=2)
)
TABLES = st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=4))


def judged(rows, reference):
    return recount.judge({"query": "RETURN 1", "rows": rows, "row_count": len(rows)}, reference)


def test_it_shares_no_code_with_the_rest():
    tree = ast.parse(Path(recount.__file__).read_text())
    imported = [name for node in ast.walk(tree) for name in modules(node)]
    assert imported and {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    assert len(Path(recount.__file__).read_text().splitlines()) <= 110


def modules(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "lib"] if isinstance(node, ast.ImportFrom) else []


@given(TABLES, TABLES)
def test_its_verdict_is_the_scorers(rows, reference):
    assert judged(rows, reference) == score(rows, reference).strict


@given(TABLES, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_is_free(rows, random):
    order = random.sample(range(len(rows[0])), len(rows[0])) if rows else []
    shuffled = [[row[i] for i in order] for row in random.sample(rows, len(rows))]
    assert judged(shuffled, rows) is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (10**12, 10**12 + 1),
        (2.0, 2),
        (float("nan"), float("nan")),
        (float("inf"), float("-inf")),
        ([1], [1.0]),
        ("é", "e\u0301"),
        (12345678.91, 12345678.95),
        (1234567890123456789, 1234567890123999999),
        (2**53 + 1, 2**53 + 3),
        ("2010-07-19T19:12:12", "2010-07-19 19:12:12"),
        ("2010-07-19T19:12:12.100", "2010-07-19T19:12:12.1"),
        ("2010-07-19T19:12:12", "2010-07-19T19:12:13"),
        (10**400, 1),
        (10**400, 1.5),
        (True, 1),
        (None, ""),
    ],
)
def test_numbers_lists_and_letters_are_judged_as_the_scorer_does(one, other):
    assert judged([[one]], [[other]]) == score([[one]], [[other]]).strict


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.1 + 0.2, 0.3),
        (0.12345678905, 0.12345678904999999),
        ("2010-07-19T19:12:12.000Z", "2010-07-19T21:12:12+02:00"),
        ({"a": 1}, {"a": 1.5}),
        ({"labels": ["A"], "properties": {"a": 1}}, {"a": 1}),
    ],
)
def test_what_only_the_scorers_rules_decide_is_left_to_it(one, other):
    assert judged([[one], ["x"]], [["x"], [other]]) is None
    assert judged([[one], ["x"]], [["y"], [other]]) is False


def test_the_headline_is_of_its_own_verdicts(run):
    """Verdicts that don't fit the rows change nothing in the second count."""
    honest = compare.compare(run)["recount"]["figures"]["gain"]
    for arm in ("control", "trained-0"):
        file = run.episodes(arm)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for one in lines:
            one.update(strict=arm != "control")
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = recount.recount(run.run_dir, run.questions_dir)
    assert found["gain"] == pytest.approx(honest[1], abs=1e-6) and len(found["disagreements"]) > 100


def test_what_the_file_cannot_tell_is_not_judged():
    assert recount.judge({"query": "q", "rows": [[1]], "row_count": 51}, [[1]] * 51) is None
    assert judged([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]]) is None
    assert recount.judge({"query": None, "rows": [], "row_count": 0}, []) is False


@pytest.fixture
def run(tmp_path):
    return synthetic.make(tmp_path, gain=0.3, train={"seeds": (0,), "updates": 8}, test={"resamples": 300})


def test_both_counts_stand_side_by_side_and_agree(run):
    found = compare.compare(run)["recount"]
    assert found["agrees"] and found["judged"] == 3 * 96 * 4 and found["disagreements"] == []
    assert found["figures"].keys() == {"base", "control", "trained", "gain"}
    assert all(one == other for one, other in found["figures"].values())


def test_where_no_rows_can_be_judged_anew_the_verdict_stands_and_says_what_it_rests_on(run):
    for arm in run.arms:
        lines = [json.loads(line) for line in run.episodes(arm).read_text().splitlines()]
        cut = [
            one | {"row_count": 99} for one in lines if one["query"] is not None or one["set"] != "held_out_instances"
        ]
        run.episodes(arm).write_text("".join(json.dumps(one) + "\n" for one in cut))
    found = recount.recount(run.run_dir, run.questions_dir)
    assert found["judged"] == 0 and found["disagreements"] == []
    assert "arithmetic alone" in short.second_count({**found, "agrees": True})


def test_a_verdict_that_does_not_fit_its_rows_is_an_objection(run):
    file = run.episodes("trained-0")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = next(one for one in lines if "/sampled/held_out_instances" in one["id"] and one["outcome"] == "wrong")
    wrong.update(strict=True, lenient=True, reward=1.0, outcome="strict")
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    results = compare.compare(run)
    assert results["recount"]["disagreements"] == [wrong["id"]] and not results["recount"]["agrees"]
    assert results["verdict"]["verdict"] == "no success" and "second count" in results["verdict"]["reason"]


def test_figures_that_differ_are_an_objection(run, monkeypatch):
    monkeypatch.setattr(compare.measures, "contrast", _half_of(compare.measures.contrast))
    results = compare.compare(run)
    one, other = results["recount"]["figures"]["gain"]
    assert other == pytest.approx(2 * one, abs=1e-5) and "second count" in results["verdict"]["reason"]


def _half_of(contrast):
    def changed(*arguments, **named):
        found = contrast(*arguments, **named)
        return {**found, "delta": found["delta"] / 2} if "delta" in found else found

    return changed
