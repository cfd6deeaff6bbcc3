"""Verified instances of a structure, as many as are asked for, and the lines that they become: what every set of questions is made with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tqdm import tqdm

from lib.questions.demonstrations import fill
from lib.questions.draw import Slots
from lib.questions.signature import hops, signature
from lib.questions.structures import Structure
from lib.questions.verify import Rejected, Rows, Verifier
from lib.settings import SETS

SPLITS = ("train", "dev", *SETS)
APART_SET = SETS[1]  # whole structures that are never trained on
PART = dict(zip(SPLITS, ("train", "dev", "held_out", "held_out"), strict=True))
TRIES = 12  # candidates tried for each instance that is wanted
BATCH = 8  # candidates tried at once, at least, where some are rejected

Line = dict[str, Any]


class Instance:
    """A structure with values, its query and the rows that the query returns."""

    def __init__(self, structure: Structure, slots: Slots, rows: Rows):
        self.structure, self.slots, self.rows = structure, slots, rows
        self.query = fill(structure.query, slots)


class Supply:
    """Verified instances of one structure for one split, as far as they were asked for."""

    def __init__(self, structure: Structure, split: str, stream: Iterator[Slots], verifier: Verifier, bar: tqdm):
        self.structure, self.split = structure, split
        self.taken: list[Instance] = []
        self.rejected: Counter[str] = Counter()
        self.dry = False
        self.tries, self.batch, self.patience = TRIES, BATCH, math.inf  # patience: candidates in vain before the first
        self._stream, self._verifier, self._bar = stream, verifier, bar
        self._tried = 0

    async def grow(self, to: int) -> None:
        """Have `to` instances or a few more, or be dry. Candidates are judged in their order, whichever answer comes first."""
        while len(self.taken) < to and not self.dry:
            missing = to - len(self.taken)
            batch = list(islice(self._stream, max(missing, self.batch) if self.rejected else missing))
            found = await self._verifier.judged(self.structure, batch)
            for slots, rows in zip(batch, found, strict=True):
                if isinstance(rows, Rejected):
                    self.rejected[rows.rule] += 1
                else:
                    self.taken.append(Instance(self.structure, slots, rows))
                    self._bar.update()
            self._tried += len(batch)
            self.dry = len(self.taken) < to and (not batch or self._tried > self.tries * max(self.batch, to))
            self.dry = self.dry or (not self.taken and self._tried >= self.patience)


def useless(supply: Supply) -> str | None:
    """Why a structure is dropped, judged by the questions that it can't do without."""
    if not supply.taken:
        return f"no question for {supply.split} in this graph"
    rows = [x.rows for x in supply.taken]
    return "the same answer for every value" if len(rows) > 2 and all(r == rows[0] for r in rows) else None


def question_line(name: str, split: str, instance: Instance, text: str, hint: str | None) -> Line:
    """A question as its file has it."""
    structure, of = instance.structure, signature(instance.query)
    filters = sum(kind != "label" for _, kind in of.filters)
    return {
        "id": name,
        "question": text,
        "hint": hint,
        "query": instance.query,
        "rows": instance.rows,
        "ordered": structure.ordered,
        "structure": structure.id,
        "hops": hops(instance.query),
        "split": split,
        "source": "generated",
        "difficulty": {"hops": hops(instance.query), "filters": filters, "extras": len(of.extras)},
    }
