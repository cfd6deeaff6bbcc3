"""A signature follows a query's structure and nothing else; the held-out structures are new by it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.questions.signature import Signature, UnknownDialect, hops, signature
from lib.questions.structures import BY_ID, NEW_COMBINATION, NEW_COMPONENT, SLOT, STRUCTURES

TRAINED = [s for s in STRUCTURES if not s.held_out]
HELD_OUT = [s for s in STRUCTURES if s.held_out]
VARIABLE = re.compile(r"\b[a-z]\b(?=[.:)])")
PROPERTY = re.compile(r"\b([a-z])\.([a-z]\w*)(?<!year)")
PIECE = re.compile(r"\([^)]*\)|<?-\[[^\]]*\]->?")

structures = st.sampled_from(STRUCTURES)
names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8).filter(lambda n: n not in ("year", "date"))


def clauses(query: str) -> tuple[str, list[str], str]:
    head, rest = query.split(" RETURN ")
    match, _, where = head.partition(" WHERE ")
    return match.removeprefix("MATCH "), where.split(" AND ") if where else [], rest


def turned(path: str) -> str:
    """The same path written from its other end."""
    pieces = [p if p.startswith("(") else turn(p) for p in PIECE.findall(path)]
    return "".join(reversed(pieces))


def turn(arrow: str) -> str:
    return f"-{arrow[2:-1]}->" if arrow.startswith("<") else f"<{arrow[:-1]}"


@given(structures, st.randoms(use_true_random=False))
def test_names_of_variables_never_enter(structure, rng):
    found = sorted(set(VARIABLE.findall(structure.query)))
    new = dict(zip(found, rng.sample("abcdefghijklmnopqrstuvwxyz", len(found)), strict=True))
    renamed = VARIABLE.sub(lambda m: new[m[0]], structure.query)
    assert signature(renamed) == signature(structure.query)
    assert hops(renamed) == hops(structure.query)


@given(structures, st.text(max_size=12), st.integers(2, 10**9))
def test_values_never_enter(structure, text, number):
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    filled = re.sub(r"'\{\w+\}'", lambda m: quoted, structure.query)
    assert signature(SLOT.sub(str(number), filled)) == signature(structure.query)


@given(structures, st.dictionaries(names, names))
def test_properties_never_enter(structure, new):
    other = iter(sorted(new))
    renamed = {m: next(other, m[1]) for m in dict.fromkeys(PROPERTY.findall(structure.query))}
    query = PROPERTY.sub(lambda m: f"{m[1]}.{renamed[m[1], m[2]]}", structure.query)
    assert signature(query) == signature(structure.query)


@given(structures, st.booleans(), st.randoms(use_true_random=False))
def test_the_way_of_writing_never_enters(structure, turns, rng):
    path, conditions, rest = clauses(structure.query)
    rng.shuffle(conditions)
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    query = f"MATCH {turned(path) if turns else path}{where}  RETURN {rest}"
    assert signature(query) == signature(structure.query)
    assert hops(query) == hops(structure.query)


ASKED = BY_ID["tags_asked"].query
COUNTED = BY_ID["location_tags"].query
BEST = BY_ID["latest_question"].query
ABOVE = BY_ID["answerers_above_score"].query


@pytest.mark.parametrize(
    ("query", "other"),
    [
        (ASKED, ASKED.replace("-[:OWNS]->", "-[:LAST_EDITED]->")),
        (ASKED, ASKED.replace("-[:OWNS]->", "<-[:OWNS]-")),
        (ASKED, ASKED.replace("-[:TAGGED]->(t:Tag)", "").replace("t.tagName", "q.title")),
        (ASKED, ASKED.replace("DISTINCT t.tagName", "u.displayName")),
        (ASKED, ASKED.replace(" RETURN", " AND (q)-[:ACCEPTED]->() RETURN")),
        (ASKED, ASKED.replace("u.displayName = '{name}'", "u.displayName IN ['{name}', '{name2}']")),
        (ASKED, ASKED.replace("u.displayName = '{name}'", "t.tagName = '{tag}'")),
        (ASKED, ASKED.replace("u.displayName = '{name}'", "u.displayName STARTS WITH '{name}'")),
        (ASKED, ASKED.replace("u.displayName = '{name}'", "u.displayName IS NOT NULL")),
        (COUNTED, COUNTED.replace("t.tagName, ", "")),
        (COUNTED, COUNTED.replace("count(*)", "count(DISTINCT q.postId)")),
        (COUNTED, COUNTED.replace("count(*)", "sum(q.score)")),
        (COUNTED, COUNTED.replace("count(*)", "max(q.score) - min(q.score)")),
        (COUNTED, COUNTED + " ORDER BY count(*) DESC"),
        (BEST, BEST.replace("LIMIT 1", "LIMIT 5")),
        (BEST, BEST.replace(" DESC", "")),
        (BEST, BEST.replace(" LIMIT 1", "")),
        (BEST, BEST.replace("(q:Question)", "(q:Answer)")),
        (ABOVE, ABOVE.replace(" AND a.score > {score}", "")),
        (ABOVE, ABOVE.replace("a.score > {score}", "a.creationDate.year > {year}")),
        (ABOVE, ABOVE.replace("a.score > {score}", "a.score = {score}")),
        (ABOVE, ABOVE.replace("a.score > {score}", "t.count > {score}")),
        (ABOVE, ABOVE.replace("a.score > {score}", "NOT (q)-[:ACCEPTED]->()")),
    ],
)
def test_what_makes_a_structure_enters(query, other):
    assert query != other
    assert signature(query) != signature(other)


def test_both_bounds_of_a_range_are_one_filter():
    assert signature(ABOVE.replace(" RETURN", " AND a.score < 9 RETURN")) == signature(ABOVE)


def test_a_path_that_comes_back_to_its_start_is_another_path():
    own = "MATCH (u:User)-[:OWNS]->(q:Question)<-[:ANSWERS]-(a:Answer)<-[:OWNS]-(u) RETURN count(*)"
    anyone = own.replace("-(u) ", "-(w:User) ")
    assert hops(own) == hops(anyone) == 3
    assert signature(own) != signature(anyone)


def test_one_signature_read_by_hand():
    assert signature(BY_ID["top_commenters"].query) == Signature(
        path="0:Comment 1:Post 2:Tag 3:User 0-ON_POST->1 1-TAGGED->2 3-WROTE->0",
        filters=(("Question", "label"), ("Tag", "equality")),
        aggregation=(("count", "*"),),
        grouping=("User",),
        ordering="top-k",
        extras=(),
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "expected MATCH at 0, found 'the end'"),
        ("MATCH (u:User) RETURN u.name; DROP", "';' at 28"),
        ("MATCH (u) RETURN u.name", "expected : at 8, found ')'"),
        ("MATCH (u:User) RETURN w.name", "a variable of the path at 22, found 'w'"),
        ("MATCH (u:User)--(q:Question) RETURN u.name", "expected [ at 15"),
        ("MATCH (u:User) WHERE u.age > 1 OR u.age < 9 RETURN u.name", "expected RETURN at 31, found 'OR'"),
        ("MATCH (u:User) WHERE u.age RETURN u.name", "expected = or"),
        ("MATCH (u:User) RETURN u.name LIMIT many", "expected a number"),
        ("OPTIONAL MATCH (u:User) RETURN u.name", "expected MATCH at 0, found 'OPTIONAL'"),
    ],
)
def test_other_cypher_is_refused_by_place_and_expectation(query, says):
    with pytest.raises(UnknownDialect) as error:
        signature(query)
    assert says in str(error.value)


def test_every_structure_has_a_signature_of_its_own():
    assert len({signature(s.query) for s in STRUCTURES}) == len(STRUCTURES)


def test_held_out_structures_are_new_in_the_way_they_are_tagged():
    known = frozenset().union(*(signature(s.query).components() for s in TRAINED))
    new = {s.id: signature(s.query).components() - known for s in HELD_OUT}
    assert {i for i, parts in new.items() if parts} == {s.id for s in HELD_OUT if s.held_out == NEW_COMPONENT}
    assert {i for i, parts in new.items() if not parts} == {s.id for s in HELD_OUT if s.held_out == NEW_COMBINATION}


def test_structures_spread_over_the_hops():
    found = [hops(s.query) for s in STRUCTURES]
    assert min(found.count(n) for n in range(4)) >= 8 and found.count(4) >= 4 and set(found) == set(range(5))
    assert sum(n <= 1 for n in found) <= len(found) / 3
    assert {hops(s.query) for s in TRAINED} == set(range(5))
