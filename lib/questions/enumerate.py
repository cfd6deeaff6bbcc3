"""Lays out what can be asked about a graph: specs over its own schema, by a declared quota, no two with the same signature."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise

from lib.graph.mapping import quoted
from lib.graph.query import Reader
from lib.questions.lexicon import ANY, Lexicon, Property, edge_name
from lib.questions.signature import Signature, signature
from lib.questions.spec import DATED, GROUPED, NUMBERED, UNSLOTTED, Exists, Filter, Hop, Spec, query
from lib.questions.structures import SLOT

# Structures wanted by hops; those of no hop and of one are kept below what they may be, since longer ones fail more often.
HOPS = {0: 48, 1: 78, 2: 140, 3: 120, 4: 80}
LARGE, MORE = (
    100_000,
    1.35,
)  # nodes, from which so many times as many: more of the answers are too long or take too long
LISTS = ("list", "ordered", "per", "avg per", "more than")  # forms whose answers may be as long as there are things
LISTED = 20_000  # things of a kind, of which no condition leaves few enough for a list: something must be named
# How often each form comes up, of 100 or so; a form that fits nowhere leaves its place to the others.
FORMS_WANTED = {
    "list": 14, "value": 6, "count": 14, "avg": 5, "sum": 4, "max": 3, "min": 2, "first": 4, "last": 4, "gap": 3,
    "share": 6, "ordered": 4, "top": 6, "best": 5, "worst": 2, "per": 6, "avg per": 3, "most": 6, "single most": 5,
    "more than": 6, "ratio": 4, "compare": 1, "compare counts": 2,
}  # fmt: skip
TRIES = 60  # random layouts before a form is thought to fit no path of a length any more
MOST_SLOTS = 3
ONE = ("value", "compare")  # what is asked of one thing; the others speak of several
ONE_BY_NAME = ("is", "id", "either")  # filters on a name that leave one or two; how a name starts leaves many
LONG = 3  # hops, from which on something must be named
MOST_WAYS = 500_000  # through the graph, that a query may have to follow: "heroes of the gender of a hero who ..."
ON_A_PATH = 9  # structures on one path at most, so that no path is worn out
NAMED_END = 0.72  # of the ends of a path, how many are named; the others are described
BY_ID = 0.07  # of the named ones, how many by a number
BRANCHED = 0.35  # of the paths, how many have the subject in their middle
FILTERED, CONDITIONED = 0.38, 0.2  # of the subjects, how many have a filter, or a condition on what they are tied to


@dataclass(frozen=True)
class Tie:
    """What a graph says of a hop: each start has one end at most (`one`), no two are tied twice (`simple`), and the share
    of starts that have it. fan: ends of a start, on average. after: the same of a start that was reached by another hop, by
    what that one is called from there (`lexicon.edge_name`): who wrote many posts wrote many comments, and is reached
    from each of the posts."""

    one: bool
    simple: bool
    share: float
    fan: float
    after: Mapping[str, float]


async def read_ties(reader: Reader, lexicon: Lexicon) -> dict[str, Tie]:
    """By the name of the hop (`lexicon.edge_name`)."""
    labels = sorted(lexicon.hops)
    called = [{edge_name(label, hop): hop for hop in lexicon.hops[label]} for label in labels]
    read = await asyncio.gather(*[_read_after(reader, *each) for each in zip(labels, called, strict=True)])
    after = {name: of for found in read for name, of in found.items()}
    ties = {}
    for start, hops in sorted(lexicon.hops.items()):
        for hop in hops:
            if not hop.forward:
                continue
            match = f"MATCH (a:{quoted(start)})-[:{quoted(hop.type)}]->(b:{quoted(hop.label)})"
            back = Hop(hop.type, False, start)
            for name, of, label, other in (
                (edge_name(start, hop), "a", start, "b"),
                (edge_name(hop.label, back), "b", hop.label, "a"),
            ):
                each = f"{match} WITH {of}, count(*) AS n, count(DISTINCT {other}) AS ends"
                n, starts, pairs = (await reader.run(f"{each} RETURN sum(n), count(*), sum(ends)", 1)).rows[0]
                there = lexicon.schema["labels"][label]["count"]
                ties[name] = Tie(n == starts, n == pairs, starts / there, n / there, after[name])
    return ties


async def _read_after(reader: Reader, start: str, hops: dict[str, Hop]) -> dict[str, dict[str, float]]:
    """`Tie.after` of all the hops from a label."""
    if not hops:
        return {}
    arrows = [f"-[:{quoted(h.type)}]->" if h.forward else f"<-[:{quoted(h.type)}]-" for h in hops.values()]
    ends = [f"(x){arrow}(:{quoted(hop.label)})" for arrow, hop in zip(arrows, hops.values(), strict=True)]
    counts = ", ".join(f"COUNT {{ {end} }} AS n{i}" for i, end in enumerate(ends))
    pairs = list(combinations_with_replacement(range(len(ends)), 2))
    sums = [f"sum(n{i})" for i in range(len(ends))] + [f"sum(n{i} * n{j})" for i, j in pairs]
    row = (await reader.run(f"MATCH (x:{quoted(start)}) WITH {counts} RETURN {', '.join(sums)}", 1)).rows[0]
    both = dict(zip(pairs, row[len(ends) :], strict=True))
    return {
        to: {by: both[min(i, j), max(i, j)] / max(row[j], 1) for j, by in enumerate(hops)} for i, to in enumerate(hops)
    }


def specs(lexicon: Lexicon, ties: dict[str, Tie], seed: int) -> tuple[list[Spec], Counter[str]]:
    """Specs in a seeded order, and why others were dropped, counted by component. Equal arguments give equal specs."""
    return _Enumeration(lexicon, ties, seed).run()


class _Enumeration:
    def __init__(self, lexicon: Lexicon, ties: dict[str, Tie], seed: int):
        self.lexicon, self.ties = lexicon, ties
        self.rng = random.Random(f"specs {seed}")
        self.found: dict[Signature, Spec] = {}
        self.dropped: Counter[str] = Counter()
        self.on_path: Counter[str] = Counter()

    def run(self) -> tuple[list[Spec], Counter[str]]:
        if not self.lexicon.things:
            return [], self.dropped
        nodes = sum(label["count"] for label in self.lexicon.schema["labels"].values())
        for length in HOPS:
            wanted = round(HOPS[length] * (MORE if nodes > LARGE else 1))
            turns = [form for form, n in FORMS_WANTED.items() for _ in range(n) if length or form not in GROUPED]
            self.rng.shuffle(turns)
            made = 0
            while turns and made < wanted:
                for form in list(turns):
                    if made >= wanted or form not in turns:
                        continue
                    if spec := self._new(form, length):
                        self.found[signature(query(spec))] = spec
                        made += 1
                    else:
                        self.dropped[f"no further {form!r} over {length} hops"] += 1
                        turns = [t for t in turns if t != form]
        return list(self.found.values()), self.dropped

    def _new(self, form: str, length: int) -> Spec | None:
        for _ in range(TRIES):
            made = self._draw(form, length)
            if isinstance(made, str):
                self.dropped[made] += 1
            elif (key := signature(query(made))) not in self.found and self.on_path[key.path] < ON_A_PATH + 12 * (
                not length
            ):
                self.on_path[key.path] += 1
                return made
        return None

    def _draw(self, form: str, length: int) -> Spec | str:
        """A random spec of a form, or the component that makes it no question."""
        path = self._path(length) if form != "compare" or not length else None
        if path is None:
            return "a path that leads nowhere or back to where it came from"
        start, hops = path
        labels = (start, *(h.label for h in hops))
        subject, group = self._roles(form, length)
        things = [self.lexicon.thing(label) for label in labels]
        turns = [i + 1 for i, (a, b) in enumerate(pairwise(hops)) if a.type == b.type and a.forward != b.forward]
        if any(labels[i - 1] == labels[i + 1] and i in (subject, group) for i in turns):
            return "two of a kind that are both tied to the subject"
        if form in ("per", "avg per", "ratio"):
            there = Hop(hops[0].type, not hops[0].forward, start)
            if not self.lexicon.edge(labels[1], there).role:
                return "grouping without a word for what groups"
        if group >= 0 and form not in ("per", "avg per"):
            near = hops[0] if group < subject else Hop(hops[0].type, not hops[0].forward, start)
            if self.ties[edge_name(labels[group], near)].one:
                return "counting what there is only one of"
        if form in ("list", "ordered", "top", "best", "worst") and not things[subject].name:
            return "listing what has no name"
        if form in ("compare",) and not (things[subject].name and things[subject].anchor):
            return "comparing what has no name"
        if group >= 0 and form != "ratio" and not (things[group].name and things[group].anchor):
            return "grouping by what has no name"
        spec = Spec(
            start,
            hops,
            subject,
            form,
            group=group,
            names=tuple({x: t.name for x, t in zip(labels, things, strict=True) if t.name}.items()),
        )
        if form in (*NUMBERED, *DATED, "value"):
            of = labels[subject]
            options = self.lexicon.dates(of) if form in DATED else self.lexicon.numbers(of)
            if form == "value":
                options = [
                    n for n, p in things[subject].properties.items() if p.noun and self.lexicon.share(of, n) >= ANY[0]
                ]
            if not options:
                return f"{'when' if form in DATED else 'a measure'} of what has none"
            spec = replace(spec, measure=self.rng.choice(options))
        return self._finished(self._filtered(spec))

    def _path(self, length: int) -> tuple[str, tuple[Hop, ...]] | None:
        start = self._weighted({label: t.weight for label, t in self.lexicon.things.items()})
        at = start
        hops: list[Hop] = []
        for _ in range(length):
            options = [h for h in self.lexicon.hops[at] if self._goes_on(start, hops, h)]
            if not options:
                return None
            weights = [self.lexicon.edge(at, h).weight * self.lexicon.thing(h.label).weight for h in options]
            hops.append(self.rng.choices(options, weights)[0])
            at = hops[-1].label
        return start, tuple(hops)

    def _goes_on(self, start: str, hops: list[Hop], new: Hop) -> bool:
        """Not back to the same thing, and no label a third time."""
        labels = [start, *(h.label for h in hops)]
        if labels.count(new.label) > 1:
            return False
        if not hops:
            return True
        last, before = hops[-1], labels[-2]
        if f"{edge_name(before, last)}{edge_name('', new)}" in self.lexicon.circles:
            return False
        if last.type != new.type or last.forward == new.forward:
            return True
        # Gone back over a type, one meets others of the start's kind, unless there is but one, or the same one twice; and
        # the start itself is none of them, which only words for "another one" say.
        tie = self.ties[edge_name(labels[-1], new)]
        if before == new.label:
            return bool(not tie.one and tie.simple and self.lexicon.edge(before, last).same)
        return not tie.one and not self.lexicon.overlap(before, new.label)

    def _roles(self, form: str, length: int) -> tuple[int, int]:
        """Which node is the subject, and which the group (-1: none)."""
        if form not in GROUPED:
            branched = length >= 2 and self.rng.random() < BRANCHED
            return (self.rng.randrange(1, length) if branched else 0), -1
        if form in ("per", "avg per", "ratio", "compare counts") or length < 2 or self.rng.random() < 0.7:
            return 1, 0
        return 0, 1

    def _filtered(self, spec: Spec) -> Spec | str:
        """Names or filters at the open ends, and perhaps on the subject."""
        last = len(spec.hops)
        busy = {spec.subject, spec.group}
        used: set[tuple[int, str]] = {(spec.subject, spec.measure)}
        filters: list[Filter] = []
        if spec.form == "compare counts":
            filters.append(self._named(spec, spec.group, "either"))
        if spec.form == "compare":
            filters.append(self._named(spec, spec.subject, "either"))
        for end in sorted({0, last} - busy):
            found = self._end(spec, end, used)
            if found is None:
                return "an end that has neither name nor properties"
            filters.append(found)
        wanted = int(self.rng.random() < FILTERED) if filters else 1
        if not filters and spec.form in ("list", "count", "share", "max", "min", "first", "last"):
            wanted += self.rng.random() < 0.5
        if spec.form == "compare":
            wanted = 0
        if spec.form == "value" and not spec.hops:
            label = self.lexicon.thing(spec.labels[0])
            if not (label.name and label.anchor) and not label.id:
                return "a property of what can't be named"
            filters, wanted = [self._named(spec, 0, "is")], 0
        for _ in range(wanted):
            if found := self._described(spec, spec.subject, used):
                filters.append(found)
                used.add((found.at, found.property))
        exists: tuple[Exists, ...] = ()
        if spec.form not in ("compare", "value") and self.rng.random() < CONDITIONED and (e := self._exists(spec)):
            exists = (e,)
        if spec.form == "share":
            whole = self._exists(spec, exists) if self.rng.random() < 0.5 else self._described(spec, spec.subject, used)
            if whole is None:
                return "a share of what has no second condition"
            spec = replace(spec, whole=whole)
        filters += self._on_edge(spec, {f.at for f in filters if f.kind == "is"})
        return replace(spec, filters=tuple(filters), exists=exists)

    def _named(self, spec: Spec, at: int, kind: str) -> Filter:
        label = spec.labels[at]
        thing = self.lexicon.thing(label)
        by_name = bool(thing.name and thing.anchor) and (kind == "either" or not thing.id or self.rng.random() > BY_ID)
        return Filter(at, thing.name, kind) if by_name else Filter(at, thing.id, "id")

    def _end(self, spec: Spec, at: int, used: set[tuple[int, str]]) -> Filter | None:
        thing = self.lexicon.thing(spec.labels[at])
        nameable = bool(thing.name and thing.anchor)
        if (nameable and self.rng.random() < NAMED_END) or (thing.id and self.rng.random() < BY_ID):
            return self._named(spec, at, "is")
        return self._described(spec, at, used) or (self._named(spec, at, "is") if nameable else None)

    def _described(self, spec: Spec, at: int, used: set[tuple[int, str]]) -> Filter | None:
        """A filter on a property other than those `used`."""
        label = spec.labels[at]
        options = []
        for name, about in sorted(self.lexicon.thing(label).properties.items()):
            if (at, name) not in used:
                options += [Filter(at, name, kind) for kind in _kinds(about, self.lexicon.share(label, name))]
        return self.rng.choice(options) if options else None

    def _exists(self, spec: Spec, others: tuple[Exists, ...] = ()) -> Exists | None:
        """That the subject has, or lacks, what only some of its kind have, and what the path doesn't ask for anyway."""
        label, at = spec.labels[spec.subject], spec.subject
        gone = _gone(spec, at)
        near = {(h.type, h.forward) for h in [*gone, *(e.hop for e in others)]}
        options = []
        for hop in self.lexicon.hops[label]:
            edge, share = self.lexicon.edge(label, hop), self.ties[edge_name(label, hop)].share
            if (hop.type, hop.forward) in near or not ANY[0] <= share <= ANY[1]:
                continue
            if any((edge_name(label, g), edge_name(label, hop)) in self.lexicon.implied for g in gone):
                continue
            others_of_type = [h for h in self.lexicon.hops[label] if (h.type, h.forward) == (hop.type, hop.forward)]
            labelled = len(others_of_type) > 1
            options += [Exists(at, hop, False, labelled)] * bool(edge.some) + [Exists(at, hop, True, labelled)] * bool(
                edge.none
            )
        return self.rng.choice(options) if options else None

    def _on_edge(self, spec: Spec, named: set[int]) -> list[Filter]:
        """Now and then a filter on what a relationship to a named end says; elsewhere it would be taken for another's."""
        labels, last = spec.labels, len(spec.hops) - 1
        found: list[Filter] = []
        for i, hop in enumerate(spec.hops):
            ends = ({0} if i == 0 else set()) | ({last + 1} if i == last else set())
            if not ends & named - {spec.subject} or spec.group in (i, i + 1) or found:
                continue
            for name, about in self.lexicon.edge(labels[i], hop).properties.items():
                if self.rng.random() < 0.4 and not found and (kinds := list(_kinds(about, 1.0))):
                    found.append(Filter(i, name, self.rng.choice(kinds), edge=True))
        return found

    def _finished(self, spec: Spec | str) -> Spec | str:
        """With slots and what is to be made distinct; or why it is dropped."""
        if isinstance(spec, str):
            return spec
        spec = replace(spec, single=self._single(spec), sole=self._sole(spec))
        if (spec.subject in spec.sole and spec.form not in ONE) or spec.group in spec.sole:
            return "several of what there is only one of"
        if not spec.single and (
            spec.form in ("avg", "sum", "gap", "share", "top", "ordered", "best", "worst", "avg per", "ratio")
        ):
            return f"counting paths: {spec.form} of what is met more than once"
        if spec.form == "value" and not self._one(spec):
            return "a property of several"
        named = any(f.kind in ONE_BY_NAME and not f.edge for f in spec.filters)
        if len(spec.hops) >= LONG and not named:
            return "a long path without anything named"
        if (
            spec.form in LISTS
            and not named
            and self._things(spec, spec.subject if spec.group < 0 else spec.group) > LISTED
        ):
            return f"a list of some of more than {LISTED:,} without anything named"
        if self._ways(spec) > MOST_WAYS:
            return f"more than {MOST_WAYS:,} ways to follow"
        spec = self._slotted(spec)
        slots = {m[1] for m in SLOT.finditer(query(spec))}
        if not slots:
            return "a question without a value"
        if len(slots) > MOST_SLOTS or len(spec.filters) + len(spec.exists) > MOST_SLOTS:
            return "more conditions than a sentence bears"
        return spec

    def _ways(self, spec: Spec) -> float:
        """How many ways the path can be gone for one value, about, from the end where they are fewest."""
        last = len(spec.hops)
        found = []
        for begin, step in ((0, 1), (last, -1)):
            named = any(
                f.at == begin and f.kind in ONE_BY_NAME and not f.edge and f.property in self._keys(spec, begin)
                for f in spec.filters
            )
            ways = 1.0 if named else float(self._things(spec, begin))
            for at in range(begin, last - begin, step):
                tie = self._tie(spec, at, step)
                ways *= tie.fan if at == begin else tie.after[self._edge(spec, at, -step)]
            found.append(ways)
        return min(found)

    def _single(self, spec: Spec) -> bool:
        """Whether each row is another subject (or another pair of subject and group)."""
        grouped = spec.group if spec.form in GROUPED else -1
        pinned = {f.at for f in spec.filters if f.kind in ONE_BY_NAME and f.property in self._keys(spec, f.at)}
        for step in (1, -1):
            at = spec.subject
            while 0 <= at + step < len(spec.labels):
                tie = self._tie(spec, at, step)
                at += step
                if not (tie.one or (tie.simple and (at in pinned or at == grouped))):
                    return False
        return True

    def _one(self, spec: Spec) -> bool:
        """Whether one named thing alone says which subject is meant, and no other can be."""
        return len(spec.filters) == 1 and spec.subject in self._sole(spec)

    def _sole(self, spec: Spec) -> tuple[int, ...]:
        """Nodes of which there is one: a named end, and what steps to one thing only lead to from it."""
        found: set[int] = set()
        for end, step in ((0, 1), (len(spec.hops), -1)):
            pinned = {
                f.kind for f in spec.filters if f.at == end and not f.edge and f.property in self._keys(spec, end)
            }
            if not pinned & {"is", "id"}:
                continue
            at = end
            found.add(at)
            while 0 <= at + step <= len(spec.hops) and self._tie(spec, at, step).one:
                at += step
                found.add(at)
        return tuple(sorted(found))

    def _things(self, spec: Spec, at: int) -> int:
        """How many nodes have the label of the path's node `at`."""
        return int(self.lexicon.schema["labels"][spec.labels[at]]["count"])

    def _keys(self, spec: Spec, at: int) -> tuple[str, str]:
        thing = self.lexicon.thing(spec.labels[at])
        return thing.name, thing.id

    def _tie(self, spec: Spec, at: int, step: int) -> Tie:
        return self.ties[self._edge(spec, at, step)]

    def _edge(self, spec: Spec, at: int, step: int) -> str:
        """What the hop from node `at` to the next (step 1) or the one before it (step -1) is called."""
        if step == 1:
            return edge_name(spec.labels[at], spec.hops[at])
        hop = spec.hops[at - 1]
        return edge_name(spec.labels[at], Hop(hop.type, not hop.forward, spec.labels[at - 1]))

    def _slotted(self, spec: Spec) -> Spec:
        """Every filter that needs a value gets a slot of its own; two of a kind are told apart by a digit."""
        seen: Counter[str] = Counter()

        def slotted(f: Filter) -> Filter:
            if f.kind in UNSLOTTED:
                return f
            owner = spec.hops[f.at].type if f.edge else spec.labels[f.at]
            kind = self.lexicon.slot_kind(owner, f.property, f.kind)
            seen[kind] += 2 if f.kind == "either" else 1
            n = seen[kind] - (f.kind == "either")
            return replace(f, slot=kind if n == 1 else f"{kind}{n}")

        whole = slotted(spec.whole) if isinstance(spec.whole, Filter) else spec.whole
        return replace(spec, filters=tuple(map(slotted, spec.filters)), whole=whole)

    def _weighted(self, weights: dict[str, float]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]


def _gone(spec: Spec, at: int) -> list[Hop]:
    """The hops of the path that begin or end at a node, as they are gone from there."""
    back = spec.hops[at - 1 : at] if at else ()
    return [*(Hop(h.type, not h.forward, spec.labels[at - 1]) for h in back), *spec.hops[at : at + 1]]


def _kinds(about: Property, share: float) -> Iterator[str]:
    """Kinds of filters that a property's words allow; the usual ones more than once, so that they come up more often."""
    if about.measure or about.counted:
        yield from ("above", "above", "below")
    if about.event or (about.date and not about.event):
        yield from ("year", "year", "after", "before")
    if about.equal:
        yield from ("is", "is", "is")
    if about.contains:
        yield "contains"
    if about.starts:
        yield "starts"
    if ANY[0] <= share <= ANY[1]:
        yield from ("present",) * bool(about.present) + ("missing",) * bool(about.missing)
