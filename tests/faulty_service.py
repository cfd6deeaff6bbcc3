"""A stand-in for a hosted service that fails in every way that one can, by a seeded plan; for the campaign in benchmarks/faults.py.

It is tests/paid_service.py, which computes for real and writes its own bill, with faults on the way there and back. Its books
are a file, since whoever uses it is killed as well: what was asked, what it met, what was done, and what had to be paid.
What a call meets hangs on the seed, the call's name and how often it was asked: not on the order in which calls arrive.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import tinker
from tinker import types

from lib.backends import rollout_key
from lib.backends.futures import API, started
from lib.backends.seen import Seen
from lib.faults import _name
from tests import paid_service

REQUEST = httpx.Request("POST", "http://service.invalid")


def _status(kind: Any, code: int) -> Exception:
    error: Exception = kind("no", response=httpx.Response(code, request=REQUEST), body=None)
    return error


ERRORS: dict[str, Callable[[], Exception]] = {  # before anything is done
    "429": lambda: _status(tinker.RateLimitError, 429),
    "500": lambda: _status(tinker.InternalServerError, 500),
    "503": lambda: _status(tinker.InternalServerError, 503),
    "time-out": lambda: tinker.APITimeoutError(request=REQUEST),
    "no connection": lambda: tinker.APIConnectionError(request=REQUEST),
    "request failed": lambda: tinker.RequestFailedError("no", "1", types.RequestErrorCategory.Server),
}
EXPIRED = "session expired"  # this call and all later ones of the session
LOST, STUCK = "answer lost", "never answered"  # both were done, and are paid for
HALF, NO_NUMBERS = "half an answer", "no numbers"
DATABASE = "database killed"  # as the call is sent: the rollout's next query finds none
BEFORE, AFTER, WRITING = "killed before", "killed after", "killed while writing"
KILLS = (BEFORE, AFTER, WRITING)
KINDS = (*ERRORS, EXPIRED, LOST, STUCK, HALF, NO_NUMBERS, DATABASE, *KILLS)
SPOILT = (LOST, STUCK, HALF, NO_NUMBERS)  # paid for, and of no use

ALL = (*ERRORS, LOST, STUCK, *KILLS)
CALLS: dict[str, tuple[str, ...]] = {  # and the kinds that each can meet
    "sample": (*ALL, EXPIRED, HALF, NO_NUMBERS, DATABASE),
    "forward_backward": (*ALL, EXPIRED, HALF, NO_NUMBERS),
    "optim_step": (*ALL, EXPIRED),
    "save_state": (*ALL, EXPIRED),
    "save_weights_for_sampler": (*ALL, EXPIRED),
    "save_weights_and_get_sampling_client": (*ALL, EXPIRED),
    "create_lora_training_client": ALL,
    "create_training_client_from_state": ALL,
    "create_training_client_from_state_with_optimizer": ALL,
    "create_sampling_client": ALL,
    "delete_checkpoint_from_tinker_path": ALL,
}
RARER = {STUCK: 0.5, EXPIRED: 0.3, DATABASE: 0.2, **dict.fromkeys(KILLS, 0.3)}  # each costs a wait or a restart
SHARE, SHARE_OF_SAMPLES = 0.6, 0.35  # of calls that meet any; there are many samples


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Plan:
    """What calls meet. tries: as the study's. most: faults in all. lost: share of practice's samples that fail for good; then
    none of its others fails for more than the tries, so that nothing else is lost. These don't count for `most`."""

    seed: str
    tries: int
    most: int
    lost: float = 0.0

    def for_good(self, name: str) -> bool:
        return "/train/" in name and random.Random(f"{self.seed} lost {name}").random() < self.lost

    def meets(self, call: str, name: str, asked: int) -> str | None:
        """The fault of a call that was asked `asked` times before; None: it is answered."""
        if self.for_good(name):
            # always the same: the reason is part of the record, and a restart asks again
            return random.Random(f"{self.seed} {name}").choice([*ERRORS, LOST, HALF, NO_NUMBERS])
        draw = random.Random(f"{self.seed} {call} {name}")
        if draw.random() >= (SHARE_OF_SAMPLES if call == "sample" else SHARE):
            return None
        careful = self.lost and "/train/" in name
        times = draw.choices([1, 2, self.tries - 1 if careful else self.tries], [6, 3, 2])[0]
        kinds = [kind for kind in CALLS[call] if not (self.lost and kind == EXPIRED)]
        met = draw.choices(kinds, [RARER.get(kind, 1.0) for kind in kinds], k=times)
        return met[asked] if asked < times else None


class Books:
    """What the service knows of all lives of its client: a file of JSON lines, each written in one piece."""

    def __init__(self, file: Path):
        self.lines = read(file)
        self.life = sum(line["event"] == "begun" for line in self.lines)
        self.asked = Counter((line["call"], line["name"]) for line in self.lines if line["event"] == "asked")
        self.answered = Counter(line["call"] for line in self.lines if line["event"] == "answered")
        self.injected = injected(self.lines)
        self.before = billed(self.lines)
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note("begun")

    def note(self, event: str, **what: Any) -> None:
        line = {"event": event, "life": self.life, **what}
        os.write(self._fd, json.dumps(line, sort_keys=True).encode() + b"\n")


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def injected(lines: list[dict[str, Any]]) -> int:
    """Faults, but for those of samples that fail for good."""
    return sum(line["event"] == "asked" and line["fault"] is not None and line["counts"] for line in lines)


def billed(lines: list[dict[str, Any]]) -> int:
    """Billionths of a dollar that all lives cost together."""
    lives: dict[int, int] = {}
    for line in lines:
        lives[line["life"]] = max(lives.get(line["life"], 0), line.get("bill", 0))
    return sum(lives.values())


class Service:
    """Makes sessions, as `tinker.ServiceClient` does. client: of the service that computes. kill_database: whether it could,
    since nobody kills one that isn't up. upper: US dollars that the study's own meter takes as spent at most, noted beside the
    bill at each fault."""

    def __init__(
        self,
        client: Any,
        plan: Plan,
        books: Books,
        kill_database: Callable[[], bool],
        upper: Callable[[], float],
    ):
        self.client, self.plan, self.books, self.kill_database, self.upper = client, plan, books, kill_database, upper
        self.bill = paid_service.Bill()
        self.tear = threading.Event()  # the next line or file that the study writes is its last, and only half of it
        self._database_killed = False
        self._lock = threading.Lock()

    def __call__(self, **_: Any) -> Seen:
        return Seen(paid_service.Service(self.bill, self.client), _Session(self).look)

    @property
    def dollars(self) -> float:
        return self.books.before / 1e9 + self.bill.dollars

    def meets(self, call: str, name: str) -> str | None:
        """Note a call, and the fault that it meets now."""
        books = self.books
        with self._lock:
            asked, counts = books.asked[call, name], not self.plan.for_good(name)
            books.asked[call, name] += 1
            fault = self.plan.meets(call, name, asked)
            if counts and books.injected >= self.plan.most:
                fault = None
            if fault == DATABASE and (self._database_killed or not self.kill_database()):
                fault = None  # one a life: a query under which it dies twice, the second time alone, is rightly blamed
            self._database_killed |= fault == DATABASE
            books.injected += fault is not None and counts
            spent = {"dollars": self.dollars, "upper": self.upper()} if fault else {}  # in this order: both grow
            books.note("asked", call=call, name=name, fault=fault, counts=counts, **spent)
        return fault


class _Session:
    def __init__(self, service: Service):
        self.service, self.expired = service, False

    def look(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        call = name.removesuffix("_async")
        if call not in CALLS:
            return method(*args, **options)
        answer = self._met(call, method, args, options)
        return started(lambda: answer)() if name == "optim_step_async" else answer  # its twin gives the future itself

    def _met(self, call: str, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> API[Any]:
        books = self.service.books
        named = _rollouts_call(args) if call == "sample" else f"{call} {books.answered[call]}"
        if self.expired:
            books.note("refused", call=call, name=named)
            return _failed(_status(tinker.NotFoundError, 404))
        fault = self.service.meets(call, named)
        if fault == BEFORE:
            die()
        if fault == WRITING:
            self.service.tear.set()
        if fault == EXPIRED:
            self.expired = True
            return _failed(_status(tinker.NotFoundError, 404))
        if fault in ERRORS:
            return _failed(ERRORS[fault]())
        sent = getattr(method.__self__, call)(*args, **options)  # the twin that gives a future
        return self._answer(sent, call, named, fault)

    def _answer(self, sent: Any, call: str, name: str, fault: str | None) -> API[Any]:
        """What comes back of a call that was done."""
        answer: Future[Any] = Future()
        books, bill, began = self.service.books, self.service.bill, time.monotonic()

        def hand_over(done: Future[Any]) -> None:
            if (error := done.exception()) is not None:
                answer.set_exception(error)  # a refusal of the service that computes: a mistake of the study's
                return
            took, cost = time.monotonic() - began, bill.tokens + bill.storage
            books.note("done", call=call, name=name, fault=fault, bill=cost, seconds=round(took, 1))
            if fault == AFTER:
                die()
            if fault == STUCK or not answer.set_running_or_notify_cancel():
                return
            if fault == LOST:
                answer.set_exception(tinker.APIConnectionError(request=REQUEST))
            elif fault in (HALF, NO_NUMBERS):
                answer.set_result(_spoilt(done.result(), fault, random.Random(name)))
            else:
                books.answered[call] += 1
                books.note("answered", call=call, name=name)
                answer.set_result(done.result())

        sent.future().add_done_callback(hand_over)
        return API(answer)


def _failed(error: Exception) -> API[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(error)
    return API(answer)


def _rollouts_call(args: tuple[Any, ...]) -> str:
    """A sample's name, as lib.faults keeps its answer by."""
    prompt, samples, params = args
    name = _name({"prompt": prompt, "num_samples": samples, "sampling_params": params})
    assert name is not None, f"a sample of no rollout: {rollout_key.get()}"
    return name


def _spoilt(answer: Any, fault: str, draw: random.Random) -> Any:
    """A sampler's or a trainer's answer of which a part is missing, or with log-probabilities that are no numbers."""
    if isinstance(answer, types.ForwardBackwardOutput):
        outputs = [dict(one) for one in answer.loss_fn_outputs]
        if fault == HALF and draw.random() < 0.5:
            return dataclasses.replace(answer, loss_fn_outputs=outputs[:-1])
        logprobs = outputs[-1]["logprobs"].to_numpy()
        changed = logprobs[:-1] if fault == HALF else logprobs * np.nan
        outputs[-1]["logprobs"] = types.TensorData.from_numpy(changed)
        return dataclasses.replace(answer, loss_fn_outputs=outputs)
    if fault == HALF and draw.random() < 0.3:
        return dataclasses.replace(answer, sequences=[])
    [one] = answer.sequences
    changed = draw.choice([None, one.logprobs_np[:-1]]) if fault == HALF else one.logprobs_np * np.nan
    return dataclasses.replace(answer, sequences=[dataclasses.replace(one, logprobs_np=changed)])
