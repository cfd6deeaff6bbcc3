"""The questions that no arm ever had right, as a reading list: what the attempts had in common, and who else solved them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lib import plan
from lib.episodes import Episode
from lib.files import read_jsonl
from lib.shown import OUTCOME_WORDS
from reports.markdown import code, count, escape, listed, percent, table
from reports.worked import sampled

NAMES = re.compile(
    r"(?<=[:.])[A-Za-z_]\w*|\b(?:DISTINCT|ORDER BY|LIMIT|OPTIONAL|EXISTS|count|sum|avg|min|max|collect)\b"
)
MOST = 3  # names that are shown


def reading_list(data: Path, run: str, results: dict[str, Any], tried: Mapping[str, Sequence[Episode]]) -> str:
    """A table with a line for each question: its status, its attempts, and the other runs that had it right.

    tried: the run's sampled episodes by question (reports.worked.by_question).
    """
    wanted = {one["question"]: one for one in results["never_solved"]}
    file = data / "questions" / f"{plan.FIRST_SET}.jsonl"
    kept = read_jsonl(file) if file.exists() else []
    asked = {one["id"]: one for one in kept if one["question"] == wanted.get(one["id"], {}).get("text")}
    elsewhere = solved_elsewhere(data, run, results, set(wanted))
    rows = []
    for name, one in wanted.items():
        link = f"[{escape(one['text'])}]({run}-transcripts.html#q={name})"
        common = in_common(tried.get(name, ()), asked[name]["query"] if name in asked else None)
        solved = ", ".join(map(escape, elsewhere.get(name, []))) or "none"
        rows.append([link, one["hops"], _status(asked.get(name), results), common, solved])
    return table(["question", "hops", "status", "what the attempts had in common", "other runs"], rows, escaped=True)


def _status(question: dict[str, Any] | None, results: dict[str, Any]) -> str:
    """Can the question be answered at all? Its reference was replayed through the whole path, with the rest of its set."""
    if question is None:
        return "no longer among the questions"
    replayed = (results["checks"]["validate"] or {}).get(plan.FIRST_SET, {}).get("oracle") == 1
    rows = len(question["rows"])
    words = f"{count(rows)} row{'s' * (rows != 1)}"
    return f"answerable, {words}" if replayed else f"not shown to be answerable, {words}"


def in_common(attempts: Sequence[Episode], reference: str | None) -> str:
    """What a question's wrong attempts share: how alike they were, how they ended, and which names they lacked or added."""
    if not attempts:
        return ""
    queries = [episode.query for episode in attempts if episode.query is not None]
    outcome, most = _most([episode.outcome for episode in attempts])
    different = len(set(queries))
    said = [
        f"{count(len(attempts))} attempts, {count(different)} different quer{'y' if different == 1 else 'ies'}",
        f"{percent(most / len(attempts), 0)} {OUTCOME_WORDS[outcome]}",
    ]
    if queries:
        _, same = _most([episode.digest for episode in attempts if episode.query is not None])
        said.append(f"the same rows in {count(same)}")
    if queries and reference is not None:
        wanted, used = set(NAMES.findall(reference)), [set(NAMES.findall(query)) for query in queries]
        for word, names in (("none used", wanted - set.union(*used)), ("all used", set.intersection(*used) - wanted)):
            if names:
                said.append(f"{word} {listed([code(name) for name in sorted(names)[:MOST]])}")
    return "; ".join(said)


def solved_elsewhere(data: Path, run: str, results: dict[str, Any], wanted: set[str]) -> dict[str, list[str]]:
    """Question -> the other runs in `data` that had it right at least once; only runs that asked the very same questions."""
    mine = results["plan"]["inputs"]["questions"][plan.FIRST_SET]
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((data / "runs").glob("*/plan.json")):
        theirs = json.loads(file.read_text(encoding="utf-8"))["inputs"]["questions"].get(plan.FIRST_SET)
        if file.parent.name == run or theirs != mine:
            continue
        solved = {e.question for e in sampled(file.parent) if e.strict and e.question in wanted}
        for name in sorted(solved):
            found[name].append(file.parent.name)
    return found


def _most(values: Sequence[Any]) -> tuple[Any, int]:
    """The most frequent value and how often it is there; the first in order among equals."""
    counts = Counter(values)
    return min(counts.items(), key=lambda item: (-item[1], str(item[0])))
