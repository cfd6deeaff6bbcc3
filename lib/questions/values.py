"""Values for the slots of enumerated structures: read from the graph by what a spec filters, split, and looked up where they must occur together."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from lib.graph.mapping import quoted
from lib.graph.query import Reader
from lib.questions.draw import Anchors
from lib.questions.enumerate import slot_kind
from lib.questions.lexicon import Lexicon
from lib.questions.pools import PAGE, PARTS, Pools, by_residue, everything, fit, shuffled, words_of
from lib.questions.spec import NAMES, Filter, Spec, path_text, variables

COUNTS = (3, 4, 5, 6, 8, 10)  # how many people ask for; each other number is another plan for the database to make
LONGEST = 90  # characters of a text, so that a title fits
MIDDLE = (0.05, 0.92)  # of a property's values, so that a comparison is true for some and false for others
MOST = 200  # different numbers or days of a property
NOTHING = re.compile(r"(?i)\W*|none|n/?a|null|unknown|no \w+")  # a name of what isn't there
TEXTS = 20_000  # of a long property, read for their words
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
            wanted.setdefault(slot_kind(owner, f.property, f.kind), (pattern, "name" if naming else "", f, counted))
    values, left_out = {"count": by_residue(COUNTS)}, {}
    shared: set[str] = set()
    names = {(f"(x:{quoted(label)})", t.name) for label, t in lexicon.things.items() if t.name and t.anchor}
    for pattern, name in sorted(names):
        shared |= {v for v, n in await _read(reader, pattern, f"x.{quoted(name)}") if n > 1 and isinstance(v, str)}
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


async def _pool(
    reader: Reader, kind: str, pattern: str, naming: str, f: Filter, counted: bool
) -> tuple[list[Any], dict[str, int]]:
    """The values of a kind that can stand in a question, and why others can't."""
    x = f"x.{quoted(f.property)}"
    if f.kind == "contains":
        rows = (
            await reader.run(
                f"MATCH {pattern} WHERE {x} IS NOT NULL RETURN {x} AS value ORDER BY value LIMIT {TEXTS}", TEXTS
            )
        ).rows
        return words_of([v for (v,) in rows]), {}
    if f.kind in ("after", "before"):
        return _middle(await _read(reader, pattern, f"toString(date({x}))")), {}
    if f.kind == "year":
        return [v for v, _ in await _read(reader, pattern, f"{x}.year")], {}
    found = await _read(reader, pattern, x)
    if f.kind in ("above", "below"):
        return _round(_middle(found, MOST * 20), 2 if counted else 1), {}
    if f.kind == "id":
        return [v for v, n in found if n == 1], {}
    texts = [(v, n) for v, n in found if isinstance(v, str)]
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
        if isinstance(n, bool) or not isinstance(n, int | float) or n < least:
            continue
        rounded = float(f"{n:.2g}")
        found.add(int(rounded) if rounded.is_integer() else rounded)
    return sorted(found)


class Lookup:
    """Finds values that a path of the graph connects; what several specs ask is asked once."""

    def __init__(self, reader: Reader, pools: Pools, seed: int):
        self._reader, self._pools, self._seed = reader, pools, seed
        self._asked: dict[str, asyncio.Task[list[list[Any]]]] = {}

    async def anchors(self, spec: Spec) -> Anchors:
        """Rows of values for the slots that name something, those to be compared first; other slots stay free."""
        named = sorted((f for f in spec.filters if f.kind in NAMES), key=lambda f: f.kind != "either")
        other = f"{named[0].slot}2" if named and named[0].kind == "either" else None
        if not named:
            return Anchors((), None, [[]])
        slots = tuple(f.slot for f in named)
        rows = await self._first(spec, named[0])
        if len(named) > 1:
            rows = await self._together(spec, named, [row[0] for row in rows])
        return Anchors(slots, other, rows)

    async def _first(self, spec: Spec, f: Filter) -> list[list[Any]]:
        """All values of one slot that the path allows."""
        if f.edge:
            return await self._rows(f"MATCH {path_text(spec, {f.at})} RETURN DISTINCT {_value(spec, f)} AS a")
        x = variables(spec)[f.at]
        where = f" WHERE {path_text(spec, set(), f.at)}" if spec.hops else ""
        return await self._rows(
            f"MATCH ({x}:{quoted(spec.labels[f.at])}){where} RETURN DISTINCT {_value(spec, f)} AS a"
        )

    async def _together(self, spec: Spec, named: list[Filter], values: list[Any]) -> list[list[Any]]:
        """Values of all slots that occur together, for some of the first's: all would be too many in a large graph."""
        kind = re.sub(r"\d$", "", named[0].slot)
        some: list[Any] = []
        for part in PARTS:
            mine = [v for v in values if self._pools.part(kind, v) == part]
            random.Random(f"together {kind} {part} {self._seed}").shuffle(mine)
            some += mine[: TOGETHER[part]]
        texts = ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in sorted(some))
        items = ", ".join(f"{_value(spec, f)} AS {'abc'[i]}" for i, f in enumerate(named))
        edges = {f.at for f in named if f.edge}
        return await self._rows(
            f"MATCH {path_text(spec, edges)} WHERE {_value(spec, named[0])} IN [{texts}] RETURN DISTINCT {items}"
        )

    async def _rows(self, query: str) -> list[list[Any]]:
        columns = ", ".join(re.findall(r" AS (\w+)", query))
        if query not in self._asked:
            self._asked[query] = asyncio.ensure_future(self._run(f"{query} ORDER BY {columns} LIMIT {PAGE}"))
        return [row for row in await self._asked[query] if None not in row]

    async def _run(self, query: str) -> list[list[Any]]:
        return (await self._reader.run(query, PAGE)).rows


def _value(spec: Spec, f: Filter) -> str:
    x = f"{f'e{f.at}' if f.edge else variables(spec)[f.at]}.{quoted(f.property)}"
    return f"{x}.year" if f.kind == "year" else x
