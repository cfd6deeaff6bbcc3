"""How a graph's labels, properties and relationships are spoken of: plain data where somebody wrote it down, else made from their names.

A file of `words/` fits a graph if it has an entry for each label. Its texts may hold {v} (a value), {a} (the other end:
"a question ..." or a named thing), {s} ("questions ..." or a named thing), {o} and {n} (a named thing only, bare or as it is
mentioned), {x} (what a sentence puts there), [has|have] (what agrees with the noun before it) and {has|have} (with the
other end).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib.questions.any_schema import LONG, NAMING, SMALL_WORDS, WORD, is_id, plural, slot_kinds, spoken
from lib.questions.spec import Hop

FOLDER = Path(__file__).with_name("words")
NUMBERS, DATES = ("integer", "float"), ("date", "datetime")
READABLE = (*NUMBERS, *DATES, "text", "boolean")
ANY = (0.04, 0.96)  # share of nodes with a property that makes it worth asking whether it is there
UNFIT = re.compile(
    r"[`'\"\\{}\x00-\x1f]|, | (?:AND|WHERE|WITH|RETURN|ORDER BY|LIMIT) "
)  # in a name: queries are cut there
# How the names of slots end, by the kind of their filter.
ENDS = {"id": "id", "above": "number", "below": "number", "year": "year", "after": "day", "before": "day",
        "contains": "word", "starts": "prefix"}  # fmt: skip
MOSTLY = 0.2  # share of nodes with a number that may be averaged or ranked


@dataclass(frozen=True)
class Property:
    """A property in words. measure: "a score above 5"; degrees: of it, the most, the least and the more; counted: "more than
    5 views"; text: what it says; event: what happened then, with `base` for "did ... join" where the subject did it; date:
    what the day is called. The lists are whole modifiers that replace the usual ones; `equal` marks a text by which things
    are filtered."""

    measure: str = ""
    degrees: tuple[str, str, str] = ("highest", "lowest", "higher")
    counted: str = ""
    text: str = ""
    event: str = ""
    base: str = ""
    passive: bool = False
    date: str = ""
    be: bool = False
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        return self.measure or self.counted or self.text or self.date


@dataclass(frozen=True)
class Thing:
    """A label in words. name: the property that names its nodes; id: a number that does. asked: what is listed."""

    nouns: tuple[tuple[str, str], ...]
    name: str = ""
    id: str = ""
    person: bool = False
    anchor: bool = True
    mentions: tuple[str, ...] = ("{v}",)
    bare: str = "{v}"
    ids: tuple[str, ...] = ()
    asked: tuple[str, str] = ("name", "names")
    weight: float = 1.0
    properties: dict[str, Property] = field(default_factory=dict)


@dataclass(frozen=True)
class Edge:
    """A relationship in words, gone in one direction. role: what the other end is called as a group, which must tell the
    relationship, too; other: what it is called in any sentence, where its usual noun would say too little."""

    verb: str
    modifiers: tuple[str, ...]
    role: tuple[str, str] | tuple[()] = ()
    did: str = ""
    other: tuple[str, str] | tuple[()] = ()
    some: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    weight: float = 1.0
    properties: dict[str, Property] = field(default_factory=dict)


def edge_name(start: str, hop: Hop) -> str:
    return f"{start}{f'-{hop.type}->' if hop.forward else f'<-{hop.type}-'}{hop.label}"


class Lexicon:
    """Words for a schema (schema.json). left_out: what can't be asked about, and why."""

    def __init__(self, schema: dict[str, Any]):
        self.schema = schema
        self.left_out: dict[str, str] = {}
        declared = next((f for f in _files() if set(schema["labels"]) <= set(f["labels"])), None)
        self.written = declared is not None
        self._kinds = slot_kinds(schema)
        contained = [*schema.get("contained", []), *(declared["contained"] if declared else [])]
        self._contained = [set(pair) for pair in contained]
        self.circles: tuple[str, ...] = tuple(declared["circles"]) if declared else ()
        self.implied = {(one, other) for one, other in declared["implied"]} if declared else set()
        self.things = {
            label: self._thing(label, about["properties"], declared and declared["labels"][label])
            for label, about in schema["labels"].items()
            if self._fits(f"label {label}", label)
        }
        if declared is None:
            self._one_for_each_word()
        self.edges: dict[str, Edge] = {}
        self.hops: dict[str, list[Hop]] = {label: [] for label in self.things}
        for p in schema["patterns"]:
            for start, hop in (
                (p["start"], Hop(p["type"], True, p["end"])),
                (p["end"], Hop(p["type"], False, p["start"])),
            ):
                self._add(start, hop, declared)

    def thing(self, label: str) -> Thing:
        return self.things[label]

    def edge(self, start: str, hop: Hop) -> Edge:
        return self.edges[edge_name(start, hop)]

    def slot_kind(self, owner: str, name: str, kind: str) -> str:
        """What the slot of a filter on a property of a label or type is called: letters only, since a digit tells two slots
        of a kind apart. Its end says how its values are spoken: a text that is called "weekday" is none of the days."""
        letters, end = self._kinds[owner, name], ENDS.get(kind, "")
        return letters + (end or "text" * letters.endswith(tuple(ENDS.values())))

    def overlap(self, label: str, other: str) -> bool:
        """Whether a node may have both labels, one of which contains the other."""
        pair = {label, other}
        return pair in self._contained

    def share(self, label: str, name: str) -> float:
        """Share of a label's nodes that have a property."""
        return float(self.schema["labels"][label]["properties"][name]["share"])

    def numbers(self, label: str) -> list[str]:
        """Properties that can be averaged and ranked."""
        found = self.things[label].properties.items()
        return [n for n, p in found if (p.measure or p.counted) and self.share(label, n) >= MOSTLY]

    def dates(self, label: str) -> list[str]:
        return [
            n
            for n, p in self.things[label].properties.items()
            if p.event and not p.event.startswith("last") and self.share(label, n) >= MOSTLY
        ]

    def _add(self, start: str, hop: Hop, declared: dict[str, Any] | None) -> None:
        name = edge_name(start, hop)
        if not self._fits(f"type {hop.type}", hop.type) or not {start, hop.label} <= set(self.things):
            return
        if name in self.edges:
            return
        properties = self.schema["relationships"][hop.type]["properties"]
        if declared is None:
            about = {n: p for n, p in properties.items() if self._fits(f"{hop.type}.{n}", n)}
            edge = _spoken_edge(start, hop, self.things, _spoken_properties(about, "", hop.type, self.left_out))
            others = [h for h in self.hops[start] if h.label == hop.label and self.edge(start, h).verb == edge.verb]
            if others:
                self.left_out[f"relationship {name}"] = f"called the same as {edge_name(start, others[0])}"
                return
            self.edges[name] = edge
        elif name in declared["edges"]:
            entry = dict(declared["edges"][name])
            known = {n: p for n, p in entry.pop("properties", {}).items() if n in properties}
            self.edges[name] = Edge(**_tuples(entry), properties={n: Property(**_tuples(p)) for n, p in known.items()})
        else:
            self.left_out[f"relationship {name}"] = "no words for it"
            return
        self.hops[start].append(hop)

    def _thing(self, label: str, properties: dict[str, Any], entry: dict[str, Any] | None) -> Thing:
        if entry is not None:
            entry = dict(entry)
            known = {n: Property(**_tuples(p)) for n, p in entry.pop("properties").items() if n in properties}
            for part in ("name", "id"):
                if entry.get(part) not in properties:
                    entry.pop(part, None)
            return Thing(**_tuples(entry), properties=known)
        fit = {n: p for n, p in properties.items() if self._fits(f"{label}.{n}", n)}
        usable = {n: p for n, p in fit.items() if p["type"] in READABLE}
        for n in sorted(set(fit) - set(usable)):
            kind = properties[n]["type"]
            self.left_out[f"{label}.{n}"] = (
                f"values of mixed types ({kind})" if "|" in kind else f"values of type {kind}"
            )
        texts = [
            n for n, p in sorted(usable.items()) if p["type"] == "text" and p["share"] >= 0.9 and not LONG.fullmatch(n)
        ]
        name = next((n for n in texts if NAMING.fullmatch(n)), texts[0] if texts else "")
        key = next(
            (n for n, p in sorted(usable.items()) if is_id(n) and p["type"] == "integer" and p["share"] == 1), ""
        )
        if not name:
            self.left_out[f"label {label}"] = "no name: it is counted, never listed" + (" or named" if not key else "")
        one = spoken(label) or "thing"
        return Thing(
            nouns=((one, plural(one)),),
            name=name,
            id=key,
            mentions=(f"the {one} {{v}}", f"the {one} called {{v}}"),
            ids=(f"the {one} with ID {{v}}", f"{one} number {{v}}"),
            asked=(spoken(name) or "name", plural(spoken(name) or "name")),
            properties=_spoken_properties(usable, name, label, self.left_out),
        )

    def _fits(self, what: str, name: str) -> bool:
        """Whether a name can stand in a query that is cut at its clauses; else it is left out."""
        unfit = UNFIT.search(name) is not None
        if unfit:
            self.left_out[what] = "a name with signs or words of the query language"
        return not unfit

    def _one_for_each_word(self) -> None:
        """Leave out labels that are called the same as another: nobody could tell which is meant."""
        called: dict[str, str] = {}
        for label in sorted(self.things):
            word = self.things[label].nouns[0][0]
            if word in called:
                self.left_out[f"label {label}"] = f"called the same as {called[word]}"
                del self.things[label]
            called.setdefault(word, label)


@cache
def _files() -> tuple[dict[str, Any], ...]:
    return tuple(
        yaml.safe_load(file.read_text(encoding="utf-8"))
        for file in sorted(FOLDER.glob("*.yaml"))
        if file.stem != "forms"
    )


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        k: tuple(tuple(x) if isinstance(x, list) else x for x in v) if isinstance(v, list) else v
        for k, v in entry.items()
    }


def _spoken_properties(
    properties: dict[str, Any], name: str, owner: str, left_out: dict[str, str]
) -> dict[str, Property]:
    """Words made from the properties' own names; what is called the same as another is left out."""
    found: dict[str, Property] = {}
    called = {spoken(name): name}
    for n, p in sorted(properties.items()):
        words, kind = " ".join(WORD.findall(n)).lower(), p["type"]  # all of them: "on call" is no call
        if is_id(n) or not words:
            continue
        if words in called and n != name:
            left_out[f"{owner}.{n}"] = f"called the same as {called[words]}"
            continue
        called[words] = n
        maybe: dict[str, Any] = {}
        if ANY[0] <= p["share"] <= ANY[1]:
            maybe = {
                "present": (f"whose {words} is known", f"with a known {words}"),
                "missing": (f"whose {words} is unknown", f"with an unknown {words}"),
            }
        if kind in NUMBERS:
            several = re.search(r"[^s]s$", words) is not None
            found[n] = Property(counted=words, **maybe) if several else Property(measure=words, **maybe)
        elif kind in DATES and re.fullmatch(r"\w+ed|born", words):
            found[n] = Property(event=words, passive=True, date=f"date {words}", **maybe)
        elif kind in DATES:
            found[n] = Property(date=words, **maybe)
        elif kind == "text" and LONG.fullmatch(n):
            found[n] = Property(contains=(f'whose {words} contains "{{v}}"', f'with "{{v}}" in the {words}'), **maybe)
        elif kind == "text" and n != name:
            found[n] = Property(text=words, equal=(f"with the {words} {{v}}", f"whose {words} is {{v}}"), **maybe)
        elif kind == "text":
            found[n] = Property(
                starts=(f'whose {words} starts with "{{v}}"', f'with {_a(words)} {words} starting with "{{v}}"')
            )
        elif maybe:
            found[n] = Property(**maybe)
    return found


def _spoken_edge(start: str, hop: Hop, things: dict[str, Thing], properties: dict[str, Property]) -> Edge:
    """Words made from a type's own name: HAS_EYE_COLOUR, PUBLISHED_BY, ACTED_IN."""
    words = [w.lower() for w in WORD.findall(hop.type)] or ["linked"]
    whole, end, begin = " ".join(words), things[hop.label].nouns[0], things[start].nouns[0]
    if re.search(r"(?:ed|en|es|[^s]s)$", words[0]) and words[0] not in ("has", "is"):  # a verb: ACTED_IN, WORKS_FOR
        if words[-1] == "by":
            done = " ".join(words[:-1])
            if hop.forward:
                return Edge(
                    f"[was|were] {whole} {{x}}",
                    (f"{whole} {{a}}", f"that [was|were] {whole} {{a}}"),
                    end,
                    properties=properties,
                )
            return Edge(f"{done} {{x}}", (f"that {done} {{a}}", f"having {done} {{a}}"), end, properties=properties)
        rest = " ".join(words[1:])
        one, many = (
            (words[0], re.sub(r"(?<=ch|sh|ss)es$|s$", "", words[0])) if words[0].endswith("s") else (words[0],) * 2
        )
        if hop.forward:
            whole = f"[{one}|{many}] {rest}".rstrip()
            return Edge(f"{whole} {{x}}", (f"that {whole} {{a}}",), end, properties=properties)
        verb = f"[has|have] {{x}} that {many} {rest}".rstrip() + " [it|them]"
        whole = f"{{{one}|{many}}} {rest}".rstrip()
        return Edge(verb, (f"that {{a}} {whole}", f"which {{a}} {whole}"), end, properties=properties)
    thing = spoken(hop.type)
    role = (thing, plural(thing)) if thing not in SMALL_WORDS else end
    link = "" if role[0] == end[0] else f" as {role[0]}"
    if hop.forward:
        return Edge(
            f"[has|have] {{x}}{link}",
            (f"with {{a}}{link}", f"that [has|have] {{a}}{link}"),
            role,
            some=(f"with {_a(role[0])} {role[0]}", f"that [has|have] {_a(role[0])} {role[0]}"),
            none=(f"without {_a(role[0])} {role[0]}", f"that [has|have] no {role[0]}"),
            properties=properties,
        )
    mine = f"{_a(role[0])} {role[0]}" if link else f"{_a(begin[0])} {begin[0]}"
    return Edge(
        f"[serves|serve] {{x}}{link}",
        (f"that {{s}} {{has|have}}{link}", f"that [is|are] {mine} of {{a}}"),
        end,
        properties=properties,
    )


def _a(word: str) -> str:
    return "an" if re.match(r"(?i)[aeio]|u(?!s[aeu]|ni|rl)", word) else "a"
