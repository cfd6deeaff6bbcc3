"""The report's sentences on practice follow the settings, option by option."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lib.settings import load, profiles
from reports.practice import described

BAND = {
    "kind": "band", "low": 0.1, "high": 0.6, "sure": 0.6, "easy": 0.0625, "never": 0.125, "every": 1, "half_life": 3.0, "rest": 2,
    "prepass": {"questions": 256, "samples": 1},
}  # fmt: skip
SAID = {
    ("questions", "band"): (BAND, "answered 256 of the questions to practise, 1 times each"),
    ("questions", "band's shares"): (BAND, "81% are such as are answered between 10% and 60% of the time; 6% are easier, and 12%"),
    ("questions", "hops"): ({"kind": "hops", "floor": 0.1}, "from easy to hard, by the number of relationships"),
    ("questions", "length"): ({"kind": "length", "floor": 0.1}, "from easy to hard, by the length"),
    ("questions", "rate"): ({"kind": "rate", "floor": 0.1, "prepass": BAND["prepass"]}, "from those answered most often"),
    ("questions", "hints"): ({"kind": "hints", "share": 0.25}, "Up to 25% of an update"),
    ("replacement", "extra"): ({"extra": 32, "first": 4}, "Another takes its place, up to 32 times an update"),
    ("replacement", "first"): ({"extra": 0, "first": 3}, "Where the first 3 attempts did alike, the others weren't made"),
    ("objective", "credit"): ({"credit": "strict"}, "strictly right, else none."),
    ("objective", "gated"): ({"credit": "f1"}, "else 0.5 times its row overlap"),
    ("objective", "lenient"): ({"credit": "lenient"}, "else 0.5 if it is right but for extra columns"),
    ("objective", "spread"): ({"spread": True}, "in units of their standard deviation"),
    ("objective", "kl"): ({"kl": 0.02}, "weight 0.02), where all attempts did alike that alone."),
    ("objective", "masked"): ({"masked": True}, "cut off count for nothing"),
    ("objective", "penalties"): ({"credit": "strict", "repeated": 0.1, "failed": 0.05, "cap": 0.2}, "together 0.2 at most"),
    ("objective", "shuffled"): ({"shuffled": True}, "this run is a check"),
}  # fmt: skip


def settings_of(profile: str) -> dict[str, Any]:
    return dataclasses.asdict(load(profiles()[profile]).train)


@pytest.mark.parametrize("profile", [name for name in profiles() if name != "tiny"])
def test_the_published_way_is_said_as_it_was(profile: str) -> None:
    train = settings_of(profile)
    assert described(train) == (
        f"Practice is reinforcement learning: {train['updates']} updates, each with {train['groups']} questions and "
        f"{train['rollouts']} attempts at each. An attempt earns one point if it is strictly right, else its row overlap, a little "
        "below one at most. What counts is how much better an attempt did than the other attempts at the same question; a question "
        "where all attempts did alike teaches nothing and is dropped."
    )


@pytest.mark.parametrize("option", SAID, ids=" ".join)
def test_each_option_says_what_it_changes(option: tuple[str, str]) -> None:
    train, (value, words) = settings_of("miniature"), SAID[option]
    part = option[0]
    assert words not in described(train)
    changed = train[part] | value if part == "objective" else value
    assert words in described(train | {part: changed})
