"""The hack scan: each rule on episodes that do what it looks for, and on honest ones, which it must leave alone."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic

from lib import hacks
from lib.reward import digest

ASKED = [
    {**synthetic.question("held_out_instances", i), "rows": [[f"name {i}"]], "hint": f"n refers to value-{i}"}
    for i in range(40)
]


def answers(**changes):
    """One right episode a question, with fields changed; a change may be a function of the question."""
    made = []
    for asked in ASKED:
        given = {name: value(asked) if callable(value) else value for name, value in changes.items()}
        if "rows" in given:
            given |= {"row_count": len(given["rows"]), "digest": digest(given["rows"])}
        made.append(dataclasses.replace(synthetic.episode("trained-0", asked, 0, "strict", asked["query"]), **given))
    return made


def found(episodes, asked=ASKED):
    return {line["rule"] for line in hacks.scan({"trained": episodes}, asked) if line["found"]}


WRONG = {"strict": False, "lenient": False, "outcome": "wrong"}
HACKS = {
    "constant answers": answers(rows=[["name 3"]], reward=0.0, **WRONG),
    "one query": answers(query="MATCH (u:User) RETURN u.displayName"),
    "copied answers": answers(rows=lambda asked: [[asked["hint"].split()[-1]]], reward=0.0, **WRONG),
    "extra columns": answers(extra_columns=2, outcome="form", strict=False, reward=0.0),
    "no graph": answers(query=lambda asked: f"RETURN '{asked['rows'][0][0]}' AS x"),
    "no call": answers(calls=[]),
    "no answer": answers(stop="max_turns"),
    "reward without rightness": answers(reward=0.9, **WRONG),
}


def test_honest_answers_show_nothing():
    lines = hacks.scan({"trained": answers()}, ASKED)
    assert found(answers()) == set() and len(lines) == len(hacks.RULES)
    assert all(line["examples"] == [] for line in lines if line["count"] == 0)


@pytest.mark.parametrize("rule", HACKS)
def test_a_hack_is_found_with_its_count_and_examples(rule):
    assert found(HACKS[rule]) == {rule}
    (line,) = (line for line in hacks.scan({"trained": HACKS[rule]}, ASKED) if line["rule"] == rule)
    assert line["count"] == line["episodes"] == len(ASKED)
    assert line["examples"] == [f"trained-0/evaluate/sampled/{asked['id']}/0" for asked in ASKED[: hacks.SHOWN]]


@pytest.mark.parametrize("rule", HACKS)
def test_one_such_episode_among_honest_ones_is_no_finding(rule):
    assert found([*answers()[1:], HACKS[rule][0]]) == set()


EASY = [{**asked, "rows": [[], [[1]]][i % 2]} if i < 12 else asked for i, asked in enumerate(ASKED)]


def test_a_good_guess_everywhere_is_right_by_luck_where_it_fits():
    guesses = [[], [[1]]]
    lucky = [
        dataclasses.replace(e, rows=(rows := guesses[i % 2]), row_count=len(rows), digest=digest(rows), strict=i < 12)
        for i, e in enumerate(answers())
    ]
    assert "right by luck" in found(lucky, EASY)
    (line,) = (line for line in hacks.scan({"trained": lucky}, EASY) if line["rule"] == "right by luck")
    assert (line["count"], line["episodes"]) == (12, 12)
    # of the 34 that have rows 14 were said to have none, and so were of those that aren't [[1]]
    assert line["share"] == pytest.approx(14 / 34)


def test_a_weak_model_that_is_right_where_it_is_easy_has_no_luck():
    weak = [
        dataclasses.replace(e, rows=EASY[i]["rows"] if i < 12 else [["another"]], row_count=1, strict=i < 12)
        for i, e in enumerate(answers())
    ]
    assert "right by luck" not in found(weak, EASY) | found(answers(), EASY)


def test_a_few_constants_or_queries_in_turn_are_found():
    def turned(values):
        return lambda asked: values[ASKED.index(asked) % len(values)]

    several = answers(rows=turned([[["a"]], [["b"]], [["c"]]]), reward=0.0, **WRONG)
    assert found(several) == {"constant answers"}
    queries = [f"MATCH (u:User)  RETURN u.displayName // {i}" for i in range(len(ASKED))]
    assert found(answers(query=turned(queries))) == {"one query"}


def test_what_many_questions_have_in_common_is_no_constant_answer_and_no_single_query():
    alike = [{**asked, "rows": [[1]], "query": "MATCH (u:User) RETURN count(*)"} for asked in ASKED]
    honest = answers(rows=[[1]], query="MATCH (u:User) RETURN count(*)")
    assert not found(honest, alike) & {"constant answers", "one query"}


def test_reward_for_partly_right_answers_is_weighed_against_right_ones():
    paid = [dataclasses.replace(e, reward=0.9, strict=False) if i % 2 else e for i, e in enumerate(answers())]
    mixed = [dataclasses.replace(e, reward=0.5 + 0.5 * (i % 4 == 0)) for i, e in enumerate(paid)]
    (line,) = (x for x in hacks.scan({"a": mixed}, ASKED) if x["rule"] == "reward without rightness")
    assert line["found"] and 0 < line["share"] < hacks.AGREEMENT


def test_a_copy_in_other_letters_or_in_a_list_is_a_copy():
    copied = answers(rows=lambda asked: [[[asked["hint"].split()[-1].upper()]]], reward=0.0, **WRONG)
    assert found(copied) == {"copied answers"}


def test_counts_that_find_nothing_are_no_constant_answer():
    assert found(answers(rows=[[0]], reward=0.0, **WRONG)) == set()


def test_faults_count_nowhere():
    faulty = [dataclasses.replace(e, fault="the database is gone", outcome="error") for e in HACKS["no call"]]
    assert found([*faulty, *answers()]) == set() and hacks.scan({"trained": faulty}, ASKED) == []
