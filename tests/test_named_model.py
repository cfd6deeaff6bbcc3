"""A model that exists goes through the study as one that is made here does: base, plan, practice, test, comparison."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tinker
import torch
import transformers

from lib import compare, evaluate, plan, provenance, train
from lib.backends import local, remote, serving
from lib.backends.models import load_base
from lib.base import base_model
from lib.episodes import read
from lib.settings import SETS, Local, Named, Settings
from reports import claims, short
from reports.parts import Report
from tests.taught import KINDS, study

BFLOAT16 = Local(
    device="cpu", dtype="bfloat16", checkpointing=True, tokens_trained_at_once=256, tokens_sampled_at_once=4096
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, graph_folder: Path) -> Settings:
    return study(tmp_path_factory.mktemp("data"), graph_folder, BFLOAT16)


def test_it_goes_through_the_whole_study(settings: Settings, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_URI", uri)
    facts = base_model(settings)
    who = json.loads((settings.base_dir / "model.json").read_text())
    assert isinstance(settings.model, Named) and who["name"] == settings.model.name
    assert who["digest"] == load_base(settings.model.name, dtype="bfloat16").digest
    assert sum(row["questions"] for row in facts["dev_counts"]) == len(KINDS)
    assert not list(settings.base_dir.glob("*.safetensors"))  # its weights stay where they are

    plan.write(settings)
    planned = plan.read(settings)
    assert planned["arms"]["base"] == "the model as it exists" and "planted" not in planned["predictions"]
    assert all(rates == {"oracle": 1.0, "null": 0.0} for rates in evaluate.validate(settings).values())
    train.train(settings, 0)
    updates = [json.loads(line) for line in (settings.train_dir(0) / "updates.jsonl").read_text().splitlines()]
    assert len(updates) == settings.train.updates and sum(u["groups_with_signal"] for u in updates) > 0
    assert any(u["grad_norm"] > 0 for u in updates if u["grad_norm"] is not None)
    for arm in settings.arms:
        plan.stamp(settings, arm)
        episodes = read(evaluate.evaluate(settings, arm))
        assert len(episodes) == len(SETS) * len(KINDS) * (settings.evaluate.samples + 1)
        assert any(e.strict for e in episodes)
    provenance.provenance(settings)
    results = compare.compare(settings)
    assert results["checks"]["plan"]["stands"] and results["mistakes"]["planted"] is None
    assert not any(row["planted"] for row in results["mistakes"]["kinds"])
    the_write_up_says_what_the_model_is(Report(settings.data, settings.run))


def the_write_up_says_what_the_model_is(report: Report) -> None:
    for words in (report.taught_words, report.scale_words, report.lesson_words):
        assert report.results["base"]["name"] in words
    assert "demonstrations" not in report.taught_words + report.scale_words + report.lesson_words + report.base_words
    assert "planted" not in short.made_of(report)
    assert not any("planted" in claim.said for claim in claims.claims(report.results))
    assert report.planted_table() and report.recipe()


def test_a_context_that_the_model_lacks_is_told(settings: Settings, uri: str, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("NEO4J_URI", uri)
    long = dataclasses.replace(settings, run="long", model=dataclasses.replace(settings.model, context=100_000))
    with pytest.raises(ValueError, match=r"model.context = 100000, but .* reads 512 tokens at most"):
        base_model(long)


def test_a_card_that_is_not_there_is_told(settings: Settings) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    with pytest.raises(ValueError, match="torch finds no card here; use cpu"):
        load_base(settings.base_model, "cuda")


def test_a_hosted_backend_is_pointed_at_and_left_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client pays through the meter; the local one's doesn't."""
    calls: list[dict[str, Any]] = []
    watched: list[Path] = []
    monkeypatch.setattr(remote, "watch", lambda run, _: watched.append(run))

    class Meter:
        @staticmethod
        def metered(client: Any, **options: Any) -> Any:
            calls.append({"client": client, **options})
            return client

    monkeypatch.setattr(serving, "meter", Meter)
    away = dataclasses.replace(settings.train, backend="tinker", base_url="http://localhost:1")
    hosted = dataclasses.replace(settings, local=None, train=away)
    transformers.AutoTokenizer.from_pretrained(settings.base_model).save_pretrained(hosted.base_dir)
    usual = tinker.ServiceClient
    with serving.serving(hosted, tmp_path / "evaluate-base", 0):
        assert tinker.ServiceClient is calls[0]["client"]
        client = tinker.ServiceClient()
        assert isinstance(client.client, usual) and client._base_url == "http://localhost:1"
        assert client._user_metadata == {remote.TAG: client.session}
        assert watched == [hosted.run_dir] and [thing.kind for thing in remote.things(hosted.run_dir)] == ["session"]
    assert tinker.ServiceClient is usual
    assert {key: calls[0][key] for key in ("provider", "model", "stage")} == {
        "provider": "tinker", "model": settings.base_model, "stage": "evaluate-base",
    }  # fmt: skip
    assert calls[0]["ledger"] == hosted.run_dir / "spend" / "ledger.jsonl"
    with serving.serving(settings, tmp_path / "here", 0):
        assert issubclass(tinker.ServiceClient, local.ServiceClient)
    assert len(calls) == 1 and tinker.ServiceClient is usual
    assert serving.copy_checkpoints(hosted, tmp_path, ["tinker://there/weights/s"], tmp_path / "other") == [
        "tinker://there/weights/s"
    ]


def test_a_package_that_is_missing_is_named(settings: Settings, tmp_path: Path) -> None:
    nowhere: Any = "nowhere"
    hosted = dataclasses.replace(settings, local=None, train=dataclasses.replace(settings.train, backend=nowhere))
    transformers.AutoTokenizer.from_pretrained(settings.base_model).save_pretrained(hosted.base_dir)
    usual = tinker.ServiceClient
    with (
        pytest.raises(serving.BackendMissing, match=r"needs the module 'lib.backends.nowhere', which isn't there"),
        serving.serving(hosted, tmp_path, 0),
    ):
        pass
    assert tinker.ServiceClient is usual
