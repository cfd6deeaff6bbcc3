"""Judges many values of a structure at once, since a query costs the database more to plan than to run."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from lib.graph import results
from lib.graph.query import QueryError
from lib.graph.trusted import Trusted
from lib.questions.demonstrations import Parts, fill
from lib.questions.draw import Slots
from lib.questions.structures import SLOT, Structure
from lib.questions.verify import MOST_ROWS, SECONDS, SLOW, UNSTEADY, Rejected, Rows, Verifier, settled, tail_of, tied


@dataclass(frozen=True)
class Plan:
    """A structure's query for many values. text: gives each one's rows, with what is sorted by (`keyed`) and one row more
    than are wanted. limit: as the query says it, a number or a slot; empty where it has none.

    The parameter is a map, `all`: a plan is made for the length of a list, roughly, but not for one inside a map. What is a
    text is said to be one: of a value of any kind no index of texts is asked, and all titles were read for each.
    """

    text: str
    keyed: bool
    limit: str

    @classmethod
    def of(cls, template: str) -> Plan:
        parts = Parts.of(template)
        tail = tail_of(parts) if parts.tail else None
        columns = [f"c{i}" for i in range(len(parts.items))]
        items = [f"{_unfailing(item)} AS {name}" for item, name in zip(parts.items, columns, strict=True)]
        order = " LIMIT $all.rows"
        if tail:
            items.append(f"{tail['key']} AS key")
            order = f" ORDER BY key{tail['desc'] or ''}{order}"
        inner = re.sub(r"'\{(\w+)\}'", r"toString(given.\1)", parts.text(items=tuple(items), tail=order))
        inner = SLOT.sub(r"given.\1", inner)
        named = ", ".join([*columns, "key"] if tail else columns)
        return cls(  # one record for a value, since each costs the driver about as much as a list of them
            f"UNWIND $all.values AS given CALL (given) {{ {inner} }} RETURN given.number, collect([{named}])",
            tail is not None,
            (tail and tail["limit"]) or "",
        )

    def most(self, values: dict[str, Any]) -> int:
        """How many rows an answer may have."""
        return int(SLOT.sub(lambda m: str(values[m[1]]), self.limit) or MOST_ROWS)


def _unfailing(item: str) -> str:
    """A share of nothing as null, where it would end the query for the other values, too."""
    return re.sub(r"/ (count\(.*\))$", r"/ nullIf(\1, 0)", item)


class Together(Verifier):
    """The same rules. What is left of a batch is asked a second time in other company, and the first of a structure by
    the question's own query as well: a kept answer is never the batch's doing."""

    _reader: Trusted

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._compared: set[str] = set()  # queries of structures whose batch gave what their own query gives
        self._slow: set[str] = set()  # those of which a value took too long by itself: others would, too

    async def judged(self, structure: Structure, batch: list[Slots]) -> list[Rows | Rejected]:
        if not batch or structure.query in self._slow:
            return [Rejected(SLOW)] * len(batch)
        plan = Plan.of(structure.query)
        values = [{name: slot["value"] for name, slot in slots.items()} for slots in batch]
        try:
            found, seconds = await self._first(plan, values)
            judged = [self._judged(plan, structure, *each) for each in zip(values, found, strict=True)]
            kept = [i for i, rows in enumerate(judged) if not isinstance(rows, Rejected)]
            again = await self._again(plan, [values[i] for i in reversed(kept)], seconds / len(batch))
            alike = not kept or await self._as_by_itself(structure, batch[kept[0]], judged[kept[0]])
        except QueryError:
            alike = False
        if not alike:
            return await self._one_by_one(structure, batch)
        for i, rows in zip(reversed(kept), again, strict=True):
            if self._judged(plan, structure, values[i], rows) != judged[i]:
                judged[i] = Rejected(UNSTEADY)
        return judged

    async def _one_by_one(self, structure: Structure, batch: list[Slots]) -> list[Rows | Rejected]:
        """Each value by the rules for one: so it shows which of them is to blame."""
        judged: list[Rows | Rejected] = []
        for slots in batch:
            if structure.query not in self._slow:
                judged += await super().judged(structure, [slots])
                if judged[-1] == Rejected(SLOW):
                    self._slow.add(structure.query)
        return judged + [Rejected(SLOW)] * (len(batch) - len(judged))

    async def _first(self, plan: Plan, values: list[dict[str, Any]]) -> tuple[list[Rows], float]:
        """For each of these values its rows, and the seconds that all took, which may be more than one has: the plan is made now."""
        async with self._room.taken():
            start = time.monotonic()
            rows = (await self._ask(plan, values)).rows
        return _each(rows, len(values)), time.monotonic() - start

    async def _again(self, plan: Plan, values: list[dict[str, Any]], seconds: float) -> list[Rows]:
        """The same once more, with as many values at once as should take half of the time that one has: who takes longer
        than that is asked without company. Raises TimedOut where some take longer even so.

        seconds: what one took, about.
        """
        at_once = max(1, int(SECONDS / 2 / max(seconds, 1e-3)))
        found = []
        for some in (values[i : i + at_once] for i in range(0, len(values), at_once)):
            found += _each(await self._in_time(partial(self._ask, plan, some)), len(some))
        return found

    async def _ask(self, plan: Plan, values: list[dict[str, Any]]) -> results.Rows:
        given = [{"number": i, **v} for i, v in enumerate(values)]
        most = max(map(plan.most, values)) + 1
        return await self._reader.run(plan.text, len(given), {"all": {"values": given, "rows": most}})

    def _judged(self, plan: Plan, structure: Structure, values: dict[str, Any], found: Rows) -> Rows | Rejected:
        limit = plan.most(values)
        rows = [row[:-1] for row in found] if plan.keyed else found
        rows = settled(rows[:limit] if plan.limit else rows, structure.ordered)
        broken = self._broken(structure.query, rows)
        if plan.keyed and not broken:
            broken = tied([row[-1] for row in found[: limit + 1]], limit, bool(plan.limit), structure.ordered)
        return Rejected(broken) if broken else rows

    async def _as_by_itself(self, structure: Structure, slots: Slots, rows: Rows | Rejected) -> bool:
        """Whether a structure's own query gives these rows; it is asked once."""
        if structure.query not in self._compared:
            if await self._run(fill(structure.query, slots), structure.ordered) != rows:
                return False
            self._compared.add(structure.query)
        return True


def _each(rows: Rows, number: int) -> list[Rows]:
    """By value: its rows, of which the database gives none where there are none."""
    found: dict[int, Rows] = dict(map(tuple, rows))
    return [found.get(i, []) for i in range(number)]
