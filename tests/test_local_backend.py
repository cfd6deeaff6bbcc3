"""The local backend: losses, optimiser, checkpoints, adapters, and the cookbook's loops on top."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import cookbook_loops
import numpy as np
import pytest
import tinker
import torch
from safetensors.torch import load_file
from small_models import END, VOCABULARY, gpt2, lfm2, qwen3
from tinker import types
from transformers.modeling_layers import GradientCheckpointingLayer

from lib.backends import local, rollout_key
from lib.backends.models import load_base
from lib.backends.tokenizer import lock_tokenizer

ADAM = types.AdamParams(learning_rate=1e-3)
POLICY_LOSSES = ("importance_sampling", "ppo", "cispo")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    with local.serving(tmp_path / "tinker", seed=1) as client:
        yield client


@pytest.fixture
def frugal_service(tmp_path: Path) -> Iterator[Any]:
    """With several micro-batches for each request."""
    with local.serving(tmp_path / "tinker", seed=1, how=replace(local.CPU, tokens_trained_at_once=100)) as client:
        yield client


def lessons(count: int = 12, seed: int = 0) -> list[types.Datum]:
    """Data for cross_entropy; the first two targets of each don't count."""
    rng = random.Random(seed)
    data = []
    for _ in range(count):
        text = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(4, 40))]
        weights = [0.0, 0.0] + [round(rng.random(), 2) for _ in range(len(text) - 3)]
        data.append(_datum(text, weights=weights))
    return data


def rollouts(count: int = 12, seed: int = 0) -> list[types.Datum]:
    """Data for the policy losses: a prompt, then tokens with made-up sampling log-probabilities and advantages."""
    rng = random.Random(seed)
    data = []
    for _ in range(count):
        text = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(6, 40))]
        sampled = len(text) - 4
        logprobs = [0.0] * 3 + [-math.log(VOCABULARY) + rng.uniform(-2, 2) for _ in range(sampled)]
        data.append(_datum(text, logprobs=logprobs, advantages=[0.0] * 3 + [rng.choice([-0.5, 0.0, 0.5])] * sampled))
    return data


def _datum(text: list[int], **inputs: list[float]) -> types.Datum:
    loss_inputs: Any = {"target_tokens": text[1:], **inputs}
    return types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs=loss_inputs)


def by_hand(model: Any, datum: types.Datum, name: str) -> torch.Tensor:
    """The documented formulas, one token after the other."""
    values = {k: v.to_torch() for k, v in datum.loss_fn_inputs.items()}
    logits = model(torch.tensor([datum.model_input.to_ints()])).logits[0]
    logprobs = logits.log_softmax(-1)
    loss = torch.zeros(())
    for i, target in enumerate(values["target_tokens"].tolist()):
        p = logprobs[i, target]
        if name == "cross_entropy":
            loss = loss - values["weights"][i] * p
            continue
        advantage, ratio = values["advantages"][i], torch.exp(p - values["logprobs"][i])
        clipped = ratio.clamp(0.7, 1.3)
        if name == "importance_sampling":
            loss = loss - ratio * advantage
        elif name == "ppo":
            loss = loss - torch.minimum(ratio * advantage, clipped * advantage)
        else:
            loss = loss - clipped.detach() * p * advantage
    return loss


@pytest.mark.parametrize("name", ["cross_entropy", *POLICY_LOSSES])
def test_losses_and_gradients_are_the_formulas(frugal_service: Any, base: str, name: str) -> None:
    client = frugal_service.create_lora_training_client(base).result()
    data = lessons() if name == "cross_entropy" else rollouts()
    config = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3} if name in ("ppo", "cispo") else None
    result = client.forward_backward(data, name, config).result()

    model = load_base(base, "cpu").model.requires_grad_(True)
    loss = torch.stack([by_hand(model, datum, name) for datum in data]).sum()
    loss.backward()
    assert result.metrics["loss:sum"] == pytest.approx(float(loss.detach()), rel=1e-4)
    gradients = dict(client.trainer.model.named_parameters())
    for key, parameter in model.named_parameters():
        scale = parameter.grad.abs().max()
        assert (gradients[key].grad - parameter.grad).abs().max() <= 1e-4 * scale + 1e-6, key


def test_forward_gives_all_logprobs_and_no_gradient(service: Any, base: str) -> None:
    client = service.create_lora_training_client(base).result()
    data = lessons()
    silent = [_datum([*d.model_input.to_ints(), 3], weights=[0.0] * d.model_input.length) for d in data]
    outputs = client.forward(silent, "cross_entropy").result().loss_fn_outputs
    for datum, output in zip(silent, outputs, strict=True):
        tokens, targets = datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].to_torch()
        with torch.no_grad():
            logprobs = client.trainer.model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        expected = logprobs.gather(-1, targets[:, None])[:, 0]
        np.testing.assert_allclose(output["logprobs"].to_numpy(), expected.numpy(), atol=1e-5)
    assert all(p.grad is None for p in client.trainer.parameters.values())


def test_order_of_the_data_changes_no_bit(frugal_service: Any, base: str) -> None:
    data = rollouts(20)
    digests, outputs = set(), []
    for order in (list(range(20)), random.Random(0).sample(range(20), 20)):
        client = frugal_service.create_lora_training_client(base).result()
        result = client.forward_backward([data[i] for i in order], "importance_sampling").result()
        client.optim_step(ADAM).result()
        digests.add(client.save_weights_and_get_sampling_client().result().weights.digest)
        outputs.append({i: o["logprobs"].tolist() for i, o in zip(order, result.loss_fn_outputs, strict=True)})
    assert len(digests) == 1 and outputs[0] == outputs[1]


def test_optimiser_steps_are_adamw_with_the_callers_parameters(service: Any, base: str) -> None:
    client = service.create_lora_training_client(base).result()
    model = load_base(base, "cpu").model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    for step, (rate, clip) in enumerate([(1e-3, 0.0), (2e-3, 1e9), (5e-4, 0.5)]):
        params = types.AdamParams(
            learning_rate=rate, beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.1, grad_clip_norm=clip
        )
        optimizer.param_groups[0]["lr"] = rate
        data = lessons(seed=step)
        client.forward_backward(data, "cross_entropy")
        metrics = client.optim_step(params).result().metrics
        torch.stack([by_hand(model, d, "cross_entropy") for d in data]).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or 1.0)  # 1.0: what `serving` clips at
        optimizer.step()
        optimizer.zero_grad()
        assert metrics["optim/grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    ours = dict(client.trainer.model.named_parameters())
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(ours[key], parameter, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_sampler_and_trainer_agree_after_training(base: str, tmp_path: Path, kind: Literal["full", "lora"]) -> None:
    """On 1,000 sampled tokens, and the adapter's sampler is the merged model."""
    client: Any
    with local.serving(tmp_path, seed=1, training=kind) as service:
        client = service.create_lora_training_client(base, rank=8).result()
        for seed in range(3):
            client.forward_backward(rollouts(seed=seed), "importance_sampling")
            client.optim_step(types.AdamParams(learning_rate=5e-3))
        sampler = client.save_weights_and_get_sampling_client().result()
        data, sampled = sample_data(sampler, 40)
        outputs = client.forward(data, "importance_sampling").result().loss_fn_outputs
        assert sum(map(len, sampled)) >= 1000
        for output, logprobs in zip(outputs, sampled, strict=True):
            np.testing.assert_allclose(output["logprobs"].to_numpy()[-len(logprobs) :], logprobs, atol=1e-4)
        assert client.get_info().is_lora == (kind == "lora")


def sample_data(sampler: Any, count: int) -> tuple[list[types.Datum], list[list[float]]]:
    rng = random.Random(3)
    prompts = [[rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, 30))] for _ in range(count)]
    params = types.SamplingParams(max_tokens=40, stop=[END])
    futures = []
    for i, prompt in enumerate(prompts):
        rollout_key.set(f"rollout {i}")
        futures.append(sampler.sample(types.ModelInput.from_ints(prompt), 1, params))
    rollout_key.set(None)
    data, logprobs = [], []
    for prompt, future in zip(prompts, futures, strict=True):
        sequence = future.result().sequences[0]
        before = [0.0] * (len(prompt) - 1)
        advantages = before + [1.0] * len(sequence.tokens)
        data.append(_datum([*prompt, *sequence.tokens], logprobs=before + sequence.logprobs, advantages=advantages))
        logprobs.append(sequence.logprobs)
    return data, logprobs


def test_an_untrained_adapter_answers_exactly_as_the_base(base: str, tmp_path: Path) -> None:
    with local.serving(tmp_path, seed=1, training="lora") as service:
        plain: Any = service.create_sampling_client(base_model=base).result()
        client: Any = service.create_lora_training_client(base, rank=32).result()
        saved = service.create_sampling_client(client.save_weights_for_sampler("zero").result().path).result()
        for adapter in (client.save_weights_and_get_sampling_client().result(), saved):
            (_, ours), (_, theirs) = sample_data(adapter, 30), sample_data(plain, 30)
            assert ours == theirs
        client.forward_backward(rollouts(), "ppo")
        client.optim_step(ADAM)
        assert sample_data(client.save_weights_and_get_sampling_client().result(), 30)[1] != theirs


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_checkpoints_come_back(base: str, tmp_path: Path, kind: Literal["full", "lora"]) -> None:
    def learn(client: Any, seed: int) -> str:
        client.forward_backward(lessons(seed=seed), "cross_entropy")
        client.optim_step(ADAM)
        return client.save_weights_and_get_sampling_client().result().weights.digest

    with local.serving(tmp_path, seed=1, training=kind) as service:
        client: Any = service.create_lora_training_client(base, user_metadata={"renderer_name": "r"}).result()
        before = learn(client, 0)
        state = client.save_state("s-1").result().path
        weights = client.save_weights_for_sampler("w.1").result().path
        after = learn(client, 1)
    with local.serving(tmp_path, seed=2, training="full") as service:  # the checkpoint knows what it is
        sampler: Any = service.create_sampling_client(weights).result()
        assert sampler.weights.digest == before
        resumed: Any = service.create_training_client_from_state_with_optimizer(state).result()
        assert resumed.get_info().is_lora == (kind == "lora") and resumed.model_id == "run-0001"
        assert learn(resumed, 1) == after
        restarted: Any = service.create_training_client_from_state(state).result()
        assert learn(restarted, 1) != after
        assert restarted.load_state_with_optimizer(state).result().path == state
        assert learn(restarted, 1) == after
        rest = service.create_rest_client()
        run = rest.get_training_run_by_tinker_path(state).result()
        assert run.base_model == base and run.user_metadata == {"renderer_name": "r"}
        assert run.is_lora == (kind == "lora")
        assert [c.tinker_path for c in rest.list_checkpoints("run-0000").result().checkpoints] == [state, weights]
        local.copy_checkpoints(tmp_path, [state], tmp_path / "elsewhere" / "deeper")
        rest.delete_checkpoint_from_tinker_path(state).result()
        with pytest.raises(tinker.TinkerError, match=r"no checkpoint .*s-1.*sampler_weights/w\.1"):
            service.create_training_client_from_state(state).result()
    with local.serving(tmp_path / "elsewhere" / "deeper", seed=1) as service:
        copied: Any = service.create_training_client_from_state_with_optimizer(state).result()
        assert learn(copied, 1) == after


def test_checkpoints_hold_neither_time_nor_place(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        base = lfm2(tmp_path / name / "base")
        with local.serving(tmp_path / name / "tinker", seed=1) as service:
            client: Any = service.create_lora_training_client(str(base)).result()
            client.forward_backward(lessons(), "cross_entropy")
            client.optim_step(ADAM)
            client.save_state("s").result()
        files.append(
            {p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name / "tinker").rglob("*.*")}
        )
    assert files[0] == files[1] and len(files[0]) == 2


def test_export_is_a_folder_that_transformers_loads(base: str, tmp_path: Path) -> None:
    with local.serving(tmp_path / "t", seed=1, training="lora") as service:
        client: Any = service.create_lora_training_client(base).result()
        client.forward_backward(rollouts(), "cispo")
        client.optim_step(ADAM)
        digest = client.save_weights_and_get_sampling_client().result().weights.digest
        path = client.save_weights_for_sampler("w").result().path
    local.export(tmp_path / "t", path, tmp_path / "out")
    exported = load_base(str(tmp_path / "out"), "cpu")
    assert exported.digest == digest
    assert exported.tokenizer.encode("w9 <|im_end|>") == lock_tokenizer(base).encode("w9 <|im_end|>")


def test_bad_requests_say_what_is_wrong(service: Any, base: str, tmp_path: Path) -> None:
    client = service.create_lora_training_client(base).result()
    data = lessons(2)
    wrong = {
        "isn't supported.*cross_entropy": lambda: client.forward_backward(data, "dro"),
        "takes": lambda: client.forward(data, "cross_entropy", {"clip_low_threshold": 1.0}),
        "needs loss_fn_inputs": lambda: client.forward_backward(data, "ppo"),
        "No data": lambda: client.forward_backward([], "ppo"),
        "tinker://": lambda: service.create_sampling_client("nonsense"),
        "no training run 'x'": lambda: service.create_sampling_client("tinker://x/weights/y"),
        "is no checkpoint": lambda: service.create_sampling_client("tinker://run-0000/../y"),
        "no such folder": lambda: service.create_lora_training_client(str(tmp_path / "nothing")),
        "use letters": lambda: client.save_state("a/b"),
        "must be provided": lambda: service.create_sampling_client(),
    }
    for message, request in wrong.items():
        with pytest.raises(tinker.TinkerError, match=message):
            request().result()
    path = client.save_state("once").result().path
    with pytest.raises(tinker.TinkerError, match="overwrite"):
        client.save_state("once").result()
    client.save_state("once", overwrite=True).result()
    weights = client.save_weights_for_sampler("w").result().path
    with pytest.raises(tinker.TinkerError, match="save_state"):
        service.create_training_client_from_state(weights).result()
    for request in (
        lambda: client.optim_step(None),
        lambda: service.create_lora_training_client(base, train_mlp=False),
    ):
        with pytest.raises(ValueError):
            request()
    with pytest.raises(ValueError, match="full"):
        local.serving(tmp_path, 0, training="half").__enter__()  # type: ignore[arg-type]
    file = tmp_path / "tinker" / "run-0000" / "weights" / "once.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"x" * 100):
        file.write_bytes(damaged)
        with pytest.raises(tinker.TinkerError, match="damaged"):
            service.create_training_client_from_state(path).result()


def test_a_checkpoint_of_another_model_does_not_fit(service: Any, base: str, tmp_path: Path) -> None:
    client = service.create_lora_training_client(base).result()
    other = service.create_lora_training_client(str(qwen3(tmp_path / "qwen3"))).result()
    path = other.save_state("s").result().path
    with pytest.raises(tinker.TinkerError, match="doesn't fit"):
        client.load_state(path).result()


def test_an_adapter_is_refused_over_other_base_weights(tmp_path: Path) -> None:
    base = lfm2(tmp_path / "base")
    with local.serving(tmp_path / "t", seed=1, training="lora") as service:
        client: Any = service.create_lora_training_client(str(base)).result()
        path = client.save_weights_for_sampler("w").result().path
    model = load_base(str(base), "cpu").model
    with torch.no_grad():
        model.model.embed_tokens.weight += 1
    model.save_pretrained(base)
    with local.serving(tmp_path / "t", seed=1) as service, pytest.raises(tinker.TinkerError, match="adapter for other"):
        service.create_sampling_client(path).result()


@pytest.mark.parametrize("make", [qwen3, gpt2])
def test_other_architectures_train_and_sample(make: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Through transformers alone, adapters included."""
    monkeypatch.setattr("lib.backends.worker.supports", lambda model: False)
    base = str(make(tmp_path / "base"))
    kinds: tuple[Literal["full", "lora"], ...] = ("full", "lora")
    for kind in kinds:
        with local.serving(tmp_path / kind, seed=1, training=kind) as service:
            client: Any = service.create_lora_training_client(base, rank=4).result()
            client.forward_backward(rollouts(), "importance_sampling")
            client.optim_step(ADAM)
            sampler = client.save_weights_and_get_sampling_client().result()
            data, sampled = sample_data(sampler, 10)
            outputs = client.forward(data, "importance_sampling").result().loss_fn_outputs
            for output, logprobs in zip(outputs, sampled, strict=True):
                np.testing.assert_allclose(output["logprobs"].to_numpy()[-len(logprobs) :], logprobs, atol=1e-4)
            prompt = data[0].model_input
            scores = sampler.compute_logprobs(prompt).result()
            np.testing.assert_allclose(scores[1:], outputs[0]["logprobs"].to_numpy()[:-1], atol=1e-4)


def test_serving_puts_everything_back(base: str, tmp_path: Path) -> None:
    hosted, threads = tinker.ServiceClient, torch.get_num_threads()
    with pytest.raises(KeyError), local.serving(tmp_path, seed=0) as service:
        assert tinker.ServiceClient is not hosted and torch.get_num_threads() == 1
        sampler: Any = tinker.ServiceClient(base_url="x").create_sampling_client(base_model=base).result()
        raise KeyError
    assert tinker.ServiceClient is hosted and torch.get_num_threads() == threads
    with pytest.raises(RuntimeError, match="serving"):
        sampler.sample(types.ModelInput.from_ints([1]), 1, types.SamplingParams(max_tokens=1))
    with pytest.raises(RuntimeError, match="serving"):
        local.ServiceClient()
    assert service.close("success").result() is None


def test_the_tokenizer_bears_threads(base: str) -> None:
    """As the cookbook's renderers use it: in threads, with changing options."""
    tokenizer = lock_tokenizer(base)
    texts = [f"w{i} <|im_end|> w{i + 1}" for i in range(6, 60)]
    expected = [tokenizer.encode(t) for t in texts]
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for text, tokens in zip(texts, expected, strict=True):
                tokenizer.encode(f"{text} w{number}", split_special_tokens=number % 2 == 0)
                assert tokenizer.encode(text) == tokens and tokenizer.decode(tokens) == text
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_the_cookbooks_loops_run_and_resume_in_a_fresh_process(base: str, tmp_path: Path) -> None:
    """Unmodified: 5 updates at once, or killed in the fourth and resumed elsewhere, end in the same bytes."""
    cookbook_loops.run(Path(base), tmp_path / "once", 5)
    cookbook_loops.run(Path(base), tmp_path / "twice", 5, die_at=3)
    again = [sys.executable, cookbook_loops.__file__, base, str(tmp_path / "twice"), "5"]
    root = str(Path(__file__).resolve().parents[1])
    subprocess.run(again, check=True, env={"PYTHONPATH": root, "HF_HUB_OFFLINE": "1"}, capture_output=True)
    for loop in ("supervised", "rl"):
        once, twice = (cookbook_loops.final_weights(tmp_path / run, loop) for run in ("once", "twice"))
        assert once == twice, loop
    trained = load_file(next((tmp_path / "once" / "tinker").glob("run-0001/sampler_weights/final*")))
    assert all(value.isfinite().all() for value in trained.values())


BFLOAT16 = replace(local.CPU, dtype="bfloat16", checkpointing=True)


@pytest.mark.parametrize("make", [lfm2, qwen3, gpt2])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_gradients_are_the_same_with_checkpointing(make: Any, kind: Any, tmp_path: Path) -> None:
    base, found = str(make(tmp_path / "base")), []
    for checkpointing in (False, True):
        how = replace(local.CPU, checkpointing=checkpointing)
        with local.serving(tmp_path / str(checkpointing), seed=1, training=kind, how=how) as service:
            client: Any = service.create_lora_training_client(base, rank=4).result()
            client.forward_backward(rollouts(), "importance_sampling").result()
            client.optim_step(ADAM).result()  # an adapter's first half has no gradient before
            layers, ran = client.trainer.model.modules(), []
            layer = next(m for m in layers if isinstance(m, GradientCheckpointingLayer))
            layer.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
            client.forward_backward(rollouts(), "importance_sampling").result()
            found.append({name: p.grad.clone() for name, p in client.trainer.parameters.items()})
            assert not any(m.training for m in client.trainer.model.modules() if isinstance(m, torch.nn.Dropout))
            assert len(ran) == 1 + checkpointing  # forwards, and again for the gradient
    plain, again = found
    assert plain.keys() == again.keys() and any(g.abs().max() > 0 for g in plain.values())
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-7)


def test_bfloat16_holds_its_weights_once_and_adapters_in_full(tmp_path: Path) -> None:
    base = str(qwen3(tmp_path / "base"))
    with local.serving(tmp_path / "t", seed=1, training="lora", how=BFLOAT16) as service:
        client: Any = service.create_lora_training_client(base, rank=4).result()
        before = client.save_weights_and_get_sampling_client().result()
        client.forward_backward(rollouts(), "importance_sampling")
        client.optim_step(ADAM).result()
        sampler = client.save_weights_and_get_sampling_client().result()
        untouched = service.create_sampling_client(base_model=base).result()
        held = {p.data_ptr() for p in untouched.weights.model.parameters()}
        for model in (client.trainer.model, sampler.weights.model, before.weights.model):
            own = {n: p for n, p in model.named_parameters() if p.data_ptr() not in held}
            assert own and all(".lora_" in n and p.dtype == torch.float32 for n, p in own.items())
        assert untouched.weights.model.dtype == torch.bfloat16
        assert untouched.weights.digest == load_base(base, dtype="bfloat16").digest  # training left it alone
        assert len({c.weights.digest for c in (before, sampler, untouched)}) == 3

        data, sampled = sample_data(sampler, 10)
        outputs = client.forward(data, "importance_sampling").result().loss_fn_outputs
        for output, logprobs in zip(outputs, sampled, strict=True):
            np.testing.assert_allclose(output["logprobs"].to_numpy()[-len(logprobs) :], logprobs, atol=0.1)
        state = client.save_state("s").result().path
    with local.serving(tmp_path / "t", seed=1, training="lora", how=BFLOAT16) as service:
        resumed: Any = service.create_training_client_from_state(state).result()
        assert resumed.save_weights_and_get_sampling_client().result().weights.digest == sampler.weights.digest


def test_a_sampler_that_may_hold_little_gives_the_same_answers(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("lib.backends.worker.supports", lambda model: False)
    base, answers, most = str(qwen3(tmp_path / "base")), [], []
    for tokens in (2**18, 120, 1):
        how = replace(local.CPU, tokens_sampled_at_once=tokens)
        with local.serving(tmp_path / str(tokens), seed=1, how=how) as service:
            client: Any = service.create_sampling_client(base_model=base).result()
            held = watch(client.sampler, monkeypatch)
            prompts = [types.ModelInput.from_ints([*range(7, 7 + n)]) for n in (3, 30, 9, 14)]
            params = types.SamplingParams(max_tokens=12, temperature=0.0)
            asked = [client.sample(prompt, 3, params) for prompt in prompts]
            answers.append([[s.tokens for s in one.result().sequences] for one in asked])
            most.append(max(held))
    assert answers[0] == answers[1] == answers[2]
    assert most[1] <= 120 < most[0] and most[2] <= 42  # one row of the longest


def watch(sampler: Any, monkeypatch: Any) -> list[int]:
    """What the sampler's batches hold after each step that found work."""
    held, step = [], sampler.step

    def watched() -> bool:
        going = step()
        held.append(sum(batch.tokens_held for batch in sampler.batches))
        return going

    monkeypatch.setattr(sampler, "step", watched)
    return held
