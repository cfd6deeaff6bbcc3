"""Writes nodes and relationships from rows, and counts what became of each row, key and value."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from lib.graph.cells import CONVERT, File
from lib.graph.mapping import Mapping, Reference, Table
from lib.graph.tables import Row

SHOWN_IDS = 20  # row ids kept for each kind of unreadable value


class _Kind:
    """What is known of a label or type: how many there are, and how many have each property (by place)."""

    def __init__(self, names: list[str], kinds: list[str]):
        self.names, self.kinds = names, kinds
        self.count = 0
        self.filled = [0] * len(names)

    def add(self, values: list[Any]) -> None:
        self.count += 1
        if values:
            self.filled = [n + (value is not None) for n, value in zip(self.filled, values, strict=True)]

    def properties(self) -> dict[str, Any]:
        return {
            name: {"type": kind, "share": round(n / self.count, 4)}
            for name, kind, n in zip(self.names, self.kinds, self.filled, strict=True)
            if n
        }


class _Links:
    """The relationships of one type between two declared labels: their file and what is known of them."""

    def __init__(self, builder: Builder, type_: str, ends: tuple[str, str], names: list[str], kinds: list[str]):
        self.type, self.kind = type_, builder.types.setdefault(type_, _Kind(names, kinds))
        self._patterns = builder.patterns
        header = [builder.end("START", ends[0]), builder.end("END", ends[1]), *_typed(names, kinds)]
        self._write = builder.file("relationships", builder.mapping.file(type_, *ends), header).write

    def add(self, start: Any, end: Any, finest_start: str, finest_end: str, values: list[Any]) -> None:
        self._write([start, end, *values])
        self.kind.add(values)
        self._patterns[finest_start, self.type, finest_end] += 1


class Builder:
    """Reads tables in their order into folder `out`; a context that removes the folder if it is left by an error."""

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
        self.later: list[tuple[Callable[[Any, str, Any], None], Any, str, Any]] = []

    def __enter__(self) -> Builder:
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
        take = self._pairs(table) if table.pair else self._nodes(table)
        needed, unique = [*table.unique, *table.values], table.unique
        keys: set[Any] = set()
        others: dict[str, set[Any]] = {column: set() for column in unique}
        for number, row in enumerate(rows, 1):
            count["rows"] += 1
            key = number if table.key is None else self._parse(table, table.key, row.get(table.key), None)
            if key is None or any(row.get(column) in (None, "") for column in needed):
                count["without_key"] += 1
            elif key in keys or (unique and any(row[column] in others[column] for column in unique)):
                count["duplicates"] += 1
            else:
                keys.add(key)
                for column in unique:
                    others[column].add(row[column])
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
        write = self.file("nodes", label, [":LABEL", *_typed(names, kinds)]).write
        labelled_at = columns.index(table.labelled_by) + 1 if table.labelled_by else 0
        known, summed = self.ids.get(label), f"{label}.{names[0]}" if kinds[0] == "integer" else None
        others = [
            (self.by[label, table.properties[c]], columns.index(c) + 1)
            for c in table.unique
            if (label, table.properties[c]) in self.by
        ]
        follow = [(reference.column, self._follower(table, reference)) for reference in table.references]

        def take(key: Any, row: Row) -> None:
            values = [key]
            for column, convert in converters:
                value = row.get(column)
                if value is not None and value != "":
                    try:
                        value = convert(value)
                    except ValueError:
                        value = ""
                        self._unreadable(table, column, key)
                values.append(None if value == "" else value)
            finest = table.labels.get(values[labelled_at], label) if labelled_at else label
            write([label if finest is label else f"{label};{finest}", *values])
            self._label(label, names, kinds).add(values)
            if finest is not label:
                self._label(finest, names, kinds).add(values)
            if summed:
                self.sums[summed] += key
            if known is not None:
                known[key] = finest
            for by, place in others:
                by[values[place]] = key
            for column, to in follow:
                value = row.get(column)
                if value is not None and value != "":
                    to(key, finest, value)

        return take

    def _label(self, label: str, names: list[str], kinds: list[str]) -> _Kind:
        found = self.labels.get(label)
        if found is None:
            found = self.labels[label] = _Kind(names, kinds)
        return found

    def _follower(self, table: Table, reference: Reference) -> Callable[[Any, str, Any], None]:
        """What to do with a filled cell that leads from a row (its key and finest label) to other nodes, now or when all
        rows are known that it may lead to."""
        account = self._account(f"{table.name}.{reference.column}", reference.type)
        connect = self._connector(reference, account)
        wait, kind = self.mapping.base[reference.other] in self.unfinished, self.mapping.kind(reference)

        def one(key: Any, finest: str, value: Any) -> None:
            target = self._parse(table, reference.column, value, key)
            if target is not None:
                account["filled"] += 1
                if wait:
                    self.later.append((connect, key, finest, target))
                else:
                    connect(key, finest, target)

        def several(key: Any, finest: str, value: Any) -> None:
            seen = set()
            assert reference.each is not None
            for match in reference.each.finditer(str(value)):
                target = self._parse(table, reference.column, match[1], key, kind)
                if target is None:
                    continue
                account["filled"] += 1
                if target in seen:
                    account["repeated"] += 1
                elif wait:
                    self.later.append((connect, key, finest, target))
                else:
                    connect(key, finest, target)
                seen.add(target)

        return several if reference.each else one

    def _connector(self, reference: Reference, account: dict[str, Any]) -> Callable[[Any, str, Any], None]:
        """Connects a row with the node that one of its cells names, or counts why it can't."""
        base, links = self.mapping.base, None
        known = self.ids[base[reference.other]]
        by = self.by[reference.other, reference.by] if reference.by else None
        row_label = None if base[reference.row] == reference.row else reference.row
        other_label = None if base[reference.other] == reference.other else reference.other

        def connect(key: Any, finest: str, to: Any) -> None:
            nonlocal links
            target = to if by is None else by.get(to)
            finest_other = known.get(target)
            if finest_other is None:
                if reference.each is not None:
                    self.unknown_tags[str(to)] += 1
                return _drop(account, "orphaned", key)
            if (row_label and row_label != finest) or (other_label and other_label != finest_other):
                return _drop(account, "wrong_kind", key)
            account["relationships"] += 1
            links = links or _Links(self, reference.type, reference.ends, [], [])
            if reference.forward:
                links.add(key, target, finest, finest_other, [])
            else:
                links.add(target, key, finest_other, finest, [])

        return connect

    def _pairs(self, table: Table) -> Callable[[Any, Row], None]:
        """What to do with a row of a table of relationships."""
        columns = list(table.properties)
        names, kinds = [table.properties[c] for c in columns], [table.columns[c] for c in columns]
        listed = [i for i, (column, _) in enumerate(table.ends) if column not in table.values]
        account = self._account(f"{table.name}.{'+'.join(table.ends[i][0] for i in listed)}", table.pair)
        base, links = self.mapping.base, None

        def take(key: Any, row: Row) -> None:
            nonlocal links
            ends = [self._parse(table, column, row.get(column), key) for column, _ in table.ends]
            for (column, label), value in zip(table.ends, ends, strict=True):
                if column in table.values:
                    self._value(label, table.values[column], table.columns[column], value)
            values = [key if c == table.key else self._parse(table, c, row.get(c), key) for c in columns]
            if all(ends[i] is None for i in listed):
                return
            account["filled"] += 1
            labels = [label for _, label in table.ends]
            start, end = (self.ids[base[label]].get(value) for label, value in zip(labels, ends, strict=True))
            if start is None or end is None:
                return _drop(account, "orphaned", key)
            if any(label not in (base[label], finest) for label, finest in zip(labels, (start, end), strict=True)):
                return _drop(account, "wrong_kind", key)
            account["relationships"] += 1
            links = links or _Links(self, table.pair, (labels[0], labels[1]), names, kinds)
            links.add(ends[0], ends[1], start, end, values)

        return take

    def _value(self, label: str, name: str, kind: str, value: Any) -> None:
        """A node for a value that no table lists, once."""
        if value is not None and value not in self.ids[label]:
            self.ids[label][value] = label
            self.file("nodes", label, [":LABEL", f"{name}:{kind}"]).write([label, value])
            self._label(label, [name], [kind]).add([value])

    def finish(self) -> None:
        """What had to wait until every row was known."""
        for connect, key, finest, to in self.later:
            connect(key, finest, to)
        self.later.clear()

    # ------------------------------------------------------------ cells and files

    def _parse(self, table: Table, column: str, value: Any, row: Any, kind: str | None = None) -> Any:
        """The value as the graph holds it: ISO text for a time, None for NULL, empty and unreadable ones. It is of the
        column's kind, if no other is named."""
        if value is None or value == "":
            return None
        try:
            return CONVERT[kind or table.columns[column]](value)
        except ValueError:
            self._unreadable(table, column, row)
            return None

    def _unreadable(self, table: Table, column: str, row: Any) -> None:
        entry = self.unreadable.setdefault(f"{table.name}.{column}", {"count": 0, "first_ids": []})
        entry["count"] += 1
        if len(entry["first_ids"]) < SHOWN_IDS:
            entry["first_ids"].append(row)

    def end(self, side: str, label: str) -> str:
        """Header of a column that holds one end of relationships."""
        base = self.mapping.base[label]
        key, kind = self.mapping.keys[base]
        return f":{side}({base}.{key}):{kind}"

    def file(self, folder: str, name: str, header: list[str]) -> File:
        path = f"{folder}/{name}.csv"
        if path not in self.files:
            self.files[path] = File(self.out / path, header)
        return self.files[path]

    def _account(self, key: str, type_: str) -> dict[str, Any]:
        account = self.keys[key] = {
            "type": type_, "filled": 0, "relationships": 0, "orphaned": 0, "wrong_kind": 0, "repeated": 0, "first_ids": []
        }  # fmt: skip
        return account

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


def _drop(account: dict[str, Any], why: str, row: Any) -> None:
    account[why] += 1
    if len(account["first_ids"]) < SHOWN_IDS:
        account["first_ids"].append(row)


def _described(kinds: dict[str, _Kind]) -> dict[str, Any]:
    return {name: {"count": k.count, "properties": k.properties()} for name, k in sorted(kinds.items())}


def _typed(names: list[str], kinds: list[str]) -> list[str]:
    return [f"{name}:{kind}" for name, kind in zip(names, kinds, strict=True)]
