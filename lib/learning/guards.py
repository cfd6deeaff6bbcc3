"""Who looks at an update before the next one: figures of what was rolled out, and limits that warn or stop a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lib.learning.objectives import Objective
from lib.updates import Update

Figures = dict[str, Any]


class Stopped(RuntimeError):
    """A guard stopped the run; the message says why, which state is kept, and how to go on."""


@dataclass(frozen=True)
class Limit:
    """A figure's limit: `beyond` returns the reason where it is passed, given the figures of all updates so far."""

    beyond: Callable[[Sequence[Figures]], str | None]
    action: Literal["warn", "stop"] = "warn"


class Watch:
    """A guard over all limits. What it measured stands in the update's figures as `watch/...`, which a killed run keeps."""

    def __init__(self, work: Path, objective: Objective, limits: Sequence[Limit]):
        raise NotImplementedError

    def __call__(self, update: Update) -> str | None:
        """Raises Stopped."""
        raise NotImplementedError
