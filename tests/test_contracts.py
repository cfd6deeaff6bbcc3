"""The adapter's calls and the loop's are what the installed packages take, and docs/contracts.md says so."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("fireworks.training.sdk", reason="the extra `fireworks` isn't installed here: make contracts")

from fireworks.training import sdk

from lib.backends.fireworks_types import Checkpoint
from tests import contracts
from tests.contracts import FIREWORKS, PAGE, TINKER, Call, Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return contracts.record(tmp_path_factory.mktemp("contracts"))


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def public(cls: type) -> list[str]:
    return [n for n, f in vars(cls).items() if inspect.isfunction(f) and (not n.startswith("_") or n == "__init__")]


def test_the_installed_packages_take_every_call(run: Run) -> None:
    assert len(run.calls) > 20
    assert contracts.problems(run.calls) == []


def test_the_page_lists_them_as_they_are(run: Run) -> None:
    assert PAGE.read_text() == contracts.page(run.calls), (
        "a call or a package is another than docs/contracts.md says: read what changed, then run python -m tests.contracts"
    )


@pytest.mark.parametrize("change", ["gone", "renamed", "more needed"])
def test_a_changed_package_is_noticed(change: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: dict[str, Any] = {
        "renamed": lambda self, label, ttl_seconds=None: None,
        "more needed": lambda self, name, region: None,
    }
    if change == "gone":
        monkeypatch.delattr(sdk.FiretitanTrainingClient, "save_state")
        monkeypatch.delattr(sdk.FiretitanTrainingClient.__mro__[1], "save_state")
    else:
        monkeypatch.setattr(sdk.FiretitanTrainingClient, "save_state", changed[change])
    assert any("save_state" in problem for problem in contracts.problems(run.calls))


def test_what_the_adapter_never_asks_for(run: Run) -> None:
    for call in run.calls:
        if call.owner in FIREWORKS:
            assert not {"ttl_seconds", "overwrite", "project_id", "topk_prompt_logprobs"} & set(call.arguments), call


def test_the_loop_asks_for_ends_of_life_and_gets_none(run: Run) -> None:
    assert any(call.owner in TINKER and "ttl_seconds" in call.arguments for call in run.calls)


@pytest.mark.parametrize("real", TINKER, ids=lambda real: real.__name__)
def test_the_adapters_signatures_are_tinkers(real: type) -> None:
    ours = TINKER[real]
    made_by_the_service = ours.__name__ != "ServiceClient"
    for name in public(ours):
        if name == "__init__" and made_by_the_service:
            continue
        method, sdks = getattr(ours, name), getattr(real, name)
        assert parameters(method) == parameters(sdks), name
        assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(inspect.unwrap(sdks)), name


@pytest.mark.parametrize("real", FIREWORKS, ids=lambda real: real.__name__)
def test_the_stand_ins_signatures_are_fireworks(real: type) -> None:
    standing = FIREWORKS[real]
    made_by_the_service = standing.__name__ in ("FiretitanTrainingClient", "FiretitanSamplingClient")
    for name in [*public(standing), "_create_sampling_client"]:
        if hasattr(standing, name) and not (name == "__init__" and made_by_the_service):
            assert parameters(getattr(standing, name)) == parameters(getattr(real, name)), name


def test_the_final_weights_were_promoted_from_the_session_that_saved_them(run: Run) -> None:
    [model] = run.account.models.values()
    assert model["base_model"] == run.model
    [path] = [p for p in run.account.sessions_of if p.endswith(model["checkpoint"].rpartition("/")[2])]
    assert model["checkpoint"].startswith(
        f"accounts/{path.split('/')[0]}/trainingSessions/{run.account.sessions_of[path]}/"
    )


def test_every_name_is_new_over_runs_that_were_resumed(run: Run) -> None:
    for kept in (run.account.states, run.account.samplers):
        names = [path.rpartition("/")[2] for path in kept]
        assert len(names) == len(set(names)) > 3
    assert (
        len({path.split("/")[1] for path in run.account.states}) > 2
    )  # the run, the one that resumed it, the control's


def test_a_call_that_nobody_makes_is_found_to_be_wrong() -> None:
    unknown = Call(sdk.FiretitanTrainingClient, "optim_step", ("adam_params", "speed"))
    assert contracts.problems([unknown]) == ["FiretitanTrainingClient.optim_step doesn't take speed"]


def test_paths_say_what_another_process_needs(run: Run) -> None:
    assert run.kept.state is not None and run.kept.sampler is not None
    for saved, kind in ((run.kept.state, "weights"), (run.kept.sampler, "sampler_weights")):
        checkpoint = Checkpoint.parse(saved, kind)
        assert str(checkpoint) == saved and checkpoint.base_model == run.model
        assert checkpoint.path in (run.account.states | run.account.samplers)
