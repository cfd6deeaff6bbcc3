"""A graph that nobody wrote questions for is asked what its schema allows, by the same rules as the study's own graph."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lib import graph
from lib.files import read_jsonl
from lib.graph import server
from lib.questions.any_schema import MOST, Schema, plural, spoken, structures
from lib.questions.families import FAMILIES
from lib.questions.generate import SPLITS, generate
from lib.questions.signature import hops, signature
from lib.questions.structures import SLOT
from tests.conftest import DATA

SETTINGS = {"train": 60, "dev": 12, "held_out_instances": 24, "held_out_structures": 16, "demonstrations": 120}
FEW = {"training": {"questions": 45, "structures": 20}, "most": 24}  # of the large set


@pytest.fixture(scope="module")
def heroes(tmp_path_factory) -> Path:
    file = DATA / "bird_superhero" / "superhero.sqlite"
    if not file.is_file():
        pytest.skip(f"BIRD's superhero database isn't here: {file}")
    folder = tmp_path_factory.mktemp("heroes") / "graph"
    graph.build("bird", 1.0, 0, str(file), folder)
    return folder


@pytest.fixture(scope="module")
def heroes_uri(heroes):
    with server.running(heroes) as own:
        yield own


@pytest.fixture(scope="module")
def found(heroes):
    return structures(graph.schema(heroes), 0)


def test_equal_schemas_give_equal_structures(heroes, found):
    assert structures(graph.schema(heroes), 0) == found


def test_structures_are_many_different_and_of_up_to_two_hops(found):
    assert 12 <= len(found) <= MOST
    assert len({signature(s.query) for s in found}) == len({s.id for s in found}) == len(found)
    assert set(Counter(hops(s.query) for s in found)) == {0, 1, 2}
    assert {s.id for s in found if s.id.startswith(tuple(f.replace(" ", "_") for f in FAMILIES))} == {
        s.id for s in found
    }


def test_wordings_have_the_slots_of_their_query_and_none_is_used_twice(found):
    for s in found:
        assert len(set(s.wordings)) == 8
        for wording in s.wordings:
            assert {m[1] for m in SLOT.finditer(wording)} == set(s.slots), (s.query, wording)
            assert "<" not in wording and "_" not in wording
    assert max(Counter(w for s in found for w in s.wordings).values()) == 1


def test_whole_signatures_are_held_out(found):
    apart = [s for s in found if s.held_out]
    assert len(apart) == len(found) // 5
    assert {signature(s.query) for s in apart}.isdisjoint(signature(s.query) for s in found if not s.held_out)


def test_names_are_put_into_words():
    assert [spoken(n) for n in ("heightCm", "HAS_EYE_COLOUR", "PUBLISHED_BY", "IS", "User", "postId2", "URLOfSite")] == [
        "height cm", "eye colour", "published", "is", "user", "post id 2", "url of site",
    ]  # fmt: skip
    assert [plural(w) for w in ("colour", "superhero", "race", "category", "boss", "key")] == [
        "colours", "superheroes", "races", "categories", "bosses", "keys",
    ]  # fmt: skip


def test_a_graph_without_names_or_relationships_still_has_what_it_allows():
    lonely = {"labels": {"Thing": {"count": 3, "properties": {"n": {"type": "integer", "share": 1.0}}}}}
    assert structures({**lonely, "relationships": {}, "patterns": []}, 0) == ()
    named = {"labels": {"My Thing": {"count": 3, "properties": {"name": {"type": "text", "share": 1.0}}}}}
    assert structures({**named, "relationships": {}, "patterns": []}, 0) == ()


def test_properties_that_differ_in_a_digit_have_kinds_of_their_own():
    number = {"type": "integer", "share": 1.0}
    air = {"count": 3, "properties": {"name": {"type": "text", "share": 1.0}, "pm10": number, "pm25": number}}
    schema = {"labels": {"Air": air}, "relationships": {}, "patterns": []}
    kinds = {name: Schema(schema).kind("Air", name) for name in air["properties"]}
    assert kinds == {"name": "airname", "pm10": "airpm", "pm25": "airpmx"}
    slots = {s.query: s.slots for s in structures(schema, 0) if "pm25 >" in s.query}
    assert slots and all("airpmx" in of for of in slots.values())


def test_questions_about_superheroes_are_right_and_their_splits_exact(heroes, heroes_uri, tmp_path):
    summary = generate(heroes_uri, SETTINGS, 0, tmp_path / "one", heroes)
    generate(heroes_uri, SETTINGS, 0, tmp_path / "two", heroes)
    files = {name: read_jsonl(tmp_path / "one" / f"{name}.jsonl") for name in (*SPLITS, "demonstrations")}
    assert {name: len(lines) for name, lines in files.items()} == SETTINGS
    trained = {signature(q["query"]) for name in ("train", "demonstrations") for q in files[name]}
    assert {signature(q["query"]) for name in ("dev", "held_out_instances") for q in files[name]} <= trained
    assert not {signature(q["query"]) for q in files["held_out_structures"]} & trained
    assert summary["leaks"]["queries shared"] == summary["leaks"]["texts shared"] == 0
    assert len({q["structure"] for q in files["train"]}) >= 12
    for name in (*SPLITS, "demonstrations", "summary"):
        file = f"{name}.json" if name == "summary" else f"{name}.jsonl"
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_superheroes_are_asked_about_in_their_own_words(heroes, heroes_uri, tmp_path):
    found = generate(heroes_uri, FEW, 0, tmp_path, heroes, "all")
    assert found["words written down"] and found["structures"] >= 8


def test_a_running_database_is_asked_by_its_schema(uri, tmp_path, monkeypatch):
    """In a few structures: how many there are doesn't hang on where the schema came from."""
    monkeypatch.setattr("lib.questions.any_schema.MOST", 12)
    monkeypatch.setenv("NEO4J_URI", uri)
    graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
    with server.running(tmp_path / "graph") as used:
        summary = generate(used, SETTINGS, 0, tmp_path / "questions", tmp_path / "graph")
    assert summary["counts"]["train"] == SETTINGS["train"] and summary["counts"]["held_out_structures"] > 0
    assert json.loads((tmp_path / "questions" / "summary.json").read_text()) == summary
