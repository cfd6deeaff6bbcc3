"""Hands each update's figures to TensorBoard or Weights & Biases, from what a run has written: during it or after, and the
run itself knows nothing of it.

Weights & Biases gets them by the cookbook's own logger, in its offline form unless WANDB_MODE says otherwise; `wandb sync`
sends them on. Both packages are optional. A seed is a run of its own there, since steps may only go up.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinker_cookbook.utils import ml_log

LOGGED = ("reward", "strict", "signal", "masked", "rollouts", "tokens")


class LoggerMissing(ValueError):
    """The package that was asked for isn't installed; the message says how to get it."""


class TensorBoard(ml_log.Logger):
    """The cookbook has no logger for it."""

    def __init__(self, folder: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=0)  # an earlier look is replaced

    def log_hparams(self, config: Any) -> None:
        """The plan holds them."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Sink:
    """Takes a run's status as often as there is one, and logs each update once, when it is over. `make`: a seed's logger."""

    def __init__(self, make: Callable[[int], ml_log.Logger]):
        self._make = make
        self._logger: ml_log.Logger | None = None
        self._seed: int | None = None
        self._taken: set[tuple[int, int]] = set()

    def take(self, found: dict[str, Any]) -> None:
        updates = found["updates"]
        latest = {line["seed"]: line["update"] for line in updates}
        for line in updates:
            key = line["seed"], line["update"]
            going_on = found["stage"] == f"train, seed {line['seed']}" and line["update"] == latest[line["seed"]]
            if going_on or key in self._taken:
                continue
            self._taken.add(key)
            self._of(line["seed"]).log_metrics(
                {name: line[name] for name in LOGGED if line[name] is not None}, line["update"]
            )

    def _of(self, seed: int) -> ml_log.Logger:
        if self._logger is None or seed != self._seed:
            self.close()
            self._logger, self._seed = self._make(seed), seed
        return self._logger

    def close(self) -> None:
        if self._logger is not None:
            self._logger.close()


def sinks(run: str, tensorboard: Path | None, wandb: Path | None) -> list[Sink]:
    """The sinks that were asked for, by their folders. Raises LoggerMissing before anything is written."""
    found = []
    if tensorboard is not None:
        _needed("tensorboard")
        found.append(Sink(lambda seed: TensorBoard(tensorboard / f"{run}-seed-{seed}")))
    if wandb is not None:
        _needed("wandb")
        os.environ.setdefault("WANDB_MODE", "offline")
        wandb.mkdir(parents=True, exist_ok=True)
        found.append(Sink(lambda seed: ml_log.WandbLogger(run, log_dir=wandb, wandb_name=f"{run}-seed-{seed}")))
    return found


def _needed(package: str) -> None:
    spec = importlib.util.find_spec(package)
    # without an origin it is a folder of that name, such as Weights & Biases makes
    if spec is None or spec.origin is None:
        raise LoggerMissing(
            f"the package {package} isn't installed: `uv pip install {package}` adds it to this environment"
        )
