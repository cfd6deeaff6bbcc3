"""The read-only tool's engine: one query in, rows out, whatever the query is and whatever the server does about it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

import neo4j
from neo4j.exceptions import ClientError, DriverError, Neo4jError, ServiceUnavailable, SessionExpired, TransientError
from neo4j.graph import Node, Relationship
from neo4j.graph import Path as Walk
from neo4j.spatial import Point

from lib.graph import server
from lib.graph.literals import apart

# A connection that breaks is met below, and said once; the driver would print each.
logging.getLogger("neo4j.io").setLevel(logging.CRITICAL)

CAP = 25_000  # rows that are counted at most
LONGEST_QUERY = 20_000  # characters
LONGEST_MESSAGE = 300  # characters
GRACE = 5.0  # seconds after the server's own limit, after which the caller gets an answer from us
STUCK = 25.0  # seconds after that; what is marked as stopped and still runs then, will run for ever
OURS = 60.0  # seconds for questions of our own
RETURNS_WITHIN = 90.0  # seconds that a restarted server may take
REMEMBERED = 20_000  # verdicts

# Every clause that does more than read its own database starts with one of these words. A query without them is sent
# at once; one with them (in a name or a text, say) is shown to the server's parser first. The words alone refuse nothing.
SUSPECT = re.compile(
    r"\b(?:create|insert|merge|set|delete|detach|remove|foreach|drop|alter|rename|grant|deny|revoke|start|stop|enable|"
    r"dryrun|deallocate|reallocate|load|call|show|terminate|use|explain|profile|cypher|in\s+transactions)\b|\\",
    re.IGNORECASE,
)
BLANK = r"(?:\s|/\*.*?\*/|//[^\n\r]*(?:[\n\r]|$))"
OPTIONS = rf"(?:cypher(?:{BLANK}+(?:\d+|\w+{BLANK}*={BLANK}*\w+))*{BLANK}+)?"
PREFIX = re.compile(rf"^{BLANK}*{OPTIONS}(explain|profile)\b", re.IGNORECASE | re.DOTALL)
QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:``|[^`])*`|/\*.*?\*/|//[^\n\r]*", re.DOTALL)
USE = re.compile(
    rf"(?:^\s*{OPTIONS}|\{{\s*|\bunion(?:\s+all|\s+distinct)?\s+|\bnext\s+|\bthen\s+|\belse\s+)use\s+[\w_]",
    re.IGNORECASE,
)

# What a plan may consist of. A list of what is allowed, since a later server may know operators that no list of
# forbidden ones has; the names are those of EXPLAIN, without what stands in brackets.
READS = re.compile(
    r".*(?:Scan|Seek|IndexSearch|Lookup|Apply|Join|Expand|ShortestPaths?|Aggregation|CountFromCountStore|Union|Distinct|"
    r"Sort|Top|Limit|Repeat|Trail|BFS)|Aggregation|AllNodesScan|Anti|Argument|AssertSame\w+|AtMostOneRow|CacheProperties|"
    r"CartesianProduct|Eager|EmptyResult|EmptyRow|ErrorPlan|Filter|NullifyMetadata|Optional|OptionalExpand|"
    r"PreserveOrder|ProduceResults?|ProjectEndpoints|Projection|RemoteBatchProperties\w*|RollUpApply|"
    r"Selection|Skip|Triadic\w+|Unwind|UnwindCollection|VarLengthExpand|\w*VarExpand|ValueHashJoin"
)
TIME_IS_UP = ("TransactionTimedOut", "TransactionTimedOutClientConfiguration", "TransactionValidationFailed")
MEMORY = ("OutOfMemory", "MemoryPool", "StackOverflow", "TransactionMemory")
KINDS = {
    "SyntaxError": "syntax error",
    "SemanticError": "syntax error",
    "TypeError": "type error",
    "ArgumentError": "type error",
    "ParameterMissing": "name error",
    "EntityNotFound": "name error",
}
UNKNOWN_NAME = re.compile(r"not defined|[Uu]nknown (?:function|procedure|variable)|no procedure with the name")
FRACTION = re.compile(r"\.(\d*?)0+(?=$|[Z+-])")
WHERE = re.compile(r"\(line (\d+), column (\d+) \(offset: (\d+)\)\)")


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
    """The server's first line about what is wrong: `kind` is a syntax, name, type or memory error."""


class Unavailable(RuntimeError):
    """The database is gone and didn't come back: nobody's query is to blame."""


@dataclass(frozen=True)
class Rows:
    """`rows` in the server's order, at most as many as were asked for; `total` counted up to CAP; values JSON-able."""

    columns: list[str]
    rows: list[list[Any]]
    total: int
    cut: bool


class Slots:
    """Room for so many at a time, or for one alone."""

    def __init__(self, count: int):
        self._count, self._free, self._alone = count, asyncio.Semaphore(count), asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self, alone: bool = False) -> AsyncIterator[None]:
        held = 0
        lock = self._alone if alone else contextlib.nullcontext()
        async with lock:  # two that want to be alone would wait for each other's slots
            try:
                for _ in range(self._count if alone else 1):
                    await self._free.acquire()
                    held += 1
                yield
            finally:
                for _ in range(held):
                    self._free.release()


class Reader:
    """Runs queries from any number of tasks, `at_once` of them at a time, each for `timeout` seconds at most."""

    def __init__(self, uri: str, at_once: int = 24, timeout: float = 45.0):
        self.uri, self.timeout = uri, timeout
        self._slots = Slots(at_once)
        self._verdicts: dict[str, QueryError | None] = {}
        self._watches: set[asyncio.Future[None]] = set()
        self._driver = neo4j.AsyncGraphDatabase.driver(
            uri,
            auth=server.auth(uri),
            max_connection_pool_size=at_once + 2,
            connection_timeout=10,
            connection_acquisition_timeout=RETURNS_WITHIN,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
        )

    async def run(self, query: str, limit: int) -> Rows:
        """Rows of a read-only query, the first `limit` of them.

        Raises Refused, TimedOut or QueryFailed (the query's fault) and Unavailable (not the query's fault).
        """
        if len(query) > LONGEST_QUERY:
            raise Refused(f"The query has {len(query):,} characters; at most {LONGEST_QUERY:,} are allowed")
        if SUSPECT.search(query):
            await self._vet(query)
            return await self._persistently(query, limit)  # the very text that was vetted
        text, values = apart(query)
        if values:
            # What is wrong with a query is said of the query as it was sent.
            with contextlib.suppress(QueryFailed):
                return await self._persistently(text, limit, values=values)
        return await self._persistently(query, limit)

    async def close(self) -> None:
        for watch in list(self._watches):
            watch.cancel()
        await self._driver.close()

    # ------------------------------------------------------------ may it run?

    async def _vet(self, query: str) -> None:
        """What the server's parser says that the query is. Raises Refused and QueryFailed; the verdict is remembered."""
        if PREFIX.search(query):
            raise Refused("EXPLAIN and PROFILE are not allowed; send the query itself")
        if USE.search(QUOTED.sub(lambda m: " " if m[0][0] == "/" else "''", query)):
            raise Refused("USE is not allowed; there is one graph, and it is chosen already")
        if query not in self._verdicts:
            while len(self._verdicts) >= REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]
            self._verdicts[query] = await self._verdict(query)
        verdict = self._verdicts[query]
        if verdict is not None:
            raise type(verdict)(verdict.message, verdict.kind)

    async def _verdict(self, query: str) -> QueryError | None:
        try:
            plan = await self._persistently("EXPLAIN " + query, 0, explain=True)
        except QueryFailed as e:
            return QueryFailed(WHERE.sub(_without_explain, e.message), e.kind)
        kind, operators = plan.rows[0]
        foreign = [name for name in operators if not READS.fullmatch(name)]
        if foreign or kind != "r":
            return Refused(f"Only reading is allowed; this query would {'run ' + foreign[0] if foreign else 'write'}")
        return None

    # ------------------------------------------------------------ running it

    async def _persistently(
        self, query: str, limit: int, explain: bool = False, values: dict[str, Any] | None = None
    ) -> Rows:
        """Run it, again and alone when the server fell over or ran short of memory: company is nobody's fault."""
        last: QueryError | None = None
        for alone in (False, True):
            try:
                async with self._slots.taken(alone):
                    return await self._within_time(query, limit, explain, values)
            except (ServiceUnavailable, SessionExpired, OSError):
                await self._return_of_the_server()
                last = QueryFailed("The query brought the database down", "memory error")
            except _NoMemory as e:
                last = QueryFailed(str(e), "memory error")
        assert last is not None
        raise last

    async def _within_time(self, query: str, limit: int, explain: bool, values: dict[str, Any] | None) -> Rows:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.timeout + GRACE):
                return await self._once(query, limit, explain, values=values)
        except TimeoutError:
            self._watches.add(watch := asyncio.ensure_future(self._free_a_stuck_core()))
            watch.add_done_callback(self._watches.discard)
            raise TimedOut(self._too_slow()) from None
        except (ClientError, TransientError) as e:
            self._blame(e, time.monotonic() - started)
        except (ServiceUnavailable, SessionExpired):
            raise
        except DriverError as e:  # the connection broke in the middle of an answer
            raise ServiceUnavailable(str(e)) from e
        except Neo4jError as e:  # the server's own fault, as it says; the query brought it up all the same
            raise QueryFailed(_first_line(e), "error") from e

    async def _free_a_stuck_core(self) -> None:
        """A loop inside one expression heeds no limit: replace the server, unless it was merely slow to stop."""
        await asyncio.sleep(STUCK)
        stuck = (
            "SHOW TRANSACTIONS YIELD status, elapsedTime "
            f"WHERE status STARTS WITH 'Terminated' AND elapsedTime.milliseconds > {1000 * (self.timeout + STUCK):.0f} "
            "RETURN count(*)"
        )
        with contextlib.suppress(Neo4jError, DriverError, OSError):  # it fell over or was replaced meanwhile
            if (await self._once(stuck, 1, timeout=OURS)).rows[0][0]:
                server.replace(self.uri)

    async def _once(
        self,
        query: str,
        limit: int,
        explain: bool = False,
        timeout: float | None = None,
        values: dict[str, Any] | None = None,
    ) -> Rows:
        async with self._driver.session(
            database=server.database(self.uri), default_access_mode=neo4j.READ_ACCESS, fetch_size=CAP
        ) as session:
            result = await session.run(neo4j.Query(query, timeout=timeout or self.timeout), values)
            if explain:
                summary = await result.consume()
                return Rows([], [[summary.query_type, sorted(set(_operators(summary.plan or {})))]], 1, False)
            columns = list(result.keys())
            rows: list[list[Any]] = []
            total = 0
            async for record in result:
                total += 1
                if total <= limit:
                    rows.append([_plain(value) for value in record.values()])
                if total >= CAP:
                    break
            return Rows(columns, rows, total, total > len(rows))

    def _blame(self, e: Neo4jError, seconds: float) -> NoReturn:
        """The server's error as one of ours."""
        code = (e.code or "").rsplit(".", 1)[-1]
        message = _first_line(e)
        if any(part in (e.code or "") for part in MEMORY):
            raise _NoMemory("The query needs more memory than it may have") from e
        if code in TIME_IS_UP or (code.startswith("Terminated") and seconds > self.timeout - 1):
            raise TimedOut(self._too_slow()) from e
        if code == "AccessMode" or "write access" in message.lower():
            raise Refused("Only reading is allowed") from e
        if isinstance(e, TransientError) or code in ("DatabaseUnavailable", "DatabaseNotFound", "Unauthorized"):
            raise ServiceUnavailable(message) from e
        kind = "name error" if UNKNOWN_NAME.search(message) else KINDS.get(code, "error")
        raise QueryFailed(message, kind) from e

    def _too_slow(self) -> str:
        return f"The query took longer than {self.timeout:g} s"

    async def _return_of_the_server(self) -> None:
        deadline = time.monotonic() + RETURNS_WITHIN
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                async with asyncio.timeout(OURS):
                    await self._once("RETURN 1", 1, timeout=OURS)
                return
            except (Neo4jError, DriverError, OSError, TimeoutError) as e:
                problem = e
                if server.given_up(self.uri):
                    break
            await asyncio.sleep(0.25)
        raise Unavailable(
            f"The database at {self.uri} is gone ({_first_line(problem)}); start it again and run this step again"
        )


class _NoMemory(Exception):
    pass


def _operators(plan: dict[str, Any]) -> list[str]:
    names = [plan["operatorType"].split("@")[0].split("(")[0]] if plan else []
    for child in plan.get("children", []):
        names += _operators(child)
    return names


def _without_explain(match: re.Match[str]) -> str:
    """Positions as they are in the query that was sent, not in the one behind EXPLAIN."""
    line, column, offset = map(int, match.groups())
    column -= len("EXPLAIN ") if line == 1 else 0
    return f"(line {line}, column {column} (offset: {offset - len('EXPLAIN ')}))"


def _first_line(e: BaseException | None) -> str:
    text = (getattr(e, "message", None) or str(e)).strip()
    line: str = (text.splitlines() or [type(e).__name__])[0]
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def _plain(value: Any) -> Any:
    """A driver's value as JSON has it: times as ISO text, nodes and relationships as their properties, paths as lists."""
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "iso_format"):  # before tuples: a duration is one
        return FRACTION.sub(lambda m: f".{m[1]}" if m[1] else "", value.iso_format())
    if isinstance(value, list | tuple) and not isinstance(value, Point):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Node | Relationship):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Walk):
        steps: list[Any] = [value.start_node]
        for relationship, node in zip(value.relationships, value.nodes[1:], strict=True):
            steps += [relationship, node]
        return [_plain(step) for step in steps]
    if isinstance(value, Point):
        return {"srid": value.srid, "coordinates": list(value)}
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "to_native"):  # vectors
        return list(value.to_native())
    return str(value)
