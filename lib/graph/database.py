"""A running database: how it is reached, and what it holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import neo4j

from lib.graph.mapping import quoted


def auth(uri: str) -> tuple[str, str] | None:
    """User and password for a URI: the environment's for NEO4J_URI, none for a managed server."""
    password = os.environ.get("NEO4J_PASSWORD")
    if uri != os.environ.get("NEO4J_URI") or password is None:
        return None
    return os.environ.get("NEO4J_USER", "neo4j"), password


def database(uri: str) -> str:
    """Name of the database behind a URI: NEO4J_DATABASE for NEO4J_URI, else `neo4j`."""
    return os.environ.get("NEO4J_DATABASE", "neo4j") if uri == os.environ.get("NEO4J_URI") else "neo4j"


@contextlib.contextmanager
def session(uri: str, access: str = neo4j.WRITE_ACCESS) -> Iterator[neo4j.Session]:
    """A session on the database behind `uri`, with the user and database of the environment."""
    with (
        neo4j.GraphDatabase.driver(uri, auth=auth(uri), notifications_min_severity="OFF") as driver,
        driver.session(database=database(uri), default_access_mode=access) as opened,
    ):
        yield opened


def contents(session: neo4j.Session, like: dict[str, dict[str, int]] | None = None) -> dict[str, dict[str, int]]:
    """Nodes by label and in total, relationships by type (from the counts that the server keeps), and the sums of the keys
    that `like` has sums of. This tells graphs apart, but not two that differ in nothing but other values, or in what
    connects what."""

    def count(listed: str, query: str) -> dict[str, int]:
        names = sorted(name for (name,) in session.run(listed).values())
        counts = {name: session.run(query.format(quoted(name))).single(strict=True)[0] for name in names}
        return {name: n for name, n in counts.items() if n}

    sums = {}
    for name in (like or {}).get("key_sums", {}):
        label, key = name.split(".")
        sums[name] = session.run(f"MATCH (n:{label}) RETURN sum(n.{key})").single(strict=True)[0]
    return {
        "nodes": count("CALL db.labels()", "MATCH (n:{}) RETURN count(n)"),
        "relationships": count("CALL db.relationshipTypes()", "MATCH ()-[r:{}]->() RETURN count(r)"),
        "key_sums": sums,
        "total": {"nodes": session.run("MATCH (n) RETURN count(n)").single(strict=True)[0]},
    }


def difference(found: dict[str, dict[str, int]], expected: dict[str, dict[str, int]]) -> str:
    for part, wanted in expected.items():
        for name in sorted({*wanted, *found[part]}):
            if found[part].get(name, 0) != wanted.get(name, 0):
                return f"{part} of {name}: {found[part].get(name, 0)} there, {wanted.get(name, 0)} expected"
    return "no difference"
