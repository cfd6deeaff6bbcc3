"""The training losses, as Tinker's documentation defines them: every one a sum over tokens.

Formulas: https://tinker-docs.thinkingmachines.ai/tinker/losses (cross_entropy, importance_sampling, ppo, cispo).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from tinker import types
from torch import Tensor

Config = Mapping[str, float | str]
Inputs = Mapping[str, Tensor]


def cross_entropy(logprobs: Tensor, inputs: Inputs, config: Config) -> Tensor:
    return -(logprobs * inputs["weights"]).sum()


def importance_sampling(logprobs: Tensor, inputs: Inputs, config: Config) -> Tensor:
    return -((logprobs - inputs["logprobs"]).exp() * inputs["advantages"]).sum()


def ppo(logprobs: Tensor, inputs: Inputs, config: Config) -> Tensor:
    ratio = (logprobs - inputs["logprobs"]).exp()
    clipped = ratio.clamp(*_thresholds(config))
    return -torch.minimum(ratio * inputs["advantages"], clipped * inputs["advantages"]).sum()


def cispo(logprobs: Tensor, inputs: Inputs, config: Config) -> Tensor:
    ratio = (logprobs - inputs["logprobs"]).exp().clamp(*_thresholds(config)).detach()
    return -(ratio * logprobs * inputs["advantages"]).sum()


def _thresholds(config: Config) -> tuple[float, float]:
    return float(config.get("clip_low_threshold", 0.8)), float(config.get("clip_high_threshold", 1.2))


SUPERVISED = ("target_tokens", "weights")
POLICY = ("target_tokens", "logprobs", "advantages")
CLIPPED = ("clip_low_threshold", "clip_high_threshold")
# name -> (formula, the inputs that each datum must have, the settings it may have)
LOSSES: dict[str, tuple[Callable[[Tensor, Inputs, Config], Tensor], tuple[str, ...], tuple[str, ...]]] = {
    "cross_entropy": (cross_entropy, SUPERVISED, ()),
    "importance_sampling": (importance_sampling, POLICY, ()),
    "ppo": (ppo, POLICY, CLIPPED),
    "cispo": (cispo, POLICY, CLIPPED),
}


def check(name: str, config: Config, data: list[types.Datum]) -> None:
    """Raises ValueError for a loss, a setting or an input that this backend doesn't know or that doesn't fit."""
    if name not in LOSSES:
        raise ValueError(f"loss_fn {name!r} isn't supported by the local backend; use one of {', '.join(LOSSES)}")
    if not data:
        raise ValueError("No data provided")
    _, inputs, settings = LOSSES[name]
    if unknown := set(config) - set(settings):
        raise ValueError(f"loss_fn_config {sorted(unknown)}: {name} takes {list(settings) or 'no settings'}")
    for i, datum in enumerate(data):
        shapes = {key: list(value.to_numpy().shape) for key, value in datum.loss_fn_inputs.items()}
        length = datum.model_input.length
        if length == 0 or shapes != {key: [length] for key in inputs}:
            raise ValueError(
                f"datum {i}: {name} needs loss_fn_inputs {list(inputs)}, each of shape [{length}] as model_input"
                f" (and at least one token); got {shapes}"
            )


def looked_at(inputs: Inputs) -> Tensor:
    """Mask of the positions whose log-probability can change the loss: a weight, an advantage, or a sampled token.

    A sampled token whose advantage is 0 counts, since the cookbook compares its log-probability with the sampler's.
    """
    if "weights" in inputs:
        return inputs["weights"] != 0
    return (inputs["advantages"] != 0) | (inputs["logprobs"] != 0)
