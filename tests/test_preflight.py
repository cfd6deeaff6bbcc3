"""What would stop a run late is told before it: by profile, without a call that costs anything."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import paid_service
import pytest
import tinker
import torch
from small_models import qwen3
from tinker import types

from lib import forecast, preflight
from lib.backends import ledger, meter
from lib.backends.futures import refused
from lib.findings import Finding
from lib.settings import Named, Settings, load, profiles
from tests.conftest import ROOT

TODAY = datetime.date(2026, 10, 8)
KEY = {"TINKER_API_KEY": "a key"}
FOUND = forecast.Cost((10.0, 8.0, 12.0), (20.0, 16.0, 24.0)), Path("data/runs/other/evaluate/base.jsonl")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what the service serves; nothing but that may be asked."""
    monkeypatch.setattr(tinker, "ServiceClient", lambda **_: pytest.fail("a session was created"))

    def serves(*models: dict[str, Any], fails: Exception | None = None) -> None:
        class Rest:
            def __init__(self, *, base_url: str | None = None):
                assert base_url is None

            def get_server_capabilities(self) -> Any:
                return self

            def result(self, timeout: float) -> types.GetServerCapabilitiesResponse:
                if fails is not None:
                    raise fails
                supported = [types.SupportedModel(**model) for model in models]
                return types.GetServerCapabilitiesResponse(supported_models=supported)

        monkeypatch.setattr(tinker, "RestClient", Rest)

    serves()
    return serves


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(preflight, "lock_tokenizer", lambda _: (_ for _ in ()).throw(OSError("not at hand")))
    monkeypatch.setattr(forecast, "of_run", lambda *_: FOUND)
    return load(ROOT / "profiles" / "tinker-27b.yaml", tmp_path)


def of(settings: Settings, check: str, environment: dict[str, str] = KEY) -> Finding:
    [found] = [one for one in preflight.preflight(settings, environment, TODAY) if one.check == check]
    return found


GOOD = {"model_name": "Qwen/Qwen3.8-27B", "max_context_length": 65536, "trainable": True, "sampleable": True}


@pytest.mark.parametrize("profile", profiles().values(), ids=list(profiles()))
def test_every_profile_is_checked_and_nothing_is_paid(
    profile: Path, served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bill, settings = paid_service.Bill(), load(profile, tmp_path)
    table = paid_service.table(tmp_path / "prices.yaml", settings.base_model)
    file = ledger.path(settings.run_dir)
    service = meter.metered(
        lambda **_: paid_service.Service(bill, None), provider="stand-in", model=settings.base_model, ledger=file,
        stage="preflight", limit=1, table=table,
    )  # fmt: skip
    monkeypatch.setattr(tinker, "ServiceClient", service)
    monkeypatch.setattr(preflight, "lock_tokenizer", lambda _: (_ for _ in ()).throw(OSError("not at hand")))
    monkeypatch.setattr(preflight, "parameters", lambda _: 4_000_000_000)
    findings = preflight.preflight(settings, KEY, TODAY)
    assert len({one.check for one in findings}) == len(findings) >= 7
    assert all(one.said for one in findings)
    account = ledger.read(file)
    assert bill.calls == 0 and account.upper == 0 and not account.stages


def test_a_model_is_looked_for_among_those_served(hosted: Settings, served: Any) -> None:
    assert of(hosted, "model").outcome == "refused"
    served({**GOOD, "model_name": "another"})
    assert "set model.name to one of another" in of(hosted, "model").said
    served(GOOD)
    assert (of(hosted, "model").outcome, of(hosted, "context").outcome) == ("ok", "ok")
    served({**GOOD, "trainable": False})
    assert of(hosted, "model").outcome == "refused" and "can't be trained" in of(hosted, "model").said
    served({**GOOD, "trainable": None})
    assert of(hosted, "model").outcome == "check yourself"
    served({**GOOD, "max_context_length": 32768})
    assert of(hosted, "context").outcome == "refused" and "32,768" in of(hosted, "context").said
    served({**GOOD, "max_context_length": None})
    assert of(hosted, "context").outcome == "check yourself"


def test_a_service_that_cannot_be_asked_leaves_it_to_a_person(hosted: Settings, served: Any) -> None:
    assert of(hosted, "model", {}).outcome == "check yourself" and of(hosted, "key", {}).outcome == "refused"
    served(fails=refused("not now"))
    assert of(hosted, "model").outcome == "check yourself" and "not now" in of(hosted, "model").said
    served(fails=TimeoutError())
    assert of(hosted, "model").outcome == "check yourself"
    answer = httpx.Response(401, request=httpx.Request("GET", "https://localhost"))
    served(fails=tinker.AuthenticationError("a key is unknown", response=answer, body=None))
    said = of(hosted, "model")
    assert said.outcome == "refused" and "[the key] is unknown" in said.said


def test_the_limit_is_held_against_the_forecast(hosted: Settings, served: Any) -> None:
    missing = of(hosted, "spending")
    assert missing.outcome == "refused" and "$24.00" in missing.said and "set ALLOW_SPEND" in missing.said
    low = of(hosted, "spending", {**KEY, "ALLOW_SPEND": "23.99"})
    assert low.outcome == "refused" and "half-way" in low.said
    enough = of(hosted, "spending", {**KEY, "ALLOW_SPEND": "24"})
    assert enough.outcome == "check yourself"  # nobody knows which model the pilot was of
    for stage in ("train-seed-0", "trial"):  # the forecast counts the first of them
        book = ledger.Ledger(ledger.path(hosted.run_dir), stage, 100.0, {})
        book.failed(book.send("sample", 5.0), TimeoutError())
    spent = of(hosted, "spending", {**KEY, "ALLOW_SPEND": "28.99"})
    assert spent.outcome == "refused" and "up to $5.00 is spent" in spent.said and "half-way" in spent.said
    assert of(hosted, "spending", {**KEY, "ALLOW_SPEND": "29"}).outcome == "check yourself"


def test_a_price_needs_to_be_there_and_not_old(hosted: Settings, served: Any) -> None:
    assert of(hosted, "price").outcome == "ok"
    later = TODAY + datetime.timedelta(days=preflight.OLD)
    [old] = [one for one in preflight.preflight(hosted, KEY, later) if one.check == "price"]
    assert old.outcome == "check yourself" and "look there again" in old.said
    other = dataclasses.replace(hosted, model=dataclasses.replace(hosted.model, name="unpriced/model"))
    assert of(other, "price").outcome == "refused"


def test_rank_renderer_and_names(hosted: Settings, served: Any) -> None:
    assert (
        of(hosted, "rank").outcome == "ok"
        and of(hosted, "renderer").outcome == "ok"
        and of(hosted, "names").outcome == "ok"
    )
    assert (
        of(dataclasses.replace(hosted, train=dataclasses.replace(hosted.train, lora_rank=64)), "rank").outcome
        == "check yourself"
    )
    wrong = dataclasses.replace(hosted, agent=dataclasses.replace(hosted.agent, renderer="role_colon"))
    assert of(wrong, "renderer").outcome == "refused" and "qwen3_8_disable_thinking" in of(wrong, "renderer").said
    unknown = dataclasses.replace(hosted, model=dataclasses.replace(hosted.model, tokenizer="some/model"))
    assert of(unknown, "renderer").outcome == "check yourself"


def test_a_package_that_is_not_there_is_refused(hosted: Settings, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(preflight.PACKAGES, "tinker", "no_such_package.training")
    assert of(hosted, "package").outcome == "refused"


def test_a_machine_of_ones_own_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = load(ROOT / "profiles" / "local-gpu-24gb.yaml", tmp_path)
    folder = str(qwen3(tmp_path / "model"))
    settings = dataclasses.replace(gpu, model=Named(name=folder, tokenizer=folder, context=256))
    count = preflight.parameters(settings)
    assert count is not None and 10_000 < count < 1_000_000
    if not torch.cuda.is_available():
        assert of(settings, "device").outcome == "refused"
    assert settings.local is not None
    cpu = dataclasses.replace(settings, local=dataclasses.replace(settings.local, device="cpu"))
    assert of(cpu, "device").outcome == "ok" and of(cpu, "memory").outcome in ("ok", "refused")
    monkeypatch.setattr(preflight, "parameters", lambda _: 10**15)
    assert of(cpu, "memory").outcome == "refused" and "smaller model" in of(cpu, "memory").said
    full = dataclasses.replace(cpu, train=dataclasses.replace(cpu.train, training="full"))
    assert of(full, "disk").outcome == "refused" and "make room" in of(full, "disk").said
    assert of(cpu, "tokenizer").outcome == "refused"  # one of whole words loses the text
    nowhere = dataclasses.replace(cpu, model=Named(name="/no/where", tokenizer="/no/where", context=256))
    assert of(nowhere, "tokenizer").outcome == "refused" and "can't be loaded" in of(nowhere, "tokenizer").said
