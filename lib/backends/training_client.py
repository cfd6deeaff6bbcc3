"""`tinker.TrainingClient` over a model in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinker import types
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture

from lib.backends.checkpoints import SAMPLER, STATE, Run
from lib.backends.futures import API, awaited, started
from lib.backends.sampling_client import SamplingClient
from lib.backends.training import Trainer

if TYPE_CHECKING:
    from lib.backends.service import Service


class TrainingClient:
    """`tinker.TrainingClient` over a model in this process. Requests run in the order in which they were made."""

    def __init__(self, service: Service, model_id: str, run: Run, trainer: Trainer):
        self.service, self.model_id, self.run, self.trainer = service, model_id, run, trainer

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        return self.service.submit(self.trainer.run, data, loss_fn, loss_fn_config, False)

    forward_async = started(forward)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        return self.service.submit(self.trainer.run, data, loss_fn, loss_fn_config, True)

    forward_backward_async = started(forward_backward)

    def optim_step(
        self, optim_params: types.AdamParams | None = None, *, adam_params: types.AdamParams | None = None
    ) -> API[types.OptimStepResponse]:
        params = optim_params if optim_params is not None else adam_params
        if not isinstance(params, types.AdamParams):
            raise ValueError(f"optim_step needs AdamParams, got {params!r}: the local backend trains with AdamW only")
        return self.service.submit(self.trainer.step, params)

    optim_step_async = started(optim_step)

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

    save_state_async = started(save_state)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None, user_metadata: dict[str, str] | None = None
    ) -> API[types.SaveWeightsForSamplerResponse]:
        def save() -> types.SaveWeightsForSamplerResponse:
            tensors = self.trainer.weights()
            return types.SaveWeightsForSamplerResponse(
                path=self.service.checkpoints.write(self.model_id, SAMPLER, name, tensors, overwrite=False)
            )

        return self.service.submit(save)

    save_weights_for_sampler_async = started(save_weights_for_sampler)

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
            self.service.submit(lambda: SamplingClient(self.service, self.trainer.snapshot()))
        )

    save_weights_and_get_sampling_client_async = awaited(save_weights_and_get_sampling_client)

    def create_sampling_client(
        self, model_path: str, retry_config: Any = None, record_stability_info: bool = False
    ) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(self.service.submit(self.service.sampler, model_path, None))

    create_sampling_client_async = awaited(create_sampling_client)

    def load_state(self, path: str, weights_access_token: str | None = None) -> API[types.LoadWeightsResponse]:
        return self.service.submit(self._load, path, False)

    load_state_async = started(load_state)

    def load_state_with_optimizer(
        self, path: str, weights_access_token: str | None = None
    ) -> API[types.LoadWeightsResponse]:
        return self.service.submit(self._load, path, True)

    load_state_with_optimizer_async = started(load_state_with_optimizer)

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

    get_info_async = started(get_info)

    def get_tokenizer(self) -> Any:
        return self.trainer.base.tokenizer
