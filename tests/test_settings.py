"""A parameter file is taken whole or refused with a message that names the key, its value and the way out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib import graph, settings

ROOT = Path(__file__).resolve().parents[1]
PROFILES = sorted((ROOT / "profiles").glob("*.yaml"))
GOOD = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text())
LARGE = {**GOOD["questions"], "structures": "all"}


def changed(tmp_path: Path, key: str, value: Any) -> Path:
    """The default parameters with one of them changed (or removed, by the value `...`)."""
    parameters = copy.deepcopy(GOOD)
    *sections, last = key.split(".")
    place = parameters
    for section in sections:
        place = place[section]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(parameters))
    return path


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_every_profile_can_be_used(profile: Path):
    assert settings.load(profile).run == profile.stem


def test_a_run_knows_its_arms_and_folders(tmp_path: Path):
    found = settings.load(ROOT / "profiles" / "tiny.yaml", data=tmp_path)
    assert found.arms == ("base", "control", *(f"trained-{seed}" for seed in GOOD["train"]["seeds"]))
    assert found.episodes("control") == tmp_path / "runs" / "tiny" / "evaluate" / "control.jsonl"
    assert found.model.layers == tuple(GOOD["model"]["layers"])


def test_the_large_set_may_be_drawn_from_and_rewritten(tmp_path: Path):
    given = {
        "training": {"questions": 640, "structures": 640},
        "rewriter": {"model": "m", "url": "http://localhost:8000/v1"},
    }
    found = settings.load(changed(tmp_path, "questions", {**LARGE, **given}))
    assert found.practised == "training" and found.questions.rewriter == settings.Rewriter(**given["rewriter"])


def test_the_sources_that_settings_allow_are_those_that_exist(tmp_path: Path):
    for source in graph.sources:
        parameters = changed(tmp_path, "graph", {**GOOD["graph"], "source": source, "path": "somewhere"})
        assert settings.load(parameters).graph.source == source
    with pytest.raises(settings.SettingsError, match=f"allowed: {', '.join(graph.sources)}"):
        settings.load(changed(tmp_path, "graph.source", "sqlite"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.backend", "cloud", "train.backend = 'cloud' is unknown; allowed: local"),
        ("train.lr", 0.1, "train.lr = 0.1 is no parameter; allowed here: backend, training"),
        ("optimiser", {}, "optimiser = {} is no parameter; allowed here: run, graph"),
        ("train.seeds", ..., "train.seeds missing"),
        ("train.seeds", 3, "train.seeds = 3 must be a list"),
        ("train.seeds", [], r"train.seeds = \[\] must be a list of at least one value"),
        ("train.seeds", [1, 1], "names a value twice"),
        ("train.seeds", [0, "one"], r"train.seeds\[1\] = 'one' must be a whole number"),
        ("train.updates", 2.5, "train.updates = 2.5 must be a whole number"),
        ("train.updates", True, "train.updates = True must be a whole number"),
        ("train.rollouts", 1, "train.rollouts = 1 must be at least 2"),
        ("train.learning_rate", "2e-4", "write it with a point and a sign, like 2.0e-4"),
        ("train.learning_rate", 0, "train.learning_rate = 0.0 must be more than 0"),
        ("train.learning_rate", float("nan"), "train.learning_rate = nan must be a number"),
        ("test.bar", 5, "test.bar = 5.0 must be at most 1"),
        ("model.layers", ["conv", "mamba"], r"model.layers\[1\] = 'mamba' is unknown; allowed: conv, full_attention"),
        ("model.heads", 7, "must be a multiple of model.heads = 7"),
        ("agent.max_trajectory_tokens", 10**6, "must be at most model.context"),
        ("run", "My run", "run = 'My run' names a folder"),
        ("graph.source", "stackexchange", "graph.path = '' must name the folder of XML files"),
        ("graph.source", "bird", "graph.path = '' must name the SQLite file that source bird reads"),
        ("questions.structures", "some", "questions.structures = 'some' is unknown; allowed: small, all"),
        ("questions.training", {"questions": 300}, "questions.training.structures missing"),
        ("questions.training", 300, "questions.training is 300; it must hold keys"),
        (
            "questions.training",
            {"questions": 700, "structures": 135},
            "questions.training = .* draws from the large set",
        ),
        (
            "questions",
            {**LARGE, "training": {"questions": 700, "structures": 701}},
            "questions.training.structures = 701 must be at most questions.training.questions = 700",
        ),
        (
            "questions",
            {**LARGE, "training": {"questions": 639, "structures": 135}},
            "questions.training.questions = 639 must be at least train.updates x train.groups = 640",
        ),
        ("questions.rewriter", {"model": "m", "url": ""}, "questions.rewriter = .* rewrites the large set"),
        ("questions.rewriter", {"model": "m"}, "questions.rewriter.url missing"),
        ("questions", {**LARGE, "rewriter": {"model": "", "url": ""}}, "questions.rewriter.model = '' must name"),
        (
            "questions",
            {**LARGE, "rewriter": {"model": "m", "url": "localhost:8000"}},
            "must be an address like http://",
        ),
        ("questions", {**LARGE, "rewriter": {"model": "m", "url": "https://a:b@c/v1"}}, "without a key in it"),
        ("test", None, "test is None; it must hold keys with values"),
    ],
)
def test_a_bad_parameter_is_named(tmp_path: Path, key: str, value: Any, message: str):
    with pytest.raises(settings.SettingsError, match=message):
        settings.load(changed(tmp_path, key, value))


def test_a_missing_or_broken_file_is_named(tmp_path: Path):
    with pytest.raises(settings.SettingsError, match="is missing: copy profiles/"):
        settings.load(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("run: [tiny")
    with pytest.raises(settings.SettingsError, match="is not YAML"):
        settings.load(tmp_path / "params.yaml")
