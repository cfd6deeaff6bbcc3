"""Gradients and optimiser steps of one model in training."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tinker import types
from torch import Tensor

from lib.backends import losses
from lib.backends.models import Weights, snapshot, trainable
from lib.settings import Local


class Trainer:
    """A model, its gradients and its AdamW state.

    `rank`: of a LoRA adapter, or None to train all parameters. `grad_clip_norm`: used for steps whose AdamParams ask
    for no clipping (the cookbook never asks, and raw norms of a loss summed over tokens are in the hundreds); 0 for
    none. `how`: says how many tokens, padding included, a micro-batch has at most, and what is kept for the gradient.
    """

    def __init__(self, base: Weights, rank: int | None, seed: int, grad_clip_norm: float, how: Local):
        self.base, self.rank, self.grad_clip_norm, self.how = base, rank, grad_clip_norm, how
        self.model = trainable(base, rank, seed, how.checkpointing)
        self.parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), fused=True)
        self.device = next(iter(self.parameters.values())).device
        self._since_step = Counter[str]()  # loss and tokens

    def run(
        self, data: list[types.Datum], loss_fn: str, config: losses.Config | None, backward: bool
    ) -> types.ForwardBackwardOutput:
        """Losses of all data, their gradients added to those already there if `backward`.

        Log-probabilities of the targets are returned at every position by a forward pass; with gradients they are 0
        where the loss doesn't look. Raises ValueError for data that the loss doesn't fit.
        """
        losses.check(loss_fn, config or {}, data)
        outputs: list[Any] = [None] * len(data)
        total = 0.0
        with torch.set_grad_enabled(backward):
            for batch in _micro_batches(data, self.how.tokens_trained_at_once):
                logprobs, inputs = self._logprobs([data[i] for i in batch], everywhere=not backward)
                loss = torch.zeros((), device=self.device)
                for row, i, values in zip(logprobs, batch, inputs, strict=True):
                    row = row[: data[i].model_input.length]
                    loss = loss + losses.LOSSES[loss_fn][0](row, values, config or {})
                    outputs[i] = {"logprobs": types.TensorData.from_torch(row.detach().cpu().clone())}
                if backward:
                    loss.backward()
                total += float(loss.detach())
        if backward:
            self._since_step.update({"optim/loss": total, "optim/tokens": sum(d.model_input.length for d in data)})
        return types.ForwardBackwardOutput(
            loss_fn_output_type="ArrayRecord", loss_fn_outputs=outputs, metrics={"loss:sum": total}
        )

    def _logprobs(self, data: list[types.Datum], everywhere: bool) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Log-probabilities of the targets [batch, longest], and each datum's loss inputs on the device.

        Shorter rows are padded on the right, where a causal model can't look: no attention mask is needed.
        """
        inputs = [{k: v.to_torch().to(self.device) for k, v in d.loss_fn_inputs.items()} for d in data]
        shape = len(data), max(d.model_input.length for d in data)
        tokens, targets = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long, device=self.device)
        wanted = torch.zeros(shape, dtype=torch.bool, device=self.device)
        for row, (datum, values) in enumerate(zip(data, inputs, strict=True)):
            length = datum.model_input.length
            tokens[row, :length] = torch.tensor(datum.model_input.to_ints())
            targets[row, :length] = values["target_tokens"]
            wanted[row, :length] = True if everywhere else losses.looked_at(values)
        # a hook before the output layer: no logits where no loss looks, whatever the architecture does after it
        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda _, args: (args[0][wanted],))
        try:
            logits = self.model(input_ids=tokens.to(self.device), use_cache=False).logits.float()
        finally:
            hook.remove()
        flat = -F.cross_entropy(logits.view(-1, logits.shape[-1]), targets[wanted], reduction="none")
        return torch.zeros(shape, device=self.device).masked_scatter(wanted, flat), inputs

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        """One AdamW step; metrics: the gradient's norm before clipping, and the loss and tokens that it came from."""
        for group in self.optimizer.param_groups:
            group.update(
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
            )
        limit = params.grad_clip_norm or self.grad_clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        metrics = {"optim/grad_norm": float(norm), **self._since_step}
        self._since_step.clear()
        return types.OptimStepResponse(metrics=metrics)

    def snapshot(self) -> Weights:
        return snapshot(self.model, self.base)

    def weights(self) -> dict[str, Tensor]:
        """The trainable parameters by name, for a checkpoint."""
        return {f"model.{name}": p for name, p in self.parameters.items()}

    def state(self) -> dict[str, Tensor]:
        """The trainable parameters and the optimiser's moments and step counts."""
        moments = {
            f"optimizer.{key}.{name}": value
            for name, p in self.parameters.items()
            for key, value in self.optimizer.state.get(p, {}).items()
        }
        return self.weights() | moments

    def load(self, tensors: dict[str, Tensor], optimizer: bool) -> None:
        """Take over a checkpoint. Raises KeyError or RuntimeError where its tensors aren't this model's."""
        stored = {n.removeprefix("model.") for n in tensors if n.startswith("model.")}
        if stored != set(self.parameters):
            raise KeyError(f"other parameters: {sorted(stored ^ set(self.parameters))[:4]} ...")
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(tensors[f"model.{name}"])
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.state.clear()
        if not optimizer:
            return
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, field, name = key.split(".", 2)
                p = self.parameters[name]
                self.optimizer.state[p][field] = value.to(p.device)


def _micro_batches(data: list[types.Datum], tokens_at_once: int) -> list[list[int]]:
    """Indices of the data by micro-batch, ordered by content.

    Rollouts finish in an order that differs from run to run, and float32 sums depend on their order: sorted by
    length, tokens and targets, the same data give the same gradient to the last bit.
    """

    def content(i: int) -> tuple[Any, ...]:
        inputs = data[i].loss_fn_inputs
        return (
            data[i].model_input.length,
            data[i].model_input.to_ints(),
            [np.ascontiguousarray(inputs[key].to_numpy()).tobytes() for key in sorted(inputs)],
        )

    batches: list[list[int]] = []
    for i in sorted(range(len(data)), key=content):
        length = data[i].model_input.length  # the longest so far
        if batches and length * (len(batches[-1]) + 1) <= tokens_at_once:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
