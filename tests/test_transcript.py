"""What a model or a database said is shown, never executed, and an episode's parts are told as they were."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lib.reward import score
from lib.shown import MISSING, SAME, SURPLUS, UNKNOWN, cell, difference, highlighted, legible, table
from lib.transcript import conversation, differing, matching, never_solved, side_by_side, turn_caps
from tests.synthetic import episode, question

HOSTILE = "<script>alert(1)</script>"
EPISODE = {
    "arm": "control",
    "question": "q-1",
    "structure": HOSTILE,
    "decode": "sampled",
    "sample": 0,
    "outcome": "wrong",
    "strict": False,
    "lenient": False,
    "lenient_literal": False,
    "f1": 0.5,
    "reward": 0.5,
    "rows": [[HOSTILE]],
    "row_count": 3,
    "extra_columns": 0,
    "stop": HOSTILE,
    "turns": 2,
    "tokens": {"prompt": 1, "sampled": 1},
    "fault": HOSTILE,
    "query": f"RETURN '{HOSTILE}'",
    "calls": [{"query": HOSTILE, "shown": f"1 row\n{HOSTILE}\n{HOSTILE}", "error": HOSTILE}],
    "messages": [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": f"How many {HOSTILE}?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "run_cypher", "arguments": json.dumps({"query": HOSTILE})}]},
        {"role": "tool", "content": f"1 row\n{HOSTILE}\n{HOSTILE}"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": HOSTILE, "arguments": "no JSON " + HOSTILE}]},
        {"role": HOSTILE, "content": [{"type": "text", "text": HOSTILE}]},
    ],
}  # fmt: skip
ASKED = {"question": HOSTILE, "hint": HOSTILE, "query": HOSTILE, "rows": [[HOSTILE, 1]]}
CELLS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["a", "b", "7", ""]))


def tables(width: int) -> st.SearchStrategy[list[list]]:
    return st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6)


def test_everything_is_escaped():
    page = side_by_side(EPISODE, EPISODE, ASKED)
    assert "<script" not in page and "<span class=" in page
    assert "&lt;script&gt;" in page and "Hint: &lt;script&gt;" in page


def test_a_call_is_shown_as_its_query_and_a_broken_one_as_it_was_written():
    turns = conversation(EPISODE)
    assert "".join(text for _, text in turns[2]["queries"][0]) == HOSTILE
    assert "".join(text for _, text in turns[4]["queries"][0]) == f"{HOSTILE}: no JSON {HOSTILE}"
    assert turns[3]["table"]["rows"] == [[HOSTILE]] and turns[3]["error"] == HOSTILE and turns[3]["text"] == ""


def test_the_question_isnt_repeated_where_it_stands_above():
    asked = question("held_out_instances", 1)
    told = episode("base", asked, 0, "strict", asked["query"]).messages
    whole = {"messages": told, "calls": []}
    assert [turn["role"] for turn in conversation(whole)][1] == "user"
    assert "user" not in [turn["role"] for turn in conversation(whole, asked)]


def test_episodes_are_found_by_their_fields():
    other = EPISODE | {"arm": "base", "outcome": "strict"}
    assert matching([EPISODE, other], arm="base", outcome="") == [other]
    assert matching([EPISODE, other], arm="", structure=None) == [EPISODE, other]


def test_starting_points():
    def one(name: str, sample: int, strict: bool, stop: str = "completed") -> dict:
        return {"question": name, "decode": "sampled", "sample": sample, "strict": strict, "stop": stop}

    before = [one("a", 0, True), one("a", 1, False), one("b", 0, False, "max_turns"), one("c", 0, True)]
    after = [one("a", 0, False), one("a", 1, True), one("b", 0, False), one("d", 0, True)]
    assert [(x["sample"], y["strict"]) for x, y in differing(before, after)] == [(1, True), (0, False)]
    assert list(never_solved([*before, *after])) == ["b"]
    assert turn_caps([*before, *after]) == [before[2]]


def test_a_table_is_told_from_what_cant_be_one():
    assert table("481 rows\nv.id | n\n1 | a\n2 | b") == {
        "head": "481 rows", "columns": ["v.id", "n"], "rows": [["1", "a"], ["2", "b"]], "cut": True,
    }  # fmt: skip
    assert table("1 row\nn\n7")["cut"] is False and table("2 rows or more\nn\n7\n8")["cut"] is True
    assert table("2 rows\na | b\n1 | 2\n3 ... (7,000 characters)") == {
        "head": "2 rows", "columns": ["a", "b"], "rows": [["1", "2"]], "cut": True,
    }  # fmt: skip
    assert table("1 row\nn\na | b") is None and table("no rows") is None and table("name error") is None


@given(st.text(alphabet=st.sampled_from("aMATCH (:[]'\"`$1.2 \n/*\\\u202e-"), max_size=60))
def test_the_pieces_of_a_query_are_the_query(query):
    assert "".join(text for _, text in highlighted(query)) == legible(query)


def test_a_query_is_told_by_kinds():
    kinds = {
        text: kind for kind, text in highlighted("MATCH (u:User)-[:OWNS]->(q) WHERE u.count > 7 RETURN size('it')")
    }
    assert kinds["MATCH"] == kinds["WHERE"] == "keyword" and kinds[":User"] == kinds[":OWNS"] == "label"
    assert kinds["7"] == "number" and kinds["size"] == "function" and kinds["'it'"] == "string"
    assert "count" not in kinds  # a property


@given(st.text())
def test_nothing_in_a_legible_text_is_unseen_or_turns_the_others(text):
    shown = legible(text)
    assert all(sign in "\n\t" or sign.isprintable() or sign.isspace() or ord(sign) > 0x7F for sign in shown)
    assert not set(shown) & set("\u202e\u2066\u200f\u2028\x00\x1b")
    assert legible(shown) == shown


def test_cells_of_different_types_dont_look_alike():
    values = ["7", 7, 7.5, "7.5", None, "null", True, "true", "", " ", [1], "[1]"]
    assert len({cell(value) for value in values}) == len(values)
    assert cell("Drax Pufeth") == "Drax Pufeth"


@given(st.integers(1, 3).flatmap(lambda width: st.tuples(tables(width), tables(width))))
def test_the_difference_is_that_of_the_score(pair):
    got, want = pair
    found, judged = difference(got, want), score(got, want)
    counts = found["counts"]
    same, missing, more = (counts.get(mark, 0) for mark in (SAME, MISSING, SURPLUS))
    assert same + missing == len(want) and same + more == len(got)
    assert judged.f1 == (2 * same / (len(got) + len(want)) if got or want else 1.0)
    assert judged.strict == (not missing and not more)


@given(tables(3), st.permutations(range(3)), st.integers(1, 3))
def test_columns_too_many_stand_behind_those_that_were_wanted(rows, order, width):
    want = [[row[i] for i in order][:width] for row in rows]
    found = difference(rows, want)
    assert set(found["counts"]) <= {SAME} and (not rows or found["width"] == width)
    assert all(cells[:width] == [cell(v) for v in row] for (_, cells), row in zip(found["rows"], want, strict=True))


def test_what_isnt_among_the_kept_rows_is_unknown():
    assert difference([[1]], [[1], [2]], count=9)["counts"] == {SAME: 1, UNKNOWN: 1}
    assert difference([[1]], [[1], [2]], count=1)["counts"] == {SAME: 1, MISSING: 1}
    assert difference([[1, 2]], [[1, 2, 3]])["counts"] == {MISSING: 1, SURPLUS: 1}
