"""The rehearsal of a run: every profile passes it, and its counts are those of a service that really computes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from lib import dry_run, loop, train
from lib.episodes import read
from lib.rehearsal import Call, rehearsed
from lib.settings import InBand, Named, Prepass, Replacement, Settings, load, profiles


@pytest.fixture(scope="module")
def miniature() -> Settings:
    return load(profiles()["miniature"])


def named(calls: Counter[Call], name: str) -> int:
    return sum(times for (called, _), times in calls.items() if called == name)


def but_samples(calls: Counter[Call]) -> dict[Call, int]:
    return {call: times for call, times in calls.items() if call[0] != "sample"}


@pytest.mark.parametrize("name", profiles())
def test_every_profile_passes(name: str) -> None:
    settings = load(profiles()[name])
    t = settings.train
    rehearsed = dry_run.rehearse(settings)
    text, steps = dry_run.described(settings, rehearsed, None), {step.name: step for step in rehearsed}
    assert list(steps) == [
        "pilot on dev",
        *(f"train, seed {seed}" for seed in t.seeds),
        *(f"evaluate, {arm}" for arm in settings.arms),
        "worked examples",
    ]
    for seed in t.seeds:
        calls = steps[f"train, seed {seed}"].calls
        assert named(calls, "forward_backward") == named(calls, "optim_step") == t.updates
        assert named(calls, "create_lora_training_client") == 1
        assert ("forward_backward", (("loss_fn", t.loss),)) in calls
        assert ("optim_step", (("learning_rate", t.learning_rate),)) in calls
    for arm in settings.arms:  # only what is trained is trained, and control and trained take one route
        assert named(steps[f"evaluate, {arm}"].calls, "forward_backward") == 0
        assert named(steps[f"evaluate, {arm}"].calls, "create_training_client_from_state") == (arm != "base")
    if isinstance(settings.model, Named):
        assert f"base_model={settings.model.name}, rank={t.lora_rank}" in text
    assert f"{t.updates} updates of {t.groups} questions x {t.rollouts} rollouts" in text
    assert f"{t.updates}  forward_backward(loss_fn={t.loss})" in text


def test_only_the_number_of_samples_hangs_on_how_many_questions_there_are(miniature: Settings) -> None:
    few, whole = dry_run.rehearse(miniature), dry_run.rehearse(miniature, whole=True)
    for small, large in zip(few, whole, strict=True):
        assert (small.name, small.rollouts) == (large.name, large.rollouts)
        assert but_samples(small.calls) == but_samples(large.calls)
        assert named(large.calls, "sample") == large.rollouts  # whose answers end at once: a turn each


def test_a_service_that_computes_is_asked_the_same(miniature: Settings, tmp_path: Path) -> None:
    rehearsal = next(step for step in dry_run.rehearse(miniature) if step.name == "train, seed 0")
    small = dry_run.prepared(miniature, tmp_path)
    with rehearsed(tmp_path / "work", miniature.train.training) as real:
        loop.run(train.practise(small, 0, dry_run.NOWHERE, tmp_path / "work", small.train_dir(0)))
    assert but_samples(real.calls) == but_samples(rehearsal.calls)
    episodes = [e for name in ("episodes", "dev") for e in read(small.train_dir(0) / f"{name}.jsonl")]
    assert len(episodes) == rehearsal.rollouts
    assert named(real.calls, "sample") == sum(e.turns for e in episodes)


@pytest.mark.parametrize("first", [3, 4])
def test_a_pre_pass_and_replaced_groups_are_counted(miniature: Settings, first: int) -> None:
    """Nobody is right where answers end at once, so that every group is replaced as often as it may be, and stopped if that is
    asked for."""
    band = InBand(
        kind="band", low=0.2, high=0.8, sure=0.5, easy=0.1, never=0.1, every=1, half_life=2.0, rest=1,
        prepass=Prepass(questions=3, samples=2),
    )  # fmt: skip
    train = dataclasses.replace(miniature.train, questions=band, replacement=Replacement(extra=1, first=first))
    few, whole = (dry_run.rehearse(dataclasses.replace(miniature, train=train), whole=w) for w in (False, True))
    usual = next(step for step in dry_run.rehearse(miniature) if step.name == "train, seed 0")
    for small, large in zip(few, whole, strict=True):
        assert but_samples(small.calls) == but_samples(large.calls)
        stopped = first < train.rollouts and small.name.startswith("train")
        fewer = train.updates * train.groups * (train.rollouts - first) if stopped else 0
        assert named(large.calls, "sample") == large.rollouts - fewer
    practised = next(step for step in whole if step.name == "train, seed 0")
    assert practised.rollouts == usual.rollouts + 6 + train.updates * first


def test_people_who_arent_counted_yet_are_said_to_be_missing(miniature: Settings, tmp_path: Path) -> None:
    asked = dataclasses.replace(
        miniature, data=tmp_path, human=dataclasses.replace(miniature.human, questions="a.jsonl")
    )
    assert "aren't counted until" in dry_run.described(asked, [], None)


def test_a_profile_that_isnt_there_is_named() -> None:
    with pytest.raises(SystemExit, match=r"dry run of nowhere: .*nowhere is missing"):
        dry_run.main(["nowhere"])
