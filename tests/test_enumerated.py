"""The large set: structures from a graph's own schema, by signature; words that say the query; splits that queries prove."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from pathlib import Path

import neo4j
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import graph
from lib.files import read_jsonl
from lib.graph.query import Reader
from lib.questions.audit import audit, form, nearest, shared, skeletons
from lib.questions.audit import main as audit_main
from lib.questions.enumerate import Tie, specs
from lib.questions.enumerated import PER_STRUCTURE, SHORT, draw_training, hold_out, wordings_of
from lib.questions.generate import generate
from lib.questions.hints import SHARE, hint, hinted
from lib.questions.lexicon import Lexicon
from lib.questions.signature import hops, signature
from lib.questions.spec import FORMS, query, variables
from lib.questions.structures import NEW_COMBINATION, NEW_COMPONENT, SLOT
from lib.questions.supply import SPLITS
from lib.questions.verify import Verifier
from lib.questions.wording import LEAST, asked, fill_words, says, skeleton, spoken_value, wordings
from tests.test_graph_load import empty_server

SIZES = {"training": {"questions": 45, "structures": 20}, "most": 60}  # all of them take minutes
FEW = {**SIZES, "most": 24}
PIECE = re.compile(r"\([^)]*\)|<?-\[[^\]]*\]->?")
EVALUATION = SPLITS[1:]


def text(share: float = 1.0) -> dict:
    return {"type": "text", "share": share}


MADE_UP = {
    "labels": {
        "Film Star": {"count": 90, "properties": {"full name": text(), "born": {"type": "integer", "share": 0.9}}},
        "Movie": {
            "count": 60,
            "properties": {
                "title": text(),
                "rating": {"type": "float", "share": 1.0},
                "released": {"type": "date", "share": 0.8},
                "code": {"type": "integer | text", "share": 1.0},
                "spot": {"type": "POINT", "share": 1.0},
            },
        },
        "Genre": {"count": 8, "properties": {"name": text()}},
        "Screening": {"count": 400, "properties": {"seats": {"type": "integer", "share": 1.0}}},
    },
    "relationships": {
        "ACTED_IN": {"count": 240, "properties": {"fee": {"type": "integer", "share": 1.0}}},
        "HAS_GENRE": {"count": 90, "properties": {}},
        "DIRECTED_BY": {"count": 50, "properties": {}},
        "SHOWS": {"count": 400, "properties": {}},
    },
    "patterns": [
        {"start": "Film Star", "type": "ACTED_IN", "end": "Movie", "count": 240},
        {"start": "Movie", "type": "DIRECTED_BY", "end": "Film Star", "count": 50},
        {"start": "Movie", "type": "HAS_GENRE", "end": "Genre", "count": 90},
        {"start": "Screening", "type": "SHOWS", "end": "Movie", "count": 400},
    ],
}
LEXICON = Lexicon(MADE_UP)
TIES = {
    name: Tie(name.startswith("Screening-"), True, 0.6, 2.0, dict.fromkeys(LEXICON.edges, 4.0))
    for name in LEXICON.edges
}
SPECS = specs(LEXICON, TIES, 0)[0]
some = st.sampled_from(SPECS)


# ---------------------------------------------------------------- signatures


def clauses(text: str) -> tuple[str, list[str], str]:
    """The path, the conditions, and all that follows."""
    match = re.fullmatch(r"MATCH (.*?)(?: WHERE (.*?))?( (?:WITH \w,|RETURN) .*)", text)
    assert match, text
    return match[1], match[2].split(" AND ") if match[2] else [], match[3]


def turned(path: str) -> str:
    pieces = [
        p if p.startswith("(") else f"-{p[2:-1]}->" if p.startswith("<") else f"<{p[:-1]}" for p in PIECE.findall(path)
    ]
    return "".join(reversed(pieces))


def branches(path: str, rng: random.Random) -> str:
    """The path's hops as paths of their own, in any order; a node is labelled where it is met first."""
    pieces = PIECE.findall(path)
    parts = [pieces[i : i + 3] for i in range(0, len(pieces) - 2, 2)] or [pieces]
    rng.shuffle(parts)
    known: set[str] = set()

    def node(piece: str) -> str:
        name = re.match(r"\((\w+)", piece)[1]
        new = name not in known
        known.add(name)
        return piece if new else f"({name})"

    return ", ".join("".join(node(p) if p.startswith("(") else p for p in part) for part in parts)


@given(some, st.booleans(), st.randoms(use_true_random=False))
def test_a_signature_never_follows_the_way_of_writing(spec, turns, rng):
    text = query(spec)
    path, conditions, rest = clauses(text)
    rng.shuffle(conditions)
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    for written in (turned(path) if turns else path, branches(path, rng)):
        assert signature(f"MATCH {written}{where}{rest}") == signature(text)
        assert hops(f"MATCH {written}{where}{rest}") == len(spec.hops)


@given(some, st.randoms(use_true_random=False))
def test_a_signature_never_follows_the_names_of_variables(spec, rng):
    text, old = query(spec), variables(spec)
    new = dict(zip(old, rng.sample([c for c in "abcdfghijklmopqrstuvwxyz" if c != "n"], len(old)), strict=True))
    renamed = re.sub(r"(?<![\w`'{])[a-z](?=[.:),]| AS|, )", lambda m: new.get(m[0], m[0]), text)
    assert signature(renamed) == signature(text), renamed


@pytest.mark.parametrize(
    "other",
    [
        "MATCH (p:Post) WHERE p:Question AND p.score > 5 RETURN count(*)",
        "MATCH (p:Post:Question) WHERE p.score > 5 RETURN count(*)",
        "MATCH (p:Question:Post) WHERE p.score > 5 RETURN count(*)",
    ],
)
def test_a_question_is_a_post_with_a_label_test(other):
    asked = "MATCH (q:Question) WHERE q.score > 5 RETURN count(*)"
    assert signature(asked) == signature(other)
    for different in (other.replace("Question", "Answer"), "MATCH (p:Post) WHERE p.score > 5 RETURN count(*)"):
        assert signature(asked) != signature(different)


COUNTED = "MATCH (t:Tag)<-[:TAGGED]-(q:Question)<-[:OWNS]-(u:User)-[:OWNS]->(a:Answer)<-[:OWNS]-(w:User) "


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("WITH t, count(*) AS n WHERE n > 3 RETURN t.tagName", "WITH t, count(*) AS n RETURN t.tagName"),
        (
            "WITH t, count(*) AS n WHERE n > 3 RETURN t.tagName",
            "WITH t, count(DISTINCT u) AS n WHERE n > 3 RETURN t.tagName",
        ),
        (
            "WITH t, count(*) AS n RETURN t.tagName ORDER BY n DESC LIMIT 1",
            "WITH t, count(*) AS n RETURN t.tagName ORDER BY n LIMIT 1",
        ),
        (
            "RETURN 100.0 * count(CASE WHEN q.score > 3 THEN 1 END) / count(*)",
            "RETURN 1.0 * count(*) / count(DISTINCT u)",
        ),
        ("WHERE u.displayName = 'A' RETURN count(*)", "WHERE w.displayName = 'A' RETURN count(*)"),
        ("WHERE NOT (q)<-[:ON_POST]-(:Comment) RETURN count(*)", "WHERE NOT (q)<-[:ON_POST]-(:Vote) RETURN count(*)"),
        ("WHERE (q)-[:LINKS_TO]->() RETURN count(*)", "WHERE (q)<-[:LINKS_TO]-() RETURN count(*)"),
        ("WHERE (u)-[:CAST]->() RETURN count(*)", "WHERE (w)-[:CAST]->() RETURN count(*)"),
    ],
)
def test_a_real_difference_changes_the_signature(one, two):
    assert signature(COUNTED + one) != signature(COUNTED + two)


# ---------------------------------------------------------------- enumeration, words and hints


def test_structures_differ_by_signature_and_cover_forms_and_hops():
    assert len({signature(query(s)) for s in SPECS}) == len({s.id for s in SPECS}) == len(SPECS) > 200
    assert set(Counter(len(s.hops) for s in SPECS)) == {0, 1, 2, 3, 4}
    assert len({s.form for s in SPECS}) >= len(FORMS) - 2
    assert specs(LEXICON, TIES, 0)[0] == SPECS != specs(LEXICON, TIES, 1)[0]


def test_what_a_schema_has_no_words_for_is_named():
    assert LEXICON.left_out["Movie.code"] == "values of mixed types (integer | text)"
    assert LEXICON.left_out["Movie.spot"] == "values of type POINT"
    assert "no name" in LEXICON.left_out["label Screening"]
    assert not any("code" in query(s) or "spot" in query(s) for s in SPECS)
    assert any("(f:`Film Star`)" in query(s) and "f.`full name`" in query(s) for s in SPECS)


@given(some, st.integers(0, 3))
def test_words_have_the_slots_of_the_query_and_no_skeleton_twice(spec, seed):
    made = wordings(spec, LEXICON, seed)
    assert len({skeleton(w) for w in made}) == len(made) >= LEAST, (spec.id, made)
    for w in made:
        assert says(w, asked(spec)) and not re.search(r"[<>\[\]|_`]", SLOT.sub("", w)), w
        assert w[0] == "{" or w[0].isupper() or not w[0].isalpha()
        assert not re.search(r"\b(?:node|relationship|property|column)s?\b", w)


@given(some)
def test_hints_are_parts_of_the_query(spec):
    told = hint(spec, LEXICON)
    assert {m[1] for m in SLOT.finditer(told)} <= {m[1] for m in SLOT.finditer(query(spec))}
    assert all(" refers to " in part for part in told.split("; ")), told


def test_hints_come_to_a_share_of_questions_by_their_queries():
    given_ = [hinted(f"MATCH {i}", 0) for i in range(3000)]
    assert abs(sum(given_) / 3000 - SHARE) < 0.02
    assert given_ == [hinted(f"MATCH {i}", 0) for i in range(3000)]


def test_values_read_as_people_write_them():
    assert [spoken_value(k, v) for k, v in (("xnumber", 12500), ("xyear", 2012), ("xid", 104301), ("xday", "2012-03-05"), ("x", "A b"), ("xnumber", 7.5))] == [
        "12,500", "2012", "104301", "March 5, 2012", "A b", "7.5",
    ]  # fmt: skip


def test_a_structure_s_wordings_are_shared_out_without_overlap():
    for n in range(LEAST, 13):
        parts = [set(wordings_of(s, n)) for s in SPLITS[:3]]
        assert set().union(*parts) == set(range(n)) and sum(map(len, parts)) == n


def test_held_out_structures_are_new_in_the_way_they_are_tagged():
    signatures = {s.id: signature(query(s)) for s in SPECS}
    apart = hold_out(signatures, 0)
    known = frozenset().union(*(signatures[i].components() for i in signatures if i not in apart))
    assert 0.1 < len(apart) / len(signatures) < 0.4
    assert set(apart.values()) == {NEW_COMBINATION, NEW_COMPONENT}
    for i, why in apart.items():
        assert (signatures[i].components() <= known) == (why == NEW_COMBINATION), i
    assert hold_out(signatures, 0) == apart


# ---------------------------------------------------------------- the default twin


@pytest.fixture(scope="module")
def made(uri, graph_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("all")
    generate(uri, SIZES, 0, out, graph_folder, "all")
    return out


@pytest.fixture(scope="module")
def files(made) -> dict[str, list[dict]]:
    return {name: read_jsonl(made / f"{name}.jsonl") for name in (*SPLITS, "training", "structures")}


@pytest.fixture(scope="module")
def summary(made) -> dict:
    return json.loads((made / "summary.json").read_text())


def test_there_are_as_many_as_promised(files, summary):
    every = [q for s in SPLITS for q in files[s]]
    assert (
        len({signature(q["query"]) for q in every})
        == len({q["structure"] for q in every})
        == summary["structures"]
        >= 25
    )
    assert (
        len(every) >= 8 * summary["structures"]
        and max(Counter(q["structure"] for q in every).values()) <= PER_STRUCTURE
    )
    assert {q["structure"] for q in every} == {s["id"] for s in files["structures"]}
    assert sum(hops(s["query"]) <= 1 for s in files["structures"]) <= SHORT * len(files["structures"])
    assert min(len({skeleton(w) for w in s["wordings"]}) for s in files["structures"]) >= LEAST


def test_splits_are_exact_from_the_queries_alone(files):
    trained = {signature(q["query"]) for q in files["train"]}
    assert {signature(q["query"]) for s in ("dev", "held_out_instances") for q in files[s]} <= trained
    apart = {signature(q["query"]) for q in files["held_out_structures"]}
    assert apart and not apart & trained
    known = frozenset().union(*(s.components() for s in trained))
    tags = {signature(s["query"]): s["held_out"] for s in files["structures"]}
    for s in apart:
        assert (s.components() <= known) == (tags[s] == NEW_COMBINATION)
    assert {tags[s] for s in apart} <= {NEW_COMBINATION, NEW_COMPONENT}
    everything = [{q["query"] for q in files[s]} for s in SPLITS]
    assert sum(map(len, everything)) == len(set().union(*everything))
    assert {q["id"] for q in files["training"]} <= {q["id"] for q in files["train"]}


def test_every_value_of_the_query_is_said_and_nothing_else(files):
    templates = {s["id"]: s for s in files["structures"]}
    for split in SPLITS:
        for q in files[split]:
            template = templates[q["structure"]]["query"]
            parts = re.split(r"(\{\w+\})", template)
            pattern = "".join(
                f"(?P<{p[1:-1]}>.+?)"
                if SLOT.fullmatch(p) and p not in parts[:i]
                else f"(?P={p[1:-1]})"
                if SLOT.fullmatch(p)
                else re.escape(p)
                for i, p in enumerate(parts)
            )
            values = re.fullmatch(pattern, q["query"]).groupdict()
            slots = {m[1]: m[2] for m in SLOT.finditer(template)}
            left = q["question"]
            for slot, value in sorted(values.items(), key=lambda item: -len(item[1])):
                number = float(value) if slots[slot].endswith("number") or slots[slot] == "count" else value
                number = int(number) if isinstance(number, float) and number.is_integer() else number
                said = spoken_value(slots[slot], number)
                assert said in left, (q["question"], q["query"])
                left = left.replace(said, " ", 1)
            assert not re.search(r"\d", left), (q["question"], left)


def test_rows_are_the_same_again(files, uri):
    async def run() -> None:
        reader = Reader(uri)
        verifier = Verifier(reader, frozenset())
        drawn = random.Random(0).sample([q for s in SPLITS for q in files[s]], 150)
        try:
            found = await asyncio.gather(*[verifier.rows(q["query"], q["ordered"]) for q in drawn])
        finally:
            await reader.close()
        assert [q["rows"] for q in drawn] == found
        assert all(1 <= len(rows) <= 200 for rows in found)

    asyncio.run(run())


def test_the_training_file_is_drawn_as_declared(files, summary):
    drawn = files["training"]
    assert len(drawn) == 45 and len({q["structure"] for q in drawn}) == 20
    assert max(Counter(q["structure"] for q in drawn).values()) <= 3
    assert drawn == draw_training(files["train"], 45, 20, 0) != draw_training(files["train"], 45, 20, 1)
    structures = {"train": files["train"], "training": drawn}
    by_hops = {
        n: Counter(hops(q) for q in {q["structure"]: q["query"] for q in lines}.values())
        for n, lines in structures.items()
    }
    total = sum(by_hops["train"].values())
    assert all(abs(by_hops["training"][n] / 20 - k / total) < 1 / 20 for n, k in by_hops["train"].items())
    assert summary["training"]["questions"] == 45 and 0.85 < summary["hints"] < 0.97


def test_figures_on_leaks_stand_beside_those_of_chance(summary):
    common = summary["common"]
    assert set(common) == {"random halves of train"} | {
        f"{a} and {b}" for a in ("train", "training") for b in EVALUATION
    }
    for name, figures in common.items():
        if name != "random halves of train":
            assert figures["same query"] == figures["same text"] == 0
    assert common["train and held_out_structures"]["same query up to values"] == 0


def test_words_are_compared_with_people_s_by_their_figures_alone(made, files, bird, capsys, monkeypatch):
    people = bird / "codebase_community_186.json"
    monkeypatch.setattr("sys.argv", ["audit", str(made), "--compare", str(people)])
    audit_main()
    told = capsys.readouterr().out
    found = json.loads(told)
    ours, theirs = found["words"], found[f"words of {people.name}"]
    assert ours["questions"] >= 200 and theirs["questions"] == 186
    assert ours["structures"] == len(files["structures"]) and 150 <= theirs["structures"] <= 186
    assert ours["skeletons per structure, mean"] > 3 > theirs["skeletons per structure, mean"] >= 1
    for words in (ours, theirs):
        assert 0 < words["type-token ratio"] < 1 and 0 < words["share naming ids"] < 0.5
    assert not any(q["question"] in told for q in json.loads(people.read_text()))


def test_a_structure_s_skeletons_are_its_questions_without_values():
    lines = [
        {"structure": "a", "question": "How many after March 5, 2012?", "query": "x > '2012-03-05'"},
        {"structure": "a", "question": "How many after May 12, 2011?", "query": "x > '2011-05-12'"},
        {"structure": "a", "question": "Since May 12, 2011, how many?", "query": "x > '2011-05-12'"},
        {"question": "Who is Ann?", "SQL": "name = 'Ann'"},
        {"question": "Who is Bob?", "SQL": "name = 'Bob'"},
        {"question": "Who beats 12,500?", "SQL": "n > 12500"},
        {"question": "Who knows?"},
    ]
    found = {"structures": 3, "skeletons per structure, mean": 1.33, "skeletons per structure, most": 2}
    assert skeletons(lines) == found


# ---------------------------------------------------------------- figures on what is shared


def test_likeness_is_of_characters():
    near = nearest(["How many users are there?"], ["How many users are there?", "Quite other words"])
    assert near[0] == 1.0 and near[1] < 0.1


def test_shared_figures_see_what_is_shared():
    train = [{"question": "a b c d e f g h", "query": "MATCH 'x' 5", "rows": [[1]]}]
    found = shared(train, [{"question": "A b c, d e f g h i", "query": "MATCH 'y' 7", "rows": [[1]]}])
    assert found["a run of 8 words"] == found["same rows"] == found["same query up to values"] == 1
    assert found["same query"] == found["same text"] == 0
    assert form("x = 'it 5' AND y > 2.5") == "x = ? AND y > ?"
    assert shared(train, []) == {"questions": 0} and audit({"train": train}, {"dev": []}, 0)["train and dev"] == {
        "questions": 0
    }


# ---------------------------------------------------------------- other graphs


def fill_films(uri: str) -> None:
    """Stars, movies, genres and screenings: a label and a property with a space, a property of mixed types, no date."""
    rng = random.Random(0)
    letters = "bcdfghjklmnprst"
    name = lambda: "".join(rng.choice(letters) + rng.choice("aeiou") for _ in range(3)).capitalize()  # noqa: E731
    movies = [
        {"title": f"{name()} {name()} {i}", "rating": rng.randint(10, 99) / 10, "code": i if i % 2 else f"c{i}"}
        for i in range(60)
    ]
    stars = [{"full name": f"{name()} {name()}", "born": rng.randint(1920, 2000)} for _ in range(90)]
    with neo4j.GraphDatabase.driver(uri) as driver:
        run = driver.execute_query
        run("UNWIND $rows AS row CREATE (m:Movie) SET m = row", rows=movies)
        run("UNWIND $rows AS row CREATE (s:`Film Star`) SET s = row", rows=stars)
        run("UNWIND range(0, 7) AS i CREATE (:Genre {name: 'Genre ' + ['A','B','C','D','E','F','G','H'][i]})")
        run("MATCH (m:Movie) UNWIND range(1, 6) AS i CREATE (:Screening {seats: 40 + 7 * i})-[:SHOWS]->(m)")
        pairs = [
            {"s": rng.choice(stars)["full name"], "m": m["title"], "fee": rng.randint(1, 90)}
            for m in movies
            for _ in range(4)
        ]
        run(
            "UNWIND $rows AS row MATCH (s:`Film Star` {`full name`: row.s}), (m:Movie {title: row.m}) "
            "CREATE (s)-[:ACTED_IN {fee: row.fee}]->(m)",
            rows=pairs,
        )
        run(
            "MATCH (m:Movie) WITH m ORDER BY m.title WITH collect(m) AS ms MATCH (g:Genre) WITH ms, g ORDER BY g.name "
            "WITH ms, collect(g) AS gs UNWIND range(0, 59) AS i WITH ms[i] AS m, gs[i % 8] AS g CREATE (m)-[:HAS_GENRE]->(g)"
        )


def test_a_graph_of_odd_names_gives_a_smaller_set_and_says_what_is_missing(tmp_path, monkeypatch):
    with empty_server(tmp_path) as uri:
        fill_films(uri)
        monkeypatch.setenv("NEO4J_URI", uri)
        graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
        found = generate(uri, FEW, 0, tmp_path / "one", tmp_path / "graph", "all")
        generate(uri, FEW, 0, tmp_path / "two", tmp_path / "graph", "all")
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert not found["words written down"] and 8 <= found["structures"] < found["enumerated"]
    assert found["left out of the schema"]["Movie.code"] == "values of mixed types (integer | text)"
    assert sum(found["dropped structures"].values()) == found["enumerated"] - found["structures"] - sum(
        n for why, n in found["not enumerated, by component"].items() if why.startswith("no natural sentence")
    )
    assert any("when of what has none" in why for why in found["not enumerated, by component"])
    lines = [q for s in SPLITS for q in read_jsonl(tmp_path / "one" / f"{s}.jsonl")]
    assert any("`Film Star`" in q["query"] for q in lines) and not any("code" in q["query"] for q in lines)


def test_a_schema_of_odd_names_is_asked_what_it_allows(tmp_path):
    one = {"labels": {"Odd Thing": {"count": 5, "properties": {"size": {"type": "integer | text", "share": 1.0}}}}}
    lexicon = Lexicon({**one, "relationships": {}, "patterns": []})
    assert specs(lexicon, {}, 0)[0] == []
    assert set(lexicon.left_out) == {"Odd Thing.size", "label Odd Thing"}


def test_nothing_to_ask_is_said(uri, tmp_path):
    lonely = tmp_path / "graph"
    lonely.mkdir()
    schema = {"labels": {"Nothing": {"count": 0, "properties": {"name": text()}}}, "relationships": {}, "patterns": []}
    (lonely / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(ValueError, match="fills no structure"):
        generate(uri, SIZES, 0, tmp_path / "out", lonely, "all")


def test_unknown_sets_are_named(tmp_path):
    with pytest.raises(ValueError, match="'some'"):
        generate("bolt://nowhere", SIZES, 0, tmp_path, tmp_path, "some")


def test_a_question_is_filled_as_it_is_said():
    assert (
        fill_words(
            "Which {count} of {xday}?",
            {"count": {"value": 5, "kind": "count"}, "xday": {"value": "2011-01-02", "kind": "xday"}},
        )
        == "Which 5 of January 2, 2011?"
    )
