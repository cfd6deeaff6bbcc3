"""Questions are shown as they are, beside how often a model answered them; pass rates are those of the episodes."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import episodes, notebook
from lib.files import read_jsonl, write_jsonl
from lib.questions import pass_rates
from lib.questions.browse import as_html, matching, read
from tests.synthetic import ROOT, episode, question

TRAIN = [question("train", i) for i in range(8)]
OUTCOMES = st.sampled_from(["strict", "form", "wrong", "no_query", "error"])


def answered(arm: str, of: dict, outcomes: list[str]) -> list[episodes.Episode]:
    return [episode(arm, of, i, outcome, "RETURN 1") for i, outcome in enumerate(outcomes)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of questions, one of them a person's, and the pass rates of two arms."""
    made = tmp_path / "questions"
    write_jsonl(made / "train.jsonl", TRAIN)
    person = {**question("human", 0), "structure": None, "status": "tied at the cut", "split": "human"}
    write_jsonl(made / "human.jsonl", [person])
    for arm, right in (("base", 1), ("trained-0", 3)):
        with episodes.Writer(tmp_path / f"{arm}.jsonl") as writer:
            for e in answered(arm, TRAIN[0], ["strict"] * right + ["wrong"] * (4 - right)):
                writer.write(e)
    pass_rates.main([str(made), str(tmp_path / "base.jsonl"), str(tmp_path / "trained-0.jsonl")])
    return made


@given(st.dictionaries(st.integers(0, 7), st.lists(OUTCOMES, max_size=6)))
def test_a_pass_rate_is_the_share_of_strict_answers(outcomes):
    found = [e for i, some in outcomes.items() for e in answered("base", TRAIN[i], some)]
    greedy = [episode("base", TRAIN[i], 0, "strict", "RETURN 1", decode="greedy") for i in outcomes]
    rates = {line["id"]: line for line in pass_rates.pass_rates(TRAIN, [*found, *greedy])}
    for i, some in outcomes.items():
        counted = [outcome == "strict" for outcome in some if outcome != "error"]
        line = rates.pop(TRAIN[i]["id"], None)
        assert (line is None) == (not counted)
        if line is not None:
            assert line["episodes"] == len(counted)
            assert line["strict"] == pytest.approx(sum(counted) / len(counted), abs=1e-4)
    assert not rates


def test_episodes_of_another_set_are_named():
    other = {**TRAIN[0], "structure": "another"}
    with pytest.raises(ValueError, match=r"structure 'another'.*name the folder"):
        pass_rates.pass_rates(TRAIN, answered("base", other, ["strict"]))


def test_pass_rates_stand_beside_the_questions_and_not_among_them(folder):
    assert read_jsonl(folder.parent / "questions_pass_rates.jsonl") == [
        {"id": TRAIN[0]["id"], "arm": arm, "episodes": 4, "strict": strict}
        for arm, strict in (("base", 0.25), ("trained-0", 0.75))
    ]
    assert sorted(file.name for file in folder.iterdir()) == ["human.jsonl", "train.jsonl"]


def test_questions_are_found_by_what_is_known_of_them(folder):
    questions = read(folder)
    assert len(matching(questions)) == len(questions) == 9
    assert [q["id"] for q in matching(questions, status="tied at the cut")] == ["human-0000"]
    assert [q["id"] for q in matching(questions, arm="base", most=0.5)] == [TRAIN[0]["id"]]
    assert matching(questions, arm="trained-0", most=0.5) == []
    assert {q["hops"] for q in matching(questions, split="train", hops=0)} == {0}
    assert {q["structure"] for q in matching(questions, structure="structure-2")} == {"structure-2"}


def test_a_question_is_shown_whole_and_escaped(folder):
    asked = {**read(folder)[0], "rows": [[f"row {i}", None] for i in range(12)]}
    page = as_html(asked)
    assert "<b>with</b>" not in page and "&lt;b&gt;with&lt;/b&gt;" in page
    assert "base 25%, trained-0 75%" in page and "no hint" in page and "and 2 more" in page
    assert "<td>row 9</td><td>null</td>" in page and "row 10" not in page


def test_the_notebook_shows_what_fits(folder, tmp_path):
    out = tmp_path / "browse.ipynb"
    parameters = {"folder": str(folder), "arm": "base", "least": 0.2}
    notebook.run(ROOT / "notebooks" / "browse_questions.ipynb", out, parameters, tmp_path / "timings", [])
    shown = json.dumps([cell.get("outputs") for cell in nbformat.read(out, as_version=4).cells])
    assert "1 of 9 questions fit" in shown and "Question 0" in shown and "Question 1" not in shown
