"""The tricky pairs of docs/scoring.md, and the tables that show them: `python -m tests.scoring_table` writes them there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

PAIRS = Path(__file__).with_name("scoring_pairs.yaml")
DOCUMENT = Path(__file__).parents[1] / "docs" / "scoring.md"
BEGIN, END = "<!-- pairs, written by tests/scoring_table.py -->\n", "<!-- end of pairs -->\n"

Pair = dict[str, Any]


def sections() -> list[dict[str, Any]]:
    """`section` and `pairs` of each; a pair has got, want, graph, bird, why, and maybe literal, ordered,
    named, seen, shown."""
    return yaml.safe_load(PAIRS.read_text(encoding="utf-8"))


def pairs() -> list[Pair]:
    return [pair for section in sections() for pair in section["pairs"]]


def tables() -> str:
    """The pairs in Markdown, a table for each section, numbered throughout."""
    lines: list[str] = []
    number = 0
    for section in sections():
        lines += [
            "",
            f"### {section['section']}",
            "",
            "| | returned | reference | strict | lenient | F1 | bird-ex | why |",
        ]
        lines += ["|--:|---|---|---|---|--:|---|---|"]
        for pair in section["pairs"]:
            number += 1
            got, want = pair.get("shown") or (_rows(pair["got"]), _rows(pair["want"]))
            strict, lenient, f1 = pair["graph"]
            why = pair["why"] + (f" (met in {pair['seen']})" if "seen" in pair else "")
            literal = " (literally yes)" if pair.get("literal") else ""
            cells = [got, want, _yes(strict), _yes(lenient) + literal, f"{f1:.3g}", _yes(pair["bird"]), why]
            lines.append(f"| {number} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, "", ""])


def document() -> str:
    """The document with its tables as they are now."""
    head, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    return head + BEGIN + tables() + END + rest.split(END)[1]


def _rows(rows: Any) -> str:
    if rows is None:
        return "no result"
    return "<br>".join(f"`{_row(row)}`" for row in rows) or "no rows"


def _row(row: Any) -> str:
    return "(" + ", ".join(map(_cell, row)) + ")" if isinstance(row, list) else _cell(row)


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return json.dumps(value) if not isinstance(value, float) else repr(value)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
