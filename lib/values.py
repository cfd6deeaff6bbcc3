"""What counts as one value: equal cells of two results become the same hashable Python value, so that rows can be counted.

- numbers: 1 equals 1.0, -0.0 equals 0, NaN equals NaN, infinity itself. Two floats are one value if they differ by at
  most `TOLERANCE` relative to the larger, and so is a chain of such steps; zero equals only zero. Integers are exact, and
  so are floats that are whole and below 2**53; a larger float may be an integer, rounded. A number is no text: 7, '7'
  and '007' are three values.
- booleans are no numbers; NULL is not '', 0 or 'None'.
- text: case and blanks count; Unicode NFC. A date and time in the extended form of ISO 8601 equals itself with a blank
  for T, with seconds or fraction left out where zero, and at any offset from UTC; a local one is no instant. A date is
  not midnight, and any other way to write a time is a text.
- lists compare in order, maps by key; nodes and relationships by their properties, without internal ids.

Text and numbers stand for themselves; all else is a tuple that opens with its kind, so that True is not 1. What these
rules don't cover isn't compared at all: `Incomparable`.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice, repeat
from operator import itemgetter
from typing import Any

import numpy as np

TOLERANCE = 1e-10  # relative: a million times 0.1, added one by one, is off by 1e-11; cents in 10 million are 1e-9
EXACT = 2**53  # from here on not every whole number is a float

Table = Iterable[Any]
Row = Sequence[Any]
Column = Sequence[Any]


class Incomparable(ValueError):
    """A value of a type that no rule covers, or what is no table of rows; the message says which."""


def rows(table: Table) -> list[Row]:
    """The rows of a table: a list, an array, a cursor, a pandas frame, whatever gives rows when it is gone through.

    A row is any sequence of values; a mapping counts as its values, anything else as a row of one cell. Raises Incomparable
    for what is no table: a number, a text, a mapping.
    """
    try:
        if hasattr(table, "itertuples"):  # going through a frame itself gives the names of its columns
            table = table.itertuples(index=False, name=None)
        if not isinstance(table, str | bytes | Mapping):
            return [row if type(row) is list or type(row) is tuple else _row(row) for row in table]
    except RecursionError:
        raise
    except Exception as e:
        raise Incomparable(f"no table of rows but {_named(table)} ({type(e).__name__})") from e
    raise Incomparable(f"no table of rows but {_named(table)}")


def ragged(table: list[Row]) -> bool:
    return any(len(row) != len(table[0]) for row in table)


def columns(table: list[Row], whole_rows: bool, plain: bool = False, date_is_midnight: bool = False) -> list[Column]:
    """The table's columns in canonical values.

    whole_rows: each row is one value, and the table one column of them; rows that differ in length have no columns.
    plain: text, numbers, booleans and times stay what they are to Python. Raises Incomparable.
    """
    found: list[Column]
    if not table:
        return []
    if whole_rows:
        found = [[("row", tuple(_canonical(row, plain))) for row in table]]
    else:  # zip(*table) would take a million arguments
        found = [_canonical(list(map(itemgetter(i), table)), plain) for i in range(len(table[0]))]
    return [[_replaced(value, _midnight) for value in column] for column in found] if date_is_midnight else found


def forgive_noise(ours: list[Column], theirs: list[Column]) -> tuple[list[Column], list[Column]]:
    """Give the numbers of both tables that are one value within TOLERANCE one representative.

    Groups are formed over both tables at once and not by rounding, because two neighbours on the two sides of a
    rounding boundary would differ.
    """
    tables = (*ours, *theirs)
    kinds = [set(map(type, column)) for column in tables]
    if not {float, tuple} & set().union(*kinds):
        return ours, theirs
    numbers: list[float] = []
    for column, found in zip(tables, kinds, strict=True):
        if not found.isdisjoint(_WITH_NUMBERS):
            numbers.extend(column if found <= _NUMBERS else _numbers(column))
    if (representatives := _representatives(numbers)) is None:
        return ours, theirs
    following = iter(representatives)

    def forgiven(column: Column, found: set[type]) -> Column:
        if found.isdisjoint(_WITH_NUMBERS):
            return column
        if found <= _NUMBERS:
            return list(islice(following, len(column)))
        return [_replaced(value, lambda v: next(following) if type(v) in _NUMBERS else v) for value in column]

    columns = [forgiven(column, found) for column, found in zip(tables, kinds, strict=True)]
    return columns[: len(ours)], columns[len(ours) :]


def printed(value: Any) -> str:
    """Canonical text of a canonical value: 2.0 as 2, floats to 12 significant digits."""
    return repr(_replaced(value, _shortened))


# ---------------------------------------------------------------- values of one kind


def _row(row: Any) -> Row:
    if isinstance(row, Mapping):
        return list(row.values())
    is_row = isinstance(row, Sequence) and not isinstance(row, str | bytes | bytearray | memoryview)
    return list(row) if is_row or getattr(row, "ndim", None) else [row]


_AS_IS = {int, type(None)}
_PLAIN = _AS_IS | {str, bool, bytes, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, uuid.UUID}


def _canonical(column: Column, plain: bool) -> Column:
    kinds = set(map(type, column))
    if plain:
        return column if kinds <= _PLAIN else [v if type(v) in _PLAIN else _plain(v) for v in column]
    if kinds <= _AS_IS:
        return column
    if kinds <= _AS_IS | {float}:
        return [v if v == v else _NAN for v in column]
    if kinds == {dict} and len(shapes := set(map(tuple, column))) == 1:
        return _maps(column, shapes.pop())
    return [_value(v) for v in column]


def _plain(value: Any) -> Any:
    return value if type(value) is Decimal and value.is_finite() else _value(value)


def _value(value: Any) -> Any:
    return _KINDS.get(type(value), _foreign)(value)


_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9])(?:(:[0-5][0-9])(?:[.,]([0-9]+))?)?"
    # the server writes a zone's name behind its offset, and before there were zones an offset with seconds
    r"(?: ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)(?:\[[^\]]*\])?)?"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _text(text: str) -> str:
    if not text.isascii():
        return unicodedata.normalize("NFC", text)
    if len(text) == 19 and text[10] == "T" and text[16] == ":":  # as it is already, if it is a time
        return text
    if len(text) > 15 and text[4] == "-" and (match := _DATE_TIME.fullmatch(text)):
        date, minute, second, fraction, offset = match.groups()
        if not _is_day(date):  # a 31st of June
            return text
        moment = f"{date}T{minute}{second or ':00'}"
        if offset:
            try:
                moment = _at_utc(moment + ("+00:00" if offset in "Zz" else offset))
            except (ValueError, OverflowError):  # an offset of 99 hours, or an instant before year 1
                return text
        fraction = (fraction or "").rstrip("0")
        return moment + (f".{fraction}" if fraction else "") + ("Z" if offset else "")
    return text


@lru_cache(4096)
def _is_day(date: str) -> bool:
    try:
        return bool(datetime.date.fromisoformat(date))
    except ValueError:
        return False


def _at_utc(moment: str) -> str:
    return datetime.datetime.fromisoformat(moment).astimezone(datetime.UTC).replace(tzinfo=None).isoformat()


def _midnight(value: Any) -> Any:
    return f"{value}T00:00:00" if type(value) is str and _DATE.fullmatch(value) else value


def _maps(column: Sequence[Mapping], keys: tuple) -> Column:
    """Maps with the same keys in the same order, such as the nodes of one kind: key by key, since that is faster."""
    if not keys or "properties" in keys or not set(map(type, keys)) <= {str}:
        return [_map(value) for value in column]
    names = _by_name(keys)
    items = [_canonical([value[key] for value in column], plain=False) for _, key in names]
    entries = [zip(repeat(name), values) for (name, _), values in zip(names, items, strict=True)]
    return [("map", each) for each in zip(*entries, strict=True)]


def _map(value: Mapping) -> tuple:
    """Entries by key; of a node or relationship in the form that drivers and browsers export, the properties alone."""
    if "properties" in value and _exported(value):
        return _map(value["properties"])
    keys = tuple(value)
    if set(map(type, keys)) <= {str}:
        return "map", tuple([(name, _value(value[key])) for name, key in _by_name(keys)])
    entries = [(_value(key), _value(item)) for key, item in value.items()]
    return "map", tuple(sorted(entries, key=lambda e: (0, e[0]) if type(e[0]) is str else (1, printed(e[0]))))


@lru_cache(4096)
def _by_name(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """(canonical key, key) in the order of the canonical ones; where two become one, all stay as they are."""
    names = list(map(_text, keys))
    return sorted(zip(names if len(set(names)) == len(keys) else keys, keys, strict=True))


_IDS = {"id", "identity", "elementId"}
_EXPORTED = _IDS | {"labels", "type", "properties", "start", "end", "startNodeElementId", "endNodeElementId"}
_ENDS = ({"start", "end"}, {"startNodeElementId", "endNodeElementId"})


def _exported(value: Mapping) -> bool:
    """A node has labels, a relationship a type and two ends; without them it is somebody's own map."""
    if not isinstance(value["properties"], Mapping) or not _EXPORTED.issuperset(value) or _IDS.isdisjoint(value):
        return False
    return isinstance(value.get("labels"), list | tuple) or (
        isinstance(value.get("type"), str) and any(ends <= value.keys() for ends in _ENDS)
    )


def _number(value: Decimal | Fraction) -> Any:
    """An int where it is whole, however large; else a float, or its exact form where it is beyond those."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            return _NAN if value.is_nan() else float(value)
        if value and abs(value.adjusted()) > 5000:  # 1e999999999 has no place in memory
            sign, digits, _ = value.as_tuple()
            return "number", sign, "".join(map(str, digits)).strip("0"), value.adjusted()
        value = Fraction(value)
    if value.denominator == 1:
        return value.numerator
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return ("number", value.numerator, value.denominator) if math.isinf(number) or not number else number


def _foreign(value: Any) -> Any:
    """Values beyond plain JSON, whose own methods may fail."""
    try:
        return _known(value)
    except (Incomparable, RecursionError):
        raise
    except Exception as e:
        raise Incomparable(f"a value of type {_named(value)} ({type(e).__name__})") from e


def _known(value: Any) -> Any:
    """Subclasses, arrays, decimals, and the driver's own temporal, spatial and graph types."""
    if hasattr(value, "iso_format"):  # neo4j.time; before tuple, which its Duration is
        return _text(value.iso_format())
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return _value(float.__float__(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if isinstance(value, Decimal | Fraction):
        return _number(value)
    if isinstance(
        value, datetime.date | datetime.time
    ):  # a datetime is a date, and so is pandas' NaT, which has no value
        return _text(value.isoformat()) if value == value else None
    if isinstance(value, complex | datetime.timedelta | uuid.UUID):
        return type(value).__name__, str(value)
    if hasattr(value, "srid"):  # a point of the driver; before tuple, too
        return _map({"srid": value.srid, "coordinates": list(value)})
    if isinstance(value, Mapping):
        return _map(value)
    if isinstance(value, list | tuple) or getattr(value, "ndim", None):
        return _KINDS[list](list(value))
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else _text(str(value))
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.timedelta64 | np.longdouble):
        return _value(value.item())
    raise Incomparable(f"a value of type {_named(value)}")


def _named(value: Any) -> str:
    return type(value).__name__


_NAN = ("nan",)
_KINDS: dict[type, Callable[[Any], Any]] = {
    type(None): lambda v: v,
    int: lambda v: v,
    str: _text,
    float: lambda v: v if v == v else _NAN,
    bool: lambda v: ("bool", v),
    list: lambda v: ("list", tuple(_canonical(v, plain=False))),
    tuple: lambda v: ("list", tuple(_canonical(v, plain=False))),
    dict: _map,
    bytes: lambda v: ("bytes", v),
}


def _replaced(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if type(value) is not tuple:
        return leaf(value)
    return tuple([_replaced(item, leaf) if type(item) is tuple else leaf(item) for item in value])


def _shortened(value: Any) -> Any:
    if type(value) is int and value.bit_length() > 2000:
        return hex(value)  # Python writes no more than some thousand digits
    if type(value) is not float:
        return value
    return int(value) if value.is_integer() and abs(value) < EXACT else float(f"{value:.12g}")


# ---------------------------------------------------------------- numbers that are one but for noise


_NUMBERS = {int, float}
_WITH_NUMBERS = {int, float, tuple}


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    """In the order in which `_replaced` comes by them."""
    for value in values:
        if type(value) is tuple:
            yield from _numbers(value)
        elif type(value) in _NUMBERS:
            yield value


def _representatives(numbers: list[float]) -> list[float] | None:
    """For each number the one that represents it; None if that is itself for all.

    In ascending order, numbers that are linked step by step are one, but no two whole numbers are: between two of them a
    chain is cut at its widest step. A whole number represents those linked to it; where there is none, the least does.
    """
    if not numbers:
        return None
    values, ranks, integer = _as_floats(numbers)
    order = np.lexsort((ranks, values))
    before, after = order[:-1], order[1:]
    first = np.append(True, (values[before] != values[after]) | (ranks[before] != ranks[after]))
    starts = np.flatnonzero(first)
    distinct = values[order[starts]]
    whole = ((distinct == np.floor(distinct)) & (abs(distinct) < EXACT)) | np.logical_or.reduceat(
        integer[order], starts
    )
    if whole.all():
        return None
    representative = _linked(distinct, whole)
    if representative is None:
        return None
    places = np.empty_like(order)
    places[order] = order[starts[representative]][np.cumsum(first) - 1]
    found = values[places].tolist()
    for i in np.flatnonzero(abs(values[places]) >= EXACT).tolist():
        found[i] = numbers[places[i]]
    return found


def _as_floats(numbers: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(floats, ranks that tell apart the large numbers that are one float, which of the large are integers)."""
    try:
        values = np.array(numbers, dtype=float)
    except OverflowError:
        most = sys.float_info.max
        values = np.array([n if abs(n) <= most else math.inf if n > 0 else -math.inf for n in numbers], dtype=float)
    large = np.flatnonzero(abs(values) >= EXACT).tolist()
    rank = {number: i for i, number in enumerate(sorted({numbers[i] for i in large}))}
    ranks, integer = np.zeros(len(numbers), dtype=int), np.zeros(len(numbers), dtype=bool)
    ranks[large] = [rank[numbers[i]] for i in large]
    integer[large] = [type(numbers[i]) is int for i in large]
    return values, ranks, integer


def _linked(numbers: np.ndarray, whole: np.ndarray) -> np.ndarray | None:
    """For each of ascending numbers the place of its representative; None if no two are one."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(numbers)
        linked = steps <= TOLERANCE * np.maximum(abs(numbers[1:]), abs(numbers[:-1]))
    linked &= np.isfinite(numbers[1:]) & np.isfinite(numbers[:-1])
    gaps, wholes = np.append(0, np.cumsum(~linked)), np.flatnonzero(whole)
    for k in np.flatnonzero(gaps[wholes[:-1]] == gaps[wholes[1:]]):
        here, there = wholes[k], wholes[k + 1]
        linked[here + np.argmax(steps[here:there])] = False
    if not linked.any():
        return None
    starts = np.flatnonzero(np.append(True, ~linked))
    places = np.arange(len(numbers))
    chosen = np.minimum.reduceat(np.where(whole, places, len(numbers)), starts)
    chosen = np.where(chosen == len(numbers), starts, chosen)
    return np.repeat(chosen, np.diff(np.append(starts, len(numbers))))
