"""Checkpoints on disk under `tinker://` paths: written whole or not at all, the same bytes for the same weights.

    <root>/<run>/run.json                              what was trained: base model, rank, the caller's metadata
    <root>/<run>/weights/<name>.safetensors            trainable parameters and optimiser state
    <root>/<run>/sampler_weights/<name>.safetensors    trainable parameters only

A run is `run-0000`, `run-0001`, ... in the order in which clients were created under this root: nothing random and no
time goes into a file. The base model's folder is stored relative to the root, so that a moved project still resumes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tinker import types
from torch import Tensor

from lib.files import write_json

STATE, SAMPLER = "weights", "sampler_weights"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What a training client trains."""

    base_model: str
    base_digest: str
    rank: int | None  # None: all parameters
    seed: int
    user_metadata: dict[str, str]


class Checkpoints:
    """All runs under one root folder."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    def new_run(self, run: Run) -> str:
        """Claim the next free id; making the folder is atomic, so two processes never share one."""
        self.root.mkdir(parents=True, exist_ok=True)
        number = len(list(self.root.glob("run-*")))
        while True:
            run_id = f"run-{number:04d}"
            try:
                (self.root / run_id).mkdir()
                break
            except FileExistsError:
                number += 1
        self._describe(run_id, run)
        return run_id

    def _describe(self, run_id: str, run: Run) -> None:
        base = Path(run.base_model)
        stored = os.path.relpath(base.resolve(), self.root) if base.is_dir() else run.base_model
        write_json(self.root / run_id / "run.json", {**asdict(run), "base_model": stored})

    def copy(self, path: str, other: Checkpoints, run_id: str) -> str:
        """Put a checkpoint under another root, as one of run `run_id` there; returns its path there.

        Raises ValueError where there is none.
        """
        run, kind, name = self.parse(path)
        file = self.file(path)
        other._describe(run_id, self.run(run))
        target = other.root / run_id / kind / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        return f"tinker://{run_id}/{kind}/{name}"

    def run(self, run_id: str) -> Run:
        """Raises ValueError for an unknown run."""
        file = self.root / run_id / "run.json"
        if not NAME.fullmatch(run_id) or not file.is_file():
            raise ValueError(f"no training run {run_id!r} under {self.root}; runs there: {self.run_ids() or 'none'}")
        run = Run(**json.loads(file.read_text()))
        base = (self.root / run.base_model).resolve()
        return Run(**{**asdict(run), "base_model": str(base) if base.is_dir() else run.base_model})

    def run_ids(self) -> list[str]:
        return sorted(p.parent.name for p in self.root.glob("run-*/run.json"))

    def describe(self, run_id: str) -> types.TrainingRun:
        run = self.run(run_id)
        return types.TrainingRun(
            training_run_id=run_id,
            base_model=run.base_model,
            model_owner="local",
            is_lora=run.rank is not None,
            lora_rank=run.rank,
            last_request_time=_changed(self.root / run_id),
            user_metadata=run.user_metadata,
        )

    def list(self, run_id: str) -> list[types.Checkpoint]:
        """The run's checkpoints by path."""
        self.run(run_id)
        kinds = {STATE: "training", SAMPLER: "sampler"}
        return [
            types.Checkpoint(
                checkpoint_id=f"{kind}/{file.stem}",
                checkpoint_type=kinds[kind],  # type: ignore[arg-type]  # one of the two literals
                time=_changed(file),
                tinker_path=f"tinker://{run_id}/{kind}/{file.stem}",
                size_bytes=file.stat().st_size,
            )
            for kind in kinds
            for file in sorted((self.root / run_id / kind).glob("*.safetensors"))
        ]

    def parse(self, path: str) -> tuple[str, str, str]:
        """(run, kind, name) of a tinker:// path. Raises ValueError for any other text."""
        if not path.startswith("tinker://"):
            raise ValueError(f"model_path must start with 'tinker://', got {path!r}")
        parts = path.removeprefix("tinker://").split("/")
        if len(parts) != 3 or parts[1] not in (STATE, SAMPLER) or not all(NAME.fullmatch(p) for p in parts):
            raise ValueError(f"{path!r} is no checkpoint: expected tinker://<run>/{STATE} or {SAMPLER}/<name>")
        return parts[0], parts[1], parts[2]

    def file(self, path: str) -> Path:
        """Where a checkpoint lies. Raises ValueError where there is none."""
        run_id, kind, name = self.parse(path)
        file = self.root / run_id / kind / f"{name}.safetensors"
        if not file.is_file():
            run = self.root / run_id
            there = sorted(f"{p.parent.name}/{p.stem}" for p in run.glob("*/*.safetensors"))
            raise ValueError(f"no checkpoint {path} under {self.root}; in {run_id}: {', '.join(there) or 'none'}")
        return file

    def write(self, run_id: str, kind: str, name: str, tensors: dict[str, Tensor], overwrite: bool) -> str:
        """Write beside the target, then rename. Raises ValueError for a bad or taken name, OSError for a full disk."""
        if not NAME.fullmatch(name):
            raise ValueError(f"checkpoint name {name!r}: use letters, digits, '.', '_' and '-'")
        path, file = f"tinker://{run_id}/{kind}/{name}", self.root / run_id / kind / f"{name}.safetensors"
        if file.exists() and not overwrite:
            raise ValueError(f"{path} exists already; choose another name, or overwrite=True")
        file.parent.mkdir(exist_ok=True)
        part = file.with_suffix(".part")
        try:
            save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, part)
            os.replace(part, file)
        except (OSError, SafetensorError) as e:
            part.unlink(missing_ok=True)
            raise OSError(f"can't write {path} to {file}: {e}; is the disk full?") from e
        return path

    def read(self, path: str, use: Callable[[dict[str, Tensor]], T]) -> T:
        """Give a checkpoint's tensors to `use`. Raises ValueError for a missing, damaged or unfitting file."""
        file = self.file(path)
        try:
            with safe_open(file, framework="pt") as stored:
                tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118  # no mapping
        except (SafetensorError, OSError) as e:
            raise ValueError(f"checkpoint {path} is damaged ({file}: {e}); remove it and use an earlier one") from e
        try:
            return use(tensors)
        except (KeyError, RuntimeError) as e:
            raise ValueError(f"checkpoint {path} doesn't fit its base model: {e}") from e


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
