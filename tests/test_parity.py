"""Each check of the way from trainer to answers passes on a sound model and catches the fault that it is there for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tinker import types

from lib import evaluate, parity
from lib.backends import local
from lib.backends.checkpoints import Checkpoints
from lib.backends.futures import API
from lib.backends.serving import serving
from lib.files import write_json, write_jsonl
from lib.findings import LOOK, OK, REFUSED, Finding, passed
from lib.settings import Settings
from reports.parts import parity_section
from tests.taught import study


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, graph_folder: Path) -> Settings:
    found = study(tmp_path_factory.mktemp("data"), graph_folder, local.CPU)
    evaluate.lock_tokenizer(found.base_model).save_pretrained(found.base_dir)
    return found


class Run(NamedTuple):
    """What stands behind the checks: a trainer that moved, what is served of it, and the model before."""

    base: Any
    control: Any
    trainer: Any
    served: Any
    state: Path
    texts: list[parity.Text]
    renderer: Any


@pytest.fixture(scope="module")
def run(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Five steps towards right answers, saved as a seed's last checkpoint, and loaded by the evaluator's route."""
    renderer = evaluate.renderer_for(settings)
    texts = parity.right_answers(evaluate.questions(settings, "train"), parity.prompts(settings, renderer), renderer)
    work = tmp_path_factory.mktemp("work")
    with serving(settings, work, 0):
        service: Any = tinker.ServiceClient()
        trainer = service.create_lora_training_client(settings.base_model, rank=4).result()
        control = service.create_sampling_client(trainer.save_weights_for_sampler("untrained").result().path).result()
        for _ in range(5):
            trainer.forward_backward([datum(text) for text in texts], "cross_entropy")
            trainer.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        state = trainer.save_state("final").result().path
        sampler = trainer.save_weights_for_sampler("final").result().path
        served = service.create_sampling_client(sampler).result()
        base = service.create_sampling_client(base_model=settings.base_model).result()
        folder = settings.train_dir(0)
        kept = local.copy_checkpoints(work, [state, sampler], folder / "checkpoint")
        write_json(folder / "checkpoint.json", dict(zip(("state", "sampler"), kept, strict=True)))
        write_jsonl(folder / "episodes.jsonl", [{"question": q["id"]} for q in evaluate.questions(settings, "train")])
        yield Run(base, control, trainer, served, Checkpoints(work).file(state), texts, renderer)


def datum(text: parity.Text) -> types.Datum:
    weights = [float(i >= text.start - 1) for i in range(len(text.tokens) - 1)]
    inputs: Any = {"target_tokens": text.tokens[1:], "weights": weights}
    return types.Datum(model_input=types.ModelInput.from_ints(text.tokens[:-1]), loss_fn_inputs=inputs)


def done(value: Any) -> API[Any]:
    answer: Future[Any] = Future()
    answer.set_result(value)
    return API(answer)


class Over:
    """A client of which something is changed."""

    def __init__(self, client: Any):
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


class Other(Over):
    """Gives every token a nat less, as other weights might."""

    def compute_logprobs(self, prompt: types.ModelInput) -> API[Any]:
        return done([p if p is None else p - 1 for p in self.client.compute_logprobs(prompt).result()])


class Silent(Over):
    """Leaves one log-probability out."""

    def compute_logprobs(self, prompt: types.ModelInput) -> API[Any]:
        return done([*self.client.compute_logprobs(prompt).result()[:-1], None])


class Hasty(Over):
    """Scores as it should and answers with something else."""

    def sample(self, prompt: types.ModelInput, samples: int, params: types.SamplingParams) -> API[Any]:
        return self.client.sample(
            prompt, samples, params.model_copy(update={"temperature": 1.0, "seed": 7, "top_k": -1})
        )


class Clocked(Over):
    """Takes time on a clock of its own: `each` tells the seconds of a token from what stands before it."""

    def __init__(self, client: Any, each: Any):
        super().__init__(client)
        self.each, self.now = each, 0.0

    def clock(self) -> float:
        return self.now

    def sample(self, prompt: types.ModelInput, samples: int, params: types.SamplingParams) -> API[Any]:
        answer = self.client.sample(prompt, samples, params).result()
        self.now += sum(self.each(prompt.length + i) for i in range(len(answer.sequences[0].tokens)))
        return done(answer)


def test_a_sound_run_passes(settings: Settings, run: Run) -> None:
    found = parity.parity(settings)
    assert set(found) == {"control", "trained-0"}
    outcomes = {(arm, one.check): one.outcome for arm, all_ in found.items() for one in all_ if one.check != "pace"}
    assert outcomes.pop(("control", "control and base")) == LOOK  # nothing is compared yet
    assert set(outcomes.values()) == {OK} and len(outcomes) == 8
    written = json.loads((settings.run_dir / "parity.json").read_text())
    assert [one["check"] for one in written["arms"]["trained-0"]] == [one.check for one in found["trained-0"]]
    shown = parity_section(settings.run_dir)
    assert all(f"| {one.check} |" in shown for all_ in found.values() for one in all_)
    assert parity_section(settings.run_dir / "nowhere") == ""


def test_without_questions_nothing_is_asked(settings: Settings, tmp_path: Path) -> None:
    there = dataclasses.replace(settings, data=tmp_path)
    for folder in (there.graph_dir, there.base_dir):
        folder.parent.mkdir(parents=True, exist_ok=True)
    there.graph_dir.symlink_to(settings.graph_dir)
    there.base_dir.symlink_to(settings.base_dir)
    write_jsonl(there.questions_dir / "train.jsonl", [])
    with pytest.raises(parity.ParityError, match=r"no question of train\.jsonl"):
        parity.parity(there)
    write_jsonl(there.questions_dir / "train.jsonl", evaluate.questions(settings, "train"))
    write_json(there.train_dir(0) / "checkpoint.json", {})
    write_jsonl(there.train_dir(0) / "episodes.jsonl", [{"question": "of-another-time"}])
    with pytest.raises(parity.ParityError, match="made anew after training"):
        parity.parity(there)


def test_an_adapter_that_does_something_is_no_no_op(run: Run) -> None:
    assert parity.no_op(run.base, run.control, run.texts, run.renderer).outcome == OK
    found = parity.no_op(run.base, run.served, run.texts, run.renderer)
    assert found.outcome == REFUSED and "the control would measure that" in found.said


def test_other_greedy_answers_are_noticed_where_scores_agree(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "SAME", 1.0)  # of four questions, one may come out alike by chance
    found = parity.no_op(run.base, Hasty(run.control), run.texts, run.renderer)
    assert found.outcome == REFUSED and found.figures["mean"] == 0 and found.figures["same"] < 1


@pytest.mark.parametrize("fault", [Other, Silent])
def test_a_sampler_that_is_not_the_trainer_is_caught(run: Run, fault: type) -> None:
    after = parity.by_trainer(run.trainer, run.texts)
    sound = parity.second_route(parity.by_sampler(run.served, run.texts), after)
    assert sound.outcome == OK and sum(sound.figures["histogram"]) == sound.figures["tokens"]
    found = parity.second_route(parity.by_sampler(fault(run.served), run.texts), after)
    assert found.outcome == REFUSED and "not what the trainer holds" in found.said


def test_a_served_model_that_was_not_trained_is_caught(run: Run) -> None:
    before, after = parity.by_sampler(run.base, run.texts), parity.by_trainer(run.trainer, run.texts)
    sound = parity.practised(before, after, parity.by_sampler(run.served, run.texts))
    assert sound.outcome == OK and sound.figures["trainer"] > sound.figures["base"] + parity.MOVED
    found = parity.practised(before, after, parity.by_sampler(run.control, run.texts))
    assert found.outcome == REFUSED and "not the trained one" in found.said
    still = parity.practised(before, before, before)
    assert still.outcome == LOOK


scores = st.lists(st.floats(-5, -0.01), min_size=1, max_size=6)


@given(scores, st.floats(-1, 1), st.floats(0.3, 2))
def test_a_gap_of_three_tenths_is_a_fault_and_none_is_none(base: list[float], moved: float, gap: float) -> None:
    before = [np.array([score]) for score in base]
    after = [score + moved for score in before]
    assert parity.practised(before, after, after).outcome != REFUSED
    assert parity.practised(before, after, [score - gap - 1e-6 for score in after]).outcome == REFUSED
    stayed = parity.practised(before, after, before).outcome
    assert stayed in ((REFUSED,) if abs(moved) > parity.MOVED + 1e-6 else (LOOK, REFUSED))


def test_weights_that_were_left_out_are_named(run: Run) -> None:
    model, served = run.base.weights.model, dict(run.served.weights.model.named_parameters())
    listed = parity.differing(load_file(run.state), model)
    assert listed == parity.differing(served, model) and parity.loaded(listed, listed).outcome == OK
    left = sorted(listed)[0]
    before = dict(model.named_parameters())
    found = parity.loaded(listed, parity.differing({**served, left: before[left]}, model))
    assert found.outcome == REFUSED and left in found.said and found.figures["loaded"] == len(listed) - 1
    renamed = {
        name.replace("base_model.model.", "base_model.model.other."): t for name, t in load_file(run.state).items()
    }
    assert parity.loaded(parity.differing(renamed, model), parity.differing(served, model)).outcome == REFUSED
    assert parity.loaded(set(), set()).outcome == LOOK


def test_random_looking_output_is_caught(settings: Settings, run: Run) -> None:
    most = settings.agent.max_tokens
    assert parity.sound(run.served, run.texts, run.renderer, most).outcome == OK
    random = Path(settings.base_model).with_name("untaught")
    client: Any = tinker.ServiceClient().create_sampling_client(base_model=str(random)).result()
    found = parity.sound(client, run.texts, run.renderer, most)
    assert found.outcome == REFUSED and found.figures["logprob"] < parity.LIKELY
    cut = parity.sound(run.served, run.texts, run.renderer, 2)
    assert cut.outcome == REFUSED and cut.figures["unparsed"] == 1


def test_a_past_that_is_computed_again_is_noticed(run: Run) -> None:
    for each, outcome in ((lambda _: 0.01, OK), (lambda n: 0.001 * n, REFUSED), (lambda _: 0.0, LOOK)):
        client: Any = Clocked(run.base, each)
        found = parity.pace(client, run.texts[0].tokens, 512, client.clock)
        assert found.outcome == outcome, found.said


def test_another_tokenizer_is_noticed(run: Run) -> None:
    class Counting(Over):
        def get_tokenizer(self) -> Any:
            return self

        def encode(self, text: str) -> list[int]:
            return [len(text)]

    assert parity.same_tokens(run.base, run.renderer, run.texts).outcome == OK
    assert parity.same_tokens(Counting(run.base), run.renderer, run.texts).outcome == REFUSED
    assert parity.same_tokens(object(), run.renderer, run.texts).outcome == LOOK


def test_a_route_that_the_comparison_found_to_differ_is_refused(settings: Settings, tmp_path: Path) -> None:
    there = dataclasses.replace(settings, data=tmp_path)
    found = {"delta": 0.01, "low": -0.02, "high": 0.03, "margin": 0.04}
    for holds, outcome in ((True, OK), (False, REFUSED)):
        write_json(there.run_dir / "results.json", {"equivalence": {**found, "holds": holds}})
        assert parity.control_and_base(there).outcome == outcome


def test_one_refused_check_is_enough() -> None:
    fine, refused = Finding("a", OK, ""), Finding("b", REFUSED, "")
    assert passed([fine, Finding("c", LOOK, "")]) and not passed([fine, refused])
