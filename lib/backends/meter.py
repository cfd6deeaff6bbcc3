"""Meters a hosted service, so that no run costs more than it was allowed to: `tinker.ServiceClient`'s shape on both sides.

    tinker.ServiceClient = metered(tinker.ServiceClient, provider="tinker", model=..., ledger=ledger.path(run_dir), stage=...)

Every paid call is noted in the run's ledger before it is sent, at the most that it can cost, and isn't sent where that
could pass the limit. Two figures are kept apart: an upper bound, at uncached prices, which the limit is about, and an
estimate with the caching that the service reports (`prompt_cache_hit_tokens`; where it reports none, none is counted). A
method that isn't known to be free or isn't priced here can't be called. What runs on one's own machine costs nothing and is
never wrapped.

Two things no client can see, and the bound leaves out: a request that the SDK itself sends again because its answer was
lost, should the service charge for both, and what a checkpoint costs that is kept for more than a month.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tinker import types
from tinker.lib.public_interfaces.api_future import APIFuture
from tinker.lib.public_interfaces.backcompat_sampling_client_future import BackcompatSamplingClientFuture
from tinker.lib.public_interfaces.backcompat_training_client_future import BackcompatTrainingClientFuture

from lib.backends import prices
from lib.backends.futures import API, awaited, started, then
from lib.backends.ledger import Ledger
from lib.backends.prices import Price, Usage

ALLOWED = "ALLOW_SPEND"
MONTH = 30 * 24 * 3600  # seconds


class SpendRefused(RuntimeError):
    """A paid stage was started without leave to spend; the message says what it would cost and how to allow it."""


def allowed_spend(forecast: Callable[[], str] | None = None, environment: Mapping[str, str] = os.environ) -> float:
    """US dollars that the run may cost in all, from ALLOW_SPEND.

    forecast: what the run would cost, in words, for the message. Raises SpendRefused where nothing, or no amount, is said.
    """
    given = environment.get(ALLOWED)
    how = (
        f"set {ALLOWED} to the most that this run may cost in all, in US dollars, like {ALLOWED}=25 or {ALLOWED}=25.50"
    )
    if given is None:
        words = forecast() if forecast else "`python -m lib.forecast PILOT.jsonl` says what it would cost."
        raise SpendRefused(f"this stage costs money, and nobody has allowed it. {words}\nTo go on, {how}")
    if not prices.DOLLARS.fullmatch(given) or float(given) == 0:
        raise SpendRefused(f"{ALLOWED}={given!r} is no amount: {how}")
    return float(given)


def metered(
    service: Callable[..., Any],
    *,
    provider: str,
    model: str,
    ledger: Path,
    stage: str,
    limit: float | None = None,
    forecast: Callable[[], str] | None = None,
    table: Path = prices.TABLE,
) -> type[ServiceClient]:
    """A class of `tinker.ServiceClient`'s shape whose clients pay through the ledger, over one that doesn't.

    service: the class to wrap. provider, model: keys of the price table; another base model is refused. stage: what the
    ledger calls this part of the run. limit: US dollars for the whole run; None: what ALLOW_SPEND says.

    Raises PriceError for a model without a price, SpendRefused without leave to spend, ledger.LimitReached where it is used
    up; so does every call that could pass it, which is then not sent.
    """
    price = prices.find(provider, model, table)
    limit = allowed_spend(forecast) if limit is None else limit
    about = {"provider": provider, "model": model, "price": asdict(price)}
    till = Till(model, price, Ledger(ledger, stage, limit, about))
    return type("ServiceClient", (ServiceClient,), {"till": till, "service": staticmethod(service)})


class Till:
    """Where all clients of one stage pay."""

    def __init__(self, model: str, price: Price, ledger: Ledger):
        self.model, self.price, self.ledger = model, price, ledger

    def pay(self, kind: str, most: Usage, send: Callable[[], APIFuture[Any]], used: Callable[[Any], Usage]) -> API[Any]:
        """Send a call that can use `most`; its answer says what it `used`. A call that fails is taken as paid in full."""
        call = self.ledger.send(kind, self.price.upper(most))
        failed = partial(self.ledger.failed, call)

        def settle(answer: Any) -> Any:
            self.ledger.paid(call, self.price, used(answer))
            return answer

        try:
            sent = send()
        except BaseException as error:
            failed(error)
            raise
        return then(sent, settle, failed)

    def check(self, base_model: str) -> None:
        if base_model != self.model:
            raise prices.PriceError(
                f"base model {base_model!r} was asked for, and this stage pays the price of {self.model!r}: meter it by itself"
            )


class _Client:
    """A client whose paid methods are metered by a subclass, and whose `free` ones are handed through."""

    free: frozenset[str]

    def __init__(self, till: Till, client: Any):
        self.till, self.client = till, client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("till", "client"):
            raise AttributeError(name)
        value = getattr(self.client, name)
        if callable(value) and name.removesuffix("_async") not in self.free:
            raise AttributeError(
                f"{name} of {type(self.client).__name__} isn't metered: if it costs nothing, name it among the free methods "
                "in lib/backends/meter.py, otherwise meter it there"
            )
        return value

    def _training(self, client: APIFuture[Any]) -> BackcompatTrainingClientFuture:
        return BackcompatTrainingClientFuture(then(client, lambda found: TrainingClient(self.till, found)))

    def _sampling(self, client: APIFuture[Any]) -> BackcompatSamplingClientFuture:
        return BackcompatSamplingClientFuture(then(client, lambda found: SamplingClient(self.till, found)))


class ServiceClient(_Client):
    """`tinker.ServiceClient`, metered; made by `metered`."""

    free = frozenset({"close", "create_rest_client", "get_server_capabilities", "get_console_url", "get_telemetry"})
    till: Till
    service: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any):
        super().__init__(self.till, self.service(*args, **options))

    def __enter__(self) -> ServiceClient:
        self.client.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self.client.__exit__(*exception)

    def create_lora_training_client(
        self, base_model: str, *args: Any, **options: Any
    ) -> BackcompatTrainingClientFuture:
        self.till.check(base_model)
        return self._training(self.client.create_lora_training_client(base_model, *args, **options))

    create_lora_training_client_async = awaited(create_lora_training_client)

    def create_training_client_from_state(self, *args: Any, **options: Any) -> BackcompatTrainingClientFuture:
        return self._training(self.client.create_training_client_from_state(*args, **options))

    create_training_client_from_state_async = awaited(create_training_client_from_state)

    def create_training_client_from_state_with_optimizer(
        self, *args: Any, **options: Any
    ) -> BackcompatTrainingClientFuture:
        return self._training(self.client.create_training_client_from_state_with_optimizer(*args, **options))

    create_training_client_from_state_with_optimizer_async = awaited(create_training_client_from_state_with_optimizer)

    def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None, **options: Any
    ) -> BackcompatSamplingClientFuture:
        if base_model is not None:
            self.till.check(base_model)
        return self._sampling(
            self.client.create_sampling_client(model_path=model_path, base_model=base_model, **options)
        )

    create_sampling_client_async = awaited(create_sampling_client)


class TrainingClient(_Client):
    """`tinker.TrainingClient`, metered: passes by their tokens, checkpoints by the time that they may be kept."""

    free = frozenset(
        {
            "optim_step",
            "load_state",
            "load_state_with_optimizer",
            "get_info",
            "get_tokenizer",
            "get_console_url",
            "get_telemetry",
        }
    )

    def _pass(self, method: str, data: list[types.Datum], *args: Any, **options: Any) -> API[Any]:
        used = Usage(trained=sum(datum.model_input.length for datum in data))
        return self.till.pay(method, used, lambda: getattr(self.client, method)(data, *args, **options), lambda _: used)

    def forward(self, data: list[types.Datum], *args: Any, **options: Any) -> API[types.ForwardBackwardOutput]:
        return self._pass("forward", data, *args, **options)

    forward_async = started(forward)

    def forward_backward(self, data: list[types.Datum], *args: Any, **options: Any) -> API[types.ForwardBackwardOutput]:
        return self._pass("forward_backward", data, *args, **options)

    forward_backward_async = started(forward_backward)

    def _save(self, method: str, name: str, ttl_seconds: int | None, *args: Any, **options: Any) -> API[Any]:
        """A checkpoint without an end is counted for a month; one that is kept longer costs more."""
        months = 1.0 if ttl_seconds is None else ttl_seconds / MONTH
        used = Usage(gb_months=self.till.price.checkpoint_gb * months)
        return self.till.pay(
            method, used, lambda: getattr(self.client, method)(name, ttl_seconds, *args, **options), lambda _: used
        )

    def save_state(
        self, name: str, ttl_seconds: int | None = None, *args: Any, **options: Any
    ) -> API[types.SaveWeightsResponse]:
        return self._save("save_state", name, ttl_seconds, *args, **options)

    save_state_async = started(save_state)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None, *args: Any, **options: Any
    ) -> API[types.SaveWeightsForSamplerResponse]:
        return self._save("save_weights_for_sampler", name, ttl_seconds, *args, **options)

    save_weights_for_sampler_async = started(save_weights_for_sampler)

    def save_weights_and_get_sampling_client(self, *args: Any, **options: Any) -> BackcompatSamplingClientFuture:
        """Unnamed weights, which no one can keep: free."""
        return self._sampling(self.client.save_weights_and_get_sampling_client(*args, **options))

    save_weights_and_get_sampling_client_async = awaited(save_weights_and_get_sampling_client)

    def create_sampling_client(self, *args: Any, **options: Any) -> BackcompatSamplingClientFuture:
        return self._sampling(self.client.create_sampling_client(*args, **options))

    create_sampling_client_async = awaited(create_sampling_client)


class SamplingClient(_Client):
    """`tinker.SamplingClient`, metered by prompt and sampled tokens."""

    free = frozenset({"get_tokenizer", "get_base_model", "get_telemetry"})

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        *args: Any,
        **options: Any,
    ) -> API[types.SampleResponse]:
        """Raises ValueError without `max_tokens`: then nobody can say what the call may cost."""
        if sampling_params.max_tokens is None:
            raise ValueError(
                "sampling_params.max_tokens is None: a metered call needs a bound on what it can cost; set it"
            )
        prompts = prompt.length * num_samples

        def used(answer: types.SampleResponse) -> Usage:
            # Samples of one call share their prompt: all but the first find it in the cache.
            cached = min(answer.prompt_cache_hit_tokens, prompt.length) + prompt.length * (num_samples - 1)
            sampled = sum(len(sequence.tokens) for sequence in answer.sequences)
            return Usage(prompt=prompts, cached=cached, sampled=sampled)

        return self.till.pay(
            "sample",
            Usage(prompt=prompts, sampled=num_samples * sampling_params.max_tokens),
            lambda: self.client.sample(prompt, num_samples, sampling_params, *args, **options),
            used,
        )

    sample_async = awaited(sample)

    def compute_logprobs(self, prompt: types.ModelInput, *args: Any, **options: Any) -> API[list[float | None]]:
        """The SDK samples one token for it and doesn't hand on what was cached, so the estimate takes none as cached."""
        used = Usage(prompt=prompt.length, sampled=1)
        return self.till.pay(
            "compute_logprobs", used, lambda: self.client.compute_logprobs(prompt, *args, **options), lambda _: used
        )

    compute_logprobs_async = awaited(compute_logprobs)
