"""How busy a slow sampler is kept, by the study's own code under a clock that leaps, and the gauge that measures it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import concurrency
from lib.backends import gauge
from lib.backends.futures import API
from lib.backends.gauge import Gauge


def test_evaluation_uses_the_slots() -> None:
    assert concurrency.evaluation(concurrency.profile())["busy"] >= 0.9


def test_practice_waits_for_nothing_but_the_slowest_rollout() -> None:
    found = concurrency.practice(concurrency.profile())
    assert found["updates"] == concurrency.UPDATES and found["allowed"] < 0.8  # or there would be nothing to wait for
    assert found["share"] >= 0.95


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gauge")


CALLS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=12)  # (begin, seconds)


@given(calls=CALLS)
def test_the_gauge_counts_the_slots_idle_time(folder: Path, calls: list[tuple[int, int]]) -> None:
    now = 0.0
    measured = Gauge(folder / "step.json", clock=lambda: now)
    answers: list[Future[None]] = [Future() for _ in calls]
    events = [(b, i, True) for i, (b, _) in enumerate(calls)] + [(b + s, i, False) for i, (b, s) in enumerate(calls)]
    flying, slots = 0, 0
    for moment, i, begins in sorted(events, key=lambda event: event[0]):
        now = float(moment)
        if begins:
            measured.look("sample", lambda i=i: API(answers[i]), (), {})
        else:
            answers[i].set_result(None)
        flying += 1 if begins else -1
        slots = max(slots, flying)
    span = max(b + s for b, s in calls) - min(b for b, _ in calls)
    assert measured.idle() == pytest.approx(1 - sum(s for _, s in calls) / (slots * span))


def test_a_measured_block_leaves_its_figure_beside_the_timings(tmp_path: Path) -> None:
    class Client:
        async def sample_async(self) -> int:
            await asyncio.sleep(0.01)
            return 7

    class Service:
        def create_sampling_client(self) -> API[Any]:
            made: Future[Any] = Future()
            made.set_result(Client())
            return API(made)

    usual = tinker.ServiceClient
    try:
        tinker.ServiceClient = Service  # type: ignore[assignment,misc]
        with gauge.measured(tmp_path, "evaluate-base"):
            client = tinker.ServiceClient().create_sampling_client().result()

            async def asked() -> list[int]:
                return list(await asyncio.gather(client.sample_async(), client.sample_async()))

            assert asyncio.run(asked()) == [7, 7]
        assert tinker.ServiceClient is Service
    finally:
        tinker.ServiceClient = usual  # type: ignore[misc]
    assert json.loads((tmp_path / "sampling" / "evaluate-base.json").read_text())["slots"] == 2
    assert 0 <= gauge.read(tmp_path)["evaluate-base"] < 1
