"""A stand-in for a hosted service: the local one, which asks money and writes its own bill, by its own count and its own table.

It knows nothing of the meter. Prefixes are looked for by comparing tokens with everything that was sent before; amounts are
whole billionths of a dollar.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from lib.backends.futures import API

TOKENS = {"prefill": 1860, "cached": 372, "sample": 5595, "train": 4103}  # billionths of a dollar each
GB_HOUR = 138_889  # of a dollar at 0.10 a month, rounded up
HOURS = 5  # that a checkpoint is kept


class Lost(Exception):
    """Stands for a dropped connection."""


class Bill:
    """What the service asks. `faults`: of the next paid calls, in order: None, "refused" by the client before it is sent,
    "lost" before the service does it, "unanswered" after. While `gate` is closed, no call is answered."""

    def __init__(self) -> None:
        self.tokens = self.storage = self.calls = 0
        self.faults: list[str | None] = []
        self.gate = threading.Event()
        self.gate.set()

    @property
    def dollars(self) -> float:
        return (self.tokens + self.storage) / 1e9

    def charge(self, **tokens: int) -> None:
        self.tokens += sum(TOKENS[kind] * number for kind, number in tokens.items())

    def call(self, do: Callable[[], Any], charged: Callable[[Any], Any]) -> API[Any]:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused":
            raise ValueError("not a request")
        self.calls += 1
        answer: Future[Any] = Future()
        if fault == "lost":
            answer.set_exception(Lost("on the way there"))
            return API(answer)

        def hand_over(done: Future[Any]) -> None:
            self.gate.wait()
            try:
                changed = charged(done.result())
                if fault == "unanswered":
                    raise Lost("on the way back")
                answer.set_result(changed)
            except Exception as error:
                answer.set_exception(error)

        do().future().add_done_callback(hand_over)
        return API(answer)


class _Over:
    """What isn't paid for goes through as it is."""

    def __init__(self, bill: Bill, client: Any):
        self.bill, self.client = bill, client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def _of(self, kind: type, source: Any) -> API[Any]:
        result: Future[Any] = Future()
        source.future().add_done_callback(lambda done: result.set_result(kind(self.bill, done.result())))
        return API(result)


class Service(_Over):
    def create_lora_training_client(self, *args: Any, **options: Any) -> API[Any]:
        return self._of(Training, self.client.create_lora_training_client(*args, **options))

    def create_training_client_from_state(self, *args: Any, **options: Any) -> API[Any]:
        return self._of(Training, self.client.create_training_client_from_state(*args, **options))

    def create_sampling_client(self, *args: Any, **options: Any) -> API[Any]:
        return self._of(Sampling, self.client.create_sampling_client(*args, **options))

    def copy_checkpoints(self, path: str) -> None:
        """Stands for whatever a service may offer and ask money for some day."""
        raise AssertionError("nobody may call this")


class Training(_Over):
    def _pass(self, method: str, data: Any, *args: Any, **options: Any) -> API[Any]:
        def charged(answer: Any) -> Any:
            self.bill.charge(train=sum(len(datum.model_input.to_ints()) for datum in data))
            return answer

        return self.bill.call(lambda: getattr(self.client, method)(data, *args, **options), charged)

    def forward(self, *args: Any, **options: Any) -> API[Any]:
        return self._pass("forward", *args, **options)

    def forward_backward(self, *args: Any, **options: Any) -> API[Any]:
        return self._pass("forward_backward", *args, **options)

    def _save(self, method: str, *args: Any, **options: Any) -> API[Any]:
        def charged(answer: Any) -> Any:
            checkpoints = self.client.service.checkpoints
            self.bill.storage += -(-checkpoints.file(answer.path).stat().st_size * GB_HOUR * HOURS // 10**9)
            return answer

        return self.bill.call(lambda: getattr(self.client, method)(*args, **options), charged)

    def save_state(self, *args: Any, **options: Any) -> API[Any]:
        return self._save("save_state", *args, **options)

    def save_weights_for_sampler(self, *args: Any, **options: Any) -> API[Any]:
        return self._save("save_weights_for_sampler", *args, **options)

    def save_weights_and_get_sampling_client(self, *args: Any, **options: Any) -> API[Any]:
        return self._of(Sampling, self.client.save_weights_and_get_sampling_client(*args, **options))

    def create_sampling_client(self, *args: Any, **options: Any) -> API[Any]:
        return self._of(Sampling, self.client.create_sampling_client(*args, **options))


class Sampling(_Over):
    def __init__(self, bill: Bill, client: Any):
        super().__init__(bill, client)
        self.seen: list[list[int]] = []

    def _hits(self, prompt: list[int]) -> int:
        """Tokens found in the cache; the last one is always computed, or nothing could be sampled."""
        return max((_shared(prompt[:-1], before) for before in self.seen), default=0)

    def sample(self, prompt: Any, num_samples: int, sampling_params: Any, **options: Any) -> API[Any]:
        text = prompt.to_ints()

        def charged(answer: Any) -> Any:
            hits = self._hits(text)
            drawn = [list(sequence.tokens) for sequence in answer.sequences]
            self.bill.charge(
                prefill=len(text) - hits,
                cached=hits + (num_samples - 1) * len(text),
                sample=sum(len(tokens) for tokens in drawn),
            )
            self.seen += [text + tokens for tokens in drawn]
            return dataclasses.replace(answer, prompt_cache_hit_tokens=hits)

        return self.bill.call(lambda: self.client.sample(prompt, num_samples, sampling_params, **options), charged)

    def compute_logprobs(self, prompt: Any, *args: Any) -> API[Any]:
        """Every token is computed, and one is sampled."""

        def charged(answer: Any) -> Any:
            self.bill.charge(prefill=len(prompt.to_ints()), sample=1)
            return answer

        return self.bill.call(lambda: self.client.compute_logprobs(prompt, *args), charged)


def _shared(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def table(file: Path, model: str) -> Path:
    """The service's prices, as a person would write them down for the meter."""
    file.write_text(
        f"stand-in:\n  {model}:\n    prefill: 1.86\n    cached: 0.372\n    sample: 5.595\n    train: 4.103\n"
        "    storage: 0.10\n    checkpoint_gb: 0.01\n    date: 2026-11-30\n    source: the tests\n"
    )
    return file
