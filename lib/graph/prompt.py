"""The graph's schema in a few lines for a prompt, made from what the graph holds, so that it can't promise more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lib.graph import mapping as mappings
from lib.graph.mapping import Mapping, quoted
from lib.graph.model import CYPHER_TYPES, read_schema


def schema_text(graph: Path) -> str:
    """The schema of the graph in a folder; a '?' marks a property that some nodes lack."""
    schema = read_schema(graph)
    mapping = mappings.of(graph)
    also = {b: a for b, a in mapping.base.items() if a != b} if mapping else {}
    lines = ["Nodes:"]
    lines += [f"(:{quoted(n)}{_properties(v['properties'])})" for n, v in schema["labels"].items() if n not in also]
    lines += _second_labels(mapping) if mapping else _contained(schema)
    lines.append("Relationships:")
    patterns = []
    for pattern in schema["patterns"]:
        type_ = pattern["type"]
        ends = [pattern["start"], pattern["end"]]
        if mapping:
            ends = [end if end in mapping.declared_ends(type_) else mapping.base[end] for end in ends]
        start, end = map(quoted, ends)
        described = _properties(schema["relationships"][type_]["properties"])
        patterns.append(f"(:{start})-[:{quoted(type_)}{described}]->(:{end})")
    return "\n".join([*lines, *dict.fromkeys(patterns)])


def _properties(properties: dict[str, Any]) -> str:
    parts = [
        f"{quoted(n)}{'' if p['share'] == 1 else '?'}: {CYPHER_TYPES.get(p['type'], p['type'])}"
        for n, p in properties.items()
    ]
    return f" {{{', '.join(parts)}}}" if parts else ""


def _second_labels(mapping: Mapping) -> list[str]:
    """A sentence for each table whose rows may get a second label by one of their values."""
    lines = []
    for table in mapping.tables.values():
        if table.labelled_by:
            name = table.properties[table.labelled_by]
            cases = [f"{name} {value} is also {_a(label)} :{label}" for value, label in table.labels.items()]
            cases[1:] = [f"one with {case.replace(' is also ', ' also ', 1)}" for case in cases[1:]]
            lines.append(f"{_a(table.node).capitalize()} {table.node} with {', '.join(cases)}.")
    return lines


def _contained(schema: dict[str, Any]) -> list[str]:
    return [f"Every :{quoted(label)} is also {_a(of)} :{quoted(of)}." for label, of in schema.get("contained", [])]


def _a(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"
