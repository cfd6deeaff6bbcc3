"""The meter against a service with a bill of its own: never below it, within a hundredth when told the caching, and no
call that could pass the limit is sent."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import cookbook_loops
import paid_service
import pytest
import tinker
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paid_service import Bill, Lost, Service
from small_models import END, lfm2
from tinker import types

from lib import spend
from lib.backends import ledger, local, meter, prices
from lib.backends.ledger import Ledger, LimitReached
from lib.backends.prices import PriceError, Usage
from lib.backends.tokenizer import lock_tokenizer

ROOT = Path(__file__).resolve().parents[1]
ROUNDING = 1e-12  # dollars
numbers = itertools.count()  # of ledgers, one for each example


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


@pytest.fixture(scope="module")
def hosted(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Opens a metered service: `hosted(bill, limit)` gives its class and the file of its ledger."""
    folder = tmp_path_factory.mktemp("hosted")
    table = paid_service.table(folder / "prices.yaml", base)
    with local.serving(folder / "tinker", seed=1) as client:

        def opened(bill: Bill, limit: float, stage: str = "train") -> tuple[Any, Path]:
            file = folder / str(next(numbers)) / "ledger.jsonl"
            service = meter.metered(
                lambda **_: Service(bill, client),
                provider="stand-in",
                model=base,
                ledger=file,
                stage=stage,
                limit=limit,
                table=table,
            )
            return service, file

        yield opened


def prompt(*tokens: int) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def params(most: int) -> types.SamplingParams:
    return types.SamplingParams(max_tokens=most, temperature=1.0, stop=[END])


def datum(length: int) -> types.Datum:
    text = [1 + i % 9 for i in range(length + 1)]
    inputs: Any = {"target_tokens": text[1:], "weights": [1.0] * length}
    return types.Datum(model_input=prompt(*text[:-1]), loss_fn_inputs=inputs)


PROMPTS = st.lists(st.integers(1, 3), min_size=2, max_size=24)  # of three words, so that many begin alike
CALLS = st.one_of(
    st.tuples(st.just("sample"), PROMPTS, st.integers(1, 3), st.integers(1, 6)),
    st.tuples(st.just("go on"), st.integers(1, 4)),
    st.tuples(st.just("logprobs"), PROMPTS),
    st.tuples(st.sampled_from(["forward", "forward_backward"]), st.lists(st.integers(1, 20), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["optim_step", "save_state", "save_weights_for_sampler", "snapshot"])),
)
FAULTS = st.sampled_from([None, None, None, "refused", "lost", "unanswered"])


def play(service: Any, base: str, calls: list[Any]) -> int:
    """Make the calls, whatever becomes of each; returns how many the meter refused."""
    training = service.create_lora_training_client(base).result()
    sampling, said, refused = service.create_sampling_client(base_model=base).result(), [5, 6], 0
    for call in calls:
        try:
            match call:
                case "sample", text, samples, most:
                    answer = sampling.sample(prompt(*text), samples, params(most)).result()
                    said = [*text, *answer.sequences[0].tokens][:40]
                case "go on", most:
                    said = [*said, *sampling.sample(prompt(*said), 1, params(most)).result().sequences[0].tokens][:40]
                case "logprobs", text:
                    sampling.compute_logprobs(prompt(*text)).result()
                case "forward" | "forward_backward" as method, lengths:
                    getattr(training, method)([datum(n) for n in lengths], "cross_entropy").result()
                case ("optim_step",):
                    training.optim_step(types.AdamParams(learning_rate=1e-4)).result()
                case ("snapshot",):
                    sampling = training.save_weights_and_get_sampling_client().result()
                case (method,):
                    getattr(training, method)(f"c{next(numbers)}").result()
        except LimitReached:
            refused += 1
        except (Lost, ValueError):
            pass
    return refused


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=14))
def test_the_bound_holds_and_the_estimate_is_the_bill_when_told_the_caching(
    hosted: Any, base: str, calls: list[Any]
) -> None:
    bill = Bill()
    service, file = hosted(bill, 1000.0)
    assert play(service(), base, calls) == 0
    account = ledger.read(file)
    assert account.upper >= bill.dollars - ROUNDING
    assert account.estimate == pytest.approx(bill.tokens / 1e9, rel=0.01, abs=ROUNDING)
    assert account.upper >= account.estimate - ROUNDING and account.in_flight == 0


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=14), faults=st.lists(FAULTS, max_size=14), limit=st.floats(1e-5, 5e-3))
def test_no_fault_takes_the_bill_over_the_bound_or_the_bound_over_the_limit(
    hosted: Any, base: str, calls: list[Any], faults: list[str | None], limit: float
) -> None:
    bill = Bill()
    bill.faults = list(faults)
    service, file = hosted(bill, limit)
    play(service(), base, calls)
    account = ledger.read(file)
    assert bill.dollars - ROUNDING <= account.upper <= limit + ROUNDING
    assert account.estimate <= account.upper + ROUNDING


@pytest.mark.parametrize("fault", ["refused", "lost", "unanswered"])
def test_a_call_that_fails_may_have_been_paid_and_is_no_part_of_the_estimate(
    hosted: Any, base: str, fault: str
) -> None:
    bill = Bill()
    bill.faults = [fault]
    service, file = hosted(bill, 1.0)
    sampling = service().create_sampling_client(base_model=base).result()
    with pytest.raises((Lost, ValueError)):
        sampling.sample(prompt(1, 2, 3, 4), 2, params(5)).result()
    account = ledger.read(file)
    assert account.upper == pytest.approx((8 * 1.86 + 10 * 5.595) / 1e6)
    assert (account.estimate, account.in_flight, account.stages["train"].failed) == (0, 0, 1)


def test_many_calls_in_flight_count_in_full_until_they_are_answered(hosted: Any, base: str) -> None:
    bill = Bill()
    bill.gate.clear()
    most = (6 * 1.86 + 4 * 5.595) / 1e6
    service, file = hosted(bill, 10.5 * most)

    async def at_once() -> list[Any]:
        sampling = await service().create_sampling_client_async(base_model=base)
        asked = [asyncio.ensure_future(sampling.sample_async(prompt(*range(1, 7)), 1, params(4))) for _ in range(64)]
        await asyncio.sleep(0.1)
        assert ledger.read(file).in_flight == pytest.approx(10 * most)
        assert sum(one.done() for one in asked) == 54
        bill.gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(at_once())
    assert sum(isinstance(answer, LimitReached) for answer in answers) == 54
    assert bill.calls == 10  # a refused call is never sent
    assert bill.dollars <= ledger.read(file).upper <= 10.5 * most and ledger.read(file).in_flight == 0


def test_who_stops_waiting_still_pays_what_the_call_took(hosted: Any, base: str) -> None:
    bill = Bill()
    bill.gate.clear()
    service, file = hosted(bill, 1.0)
    sampling = service().create_sampling_client(base_model=base).result()
    asked = sampling.sample(prompt(1, 2, 3), 1, params(4)).future()
    assert asked.cancel()
    bill.gate.set()
    with pytest.raises(CancelledError):
        asked.result()
    ends = time.monotonic() + 60
    while (account := ledger.read(file)).in_flight and time.monotonic() < ends:  # nobody is told when it ends
        time.sleep(0.02)
    assert account.in_flight == 0 and account.estimate == pytest.approx(bill.dollars)


def test_the_cookbooks_loop_runs_on_a_metered_service(
    hosted: Any, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill = Bill()
    service, file = hosted(bill, 1.0)
    lock_tokenizer(base)
    monkeypatch.setattr(tinker, "ServiceClient", service)
    cookbook_loops.practise(Path(base), tmp_path, updates=2, die_at=-1)
    account = ledger.read(file)
    stage = account.stages["train"]
    assert stage.sampled > 0 and stage.trained > 0 and stage.cached > 0
    assert account.upper >= bill.dollars - ROUNDING
    assert account.estimate == pytest.approx(bill.tokens / 1e9, rel=0.01)


SPENDER = """
import sys
from pathlib import Path
from lib.backends import prices
from lib.backends.ledger import Ledger, LimitReached
file, bill, limit = Path(sys.argv[1]), open(sys.argv[2], "ab", buffering=0), float(sys.argv[3])
price = prices.find("tinker", "Qwen/Qwen3.8-27B")
most, used = prices.Usage(prompt=9000, sampled=500), prices.Usage(prompt=9000, sampled=40)
ledger = Ledger(file, "train", limit, {})
try:
    while True:
        call = ledger.send("sample", price.upper(most))
        bill.write(b"%r\\n" % price.upper(used))
        ledger.paid(call, price, used)
except LimitReached:
    pass
"""


def test_killed_runs_go_on_and_share_one_limit(tmp_path: Path) -> None:
    file, bill, limit = tmp_path / "spend" / "ledger.jsonl", tmp_path / "bill", 40.0
    command = [sys.executable, "-c", SPENDER, str(file), str(bill), str(limit)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=ROOT)

    for times in (1, 2, 3):
        killed = start()
        while not bill.exists() or bill.read_bytes().count(b"\n") < 400 * times:
            time.sleep(0.005)
            assert killed.poll() is None
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        between = ledger.read(file)
        assert sum(map(float, bill.read_text().split())) <= between.upper + 1e-9 <= limit
        assert len(between.unknown) <= times
    last = [start(), start()]
    assert [one.wait() for one in last] == [0, 0]
    account = ledger.read(file)
    assert sum(map(float, bill.read_text().split())) <= account.upper + 1e-9
    assert limit - 0.03 < account.upper <= limit  # all but less than one call
    assert len(account.sessions) == 5


def test_a_torn_line_is_taken_out_and_a_damaged_one_named(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    call = Ledger(file, "train", 1.0, {}).send("sample", 0.25)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"event": "paid", "call": "0-0", "upp')
    again = Ledger(file, "evaluate", 1.0, {})
    assert call in again.account.unknown and file.read_bytes().startswith(whole + b'{"event": "opened"')
    with pytest.raises(LimitReached, match=r"\$0\.2500 is spent"):
        again.send("sample", 0.76)
    file.write_bytes(whole + b"{}\n")
    with pytest.raises(ValueError, match=r"ledger\.jsonl, line 3"):
        Ledger(file, "train", 1.0, {})


def test_a_run_that_has_used_its_limit_up_doesnt_start(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    Ledger(file, "train", 1.0, {}).send("sample", 1.0)
    with pytest.raises(LimitReached, match="ALLOW_SPEND"):
        Ledger(file, "evaluate", 1.0, {})
    assert Ledger(file, "evaluate", 1.5, {}).send("sample", 0.5)


@pytest.mark.parametrize(("given", "dollars"), [("25", 25.0), ("0.5", 0.5), ("120.75", 120.75), ("1", 1.0)])
def test_an_amount_is_allowed(given: str, dollars: float) -> None:
    assert meter.allowed_spend(environment={"ALLOW_SPEND": given}) == dollars


@pytest.mark.parametrize(
    "given",
    ["", "0", "0.00", "-5", "yes", "nan", "inf", "1e3", "1,000", "$5", "5 ", " 5", "5.123", "٣", "9999999", "5\n"],
)
def test_nonsense_isnt_allowed(given: str) -> None:
    with pytest.raises(meter.SpendRefused, match="no amount"):
        meter.allowed_spend(environment={"ALLOW_SPEND": given})


def test_nothing_is_paid_without_leave(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLOW_SPEND", raising=False)
    options: Any = {
        "provider": "stand-in",
        "model": base,
        "ledger": tmp_path / "spend" / "ledger.jsonl",
        "stage": "train",
        "table": paid_service.table(tmp_path / "prices.yaml", base),
    }
    with pytest.raises(meter.SpendRefused, match=r"It would cost \$12\.(.|\n)*ALLOW_SPEND=25"):
        meter.metered(pytest.fail, forecast=lambda: "It would cost $12.", **options)
    assert not (tmp_path / "spend").exists()
    monkeypatch.setenv("ALLOW_SPEND", "3.50")
    meter.metered(pytest.fail, **options)
    assert json.loads((tmp_path / "spend" / "ledger.jsonl").read_text())["limit"] == 3.5


def test_what_has_no_price_isnt_called(hosted: Any, base: str) -> None:
    service, _ = hosted(Bill(), 1.0)
    client = service()
    with pytest.raises(PriceError, match="another/model"):
        client.create_lora_training_client("another/model")
    with pytest.raises(PriceError, match="another/model"):
        client.create_sampling_client(base_model="another/model")
    training = client.create_lora_training_client(base).result()
    assert training.get_info().is_lora is False and training.model_id.startswith("run-")
    with pytest.raises(AttributeError, match="copy_checkpoints of Service isn't metered"):
        client.copy_checkpoints("tinker://run-0000/weights/a")
    with pytest.raises(ValueError, match="max_tokens"):
        client.create_sampling_client(base_model=base).result().sample(prompt(1), 1, types.SamplingParams())


# What the SDK's clients can do that the meter doesn't let through: nothing here calls it, and some of it costs money.
REFUSED = {
    "ServiceClient": {"copy_weights", "create_custom_loss"},
    "TrainingClient": {"forward_backward_custom", "save_weights_external"},
    "SamplingClient": {"create", "get_sampler_handle", "from_sampler_handle", "on_queue_state_change"},
}


@pytest.mark.parametrize("client", [meter.ServiceClient, meter.TrainingClient, meter.SamplingClient])
def test_each_method_of_the_sdk_is_metered_free_or_refused(client: Any) -> None:
    sdk = importlib.import_module(
        f"tinker.lib.public_interfaces.{re.sub('(?<!^)(?=[A-Z])', '_', client.__name__).lower()}"
    )
    theirs = getattr(sdk, client.__name__)
    offered = {n.removesuffix("_async") for n, f in vars(theirs).items() if callable(f) and not n.startswith("_")}
    metered = {n.removesuffix("_async") for n in vars(client) if not n.startswith("_")} - {"free", "till", "service"}
    refused = REFUSED[client.__name__]
    assert offered == metered | client.free | refused
    assert not metered & client.free and not refused & (metered | client.free)
    for name in metered:
        assert hasattr(client, f"{name}_async") == hasattr(theirs, f"{name}_async")
        ours, sdks = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (client, theirs))
        named = [n for n in ours if n not in ("method", "args", "options")]
        assert named == sdks[: len(named)], name  # what the meter reads stands where the SDK has it


def test_every_price_of_the_table_is_usable() -> None:
    listed = yaml.safe_load(prices.TABLE.read_text())
    for provider, models in listed.items():
        for model in models:
            price = prices.find(provider, model)
            used = Usage(prompt=1000, cached=400, sampled=10, trained=100)
            assert 0 < price.estimate(used) < price.upper(used)
            assert price.source.startswith("https://")
    with pytest.raises(PriceError, match=r"no price of model 'Qwen/Qwen0' at tinker(.|\n)*add what the provider"):
        prices.find("tinker", "Qwen/Qwen0")
    with pytest.raises(PriceError, match="'nobody'"):
        prices.find("nobody", "Qwen/Qwen0")


def test_the_table_gives_the_bill_of_the_published_studys_baseline() -> None:
    """197 rollouts of September 2026, in tokens and dollars as its repository reports the provider's usage (cost_estimates.py)."""
    price = prices.find("fireworks", "accounts/fireworks/models/qwen3p8-27b")
    used = Usage(prompt=1_577_817, cached=743_000, sampled=231_187)
    assert round(price.estimate(used), 2) == 3.12
    assert price.upper(used) > 3.12


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cached: 0.372", "cached: 3.72", "more than prefill"),
        ("train: 4.103", "train: -1", "train = -1"),
        ("train: 4.103", "train: .nan", "train = nan"),
        ("train: 4.103", "train: free", "train = 'free'"),
        ("    storage: 0.10\n", "", "needs prefill"),
        ("date: 2026-11-30", "date: lately", "needs the date"),
    ],
)
def test_a_price_that_cant_be_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    table = paid_service.table(tmp_path / "prices.yaml", "m")
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(PriceError, match=says):
        prices.find("stand-in", "m", table)


def test_bills_are_compared_and_never_mixed_with_the_meter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "runs" / "big"
    run.mkdir(parents=True)
    price = prices.find("tinker", "Qwen/Qwen3.8-27B")
    book = Ledger(ledger.path(run), "train-seed-0", 50.0, {})
    used = Usage(prompt=2_000_000, cached=1_000_000, sampled=500_000, trained=1_000_000)
    book.paid(book.send("sample", price.upper(used)), price, used)
    metered = ledger.path(run).read_bytes()
    spend.main(["big", "--data", str(tmp_path), "--bill", "9.00", "--note", "September"])
    assert "billed in all: 9.00" in capsys.readouterr().out
    spend.main(["big", "--data", str(tmp_path), "--bill", "1.50"])
    said = capsys.readouterr().out
    assert "billed: 9.00 September" in said
    assert f"{price.estimate(used):.2f} with the caching" in said and f"at most {price.upper(used):.2f}" in said
    assert f"{10.5 / price.estimate(used) - 1:+.1%} of the estimate; within the upper bound" in said
    spend.main(["big", "--data", str(tmp_path), "--bill", "2.50"])
    assert "13.00, MORE than the meter's upper bound" in capsys.readouterr().out
    assert ledger.path(run).read_bytes() == metered
    for amount in ("-1", "12,50", "much"):
        with pytest.raises(SystemExit, match="no bill"):
            spend.main(["big", "--data", str(tmp_path), f"--bill={amount}"])
    with pytest.raises(SystemExit, match="no run 'small'"):
        spend.main(["small", "--data", str(tmp_path)])
