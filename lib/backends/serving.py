"""Points `tinker.ServiceClient` at the backend that a run's settings name, so that nothing else knows which one it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import tinker

from lib.backends import local, meter, remote
from lib.backends.tokenizer import lock_tokenizer
from lib.settings import Settings


class BackendMissing(RuntimeError):
    """A hosted backend can't be used; the message says what it needs."""


@contextmanager
def serving(settings: Settings, work: Path, seed: int) -> Iterator[None]:
    """Inside the block `tinker.ServiceClient` is the run's backend.

    work: folder of the local backend's checkpoints; its name says for which step money is spent. seed: of the draws; a
    hosted backend draws by its own.

    Raises BackendMissing where a hosted backend's package isn't installed, and what the meter raises where nobody has
    allowed to spend.
    """
    if settings.local is not None:
        with local.serving(work, seed, settings.train.training, settings.train.grad_clip_norm, settings.local):
            yield
        return
    with remote.Book(settings.run_dir, work.name, settings.train.backend, settings.train.base_url) as book:
        client = _metered(settings, work.name, book)  # first of all: what nobody has allowed needs no tokenizer
        lock_tokenizer(str(settings.base_dir), settings.base_model)
        usual = tinker.ServiceClient
        tinker.ServiceClient = client  # type: ignore[misc]
        try:
            yield
        finally:
            tinker.ServiceClient = usual  # type: ignore[misc]


def _metered(settings: Settings, step: str, book: remote.Book) -> Any:
    """The hosted backend's client, which pays through the run's ledger, and notes in the book what it creates."""
    backend = settings.train.backend
    client: Callable[..., Any] = tinker.ServiceClient
    if backend != "tinker":
        client = _needed(f"lib.backends.{backend}", settings).ServiceClient
    if settings.train.base_url:
        client = partial(client, base_url=settings.train.base_url)
    return meter.metered(
        remote.noted(client, book),
        provider=backend,
        model=settings.base_model,
        ledger=settings.run_dir / "spend" / "ledger.jsonl",
        stage=step,
        forecast=partial(_forecast, settings),
    )


def _forecast(settings: Settings) -> str:
    """For the message to somebody who hasn't allowed any spending; no result comes from it, so no step depends on it."""
    said: str = import_module("lib.forecast").in_words(settings, settings.train.backend, settings.base_model)
    return said


def _needed(module: str, settings: Settings) -> Any:
    """Imported only where a run asks for it: its package is optional, and others have no use for it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise BackendMissing(
            f"train.backend = {settings.train.backend!r} needs the module {error.name!r}, which isn't there: install what "
            "it belongs to (an optional extra of pyproject.toml), or set train.backend to local"
        ) from None


def copy_checkpoints(settings: Settings, root: Path, paths: list[str], other: Path) -> list[str]:
    """Copy a run's checkpoints from one of the local backend's folders to another; returns their paths there.

    A host keeps its checkpoints itself, under the same paths wherever they are asked for. Raises tinker.TinkerError for a
    missing one.
    """
    return paths if settings.local is None else local.copy_checkpoints(root, paths, other)
