"""Fireworks' serverless training inside the process: its SDK's methods, types and rules, over the local backend's gradients.

    with fireworks_service.serving(root, seed=0) as account:
        tinker.ServiceClient()  # lib.backends.fireworks', which calls the clients here as it would call the SDK's

Signatures are compared with the SDK's in tests/test_contracts.py. What a client refuses (an end of life, a second client of
the same kind, a training client that samples) and what the service refuses (a name, the wrong kind of checkpoint) is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tinker
from fireworks.training import sdk
from tinker import types

from lib.backends import fireworks
from lib.backends.checkpoints import SAMPLER, STATE
from lib.backends.local import serving as computing
from lib.backends.service import Service

ACCOUNT = "graph-study"
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LONGEST_NAME = 17


@dataclass
class Account:
    """What the service knows: its checkpoints, by their path, and the models made of them."""

    local: Service = field(init=False)  # what computes while it is served
    sessions: int = 0
    runs: dict[str, str] = field(default_factory=dict)  # the service's run -> the local backend's
    states: dict[str, str] = field(default_factory=dict)  # path of saved state -> the local backend's path
    samplers: dict[str, str] = field(default_factory=dict)
    sessions_of: dict[str, str] = field(default_factory=dict)  # path of weights for sampling -> session
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # what training calls were given

    def save(self, kind: str, run: str, name: str, save: Callable[[str], Any]) -> str:
        """Raises sdk.RequestFailedError for a name that isn't legal."""
        if not LABEL.fullmatch(name) or len(name) > LONGEST_NAME:
            raise failed(f"checkpoint name {name!r} must be a DNS label of at most {LONGEST_NAME} characters")
        kept = self.states if kind == STATE else self.samplers
        snapshot = name if kind == STATE else f"{name}-{run[-8:]}"  # as the SDK does
        kept[f"{ACCOUNT}/{run}/{snapshot}"] = save(snapshot).result().path
        return f"{ACCOUNT}/{run}/{snapshot}"


account: Account  # set by `serving`


def failed(message: str) -> sdk.RequestFailedError:
    return sdk.RequestFailedError(message, request_id="stand-in", category=sdk.types.RequestErrorCategory.User)


class Answer(sdk.APIFuture):
    """The local backend's answer as the SDK's future."""

    def __init__(self, inner: Any, convert: Callable[[Any], Any]):
        self.inner, self.convert = inner, convert

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self.convert(self.inner.result(timeout))
        except tinker.RequestFailedError as e:
            raise failed(e.message) from e

    async def result_async(self, timeout: float | None = None) -> Any:
        return self.convert(await self.inner.result_async(timeout))


class Done(sdk.APIFuture):
    """A result that is there already."""

    def __init__(self, value: Any):
        self.value = value

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    async def result_async(self, timeout: float | None = None) -> Any:
        return self.value


class FiretitanServiceClient:
    """One training session; a client of the same kind is made once in it."""

    def __init__(self, *args, api_key: str | None = None, **kwargs):
        assert not args and kwargs.keys() <= {"user_metadata", "base_url"}
        account.sessions += 1
        self.account, self.closed = account, False
        self.training_session_id = f"ts-{account.sessions:08x}"
        self.training_session_name = f"accounts/{ACCOUNT}/trainingSessions/{self.training_session_id}"
        self._configurations: set[Any] = set()

    def close(self) -> None:
        self.closed = True

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        alpha: int | None = 32,
        user_metadata: dict[str, str] | None = None,
        projection_head_dim: int | None = None,
        init_method: str | None = None,
    ) -> FiretitanTrainingClient:
        if (base_model, rank, seed) in self._configurations:
            raise ValueError(f"A training client for {base_model!r} already exists on this service.")
        self._configurations.add((base_model, rank, seed))
        return self._client(self.account.local.new_trainer, base_model, rank, seed, user_metadata)

    def create_training_client_from_state(
        self,
        path: str,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
        projection_head_dim: int | None = None,
    ) -> FiretitanTrainingClient:
        return self._resumed(path, False, user_metadata)

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
        projection_head_dim: int | None = None,
    ) -> FiretitanTrainingClient:
        return self._resumed(path, True, user_metadata)

    def _resumed(self, path: str, optimizer: bool, metadata: dict[str, str] | None) -> FiretitanTrainingClient:
        if path not in self.account.states:
            raise failed(f"{path} is no trainer state")
        return self._client(self.account.local.resumed_trainer, self.account.states[path], optimizer, metadata)

    def _client(self, make: Callable[..., Any], *args: Any) -> FiretitanTrainingClient:
        return FiretitanTrainingClient(self, self.account.local.submit(make, *args).result())

    def create_sampling_client(self, *args, training_client: FiretitanTrainingClient | None = None, **kwargs):
        return self._create_sampling_client(*args, **kwargs)

    def _create_sampling_client(
        self,
        model_path=None,
        base_model=None,
        retry_config=None,
        deployment_sampler: Any = None,
        *,
        tokenizer: Any | None = None,
        concurrency_controller: Any = None,
    ) -> FiretitanSamplingClient:
        if model_path is not None and model_path not in self.account.samplers:
            raise failed(f"{model_path} holds no weights for sampling")
        path = None if model_path is None else self.account.samplers[model_path]
        client = self.account.local.submit(self.account.local.sampler, path, base_model).result()
        return FiretitanSamplingClient(client, tokenizer)


class FiretitanTrainingClient:
    """One run; requests run in the order of the calls."""

    def __init__(self, service: FiretitanServiceClient, client: Any):
        self.service, self.client, self.account = service, client, service.account
        self.run_id = "run-" + hashlib.sha256(client.model_id.encode()).hexdigest()[:32]
        self.account.runs[self.run_id] = client.model_id

    def forward(
        self,
        data: list[sdk.Datum],
        loss_fn: str,
        loss_fn_config: dict[str, float | str | bool] | None = None,
    ) -> sdk.APIFuture:
        return self._losses(self.client.forward, data, loss_fn, loss_fn_config)

    def forward_backward(
        self,
        data: list[sdk.Datum],
        loss_fn: str,
        loss_fn_config: dict[str, float | str | bool] | None = None,
    ) -> sdk.APIFuture:
        return self._losses(self.client.forward_backward, data, loss_fn, loss_fn_config)

    def _losses(self, call: Callable[..., Any], data: list[sdk.Datum], loss_fn: str, config: Any) -> Answer:
        assert all(type(one) is sdk.Datum for one in data)
        self.account.asked.append((call.__name__, {"tokens": sum(one.model_input.length for one in data)}))
        return Answer(call([_tinkers(one) for one in data], loss_fn, config), _output)

    def optim_step(
        self,
        adam_params: sdk.AdamParams,
        grad_accumulation_normalization: Any = None,
        emit_grad_norm_metrics: Any = None,
    ) -> Answer:
        assert type(adam_params) is sdk.AdamParams
        self.account.asked.append(("optim_step", adam_params.model_dump()))
        norms = adam_params.emit_grad_norm_metrics not in (None, False, "off")
        given = adam_params.model_dump(exclude={"emit_grad_norm_metrics"})

        def response(step: types.OptimStepResponse) -> sdk.OptimStepResponse:
            assert step.metrics is not None
            metrics = {"grad_norm": step.metrics["optim/grad_norm"]} if norms else {}
            return sdk.OptimStepResponse(metrics=metrics)

        return Answer(self.client.optim_step(types.AdamParams(**given)), response)

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        *,
        timeout: float | None = None,
    ) -> Done:
        _no_end_of_life(ttl_seconds)
        path = self.account.save(STATE, self.run_id, name, self.client.save_state)
        return Done(sdk.types.SaveWeightsResponse(path=path))

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        *,
        checkpoint_type: str | None = None,
        export_precision: Any = None,
        metadata: Any = None,
    ) -> Done:
        _no_end_of_life(ttl_seconds)
        path = self.account.save(SAMPLER, self.run_id, name, self.client.save_weights_for_sampler)
        self.account.sessions_of[path] = self.service.training_session_id
        return Done(sdk.types.SaveWeightsForSamplerResponse(path=path))


def _no_end_of_life(ttl_seconds: int | None) -> None:
    if ttl_seconds is not None:
        raise NotImplementedError("Fireworks training does not support checkpoint ttl_seconds.")


def _tinkers(datum: sdk.Datum) -> types.Datum:
    inputs: Any = {
        name: types.TensorData(data=tensor.to_numpy(), dtype=tensor.dtype, shape=tensor.shape)
        for name, tensor in datum.loss_fn_inputs.items()
    }
    return types.Datum(model_input=types.ModelInput.from_ints(datum.model_input.to_ints()), loss_fn_inputs=inputs)


def _output(given: types.ForwardBackwardOutput) -> sdk.ForwardBackwardOutput:
    outputs = [
        {name: sdk.TensorData.from_numpy(tensor.to_numpy()) for name, tensor in output.items()}
        for output in given.loss_fn_outputs
    ]
    return sdk.ForwardBackwardOutput(
        loss_fn_output_type=given.loss_fn_output_type, loss_fn_outputs=outputs, metrics=dict(given.metrics)
    )


class FiretitanSamplingClient:
    """Frozen weights; stops at texts, for which it decodes the tokens that it is told to stop at."""

    def __init__(self, client: Any, tokenizer: Any):
        self.client, self.tokenizer = client, tokenizer

    def sample(
        self,
        prompt: sdk.ModelInput,
        num_samples: int,
        sampling_params: sdk.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        *,
        images: list[str] | None = None,
    ) -> Any:
        assert type(prompt) is sdk.ModelInput and type(sampling_params) is sdk.SamplingParams
        params = types.SamplingParams(
            **{
                **sampling_params.model_dump(),
                "max_tokens": sampling_params.max_tokens or 1024,
                "stop": self._texts(sampling_params.stop),
            }
        )
        asked = self.client.sample(
            types.ModelInput.from_ints(prompt.to_ints()), num_samples, params, include_prompt_logprobs
        )
        return _later(asked, _samples)

    def _texts(self, stop: Any) -> list[str] | None:
        if stop is None:
            return None
        if all(type(item) is str for item in stop):
            return list(stop)
        if self.tokenizer is None:
            raise ValueError("Tokenizer is required to convert integer stop token IDs to string stop sequences")
        return [self.tokenizer.decode([token], skip_special_tokens=False) for token in stop]

    def compute_logprobs(self, prompt: sdk.ModelInput) -> Any:
        assert type(prompt) is sdk.ModelInput
        return _later(self.client.compute_logprobs(types.ModelInput.from_ints(prompt.to_ints())), list)


def _samples(given: types.SampleResponse) -> sdk.types.SampleResponse:
    sequences = [
        sdk.types.SampledSequence(
            stop_reason=one.stop_reason, _tokens_list=list(one.tokens), _logprobs_list=list(one.logprobs or [])
        )
        for one in given.sequences
    ]
    return sdk.types.SampleResponse(sequences=sequences, _prompt_logprobs_list=given.prompt_logprobs)


def _later(asked: Any, convert: Callable[[Any], Any]) -> Any:
    from concurrent.futures import Future

    later: Future[Any] = Future()

    def hand_over(answer: Any) -> None:
        try:
            later.set_result(convert(answer.result()))
        except tinker.RequestFailedError as e:
            later.set_exception(failed(e.message))

    asked.future().add_done_callback(hand_over)
    return later


class FireworksClient:
    """The account's checkpoints and models."""

    def __init__(
        self,
        api_key: str,
        base_url: str = "https://api.fireworks.ai",
        additional_headers: dict[str, str] | None = None,
        verify_ssl: bool | None = None,
    ):
        self.account = account

    def __enter__(self) -> FireworksClient:
        return self

    def __exit__(self, *args) -> None:
        """Nothing is held."""

    def list_training_session_checkpoints(self, name: str, *, page_size: int = 200) -> list[dict]:
        session = name.removeprefix(f"accounts/{ACCOUNT}/trainingSessions/")
        paths = [path for path, of in self.account.sessions_of.items() if of == session]
        return [
            {"name": f"{name}/checkpoints/{path.rpartition('/')[2]}", "promotable": True, "checkpointType": "base"}
            for path in paths
        ]

    def delete_training_session(self, name: str) -> None:
        session = name.rpartition("/")[2]
        for path in [path for path, of in self.account.sessions_of.items() if of == session]:
            del self.account.sessions_of[path]

    def promote_session_checkpoint(self, name: str, output_model_id: str, base_model: str) -> dict:
        model = f"accounts/{ACCOUNT}/models/{output_model_id}"
        self.account.models[model] = {"name": model, "checkpoint": name, "base_model": base_model}
        return self.account.models[model]


@contextlib.contextmanager
def serving(root: Path, seed: int, kept: Account | None = None, **options: Any) -> Iterator[Account]:
    """Point `tinker.ServiceClient` at the adapter, and that at the clients here; options are `local.serving`'s.

    `kept`: an account that was served before over the same root, to go on with.
    """
    global account
    with computing(root, seed, **options) as client, contextlib.ExitStack() as patched:
        account = kept or Account()
        account.local = client.service
        for owner, name, value in (
            (sdk, "FiretitanServiceClient", FiretitanServiceClient),
            (sdk, "FireworksClient", FireworksClient),
            (tinker, "ServiceClient", fireworks.ServiceClient),
        ):
            patched.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield account
