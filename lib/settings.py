"""Reads params.yaml once and strictly, so that a misspelt or missing setting stops a run before it costs anything.

`python -m lib.settings` lists the profiles, complete parameter files for other models and services; with the name of one
it makes that the run's, and says what is different.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from lib.files import write_text

ROOT = Path(__file__).resolve().parents[1]
PARAMS, PROFILES = ROOT / "params.yaml", ROOT / "profiles"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
ADDRESS = re.compile(r"https?://[^\s@?#]+")
# Most that a wrong answer gets. It stands in lib/reward.py as well, since the scorer's fingerprint is of that file.
FORM = 0.99
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
PATHS = {"bird": "the SQLite file", "stackexchange": "the folder of XML files"}  # what graph.path is, by source


class SettingsError(ValueError):
    """A parameter that can't be used; the message names the key, its value and what is allowed."""


def number(least: float = -math.inf, most: float = math.inf, above: float = -math.inf) -> Any:
    """A number from `least` to `most`, and greater than `above`."""
    return field(metadata={"least": least, "most": most, "above": above})


@dataclass(frozen=True, kw_only=True)
class Graph:
    source: Literal["twin", "bird", "stackexchange", "neo4j"]
    scale: float = number(above=0, most=10)
    seed: int = number(least=0)
    path: str


@dataclass(frozen=True, kw_only=True)
class Training:
    questions: int = number(least=1)
    structures: int = number(least=1)


@dataclass(frozen=True, kw_only=True)
class Rewriter:
    model: str  # folder of a local Hugging Face model, or a name at the endpoint
    url: str  # of an OpenAI-compatible endpoint; empty: a local model


@dataclass(frozen=True, kw_only=True)
class Questions:
    structures: Literal["small", "all"]
    seed: int = number(least=0)
    train: int = number(least=1)
    dev: int = number(least=1)
    held_out_instances: int = number(least=1)
    held_out_structures: int = number(least=1)
    demonstrations: int = number(least=1)
    training: Training | None  # what is practised, drawn from train; None: all of train
    rewriter: Rewriter | None  # puts the large set's questions into other words; None: they stay in the generator's


SETS = ("held_out_instances", "held_out_structures")  # the test's questions: those of the claim, and those apart
HUMAN = "human"  # people's questions, a third set where a run has any


@dataclass(frozen=True, kw_only=True)
class Human:
    questions: str  # a file; empty where no people are asked


@dataclass(frozen=True, kw_only=True)
class Model:
    """A small model that the cold start makes."""

    hidden: int = number(least=8)
    layers: tuple[Literal["conv", "full_attention"], ...]
    heads: int = number(least=1)
    feed_forward: int = number(least=8)
    context: int = number(least=64)  # tokens
    seed: int = number(least=0)


@dataclass(frozen=True, kw_only=True)
class Named:
    """A model that exists."""

    name: str  # what the backend knows it by; of the local one a folder or a name on the Hugging Face hub
    tokenizer: str  # a folder, or a name on the hub
    context: int = number(least=64)  # tokens


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    steps: int = number(least=1)
    batch: int = number(least=1)
    learning_rate: float = number(above=0)
    adam_beta2: float = number(above=0, most=0.9999)
    seed: int = number(least=0)
    dropped_words: float = number(least=0, most=0.9)
    wrong_least: float = number(least=0, most=1)  # share of first queries that are wrong, easiest structure
    wrong_most: float = number(least=0, most=1)  # and hardest
    wrong_visibly: float = number(least=0, most=1)  # of these, how many fail in a way that the rows show
    repaired_visible: float = number(least=0, most=1)
    repaired_silent: float = number(least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class Agent:
    renderer: str
    max_turns: int = number(least=1)
    max_tokens: int = number(least=1)  # a turn
    max_trajectory_tokens: int = number(least=1)
    shown_rows: int = number(least=1)
    shown_characters: int = number(least=1)
    shown_errors: Literal["kind", "message"]
    query_timeout: float = number(above=0)  # seconds
    evaluation_query_timeout: float = number(above=0)  # seconds
    queries_at_once: int = number(least=1)
    row_cap: int = number(least=1)


@dataclass(frozen=True, kw_only=True)
class Local:
    """How the local backend computes."""

    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]  # of the weights; an adapter's and its optimiser's are float32 always
    checkpointing: bool  # activations are computed again for the gradient instead of kept
    tokens_trained_at_once: int = number(least=1)  # of a micro-batch
    tokens_sampled_at_once: int = number(least=1)  # whose keys and values are held, by the sampler for any architecture


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What training does where something outside of the model fails."""

    tries: int = number(least=1)  # of a call, the first one included
    wait: float = number(least=0)  # seconds before the second try, doubled before each further one
    answer_within: float = number(above=0)  # seconds
    least_rollouts: int = number(least=2)  # of a group; one alone has no advantage
    rerolls: int = number(least=0)  # of the lost rollouts of a group with fewer, before it is dropped
    most: float = number(least=0, most=0.9)  # share of an update's rollouts


@dataclass(frozen=True, kw_only=True)
class Prepass:
    """What the base model is asked, of the questions to practise, before a run; part of its cost."""

    questions: int = number(least=1)
    samples: int = number(least=1)  # of each


@dataclass(frozen=True, kw_only=True)
class Alike:
    """All questions in a seeded order, each once as long as there are any."""

    kind: Literal["all"]


@dataclass(frozen=True, kw_only=True)
class InBand:
    """Questions that are answered about half of the time (lib.practice.curricula.Band)."""

    kind: Literal["band"]
    low: float = number(least=0, most=1)  # rate
    high: float = number(least=0, most=1)
    sure: float = number(above=0, most=1)  # probability of being there, at which a question counts as in the band
    easy: float = number(least=0, most=0.5)  # share of an update for questions above the band
    never: float = number(least=0, most=0.5)  # and for those that were never solved
    every: int = number(least=0)  # updates between two cuts; 0: the pre-pass decides once and for all
    half_life: float = number(above=0)  # updates after which an attempt counts half beside newer ones
    rest: int = number(least=0)  # updates between two groups of a question; as many as a run has: none is asked twice
    prepass: Prepass


@dataclass(frozen=True, kw_only=True)
class InSteps:
    """From the easiest questions to the hardest, step by step over the run (lib.practice.curricula.Steps)."""

    kind: Literal["hops", "length"]  # of the reference query
    floor: float = number(least=0, most=0.2)  # least share of each step


@dataclass(frozen=True, kw_only=True)
class ByRate:
    """As InSteps, by how often the base model answers."""

    kind: Literal["rate"]
    floor: float = number(least=0, most=0.2)
    prepass: Prepass


@dataclass(frozen=True, kw_only=True)
class WithHints:
    """A share for questions whose last group was all wrong, asked once more with their hint (lib.practice.curricula.Again)."""

    kind: Literal["hints"]
    share: float = number(above=0, most=0.5)


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Groups that teach nothing are stopped early, and replaced within the update (lib.practice.sources)."""

    extra: int = number(least=0)  # groups an update at most
    first: int = number(least=2)  # rollouts that a group begins with; where they are worth the same it is stopped there


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What rewards teach (lib.practice.objectives.Objective, which says more of each)."""

    credit: Literal["reward", "strict", "f1", "lenient"]
    most: float = number(least=0, most=0.99)  # worth of a wrong answer by `f1` or `lenient`
    spread: bool  # advantages divided by their group's standard deviation
    kl: float = number(least=0)  # weight of the distance from the base model
    masked: bool  # what a limit on tokens cut off counts for nothing
    repeated: float = number(least=0)  # taken off for each query that the rollout ran before
    failed: float = number(least=0)  # and for each call that failed
    cap: float = number(least=0, most=0.9)  # at most, of both together
    shuffled: bool  # rewards change places within each group: a check, since nothing is taught then


SHARES = ("repeating", "all_right")  # guards whose limit is a share


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A limit of lib/practice/guards.py, over so many updates, and what happens beyond it."""

    rule: Literal[
        "entropy", "repeating", "shortening", "lengthening", "thinking_shorter", "all_right", "penalised", "disagreeing"
    ]
    limit: float = number(above=0)
    window: int = number(least=1)  # updates
    action: Literal["warn", "back", "stop"]


@dataclass(frozen=True, kw_only=True)
class Train:
    backend: Literal["local", "tinker", "fireworks"]
    base_url: str  # of a hosted backend; empty: its usual one
    training: Literal["full", "lora"]
    lora_rank: int = number(least=1)
    seeds: tuple[int, ...] = number(least=0)
    updates: int = number(least=1)
    groups: int = number(least=1)  # questions an update
    rollouts: int = number(least=2)  # a question; one alone has no advantage
    learning_rate: float = number(above=0)
    grad_clip_norm: float = number(least=0)  # 0: none
    loss: Literal["importance_sampling", "ppo", "cispo"]
    dev_every: int = number(least=1)  # updates
    dev_samples: int = number(least=1)
    questions: Alike | InBand | InSteps | ByRate | WithHints
    replacement: Replacement | None
    objective: Objective
    guards: tuple[Guarded, ...]
    faults: Faults

    @property
    def prepass(self) -> Prepass | None:
        """What the choice of questions has to know of the base model first."""
        return getattr(self.questions, "prepass", None)


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    samples: int = number(least=1)
    temperature: float = number(above=0)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model behind an address that speaks OpenAI's chat completions, asked the test questions beside the arms."""

    name: str  # its arm's, after "endpoint-"
    url: str
    model: str  # as the endpoint knows it
    key: str  # the environment's variable that holds the key; empty: none

    @property
    def arm(self) -> str:
        return f"endpoint-{self.name}"

    @property
    def host(self) -> str:
        """The provider, as the table of prices names it."""
        return urlsplit(self.url).hostname or ""

    @property
    def here(self) -> bool:
        """Whether it is on this machine, and costs nothing."""
        return self.host in ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Test:
    bar: float = number(least=0, most=1)
    margin: float = number(above=0, most=1)
    least_headroom: float = number(least=0, most=1)
    confidence: float = number(above=0, most=0.9999)
    resamples: int = number(least=100)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All parameters of a run, and where its files are.

    `data` is the folder that every path below hangs from; tests set another one with `dataclasses.replace`.
    """

    run: str
    graph: Graph
    questions: Questions
    human: Human
    model: Model | Named
    cold_start: ColdStart | None  # None: of a model that exists
    agent: Agent
    local: Local | None  # None: of a hosted backend
    train: Train
    evaluate: Evaluate
    test: Test
    endpoints: tuple[Endpoint, ...]  # part of no test, and of no plan
    data: Path = field(default=ROOT / "data", metadata={"internal": True})

    @property
    def graph_dir(self) -> Path:
        return self.data / "graph"

    @property
    def questions_dir(self) -> Path:
        return self.data / "questions"

    @property
    def practised(self) -> str:
        """The file of questions, without its suffix, that training practises."""
        return "training" if self.questions.training else "train"

    @property
    def human_dir(self) -> Path:
        return self.data / HUMAN

    @property
    def run_dir(self) -> Path:
        return self.data / "runs" / self.run

    @property
    def timings_dir(self) -> Path:
        """Wall times, which no two runs share, so they stay out of what must be byte-stable."""
        return self.data / "timings" / self.run

    @property
    def base_dir(self) -> Path:
        return self.run_dir / "base"

    @property
    def made(self) -> Model:
        """The model to make, of a run that has a cold start."""
        assert isinstance(self.model, Model)
        return self.model

    @property
    def taught(self) -> ColdStart:
        """How it is taught, of such a run."""
        assert self.cold_start is not None
        return self.cold_start

    @property
    def base_model(self) -> str:
        """What the backend knows the base model by."""
        if isinstance(self.model, Model):
            return str(self.base_dir)
        return found(self.model.name)

    def train_dir(self, seed: int) -> Path:
        return self.run_dir / "train" / f"seed-{seed}"

    def episodes(self, arm: str) -> Path:
        """The file of an arm's evaluation episodes."""
        return self.run_dir / "evaluate" / f"{arm}.jsonl"

    @property
    def arms(self) -> tuple[str, ...]:
        return ("base", "control", *(f"trained-{seed}" for seed in self.train.seeds))


def found(name: str) -> str:
    """The folder of this name, seen from the project's root, where there is one; else the name, as a hub or host knows it."""
    folder = ROOT / name
    return str(folder) if folder.is_dir() else name


def load(path: str | Path = PARAMS, data: Path | None = None) -> Settings:
    """Settings from a complete parameter file.

    Raises SettingsError for a file that is missing or no YAML, and for the first key that is unknown, missing, of the
    wrong type or outside of what is allowed.
    """
    path = Path(path)
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(
            f"{path} is missing: copy profiles/tiny.yaml to {path.name}, or say `make profile NAME=tiny`"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        settings = section(Settings, given, "")
        _check_together(settings)
    except SettingsError as error:
        raise SettingsError(f"{path.name}: {error}") from None
    return dataclasses.replace(settings, data=Path(data)) if data is not None else settings


def section(kind: type, given: Any, prefix: str) -> Any:
    where = prefix.rstrip(".") or "the file"
    if not isinstance(given, dict):
        raise SettingsError(f"{where} is {given!r}; it must hold keys with values")
    fields = {f.name: f for f in dataclasses.fields(kind) if not f.metadata.get("internal")}
    types = typing.get_type_hints(kind)
    for key in given:
        if key not in fields:
            raise SettingsError(f"{prefix}{key} = {given[key]!r} is no parameter; allowed here: {', '.join(fields)}")
    missing = [f"{prefix}{name}" for name in fields if name not in given]
    if missing:
        raise SettingsError(f"{', '.join(missing)} missing; profiles/tiny.yaml has every key")
    return kind(**{name: _value(types[name], given[name], f, prefix + name) for name, f in fields.items()})


def _value(kind: Any, given: Any, about: dataclasses.Field, key: str) -> Any:
    if typing.get_origin(kind) is types.UnionType:  # one of several sections, or nothing
        if given is None and types.NoneType in typing.get_args(kind):
            return None
        kind = _meant([k for k in typing.get_args(kind) if k is not types.NoneType], given, key)
    if dataclasses.is_dataclass(kind):
        return section(typing.cast(type, kind), given, key + ".")
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if dataclasses.is_dataclass(item):
            return _sections(typing.cast(type, item), given, key)
        if not isinstance(given, list) or not given:
            raise SettingsError(f"{key} = {given!r} must be a list of at least one value, like [{_example(item)}]")
        values = tuple(_scalar(item, value, about, f"{key}[{i}]") for i, value in enumerate(given))
        if item is int and len(set(values)) < len(values):
            raise SettingsError(f"{key} = {given!r} names a value twice")
        return values
    return _scalar(kind, given, about, key)


def _sections(kind: type, given: Any, key: str) -> tuple[Any, ...]:
    if not isinstance(given, list):
        raise SettingsError(f"{key} = {given!r} must be a list of sections; [] for none")
    return tuple(section(kind, one, f"{key}[{i}].") for i, one in enumerate(given))


def _meant(kinds: list[type], given: Any, key: str) -> type:
    """The kind of section that has the given `kind` among its own, or else most of the given keys."""
    given = given if isinstance(given, dict) else {}

    def fit(kind: type) -> tuple[bool, int]:
        own = typing.get_args(typing.get_type_hints(kind).get("kind"))
        return given.get("kind") in own, len(given.keys() & {f.name for f in dataclasses.fields(kind)})

    named = [name for kind in kinds for name in typing.get_args(typing.get_type_hints(kind).get("kind"))]
    if named and given.get("kind") not in named:
        raise SettingsError(f"{key}.kind = {given.get('kind')!r} is unknown; allowed: {', '.join(named)}")
    return max(kinds, key=fit)


def _example(kind: Any) -> str:
    return "0, 1" if kind is int else "conv, full_attention"


def _scalar(kind: Any, given: Any, about: dataclasses.Field, key: str) -> Any:
    choices = typing.get_args(kind)  # of a Literal
    kind = str if choices else kind
    fits: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if (
        not isinstance(given, fits)
        or isinstance(given, bool) != (kind is bool)
        or given in (math.inf, -math.inf)
        or given != given
    ):
        words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}[kind]
        hint = ""
        if kind is float and isinstance(given, str) and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", given):
            hint = f" (YAML reads {given} as text; write it with a point and a sign, like 2.0e-4)"
        raise SettingsError(f"{key} = {given!r} must be {words}{hint}")
    value = kind(given)
    if choices and value not in choices:
        raise SettingsError(f"{key} = {value!r} is unknown; allowed: {', '.join(choices)}")
    if "least" in about.metadata:
        _check_bounds(value, **about.metadata, key=key)
    return value


def _check_bounds(value: float, least: float, most: float, above: float, key: str) -> None:
    if value <= above:
        raise SettingsError(f"{key} = {value!r} must be more than {above:g}")
    if value < least:
        raise SettingsError(f"{key} = {value!r} must be at least {least:g}")
    if value > most:
        raise SettingsError(f"{key} = {value!r} must be at most {most:g}")


def _check_together(settings: Settings) -> None:
    """What no key can be judged for alone."""
    if not NAME.fullmatch(settings.run):
        raise SettingsError(f"run = {settings.run!r} names a folder; use small letters, digits, '.', '_' and '-'")
    if (needed := PATHS.get(settings.graph.source)) and not settings.graph.path:
        raise SettingsError(f"graph.path = '' must name {needed} that source {settings.graph.source} reads")
    if (training := settings.questions.training) is not None:
        _check_training(training, settings)
    if (rewriter := settings.questions.rewriter) is not None:
        _check_rewriter(rewriter, settings)
    if settings.human.questions and Path(settings.human.questions).suffix not in (".json", ".jsonl"):
        raise SettingsError(
            f"human.questions = {settings.human.questions!r} must be BIRD's .json file or a .jsonl file of your own; empty "
            "for none"
        )
    _check_model(settings.model, settings.cold_start)
    _check_backend(settings)
    together(settings.train.questions, settings.train.objective)
    check_replacement(settings.train)
    _check_guards(settings.train.guards)
    if isinstance(settings.train.questions, WithHints) and settings.questions.structures == "small":
        raise SettingsError(
            "train.questions.kind = 'hints' needs questions with hints: set questions.structures to all, since the small set has none"
        )
    _check_endpoints(settings.endpoints)
    if settings.agent.max_trajectory_tokens > settings.model.context:
        raise SettingsError(
            f"agent.max_trajectory_tokens = {settings.agent.max_trajectory_tokens} must be at most "
            f"model.context = {settings.model.context}, or the model can't read its own episode"
        )


def _check_model(model: Model | Named, cold_start: ColdStart | None) -> None:
    if isinstance(model, Named):
        if cold_start is not None:
            raise SettingsError(
                f"cold_start must be null: model.name = {model.name!r} exists already; only a model that is made here is taught"
            )
        return
    if cold_start is None:
        raise SettingsError(
            "cold_start = None: a model that is made here knows nothing until it is taught; copy the section from "
            "profiles/tiny.yaml, or take a model that exists with model: {name, tokenizer, context}"
        )
    if model.hidden % model.heads:
        raise SettingsError(f"model.hidden = {model.hidden} must be a multiple of model.heads = {model.heads}")
    if cold_start.wrong_least > cold_start.wrong_most:
        raise SettingsError(
            f"cold_start.wrong_least = {cold_start.wrong_least} must be at most "
            f"cold_start.wrong_most = {cold_start.wrong_most}"
        )


def _check_backend(settings: Settings) -> None:
    train, local = settings.train, settings.local
    if train.faults.least_rollouts > train.rollouts:
        raise SettingsError(
            f"train.faults.least_rollouts = {train.faults.least_rollouts} must be at most train.rollouts = {train.rollouts}"
        )
    if train.backend == "local":
        if local is None:
            raise SettingsError("local = None: train.backend = 'local' needs the section; profiles/tiny.yaml has it")
        if isinstance(settings.model, Named) and settings.model.tokenizer != settings.model.name:
            raise SettingsError(
                f"model.tokenizer = {settings.model.tokenizer!r} must be model.name = {settings.model.name!r}: the local "
                "backend takes both from one place"
            )
        if train.base_url:
            raise SettingsError(f"train.base_url = {train.base_url!r} must be empty: the local backend has no address")
        if local.dtype == "bfloat16" and train.training == "full":
            raise SettingsError(
                "local.dtype = 'bfloat16' with train.training = 'full' loses every update smaller than its rounding: set "
                "train.training to lora, whose adapters are float32, or local.dtype to float32"
            )
        return
    if train.base_url and not ADDRESS.fullmatch(train.base_url):
        raise SettingsError(
            "train.base_url must be an address like https://host:8000, without a key or a password in it, which plan and "
            "dvc.lock would keep; empty for the service's own"
        )
    if not isinstance(settings.model, Named):
        raise SettingsError(
            f"train.backend = {train.backend!r} serves models that it knows by name, not one that is made here: set model to "
            "{name, tokenizer, context}, or train.backend to local"
        )
    if local is not None:
        raise SettingsError(f"local must be null: train.backend = {train.backend!r} computes elsewhere")
    if train.training != "lora":
        raise SettingsError(
            f"train.training = {train.training!r} must be lora: train.backend = {train.backend!r} trains adapters only"
        )
    if train.grad_clip_norm:
        raise SettingsError(
            f"train.grad_clip_norm = {train.grad_clip_norm:g} must be 0: the loop asks for no clipping, and only the local "
            "backend clips unasked"
        )


def _check_guards(guards: tuple[Guarded, ...]) -> None:
    for place, guard in enumerate(guards):
        if guard.rule in SHARES and guard.limit >= 1:
            raise SettingsError(
                f"train.guards[{place}].limit = {guard.limit:g} must be less than 1: {guard.rule} looks at a share, which is never more"
            )


def check_replacement(train: Train) -> None:
    """Raises SettingsError where groups can't be stopped or replaced as it says."""
    if (given := train.replacement) is None:
        return
    if given.first > train.rollouts:
        raise SettingsError(
            f"train.replacement.first = {given.first} must be at most train.rollouts = {train.rollouts}, with which no group is "
            "stopped early"
        )
    if given.first < train.faults.least_rollouts:
        raise SettingsError(
            f"train.replacement.first = {given.first} must be at least train.faults.least_rollouts = "
            f"{train.faults.least_rollouts}, or a group that is stopped would count as lost: raise it, or lower that"
        )
    if not given.extra and given.first == train.rollouts:
        raise SettingsError("train.replacement.extra = 0 replaces no group, and first stops none: say null")


def together(questions: object, taught: Objective) -> None:
    """Raises SettingsError where a choice of questions or an objective contradicts itself."""
    if isinstance(questions, InBand) and questions.low >= questions.high:
        raise SettingsError(f"questions.low = {questions.low} must be below questions.high = {questions.high}")
    if bool(taught.cap) != bool(taught.repeated or taught.failed):
        raise SettingsError(
            f"objective.cap = {taught.cap:g} is the most that objective.repeated = {taught.repeated:g} and objective.failed = "
            f"{taught.failed:g} take off: give a cap and one of them, or set all three to 0"
        )
    if too_dear(taught.cap, taught.credit, taught.most):
        raise SettingsError(
            f"objective.cap = {taught.cap:g} must be less than what a right answer is worth more than a wrong one with "
            f"objective.credit = {taught.credit!r}; take strict, or f1 or lenient with a smaller `most`"
        )


def too_dear(cap: float, credit: str, most: float) -> bool:
    """Whether penalties up to `cap` could make a right answer worth no more than a wrong one is at most."""
    return bool(cap) and 1 - cap <= {"reward": FORM, "strict": 0.0}.get(credit, most)


def _check_training(training: Training, settings: Settings) -> None:
    if settings.questions.structures != "all":
        raise SettingsError(
            f"questions.training = {dataclasses.asdict(training)} draws from the large set: set questions.structures to "
            f"all, or questions.training to null (questions.structures is {settings.questions.structures})"
        )
    if training.structures > training.questions:
        raise SettingsError(
            f"questions.training.structures = {training.structures} must be at most questions.training.questions = "
            f"{training.questions}, since each structure is asked about once or more"
        )
    needed = settings.train.updates * settings.train.groups
    if isinstance(settings.train.questions, Alike) and training.questions < needed:
        raise SettingsError(
            f"questions.training.questions = {training.questions} must be at least train.updates x train.groups = {needed}, "
            "so that no question is practised twice"
        )


def _check_rewriter(rewriter: Rewriter, settings: Settings) -> None:
    if settings.questions.structures != "all":
        raise SettingsError(
            f"questions.rewriter = {dataclasses.asdict(rewriter)} rewrites the large set, since the small model reads only the "
            f"generator's words: set questions.structures to all, or questions.rewriter to null (questions.structures is "
            f"{settings.questions.structures})"
        )
    if not rewriter.model:
        raise SettingsError(
            "questions.rewriter.model = '' must name a model's folder, or a model at questions.rewriter.url"
        )
    if rewriter.url and not ADDRESS.fullmatch(rewriter.url):
        raise SettingsError(
            f"questions.rewriter.url = {rewriter.url!r} must be an address like http://localhost:8000/v1, "
            "without a key in it; empty for a local model"
        )


def _check_endpoints(endpoints: tuple[Endpoint, ...]) -> None:
    names = [endpoint.name for endpoint in endpoints]
    for i, endpoint in enumerate(endpoints):
        where = f"endpoints[{i}]"
        if not NAME.fullmatch(endpoint.name) or names.count(endpoint.name) > 1:
            raise SettingsError(
                f"{where}.name = {endpoint.name!r} names a file; use small letters, digits, '.', '_' and '-', and no name twice"
            )
        if not ADDRESS.fullmatch(endpoint.url):
            raise SettingsError(
                f"{where}.url = {endpoint.url!r} must be an address like http://localhost:8000/v1, without a key in it"
            )
        if not endpoint.here and not endpoint.url.startswith("https://"):
            raise SettingsError(
                f"{where}.url = {endpoint.url!r} is not this machine, and would send all in clear: use https"
            )
        if endpoint.key and not VARIABLE.fullmatch(endpoint.key):
            raise SettingsError(
                f"{where}.key must name a variable of the environment, in capitals; never write the key itself: dvc.lock would "
                "keep it"
            )
        if not endpoint.model:
            raise SettingsError(f"{where}.model = '' must be the model's name at the endpoint")


def profiles() -> dict[str, Path]:
    """Names and files of the complete parameter files that come with the project."""
    return {path.stem: path for path in sorted(PROFILES.glob("*.yaml"))}


def use(name: str, overwrite: bool = False, params: Path = PARAMS) -> list[str]:
    """Copy a profile over the parameter file, comments included; returns what is different, in lines.

    Raises SettingsError for a name that no profile has, and where the parameter file has edits of one's own (it is no
    profile's text), unless `overwrite`.
    """
    known = profiles()
    if name not in known:
        raise SettingsError(f"there is no profile {name!r}; choose one of {', '.join(known)}")
    load(known[name])
    texts = {path.read_text(encoding="utf-8") for path in known.values()}
    old, new = params.read_text(encoding="utf-8") if params.exists() else "", known[name].read_text(encoding="utf-8")
    if old and old not in texts and not overwrite:
        raise SettingsError(
            f"{params.name} is no profile's text, so it has edits of your own, which would be lost: copy it away first, or "
            "say --overwrite (make: OVERWRITE=yes)"
        )
    write_text(params, new)
    return _changes(_flat(yaml.safe_load(old)), _flat(yaml.safe_load(new)))


def _flat(given: Any, prefix: str = "") -> dict[str, Any]:
    """Sections as dotted keys."""
    if not isinstance(given, dict):
        return {prefix.rstrip("."): given}
    return {key: value for name, inner in given.items() for key, value in _flat(inner, f"{prefix}{name}.").items()}


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    def said(values: dict[str, Any], key: str) -> str:
        return json.dumps(values[key], sort_keys=True) if key in values else "not there"

    keys = [key for key in {**new, **old} if key and said(old, key) != said(new, key)]
    sections = list(dict.fromkeys(key.partition(".")[0] for key in {**new, **old}))
    keys.sort(key=lambda key: sections.index(key.partition(".")[0]))
    return [f"{key}: {said(old, key)} -> {said(new, key)}" for key in keys]


def main(arguments: list[str] | None = None) -> None:
    """Command line: list the profiles, or switch to one; exit status 1 where that isn't possible."""
    parser = argparse.ArgumentParser(prog="python -m lib.settings", description=__doc__)
    parser.add_argument("profile", nargs="?", help="the one to switch to (default: list all)")
    parser.add_argument("--overwrite", action="store_true", help="even if params.yaml has edits of your own")
    chosen = parser.parse_args(arguments)
    if chosen.profile is None:
        for name, path in profiles().items():
            print(f"{name:<16} {path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")
        return
    try:
        print("\n".join(use(chosen.profile, chosen.overwrite)) or "nothing is different")
    except SettingsError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
