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
NAMED = {"name": "some/model", "tokenizer": "some/model", "context": 512}
GOOD = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text())
OBJECTIVE = yaml.safe_load((ROOT / "profiles" / "tiny.yaml").read_text())["train"]["objective"]
GUARD = {"rule": "entropy", "limit": 0.3, "window": 4, "action": "warn"}
LARGE = {**GOOD["questions"], "structures": "all"}


HOSTED = yaml.safe_load((ROOT / "profiles" / "tinker-27b.yaml").read_text())


def changed(tmp_path: Path, key: str, value: Any, parameters: dict[str, Any] = GOOD) -> Path:
    """The default parameters with one of them changed (or removed, by the value `...`)."""
    parameters = copy.deepcopy(parameters)
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
        ("train.backend", "cloud", "train.backend = 'cloud' is unknown; allowed: local, tinker, fireworks"),
        ("train.lr", 0.1, "train.lr = 0.1 is no parameter; allowed here: backend, base_url, training"),
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
        ("train.questions", {"kind": "bands"}, "train.questions.kind = 'bands' is unknown; allowed: all, band, hops"),
        ("train.questions", {"kind": "hints", "share": 0.2}, "kind = 'hints' needs questions with hints"),
        ("train.questions", {"kind": "band", "low": 0.2}, "train.questions.high, .* missing"),
        ("train.replacement", {"extra": 32}, "train.replacement.first missing"),
        ("train.replacement", {"extra": 32, "first": 9}, "first = 9 must be at most train.rollouts = 8"),
        ("train.replacement", {"extra": 32, "first": 4}, "first = 4 must be at least train.faults.least_rollouts = 6"),
        ("train.replacement", {"extra": 0, "first": 8}, "extra = 0 replaces no group, and first stops none: say null"),
        ("train.objective.cap", 0.1, "objective.cap = 0.1 is the most that objective.repeated = 0"),
        ("train.objective.repeated", 0.1, "give a cap and one of them, or set all three to 0"),
        (
            "train.objective",
            {**OBJECTIVE, "repeated": 0.1, "cap": 0.1},
            "objective.cap = 0.1 must be less than what a right",
        ),
        ("train.objective.credit", "half", "train.objective.credit = 'half' is unknown"),
        ("train.guards", [{**GUARD, "rule": "entrpy"}], r"train.guards\[0\].rule = 'entrpy' is unknown"),
        ("train.guards", [{**GUARD, "action": "shout"}], "allowed: warn, back, stop"),
        (
            "train.guards",
            [{**GUARD, "rule": "all_right", "limit": 1.0}],
            r"train.guards\[0\].limit = 1 must be less than 1",
        ),
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
        ("model", {**NAMED, "contest": 1}, "model.contest = 1 is no parameter; allowed here: name, tokenizer, context"),
        ("model", {"name": "m", "context": 512}, "model.tokenizer missing"),
        ("model", NAMED, "cold_start must be null: model.name = 'some/model' exists already"),
        ("cold_start", None, "cold_start = None: a model that is made here knows nothing until it is taught"),
        ("local", None, "local = None: train.backend = 'local' needs the section"),
        ("local.checkpointing", 1, "local.checkpointing = 1 must be true or false"),
        ("local.tokens_trained_at_once", True, "must be a whole number"),
        ("local.dtype", "bfloat16", "loses every update smaller than its rounding: set train.training to lora"),
        ("train.base_url", "there", "train.base_url = 'there' must be empty"),
        ("train.backend", "tinker", "train.backend = 'tinker' serves models that it knows by name"),
    ],
)
def test_a_bad_parameter_is_named(tmp_path: Path, key: str, value: Any, message: str):
    with pytest.raises(settings.SettingsError, match=message):
        settings.load(changed(tmp_path, key, value))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("local", GOOD["local"], "local must be null: train.backend = 'tinker' computes elsewhere"),
        ("train.training", "full", "train.training = 'full' must be lora: train.backend = 'tinker' trains adapters"),
        ("train.grad_clip_norm", 1.0, "train.grad_clip_norm = 1 must be 0: the loop asks for no clipping"),
    ],
)
def test_a_hosted_backend_is_refused_what_it_would_ignore(tmp_path: Path, key: str, value: Any, message: str):
    with pytest.raises(settings.SettingsError, match=message):
        settings.load(changed(tmp_path, key, value, HOSTED))


def test_a_model_is_known_by_its_folder_or_its_name(tmp_path: Path):
    def named(name: str) -> str:
        model = {**NAMED, "name": name, "tokenizer": name}
        return settings.load(changed(tmp_path, "model", model, {**GOOD, "cold_start": None})).base_model

    assert named("some/model") == "some/model"
    assert named(str(tmp_path)) == str(tmp_path) and named("profiles") == str(ROOT / "profiles")
    made = settings.load(ROOT / "profiles" / "tiny.yaml", data=tmp_path)
    assert made.base_model == str(tmp_path / "runs" / "tiny" / "base")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_one_command_switches_and_says_what_is_different(profile: Path, tmp_path: Path):
    params = tmp_path / "params.yaml"
    params.write_bytes((ROOT / "profiles" / "tiny.yaml").read_bytes())
    said = settings.use(profile.stem, params=params)
    assert params.read_bytes() == profile.read_bytes()
    old, new = (yaml.safe_load(file.read_text()) for file in (ROOT / "profiles" / "tiny.yaml", profile))
    expected = {f"{s}.{key}" for s in old.keys() & new.keys() if isinstance(old[s], dict) and isinstance(new[s], dict)
                for key in old[s].keys() & new[s].keys() if old[s][key] != new[s][key] and key not in ("faults", "training")}  # fmt: skip
    assert expected <= {line.partition(": ")[0] for line in said}
    assert bool(said) == (old != new)
    assert settings.use(profile.stem, params=params) == []


def test_edits_of_ones_own_are_kept_unless_told_otherwise(tmp_path: Path):
    params = changed(tmp_path, "run", "mine")
    before = params.read_bytes()
    with pytest.raises(settings.SettingsError, match="no profile's text, so it has edits of your own"):
        settings.use("tiny", params=params)
    assert params.read_bytes() == before
    assert settings.use("tiny", overwrite=True, params=params) == ['run: "mine" -> "tiny"']
    with pytest.raises(settings.SettingsError, match="no profile 'small'; choose one of fireworks-27b, local-gpu-24gb"):
        settings.use("small", params=params)


def test_the_profiles_are_listed_each_with_its_first_line(capsys: pytest.CaptureFixture[str]):
    settings.main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [profile.stem for profile in PROFILES]
    assert all(len(line.split()) > 5 for line in lines)


def test_a_missing_or_broken_file_is_named(tmp_path: Path):
    with pytest.raises(settings.SettingsError, match="is missing: copy profiles/"):
        settings.load(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("run: [tiny")
    with pytest.raises(settings.SettingsError, match="is not YAML"):
        settings.load(tmp_path / "params.yaml")
