"""The graph: where it comes from, how it is modelled, loaded, served and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.graph.model import build_model, schema_text
from lib.graph.model import read_schema as schema
from lib.graph.tables import SourceError, Tables

__all__ = ["SourceError", "build", "schema", "schema_text", "sources"]


def _twin(scale: float, seed: int, path: str) -> Tables:
    from lib.graph.twin import tables

    return tables(scale, seed)


def _stackexchange(scale: float, seed: int, path: str) -> Tables:
    from lib.graph.stackexchange import tables

    return tables(Path(path))


# A new source is one function (scale, seed, path) that yields the eight tables of lib/graph/tables.py.
sources: dict[str, Callable[[float, int, str], Tables]] = {"twin": _twin, "stackexchange": _stackexchange}


def build(source: str, scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    """Make the graph's files in folder `out` (nodes/, relationships/, counts.json, schema.json) and return the counts.

    Raises SourceError for an unknown source or unreadable data, ModelError where the tables don't fit together.
    """
    if source not in sources:
        raise SourceError(f"graph.source = {source!r} is unknown; known: {', '.join(sorted(sources))}")
    about: dict[str, Any] = {"source": source}
    if source == "twin":
        about |= {"scale": scale, "seed": seed}
    return build_model(sources[source](scale, seed, path), out, about)
