"""Turns a source's tables into nodes and relationships by a mapping, and accounts for every row, key and value."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from lib.files import write_json, write_text
from lib.graph import mapping as mappings
from lib.graph.builder import Builder
from lib.graph.mapping import Mapping
from lib.graph.tables import Tables

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
    with Builder(part, mapping) as builder:
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


def read_schema(graph: Path) -> dict[str, Any]:
    """schema.json of a graph's folder. Raises ModelError with the way out."""
    try:
        schema: dict[str, Any] = json.loads((graph / "schema.json").read_text())
    except (OSError, ValueError) as e:
        raise ModelError(
            f"{graph / 'schema.json'} can't be read ({e}); make the graph again with lib.graph.build"
        ) from e
    return schema
