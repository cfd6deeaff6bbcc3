"""Values for the slots of enumerated structures: read from the graph by what a spec filters, split, and looked up where they must occur together."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from lib.graph.mapping import quoted
from lib.graph.query import Reader, Rows
from lib.questions.draw import Anchors
from lib.questions.lexicon import Lexicon
from lib.questions.pools import PARTS, Pools, by_residue, everything, fit, shuffled, words_of
from lib.questions.spec import NAMES, Filter, Spec, meetings, path_text, step_text, variables
from lib.questions.verify import BEGINNING

COUNTS = (3, 4, 5, 6, 8, 10)  # how many people ask for; each other number is another plan for the database to make
FOUND = 10_000  # values looked up for a structure, in one record
LONGEST = 90  # characters of a text, so that a title fits
MIDDLE = (0.05, 0.92)  # of a property's values, so that a comparison is true for some and false for others
MOST = 200  # different numbers or days of a property
COLUMNS = ("value0", "value1", "value2")  # of values looked up; a variable has one letter
NOTHING = re.compile(r"(?i)\W*|none|n/?a|null|unknown|no \w+")  # a name of what isn't there
TEXTS = 20_000  # of a long property, read for their words
DAY = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")  # that a person can name; before Christ and after 9999 there are others
LARGEST = 10**15  # number that is asked about
TOGETHER = {"train": 60, "dev": 20, "held_out": 40}  # values of a part that are looked up together with others


async def read_pools(reader: Reader, lexicon: Lexicon, specs: list[Spec], seed: int) -> Pools:
    """The pools of all kinds that the specs' slots need."""
    wanted: dict[str, tuple[str, str, Filter, bool]] = {}
    for spec in specs:
        for f in [*spec.filters, *([spec.whole] if isinstance(spec.whole, Filter) else [])]:
            if not f.slot:
                continue
            owner = spec.hops[f.at].type if f.edge else spec.labels[f.at]
            pattern = f"()-[x:{quoted(owner)}]->()" if f.edge else f"(x:{quoted(owner)})"
            counted = (
                not f.edge
                and f.property in (t := lexicon.thing(owner)).properties
                and bool(t.properties[f.property].counted)
            )
            naming = not f.edge and f.property == lexicon.thing(owner).name
            wanted.setdefault(
                lexicon.slot_kind(owner, f.property, f.kind), (pattern, "name" if naming else "", f, counted)
            )
    values, left_out = {"count": by_residue(COUNTS)}, {}
    shared: set[str] = set()
    names = {(f"(x:{quoted(label)})", t.name) for label, t in lexicon.things.items() if t.name and t.anchor}
    for pattern, name in sorted(names):
        shared |= {v for v, n in await _read(reader, pattern, _begin(name)) if n > 1}
    found = await asyncio.gather(*[_pool(reader, kind, *about) for kind, about in sorted(wanted.items())])
    for kind, (pool, reasons) in zip(sorted(wanted), found, strict=True):
        many = wanted[kind][2].kind in ("above", "below") and len(pool) > 40
        whole = many and all(isinstance(n, int) for n in pool)
        values[kind] = by_residue(pool) if whole else shuffled(kind, pool, seed)
        if reasons:
            left_out[kind] = reasons
    return Pools(values, frozenset(shared), left_out)


async def _read(reader: Reader, pattern: str, what: str) -> list[list[Any]]:
    rows = await everything(reader, f"MATCH {pattern} RETURN {what} AS value, count(*) AS n")
    return [[v, n] for v, n in rows if v is not None]


def _begin(name: str) -> str:
    """A text as far as it is read: a page of longer ones is more than a reader takes, and one alone may be."""
    return f"left(x.{quoted(name)}, {BEGINNING})"


async def _pool(
    reader: Reader, kind: str, pattern: str, naming: str, f: Filter, counted: bool
) -> tuple[list[Any], dict[str, int]]:
    """The values of a kind that can stand in a question, and why others can't."""
    x = f"x.{quoted(f.property)}"
    if f.kind == "contains":
        rows = (
            await reader.run(
                f"MATCH {pattern} WHERE {x} IS NOT NULL RETURN {_begin(f.property)} AS value ORDER BY value LIMIT {TEXTS}",
                TEXTS,
            )
        ).rows
        return words_of([v for (v,) in rows]), {}
    if f.kind in ("after", "before"):
        days = await _read(reader, pattern, f"toString(date({x}))")
        return _middle([[v, n] for v, n in days if DAY.fullmatch(v)]), {}
    if f.kind == "year":
        return [v for v, _ in await _read(reader, pattern, f"{x}.year") if 0 < v < 10_000], {}
    found = await _read(reader, pattern, x if f.kind in ("above", "below", "id") else _begin(f.property))
    if f.kind in ("above", "below"):
        return _round(_middle(found, MOST * 20), 2 if counted else 1), {}
    if f.kind == "id":
        return [v for v, n in found if n == 1 and v >= 0], {}
    texts = [(v, n) for v, n in found]
    if f.kind == "starts":
        begins = [v[:2] for v, _ in texts if re.match("[A-Za-z]{3}", v)]
        return sorted({b for b in begins if begins.count(b) > 1} if len(begins) < 5000 else set(begins)), {}
    named = [(v, n) for v, n in texts if n == 1 or not naming]
    usable, reasons = fit(kind, [(v, n) for v, n in named if not NOTHING.fullmatch(v)], LONGEST)
    others = {
        "shared by several": len(texts) - len(named),
        "says that there is none": sum(bool(NOTHING.fullmatch(v)) for v, _ in named),
    }
    return usable, reasons | {why: n for why, n in others.items() if n}


def _middle(found: list[list[Any]], most: int = MOST) -> list[Any]:
    """Values between two quantiles, evenly thinned out."""
    total, seen, kept = sum(n for _, n in found), 0, []
    for value, n in found:
        if MIDDLE[0] * total <= seen + n and seen <= MIDDLE[1] * total:
            kept.append(value)
        seen += n
    return kept[:: -(-len(kept) // most)] if kept else []


def _round(numbers: list[Any], least: int) -> list[Any]:
    """Numbers as people say them: of at most two significant digits."""
    found = set()
    for n in numbers:
        if isinstance(n, bool) or not isinstance(n, int | float) or not least <= n <= LARGEST:
            continue
        rounded = float(f"{n:.2g}")
        found.add(int(rounded) if rounded.is_integer() else rounded)
    return sorted(found)


class Lookup:
    """Finds values that a path of the graph connects; what several specs ask is asked once."""

    def __init__(self, reader: Reader, pools: Pools, seed: int):
        self._reader, self._pools, self._seed = reader, pools, seed
        self._asked: dict[str, asyncio.Task[Rows]] = {}

    async def twice(self, spec: Spec) -> bool:
        """Whether the graph has a place where the path would have to take one relationship twice."""
        for pattern in meetings(spec):
            if await self._once(f"MATCH {pattern} WITH 1 AS found LIMIT 1 RETURN collect([found])"):
                return True
        return False

    async def anchors(self, spec: Spec) -> Anchors:
        """Rows of values for the slots that name something, those to be compared first; other slots stay free."""
        named = sorted((f for f in spec.filters if f.kind in NAMES), key=lambda f: f.kind != "either")
        other = f"{named[0].slot}2" if named and named[0].kind == "either" else None
        if not named:
            return Anchors((), None, [[]])
        met = sorted(named, key=lambda f: (f.at, f.edge))
        rows = await self._first(spec, met[0])
        if len(named) > 1:
            some = self._some(met[0], [row[0] for row in rows])
            rows = await self._rows(_walk(spec, met, some), len(met))
        kinds = [_kind(f) for f in met]
        order = [met.index(f) for f in named]
        apart = [row for row in rows if len(set(zip(kinds, row, strict=True))) == len(row)]  # "like Ann and like Ann"
        return Anchors(tuple(f.slot for f in named), other, [[row[i] for i in order] for row in apart])

    async def _first(self, spec: Spec, f: Filter) -> list[list[Any]]:
        """All values of one slot that the path allows."""
        if f.edge:
            return await self._rows(_walk(spec, [f]), 1)
        return await self._rows(f"{_ends(spec, f.at)} WITH DISTINCT {_value(spec, f)} AS {COLUMNS[0]}", 1)

    def _some(self, f: Filter, values: list[Any]) -> list[Any]:
        """Of a slot's values TOGETHER of each part: all would be too many in a large graph."""
        some: list[Any] = []
        for part in PARTS:
            mine = [v for v in values if self._pools.part(_kind(f), v) == part]
            random.Random(f"together {_kind(f)} {part} {self._seed}").shuffle(mine)
            some += mine[: TOGETHER[part]]
        return sorted(some)

    async def _rows(self, query: str, columns: int) -> list[list[Any]]:
        """The first FOUND rows, sorted, of a query that ends with so many distinct COLUMNS."""
        row = ", ".join(COLUMNS[:columns])
        found = await self._once(f"{query} ORDER BY {row} LIMIT {FOUND} RETURN collect([{row}])")
        return [row for row in found if None not in row]

    async def _once(self, query: str) -> list[list[Any]]:
        """Rows that come as one record: each of its own would cost the driver about as much as all."""
        if query not in self._asked:
            self._asked[query] = asyncio.ensure_future(self._reader.run(query, 1))
        return list((await self._asked[query]).rows[0][0])


def _ends(spec: Spec, at: int) -> str:
    """Matches the nodes at one place of the path that have the rest of it. The longer side is walked towards them, each step
    made distinct: as a condition on each node it is searched anew from each, through all that a common tag is on. A way
    there and back may end where it began, which a question's one pattern leaves out: a value too many gives no rows."""
    names, last = variables(spec), len(spec.hops)
    before, after = range(at), range(last - 1, at - 1, -1)
    if len(before) > len(after):
        walked, far, rest = before, 1, range(at, last)
    else:
        walked, far, rest = after, 0, before
    steps = [f"MATCH {step_text(spec, hop, False)} WITH DISTINCT {names[hop + far]}" for hop in walked]
    text = " ".join(steps) or f"MATCH ({names[at]}:{quoted(spec.labels[at])})"
    return f"{text} WHERE {path_text(spec, set(), at, rest)}" if rest else text


def _walk(spec: Spec, met: list[Filter], first: list[Any] | None = None) -> str:
    """Asks for the values of slots that occur together, in the order in which the path meets them; the first is one of
    `first`. After each step what was met is made distinct: the ways are many times as many."""
    names = variables(spec)
    begin = met[0].at
    texts = [f"'{v}'" if isinstance(v, str) else str(v) for v in first or []]
    only = [f"{_value(spec, met[0])} IN [{', '.join(texts)}]"] if first is not None else []
    text = ""
    seen: list[str] = []
    for at in range(begin, len(names)):
        here = [f for f in met if f.at + f.edge == at]
        if at == begin:
            text = f"MATCH ({names[at]}:{quoted(spec.labels[at])})"
            where = [path_text(spec, set(), at)] if begin else []
        else:
            text += f" MATCH {step_text(spec, at - 1, any(f.edge for f in here))}"
            where = []
        where += only if met[0] in here else []
        text += f" WHERE {' AND '.join(where)}" if where else ""
        new = [f"{_value(spec, f)} AS {COLUMNS[len(seen) + i]}" for i, f in enumerate(here)]
        text += f" WITH DISTINCT {', '.join([*seen, *new, names[at]])}"
        seen += COLUMNS[len(seen) : len(seen) + len(here)]
    return f"{text} WITH DISTINCT {', '.join(seen)}"


def _kind(f: Filter) -> str:
    return re.sub(r"\d$", "", f.slot)


def _value(spec: Spec, f: Filter) -> str:
    x = f"{f'e{f.at}' if f.edge else variables(spec)[f.at]}.{quoted(f.property)}"
    return f"{x}.year" if f.kind == "year" else x
