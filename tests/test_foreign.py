"""A graph that nobody made for questions: what can't be asked is left out and named, and what is asked is right."""

from __future__ import annotations

import asyncio
import math
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import graph
from lib.files import read_jsonl
from lib.graph.model import read_schema
from lib.graph.trusted import Trusted
from lib.questions.demonstrations import Parts
from lib.questions.enumerate import LISTED, LISTS, MOST_WAYS, Tie, read_ties, specs
from lib.questions.generate import generate, slots_of
from lib.questions.lexicon import Lexicon, edge_name
from lib.questions.signature import signature
from lib.questions.spec import Spec, meetings, query
from lib.questions.supply import SPLITS
from lib.questions.verify import NO_NUMBER, Rejected, Verifier, tied
from lib.questions.wording import asked, says, wordings
from tests import foreign
from tests.test_graph_load import empty_server

SIZES = {"training": {"questions": 30, "structures": 12}, "most": 40}
BIG = "its values can't be looked up: memory error"


@pytest.fixture(scope="module")
def hospital(tmp_path_factory) -> SimpleNamespace:
    """The hospital's store, its description, and a set of questions about it; the server is down."""
    place = tmp_path_factory.mktemp("hospital")
    with pytest.MonkeyPatch.context() as patch, empty_server(place) as uri:
        foreign.fill(uri)
        patch.setenv("NEO4J_URI", uri)
        graph.build("neo4j", 1.0, 0, "", place / "graph")
        summary = generate(uri, SIZES, 0, place / "out", place / "graph", "all")
    lines = [q for split in SPLITS for q in read_jsonl(place / "out" / f"{split}.jsonl")]
    templates = {s["id"]: s["query"] for s in read_jsonl(place / "out" / "structures.jsonl")}
    return SimpleNamespace(place=place, summary=summary, questions=lines, templates=templates)


@pytest.fixture(scope="module")
def again(hospital):
    """The same store under a server that was started anew."""
    with empty_server(hospital.place, again=True) as uri:
        yield uri


def test_all_that_is_left_out_is_named(hospital):
    left = hospital.summary["left out of the schema"]
    assert (
        left["label O`Brien`s Tool"] == left["type HAS {count}"] == "a name with signs or words of the query language"
    )
    assert left["label Terms AND Conditions"] == left["Ward Unit.in, out"] == left["label O`Brien`s Tool"]
    assert left["label FilmStar"] == "called the same as Film Star"
    assert left["Patient.code"] == "values of mixed types (integer | text)"
    assert {left[f"Patient.{name}"].split(" (")[0] for name in ("home", "stay", "admitted", "allergies")} == {
        "values of type POINT", "values of type DURATION", "values of type ZONED DATETIME", "values of mixed types",
    }  # fmt: skip
    assert "no name" in left["label Empty"]
    written = " ".join(hospital.templates.values())
    assert not any(name in written for name in ("Tool", "Terms", "{count}`", "FilmStar", ".code", ".home", "in, out"))


def test_each_structure_is_there_or_accounted_for(hospital):
    found = hospital.summary
    unsaid = sum(n for why, n in found["not enumerated, by component"].items() if why.startswith("no natural sentence"))
    assert sum(found["dropped structures"].values()) + found["structures"] + unsaid == found["enumerated"]
    assert {"a path that may come to one relationship twice", BIG} <= set(found["dropped structures"])
    assert len(hospital.templates) == found["structures"] >= 6


def test_values_are_such_as_a_sentence_bears(hospital):
    for q in hospital.questions:
        for slot in slots_of(hospital.templates[q["structure"]], q["query"]).values():
            value = slot["value"]
            assert (
                value not in ("", "None") if isinstance(value, str) else math.isfinite(value) and 0 <= value <= 10**15
            )
        assert all(math.isfinite(v) for row in q["rows"] for v in row if isinstance(v, float)), q["query"]


def test_all_rows_are_the_same_after_a_restart(hospital, again):
    async def run() -> None:
        reader = Trusted(again)
        try:
            for q in hospital.questions:
                assert await Verifier(reader, frozenset()).rows(q["query"], q["ordered"]) == q["rows"], q["query"]
        finally:
            await reader.close()

    asyncio.run(run())


# ---------------------------------------------------------------- ways that the words don't exclude


def test_a_way_that_needs_one_relationship_twice_is_seen_in_the_path():
    schema = {
        "labels": {
            "Person": {"count": 90, "properties": {"name": {"type": "text", "share": 1.0}}},
            "Place": {"count": 90, "properties": {"name": {"type": "text", "share": 1.0}}},
        },
        "relationships": {"KNOWS": {"count": 9, "properties": {}}, "LIVES_IN": {"count": 9, "properties": {}}},
        "patterns": [
            {"start": "Person", "type": "KNOWS", "end": "Person", "count": 9},
            {"start": "Person", "type": "LIVES_IN", "end": "Place", "count": 9},
        ],
    }
    lexicon = Lexicon(schema)
    ties = {name: Tie(False, True, 0.5, 2.0, dict.fromkeys(lexicon.edges, 3.0)) for name in lexicon.edges}
    seen = {m for s in specs(lexicon, ties, 0)[0] for m in meetings(s)}
    assert "(a:Person)-[:KNOWS]->(a:Person)" in seen
    assert not any("LIVES_IN]->(b:Place) " in m for m in seen)


# ---------------------------------------------------------------- how many ways there are


def test_paths_of_too_many_ways_are_dropped_and_shorter_or_named_ones_stay():
    lexicon = Lexicon(SCHEMA)

    def made(fan: float, after: float = 0.0) -> tuple[list[Spec], bool]:
        tie = Tie(False, True, 0.6, fan, dict.fromkeys(lexicon.edges, after or fan))
        found, dropped = specs(lexicon, dict.fromkeys(lexicon.edges, tie), 0)
        return found, f"more than {MOST_WAYS:,} ways to follow" in dropped

    few, none_dropped = made(2.0)
    assert max(len(s.hops) for s in few) == 4 and not none_dropped
    some, dropped = made(700.0)  # two hops from one thing, one from any of 700
    assert dropped and max(len(s.hops) for s in some) == 2
    assert all({f.at for f in s.filters if f.kind in ("is", "either")} & {0, 2} for s in some if len(s.hops) == 2)
    assert max(len(s.hops) for s in made(MOST_WAYS + 1.0)[0]) == 0
    some, dropped = made(2.0, after=700.0)  # those with two ends are reached from those with thousands
    assert dropped and max(len(s.hops) for s in some) == 2


NAMED = {"name": {"type": "text", "share": 1.0}, "size": {"type": "float", "share": 1.0}}
CHAIN = [
    ("Reader", "BORROWED", "Book"),
    ("Book", "STANDS_ON", "Shelf"),
    ("Shelf", "STANDS_IN", "Room"),
    ("Room", "BELONGS_TO", "House"),
]
SCHEMA = {
    "labels": {label: {"count": 700, "properties": NAMED} for label in ("Reader", "Book", "Shelf", "Room", "House")},
    "relationships": {type_: {"count": 9, "properties": {}} for _, type_, _ in CHAIN},
    "patterns": [{"start": a, "type": type_, "end": b, "count": 9} for a, type_, b in CHAIN],
}


def test_the_ways_that_are_foreseen_are_those_that_there_are(uri, graph_folder):
    lexicon = Lexicon(read_schema(graph_folder))

    async def run() -> None:
        reader = Trusted(uri)
        try:
            ties = await read_ties(reader, lexicon)
            for to, by in product(lexicon.hops["User"], repeat=2):
                ends = f"(:{by.label})<-[:{by.type}]-(u:User)", f"(u)-[:{to.type}]->(:{to.label})"
                [[reached]] = (await reader.run(f"MATCH {ends[0]} RETURN count(*)", 1)).rows
                [[ways]] = (await reader.run(f"MATCH {ends[0]} MATCH {ends[1]} RETURN count(*)", 1)).rows
                tie = ties[edge_name("User", to)]
                assert tie.after[edge_name("User", by)] * reached == pytest.approx(ways), (to, by)
        finally:
            await reader.close()

    asyncio.run(run())


@pytest.mark.parametrize("count", [LISTED, LISTED + 1])
def test_lists_of_very_many_things_are_asked_for_only_where_something_is_named(count):
    lexicon = Lexicon({**SCHEMA, "labels": {label: {**of, "count": count} for label, of in SCHEMA["labels"].items()}})
    tie = Tie(False, True, 0.6, 2.0, dict.fromkeys(lexicon.edges, 2.0))
    lists = [s for s in specs(lexicon, dict.fromkeys(lexicon.edges, tie), 0)[0] if s.form in LISTS]
    unnamed = [s for s in lists if not {f.kind for f in s.filters} & {"is", "id", "either"}]
    assert len(lists) > len(unnamed) and bool(unnamed) == (count == LISTED)


# ---------------------------------------------------------------- any names at all

NAMES = st.text(st.sampled_from("aBcyear_day AND,`'\"{}[]|<>:\n0é药.-"), min_size=1, max_size=14) | st.sampled_from(
    ["day", "weekday", "is", "count", "n", "WHERE x", "a RETURN b", "STARTS WITH", "HAS", "名"]
)
KINDS = st.sampled_from(["text", "integer", "float", "date", "datetime", "boolean", "POINT", "integer | text"])
PROPERTIES = st.dictionaries(
    NAMES, st.fixed_dictionaries({"type": KINDS, "share": st.sampled_from([1.0, 0.9, 0.5, 0.01])}), max_size=4
)


@st.composite
def schemas(drawn) -> dict:
    labels = drawn(st.lists(NAMES, unique=True, min_size=1, max_size=3))
    types = drawn(st.lists(NAMES, unique=True, max_size=3))
    ends = st.sampled_from(labels)
    return {
        "labels": {label: {"count": drawn(st.integers(0, 500)), "properties": drawn(PROPERTIES)} for label in labels},
        "relationships": {t: {"count": 9, "properties": drawn(PROPERTIES)} for t in types},
        "patterns": [{"start": drawn(ends), "type": t, "end": drawn(ends), "count": 9} for t in types],
    }


@settings(max_examples=40)
@given(schemas(), st.randoms(use_true_random=False))
def test_any_schema_gives_queries_of_the_dialect_with_words_for_all_slots(schema, rng):
    lexicon = Lexicon(schema)
    ties = {name: Tie(False, True, 0.6, 1.5, dict.fromkeys(lexicon.edges, 2.0)) for name in lexicon.edges}
    found, _ = specs(lexicon, ties, 0)
    assert len({t.nouns[0][0] for t in lexicon.things.values()}) == len(lexicon.things)
    for spec in rng.sample(found, min(12, len(found))):
        text = query(spec)
        signature(text)
        assert Parts.of(text).text() == text
        assert all(slot.isalnum() and slot.isascii() for slot in asked(spec))
        assert all(says(words, asked(spec)) for words in wordings(spec, lexicon, 0)), text


# ---------------------------------------------------------------- rules on answers


def test_sorting_by_what_is_no_number_is_rejected():
    for key in (math.nan, math.inf, -math.inf):
        assert tied([key, 3.0], 1, True, False) == NO_NUMBER
    assert tied([5.0, 3.0], 1, True, False) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("MATCH (t:Tag) WHERE t.tagId = 1 RETURN sqrt(-1.0)", NO_NUMBER),
        ("MATCH (t:Tag) RETURN t.`no such name`, count(*)", "something without a name in the answer"),
        ("MATCH (t:Tag) RETURN {`full name`: 'Ann'}.`full name`", "a name in the answer that several things share"),
    ],
)
def test_answers_that_name_nothing_are_rejected(uri, text, rule):
    async def run() -> object:
        reader = Trusted(uri)
        try:
            return await Verifier(reader, frozenset({"Ann"}), ("no such name", "full name")).rows(text, False)
        finally:
            await reader.close()

    assert asyncio.run(run()) == Rejected(rule)
