"""Shows episodes as conversations for people; every word that a model or a database said is escaped."""

from __future__ import annotations

import contextlib
import html
import json
from collections.abc import Iterable
from typing import Any

STYLE = """<style>
.episode { border: 1px solid #8886; border-radius: .4rem; margin: .6rem 0; font-size: .9rem; overflow: hidden }
.episode > div { padding: .2rem .8rem .4rem; border-top: 1px solid #8883 }
.episode > div:first-child { border-top: 0; background: #8881 }
.episode .role { opacity: .6; font-size: .75rem; text-transform: uppercase; letter-spacing: .05em }
.episode pre { white-space: pre-wrap; margin: .1rem 0; background: none; font-size: .85rem }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; align-items: start }
</style>"""


def matching(episodes: Iterable[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Episodes whose fields have the wanted values; an empty value wants nothing of its field."""
    asked = {field: value for field, value in wanted.items() if value not in ("", None)}
    return [episode for episode in episodes if all(episode[field] == value for field, value in asked.items())]


def as_html(episode: dict[str, Any]) -> str:
    """One episode as a conversation, with what was scored at its end."""
    head = f"{episode['arm']}, {episode['question']} ({episode['structure']}), {episode['decode']} {episode['sample']}"
    scored = episode["query"] or "no query ran"
    end = f"{episode['outcome']}, reward {episode['reward']:.2f}, {episode['row_count']} rows, stopped by {episode['stop']}"
    if episode.get("fault"):
        end += f"; outside the model's control: {episode['fault']}"
    parts = [f"<div><b>{html.escape(head)}</b></div>", *map(_turn, episode["messages"])]
    parts.append(f'<div><span class="role">scored: {html.escape(end)}</span><pre>{html.escape(scored)}</pre></div>')
    return f'{STYLE}<div class="episode">{"".join(parts)}</div>'


def side_by_side(left: dict[str, Any], right: dict[str, Any]) -> str:
    """Two episodes beside each other, say of two arms on one question."""
    return f'<div class="beside">{as_html(left)}{as_html(right)}</div>'


def _turn(message: dict[str, Any]) -> str:
    body = "".join(
        f"<pre>{html.escape(text)}</pre>" for text in [_text(message.get("content")), *calls(message)] if text
    )
    if message["role"] == "system":
        body = f"<details><summary>prompt and schema</summary>{body}</details>"
    return f'<div><span class="role">{html.escape(str(message["role"]))}</span>{body}</div>'


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""


def calls(message: dict[str, Any]) -> list[str]:
    """Each tool call as `name: query`, or as it was written where it can't be read."""
    shown = []
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        arguments = function.get("arguments")
        with contextlib.suppress(TypeError, KeyError, ValueError):
            arguments = json.loads(arguments)["query"]
        shown.append(f"{function.get('name') or 'malformed call'}: {arguments}")
    return shown
