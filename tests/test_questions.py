"""Questions are right by execution, their splits are exact, and the same seed gives the same bytes."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.files import read_jsonl
from lib.graph.query import Reader
from lib.questions import generate as generator
from lib.questions import pools as pools_of
from lib.questions.demonstrations import fill
from lib.questions.draw import Anchors, candidates
from lib.questions.generate import DEMONSTRATED, PART, SPLITS, WORDINGS, generate
from lib.questions.leaks import evaluation_wordings, grams, leaks, training_wordings, vocabulary
from lib.questions.pools import Pools
from lib.questions.signature import hops, signature
from lib.questions.structures import BY_ID, KINDS, SLOT, STRUCTURES, Structure
from lib.questions.verify import Rejected, Verifier
from tests.conftest import SIZES

EVALUATION = SPLITS[1:]
TRAINED = [s for s in STRUCTURES if not s.held_out]
FIELDS = {"id", "question", "hint", "query", "rows", "ordered", "structure", "hops", "split", "source", "difficulty"}


@pytest.fixture(scope="module")
def files(small_set) -> dict[str, list[dict]]:
    return {name: read_jsonl(small_set / f"{name}.jsonl") for name in (*SPLITS, "demonstrations")}


@pytest.fixture(scope="module")
def summary(small_set) -> dict:
    return json.loads((small_set / "summary.json").read_text())


def values(question: dict) -> dict[str, object]:
    """The values in a question's query, by slot, read back through its structure's template."""
    template = BY_ID[question["structure"]].query
    pattern = "".join(
        f"(?P<{m[1]}>.+?)" if (m := SLOT.fullmatch(part)) else re.escape(part)
        for part in re.split(r"(\{\w+\})", template)
    )
    found = re.fullmatch(pattern, question["query"])
    assert found, (question["query"], template)
    return found.groupdict()


# ---------------------------------------------------------------- the data


def test_wordings_have_the_slots_of_their_query_and_none_is_used_twice():
    for s in STRUCTURES:
        assert len(s.wordings) == 8, s.id
        assert set(s.slots.values()) <= set(KINDS)
        for wording in s.wordings:
            assert {m[1] for m in SLOT.finditer(wording)} == set(s.slots), wording
    assert max(Counter(w for s in STRUCTURES for w in s.wordings).values()) == 1


def test_every_word_of_an_evaluation_wording_is_learnt_in_a_training_wording():
    found = vocabulary(STRUCTURES)
    assert found["only in evaluation wordings"] == []
    assert found["words"] <= 330


def test_no_run_of_eight_words_is_shared_between_training_and_evaluation_wordings():
    seen = {g for w in training_wordings(STRUCTURES) for g in grams(w)}
    assert [w for w in evaluation_wordings(STRUCTURES) if grams(w) & seen] == []


def test_ids_name_things_in_a_minority_of_structures():
    assert sum("question" in s.slots.values() for s in STRUCTURES) <= 0.16 * len(STRUCTURES)


# ---------------------------------------------------------------- the files


def test_files_hold_what_was_asked_for_in_the_final_format(files, summary):
    for split in SPLITS:
        assert len(files[split]) == SIZES[split] == summary["counts"][split]
        for i, q in enumerate(files[split], 1):
            assert set(q) == FIELDS
            assert q["id"] == f"{split}-{i:04d}" and q["split"] == split
            assert q["hops"] == q["difficulty"]["hops"] == hops(q["query"])
            assert "{" not in q["question"]
    assert len(files["demonstrations"]) == SIZES["demonstrations"]


def test_every_structure_is_filled_by_the_default_twin(files, summary):
    assert summary["dropped structures"] == {}
    assert {q["structure"] for q in files["train"]} == {s.id for s in TRAINED}
    assert {q["structure"] for q in files["demonstrations"]} == {s.id for s in TRAINED}
    assert {q["structure"] for q in files["held_out_instances"]} == {s.id for s in TRAINED}
    assert {q["structure"] for q in files["held_out_structures"]} == {s.id for s in STRUCTURES if s.held_out}


def test_structures_are_balanced_in_training(files):
    counts = Counter(q["structure"] for q in files["train"])
    assert max(counts.values()) - min(counts.values()) <= 1


def test_splits_by_structure_are_exact_from_the_queries_alone(files):
    trained = {signature(q["query"]) for name in ("train", "demonstrations") for q in files[name]}
    assert {signature(q["query"]) for name in ("dev", "held_out_instances") for q in files[name]} <= trained
    assert not {signature(q["query"]) for q in files["held_out_structures"]} & trained


def test_values_wordings_queries_and_texts_are_disjoint_between_the_splits(files):
    used: dict[str, dict[str, set]] = {part: {} for part in ("train", "dev", "held_out")}
    for split, part in PART.items():
        for q in files[split]:
            for slot, value in values(q).items():
                used[part].setdefault(BY_ID[q["structure"]].slots[slot], set()).add(value)
    for kind in KINDS:
        pools = [used[part].get(kind, set()) for part in used]
        assert sum(map(len, pools)) == len(set().union(*pools)), kind
    for key in ("query", "question"):
        everything = [{q[key] for q in files[split]} for split in SPLITS]
        assert sum(map(len, everything)) == len(set().union(*everything)) == sum(SIZES[s] for s in SPLITS)
        taught = {d[key] for d in files["demonstrations"]}
        assert not taught & {q[key] for split in EVALUATION for q in files[split]}


def test_a_split_asks_in_its_own_wordings(files):
    for split in SPLITS:
        for q in files[split]:
            wordings = BY_ID[q["structure"]].wordings
            slots = {slot: {"value": v} for slot, v in values(q).items()}
            assert q["question"] in {fill(wordings[i], slots) for i in WORDINGS[split]}


def test_demonstrations_can_be_filled_again_from_their_parts(files):
    per_structure: dict[str, set[str]] = {}
    for d in files["demonstrations"]:
        assert fill(d["template"], d["slots"]) == d["query"]
        assert fill(d["wording"], d["slots"]) == d["question"]
        assert BY_ID[d["structure"]].wordings.index(d["wording"]) in WORDINGS["train"]
        per_structure.setdefault(d["structure"], set()).add(d["query"])
    assert max(map(len, per_structure.values())) <= DEMONSTRATED
    assert min(map(len, per_structure.values())) == 6


def test_queries_give_the_stored_rows_again(files, uri):
    async def run() -> None:
        reader = Reader(uri)
        verifier = Verifier(reader, frozenset())

        async def one(q: dict) -> None:
            got = await reader.run(q["query"], 25_000)
            assert 1 <= got.total <= 200
            assert await verifier.rows(q["query"], q["ordered"]) == q["rows"], q["query"]

        try:
            await asyncio.gather(*[one(q) for split in SPLITS for q in files[split]])
        finally:
            await reader.close()

    asyncio.run(run())


def test_the_summary_adds_up(files, summary):
    for name, lines in files.items():
        assert sum(s["counts"][name] for s in summary["structures"].values()) == len(lines)
        assert sum(summary["hops"][name].values()) == len(lines)
    by_structure = sum((Counter(s["rejected"]) for s in summary["structures"].values()), Counter())
    assert by_structure == summary["rejected"]
    found = summary["leaks"]
    assert found["queries shared"] == found["texts shared"] == 0
    assert found["evaluation wordings with an 8-gram of a training wording"] == 0
    assert found["evaluation questions with an 8-gram of a training question"] == 0
    assert summary["share naming ids"] <= 0.16


def test_the_same_seed_gives_the_same_bytes(uri, small_set, tmp_path):
    generate(uri, SIZES, 0, tmp_path)
    for path in sorted(small_set.iterdir()):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("query", "ordered", "rule"),
    [
        ("MATCH (u:User) WHERE u.userId = -77 RETURN u.displayName", False, "no rows"),
        ("MATCH (u:User) RETURN u.userId", False, "more than 200 rows"),
        ("MATCH (u:User) WHERE u.userId = -77 RETURN max(u.reputation)", False, "only nulls"),
        ("MATCH (u:User) WHERE u.userId = -77 RETURN count(*)", False, "zero"),
        ("MATCH (t:Tag) RETURN t.tagName ORDER BY t.count > 0 DESC LIMIT 3", False, "tie at the cut"),
        ("MATCH (t:Tag) RETURN t.tagName ORDER BY t.count > 0 DESC", True, "tie in the order"),
        ("MATCH (t:Tag) RETURN t.tagName ORDER BY t.nothing LIMIT 3", False, "sorted by what is missing"),
        ("MATCH (t:Tag) RETURN t.tagName ORDER BY t.tagName LIMIT 199", False, "nothing to choose from or to order"),
        ("MATCH (u:User) WHERE u.userId = 'x' + RETURN u.age", False, "failed: syntax error"),
        ("MATCH (t:Tag) RETURN DISTINCT toString(rand())", False, "other rows the second time"),
    ],
)
def test_each_rule_rejects(uri, query, ordered, rule):
    assert asyncio.run(_verified(uri, query, ordered)) == Rejected(rule)


def test_a_shared_name_in_an_answer_is_rejected(uri):
    query = "MATCH (u:User) WHERE u.userId > 0 RETURN u.displayName, u.userId LIMIT 5"
    query = query.replace(" LIMIT 5", " ORDER BY u.userId LIMIT 5")
    rows = asyncio.run(_verified(uri, query, True))
    assert not isinstance(rows, Rejected)
    wrong = asyncio.run(_verified(uri, query, True, frozenset([rows[3][0]])))
    assert wrong == Rejected("a name in the answer that several users share")


async def _verified(uri: str, query: str, ordered: bool, shared: frozenset[str] = frozenset()):
    reader = Reader(uri)
    try:
        return await Verifier(reader, shared).rows(query, ordered)
    finally:
        await reader.close()


# ---------------------------------------------------------------- the values


@given(st.lists(st.integers(), unique=True, max_size=60), st.integers(0, 99))
def test_a_pool_is_split_into_disjoint_parts_and_no_part_of_three_is_empty(found, seed):
    parts = pools_of.shuffled("tag", found, seed)
    assert sorted(v for pool in parts.values() for v in pool) == sorted(found)
    assert len(found) < 3 or all(parts.values())
    assert len(found) < 20 or parts != pools_of.shuffled("tag", found, seed + 1)


def test_values_that_would_break_a_query_or_name_two_things_are_left_out_and_counted():
    found = [("Ann", 1), ("Bo'b", 1), ("Zoë", 1), ("Two", 2), ("x" * 41, 1), ("A AND B", 1), ("{slot}", 1), ("a  b", 1)]
    fit, reasons = pools_of.fit("name", found)
    assert fit == ["Ann"]
    assert sum(reasons.values()) == 7 and reasons["shared by several users"] == 1


def test_candidates_use_up_what_the_graph_connects_and_never_repeat():
    pools = Pools(
        {
            "name": {"train": ["A", "B"], "dev": ["C"], "held_out": []},
            "year": {"train": [2011], "dev": [2012], "held_out": []},
        }
    )
    structure = BY_ID["comments_in_year"]
    found = Anchors(("name", "year"), None, [["A", 2011], ["B", 2012], ["C", 2012], ["B", 2011]])
    drawn = [
        tuple(s["value"] for s in c.values()) for c in candidates(structure, found, pools, "train", random.Random(0))
    ]
    assert sorted(drawn) == [("A", 2011), ("B", 2011)]
    assert list(candidates(structure, found, pools, "held_out", random.Random(0))) == []


def test_two_compared_things_are_never_the_same():
    pools = Pools({"name": {"train": list("ABCDE"), "dev": [], "held_out": []}})
    found = Anchors(("name",), "name2", [[v] for v in "ABCDE"])
    drawn = list(candidates(BY_ID["higher_reputation"], found, pools, "train", random.Random(0)))
    assert len(drawn) >= 10
    assert all(c["name"]["value"] != c["name2"]["value"] for c in drawn)


def test_leak_figures_see_what_is_shared():
    train = [
        {"question": "a b c d e f g h", "query": "x", "rows": [[1]]},
        {"question": "i", "query": "y", "rows": [[1]]},
    ]
    same = leaks(STRUCTURES, train, [{"question": "A b, c d e f g h i?", "query": "x", "rows": [[1]]}])
    assert same["evaluation questions with an 8-gram of a training question"] == 1
    assert same["queries shared"] == 1 and same["texts shared"] == 0
    assert same["share of evaluation questions with the rows of a training question"] == 1.0
    assert same["the same share among the training questions"] == 1.0


def test_what_a_graph_lacks_drops_its_structures_and_says_so(uri, tmp_path, monkeypatch):
    absent = Structure(
        "absent",
        "MATCH (u:User)-[:KNOWS]->(w:User) WHERE u.displayName = '{name}' RETURN w.displayName",
        ("{name}?",) * 8,
    )
    trivial = Structure("trivial", "MATCH (t:Tag) WHERE t.tagName = '{tag}' RETURN count(*)", ("{tag}?",) * 8)
    few = Structure("few", "MATCH (u:User) WHERE u.creationDate.year = {year} RETURN count(*)", ("{year}?",) * 8)
    monkeypatch.setattr(
        generator, "STRUCTURES", (absent, trivial, few, BY_ID["user_reputation"], BY_ID["tag_average_score"])
    )
    summary = generate(uri, SIZES, 0, tmp_path)
    assert summary["dropped structures"] == {
        "absent": "no question for train in this graph",
        "trivial": "the same answer for every value",
    }
    assert "train" in summary["structures"]["few"]["exhausted"]
    counts = summary["counts"]
    assert counts["train"] == SIZES["train"] and 0 < counts["held_out_structures"] < SIZES["held_out_structures"]
    monkeypatch.setattr(generator, "STRUCTURES", (absent,))
    with pytest.raises(ValueError, match="fills no structure"):
        generate(uri, SIZES, 0, tmp_path)
