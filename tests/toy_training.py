"""The training loop over cookbook_loops' toy task, on the local backend, with a record of what is sent to it; for the tests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.rl.types import Env, Metrics, Trajectory, TrajectoryGroup

from lib import updates
from lib.backends import local, sampling_client, training_client
from lib.settings import Named, Settings, load
from tests import cookbook_loops
from tests.conftest import ROOT

GROUPS = 3  # an update, as in cookbook_loops.Practice


def settings_for(model: str, steps: int, **faults: Any) -> Settings:
    """The miniature's with a model that exists, without waits."""
    chosen = load(ROOT / "profiles" / "miniature.yaml")
    faults = {"wait": 0.0, "least_rollouts": 2, **faults}
    train = dataclasses.replace(
        chosen.train,
        updates=steps,
        learning_rate=1e-3,
        dev_every=2,
        faults=dataclasses.replace(chosen.train.faults, **faults),
    )
    agent = dataclasses.replace(chosen.agent, max_tokens=12, renderer="role_colon")
    named = Named(name=model, tokenizer=model, context=256)
    return dataclasses.replace(chosen, model=named, cold_start=None, agent=agent, train=train)


class Group(cookbook_loops.Group):
    """The cookbook loops' group, as this loop wants it; `kept` and `lost` name rollouts."""

    def __init__(self, number: int, first: int = 0, size: int = 4, record: dict[str, list[str]] | None = None):
        super().__init__(number)
        self.first, self.size = first, size
        self.record = {"kept": [], "lost": []} if record is None else record

    async def make_envs(self) -> Sequence[Env]:
        [prompt] = {tuple(env.text) for env in await super().make_envs() if isinstance(env, cookbook_loops.EvenWords)}
        samples = range(self.first, self.first + self.size)
        return [cookbook_loops.EvenWords(list(prompt), f"{self.number}/{i}") for i in samples]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        self.record["kept"] += [env.key for env in env_group if isinstance(env, cookbook_loops.EvenWords)]
        return await super().compute_group_rewards(trajectory_group, env_group)

    def more(self, size: int) -> Group:
        return Group(self.number, self.first + self.size, size, self.record)

    def further(self, made: TrajectoryGroup) -> int:
        return 0

    def lost(self, env: Env, fault: str) -> None:
        assert isinstance(env, cookbook_loops.EvenWords)
        self.record["lost"].append(env.key)


class Practice:
    """cookbook_loops.Practice as a source, with one record for all of its groups."""

    def __init__(self) -> None:
        self.record: dict[str, list[str]] = {"kept": [], "lost": []}

    def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
        return [] if rolled else [Group(update * GROUPS + i, record=self.record) for i in range(GROUPS)]


async def no_look(client: Any, update: int) -> None:
    """Nobody looks."""


def practise(settings: Settings, root: Path, source: updates.Source | None = None, **options: Any) -> updates.Kept:
    """`updates.run` on a local service, to its end or its error."""
    with local.serving(root / "tinker", seed=5):
        return asyncio.run(updates.run(settings, root, source or Practice(), no_look, **options))


def weights(root: Path, kept: updates.Kept) -> bytes:
    """The bytes of the last state and of the last weights for sampling."""
    assert kept.state is not None and kept.sampler is not None
    files = [root / "tinker" / (path.removeprefix("tinker://") + ".safetensors") for path in (kept.state, kept.sampler)]
    return b"".join(file.read_bytes() for file in files)


@dataclasses.dataclass
class Sent:
    """What reached the backend: data of each pass with its loss, the optimiser's parameters, and how often was sampled."""

    passes: list[Any] = dataclasses.field(default_factory=list)
    steps: list[Any] = dataclasses.field(default_factory=list)
    samples: int = 0


def record(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Notes what is sent from now on."""
    sent = Sent()
    train, sample = training_client.TrainingClient, sampling_client.SamplingClient
    passed, stepped, sampled = train.forward_backward_async, train.optim_step_async, sample.sample_async

    async def forward_backward(self: Any, data: Any, loss_fn: str, loss_fn_config: Any = None) -> Any:
        inputs = [{k: (v.dtype, v.tolist()) for k, v in d.loss_fn_inputs.items()} for d in data]
        sent.passes.append(
            (loss_fn, loss_fn_config, [(d.model_input.to_ints(), i) for d, i in zip(data, inputs, strict=True)])
        )
        return await passed(self, data, loss_fn, loss_fn_config)

    async def optim_step(self: Any, *args: Any, **options: Any) -> Any:
        sent.steps.append((args, options))
        return await stepped(self, *args, **options)

    async def sample_async(self: Any, **asked: Any) -> Any:
        sent.samples += 1
        return await sampled(self, **asked)

    monkeypatch.setattr(train, "forward_backward_async", forward_backward)
    monkeypatch.setattr(train, "optim_step_async", optim_step)
    monkeypatch.setattr(sample, "sample_async", sample_async)
    return sent
