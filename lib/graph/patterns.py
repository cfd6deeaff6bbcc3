"""What the patterns of a query look at, read from its text: for measures and checks, which never decide what may run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lib.graph import vet

PATTERN = re.compile(r"\b(?:match|call)\b|\(\s*\w*\s*:|-\[|--", re.IGNORECASE)
UNLIKE = frozenset(
    ("call", "union", "unwind", "let", "filter")
)  # behind these, a match isn't what the query starts with


def looks_at_the_graph(query: str) -> bool:
    """Has the query any pattern or call in it? One without, such as RETURN 17, has its result written out."""
    return PATTERN.search(query) is not None


def tokens(query: str) -> str:
    """The query without its blanks and comments: two of the same tokens are the same query."""
    return " ".join(match[0] for match in vet.TOKEN.finditer(query) if match.lastgroup != "blank")


def asking_for_nodes(query: str) -> str | None:
    """The query up to its first RETURN or WITH, asking for the ids of all nodes in its patterns, those without a name too.

    None for a query of another build: one that doesn't begin with matches alone, or has no node in them.
    """
    tokens = [(str(match.lastgroup), match[0]) for match in vet.TOKEN.finditer(query)]
    head, before, names, braces, brackets, pattern = "", "", dict[str, None](), 0, 0, False
    for i, (kind, text) in enumerate(tokens):
        word = text.lower() if kind == "word" and braces == 0 else ""
        if word in UNLIKE or (word == "where" and brackets > 0):  # a condition inside a pattern may hold any brackets
            return None
        if word == "return" or (word == "with" and before not in ("starts", "ends")):
            asked = f"UNWIND [{', '.join(names)}] AS matched_node RETURN DISTINCT elementId(matched_node)"
            return head + asked if names else None
        pattern = word == "match" or (pattern and word != "where")
        braces += {"{": 1, "}": -1}.get(text, 0)
        brackets += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0)
        head += text
        if pattern and braces == 0 and text == "(" and (name := _name(tokens[i + 1 :])) is not None:
            head += "" if name else f"matched_{len(names)}"
            names[name or f"matched_{len(names)}"] = None
        before = word if kind != "blank" else before
    return None


def _name(rest: Iterable[tuple[str, str]]) -> str | None:
    """What stands behind an opening bracket: a node's name, '' for a node without one, None where it is no node."""
    kind, text = next(((kind, text) for kind, text in rest if kind != "blank"), ("", ""))
    if kind in ("word", "quoted"):
        return text
    return "" if text in (":", ")", "{") else None
