"""How a report writes tables, numbers and foreign text in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from lib.compare import points

SPECIALS = re.compile(r"([\\`*_{}\[\]<>#|~^$@])")
Cell = Any


def raw(content: str) -> str:
    """A block that goes into the page as it is; the fence is longer than any inside."""
    fence = "`" * max(4, 1 + max((len(run) for run in re.findall(r"`+", content)), default=0))
    return f"{fence}{{=html}}\n{content}\n{fence}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], escaped: bool = False) -> str:
    """A Markdown table; columns of numbers stand to the right. Text is escaped unless the caller did so."""
    cells = [[_cell(value, escaped) for value in row] for row in rows]
    right = [
        bool(cells) and all(re.match(r"^[−+\d–.,%†\[\] ]*$", row[i].replace("\\", "")) for row in cells)
        for i in range(len(head))
    ]
    lines = ["| " + " | ".join(escape(title) for title in head) + " |"]
    lines.append("|" + "|".join("---:" if number else ":---" for number in right) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join(lines) + "\n"


def _cell(value: Cell, escaped: bool) -> str:
    text = count(value) if isinstance(value, int) else str(value)
    text = " ".join(text.split())
    return text if escaped or text.startswith("`") else escape(text)


def escape(text: str) -> str:
    """Text with Markdown's signs made harmless; model text and questions pass here."""
    return SPECIALS.sub(r"\\\1", text)


def code(text: str) -> str:
    return f"`{text.replace('`', '').replace('|', chr(0x2223))}`"


def percent(share: float | None, decimals: int = 1) -> str:
    """0.612 as 61.2%; a dash for nothing."""
    return "–" if share is None else f"{share:.{decimals}%}"


def count(number: int) -> str:
    return f"{number:,}"


def interval(low: float | None, high: float | None) -> str:
    """Two shares as an interval of percentage points."""
    return "–" if low is None or high is None else f"[{points(low)}, {points(high)}]"


def gain(one: dict[str, Any]) -> str:
    """A contrast in points with its interval; a dagger where the interval may cover less than it says."""
    return f"{points(one['delta'])} {interval(one['low'], one['high'])}{'†' if one['warnings'] else ''}"


def rate(found: dict[str, float]) -> str:
    """A rate with its interval."""
    return f"{percent(found['rate'])} [{found['low'] * 100:.1f}, {found['high'] * 100:.1f}]"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def block(name: str, content: str, caption: str) -> str:
    """A table that can be referred to as @tbl-<name>, with its caption."""
    return f"::: {{#tbl-{name}}}\n\n{content}\n{caption}\n\n:::\n"


def arm_words(arm: str) -> str:
    return arm.replace("trained-", "trained, seed ")
