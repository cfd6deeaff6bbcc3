"""The set of people's questions as it lies on the disk: its statuses, its files, and what a plan freezes of them.

It stands apart from what makes the set (lib/questions/human.py), so that plan, comparison and report know ids, statuses
and a hash, and need no database. A run without people's questions has an empty set.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib.files import read_jsonl, write_json, write_jsonl
from lib.settings import HUMAN

FILE, SUMMARY = f"{HUMAN}.jsonl", f"{HUMAN}_summary.json"

SUSPECT, EMPTY, TIED = "suspected wrong reference", "empty", "tied at the cut"
DISAGREE, AMBIGUOUS, USABLE = "SQL and Cypher disagree", "ambiguous name", "usable"
STATUSES = (SUSPECT, EMPTY, TIED, DISAGREE, AMBIGUOUS, USABLE)  # a question's is the first that fits
DIFFICULTIES = ("simple", "moderate", "challenging")

Line = dict[str, Any]


class HumanError(RuntimeError):
    """Questions that can't be used; the message names the file, the question, and the way out."""


def write(lines: Sequence[Line], release: dict[str, str] | None, folder: Path) -> dict[str, Any]:
    """Write human.jsonl and human_summary.json; return the summary.

    lines: as lib.questions.human judges them, none for a run without people's questions. release: {name, sha256} of a
    release that is known by its hash, where the questions are of one.
    """
    write_jsonl(folder / FILE, lines)
    summary = {**_counts(lines), "release": release, "sha256": _sha256(folder)}
    write_json(folder / SUMMARY, summary)
    return summary


def is_empty(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether rows say nothing: none, or nothing but NULL and zero."""
    return all(value is None or (not isinstance(value, str) and value == 0) for row in rows for value in row)


def _counts(lines: Sequence[Line]) -> dict[str, Any]:
    by_status = {status: [line for line in lines if line["status"] == status] for status in STATUSES}
    difficulties = Counter(str(line["bird_difficulty"]) for line in lines)
    in_order = [d for d in DIFFICULTIES if d in difficulties] + sorted(set(difficulties) - set(DIFFICULTIES))
    return {
        "questions": len(lines),
        "sources": dict(sorted(Counter(line["source"] for line in lines).items())),
        "hints": sum(line["hint"] is not None for line in lines),
        "not_empty": sum(not is_empty(line["rows"]) for line in lines),
        "answers_right": sum(line["answer"]["right"] for line in lines),
        "difficulties": {name: difficulties[name] for name in in_order},
        "statuses": {status: len(found) for status, found in by_status.items()},
        "by_difficulty": {
            status: {name: sum(str(line["bird_difficulty"]) == name for line in found) for name in in_order}
            for status, found in by_status.items()
        },
    }


def frozen(folder: Path) -> dict[str, Any]:
    """What the plan writes down of the human set before any model answers: its hash, each question's status and why.

    folder: where `write` wrote. Returns {sha256, release, questions, statuses: {status: [ids]}, reasons: {id: reason},
    clean: the status of the questions that results are shown with apart}. Raises HumanError where a file is missing, or
    isn't the one that the summary was made of.
    """
    try:
        lines = read_jsonl(folder / FILE)
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise HumanError(
            f"{Path(str(e.filename)).name} is missing: make it with `python -m lib.questions.human`"
        ) from e
    found = _sha256(folder)
    if found != summary["sha256"]:
        raise HumanError(
            f"{FILE} has the sha256 {found}, its summary another one ({summary['sha256']}): make both anew with "
            "`python -m lib.questions.human`"
        )
    return {
        "sha256": found,
        "release": summary["release"],
        "questions": len(lines),
        "statuses": {status: [line["id"] for line in lines if line["status"] == status] for status in STATUSES},
        "reasons": {line["id"]: line["reason"] for line in lines if line["reason"] is not None},
        "clean": USABLE,
    }


def _sha256(folder: Path) -> str:
    return hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
