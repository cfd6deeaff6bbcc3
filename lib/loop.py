"""Runs a coroutine to its end from anywhere: a notebook's cells run inside a loop of their own, where asyncio.run refuses."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
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
    apart.start()
    try:
        apart.join()
    except KeyboardInterrupt:
        apart.cancel()
        apart.join()
        raise
    if apart.error is not None:
        raise apart.error
    return apart.result


class _Apart(threading.Thread):
    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__(name="coroutine")
        self._coroutine = coroutine
        self._context = contextvars.copy_context()
        self._ready = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self.result = runner.run(self._watched(), context=self._context)
        except BaseException as error:  # handed to the caller, who raises it
            self.error = error

    async def _watched(self) -> Any:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self._ready.set()
        return await self._coroutine

    def cancel(self) -> None:
        self._ready.wait()
        assert self._task is not None
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
