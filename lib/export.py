"""Takes a trained checkpoint out of a run, in the form in which other programs load models, with a card that says what it is.

    python -m lib.export RUN OUT [--seed N] [--measure 24]

OUT holds the whole model in Hugging Face's form (an adapter merged) with its tokenizer, in OUT/adapter an adapter's own PEFT
files where the run trained one, and README.md. A run of one's own takes it as `model: {name: OUT, tokenizer: OUT}`.

A served model isn't the trained one until it was measured. So what was written is loaded again; --measure asks it that many
test questions greedily, through the study's own path, and compares its answers with those of the checkpoint in the run. The
card says what came out, or that nothing was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import tinker
import torch
from safetensors import safe_open
from tinker_cookbook import weights
from tinker_cookbook.exceptions import TinkerCookbookError
from transformers import AutoTokenizer

from lib import evaluate, loop
from lib.agent import EnvironmentFault, Label
from lib.backends import local
from lib.backends.meter import SpendRefused, allowed_spend
from lib.backends.models import load_base, merged
from lib.compare import points
from lib.episodes import Episode, read
from lib.files import write_text
from lib.graph import server
from lib.settings import ROOT, SETS, Named, Settings, SettingsError, load

CLOSE = 1e-3  # of a log-probability: merging an adapter rounds in float32; untrained weights differ by tenths
TEXT = 64  # tokens of the text on which the two are compared


class ExportError(RuntimeError):
    """The checkpoint can't be taken out; the message says why and what to do."""


def export(settings: Settings, seed: int, out: Path, measure: int = 0) -> dict[str, Any]:
    """Write the checkpoint of a run's seed to the folder `out`; returns what its card says of the measuring.

    Raises ExportError for a run that isn't trained, a folder that is there, a service that gives no weights, names of weights
    that the base model doesn't have, and where what was written isn't the checkpoint.
    """
    file = settings.train_dir(seed) / "checkpoint.json"
    if not file.exists():
        raise ExportError(f"{file} is missing: train seed {seed} of run {settings.run!r} first")
    if out.exists():
        raise ExportError(f"{out} is there already: choose another folder, or remove it")
    paths = json.loads(file.read_text())
    part = out.with_name(out.name + ".part")
    for left in (part, *_halves(part)):
        shutil.rmtree(left, ignore_errors=True)
    if settings.local is not None:
        found = _of_this_machine(settings, file.with_name("checkpoint"), paths["sampler"], part)
    else:
        found = _of_a_host(settings, paths["state"], part)
    if measure:
        found |= _measured(settings, seed, part, measure)
    write_text(part / "README.md", card(settings, seed, found))
    part.rename(out)
    return found


def _of_this_machine(settings: Settings, root: Path, path: str, out: Path) -> dict[str, Any]:
    """Writes the model, in float32, and loads it again. Returns the greatest difference of a log-probability on a text."""
    assert settings.local is not None
    on_cpu = dataclasses.replace(settings.local, device="cpu")
    with local.serving(root, seed=0, how=on_cpu) as client:
        trained = client.service.submit(client.service.loaded, path).result().model.float()
    merged(trained).save_pretrained(out)
    AutoTokenizer.from_pretrained(str(settings.base_dir)).save_pretrained(out)
    if settings.train.training == "lora":
        trained.peft_config["default"].base_model_name_or_path = settings.base_model
        trained.save_pretrained(out / "adapter")
        (out / "adapter" / "README.md").unlink(missing_ok=True)  # PEFT's own card, which says nothing
        check_names(out / "adapter", out)
    asked = [question["question"] for question in evaluate.questions(settings, SETS[0])]
    text = " ".join(asked)  # the system prompt may be a single token
    tokens = evaluate.renderer_for(settings).tokenizer.encode(text, add_special_tokens=False)[:TEXT]
    again = load_base(str(out)).model
    apart = float((_logprobs(trained, tokens) - _logprobs(again, tokens)).abs().max())
    if apart > CLOSE:
        raise ExportError(
            f"{out} was written and loaded again, and its log-probabilities differ from the checkpoint's by {apart:.3g}, more "
            f"than {CLOSE:g}: it isn't the trained model"
        )
    return {"logprobs_apart": apart}


@torch.no_grad()
def _logprobs(model: Any, tokens: list[int]) -> torch.Tensor:
    """Of each token given those before it."""
    text = torch.tensor([tokens])
    logits = model(input_ids=text, use_cache=False).logits[0, :-1]
    return -torch.nn.functional.cross_entropy(logits, text[0, 1:], reduction="none")


def check_names(folder: Path, base: Path) -> None:
    """Raises ExportError where an adapter in PEFT's form names a layer that the model in `base` doesn't have.

    A program that serves it would leave such weights out without a word.
    """
    config = json.loads((folder / "adapter_config.json").read_text())
    layers = {name.removesuffix(".weight") for name in _names(base)}
    adapted = _names(folder, "adapter_model.safetensors")
    known = {f"base_model.model.{layer}.lora_{half}.weight" for layer in layers for half in "AB"}
    if unknown := sorted(adapted - known):
        raise ExportError(
            f"{folder} holds {len(unknown)} weights of layers that {base} doesn't have, like {unknown[0]}: nothing that "
            f"serves it would load them (target_modules: {config.get('target_modules')})"
        )
    if not adapted:
        raise ExportError(f"{folder} holds no weights at all")


def _names(folder: Path, file: str = "*.safetensors") -> set[str]:
    found: set[str] = set()
    for path in sorted(folder.glob(file)):
        with safe_open(path, framework="pt") as stored:
            found |= set(stored.keys())
    return found


def _halves(part: Path) -> tuple[Path, Path]:
    """Folders of what is fetched from a host, and of the whole model that is made from it."""
    return part.with_name(part.name + ".fetched"), part.with_name(part.name + ".whole")


def _of_a_host(settings: Settings, state: str, out: Path) -> dict[str, Any]:
    """Downloads a checkpoint by the cookbook's own functions, which refuse names that the base model doesn't have.

    That makes a temporary copy at the service, so it asks for leave to spend. Nothing of it is measured here.
    """
    if settings.train.backend != "tinker":
        raise ExportError(
            f"train.backend = {settings.train.backend!r} gives out no weights: promote them to a model of your account "
            "(python -m lib.backends.fireworks promote CHECKPOINT MODEL), and download that in its console"
        )
    allowed_spend(lambda: "Downloading a checkpoint starts a training session at the service.")
    fetched, whole = _halves(out)
    try:
        weights.download(tinker_path=state, output_dir=str(fetched), base_url=settings.train.base_url or None)
        weights.build_lora_adapter(
            base_model=settings.base_model, adapter_path=str(fetched), output_path=str(out / "adapter")
        )
        weights.build_hf_model(base_model=settings.base_model, adapter_path=str(fetched), output_path=str(whole))
    except TinkerCookbookError as e:
        raise ExportError(f"{state} can't be taken out: {e}") from e
    (out / "adapter").rename(whole / "adapter")
    shutil.rmtree(out)
    whole.rename(out)
    shutil.rmtree(fetched)
    return {}


def _measured(settings: Settings, seed: int, folder: Path, number: int) -> dict[str, Any]:
    """Greedy answers of the written model to the first questions of the test, beside the checkpoint's in the run."""
    asked = evaluate.questions(settings, SETS[0])[:number]
    how = settings.local or local.CPU
    label = Label(settings.run, f"trained-{seed}", seed, "evaluate", "greedy")
    kept: list[Episode] = []

    async def ask(uri: str) -> None:
        client = await tinker.ServiceClient().create_sampling_client_async(base_model=str(folder))
        async with evaluate.world_for(settings, uri, settings.agent.evaluation_query_timeout) as (world, renderer):
            policy = evaluate.sampler(client, settings, greedy=True)
            await evaluate.rollouts(lambda _: policy, asked, 1, label, world, renderer, settings, kept.append)

    work = settings.data / "work" / settings.run / f"export-{seed}"
    with (
        server.running(settings.graph_dir, settings.data) as uri,
        local.serving(work, evaluate.SAMPLER_SEED, how=how),
    ):
        loop.run(ask(uri))
    shutil.rmtree(work, ignore_errors=True)
    before = settings.episodes(label.arm)
    theirs = {e.id: e for e in read(before)} if before.exists() else {}
    both = [(e, theirs[e.id]) for e in kept if e.id in theirs]
    return {
        "questions": len(kept),
        "strict": sum(e.strict for e in kept),
        "compared": len(both),
        "same": sum((e.query, e.digest, e.messages) == (o.query, o.digest, o.messages) for e, o in both),
        "strict_of_checkpoint": sum(o.strict for _, o in both),
    }


def card(settings: Settings, seed: int, found: dict[str, Any]) -> str:
    """README.md: what was trained on what, under which plan, with which result, whose licences, and what was measured.

    found: what `export` returns. Every figure comes from the run's files.
    """
    named = isinstance(settings.model, Named)
    place = getattr(settings.model, "name", "a small model that the study made")
    base = Path(place).name if Path(place).is_absolute() else place  # a folder's path is nobody else's business
    licence = {"bird": "CC BY-SA 4.0 (BIRD, and Stack Exchange's contributors)",
               "stackexchange": "CC BY-SA 4.0 (Stack Exchange's contributors)",
               "twin": "none of others: the graph is made up",
               "neo4j": "that of your own database"}[settings.graph.source]  # fmt: skip
    how = "all weights" if settings.train.training == "full" else f"adapters of rank {settings.train.lora_rank}"
    return "\n".join(
        [
            "---",
            *([f"base_model: {base}"] if named and base == place else []),
            "pipeline_tag: text-generation",
            "tags: [reinforcement-learning, tool-use, cypher]",
            "---",
            "",
            f"# Run {settings.run}, seed {seed}",
            "",
            f"{'A model that exists, ' + base if named else base.capitalize()}, practised by reinforcement learning on "
            f"generated questions about a graph ({settings.graph.source}): {settings.train.updates} updates of "
            f"{settings.train.groups} questions and {_rollouts(settings)} each, {how}, rewarded by the rows that its "
            "last query returned. It answers with calls of one tool, `run_cypher`, and reads the renderer "
            f"`{settings.agent.renderer}`.",
            "",
            f"- plan: `{(settings.train_dir(seed) / 'plan.sha256').read_text().strip()}`",
            f"- {_result(settings)}",
            f"- {_measuring(found)}",
            f"- licence of the data that it practised on: {licence}",
            f"- licence of the base model: {'its own; see ' + base if named else 'the MIT licence of the study, which made it'}",
            "",
        ]
    )


def _rollouts(settings: Settings) -> str:
    replacement, most = settings.train.replacement, settings.train.rollouts
    first = most if replacement is None else replacement.first
    return f"{most} rollouts" if first == most else f"{first} or {most} rollouts"


def _result(settings: Settings) -> str:
    file = settings.run_dir / "results.json"
    if not file.exists():
        return "result: the run isn't compared yet"
    results = json.loads(file.read_text())
    gain = results["contrasts"][SETS[0]]["sampled"]["trained - control"]["strict"]
    return (
        f"result of the run, all seeds: {results['verdict']['verdict']}; strictly right on held-out questions "
        f"{points(gain['delta'])} points [{points(gain['low'])}, {points(gain['high'])}] over the untrained control"
    )


def _measuring(found: dict[str, Any]) -> str:
    said = "**not measured**: a model that is served elsewhere isn't the trained one until it was"
    if "questions" in found:
        said = (
            f"measured: loaded again from these files it had {found['strict']} of {found['questions']} test questions strictly "
            f"right, greedily; of {found['compared']} that the run's checkpoint answered so too, {found['same']} came out the "
            f"same to the letter, and the checkpoint had {found['strict_of_checkpoint']} right"
        )
    if "logprobs_apart" in found:
        said += f"; log-probabilities of a text within {found['logprobs_apart']:.1g} of the checkpoint's"
    return said


def main(arguments: list[str] | None = None) -> None:
    """Command line: take a checkpoint out; exit status 1 where that isn't possible."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="its name, as in params.yaml")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write, which must not be there")
    parser.add_argument("--seed", type=int, help="of the training (default: the first)")
    parser.add_argument("--measure", metavar="N", type=int, default=0, help="ask it the first N test questions")
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the run's parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    given = parser.parse_args(arguments)
    if given.measure < 0:
        parser.error(f"--measure {given.measure}: how many questions to ask, 0 or more")
    try:
        settings = load(given.params, given.data)
        if settings.run != given.run:
            raise ExportError(
                f"{given.params} is of run {settings.run!r}, not of {given.run!r}: name its own by --params"
            )
        seed = settings.train.seeds[0] if given.seed is None else given.seed
        found = export(settings, seed, Path(os.path.abspath(given.out)), given.measure)
    except (ExportError, SettingsError, SpendRefused, EnvironmentFault, server.ServerError,
            tinker.TinkerError, OSError, ValueError) as problem:  # fmt: skip
        sys.exit(f"export: {problem}")
    print(f"{given.out}: {_measuring(found)}")


if __name__ == "__main__":
    main()
