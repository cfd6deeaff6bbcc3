"""Puts a spec into words, in many sentence forms; what each part is called stands in the lexicon, and every slot is said."""

from __future__ import annotations

import datetime
import random
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import yaml

from lib.questions.lexicon import FOLDER, Edge, Lexicon, Property, Thing
from lib.questions.spec import UNSLOTTED, Exists, Filter, Hop, Spec, query
from lib.questions.structures import SLOT

WORDINGS = 12  # of a structure, no two with the same skeleton
LEAST = 8  # of these, or the structure isn't asked at all
TRIES = 14  # draws of a sentence form before it is given up
N = 8  # words in a row that a test's wording shouldn't share with a training one, where it can be helped
BRACKET = re.compile(r"<(\w+)(?::([^>]*))?>")
OTHERS = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")
AGREEING = re.compile(r"\[([^|\]]*)\|([^|\]]*)\]")
COMPARED = re.compile("older|younger|taller|shorter|heavier|lighter|known")
PARTICIPLE = re.compile(rf"(?:last )?(?:\w+ed|written|given|held|cast|made|put|seen|used|active)\b|{COMPARED.pattern}")
FINITE = re.compile(
    r"(?:who|that) (?!nobody|someone|another|no other|the |a |an |\{)(?:[\w']+)"
)  # followed by what the thing itself does
RELATIVE = re.compile(r"who |that |whose |for which |to which |of which |which ")
INNER = re.compile(r"\b(?:that|who|whose|with)\b")  # opens a part of a part, to which what follows might belong
ALIKE = (
    "posted asked created made left wrote cast given contributed",
    "got received",
    "edited",
    "links linked linking",
)
EARLY, LATE = ["first", "earliest"], ["last", "latest", "most recent"]
BE = re.compile(
    rf"(?:from|about|aged|based|located|published|tagged|used|not|linked|described|owned|held|rated|{COMPARED.pattern})\b"
)
AGGREGATES = {
    "avg": "the average {m}", "sum": "the total {m}", "max": "the {most} {m}", "min": "the {least} {m}",
    "gap": "the difference between the {most} and the {least} {m}", "avg per": "the average {m}",
}  # fmt: skip
SHAPES = {"avg": "aggregate", "sum": "aggregate", "max": "aggregate", "min": "aggregate", "gap": "aggregate",
          "first": "when", "last": "when", "worst": "best"}  # fmt: skip


class Unsayable(ValueError):
    """A part of a form can't be said of this spec."""


@cache
def forms() -> dict[str, list[str]]:
    found: dict[str, list[str]] = yaml.safe_load((FOLDER / "forms.yaml").read_text(encoding="utf-8"))
    return found


def wordings(spec: Spec, lexicon: Lexicon, seed: int) -> tuple[str, ...]:
    """At most WORDINGS sentences with the query's slots, of different skeletons; the last quarter, kept from training,
    shares as few runs of words with the others as can be. Fewer than LEAST mean that the spec has no natural sentence."""
    rng = random.Random(f"wordings {spec.id} {seed}")
    frames = list(forms()[SHAPES.get(spec.form, spec.form)])
    rng.shuffle(frames)
    found: list[str] = []
    seen: set[str] = set()
    runs: set[tuple[str, ...]] = set()
    for clear in (True, True, False):  # a spec that can't be said clearly often enough is said as well as it can be
        for frame in frames:
            if len(found) == WORDINGS or (not clear and len(found) >= LEAST):
                return tuple(found)
            late = len(found) >= WORDINGS - WORDINGS // 3
            if text := _draw(frame, spec, lexicon, rng, seen, runs if late else None, clear):
                found.append(text)
                seen.add(skeleton(text))
                if not late:
                    runs |= _runs(text)
    return tuple(found)


def _draw(
    frame: str,
    spec: Spec,
    lexicon: Lexicon,
    rng: random.Random,
    seen: set[str],
    runs: set[tuple[str, ...]] | None,
    clear: bool,
) -> str | None:
    """A new sentence of a form; where `runs` are to be avoided, the one with the fewest of them."""
    options: list[tuple[int, int, str]] = []
    slots = asked(spec)
    for _ in range(TRIES):
        try:
            text = _Writer(spec, lexicon, rng, clear).sentence(frame)
        except Unsayable:
            continue
        if skeleton(text) in seen or not says(text, slots):
            continue
        if runs is None:
            return text
        options.append((len(_runs(text) & runs), len(options), text))
    return min(options)[2] if options else None


def skeleton(text: str) -> str:
    """The words without the slots."""
    return " ".join(SLOT.sub(" ", text).split())


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\{\w+\}|[\w']+", text.lower())
    return {tuple(words[i : i + N]) for i in range(len(words) - N + 1)}


@cache
def asked(spec: Spec) -> tuple[str, ...]:
    """The slots of a spec's query, in order."""
    return tuple(sorted({m[1] for m in SLOT.finditer(query(spec))}))


def says(text: str, slots: tuple[str, ...]) -> bool:
    """Whether the words have these slots, each once, and no number beside them."""
    said = sorted(m[1] for m in SLOT.finditer(text))
    return said == list(slots) and not re.search(r"\d", SLOT.sub("", text)) and "<" not in text


def spoken_value(kind: str, value: Any) -> str:
    """A slot's value as a person writes it: 12,500 and March 5, 2012, but 2012 for a year and 104301 for an id."""
    if isinstance(value, int | float) and not kind.endswith(("year", "id")):
        return f"{value:,}"
    if kind.endswith("day"):
        day = datetime.date.fromisoformat(str(value)[:10])
        return f"{day:%B} {day.day}, {day.year}"
    return str(value)


def fill_words(text: str, slots: dict[str, dict[str, Any]]) -> str:
    """A wording with its values."""
    return SLOT.sub(lambda m: spoken_value(slots[m[1]]["kind"], slots[m[1]]["value"]) if m[1] in slots else m[0], text)


@dataclass
class _Writer:
    """One sentence: the choices made for it hold for all of it. clear: raise Unsayable where a part might be another's."""

    spec: Spec
    lexicon: Lexicon
    rng: random.Random
    clear: bool

    def __post_init__(self) -> None:
        self.verbs: set[str] = set()
        self.noun_of = {
            label: self.rng.choice(self.lexicon.thing(label).nouns) for label in dict.fromkeys(self.spec.labels)
        }

    # ------------------------------------------------------------ sentences
    def sentence(self, frame: str) -> str:
        if "<plain>" in frame:
            if self._modifying(self.spec.subject, -1) > 1 or not self._short():
                raise Unsayable
            frame = frame.replace("<plain>", "")
        if "<gplain>" in frame or "<gsaid>" in frame:  # "which users who ... posted ...": a long way to the verb
            if ("<gsaid>" in frame) != bool(self._near(self.spec.group, self.spec.subject)):
                raise Unsayable
            frame = frame.replace("<gplain>", "").replace("<gsaid>", "")
        text = BRACKET.sub(lambda m: self.part(m[1], m[2] or ""), frame)
        return text if text[0] == "{" else text[0].upper() + text[1:]

    def part(self, name: str, detail: str) -> str:
        if name[0].isupper():
            text = self.part(name.lower(), detail)
            return text[0].upper() + text[1:]
        found = getattr(self, f"_say_{name}", None)
        if found is None:
            raise ValueError(f"forms.yaml has <{name}>, which lib/questions/wording.py doesn't know")
        said = found(detail) if detail else found()
        return str(said)

    def _say_nps(self) -> str:
        return self.np(self.spec.subject, self._group_only(), True)

    def _say_np1(self) -> str:
        return self.np(self.spec.subject, self._group_only(), False)

    def _say_clause(self) -> str:
        return self.clause(self.spec.subject, self._group_only(), True)

    def _say_who(self) -> str:
        if not self.subject.person:
            raise Unsayable
        mods = self.modifiers(self.spec.subject, -1, False)
        if len(mods) != 1 or (text := _finite(mods[0], False)) is None:
            raise Unsayable
        return text

    def _say_did(self) -> str:
        """users -> "questions tagged x did Ann ask": the thing, what else is said of it, and who did it."""
        at = self.spec.subject
        for near in self._near(at, -1):
            edge, who = self._edge(at, near), self.mention(near, at)
            if edge.did and who and self.rng.random() < 0.8:
                noun = self.noun_of[self.spec.labels[at]][1]
                rest = list(self.modifiers(at, near, True))
                if len(rest) > 1 or self._filters_on_hop(at, near):
                    raise Unsayable
                return " ".join([noun, *rest, edge.did.replace("{x}", who)])
        raise Unsayable

    def _say_names(self) -> str:
        return self.subject.asked[1]

    def _say_name(self) -> str:
        return self.subject.asked[0]

    def _say_noun(self) -> str:
        return self.noun_of[self.spec.labels[self.spec.subject]][0]

    def _say_nouns(self) -> str:
        return self.noun_of[self.spec.labels[self.spec.subject]][1]

    def _say_the(self) -> str:
        return self.mention(self.spec.subject, -1) or f"the {self.np(self.spec.subject, -1, False)}"

    def _say_pron(self) -> str:
        return "who" if self.subject.person else "that"

    # ------------------------------------------------------------ measures
    def _say_quantity(self) -> str:
        return f"the {self._say_quantity0()}"

    def _say_quantity0(self) -> str:
        about = self.about
        return f"number of {about.counted}" if about.counted else about.noun

    def _say_howmuch(self) -> str:
        if self.about.counted:
            return f"How many {self.about.counted}"
        if self.about.measure:
            return f"What {self.about.measure}"
        raise Unsayable

    def _say_agg(self) -> str:
        most, least, _ = self.about.degrees
        return AGGREGATES[self.spec.form].format(m=self._say_quantity0(), most=most, least=least)

    def _say_high(self) -> str:
        if self.about.counted:
            return f"the {'fewest' if self.spec.form == 'worst' else 'most'} {self.about.counted}"
        return f"the {self.about.degrees[self.spec.form == 'worst']} {self.about.measure}"

    def _say_higher(self) -> str:
        return (
            f"more {self.about.counted}" if self.about.counted else f"the {self.about.degrees[2]} {self.about.measure}"
        )

    def _say_by(self) -> str:
        return f"by {self._say_quantity0()}"

    def _say_order(self) -> str:
        if self.about.counted:
            return f"from the most to the fewest {self.about.counted}"
        most, least, _ = self.about.degrees
        return f"from the {most} to the {least} {self.about.measure}"

    def _say_most(self) -> str:
        return self.about.degrees[0]

    # ------------------------------------------------------------ times
    def _say_earliest(self) -> str:
        return "earliest" if self.spec.form == "first" else "latest"

    def _say_date(self) -> str:
        return self.about.date

    def _ordinal(self) -> str:
        first, last = (["first"], ["last", "most recent"]) if self.subject.person else (EARLY, LATE)
        return self.rng.choice(first if self.spec.form == "first" else last)

    def _say_when(self) -> str:
        return self._inverted(self._firstone())

    def _say_whenone(self) -> str:
        return self._inverted(f"the {self._ordinal()} one")

    def _inverted(self, what: str) -> str:
        return f"was {what} {self.about.event}" if self.about.passive else f"did {what} {self.about.base}"

    def _say_whenplain(self) -> str:
        return f"{self._firstone()} {'was ' if self.about.passive else ''}{self.about.event}"

    def _firstone(self) -> str:
        if self._modifying(self.spec.subject, -1) > 1 or not self._short():  # "when the first one that ... was posted"
            raise Unsayable
        return f"the {self._ordinal()} {self._say_np1()}"

    # ------------------------------------------------------------ groups
    def _say_g(self) -> str:
        return self.np(self.spec.group, self.spec.subject, False)

    def _say_gs(self) -> str:
        return self.np(self.spec.group, self.spec.subject, True)

    def _say_gpron(self) -> str:
        return "who" if self.grouping.person else "that"

    def _say_gname(self) -> str:
        return self.grouping.asked[0]

    def _say_gnames(self) -> str:
        return self.grouping.asked[1]

    def _say_role(self) -> str:
        edge = self._edge(self.spec.subject, self.spec.group)
        return (edge.role or self.noun_of[self.spec.labels[self.spec.group]])[0]

    def _say_verb(self, how: str) -> str:
        return self._does(how, True)

    def _say_verb1(self, how: str) -> str:
        return self._does(how, False)

    def _does(self, how: str, many: bool) -> str:
        """What the group does with "the most" or "more than so many" of the subjects."""
        edge = self._edge(self.spec.group, self.spec.subject)
        self.verbs |= _verbs(edge.verb)
        what = self.np(self.spec.subject, self.spec.group, True)
        return agreed(edge.verb, many).replace("{x}", f"{how} {what}")

    # ------------------------------------------------------------ comparisons and shares
    def _say_a(self) -> str:
        return self._compared("")

    def _say_b(self) -> str:
        return self._compared("2")

    def _compared(self, digit: str) -> str:
        f = next(f for f in self.spec.filters if f.kind == "either")
        thing = self.lexicon.thing(self.spec.labels[f.at])
        self.compared: str = getattr(self, "compared", None) or self.rng.choice(thing.mentions)
        return self.compared.replace("{v}", f"{{{f.slot}{digit}}}")

    def _say_cond(self) -> str:
        whole = self.spec.whole
        assert whole is not None
        options = self._existing(whole) if isinstance(whole, Exists) else self._filtering(whole, self.subject, True)
        said = [text for o in options if (text := _finite(agreed(o, True), True))]
        if not said:
            raise Unsayable
        return self.rng.choice(said)

    # ------------------------------------------------------------ things
    @property
    def subject(self) -> Thing:
        return self.lexicon.thing(self.spec.labels[self.spec.subject])

    @property
    def grouping(self) -> Thing:
        return self.lexicon.thing(self.spec.labels[self.spec.group])

    @property
    def about(self) -> Property:
        return self.subject.properties[self.spec.measure]

    def _group_only(self) -> int:
        """The neighbour that a sentence names by itself."""
        return self.spec.group if self.spec.group >= 0 else -1

    def np(self, at: int, came: int, many: bool, closed: bool = False) -> str:
        """A node and all that is said of it, but for what lies towards node `came`; no article. closed: more is to be said
        behind it of the node before, which an open clause would draw to itself."""
        return " ".join([self._noun(at, came, many), *self._joined(at, came, many, closed)])

    def _joined(self, at: int, came: int, many: bool, closed: bool = False) -> list[str]:
        person = self.lexicon.thing(self.spec.labels[at]).person
        parts = _joined(self.modifiers(at, came, many, closed), person, many)
        if self.clear and _mixed(parts):
            raise Unsayable
        return _listed(parts)

    def _noun(self, at: int, came: int, many: bool) -> str:
        other = self._edge(came, at).other if came >= 0 else ()
        return (other or self.noun_of[self.spec.labels[at]])[many]

    def clause(self, at: int, came: int, many: bool) -> str:
        """The same as a sentence without its question word: "questions tagged x have a score above y"."""
        noun, mods = self._noun(at, came, many), self._joined(at, came, many)
        if not mods or (said := _finite(mods[-1], many)) is None or any(m.startswith(("and ", "whose")) for m in mods):
            raise Unsayable
        if any(re.match(r"who |that ", m) for m in mods[:-1]):
            raise Unsayable
        return " ".join([noun, *mods[:-1], said])

    def mention(self, at: int, came: int) -> str | None:
        """How a named thing is called, if nothing else is said of it."""
        f = self._pinned(at, came)
        if f is None:
            return None
        thing = self.lexicon.thing(self.spec.labels[at])
        return self.rng.choice(thing.ids if f.kind == "id" else thing.mentions).replace("{v}", f"{{{f.slot}}}")

    def _pinned(self, at: int, came: int) -> Filter | None:
        thing = self.lexicon.thing(self.spec.labels[at])
        said = [f for f in self.spec.filters if f.at == at and not f.edge]
        more = bool(self._near(at, came)) or any(e.at == at for e in self.spec.exists)
        names = {("is", thing.name), ("id", thing.id)}
        return said[0] if len(said) == 1 and not more and (said[0].kind, said[0].property) in names else None

    def modifiers(self, at: int, came: int, many: bool, closed: bool = False) -> list[str]:
        """What is said behind a noun, in the order in which it reads best."""
        thing = self.lexicon.thing(self.spec.labels[at])
        filters = [f for f in self.spec.filters if f.at == at and not f.edge and f.kind != "either"]
        exists = [e for e in self.spec.exists if e.at == at]
        near = self._near(at, came)
        options = [self._filtering(f, thing, many) for f in filters] + [self._existing(e) for e in exists]
        if len(options) + len(near) > 1:  # "with a comment posted by ...": what is posted?
            having = [f.kind in UNSLOTTED for f in filters] + [True] * len(exists)
            options = [_relative(o) if has else o for o, has in zip(options, having, strict=True)]
        if came >= 0:  # "with accepted answers with a score above 5": whose score?
            unfit = RELATIVE.match if closed else re.compile("with|(?:that|who) (?:was|were|\\[was) ").match
            options = [[o for o in each if not unfit(o)] or each for each in options]
        simple = [self._chosen(o, many) for o in options]
        crowded = len(near) > 1 or self._said(at)
        near.sort(key=lambda n: self._depth(n, at))
        branches = [(self._depth(n, at), self._branch(at, n, many, crowded, closed or n != near[-1])) for n in near]
        return _ordered(simple, branches, thing.person, many)

    def _modifying(self, at: int, came: int) -> int:
        """How many things are said of a node."""
        filters = sum(f.at == at and not f.edge for f in self.spec.filters)
        return filters + sum(e.at == at for e in self.spec.exists) + len(self._near(at, came))

    def _short(self) -> bool:
        """Whether all that the path leads to is named at once."""
        at = self.spec.subject
        return all(self._pinned(n, at) for n in self._near(at, -1))

    def _near(self, at: int, came: int) -> list[int]:
        """Neighbours on the path, but for the one that the sentence came from."""
        return [n for n in (at - 1, at + 1) if 0 <= n < len(self.spec.labels) and n != came]

    def _depth(self, at: int, came: int) -> int:
        beyond = self._near(at, came)
        extra = sum(f.at == at for f in self.spec.filters) if self._pinned(at, came) is None else 0
        return extra + 1 + sum(self._depth(n, at) for n in beyond)

    def _edge(self, at: int, to: int) -> Edge:
        return self.lexicon.edge(self.spec.labels[at], _hop(self.spec, at, to))

    def _branch(self, at: int, to: int, many: bool, crowded: bool, closed: bool) -> str:
        """What ties a node to the next: "asked by users from Rome"."""
        edge, step = self._edge(at, to), to - at
        if self._returns(at, to):
            if not edge.same:
                raise Unsayable
            same = _relative(list(edge.same)) if crowded else edge.same
            return self._chosen(list(same), many).replace(
                "{a}", self.mention(to + step, to) or self._a(to + step, to, closed)
            )
        pinned = self._pinned(to, at)
        options = [m for m in edge.modifiers if pinned or not re.search(r"\{[on]\}", m)]
        if pinned and edge.other:  # a name alone would lose what the other end is
            options = [m for m in options if "{n}" in m]
        if to in self.spec.sole:
            options = [m for m in options if "{s}" not in m or pinned]
        if pinned and pinned.kind == "id":
            options = [m for m in options if "{o}" not in m]
        if on_hop := self._filters_on_hop(at, to):  # "earned in 2012", not "holding ... in 2012"
            events = [self._on_hop(at, to, f).event for f in on_hop]
            options = [m for m in options if all(e in m for e in events)] or options
        if at != self.spec.subject:  # "comments on an answer by Ann": who wrote what?
            options = [m for m in options if not m.startswith("by ")]
            if not closed:  # "with an accepted answer with a comment by Ann": what is with the comment?
                options = [m for m in options if not m.startswith("with")] or options
        if crowded:
            options = [m for m in options if RELATIVE.match(m) or PARTICIPLE.match(m)] or options
        text = self._chosen(options, many)
        several = not pinned and (
            "{s}" in text or (many and to not in self.spec.sole and not self._said(at) and self.rng.random() < 0.6)
        )
        text = OTHERS.sub(lambda m: m[2] if several else m[1], text)
        thing = self.lexicon.thing(self.spec.labels[to])
        if "{o}" in text and pinned:
            text = text.replace("{o}", thing.bare.replace("{v}", f"{{{pinned.slot}}}"))
        elif "{s}" in text:
            text = text.replace("{s}", self.mention(to, at) or self.np(to, at, True, closed))
        elif "{a}" in text:
            one = self.mention(to, at) or (self.np(to, at, True, closed) if several else self._a(to, at, closed))
            text = text.replace("{a}", one)
        else:
            text = text.replace("{n}", self.mention(to, at) or "")
        for f in on_hop:
            text += f" {self._chosen(_on_edge(f, self._on_hop(at, to, f)), many)}"
        return text

    def _said(self, at: int) -> bool:
        """Whether a node has conditions of its own, which only its number tells from those of the next."""
        return any(f.at == at and not f.edge for f in self.spec.filters) or any(e.at == at for e in self.spec.exists)

    def _returns(self, at: int, to: int) -> bool:
        """Whether the path goes on from `to`, of which nothing is said, back over the same type to another of the kind."""
        beyond = to + to - at
        if not 0 <= beyond < len(self.spec.labels):
            return False
        there, back = _hop(self.spec, at, to), _hop(self.spec, to, beyond)
        return there.type == back.type and there.forward != back.forward and back.label == self.spec.labels[at]

    def _a(self, at: int, came: int, closed: bool) -> str:
        text = self.np(at, came, False, closed)
        return f"{article(text)} {text}"

    def _on_hop(self, at: int, to: int, f: Filter) -> Property:
        return self.lexicon.edge(self.spec.labels[min(at, to)], self.spec.hops[f.at]).properties[f.property]

    def _filters_on_hop(self, at: int, to: int) -> list[Filter]:
        return [f for f in self.spec.filters if f.edge and f.at == min(at, to)]

    def _chosen(self, options: list[str], many: bool) -> str:
        """One of those that repeat the fewest verbs of the sentence."""
        if not options:
            raise Unsayable
        repeated = [_repeated(_verbs(o), self.verbs) for o in options]
        text = self.rng.choice([o for o, n in zip(options, repeated, strict=True) if n == min(repeated)])
        self.verbs |= _verbs(text)
        return agreed(text, many)

    def _existing(self, e: Exists) -> list[str]:
        edge = self.lexicon.edge(self.spec.labels[e.at], e.hop)
        return list(edge.none if e.negated else edge.some)

    def _filtering(self, f: Filter, thing: Thing, many: bool) -> list[str]:
        about, pron = thing.properties.get(f.property, Property()), "who" if thing.person else "that"
        if f.property in (thing.name, thing.id) and f.kind in ("is", "id"):
            known = "the ID" if f.kind == "id" else f"the {thing.asked[0]}"
            options = [f"with {known} {{v}}"]
        else:
            options = filter_phrases(f, about, pron)
        return [o.replace("{v}", f"{{{f.slot}}}") for o in options]


def filter_phrases(f: Filter, about: Property, pron: str) -> list[str]:
    """Ways to say a filter behind a noun, with {v} for its value."""
    if f.kind in ("is", "contains", "starts", "present", "missing"):
        return list({"is": about.equal, "contains": about.contains, "starts": about.starts,
                     "present": about.present, "missing": about.missing}[f.kind])  # fmt: skip
    if f.kind in ("above", "below"):
        if special := (about.above if f.kind == "above" else about.below):
            return list(special)
        more = ("more", "over", "above") if f.kind == "above" else ("fewer", "under", "below")
        if about.counted:
            n = about.counted
            return [
                f"with {more[0]} than {{v}} {n}",
                f"{pron} [has|have] {more[0]} than {{v}} {n}",
                f"with {more[1]} {{v}} {n}",
            ]
        n, one = about.measure, article(about.measure)
        return [f"with {one} {n} {more[2]} {{v}}", f"whose {n} is {more[2]} {{v}}", f"with {one} {n} {more[1]} {{v}}"]
    times = {"year": ("in", "during"), "after": ("after",), "before": ("before",)}[f.kind]
    if not about.event:
        one = f"{article(about.date)} {about.date}"
        return [f"with {one} {when} {{v}}" for when in times] + [f"whose {about.date} is {times[0]} {{v}}"]
    if about.passive:
        said = [f"{about.event} {when} {{v}}" for when in times]
        return [*said, f"{pron} [was|were] {about.event} {times[0]} {{v}}"]
    return [f"{pron} {about.event} {when} {{v}}" for when in times]


def _on_edge(f: Filter, about: Property) -> list[str]:
    v = f"{{{f.slot}}}"
    if f.kind in ("above", "below") and (special := about.above if f.kind == "above" else about.below):
        return [o.replace("{v}", v) for o in special]
    if f.kind in ("above", "below") and about.measure:
        return [f"with {article(about.measure)} {about.measure} {f.kind} {v}"]
    if f.kind not in ("year", "after", "before"):
        return [o.replace("{v}", v) for o in filter_phrases(f, about, "that") if o.startswith("with")]
    when = {"year": ("in", "during"), "after": ("after",), "before": ("before",)}[f.kind]
    return (
        [f"{w} {v}" for w in when]
        if about.event
        else [f"with {article(about.date)} {about.date} {w} {v}" for w in when]
    )


def _hop(spec: Spec, at: int, to: int) -> Hop:
    """The hop from node `at` to its neighbour, as it is gone from there."""
    if to > at:
        return spec.hops[at]
    hop = spec.hops[to]
    return Hop(hop.type, not hop.forward, spec.labels[to])


def agreed(text: str, many: bool) -> str:
    return AGREEING.sub(lambda m: m[2] if many else m[1], text)


def _ordered(simple: list[str], branches: list[tuple[int, str]], person: bool, many: bool) -> list[str]:
    """Short before long, and what begins with who, that or whose last, unless a long part would come between. Names come
    behind the other short parts: "asked by Ann with more than 5 views" would speak of Ann's."""
    relative = RELATIVE
    plain = [s for s in simple if not relative.match(s)]
    said = [s for s in simple if relative.match(s)]
    named = [b for depth, b in branches if depth == 1 and not relative.match(b)]
    long = [b for depth, b in branches if b not in named]
    plain.sort(key=lambda s: s.startswith("with"))
    if (said or len(long) > 1) and any(not relative.match(b) for b in long):
        long = [_clause(b, person, many) if PARTICIPLE.match(b) else b for b in long]
        if any(not relative.match(b) for b in long):  # "to a question ...": nothing may come between it and its noun
            return [
                *plain,
                *named,
                *[b for b in long if not relative.match(b)],
                *said,
                *[b for b in long if relative.match(b)],
            ]
    lasting = [b for b in long if relative.match(b)]
    return [*plain, *named, *[b for b in long if b not in lasting], *said, *lasting]


def _relative(options: list[str]) -> list[str]:
    """Those that can't be taken for part of another's, if there are any."""
    return [o for o in options if RELATIVE.match(o)] or options


def _clause(participle: str, person: bool, many: bool) -> str:
    """ "used on x" -> "that are used on x", "posted by x" -> "that were posted by x"."""
    being = ("is", "are") if BE.match(participle) else ("was", "were")
    return f"{'who' if person else 'that'} {being[many]} {participle}"


def _joined(mods: list[str], person: bool, many: bool) -> list[str]:
    """The same with "and" between clauses; a participle behind "with" gets its own "that were", or it would be the score's."""
    out: list[str] = []
    for m in mods:
        before = out[-1].removeprefix("and ") if out else ""
        clauses = RELATIVE.match(m) and RELATIVE.match(before)
        if PARTICIPLE.match(m) and before.startswith("with"):
            m = _clause(m, person, many)
        both = PARTICIPLE.match(m) and PARTICIPLE.match(re.sub(r"^(?:that|who) (?:was|were|is|are) ", "", before))
        if clauses or both or (m.startswith("with") and before.startswith("with")):
            m = f"and {m}"
        out.append(m)
    return out


def _mixed(parts: list[str]) -> bool:
    """Whether what an "and" adds might belong to a thing within the part before: "with answers that were edited and that
    have tags". "who" tells people from things."""
    for before, part in pairwise(parts):
        said, inner = part.removeprefix("and "), set(INNER.findall(before.split(" ", 2)[-1]))
        if part == said and not RELATIVE.match(part):
            continue
        unlike = {"who", "with"} if said.startswith("that ") else {"that", "with"} if said.startswith("who ") else set()
        if inner - unlike:
            return True
    return False


def _listed(parts: list[str]) -> list[str]:
    """Three and more with commas: "that a, that b, and that c"."""
    out = list(parts)
    for i in range(2, len(parts)):
        if parts[i].startswith("and ") and parts[i - 1].startswith("and "):
            out[i - 2] = f"{out[i - 2].removesuffix(',')},"
            out[i - 1] = f"{parts[i - 1].removeprefix('and ')},"
    return out


def _verbs(text: str) -> set[str]:
    """The words of a phrase that sound bad twice in a sentence."""
    return set(re.findall(rf"\b(?:{'|'.join(ALIKE).replace(' ', '|')})\b", text.replace("written", "wrote")))


def _repeated(new: set[str], said: set[str]) -> int:
    """How much the verbs of a phrase repeat what is said: the same word counts more than one of its kind."""
    kinds = [set(words.split()) for words in ALIKE]
    return 2 * len(new & said) + sum(bool(new & kind and said & kind) for kind in kinds)


def _finite(mod: str, many: bool) -> str | None:
    """A modifier as what a sentence says: "with a score" -> "have a score", "tagged x" -> "are tagged x"."""
    have, be, were = ("have", "are", "were") if many else ("has", "is", "was")
    if m := re.match(r"without (?:an? |any )?", mod):
        return f"{have} no {mod[m.end() :]}"
    if mod.startswith("with at least one "):
        return f"{have} {mod[5:]}"
    if mod.startswith("with "):
        return f"{have} {mod[5:]}"
    if FINITE.match(mod):
        return mod.split(" ", 1)[1]
    if BE.match(mod):
        return f"{be} {mod}"
    return f"{were} {mod}" if PARTICIPLE.match(mod) else None


def article(words: str) -> str:
    return "an" if re.match(r"(?i)[aeio]|u(?!s[aeu]|ni|rl)", words) else "a"
