"""Lays episodes out as conversations, since numbers say how often and only reading says how.

A conversation is plain data, so that a notebook (`as_html`) and a page (`reports/transcripts.js`) show the same. What a
model or a database said is text in both, never markup.
"""

from __future__ import annotations

import contextlib
import html
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from lib.episodes import OUT_OF_TURNS
from lib.shown import MISSING, OUTCOME_WORDS, SAME, SURPLUS, UNKNOWN, difference, highlighted, legible, table

Record = dict[str, Any]  # an episode or a question, as a line of its file holds it
MARKS = {
    SAME: "in both",
    MISSING: "missing",
    SURPLUS: "too many",
    UNKNOWN: "not among the rows that were kept",
}

# --- starting points: which episodes to read ---


def matching(episodes: Iterable[Record], **wanted: Any) -> list[Record]:
    """Episodes whose fields have the wanted values; an empty value wants nothing of its field."""
    asked = {field: value for field, value in wanted.items() if value not in ("", None)}
    return [episode for episode in episodes if all(episode[field] == value for field, value in asked.items())]


def differing(before: Iterable[Record], after: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Pairs of one arm's and another's answer to a question, of the same decoding and number, of which one is strictly
    right; those that the second arm has right come first."""
    there = {_place(episode): episode for episode in after}
    pairs = [(episode, there[_place(episode)]) for episode in before if _place(episode) in there]
    changed = [pair for pair in pairs if pair[0]["strict"] != pair[1]["strict"]]
    return sorted(changed, key=lambda pair: (pair[0]["strict"], _place(pair[0])))


def never_solved(episodes: Iterable[Record]) -> dict[str, list[Record]]:
    """The answers to each question that none of them has strictly right, by question."""
    by_question: dict[str, list[Record]] = defaultdict(list)
    for episode in episodes:
        by_question[episode["question"]].append(episode)
    return {name: found for name, found in sorted(by_question.items()) if not any(e["strict"] for e in found)}


def turn_caps(episodes: Iterable[Record]) -> list[Record]:
    """Episodes that ended because no turn was left, whether their last query was right or not."""
    return [episode for episode in episodes if episode["stop"] == OUT_OF_TURNS]


def _place(episode: Record) -> tuple[str, str, int]:
    return episode["question"], episode["decode"], episode["sample"]


# --- an episode as data ---


def conversation(episode: Record, asked: Record | None = None) -> list[Record]:
    """The turns of an episode: {role, text, queries, table, error}.

    text: what was said, empty where it is shown as a table. queries: each as `highlighted` pieces. table: of what the tool
    showed, None where there is none. error: its kind where a query failed. With the question, the turn that asks it is
    left out.
    """
    turns, results = [], deque(episode["calls"])
    for message in episode["messages"]:
        text = _text(message.get("content"))
        if message["role"] == "user" and asked is not None and text.startswith(asked["question"]):
            continue
        found = error = None
        if message["role"] == "tool" and results and results[0]["shown"] == text:
            found, error = table(text), results.popleft()["error"]
        queries = [highlighted(query) for query in calls(message)]
        shown = "" if found else legible(text)
        turns.append({"role": str(message["role"]), "text": shown, "queries": queries, "table": found, "error": error})
    return turns


def calls(message: Record) -> list[str]:
    """The query of each tool call, or `name: arguments` as it was written where that can't be read."""
    shown = []
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        name, arguments = function.get("name"), function.get("arguments")
        query = None
        with contextlib.suppress(TypeError, KeyError, ValueError):
            query = json.loads(arguments)["query"]
        readable = isinstance(query, str) and name is not None
        shown.append(str(query) if readable else f"{name or 'malformed call'}: {arguments}")
    return shown


def verdict(episode: Record) -> list[tuple[str, str]]:
    """What was judged and counted of an episode, as pairs of name and text."""
    counted = f"{episode['turns']} turns, {episode['tokens']['sampled']:,} tokens sampled"
    lines = [
        ("outcome", OUTCOME_WORDS[episode["outcome"]]),
        *((name, "yes" if episode[name] else "no") for name in ("strict", "lenient", "lenient_literal")),
        ("row F1", f"{episode['f1']:.2f}"),
        ("reward", f"{episode['reward']:.2f}"),
        ("rows", f"{episode['row_count']:,}"),
        ("columns too many", str(episode["extra_columns"])),
        ("ended", legible(episode["stop"]).replace("_", " ")),
        ("length", counted),
    ]
    return [*lines, ("outside the model's control", legible(episode["fault"]))] if episode["fault"] else lines


# --- an episode in a notebook ---

STYLE = """<style>
.episode { border: 1px solid #8886; border-radius: .4rem; margin: .6rem 0; font-size: .9rem; overflow-x: auto }
.episode > div { padding: .2rem .8rem .4rem; border-top: 1px solid #8883 }
.episode > div:first-child { border-top: 0; background: #8881 }
.episode .role { opacity: .7; font-size: .75rem; text-transform: uppercase; letter-spacing: .05em }
.episode pre { white-space: pre-wrap !important; word-break: normal !important; overflow-wrap: anywhere; margin: .1rem 0;
  background: none; font: .83rem/1.45 monospace }
.episode table { margin: .2rem 0 !important; width: auto }
.episode td { text-align: left !important; padding: .1rem .8rem .1rem 0; vertical-align: top; unicode-bidi: isolate }
.episode tr.columns td { font-weight: bold; border-bottom: 1px solid #8886 }
.episode .keyword { font-weight: bold } .episode .label { color: #3d8b5f } .episode .string { color: #b5651d }
.episode .number { color: #4a7fc1 } .episode .function { font-style: italic } .episode .comment { opacity: .6 }
.episode .bad { color: #c8553d; font-weight: bold } .episode .good { color: #3d8b5f; font-weight: bold }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; align-items: start }
</style>"""


def as_html(episode: Record, asked: Record | None = None) -> str:
    """One episode as a conversation, with what was scored at its end; with its question also against the reference."""
    return f"{STYLE}{_opening(asked)}{_episode(episode, asked)}"


def side_by_side(left: Record, right: Record, asked: Record | None = None) -> str:
    """Two episodes beside each other, say of two arms on one question."""
    both = f'<div class="beside">{_episode(left, asked)}{_episode(right, asked)}</div>'
    return f"{STYLE}{_opening(asked)}{both}"


def _opening(asked: Record | None) -> str:
    if asked is None:
        return ""
    hint = f"<br>Hint: {_escape(asked['hint'])}" if asked.get("hint") else ""
    reference = _pre(highlighted(asked["query"] or asked.get("sql") or ""))
    words = f"<div><b>{_escape(asked['question'])}</b>{hint}</div>"
    return f'<div class="episode">{words}<div>{_role("reference")}{reference}</div></div>'


def _episode(episode: Record, asked: Record | None) -> str:
    head = f"{episode['arm']}, {episode['question']} ({episode['structure']}), {episode['decode']} {episode['sample']}"
    parts = [f"<b>{_escape(head)}</b>", *map(_turn, conversation(episode, asked)), _scored(episode, asked)]
    body = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div class="episode">{body}</div>'


def _turn(turn: Record) -> str:
    body = f"<pre>{_escape(turn['text'])}</pre>" if turn["text"] else ""
    body += "".join(map(_pre, turn["queries"]))
    if turn["table"]:
        cut = "cut here: there are more rows" if turn["table"]["cut"] else ""
        rows = [("columns", turn["table"]["columns"]), *(("", row) for row in turn["table"]["rows"])]
        body += f"<br>{_escape(turn['table']['head'])}{_table(rows)}{cut}"
    if turn["role"] == "system":
        body = f"<details><summary>prompt and schema</summary>{body}</details>"
    failed = f' <span class="bad">{_escape(turn["error"])}</span>' if turn["error"] else ""
    return f"{_role(turn['role'])}{failed}{body}"


def _scored(episode: Record, asked: Record | None) -> str:
    good = "good" if episode["strict"] else "bad"
    (_, outcome), *rest = verdict(episode)
    told = " · ".join(f"{name} {text}" for name, text in rest)
    query = _pre(highlighted(episode["query"])) if episode["query"] else "<pre>no query ran</pre>"
    compared = ""
    if asked is not None and episode["query"]:
        found = difference(episode["rows"], asked["rows"], episode["row_count"])
        counts = ", ".join(f"{number:,} {MARKS[mark]}" for mark, number in found["counts"].items())
        compared = f"<br>rows: {counts or 'none'}{_table([('', [mark, *cells]) for mark, cells in found['rows']])}"
    return f'{_role("scored")} <span class="{good}">{_escape(outcome)}</span>{query}{_escape(told)}{compared}'


def _table(rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A table of (kind, cells)."""
    lines = []
    for kind, row in rows:
        cells = "".join(f"<td>{_escape(text)}</td>" for text in row)
        lines.append(f'<tr class="{kind}">{cells}</tr>')
    return f"<table>{''.join(lines)}</table>"


def _pre(pieces: Sequence[tuple[str, str]]) -> str:
    spans = (f'<span class="{kind}">{_escape(text)}</span>' if kind else _escape(text) for kind, text in pieces)
    return f"<pre>{''.join(spans)}</pre>"


def _role(name: str) -> str:
    return f'<span class="role">{_escape(name)}</span>'


def _escape(text: Any) -> str:
    return html.escape(legible(str(text)))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
