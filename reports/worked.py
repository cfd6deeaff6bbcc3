"""Worked examples: the questions that a rule picked, their counts in the test, and new recordings beside these.

The rule picks by the counts of the test, so these are flattered; the new recordings (lib/examples.py) were drawn
afterwards, and the first one of each arm is shown whatever it came out as.
"""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lib import episodes, transcript
from lib.episodes import Episode
from lib.measures import OUTCOMES
from lib.shown import OUTCOME_WORDS
from reports.markdown import arm_words, count, escape, raw, table

ARMS = ("base", "control", "trained")
ByQuestion = Mapping[str, Sequence[Episode]]


def sampled(folder: Path) -> list[Episode]:
    """The sampled evaluation episodes of a run's folder, arm by arm, but for those lost to faults."""
    files = sorted((folder / "evaluate").glob("[!e]*.jsonl"))  # the plan's arms, no endpoint's
    return [e for file in files for e in episodes.read(file) if e.decode == "sampled" and e.outcome != "error"]


def by_question(found: Iterable[Episode]) -> ByQuestion:
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in found:
        groups[episode.question].append(episode)
    return groups


def fresh(folder: Path) -> ByQuestion:
    """The new recordings of a run's folder by question; empty where none were made."""
    file = folder / "examples.jsonl"
    return by_question(episodes.read(file)) if file.exists() else {}


def example(found: dict[str, Any] | None, run: str, tried: ByQuestion, again: ByQuestion) -> str:
    """One worked example as Markdown. found: of results.json, examples; tried: the test's episodes; again: the new ones."""
    if found is None:
        return "No question moved that way."
    name = found["question"]
    hint = f" (hint: {found['hint']})" if found.get("hint") else ""
    parts = [
        f"> {escape(found['text'] + hint)}",
        f"Chosen as: {escape(found['rule'])}. [All its attempts]({run}-transcripts.html#q={name}). Reference query:",
        f"``` cypher\n{found['query']}\n```",
        counts_table(tried.get(name, ()), again.get(name, ())),
        *map(_transcript, shown(found, tried.get(name, ()), again.get(name, ()))),
    ]
    return "\n\n".join(parts)


def counts_table(tried: Sequence[Episode], again: Sequence[Episode]) -> str:
    """Outcomes by arm, in the test and in the new recordings."""
    rows = []
    for arm in ARMS:
        old, new = (Counter(e.outcome for e in found if _pooled(e.arm) == arm) for found in (tried, again))
        rows.append([arm, _said(old), _said(new)])
    return table(["arm", "in the test, which chose the question", "asked anew"], rows)


def shown(found: dict[str, Any], tried: Sequence[Episode], again: Sequence[Episode]) -> list[Episode]:
    """The episodes to show of control and trained: the first new one of each, or those that the comparison named."""
    wanted = {found["before"], found["after"]}
    if not again:
        return sorted((e for e in tried if e.id in wanted), key=lambda e: (ARMS.index(_pooled(e.arm)), e.id))
    return [next(e for e in again if _pooled(e.arm) == arm) for arm in ("control", "trained")]


def _pooled(arm: str) -> str:
    return "trained" if arm.startswith("trained") else arm


def _said(counts: Mapping[str, int]) -> str:
    named = (f"{count(counts[name])} {OUTCOME_WORDS[name]}" for name in (*OUTCOMES, "error") if counts[name])
    return ", ".join(named) or "–"


def _transcript(episode: Episode) -> str:
    turns = "".join(_turn(message) for message in episode.messages)
    scored = (
        f'<div class="turn"><p class="role">scored</p><pre>{html.escape(episode.query or "no query ran")}</pre></div>'
    )
    when = "asked anew" if "/fresh/" in episode.id else "in the test"
    summary = f"{arm_words(episode.arm)}, {when}: {OUTCOME_WORDS[episode.outcome]} ({episode.id})"
    return raw(f'<details class="transcript"><summary>{html.escape(summary)}</summary>{turns}{scored}</details>')


def _turn(message: dict[str, Any]) -> str:
    """One message, with all of the model's text escaped; the long system prompt is folded."""
    content = html.escape(str(message.get("content") or ""))
    calls = "".join(f"<pre>{html.escape(call)}</pre>" for call in transcript.calls(message))
    body = f"<pre>{content}</pre>" if content else ""
    if message["role"] == "system":
        body = f"<details><summary>prompt and schema</summary>{body}</details>"
    return f'<div class="turn"><p class="role">{html.escape(message["role"])}</p>{body}{calls}</div>'
