"""A model behind OpenAI's protocol takes the same path from question to score as every arm, over a real HTTP server."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lib import endpoint, evaluate, human_set, tiny
from lib.agent import EnvironmentFault
from lib.backends import ledger, meter, prices
from lib.backends.ledger import LimitReached
from lib.backends.prices import PriceError
from lib.cold_start import system_prompt
from lib.episodes import Episode
from lib.episodes import read as read_episodes
from lib.files import write_json, write_jsonl
from lib.settings import SETS, Endpoint, Settings, SettingsError, load
from tests.conftest import ROOT

KINDS = ("Tag", "User", "Badge")
USED = {"prompt_tokens": 700, "completion_tokens": 30}
Reply = tuple[int, dict[str, Any]]


class Model:
    """Speaks the protocol; `answer` says what to each request, and `asked` keeps them."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], Reply] = null
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/chat/completions"
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.asked.append(body)
                model.keys.add(self.headers["Authorization"])
                status, content = model.answer(body)
                if status == 0:  # hangs up
                    self.connection.close()
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def says(reason: str = "stop", **message: Any) -> Reply:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return 200, {"choices": [choice], "usage": USED}


def calls(arguments: str) -> Reply:
    call = {"id": "x", "type": "function", "function": {"name": "run_cypher", "arguments": arguments}}
    return says("tool_calls", content=None, tool_calls=[call])


def null(body: dict[str, Any]) -> Reply:
    return says(content="I don't know.")


def oracle(body: dict[str, Any]) -> Reply:
    """Runs the reference query, looks at the rows, and is done."""
    *_, last = body["messages"]
    if last["role"] == "tool":
        assert last["tool_call_id"] == body["messages"][-2]["tool_calls"][0]["id"]
        assert "row" in last["content"]
        return says(content="done")
    kind = next(kind for kind in KINDS if kind in last["content"])
    return calls(json.dumps({"query": f"MATCH (n:{kind}) RETURN count(n)"}))


@pytest.fixture
def model() -> Iterator[Model]:
    served = Model()
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


@pytest.fixture
def settings(tmp_path: Path, graph_folder: Path, uri: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A run with three questions a set, and one endpoint."""
    monkeypatch.setenv("NEO4J_URI", uri)
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    (tmp_path / "graph").symlink_to(graph_folder)
    chosen = load(ROOT / "profiles" / "miniature.yaml", tmp_path)
    served = Endpoint(name="scripted", url=model.url, model="m", key="")
    settings = dataclasses.replace(chosen, run="asked", endpoints=(served,))
    counts = json.loads((graph_folder / "counts.json").read_text())["database"]["nodes"]
    for split in SETS:
        lines = [
            {"id": f"{split}-{kind}", "question": f"How many nodes are there of {kind}?", "hint": None, "ordered": False,
             "query": f"MATCH (n:{kind}) RETURN count(n)", "rows": [[counts[kind]]], "structure": f"{split}-{kind}",
             "hops": 0, "split": split, "source": "twin", "difficulty": {}} for kind in KINDS
        ]  # fmt: skip
        write_jsonl(settings.questions_dir / f"{split}.jsonl", lines)
    human_set.write([], None, settings.human_dir)
    texts = [line["question"] for line in lines], [line["query"] for line in lines], ["1 row count(n)"], ["done"]
    tiny.build_tokenizer("", *texts).save_pretrained(settings.base_dir)
    system = system_prompt(evaluate.renderer_for(settings), settings)
    roomy = tiny.build_tokenizer(system, *texts)
    folder = settings.base_dir.with_name("roomy")
    roomy.save_pretrained(folder)
    agent = dataclasses.replace(settings.agent, max_trajectory_tokens=4096)
    monkeypatch.setattr(Settings, "base_dir", property(lambda _: folder))
    return dataclasses.replace(settings, agent=agent)


def asked(settings: Settings) -> list[Episode]:
    return read_episodes(endpoint.ask(settings, "scripted"))


def test_an_oracle_gets_one_and_says_what_it_used(settings: Settings, model: Model) -> None:
    model.answer = oracle
    episodes = asked(settings)
    assert len(episodes) == len(SETS) * len(KINDS) * (settings.evaluate.samples + 1)
    assert all(e.strict and e.reward == 1.0 and e.arm == "endpoint-scripted" and e.fault is None for e in episodes)
    assert all(e.tokens == {"prompt": 1400, "sampled": 60} and e.turns == 2 for e in episodes)
    body = model.asked[0]
    [tool] = body["tools"]
    assert tool["function"]["name"] == "run_cypher" and "query" in tool["function"]["parameters"]["properties"]
    system = body["messages"][0]["content"]
    assert system.startswith("You answer questions about a graph database") and "<tools>" not in system
    assert body["max_tokens"] == settings.agent.max_tokens
    assert {b["temperature"] for b in model.asked} == {0.0, settings.evaluate.temperature} and model.keys == {None}


def test_an_agent_that_asks_nothing_gets_zero(
    settings: Settings, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it isn't the one that was asked for, which is said."""
    model.answer = lambda body: (200, {**null(body)[1], "model": "another"})
    episodes = asked(settings)
    assert "'m' was asked, and the service says that 'another' answered" in capsys.readouterr().err
    assert {e.reward for e in episodes} == {0.0} and {e.outcome for e in episodes} == {"no_query"}


def test_its_mistakes_are_its_own(settings: Settings, model: Model) -> None:
    """Arguments that are no JSON, an answer that is cut, calls without an end: wrong, and no fault."""
    model.answer = lambda _: calls('{"query": MATCH}')
    assert {e.outcome for e in asked(settings)} == {"no_query"}
    settings.episodes("endpoint-scripted").unlink()
    model.answer = lambda _: says("length", content="MATCH " * 4)
    assert {e.stop for e in asked(settings)} == {"max_tokens"}
    settings.episodes("endpoint-scripted").unlink()
    model.answer = lambda _: calls('{"query": "RETURN 7"}')
    episodes = asked(settings)
    assert {e.outcome for e in episodes} <= {"wrong_turns", "wrong"} and {e.turns for e in episodes} == {
        settings.agent.max_turns
    }


@pytest.mark.parametrize(
    ("reply", "says_why"),
    [
        ((429, {}), "status 429"),
        ((503, {}), "status 503"),
        ((0, {}), "disconnected"),
        ((200, {"choices": []}), "another form"),
        ((200, {"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}), "usage"),
        ((200, {**says("content_filter", content="")[1]}), "content_filter"),
        ((401, {"error": "no"}), r"refuses the call \(status 401\)"),
    ],
)
def test_a_fault_of_the_service_is_retried_and_never_scored(
    settings: Settings, model: Model, reply: Reply, says_why: str
) -> None:
    """A passing one changes nothing; one that stays stops the evaluation, which goes on later without asking twice."""
    healthy = 4
    lock = threading.Lock()

    def ill_after(body: dict[str, Any]) -> Reply:
        nonlocal healthy
        with lock:
            healthy -= 1
            return oracle(body) if healthy >= 0 else reply

    model.answer = ill_after
    with pytest.raises(EnvironmentFault, match=says_why):
        asked(settings)
    file = settings.episodes("endpoint-scripted")
    assert all(e.strict for e in (read_episodes(file) if file.exists() else []))
    once: set[str] = set()

    def stumbles(body: dict[str, Any]) -> Reply:
        text = json.dumps([body["messages"], body["temperature"]])
        with lock:
            first, _ = text not in once, once.add(text)
        return (429, {}) if first else oracle(body)

    model.answer = stumbles
    assert all(e.strict for e in asked(settings))


@pytest.mark.parametrize(
    ("body", "says_why"),
    [
        (says("tool_calls", content=None)[1], "holds no call"),
        (says(content=["a part"])[1], "a content of list"),
        ({**says()[1], "usage": {**USED, "prompt_tokens": -700}}, "-700 tokens"),
        ({**says()[1], "usage": {**USED, "completion_tokens": None}}, "None tokens"),
    ],
)
def test_half_an_answer_is_none(body: dict[str, Any], says_why: str) -> None:
    with pytest.raises(endpoint._Passing, match=says_why):
        endpoint.read(httpx.Response(200, json=body))


def test_one_elsewhere_pays_through_the_runs_ledger(
    settings: Settings, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint, "here", property(lambda _: False))
    monkeypatch.delenv(meter.ALLOWED, raising=False)
    with pytest.raises(PriceError, match=r"127\.0\.0\.1"):
        asked(settings)
    price = {"prefill": 1.0, "cached": 0.1, "sample": 2.0, "train": 0, "storage": 0, "checkpoint_gb": 0,
             "source": "the tests", "date": "X"}  # fmt: skip
    table = tmp_path / "prices.yaml"
    table.write_text(yaml.safe_dump({"127.0.0.1": {"m": price}}).replace("X", "2026-11-30"))
    find = prices.find
    monkeypatch.setattr(prices, "find", lambda provider, name: find(provider, name, table))
    with pytest.raises(meter.SpendRefused, match="is not this machine"):
        asked(settings)
    assert not model.asked
    model.answer = oracle
    monkeypatch.setenv(meter.ALLOWED, "0.01")
    with pytest.raises(LimitReached):
        asked(settings)
    assert ledger.read(ledger.path(settings.run_dir)).upper <= 0.01
    monkeypatch.setenv(meter.ALLOWED, "25")
    assert all(e.strict for e in asked(settings))
    spent = ledger.read(ledger.path(settings.run_dir)).stages["endpoint-scripted"]
    answered = spent.calls - spent.failed
    assert 0 < answered <= len(model.asked)
    assert (spent.prompt, spent.sampled) == (700 * answered, 30 * answered)


def test_a_key_is_sent_and_never_shown(settings: Settings, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = dataclasses.replace(settings, endpoints=(dataclasses.replace(settings.endpoints[0], key="A_KEY"),))
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(endpoint.EndpointError, match="set the environment's A_KEY"):
        asked(keyed)
    monkeypatch.setenv("A_KEY", "s3cret")
    model.answer = lambda _: (403, {"error": "s3cret isn't known"})
    with pytest.raises(EnvironmentFault, match=r"\[the key\]") as refused:
        asked(keyed)
    assert model.keys == {"Bearer s3cret"} and "s3cret" not in str(refused.value)
    model.answer = lambda _: (403, {"error": "x" * 286 + "s3cret"})  # where the message is cut
    with pytest.raises(EnvironmentFault) as refused:
        asked(keyed)
    assert "xxx" in str(refused.value) and "s3" not in str(refused.value)
    itself = dataclasses.replace(settings, endpoints=(dataclasses.replace(settings.endpoints[0], key="s3cret"),))
    with pytest.raises(endpoint.EndpointError, match="never be the key itself") as refused:
        asked(itself)
    assert "s3cret" not in str(refused.value)
    port = dataclasses.replace(settings.endpoints[0], url="http://localhost:99999/v1")
    with pytest.raises(endpoint.EndpointError, match="is no address"):
        asked(dataclasses.replace(settings, endpoints=(port,)))
    with pytest.raises(endpoint.EndpointError, match=r"'other' is unknown; params\.yaml has scripted"):
        endpoint.ask(settings, "other")


@pytest.mark.parametrize(
    ("given", "says_why"),
    [
        ("x", r"endpoints = 'x' must be a list"),
        ([{"name": "a", "url": "http://localhost:1/v1", "model": "m"}], r"endpoints\[0\]\.key missing"),
        ([{"name": "A b", "url": "http://localhost:1/v1", "model": "m", "key": ""}], r"endpoints\[0\]\.name = 'A b'"),
        ([{"name": "a", "url": "http://elsewhere.org/v1", "model": "m", "key": ""}], "use https"),
        ([{"name": "a", "url": "localhost", "model": "m", "key": ""}], r"must be an address"),
        ([{"name": "a", "url": "http://localhost:1/v1", "model": "m", "key": "sk-1"}], "never write the key itself"),
    ],
)
def test_an_endpoint_that_cant_be_is_named(tmp_path: Path, given: Any, says_why: str) -> None:
    params = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text())
    write_json(tmp_path / "params.yaml", {**params, "endpoints": given})  # JSON is YAML
    with pytest.raises(SettingsError, match=says_why):
        load(tmp_path / "params.yaml")
