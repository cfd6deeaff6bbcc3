"""The cookbook's two loops over a toy task, for the tests of the local backend; run as a program, in a fresh process.

python tests/cookbook_loops.py MODEL ROOT UPDATES
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chz
import tinker
from tinker_cookbook.rl import train as rl
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
from tinker_cookbook.supervised import train as supervised
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder

from lib.backends import local, rollout_key
from lib.backends.tokenizer import lock_tokenizer
from tests.small_models import END, VOCABULARY


class Killed(Exception):
    """Stands for whatever ends a process in the middle of a run."""


class Lessons(SupervisedDataset):
    """Counting upwards from a random word; `die_at` is the batch that never comes."""

    def __init__(self, die_at: int):
        self.die_at = die_at

    def __len__(self) -> int:
        return 100

    def get_batch(self, index: int) -> list[tinker.Datum]:
        if index == self.die_at:
            raise Killed
        rng = random.Random(index)
        data = []
        for _ in range(6):
            text = [10 + (rng.randrange(100) + i) % 100 for i in range(rng.randint(5, 20))]
            weights = [0.0, 0.0] + [1.0] * (len(text) - 3)
            inputs: Any = {"target_tokens": text[1:], "weights": weights}
            data.append(tinker.Datum(model_input=tinker.ModelInput.from_ints(text[:-1]), loss_fn_inputs=inputs))
        return data

    def set_epoch(self, seed: int = 0) -> None:
        """One epoch only."""


@chz.chz
class LessonsBuilder(SupervisedDatasetBuilder):
    die_at: int

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        return Lessons(self.die_at), None


class EvenWords(Env):
    """Two turns; the reward is the share of even words."""

    def __init__(self, prompt: list[int], key: str):
        self.text, self.key, self.turns = prompt, key, 0

    async def initial_observation(self) -> Any:
        rollout_key.set(self.key)
        return tinker.ModelInput.from_ints(self.text), [END]

    async def step(self, action: Any, *, extra: Any = None) -> StepResult:
        self.turns += 1
        self.text = [*self.text, *action, 9]
        await asyncio.sleep(0.001 * random.random())  # another order of arrival in every run
        return StepResult(
            reward=sum(t % 2 == 0 for t in action) / len(action),
            episode_done=self.turns == 2,
            next_observation=tinker.ModelInput.from_ints(self.text),
            next_stop_condition=[END],
        )


class Group(EnvGroupBuilder):
    def __init__(self, number: int):
        self.number = number

    async def make_envs(self) -> Sequence[Env]:
        rng = random.Random(self.number)
        prompt = [rng.randrange(1, VOCABULARY) for _ in range(5)]
        return [EvenWords(prompt, f"{self.number}/{i}") for i in range(4)]


class Practice(RLDataset):
    def __init__(self, die_at: int):
        self.die_at = die_at

    def __len__(self) -> int:
        return 100

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        if index == self.die_at:
            raise Killed
        return [Group(index * 3 + i) for i in range(3)]


@chz.chz
class PracticeBuilder(RLDatasetBuilder):
    die_at: int

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return Practice(self.die_at), None


def teach(model: Path, root: Path, updates: int, die_at: int) -> None:
    """supervised/train.py up to so many steps, a checkpoint every second one."""
    config = supervised.Config(
        log_path=str(root / "supervised"),
        model_name=str(model),
        recipe_name="test",
        renderer_name="role_colon",
        dataset_builder=LessonsBuilder(die_at=die_at),
        learning_rate=1e-3,
        lr_schedule="constant",
        save_every=2,
        eval_every=0,
        max_steps=updates,
    )
    asyncio.run(supervised.main(config))


def practise(model: Path, root: Path, updates: int, die_at: int, rolling_save_every: int = 0) -> None:
    """rl/train.py likewise."""
    config = rl.Config(
        log_path=str(root / "rl"),
        model_name=str(model),
        recipe_name="test",
        renderer_name="role_colon",
        dataset_builder=PracticeBuilder(die_at=die_at),
        learning_rate=1e-3,
        max_tokens=12,
        max_steps=updates,
        save_every=2,
        rolling_save_every=rolling_save_every,
        eval_every=0,
        remove_constant_reward_groups=True,
        compute_post_kl=True,
        num_groups_to_log=0,
        rollout_json_export=False,
    )
    asyncio.run(rl.main(config))


def run(model: Path, root: Path, updates: int, die_at: int = -1) -> None:
    """Both loops, each to its end or to the batch at which it dies."""
    lock_tokenizer(str(model))
    with local.serving(root / "tinker", seed=5):
        for loop in (teach, practise):
            with contextlib.suppress(Killed):
                loop(model, root, updates, die_at)


def final_weights(root: Path, loop: str) -> bytes:
    """The bytes of the loop's final checkpoint."""
    last = json.loads((root / loop / "checkpoints.jsonl").read_text().splitlines()[-1])
    return b"".join(
        (root / "tinker" / (last[kind].removeprefix("tinker://") + ".safetensors")).read_bytes()
        for kind in ("state_path", "sampler_path")
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
