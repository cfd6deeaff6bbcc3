"""Demonstrations of mixed quality for the cold start: a teacher whose mistakes have names, so that a report can say which of them training removed.

In an earlier trial a model of this size, taught from clean demonstrations, left almost nothing for practice to mend;
models at full size bring their own mistakes. The kinds below are theirs: a lost DISTINCT, an extra column, > for >=, a
wrong relationship. Mistakes are rewritings of a query's text, so they apply to any structure of the dialect that
`structures.py` describes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lib.settings import ColdStart

Slots = dict[str, Any]
SLOT = re.compile(r"\{(\w+)\}")

# What is returned beside or instead of a thing's usual name; things of another graph are spared these mistakes.
KEY = {"User": "userId", "Question": "postId", "Answer": "postId", "Post": "postId", "Comment": "commentId",
       "Vote": "voteId", "PostHistory": "postHistoryId", "Tag": "tagId", "Badge": "name"}  # fmt: skip
COMPANION = {"User": "reputation", "Question": "score", "Answer": "score", "Post": "score", "Comment": "score",
             "Vote": "voteTypeId", "PostHistory": "postHistoryTypeId", "Tag": "count", "Badge": "name"}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """A query of the dialect, cut at its clauses."""

    match: str
    where: tuple[str, ...]
    distinct: bool
    items: tuple[str, ...]
    tail: str  # ORDER BY and LIMIT, with their leading space
    carried: str = ""  # WITH and the condition on what it counts, with their leading space

    @classmethod
    def of(cls, query: str) -> Parts:
        head, _, rest = query.partition(" RETURN ")
        between = re.search(r" WITH \w, ", head)
        head, carried = (head[: between.start()], head[between.start() :]) if between else (head, "")
        match, _, where = head.partition(" WHERE ")
        cut = re.search(r" ORDER BY | LIMIT ", rest)
        items, tail = (rest[: cut.start()], rest[cut.start() :]) if cut else (rest, "")
        distinct = items.startswith("DISTINCT ")
        return cls(
            match,
            tuple(where.split(" AND ")) if where else (),
            distinct,
            tuple(items.removeprefix("DISTINCT ").split(", ")),
            tail,
            carried,
        )

    def text(self, **changed: Any) -> str:
        p = Parts(**{**self.__dict__, **changed})
        where = " WHERE " + " AND ".join(p.where) if p.where else ""
        return f"{p.match}{where}{p.carried} RETURN {'DISTINCT ' if p.distinct else ''}{', '.join(p.items)}{p.tail}"

    @property
    def labels(self) -> dict[str, str]:
        """Variable -> label."""
        return dict(re.findall(r"\((\w):(\w+)\)", self.match))


def _distinct_lost(q: str, p: Parts) -> list[str]:
    out = [p.text(distinct=False)] if p.distinct else []
    if re.search(r"count\(DISTINCT [^)]*\)", q):
        out.append(re.sub(r"count\(DISTINCT [^)]*\)", "count(*)", q))
    return out


def _extra_column(q: str, p: Parts) -> list[str]:
    out = []
    for item in p.items:
        m = re.fullmatch(r"(\w)\.(\w+)", item)
        if m and p.labels.get(m[1]) in COMPANION:
            extra = f"{m[1]}.{COMPANION[p.labels[m[1]]]}"
            if extra not in p.items:
                out.append(p.text(items=(*p.items, extra)))
    return out[:1]


def _wrong_column(q: str, p: Parts) -> list[str]:
    m = re.fullmatch(r"(\w)\.(\w+)", p.items[0])
    if m is None or p.labels.get(m[1]) not in COMPANION:
        return []
    label = p.labels[m[1]]
    other = COMPANION[label] if m[2] == KEY[label] else KEY[label]
    return [p.text(items=(f"{m[1]}.{other}", *p.items[1:]))] if other != m[2] else []


def _boundary(q: str, p: Parts) -> list[str]:
    swap = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
    out = []
    for i, condition in enumerate(p.where):
        if m := re.fullmatch(r"(\S+) (>=|<=|>|<) (.+)", condition):
            out.append(p.text(where=(*p.where[:i], f"{m[1]} {swap[m[2]]} {m[3]}", *p.where[i + 1 :])))
    return out


def _order_reversed(q: str, p: Parts) -> list[str]:
    return [p.text(tail=p.tail.replace(" DESC", "", 1))] if " DESC" in p.tail else []


def _rows_for_count(q: str, p: Parts) -> list[str]:
    if len(p.items) != 1 or not p.items[0].startswith("count("):
        return []
    counted = re.search(r"(\w)\.", p.items[0])
    variable = counted[1] if counted else next(reversed(p.labels))
    key = KEY.get(p.labels[variable])
    return [p.text(items=(f"{variable}.{key}",))] if key else []


def _condition_lost(q: str, p: Parts) -> list[str]:
    return [p.text(where=p.where[:-1])] if len(p.where) > 1 else []


def _wrong_relationship(q: str, p: Parts) -> list[str]:
    swaps = [
        ("-[:ANSWERS]->", "<-[:ACCEPTED]-"),
        ("<-[:ANSWERS]-", "-[:ACCEPTED]->"),
        ("<-[:ACCEPTED]-", "-[:ANSWERS]->"),
        ("-[:ACCEPTED]->", "<-[:ANSWERS]-"),
        ("[:LAST_EDITED]", "[:OWNS]"),
        ("[:HAS_EXCERPT]", "[:HAS_WIKI]"),
        ("[:HAS_WIKI]", "[:HAS_EXCERPT]"),
    ]
    return [p.text(match=p.match.replace(a, b, 1)) for a, b in swaps if a in p.match]


def _hop_skipped(q: str, p: Parts) -> list[str]:
    long = "-[:OWNS]->(a:Answer)-[:ANSWERS]->(q:Question)"
    uses_answer = re.search(r"\ba\.", q.replace(p.match, ""))
    return [p.text(match=p.match.replace(long, "-[:OWNS]->(q:Question)"))] if long in q and not uses_answer else []


def _wrong_aggregate(q: str, p: Parts) -> list[str]:
    swap = {"avg(": "sum(", "sum(": "avg(", "max(": "avg(", "min(": "max("}
    for i, item in enumerate(p.items):
        for a, b in swap.items():
            if item.startswith(a):
                return [p.text(items=(*p.items[:i], b + item[len(a) :], *p.items[i + 1 :]))]
    return []


def _group_lost(q: str, p: Parts) -> list[str]:
    counts = tuple(i for i in p.items if "(" in i)
    return [p.text(items=counts, tail="")] if counts and len(counts) < len(p.items) and not p.tail else []


def _direction_reversed(q: str, p: Parts) -> list[str]:
    if any("(" in i for i in p.items):  # an aggregate over nothing still returns a row: nothing would be seen
        return []
    m = re.search(r"(<-\[\w?:\w+\]-|-\[\w?:\w+\]->)", p.match)
    if m is None:
        return []
    arrow = m[1]
    turned = f"-{arrow[2:-1]}->" if arrow.startswith("<") else f"<{arrow[:-1]}"
    return [p.text(match=p.match[: m.start()] + turned + p.match[m.end() :])]


def _unknown_variable(q: str, p: Parts) -> list[str]:
    return [p.text(items=("x.name", *p.items[1:]))]


def _clause_lost(q: str, p: Parts) -> list[str]:
    return [q.replace(" WHERE ", " ", 1)] if p.where else []


Rewriting = Callable[[str, Parts], list[str]]
SILENT: dict[str, Rewriting] = {
    "distinct lost": _distinct_lost,
    "extra column": _extra_column,
    "wrong column": _wrong_column,
    "boundary": _boundary,
    "order reversed": _order_reversed,
    "rows for a count": _rows_for_count,
    "condition lost": _condition_lost,
    "wrong relationship": _wrong_relationship,
    "hop skipped": _hop_skipped,
    "wrong aggregate": _wrong_aggregate,
    "group lost": _group_lost,
}
VISIBLE: dict[str, Rewriting] = {
    "direction reversed": _direction_reversed,
    "unknown variable": _unknown_variable,
    "clause lost": _clause_lost,
}
KINDS = (*SILENT, *VISIBLE)


def mistakes(query: str, among: dict[str, Rewriting]) -> list[tuple[str, str]]:
    """(kind, mistaken query) for each way in which `among` can spoil this query; slots may stand for values."""
    parts = Parts.of(query)
    return [(kind, wrong) for kind, rewrite in among.items() for wrong in rewrite(query, parts) if wrong != query]


def mistake_kind(query: str, reference: str) -> str | None:
    """The named mistake that turns `reference` into `query`, or None where it is no single one of them."""
    spoiled = mistakes(reference, {**SILENT, **VISIBLE})
    return next((kind for kind, wrong in spoiled if wrong == query), None)


def error_rates(structures: Iterable[str], settings: ColdStart) -> dict[str, float]:
    """Share of first queries that are wrong, by structure: evenly spread between two ends, in a seeded order."""
    names = sorted(set(structures))
    random.Random(f"error rates {settings.seed}").shuffle(names)
    span = settings.wrong_most - settings.wrong_least
    return {s: settings.wrong_least + span * i / max(1, len(names) - 1) for i, s in enumerate(names)}


def attempt(template: str, rate: float, settings: ColdStart, rng: random.Random) -> list[tuple[str, str | None]]:
    """One demonstration's queries, as templates with the kind of their mistake: one, or a wrong one and its repair."""
    right = (template, None)
    if rng.random() >= rate:
        return [right]
    silent, visible = _by_kind(mistakes(template, SILENT), rng), _by_kind(mistakes(template, VISIBLE), rng)
    if visible and (rng.random() < settings.wrong_visibly or not silent):
        return [visible, right if rng.random() < settings.repaired_visible or not silent else silent]
    if silent:
        return [silent, right] if rng.random() < settings.repaired_silent else [silent]
    return [right]


def _by_kind(found: list[tuple[str, str]], rng: random.Random) -> tuple[str, str] | None:
    """One mistake, each kind as likely as another, as (query, kind)."""
    if not found:
        return None
    kind = rng.choice(sorted({k for k, _ in found}))
    return rng.choice([q for k, q in found if k == kind]), kind


def fill(text: str, slots: Slots) -> str:
    """Put values where a template or wording has {slots}."""
    return SLOT.sub(lambda m: str(slots[m[1]]["value"]) if m[1] in slots else m[0], text)


class Inventor:
    """Made-up values that look like the given ones, so that a model must copy what it reads instead of remembering it.

    Letters follow the letter pairs of the names it was given, one word in four is any letters at all; capitals, digits,
    hyphens and the number of words are kept.
    """

    def __init__(self, names: Iterable[str]):
        self._next: dict[str, Counter[str]] = {}
        for name in names:
            for word in re.findall(r"[A-Za-z]+", name):
                for a, b in zip("^" + word.lower(), word.lower(), strict=False):
                    self._next.setdefault(a, Counter())[b] += 1
        self._tables = {a: (sorted(c), [c[b] for b in sorted(c)]) for a, c in sorted(self._next.items())}

    def slots(self, slots: Slots, rng: random.Random) -> Slots:
        """Fresh values for all slots, no two alike."""
        fresh: Slots = {}
        for name, slot in slots.items():
            value = self._value(slot, rng)
            while any(value == other["value"] for other in fresh.values()):
                value = self._value(slot, rng)
            fresh[name] = {**slot, "value": value}
        return fresh

    def _value(self, slot: dict[str, Any], rng: random.Random) -> Any:
        value = slot["value"]
        if isinstance(value, int):
            if slot["kind"] == "year":
                return rng.randint(value - 4, value + 4)
            digits = len(str(abs(value)))
            return rng.randint(10 ** (digits - 1) if digits > 1 else 1, 10**digits - 1)
        if slot["kind"] == "date":
            return f"{rng.randint(2009, 2014)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        return re.sub(r"[A-Za-z]+|\d", lambda m: self._word(m[0], rng), str(value))

    def _word(self, like: str, rng: random.Random) -> str:
        if like.isdigit():
            return str(rng.randint(0, 9))
        length = max(1 if len(like) == 1 else 2, len(like) + rng.randint(-2, 2))
        anything = rng.random() < 0.25
        word, last = "", "^"
        while len(word) < length:
            letters, weights = self._tables.get(last, self._tables.get("^", (["a"], [1])))
            last = rng.choice("abcdefghijklmnopqrstuvwxyz") if anything else rng.choices(letters, weights)[0]
            word += last
        if like.isupper() and len(like) > 1:
            return word.upper()
        return word.capitalize() if like[0].isupper() else word


def replace_values(shown: str, old: Slots, new: Slots) -> str:
    """A shown result with the text values of `old` replaced by those of `new`; numbers in results stay."""
    swaps = {str(s["value"]): str(new[k]["value"]) for k, s in old.items() if isinstance(s["value"], str)}
    if not swaps:
        return shown
    found = "|".join(re.escape(v) for v in sorted(swaps, key=len, reverse=True))
    return re.sub(rf"(?<![A-Za-z-])(?:{found})(?![A-Za-z-])", lambda m: swaps[m[0]], shown)
