"""A tokenizer that several threads may use at once, under the name by which the cookbook asks for it.

The cookbook renders conversations in threads, and some renderers switch `split_special_tokens`, which transformers
writes into the shared Rust tokenizer: the first busy batch then dies with "RuntimeError: Already borrowed". A lock
prevents it; a memo makes the lock cheap, since an agent's conversations repeat the same strings.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from tinker_cookbook.tokenizer_utils import register_tokenizer

MEMO_SIZE = 200_000  # strings; beyond that the memo starts anew


class _Locked:
    """Mixed in before a tokenizer's own class; the lock and the memo are set by `_load`."""

    _lock: threading.RLock
    _memo: dict[Any, list[int]]

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            return super().__call__(*args, **options)  # type: ignore[misc]

    def encode(self, text: Any, *args: Any, **options: Any) -> list[int]:
        if not isinstance(text, str):
            with self._lock:
                return super().encode(text, *args, **options)  # type: ignore[misc]
        key = (text, args, tuple(sorted(options.items())))
        tokens = self._memo.get(key)
        if tokens is None:
            with self._lock:
                tokens = super().encode(text, *args, **options)  # type: ignore[misc]
                if len(self._memo) >= MEMO_SIZE:
                    self._memo.clear()
                self._memo[key] = tokens
        return list(tokens)

    def decode(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            return super().decode(*args, **options)  # type: ignore[misc]


@cache
def _load(path: str) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    plain = type(tokenizer)
    tokenizer._lock, tokenizer._memo = threading.RLock(), {}
    tokenizer.__class__ = type(plain.__name__, (_Locked, plain), {})
    return tokenizer


def lock_tokenizer(path: str, name: str | None = None) -> Any:
    """Load the tokenizer of a Hugging Face folder once and let the cookbook's `get_tokenizer(name)` find it.

    name: of the model that it belongs to, by which the cookbook asks; the path where there is none. Returns the tokenizer: the usual one, with `encode`, `decode` and calls under a lock. Raises OSError where the
    folder has none.
    """
    tokenizer = _load(path)
    register_tokenizer(name or path, lambda: _load(path))
    return tokenizer
