"""Runs the study's own queries, which nobody needs to vet: a generator asks thousands, and shows none of a model's text here."""

from __future__ import annotations

from typing import Any

from lib.graph.query import Reader
from lib.graph.results import Rows


class Trusted(Reader):
    """A `Reader` without the vetting, whose queries may have parameters. Its sessions are for reading all the same, and
    what it does about limits and about a server in trouble is the same.

    A query that only differs in `values` from one that was run before costs the database no new plan.
    """

    async def run(self, query: str, limit: int, values: dict[str, Any] | None = None) -> Rows:
        """Rows of a query of our own, the first `limit` of them. Raises what `Reader.run` does, but for Refused."""
        self.counts["asked"] += 1
        return await self._persistently(query, limit, values or {})

    async def _vetted(self, query: str, limit: int, values: dict[str, Any], name: str) -> Rows:
        async with self._session() as session:
            return await self._collected(session, await session.run(self._query(query, name), values), limit)
