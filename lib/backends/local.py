"""A Tinker service inside the process: the clients that the cookbook's loops call, over torch.

`rl/train.py` and `supervised/train.py` run on it unmodified, offline and free. Signatures, types, futures and errors
are the SDK's own (tests/test_sdk_contract.py compares them with the installed one).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import tinker
import torch
from tinker import types
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture
from tinker.lib.public_interfaces.backcompat_training_client_future import BackcompatTrainingClientFuture

from lib.backends.checkpoints import Checkpoints
from lib.backends.futures import API, awaited, refused, started
from lib.backends.models import merged
from lib.backends.service import Service
from lib.settings import Local

CPU = Local(
    device="cpu", dtype="float32", checkpointing=False, tokens_trained_at_once=4096, tokens_sampled_at_once=2**18
)


class RestClient:
    """The part of `tinker.RestClient` that the cookbook uses: runs and checkpoints under the service's root."""

    def __init__(self, service: Service):
        self.service, self.checkpoints = service, service.checkpoints

    def get_training_run(
        self, training_run_id: str, access_scope: Literal["owned", "accessible"] = "owned"
    ) -> API[types.TrainingRun]:
        return self.service.submit(self.checkpoints.describe, training_run_id)

    get_training_run_async = awaited(get_training_run)

    def get_training_run_by_tinker_path(
        self, tinker_path: str, access_scope: Literal["owned", "accessible"] = "owned"
    ) -> API[types.TrainingRun]:
        return self.service.submit(lambda: self.checkpoints.describe(self.checkpoints.parse(tinker_path)[0]))

    get_training_run_by_tinker_path_async = awaited(get_training_run_by_tinker_path)

    def list_checkpoints(self, training_run_id: str) -> API[types.CheckpointsListResponse]:
        def answer() -> types.CheckpointsListResponse:
            return types.CheckpointsListResponse(checkpoints=self.checkpoints.list(training_run_id))

        return self.service.submit(answer)

    list_checkpoints_async = awaited(list_checkpoints)

    def delete_checkpoint_from_tinker_path(self, tinker_path: str) -> API[None]:
        return self.service.submit(lambda: self.checkpoints.file(tinker_path).unlink())

    delete_checkpoint_from_tinker_path_async = awaited(delete_checkpoint_from_tinker_path)


class ServiceClient:
    """`tinker.ServiceClient` of the service that `serving` runs; address and key are taken and ignored."""

    service: Service  # set by `serving`

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
        if not hasattr(self, "service"):
            raise RuntimeError("no local service is running: use tinker.ServiceClient inside local.serving(...)")

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(self, *exception: Any) -> None:
        """The service outlives its clients: `serving` ends it."""

    def close(self, status: str, detail: str | None = None) -> API[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return API(done)

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
        """Trains all parameters where the service was told so; an adapter leaves the output layer alone."""
        if not (train_mlp and train_attn and train_unembed):
            raise ValueError("train_mlp, train_attn, train_unembed: the local backend can't leave layers out")
        _check_optimizer(optimizer)
        return BackcompatTrainingClientFuture(
            self.service.submit(self.service.new_trainer, base_model, rank, seed, user_metadata)
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
        return BackcompatTrainingClientFuture(
            self.service.submit(self.service.resumed_trainer, path, False, user_metadata)
        )

    create_training_client_from_state_async = awaited(create_training_client_from_state)

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
    ) -> BackcompatTrainingClientFuture:
        return BackcompatTrainingClientFuture(
            self.service.submit(self.service.resumed_trainer, path, True, user_metadata)
        )

    create_training_client_from_state_with_optimizer_async = awaited(create_training_client_from_state_with_optimizer)

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: Any = None,
        record_stability_info: bool = False,
    ) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(self.service.submit(self.service.sampler, model_path, base_model))

    create_sampling_client_async = awaited(create_sampling_client)

    def create_rest_client(self) -> RestClient:
        return RestClient(self.service)

    def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        """No list of models: any Hugging Face folder is one."""
        return types.GetServerCapabilitiesResponse(supported_models=[])

    get_server_capabilities_async = started(get_server_capabilities)


def _check_optimizer(optimizer: types.OptimizerConfig | None) -> None:
    if optimizer is not None and optimizer.type != "adamw":
        raise ValueError(f"optimizer {optimizer.type!r} isn't supported by the local backend; use 'adamw'")


@contextlib.contextmanager
def serving(
    root: Path,
    seed: int,
    training: Literal["full", "lora"] = "full",
    grad_clip_norm: float = 1.0,
    how: Local = CPU,
) -> Iterator[ServiceClient]:
    """Point `tinker.ServiceClient` at a service in this process, and back when the block ends. Yields a client.

    `root`: folder of the checkpoints. `seed`: of the draws and of new adapters. `training`: what
    `create_lora_training_client` trains, all parameters or an adapter. `grad_clip_norm`: for optimiser steps that ask
    for no clipping themselves (0: none); the cookbook's never ask. `how`: device, type of the weights, bounds on memory.

    Torch runs on one thread inside the block: measured fastest for small models on a machine whose cores are shared,
    and sums would otherwise depend on the number of cores.
    """
    threads, hosted = torch.get_num_threads(), tinker.ServiceClient
    torch.set_num_threads(1)
    service = Service(Path(root), seed, training, grad_clip_norm, how)
    bound = type("ServiceClient", (ServiceClient,), {"service": service})
    tinker.ServiceClient = bound  # type: ignore[assignment,misc]
    try:
        yield bound()
    finally:
        tinker.ServiceClient = hosted  # type: ignore[misc]
        service.close()
        torch.set_num_threads(threads)


def export(root: Path, path: str, folder: Path) -> None:
    """Write a checkpoint as a Hugging Face folder: model (an adapter merged) and tokenizer.

    Raises tinker.TinkerError for a missing or damaged checkpoint.
    """
    with serving(root, seed=0) as client:
        weights = client.create_sampling_client(model_path=path).result().weights  # type: ignore[attr-defined]
        merged(weights.model).save_pretrained(folder)
        for file in Path(weights.base_model).iterdir():
            if file.name.startswith(
                ("tokenizer", "special_tokens", "vocab", "merges", "chat_template", "added_tokens")
            ):
                shutil.copyfile(file, Path(folder) / file.name)


def copy_checkpoints(root: Path, paths: list[str], other: Path) -> list[str]:
    """Copy checkpoints of one run, with what is known of it, under another root; returns their paths there.

    The run is the first one there, whatever its number was: a run that was resumed leaves the bytes of one that wasn't.
    Raises tinker.TinkerError for a missing checkpoint.
    """
    source, target = Checkpoints(Path(root)), Checkpoints(Path(other))
    try:
        return [source.copy(path, target, "run-0000") for path in paths]
    except ValueError as e:
        raise refused(str(e)) from e
