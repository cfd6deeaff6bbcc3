"""Reads what the experiment declares before any of it runs: its rules, and what each arm changes of the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from lib.settings import (
    NAME,
    ROOT,
    Alike,
    ByRate,
    Guarded,
    InBand,
    InSteps,
    Objective,
    Prepass,
    Replacement,
    SettingsError,
    Train,
    WithHints,
    check_replacement,
    number,
    section,
    together,
)

ARMS = ROOT / "experiments" / "learning" / "arms.yaml"
BASELINE, BEST, CLEAN = "baseline", "best", "clean"  # names that the rules speak of
HALF = "-half"  # end of the name of an arm that may spend half of the budget
PARTS = (
    "questions",
    "replacement",
    "objective",
)  # what an arm may change, and what the best combination is put together of


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of spending the budget. Its name is its key in the file."""

    why: str
    role: Literal["baseline", "single", "comparator"]  # a single one changes one part of the baseline
    learns: Literal["practice", "imitation"]  # imitation: of the untrained model's own right answers
    questions: Alike | InBand | InSteps | ByRate | WithHints
    replacement: Replacement | None
    objective: Objective

    @property
    def prepass(self) -> Prepass | None:
        """What it needs, and pays for, before it begins."""
        return getattr(self.questions, "prepass", None)

    def of(self, train: Train) -> Train:
        """The settings of training with this arm's parts. Raises SettingsError where they don't go with the rest."""
        made = replace(train, **{part: getattr(self, part) for part in PARTS})
        check_replacement(made)
        return made


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is the same for all arms; arms.yaml gives the reasons."""

    updates: int = number(least=1)
    passes: int = number(least=1)
    temperatures: tuple[float, ...] = number(above=0)
    reach: int = number(least=2)
    margin: float = number(above=0, most=1)
    signal: float = number(above=0, most=1)
    clean_seeds: tuple[int, ...] = number(least=0)
    halves: tuple[str, ...]
    best: str
    guards: tuple[Guarded, ...]


@dataclass(frozen=True)
class Declared:
    """The whole of arms.yaml."""

    rules: Rules
    arms: dict[str, Arm]

    @property
    def prepass(self) -> Prepass | None:
        """That of the arms that need one, which share it."""
        return next((arm.prepass for arm in self.arms.values() if arm.prepass is not None), None)

    def singles(self, part: str) -> list[str]:
        """The arms that may give the best combination its part: the baseline, and those that change it."""
        own = getattr(self.arms[BASELINE], part)
        changed = [name for name, arm in self.arms.items() if arm.role == "single" and getattr(arm, part) != own]
        return [BASELINE, *changed]

    def combined(self, chosen: Mapping[str, str]) -> Arm:
        """The best combination: each part from the arm that was chosen for it."""
        parts = {part: getattr(self.arms[chosen[part]], part) for part in PARTS}
        return replace(self.arms[BASELINE], why=self.rules.best, role="single", **parts)


def load(path: Path = ARMS) -> Declared:
    """Raises SettingsError for a file that is missing or no YAML, for the first key that can't be used, and for an arm that
    doesn't do what its role says."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path} is missing: it declares the experiment's arms") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        if not isinstance(given, dict) or not isinstance(given.get("arms"), dict):
            raise SettingsError("arms is missing; it must hold an arm by each name")
        arms = {name: section(Arm, arm, f"arms.{name}.") for name, arm in given["arms"].items()}
        rules = section(Rules, {key: value for key, value in given.items() if key not in ("arms", "shared")}, "")
        declared = Declared(rules, arms)
        _check(declared)
    except SettingsError as error:
        raise SettingsError(f"{path.name}: {error}") from None
    return declared


def _check(declared: Declared) -> None:
    """What no arm can be judged for alone."""
    arms, rules = declared.arms, declared.rules
    if [name for name, arm in arms.items() if arm.role == "baseline"] != [BASELINE]:
        raise SettingsError(f"arms must hold one whose role is baseline, under the name {BASELINE!r}")
    for name, arm in arms.items():
        if not NAME.fullmatch(name) or name in (BEST, CLEAN) or name.endswith(HALF):
            raise SettingsError(
                f"arms.{name} names a folder; use small letters, digits, '.', '_' and '-', no end {HALF!r}, and not "
                f"{BEST!r} or {CLEAN!r}, which come of themselves"
            )
        changed = [part for part in PARTS if getattr(arm, part) != getattr(arms[BASELINE], part)]
        if arm.role == "single" and (len(changed) != 1 or arm.learns != "practice"):
            raise SettingsError(
                f"arms.{name}.role = 'single' must change one of {', '.join(PARTS)}, and nothing else; it changes "
                f"{', '.join(changed) or 'none'}"
            )
        if arm.prepass not in (None, declared.prepass):
            raise SettingsError(
                f"arms.{name}.questions.prepass = {arm.prepass} must be as every other arm's: they share it"
            )
        try:
            together(arm.questions, arm.objective)
        except SettingsError as error:
            raise SettingsError(f"arms.{name}: {error}") from None
    if 1.0 not in rules.temperatures:
        raise SettingsError(f"temperatures = {list(rules.temperatures)} must hold 1.0, by which the budget is measured")
    for name in rules.halves:
        if name not in (*arms, BEST):
            raise SettingsError(f"halves = {list(rules.halves)} must name arms; {name!r} is none")


def plain(arm: Arm) -> dict[str, Any]:
    """An arm as plain data, for records and results."""
    return asdict(arm)
