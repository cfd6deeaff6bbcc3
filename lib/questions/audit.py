"""Measures of a set of questions: what splits have in common, beside what chance explains, and how varied the words are.

`python -m lib.questions.audit FOLDER [--compare FILE]` prints them for a folder of questions; FILE is a JSON or JSON-lines
file of other questions with their queries, as BIRD's is, whose words alone are measured.
"""

from __future__ import annotations

import argparse
import calendar
import json
import random
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from lib.files import read_jsonl
from lib.questions.leaks import N, grams, row_set, share, words
from lib.questions.supply import SPLITS

LETTERS = 4  # characters in a row
CELLS = 2**14  # that runs of characters are hashed into
VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|\b\d+(?:\.\d+)?\b")
SAID = re.compile(rf"(?:(?:{'|'.join(calendar.month_name[1:])}) )?\d[\d,.:/-]*")  # a number or a date, in words

Question = dict[str, Any]


def audit(training: dict[str, list[Question]], evaluation: dict[str, list[Question]], seed: int) -> dict[str, Any]:
    """Figures for each pair of a training and an evaluation split, and the same between random halves of the first
    training split, which are alike for no other reason than being of one make."""
    first = next(iter(training))
    lines = list(training[first])
    random.Random(f"halves {seed}").shuffle(lines)
    half = len(lines) // 2
    figures = {f"random halves of {first}": shared(lines[:half], lines[half:])}
    for name, trained in training.items():
        figures |= {f"{name} and {other}": shared(trained, evaluated) for other, evaluated in evaluation.items()}
    return figures


def shared(train: list[Question], other: list[Question]) -> dict[str, Any]:
    """Shares of the questions in `other` that have something in common with any in `train`."""
    if not train or not other:
        return {"questions": len(other)}
    runs = {g for q in train for g in grams(q["question"])}
    texts, queries = {q["question"] for q in train}, {q["query"] for q in train}
    forms, rows = {form(q["query"]) for q in train}, {row_set(q) for q in train}
    near = nearest([q["question"] for q in train], [q["question"] for q in other])
    large = [q for q in other if len(q["rows"]) * len(q["rows"][0]) > 1]
    return {
        "questions": len(other),
        "same text": share(q["question"] in texts for q in other),
        "same query": share(q["query"] in queries for q in other),
        "same query up to values": share(form(q["query"]) in forms for q in other),
        f"a run of {N} words": share(bool(grams(q["question"]) & runs) for q in other),
        "same rows": share(row_set(q) in rows for q in other),
        "same rows, of those with several values": share(row_set(q) in rows for q in large),
        "likeness of the nearest neighbour, mean": round(float(near.mean()), 4),
        "likeness of the nearest neighbour, 95th percentile": round(
            float(np.sort(near)[int(0.95 * (len(near) - 1))]), 4
        ),
    }


def form(query: str) -> str:
    """A query without its values."""
    return VALUE.sub("?", query)


def nearest(train: list[str], other: list[str]) -> np.ndarray:
    """For each text of `other`, shape (len(other),): the largest Jaccard likeness of its runs of LETTERS characters with
    those of a text of `train`."""
    a, b = _cells(train), _cells(other)
    both = b @ a.T
    return np.asarray((both / (b.sum(1)[:, None] + a.sum(1)[None, :] - both)).max(1))


def _cells(texts: list[str]) -> np.ndarray:
    found = np.zeros((len(texts), CELLS), dtype=np.float32)
    for i, text in enumerate(texts):
        text = f" {text.lower()} "
        found[i, [zlib.crc32(text[k : k + LETTERS].encode()) % CELLS for k in range(len(text) - LETTERS + 1)]] = 1
    return found


def variety(questions: list[str]) -> dict[str, Any]:
    """How varied questions are: type-token ratio of their words (of the first 1,000 too, since it falls with length), mean
    words, and the share that begins with its most common word."""
    tokens = [w.lower() for q in questions for w in words(q)]
    firsts: dict[str, int] = defaultdict(int)
    for q in questions:
        firsts[(words(q) or [""])[0].lower()] += 1
    return {
        "questions": len(questions),
        "different words": len(set(tokens)),
        "type-token ratio": round(len(set(tokens)) / max(1, len(tokens)), 4),
        "type-token ratio of 1,000 words": round(len(set(tokens[:1000])) / max(1, len(tokens[:1000])), 4),
        "words a question": round(len(tokens) / max(1, len(questions)), 1),
        "share of the commonest first word": round(max(firsts.values(), default=0) / max(1, len(questions)), 4),
        "share naming ids": share(
            bool(re.search(r"(?i)\bids?\b|\b(?:number|question|answer|post|user) \d+\b", q)) for q in questions
        ),
    }


def skeletons(questions: list[Question]) -> dict[str, Any]:
    """In how many ways a structure is said: different words of its questions, without the values. A structure is what the
    question names as its own, or else its query (Cypher or SQL) without values; a question with neither isn't counted."""
    found: dict[str, set[str]] = defaultdict(set)
    for q in questions:
        query = q.get("query") or q.get("sql") or q.get("SQL") or ""
        if structure := q.get("structure") or form(query):
            found[structure].add(_skeleton(q["question"], query))
    numbers = [len(ways) for ways in found.values()]
    return {
        "structures": len(numbers),
        "skeletons per structure, mean": round(sum(numbers) / max(1, len(numbers)), 2),
        "skeletons per structure, most": max(numbers, default=0),
    }


def _skeleton(question: str, query: str) -> str:
    texts = sorted({m[0].strip("'") for m in VALUE.finditer(query)} - {""}, key=len, reverse=True)
    for text in texts:
        question = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "?", question)
    return SAID.sub("?", question)


def _words(questions: list[Question]) -> dict[str, Any]:
    return variety([q["question"] for q in questions]) | skeletons(questions)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lib.questions.audit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with the splits' .jsonl files")
    parser.add_argument("--compare", type=Path, help="JSON or JSON-lines file with other questions")
    args = parser.parse_args()
    questions = {s: read_jsonl(args.folder / f"{s}.jsonl") for s in SPLITS}
    found: dict[str, Any] = {"words": _words([q for lines in questions.values() for q in lines])}
    if args.compare:
        text = args.compare.read_text(encoding="utf-8")
        others = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
        found[f"words of {args.compare.name}"] = _words(others)
    found["common"] = audit({"train": questions.pop("train")}, questions, 0)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
