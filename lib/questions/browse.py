"""Shows questions to people: words, hint, query and rows together, of any set, small or large, made or human."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib.files import read_jsonl
from lib.questions.pass_rates import path_of
from lib.questions.supply import SPLITS, Line

FILES = (*SPLITS, "human")
GENERATED = "generated"  # the status of what no person wrote
STYLE = """<style>
.question { border: 1px solid #8886; border-radius: .4rem; margin: .6rem 0; padding: .4rem .8rem; font-size: .9rem }
.question .about { opacity: .6; font-size: .75rem }
.question pre { white-space: pre-wrap; margin: .2rem 0; background: none; font-size: .85rem }
.question td { text-align: left; padding: .1rem .6rem }
</style>"""


def read(folder: Path) -> list[Line]:
    """The questions of a folder, each with its `status` and with `pass_rates`, the strict share by arm (empty where no
    model was asked)."""
    rates: dict[str, dict[str, float]] = defaultdict(dict)
    if path_of(folder).exists():
        for line in read_jsonl(path_of(folder)):
            rates[line["id"]][line["arm"]] = line["strict"]
    found = [q for name in FILES if (file := folder / f"{name}.jsonl").exists() for q in read_jsonl(file)]
    return [{"status": GENERATED, **q, "pass_rates": rates[q["id"]]} for q in found]


def matching(
    questions: Iterable[Line],
    split: str = "",
    structure: str = "",
    status: str = "",
    hops: int | None = None,
    arm: str = "",
    least: float = 0.0,
    most: float = 1.0,
) -> list[Line]:
    """Questions that fit; an empty value asks for nothing. structure: a part of its name. arm: answered by it, at a pass
    rate from `least` to `most`."""
    wanted = {"split": split, "status": status, "hops": hops}
    return [
        q
        for q in questions
        if all(q[field] == value for field, value in wanted.items() if value not in ("", None))
        and structure in (q["structure"] or "")
        and (not arm or least <= q["pass_rates"].get(arm, -1.0) <= most)
    ]


def as_html(question: Line, rows: int = 10) -> str:
    """One question with its hint, query and first `rows` rows; every text of the data is escaped."""
    rates = ", ".join(f"{arm} {rate:.0%}" for arm, rate in sorted(question["pass_rates"].items()))
    about = [question["id"], question["structure"], f"{question['hops']} hops", question["status"], rates]
    cells = "".join(_row(row) for row in question["rows"][:rows])
    left = len(question["rows"]) - rows
    return (
        f'{STYLE}<div class="question"><b>{html.escape(question["question"])}</b>'
        f"<div>{html.escape(question['hint'] or 'no hint')}</div>"
        f'<div class="about">{html.escape(" · ".join(str(a) for a in about if a))}</div>'
        f"<pre>{html.escape(question['query'] or 'no query')}</pre><table>{cells}</table>"
        f"{f'and {left:,} more' if left > 0 else ''}</div>"
    )


def _row(row: list[Any]) -> str:
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in row]
    return f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in texts)}</tr>"
