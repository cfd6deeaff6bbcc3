"""Decides whether a filled-in question may be kept: by what the database answers, never by what the query looks like."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any

from lib.graph.query import QueryError, Reader, Slots, TimedOut
from lib.questions.demonstrations import Parts

SECONDS = 5.0  # a question whose query takes longer is not kept
TRIES_ALONE = 3
AT_ONCE = 20
MOST_ROWS = 200
DIGITS = 12  # of a float; its last digits depend on the order in which the database happens to add up
TAIL = re.compile(r" ORDER BY (?P<key>.+?)(?P<desc> DESC)?(?: LIMIT (?P<limit>\d+))?")

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
        self._naming = tuple(f".{name}" for name in naming)
        self._shared_rule = f"a name in the answer that several {'users' if len(naming) == 1 else 'things'} share"
        self._slots = Slots(at_once)

    async def rows(self, query: str, ordered: bool) -> Rows | Rejected:
        """The reference rows, sorted unless they are `ordered`, or the rule that the query breaks."""
        try:
            rows = await self._run(query, ordered)
            if broken := self._broken(query, rows) or await self._tied(query, ordered):
                return Rejected(broken)
            return rows if await self._run(query, ordered) == rows else Rejected("other rows the second time")
        except TimedOut:
            return Rejected(f"slower than {SECONDS:g} s")
        except QueryError as error:
            return Rejected(f"failed: {error.kind}")

    async def _run(self, query: str, ordered: bool) -> Rows:
        found = await self._in_time(query, MOST_ROWS + 1)
        rows = [[steady(v) for v in row] for row in found]
        return rows if ordered else sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))

    async def _in_time(self, query: str, limit: int) -> Rows:
        """Raises TimedOut where a query takes longer than SECONDS each time, the last times without company: a busy
        machine must not change which questions there are."""
        async with self._slots.taken():
            rows, seconds = await self._timed(query, limit)
        if seconds > SECONDS:
            async with self._slots.taken(alone=True):
                for _ in range(TRIES_ALONE):
                    rows, seconds = await self._timed(query, limit)
                    if seconds <= SECONDS:
                        return rows
            raise TimedOut(f"The query took longer than {SECONDS:g} s")
        return rows

    async def _timed(self, query: str, limit: int) -> tuple[Rows, float]:
        start = time.monotonic()
        try:
            rows = (await self._reader.run(query, limit)).rows
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
        if len(cells) == 1 and not isinstance(cells[0], str) and cells[0] == 0:
            return "zero"
        named = [i for i, item in enumerate(Parts.of(query).items) if item.endswith(self._naming)]
        if any(row[i] in self._shared for row in rows for i in named):
            return self._shared_rule
        return None

    async def _tied(self, query: str, ordered: bool) -> str | None:
        """Asks for one row more than the query does, with what is sorted by: no tie may decide who is in, nor the order
        where it counts."""
        parts = Parts.of(query)
        if not parts.tail:
            return None
        tail = TAIL.fullmatch(parts.tail)
        if tail is None:
            raise ValueError(f"{query!r}: {parts.tail!r} is no ORDER BY with one key and LIMIT; see structures.py")
        limit = int(tail["limit"]) if tail["limit"] else MOST_ROWS
        order = f" ORDER BY k{tail['desc'] or ''} LIMIT {limit + 1}"
        probe = parts.text(items=(*parts.items, f"{tail['key']} AS k"), tail=order)
        keys = [row[-1] for row in await self._in_time(probe, limit + 1)]
        if None in keys[:limit]:
            return "sorted by what is missing"
        if len(keys) <= (limit if tail["limit"] else 1):
            return "nothing to choose from or to order"
        if len(keys) > limit and keys[limit - 1] == keys[limit]:
            return "tie at the cut"
        if ordered and len(set(keys)) < len(keys):
            return "tie in the order"
        return None


def steady(value: Any) -> Any:
    """A value that comes out alike each time: floats to DIGITS digits."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
