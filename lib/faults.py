"""What fails outside of the model: told apart from its mistakes, asked again as often as the settings allow, and then a fault.

A call that failed may have been paid for all the same (the meter counts it so), which is why no call is repeated without an end,
and what was answered isn't asked again after a kill.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import tinker
from tinker import types
from tinker.lib.retryable_exception import RetryableException

from lib.agent import EnvironmentFault
from lib.backends import rollout_key
from lib.files import Appended, read_jsonl
from lib.settings import Faults

Result = TypeVar("Result")

# What the caller has to mend: a request that no service would answer (400, 413, 422), and a bill (402).
OWN = (400, 402, 413, 422)


class HalfAnswer(RuntimeError):
    """A service answered with less than it was asked for, or with what is no number."""


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
    """The answer of `call`, which is told how often it was asked before; asked `faults.tries` times at most, each time for
    `faults.answer_within` seconds at most.

    Raises EnvironmentFault where each try failed outside, and at once whatever else it raises.
    """
    for tried in range(faults.tries):
        try:
            async with asyncio.timeout(faults.answer_within):
                return await call(tried)
        except Exception as error:
            if not outside(error):
                raise
            if tried + 1 == faults.tries:
                times = "once" if faults.tries == 1 else f"{faults.tries} times"
                said = str(error) or f"within {faults.answer_within:g} s"
                raise EnvironmentFault(f"{type(error).__name__}: {said} (asked {times})") from error
        await asyncio.sleep(faults.wait * 2**tried)
    raise AssertionError("unreachable: tries is at least 1")


class Answers:
    """A sampler's answers to named rollouts, in a file, until their step is over. A start after a kill plays those rollouts
    again from what is here: nothing that was answered is asked, and paid for, twice."""

    def __init__(self, path: Path):
        self._file = Appended(path)
        self._file.repair()
        self._kept = {line["id"]: line for line in read_jsonl(path)}

    def find(self, name: str) -> types.SampleResponse | None:
        if (line := self._kept.get(name)) is None:
            return None
        tokens, logprobs = np.array(line["tokens"], np.int32), np.array(line["logprobs"])
        sequence = types.SampledSequence(line["stop"], line["sequence"], tokens_np=tokens, logprobs_np=logprobs)
        return types.SampleResponse(sequences=[sequence])

    def keep(self, name: str, answer: types.SampleResponse) -> None:
        [one] = answer.sequences
        line = {
            "id": name,
            "tokens": one.tokens,
            "logprobs": one.logprobs,
            "stop": one.stop_reason,
            "sequence": one.sequence_id,
        }
        self._file.append(json.dumps(line).encode() + b"\n")

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Patient:
    """A sampling client whose samples are asked for patiently and come whole, and once where `answers` are kept; all else is
    the client's own."""

    def __init__(self, client: Any, faults: Faults, answers: Answers | None = None):
        self.client, self.faults, self.answers = client, faults, answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def sample_async(self, **asked: Any) -> types.SampleResponse:
        name = _name(asked)
        if self.answers is None or name is None:
            return await patiently(lambda _: self._whole(asked), self.faults)
        if (kept := self.answers.find(name)) is not None:
            return kept
        answer = await patiently(lambda _: self._whole(asked), self.faults)
        self.answers.keep(name, answer)
        return answer

    async def _whole(self, asked: dict[str, Any]) -> types.SampleResponse:
        answer: types.SampleResponse = await self.client.sample_async(**asked)
        lengths = [(len(one.tokens), len(one.logprobs or ())) for one in answer.sequences]
        if len(lengths) != asked["num_samples"] or any(tokens != scored for tokens, scored in lengths):
            raise HalfAnswer(f"{asked['num_samples']} samples asked for, tokens and log-probabilities given: {lengths}")
        if not all(math.isfinite(logprob) for one in answer.sequences for logprob in one.logprobs or ()):
            raise HalfAnswer("log-probabilities that are no numbers")
        return answer


def _name(asked: dict[str, Any]) -> str | None:
    """Of a call, by its rollout and what it asks; None where no rollout is named, or several samples are wanted at once."""
    if (rollout := rollout_key.get()) is None or asked["num_samples"] != 1:
        return None
    what = f"{asked['prompt'].to_ints()} {asked['sampling_params']!r}"
    return f"{rollout}/{hashlib.sha256(what.encode()).hexdigest()[:16]}"
