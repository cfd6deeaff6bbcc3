"""`tinker.SamplingClient` over Fireworks'."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tinker import types
from tinker_cookbook.tokenizer_utils import get_tokenizer

from lib.backends import fireworks_types as to
from lib.backends.fireworks_types import sdk, tinkers_errors
from lib.backends.futures import API, awaited


class SamplingClient:
    """`tinker.SamplingClient` over frozen weights on Fireworks."""

    def __init__(self, client: Any, model: str):
        self.client = client
        self._ids = (f"{model}/{number}" for number in itertools.count())

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
        """Raises ValueError for what Fireworks doesn't have."""
        if (
            topk_prompt_logprobs
            or topk_sample_logprobs
            or target_prompt_logprobs is not None
            or prompt_alt_tokens_k
            or prompt_logprobs_last_n is not None
        ):
            raise ValueError("Fireworks gives the log-probabilities of the sampled and of all prompt tokens, no others")
        with tinkers_errors():
            asked = self.client.sample(
                prompt=to.model_input(prompt),
                num_samples=num_samples,
                sampling_params=to.sampling_params(sampling_params),
                include_prompt_logprobs=include_prompt_logprobs,
            )
        return _converted(asked, lambda given: to.sample_response(given, self._ids))

    sample_async = awaited(sample)

    def compute_logprobs(
        self, prompt: types.ModelInput, prompt_logprobs_last_n: int | None = None
    ) -> API[list[float | None]]:
        """Log-probability of each prompt token given those before it; None for the first."""
        if prompt_logprobs_last_n is not None:
            raise ValueError("prompt_logprobs_last_n: Fireworks gives those of all prompt tokens")
        with tinkers_errors():
            asked = self.client.compute_logprobs(prompt=to.model_input(prompt))
        return _converted(asked, list)

    compute_logprobs_async = awaited(compute_logprobs)


def sampling_client(service: sdk.FiretitanServiceClient, base_model: str, path: str | None) -> SamplingClient:
    """Over weights for sampling, by the service's own path, or the base model's where that is None.

    With a tokenizer, since the service stops at texts and the loop names tokens.
    """
    target = {"base_model": base_model} if path is None else {"model_path": path}
    client = service.create_sampling_client(**target, tokenizer=get_tokenizer(base_model))
    return SamplingClient(client, path or base_model)


def _converted(asked: Future[Any], convert: Callable[[Any], Any]) -> API[Any]:
    """Without a thread that waits: many hundred samples are under way at a time."""
    converted: Future[Any] = Future()

    def hand_over(answer: Future[Any]) -> None:
        try:
            with tinkers_errors():
                converted.set_result(convert(answer.result()))
        except BaseException as e:
            converted.set_exception(e)

    asked.add_done_callback(hand_over)
    return API(converted)
