"""Takes apart what is shown of a query and its rows, so that a page and a notebook show the same: a query as highlighted
pieces, what the tool showed as a table, returned rows beside reference rows, and every sign of it legible.
"""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import perm
from typing import Any

from lib import values

Table = Sequence[Sequence[Any]]
OUTCOME_WORDS = {
    "strict": "strictly right",
    "form": "right values, wrong shape",
    "wrong": "wrong",
    "wrong_turns": "wrong, out of turns",
    "no_query": "no query",
    "error": "lost to a fault",
}
SAME = "="  # a row's marks: it is in both,
MISSING = "−"  # in the reference alone,
SURPLUS = "+"  # in the answer alone,
UNKNOWN = "?"  # in the reference, and not among those rows of the answer that were kept
LINES = 50  # of a comparison that are shown for each mark
PAIRINGS = 720  # so many choices of columns are tried

HEAD = re.compile(r"\d+ rows?( or more)?")
CUT = re.compile(r" \.\.\. \([\d,]+ characters\)$")


@lru_cache(maxsize=50_000)
def table(shown: str) -> dict[str, Any] | None:
    """What the tool showed as {head, columns, rows, cut}; None where it is no table, or can't be told apart again since a
    cell holds the sign between cells. cut: there are more rows than these."""
    head, *lines = shown.split("\n")
    if not HEAD.fullmatch(head) or not lines:
        return None
    columns, *rows = (line.split(" | ") for line in lines)
    cut = bool(rows) and len(rows[-1]) != len(columns) and CUT.search(lines[-1]) is not None
    rows = rows[:-1] if cut else rows
    if any(len(row) != len(columns) for row in rows):
        return None
    cut = cut or "more" in head or int(head.split()[0]) > len(rows)
    return {
        "head": head,
        "columns": [*map(legible, columns)],
        "rows": [[*map(legible, row)] for row in rows],
        "cut": cut,
    }


def difference(rows: Table, reference: Table, count: int | None = None) -> dict[str, Any]:
    """Returned rows laid beside the reference rows.

    count: of the rows that were returned, where `rows` are only the first of them; a reference row that isn't among those
    is then unknown and not missing. The columns are paired so that most rows are in both, as lib.reward pairs them, as
    long as there are few choices. Returns `rows`, pairs of a mark and cells (as text, in the reference's columns, then the
    columns too many), at most LINES of a mark; `counts` of all rows by mark; `partners`, the returned column in each
    place; `width`, how many of them the reference has.
    """
    ragged = values.ragged(list(rows)) or values.ragged(list(reference))  # then each row is one value
    ours, theirs = values.forgive_noise(*(values.columns(values.rows(table), ragged) for table in (rows, reference)))
    width = len(theirs) if reference else len(ours)
    partners = _partners(ours, theirs) if reference else tuple(range(width))
    places = [*partners, *(i for i in range(len(ours)) if i not in partners)]
    if ragged:
        width = max(len(row) for row in (*rows, *reference))
        places = list(range(width))
    comparable = bool(reference) and len(partners) == len(theirs)
    got = _keys([ours[j] for j in partners], len(rows))
    free: dict[Any, deque[int]] = defaultdict(deque)
    for i, key in enumerate(got if comparable else ()):
        free[key].append(i)
    absent = UNKNOWN if count is not None and count > len(rows) else MISSING
    lines, used = [], set()
    for want, key in zip(reference, _keys(theirs, len(reference)), strict=True):
        partner = free[key].popleft() if free.get(key) else None
        used.add(partner)
        rest = [rows[partner][j] for j in places[width:]] if partner is not None else []
        lines.append((absent if partner is None else SAME, [*want, *rest]))
    lines += [(SURPLUS, _in_places(row, places)) for i, row in enumerate(rows) if i not in used]
    counts = Counter(mark for mark, _ in lines)
    kept: Counter[str] = Counter()
    shown = []
    for mark, cells in lines:
        kept[mark] += 1
        if kept[mark] <= LINES:
            shown.append((mark, [*map(cell, cells)]))
    return {"rows": shown, "counts": dict(counts), "partners": places, "width": width}


def _partners(ours: Sequence[values.Column], theirs: Sequence[values.Column]) -> tuple[int, ...]:
    """The returned column that stands for each of the reference's; of equally good choices the one nearest to their order."""
    if len(ours) < len(theirs) or perm(len(ours), len(theirs)) > PAIRINGS:
        return tuple(range(min(len(ours), len(theirs))))
    wanted = Counter(zip(*theirs, strict=True))

    def in_common(choice: tuple[int, ...]) -> int:
        return (Counter(zip(*(ours[i] for i in choice), strict=True)) & wanted).total()

    return max(permutations(range(len(ours)), len(theirs)), key=in_common)


def _keys(columns: Sequence[values.Column], rows: int) -> list[tuple[Any, ...]]:
    return [tuple(column[i] for column in columns) for i in range(rows)]


def _in_places(row: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [row[j] for j in places if j < len(row)]


def cell(value: Any) -> str:
    """A value as text: quotes stand around text that could be taken for something else, such as '7' or 'null'."""
    if not isinstance(value, str):
        return legible(json.dumps(value, ensure_ascii=False))
    plain = bool(value.strip()) and value == value.strip()
    with contextlib.suppress(ValueError):
        json.loads(value)
        plain = False
    return legible(value if plain else f"'{value}'")


UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # controls, half characters, the separators of lines and paragraphs
TURNING = {*map(chr, (0x61C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF))}


def legible(text: str) -> str:
    """The text with each sign named that can't be seen or that turns the order of those around it: ⟨U+202E⟩."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(f"⟨U+{ord(sign):04X}⟩" if _unseen(sign) else sign for sign in text)


def _unseen(sign: str) -> bool:
    return sign in TURNING or (sign not in "\n\t" and unicodedata.category(sign) in UNSEEN)


KEYWORD = re.compile(
    r"all|and|any|as|asc|ascending|between|by|call|case|collect|contains|count|cypher|delete|desc|descending|"
    r"detach|distinct|else|end|ends|exists|false|filter|finish|for|foreach|from|group|having|in|inner|is|join|"
    r"left|let|like|limit|match|merge|next|none|not|null|offset|on|optional|or|order|over|remove|return|select|"
    r"set|single|skip|starts|then|true|union|unwind|use|when|where|with|xor|yield",
    re.IGNORECASE,
)
TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"""|(?P<string>'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?)"""
    r"|(?P<label>(?<![\s:]):(?:\w+|`[^`]*`)(?:[|&]:?(?:\w+|`[^`]*`))*)"  # a blank before the colon: a map's value
    r"|(?P<name>`[^`]*`?|\$\w+)"
    r"|(?P<number>\b\d[\w.]*)"
    r"|(?P<word>(?<![\w.])[^\W\d]\w*)",  # behind a dot stands a property
    re.DOTALL,
)


@lru_cache(maxsize=50_000)
def highlighted(query: str) -> list[tuple[str, str]]:
    """A query (Cypher, or near enough SQL) as (kind, text) pieces that make up the whole of it, every sign of it `legible`.

    Kinds: comment, string, label, name, number, keyword, function, and none for what lies between.
    """
    pieces, end = [], 0
    for token in TOKEN.finditer(query):
        kind, text = str(token.lastgroup), token[0]
        if kind == "word":
            called = query[token.end() : token.end() + 1] == "("
            kind = "keyword" if KEYWORD.fullmatch(text) else "function" if called else ""
        if not kind:
            continue
        pieces += [("", query[end : token.start()]), (kind, text)]
        end = token.end()
    pieces.append(("", query[end:]))
    return [(kind, legible(text)) for kind, text in pieces if text]
