"""The graph: where it comes from, how it is modelled, loaded, served and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.graph.model import build_model
from lib.graph.model import read_schema as schema
from lib.graph.prompt import schema_text
from lib.graph.tables import SourceError

__all__ = ["SourceError", "build", "schema", "schema_text", "sources"]


def _twin(scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    from lib.graph.twin import tables

    return build_model(tables(scale, seed), out, {"source": "twin", "scale": scale, "seed": seed})


def _bird(scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    from lib.graph.sqlite import tables

    mapping, rows = tables(Path(path))
    return build_model(rows, out, {"source": "bird"}, mapping)


def _stackexchange(scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    from lib.graph.stackexchange import tables

    return build_model(tables(Path(path)), out, {"source": "stackexchange"})


def _neo4j(scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    from lib.graph.running import describe

    return describe(out)


# A new source is one function that fills folder `out` and returns the counts: tables and a mapping, or a schema.
sources: dict[str, Callable[[float, int, str, Path], dict[str, Any]]] = {
    "twin": _twin,
    "bird": _bird,
    "stackexchange": _stackexchange,
    "neo4j": _neo4j,
}


def build(source: str, scale: float, seed: int, path: str, out: Path) -> dict[str, Any]:
    """Make the graph's files in folder `out` (nodes/, relationships/, counts.json, schema.json) and return the counts.

    Source neo4j has no rows of its own: its folder says what the running database holds.

    Raises SourceError for an unknown source or unreadable data, ModelError where the tables don't fit together.
    """
    if source not in sources:
        raise SourceError(f"graph.source = {source!r} is unknown; known: {', '.join(sorted(sources))}")
    return sources[source](scale, seed, path, out)
