"""What fails outside of the model: told apart from its mistakes, asked again as often as the settings allow, and then a fault.

A call that failed may have been paid for all the same (the meter counts it so), which is why no call is repeated without an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import tinker
from tinker import types
from tinker.lib.retryable_exception import RetryableException

from lib.agent import EnvironmentFault
from lib.settings import Faults

Result = TypeVar("Result")

# What the caller has to mend: a request that no service would answer (400, 413, 422), and a bill (402).
OWN = (400, 402, 413, 422)


class HalfAnswer(RuntimeError):
    """A service answered with less than it was asked for."""


def outside(error: Exception) -> bool:
    """Whether an error is a service's or the network's: 429, 5xx, a lost session, a time-out, a dropped connection, half an
    answer."""
    if isinstance(error, tinker.APIStatusError):
        return error.status_code not in OWN
    if isinstance(error, tinker.RequestFailedError):
        return error.category != types.RequestErrorCategory.User
    ours = (EnvironmentFault, HalfAnswer)
    theirs = (tinker.TinkerError, RetryableException, httpx.TransportError)
    return isinstance(error, (*ours, *theirs, TimeoutError, ConnectionError))


async def patiently(call: Callable[[int], Awaitable[Result]], faults: Faults) -> Result:
    """The answer of `call`, which is told how often it was asked before; asked `faults.tries` times at most.

    Raises EnvironmentFault where each try failed outside, and at once whatever else it raises.
    """
    for tried in range(faults.tries):
        try:
            return await call(tried)
        except Exception as error:
            if not outside(error):
                raise
            if tried + 1 == faults.tries:
                times = "once" if faults.tries == 1 else f"{faults.tries} times"
                raise EnvironmentFault(f"{type(error).__name__}: {error} (asked {times})") from error
        await asyncio.sleep(faults.wait * 2**tried)
    raise AssertionError("unreachable: tries is at least 1")


class Patient:
    """A sampling client whose samples are asked for patiently and come whole; all else is the client's own."""

    def __init__(self, client: Any, faults: Faults):
        self.client, self.faults = client, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def sample_async(self, **asked: Any) -> types.SampleResponse:
        return await patiently(lambda _: self._whole(asked), self.faults)

    async def _whole(self, asked: dict[str, Any]) -> types.SampleResponse:
        async with asyncio.timeout(self.faults.answer_within):
            answer: types.SampleResponse = await self.client.sample_async(**asked)
        lengths = [(len(one.tokens), len(one.logprobs or ())) for one in answer.sequences]
        if len(lengths) != asked["num_samples"] or any(tokens != scored for tokens, scored in lengths):
            raise HalfAnswer(f"{asked['num_samples']} samples asked for, tokens and log-probabilities given: {lengths}")
        return answer
