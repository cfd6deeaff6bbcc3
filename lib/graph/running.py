"""Describes a database that runs already, as it is, so that the study can ask about a graph that it didn't make."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from lib.files import write_json
from lib.graph.database import contents, session
from lib.graph.errors import first_line
from lib.graph.mapping import quoted
from lib.graph.model import CYPHER_TYPES, swap
from lib.graph.tables import SourceError

KINDS = {cypher: kind for kind, cypher in CYPHER_TYPES.items()}
WAY_OUT = "set NEO4J_URI (with NEO4J_USER, NEO4J_PASSWORD and, if need be, NEO4J_DATABASE) to a running server"


def describe(out: Path) -> dict[str, Any]:
    """Write counts.json and schema.json of the database behind NEO4J_URI to folder `out`; return the counts.

    Everything is read once, in sessions that can't write: labels and types with their properties, the properties' types
    and the share of nodes that have them, and which labels each type connects. Raises SourceError.
    """
    uri = os.environ.get("NEO4J_URI")
    if not uri:
        raise SourceError(f"graph.source = 'neo4j' reads a server of your own: {WAY_OUT}")
    try:
        with session(uri, neo4j.READ_ACCESS) as opened:
            database = contents(opened)
            schema = _schema(opened, database)
    except (DriverError, Neo4jError, OSError) as e:
        raise SourceError(f"NEO4J_URI={uri} can't be read: {first_line(e)}; {WAY_OUT}") from e
    if not schema["labels"]:
        raise SourceError(f"NEO4J_URI={uri} holds no node with a label; {WAY_OUT} that holds a graph")
    nodes = database.pop("total")["nodes"]
    counts = {
        "source": "neo4j",
        "nodes": nodes,
        "relationships": sum(database["relationships"].values()),
        "tables": {},
        "keys": {},
        "unreadable": {},
        "tags_without_a_row": {},
        "database": database,
    }
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for folder in ("nodes", "relationships"):
        (part / folder).mkdir(parents=True)
    write_json(part / "counts.json", counts)
    write_json(part / "schema.json", schema)
    swap(part, out)
    return counts


def _schema(session: neo4j.Session, database: dict[str, dict[str, int]]) -> dict[str, Any]:
    sets = {tuple(sorted(labels)): n for labels, n in session.run("MATCH (n) RETURN labels(n), count(*)").values()}
    within = _containment(sets)
    labels = dict(sorted(database["nodes"].items()))
    return {
        "labels": {
            label: {"count": n, "properties": _properties(session, f"MATCH (x:{quoted(label)})", n)}
            for label, n in labels.items()
        },
        "relationships": {
            type_: {"count": n, "properties": _properties(session, f"MATCH ()-[x:{quoted(type_)}]->()", n)}
            for type_, n in sorted(database["relationships"].items())
        },
        "patterns": _patterns(session, within),
        "contained": [[label, of] for label in sorted(within) for of in sorted(within[label])],
    }


def _containment(sets: dict[tuple[str, ...], int]) -> dict[str, set[str]]:
    """Label -> the labels that each of its nodes has besides, where they have others, too."""
    together: dict[str, set[str]] = {}
    sizes: Counter[str] = Counter()
    for labels, n in sets.items():
        for label in labels:
            sizes[label] += n
            together[label] = together.get(label, set(labels)) & set(labels)
    found = {a: {b for b in others if sizes[b] > sizes[a]} for a, others in together.items()}
    return {label: others for label, others in found.items() if others}


def _properties(session: neo4j.Session, match: str, total: int) -> dict[str, Any]:
    """Property -> its type, or its types in order, and the share that has it."""
    query = f"{match} UNWIND keys(x) AS name RETURN name, valueType(x[name]) AS type, count(*) AS n ORDER BY name, type"
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, type_, n in session.run(query).values():
        found[name][_kind(type_)] = found[name].get(_kind(type_), 0) + n
    return {
        name: {"type": " | ".join(kinds), "share": round(sum(kinds.values()) / total, 4)}
        for name, kinds in found.items()
    }


def _kind(type_: str) -> str:
    """Neo4j's name of a type as the study says it: `integer` for INTEGER NOT NULL; the others as they are."""
    plain = type_.replace(" NOT NULL", "")
    return KINDS.get(plain, plain)


def _patterns(session: neo4j.Session, within: dict[str, set[str]]) -> list[dict[str, Any]]:
    """Between labels that say most: of a Question that is also a Post, the former."""
    query = "MATCH (a)-[r]->(b) RETURN labels(a), type(r), labels(b), count(*)"
    found: Counter[tuple[str, str, str]] = Counter()
    for start, type_, end, n in session.run(query).values():
        for a, b in product(_finest(start, within), _finest(end, within)):
            found[a, type_, b] += n
    return [{"start": a, "type": t, "end": b, "count": n} for (a, t, b), n in sorted(found.items())]


def _finest(labels: list[str], within: dict[str, set[str]]) -> list[str]:
    general = {of for label in labels for of in within.get(label, ())}
    return [label for label in sorted(labels) if label not in general]
