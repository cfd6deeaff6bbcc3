"""Tinker's data, results and errors as Fireworks' own, and back: two packages with the same names that don't know each other."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import tinker
from tinker import types

from lib.backends.futures import refused

try:
    from fireworks.training import sdk
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "the Fireworks backend needs the extra `fireworks`: see `make fireworks`", name=e.name
    ) from e

SCHEME = "fireworks"
Kind = Literal["weights", "sampler_weights"]
NAME_LENGTH = 17  # what an id that can be promoted leaves for the name of a checkpoint
UNIQUE_LENGTH = 7  # hexadecimal digits of it


@dataclass(frozen=True)
class Checkpoint:
    """Where saved weights lie, with all that another process needs to load, sample or promote them.

    As text, the path that the loop keeps: fireworks://<session>/<kind>/<account>/<run>/<name>?base_model=<name>
    """

    session: str
    kind: Kind
    path: str  # as the service gave it: <account>/<run>/<name>
    base_model: str

    def __str__(self) -> str:
        return f"{SCHEME}://{self.session}/{self.kind}/{self.path}?base_model={quote(self.base_model, safe='/')}"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def session_name(self) -> str:
        """The session's name as a resource, by which checkpoints are listed."""
        return f"accounts/{self.path.partition('/')[0]}/trainingSessions/{self.session}"

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Checkpoint:
        """Raises tinker.TinkerError for a text that is no path, or one of the other kind."""
        parts = urlsplit(text)
        found, _, path = parts.path.lstrip("/").partition("/")
        base_model = parse_qs(parts.query).get("base_model")
        if parts.scheme != SCHEME or found not in get_args(Kind) or not path or not base_model:
            raise refused(
                f"{text!r} is no checkpoint of Fireworks: expected {SCHEME}://<session>/<kind>/<path>?base_model=..."
            )
        if found != kind:
            use = {"weights": "training starts from a path of save_state",
                   "sampler_weights": "sampling needs a path of save_weights_for_sampler"}  # fmt: skip
            raise refused(f"{text} holds {found}: {use[kind]}")
        return cls(parts.netloc, kind, path, base_model[0])


def legal(name: str, run: str) -> str:
    """A checkpoint's name as the service takes it: a DNS label of at most NAME_LENGTH characters, another in every run.

    A run that was resumed is another run for the service, so that no name comes twice in one study.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: NAME_LENGTH - UNIQUE_LENGTH - 1].rstrip("-")
    unique = hashlib.sha256(f"{run}/{name}".encode()).hexdigest()[:UNIQUE_LENGTH]
    return f"{readable}-{unique}".lstrip("-")


def model_input(given: types.ModelInput) -> sdk.ModelInput:
    """Raises ValueError for anything but tokens."""
    return sdk.ModelInput.from_ints(given.to_ints())


def datum(given: types.Datum) -> sdk.Datum:
    inputs = {
        name: sdk.TensorData(data=tensor.to_numpy(), dtype=tensor.dtype, shape=tensor.shape)
        for name, tensor in given.loss_fn_inputs.items()
    }
    return sdk.Datum(model_input=model_input(given.model_input), loss_fn_inputs=inputs)


def loss(name: str) -> str:
    """Raises ValueError for a loss that only Tinker knows."""
    known = get_args(sdk.types.LossFnType)
    if name not in known:
        raise ValueError(f"loss {name!r} isn't known to Fireworks; use one of {', '.join(known)}")
    return name


def adam_params(given: Any) -> sdk.AdamParams:
    """With norms of gradients asked for, which the service leaves out otherwise. Raises ValueError for another optimiser."""
    if not isinstance(given, types.AdamParams):
        raise ValueError(f"optim_step needs AdamParams, got {given!r}: Fireworks trains with AdamW only")
    return sdk.AdamParams(**given.model_dump(), emit_grad_norm_metrics="basic")


def sampling_params(given: types.SamplingParams) -> sdk.SamplingParams:
    """Raises ValueError for what Fireworks would silently take for something else."""
    if given.max_tokens is None:
        raise ValueError("max_tokens must be given: Fireworks cuts an answer at 1024 where it isn't")
    stop = [given.stop] if isinstance(given.stop, str) else given.stop
    if stop is not None and not stop:
        raise ValueError("stop=[] would have to go on after the end of text; Fireworks can't: leave stop out")
    return sdk.SamplingParams(**{**given.model_dump(), "stop": stop})


def forward_backward_output(given: sdk.ForwardBackwardOutput) -> types.ForwardBackwardOutput:
    """Raises tinker.TinkerError where log-probabilities are missing, without which no loop goes on."""
    if any("logprobs" not in output for output in given.loss_fn_outputs):
        raise refused("the service gave a loss without log-probabilities of the targets: use forward for them")
    outputs = [
        {name: types.TensorData.from_numpy(np.array(tensor.to_numpy())) for name, tensor in output.items()}
        for output in given.loss_fn_outputs
    ]
    return types.ForwardBackwardOutput(
        loss_fn_output_type=given.loss_fn_output_type, loss_fn_outputs=outputs, metrics=dict(given.metrics)
    )


def sample_response(given: sdk.types.SampleResponse, ids: Iterator[str]) -> types.SampleResponse:
    """`ids` names the sequences, which have no names on Fireworks."""
    sequences = [
        types.SampledSequence(
            stop_reason=one.stop_reason,
            sequence_id=next(ids),
            tokens_np=np.asarray(one.tokens, np.int32),
            logprobs_np=_logprobs(one.logprobs),
        )
        for one in given.sequences
    ]
    return types.SampleResponse(sequences=sequences, prompt_logprobs_np=_logprobs(given.prompt_logprobs))


def _logprobs(given: Sequence[float | None] | None) -> np.ndarray | None:
    return None if given is None else np.array([np.nan if p is None else p for p in given], np.float32)


@contextlib.contextmanager
def tinkers_errors() -> Iterator[None]:
    """Fireworks' errors leave the block as Tinker's, by which the loop knows what to do; others as they are."""
    try:
        yield
    except sdk.APIStatusError as e:
        kind = getattr(tinker, type(e).__name__, tinker.APIStatusError)
        raise kind(e.message, response=e.response, body=e.body) from e
    except sdk.APITimeoutError as e:
        raise tinker.APITimeoutError(e.request) from e
    except sdk.APIConnectionError as e:
        raise tinker.APIConnectionError(e.request, e.message) from e
    except sdk.RequestFailedError as e:
        raise tinker.RequestFailedError(e.message, e.request_id, types.RequestErrorCategory(e.category.value)) from e
    except sdk.TrainingError as e:
        raise tinker.TinkerError(str(e)) from e
