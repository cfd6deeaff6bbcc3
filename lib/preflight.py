"""What can be known before anything is created or paid for: whether a profile could run here, on this account, as it is.

    python -m lib.preflight                    the run in params.yaml
    python -m lib.preflight tinker-27b ...     profiles by name
    python -m lib.preflight --all              all of them

Each check is `ok`, `refused` with the way out, or `check yourself` where neither this machine nor the service can say. The
only call to a service asks what it serves, which costs nothing and creates nothing; without a key not even that is made.
Exit status 1 where a check is refused.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import inspect
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import tinker
import torch
from tinker import types
from tinker_cookbook import model_info
from tinker_cookbook.exceptions import TinkerCookbookError

from lib import forecast
from lib.agent import Question
from lib.backends import ledger, prices
from lib.backends.checkpoints import NAME
from lib.backends.meter import ALLOWED, SpendRefused, allowed_spend
from lib.backends.prices import PriceError
from lib.backends.tokenizer import lock_tokenizer
from lib.evaluate import questions, renderer_for, unanswerable
from lib.findings import LOOK, OK, REFUSED, Finding, described, passed
from lib.parity import prompts
from lib.settings import ROOT, SETS, Model, Named, Settings, SettingsError, found, load, profiles

KEYS = {"tinker": "TINKER_API_KEY", "fireworks": "FIREWORKS_API_KEY"}
PACKAGES = {"tinker": "tinker", "fireworks": "fireworks.training"}
BESIDES = ("trial", "parity", "endpoint-")  # stages of the ledger that no forecast counts, by their names' beginnings
OLD = 60  # days after which a price should be looked at again
ANSWER_WITHIN = 60.0  # seconds, of the service
MEMORY, DISK = 6, 4  # GB that a study takes beside its model
WORK_SHARE = 0.3  # of a card's memory, for activations and what is sampled at once
RANK = inspect.signature(tinker.ServiceClient.create_lora_training_client).parameters["rank"].default
WORDS = "MATCH (n:User)-[:WROTE]->(p) WHERE n.displayName = 'Zoë' RETURN count(p) AS posts // 1,024"
GB = 2**30


def preflight(
    settings: Settings, environment: Mapping[str, str] = os.environ, today: datetime.date | None = None
) -> list[Finding]:
    """All checks that apply to the settings. environment: where keys and ALLOW_SPEND stand; no key is read beyond its being
    there but by the service's own client."""
    both = [_tokenizer(settings), _renderer(settings), _prompt(settings), _names(settings)]
    if settings.local is not None:
        return [*both, _device(settings), _memory(settings), _disk(settings)]
    served = _ask(settings, environment)
    return [
        _package(settings),
        _key(settings, environment),
        _model(settings, served),
        _context(settings, served),
        *both,
        _rank(settings),
        _price(settings, today or datetime.date.today()),
        _spend(settings, environment),
        _quota(settings),
    ]


def _ask(settings: Settings, environment: Mapping[str, str]) -> list[types.SupportedModel] | Finding:
    """What the service serves, or why that isn't known."""
    backend = settings.train.backend
    if backend != "tinker":
        return Finding(
            "model", LOOK, f"{backend} can't be asked what it serves: look for {settings.base_model} in its console"
        )
    if not environment.get(KEYS[backend]):
        return Finding(
            "model", LOOK, f"without {KEYS[backend]} the service can't be asked whether it serves {settings.base_model}"
        )
    try:
        client = tinker.RestClient(base_url=settings.train.base_url or None)
        return client.get_server_capabilities().result(timeout=ANSWER_WITHIN).supported_models
    except (tinker.AuthenticationError, tinker.PermissionDeniedError) as e:
        said = str(e).replace(environment[KEYS[backend]], "[the key]")
        return Finding(
            "model", REFUSED, f"the service doesn't take this key ({said}): look at {KEYS[backend]} and the account"
        )
    except (tinker.TinkerError, TimeoutError, OSError, ValueError) as e:
        return Finding("model", LOOK, f"the service couldn't be asked ({type(e).__name__}: {e})")


def _package(settings: Settings) -> Finding:
    package = PACKAGES[settings.train.backend]
    try:
        there = importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        there = False
    if there:
        return Finding("package", OK, f"{package} is installed")
    return Finding(
        "package",
        REFUSED,
        f"{package} isn't installed: `make {settings.train.backend}` makes an environment that has it",
    )


def _key(settings: Settings, environment: Mapping[str, str]) -> Finding:
    name = KEYS[settings.train.backend]
    if environment.get(name):
        return Finding("key", OK, f"{name} is set")
    return Finding(
        "key", REFUSED, f"{name} isn't set: make a key in the service's console and put it into the environment"
    )


def _model(settings: Settings, served: list[types.SupportedModel] | Finding) -> Finding:
    if isinstance(served, Finding):
        return served
    names = sorted(filter(None, (one.model_name for one in served)))
    one = next((one for one in served if one.model_name == settings.base_model), None)
    if one is None:
        return Finding(
            "model", REFUSED, f"{settings.base_model} isn't served; set model.name to one of {', '.join(names)}"
        )
    for what, can in (("trained", one.trainable), ("sampled", one.sampleable)):
        if can is False:
            return Finding("model", REFUSED, f"{settings.base_model} can't be {what} there: set model.name to another")
    if one.trainable is None or one.sampleable is None:
        return Finding(
            "model", LOOK, f"{settings.base_model} is served; whether it can be trained and sampled isn't said"
        )
    return Finding("model", OK, f"{settings.base_model} is served, to be trained and sampled")


def _context(settings: Settings, served: list[types.SupportedModel] | Finding) -> Finding:
    needed = settings.agent.max_trajectory_tokens
    most = None
    if not isinstance(served, Finding):
        most = next((one.max_context_length for one in served if one.model_name == settings.base_model), None)
    if most is None:
        return Finding(
            "context", LOOK, f"look whether the service gives {settings.base_model} {needed:,} tokens, at this price"
        )
    if most < needed:
        return Finding(
            "context",
            REFUSED,
            f"the service gives {most:,} tokens: lower agent.max_trajectory_tokens = {needed:,} and model.context",
            {"served": most, "needed": needed},
        )
    return Finding("context", OK, f"{needed:,} tokens of {most:,}", {"served": most, "needed": needed})


def _tokenizer(settings: Settings) -> Finding:
    where = _tokenizer_of(settings)
    if isinstance(settings.model, Model) and not settings.base_dir.is_dir():
        return Finding("tokenizer", OK, "made with the model")
    try:
        tokenizer = lock_tokenizer(where)
    except (OSError, ValueError) as e:
        said = f"that of {where} can't be loaded ({' '.join(str(e).split())[:160]}): fetch it, or set model.tokenizer to a folder"
        return Finding("tokenizer", REFUSED, said)
    back = tokenizer.decode(tokenizer.encode(WORDS, add_special_tokens=False))
    if back != WORDS:
        return Finding(
            "tokenizer", REFUSED, f"that of {where} doesn't give {WORDS!r} back but {back!r}: set model.tokenizer"
        )
    size = {"vocabulary": len(tokenizer)}
    if settings.local is not None:
        return Finding("tokenizer", OK, f"{len(tokenizer):,} tokens, the model's own", size)
    return Finding(
        "tokenizer",
        LOOK,
        f"loads; that the service cuts texts alike, the trial finds out ({len(tokenizer):,} tokens)",
        size,
    )


def _tokenizer_of(settings: Settings) -> str:
    return found(settings.model.tokenizer) if isinstance(settings.model, Named) else str(settings.base_dir)


def _renderer(settings: Settings) -> Finding:
    """By the cookbook's own table of which renderer was made for which model."""
    name = settings.agent.renderer
    if isinstance(settings.model, Model):
        return Finding("renderer", OK, f"{name}: the model is taught in it")
    try:
        fitting = model_info.get_recommended_renderer_names(settings.model.tokenizer)
    except (KeyError, ValueError, TinkerCookbookError):
        said = f"whether {name} fits {settings.model.tokenizer} isn't known: compare a prompt with the model's own chat template"
        return Finding("renderer", LOOK, said)
    if name in fitting:
        return Finding("renderer", OK, f"{name} was made for {settings.model.tokenizer}")
    return Finding(
        "renderer",
        REFUSED,
        f"{name} wasn't made for {settings.model.tokenizer}: set agent.renderer to {' or '.join(fitting)}",
    )


def _prompt(settings: Settings) -> Finding:
    """Every question's prompt must leave room for an answer of agent.max_tokens."""
    agent = settings.agent
    try:
        renderer = renderer_for(settings, Path(_tokenizer_of(settings)))
        asked: list[Question] = [q for name in (settings.practised, "dev", *SETS) for q in questions(settings, name)]
        world = prompts(settings, renderer)
        system = renderer.build_generation_prompt(world.prompt(asked[0])).length
    except (OSError, ValueError) as e:
        return Finding(
            "prompt", LOOK, f"can't be measured yet ({' '.join(str(e).split())[:120]}): make graph and questions first"
        )
    unfit = unanswerable(asked, world, renderer, settings)
    long, cut = unfit["question_too_long"], unfit["answer_too_long"]
    figures = {"questions": len(asked), "prompt": system, "too_long": len(long), "cut": len(cut)}
    if long or cut:
        said = (
            f"of {len(asked)} questions {len(long)} leave no room for a turn and {len(cut)} need a longer one: raise "
            f"agent.max_trajectory_tokens = {agent.max_trajectory_tokens} or agent.max_tokens = {agent.max_tokens}"
        )
        return Finding("prompt", REFUSED, said, figures)
    return Finding("prompt", OK, f"{len(asked)} questions fit, the first with a prompt of {system:,} tokens", figures)


def _names(settings: Settings) -> Finding:
    """Of the checkpoints that loop and evaluation save; Fireworks has its own rules, which the adapter's names must keep."""
    saved = ["final", f"{settings.train.updates:06d}", *settings.arms[1:]]
    if settings.train.backend != "fireworks":
        bad = [name for name in saved if not NAME.fullmatch(name)]
        return Finding("names", REFUSED if bad else OK, f"illegal: {', '.join(bad)}" if bad else f"{', '.join(saved)}")
    if _package(settings).outcome != OK:
        return Finding("names", LOOK, "its rules come with its package")
    from lib.backends import fireworks_types as to

    made = [to.legal(name, settings.run) for name in saved]
    bad = [
        name
        for name in made
        if len(name) > to.NAME_LENGTH or not name.replace("-", "").isalnum() or name != name.lower()
    ]
    if bad or len(set(made)) < len(saved):
        return Finding("names", REFUSED, f"{', '.join(made)} aren't all legal and different: choose another `run`")
    return Finding("names", OK, f"{', '.join(made)}: at most {to.NAME_LENGTH} characters, all different")


def _rank(settings: Settings) -> Finding:
    rank = settings.train.lora_rank
    if rank <= RANK:
        return Finding("rank", OK, f"{rank}; the service's client takes {RANK} where nothing is said")
    return Finding(
        "rank", LOOK, f"{rank} is above the {RANK} that the service's client takes by itself: look what it allows"
    )


def _price(settings: Settings, today: datetime.date) -> Finding:
    try:
        price = prices.find(settings.train.backend, settings.base_model)
    except PriceError as e:
        return Finding("price", REFUSED, str(e))
    age = (today - datetime.date.fromisoformat(price.date)).days
    said = f"read on {price.date} at {price.source}, {age} days ago"
    if age > OLD:
        return Finding("price", LOOK, f"{said}: look there again", {"days": age})
    return Finding("price", OK, said, {"days": age})


def _spend(settings: Settings, environment: Mapping[str, str]) -> Finding:
    """Whether the limit leaves room for the forecast's upper bound and for what is spent beside it; a run that meets its limit
    stops half-way."""
    try:
        cost, file = forecast.of_run(settings, settings.train.backend, settings.base_model)
        besides = _besides(settings)
    except (OSError, ValueError) as e:
        return Finding("spending", LOOK, f"there is no forecast ({e}): `python -m lib.forecast PILOT.jsonl` makes one")
    most = cost.upper[2] + besides
    figures = {"forecast": cost.cached[0], "at_most": most}
    said = f"the whole run would cost ${cost.cached[0]:.2f} with caching and at most ${cost.upper[2]:.2f}, by {file}"
    if besides:
        said += f", and up to ${besides:.2f} is spent on what that leaves out"
    try:
        limit = allowed_spend(lambda: f"{said}.", environment)
    except SpendRefused as e:
        return Finding("spending", REFUSED, str(e), figures)
    if limit < most:
        way = f"{ALLOWED}={limit:.2f} may stop it half-way: raise it, or shorten the run"
        return Finding("spending", REFUSED, f"{said}; {way}", figures)
    if warning := forecast.another_model(file, settings):
        return Finding("spending", LOOK, f"{said}, within {ALLOWED}={limit:.2f}. {warning}", figures)
    return Finding("spending", OK, f"{said}, within {ALLOWED}={limit:.2f}", figures)


def _besides(settings: Settings) -> float:
    """US dollars at most that the run's ledger holds for what no forecast counts: trials, checks, endpoints, lost calls."""
    file = ledger.path(settings.run_dir)
    if not file.exists():
        return 0.0
    account = ledger.read(file)
    return account.in_flight + sum(s.upper for name, s in account.stages.items() if name.startswith(BESIDES))


def _quota(settings: Settings) -> Finding:
    """No client is told of these."""
    return Finding(
        "account",
        LOOK,
        f"billing is set up; {settings.base_model} trains on shared hardware for this account (small ones may train on dedicated "
        "hardware only, which is billed by the hour and must be granted); rate limits and the quota of sessions and checkpoints "
        "leave room; nothing of an earlier run is left running",
    )


def _device(settings: Settings) -> Finding:
    assert settings.local is not None
    if settings.local.device == "cpu":
        return Finding("device", OK, "computes on the CPU")
    if not torch.cuda.is_available():
        return Finding(
            "device", REFUSED, "torch finds no card here: set local.device to cpu, or run this where there is one"
        )
    if settings.local.dtype == "bfloat16" and not torch.cuda.is_bf16_supported():
        return Finding("device", REFUSED, "the card doesn't compute in bfloat16: set local.dtype to float32")
    return Finding("device", OK, f"{torch.cuda.get_device_name()}, {settings.local.dtype}")


def parameters(settings: Settings) -> int | None:
    """How many the model has, by its configuration alone; None where that isn't at hand."""
    if isinstance(settings.model, Model):
        return 12 * len(settings.model.layers) * settings.model.hidden**2  # of a decoder's layers, about; all are small
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(found(settings.model.name))
        with torch.device("meta"):
            return int(AutoModelForCausalLM.from_config(config).num_parameters())
    except (OSError, ValueError, KeyError):
        return None


def weights_gb(settings: Settings, count: int) -> float:
    """What a model takes that is sampled from and trained: with an adapter its weights once, else twice, with gradient and
    two moments."""
    assert settings.local is not None
    size = 2 if settings.local.dtype == "bfloat16" else 4
    return count * size * (1 if settings.train.training == "lora" else 5) / GB


def _memory(settings: Settings) -> Finding:
    assert settings.local is not None
    count = parameters(settings)
    if count is None:
        return Finding(
            "memory",
            LOOK,
            f"the size of {settings.base_model} isn't known here: its weights must fit, with room for work",
        )
    weights = weights_gb(settings, count)
    on_card = settings.local.device == "cuda"
    if on_card and not torch.cuda.is_available():
        return Finding(
            "memory", LOOK, f"the card needs {weights / (1 - WORK_SHARE):.1f} GB, weights being {weights:.1f} of it"
        )
    there = torch.cuda.get_device_properties(0).total_memory if on_card else psutil.virtual_memory().available
    needed = weights / (1 - WORK_SHARE) if on_card else weights + MEMORY
    figures = {"needed_gb": needed, "there_gb": there / GB}
    said = f"{needed:.1f} GB needed, {there / GB:.1f} there"
    if there / GB < needed:
        return Finding("memory", REFUSED, f"{said}: take a smaller model or a larger machine", figures)
    return Finding("memory", OK, said, figures)


def _disk(settings: Settings) -> Finding:
    """The study's files, and a checkpoint of each seed with the one before it."""
    count = parameters(settings)
    if count is None:
        return Finding("disk", LOOK, f"the size of {settings.base_model} isn't known here")
    kept = 0.0 if settings.train.training == "lora" else count * 12 / GB * 2 * len(settings.train.seeds)
    needed = DISK + kept
    free = shutil.disk_usage(_existing(settings.data)).free / GB
    figures = {"needed_gb": needed, "free_gb": free}
    if free < needed:
        return Finding(
            "disk", REFUSED, f"{needed:.1f} GB needed, {free:.1f} free at {settings.data}: make room", figures
        )
    return Finding("disk", OK, f"{needed:.1f} GB needed, {free:.1f} free", figures)


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.resolve().parents) if one.exists())


def main(arguments: list[str] | None = None) -> None:
    """Command line: check the run in params.yaml, or profiles; exit status 1 where a check is refused."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.preflight", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help="by name (default: the run in params.yaml)")
    parser.add_argument("--all", action="store_true", help="all profiles")
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    given = parser.parse_args(arguments)
    try:
        checked = [load(file, given.data) for file in _files(given.profiles, given.all, given.params)]
    except SettingsError as e:
        sys.exit(f"preflight: {e}")
    refused = False
    for settings in checked:
        findings = preflight(settings)
        refused |= not passed(findings)
        print(f"{settings.run}\n{described(findings)}")
    sys.exit(refused)


def _files(names: Sequence[str], all_: bool, params: Path) -> list[Path]:
    known = profiles()
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"there is no profile {unknown[0]!r}; choose of {', '.join(known)}")
    return list(known.values()) if all_ else [known[name] for name in names] or [params]


if __name__ == "__main__":
    main()
