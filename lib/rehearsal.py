"""A service to rehearse a run on: every call is written down, and a script says what the model would.

What is written down is what the code really asks for: its clients are those of the service in this process. Without a
script its answers are that service's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from tinker import types

from lib import tiny
from lib.backends import local
from lib.backends.futures import API
from lib.backends.seen import Seen
from lib.settings import Model

BY_PLACE = {"create_lora_training_client": ("base_model", "rank"), "forward_backward": ("data", "loss_fn")}
SHOWN = ("base_model", "rank", "loss_fn", "max_tokens", "temperature", "learning_rate", "ttl_seconds")
THINKING = ["<think>", "</think>"]
CONTEXT = 4096  # tokens of the model to rehearse with

Call = tuple[str, tuple[tuple[str, Any], ...]]  # its name, and those of its arguments that tell calls apart
Script = Callable[[types.ModelInput, types.SamplingParams], tuple[float, list[int]]]  # -> seconds, tokens


class Rehearsal:
    """What was asked: `calls` counts each call. `script`: what is sampled, and how long it takes; None: as the model does."""

    def __init__(self, script: Script | None = None):
        self.calls: Counter[Call] = Counter()
        self._script = script

    def by_name(self) -> Counter[str]:
        names: Counter[str] = Counter()
        for (name, _), times in self.calls.items():
            names[name] += times
        return names

    def look(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        kind = name.removesuffix("_async")
        given = dict(zip(BY_PLACE.get(kind, ()), args, strict=False)) | options
        for value in (*args, *options.values()):
            if isinstance(value, types.SamplingParams | types.AdamParams):
                given |= value.model_dump()
        if given.get("base_model"):
            given["base_model"] = Path(given["base_model"]).name  # wherever its folder lies
        self.calls[kind, tuple((key, given[key]) for key in SHOWN if given.get(key) is not None)] += 1
        if kind != "sample" or self._script is None:
            return method(*args, **options)
        seconds, answer = self._said(*args, **options)
        if name == "sample_async":
            return asyncio.sleep(seconds, answer)
        done: Future[types.SampleResponse] = Future()
        done.set_result(answer)
        return API(done)

    def _said(
        self, prompt: types.ModelInput, num_samples: int, sampling_params: types.SamplingParams, **_: Any
    ) -> tuple[float, types.SampleResponse]:
        assert self._script is not None
        said = [self._script(prompt, sampling_params) for _ in range(num_samples)]
        sequences = [
            types.SampledSequence(
                stop_reason="stop",
                sequence_id=str(i),
                tokens_np=np.asarray(tokens, np.int32),
                logprobs_np=np.zeros(len(tokens), np.float32),
            )
            for i, (_, tokens) in enumerate(said)
        ]
        return max(seconds for seconds, _ in said), types.SampleResponse(sequences=sequences)


def ends_at_once(prompt: types.ModelInput, params: types.SamplingParams) -> tuple[float, list[int]]:
    """A script in which every answer is empty, so that every rollout takes one turn."""
    assert isinstance(params.stop, list) and isinstance(params.stop[0], int)
    return 0.0, [params.stop[0]]


@contextlib.contextmanager
def rehearsed(work: Path, training: Any, script: Script | None = None) -> Iterator[Rehearsal]:
    """Inside the block `tinker.ServiceClient` is a local service (see `local.serving`) whose calls are written down in what
    this yields; a session that is opened counts as `ServiceClient`."""
    rehearsal = Rehearsal(script)
    with local.serving(work, 0, training) as client:

        def session(**options: Any) -> Seen:
            rehearsal.calls["ServiceClient", ()] += 1
            return Seen(client, rehearsal.look)

        tinker.ServiceClient = session  # type: ignore[assignment,misc]  # local.serving puts the usual one back
        yield rehearsal


def small_model(folder: Path, system: str = "") -> None:
    """Write a random model of some ten thousand parameters, with a tokenizer that spells any text but the system prompt and
    what renderers want as one token."""
    tokenizer = tiny.build_tokenizer(system, [], [], [], [])
    tokenizer.add_tokens(THINKING)
    size = Model(hidden=32, layers=("conv", "full_attention"), heads=2, feed_forward=64, context=CONTEXT, seed=0)
    tiny.save(folder, tokenizer, tiny.build_model(len(tokenizer), size))
