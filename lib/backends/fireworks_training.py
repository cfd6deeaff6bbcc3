"""`tinker.TrainingClient` over Fireworks', and the order in which its requests are made."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tinker import types
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture

from lib.backends import fireworks_types as to
from lib.backends.fireworks_sampling import SamplingClient, sampling_client
from lib.backends.fireworks_types import Checkpoint, sdk, tinkers_errors
from lib.backends.futures import API, awaited, refused, started

if TYPE_CHECKING:
    from lib.backends.fireworks import ServiceClient


class Lane:
    """Hands calls over in the order in which they were made, without waiting for the results of those before."""

    def __init__(self) -> None:
        self._hand_over = ThreadPoolExecutor(1, thread_name_prefix="fireworks-calls")
        self._wait = ThreadPoolExecutor(thread_name_prefix="fireworks-results")

    def ask(self, call: Callable[[], Any], convert: Callable[[Any], Any] = lambda result: result) -> API[Any]:
        """`convert` gets what the call returns, or what that stands for where it is a future."""
        handed = self._hand_over.submit(call)

        def answer() -> Any:
            with tinkers_errors():
                result = handed.result()
                return convert(result.result() if isinstance(result, sdk.APIFuture) else result)

        return API(self._wait.submit(answer))

    def close(self) -> None:
        self._hand_over.shutdown(wait=False)
        self._wait.shutdown(wait=False)


class TrainingClient:
    """`tinker.TrainingClient` over an adapter in training on Fireworks. Requests are made in the order of the calls."""

    def __init__(self, service: ServiceClient, client: Any, base_model: str):
        self.service, self.client, self.base_model = service, client, base_model
        session, run = service.service.training_session_id, client.run_id
        if session is None or run is None:
            raise refused("no serverless training session: base_url must end with /training/v1/serverless")
        self.session, self.run = session, run
        self._saved: set[tuple[str, str]] = set()
        self._since_step: list[tuple[API[types.ForwardBackwardOutput], int]] = []  # with the number of tokens

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        return self._losses(self.client.forward, data, loss_fn, loss_fn_config)

    forward_async = started(forward)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> API[types.ForwardBackwardOutput]:
        output = self._losses(self.client.forward_backward, data, loss_fn, loss_fn_config)
        self._since_step.append((output, sum(d.model_input.length for d in data)))
        return output

    forward_backward_async = started(forward_backward)

    def _losses(self, call: Callable[..., Any], data: list[types.Datum], loss_fn: str, config: Any) -> API[Any]:
        theirs, loss = [to.datum(d) for d in data], to.loss(loss_fn)
        return self.service.lane.ask(
            lambda: call(data=theirs, loss_fn=loss, loss_fn_config=config), to.forward_backward_output
        )

    def optim_step(
        self, optim_params: types.AdamParams | None = None, *, adam_params: types.AdamParams | None = None
    ) -> API[types.OptimStepResponse]:
        """The step's metrics as optim/..., and beside them those of the training calls before it as forward_backward/...:
        the loop keeps only what a step returns."""
        params = to.adam_params(optim_params if optim_params is not None else adam_params)
        trained, self._since_step = self._since_step, []

        def response(step: Any) -> types.OptimStepResponse:
            outputs = [output.result().metrics for output, _ in trained]
            return types.OptimStepResponse(metrics=_metrics(step.metrics or {}, outputs, sum(n for _, n in trained)))

        return self.service.lane.ask(lambda: self.client.optim_step(adam_params=params), response)

    optim_step_async = started(optim_step)

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> API[types.SaveWeightsResponse]:
        """Weights and optimiser; kept whatever `ttl_seconds` says, since the service knows no end of life for them."""
        if overwrite:
            raise ValueError("overwrite=True isn't possible on Fireworks: choose another name")
        legal = self._new_name("weights", name)
        return self.service.lane.ask(
            lambda: self.client.save_state(name=legal),
            lambda saved: types.SaveWeightsResponse(path=self._path("weights", saved.path)),
        )

    save_state_async = started(save_state)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None, user_metadata: dict[str, str] | None = None
    ) -> API[types.SaveWeightsForSamplerResponse]:
        """Kept whatever `ttl_seconds` says, as `save_state`'s are."""
        legal = self._new_name("sampler_weights", name)
        return self.service.lane.ask(
            lambda: self.client.save_weights_for_sampler(name=legal),
            lambda saved: types.SaveWeightsForSamplerResponse(path=self._path("sampler_weights", saved.path)),
        )

    save_weights_for_sampler_async = started(save_weights_for_sampler)

    def save_weights_and_get_sampling_client(
        self,
        name: str | None = None,
        retry_config: Any = None,
        record_stability_info: bool = False,
        kind: types.SamplingClientKind = "snapshot",
    ) -> BackcompatSamplingClientFuture:
        """In two steps, since the service has no call for both: weights are saved, then a client made for their path."""
        if kind != "snapshot":
            raise ValueError(f"kind {kind!r} isn't supported by Fireworks; use 'snapshot'")
        legal = self._new_name("sampler_weights", name or f"policy-{len(self._saved)}")

        def both() -> SamplingClient:
            saved = self.client.save_weights_for_sampler(name=legal).result()
            return sampling_client(self.service.service, self.base_model, saved.path)

        return BackcompatSamplingClientFuture(self.service.lane.ask(both))

    save_weights_and_get_sampling_client_async = awaited(save_weights_and_get_sampling_client)

    def create_sampling_client(
        self, model_path: str, retry_config: Any = None, record_stability_info: bool = False
    ) -> BackcompatSamplingClientFuture:
        """By the service's client: Fireworks' training client samples from deployments only."""
        return self.service.create_sampling_client(model_path)

    create_sampling_client_async = awaited(create_sampling_client)

    def _new_name(self, kind: str, name: str) -> str:
        legal = to.legal(name, self.run)
        if (kind, legal) in self._saved:
            raise ValueError(
                f"{kind} are saved under the name {name!r} already, and would be overwritten: choose another"
            )
        self._saved.add((kind, legal))
        return legal

    def _path(self, kind: to.Kind, path: str) -> str:
        return str(Checkpoint(self.session, kind, path, self.base_model))


def _metrics(step: dict[str, float], calls: list[dict[str, float]], tokens: int) -> dict[str, float]:
    """Named as the local backend's where they mean the same; of several calls the sum, most, least or mean, by the
    metric's ending."""
    ways: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
    names = sorted({name for call in calls for name in call})
    told = {
        name: ways.get(name.rpartition(":")[2], statistics.fmean)([call[name] for call in calls if name in call])
        for name in names
    }
    loss = {"optim/loss": told["loss:sum"]} if "loss:sum" in told else {}
    return {
        **{f"optim/{name.removeprefix('optim/')}": value for name, value in step.items()},
        **{f"forward_backward/{name}": value for name, value in told.items()},
        **loss,
        "optim/tokens": float(tokens),
    }
