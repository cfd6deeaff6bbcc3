"""Reads params.yaml once and strictly, so that a misspelt or missing setting stops a run before it costs anything."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
PATHS = {"bird": "the SQLite file", "stackexchange": "the folder of XML files"}  # what graph.path is, by source


class SettingsError(ValueError):
    """A parameter that can't be used; the message names the key, its value and what is allowed."""


def _number(least: float = -math.inf, most: float = math.inf, above: float = -math.inf) -> Any:
    """A number from `least` to `most`, and greater than `above`."""
    return field(metadata={"least": least, "most": most, "above": above})


@dataclass(frozen=True, kw_only=True)
class Graph:
    source: Literal["twin", "bird", "stackexchange", "neo4j"]
    scale: float = _number(above=0, most=10)
    seed: int = _number(least=0)
    path: str


@dataclass(frozen=True, kw_only=True)
class Training:
    questions: int = _number(least=1)
    structures: int = _number(least=1)


@dataclass(frozen=True, kw_only=True)
class Rewriter:
    model: str  # folder of a local Hugging Face model, or a name at the endpoint
    url: str  # of an OpenAI-compatible endpoint; empty: a local model


@dataclass(frozen=True, kw_only=True)
class Questions:
    structures: Literal["small", "all"]
    seed: int = _number(least=0)
    train: int = _number(least=1)
    dev: int = _number(least=1)
    held_out_instances: int = _number(least=1)
    held_out_structures: int = _number(least=1)
    demonstrations: int = _number(least=1)
    training: Training | None  # what is practised, drawn from train; None: all of train
    rewriter: Rewriter | None  # puts the large set's questions into other words; None: they stay in the generator's


SETS = ("held_out_instances", "held_out_structures")  # the test's questions: those of the claim, and those apart
HUMAN = "human"  # people's questions, a third set where a run has any


@dataclass(frozen=True, kw_only=True)
class Human:
    questions: str  # a file; empty where no people are asked


@dataclass(frozen=True, kw_only=True)
class Model:
    hidden: int = _number(least=8)
    layers: tuple[Literal["conv", "full_attention"], ...]
    heads: int = _number(least=1)
    feed_forward: int = _number(least=8)
    context: int = _number(least=64)  # tokens
    seed: int = _number(least=0)


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    steps: int = _number(least=1)
    batch: int = _number(least=1)
    learning_rate: float = _number(above=0)
    adam_beta2: float = _number(above=0, most=0.9999)
    seed: int = _number(least=0)
    dropped_words: float = _number(least=0, most=0.9)
    wrong_least: float = _number(least=0, most=1)  # share of first queries that are wrong, easiest structure
    wrong_most: float = _number(least=0, most=1)  # and hardest
    wrong_visibly: float = _number(least=0, most=1)  # of these, how many fail in a way that the rows show
    repaired_visible: float = _number(least=0, most=1)
    repaired_silent: float = _number(least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class Agent:
    renderer: str
    max_turns: int = _number(least=1)
    max_tokens: int = _number(least=1)  # a turn
    max_trajectory_tokens: int = _number(least=1)
    shown_rows: int = _number(least=1)
    shown_characters: int = _number(least=1)
    shown_errors: Literal["kind", "message"]
    query_timeout: float = _number(above=0)  # seconds
    evaluation_query_timeout: float = _number(above=0)  # seconds
    queries_at_once: int = _number(least=1)
    row_cap: int = _number(least=1)


@dataclass(frozen=True, kw_only=True)
class Train:
    backend: Literal["local"]
    training: Literal["full", "lora"]
    lora_rank: int = _number(least=1)
    seeds: tuple[int, ...] = _number(least=0)
    updates: int = _number(least=1)
    groups: int = _number(least=1)  # questions an update
    rollouts: int = _number(least=2)  # a question; one alone has no advantage
    learning_rate: float = _number(above=0)
    grad_clip_norm: float = _number(above=0)
    loss: Literal["importance_sampling", "ppo", "cispo"]
    dev_every: int = _number(least=1)  # updates
    dev_samples: int = _number(least=1)


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    samples: int = _number(least=1)
    temperature: float = _number(above=0)


@dataclass(frozen=True, kw_only=True)
class Test:
    bar: float = _number(least=0, most=1)
    margin: float = _number(above=0, most=1)
    least_headroom: float = _number(least=0, most=1)
    confidence: float = _number(above=0, most=0.9999)
    resamples: int = _number(least=100)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All parameters of a run, and where its files are.

    `data` is the folder that every path below hangs from; tests set another one with `dataclasses.replace`.
    """

    run: str
    graph: Graph
    questions: Questions
    human: Human
    model: Model
    cold_start: ColdStart
    agent: Agent
    train: Train
    evaluate: Evaluate
    test: Test
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

    def train_dir(self, seed: int) -> Path:
        return self.run_dir / "train" / f"seed-{seed}"

    def episodes(self, arm: str) -> Path:
        """The file of an arm's evaluation episodes."""
        return self.run_dir / "evaluate" / f"{arm}.jsonl"

    @property
    def arms(self) -> tuple[str, ...]:
        return ("base", "control", *(f"trained-{seed}" for seed in self.train.seeds))


def load(path: str | Path = ROOT / "params.yaml", data: Path | None = None) -> Settings:
    """Settings from a complete parameter file.

    Raises SettingsError for a file that is missing or no YAML, and for the first key that is unknown, missing, of the
    wrong type or outside of what is allowed.
    """
    path = Path(path)
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path} is missing: copy profiles/tiny.yaml to {path.name}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        settings = _section(Settings, given, "")
        _check_together(settings)
    except SettingsError as error:
        raise SettingsError(f"{path.name}: {error}") from None
    return dataclasses.replace(settings, data=Path(data)) if data is not None else settings


def _section(kind: type, given: Any, prefix: str) -> Any:
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
    if typing.get_origin(kind) is types.UnionType:  # a section or nothing
        if given is None:
            return None
        kind = typing.get_args(kind)[0]
    if dataclasses.is_dataclass(kind):
        return _section(typing.cast(type, kind), given, key + ".")
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(given, list) or not given:
            raise SettingsError(f"{key} = {given!r} must be a list of at least one value, like [{_example(item)}]")
        values = tuple(_scalar(item, value, about, f"{key}[{i}]") for i, value in enumerate(given))
        if item is int and len(set(values)) < len(values):
            raise SettingsError(f"{key} = {given!r} names a value twice")
        return values
    return _scalar(kind, given, about, key)


def _example(kind: Any) -> str:
    return "0, 1" if kind is int else "conv, full_attention"


def _scalar(kind: Any, given: Any, about: dataclasses.Field, key: str) -> Any:
    choices = typing.get_args(kind)  # of a Literal
    kind = str if choices else kind
    fits: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(given, fits) or isinstance(given, bool) or given in (math.inf, -math.inf) or given != given:
        words = {int: "a whole number", float: "a number", str: "a text"}[kind]
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
    if settings.model.hidden % settings.model.heads:
        raise SettingsError(
            f"model.hidden = {settings.model.hidden} must be a multiple of model.heads = {settings.model.heads}"
        )
    if settings.cold_start.wrong_least > settings.cold_start.wrong_most:
        raise SettingsError(
            f"cold_start.wrong_least = {settings.cold_start.wrong_least} must be at most "
            f"cold_start.wrong_most = {settings.cold_start.wrong_most}"
        )
    if settings.agent.max_trajectory_tokens > settings.model.context:
        raise SettingsError(
            f"agent.max_trajectory_tokens = {settings.agent.max_trajectory_tokens} must be at most "
            f"model.context = {settings.model.context}, or the model can't read its own episode"
        )


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
    if training.questions < needed:
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
    if rewriter.url and not re.fullmatch(r"https?://[^\s@?#]+", rewriter.url):
        raise SettingsError(
            f"questions.rewriter.url = {rewriter.url!r} must be an address like http://localhost:8000/v1, "
            "without a key in it; empty for a local model"
        )
