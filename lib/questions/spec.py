"""What a question means, as data: a path, filters and what is asked. Query, words and hint are made from it, so that none says what the others don't."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from string import ascii_lowercase

from lib.graph.mapping import quoted

# Filters, by kind: how a query writes them; {x} is the property, {s} the slot. A text's slot stands in quotes.
CONDITIONS = {
    "is": "{x} = '{s}'",
    "id": "{x} = {s}",
    "either": "{x} IN ['{s}', '{s2}']",
    "above": "{x} > {s}",
    "below": "{x} < {s}",
    "year": "{x}.year = {s}",
    "after": "date({x}) > date('{s}')",
    "before": "date({x}) < date('{s}')",
    "contains": "{x} CONTAINS '{s}'",
    "starts": "{x} STARTS WITH '{s}'",
    "present": "{x} IS NOT NULL",
    "missing": "{x} IS NULL",
}
UNSLOTTED = ("present", "missing")
NAMES = ("is", "id", "either", "year")  # what must occur in the graph; other values are free

# What is asked, by form: the aggregate, and whether something is given for each of a group.
FORMS = {
    "list": "the subjects' names",
    "value": "a property of the subjects",
    "count": "how many subjects",
    "avg": "the average of a number",
    "sum": "its total",
    "max": "its highest value",
    "min": "its lowest value",
    "first": "when the first happened",
    "last": "when the last happened",
    "gap": "highest minus lowest value",
    "share": "the percentage for which one more condition holds",
    "ordered": "the names in the order of a number",
    "top": "the names with the highest numbers",
    "best": "the name with the highest number",
    "worst": "the name with the lowest number",
    "per": "how many subjects for each of the group",
    "avg per": "the average of a number for each of the group",
    "most": "those of the group with the most subjects, and how many",
    "single most": "the one of the group with the most subjects",
    "more than": "those of the group with more subjects than a number",
    "ratio": "how many subjects there are for each of the group on average",
    "compare": "which of two named subjects has the higher number",
    "compare counts": "which of two named ones of the group has more subjects",
}
GROUPED = ("per", "avg per", "most", "single most", "more than", "ratio", "compare counts")
NUMBERED = ("avg", "sum", "max", "min", "gap", "ordered", "top", "best", "worst", "avg per", "compare")
DATED = ("first", "last")


@dataclass(frozen=True)
class Hop:
    """One relationship of the path, gone from left to right, and the label that it leads to."""

    type: str
    forward: bool
    label: str


@dataclass(frozen=True)
class Filter:
    """A condition on a property of node `at` of the path (or of hop `at`, where `edge`); `slot` takes its value."""

    at: int
    property: str
    kind: str  # of CONDITIONS
    slot: str = ""
    edge: bool = False


@dataclass(frozen=True)
class Exists:
    """That node `at` has, or hasn't, a relationship beside the path; `labelled` where its type alone doesn't say to what."""

    at: int
    hop: Hop
    negated: bool
    labelled: bool = False


@dataclass(frozen=True)
class Spec:
    """A question without values.

    start, hops: the path, from left to right; nodes are numbered from 0. subject: the node that is listed, counted or
    measured. form: one of FORMS. measure: the property of the subject that the form needs, if any. group: the node that
    grouped forms group by. single: each subject is met once, so that nothing has to be made distinct. names: label -> the
    property that names its nodes. sole: nodes of which there is but one, as the asker of a named question. whole: the
    condition of a "share".
    """

    start: str
    hops: tuple[Hop, ...]
    subject: int
    form: str
    filters: tuple[Filter, ...] = ()
    exists: tuple[Exists, ...] = ()
    measure: str = ""
    group: int = -1
    single: bool = True
    names: tuple[tuple[str, str], ...] = ()
    sole: tuple[int, ...] = ()
    whole: Filter | Exists | None = None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return (self.start, *(h.label for h in self.hops))

    def name(self, node: int) -> str:
        """The property that names a node of the path. Raises KeyError where its label has none."""
        return dict(self.names)[self.labels[node]]

    @property
    def id(self) -> str:
        """Readable, and different for different specs."""
        steps = "".join(f"{'-' if h.forward else '<'}{h.type}-{h.label}" for h in self.hops)
        parts = [f"{self.form} {self.labels[self.subject]}{self.subject}"]
        parts += [self.measure] if self.measure else []
        parts += [f"by {self.group}"] if self.group >= 0 else []
        parts += [f"of {self.start}{steps}"]
        parts += [f"{f.kind} {'e' if f.edge else ''}{f.at}.{f.property}" for f in self.filters]
        conditions = [*self.exists, *([self.whole] if isinstance(self.whole, Exists) else [])]
        parts += [f"{'no' if e.negated else 'some'} {e.at}.{e.hop.type}{e.hop.label}" for e in conditions]
        parts += [f"share {self.whole.kind} {self.whole.property}"] if isinstance(self.whole, Filter) else []
        return ", ".join(parts).replace("`", "")


def variables(spec: Spec) -> tuple[str, ...]:
    """A letter for each node of the path: one of its label's, if it is free; e and n stand for other things."""
    taken: list[str] = []
    for label in spec.labels:
        letters = [c for c in label.lower() if c in ascii_lowercase]
        taken.append(
            next(c for c in (*letters[:1], *letters[1:], *ascii_lowercase) if c not in taken and c not in "en")
        )
    return tuple(taken)


def query(spec: Spec) -> str:
    """The Cypher template of a spec, with {slots} for values."""
    names = variables(spec)
    where = [_condition(f, names) for f in spec.filters] + [_pattern(e, names) for e in spec.exists]
    if spec.form in ("ordered", "top", "best", "worst", "avg per"):
        where.append(f"{names[spec.subject]}.{quoted(spec.measure)} IS NOT NULL")
    conditions = " WHERE " + " AND ".join(dict.fromkeys(where)) if where else ""
    path = path_text(spec, {f.at for f in spec.filters if f.edge})
    return f"MATCH {path}{conditions} {_returned(spec, names)}"


def path_text(spec: Spec, edges: set[int], only: int = -1, hops: range | None = None) -> str:
    """The path, or some `hops` of it, with a variable for those in `edges`; with `only`, as a condition on that node, which
    alone is named."""
    names = variables(spec)

    def node(i: int) -> str:
        if only < 0:
            return f"({names[i]}:{quoted(spec.labels[i])})"
        return f"({names[i]})" if i == only else f"(:{quoted(spec.labels[i])})"

    hops = range(len(spec.hops)) if hops is None else hops
    return node(hops.start) + "".join(_arrow(spec, i, i in edges) + node(i + 1) for i in hops)


def step_text(spec: Spec, hop: int, edge: bool) -> str:
    """One hop alone, with both its ends; with a variable for the hop, if `edge`."""
    ends = [f"({name}:{quoted(label)})" for name, label in zip(variables(spec), spec.labels, strict=True)]
    return f"{ends[hop]}{_arrow(spec, hop, edge)}{ends[hop + 1]}"


def meetings(spec: Spec) -> Iterator[str]:
    """Patterns by which the path could come to one relationship twice. Cypher leaves such ways out, and no words say so:
    "people who know someone who knows Ann" may well be Ann, if she knows herself."""
    hops, labels = spec.hops, [quoted(label) for label in spec.labels]
    for i, j in combinations(range(len(hops)), 2):
        if hops[i].type != hops[j].type:
            continue
        first = i if hops[i].forward == hops[j].forward else i + 1
        if first < j:  # the path comes back to where it was
            names = [*ascii_lowercase[: j - first], "a"]
            steps = [f"{_arrow(spec, k, False)}({name}:{labels[k + 1]})" for k, name in enumerate(names[1:], first)]
            yield f"(a:{labels[first]}){''.join(steps)}"
        elif labels[i] != labels[j + 1]:  # there and back at once: to another, unless one node has both labels
            yield f"(a:{labels[i]}:{labels[j + 1]})"


def _arrow(spec: Spec, i: int, edge: bool) -> str:
    hop = spec.hops[i]
    arrow = f"[{f'e{i}' if edge else ''}:{quoted(hop.type)}]"
    return f"-{arrow}->" if hop.forward else f"<-{arrow}-"


def _condition(f: Filter, names: tuple[str, ...]) -> str:
    x = f"{f'e{f.at}' if f.edge else names[f.at]}.{quoted(f.property)}"
    text = CONDITIONS[f.kind].replace("{x}", x).replace("{s2}", f"{{{f.slot}2}}")
    return text.replace("{s}", f"{{{f.slot}}}")


def _pattern(e: Exists, names: tuple[str, ...]) -> str:
    arrow = f"[:{quoted(e.hop.type)}]"
    end = f"(:{quoted(e.hop.label)})" if e.labelled else "()"
    text = f"({names[e.at]}){f'-{arrow}->' if e.hop.forward else f'<-{arrow}-'}{end}"
    return f"NOT {text}" if e.negated else text


def _returned(spec: Spec, names: tuple[str, ...]) -> str:
    """From WITH or RETURN to the end."""
    s = names[spec.subject]
    count = "count(*)" if spec.single else f"count(DISTINCT {s})"
    distinct = "" if spec.single else "DISTINCT "
    p = f"{s}.{quoted(spec.measure)}"
    form = spec.form
    if form in GROUPED:
        g = names[spec.group]
        named = "" if form == "ratio" else f"{g}.{quoted(spec.name(spec.group))}"
        return {
            "per": f"RETURN {named}, {count}",
            "avg per": f"RETURN {named}, avg({p})",
            "most": f"RETURN {named}, {count} ORDER BY {count} DESC LIMIT {{count}}",
            "single most": f"WITH {g}, {count} AS n RETURN {named} ORDER BY n DESC LIMIT 1",
            "more than": f"WITH {g}, {count} AS n WHERE n > {{count}} RETURN {named}",
            "ratio": f"RETURN 1.0 * count(*) / count(DISTINCT {g})",
            "compare counts": f"WITH {g}, {count} AS n RETURN {named} ORDER BY n DESC LIMIT 1",
        }[form]
    if form == "share":
        assert spec.whole is not None
        whole = _pattern(spec.whole, names) if isinstance(spec.whole, Exists) else _condition(spec.whole, names)
        return f"RETURN 100.0 * count(CASE WHEN {whole} THEN 1 END) / count(*)"
    if form == "count":
        return f"RETURN {count}"
    if form in ("avg", "sum", "max", "min", "gap", *DATED):
        kind = {"first": "min", "last": "max"}.get(form, form)
        return f"RETURN max({p}) - min({p})" if form == "gap" else f"RETURN {kind}({p})"
    if form == "value":
        return f"RETURN {distinct}{p}"
    named = f"{s}.{quoted(spec.name(spec.subject))}"
    tail = {
        "list": "",
        "ordered": f" ORDER BY {p} DESC",
        "top": f" ORDER BY {p} DESC LIMIT {{count}}",
        "best": f" ORDER BY {p} DESC LIMIT 1",
        "worst": f" ORDER BY {p} LIMIT 1",
        "compare": f" ORDER BY {p} DESC LIMIT 1",
    }[form]
    return f"RETURN {distinct}{named}{tail}"
