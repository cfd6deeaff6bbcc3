"""Figures on what training and evaluation questions have in common: words, runs of words, queries and rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from lib.questions.structures import DEV, HELD_OUT, TRAIN, Structure

N = 8
TOKEN = re.compile(r"\{\w+\}|[^\W_]+")
WORD = re.compile(r"[A-Za-z]+")

Question = dict[str, Any]


def training_wordings(structures: Iterable[Structure]) -> list[str]:
    return [s.wordings[i] for s in structures if not s.held_out for i in TRAIN]


def evaluation_wordings(structures: Iterable[Structure]) -> list[str]:
    """Those of the dev and held-out questions; a held-out structure is asked in all of its wordings."""
    kept = [s.wordings[i] for s in structures if not s.held_out for i in (*DEV, *HELD_OUT)]
    return kept + [w for s in structures if s.held_out for w in s.wordings]


def words(text: str) -> list[str]:
    """Words as they are written, without the slots."""
    return WORD.findall(re.sub(r"\{\w+\}", " ", text))


def grams(text: str) -> set[tuple[str, ...]]:
    """Runs of eight words, without case and punctuation; a slot counts as one word."""
    tokens = [t.lower() for t in TOKEN.findall(text)]
    return {tuple(tokens[i : i + N]) for i in range(len(tokens) - N + 1)}


def vocabulary(structures: Iterable[Structure]) -> dict[str, Any]:
    """How many words all wordings use, and those of the evaluation wordings that no training wording has."""
    structures = list(structures)
    trained = {w for t in training_wordings(structures) for w in words(t)}
    evaluated = {w for t in evaluation_wordings(structures) for w in words(t)}
    return {
        "words": len({w.lower() for w in trained | evaluated}),
        "only in evaluation wordings": sorted(evaluated - trained),
    }


def leaks(structures: Iterable[Structure], train: list[Question], evaluation: list[Question]) -> dict[str, Any]:
    """The figures, with a word on what chance explains.

    train: all questions trained on, the demonstrations included. evaluation: the others. Both as lines of their files.
    """
    structures = list(structures)
    wordings, asked = training_wordings(structures), {q["question"] for q in train}
    seen, seen_filled = _grams(wordings), _grams(sorted(asked))
    evaluated = evaluation_wordings(structures)
    queries = {q["query"] for q in train}
    return {
        "evaluation wordings": len(evaluated),
        "evaluation wordings with an 8-gram of a training wording": sum(bool(grams(w) & seen) for w in evaluated),
        "evaluation questions": len(evaluation),
        "evaluation questions with an 8-gram of a training question": sum(
            bool(grams(q["question"]) & seen_filled) for q in evaluation
        ),
        "texts shared": sum(q["question"] in asked for q in evaluation),
        "queries shared": sum(q["query"] in queries for q in evaluation),
        **_row_sets(train, evaluation),
    }


def _grams(texts: Iterable[str]) -> set[tuple[str, ...]]:
    return {g for t in texts for g in grams(t)}


def _row_sets(train: list[Question], evaluation: list[Question]) -> dict[str, Any]:
    """Share of evaluation questions whose rows are those of a training question with another query, and the same share
    among the training questions themselves: as alike as two questions are by chance."""
    by_query = {q["query"]: row_set(q) for q in train}
    found = Counter(by_query.values())
    shared = [found[row_set(q)] > 0 for q in evaluation]
    among = [found[rows] > 1 for rows in by_query.values()]
    large = [q for q in evaluation if len(q["rows"]) * len(q["rows"][0]) > 1]
    return {
        "share of evaluation questions with the rows of a training question": share(shared),
        "the same share among the training questions": share(among),
        "and among evaluation questions with more than one value": share([found[row_set(q)] > 0 for q in large]),
        "remark": "Answers such as a small count or one tag are alike by chance; beyond chance would be a share clearly "
        "above the one that training questions have among themselves.",
    }


def row_set(question: Question) -> str:
    """A question's rows as one text, in any order."""
    return json.dumps(sorted(json.dumps(row) for row in question["rows"]))


def share(found: Iterable[bool]) -> float | None:
    """Of these, how many are true; None for nothing."""
    known = list(found)
    return round(sum(known) / len(known), 4) if known else None
