"""A Tinker service inside the process: the clients that the cookbook's loops call, over torch.

`rl/train.py` and `supervised/train.py` run on it unmodified, offline and free. Signatures, types, futures and errors
are the SDK's own (tests/test_sdk_contract.py compares them with the installed one).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import tinker
import torch
from tinker import types
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture
from tinker.lib.public_interfaces.backcompat_training_client_future import BackcompatTrainingClientFuture

from lib.backends import rollout_key
from lib.backends.checkpoints import SAMPLER, STATE, Checkpoints, Run
from lib.backends.models import Weights, load_base, snapshot
from lib.backends.requests import Request, stop_conditions
from lib.backends.training import Trainer
from lib.backends.worker import SamplingWorker

T = TypeVar("T")
API = AwaitableConcurrentFuture


def refused(message: str) -> tinker.TinkerError:
    """The SDK's error for a request that the service took and then failed, through the caller's own fault."""
    return tinker.RequestFailedError(message, request_id="local", category=types.RequestErrorCategory.User)


class Service:
    """What all clients of one `serving` block share: files, base models, one thread for training, one for sampling."""

    def __init__(self, root: Path, seed: int, training: str, grad_clip_norm: float, device: str):
        if training not in ("full", "lora"):
            raise ValueError(f"training {training!r}: use 'full' or 'lora'")
        self.checkpoints = Checkpoints(root)
        self.seed, self.training, self.grad_clip_norm, self.device = seed, training, grad_clip_norm, device
        self.worker = SamplingWorker()
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="training", initializer=torch.set_num_threads, initargs=(1,)
        )
        self.base = cache(lambda path: load_base(path, device))

    def submit(self, function: Callable[..., T], *args: Any) -> API[T]:
        """Run in the training thread, in order of submission. ValueError and OSError become the SDK's error."""

        def run() -> T:
            try:
                return function(*args)
            except (ValueError, OSError) as e:
                raise refused(str(e)) from e

        return API(self._thread.submit(run))

    def close(self) -> None:
        self.worker.close()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def new_trainer(
        self, base_model: str, rank: int, seed: int | None, user_metadata: dict[str, str] | None
    ) -> TrainingClient:
        base = self.base(base_model)
        run = Run(
            base_model,
            base.digest,
            rank if self.training == "lora" else None,
            self.seed if seed is None else seed,
            dict(user_metadata or {}),
        )
        return self._client(run, base)

    def resumed_trainer(self, path: str, optimizer: bool, user_metadata: dict[str, str] | None) -> TrainingClient:
        """A new run that starts where the checkpoint's stood."""
        run_id, kind, _ = self.checkpoints.parse(path)
        if kind != STATE:
            raise ValueError(f"{path} holds weights for sampling; training starts from a path of save_state")
        self.checkpoints.file(path)
        old = self.checkpoints.run(run_id)
        base = self.base_of(old, path)
        client = self._client(Run(old.base_model, old.base_digest, old.rank, old.seed, dict(user_metadata or {})), base)
        self.checkpoints.read(path, lambda tensors: client.trainer.load(tensors, optimizer))
        return client

    def base_of(self, run: Run, path: str) -> Weights:
        """The base model of a checkpoint; an adapter fits only the very weights that it was trained on."""
        base = self.base(run.base_model)
        if run.rank is not None and base.digest != run.base_digest:
            raise ValueError(f"{path} is an adapter for other weights than those now in {run.base_model}")
        return base

    def _client(self, run: Run, base: Weights) -> TrainingClient:
        trainer = Trainer(base, run.rank, run.seed, self.grad_clip_norm)
        return TrainingClient(self, self.checkpoints.new_run(run), run, trainer)

    def sampler(self, model_path: str | None, base_model: str | None) -> SamplingClient:
        """Over a base model's weights, or a checkpoint's (either kind)."""
        if model_path is None:
            if base_model is None:
                raise ValueError("Either model_path or base_model must be provided")
            return SamplingClient(self, self.base(base_model))
        run = self.checkpoints.run(self.checkpoints.parse(model_path)[0])
        self.checkpoints.file(model_path)
        base = self.base_of(run, model_path)
        trainer = Trainer(base, run.rank, run.seed, self.grad_clip_norm)
        self.checkpoints.read(model_path, lambda tensors: trainer.load(tensors, optimizer=False))
        return SamplingClient(self, snapshot(trainer.model, base))


class TrainingClient:
    """`tinker.TrainingClient` over a model in this process. Requests run in the order in which they were made."""

    def __init__(self, service: Service, model_id: str, run: Run, trainer: Trainer):
        self.service, self.model_id, self.run, self.trainer = service, model_id, run, trainer

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        return self.service.submit(self.trainer.run, data, loss_fn, loss_fn_config, False)

    async def forward_async(self, data, loss_fn, loss_fn_config=None):  # type: ignore[no-untyped-def]
        return self.forward(data, loss_fn, loss_fn_config)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        return self.service.submit(self.trainer.run, data, loss_fn, loss_fn_config, True)

    async def forward_backward_async(self, data, loss_fn, loss_fn_config=None):  # type: ignore[no-untyped-def]
        return self.forward_backward(data, loss_fn, loss_fn_config)

    def optim_step(
        self, optim_params: types.AdamParams | None = None, *, adam_params: types.AdamParams | None = None
    ) -> API[types.OptimStepResponse]:
        params = optim_params if optim_params is not None else adam_params
        if not isinstance(params, types.AdamParams):
            raise ValueError(f"optim_step needs AdamParams, got {params!r}: the local backend trains with AdamW only")
        return self.service.submit(self.trainer.step, params)

    async def optim_step_async(self, optim_params=None, *, adam_params=None):  # type: ignore[no-untyped-def]
        return self.optim_step(optim_params, adam_params=adam_params)

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> API[types.SaveWeightsResponse]:
        """Weights and optimiser; kept until deleted, whatever `ttl_seconds` says, and without metadata of its own."""

        def save() -> types.SaveWeightsResponse:
            tensors = self.trainer.state()
            return types.SaveWeightsResponse(
                path=self.service.checkpoints.write(self.model_id, STATE, name, tensors, overwrite)
            )

        return self.service.submit(save)

    async def save_state_async(self, name, ttl_seconds=None, overwrite=False, user_metadata=None):  # type: ignore[no-untyped-def]
        return self.save_state(name, ttl_seconds, overwrite, user_metadata)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None, user_metadata: dict[str, str] | None = None
    ) -> API[types.SaveWeightsForSamplerResponse]:
        def save() -> types.SaveWeightsForSamplerResponse:
            tensors = self.trainer.weights()
            return types.SaveWeightsForSamplerResponse(
                path=self.service.checkpoints.write(self.model_id, SAMPLER, name, tensors, overwrite=False)
            )

        return self.service.submit(save)

    async def save_weights_for_sampler_async(self, name, ttl_seconds=None, user_metadata=None):  # type: ignore[no-untyped-def]
        return self.save_weights_for_sampler(name, ttl_seconds, user_metadata)

    def save_weights_and_get_sampling_client(
        self,
        name: str | None = None,
        retry_config: Any = None,
        record_stability_info: bool = False,
        kind: types.SamplingClientKind = "snapshot",
    ) -> BackcompatSamplingClientFuture:
        """A client over a frozen copy of the weights as they are when the requests made before are done."""
        if kind != "snapshot":
            raise ValueError(f"kind {kind!r} isn't supported by the local backend; use 'snapshot'")
        return BackcompatSamplingClientFuture(
            self.service.submit(lambda: SamplingClient(self.service, self.trainer.snapshot()))  # type: ignore[arg-type]
        )

    async def save_weights_and_get_sampling_client_async(  # type: ignore[no-untyped-def]
        self, name=None, retry_config=None, record_stability_info=False, kind="snapshot"
    ):
        return await self.save_weights_and_get_sampling_client(name, retry_config, record_stability_info, kind)

    def create_sampling_client(
        self, model_path: str, retry_config: Any = None, record_stability_info: bool = False
    ) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(self.service.submit(self.service.sampler, model_path, None))

    async def create_sampling_client_async(self, model_path, retry_config=None, record_stability_info=False):  # type: ignore[no-untyped-def]
        return await self.create_sampling_client(model_path, retry_config, record_stability_info)

    def load_state(self, path: str, weights_access_token: str | None = None) -> API[types.LoadWeightsResponse]:
        return self.service.submit(self._load, path, False)

    async def load_state_async(self, path, weights_access_token=None):  # type: ignore[no-untyped-def]
        return self.load_state(path, weights_access_token)

    def load_state_with_optimizer(
        self, path: str, weights_access_token: str | None = None
    ) -> API[types.LoadWeightsResponse]:
        return self.service.submit(self._load, path, True)

    async def load_state_with_optimizer_async(self, path, weights_access_token=None):  # type: ignore[no-untyped-def]
        return self.load_state_with_optimizer(path, weights_access_token)

    def _load(self, path: str, optimizer: bool) -> types.LoadWeightsResponse:
        run_id, kind, _ = self.service.checkpoints.parse(path)
        if kind != STATE:
            raise ValueError(f"{path} holds weights for sampling; training starts from a path of save_state")
        self.service.checkpoints.file(path)
        self.service.base_of(self.service.checkpoints.run(run_id), path)
        self.service.checkpoints.read(path, lambda tensors: self.trainer.load(tensors, optimizer))
        return types.LoadWeightsResponse(path=path, model_id=self.model_id)

    def get_info(self) -> types.GetInfoResponse:
        name = self.run.base_model
        return types.GetInfoResponse(
            model_data=types.ModelData(model_name=name, tokenizer_id=name),
            model_id=self.model_id,
            model_name=name,
            is_lora=self.run.rank is not None,
            lora_rank=self.run.rank,
        )

    async def get_info_async(self) -> types.GetInfoResponse:
        return self.get_info()

    def get_tokenizer(self) -> Any:
        return self.trainer.base.tokenizer


class SamplingClient:
    """`tinker.SamplingClient` over frozen weights in this process."""

    def __init__(self, service: Service, weights: Weights):
        self.service, self.weights = service, weights
        self.sampler = service.worker.sampler(weights)
        self._asked: Counter[tuple[int, ...]] = Counter()  # how often each prompt was asked, where no rollout is named
        self._lock = threading.Lock()

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: types.TensorData | None = None,
        prompt_alt_tokens_k: int = 0,
        prompt_logprobs_last_n: int | None = None,
    ) -> API[types.SampleResponse]:
        """Draws are repeatable: see `lib.backends.requests`. Raises ValueError for what only the hosted service has."""
        if topk_prompt_logprobs or topk_sample_logprobs or target_prompt_logprobs is not None or prompt_alt_tokens_k:
            raise ValueError("the local backend gives the sampled and the prompt tokens' log-probabilities, no others")
        if prompt_logprobs_last_n is not None and not include_prompt_logprobs:
            raise ValueError("prompt_logprobs_last_n applies to prompt logprobs; set include_prompt_logprobs")
        if num_samples < 1:
            raise ValueError(f"num_samples must be 1 or greater, got {num_samples}")
        request = self._request(prompt, num_samples, sampling_params, include_prompt_logprobs, prompt_logprobs_last_n)
        return self._submit(request)

    async def sample_async(  # type: ignore[no-untyped-def]
        self,
        prompt,
        num_samples,
        sampling_params,
        include_prompt_logprobs=False,
        topk_prompt_logprobs=0,
        topk_sample_logprobs=0,
        target_prompt_logprobs=None,
        prompt_alt_tokens_k=0,
        prompt_logprobs_last_n=None,
    ):
        return await self.sample(
            prompt,
            num_samples,
            sampling_params,
            include_prompt_logprobs,
            topk_prompt_logprobs,
            topk_sample_logprobs,
            target_prompt_logprobs,
            prompt_alt_tokens_k,
            prompt_logprobs_last_n,
        )

    def compute_logprobs(
        self, prompt: types.ModelInput, prompt_logprobs_last_n: int | None = None
    ) -> API[list[float | None]]:
        """Log-probability of each prompt token given those before it; None for the first."""
        request = self._request(prompt, 0, types.SamplingParams(max_tokens=1), True, prompt_logprobs_last_n)
        result: Future[list[float | None]] = Future()

        def hand_over(answer: Future[types.SampleResponse]) -> None:
            if (error := answer.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(answer.result().prompt_logprobs or [])

        self._submit(request).future().add_done_callback(hand_over)
        return API(result)

    async def compute_logprobs_async(self, prompt, prompt_logprobs_last_n=None):  # type: ignore[no-untyped-def]
        return await self.compute_logprobs(prompt, prompt_logprobs_last_n)

    def _submit(self, request: Request) -> API[types.SampleResponse]:
        room = self.weights.context - len(request.prompt)
        if not request.prompt or (request.samples and request.max_tokens > room) or room < 0:
            request.fail(
                refused(
                    f"a prompt of {len(request.prompt)} tokens and max_tokens {request.max_tokens} don't fit"
                    f" the model's context of {self.weights.context} tokens"
                )
            )
        else:
            self.service.worker.submit(self.sampler, request)
        return API(request.future)

    def _request(
        self, prompt: types.ModelInput, samples: int, params: types.SamplingParams, scored: bool, last: int | None
    ) -> Request:
        tokens = prompt.to_ints()
        if last is not None and not 1 <= last < len(tokens):
            raise ValueError(f"prompt_logprobs_last_n must be between 1 and {len(tokens) - 1}, got {last}")
        rollout, first = rollout_key.get(), 0
        if rollout is None and samples:
            with self._lock:
                first = self._asked[tuple(tokens)]
                self._asked[tuple(tokens)] += samples
        seed = self.service.seed if params.seed is None else f"request {params.seed}"
        about = f"{seed}|{self.weights.digest}|{rollout if rollout is not None else f'asked {first}'}|{tokens}"
        stop_tokens, stop_strings = stop_conditions(params.stop, self.weights.tokenizer)
        key = hashlib.blake2b(about.encode(), digest_size=16).digest()
        room = max(1, self.weights.context - len(tokens))
        return Request(
            id=key.hex(),
            prompt=tokens,
            samples=samples,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            params=params,
            key=key,
            stop_tokens=stop_tokens,
            stop_strings=stop_strings,
            tokenizer=self.weights.tokenizer,
            scored=scored,
            scored_last=last,
        )

    def get_tokenizer(self) -> Any:
        return self.weights.tokenizer

    def get_base_model(self) -> str:
        return self.weights.base_model

    async def get_base_model_async(self) -> str:
        return self.weights.base_model


class RestClient:
    """The part of `tinker.RestClient` that the cookbook uses: runs and checkpoints under the service's root."""

    def __init__(self, service: Service):
        self.service, self.checkpoints = service, service.checkpoints

    def get_training_run(
        self, training_run_id: str, access_scope: Literal["owned", "accessible"] = "owned"
    ) -> API[types.TrainingRun]:
        return self.service.submit(self.checkpoints.describe, training_run_id)

    async def get_training_run_async(self, training_run_id, access_scope="owned"):  # type: ignore[no-untyped-def]
        return await self.get_training_run(training_run_id, access_scope)

    def get_training_run_by_tinker_path(
        self, tinker_path: str, access_scope: Literal["owned", "accessible"] = "owned"
    ) -> API[types.TrainingRun]:
        return self.service.submit(lambda: self.checkpoints.describe(self.checkpoints.parse(tinker_path)[0]))

    async def get_training_run_by_tinker_path_async(self, tinker_path, access_scope="owned"):  # type: ignore[no-untyped-def]
        return await self.get_training_run_by_tinker_path(tinker_path, access_scope)

    def list_checkpoints(self, training_run_id: str) -> API[types.CheckpointsListResponse]:
        def answer() -> types.CheckpointsListResponse:
            return types.CheckpointsListResponse(checkpoints=self.checkpoints.list(training_run_id))

        return self.service.submit(answer)

    async def list_checkpoints_async(self, training_run_id):  # type: ignore[no-untyped-def]
        return await self.list_checkpoints(training_run_id)

    def delete_checkpoint_from_tinker_path(self, tinker_path: str) -> API[None]:
        return self.service.submit(lambda: self.checkpoints.file(tinker_path).unlink())

    async def delete_checkpoint_from_tinker_path_async(self, tinker_path):  # type: ignore[no-untyped-def]
        return await self.delete_checkpoint_from_tinker_path(tinker_path)


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
            self.service.submit(self.service.new_trainer, base_model, rank, seed, user_metadata)  # type: ignore[arg-type]
        )

    async def create_lora_training_client_async(  # type: ignore[no-untyped-def]
        self,
        base_model,
        rank=32,
        seed=None,
        train_mlp=True,
        train_attn=True,
        train_unembed=True,
        user_metadata=None,
        optimizer=None,
    ):
        return await self.create_lora_training_client(
            base_model, rank, seed, train_mlp, train_attn, train_unembed, user_metadata, optimizer
        )

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
            self.service.submit(self.service.resumed_trainer, path, False, user_metadata)  # type: ignore[arg-type]
        )

    async def create_training_client_from_state_async(  # type: ignore[no-untyped-def]
        self, path, base_model=None, user_metadata=None, weights_access_token=None, optimizer=None
    ):
        return await self.create_training_client_from_state(
            path, base_model, user_metadata, weights_access_token, optimizer
        )

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
    ) -> BackcompatTrainingClientFuture:
        return BackcompatTrainingClientFuture(
            self.service.submit(self.service.resumed_trainer, path, True, user_metadata)  # type: ignore[arg-type]
        )

    async def create_training_client_from_state_with_optimizer_async(  # type: ignore[no-untyped-def]
        self, path, base_model=None, user_metadata=None, weights_access_token=None
    ):
        return await self.create_training_client_from_state_with_optimizer(
            path, base_model, user_metadata, weights_access_token
        )

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: Any = None,
        record_stability_info: bool = False,
    ) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(
            self.service.submit(self.service.sampler, model_path, base_model)  # type: ignore[arg-type]
        )

    async def create_sampling_client_async(  # type: ignore[no-untyped-def]
        self, model_path=None, base_model=None, retry_config=None, record_stability_info=False
    ):
        return await self.create_sampling_client(model_path, base_model, retry_config, record_stability_info)

    def create_rest_client(self) -> RestClient:
        return RestClient(self.service)

    def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        """No list of models: any Hugging Face folder is one."""
        return types.GetServerCapabilitiesResponse(supported_models=[])

    async def get_server_capabilities_async(self) -> types.GetServerCapabilitiesResponse:
        return self.get_server_capabilities()


def _check_optimizer(optimizer: types.OptimizerConfig | None) -> None:
    if optimizer is not None and optimizer.type != "adamw":
        raise ValueError(f"optimizer {optimizer.type!r} isn't supported by the local backend; use 'adamw'")


@contextlib.contextmanager
def serving(
    root: Path,
    seed: int,
    training: Literal["full", "lora"] = "full",
    grad_clip_norm: float = 1.0,
    device: str = "cpu",
) -> Iterator[ServiceClient]:
    """Point `tinker.ServiceClient` at a service in this process, and back when the block ends. Yields a client.

    `root`: folder of the checkpoints. `seed`: of the draws and of new adapters. `training`: what
    `create_lora_training_client` trains, all parameters or an adapter. `grad_clip_norm`: for optimiser steps that ask
    for no clipping themselves (0: none); the cookbook's never ask.

    Torch runs on one thread inside the block: measured fastest for small models on a machine whose cores are shared,
    and sums would otherwise depend on the number of cores.
    """
    threads, hosted = torch.get_num_threads(), tinker.ServiceClient
    torch.set_num_threads(1)
    service = Service(Path(root), seed, training, grad_clip_norm, device)
    bound = type("ServiceClient", (ServiceClient,), {"service": service})
    tinker.ServiceClient = bound  # type: ignore[misc]
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
        weights.model.save_pretrained(folder)
        for file in Path(weights.base_model).iterdir():
            if file.name.startswith(
                ("tokenizer", "special_tokens", "vocab", "merges", "chat_template", "added_tokens")
            ):
                shutil.copyfile(file, Path(folder) / file.name)


def copy_checkpoints(root: Path, paths: list[str], other: Path) -> None:
    """Copy single checkpoints, with what is known of their runs, under another root; their paths stay the same.

    Raises tinker.TinkerError for a missing checkpoint.
    """
    source, target = Checkpoints(Path(root)), Checkpoints(Path(other))
    for path in paths:
        try:
            source.copy(path, target)
        except ValueError as e:
            raise refused(str(e)) from e
