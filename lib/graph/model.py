"""Turns a source's tables into nodes and relationships by a mapping, and accounts for every row, key and value."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from lib.files import write_json, write_text
from lib.graph import mapping as mappings
from lib.graph.cells import CONVERT, File
from lib.graph.mapping import Mapping, Reference, Table
from lib.graph.tables import Row, Tables

SHOWN_IDS = 20  # row ids kept for each kind of unreadable value
CYPHER_TYPES = {
    "integer": "INTEGER",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "text": "STRING",
    "datetime": "LOCAL DATETIME",
    "date": "DATE",
}


class ModelError(RuntimeError):
    """The tables can't become a graph, or the accounts don't add up."""


def build_model(tables: Tables, out: Path, about: dict[str, Any], mapping: Mapping | None = None) -> dict[str, Any]:
    """Write nodes/*.csv, relationships/*.csv, counts.json and schema.json to `out`; all appear at once, or none do.

    `about` (source, scale, seed ...) heads counts.json; `mapping` is the community's, or lies beside it as mapping.yaml.
    Returns the counts. Raises ModelError.
    """
    mapping = mapping or mappings.community()
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for folder in ("nodes", "relationships"):
        (part / folder).mkdir(parents=True)
    with _Builder(part, mapping) as builder:
        wanted = iter(mapping.tables)
        known = ", ".join(mapping.tables)
        for table, rows in tables:
            if table != (expected := next(wanted, None)):
                raise ModelError(f"The source yielded table {table!r} where {expected!r} was due; the order is {known}")
            builder.read(table, rows)
        if (missing := next(wanted, None)) is not None:
            raise ModelError(f"The source yielded no table {missing!r}; it has to yield all of {known}")
        builder.finish()
        counts = {**about, **builder.counts()}
        reconcile(counts, mapping)
    write_json(part / "counts.json", counts)
    write_json(part / "schema.json", builder.schema())
    if mapping is not mappings.community():
        write_text(part / mappings.FILE, mapping.declaration)
    swap(part, out)
    return counts


def swap(part: Path, out: Path) -> None:
    """In place of what was there; between the two renames a killed process leaves no graph rather than half of one."""
    old = out.with_name(out.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    shutil.rmtree(old, ignore_errors=True)


def reconcile(counts: dict[str, Any], mapping: Mapping | None = None) -> None:
    """Check that each class of rows, keys and tags is fully accounted for. Raises ModelError naming the class."""
    for table, c in counts["tables"].items():
        if c["rows"] != c["kept"] + c["duplicates"] + c["without_key"]:
            raise ModelError(f"Table {table}: {c} doesn't add up to its rows")
    for key, c in counts["keys"].items():
        if c["filled"] != c["relationships"] + c["orphaned"] + c["wrong_kind"] + c["repeated"]:
            raise ModelError(f"Key {key}: {c} doesn't add up to its filled cells")
    for type_, n in counts["database"]["relationships"].items():
        if n != (parts := sum(c["relationships"] for c in counts["keys"].values() if c["type"] == type_)):
            raise ModelError(f"Relationships {type_}: {n} written, {parts} accounted for by keys")
    for name, table in (mapping or mappings.community()).tables.items():
        if table.node and counts["tables"][name]["kept"] != counts["database"]["nodes"].get(table.node, 0):
            raise ModelError(f"Table {name}: rows kept differ from nodes {table.node}")


class _Kind:
    """What is known of a label or type: how many there are, and how many have each property (by place)."""

    def __init__(self, names: list[str], kinds: list[str]):
        self.names, self.kinds = names, kinds
        self.count = 0
        self.filled = [0] * len(names)

    def add(self, values: list[Any]) -> None:
        self.count += 1
        self.filled = [n + (value is not None) for n, value in zip(self.filled, values, strict=True)]

    def properties(self) -> dict[str, Any]:
        return {
            name: {"type": kind, "share": round(n / self.count, 4)}
            for name, kind, n in zip(self.names, self.kinds, self.filled, strict=True)
            if n
        }


class _Builder:
    def __init__(self, out: Path, mapping: Mapping):
        self.out, self.mapping = out, mapping
        self.files: dict[str, File] = {}
        self.tables: dict[str, Counter[str]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.unreadable: dict[str, dict[str, Any]] = {}
        self.labels: dict[str, _Kind] = {}
        self.types: dict[str, _Kind] = {}
        self.patterns: Counter[tuple[str, str, str]] = Counter()
        self.unknown_tags: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        references = [r for t in mapping.tables.values() for r in t.references]
        targets = {r.other for r in references} | {label for t in mapping.tables.values() for _, label in t.ends}
        # For labels that something leads to: key -> finest label; and other property that leads there -> key
        self.ids: dict[str, dict[Any, str]] = {mapping.base[label]: {} for label in targets}
        self.by: dict[tuple[str, str], dict[Any, Any]] = {(r.other, r.by): {} for r in references if r.by}
        self.unfinished = {t.node for t in mapping.tables.values() if t.node}
        self.later: list[tuple[dict[str, Any], Reference, Any, str, Any]] = []

    def __enter__(self) -> _Builder:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        for file in self.files.values():
            file.close()
        if kind is not None:
            shutil.rmtree(self.out, ignore_errors=True)

    # ------------------------------------------------------------ rows

    def read(self, name: str, rows: Iterable[Row]) -> None:
        table = self.mapping.tables[name]
        count = self.tables[name] = Counter(rows=0, kept=0, duplicates=0, without_key=0)
        for reference in table.references:
            self._account(f"{name}.{reference.column}", reference.type)
        listed = [column for column, _ in table.ends if column not in table.values]
        if table.pair:
            self._account(f"{name}.{'+'.join(listed)}", table.pair)
        take = self._pairs(table, listed) if table.pair else self._nodes(table)
        needed = [*table.unique, *table.values]
        seen: dict[str, set[Any]] = {column: set() for column in (table.key, *table.unique) if column}
        for number, row in enumerate(rows, 1):
            count["rows"] += 1
            key = number if table.key is None else self._parse(table, table.key, row.get(table.key), None)
            if key is None or not all(row.get(column) for column in needed):
                count["without_key"] += 1
                continue
            if any((key if column == table.key else row[column]) in before for column, before in seen.items()):
                count["duplicates"] += 1
                continue
            for column, before in seen.items():
                before.add(key if column == table.key else row[column])
            count["kept"] += 1
            take(key, row)
        self.unfinished.discard(table.node)

    def _nodes(self, table: Table) -> Callable[[Any, Row], None]:
        """What to do with a row of a table of nodes."""
        label, key_column = table.node, table.key
        assert key_column is not None
        columns = [c for c in table.properties if c != key_column]
        converters = [(column, CONVERT[table.columns[column]]) for column in columns]
        names = [table.properties[c] for c in (key_column, *columns)]
        kinds = [table.columns[c] for c in (key_column, *columns)]
        file = self._file("nodes", label, [":LABEL", *_typed(names, kinds)])
        labelled_at = columns.index(table.labelled_by) + 1 if table.labelled_by else 0
        ids, sums = self.ids.get(label), f"{label}.{names[0]}"
        others = [(self.by[label, table.properties[c]], c) for c in table.unique if (label, table.properties[c]) in self.by]

        def take(key: Any, row: Row) -> None:
            values = [key]
            for column, convert in converters:
                value = row.get(column)
                if value is not None and value != "":
                    try:
                        values.append(convert(value))
                        continue
                    except ValueError:
                        self._unreadable(table, column, key)
                values.append(None)
            finest = table.labels.get(values[labelled_at], label) if labelled_at else label
            file.write([label if finest == label else f"{label};{finest}", *values])
            for each in {label, finest}:
                if each not in self.labels:
                    self.labels[each] = _Kind(names, kinds)
                self.labels[each].add(values)
            if kinds[0] == "integer":
                self.sums[sums] += key
            if ids is not None:
                ids[key] = finest
            for known, column in others:
                known[row[column]] = key
            for reference in table.references:
                self._follow(table, reference, key, finest, row.get(reference.column))

        return take

    def _follow(self, table: Table, reference: Reference, key: Any, finest: str, value: Any) -> None:
        """From a row along one of its keys, now or when all rows are known that it may lead to."""
        if value is None or value == "":
            return
        account = self.keys[f"{table.name}.{reference.column}"]
        if reference.each is None:
            target = self._parse(table, reference.column, value, key)
            if target is not None:
                account["filled"] += 1
                self._wait_or_connect(account, reference, key, finest, target)
            return
        seen = set()
        for match in reference.each.finditer(str(value)):
            account["filled"] += 1
            if match[1] in seen:
                account["repeated"] += 1
            else:
                seen.add(match[1])
                self._wait_or_connect(account, reference, key, finest, match[1])

    def _wait_or_connect(self, account: dict[str, Any], reference: Reference, key: Any, finest: str, to: Any) -> None:
        if self.mapping.base[reference.other] in self.unfinished:
            self.later.append((account, reference, key, finest, to))
        else:
            self._connect(account, reference, key, finest, to)

    def _connect(self, account: dict[str, Any], reference: Reference, key: Any, finest: str, to: Any) -> None:
        base = self.mapping.base
        other = base[reference.other]
        target = self.by[reference.other, reference.by].get(to) if reference.by else to
        finest_other = self.ids[other].get(target)
        if finest_other is None:
            if reference.each is not None:
                self.unknown_tags[to] += 1
            return self._drop(account, "orphaned", key)
        for wanted, found in ((reference.row, finest), (reference.other, finest_other)):
            if wanted != base[wanted] and wanted != found:
                return self._drop(account, "wrong_kind", key)
        account["relationships"] += 1
        ends = [(key, reference.row, finest), (target, reference.other, finest_other)]
        start, end = ends if reference.forward else reversed(ends)
        self._relationship(reference.type, start, end, [], [], [])

    def _pairs(self, table: Table, listed: list[str]) -> Callable[[Any, Row], None]:
        """What to do with a row of a table of relationships."""
        columns = list(table.properties)
        names, kinds = [table.properties[c] for c in columns], [table.columns[c] for c in columns]
        account = self.keys[f"{table.name}.{'+'.join(listed)}"]

        def take(key: Any, row: Row) -> None:
            ends: list[Any] = []
            for column, label in table.ends:
                value = self._parse(table, column, row.get(column), key)
                if column in table.values:
                    self._value(label, table.values[column], table.columns[column], value)
                ends.append((value, label, self.ids[self.mapping.base[label]].get(value)))
            values = [key if c == table.key else self._parse(table, c, row.get(c), key) for c in columns]
            if all(end[0] is None for end, (column, _) in zip(ends, table.ends, strict=True) if column in listed):
                return
            account["filled"] += 1
            if any(finest is None for _, _, finest in ends):
                return self._drop(account, "orphaned", key)
            if any(label != self.mapping.base[label] and label != finest for _, label, finest in ends):
                return self._drop(account, "wrong_kind", key)
            account["relationships"] += 1
            self._relationship(table.pair, ends[0], ends[1], names, kinds, values)

        return take

    def _value(self, label: str, name: str, kind: str, value: Any) -> None:
        """A node for a value that no table lists, once."""
        if value is None or value in self.ids[label]:
            return
        self.ids[label][value] = label
        self._file("nodes", label, [":LABEL", f"{name}:{kind}"]).write([label, value])
        if label not in self.labels:
            self.labels[label] = _Kind([name], [kind])
        self.labels[label].add([value])

    def finish(self) -> None:
        """What had to wait until every row was known."""
        for waiting in self.later:
            self._connect(*waiting)
        self.later.clear()

    # ------------------------------------------------------------ cells and files

    def _parse(self, table: Table, column: str, value: Any, row: Any) -> Any:
        """The value as the graph holds it: ISO text for a time, None for NULL, empty and unreadable ones."""
        if value is None or value == "":
            return None
        try:
            return CONVERT[table.columns[column]](value)
        except ValueError:
            return self._unreadable(table, column, row)

    def _unreadable(self, table: Table, column: str, row: Any) -> None:
        entry = self.unreadable.setdefault(f"{table.name}.{column}", {"count": 0, "first_ids": []})
        entry["count"] += 1
        if len(entry["first_ids"]) < SHOWN_IDS:
            entry["first_ids"].append(row)

    def _relationship(
        self,
        type_: str,
        start: tuple[Any, str, str],
        end: tuple[Any, str, str],
        names: list[str],
        kinds: list[str],
        values: list[Any],
    ) -> None:
        """Ends as (key, declared label, finest label)."""
        file = self.files.get(f"relationships/{type_} {start[1]} {end[1]}")
        if file is None:
            file = self._relationship_file(type_, start[1], end[1], names, kinds)
        file.write([start[0], end[0], *values])
        if type_ not in self.types:
            self.types[type_] = _Kind(names, kinds)
        self.types[type_].add(values)
        self.patterns[start[2], type_, end[2]] += 1

    def _relationship_file(self, type_: str, start: str, end: str, names: list[str], kinds: list[str]) -> File:
        header = []
        for side, label in (("START", start), ("END", end)):
            base = self.mapping.base[label]
            key, kind = self.mapping.keys[base]
            header.append(f":{side}({base}.{key}):{kind}")
        file = self._file("relationships", self.mapping.file(type_, start, end), header + _typed(names, kinds))
        self.files[f"relationships/{type_} {start} {end}"] = file
        return file

    def _file(self, folder: str, name: str, header: list[str]) -> File:
        path = f"{folder}/{name}.csv"
        if path not in self.files:
            self.files[path] = File(self.out / path, header)
        return self.files[path]

    def _account(self, key: str, type_: str) -> None:
        self.keys[key] = {
            "type": type_, "filled": 0, "relationships": 0, "orphaned": 0, "wrong_kind": 0, "repeated": 0, "first_ids": []
        }  # fmt: skip

    @staticmethod
    def _drop(account: dict[str, Any], why: str, row: Any) -> None:
        account[why] += 1
        if len(account["first_ids"]) < SHOWN_IDS:
            account["first_ids"].append(row)

    # ------------------------------------------------------------ accounts

    def counts(self) -> dict[str, Any]:
        labels = {label: kind.count for label, kind in sorted(self.labels.items())}
        types = {type_: kind.count for type_, kind in sorted(self.types.items())}
        return {
            "tables": {table: dict(count) for table, count in self.tables.items()},
            "keys": self.keys,
            "unreadable": self.unreadable,
            "tags_without_a_row": dict(sorted(self.unknown_tags.items())),
            "nodes": sum(n for label, n in labels.items() if self.mapping.base[label] == label),
            "relationships": sum(types.values()),
            "database": {"nodes": labels, "relationships": types, "key_sums": dict(sorted(self.sums.items()))},
        }

    def schema(self) -> dict[str, Any]:
        """Labels and types with their properties (type, share of those that have it), and which label meets which."""
        return {
            "labels": _described(self.labels),
            "relationships": _described(self.types),
            "patterns": [
                {"start": start, "type": type_, "end": end, "count": n}
                for (start, type_, end), n in sorted(self.patterns.items())
            ],
        }


def _described(kinds: dict[str, _Kind]) -> dict[str, Any]:
    return {name: {"count": k.count, "properties": k.properties()} for name, k in sorted(kinds.items())}


def _typed(names: list[str], kinds: list[str]) -> list[str]:
    return [f"{name}:{kind}" for name, kind in zip(names, kinds, strict=True)]


def read_schema(graph: Path) -> dict[str, Any]:
    """schema.json of a graph's folder. Raises ModelError with the way out."""
    try:
        schema: dict[str, Any] = json.loads((graph / "schema.json").read_text())
    except (OSError, ValueError) as e:
        raise ModelError(
            f"{graph / 'schema.json'} can't be read ({e}); make the graph again with lib.graph.build"
        ) from e
    return schema
