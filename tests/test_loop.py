"""Coroutines run from plain code and from within a running loop, and end when their caller is interrupted."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading

import pytest

from lib import loop

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number


def in_a_cell(action):
    """Call `action` as a notebook's cell would be: in the thread of a loop that is running."""

    async def cell():
        return action()

    return asyncio.new_event_loop().run_until_complete(cell())


def test_from_plain_code_and_from_a_cell():
    assert loop.run(doubled(2)) == 4
    assert in_a_cell(lambda: loop.run(doubled(3))) == 6
    with pytest.raises(ValueError, match="-1 is negative"):
        in_a_cell(lambda: loop.run(doubled(-1)))


def test_the_context_comes_along():
    async def marked() -> str:
        return MARK.get()

    MARK.set("here")
    assert in_a_cell(lambda: loop.run(marked())) == "here"


def test_an_interrupt_closes_what_the_coroutine_opened():
    closed = []
    begun = threading.Event()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        in_a_cell(lambda: loop.run(long()))
    assert closed
