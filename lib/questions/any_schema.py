"""Structures for a graph that nobody wrote questions for: what its schema allows, in the words that its names give.

The study's own structures (structures.py) know the community's graph and how people ask about it. These know only labels,
properties and relationship types, so their wordings are plainer: a relationship is called by the words of its type.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lib.graph.mapping import NAME
from lib.graph.query import Reader
from lib.questions.families import FAMILIES
from lib.questions.pools import COUNTS, Pools, by_residue, everything, fit, shuffled
from lib.questions.signature import signature
from lib.questions.structures import NEW_COMBINATION, NEW_COMPONENT, Structure

MOST = 40  # structures: a small model learns few well
HELD_OUT_SHARE = 0.2
MOST_NUMBERS = 200  # different values of a property that questions compare with
MIDDLE = (0.05, 0.9)  # of a property's values, so that a comparison is true for some and false for others
NAMING = re.compile(r"(?i)(?:.*(?:name|title|label))?")
LONG = re.compile(r"(?i).*(?:text|body|guid|url|hash|about|description|comment)")
LETTER = r"[^\W\d_A-Z]"  # of any script, but for capitals
WORD = re.compile(rf"[A-Z]+(?!{LETTER})|[A-Z]?{LETTER}+|\d+")  # in a name: heightCm has two, HAS_EYE_COLOUR three
SMALL_WORDS = {"has", "is", "of", "in", "by", "to", "on", "for", "with", "at"}


@dataclass(frozen=True)
class Edge:
    """A relationship type between two labels, as it is gone from one of them; `number` is a property to compare."""

    type: str
    start: str
    end: str
    forward: bool
    number: str | None

    def arrow(self, variable: str = "") -> str:
        return f"-[{variable}:{self.type}]->" if self.forward else f"<-[{variable}:{self.type}]-"

    def back(self) -> str:
        return f"<-[:{self.type}]-" if self.forward else f"-[:{self.type}]->"


class Schema:
    """What of a graph's schema can be asked about: labels with a property that names, numbers, and types between them."""

    def __init__(self, schema: dict[str, Any]):
        usable = {label: about for label, about in schema["labels"].items() if NAME.fullmatch(label)}
        found = {label: _naming(about["properties"]) for label, about in usable.items()}
        self.names = {label: name for label, name in found.items() if name is not None}
        self.numbers = {label: _numbers(about["properties"]) for label, about in usable.items()}
        self.others = {label: sorted(set(_short(a["properties"])) - {found[label]}) for label, a in usable.items()}
        self._kinds = slot_kinds(schema)
        self.edges = [
            Edge(
                p["type"], *ends, forward, next(iter(_numbers(schema["relationships"][p["type"]]["properties"])), None)
            )
            for p in schema["patterns"]
            for forward, ends in ((True, (p["start"], p["end"])), (False, (p["end"], p["start"])))
            if NAME.fullmatch(p["type"]) and set(ends) <= set(self.names)
        ]

    def kind(self, label: str, name: str) -> str:
        """The kind of slot for a property of a label or type."""
        return self._kinds[label, name]


def slot_kinds(schema: dict[str, Any]) -> dict[tuple[str, str], str]:
    """A kind for each property: letters alone, as slots are called, and longer where two would be called the same."""
    found: dict[tuple[str, str], str] = {}
    taken = {"", "count"}
    for owner, about in sorted([*schema["labels"].items(), *schema["relationships"].items()], key=lambda item: item[0]):
        for name in sorted(about["properties"]):
            kind = re.sub(r"[^a-z]", "", f"{owner}{name}".lower())
            while kind in taken:
                kind += "x"
            taken.add(kind)
            found[owner, name] = kind
    return found


def structures(schema: dict[str, Any], seed: int) -> tuple[Structure, ...]:
    """At most MOST structures over a graph's schema (schema.json), of each family about as many, no two with the same
    signature; a fifth of the signatures is held out. Equal schemas and seeds give equal structures."""
    of = Schema(schema)
    streams = []
    for family in FAMILIES:
        choices = list(_choices(family, of))
        random.Random(f"structures {family} {seed}").shuffle(choices)
        streams.append((family, iter(choices)))
    chosen: dict[Any, Structure] = {}
    while streams and len(chosen) < MOST:
        for family, stream in list(streams):
            for parts, kinds in stream:
                made = _structure(family, parts, kinds)
                if (key := signature(made.query)) not in chosen:
                    chosen[key] = made
                    break
            else:
                streams.remove((family, stream))
    return _held_out(dict(list(chosen.items())[:MOST]), seed)


def _held_out(chosen: dict[Any, Structure], seed: int) -> tuple[Structure, ...]:
    keys = list(chosen)
    random.Random(f"held out {seed}").shuffle(keys)
    apart = set(keys[: int(len(keys) * HELD_OUT_SHARE)])
    known = frozenset().union(*(key.components() for key in keys if key not in apart))
    return tuple(
        Structure(s.id, s.query, s.wordings, _novelty(key, known) if key in apart else "") for key, s in chosen.items()
    )


def _novelty(key: Any, known: frozenset[Any]) -> str:
    return NEW_COMBINATION if key.components() <= known else NEW_COMPONENT


def _choices(family: str, of: Schema) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What can stand for a family's letters, and the kinds of its slots."""
    query = FAMILIES[family][0]
    if "<R>" not in query and "<L>" not in query:
        for label, name in sorted(of.names.items()):
            for number in of.others[label] if family == "property" else of.numbers[label]:
                yield {"A": label, "N": name, "P": number}, {"a": of.kind(label, name), "p": of.kind(label, number)}
        return
    for edge in of.edges:
        parts, kinds = _hop(edge, of)
        if "<Q>" in query:
            if edge.number and edge.forward:
                yield parts | {"R": edge.arrow("r"), "Q": edge.number}, kinds | {"q": of.kind(edge.type, edge.number)}
        elif "<S>" in query:
            for other in of.edges:
                if other.start == edge.start and (other.type, other.end) > (edge.type, edge.end):
                    more = {
                        "C": other.end,
                        "O": of.names[other.end],
                        "S": other.arrow(),
                        "type S": other.type,
                        "way S": _way(other),
                    }
                    yield parts | more, kinds | {"c": of.kind(other.end, of.names[other.end])}
        elif "<P>" in query:
            for number in of.numbers[edge.start]:
                yield parts | {"P": number}, kinds | {"p": of.kind(edge.start, number)}
        else:
            yield parts, kinds


def _hop(edge: Edge, of: Schema) -> tuple[dict[str, str], dict[str, str]]:
    name, other = of.names[edge.start], of.names[edge.end]
    parts = {"A": edge.start, "N": name, "B": edge.end, "M": other, "R": edge.arrow(), "L": edge.back()}
    return parts | {"type R": edge.type, "way R": _way(edge)}, {
        "a": of.kind(edge.start, name),
        "b": of.kind(edge.end, other),
    }


def _way(edge: Edge) -> str:
    return edge.type if edge.forward else f"{edge.type}_back"


def _structure(family: str, parts: dict[str, str], kinds: dict[str, str]) -> Structure:
    query, wordings = FAMILIES[family]
    slots: dict[str, str] = {"count": "count"}
    for letter, kind in kinds.items():
        if f"{{{letter}}}" not in query:
            continue
        slots[letter] = kind if kind not in slots.values() else f"{kind}2"
    words = {
        "p": parts.get("P", ""),
        "q": parts.get("Q", ""),
        "r": parts.get("type R", ""),
        "s": parts.get("type S", ""),
    }
    words = {letter: spoken(word) for letter, word in words.items()}
    for letter in "ABC":
        words[letter.lower()] = spoken(parts.get(letter, ""))
        words[f"{letter.lower()}s"] = plural(spoken(parts.get(letter, "")))

    def filled(text: str, values: dict[str, str]) -> str:
        text = re.sub(r"\{(\w+)\}", lambda m: f"{{{slots[m[1]]}}}", text)
        text = re.sub(r"<(\w+)>", lambda m: values[m[1]], text)
        return re.sub(r"\ba (?=[aeiou])", "an ", text)

    identity = [parts[k] for k in ("A", "way R", "B", "way S", "C", "P", "Q") if k in parts]
    return Structure(
        "_".join([family.replace(" ", "_"), *identity]), filled(query, parts), tuple(filled(w, words) for w in wordings)
    )


# ---------------------------------------------------------------- names and words


def _naming(properties: dict[str, Any]) -> str | None:
    """The property by which people would call a thing: a text that nearly all have, a name if there is one."""
    texts = [n for n in _short(properties) if properties[n]["type"] == "text" and properties[n]["share"] >= 0.9]
    return next((n for n in texts if NAMING.fullmatch(n)), texts[0] if texts else None)


def _short(properties: dict[str, Any]) -> list[str]:
    """Properties whose values fit into a sentence."""
    kinds = ("text", "integer", "float")
    return [
        n
        for n, p in sorted(properties.items())
        if NAME.fullmatch(n) and p["type"] in kinds and not LONG.fullmatch(n) and not is_id(n)
    ]


def _numbers(properties: dict[str, Any]) -> list[str]:
    return [n for n in _short(properties) if properties[n]["type"] in ("integer", "float")]


def is_id(name: str) -> bool:
    return re.fullmatch(r"id|ID|.*(?:Id|ID|_id)", name) is not None


def spoken(name: str) -> str:
    """A label, property or type in words: heightCm -> height cm, HAS_EYE_COLOUR -> eye colour."""
    words = [w.lower() for w in WORD.findall(name)]
    while len(words) > 1 and words[0] in SMALL_WORDS:
        words = words[1:]
    while len(words) > 1 and words[-1] in SMALL_WORDS:
        words = words[:-1]
    return " ".join(words)


def plural(words: str) -> str:
    if re.search(r"[^aeiou]y$", words):
        return words[:-1] + "ies"
    return words + ("es" if re.search(r"(?:s|x|z|ch|sh|ero)$", words) else "s")


# ---------------------------------------------------------------- values


async def read_pools(reader: Reader, schema: dict[str, Any], seed: int) -> Pools:
    """The values that the structures' slots may take, split so that none serves both training and evaluation."""
    of = Schema(schema)
    values: dict[str, dict[str, list[Any]]] = {"count": by_residue(COUNTS)}
    left_out: dict[str, dict[str, int]] = {}
    for label, name in sorted(of.names.items()):
        kind = of.kind(label, name)
        found = await _values(reader, f"(x:{label})", name)
        single = [(value, n) for value, n in found if n == 1]
        texts, reasons = fit(kind, single)
        shared = {"shared by several": len(found) - len(single)} if len(found) > len(single) else {}
        values[kind], left_out[kind] = shuffled(kind, texts, seed), shared | reasons
    numbers = [(label, f"(x:{label})", n) for label, all_ in sorted(of.numbers.items()) for n in all_]
    numbers += [(e.type, f"()-[x:{e.type}]->()", e.number) for e in of.edges if e.forward and e.number]
    for owner, pattern, name in numbers:
        kind = of.kind(owner, name)
        if kind not in values:
            values[kind] = shuffled(kind, _middle(await _values(reader, pattern, name)), seed)
    return Pools(values, frozenset(), left_out)


async def _values(reader: Reader, pattern: str, name: str) -> list[list[Any]]:
    return await everything(
        reader, f"MATCH {pattern} WHERE x.{name} IS NOT NULL RETURN x.{name} AS value, count(*) AS n"
    )


def _middle(found: list[list[Any]]) -> list[Any]:
    """Values between two quantiles, evenly thinned out."""
    total, seen, kept = sum(n for _, n in found), 0, []
    for value, n in found:
        seen += n
        if MIDDLE[0] * total <= seen <= MIDDLE[1] * total:
            kept.append(value)
    return kept[:: -(-len(kept) // MOST_NUMBERS)] if kept else []
