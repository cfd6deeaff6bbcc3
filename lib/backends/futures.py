"""The SDK's futures over work in this process, and the asynchronous twins of the clients' methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import tinker
from tinker import types
from tinker.lib.public_interfaces.api_future import APIFuture, AwaitableConcurrentFuture

API = AwaitableConcurrentFuture
Result = TypeVar("Result")


def refused(message: str) -> tinker.TinkerError:
    """The SDK's error for a request that the service took and then failed, through the caller's own fault."""
    return tinker.RequestFailedError(message, request_id="local", category=types.RequestErrorCategory.User)


def then(
    source: APIFuture[Any], change: Callable[[Any], Any], failed: Callable[[BaseException], None] = lambda _: None
) -> API[Any]:
    """A future of the changed result. Who stops waiting for it doesn't stop the call, which is settled when it ends."""
    result: Future[Any] = Future()

    def hand_over(done: Future[Any]) -> None:
        try:
            changed = change(done.result())
        except BaseException as error:  # a cancelled call as well
            failed(error)
            if result.set_running_or_notify_cancel():
                result.set_exception(error)
        else:
            if result.set_running_or_notify_cancel():
                result.set_result(changed)

    source.future().add_done_callback(hand_over)
    return API(result)


def started(method: Callable[..., Result]) -> Callable[..., Coroutine[Any, Any, Result]]:
    """The twin that starts the work and gives its future (or an answer that needs no waiting)."""

    @functools.wraps(method)
    async def twin(*args: Any, **options: Any) -> Result:
        return method(*args, **options)

    return _named(twin)


def awaited(method: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The twin that waits for the result."""

    @functools.wraps(method)
    async def twin(*args: Any, **options: Any) -> Any:
        return await method(*args, **options)

    return _named(twin)


def _named(twin: Any) -> Any:
    twin.__name__ += "_async"
    twin.__qualname__ += "_async"
    return twin
