"""Asks a model behind an address that speaks OpenAI's chat completions the test questions, with the same tool, turns and scoring.

    python -m lib.endpoint NAME     one of `endpoints` in params.yaml; writes data/runs/<run>/evaluate/endpoint-<NAME>.jsonl

Such an arm stands beside the plan's, exploratory: it is part of no test. What the model says goes through the same environment
as every arm's, put into the base model's tokens, so that turns, limits, tool and verdict can't differ; its own tokens are
counted as the service reports them. A service that fails is never the model's mistake: the evaluation stops, what was answered
is kept, and the next start goes on from there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import tinker
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers import Renderer, ToolCall
from tinker_cookbook.renderers.base import Message, format_content_as_string

from lib import evaluate, graph, loop
from lib.agent import Attempt, EnvironmentFault, playing
from lib.backends import ledger, prices
from lib.backends.ledger import Ledger, LimitReached
from lib.backends.meter import SpendRefused, allowed_spend
from lib.backends.prices import Price, PriceError, Usage
from lib.graph import server
from lib.graph.world import CONVENTIONS, CypherTool
from lib.notebook import keep_if_same_inputs, stage_inputs
from lib.settings import ROOT, VARIABLE, Endpoint, Settings, SettingsError, load

AT_ONCE = 16  # calls
PAUSES = (1.0, 2.0, 5.0, 15.0, 60.0)  # seconds between tries; a longer Retry-After is heeded
LONGEST_PAUSE = 120.0
PATIENCE = 600.0  # seconds for an answer
BUSY = (408, 409, 425, 429)  # and all from 500: said of the moment, not of what was asked


class EndpointError(ValueError):
    """The endpoint can't be asked as it is set; the message says what to do."""


class Till:
    """Where calls of an endpoint elsewhere are paid for; one on this machine costs nothing."""

    def __init__(self, endpoint: Endpoint, settings: Settings):
        """Raises SpendRefused without leave to spend, PriceError without a price, LimitReached where all is spent."""
        self.price: Price | None = None
        if endpoint.here:
            return
        self.price = prices.find(endpoint.host, endpoint.model)
        about = {"provider": endpoint.host, "model": endpoint.model}
        limit = allowed_spend(lambda: f"{endpoint.url} is not this machine: each question is asked {_asked(settings)}.")
        self.ledger = Ledger(ledger.path(settings.run_dir), f"endpoint-{endpoint.name}", limit, about)

    def send(self, body: dict[str, Any]) -> str:
        """Note a call at the most that it can cost: no text has more tokens than bytes. Raises LimitReached."""
        if self.price is None:
            return ""
        most = Usage(prompt=len(json.dumps(body, ensure_ascii=False).encode()), sampled=body["max_tokens"])
        return self.ledger.send("chat", self.price.upper(most))

    def paid(self, call: str, used: Usage) -> None:
        if self.price is not None:
            self.ledger.paid(call, self.price, used)

    def failed(self, call: str, error: BaseException) -> None:
        if self.price is not None:
            self.ledger.failed(call, error)


def _asked(settings: Settings) -> str:
    return f"{settings.evaluate.samples + 1} times, up to {settings.agent.max_turns} turns each"


class _Passing(Exception):
    """A fault that another try may not meet. seconds: to wait for it, where the service says so."""

    def __init__(self, what: object, seconds: float = 0.0):
        super().__init__(str(what) or type(what).__name__)
        self.seconds = seconds


class Chat(TokenCompleter):
    """The next message of the rollout that the current task is playing, from the endpoint."""

    def __init__(
        self, endpoint: Endpoint, client: httpx.AsyncClient, till: Till, renderer: Renderer, system: str,
        settings: Settings, temperature: float, places: asyncio.Semaphore,
    ):  # fmt: skip
        self.endpoint, self.client, self.till, self.renderer, self.places = endpoint, client, till, renderer, places
        self.others: set[str] = set()  # models that the service named where another was asked for
        spec = CypherTool(None, settings.agent, Attempt()).run_cypher.to_spec()
        self.system = {"role": "system", "content": system}
        self.asked = {
            "model": endpoint.model,
            "temperature": temperature,
            "max_tokens": settings.agent.max_tokens,
            "tools": [{"type": "function", "function": dict(spec)}],
        }

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Raises EnvironmentFault where the service doesn't answer as it should."""
        rollout = playing.get()
        assert rollout is not None
        history = rollout.conversation.history
        messages = [self.system, *openai_messages([m for m in history if m["role"] != "system"])]
        said, cut, used = await self._answer({**self.asked, "messages": messages})
        before = rollout.told or {"prompt": 0, "sampled": 0}
        rollout.told = {"prompt": before["prompt"] + used.prompt, "sampled": before["sampled"] + used.sampled}
        tokens = evaluate.spoken(self.renderer, rollout.conversation.initial_messages, said)
        if cut:
            tokens = tokens[:-1]
        return TokensWithLogprobs(tokens, [0.0] * len(tokens), "length" if cut else "stop")

    async def _answer(self, body: dict[str, Any]) -> tuple[Message, bool, Usage]:
        """The message, whether it was cut off at the most tokens, and what was used. A call that fails counts as paid."""
        problem: _Passing | None = None
        for pause in (0.0, *PAUSES):
            if problem is not None:
                await asyncio.sleep(min(max(pause, problem.seconds), LONGEST_PAUSE))
            async with self.places:
                call = self.till.send(body)
                try:
                    found = await self._post(body)
                    answer = read(found)
                except _Passing as e:
                    problem = e
                    self.till.failed(call, e)
                    continue
                except BaseException as e:
                    self.till.failed(call, e)
                    raise
            self.till.paid(call, answer[2])
            self._look_at(found.json().get("model"))
            return answer
        raise EnvironmentFault(f"{self.endpoint.name} at {self.endpoint.url} gave no answer in {len(PAUSES) + 1} tries "
                               f"({problem}); what it answered is kept: start again once it is well")  # fmt: skip

    def _look_at(self, named: Any) -> None:
        """Some servers answer with whatever they have loaded; others name a version of what was asked for."""
        if isinstance(named, str) and named not in (self.endpoint.model, *self.others):
            self.others.add(named)
            print(f"{self.endpoint.name}: {self.endpoint.model!r} was asked, and the service says that {named!r} answered: "
                  "look whether that is the model you mean", file=sys.stderr)  # fmt: skip

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        try:
            found = await self.client.post("chat/completions", json=body)
        except httpx.HTTPError as e:
            raise _Passing(e) from None
        if found.status_code in BUSY or found.status_code >= 500:
            wait = found.headers.get("retry-after", "")
            raise _Passing(f"status {found.status_code}", float(wait) if wait.isdecimal() else 0.0)
        if found.status_code != 200:
            said = " ".join(found.text.split())
            if key := os.environ.get(self.endpoint.key):
                said = said.replace(key, "[the key]")
            raise EnvironmentFault(
                f"{self.endpoint.name} at {self.endpoint.url} refuses the call (status {found.status_code}): {said[:300]}"
            )
        return found


def read(answer: httpx.Response) -> tuple[Message, bool, Usage]:
    """Raises _Passing for an answer in another form, which another try may better."""
    try:
        content = answer.json()
        choice, usage = content["choices"][0], content["usage"]
        used = Usage(prompt=_count(usage["prompt_tokens"]), sampled=_count(usage["completion_tokens"]))
        reason, given = choice["finish_reason"], choice["message"]
        if reason not in ("stop", "tool_calls", "length"):
            raise ValueError(f"finish_reason {reason!r}")
        if reason == "tool_calls" and not given.get("tool_calls"):
            raise ValueError("it says that it calls a tool, and holds no call")
        return said_message(given), reason == "length", used
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        raise _Passing(f"an answer in another form: {type(e).__name__} {e}") from None


def _count(given: Any) -> int:
    """Of tokens. Raises ValueError for what is none: less than nothing would give money back."""
    if not isinstance(given, int) or given < 0:
        raise ValueError(f"{given!r} tokens")
    return given


def said_message(given: dict[str, Any]) -> Message:
    """The endpoint's message as the environment's. A call whose arguments are no JSON stays the text that it is, for the
    environment to find malformed. Raises ValueError for a content that is no text."""
    text, calls = given.get("content") or "", []
    if not isinstance(text, str):
        raise ValueError(f"a content of {type(text).__name__}")
    for call in given.get("tool_calls") or []:
        function = call["function"]
        try:
            json.loads(function["arguments"])
        except ValueError:
            text += f"\n<tool_call>\n{function['arguments']}\n</tool_call>"
        else:
            calls.append(
                ToolCall(function=ToolCall.FunctionBody(name=function["name"], arguments=function["arguments"]))
            )
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return message


def openai_messages(history: list[Message]) -> list[dict[str, Any]]:
    """The conversation in the protocol's form: calls get ids by their place, and results those of the calls before them."""
    told: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for place, message in enumerate(history):
        plain: dict[str, Any] = {"role": message["role"], "content": format_content_as_string(message["content"])}
        if calls := message.get("tool_calls"):
            open_calls = [f"call_{place}_{i}" for i in range(len(calls))]
            plain["tool_calls"] = [
                {"id": name, "type": "function",
                 "function": {"name": call.function.name, "arguments": call.function.arguments}}
                for name, call in zip(open_calls, calls, strict=True)
            ]  # fmt: skip
        elif message["role"] == "tool":
            plain["tool_call_id"] = open_calls.pop(0)
        told.append(plain)
    return told


@asynccontextmanager
async def connected(endpoint: Endpoint) -> Any:
    """An HTTP client of the endpoint. It follows no redirect: the key is for the address that was named."""
    if endpoint.key and not VARIABLE.fullmatch(endpoint.key):
        raise EndpointError(
            f"endpoint {endpoint.name!r}: `key` must name a variable of the environment, in capitals, and never be the key itself"
        )
    key = os.environ.get(endpoint.key, "") if endpoint.key else ""
    if endpoint.key and not re.fullmatch("[!-~]+", key):  # else the error of what sends it would show it
        raise EndpointError(
            f"endpoint {endpoint.name!r} wants a key: set the environment's {endpoint.key}, without a space in it"
        )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        base = httpx.URL(endpoint.url.rstrip("/") + "/")
        if (base.port or 0) > 65_535:
            raise httpx.InvalidURL(f"there is no port {base.port}")
    except httpx.InvalidURL as e:
        raise EndpointError(f"endpoint {endpoint.name!r}: url = {endpoint.url!r} is no address ({e})") from None
    # a proxy would look for localhost elsewhere
    async with httpx.AsyncClient(
        base_url=base, headers=headers, timeout=PATIENCE, trust_env=not endpoint.here
    ) as client:
        yield client


def ask(settings: Settings, name: str) -> Path:
    """Write the endpoint's episodes over the evaluation sets, as lib.evaluate does an arm's; returns the file.

    Raises EndpointError for an unknown name or a missing key, what Till raises before anything is asked, EnvironmentFault
    where the service fails.
    """
    endpoint = next((e for e in settings.endpoints if e.name == name), None)
    if endpoint is None:
        known = ", ".join(e.name for e in settings.endpoints) or "none"
        raise EndpointError(f"endpoint {name!r} is unknown; params.yaml has {known}")
    till = Till(endpoint, settings)
    with server.running(settings.graph_dir, settings.data) as uri:
        loop.run(_ask(settings, endpoint, till, uri))
    return settings.episodes(endpoint.arm)


async def _ask(settings: Settings, endpoint: Endpoint, till: Till, uri: str) -> None:
    system, places = CONVENTIONS + graph.schema_text(settings.graph_dir), asyncio.Semaphore(AT_ONCE)
    async with connected(endpoint) as client:

        def chat(decode: str, renderer: Renderer) -> Chat:
            temperature = settings.evaluate.temperature if decode == "sampled" else 0.0
            return Chat(endpoint, client, till, renderer, system, settings, temperature, places)

        await evaluate.ask_sets(settings, endpoint.arm, chat, uri)


def main(arguments: list[str] | None = None) -> None:
    """Command line: ask one endpoint; exit status 1 where that isn't possible."""
    parser = argparse.ArgumentParser(prog="python -m lib.endpoint", description=__doc__.split("\n\n")[0])
    parser.add_argument("name", help="of the endpoint, as in params.yaml")
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    given = parser.parse_args(arguments)
    try:
        settings = load(given.params, given.data)
        keep_if_same_inputs([settings.episodes(f"endpoint-{given.name}")], stage_inputs())
        print(ask(settings, given.name))
    except (
        SettingsError, EndpointError, SpendRefused, PriceError, LimitReached, EnvironmentFault, server.ServerError, OSError,
    ) as problem:  # fmt: skip
        sys.exit(f"endpoint: {problem}")


if __name__ == "__main__":
    main()
