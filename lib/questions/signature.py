"""The canonical signature of a query's structure, read off its text, so that splits by structure can be proved from the queries alone.

Two queries with the same signature ask the same kind of thing: names of variables, properties and values, the direction
in which a path is written, the order of its branches and of conditions, and whether a Question is written as a Post with
a label test never enter. See `Signature` for what does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import permutations
from typing import NoReturn

TOKEN = re.compile(
    r"\s+|(?P<string>'(?:[^'\\]|\\.)*')|(?P<quoted>`(?:[^`]|``)+`)|(?P<slot>\{\w+\})|(?P<number>\d+(?:\.\d+)?)|(?P<word>\w+)"
    r"|(?P<sign><-|->|<>|<=|>=|[-+*/=<>()\[\]:,.])"
)
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
AGGREGATES = ("count", "sum", "avg", "min", "max")
POST_KINDS = ("Question", "Answer")
COMPARISON = "comparison of two named things"


class UnknownDialect(ValueError):
    """A query outside of the dialect of `structures.py` and `spec.py`; the message says where and what was expected."""


@dataclass(frozen=True)
class Signature:
    """What makes a structure.

    path: labels and relationships of the pattern, each relationship in the direction in which it is stored, numbered so
    that every way of writing the pattern gives the same text; Question and Answer are Posts here.
    filters: (label, kind) pairs, sorted; "label" tests stand for the Question and Answer of the pattern.
    aggregation: (kind, label) pairs, sorted; ("none", label) for what is returned as it is.
    grouping: labels returned beside an aggregate. ordering: none, order-by, top-k, argmax or argmin.
    extras: existence, negation (with the relationship asked for), ratio, difference, comparison, post-filter; sorted.
    places: which node is filtered, counted and returned, where the path has several of one label; else empty.
    """

    path: str
    filters: tuple[tuple[str, str], ...]
    aggregation: tuple[tuple[str, str], ...]
    grouping: tuple[str, ...]
    ordering: str
    extras: tuple[str, ...]
    places: str = ""

    def components(self) -> frozenset[tuple[str, ...]]:
        """The parts whose novelty counts: a structure is a new combination if all of them are known elsewhere."""
        kinds = ", ".join(kind for kind, _ in self.aggregation)
        return frozenset(
            [("path", self.path), ("ordering", self.ordering), ("grouping", *self.grouping)]
            + [("filter", *f) for f in self.filters]
            + [("aggregation", *a) for a in self.aggregation]
            + [("extra", e) for e in self.extras]
            + [("aggregation with extras", kinds, *self.extras)]
        )


def signature(query: str) -> Signature:
    """The signature of a query or of its template. Raises UnknownDialect for text that is not of the dialect."""
    return _Parser(query).query().signature()


def hops(query: str) -> int:
    """How many relationships the pattern of MATCH has. Raises UnknownDialect as `signature` does."""
    return len(_Parser(query).query().edges)


@dataclass
class _Query:
    """What the parser has read: variables with their label, edges (from, type, to), and the parts of a signature."""

    labels: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    filters: dict[tuple[str, str, str], None] = field(default_factory=dict)  # (variable, what is filtered, kind)
    aggregates: list[tuple[str, str]] = field(default_factory=list)  # (kind, variable or *)
    plain: list[str] = field(default_factory=list)  # variables returned as they are
    ordering: str = "none"
    extras: set[str] = field(default_factory=set)
    aliases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # name of a column of WITH -> aggregates
    places: list[tuple[str, str]] = field(default_factory=list)  # (variable, what a pattern asks of it)

    def label(self, variable: str) -> str:
        found = self.labels[variable]
        return "Post" if found in POST_KINDS else found

    def signature(self) -> Signature:
        filters = [(self.label(v), kind) for v, _, kind in self.filters]
        filters += [(label, "label") for label in self.labels.values() if label in POST_KINDS]
        returned = sorted({self.label(v) for v in self.plain})
        aggregation = [(kind, v if v == "*" else self.label(v)) for kind, v in self.aggregates]
        return Signature(
            path=self._path(),
            filters=tuple(sorted(filters)),
            aggregation=tuple(sorted(aggregation)) or tuple(("none", label) for label in returned),
            grouping=tuple(returned) if aggregation else (),
            ordering=self.ordering,
            extras=tuple(sorted(self.extras)),
            places=self._places(),
        )

    def nodes(self) -> list[str]:
        return [v for v in self.labels if not v.startswith("e:")]

    def _path(self) -> str:
        return self._least({v: self.label(v) for v in self.nodes()})

    def _places(self) -> str:
        """The path with what is done at each of its nodes: needed where labels don't tell them apart."""
        known = [self.label(v) for v in self.nodes()]
        if len(set(known)) == len(known):
            return ""
        done: dict[str, list[str]] = {v: [] for v in self.nodes()}
        for v, kind in [
            *((v, kind) for v, _, kind in self.filters),
            *((v, self.labels[v]) for v in self.nodes() if self.labels[v] in POST_KINDS),
            *((v, kind) for kind, v in self.aggregates),
            *((v, "returned") for v in self.plain),
            *self.places,
        ]:
            if v in done:
                done[v].append(kind)
        return self._least({v: f"{self.label(v)}({', '.join(sorted(set(what)))})" for v, what in done.items()})

    def _least(self, text: dict[str, str]) -> str:
        """The least text over all numberings of the nodes: at most five of them, so at most 120 texts."""
        texts = []
        for order in permutations(text):
            number = {v: i for i, v in enumerate(order)}
            ends = sorted(f"{number[a]}-{kind}->{number[b]}" for a, kind, b in self.edges)
            texts.append(" ".join([*(f"{i}:{text[v]}" for v, i in number.items()), *ends]))
        return min(texts)


class _Parser:
    """Recursive descent over MATCH paths [WHERE ...] [WITH ... [WHERE ...]] RETURN ... [ORDER BY ...] [LIMIT n]."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while position < len(text):
            m = TOKEN.match(text, position)
            if m is None:
                raise UnknownDialect(f"{text!r}: {text[position]!r} at {position} is not part of the dialect")
            if m.lastgroup:
                self.tokens.append((m.lastgroup, m[0], position))
            position = m.end()
        self.tokens.append(("end", "", len(text)))
        self.q = _Query()

    # ---- tokens
    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def take(self, *wanted: str) -> str:
        if wanted and self.peek() not in wanted:
            self.fail(" or ".join(wanted))
        self.at += 1
        return self.tokens[self.at - 1][1]

    def skip(self, *words: str) -> bool:
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def fail(self, wanted: str) -> NoReturn:
        _, found, position = self.tokens[self.at]
        raise UnknownDialect(f"{self.text!r}: expected {wanted} at {position}, found {found or 'the end'!r}")

    def word(self) -> str:
        if self.kind() not in ("word", "quoted"):
            self.fail("a name")
        return self.take().strip("`")

    # ---- clauses
    def query(self) -> _Query:
        self.take("MATCH")
        self.path()
        while self.skip(","):
            self.path()
        if self.skip("WHERE"):
            self.condition()
            while self.skip("AND"):
                self.condition()
        if self.skip("WITH"):
            self.carried()
        self.take("RETURN")
        self.skip("DISTINCT")
        self.expression(self.q)
        while self.skip(","):
            self.expression(self.q)
        self.order()
        if self.kind() != "end":
            self.fail("the end")
        return self.q

    def carried(self) -> None:
        """What follows WITH: variables, aggregates with a name, and perhaps a condition on these."""
        while True:
            if self.peek() in self.q.labels:
                self.take()
            else:
                found = _Query(labels=self.q.labels)
                self.expression(found)
                self.take("AS")
                self.q.aliases[self.word()] = found.aggregates
                self.q.aggregates += found.aggregates
                self.q.extras |= found.extras
            if not self.skip(","):
                break
        if self.skip("WHERE"):
            self.take(*self.q.aliases)
            self.take(*COMPARISONS)
            self.value()
            self.q.extras.add("post-filter")

    def order(self) -> None:
        descending = False
        if self.skip("ORDER", "BY"):
            self.q.ordering = "order-by"
            descending = self.key()
            while self.skip(","):
                self.key()  # breaks ties
        if self.skip("LIMIT"):
            if self.kind() not in ("number", "slot"):
                self.fail("a number")
            one = self.take() == "1"
            if self.q.ordering == "none":
                self.q.ordering = "limit"
            else:
                self.q.ordering = ("argmax" if descending else "argmin") if one else "top-k"

    def key(self) -> bool:
        """One key of ORDER BY; true where the largest comes first. What it is made of is no part of a signature."""
        self.expression(_Query(labels=self.q.labels, aliases=self.q.aliases))
        descending = self.skip("DESC")
        if not descending:
            self.skip("ASC")
        return descending

    def path(self) -> None:
        left = self.node()
        while self.peek() in ("-", "<-"):
            backward = self.take() == "<-"
            kind = self.relationship("-" if backward else "->")
            right = self.node()
            self.q.edges.append((right, kind, left) if backward else (left, kind, right))
            left = right

    def relationship(self, end: str) -> str:
        self.take("[")
        variable = "" if self.peek() == ":" else self.word()
        self.take(":")
        kind = self.word()
        self.take("]")
        self.take(end)
        if variable:
            self.q.labels["e:" + variable] = kind
        return kind

    def node(self) -> str:
        """The variable of a node, made up where it has none."""
        self.take("(")
        variable = self.word() if self.peek() != ":" else f"({self.at})"
        if self.peek() == ":" and variable in self.q.labels:
            self.fail(f"({variable}) without a label: it has one already")
        if variable not in self.q.labels:
            self.take(":")
            self.q.labels[variable] = self.word()
            while self.skip(":"):
                self.narrow(variable, self.word())
        self.take(")")
        return variable

    def narrow(self, variable: str, label: str) -> None:
        """A second label: Question and Answer say more than Post."""
        if label in POST_KINDS:
            self.q.labels[variable] = label
        elif label != self.q.label(variable):
            self.q.filters[variable, label, "label"] = None

    def condition(self) -> None:
        negated = self.skip("NOT")
        if self.peek() == "(":
            self.pattern("negation" if negated else "existence")
        elif negated:
            self.fail("a pattern after NOT")
        elif self.peek(1) == ":":
            variable = self.variable()
            self.take(":")
            self.narrow(variable, self.word())
        else:
            variable, what, is_date = self.operand()
            self.q.filters[variable, what, self.operator(is_date)] = None

    def pattern(self, extra: str) -> None:
        """(x)-[:TYPE]->() or (x)<-[:TYPE]-(:Label), as a condition."""
        self.take("(")
        variable = self.variable()
        self.take(")")
        backward = self.take("-", "<-") == "<-"
        kind = self.relationship("-" if backward else "->")
        self.take("(")
        label = self.word() if self.skip(":") else ""
        self.take(")")
        name = f"{extra} of {'<-' if backward else ''}{kind}{' ' * bool(label)}{label}"
        self.q.extras.add(name)
        self.q.places.append((variable, name))

    def operand(self) -> tuple[str, str, bool]:
        """x.name, x.name.year or date(x.name): the variable, the property, and whether it is about a date."""
        wrapped = self.skip("date", "(")
        variable = self.variable()
        self.take(".")
        what = self.word()
        year = self.skip(".", "year")
        if wrapped:
            self.take(")")
        return variable, what, wrapped or year

    def variable(self) -> str:
        name = self.word()
        if name in self.q.labels:
            return name
        if "e:" + name in self.q.labels:
            return "e:" + name
        self.at -= 1
        self.fail("a variable of the path")

    def operator(self, is_date: bool) -> str:
        if self.skip("IS", "NOT", "NULL"):
            return "is not null"
        if self.skip("IS", "NULL"):
            return "is null"
        if self.skip("IN"):
            self.value_list()
            self.q.extras.add(COMPARISON)
            return "equality"
        for words in (("CONTAINS",), ("STARTS", "WITH"), ("ENDS", "WITH")):
            if self.skip(*words):
                self.value()
                return " ".join(words).lower()
        sign = self.take(*COMPARISONS)
        if self.value() or is_date:
            return "date range"
        return {"=": "equality", "<>": "inequality"}.get(sign, "numeric range")

    def value_list(self) -> None:
        self.take("[")
        self.value()
        self.take(",")
        self.value()
        self.take("]")

    def value(self) -> bool:
        """A string, a number, a slot or date('...'); true for the last."""
        if self.skip("date", "("):
            self.value()
            self.take(")")
            return True
        if self.kind() not in ("string", "number", "slot"):
            self.fail("a value")
        self.take()
        return False

    def expression(self, q: _Query) -> None:
        self.term(q)
        while self.peek() in ("+", "-", "*", "/"):
            sign = self.take()
            if sign in "/-":
                q.extras.add("ratio" if sign == "/" else "difference")
            self.term(q)

    def term(self, q: _Query) -> None:
        if self.kind() == "number" or self.peek() in self.q.aliases:
            self.take()
        elif self.peek() in AGGREGATES and self.peek(1) == "(":
            self.aggregate(q)
        else:
            q.plain.append(self.operand()[0])

    def aggregate(self, q: _Query) -> None:
        kind = self.take()
        self.take("(")
        if kind == "count" and self.skip("*"):
            variable = "*"
        elif kind == "count" and self.skip("CASE", "WHEN"):
            kind, variable = "count if", "*"
            self.condition()
            self.take("THEN")
            self.term(q)
            self.take("END")
        else:
            kind += " distinct" if self.skip("DISTINCT") else ""
            variable = self.operand()[0] if self.peek(1) == "." else self.variable()
        self.take(")")
        q.aggregates.append((kind, variable))
