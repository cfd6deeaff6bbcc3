"""Which values questions may name: read from the graph, fit to be written into a query, and split so that no value serves both training and evaluation."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lib.graph.query import Reader

PARTS = ("train", "dev", "held_out")
SHARES = {"train": 0.65, "dev": 0.10}  # of the values that are split by a shuffle; the rest is held out
RESIDUES = {0: "train", 1: "train", 2: "train", 3: "held_out", 4: "dev"}  # of a number's first two digits, modulo 5
LONGEST_VALUE = 40  # characters
COUNTS = range(2, 13)
COMMON = 0.08  # share of the titles in which a word may stand
FUNCTION = """about after also another because been before being between both could does doing done during each either else
even ever every from further have having here however into itself just less like many might more most much must need never
only onto other others over same shall should since some such than that their them then there these they this those though
through under until upon used using very want were what when where whether which while whose will with within without would
your"""
FUNCTION_WORDS = frozenset(FUNCTION.split())  # nobody asks which titles mention these
PAGE = 20_000  # values read at once, below the reader's cap

TEXTS = {
    "name": "MATCH (u:User) RETURN u.displayName AS value, count(*) AS n",
    "tag": "MATCH (t:Tag) RETURN t.tagName AS value, count(*) AS n",
    "badge": "MATCH (b:Badge) RETURN b.name AS value, count(*) AS n",
    "location": "MATCH (u:User) RETURN u.location AS value, count(*) AS n",
}
TITLES = "MATCH (q:Question) RETURN q.title AS value, count(*) AS n"
OTHERS = {
    "question": "MATCH (q:Question) RETURN q.postId AS value, count(*) AS n",
    "date": "MATCH (v:Vote) RETURN v.creationDate AS value, count(*) AS n",
    "year": "MATCH (u:User) RETURN u.creationDate.year AS value, count(*) AS n",
}
SCORES = "MATCH (p:Post) WHERE p.score >= 0 RETURN p.score AS value, count(*) AS n"
REPUTATIONS = "MATCH (u:User) RETURN u.reputation AS value, count(*) AS n"
# Words that cut a query into its clauses; as part of a value they would make it hard to read for man and program.
CLAUSES = re.compile(r"\b(?:MATCH|WHERE|AND|RETURN|ORDER BY|LIMIT)\b")


@dataclass
class Pools:
    """Values by kind and part, in a seeded order. shared_names: display names that several users have. left_out: how many
    values of a kind were not used, by reason."""

    values: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    shared_names: frozenset[str] = frozenset()
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._part = {
            (kind, value): part for kind, parts in self.values.items() for part, pool in parts.items() for value in pool
        }

    def part(self, kind: str, value: Any) -> str | None:
        """Where a value belongs; None for one that is in no pool."""
        return self._part.get((kind, value))

    def sizes(self) -> dict[str, dict[str, int]]:
        return {kind: {part: len(pool) for part, pool in parts.items()} for kind, parts in self.values.items()}


async def read_pools(reader: Reader, seed: int) -> Pools:
    """The pools of the graph behind `reader`; the same for the same graph and seed."""
    values, left_out = {}, {}
    shared: frozenset[str] = frozenset()
    for kind, query in TEXTS.items():
        found = await everything(reader, query)
        usable, reasons = fit(kind, [(v, n) for v, n in found if v is not None])
        if kind == "name":
            shared = frozenset(v for v, n in found if n > 1)
        values[kind], left_out[kind] = shuffled(kind, usable, seed), reasons
    for kind, query in OTHERS.items():
        values[kind] = shuffled(kind, [v for v, _ in await everything(reader, query) if v is not None], seed)
    titles = [v for v, _ in await everything(reader, TITLES) if v is not None]
    values["word"] = shuffled("word", words_of(titles), seed)
    tags = [v for pool in values["tag"].values() for v in pool]
    values["prefix"] = shuffled("prefix", sorted({t[:2] for t in tags if re.match("[a-z]{3}", t)}), seed)
    values["count"] = by_residue(COUNTS)
    values["score"] = by_residue(range(_quantile(await everything(reader, SCORES), 0.99) + 1))
    most = _quantile(await everything(reader, REPUTATIONS), 0.99)
    values["reputation"] = by_residue(n * 10**k for k in range(6) for n in range(10, 100) if n * 10**k <= most)
    return Pools(values, shared, left_out)


async def everything(reader: Reader, query: str) -> list[list[Any]]:
    """All rows of a query whose columns are plain names, page by page, in the order of its columns."""
    columns = re.findall(r" AS (\w+)", query)
    rows: list[list[Any]] = []
    while True:
        page = await reader.run(f"{query} ORDER BY {', '.join(columns)} SKIP {len(rows)} LIMIT {PAGE}", PAGE)
        rows += page.rows
        if page.total < PAGE:
            return rows


def fit(kind: str, found: list[tuple[str, int]], longest: int = LONGEST_VALUE) -> tuple[list[str], dict[str, int]]:
    """Values that name one thing and can stand in a question and between a query's quotes as they are; `longest` is in
    characters."""
    usable, reasons = [], Counter[str]()
    for value, n in found:
        if kind == "name" and n > 1:
            reasons["shared by several users"] += 1
        elif not re.fullmatch(r"[ -~]+", value):
            reasons["characters outside of ASCII"] += 1
        elif re.search(r"['\"\\{}]", value) or CLAUSES.search(value) or value != " ".join(value.split()):
            reasons["quotes, brackets, spaces or words of the query language"] += 1
        elif len(value) > longest:
            reasons["too long"] += 1
        else:
            usable.append(value)
    return usable, dict(sorted(reasons.items()))


def words_of(titles: list[str]) -> list[str]:
    """Lower-case words of four letters or more that stand in several titles, but not in so many that they say nothing."""
    seen = Counter(w for t in titles for w in set(re.findall(r"(?<![\w-])[a-z]{4,12}(?![\w-])", t)) - FUNCTION_WORDS)
    return sorted(w for w, n in seen.items() if 3 <= n <= max(3, COMMON * len(titles)))


def shuffled(kind: str, values: list[Any], seed: int) -> dict[str, list[Any]]:
    """65% to train, 10% to dev, the rest held out; each part gets one of three values or more."""
    values = list(values)
    random.Random(f"pool {kind} {seed}").shuffle(values)
    least = 1 if len(values) >= 3 else 0
    dev = max(least, int(len(values) * SHARES["dev"]))
    train = min(max(least, round(len(values) * SHARES["train"])), len(values) - dev - least)
    return {"train": values[:train], "dev": values[train : train + dev], "held_out": values[train + dev :]}


def by_residue(numbers: Iterable[int]) -> dict[str, list[Any]]:
    parts: dict[str, list[Any]] = {part: [] for part in PARTS}
    for n in numbers:
        parts[RESIDUES[int(str(n)[:2]) % 5]].append(n)
    return parts


def _quantile(found: list[list[Any]], share: float) -> int:
    """Nearest rank over (value, how often); 0 where there is nothing."""
    counted = [(v, n) for v, n in found if v is not None]
    left = share * sum(n for _, n in counted)
    for value, n in counted:
        left -= n
        if left <= 0:
            return int(value)
    return 0
