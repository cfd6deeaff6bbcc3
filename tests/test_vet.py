"""What a query is decides whether it may run, and how it is written doesn't: hundreds of disguises in both directions."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from benchmarks.query import digest
from lib.graph import vet
from lib.graph.query import QueryError, Reader, Refused, Rows
from tests import hostile

MUTANTS = 160  # no fewer than there are queries to be refused
# A text, a comment, a name in backticks: left alone. A word may be disguised.
PART = re.compile(
    r"(?P<fixed>'[^']*'|`[^`]*`|/\*.*?\*/|//[^\n]*|\\u\w{4})|(?P<word>[A-Za-z_]\w*)|(?P<blank>\s+)", re.DOTALL
)
BLANKS = [
    " ",
    "\n",
    "\t",
    "\r\n",
    "\u00a0",
    "\u2003",
    "\u2028",
    "\x1c",
    " /* c */ ",
    "/**/",
    " // SET x = 1\n",
    "/*'*/",
    "/*`*/ ",
    ' //\u00e9"\n',
]
NAME = re.compile(r"[a-z]\w*[A-Z]\w*|[A-Z][a-z]+\w*|[A-Z]+_[A-Z]+|[A-Z]{4,}(?=\]|\s*\{)|[a-z]\d?")


def disguised(query: str, rng: random.Random) -> str:
    """The same query, written differently: blanks, comments, case, backticks, escapes, options, a semicolon."""

    def part(match: re.Match[str]) -> str:
        text = match[0]
        before, behind = query[: match.start()].rstrip()[-1:], query[match.end() :].lstrip()[:1]
        if match["blank"] and rng.random() < 0.5:
            return rng.choice(BLANKS) if rng.random() < 0.8 else "".join(rng.choices(BLANKS, k=3))
        if not match["word"]:
            return text
        if NAME.fullmatch(text) and behind != "(" and before in (":", ".", "(", "|", "["):
            return f"`{text}`" if rng.random() < 0.3 else escaped(text, rng)
        if text.isupper() and before not in (":", "|"):
            text = "".join(rng.choice([c.lower(), c.upper()]) for c in text) if rng.random() < 0.5 else text
        return escaped(text, rng)

    changed = PART.sub(part, query)
    before = rng.choice(["", "", "CYPHER 25 ", "cypher 25 runtime=slotted\n", "/* read */", "//\n", "\n\t"])
    return before + changed + rng.choice(["", "", ";", " ; // done", "\n", " /* ; */"])


def escaped(word: str, rng: random.Random) -> str:
    if rng.random() < 0.9:
        return word
    at = rng.randrange(len(word))
    return f"{word[:at]}\\u{ord(word[at]):04{rng.choice('xX')}}{word[at + 1 :]}"


def answers(uri: str, queries: list[str]) -> list[Rows | QueryError]:
    async def one(reader: Reader, text: str) -> Rows | QueryError:
        try:
            return await reader.run(text, 200)
        except QueryError as e:
            return e

    async def go() -> list[Rows | QueryError]:
        reader = Reader(uri)
        try:
            return list(await asyncio.gather(*[one(reader, q) for q in queries]))
        finally:
            await reader.close()

    return asyncio.run(go())


def test_reads_are_never_refused_however_they_are_written(uri, reads):
    rng = random.Random(0)
    originals = [reads[n % len(reads)] for n in range(MUTANTS)]
    mutants = [disguised(q, rng) for q in originals]
    assert len(set(mutants) - set(originals)) > 0.99 * MUTANTS
    expected = dict(zip(reads, answers(uri, reads), strict=True))
    wrong = [
        (mutant, found)
        for original, mutant, found in zip(originals, mutants, answers(uri, mutants), strict=True)
        if not isinstance(found, Rows) or found.rows != expected[original].rows
    ]
    assert wrong == []


def test_writes_are_never_accepted_however_they_are_written(uri):
    rng = random.Random(1)
    forbidden = hostile.REFUSED
    mutants = [disguised(hostile.fill(forbidden[n % len(forbidden)], n + 1), rng) for n in range(MUTANTS)]
    before = digest(uri)
    found = answers(uri, mutants)
    assert [(m, a) for m, a in zip(mutants, found, strict=True) if not isinstance(a, QueryError)] == []
    assert sum(isinstance(a, Refused) for a in found) > 0.9 * MUTANTS  # the others have become no Cypher at all
    assert digest(uri) == before


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("RETURN apoc.load.json('x')", False),
        ("RETURN apoc . load /* */ . `json` ('x')", False),
        ("RETURN APOC.LOAD.JSON ('x')", False),
        ("RETURN apoc.l\\u006fad.json('x')", False),
        ("RETURN [1][0..apoc.load.json('x')]", False),
        ("WITH 1 AS a RETURN [1][a..apoc.load.json('x')]", False),
        ("RETURN [1][a.b..apoc.load.json('x')]", False),
        ("RETURN 'apoc.load.json(1)' AS x", True),
        ("MATCH (apoc) WHERE apoc.load > 1 RETURN apoc.load", True),
        ("RETURN size('x') // apoc.load.json(1)", True),
    ],
)
def test_functions_that_are_not_the_server_s_own(text, fits):
    foreign = frozenset(["apoc.load.json"])
    if fits:
        vet.check_text(text, foreign)
    else:
        with pytest.raises(Refused, match=r"apoc\.load\.json"):
            vet.check_text(text, foreign)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("MATCH (call:Comment) RETURN call.creationDate.year AS y, count(*)", True),
        ("MATCH (p:Post) WITH {call: {x: {y: p.score}}} AS m RETURN m.call.x.y AS z", True),
        ("MATCH (call) WHERE call . a . b = 1 RETURN call", True),
        ("CALL db.labels() YIELD label RETURN label", True),
        ("CALL dbms.killQuery('x')", False),
        ("CALL\n`dbms` . `killQuery` ('x')", False),
        ("CALL `dbms.killQuery`('x')", False),
        ("RETURN call.a.b, 1 AS x NEXT CALL dbms.killQuery('x')", False),
    ],
)
def test_a_procedure_is_what_a_clause_calls(text, fits):
    if fits:
        vet.check_text(text)
    else:
        with pytest.raises(Refused, match=r"dbms\.killQuery"):
            vet.check_text(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("MATCH (n) WHERE n.creationDate > localdatetime('2010-01-01') RETURN n", True),
        ("RETURN date( /* today? */ '2010-01-01')", True),
        ("RETURN 'rand()' AS x", True),
        ("RETURN rand()", False),
        ("RETURN RAND ( )", False),
        ("RETURN date()", False),
        ("RETURN datetime({timezone: 'Europe/Berlin'})", False),
        ("RETURN date.realtime('UTC')", False),
        ("RETURN l\\u006fcaltime()", False),
        ("RETURN local_datetime()", False),
        ("RETURN date.truncate('day')", False),
    ],
)
def test_only_what_gives_the_same_answer_each_time_is_repeatable(text, same):
    assert vet.repeatable(vet.tokens(text)) == same


def test_operators_that_no_list_knows_are_refused():
    plan = {
        "operatorType": "ProduceResults@neo4j",
        "children": [{"operatorType": "TeleportNodes@neo4j", "children": []}],
    }
    with pytest.raises(Refused, match="TeleportNodes"):
        vet.check_plan("r", plan, [])
    plan["children"][0]["operatorType"] = "NodeIndexSeekByRange@neo4j"
    vet.check_plan("r", plan, [])
    for kind in ("w", "rw", "s", None):
        with pytest.raises(Refused, match="Only reading"):
            vet.check_plan(kind, plan, [])
    with pytest.raises(Refused):
        vet.check_plan("r", None, [])


def test_a_plan_that_hides_a_part_may_not_hide_a_call():
    """Seeks name the plans inside their values and don't show them."""
    seek = {"operatorType": "NodeUniqueIndexSeek@neo4j", "args": {"Details": "n.a = nested_plan_0"}, "children": []}
    plan = {"operatorType": "ProduceResults@neo4j", "children": [seek]}
    harmless, risky = vet.tokens("MATCH (n {a: COUNT { MATCH (m) }}) RETURN n"), vet.tokens("CALL () { RETURN 1 }")
    vet.check_plan("r", plan, harmless)
    with pytest.raises(Refused, match="with WITH"):
        vet.check_plan("r", plan, risky)
    seek["children"] = [
        {"operatorType": "NestedPlanGetByNameExpression@neo4j", "args": {"Details": "x AS nested_plan_0"}}
    ]
    vet.check_plan("r", plan, risky)
    seek["args"]["Details"] = "n.a = nested_plan_0 + nested_plan_1"
    with pytest.raises(Refused, match="with WITH"):
        vet.check_plan("r", plan, risky)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("RETURN ((1))", 2),
        ("RETURN '((((' // ((((", 0),
        ("RETURN [x IN [{a: (1)}] | x]", 5),  # braces count twice
        ("MATCH (n) WHERE NOT NOT true AND NOT false RETURN n", 2),
        ("MATCH (n) WHERE n.a XOR n.b XOR n.c XOR n.d RETURN n", 3),
        ("RETURN CASE WHEN true THEN CASE WHEN true THEN (1) END END, CASE 1 WHEN 1 THEN 2 END", 3),
        ("MATCH (n) RETURN n.case, n.case, n.case, n.not", 1),
        ("MATCH (end) WHERE ((end.a)) = [end, [end, [end, 1]]] RETURN end", 3),
        ("MATCH (end) RETURN CASE end WHEN end THEN CASE WHEN end THEN end ELSE 1 END ELSE end END", 2),
        ("MATCH (case:A) RETURN case, (case), case.a = case.b, xor.a", 1),
        ("RETURN ([1)), [2], {a: 3}", 2),
        ("(" * 2000 + "]" * 3000 + ")" * 3000, 2000),
    ],
)
def test_depth(text, depth):
    assert vet.depth(vet.tokens(text)) == depth
