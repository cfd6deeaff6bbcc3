"""The local clients have the signatures of the installed SDK's, so that an update of the SDK can't part them unseen."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tinker.lib.public_interfaces.rest_client import RestClient
from tinker.lib.public_interfaces.sampling_client import SamplingClient
from tinker.lib.public_interfaces.service_client import ServiceClient
from tinker.lib.public_interfaces.training_client import TrainingClient
from tinker.types import LossFnType

from lib.backends import local, losses, sampling_client, training_client

PAIRS = [
    (local.ServiceClient, ServiceClient),
    (training_client.TrainingClient, TrainingClient),
    (sampling_client.SamplingClient, SamplingClient),
    (local.RestClient, RestClient),
]
# What the study and the cookbook's loops call; each with its `_async` twin where the SDK has one.
NEEDED = {
    "ServiceClient": "close create_lora_training_client create_training_client_from_state"
    " create_training_client_from_state_with_optimizer create_sampling_client create_rest_client"
    " get_server_capabilities",
    "TrainingClient": "forward forward_backward optim_step save_state load_state load_state_with_optimizer"
    " save_weights_for_sampler save_weights_and_get_sampling_client create_sampling_client get_tokenizer get_info",
    "SamplingClient": "sample compute_logprobs get_tokenizer get_base_model",
    "RestClient": "get_training_run get_training_run_by_tinker_path list_checkpoints"
    " delete_checkpoint_from_tinker_path",
}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=[theirs.__name__ for _, theirs in PAIRS])
def test_signatures_are_the_sdks(ours: type, theirs: type) -> None:
    names = [n for n, f in vars(ours).items() if inspect.isfunction(f) and not n.startswith("_")]
    assert names
    for name in names:
        sdk = getattr(theirs, name, None)
        assert sdk is not None, f"{theirs.__name__} has no {name} any more"
        assert parameters(getattr(ours, name)) == parameters(sdk), name
        assert inspect.iscoroutinefunction(getattr(ours, name)) == inspect.iscoroutinefunction(inspect.unwrap(sdk)), (
            name
        )


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=[theirs.__name__ for _, theirs in PAIRS])
def test_what_is_needed_is_there_with_its_twin(ours: type, theirs: type) -> None:
    for name in NEEDED[theirs.__name__].split():
        assert hasattr(ours, name), name
        assert hasattr(ours, f"{name}_async") == hasattr(theirs, f"{name}_async"), f"{name}_async"


def test_the_service_is_created_as_the_sdks_is() -> None:
    assert parameters(local.ServiceClient.__init__) == parameters(ServiceClient.__init__)


def test_the_losses_are_tinkers() -> None:
    assert set(losses.LOSSES) <= set(LossFnType.__args__)  # type: ignore[attr-defined]
