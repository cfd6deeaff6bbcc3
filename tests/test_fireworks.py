"""The Fireworks adapter over a stand-in for the service: types, names, rules, and the study's loop as on the local backend."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import string
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st
from tinker import types

pytest.importorskip("fireworks.training.sdk", reason="the extra `fireworks` isn't installed here: make contracts")

from fireworks.training import sdk
from tinker_cookbook.renderers import get_renderer

from lib import evaluate, plan, tiny, train, watchdog
from lib.agent import QuestionGroup
from lib.backends import fireworks, local, remote
from lib.backends import fireworks_types as to
from lib.backends.fireworks_types import Checkpoint, legal, tinkers_errors
from lib.backends.tokenizer import lock_tokenizer
from lib.files import write_json
from lib.graph import schema_text, server
from lib.graph.world import CypherWorld
from lib.settings import Settings, load
from tests import cookbook_loops, fireworks_service, small_models
from tests.conftest import ROOT
from tests.fireworks_service import Account

ADAM = types.AdamParams(learning_rate=1e-3)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    model = str(small_models.lfm2(tmp_path_factory.mktemp("models") / "lfm2"))
    lock_tokenizer(model)
    return model


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with fireworks_service.serving(tmp_path / "remote", seed=1) as serving:
        yield serving


def datum(tokens: list[int], **inputs: Any) -> types.Datum:
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


def practice(base: str) -> list[types.Datum]:
    text = list(range(1, 12))
    lengths = {"logprobs": [-3.0] * 10, "advantages": [0.0] * 3 + [1.0] * 7}
    return [datum(text[:-1], target_tokens=text[1:], **lengths)]


@given(st.text(), st.text(alphabet=string.hexdigits))
def test_names_are_legal(name: str, run: str) -> None:
    made = legal(name, run)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", made) and len(made) <= to.NAME_LENGTH
    assert made == legal(name, run)
    assert made != legal(name, run + "0")


def test_names_can_be_read_and_none_is_anothers() -> None:
    names = [
        "final",
        "Final",
        "fi nal",
        "control",
        "trained-0",
        "trained-1",
        "trained-10",
        *(f"{i:06d}" for i in range(500)),
    ]
    made = [legal(name, run) for name in names for run in ("run-a", "run-b")]
    assert len(set(made)) == len(made)
    assert all(a.startswith(name) for name in ("final", "control", "000499") for a in made if name in a)


@given(st.from_regex(r"ts-[0-9a-f]{8}", fullmatch=True), st.sampled_from(["weights", "sampler_weights"]),
       st.from_regex(r"[a-z]{1,9}/run-[0-9a-f]{32}/[a-z0-9-]{1,26}", fullmatch=True), st.text(min_size=1))  # fmt: skip
def test_a_path_is_read_as_it_was_written(session: str, kind: Any, path: str, model: str) -> None:
    checkpoint = Checkpoint(session, kind, path, model)
    assert Checkpoint.parse(str(checkpoint), kind) == checkpoint
    other: Any = "weights" if kind == "sampler_weights" else "sampler_weights"
    with pytest.raises(tinker.TinkerError, match=r"needs a path|starts from a path"):
        Checkpoint.parse(str(checkpoint), other)


@pytest.mark.parametrize("text", ["", "final", "tinker://run-0/weights/final", "fireworks://ts-1/weights/a/b/c"])
def test_no_other_text_is_taken_for_a_path(text: str) -> None:
    with pytest.raises(tinker.TinkerError, match="is no checkpoint"):
        Checkpoint.parse(text, "weights")


@given(st.lists(st.tuples(st.integers(0, 10**6), floats), min_size=1, max_size=20))
def test_data_keep_every_bit(pairs: list[tuple[int, float]]) -> None:
    tokens, values = [p[0] for p in pairs], np.array([p[1] for p in pairs], np.float32)
    theirs = to.datum(datum(tokens, target_tokens=tokens, advantages=types.TensorData.from_numpy(values)))
    assert type(theirs) is sdk.Datum and theirs.model_input.to_ints() == tokens
    assert theirs.loss_fn_inputs["target_tokens"].tolist() == tokens
    assert theirs.loss_fn_inputs["advantages"].to_numpy().tobytes() == values.tobytes()
    output = sdk.ForwardBackwardOutput(
        "ArrayRecord", [{"logprobs": sdk.TensorData.from_numpy(values)}], {"loss:sum": 1.0}
    )
    back = to.forward_backward_output(output)
    assert back.loss_fn_outputs[0]["logprobs"].to_numpy().tobytes() == values.tobytes()
    assert back.metrics == {"loss:sum": 1.0}


@given(st.lists(st.tuples(st.integers(0, 10**6), floats), max_size=20), st.booleans())
def test_samples_keep_every_bit(pairs: list[tuple[int, float]], prompt: bool) -> None:
    tokens, logprobs = [p[0] for p in pairs], [p[1] for p in pairs]
    one = sdk.types.SampledSequence(stop_reason="length", _tokens_list=tokens, _logprobs_list=logprobs)
    theirs = sdk.types.SampleResponse(sequences=[one, one], _prompt_logprobs_list=[None, *logprobs] if prompt else None)
    response = to.sample_response(theirs, iter("ab"))
    assert [s.sequence_id for s in response.sequences] == ["a", "b"]
    assert all((s.tokens, s.logprobs, s.stop_reason) == (tokens, logprobs, "length") for s in response.sequences)
    assert response.prompt_logprobs == ([None, *logprobs] if prompt else None)


def test_what_would_mean_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="1024"):
        to.sampling_params(types.SamplingParams())
    with pytest.raises(ValueError, match="leave stop out"):
        to.sampling_params(types.SamplingParams(max_tokens=5, stop=[]))
    assert to.sampling_params(types.SamplingParams(max_tokens=5, stop="end")).stop == ["end"]  # no list of letters
    with pytest.raises(ValueError, match="stable_reinforce"):
        to.loss("stable_reinforce")
    with pytest.raises(ValueError, match="AdamW only"):
        to.adam_params(None)
    with pytest.raises(tinker.TinkerError, match="without log-probabilities"):
        to.forward_backward_output(sdk.ForwardBackwardOutput("ArrayRecord", [{}], {}))


def test_errors_become_tinkers() -> None:
    import httpx

    answer = httpx.Response(429, request=httpx.Request("POST", "https://example.org"))
    with pytest.raises(tinker.RateLimitError, match="slow down") as caught, tinkers_errors():
        from fireworks.training.sdk._core._exceptions import RateLimitError

        raise RateLimitError("slow down", response=answer, body=None)
    assert caught.value.status_code == 429
    with pytest.raises(tinker.APITimeoutError), tinkers_errors():
        raise sdk.APITimeoutError(answer.request)
    with pytest.raises(tinker.RequestFailedError) as failure, tinkers_errors():
        raise sdk.RequestFailedError("lost", "7", sdk.types.RequestErrorCategory.Server)
    assert failure.value.category is types.RequestErrorCategory.Server
    with pytest.raises(KeyError), tinkers_errors():
        raise KeyError("not theirs")


def test_a_step_reports_its_own_metrics_and_those_of_the_training_calls(account: Account, base: str) -> None:
    client = tinker.ServiceClient().create_lora_training_client(base).result()
    losses = [client.forward_backward(practice(base), "importance_sampling").result().metrics["loss:sum"] for _ in "ab"]
    first = client.optim_step(ADAM).result().metrics
    assert first is not None
    assert first["forward_backward/loss:sum"] == first["optim/loss"] == sum(losses)
    assert first["optim/grad_norm"] > 0 and first["optim/tokens"] == 20
    assert account.asked[-1][1]["learning_rate"] == ADAM.learning_rate
    second = client.optim_step(ADAM).result().metrics
    assert second is not None and second["optim/tokens"] == 0 and "optim/loss" not in second


def test_weights_for_sampling_are_no_state_and_state_cannot_be_sampled(account: Account, base: str) -> None:
    client = tinker.ServiceClient().create_lora_training_client(base).result()
    state, weights = client.save_state("one").result().path, client.save_weights_for_sampler("one").result().path
    with pytest.raises(tinker.TinkerError, match="training starts from a path of save_state"):
        tinker.ServiceClient().create_training_client_from_state(weights)
    with pytest.raises(tinker.TinkerError, match="sampling needs a path"):
        tinker.ServiceClient().create_sampling_client(model_path=state)
    with pytest.raises(ValueError, match="already"):
        client.save_state("one")
    with pytest.raises(tinker.RequestFailedError, match="DNS label"), tinkers_errors():
        client.client.save_state("Not_legal")
    assert set(account.states) == {Checkpoint.parse(state, "weights").path}


def test_promotion_names_what_is_wrong(
    account: Account, base: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = tinker.ServiceClient().create_lora_training_client(base).result()
    path = client.save_weights_for_sampler("final").result().path
    monkeypatch.delenv("FIREWORKS_API_KEY", raising=False)
    with pytest.raises(ValueError, match="FIREWORKS_API_KEY"):
        fireworks.promote(path, "mine")
    monkeypatch.setenv("FIREWORKS_API_KEY", "a key")
    with pytest.raises(ValueError, match="Not Legal"):
        fireworks.promote(path, "Not Legal")
    with pytest.raises(ValueError, match=r"isn't listed; those that can be: none|isn't listed"):
        fireworks.promote(path.replace("/final-", "/other-"), "mine")
    note = tmp_path / "checkpoint.json"
    note.write_text(json.dumps({"sampler": path}))
    fireworks.main(["promote", str(note), "mine"])
    assert list(account.models) == [f"accounts/{fireworks_service.ACCOUNT}/models/mine"]


def test_the_cookbooks_loop_ends_in_the_local_backends_bytes(base: str, tmp_path: Path) -> None:
    """Killed and resumed over the service, uninterrupted here."""
    with local.serving(tmp_path / "here" / "tinker", seed=5):
        cookbook_loops.practise(Path(base), tmp_path / "here", 4, die_at=-1)
    with fireworks_service.serving(tmp_path / "remote", seed=5) as account:
        for die_at in (3, -1):
            with contextlib.suppress(cookbook_loops.Killed):
                cookbook_loops.practise(Path(base), tmp_path / "there", 4, die_at)
        [*_, last] = map(json.loads, (tmp_path / "there" / "rl" / "checkpoints.jsonl").read_text().splitlines())
        state = account.states[Checkpoint.parse(last["state_path"], "weights").path]
        weights = account.samplers[Checkpoint.parse(last["sampler_path"], "sampler_weights").path]
        there = b"".join(account.local.checkpoints.file(path).read_bytes() for path in (state, weights))
    assert there == cookbook_loops.final_weights(tmp_path / "here", "rl")


ASKED: list[dict[str, Any]] = [
    {"id": f"q-{i}", "question": f"How many tags have more than {i} questions?", "hint": None, "rows": [[i]],
     "query": "", "structure": "s", "hops": 0, "split": "train"}
    for i in range(4)
]  # fmt: skip


@pytest.fixture(scope="module")
def settings(graph_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The miniature's with four questions and a random base model that knows the system prompt."""
    chosen = load(ROOT / "profiles" / "miniature.yaml", data=tmp_path_factory.mktemp("data"))
    chosen.data.mkdir(exist_ok=True)
    chosen.graph_dir.symlink_to(graph_folder)
    for folder, name in [
        (chosen.questions_dir, n) for n in ("train", "dev", "held_out_instances", "held_out_structures")
    ]:
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**q, "split": name, "id": f"{name}-{q['id']}"}) + "\n" for q in ASKED]
        (folder / f"{name}.jsonl").write_text("".join(lines if name in ("train", "dev") else lines[:1]))
    chosen.human_dir.mkdir(parents=True)
    (chosen.human_dir / "human.jsonl").write_text("")
    texts = [q["question"] for q in ASKED], ["MATCH (t:Tag) RETURN count(*)"], ["no rows"], ["Tomar"]
    bare = get_renderer(chosen.agent.renderer, tiny.build_tokenizer("", *texts))
    world = CypherWorld(None, bare, schema_text(chosen.graph_dir), chosen.agent)
    system = world.prompt(ASKED[0])[0]["content"]
    assert isinstance(system, str)
    tokenizer = tiny.build_tokenizer(system, *texts)
    context = 64 + len(tokenizer.encode(system)) + chosen.agent.max_trajectory_tokens
    chosen = dataclasses.replace(
        chosen,
        model=dataclasses.replace(chosen.model, context=context),
        agent=dataclasses.replace(chosen.agent, max_trajectory_tokens=context),
    )
    tiny.save(chosen.base_dir, tokenizer, tiny.build_model(len(tokenizer), chosen.model))
    return chosen


def run_study(settings: Settings) -> dict[str, bytes]:
    """Two updates, then the control and the trained arm over the test's questions: the records, by name."""
    train.train(settings, 0)
    arms = ("control", "trained-0")
    records = {arm: evaluate.evaluate(settings, arm).read_bytes() for arm in arms}
    out = settings.train_dir(0)
    records |= {name: (out / name).read_bytes() for name in ("episodes.jsonl", "dev.jsonl", "updates.jsonl")}
    shutil.rmtree(settings.run_dir / "train")
    shutil.rmtree(settings.run_dir / "evaluate")
    return records


def test_the_studys_loop_gives_what_the_local_backend_gives(
    settings: Settings, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = QuestionGroup._graded

    async def by_chance(self: QuestionGroup, *args: Any) -> Any:
        """A random model never answers: rewards by what it said, or all gradients would be nought."""
        episode = await graded(self, *args)
        return dataclasses.replace(episode, reward=zlib.crc32(json.dumps(episode.messages).encode()) % 7 / 6)

    monkeypatch.setattr(QuestionGroup, "_graded", by_chance)
    monkeypatch.setattr(server, "running", lambda *_: contextlib.nullcontext(uri))
    monkeypatch.setattr(plan, "digest", lambda _: "0" * 64)
    here = run_study(settings)
    kept = Account()

    def hosted(_: Path, seed: int, training: str, grad_clip_norm: float, how: Any) -> Any:
        options = {"training": training, "grad_clip_norm": grad_clip_norm, "how": how}
        return fireworks_service.serving(tmp_path / "remote", seed, kept, **options)

    monkeypatch.setattr(local, "serving", hosted)
    monkeypatch.setattr(local, "copy_checkpoints", stay)
    there = run_study(settings)
    # before the second update, the last and the control's, none of which can be deleted; two policies, the last, two arms
    assert len(kept.states) == 3 and len(kept.samplers) == 5
    updates = [json.loads(line) for line in there.pop("updates.jsonl").splitlines()]
    told = [{key: value for key, value in one.items() if not key.startswith("forward_backward/")} for one in updates]
    assert told == [json.loads(line) for line in here.pop("updates.jsonl").splitlines()]
    assert all(one["forward_backward/loss:sum"] == one["loss"] and one["grad_norm"] > 0 for one in updates)
    assert there == here


def stay(root: Path, paths: list[str], other: Path) -> list[str]:
    """A host keeps its checkpoints itself."""
    other.mkdir(parents=True, exist_ok=True)
    return paths


def test_a_dead_runs_session_is_ended_but_for_one_whose_weights_are_needed(
    account: Account, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIREWORKS_API_KEY", "a key")
    monkeypatch.setattr(remote, "watch", lambda run, owner: None)
    run = tmp_path / "data" / "runs" / "big"
    paths = []
    for stage in ("train-seed-0", "evaluate-base"):
        with remote.Book(run, stage, "fireworks", "") as book:
            client = remote.noted(fireworks.ServiceClient, book)()
            training = client.create_lora_training_client(base).result()
            paths.append(training.save_weights_for_sampler("final").result().path)
            assert Checkpoint.parse(paths[-1], "sampler_weights").session_name in str(remote.things(run)[-2])
    write_json(run / "train" / "seed-0" / "checkpoint.json", {"sampler": paths[0]})
    assert watchdog.sweep(run, pauses=(0.0,)) == {}
    assert list(account.sessions_of.values()) == [Checkpoint.parse(paths[0], "sampler_weights").session]
    monkeypatch.delenv("FIREWORKS_API_KEY")
    with pytest.raises(ValueError, match="FIREWORKS_API_KEY isn't set"):
        watchdog.sweep(run, pauses=(0.0,))
