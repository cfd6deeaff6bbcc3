"""What a source of a graph yields: tables by name, row by row, so that none has to fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]  # column -> what the source holds there, or None; a missing column is None
Tables = Iterator[tuple[str, Iterable[Row]]]  # in the order of the mapping, each read before the next is asked for


class SourceError(RuntimeError):
    """A source is unknown, or its data can't be read; the message names what, and the way out."""
