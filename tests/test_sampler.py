"""The fast sampler: draws that depend on nothing but their own request, to the last bit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from small_models import END, VOCABULARY, lfm2, llama, qwen3
from tinker import types

from lib.backends import decoder, local, rollout_key
from lib.backends.decoder import Decoder
from lib.backends.hf_sampling import HFSampler
from lib.backends.prefix_cache import BLOCK, BlockPool, prefix_hashes
from lib.backends.requests import draw
from lib.backends.sampler import FastSampler

Answer = tuple[tuple[int, ...], bytes, str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {make.__name__: make(root / make.__name__) for make in (lfm2, llama, qwen3)}


@pytest.fixture
def client(folders: dict[str, Path], tmp_path: Path) -> Iterator[Any]:
    with local.serving(tmp_path, seed=3) as service:
        yield service.create_sampling_client(base_model=str(folders["lfm2"])).result()


def prompts(count: int, longest: int = 150) -> list[list[int]]:
    rng = random.Random(7)
    return [[rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def ask(client: Any, key: str, prompt: list[int], **params: Any) -> Any:
    """One request of the rollout `key`; answers with a future."""
    token = rollout_key.set(key)
    try:
        settings = types.SamplingParams(**{"max_tokens": 40, "stop": [END], **params})
        return client.sample(types.ModelInput.from_ints(prompt), 1, settings)
    finally:
        rollout_key.reset(token)


def answer(response: Any) -> Answer:
    """All that a caller can see of a sample, log-probabilities to the bit."""
    sequence = response.sequences[0]
    return tuple(sequence.tokens), sequence.logprobs_np.tobytes(), sequence.stop_reason


def fresh(folder: Path, root: Path, requests: list[tuple[str, list[int]]]) -> dict[str, Answer]:
    """Answers of a new service that gets all requests at once, in this order."""
    service: Any
    with local.serving(root, seed=3) as service:
        client = service.create_sampling_client(base_model=str(folder)).result()
        futures = [(key, ask(client, key, prompt)) for key, prompt in requests]
        return {key: answer(future.result()) for key, future in futures}


@pytest.mark.parametrize("name", ["lfm2", "llama", "qwen3"])
def test_company_and_order_of_arrival_change_no_bit(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    shared = prompts(1)[0]  # a group's prompt, among others
    requests = [(f"r{i}", shared if i % 3 == 0 else p) for i, p in enumerate(prompts(100))]
    crowd = fresh(folders[name], tmp_path, requests)
    shuffled = random.Random(1).sample(requests, len(requests))
    assert fresh(folders[name], tmp_path, shuffled) == crowd
    for key, prompt in requests[:3]:
        assert fresh(folders[name], tmp_path, [(key, prompt)]) == {key: crowd[key]}
    assert len({crowd[f"r{i}"] for i in range(0, 100, 3)}) > 20  # the group's samples differ among themselves


def test_a_trickle_of_requests_changes_no_bit(client: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    requests = [(f"r{i}", p) for i, p in enumerate(prompts(60))]

    async def late(i: int, key: str, prompt: list[int]) -> tuple[str, Answer]:
        await asyncio.sleep(0.002 * (i * 7 % 60))
        return key, answer(await ask(client, key, prompt))

    async def everyone() -> dict[str, Answer]:
        return dict(await asyncio.gather(*[late(i, k, p) for i, (k, p) in enumerate(requests)]))

    assert asyncio.run(everyone()) == fresh(folders["lfm2"], tmp_path / "other", requests)


def test_a_remembered_conversation_draws_as_a_forgotten_one(
    client: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Turns two and three find their prefix in the cache; a new service has to compute it."""
    texts = prompts(12, longest=70)
    for turn in range(3):
        asked = [(f"r{i}/{turn}", text) for i, text in enumerate(texts)]
        futures = [ask(client, key, text) for key, text in asked]
        remembered = {key: answer(f.result()) for (key, _), f in zip(asked, futures, strict=True)}
        if turn:
            assert client.sampler.reused > sum(len(t) for t in texts) // 2
        assert remembered == fresh(folders["lfm2"], tmp_path / f"{turn}", asked)
        client.sampler.reused = 0
        texts = [[*t, *remembered[k][0], 5, 6, 7 + turn] for t, (k, _) in zip(texts, asked, strict=True)]


def test_a_group_shares_the_prefill_of_its_prompt(client: Any) -> None:
    prompt = prompts(1)[0]
    futures = [ask(client, f"r{i}", prompt, max_tokens=1) for i in range(8)]
    for future in futures:
        future.result()
    assert client.sampler.reused == 7 * (len(prompt) - 1)


def test_logprobs_are_the_models_own(client: Any) -> None:
    """On 1,000 sampled tokens, against a forward pass of transformers."""
    count = 0
    for i, prompt in enumerate(prompts(30)):
        tokens, logprobs, _ = answer(ask(client, f"r{i}", prompt, stop=[]).result())
        with torch.inference_mode():
            logits = client.weights.model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        np.testing.assert_allclose(np.frombuffer(logprobs, np.float32), expected.numpy(), atol=1e-4)
        count += len(tokens)
    assert count >= 1000


@pytest.mark.parametrize("name", ["lfm2", "llama", "qwen3"])
def test_both_samplers_draw_alike(folders: dict[str, Path], tmp_path: Path, monkeypatch: Any, name: str) -> None:
    """Same random numbers, same distribution; float32 may round a rare draw to the neighbour."""
    requests = [(f"r{i}", p) for i, p in enumerate(prompts(20))]
    fast = fresh(folders[name], tmp_path, requests)
    monkeypatch.setattr("lib.backends.worker.supports", lambda model: False)
    plain = fresh(folders[name], tmp_path, requests)
    same = [key for key in fast if fast[key][0] == plain[key][0]]
    assert len(same) >= 18
    for key in same:
        np.testing.assert_allclose(
            np.frombuffer(fast[key][1], np.float32), np.frombuffer(plain[key][1], np.float32), atol=1e-4
        )


def test_other_seeds_rollouts_and_weights_draw_otherwise(client: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    prompt = prompts(1)[0]
    one = answer(ask(client, "a", prompt).result())
    assert answer(ask(client, "a", prompt).result()) == one  # asked again in the same rollout: the same answer
    assert answer(ask(client, "b", prompt).result()) != one
    service: Any
    with local.serving(tmp_path / "other", seed=4) as service:
        other = service.create_sampling_client(base_model=str(folders["lfm2"])).result()
        assert answer(ask(other, "a", prompt).result()) != one
        trainer = service.create_lora_training_client(str(folders["lfm2"])).result()
        with torch.no_grad():
            trainer.trainer.model.model.embedding_norm.weight[0] += 1e-3
        trained = trainer.save_weights_and_get_sampling_client().result()
        assert answer(ask(trained, "a", prompt).result()) != one


def test_without_a_rollout_the_nth_question_has_its_own_draws(client: Any) -> None:
    params = types.SamplingParams(max_tokens=20, stop=[])
    prompt = types.ModelInput.from_ints([1, 2, 3])
    first, second = (client.sample(prompt, 2, params).result() for _ in range(2))
    assert len({tuple(s.tokens) for s in [*first.sequences, *second.sequences]}) == 4
    fixed = types.SamplingParams(max_tokens=20, stop=[], seed=11)
    assert ask(client, "x", [1, 2, 3], seed=11).result().sequences[0].tokens
    again = [client.sample(prompt, 1, fixed).result() for _ in range(2)]
    assert again[0].sequences[0].tokens != again[1].sequences[0].tokens


def test_stopping(client: Any) -> None:
    free = answer(ask(client, "r", [3, 4], stop=[]).result())[0]
    assert len(free) == 40
    word = free[10]
    stopped = answer(ask(client, "r", [3, 4], stop=[word]).result())
    assert stopped[0] == free[: free.index(word) + 1] and stopped[2] == "stop"
    assert answer(ask(client, "r", [3, 4], stop=[f"w{word}"]).result())[0][-1] == word
    several = ask(client, "r", [3, 4], stop=f"w{free[4]} w{free[5]}").result()
    assert tuple(several.sequences[0].tokens) == free[:6]
    assert answer(ask(client, "r", [3, 4], stop=[], max_tokens=1).result()) == (
        (free[0],),
        answer(ask(client, "r", [3, 4], stop=[]).result())[1][:4],
        "length",
    )


def test_restricted_draws_in_mixed_company(client: Any) -> None:
    """Greedy, cool, top-k and top-p requests side by side, each as it is alone."""
    rules: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.3}, {}]
    futures = [ask(client, f"r{i}", [i + 1], **rule) for i, rule in enumerate(rules * 4)]
    together = [answer(f.result()) for f in futures]
    alone = [answer(ask(client, f"r{i}", [i + 1], **rule).result()) for i, rule in enumerate(rules * 4)]
    assert together == alone
    model = client.weights.model
    for i, (tokens, _, _) in enumerate(together):
        with torch.inference_mode():
            logits = model(torch.tensor([[i + 1, *tokens]])).logits[0, :-1]
        rank = (logits > logits.gather(-1, torch.tensor(tokens)[:, None])).sum(-1)
        rule = rules[i % len(rules)]
        if rule.get("temperature") == 0:
            assert (rank == 0).all()
        if "top_k" in rule:
            assert (rank < 3).all()


def test_broken_weights_are_named_and_not_sampled_from(folders: dict[str, Path], tmp_path: Path) -> None:
    service: Any
    with local.serving(tmp_path, seed=3) as service:
        trainer = service.create_lora_training_client(str(folders["lfm2"])).result()
        with torch.no_grad():
            trainer.trainer.model.model.embedding_norm.weight[0] = torch.nan
        broken = trainer.save_weights_and_get_sampling_client().result()
        with pytest.raises(Exception, match="not numbers"):
            ask(broken, "r", [1, 2, 3]).result()


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf, 0.5]]).expand(20_000, -1)
    uniforms = (torch.arange(20_000) + 0.5) / 20_000
    for params, expected in (
        (types.SamplingParams(), logits[0].softmax(-1)),
        (types.SamplingParams(temperature=0.5), (logits[0] * 2).softmax(-1)),
        (types.SamplingParams(top_k=2), torch.tensor([0, 1 / (1 + np.e), 1 - 1 / (1 + np.e), 0, 0])),
        (types.SamplingParams(top_p=0.6), torch.tensor([0, 1 / (1 + np.e), 1 - 1 / (1 + np.e), 0, 0])),
    ):
        tokens, logprobs = draw(logits, uniforms, params)
        assert torch.allclose(torch.bincount(tokens, minlength=5) / 20_000, expected.float(), atol=1e-3)
        assert torch.allclose(logprobs, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0], atol=1e-6)


def test_prompt_logprobs(client: Any) -> None:
    for prompt in [[4], *prompts(5)]:
        got = client.compute_logprobs(types.ModelInput.from_ints(prompt)).result()
        with torch.inference_mode():
            logprobs = client.weights.model(torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
        assert got[0] is None
        np.testing.assert_allclose(got[1:], logprobs.gather(-1, torch.tensor(prompt)[1:, None])[:, 0], atol=1e-4)
    prompt = prompts(1)[0]
    both = client.sample(types.ModelInput.from_ints(prompt), 3, types.SamplingParams(max_tokens=4), True).result()
    assert len(both.sequences) == 3 and len(both.prompt_logprobs) == len(prompt)
    last = client.compute_logprobs(types.ModelInput.from_ints(prompt), prompt_logprobs_last_n=2).result()
    assert last[:-2] == [None] * (len(prompt) - 2) and last[-2:] == both.prompt_logprobs[-2:]


def test_requests_that_do_not_fit(client: Any) -> None:
    context = client.weights.context
    for prompt, most in (([1] * context, 1), ([1] * 10, context)):
        with pytest.raises(tinker.TinkerError, match="context"):
            ask(client, "r", prompt, max_tokens=most).result()
    for prompt in ([], [VOCABULARY], [-1]):
        with pytest.raises(tinker.TinkerError, match="prompt"):
            ask(client, "r", prompt).result()
    full = answer(ask(client, "r", [1] * (context - 4), max_tokens=4, stop=[]).result())
    assert len(full[0]) == 4
    whole = ask(client, "r", [1] * (context - 9), max_tokens=None, stop=[]).result()
    assert len(whole.sequences[0].tokens) == 9
    with pytest.raises(ValueError, match="num_samples"):
        client.sample(types.ModelInput.from_ints([1]), 0, types.SamplingParams())


def test_memory_stays_within_its_limit_and_changes_no_bit(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: Any
) -> None:
    requests = [(f"r{i}", p) for i, p in enumerate(prompts(150))]
    ample = fresh(folders["lfm2"], tmp_path, requests)
    limit = 2**20
    monkeypatch.setattr("lib.backends.service.CACHE_BYTES", limit)
    service: Any
    with local.serving(tmp_path / "tight", seed=3) as service:
        client = service.create_sampling_client(base_model=str(folders["lfm2"])).result()
        futures = [(key, ask(client, key, prompt)) for key, prompt in requests]
        tight = {key: answer(future.result()) for key, future in futures}
        pool = client.sampler.pool
        assert sum(t.nbytes for t in pool.tables) <= limit
        kept = sum(len(e.blocks) for e in pool.finished.values())
        assert kept > 0 and len(pool.free) + kept >= pool.blocks - 1
        while pool.finished:
            pool.drop(next(iter(pool.finished.values())))
        assert sorted(pool.free) == list(range(1, pool.blocks)) and not pool.index
    assert tight == ample


def test_a_pool_shares_blocks_and_gives_them_back() -> None:
    pool = BlockPool([(BLOCK, 2)], limit=10 * BLOCK * 8, least=3)
    length = BLOCK + BLOCK // 2
    text = list(range(length))
    hashes = prefix_hashes(1, text)
    first = pool.start(1, text, hashes, length, None, 0)
    assert first is not None and len(first.blocks) == 2
    pool.tables[0][first.blocks[1]] = 5.0
    pool.finish(first, text, hashes)
    source, shared = pool.find(1, text, hashes, length - 1)
    assert source is first and shared == length - 1
    assert pool.find(2, text, prefix_hashes(2, text), length - 1) == (None, 0)
    second = pool.start(1, text, hashes, 2 * BLOCK, first, length - 1)
    assert second is not None and second.blocks[0] == first.blocks[0] and second.blocks[1] != first.blocks[1]
    assert (pool.tables[0][second.blocks[1]] == 5.0).all()
    pool.tables[0][second.blocks[1]] = 6.0
    assert (pool.tables[0][first.blocks[1]] == 5.0).all()
    pool.drop(first)
    assert pool.users[second.blocks[0]] == 1
    assert pool.start(1, text, hashes, 100 * BLOCK, None, 0) is None
    pool.drop(second)
    assert len(pool.free) == pool.blocks - 1


def test_products_at_one_shape_do_not_depend_on_the_other_rows() -> None:
    """What everything here rests on; where a processor's library breaks it, the tests above fail as well."""
    torch.manual_seed(0)
    for inner, outer in ((64, 192), (128, 640), (320, 128), (128, 1000)):
        rows, weight = torch.randn(decoder.ROWS, inner), torch.randn(inner, outer)
        order = torch.randperm(decoder.ROWS)
        assert torch.equal(torch.mm(rows[order].contiguous(), weight), torch.mm(rows, weight)[order])
        other = torch.randn(decoder.ROWS, inner)
        other[17] = rows[3]
        assert torch.equal(torch.mm(other, weight)[17], torch.mm(rows, weight)[3])


def test_smaller_steps_change_no_bit(folders: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    """The sizes that the trial of the products allows, against steps of one size only."""
    requests = [(f"r{i}", p) for i, p in enumerate(prompts(30))]
    several = fresh(folders["lfm2"], tmp_path, requests)
    decoder.agreeing_sizes.cache_clear()
    monkeypatch.setattr(decoder, "SIZES", ())
    assert fresh(folders["lfm2"], tmp_path, requests) == several
    decoder.agreeing_sizes.cache_clear()


def test_which_models_are_fast(folders: dict[str, Path], tmp_path: Path) -> None:
    service: Any
    with local.serving(tmp_path, seed=0) as service:
        for folder in folders.values():
            weights = service.create_sampling_client(base_model=str(folder)).result().weights
            assert decoder.supports(weights.model)
            assert isinstance(service.service.worker.sampler(weights), FastSampler)
            weights.model.config.rope_parameters["rope_type"] = "yarn"
            assert isinstance(service.service.worker.sampler(weights), HFSampler)
            weights.model.config.rope_parameters["rope_type"] = "default"
    assert Decoder(weights.model).context == weights.context
