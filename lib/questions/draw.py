"""Draws values for a structure's slots that the graph really connects: values picked at random would mostly ask about nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lib.graph.query import Reader
from lib.questions.demonstrations import Parts
from lib.questions.pools import Pools, everything
from lib.questions.structures import SLOT, Structure

ROUNDS = 12  # how often connected values are used again with other numbers
LEAST = 400  # candidates at least, as far as there are values
NAMED = re.compile(r"(?P<what>\S+) = '?\{(?P<slot>\w+)\}'?")
COMPARED = re.compile(r"(?P<what>\S+) IN \['\{(?P<slot>\w+)\}', '\{(?P<other>\w+)\}'\]")

Slots = dict[str, dict[str, Any]]  # slot -> {"value", "kind"}


@dataclass(frozen=True)
class Anchors:
    """Values of `slots` that occur together, a row each; `other` is a slot that takes its value from another row."""

    slots: tuple[str, ...]
    other: str | None
    rows: list[list[Any]]


async def anchors(structure: Structure, reader: Reader) -> Anchors:
    """Look up the values of all slots that name something; numbers to compare with, words and dates stay free."""
    parts = Parts.of(structure.query)
    named: dict[str, str] = {}
    other, fixed = None, []
    for condition in parts.where:
        if m := COMPARED.fullmatch(condition):
            named[m["slot"]], other = m["what"], m["other"]
        elif m := NAMED.fullmatch(condition):
            named[m["slot"]] = m["what"]
        elif not SLOT.search(condition):
            fixed.append(condition)
    if not named:
        return Anchors((), None, [[]])
    items = tuple(f"{what} AS {slot}" for slot, what in named.items())
    query = parts.text(where=tuple(fixed), distinct=True, items=items, tail="")
    return Anchors(tuple(named), other, await everything(reader, query))


def candidates(structure: Structure, found: Anchors, pools: Pools, part: str, rng: random.Random) -> Iterator[Slots]:
    """Different values for all slots, all from one part of the pools, in the order of `rng`."""
    kinds = structure.slots
    rows = [row for row in found.rows if _in_part(row, found.slots, kinds, pools, part)]
    free = [slot for slot in kinds if slot not in found.slots and slot != found.other]
    if not rows or not all(pools.values[kinds[slot]][part] for slot in free):
        return
    seen = set()
    for _ in range(max(ROUNDS, LEAST // len(rows)) if free or found.other else 1):
        rng.shuffle(rows)
        for i, row in enumerate(rows):
            values = dict(zip(found.slots, row, strict=True))
            if found.other:
                values[found.other] = rows[i - 1][0]
            for slot in free:
                values[slot] = rng.choice(pools.values[kinds[slot]][part])
            key = tuple(values[slot] for slot in kinds)
            if key not in seen and (found.other is None or len(rows) > 1):
                seen.add(key)
                yield {slot: {"value": values[slot], "kind": kind} for slot, kind in kinds.items()}


def _in_part(row: list[Any], slots: tuple[str, ...], kinds: dict[str, str], pools: Pools, part: str) -> bool:
    return all(pools.part(kinds[slot], value) == part for slot, value in zip(slots, row, strict=True))
