"""How fast the local sampler is, against `transformers.generate` on the same model, dtype, prompts and lengths.

    python benchmarks/sampler.py            # prints tokens per CPU-second and their ratios

Two workloads: single answers (a group of samples per prompt), and conversations of up to four turns in which every
turn sends what was said before plus a tool's result. `generate` is measured in two ways: with all conversations in
lock step, each turn one batch padded on the left (the most it can be given, and more than an agent whose tools take
time would give it), and group by group, as loops around it usually do. One thread; prefill counts; lengths are fixed
beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tinker import types

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.backends import local

VOCABULARY = 1000
Turn = tuple[int, int]  # (tokens that come in, tokens to sample)
Workload = list[tuple[list[int], list[list[Turn]]]]  # prompt, turns of each of its rollouts


def model_lfm2() -> Any:
    options: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 320,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "layer_types": ["conv", "full_attention"] * 2,
        "block_auto_adjust_ff_dim": False,
        "max_position_embeddings": 512,
        "initializer_range": 0.09,
        "eos_token_id": None,
    }
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**options))


def model_qwen3() -> Any:
    options: dict[str, Any] = {
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.07,
        "eos_token_id": None,
    }
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**options))


MODELS: dict[str, Callable[[], Any]] = {"lfm2": model_lfm2, "qwen3": model_qwen3}


def single(rng: random.Random, groups: int = 16, rollouts: int = 8) -> Workload:
    """Prompts of 60-200 tokens, 8 answers of 60-100 tokens each."""
    return [
        (_tokens(rng, rng.randint(60, 200)), [[(0, rng.randint(60, 100))] for _ in range(rollouts)])
        for _ in range(groups)
    ]


def agentic(rng: random.Random, groups: int = 16, rollouts: int = 8) -> Workload:
    """Conversations like the default study's: prompts of 20-40 tokens, 1 to 4 turns of 10-30 sampled tokens, tool
    results of 5-25 tokens between them."""
    return [
        (
            _tokens(rng, rng.randint(20, 40)),
            [
                [(rng.randint(5, 25) if turn else 0, rng.randint(10, 30)) for turn in range(rng.randint(1, 4))]
                for _ in range(rollouts)
            ],
        )
        for _ in range(groups)
    ]


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(1, VOCABULARY) for _ in range(count)]


@torch.inference_mode()
def by_generate(model: Any, workload: Workload) -> int:
    """All rollouts turn by turn, each turn one batch; returns the number of sampled tokens."""
    rng = random.Random(1)
    active = [(list(prompt), turns) for prompt, rollouts in workload for turns in rollouts]
    total = 0
    while active:
        for text, turns in active:
            text += _tokens(rng, turns[0][0])
        texts, lengths = [text for text, _ in active], [turns[0][1] for _, turns in active]
        for (text, _), sampled in zip(active, _generate(model, texts, lengths), strict=True):
            text += sampled
        total += sum(lengths)
        active = [(text, turns[1:]) for text, turns in active if len(turns) > 1]
    return total


def by_generate_in_groups(model: Any, workload: Workload) -> int:
    """The same, one group of rollouts after the other."""
    return sum(by_generate(model, [group]) for group in workload)


def _generate(model: Any, texts: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """Sample so many tokens after each text, with log-probabilities as the loop needs them."""
    longest = max(map(len, texts))
    tokens, mask = torch.zeros(2, len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        tokens[row, longest - len(text) :], mask[row, longest - len(text) :] = torch.tensor(text), 1
    wanted = torch.tensor(lengths)

    class Enough(transformers.StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return input_ids.shape[1] - longest >= wanted

    out = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max(lengths),
        output_logits=True,
        return_dict_in_generate=True,
        stopping_criteria=transformers.StoppingCriteriaList([Enough()]),
        pad_token_id=0,
    )
    sampled = out.sequences[:, longest:]
    for at, logits in enumerate(out.logits):
        logits.log_softmax(-1).gather(-1, sampled[:, at : at + 1])
    return [row[:n] for row, n in zip(sampled.tolist(), lengths, strict=True)]


def by_sampler(sampler: Any, workload: Workload) -> int:
    """The same through the sampling client, each rollout its own task; returns the number of sampled tokens."""

    async def rollout(number: int, text: list[int], turns: list[Turn]) -> int:
        rng = random.Random(number)
        for incoming, length in turns:
            text = text + _tokens(rng, incoming)
            params = types.SamplingParams(max_tokens=length, stop=[])
            answer = await sampler.sample(types.ModelInput.from_ints(text), 1, params)
            text = text + answer.sequences[0].tokens
        return sum(length for _, length in turns)

    async def everyone() -> int:
        flat = [(prompt, turns) for prompt, rollouts in workload for turns in rollouts]
        return sum(await asyncio.gather(*[rollout(i, list(p), t) for i, (p, t) in enumerate(flat)]))

    return asyncio.run(everyone())


def measure(name: str, repeats: int) -> list[dict[str, Any]]:
    """One line per workload for the model of that name: the best of `repeats`, since other processes only slow it down.

    Both take turns, each repeat with prompts of its own, so that the sampler finds nothing that it has seen. Warm-ups
    come first, enough of them to fill the sampler's memory once: the first use of a page costs more than its later ones.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS[name]().float().eval()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        base = save(model, Path(folder) / "base")
        with local.serving(Path(folder) / "service", seed=0) as client:
            sampler = client.create_sampling_client(base_model=base).result()
            for workload in (single, agentic):
                rates: dict[str, list[float]] = {"lock_step": [], "in_groups": [], "sampler": []}
                for warm_up in range(4):
                    by_sampler(sampler, workload(random.Random(f"{workload.__name__} warm-up {warm_up}")))
                by_generate(model, workload(random.Random("warm-up"), 2, 2))
                for repeat in range(repeats):
                    work = workload(random.Random(f"{workload.__name__} {repeat}"))
                    rates["lock_step"].append(_rate(by_generate, model, work))
                    rates["in_groups"].append(_rate(by_generate_in_groups, model, work))
                    rates["sampler"].append(_rate(by_sampler, sampler, work))
                best = {way: round(max(values)) for way, values in rates.items()}
                ratios = {f"over_{way}": round(best["sampler"] / best[way], 1) for way in ("lock_step", "in_groups")}
                results.append({"model": name, "workload": workload.__name__, **best, **ratios})
                print(json.dumps(results[-1]), flush=True)
    return results


def _rate(way: Callable[[Any, Workload], int], model: Any, work: Workload) -> float:
    """Tokens per CPU-second."""
    start = time.process_time()
    return way(model, work) / (time.process_time() - start)


def save(model: Any, folder: Path) -> str:
    """The model as a folder with a tokenizer of as many words."""
    from tokenizers import Tokenizer, models

    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(model.config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w0").save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["lfm2"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    for model_name in options.models:
        measure(model_name, options.repeats)
