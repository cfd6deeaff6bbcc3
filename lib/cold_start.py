"""Makes the default study's base model: a random small decoder taught by demonstrations of mixed quality, through the cookbook's supervised loop.

A model at full size comes with some Cypher; this one must get it here, and its mistakes are planted (see
`questions/demonstrations.py`). What was planted and how often is written to base.json for the report.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import chz
import torch
from tinker_cookbook import checkpoint_utils
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.renderers.base import Message
from tinker_cookbook.supervised import train as supervised
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from lib import graph, loop, tiny
from lib.backends import local
from lib.backends.serving import serving
from lib.evaluate import SAMPLER_SEED, dev_counts, renderer_for
from lib.files import read_jsonl, write_json, write_jsonl, write_text
from lib.graph import server
from lib.graph.query import QueryError, Reader, Rows
from lib.graph.world import DONE, CypherWorld, asks, show, show_error
from lib.questions import demonstrations as teacher
from lib.reward import score
from lib.settings import Settings

Turns = list[tuple[str, str]]  # (query, what was shown)


def cold_start(settings: Settings) -> dict[str, Any]:
    """Write data/runs/<run>/base (model and tokenizer), system_prompt.txt and base.json; return the latter.

    A killed run keeps the demonstrations' results and starts the lessons over: a few minutes, and the cookbook's
    supervised loop, resumed, would train a batch twice.
    """
    work = settings.data / "work" / settings.run / "cold-start"
    work.mkdir(parents=True, exist_ok=True)
    demonstrations = read_jsonl(settings.questions_dir / "demonstrations.jsonl")
    taught = work / "demonstrations.jsonl"
    with server.running(settings.graph_dir, settings.data) as uri:
        if not taught.exists():
            write_jsonl(taught, loop.run(_teach(demonstrations, uri, settings)))
        lessons = read_jsonl(taught)
        for begun in ("random", "log", "tinker"):
            shutil.rmtree(work / begun, ignore_errors=True)
        start = work / "random"
        _initial_model(start, lessons, settings)
        _export(_supervise(start, lessons, work, settings), work, settings.base_dir)
        facts = _facts(lessons, work, settings)
        with serving(settings, work.with_name("dev"), SAMPLER_SEED):
            facts["dev_counts"] = loop.run(dev_counts(settings, uri))
    write_json(settings.run_dir / "base.json", facts)
    write_text(settings.run_dir / "system_prompt.txt", system_prompt(renderer_for(settings), settings))
    shutil.rmtree(work)
    return facts


async def _teach(instances: list[dict[str, Any]], uri: str, settings: Settings) -> list[dict[str, Any]]:
    """Each demonstration's queries with what the database shows for them."""
    rates = teacher.error_rates((i["structure"] for i in instances), settings.taught)
    reader = Reader(uri, at_once=settings.agent.queries_at_once, timeout=settings.agent.query_timeout)
    bar = tqdm(total=len(instances), desc="demonstrations")
    asked: dict[str, asyncio.Task[Rows | QueryError]] = {}  # many demonstrations share a query

    async def result(query: str) -> Rows | QueryError:
        if query not in asked:
            asked[query] = asyncio.create_task(_result(reader, query, settings))
        return await asked[query]

    async def one(i: int, instance: dict[str, Any]) -> dict[str, Any]:
        rng = random.Random(f"demonstration {settings.taught.seed} {i}")
        turns = teacher.attempt(instance["template"], rates[instance["structure"]], settings.taught, rng)
        results = [await result(teacher.fill(t, instance["slots"])) for t, _ in turns]
        shown = [
            show_error(r, settings.agent) if isinstance(r, QueryError) else show(r, settings.agent) for r in results
        ]
        # A mistake can leave the rows as they were: a lost DISTINCT where nothing repeats, say.
        right = isinstance(results[-1], Rows) and score(results[-1].rows, instance["rows"]).strict
        bar.update()
        return {
            "structure": instance["structure"],
            "wording": instance["wording"],
            "slots": instance["slots"],
            "turns": [{"query": t, "shown": s, "mistake": k} for (t, k), s in zip(turns, shown, strict=True)],
            "right": right,
        }

    try:
        return list(await asyncio.gather(*[one(i, x) for i, x in enumerate(instances)]))
    finally:
        bar.close()
        await reader.close()


async def _result(reader: Reader, query: str, settings: Settings) -> Rows | QueryError:
    try:
        return await reader.run(query, settings.agent.row_cap)
    except QueryError as e:
        return e


def _initial_model(folder: Path, lessons: list[dict[str, Any]], settings: Settings) -> None:
    templates = [t["query"] for x in lessons for t in x["turns"]]
    wordings = [teacher.SLOT.sub("", x["wording"]) for x in lessons]
    names = _names(lessons)
    shown = ["1 row\n5 rows\nno rows\nnull true false", "syntax error", "name error", "type error", "memory error", "refused", "time out", "done",
             "user assistant system"]  # fmt: skip
    # The prompt is made by a renderer, and a renderer needs a tokenizer: any will do for the text of the prompt.
    bare = tiny.build_tokenizer("", wordings, templates, shown, names)
    system = system_prompt(get_renderer(settings.agent.renderer, bare), settings)
    tokenizer = tiny.build_tokenizer(system, wordings, [teacher.SLOT.sub(" ", t) for t in templates], shown, names)
    tiny.save(folder, tokenizer, tiny.build_model(len(tokenizer), settings.made))


def _world(renderer: Renderer, settings: Settings) -> CypherWorld:
    return CypherWorld(None, renderer, graph.schema_text(settings.graph_dir), settings.agent)


def system_prompt(renderer: Renderer, settings: Settings) -> str:
    """The system prompt, tools included: one text for all of a run."""
    text = _world(renderer, settings).prompt({"question": ""})[0]["content"]
    assert isinstance(text, str)
    return text


def conversation(world: CypherWorld, question: str, turns: Turns) -> list[Message]:
    """A demonstration as the messages that the agent would have sent and received."""
    messages = world.prompt({"question": question})
    for query, shown in turns:
        messages += [asks(query), {"role": "tool", "content": shown}]
    return [*messages, DONE]


class Lessons(SupervisedDataset):
    """Demonstrations by step; each use of one is filled with fresh made-up values, or a model this small learns the names by heart."""

    def __init__(self, lessons: list[dict[str, Any]], world: CypherWorld, renderer: Renderer, settings: Settings):
        self._lessons = sorted(lessons, key=_length)  # neighbours are of like length: little padding in a batch
        self._world, self._renderer, self._settings = world, renderer, settings.taught
        self._bar = tqdm(total=settings.taught.steps, desc="cold start", unit="step")
        self._inventor = teacher.Inventor(_names(lessons))

    def __len__(self) -> int:
        return self._settings.steps

    def set_epoch(self, seed: int = 0) -> None:
        """There are no epochs: a step draws its own batch."""

    def get_batch(self, index: int) -> list[Any]:
        self._bar.update(index - self._bar.n)
        rng = random.Random(f"lessons {self._settings.seed} {index}")
        n = len(self._lessons)
        centre = rng.randrange(n)
        picks = [min(n - 1, max(0, int(rng.gauss(centre, n / 16)))) for _ in range(self._settings.batch)]
        return [self._datum(self._lessons[i], rng) for i in picks]

    def close(self) -> None:
        self._bar.update(len(self) - self._bar.n)
        self._bar.close()

    def _datum(self, lesson: dict[str, Any], rng: random.Random) -> Any:
        old = lesson["slots"]
        new = self._inventor.slots(old, rng)
        turns = [(teacher.fill(t["query"], new), teacher.replace_values(t["shown"], old, new)) for t in lesson["turns"]]
        wording = thinned(lesson["wording"], self._settings.dropped_words, rng)
        messages = conversation(self._world, teacher.fill(wording, new), turns)
        return conversation_to_datum(messages, self._renderer, max_length=None)


def thinned(wording: str, share: float, rng: random.Random) -> str:
    """A wording with some of its words left out, in every second use; slots stay."""
    if rng.random() < 0.5:
        return wording
    return " ".join(w for w in wording.split(" ") if "{" in w or rng.random() >= share)


def _names(lessons: list[dict[str, Any]]) -> list[str]:
    """The texts that fill slots."""
    return sorted({v for x in lessons for s in x["slots"].values() if isinstance(v := s["value"], str)})


def _length(lesson: dict[str, Any]) -> int:
    return len(lesson["wording"]) + sum(len(t["query"]) + len(t["shown"]) for t in lesson["turns"])


@chz.chz
class LessonsBuilder(SupervisedDatasetBuilder):
    dataset: Any  # a function, since the cookbook copies its configuration deeply

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        return self.dataset(), None


def _supervise(start: Path, lessons: list[dict[str, Any]], work: Path, settings: Settings) -> str:
    """The cookbook's supervised loop, unmodified; returns the path of the taught weights."""
    renderer = renderer_for(settings, start)
    dataset = Lessons(lessons, _world(renderer, settings), renderer, settings)
    config = supervised.Config(
        log_path=str(work / "log"),
        model_name=str(start),
        recipe_name="cold_start",
        renderer_name=settings.agent.renderer,
        dataset_builder=LessonsBuilder(dataset=lambda: dataset),
        learning_rate=settings.taught.learning_rate,
        lr_schedule="linear",
        adam_beta2=settings.taught.adam_beta2,
        save_every=0,
        eval_every=0,
        ttl_seconds=None,
    )
    assert settings.local is not None
    with local.serving(
        work / "tinker", settings.taught.seed, grad_clip_norm=settings.train.grad_clip_norm, how=settings.local
    ):
        loop.run(supervised.main(config))
    dataset.close()
    final = checkpoint_utils.get_last_checkpoint(config.log_path, required_key="sampler_path")
    assert final is not None and final.sampler_path is not None
    return final.sampler_path


def _export(sampler_path: str, work: Path, base: Path) -> None:
    """The taught weights as a Hugging Face folder, whole or not at all."""
    half = base.with_name(base.name + ".part")
    shutil.rmtree(half, ignore_errors=True)
    local.export(work / "tinker", sampler_path, half)
    shutil.rmtree(base, ignore_errors=True)
    half.rename(base)


def _facts(lessons: list[dict[str, Any]], work: Path, settings: Settings) -> dict[str, Any]:
    """What the cold start was: read by the report."""
    last = [x["turns"][-1] for x in lessons]
    first = [x["turns"][0] for x in lessons]
    share = lambda turns: {k: sum(t["mistake"] == k for t in turns) / len(lessons) for k in teacher.KINDS}  # noqa: E731
    curve = [m["train_mean_nll"] for m in read_jsonl(work / "log" / "metrics.jsonl") if "train_mean_nll" in m]
    model = json.loads((settings.base_dir / "config.json").read_text())
    return {
        "steps": settings.taught.steps,
        "demonstrations": len(lessons),
        "structures": len({x["structure"] for x in lessons}),
        "share_right": sum(x["right"] for x in lessons) / len(lessons),
        "share_repaired": sum(len(x["turns"]) > 1 for x in lessons) / len(lessons),
        "mistakes": share(last),
        "first_mistakes": share(first),
        "loss": [round(v, 5) for v in curve],
        "vocabulary": model["vocab_size"],
        "parameters": _parameters(settings.base_dir),
    }


def _parameters(folder: Path) -> int:
    return sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).parameters())
