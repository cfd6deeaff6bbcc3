"""Turns the eight tables into seven kinds of node and fourteen types of relationship, and accounts for every row."""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from lib.files import write_json
from lib.graph.tables import TABLES, Row, Tables

SHOWN_IDS = 20  # row ids kept for each kind of unreadable value
LONGEST = 2**63


@dataclass(frozen=True)
class NodeKind:
    label: str
    key: str  # the property that Id becomes
    columns: dict[str, str] = field(
        default_factory=dict
    )  # column -> property, only where the name isn't just lower-cased
    keys: tuple[str, ...] = ()  # columns that become relationships (or, for Tags, are parsed into them)


@dataclass(frozen=True)
class KeyKind:
    """A foreign key: which relationship it becomes, and from which end."""

    column: str
    type: str
    start: str
    end: str
    holder: str = "start"  # the end that the row with the key is


NODES = {
    "users": NodeKind("User", "userId"),
    "tags": NodeKind("Tag", "tagId", keys=("ExcerptPostId", "WikiPostId")),
    "posts": NodeKind(
        "Post",
        "postId",
        {"CreaionDate": "creationDate", "LasActivityDate": "lastActivityDate"},
        ("AcceptedAnswerId", "OwnerUserId", "LastEditorUserId", "ParentId", "Tags"),
    ),
    "comments": NodeKind("Comment", "commentId", keys=("PostId", "UserId")),
    "votes": NodeKind("Vote", "voteId", keys=("PostId", "UserId")),
    "postHistory": NodeKind("PostHistory", "postHistoryId", keys=("PostId", "UserId")),
}
KEYS = {
    "posts": [
        KeyKind("OwnerUserId", "OWNS", "User", "Post", "end"),
        KeyKind("LastEditorUserId", "LAST_EDITED", "User", "Post", "end"),
        KeyKind("ParentId", "ANSWERS", "Answer", "Question"),
        KeyKind("AcceptedAnswerId", "ACCEPTED", "Question", "Answer"),
    ],
    "tags": [KeyKind("ExcerptPostId", "HAS_EXCERPT", "Tag", "Post"), KeyKind("WikiPostId", "HAS_WIKI", "Tag", "Post")],
    "comments": [KeyKind("UserId", "WROTE", "User", "Comment", "end"), KeyKind("PostId", "ON_POST", "Comment", "Post")],
    "votes": [KeyKind("UserId", "CAST", "User", "Vote", "end"), KeyKind("PostId", "ON_POST", "Vote", "Post")],
    "postHistory": [
        KeyKind("UserId", "MADE", "User", "PostHistory", "end"),
        KeyKind("PostId", "REVISES", "PostHistory", "Post"),
    ],
}
POST_LABELS = {1: "Question", 2: "Answer"}
ID_OF = {"Question": "Post.postId", "Answer": "Post.postId"} | {
    kind.label: f"{kind.label}.{kind.key}" for kind in NODES.values()
}
TAG = re.compile(r"<([^<>]+)>")


class ModelError(RuntimeError):
    """The tables can't become a graph, or the accounts don't add up."""


def build_model(tables: Tables, out: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Write nodes/*.csv, relationships/*.csv, counts.json and schema.json to `out`; all appear at once, or none do.

    `about` (source, scale, seed ...) heads counts.json. Returns the counts. Raises ModelError.
    """
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for folder in ("nodes", "relationships"):
        (part / folder).mkdir(parents=True)
    with _Builder(part) as builder:
        wanted = iter(TABLES)
        for table, rows in tables:
            if table != (expected := next(wanted, None)):
                raise ModelError(
                    f"The source yielded table {table!r} where {expected!r} was due; the order is {', '.join(TABLES)}"
                )
            builder.read(table, rows)
        if (missing := next(wanted, None)) is not None:
            raise ModelError(f"The source yielded no table {missing!r}; it has to yield all of {', '.join(TABLES)}")
        builder.finish()
        counts = {**about, **builder.counts()}
    reconcile(counts)
    write_json(part / "counts.json", counts)
    write_json(part / "schema.json", builder.schema())
    _swap(part, out)
    return counts


def _swap(part: Path, out: Path) -> None:
    """In place of what was there; between the two renames a killed process leaves no graph rather than half of one."""
    old = out.with_name(out.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    shutil.rmtree(old, ignore_errors=True)


def reconcile(counts: dict[str, Any]) -> None:
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
    for table, kind in NODES.items():
        if counts["tables"][table]["kept"] != counts["database"]["nodes"].get(kind.label, 0):
            raise ModelError(f"Table {table}: rows kept differ from nodes {kind.label}")


class _File:
    """One CSV file with counts of what each property holds."""

    def __init__(self, path: Path, header: list[str]):
        self.text: TextIO = path.open("w", newline="", encoding="utf-8", errors="replace")
        self.writer = csv.writer(self.text, lineterminator="\n")
        self.writer.writerow(header)


class _Builder:
    def __init__(self, out: Path):
        self.out = out
        self.files: dict[str, _File] = {}
        self.tables: dict[str, Counter[str]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.unreadable: dict[str, dict[str, Any]] = {}
        self.nodes: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.patterns: Counter[tuple[str, str, str]] = Counter()
        self.filled: Counter[tuple[str, str]] = Counter()  # (label or type, property) -> how many have it
        self.property_types: dict[tuple[str, str], str] = {}
        self.ids: dict[str, dict[Any, str]] = {"User": {}, "Post": {}, "Tag": {}, "Badge": {}}  # id -> finest label
        self.tag_names: dict[str, int] = {}
        self.unknown_tags: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.later: list[tuple[str, KeyKind, int, int]] = []  # keys to posts that may still come

    def __enter__(self) -> _Builder:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        for file in self.files.values():
            file.text.close()
        if kind is not None:
            shutil.rmtree(self.out, ignore_errors=True)

    # ------------------------------------------------------------ rows

    def read(self, table: str, rows: Iterable[Row]) -> None:
        count = self.tables[table] = Counter(rows=0, kept=0, duplicates=0, without_key=0)
        for kind in KEYS.get(table, []):
            self._account(table, kind.column, kind.type)
        take = {"badges": self._award, "postLinks": self._link}.get(table)
        node = NODES.get(table)
        seen: set[int] = set()
        if table == "badges":
            self._account(table, "UserId", "EARNED")
        elif table == "postLinks":
            self._account(table, "PostId+RelatedPostId", "LINKS_TO")
        elif table == "posts":
            self._account(table, "Tags", "TAGGED")
        for row in rows:
            count["rows"] += 1
            key = self._parse(table, "Id", row.get("Id"), None)
            if (
                key is None
                or (table == "tags" and not row.get("TagName"))
                or (table == "badges" and not row.get("Name"))
            ):
                count["without_key"] += 1
            elif key in seen or (table == "tags" and row["TagName"] in self.tag_names):
                count["duplicates"] += 1
            else:
                seen.add(key)
                count["kept"] += 1
                if take is not None:
                    take(key, row)
                else:
                    assert node is not None
                    self._node(table, node, key, row)

    def _node(self, table: str, node: NodeKind, key: int, row: Row) -> None:
        values = {}
        for column, kind in TABLES[table].items():
            if column == "Id" or column in node.keys:
                continue
            value = self._parse(table, column, row.get(column), key)
            if value is not None:
                values[node.columns.get(column) or column[0].lower() + column[1:]] = (value, kind)
        labels = [node.label]
        if table == "posts":
            label = POST_LABELS.get(values.get("postTypeId", (0,))[0])
            labels += [label] if label else []
        names = [node.columns.get(c) or c[0].lower() + c[1:] for c in TABLES[table] if c != "Id" and c not in node.keys]
        kinds = [k for c, k in TABLES[table].items() if c != "Id" and c not in node.keys]
        header = [":LABEL", f"{node.key}:integer", *(f"{n}:{k}" for n, k in zip(names, kinds, strict=True))]
        self._write(
            "nodes",
            node.label,
            header,
            [";".join(labels), key, *(values[n][0] if n in values else None for n in names)],
        )
        self._count_node(labels, {node.key: (key, "integer"), **values})
        self.sums[f"{node.label}.{node.key}"] += key
        if node.label in self.ids:
            self.ids[node.label][key] = labels[-1]
        if table == "tags":
            self.tag_names[row["TagName"]] = key
        for foreign in KEYS.get(table, []):
            self._key(table, foreign, key, row)
        if table == "posts" and row.get("Tags"):
            self._tagged(key, labels[-1], row["Tags"])

    def _count_node(self, labels: list[str], values: dict[str, tuple[Any, str]]) -> None:
        for label in labels:
            self.nodes[label] += 1
            for name, (_, kind) in values.items():
                self.filled[label, name] += 1
                self.property_types[label, name] = kind

    def _key(self, table: str, kind: KeyKind, holder: int, row: Row) -> None:
        target = self._parse(table, kind.column, row.get(kind.column), holder)
        if target is None:
            return
        self.keys[f"{table}.{kind.column}"]["filled"] += 1
        other = kind.end if kind.holder == "start" else kind.start
        if table in ("posts", "tags") and other != "User":
            self.later.append((table, kind, holder, target))
        else:
            self._connect(table, kind, holder, target)

    def _connect(self, table: str, kind: KeyKind, holder: int, target: int) -> None:
        start, end = (holder, target) if kind.holder == "start" else (target, holder)
        other = kind.end if kind.holder == "start" else kind.start
        account = self.keys[f"{table}.{kind.column}"]
        finest = self.ids[ID_OF[other].split(".")[0]].get(target)
        if finest is None:
            return self._drop(account, "orphaned", holder)
        ends = {}
        for label, key in ((kind.start, start), (kind.end, end)):
            base = ID_OF[label].split(".")[0]
            ends[label] = self.ids[base][key] if base in self.ids else label
            if label in POST_LABELS.values() and ends[label] != label:
                return self._drop(account, "wrong_kind", holder)
        account["relationships"] += 1
        self._relationship(kind.type, kind.start, kind.end, start, end, {}, (ends[kind.start], ends[kind.end]))

    def _tagged(self, post: int, label: str, text: str) -> None:
        account = self.keys["posts.Tags"]
        seen = set()
        for name in TAG.findall(text):
            account["filled"] += 1
            if name in seen:
                account["repeated"] += 1
            elif name not in self.tag_names:
                self.unknown_tags[name] += 1
                self._drop(account, "orphaned", post)
            else:
                account["relationships"] += 1
                self._relationship("TAGGED", "Post", "Tag", post, self.tag_names[name], {}, (label, "Tag"))
            seen.add(name)

    def _award(self, key: int, row: Row) -> None:
        name = row["Name"]
        if name not in self.ids["Badge"]:
            self.ids["Badge"][name] = "Badge"
            self._write("nodes", "Badge", [":LABEL", "name:text"], ["Badge", name])
            self._count_node(["Badge"], {"name": (name, "text")})
        user = self._parse("badges", "UserId", row.get("UserId"), key)
        if user is None:
            return
        account = self.keys["badges.UserId"]
        account["filled"] += 1
        if user not in self.ids["User"]:
            return self._drop(account, "orphaned", key)
        account["relationships"] += 1
        date = self._parse("badges", "Date", row.get("Date"), key)
        properties = {"badgeId": (key, "integer"), "date": (date, "datetime")}
        self._relationship("EARNED", "User", "Badge", user, name, properties, ("User", "Badge"))

    def _link(self, key: int, row: Row) -> None:
        account = self.keys["postLinks.PostId+RelatedPostId"]
        start, end = (self._parse("postLinks", column, row.get(column), key) for column in ("PostId", "RelatedPostId"))
        if start is None and end is None:
            return
        account["filled"] += 1
        posts = self.ids["Post"]
        if start not in posts or end not in posts:
            return self._drop(account, "orphaned", key)
        account["relationships"] += 1
        properties = {
            "postLinkId": (key, "integer"),
            "linkTypeId": (self._parse("postLinks", "LinkTypeId", row.get("LinkTypeId"), key), "integer"),
            "creationDate": (self._parse("postLinks", "CreationDate", row.get("CreationDate"), key), "datetime"),
        }
        self._relationship("LINKS_TO", "Post", "Post", start, end, properties, (posts[start], posts[end]))

    def finish(self) -> None:
        """What had to wait until every post was known."""
        for table, kind, holder, target in self.later:
            self._connect(table, kind, holder, target)
        self.later.clear()

    # ------------------------------------------------------------ cells and files

    def _parse(self, table: str, column: str, value: Any, row: int | None) -> Any:
        """The value as the graph holds it: int, text, ISO text of a time; None for NULL, empty and unreadable ones."""
        if value is None or value == "":
            return None
        try:
            return CONVERT[TABLES[table][column]](value)
        except ValueError:
            entry = self.unreadable.setdefault(f"{table}.{column}", {"count": 0, "first_ids": []})
            entry["count"] += 1
            if len(entry["first_ids"]) < SHOWN_IDS:
                entry["first_ids"].append(row)
            return None

    def _relationship(
        self, type_: str, start: str, end: str, a: Any, b: Any, properties: dict[str, Any], finest: tuple[str, str]
    ) -> None:
        name = f"{type_}.{start}" if type_ == "ON_POST" else type_
        header = [f":START({_id(start)}):{_id_type(start)}", f":END({_id(end)}):{_id_type(end)}"]
        header += [f"{n}:{kind}" for n, (_, kind) in properties.items()]
        self._write("relationships", name, header, [a, b, *(value for value, _ in properties.values())])
        self.types[type_] += 1
        self.patterns[finest[0], type_, finest[1]] += 1
        for n, (value, kind) in properties.items():
            if value is not None:
                self.filled[type_, n] += 1
                self.property_types[type_, n] = kind

    def _write(self, folder: str, name: str, header: list[str], row: list[Any]) -> None:
        if name not in self.files:
            self.files[name] = _File(self.out / folder / f"{name}.csv", header)
        self.files[name].writer.writerow(row)

    def _account(self, table: str, column: str, type_: str) -> None:
        self.keys[f"{table}.{column}"] = {
            "type": type_, "filled": 0, "relationships": 0, "orphaned": 0, "wrong_kind": 0, "repeated": 0, "first_ids": []
        }  # fmt: skip

    @staticmethod
    def _drop(account: dict[str, Any], why: str, row: int) -> None:
        account[why] += 1
        if len(account["first_ids"]) < SHOWN_IDS:
            account["first_ids"].append(row)

    # ------------------------------------------------------------ accounts

    def counts(self) -> dict[str, Any]:
        return {
            "tables": {table: dict(count) for table, count in self.tables.items()},
            "keys": self.keys,
            "unreadable": self.unreadable,
            "tags_without_a_row": dict(sorted(self.unknown_tags.items())),
            "nodes": sum(n for label, n in self.nodes.items() if label not in POST_LABELS.values()),
            "relationships": sum(self.types.values()),
            "database": {
                "nodes": dict(sorted(self.nodes.items())),
                "relationships": dict(sorted(self.types.items())),
                "key_sums": dict(sorted(self.sums.items())),
            },
        }

    def schema(self) -> dict[str, Any]:
        """Labels and types with their properties (type, share of those that have it), and which label meets which."""

        def properties(owner: str, total: int) -> dict[str, Any]:
            return {
                name: {"type": self.property_types[o, name], "share": round(n / total, 4)}
                for (o, name), n in self.filled.items()
                if o == owner
            }

        return {
            "labels": {
                label: {"count": n, "properties": properties(label, n)} for label, n in sorted(self.nodes.items())
            },
            "relationships": {
                name: {"count": n, "properties": properties(name, n)} for name, n in sorted(self.types.items())
            },
            "patterns": [
                {"start": start, "type": type_, "end": end, "count": n}
                for (start, type_, end), n in sorted(self.patterns.items())
            ],
        }


def _id(label: str) -> str:
    return "Badge.name" if label == "Badge" else ID_OF[label]


def _id_type(label: str) -> str:
    return "text" if label == "Badge" else "integer"


def _integer(value: Any) -> int:
    number = int(value)
    if not -LONGEST <= number < LONGEST:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _datetime(value: Any) -> str:
    """A local time, as the sources give it; a zone is dropped after conversion to UTC."""
    moment = datetime.datetime.fromisoformat(str(value).strip())
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment.isoformat()


def _date(value: Any) -> str:
    return _datetime(value)[:10]


CONVERT: dict[str, Callable[[Any], Any]] = {"integer": _integer, "text": str, "datetime": _datetime, "date": _date}


def read_schema(graph: Path) -> dict[str, Any]:
    """schema.json of a graph's folder. Raises ModelError with the way out."""
    try:
        schema: dict[str, Any] = json.loads((graph / "schema.json").read_text())
    except (OSError, ValueError) as e:
        raise ModelError(
            f"{graph / 'schema.json'} can't be read ({e}); make the graph again with lib.graph.build"
        ) from e
    return schema


CYPHER_TYPES = {"integer": "INTEGER", "text": "STRING", "datetime": "LOCAL DATETIME", "date": "DATE"}


def schema_text(graph: Path) -> str:
    """The graph's schema in a few lines for a prompt; a '?' marks a property that some nodes lack."""
    schema = read_schema(graph)

    def described(properties: dict[str, Any]) -> str:
        parts = [f"{n}{'' if p['share'] == 1 else '?'}: {CYPHER_TYPES[p['type']]}" for n, p in properties.items()]
        return f" {{{', '.join(parts)}}}" if parts else ""

    lines = ["Nodes:"]
    lines += [
        f"(:{n}{described(v['properties'])})" for n, v in schema["labels"].items() if n not in POST_LABELS.values()
    ]
    lines.append("A Post with postTypeId 1 is also a :Question, one with postTypeId 2 also an :Answer.")
    lines.append("Relationships:")
    seen = set()
    for pattern in schema["patterns"]:
        type_ = pattern["type"]
        ends = [pattern["start"], pattern["end"]]
        if type_ not in ("ANSWERS", "ACCEPTED"):
            ends = ["Post" if end in POST_LABELS.values() else end for end in ends]
        line = f"(:{ends[0]})-[:{type_}{described(schema['relationships'][type_]['properties'])}]->(:{ends[1]})"
        if line not in seen:
            seen.add(line)
            lines.append(line)
    return "\n".join(lines)
