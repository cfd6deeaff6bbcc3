"""The read-only tool's engine: one query in, rows out, whatever the query is and whatever the server does about it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import neo4j
from neo4j.exceptions import (
    BrokenRecordError,
    ClientError,
    DriverError,
    Neo4jError,
    ServiceUnavailable,
    SessionExpired,
    TransientError,
)

from lib.graph import server, vet, wire
from lib.graph.database import auth, database
from lib.graph.errors import (
    NoMemory,
    QueryError,
    QueryFailed,
    Refused,
    TimedOut,
    Unavailable,
    blame,
    moved,
    one_line,
    too_slow,
)
from lib.graph.literals import apart
from lib.graph.results import Results, Rows

__all__ = ["CACHE", "CAP", "QueryError", "QueryFailed", "Reader", "Refused", "Rows", "Slots", "TimedOut", "Unavailable"]

# A connection that breaks is met below, and said once; the driver would print each.
for name in ("neo4j.io", "neo4j.session"):
    logging.getLogger(name).setLevel(logging.CRITICAL)

CAP = 25_000  # rows that are counted at most
HEAVIEST = 32 * 2**20  # bytes of memory of a result, after which no more rows are fetched
TURN = 2**16  # bytes of a result, after which others get a turn
CACHE = 64 * 2**20  # bytes of results that a study's step remembers
KEPT = 200  # rows that are remembered of a result, though fewer were asked for
GRACE = 3.0  # seconds after the server's own limit, after which the caller gets an answer from us
LOOKS, PAUSE = 3, 1.0  # after that; what is still there at the last look, PAUSE seconds apart, will run for ever
OURS = 60.0  # seconds for questions of our own
RETURNS_WITHIN = 90.0  # seconds that a restarted server may take
RERUNS = 3  # of a query under which the server was replaced because of another's; the last of them alone
REMEMBERED = 20_000  # verdicts
# With the plans inside expressions (`[x IN list | COLLECT { ... }]`), which are hidden otherwise, calls and all.
EXPLAIN = "EXPLAIN CYPHER debug=renderNestedPlanExpressions "
UNREADABLE = (
    f"A value is beyond what can be shown (lists in lists of more than {wire.DEEPEST} levels, years beyond 1 to 9999, a "
    "time zone unknown here); return something simpler, or toString of it"
)

_replaced: Counter[str] = Counter()  # URI -> how often the server was replaced, which is no fault of who was in flight


class Slots:
    """Room for so many at a time, or for one alone; first come, first served."""

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


class Deadlines:
    """Time limits that don't count what this process spends on others' answers, during which it hears of nothing."""

    BEAT = 0.25  # seconds

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._beats: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError where the block takes longer than `seconds`, pauses apart."""
        async with asyncio.timeout(seconds) as limit:
            self._open.add(limit)
            if self._beats is None:
                self._wait()
            try:
                yield
            finally:
                self._open.discard(limit)

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._beats = loop.call_at(loop.time() + self.BEAT, self._beat)

    def _beat(self) -> None:
        """Comes before the limits that ran out in the same pause, and in time to put them off."""
        pause = asyncio.get_running_loop().time() - self._beats.when() if self._beats else 0.0
        for limit in self._open:
            if pause > self.BEAT and not limit.expired():
                limit.reschedule((limit.when() or 0.0) + pause)
        self._beats = None
        if self._open:
            self._wait()


class Reader:
    """Runs queries from any number of tasks, `at_once` of them at a time, each for `timeout` seconds at most.

    cache: bytes of results that are remembered, for the reader's life and so for one graph. Off unless asked for: who
    looks whether a query answers alike twice wants no memory of the first answer.
    counts: how many queries were `asked`, how many of these `cached` (answered from memory) and how many failed, by kind.
    """

    def __init__(self, uri: str, at_once: int = 24, timeout: float = 45.0, cache: int = 0):
        self.uri, self.timeout = uri, timeout
        self.counts: Counter[str] = Counter()
        self._slots, self._deadlines = Slots(at_once), Deadlines()
        self._results = Results(cache)
        self._asking: dict[str, asyncio.Future[None]] = {}
        self._verdicts: dict[bytes, QueryError | None] = {}
        self._mark = secrets.token_hex(4)
        self._names = (f"{self._mark}-{n}" for n in itertools.count())  # of queries, for the server's list
        self._foreign: asyncio.Future[frozenset[str]] | None = None
        self._watches: set[asyncio.Future[None]] = set()
        self._barred = ""  # why no more queries are sent
        self._driver = neo4j.AsyncGraphDatabase.driver(
            uri,
            auth=auth(uri),
            max_connection_pool_size=2 * at_once + 2,  # a look at the server must not wait for a query
            connection_timeout=10,
            connection_acquisition_timeout=RETURNS_WITHIN,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
        )

    async def run(self, query: str, limit: int) -> Rows:
        """Rows of a read-only query, the first `limit` of them.

        Raises Refused, TimedOut or QueryFailed (the query's fault) and Unavailable (not the query's fault).
        """
        self.counts["asked"] += 1
        try:
            read = vet.check_text(query, await self._foreign_functions())
            if not self._results.size or not vet.repeatable(read):
                return await self._fresh(query, limit)
            return await self._remembered(query, limit)
        except QueryError as e:
            self.counts[e.kind] += 1
            raise

    async def close(self) -> None:
        """Leaves no query of its own running: waits until the last that was too slow has ended, or ends it."""
        if self._watches:
            await asyncio.wait(self._watches, timeout=OURS)
        if self._foreign is not None:
            self._foreign.cancel()
        await self._driver.close()

    def report(self) -> str:
        """One line on what was asked and how it went."""
        counts = dict(sorted(self.counts.items()))
        asked, cached = counts.pop("asked", 0), counts.pop("cached", 0)
        share = f", {cached / asked:.0%} from the cache" if asked and self._results.size else ""
        return f"{asked:,} queries{share}" + "".join(f", {n:,} {kind}" for kind, n in counts.items())

    # ------------------------------------------------------------ with and without memory

    async def _remembered(self, query: str, limit: int) -> Rows:
        """From the cache, or from the one who is asking the same just now; each meets its own errors."""
        if query in self._asking:
            await asyncio.wait([self._asking[query]])
        if found := self._results.get(query, limit):
            self.counts["cached"] += 1
            return found
        mine = self._asking.setdefault(query, asyncio.get_running_loop().create_future())
        try:
            rows = await self._fresh(query, max(limit, KEPT))
            self._results.put(query, rows)
            return rows.first(limit)
        finally:
            if not mine.done():
                mine.set_result(None)
            if self._asking.get(query) is mine:
                del self._asking[query]

    async def _fresh(self, query: str, limit: int) -> Rows:
        text, values = apart(query)
        if values:
            try:
                return await self._persistently(text, limit, values)
            except QueryFailed as e:
                if e.kind == "memory error":
                    raise
        # What is wrong with a query is said of the query as it was sent.
        return await self._persistently(query, limit, {})

    async def _persistently(self, query: str, limit: int, values: dict[str, Any]) -> Rows:
        """Run it, again and alone when the server fell over or ran short of memory: company is nobody's fault.

        Where the server was replaced because of another's query, this one starts over as if it had never run, RERUNS
        times at most: company that is bad for ever would keep it here for ever.
        """
        alone, replaced = False, 0
        while True:
            before = _replaced[self.uri]
            try:
                async with self._slots.taken(alone):
                    if alone:
                        await self._quiet()
                    if self._barred:
                        raise Unavailable(self._barred)
                    before = _replaced[self.uri]
                    return await self._within_time(query, limit, values)
            except (ServiceUnavailable, SessionExpired, OSError):
                await self._return_of_the_server()
                fault = QueryFailed("The query brought the database down", "memory error")
            except NoMemory as e:
                fault = QueryFailed(str(e), "memory error")
            except TimedOut:
                if _replaced[self.uri] == before:
                    raise
            if _replaced[self.uri] != before:
                replaced += 1
                if replaced > RERUNS:
                    raise too_slow(self.timeout)
                alone = alone or replaced == RERUNS
            elif alone:
                raise fault
            else:
                alone = True

    async def _within_time(self, query: str, limit: int, values: dict[str, Any]) -> Rows:
        started = time.monotonic()
        name = next(self._names)
        try:
            async with self._deadlines.within(self.timeout + GRACE):
                return await self._vetted(query, limit, values, name)
        except TimeoutError:
            self._watches.add(watch := asyncio.ensure_future(self._end(name)))
            watch.add_done_callback(self._watches.discard)
            raise too_slow(self.timeout) from None
        except (ClientError, TransientError) as e:
            blame(e, time.monotonic() - started, self.timeout)
        except (BrokenRecordError, wire.Unreadable, RecursionError) as e:
            raise QueryFailed(UNREADABLE) from e
        except (ServiceUnavailable, SessionExpired, DriverError, OSError) as e:
            if wire.too_long(e):
                raise QueryFailed(
                    f"A row has more than {wire.MOST_VALUES:,} values or {wire.LONGEST_ROW >> 20} MB; return less in one row",
                    "memory error",
                ) from e
            raise ServiceUnavailable(str(e)) from e  # the connection broke, maybe in the middle of an answer
        except Neo4jError as e:  # the server's own fault, as it says; the query brought it up all the same
            raise QueryFailed(one_line(e), "error") from e

    # ------------------------------------------------------------ one query on the server

    async def _vetted(self, query: str, limit: int, values: dict[str, Any], name: str) -> Rows:
        """Run the very text that was vetted. The verdict is remembered by text, values apart."""
        async with self._session() as session:
            key = hashlib.sha256(query.encode()).digest()
            if key not in self._verdicts:
                verdict = await self._verdict(session, query, values, name)
                while len(self._verdicts) >= REMEMBERED:
                    del self._verdicts[next(iter(self._verdicts))]
                self._verdicts[key] = verdict
            vet.again(self._verdicts[key])
            result = await session.run(self._query(query, name), values)
            return await self._collected(session, result, limit)

    async def _verdict(
        self, session: neo4j.AsyncSession, query: str, values: dict[str, Any], name: str
    ) -> QueryError | None:
        """What is wrong with a query by the server's own reading, or None. Nothing is executed.

        With the values, though the verdict doesn't depend on them: their types do decide which plan is found again.
        """
        try:
            summary = await (await session.run(self._query(EXPLAIN + query, name), values)).consume()
        except ClientError as e:
            if not (e.code or "").startswith("Neo.ClientError.Statement."):
                raise
            try:
                blame(e, 0, self.timeout)
            except (Refused, QueryFailed) as verdict:
                return type(verdict)(moved(verdict.message, EXPLAIN), verdict.kind)
        except (BrokenRecordError, RecursionError, ServiceUnavailable, SessionExpired, OSError) as e:
            if isinstance(e, ServiceUnavailable | SessionExpired | OSError) and not wire.too_long(e):
                raise
            return QueryFailed("The plan of this query is too large to be read; use fewer clauses")
        try:
            vet.check_plan(summary.query_type, summary.plan, vet.tokens(query))
        except Refused as verdict:
            return Refused(verdict.message)  # the one that was caught would keep the plan in memory, by its traceback
        return None

    async def _collected(self, session: neo4j.AsyncSession, result: neo4j.AsyncResult, limit: int) -> Rows:
        """The first `limit` rows and the number of all, up to CAP rows or HEAVIEST bytes."""
        columns = list(result.keys())
        rows: list[list[Any]] = []
        total = seen = shared = 0
        async for record in result:
            if seen > shared + TURN:
                shared = seen
                await asyncio.sleep(0)
            if total == CAP or seen > HEAVIEST:
                session.cancel()  # closing it would read what the server has sent already
                return Rows(columns, rows, total, cut=True, more=True)
            total += 1
            values = record.values()
            seen += (row := wire.weight(values))
            if row > HEAVIEST:
                session.cancel()
                raise QueryFailed(f"A row takes more than {HEAVIEST >> 20} MB; return less in one row", "memory error")
            plain = [wire.plain(value) for value in values]  # of all: else `limit` would decide what can be read
            if total <= limit:
                rows.append(plain)
        return Rows(columns, rows, total, total > len(rows))

    async def _ask(self, query: str, **values: Any) -> list[list[Any]]:
        """A question of our own."""
        async with asyncio.timeout(OURS), self._session() as session:
            return [record.values() async for record in await session.run(neo4j.Query(query, timeout=OURS), values)]

    def _session(self) -> neo4j.AsyncSession:
        return self._driver.session(
            database=database(self.uri), default_access_mode=neo4j.READ_ACCESS, fetch_size=CAP + 1
        )

    def _query(self, text: str, name: str) -> neo4j.Query:
        return neo4j.Query(text, timeout=self.timeout, metadata={"query": name})

    async def _foreign_functions(self) -> frozenset[str]:
        """Functions that a user's own server has beyond its own; some of those there are reach the network."""
        look = self._foreign
        if look is None or (look.done() and (look.cancelled() or look.exception())):
            # Thousands may ask at once: one look is enough for all, and so is one long wait where the server is gone.
            look = self._foreign = asyncio.ensure_future(self._listed())
        return await asyncio.shield(look)  # who is cancelled ends nobody else's look

    async def _listed(self) -> frozenset[str]:
        listed = "SHOW FUNCTIONS YIELD name, isBuiltIn WHERE NOT isBuiltIn RETURN toLower(name)"
        problem: Exception | None = None
        for _ in range(LOOKS):
            try:
                return frozenset(row[0] for row in await self._ask(listed))
            except ClientError as e:
                problem = e
                break
            except (Neo4jError, DriverError, OSError, TimeoutError) as e:
                problem = e
                await self._return_of_the_server()
        raise Unavailable(
            f"The database at {self.uri} doesn't say what it can do ({one_line(problem)}); let this user run SHOW "
            "FUNCTIONS and SHOW TRANSACTIONS"
        ) from problem

    # ------------------------------------------------------------ when the server is in trouble

    async def _end(self, name: str) -> None:
        """A loop inside one expression heeds no limit: replace the server, unless it was merely slow to stop."""
        still = "SHOW TRANSACTIONS YIELD metaData WHERE metaData.query = $name RETURN count(*)"
        before = _replaced[self.uri]
        for _ in range(LOOKS):
            await asyncio.sleep(PAUSE)
            try:
                async with asyncio.timeout(LOOKS * PAUSE):
                    if not (await self._ask(still, name=name))[0][0]:
                        return
            except (ServiceUnavailable, SessionExpired, ConnectionError):
                return  # it fell over or was replaced meanwhile
            except (Neo4jError, DriverError, OSError):  # a timeout, too
                pass  # too busy to say, or without the memory to
        if _replaced[self.uri] != before:
            return  # because of another query: the loop went with it
        if server.replace(self.uri):
            _replaced[self.uri] += 1
            self.counts["servers replaced"] += 1
        else:
            self._barred = (
                f"A query that no time limit stops still runs on {self.uri}, and this study may not restart that "
                "server; restart it, then run this step again"
            )

    async def _quiet(self) -> None:
        """Until the server is there and nothing given up runs on it: else its next death would be blamed on the wrong
        query, since others that wait to run alone may have brought it down again meanwhile."""
        if self._watches:
            await asyncio.wait(self._watches)
        left = "SHOW TRANSACTIONS YIELD metaData WHERE metaData.query STARTS WITH $mark RETURN count(*)"
        for _ in range(LOOKS):
            await self._return_of_the_server()
            with contextlib.suppress(Neo4jError, DriverError, OSError, TimeoutError):
                if not (await self._ask(left, mark=self._mark))[0][0]:
                    return
            await asyncio.sleep(PAUSE)

    async def _return_of_the_server(self) -> None:
        deadline = time.monotonic() + RETURNS_WITHIN
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                await self._ask("RETURN 1")
                server.answers(self.uri)
                return
            except (Neo4jError, DriverError, OSError, TimeoutError) as e:
                problem = e
                if server.given_up(self.uri):
                    break
            await asyncio.sleep(0.25)
        raise Unavailable(
            f"The database at {self.uri} is gone ({one_line(problem)}); start it again and run this step again"
        )
