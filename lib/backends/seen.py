"""Clients whose every call can be looked at: what a run would ask is counted so, and how busy a sampler was is measured so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lib.backends.futures import then

UNSENT = {
    "close",
    "get_tokenizer",
    "get_base_model",
    "get_console_url",
    "get_telemetry",
}  # answered by the client itself
GIVES_CLIENT = {
    "create_lora_training_client",
    "create_training_client_from_state",
    "create_training_client_from_state_with_optimizer",
    "create_sampling_client",
    "save_weights_and_get_sampling_client",
}

Look = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Seen:
    """A client whose calls go through `look(name, method, args, options)`, which makes them and returns what they return.

    Clients that a call gives are seen as well. What isn't sent anywhere, and what is no method, goes through as it is.
    """

    def __init__(self, client: Any, look: Look):
        self._client, self._look = client, look

    def __enter__(self) -> Seen:
        self._client.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._client.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        method, kind = getattr(self._client, name), name.removesuffix("_async")
        if kind == "create_rest_client":
            return lambda: Seen(method(), self._look)
        if name.startswith("_") or not callable(method) or kind in UNSENT:
            return method

        def call(*args: Any, **options: Any) -> Any:
            sent = self._look(name, method, args, options)
            return self._over(sent) if kind in GIVES_CLIENT else sent

        return call

    def _over(self, sent: Any) -> Any:
        if asyncio.iscoroutine(sent):
            return self._waited(sent)
        return then(sent, lambda client: Seen(client, self._look))

    async def _waited(self, sent: Any) -> Seen:
        return Seen(await sent, self._look)
