"""Runs coroutines to their end: from anywhere, since a notebook's cells run inside a loop of their own, where asyncio.run
refuses; and beside each other without cutting one off for another's failure."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The coroutine's result, or its exception.

    Within a running loop the coroutine gets a thread and a loop of its own, and an interrupt of the caller cancels it
    and waits until it has closed what it opened.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    apart = _Apart(coroutine)
    try:
        threading.Thread(target=apart.run, name="coroutine").start()
        # in short waits: a signal that comes just before a long one is only seen after it
        while not wait([apart.outcome], timeout=1).done:
            pass
        return apart.outcome.result()
    except KeyboardInterrupt:
        if apart.cancel():
            wait([apart.outcome])
        raise


async def ended(*started: Awaitable[Any]) -> list[Any]:
    """All results in their order, or the first error once all have ended: nothing is cut off for another's sake."""
    results = await asyncio.gather(*started, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


class _Apart:
    """A coroutine in a thread's own loop, with the caller's context."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.outcome: Future[Any] = Future()
        self._coroutine = coroutine
        self._context = contextvars.copy_context()
        self._begun = threading.Event()

    def run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                result = runner.run(self._watched(), context=self._context)
        except BaseException as error:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)

    async def _watched(self) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        return await self._coroutine

    def cancel(self) -> bool:
        """Ask the coroutine to end; False if it never began."""
        if not self._begun.wait(timeout=1):
            return False
        if not self.outcome.done() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        return True
