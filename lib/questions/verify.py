"""Decides whether a filled-in question may be kept: by what the database answers, never by what the query looks like."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from lib.graph import results
from lib.graph.mapping import quoted
from lib.graph.query import QueryError, Reader, TimedOut
from lib.graph.query import Slots as Room
from lib.questions.demonstrations import Parts, fill
from lib.questions.draw import Slots
from lib.questions.structures import Structure

SECONDS = 5.0  # a question whose query takes longer is not kept
TRIES_ALONE = 3
AT_ONCE = 20
MOST_ROWS = 200
BEGINNING = 200  # characters of a name, by which several things are told to share it: whole ones may be books
DIGITS = 12  # of a float; its last digits depend on the order in which the database happens to add up
TAIL = re.compile(r" ORDER BY (?P<key>.+?)(?P<desc> DESC)?(?: LIMIT (?P<limit>\d+|\{count\}))?")
SLOW, UNSTEADY = f"slower than {SECONDS:g} s", "other rows the second time"
NO_NUMBER = "a number that is infinite or none"

Rows = list[list[Any]]


@dataclass(frozen=True)
class Rejected:
    rule: str


class Verifier:
    """Runs queries, `at_once` of them at a time, and applies the rules. shared_names: names that several things have;
    naming: the properties that hold them."""

    def __init__(
        self,
        reader: Reader,
        shared_names: frozenset[str],
        naming: tuple[str, ...] = ("displayName",),
        at_once: int = AT_ONCE,
    ):
        self._reader, self._shared = reader, shared_names
        self._naming = tuple(f".{quoted(name)}" for name in naming)
        self._shared_rule = f"a name in the answer that several {'users' if len(naming) == 1 else 'things'} share"
        self._room = Room(at_once)

    async def judged(self, structure: Structure, batch: list[Slots]) -> list[Rows | Rejected]:
        """`rows` of a structure with each of these values."""
        texts = [fill(structure.query, slots) for slots in batch]
        return await asyncio.gather(*[self.rows(text, structure.ordered) for text in texts])

    async def rows(self, query: str, ordered: bool) -> Rows | Rejected:
        """The reference rows, sorted unless they are `ordered`, or the rule that the query breaks."""
        try:
            rows = await self._run(query, ordered)
            if broken := self._broken(query, rows) or await self._tied(query, ordered):
                return Rejected(broken)
            return rows if await self._run(query, ordered) == rows else Rejected(UNSTEADY)
        except TimedOut:
            return Rejected(SLOW)
        except QueryError as error:
            return Rejected(f"failed: {error.kind}")

    async def _run(self, query: str, ordered: bool) -> Rows:
        return settled(await self._in_time(lambda: self._reader.run(query, MOST_ROWS + 1)), ordered)

    async def _in_time(self, ask: Callable[[], Awaitable[results.Rows]]) -> Rows:
        """Raises TimedOut where a query takes longer than SECONDS each time, the last times without company: a busy
        machine must not change which questions there are."""
        async with self._room.taken():
            rows, seconds = await self._timed(ask)
        if seconds > SECONDS:
            async with self._room.taken(alone=True):
                for _ in range(TRIES_ALONE):
                    rows, seconds = await self._timed(ask)
                    if seconds <= SECONDS:
                        return rows
            raise TimedOut(f"The query took longer than {SECONDS:g} s")
        return rows

    async def _timed(self, ask: Callable[[], Awaitable[results.Rows]]) -> tuple[Rows, float]:
        start = time.monotonic()
        try:
            rows = (await ask()).rows
        except TimedOut:
            return [], math.inf
        return rows, time.monotonic() - start

    def _broken(self, query: str, rows: Rows) -> str | None:
        if not rows:
            return "no rows"
        if len(rows) > MOST_ROWS:
            return f"more than {MOST_ROWS} rows"
        cells = [v for row in rows for v in row]
        if all(v is None for v in cells):
            return "only nulls"
        if any(isinstance(v, float) and not math.isfinite(v) for v in cells):
            return NO_NUMBER
        if len(cells) == 1 and not isinstance(cells[0], str) and cells[0] == 0:
            return "zero"
        named = [i for i, item in enumerate(Parts.of(query).items) if item.endswith(self._naming)]
        names = [row[i] for row in rows for i in named]
        if any(isinstance(name, str) and name[:BEGINNING] in self._shared for name in names):
            return self._shared_rule
        if None in names:
            return "something without a name in the answer"
        return None

    async def _tied(self, query: str, ordered: bool) -> str | None:
        """Asks for one row more than the query does, with what is sorted by."""
        parts = Parts.of(query)
        if not parts.tail:
            return None
        tail = tail_of(parts)
        limit = int(tail["limit"]) if tail["limit"] else MOST_ROWS
        order = f" ORDER BY k{tail['desc'] or ''} LIMIT {limit + 1}"
        probe = parts.text(items=(*parts.items, f"{tail['key']} AS k"), tail=order)
        rows = await self._in_time(lambda: self._reader.run(probe, limit + 1))
        return tied([row[-1] for row in rows], limit, bool(tail["limit"]), ordered)


def tail_of(parts: Parts) -> re.Match[str]:
    """Key, direction and limit of a query that sorts. Raises ValueError for a tail of another form."""
    tail = TAIL.fullmatch(parts.tail)
    if tail is None:
        raise ValueError(f"{parts.text()!r}: {parts.tail!r} is no ORDER BY with one key and LIMIT; see structures.py")
    return tail


def tied(keys: list[Any], limit: int, cut: bool, ordered: bool) -> str | None:
    """The rule that the keys of the first `limit` rows and of one more break: no tie may decide who is in where there is a
    `cut`, nor the order where it counts."""
    if None in keys[:limit]:
        return "sorted by what is missing"
    if any(isinstance(key, float) and not math.isfinite(key) for key in keys):
        return NO_NUMBER
    if len(keys) <= (limit if cut else 1):
        return "nothing to choose from or to order"
    if len(keys) > limit and keys[limit - 1] == keys[limit]:
        return "tie at the cut"
    if ordered and len(set(keys)) < len(keys):
        return "tie in the order"
    return None


def settled(rows: Rows, ordered: bool) -> Rows:
    """Rows as a question keeps them: sorted unless their order counts."""
    found = [[steady(v) for v in row] for row in rows]
    return found if ordered else sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def steady(value: Any) -> Any:
    """A value that comes out alike each time: floats to DIGITS digits."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
