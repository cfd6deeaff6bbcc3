"""Counts the headline once more from the files alone, sharing no code with the rest, so that both would have to be wrong.

A verdict is the one that this program comes to itself; the recorded one only where the file can't tell: rows that weren't
kept, wide tables, values so near or so alike in meaning (times with zones, maps) that only the scorer's rules decide.
"""

import json
import math
import re
import unicodedata
from itertools import permutations
from pathlib import Path

WIDEST = 4  # columns; all orders of wider tables are too many to try
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d*?)0*)?(?!\d)")


def recount(run, questions, split="held_out_instances"):
    """Rates and gain of the trained arms over the control, from the folders of a run and of its questions.

    Returns `rates` by arm (trained pooled over seeds), `gain` over questions that both answered, `judged` (episodes whose
    rows were judged anew) and `disagreements` (ids of those where the recorded strict verdict is another).
    """
    with open(Path(questions) / f"{split}.jsonl", encoding="utf-8") as file:
        references = {one["id"]: one["rows"] for one in map(json.loads, file)}
    answers: dict = {}
    judged, disagreements = 0, []
    for path in sorted((Path(run) / "evaluate").glob("[!e]*.jsonl")):  # the plan's arms, no endpoint's
        with open(path, encoding="utf-8") as file:
            for episode in map(json.loads, file):
                if episode["set"] != split or episode["decode"] != "sampled" or episode["fault"] is not None:
                    continue
                arm = episode["arm"].split("-")[0]
                verdict = judge(episode, references[episode["question"]])
                judged += verdict is not None
                if verdict is not None and verdict != episode["strict"]:
                    disagreements.append(episode["id"])
                counted = episode["strict"] if verdict is None else verdict
                answers.setdefault(arm, {}).setdefault(episode["question"], []).append(counted)
    means = {arm: {q: sum(all_) / len(all_) for q, all_ in found.items()} for arm, found in answers.items()}
    rates = {arm: math.fsum(found.values()) / len(found) for arm, found in means.items()}
    both = sorted(means["control"].keys() & means["trained"].keys())
    gain = math.fsum(means["trained"][q] - means["control"][q] for q in both) / len(both)
    return {"rates": rates, "gain": gain, "judged": judged, "disagreements": disagreements}


def judge(episode, reference):
    """Are the rows the reference's, in some order of columns? None where the file doesn't say enough to tell."""
    rows = episode["rows"]
    if episode["query"] is None or len(rows) != episode["row_count"] or max(map(len, reference), default=0) > WIDEST:
        return False if episode["query"] is None else None
    if len(rows) != len(reference) or {len(row) for row in rows} != {len(row) for row in reference}:
        return False
    orders = list(permutations(range(len(reference[0])))) if reference else [()]
    for verdict, enough in ((True, (True,)), (None, (True, None))):
        if any(matches([[row[i] for i in order] for row in rows], reference, enough) for order in orders):
            return verdict
    return False


def matches(rows, reference, enough):
    """Does each row have one of the reference's for itself, all its cells alike as far as is `enough`?"""
    left = list(reference)
    for row in rows:
        found = (
            i for i, other in enumerate(left) if all(alike(*pair) in enough for pair in zip(row, other, strict=True))
        )
        if (at := next(found, None)) is None:
            return False
        del left[at]
    return True


def alike(one, other):
    """Are two cells the same value? None: the scorer's rules would have to say."""
    if isinstance(one, list) and isinstance(other, list):
        each = [alike(*pair) for pair in zip(one, other, strict=False)] if len(one) == len(other) else [False]
        return False if False in each else None if None in each else True
    if isinstance(one, str) and isinstance(other, str):
        return alike_texts(*(TIME.sub(r"\1T\2.\3", unicodedata.normalize("NFC", text)) for text in (one, other)))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)):
        return alike_numbers(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one == other or None
    return type(one) is type(other) and one == other


def alike_texts(one, other):
    """Times with a zone can be the same moment in other letters."""
    zoned = all(TIME.match(text) and text[10:].strip("T0123456789:.") for text in (one, other))
    return one == other or (None if zoned else False)


def alike_numbers(one, other):
    """Fractions that differ in the tenth digit or later can be the same but for noise."""
    exact = one == other or (one != one and other != other)
    size = max(abs(one), abs(other))
    whole = (isinstance(one, int) and isinstance(other, int)) or size > 1e300
    return None if not exact and not whole and abs(one - other) <= 1e-9 * size else exact
