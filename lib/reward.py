"""Decides whether returned rows answer a question, because a study's claim is worth no more than this judgement.

Rows are compared by value (`lib.values` says what one value is) and column names are free. One pairing of columns holds
for the whole table (`lib.pairing`): swapping two cells of one row is another answer. Rows are a multiset.

`python -m lib.reward GOLD PRED` scores files of answers (`lib.scoring`); docs/scoring.md shows what counts as right.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lib import values
from lib.pairing import best_pairing, in_common, perfect_pairing
from lib.values import Column, Row, Table


class Score(NamedTuple):
    """Verdict on one result. `flagged` is empty or says why the verdict deserves a look."""

    strict: bool  # same number of columns, same rows with the same counts
    lenient: bool  # same number of rows, and some choice of the returned columns gives exactly the reference rows
    lenient_literal: bool  # same number of rows, and every reference value is found somewhere in the result
    f1: float  # 2 * |rows in both| / (|returned| + |reference|), best pairing of columns; 0 if their numbers differ
    reward: float  # 1.0 if strict, else min(f1, 0.99)
    extra_columns: int  # returned columns beyond the reference's number
    flagged: str


@dataclass(frozen=True)
class Preset:
    """How scorers differ.

    sets: a result is a set of rows, so duplicates and order vanish. positional: strict and F1 take the columns in the
    order returned. plain: values compare as Python compares them (1 == True, no tolerance, text to the letter).
    date_is_midnight: '2010-07-19' equals '2010-07-19T00:00'.
    """

    sets: bool = False
    positional: bool = False
    plain: bool = False
    date_is_midnight: bool = False


PRESETS = {
    "graph": Preset(),
    # BIRD's evaluation: set(cursor.fetchall()) of the prediction == set(cursor.fetchall()) of the gold query
    "bird-ex": Preset(sets=True, positional=True, plain=True),
}


def score(got: Table | None, want: Table, preset: str | Preset = "graph", ordered: bool = False) -> Score:
    """Compare returned rows with reference rows.

    got, want: whatever gives rows when it is gone through (`lib.values.rows`); a row is a sequence of values, or a mapping
    (its values in its order). None for `got` says that there is no result, which equals nothing, not even an empty one.
    ordered: the order of rows counts for strict and lenient (but not where the preset takes results as sets).
    Raises ValueError for an unknown preset; no value and no shape of table raises.

    Flagged are an empty reference; rows that differ in length (then no columns are paired: a row is one value); values
    nested too deeply and what no rule covers (nothing is right then); and tables whose columns are so alike that the
    search for their pairing reached its bound (strict and lenient are then False if not proved, f1 a lower bound).
    """
    rules = PRESETS.get(preset) if isinstance(preset, str) else preset
    if rules is None:
        raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    try:
        reference = values.rows(want)
        if got is None:
            return _nothing("" if reference else "empty reference")
        return _score(values.rows(got), reference, rules, ordered and not rules.sets)
    except values.Incomparable as e:
        return _nothing(f"not to be compared: {e}")
    except RecursionError:
        return _nothing("values nested too deeply to compare")


def digest(rows: Table) -> str:
    """SHA-256 of a result as a multiset of rows: the order of rows doesn't matter, that of columns does.

    Floats count to 12 significant digits, so that noise in the last ones doesn't make it another result. Raises ValueError
    for what no rule of `lib.values` covers, RecursionError for values nested too deeply.
    """
    table = values.rows(rows)
    columns = values.columns(table, whole_rows=values.ragged(table))
    lines = sorted(values.printed(row) for row in zip(*columns, strict=True))
    return hashlib.sha256("\n".join([str(len(table)), *lines]).encode("utf-8", "surrogatepass")).hexdigest()


def _nothing(flagged: str) -> Score:
    return Score(False, False, False, 0.0, 0.0, 0, flagged)


def _score(got: list[Row], want: list[Row], rules: Preset, ordered: bool) -> Score:
    flags = [] if want else ["empty reference"]
    if ragged := values.ragged(got) or values.ragged(want):
        flags.append("ragged rows")
    raw_ours, raw_theirs = (values.columns(rows, ragged, rules.plain, rules.date_is_midnight) for rows in (got, want))
    ours, theirs = _forgiven(raw_ours, raw_theirs, rules)
    returned, reference = _multiset(ours, len(got), rules), _multiset(theirs, len(want), rules)
    size, wanted = returned.total(), reference.total()
    extra = max(len(ours) - len(theirs), 0) if want else 0
    same_width = len(ours) == len(theirs)

    overlap, proved = in_common(returned, reference), True  # with the columns as they stand
    if same_width and len(ours) > 1 and not rules.positional and not overlap == size == wanted:
        overlap, proved = best_pairing(returned, reference, overlap)
    strict = same_width and overlap == size == wanted
    f1 = 2 * overlap / (size + wanted) if size + wanted else 1.0

    lenient = strict
    if ordered:
        strict = strict and Counter(map(tuple, ours)) == Counter(map(tuple, theirs))
    if size == wanted and not strict and (extra or (same_width and (ordered or rules.positional))):
        lenient, lenient_proved = _is_within(raw_ours, raw_theirs, len(want), rules, ordered)
        proved = proved and lenient_proved
    literal = lenient or (size == wanted and set().union(*theirs) <= set().union(*ours))
    if not proved:
        flags.append("columns too alike to try every pairing")
    return Score(strict, lenient, literal, f1, 1.0 if strict else min(f1, 0.99), extra, "; ".join(flags))


def _is_within(ours: list[Column], theirs: list[Column], rows: int, rules: Preset, ordered: bool) -> tuple[bool, bool]:
    """(whether some choice of our columns gives exactly their rows, whether that is proved), for equally many rows.

    Columns that can't stand for any of theirs are left out one after the other, so that the numbers in them bring no two
    others together.
    """
    left, dropped = ours, True
    while dropped:
        found, wanted = _forgiven(left, theirs, rules)
        contents = set(map(frozenset, wanted))
        kept = [i for i, column in enumerate(found) if frozenset(column) in contents]
        dropped = len(kept) < len(left)
        left = [left[i] for i in kept]
    if len(left) < len(theirs):
        return False, True
    if ordered:
        return Counter(map(tuple, wanted)) <= Counter(map(tuple, found)), True
    return perfect_pairing(_multiset(found, rows, rules), _multiset(wanted, rows, rules))


def _forgiven(ours: list[Column], theirs: list[Column], rules: Preset) -> tuple[list[Column], list[Column]]:
    return (ours, theirs) if rules.plain else values.forgive_noise(ours, theirs)


def _multiset(columns: Sequence[Column], rows: int, rules: Preset) -> Counter[tuple]:
    counts = Counter(zip(*columns, strict=True)) if columns else Counter({(): rows} if rows else {})
    return Counter(counts.keys()) if rules.sets else counts


if __name__ == "__main__":
    # by name: the command's imports are no part of what a score comes from
    sys.exit(importlib.import_module("lib.scoring").main())
