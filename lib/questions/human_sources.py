"""Reads people's questions: BIRD's, of one release that is known by its hash, and a person's own.

For evaluation and audit only, as lib/questions/human.py is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import read_jsonl
from lib.human_set import HumanError
from lib.questions import sql
from lib.questions.human_answers import answers, filled
from lib.settings import HUMAN, SETS

DATABASE = "codebase_community"


def asked_in(path: Path) -> list[Asked]:
    """The questions of a file: BIRD's where it ends in .json, a person's own otherwise. Raises HumanError as these do."""
    return bird(path) if path.suffix == ".json" else own(path)


# ---------------------------------------------------------------- BIRD's


@dataclass(frozen=True)
class Release:
    """A release of BIRD's questions. sha256: of the questions' content (`digest`), so that the whole dev.json of a
    release and an excerpt of this database alone are the same release."""

    name: str
    sha256: str
    questions: int
    hints: int  # how many have evidence: releases differ


RELEASE = Release("BIRD dev set of 2023", "da129ecd8c0537eafc716257f143542d699e2d3fdd66d08d7cc8f3e7e32feeab", 186, 175)


@dataclass(frozen=True)
class Asked:
    """A question as a person asked it. `words` is the Cypher that answers it; `repeats` the Cypher that asks for the
    reference rows, another one where the SQL is suspected to be wrong, for the reason in `suspect`."""

    id: str
    question: str
    hint: str | None
    difficulty: str | None
    source: str  # human (BIRD's) or own
    sql: str | None = None
    words: str | None = None
    repeats: str | None = None
    suspect: str | None = None
    ordered: bool = False


def bird(path: Path, release: Release = RELEASE) -> list[Asked]:
    """BIRD's questions about codebase_community, in its order, with the hand-written answers filled in.

    path: dev.json of the release, or a JSON list of these questions alone. Raises HumanError for a file that is missing,
    no list of questions, or of another release.
    """
    entries = _entries(path)
    if (found := digest(entries)) != release.sha256:
        hints = sum(bool(entry["evidence"].strip()) for entry in entries)
        raise HumanError(
            f"{path} is not the {release.name}: its {len(entries)} questions about {DATABASE}, {hints} with a hint, have "
            f"the sha256 {found}; that release's {release.questions}, {release.hints} with a hint, have {release.sha256}. "
            "Statuses and answers hold for that release alone: fetch it with `python -m lib.fetch bird`, or load another "
            "one as questions of your own (a .jsonl file, lines with question, hint, difficulty and sql)"
        )
    return [_asked(entry) for entry in entries]


def digest(entries: Sequence[dict[str, Any]]) -> str:
    """SHA-256 of questions as BIRD has them: number, words, hint, difficulty and SQL, in the order of their numbers."""
    parts = [[e["question_id"], e["question"], e["evidence"], e["difficulty"], e["sql"]] for e in entries]
    return hashlib.sha256(json.dumps(sorted(parts), ensure_ascii=False).encode()).hexdigest()


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        found = [{"sql": entry.get("sql", entry.get("SQL")), **entry} for entry in given if entry["db_id"] == DATABASE]
        for entry in found:
            for key in ("question", "evidence", "difficulty", "sql"):
                if not isinstance(entry[key], str):
                    raise TypeError(f"{key} of question {entry['question_id']} is no text")
    except FileNotFoundError:
        raise HumanError(
            f"{path} is missing: `python -m lib.fetch bird` fetches BIRD's questions (data/raw/bird/dev.json)"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise HumanError(f"{path} holds no questions of BIRD's ({type(e).__name__}: {e}); fetch it again") from e
    return found


def _asked(entry: dict[str, Any]) -> Asked:
    number, code = entry["question_id"], entry["sql"]
    answer = answers()[number]
    words = answer if isinstance(answer, str) else answer["words"]
    repeats, suspect = (words, None) if isinstance(answer, str) else (answer["sql"], answer["suspect"])
    return Asked(
        id=f"bird-{number}",
        question=entry["question"],
        hint=entry["evidence"].strip() or None,
        difficulty=entry["difficulty"],
        source=HUMAN,
        sql=code,
        words=filled(words, code, entry["question"]),
        repeats=filled(repeats, code, entry["question"]),
        suspect=suspect,
        ordered=sql.is_ordered(code),
    )


# ---------------------------------------------------------------- a person's own

# What may tell a person's question apart: no name of a generated one or of BIRD's, since episodes are told apart by it.
ID = re.compile(rf"(?!(?:{'|'.join((*SETS, 'train', 'dev', 'bird'))})-)[\w.-]+")
OWN_KEYS = ("question", "hint", "difficulty", "query", "sql", "id", "ordered")


def own(path: Path) -> list[Asked]:
    """A person's questions: a JSON object a line, with `question` and the answer as `query` (Cypher) or `sql`.

    May be there: `hint`, `difficulty`, `id` (own-0001 and so on otherwise), and `ordered`, true where the order of the
    rows is asked for. With both answers, the SQL gives the reference and the Cypher is checked against it. Raises
    HumanError naming the line.
    """
    try:
        lines = read_jsonl(path)
    except FileNotFoundError:
        raise HumanError(
            f"{path} is missing: write one JSON object a line, with `question` and `query` or `sql`"
        ) from None
    except ValueError as e:
        raise HumanError(f"{path} can't be read: {e}") from e
    found = [_own(f"{path}, line {number}", number, line) for number, line in enumerate(lines, 1)]
    if twice := [name for name, n in Counter(asked.id for asked in found).items() if n > 1]:
        raise HumanError(f"{path}: id {twice[0]!r} is there twice; ids tell episodes apart")
    if not found:
        raise HumanError(
            f"{path} holds no question; write one JSON object a line, with `question` and `query` or `sql`"
        )
    return found


def _own(where: str, number: int, line: Any) -> Asked:
    if not isinstance(line, dict) or (unknown := sorted(set(line) - set(OWN_KEYS))):
        what = f"{unknown[0]!r} is unknown" if isinstance(line, dict) else "no object"
        raise HumanError(f"{where}: {what}; allowed: {', '.join(OWN_KEYS)}")
    for key, value in line.items():
        fits = isinstance(value, bool) if key == "ordered" else isinstance(value, str) and bool(value.strip())
        if not fits and not (value is None and key in ("hint", "difficulty")):
            raise HumanError(
                f"{where}: {key} is {value!r}; it must be {'true or false' if key == 'ordered' else 'a text'}"
            )
    if not ID.fullmatch(line.get("id", "own")):
        raise HumanError(
            f"{where}: id is {line['id']!r}; use letters, digits, '.', '_' and '-', and another beginning than that of "
            "generated questions and BIRD's"
        )
    if "question" not in line or not ("query" in line or "sql" in line):
        raise HumanError(f"{where}: needs `question`, and the answer as `query` (Cypher) or `sql`")
    code, query = line.get("sql"), line.get("query")
    return Asked(
        id=line.get("id", f"own-{number:04d}"),
        question=line["question"],
        hint=line.get("hint"),
        difficulty=line.get("difficulty"),
        source="own",
        sql=code,
        words=query,
        repeats=query,
        ordered=line.get("ordered", code is not None and sql.is_ordered(code)),
    )
