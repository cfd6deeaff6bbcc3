"""Reads how tables become a graph from a declaration, so that another database is a file of YAML and no code.

A declaration (`mappings/community.yaml` is the study's) lists tables. A table of things has `node` (its label) and
`key`; a table of pairs has `relationship`, with the columns that hold its two ends between the brackets, and `ends`, the
labels that these point to. Further parts, where they are needed:

- key: {column: property}, of whole numbers or texts; a row without it, or with one that was there before, is left out
- columns: column -> integer, float, boolean, text, datetime or date; all become properties that aren't named below
- properties: column -> property, where the name isn't the column's in camelCase
- unique: other columns that must be there, and differ in each row
- labels: {column: {value: label}}, a second label for some rows
- relationships: column -> where its key leads, seen from the row: `-[:TYPE]->(Label)`, `<-[:TYPE]-(Label)`; with a
  label in front if only such rows have it, and with `(Label.property)` if the column holds another property than the key
- several: {column: expression}, for a column with several keys: each match's first group is one
- values: {column: property}, for an end that no table lists: each different value becomes a node

Beside `tables` there may be `indexes`, for what queries look up: {range: {Label: [property]}, text: {Label: [property]}}.
A part that is left empty counts as not there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from lib.graph.tables import SourceError

FOLDER = Path(__file__).with_name("mappings")
FILE = "mapping.yaml"  # in a graph's folder, unless the graph is a community's
KINDS = ("integer", "float", "boolean", "text", "datetime", "date")
PARTS = {"node", "key", "columns", "properties", "unique", "labels", "relationships", "several"}
PAIR_PARTS = {"relationship", "ends", "key", "columns", "properties", "values"}
ARROW = re.compile(
    r"(?:\((?P<row>\w+)\))?(?P<back><)?-\[:(?P<type>\w+)\]-(?P<forth>>)?\((?P<other>\w+)(?:\.(?P<by>\w+))?\)"
)
PAIR = re.compile(r"\((\w+)\)-\[:(\w+)\]->\((\w+)\)")
NAME = re.compile(r"[A-Za-z]\w*")  # of labels, types and properties: no quoting is ever needed in a query


@dataclass(frozen=True)
class Reference:
    """A column whose values lead from the row to other nodes. `row` and `other` are the labels that both must have; `by`
    is the other's property that the column holds, None for its key."""

    column: str
    type: str
    forward: bool  # the row is where the relationship starts
    row: str
    other: str
    by: str | None = None
    each: re.Pattern[str] | None = None

    @property
    def ends(self) -> tuple[str, str]:
        return (self.row, self.other) if self.forward else (self.other, self.row)


@dataclass(frozen=True)
class Table:
    """A table of nodes (`node` is their label) or of relationships (`pair` is their type, `ends` their (column, label))."""

    name: str
    columns: dict[str, str]  # column -> kind
    key: str | None
    properties: dict[str, str]  # column -> property, for all that become one, the key among them
    node: str = ""
    unique: tuple[str, ...] = ()
    labelled_by: str | None = None
    labels: dict[Any, str] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    pair: str = ""
    ends: tuple[tuple[str, str], ...] = ()
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mapping:
    tables: dict[str, Table]
    range_indexes: tuple[tuple[str, str], ...]
    text_indexes: tuple[tuple[str, str], ...]
    declaration: str  # the file's text

    @cached_property
    def keys(self) -> dict[str, tuple[str, str]]:
        """Label -> (property, kind) of its key, for all labels that nodes can be found by."""
        found = {}
        for table in self.tables.values():
            if table.node:
                assert table.key is not None
                found[table.node] = (table.properties[table.key], table.columns[table.key])
            for column, label in table.ends:
                if column in table.values:
                    found[label] = (table.values[column], table.columns[column])
        return found

    @cached_property
    def base(self) -> dict[str, str]:
        """Each label -> the label of its table: Question -> Post, User -> User."""
        further = {label: t.node for t in self.tables.values() for label in t.labels.values()}
        return {label: label for label in self.keys} | further

    @property
    def constraints(self) -> list[tuple[str, str]]:
        """(label, property) pairs that are unique."""
        found = {(label, key): None for label, (key, _) in self.keys.items()}
        for table in self.tables.values():
            found |= {(table.node, table.properties[column]): None for column in table.unique}
        return list(found)

    @cached_property
    def _patterns(self) -> dict[str, set[tuple[str, str]]]:
        """Type -> the (start, end) labels that it is declared for."""
        found: dict[str, set[tuple[str, str]]] = {}
        for table in self.tables.values():
            for reference in table.references:
                found.setdefault(reference.type, set()).add(reference.ends)
            if table.pair:
                found.setdefault(table.pair, set()).add((table.ends[0][1], table.ends[1][1]))
        return found

    def kind(self, reference: Reference) -> str:
        """Kind of the property by which a reference finds the other node."""
        label = self.base[reference.other]
        kinds = {t.properties[c]: t.columns[c] for t in self.tables.values() if t.node == label for c in t.properties}
        return kinds[reference.by] if reference.by else self.keys[label][1]

    def declared_ends(self, type_: str) -> set[str]:
        """The labels between which relationships of a type are declared."""
        return {label for ends in self._patterns[type_] for label in ends}

    def file(self, type_: str, start: str, end: str) -> str:
        """Name of a CSV file of relationships: the type, and what it takes to tell it from others of the type."""
        patterns = self._patterns[type_]
        if len(patterns) == 1:
            return type_
        return f"{type_}.{start}" if len({a for a, _ in patterns}) == len(patterns) else f"{type_}.{start}.{end}"


@cache
def community() -> Mapping:
    """The mapping of a Stack Exchange site, which the study's questions are about."""
    return read(FOLDER / "community.yaml")


def of(graph: Path) -> Mapping | None:
    """The mapping by which a graph's folder was made; None for one that was read from a running database."""
    if (graph / FILE).is_file():
        return read(graph / FILE)
    described = json.loads((graph / "counts.json").read_text())["source"] == "neo4j"
    return None if described else community()


def read(path: Path) -> Mapping:
    """The mapping declared in a file. Raises SourceError that names the file and what in it can't be."""
    try:
        text = path.read_text(encoding="utf-8")
        given = yaml.safe_load(text)
        return _mapping(given, text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as e:
        raise SourceError(f"{path} can't be read as a mapping: {' '.join(str(e).split())}") from e
    except _Wrong as e:
        raise SourceError(f"{path}: {e}; {FOLDER / 'community.yaml'} is an example") from None


def quoted(name: str) -> str:
    """A label, type or property as a query can name it."""
    return name if NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Wrong(ValueError):
    pass


def _mapping(given: Any, text: str) -> Mapping:
    if not isinstance(given, dict) or not isinstance(given.get("tables"), dict) or not given["tables"]:
        raise _Wrong("it needs `tables`, each with its columns")
    if unknown := sorted(set(given) - {"tables", "indexes"}):
        raise _Wrong(f"{unknown[0]!r} is unknown; allowed: tables, indexes")
    tables = {name: _table(name, parts) for name, parts in given["tables"].items()}
    indexes: dict[str, tuple[tuple[str, str], ...]] = {}
    for kind, labels in (given.get("indexes") or {}).items():
        if kind not in ("range", "text"):
            raise _Wrong(f"indexes.{kind} is unknown; allowed: range, text")
        indexes[kind] = tuple((label, name) for label, names in (labels or {}).items() for name in names or ())
    mapping = Mapping(tables, indexes.get("range", ()), indexes.get("text", ()), text)
    _check_labels(mapping)
    return mapping


def _table(name: str, given: Any) -> Table:
    where = f"tables.{name}"
    allowed = PAIR_PARTS if isinstance(given, dict) and "relationship" in given else PARTS
    if not isinstance(given, dict) or not isinstance(given.get("columns"), dict):
        raise _Wrong(f"{where} needs `columns`: column -> {', '.join(KINDS)}")
    given = {part: value for part, value in given.items() if value is not None}
    if unknown := sorted(set(given) - allowed):
        raise _Wrong(f"{where}.{unknown[0]} is unknown; allowed here: {', '.join(sorted(allowed))}")
    columns = given["columns"]
    for column, kind in columns.items():
        if kind not in KINDS:
            raise _Wrong(f"{where}.columns.{column} = {kind!r}; allowed: {', '.join(KINDS)}")
    for part in ("key", "properties", "labels", "relationships", "several", "ends", "values"):
        if not isinstance(named := given.get(part, {}), dict):
            raise _Wrong(f"{where}.{part} = {named!r}; write {part}: {{column: ...}}")
        for column in named:
            if column not in columns:
                raise _Wrong(f"{where}.{part} names {column!r}, which is none of its columns")
    key = next(iter(given.get("key", {})), None)
    leads = {**given.get("relationships", {}), **given.get("ends", {})}
    properties = {c: _camel(c) for c in columns if c not in leads} | given.get("properties", {}) | given.get("key", {})
    common = {"name": name, "columns": columns, "key": key, "properties": properties}
    return _pair(where, given, common) if "relationship" in given else _node(where, given, common)


def _node(where: str, given: dict[str, Any], common: dict[str, Any]) -> Table:
    if "node" not in given or len(given.get("key", {})) != 1:
        raise _Wrong(f"{where} needs `node` and one `key`, or `relationship` and `ends`")
    if common["columns"][common["key"]] not in ("integer", "text"):
        raise _Wrong(f"{where}.key must be an integer or a text")
    references = []
    for column, arrow in given.get("relationships", {}).items():
        m = ARROW.fullmatch(str(arrow))
        if m is None or bool(m["back"]) == bool(m["forth"]):
            raise _Wrong(f"{where}.relationships.{column} = {arrow!r}; write -[:TYPE]->(Label) or <-[:TYPE]-(Label)")
        several = given.get("several", {})
        each = _expression(f"{where}.several.{column}", several[column]) if column in several else None
        row = m["row"] or given["node"]
        references.append(Reference(column, m["type"], bool(m["forth"]), row, m["other"], m["by"], each))
    for column in given.get("unique", ()):
        if column == common["key"] or column not in common["properties"]:
            raise _Wrong(f"{where}.unique names {column!r}, which is none of its other columns that become properties")
    labelled_by, labels = next(iter(given.get("labels", {}).items()), (None, {}))
    return Table(
        **common,
        node=given["node"],
        unique=tuple(given.get("unique", ())),
        labelled_by=labelled_by,
        labels=labels,
        references=tuple(references),
    )


def _expression(where: str, given: Any) -> re.Pattern[str]:
    try:
        each = re.compile(str(given))
    except re.error as e:
        raise _Wrong(f"{where} = {given!r} is no regular expression: {e}") from None
    if not each.groups:
        raise _Wrong(f"{where} = {given!r} needs a group, which holds the key")
    return each


def _pair(where: str, given: dict[str, Any], common: dict[str, Any]) -> Table:
    m = PAIR.fullmatch(str(given["relationship"]))
    ends = given.get("ends", {})
    if m is None or {m[1], m[3]} != set(ends):
        raise _Wrong(f"{where} needs a relationship like (column)-[:TYPE]->(column), and `ends` for these two columns")
    return Table(
        **common, pair=m[2], ends=((m[1], ends[m[1]]), (m[3], ends[m[3]])), values=given.get("values", {})
    )  # fmt: skip


def _check_labels(mapping: Mapping) -> None:
    tables = mapping.tables.values()
    targets = [r for t in tables for r in t.references]
    for label in [*(r.other for r in targets), *(r.row for r in targets), *(end for t in tables for _, end in t.ends)]:
        if label not in mapping.base:
            raise _Wrong(f"a relationship leads to {label!r}, which no table has as its node")
    for reference in targets:
        if reference.by is not None and (reference.other, reference.by) not in mapping.constraints:
            raise _Wrong(f"{reference.other}.{reference.by} is no key; name its column in `unique`")
    names = [*mapping.base, *(p for t in tables for p in t.properties.values()), *mapping._patterns]
    for name in names:
        if not NAME.fullmatch(str(name)):
            raise _Wrong(f"{name!r} can't be a label, type or property; use letters, digits and _")
    for label, name in (*mapping.range_indexes, *mapping.text_indexes):
        if label not in mapping.base or name not in _properties(mapping, mapping.base[label]):
            raise _Wrong(f"indexes name {label}.{name}, which isn't there")
    pairs = [t.pair for t in tables if t.pair]
    if twice := sorted({type_ for type_ in pairs if pairs.count(type_) > 1 or type_ in {r.type for r in targets}}):
        raise _Wrong(f"relationship {twice[0]} is declared twice; tables of pairs need types of their own")


def _properties(mapping: Mapping, label: str) -> set[str]:
    found = {mapping.keys[label][0]}
    return found.union(*(t.properties.values() for t in mapping.tables.values() if t.node == label))


def _camel(column: str) -> str:
    first, *rest = column.split("_")
    return first[:1].lower() + first[1:] + "".join(part[:1].upper() + part[1:] for part in rest)
