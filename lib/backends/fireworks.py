"""A Tinker service over Fireworks' serverless training: the clients that the cookbook's loops call, over another SDK.

What differs there is dealt with here: types and errors of its own, weights that are saved before they can be sampled,
names of checkpoints, no ends of life for them, and promotion, by which one becomes a model. docs/contracts.md lists every
call; tests/test_contracts.py compares each with the installed packages.

    python -m lib.backends.fireworks promote data/runs/<run>/train/seed-0/checkpoint.json MODEL
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import tinker
from tinker import types
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture
from tinker.lib.public_interfaces.backcompat_training_client_future import BackcompatTrainingClientFuture

from lib.backends.fireworks_sampling import sampling_client
from lib.backends.fireworks_training import Lane, TrainingClient
from lib.backends.fireworks_types import Checkpoint, sdk, tinkers_errors
from lib.backends.futures import API, awaited, refused
from lib.backends.remote import Thing


class ServiceClient:
    """`tinker.ServiceClient` over one training session on Fireworks; the key comes from FIREWORKS_API_KEY."""

    def __init__(
        self,
        user_metadata: dict[str, str] | None = None,
        project_id: str | None = None,
        *,
        display_name: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        default_headers_overrides: Any = None,
        **kwargs: Any,
    ):
        if project_id is not None or default_headers_overrides is not None or kwargs:
            raise ValueError(
                f"Fireworks takes no project_id, default_headers_overrides or {sorted(kwargs)}: leave them out"
            )
        metadata = {**(user_metadata or {}), **({"display_name": display_name} if display_name else {})}
        with tinkers_errors():
            self.service = sdk.FiretitanServiceClient(
                user_metadata=metadata, base_url=base_url or None, api_key=api_key
            )
        self.lane = Lane()

    @property
    def session_name(self) -> str | None:
        """The session's name as a resource, by which `Host` finds and ends it."""
        name: str | None = self.service.training_session_name
        return name

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close("errored" if exception[0] else "success").result()

    def close(self, status: Literal["success", "errored", "interrupted"], detail: str | None = None) -> API[None]:
        """Checkpoints and the session's record stay on the service."""
        closed = self.lane.ask(self.service.close)
        self.lane.close()
        return closed

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
        optimizer: types.OptimizerConfig | None = None,
    ) -> BackcompatTrainingClientFuture:
        _check_optimizer(optimizer)
        return self._trainer(
            lambda: self.service.create_lora_training_client(
                base_model=base_model,
                rank=rank,
                seed=seed,
                train_mlp=train_mlp,
                train_attn=train_attn,
                train_unembed=train_unembed,
                user_metadata=user_metadata,
            ),
            base_model,
        )

    create_lora_training_client_async = awaited(create_lora_training_client)

    def create_training_client_from_state(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
        optimizer: types.OptimizerConfig | None = None,
    ) -> BackcompatTrainingClientFuture:
        _check_optimizer(optimizer)
        return self._resumed(self.service.create_training_client_from_state, path, user_metadata)

    create_training_client_from_state_async = awaited(create_training_client_from_state)

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
    ) -> BackcompatTrainingClientFuture:
        return self._resumed(self.service.create_training_client_from_state_with_optimizer, path, user_metadata)

    create_training_client_from_state_with_optimizer_async = awaited(create_training_client_from_state_with_optimizer)

    def _resumed(
        self, create: Callable[..., Any], path: str, user_metadata: dict[str, str] | None
    ) -> BackcompatTrainingClientFuture:
        state = Checkpoint.parse(path, "weights")
        return self._trainer(lambda: create(path=state.path, user_metadata=user_metadata), state.base_model)

    def _trainer(self, create: Callable[[], Any], base_model: str) -> BackcompatTrainingClientFuture:
        return BackcompatTrainingClientFuture(
            self.lane.ask(create, lambda client: TrainingClient(self, client, base_model))
        )

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: Any = None,
        record_stability_info: bool = False,
    ) -> BackcompatSamplingClientFuture:
        """Over saved weights, or a base model's where `model_path` isn't given."""
        if model_path is not None:
            weights = Checkpoint.parse(model_path, "sampler_weights")
            return self._sampler(weights.base_model, weights.path)
        if base_model is None:
            raise ValueError("Either model_path or base_model must be provided")
        return self._sampler(base_model, None)

    create_sampling_client_async = awaited(create_sampling_client)

    def _sampler(self, base_model: str, path: str | None) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(self.lane.ask(lambda: sampling_client(self.service, base_model, path)))

    def create_rest_client(self) -> RestClient:
        return RestClient()


def _check_optimizer(optimizer: types.OptimizerConfig | None) -> None:
    if optimizer is not None and optimizer.type != "adamw":
        raise ValueError(f"optimizer {optimizer.type!r} isn't supported by Fireworks; use 'adamw'")


class RestClient:
    """What the cookbook asks of `tinker.RestClient`, which Fireworks doesn't have: the loop logs it and goes on."""

    def get_training_run_by_tinker_path(
        self, tinker_path: str, access_scope: Literal["owned", "accessible"] = "owned"
    ) -> API[types.TrainingRun]:
        raise refused(f"Fireworks doesn't tell how {tinker_path} was trained")

    get_training_run_by_tinker_path_async = awaited(get_training_run_by_tinker_path)

    def delete_checkpoint_from_tinker_path(self, tinker_path: str) -> API[None]:
        raise refused(f"Fireworks can't be asked to delete {tinker_path}: it stays until the service drops it")

    delete_checkpoint_from_tinker_path_async = awaited(delete_checkpoint_from_tinker_path)


class Host:
    """For lib.watchdog: sessions, whose weights go with them. Raises ValueError without a key, RuntimeError where it is refused."""

    kinds: tuple[str, ...] = ("session",)

    def __init__(self, base_url: str):
        self._key = _key("ending a session")

    def there(self, thing: Thing) -> bool:
        """Whether the service still lists weights of the session; one that never got a name holds none."""
        if not thing.where:
            return False
        with sdk.FireworksClient(api_key=self._key) as client:
            try:
                return bool(client.list_training_session_checkpoints(name=thing.where))
            except RuntimeError as e:
                if "(HTTP 404)" in str(e):  # all that the SDK says of it
                    return False
                raise

    def delete(self, thing: Thing) -> None:
        with sdk.FireworksClient(api_key=self._key) as client:
            client.delete_training_session(name=thing.where)

    def holds(self, thing: Thing, path: str) -> bool:
        """Whether the weights of this path go with the thing."""
        session = urlsplit(path).netloc
        return bool(thing.where) and session == thing.where.rpartition("/")[2]


def _key(what: str) -> str:
    key = os.environ.get("FIREWORKS_API_KEY")
    if not key:
        raise ValueError(f"FIREWORKS_API_KEY isn't set: {what} needs the key of the account that trained")
    return key


def promote(path: str, model: str) -> str:
    """Make saved weights for sampling a model of the account; returns its resource name.

    path: what `save_weights_for_sampler` returned. model: the new model's id. Raises ValueError where the id isn't legal, or
    the service lists no such checkpoint or calls it not promotable; RuntimeError where it refuses.
    """
    weights = Checkpoint.parse(path, "sampler_weights")
    if problems := sdk.validate_output_model_id(model):
        raise ValueError("; ".join(problems))
    with sdk.FireworksClient(api_key=_key("promotion")) as client:
        rows = client.list_training_session_checkpoints(name=weights.session_name)
        found = {row["name"].rpartition("/")[2]: row for row in rows}
        row = found.get(weights.name)
        if row is None or not row["promotable"]:
            state = "isn't listed" if row is None else "can't be promoted"
            promotable = [name for name, row in found.items() if row["promotable"]]
            raise ValueError(
                f"checkpoint {weights.name} of {weights.session_name} {state}; those that can: {', '.join(promotable) or 'none'}"
            )
        made = client.promote_session_checkpoint(name=row["name"], output_model_id=model, base_model=weights.base_model)
    return made["name"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lib.backends.fireworks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    promotion = commands.add_parser("promote", help="make a run's final weights a model of the account")
    promotion.add_argument("checkpoint", type=Path, help="the run's checkpoint.json")
    promotion.add_argument("model", help="id of the new model: letters a-z, digits, hyphens, at most 63")
    chosen = parser.parse_args(arguments)
    try:
        print(promote(json.loads(chosen.checkpoint.read_text())["sampler"], chosen.model))
    except (OSError, ValueError, RuntimeError, tinker.TinkerError) as e:
        sys.exit(f"promote: {e}")


if __name__ == "__main__":
    main()
