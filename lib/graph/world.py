"""The first world: a graph database asked in Cypher. Everything that the agent's loop must not know about Cypher is here."""

from __future__ import annotations

import json
from typing import Annotated, Any

from tinker_cookbook.renderers import Renderer, ToolCall
from tinker_cookbook.renderers.base import Message
from tinker_cookbook.tool_use import ToolResult, simple_tool_result, tool

from lib.agent import Attempt, EnvironmentFault, Question, Verdict
from lib.graph.query import QueryError, Reader, Rows, Unavailable
from lib.reward import digest, score
from lib.settings import Agent

CONVENTIONS = """You answer questions about a graph database by querying it with Cypher 25.
Call run_cypher as often as you need; look at the rows, and correct the query if they can't be right.
The last query that runs without an error is your answer: it must return exactly what the question asks for, no more columns and no fewer.
Then say that you are done, without another call.

The graph:
"""


LONGEST_CELL = 2_000  # characters
DONE: Message = {"role": "assistant", "content": "done"}


def asks(query: str) -> Message:
    """The message with which an agent runs a query."""
    call = ToolCall(function=ToolCall.FunctionBody(name="run_cypher", arguments=json.dumps({"query": query})))
    return {"role": "assistant", "content": "", "tool_calls": [call]}


class CypherTool:
    """One rollout's `run_cypher`, with the record of what was asked and shown."""

    def __init__(self, reader: Reader | None, settings: Agent, attempt: Attempt):
        self._reader, self._settings, self._attempt = reader, settings, attempt

    @tool
    async def run_cypher(self, query: Annotated[str, "A read-only Cypher query."]) -> ToolResult:
        """Run a read-only Cypher query on the graph and see its first rows."""
        assert self._reader is not None
        error = None
        try:
            shown = show(await self._reader.run(query, self._settings.shown_rows), self._settings)
        except QueryError as e:
            error, shown = e.kind, show_error(e, self._settings)
        except Exception as e:  # not the query's doing: the cookbook would tell the model that its call had failed
            self._attempt.fault = f"{type(e).__name__}: {e}" if not isinstance(e, Unavailable) else str(e)
            return simple_tool_result("the database is not available", should_stop=True)
        self._attempt.calls.append({"query": query, "shown": shown, "error": error})
        return simple_tool_result(shown)


class CypherWorld:
    """Prompt, tool and verdict over one graph; `reader` may be None where only prompts are needed."""

    def __init__(self, reader: Reader | None, renderer: Renderer, schema: str, settings: Agent):
        self.reader, self.settings = reader, settings
        spec = CypherTool(None, settings, Attempt()).run_cypher.to_spec()
        self._system = renderer.create_conversation_prefix_with_tools([spec], CONVENTIONS + schema)

    def prompt(self, question: Question) -> list[Message]:
        text = question["question"]
        if question.get("hint"):
            text += f"\nHint: {question['hint']}"
        return [*self._system, {"role": "user", "content": text}]

    def begin(self) -> Attempt:
        attempt = Attempt()
        attempt.tools = [CypherTool(self.reader, self.settings, attempt).run_cypher]
        return attempt

    async def verdict(self, question: Question, attempt: Attempt) -> Verdict:
        """Run the last query that ran without an error once more, uncapped, and score its rows."""
        assert self.reader is not None
        query = next((c["query"] for c in reversed(attempt.calls) if c["error"] is None), None)
        nothing = Verdict(query, [], 0, None, score(None, question["rows"]))
        if query is None:
            return nothing
        try:
            found = await self.reader.run(query, self.settings.row_cap)
        except QueryError:  # it ran a moment ago, but too slowly to run again: no rows, so a wrong answer
            return nothing
        except Unavailable as e:
            raise EnvironmentFault(str(e)) from e
        return Verdict(query, found.rows, found.total, digest(found.rows), score(found.rows, question["rows"]))


def show(rows: Rows, settings: Agent) -> str:
    """Rows as the model sees them: how many there are, the columns, the first rows; what is cut says how long it was."""
    if rows.total == 0:
        return "no rows"
    lines = ["1 row" if rows.total == 1 else f"{rows.total} rows" + (" or more" if rows.more else "")]
    lines += [" | ".join(rows.columns)]
    lines += [" | ".join(map(_cell, row)) for row in rows.rows[: settings.shown_rows]]
    return _cut("\n".join(lines), settings.shown_characters)


def show_error(e: QueryError, settings: Agent) -> str:
    """An error as the model sees it: its kind in two words, or the database's own first line."""
    if settings.shown_errors == "kind":
        return e.kind
    return f"error: {e.message}"[: settings.shown_characters]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return _cut(value, LONGEST_CELL)
    if isinstance(value, float):
        return f"{value:.6g}"
    return _cut(json.dumps(value, ensure_ascii=False), LONGEST_CELL)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"
