"""Fills the hand-written Cypher answers with the constants of BIRD's SQL, so that none of its names and texts stands here.

For evaluation and audit only, as lib/questions/human.py is.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib.questions import sql

ANSWERS = Path(__file__).with_name("human_answers.yaml")
PARAMETER = re.compile(r"\$([1-9]\d*|q)(?::(\w+))?")
SPOKEN_TIME = re.compile(r"\d+/\d+/\d{4} \d+:\d\d:\d\d [AP]M")
CONVERSIONS = {
    "year": lambda v: str(int(v)),
    "date": lambda v: f"date('{date.fromisoformat(v.rstrip('%'))}')",
    "moment": lambda v: f"localdatetime('{datetime.fromisoformat(v).isoformat()}')",
    "like": lambda v: _cypher(v.strip("%").lower()),  # LIKE takes capital and small letters for the same
    "tag": lambda v: _cypher(v.strip("<>")),
}


class AnswerError(ValueError):
    """An answer that doesn't fit its question; the message names the parameter and the SQL."""


@cache
def answers() -> dict[int, Any]:
    """The hand-written answers by BIRD's number: a query, or its `words`, `sql` and `suspect`."""
    found: dict[int, Any] = yaml.safe_load(ANSWERS.read_text(encoding="utf-8"))
    return found


def filled(answer: str, code: str, question: str = "") -> str:
    """A hand-written answer with its parameters replaced by the constants of the question's SQL, as Cypher writes them.

    $2 is the second constant, $2:year a text that holds a year as a number; `date` and `moment` are texts with a date or a
    time, `like` the pattern of a LIKE without its %, `tag` a tag's name in angle brackets; $q:moment is the time in the
    question's own words. Raises AnswerError for a parameter that the SQL or the question doesn't have.
    """
    constants = sql.literals(code)

    def value(m: re.Match[str]) -> str:
        try:
            given = _spoken(question) if m[1] == "q" else constants[int(m[1]) - 1].value
            return CONVERSIONS[m[2]](given) if m[2] else _cypher(given)
        except (IndexError, KeyError, ValueError, AttributeError) as e:
            raise AnswerError(f"{m[0]} of an answer doesn't fit the SQL {code!r} ({type(e).__name__}: {e})") from e

    return PARAMETER.sub(value, answer)


def _spoken(question: str) -> str:
    """The time in a question, like 3/14/2012 1:02:03 PM, in ISO form."""
    found = SPOKEN_TIME.findall(question)
    return datetime.strptime(found[0], "%m/%d/%Y %I:%M:%S %p").isoformat()


def _cypher(value: str | int | float) -> str:
    if not isinstance(value, str):
        return repr(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
