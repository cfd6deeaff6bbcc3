"""What counts as one value: equal cells of two results become the same hashable Python value, so that rows can be counted.

- numbers: 1 equals 1.0, -0.0 equals 0, NaN equals NaN, infinity itself. Two floats are one value if they differ by at
  most `TOLERANCE` relative to the larger, and so is a chain of such steps; zero equals only zero. Whole numbers below
  2**53 are exact: 1,000,000,000,000 is not 1,000,000,000,001. A number is no text: 7, '7' and '007' are three values.
- booleans are no numbers; NULL is not '', 0 or 'None'.
- text: case and blanks count; Unicode NFC. A date-time in ISO 8601 equals itself however it is written (a blank for T,
  seconds or fraction left out where zero, any offset from UTC); a local one is no instant. A date is not midnight.
- lists compare in order, maps by key; nodes and relationships by their properties, without internal ids.

Text and numbers stand for themselves; all else is a tuple that opens with its kind, so that True is not 1.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any

TOLERANCE = 1e-10  # relative: a million times 0.1, added one by one, is off by 1e-11; cents in 10 million are 1e-9

Table = Sequence[Any]
Column = Sequence[Any]


def columns(rows: Table, plain: bool = False, date_is_midnight: bool = False) -> tuple[list[Column], bool]:
    """The table's columns in canonical values, and whether its rows differ in length (then filled up as `missing`).

    rows: lists or tuples of values; a mapping counts as its values, anything else as a row of one cell.
    plain: text, numbers and booleans stay what they are to Python.
    """
    if not len(rows):
        return [], False
    cells = [row if type(row) is list or type(row) is tuple else _row(row) for row in rows]
    width = len(cells[0])
    ragged = any(len(row) != width for row in cells)
    if ragged:
        width = max(map(len, cells))
        cells = [[*row, *[...] * (width - len(row))] for row in cells]
    # zip(*cells) would take a million arguments
    table: list[Column] = [_canonical(list(map(itemgetter(i), cells)), plain) for i in range(width)]
    if date_is_midnight:
        table = [[_replace(value, _midnight) for value in column] for column in table]
    return table, ragged


def forgive_noise(ours: list[Column], theirs: list[Column]) -> tuple[list[Column], list[Column]]:
    """Give the numbers of both tables that are one value within TOLERANCE one representative.

    Groups are formed over both tables at once and not by rounding, because two neighbours on the two sides of a
    rounding boundary would differ.
    """
    kinds = [set(map(type, column)) for column in (*ours, *theirs)]
    if not {float, tuple} & set().union(*kinds):
        return ours, theirs
    numbers: set[float] = set()
    for column, found in zip((*ours, *theirs), kinds, strict=True):
        if not found.isdisjoint(_WITH_NUMBERS):
            numbers.update(column if found <= {int, float} else _numbers(column))
    numbers = {number for number in numbers if abs(number) <= sys.float_info.max}
    same = {} if all(map(_whole, numbers)) else dict(_representatives(sorted(numbers)))
    if not same:
        return ours, theirs

    def replaced(table: list[Column]) -> list[Column]:
        # a whole number is its own representative, so True, which equals 1, finds no entry
        return [[_replace(v, lambda leaf: same.get(leaf, leaf)) for v in column] for column in table]

    return replaced(ours), replaced(theirs)


def printed(value: Any) -> str:
    """Canonical text of a canonical value: 2.0 as 2, floats to 12 significant digits."""
    return repr(_replace(value, _shortened))


def _row(row: Any) -> Sequence[Any]:
    if isinstance(row, list | tuple):
        return row
    if isinstance(row, Mapping):
        return list(row.values())
    return [row]


_AS_IS = {int, str, type(None)}
_AS_IS_PLAIN = _AS_IS | {bool, bytes}


def _canonical(column: Column, plain: bool) -> Column:
    kinds = set(map(type, column))
    if plain:
        return column if kinds <= _AS_IS_PLAIN else [v if type(v) in _AS_IS_PLAIN else _value(v) for v in column]
    if kinds <= _AS_IS:
        return [_text(v) if type(v) is str else v for v in column] if str in kinds else column
    return [_value(v) for v in column]


def _value(value: Any) -> Any:
    return _KINDS.get(type(value), _unusual)(value)


_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:[.,]([0-9]+))?)?"
    r"(?: ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)(?:\[[^\]]*\])?)?"  # the server writes a zone's name behind its offset
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _text(text: str) -> str:
    if not text.isascii():
        return unicodedata.normalize("NFC", text)
    if len(text) > 15 and text[4] == "-" and (match := _DATE_TIME.fullmatch(text)):
        date, minute, second, fraction, offset = match.groups()
        try:
            moment = datetime.datetime.fromisoformat(f"{date}T{minute}{second or ':00'}{_offset(offset)}")
            if offset:
                moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):  # a 31st of June, or an instant before year 1
            return text
        fraction = (fraction or "").rstrip("0")
        return moment.isoformat() + (f".{fraction}" if fraction else "") + ("Z" if offset else "")
    return text


def _offset(offset: str | None) -> str:
    return "+00:00" if offset in ("Z", "z") else offset or ""


def _midnight(value: Any) -> Any:
    return f"{value}T00:00:00" if type(value) is str and _DATE.fullmatch(value) else value


def _map(value: Mapping) -> tuple:
    """Entries by key; of a node or relationship in the form that drivers and browsers export, the properties alone."""
    inner = value.get("properties")
    if isinstance(inner, Mapping) and _EXPORTED.issuperset(value) and not _IDS.isdisjoint(value):
        return _map(inner)
    return "map", tuple(sorted(((_text(str(key)), _value(item)) for key, item in value.items()), key=lambda e: e[0]))


_IDS = {"id", "identity", "elementId"}
_EXPORTED = _IDS | {"labels", "type", "properties", "start", "end", "startNodeElementId", "endNodeElementId"}


def _number(value: Decimal | Fraction) -> Any:
    if isinstance(value, Decimal) and not value.is_finite():
        return ("nan",) if value.is_nan() else float(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):  # beyond doubles
        return "number", str(value)
    return int(value) if number.is_integer() and value == number else number


def _unusual(value: Any) -> Any:
    """Values beyond plain JSON: subclasses, numpy's scalars, decimals, and the driver's own temporal and graph types."""
    if hasattr(value, "iso_format"):  # neo4j.time; before tuple, which its Duration is
        return _text(value.iso_format())
    if isinstance(value, str | int | float):
        return next(_KINDS[kind](kind(value)) for kind in (str, int, float) if isinstance(value, kind))
    if isinstance(value, Decimal | Fraction):
        return _number(value)
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return _text(value.isoformat())
    if isinstance(value, Mapping):
        return _map(value)
    if isinstance(value, list | tuple):
        return _KINDS[list](value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _value(value.item())
    return type(value).__name__, str(value)


_KINDS: dict[type, Callable[[Any], Any]] = {
    type(None): lambda v: v,
    int: lambda v: v,
    str: _text,
    float: lambda v: v if v == v else ("nan",),
    bool: lambda v: ("bool", v),
    list: lambda v: ("list", tuple(map(_value, v))),
    tuple: lambda v: ("list", tuple(map(_value, v))),
    dict: _map,
    bytes: lambda v: ("bytes", v),
    type(...): lambda v: ("missing",),
}


_WITH_NUMBERS = {int, float, tuple}


def _replace(value: Any, leaf: Callable[[Any], Any]) -> Any:
    return tuple(_replace(item, leaf) for item in value) if type(value) is tuple else leaf(value)


def _shortened(value: Any) -> Any:
    if type(value) is not float:
        return value
    return int(value) if _whole(value) else float(f"{value:.12g}")


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    for value in values:
        if type(value) is float or type(value) is int:
            yield value
        elif type(value) is tuple:
            yield from _numbers(value)


def _whole(number: float) -> bool:
    return type(number) is int or (number.is_integer() and abs(number) < 2**53)


def _representatives(numbers: Sequence[float]) -> Iterator[tuple[float, float]]:
    """(number, its representative) where the two differ; numbers ascending."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end < len(numbers):
            a, b = numbers[end - 1], numbers[end]
            if b - a <= TOLERANCE * max(abs(a), abs(b)):
                continue
        if end - start > 1:
            for group in _one_whole_number_each(numbers[start:end]):
                chosen = next(filter(_whole, group), group[0])
                yield from ((number, chosen) for number in group if number != chosen)
        start = end


def _one_whole_number_each(chain: Sequence[float]) -> Iterator[list[float]]:
    """Cut a chain between its whole numbers, at the widest step: neighbouring large integers stay two values."""
    group: list[float] = []
    whole = None  # where in the group
    for number in chain:
        if _whole(number):
            if whole is not None:
                run = [*group[whole:], number]
                cut = whole + 1 + max(range(len(run) - 1), key=lambda k: run[k + 1] - run[k])
                yield group[:cut]
                group = group[cut:]
            whole = len(group)
        group.append(number)
    yield group
