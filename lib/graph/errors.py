"""What can be wrong with a query, said so that whoever sent it can mend it, apart from what is nobody's fault."""

from __future__ import annotations

import re
from typing import NoReturn

from neo4j.exceptions import Neo4jError, ServiceUnavailable, TransientError

LONGEST_MESSAGE = 300  # characters

TIME_IS_UP = ("TransactionTimedOut", "TransactionTimedOutClientConfiguration", "TransactionValidationFailed")
MEMORY = ("OutOfMemory", "MemoryPool", "StackOverflow", "TransactionMemory")
GONE = ("DatabaseUnavailable", "DatabaseNotFound", "Unauthorized")
WRITES = ("AccessMode", "WriteOnReadOnlyAccessDatabase", "ReadOnlyDatabase")
KINDS = {
    "SyntaxError": "syntax error",
    "SemanticError": "syntax error",
    "TypeError": "type error",
    "ArgumentError": "type error",
    "ParameterMissing": "name error",
    "EntityNotFound": "name error",
}
UNKNOWN_NAME = re.compile(r"not defined|[Uu]nknown (?:function|procedure|variable)|no procedure with the name")
POSITION = re.compile(r" *\(line (\d+), column (\d+) \(offset: (\d+)\)\)")
JAVA = re.compile(
    r"(?:Caused by: )?\b(?:[a-z]\w*\.){2,}[A-Z][\w$]*(?:Exception|Error)\b:? ?|\b(?:org|com|java|scala)\.(?:\w+\.)+(?=[A-Z])"
)
SLOTS = re.compile(r"\b(?:Slotted|Cached)\w*\([\w, ]*\)")  # how the server's own plan calls a property
PATH = re.compile(r"(?:\bfile:/*)?(?<![\w/:])/(?:[\w.@-]+/)+[\w.@-]*")


class QueryError(Exception):
    """The query's own fault. `message` is for the model, `kind` is the same in two words at most."""

    kind = "error"

    def __init__(self, message: str, kind: str | None = None):
        super().__init__(message)
        self.message = message
        self.kind = kind or self.kind


class Refused(QueryError):
    kind = "refused"


class TimedOut(QueryError):
    kind = "time out"


class QueryFailed(QueryError):
    """The server's code and first line about what is wrong: `kind` is a syntax, name, type or memory error."""


class Unavailable(RuntimeError):
    """The database is gone and didn't come back, or may not be asked any more: nobody's query is to blame."""


class NoMemory(Exception):
    """A query ran short of memory; whether it is to blame shows when it runs alone."""


def blame(e: Neo4jError, seconds: float, timeout: float) -> NoReturn:
    """Raise the server's error as one of ours: QueryError, NoMemory or, for what is no query's fault, ServiceUnavailable.

    seconds: how long the query ran, of the `timeout` that it had.
    """
    code = (e.code or "").rsplit(".", 1)[-1]
    message = one_line(e)
    if any(part in (e.code or "") for part in MEMORY):
        raise NoMemory("The query needs more memory than it may have") from e
    if code in TIME_IS_UP or (code.startswith("Terminated") and seconds > timeout - 1):
        raise too_slow(timeout) from e
    if code in WRITES or "write access" in message.lower():
        raise Refused("Only reading is allowed") from e
    if isinstance(e, TransientError) or code in GONE or code.startswith("Terminated"):  # by someone else
        raise ServiceUnavailable(message) from e
    kind = "name error" if UNKNOWN_NAME.search(message) else KINDS.get(code, "error")
    raise QueryFailed(message, kind) from e


def too_slow(timeout: float) -> TimedOut:
    return TimedOut(f"The query took longer than {timeout:g} s")


def first_line(e: BaseException) -> str:
    """The first line of what an exception says, or its name where it says nothing."""
    return (str(e).splitlines() or [type(e).__name__])[0]


def one_line(e: BaseException | None) -> str:
    """The server's code and the first line of what it says, with the position at its end however long it is."""
    text = (getattr(e, "message", None) or str(e)).strip()
    line = (text.splitlines() or [type(e).__name__])[0]
    position = ""
    if found := list(POSITION.finditer(line[-LONGEST_MESSAGE:])):
        position = found[-1][0]
        line = line[: line.rindex(position)]
    line = line[: 4 * LONGEST_MESSAGE]  # it can repeat a whole query, over which the searches below would take seconds
    line = SLOTS.sub("...", PATH.sub("(a path)", JAVA.sub("", line)))
    code = getattr(e, "code", None)
    head = f"{code}: {line}" if code else line
    room = LONGEST_MESSAGE - len(position)
    return (head if len(head) <= room else head[: room - 3] + "...") + position


def moved(message: str, prefix: str) -> str:
    """A message about `prefix` + query, with its position as it is in the query."""

    def back(match: re.Match[str]) -> str:
        line, column, offset = map(int, match.groups())
        column -= len(prefix) if line == 1 else 0
        return f" (line {line}, column {max(column, 1)} (offset: {max(offset - len(prefix), 0)}))"

    return POSITION.sub(back, message)
