"""A study of a model that exists: questions of one kind, and a Qwen3 that was taught elsewhere to answer them now and then."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tinker import types
from tinker_cookbook.supervised.data import conversation_to_datum

from lib import evaluate, graph, human_set, tiny
from lib.backends import local
from lib.cold_start import conversation, system_prompt
from lib.files import write_json, write_jsonl
from lib.graph.world import CypherWorld
from lib.settings import SETS, Local, Named, Settings, load
from tests.conftest import ROOT

KINDS = ("Tag", "User", "Question", "Badge")


def study(data: Path, graph_folder: Path, how: Local) -> Settings:
    """Its settings, questions and model under `data`."""
    (data / "graph").symlink_to(graph_folder)
    chosen = load(ROOT / "profiles" / "miniature.yaml", data)
    name = str(data / "elsewhere" / "qwen")
    settings = dataclasses.replace(
        chosen,
        run="named",
        model=Named(name=name, tokenizer=name, context=512),
        cold_start=None,
        local=how,
        train=dataclasses.replace(chosen.train, training="lora", lora_rank=4, seeds=(0,), learning_rate=1e-2),
    )
    counts = json.loads((graph_folder / "counts.json").read_text())["database"]["nodes"]
    for split in ("train", "dev", *SETS):
        write_jsonl(settings.questions_dir / f"{split}.jsonl", [asked(split, i, counts) for i in range(len(KINDS))])
    sizes = {split: len(KINDS) for split in ("train", "dev", *SETS)}
    write_json(settings.questions_dir / "summary.json", {"counts": sizes, "hops": {}, "leaks": {}})
    human_set.write([], None, settings.human_dir)
    teach(Path(name), settings)
    return settings


def asked(split: str, i: int, counts: dict[str, int]) -> dict[str, Any]:
    kind = KINDS[i]
    return {"id": f"{split}-{i}", "question": f"How many nodes are there of {kind}?", "hint": None, "ordered": False,
            "query": f"MATCH (n:{kind}) RETURN count(n)", "rows": [[counts[kind]]], "structure": f"{split}-{i}",
            "hops": 0, "split": split, "source": "twin", "difficulty": {}}  # fmt: skip


def teach(folder: Path, settings: Settings) -> None:
    """A Qwen3 of random weights, shown answers that are right and others that are wrong."""
    lines = evaluate.questions(settings, "train")
    texts = [q["question"] for q in lines], [q["query"] for q in lines], ["1 row no rows count(n)"], ["none"]
    bare = folder.with_name("bare")
    tiny.build_tokenizer("", *texts).save_pretrained(bare)
    system = system_prompt(evaluate.renderer_for(settings, bare), settings)
    tokenizer = tiny.build_tokenizer(system, *texts)
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    untaught = folder.with_name("untaught")
    tiny.save(untaught, tokenizer, transformers.Qwen3ForCausalLM(config))
    renderer = evaluate.renderer_for(settings, untaught)
    world = CypherWorld(None, renderer, graph.schema_text(settings.graph_dir), settings.agent)
    # each question with its own query and with another's, so that it is answered right now and then
    answers = [(q["question"], a) for i, q in enumerate(lines) for a in (q, lines[i - 1])]
    talks = [conversation(world, text, [(a["query"], f"1 row\ncount(n)\n{a['rows'][0][0]}")]) for text, a in answers]
    data = [conversation_to_datum(talk, renderer, max_length=None) for talk in talks]
    with local.serving(folder.parent, seed=0) as service:
        client: Any = service.create_lora_training_client(str(untaught)).result()
        for _ in range(60):
            client.forward_backward(data, "cross_entropy")
            client.optim_step(types.AdamParams(learning_rate=3e-3)).result()
        path = client.save_weights_for_sampler("taught").result().path
    local.export(folder.parent, path, folder)
