"""Remembers what queries returned, because the rollouts of one question ask nearly the same and a scored query ran before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lib.graph.wire import copied, weight

LARGEST = 2**20  # bytes of a result that is kept


@dataclass(frozen=True)
class Rows:
    """`rows` in the server's order, at most as many as were asked for; values JSON-able.

    total: how many rows there are, or were counted before the tool stopped (then `more`: there may be any number beyond).
    cut: `rows` are not all.
    """

    columns: list[str]
    rows: list[list[Any]]
    total: int
    cut: bool
    more: bool = False

    def first(self, limit: int) -> Rows:
        """The same with at most `limit` rows, a copy that its owner may change."""
        rows = copied(self.rows[:limit])
        return Rows(list(self.columns), rows, self.total, self.more or len(rows) < self.total, self.more)


class Results:
    """Rows by query, of one graph; the least recently used are forgotten beyond `size` bytes."""

    def __init__(self, size: int):
        self.size, self.used = size, 0
        self._kept: dict[str, tuple[Rows, int]] = {}

    def get(self, query: str, limit: int) -> Rows | None:
        """The first `limit` rows if that many are known, or all that there are."""
        found = self._kept.pop(query, None)
        if found is None:
            return None
        self._kept[query] = found
        rows = found[0]
        return rows.first(limit) if not rows.cut or len(rows.rows) >= limit else None

    def put(self, query: str, rows: Rows) -> None:
        taken = weight(rows.columns) + weight(rows.rows) + weight(query)
        if taken > min(LARGEST, self.size):
            return
        self.used -= self._kept.pop(query, (None, 0))[1]
        self._kept[query] = rows, taken
        self.used += taken
        while self.used > self.size:
            self.used -= self._kept.pop(next(iter(self._kept)))[1]
