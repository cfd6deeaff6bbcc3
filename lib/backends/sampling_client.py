"""`tinker.SamplingClient` over frozen weights in this process."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tinker import types

from lib.backends import rollout_key
from lib.backends.futures import API, awaited, refused, started
from lib.backends.models import Weights
from lib.backends.requests import Request, stop_conditions

if TYPE_CHECKING:
    from lib.backends.service import Service


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

    sample_async = awaited(sample)

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

    compute_logprobs_async = awaited(compute_logprobs)

    def _submit(self, request: Request) -> API[types.SampleResponse]:
        if (problem := self._problem(request)) is None:
            self.service.worker.submit(self.sampler, request)
        else:
            request.fail(refused(problem))
        return API(request.future)

    def _problem(self, request: Request) -> str | None:
        """What the service would refuse the request for."""
        prompt, context, vocabulary = request.prompt, self.weights.context, self.weights.model.config.vocab_size
        if not prompt:
            return "the prompt is empty"
        if not 0 <= min(prompt) <= max(prompt) < vocabulary:
            return f"the prompt holds token {max(prompt)} or {min(prompt)}; this model knows 0 to {vocabulary - 1}"
        if request.max_tokens < 1:
            return f"max_tokens must be 1 or greater, got {request.max_tokens}"
        if len(prompt) + (request.max_tokens if request.samples else 0) > context:
            return (
                f"a prompt of {len(prompt)} tokens and max_tokens {request.max_tokens} exceed the context of {context}"
            )
        return None

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

    get_base_model_async = started(get_base_model)
