"""How single values become cells of a graph's CSV files, and the files themselves."""

from __future__ import annotations

import csv
import datetime
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

BITS = 2**63
PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.0+")
TRUTH = {"1": "true", "true": "true", "0": "false", "false": "false"}


class File:
    """A CSV file whose rows end in a line feed, and whose cells are quoted where they hold any kind of line break."""

    def __init__(self, path: Path, header: list[str]):
        self._text = path.open("w", newline="", encoding="utf-8", errors="replace")
        self.write = csv.writer(_Lines(self._text.write), lineterminator="\r\n").writerow
        self.write(header)
        self._path, self._empty = path, self._text.tell()

    def close(self) -> None:
        """A file without rows is removed."""
        empty = self._text.tell() == self._empty
        self._text.close()
        if empty:
            self._path.unlink()


class _Lines:
    """The writer quotes what its own line ending consists of; both kinds of break must be quoted, but one is written."""

    def __init__(self, write: Callable[[str], int]):
        self._write = write

    def write(self, line: str) -> int:
        return self._write(line[:-2] + "\n")


def integer(value: Any) -> int:
    """A whole number of at most 64 bits, whether the source holds it as such, as text or as a float without a fraction."""
    number = value if type(value) is int else _whole(value)
    if not -BITS <= number < BITS:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is no whole number")
    return int(value)


def number(value: Any) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"{value} is no finite number")
    return found


def text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def boolean(value: Any) -> str:
    try:
        return TRUTH[text(value).strip().lower()]
    except KeyError:
        raise ValueError(f"{value!r} is neither true nor false") from None


def local_time(value: Any) -> str:
    """A local time, as the sources give it, in ISO form; a zone is dropped after conversion to UTC."""
    given = text(value).strip()
    moment = datetime.datetime.fromisoformat(given)
    if PLAIN_TIME.fullmatch(given):
        return f"{given[:10]}T{given[11:19]}"
    if moment.tzinfo is not None:
        try:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueError(f"{given} in UTC is outside of the years 1 to 9999") from None
    return moment.isoformat()


def date(value: Any) -> str:
    return local_time(value)[:10]


CONVERT: dict[str, Callable[[Any], Any]] = {
    "integer": integer,
    "float": number,
    "boolean": boolean,
    "text": text,
    "datetime": local_time,
    "date": date,
}
