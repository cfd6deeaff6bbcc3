"""What all clients of one `serving` block share: files, base models, a thread for training and one for sampling."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lib.backends.checkpoints import STATE, Checkpoints, Run
from lib.backends.futures import API, refused
from lib.backends.models import Weights, load_base, snapshot
from lib.backends.sampling_client import SamplingClient
from lib.backends.training import Trainer
from lib.backends.training_client import TrainingClient
from lib.backends.worker import SamplingWorker
from lib.settings import Local

CACHE_BYTES = 128 * 2**20  # of past tokens' keys and values: about 250 conversations with the default model


class Service:
    """Makes the clients, and runs their requests."""

    def __init__(self, root: Path, seed: int, training: str, grad_clip_norm: float, how: Local):
        if training not in ("full", "lora"):
            raise ValueError(f"training {training!r}: use 'full' or 'lora'")
        self.checkpoints = Checkpoints(root)
        self.seed, self.training, self.grad_clip_norm, self.how = seed, training, grad_clip_norm, how
        self.worker = SamplingWorker(CACHE_BYTES, how.tokens_sampled_at_once)
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="training", initializer=torch.set_num_threads, initargs=(1,)
        )
        self.base = cache(lambda path: load_base(path, how.device, how.dtype))

    def submit(self, function: Callable[..., Any], *args: Any) -> API[Any]:
        """Run in the training thread, in order of submission. ValueError and OSError become the SDK's error."""

        def run() -> Any:
            try:
                return function(*args)
            except (ValueError, OSError) as e:
                raise refused(str(e)) from e

        return API(self._thread.submit(run))

    def close(self) -> None:
        self.worker.close()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def new_trainer(
        self, base_model: str, rank: int, seed: int | None, user_metadata: dict[str, str] | None
    ) -> TrainingClient:
        base = self.base(base_model)
        run = Run(
            base_model,
            base.digest,
            rank if self.training == "lora" else None,
            self.seed if seed is None else seed,
            dict(user_metadata or {}),
        )
        return self._client(run, base)

    def resumed_trainer(self, path: str, optimizer: bool, user_metadata: dict[str, str] | None) -> TrainingClient:
        """A new run that starts where the checkpoint's stood."""
        run_id, kind, _ = self.checkpoints.parse(path)
        if kind != STATE:
            raise ValueError(f"{path} holds weights for sampling; training starts from a path of save_state")
        self.checkpoints.file(path)
        old = self.checkpoints.run(run_id)
        base = self.base_of(old, path)
        client = self._client(Run(old.base_model, old.base_digest, old.rank, old.seed, dict(user_metadata or {})), base)
        self.checkpoints.read(path, lambda tensors: client.trainer.load(tensors, optimizer))
        return client

    def base_of(self, run: Run, path: str) -> Weights:
        """The base model of a checkpoint; an adapter fits only the very weights that it was trained on."""
        base = self.base(run.base_model)
        if run.rank is not None and base.digest != run.base_digest:
            raise ValueError(f"{path} is an adapter for other weights than those now in {run.base_model}")
        return base

    def _client(self, run: Run, base: Weights) -> TrainingClient:
        trainer = Trainer(base, run.rank, run.seed, self.grad_clip_norm, self.how)
        return TrainingClient(self, self.checkpoints.new_run(run), run, trainer)

    def sampler(self, model_path: str | None, base_model: str | None) -> SamplingClient:
        """Over a base model's weights, or a checkpoint's (either kind)."""
        if model_path is None:
            if base_model is None:
                raise ValueError("Either model_path or base_model must be provided")
            return SamplingClient(self, self.base(base_model))
        trainer = self.loaded(model_path)
        return SamplingClient(self, snapshot(trainer.model, trainer.base))

    def loaded(self, path: str) -> Trainer:
        """The model of a checkpoint of either kind, an adapter beside the weights."""
        run = self.checkpoints.run(self.checkpoints.parse(path)[0])
        self.checkpoints.file(path)
        base = self.base_of(run, path)
        trainer = Trainer(base, run.rank, run.seed, self.grad_clip_norm, self.how)
        self.checkpoints.read(path, lambda tensors: trainer.load(tensors, optimizer=False))
        return trainer
