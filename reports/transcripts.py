"""Writes every episode of a run as conversations that can be filtered and linked to, on a page that needs no server.

The page holds an index (each question with one letter for each answer); what was said lies beside it in files of a few
questions each, which the page loads as scripts when a question is opened: that works from a disk, too, where a page may
read no other file. All that a model or a database said reaches the page as JSON and is shown as text.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "reports"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from lib.files import read_jsonl, write_text  # noqa: E402
from lib.shown import OUTCOME_WORDS, cell, difference, highlighted, legible  # noqa: E402
from lib.transcript import MARKS, conversation, verdict  # noqa: E402

PER_FILE = 16  # questions in one file of transcripts
REFERENCE_ROWS = 50  # that are shown
SETS = {  # the order in which they are offered, and what they are called
    "held_out_instances": "test: known structures, other values",
    "held_out_structures": "test: structures never practised",
    "human": "people's questions",
    "dev": "dev questions, during practice",
    "train": "practice",
}
LETTERS = {"strict": "s", "form": "f", "wrong": "w", "wrong_turns": "t", "no_query": "n", "error": "e"}
NO_EPISODES = ("updates.jsonl", "interruptions.jsonl")
Record = dict[str, Any]


def write(data: Path, run: str, out: Path) -> int:
    """Write the page of a run to `out` and its files into the folder of that name; returns how many episodes it shows.

    Raises FileNotFoundError where the run was never evaluated, ValueError for a damaged line.
    """
    folder = data / "runs" / run
    files = [*sorted((folder / "evaluate").glob("*.jsonl")), *sorted(folder.glob("train/seed-*/*.jsonl"))]
    if not any(file.parent.name == "evaluate" for file in files):
        raise FileNotFoundError(f"{folder / 'evaluate'} holds no episodes: run `make study` for run {run!r} first")
    episodes = [one for file in files if file.name not in NO_EPISODES for one in read_jsonl(file)]
    asked = questions(data)
    sets, bodies = pages(episodes, asked)
    bodies_in(out.with_suffix(""), bodies)
    prompt = legible((folder / "system_prompt.txt").read_text(encoding="utf-8"))
    index = {
        "run": run,
        "words": OUTCOME_WORDS,
        "letters": LETTERS,
        "marks": MARKS,
        "prompt": prompt,
        "perFile": PER_FILE,
    }
    parts = {name: (HERE / f"transcripts.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    page = Template(parts["html"]).substitute(
        run=run,
        episodes=f"{len(episodes):,}",
        nav=(HERE / "nav.html").read_text(encoding="utf-8"),
        style=(HERE / "style.css").read_text(encoding="utf-8") + parts["css"],
        index=script_json({**index, "sets": sets}),
        script=parts["js"],
    )
    write_text(out, page)
    return len(episodes)


def questions(data: Path) -> dict[str, Record]:
    """All questions that a run may have asked, by id."""
    files = [data / "questions" / f"{name}.jsonl" for name in SETS if name != "human"]
    return {one["id"]: one for file in [*files, data / "human" / "human.jsonl"] for one in read_jsonl(file)}


def pages(episodes: Iterable[Record], asked: dict[str, Record]) -> tuple[list[Record], list[Record]]:
    """(the index: a record for each set, the bodies: one for each question in the index's order).

    A set has `name`, `label`, `arms` and `questions`; each of these is [id, words, structure, tier, answers], and answers
    are, for each arm, a letter for each sampled one and, after a blank, for each greedy one.
    """
    grouped: dict[str, dict[str, dict[str, list[Record]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for episode in episodes:
        grouped[episode["set"]][episode["question"]][arm_of(episode)].append(episode)
    index, bodies = [], []
    for name in sorted(grouped, key=list(SETS).index):
        found = grouped[name]
        arms = sorted({arm for by_arm in found.values() for arm in by_arm}, key=_arm_order)
        lines = []
        for question in sorted(found):
            by_arm = {arm: sorted(found[question][arm], key=_order) for arm in arms}
            one = asked[question]
            answers = ["".join(_letter(episode) for episode in by_arm[arm]) for arm in arms]
            lines.append([question, legible(one["question"]), one["structure"] or "", tier(one), answers])
            bodies.append(body(one, by_arm))
        index.append({"name": name, "label": SETS[name], "arms": [[a, words_of(a)] for a in arms], "questions": lines})
    return index, bodies


def arm_of(episode: Record) -> str:
    """The arm; of a look at the dev questions also after how many updates."""
    return f"{episode['arm']}@{episode['update']}" if episode["phase"] == "dev" else str(episode["arm"])


def words_of(arm: str) -> str:
    name, _, update = arm.partition("@")
    return name.replace("trained-", "trained, seed ") + (f", after {update} updates" if update else "")


def tier(question: Record) -> str:
    """How hard a question is: what people said of theirs, else how many relationships it crosses."""
    return question.get("bird_difficulty") or f"{question['hops']} hop{'s' * (question['hops'] != 1)}"


def body(question: Record, by_arm: dict[str, list[Record]]) -> Record:
    """All that the page shows of one question. Queries, tables and comparisons stand in it once, however often they
    occur, and the turns name their places."""
    store = Store()
    arms = {arm: [_answer(episode, question, store) for episode in found] for arm, found in by_arm.items()}
    query = question["query"] or question.get("sql")
    return {
        "id": question["id"],
        "question": legible(question["question"]),
        "hint": legible(question["hint"]) if question.get("hint") else None,
        "status": question.get("status"),
        "query": highlighted(query) if query else None,
        "rows": [[*map(cell, row)] for row in question["rows"][:REFERENCE_ROWS]],
        "rowCount": len(question["rows"]),
        "arms": arms,
        "stored": store.kept,
    }


class Store:
    """Values by their place, each kept once."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._places: dict[str, int] = {}

    def put(self, value: Any) -> int:
        place = self._places.setdefault(json.dumps(value), len(self.kept))
        if place == len(self.kept):
            self.kept.append(value)
        return place


def _answer(episode: Record, question: Record, store: Store) -> list[Any]:
    """[sample, greedy, update, outcome, place of what was said and judged, which many answers share]."""
    turns = []
    for turn in conversation(episode, question):
        queries = [store.put(pieces) for pieces in turn["queries"]]
        shown = None if turn["table"] is None else store.put(turn["table"])
        turns.append([turn["role"], turn["text"], queries, shown, turn["error"]])
    query = compared = None
    if episode["query"] is not None:
        query = store.put(highlighted(episode["query"]))
        found = difference(episode["rows"], question["rows"], episode["row_count"])
        columns = _columns(episode)
        found["columns"] = [columns[i] if i < len(columns) else "" for i in found.pop("partners")]
        compared = store.put({**found, "kept": len(episode["rows"]), "total": episode["row_count"]})
    said = {"turns": turns, "query": query, "compared": compared, "verdict": verdict(episode)[1:]}
    practised = episode["update"] if episode["phase"] == "train" else None
    return [episode["sample"], episode["decode"] == "greedy", practised, episode["outcome"], store.put(said)]


def _columns(episode: Record) -> list[str]:
    """Names of the scored result's columns, as the tool showed them; none where it showed no table."""
    for call in reversed(episode["calls"]):
        if call["query"] == episode["query"] and call["error"] is None:
            lines = call["shown"].split("\n")
            return [*map(legible, lines[1].split(" | "))] if len(lines) > 1 else []
    return []


def _letter(episode: Record) -> str:
    """The outcome's letter; a greedy answer's after a blank."""
    return (" " if episode["decode"] == "greedy" else "") + LETTERS[episode["outcome"]]


def _order(episode: Record) -> tuple[bool, int, int]:
    return episode["decode"] == "greedy", episode["update"] or 0, episode["sample"]


def _arm_order(arm: str) -> tuple[int, str, int, int]:
    name, _, update = arm.partition("@")
    kind, _, seed = name.partition("-")
    known = ("base", "control", "trained")
    return known.index(kind) if kind in known else len(known), kind, int(seed or 0), int(update or 0)


def bodies_in(folder: Path, bodies: Sequence[Record]) -> None:
    """Write the files of transcripts anew: 000.js holds the first PER_FILE questions, and so on."""
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(0, len(bodies), PER_FILE):
        part = json.dumps(bodies[number : number + PER_FILE], separators=(",", ":"))
        write_text(folder / f"{number // PER_FILE:03d}.js", f"transcripts({number // PER_FILE},{part})\n")


def script_json(value: Any) -> str:
    """JSON that may stand in a page's script: no text in it can end the script, and all of it is ASCII."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def main(arguments: list[str] | None = None) -> None:
    """Command line: `python -m reports.transcripts --run tiny`."""
    parser = argparse.ArgumentParser(prog="python -m reports.transcripts", description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", required=True, help="name of the run: its files lie in DATA/runs/RUN")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="the data folder (default: the project's)")
    parser.add_argument("--out", type=Path, help="the page (default: reports/_site/RUN-transcripts.html)")
    chosen = parser.parse_args(arguments)
    out = chosen.out or HERE / "_site" / f"{chosen.run}-transcripts.html"
    try:
        print(f"{out}: {write(chosen.data, chosen.run, out):,} episodes")
    except (FileNotFoundError, ValueError) as problem:
        parser.exit(1, f"{problem}\n")


if __name__ == "__main__":
    main()
