"""Counts the headline once more from the files alone, sharing no code with the rest: no mistake there can pass here."""

import json
import math
import unicodedata
from itertools import permutations
from pathlib import Path

WIDEST = 4  # columns; all orders of wider tables are too many to try


def recount(run, questions, split="held_out_instances"):
    """Rates and gain of the trained arms over the control, from the folders of a run and of its questions.

    Returns `rates` by arm (trained pooled over seeds), `gain` over questions that both answered, `judged` (episodes whose
    rows were judged anew) and `disagreements` (ids of those where the recorded strict verdict is another).
    """
    with open(Path(questions) / f"{split}.jsonl", encoding="utf-8") as file:
        references = {one["id"]: one["rows"] for one in map(json.loads, file)}
    answers: dict = {}
    judged, disagreements = 0, []
    for path in sorted((Path(run) / "evaluate").glob("*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for episode in map(json.loads, file):
                if episode["set"] != split or episode["decode"] != "sampled" or episode["fault"] is not None:
                    continue
                arm = episode["arm"].split("-")[0]
                answers.setdefault(arm, {}).setdefault(episode["question"], []).append(episode["strict"])
                verdict = judge(episode, references[episode["question"]])
                judged += verdict is not None
                if verdict is not None and verdict != episode["strict"]:
                    disagreements.append(episode["id"])
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
    want = sorted(tuple(map(plain, row)) for row in reference)
    orders = permutations(range(len(reference[0]))) if reference else [()]
    return any(sorted(tuple(plain(row[i]) for i in order) for row in rows) == want for order in orders)


def plain(value):
    """A cell as text that tells kinds apart: whole numbers exactly, others to ten digits, text in one Unicode form."""
    if isinstance(value, str):
        return "text " + unicodedata.normalize("NFC", value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"number {int(value)}" if abs(value) < 2**53 and value == int(value) else f"number {value:.10g}"
    if isinstance(value, list):
        return f"list {[plain(one) for one in value]}"
    return json.dumps(value, sort_keys=True)
