"""What comes back from the server: never more than this process can hold, and each value in one readable form."""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

from neo4j._async.io._bolt import _base  # private, but the driver has no limit of its own
from neo4j.graph import Node, Path, Relationship
from neo4j.spatial import Point
from neo4j.time import DateTime

LONGEST_ROW = 4 * 2**20  # bytes on the wire; the server streams a list of a billion numbers without holding it
MOST_VALUES = 100_000  # in one row; reading them takes a second or more, in which this process does nothing else
ZONED = 30  # values that a time with a zone counts as: reading one takes as long
DEEPEST = 50  # levels of lists and maps; Python's own recursion ends at a few hundred
FRACTION = re.compile(r"\.(\d*?)0+(?=$|[ZS+[-])")


class RowTooLong(OSError):
    """One row has more than LONGEST_ROW bytes or MOST_VALUES values. An OSError, so that the driver takes the
    connection for broken."""


class Unreadable(ValueError):
    """A value that Python or the driver has no form for."""


class Inbox(_base.AsyncInbox):
    """The driver's inbox, which would collect one message of any length."""

    def __init__(self, sock: Any, *, unpacker_cls: Any, **arguments: Any):
        super().__init__(_Counted(sock), unpacker_cls=_counting(unpacker_cls), **arguments)

    async def pop(self, hydration_hooks: Any) -> Any:
        self._socket.received = self._unpacker.values = 0
        return await super().pop(hydration_hooks)


class _Counted:
    """A socket that is read up to LONGEST_ROW bytes a message."""

    def __init__(self, sock: Any):
        self._sock, self.received = sock, 0

    async def recv_into(self, buffer: Any, size: int) -> int:
        if self.received > LONGEST_ROW:
            raise RowTooLong(f"a row of more than {LONGEST_ROW} bytes")
        count: int = await self._sock.recv_into(buffer, size)
        self.received += count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@functools.cache
def _counting(unpacker: Any) -> Any:
    """The driver's class that reads values, up to MOST_VALUES a message."""

    class Counting(unpacker):
        def _unpack(self, hydration_hooks: Any = None) -> Any:
            self.values += 1
            if self.values > MOST_VALUES:
                raise RowTooLong(f"a row of more than {MOST_VALUES} values")
            value = super()._unpack(hydration_hooks)
            if isinstance(value, DateTime) and value.tzinfo:
                self.values += ZONED - 1
            return value

        unpack = _unpack  # where the driver would use compiled code, which can't be stopped

    return Counting


_base.AsyncInbox = Inbox  # type: ignore[misc, assignment]


def too_long(e: BaseException | None) -> bool:
    """Whether an error of the driver comes from a row that was too long."""
    while e is not None and not isinstance(e, RowTooLong):
        e = e.__cause__ or e.__context__
    return e is not None


def plain(value: Any, room: int = DEEPEST) -> Any:
    """A driver's value as JSON has it: times as ISO text, nodes and relationships as their properties, paths as lists.

    Raises Unreadable for more than `room` levels of lists and maps, and for what the driver itself couldn't read: a date
    beyond the years 1 to 9999, say.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if room == 0:
        raise Unreadable(f"more than {DEEPEST} levels")
    if hasattr(value, "iso_format"):  # before tuples: a duration is one
        return FRACTION.sub(lambda m: f".{m[1]}" if m[1] else "", value.iso_format())
    if isinstance(value, list | tuple) and not isinstance(value, Point):
        return [plain(v, room - 1) for v in value]
    if isinstance(value, dict | Node | Relationship):
        return {k: plain(v, room - 1) for k, v in value.items()}
    if isinstance(value, Path):
        steps: list[Any] = [value.start_node]
        for relationship, node in zip(value.relationships, value.nodes[1:], strict=True):
            steps += [relationship, node]
        return [plain(step, room - 1) for step in steps]
    if isinstance(value, Point):
        return {"srid": value.srid, "coordinates": list(value)}
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "to_native"):  # vectors
        return list(value.to_native())
    raise Unreadable(f"{type(value).__name__} of the driver")


def copied(value: Any) -> Any:
    """A value as `plain` gives it, sharing nothing that could be changed."""
    if isinstance(value, list):
        return [copied(v) for v in value]
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return value


def weight(value: Any) -> int:
    """About how many bytes of memory a value takes, in the driver's form or in ours, whichever is more."""
    if value is None or isinstance(value, int | float):
        return 32
    if isinstance(value, str | bytes | bytearray):
        return sys.getsizeof(value) + 32  # one wide character makes all of a text wide
    if isinstance(value, dict):
        return 64 + sum(100 + sys.getsizeof(k) + weight(v) for k, v in value.items())
    if isinstance(value, Node | Relationship):
        return 600 + sum(100 + sys.getsizeof(k) + weight(v) for k, v in value.items())
    if isinstance(value, Path):
        return 600 + sum(map(weight, (*value.nodes, *value.relationships)))
    if isinstance(value, list | tuple) and not hasattr(value, "iso_format"):
        return 56 + 8 * len(value) + sum(map(weight, value))
    if hasattr(value, "to_native") and hasattr(value, "__len__"):  # a vector
        return 250 + 40 * len(value)
    return 250  # a time, with its text
