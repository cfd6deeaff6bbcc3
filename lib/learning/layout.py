"""Where the experiment's files lie, what the settings of an arm are, and what a file of it was made from."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lib import fingerprints, tally
from lib.episodes import read
from lib.files import write_json
from lib.learning.arms import BEST, CLEAN, HALF, Arm, Declared
from lib.settings import ROOT, Settings

PARAMS = ROOT / "experiments" / "learning" / "params.yaml"
STUDY = "tiny"  # the run whose base model is taken; graph and questions are common to all runs
BASE, CONTROL, TUNED = "base", "control", "tuned"  # untrained: first samples, fresh ones, those at the best temperature
OWN = (
    "arms",
    "budget",
    "experiment",
    "imitation",
    "layout",
    "learner",
)  # what makes an arm; the others read what it leaves


@dataclass(frozen=True, kw_only=True)
class ArmSettings(Settings):
    """The settings of one arm: graph, questions and base model are the study's, the rest is its own."""

    arm: str = field(metadata={"internal": True})

    @property
    def base_dir(self) -> Path:
        return self.run_dir / "base" if self.arm == CLEAN else self.data / "runs" / STUDY / "base"

    @property
    def system_prompt(self) -> Path:
        return self.base_dir.with_name("system_prompt.txt")

    @property
    def run_dir(self) -> Path:
        if self.arm == CLEAN:
            return folder(self) / CLEAN
        return folder(self) / ("combined" if self.arm == BEST or self.arm.endswith(HALF) else "singles") / self.arm

    def episodes(self, arm: str) -> Path:
        return folder(self) / "asked" / self.arm / arm / "episodes.jsonl"

    def work(self, step: str) -> Path:
        return self.data / "work" / self.run / step


def settings_of(settings: Settings, arm: str) -> ArmSettings:
    given = {f.name: getattr(settings, f.name) for f in fields(Settings)}
    if arm == CLEAN:
        given["cold_start"] = replace(settings.taught, wrong_least=0.0, wrong_most=0.0)
    return ArmSettings(**given | {"run": f"{settings.run}-{arm}"}, arm=arm)


def folder(settings: Settings) -> Path:
    return settings.data / "learning"


def prepass_of(settings: Settings, seed: int) -> Path:
    """Folder of the pre-pass that a seed's trainings share."""
    return folder(settings) / "before" / f"seed-{seed}"


def at_temperature(temperature: float) -> str:
    """Name of the control as its dev answers at a temperature bear it."""
    return f"{CONTROL}-{temperature:g}"


# ---------------------------------------------------------------- what was found earlier


def before(settings: Settings) -> dict[str, Any]:
    """What `prepare` wrote. Raises FileNotFoundError."""
    found: dict[str, Any] = _read(folder(settings) / "before" / "before.json", "prepare")
    return found


def _read(file: Path, step: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing: `python -m lib.learning.experiment {step}` writes it") from None


def choice(settings: Settings) -> dict[str, Any]:
    """What `choose` wrote. Raises FileNotFoundError."""
    found: dict[str, Any] = _read(folder(settings) / "chosen.json", "choose")
    return found


def combined(settings: Settings, declared: Declared) -> dict[str, tuple[Arm, float]]:
    """The arms that are known once the choice is made, with their shares of the budget."""
    best = declared.combined(choice(settings)["chosen"])
    halves = {f"{name}{HALF}": best if name == BEST else declared.arms[name] for name in declared.rules.halves}
    return {BEST: (best, 1.0), **{name: (arm, 0.5) for name, arm in halves.items()}}


def never_solved(settings: Settings) -> tuple[str, ...]:
    """Ids of the test questions, those of new structures among them, of which the base had none of its samples right."""
    found = tally.counts(read(settings_of(settings, BASE).episodes("base")))
    return tuple(question for question, count in found.items() if count.right == 0)


# ---------------------------------------------------------------- what a file was made from


def inputs(one: ArmSettings, **more: Any) -> dict[str, Any]:
    """What a result of the arm hangs on, as digests and plain data, to be kept beside it."""
    parts = ("graph", "questions", "model", "cold_start", "agent", "local", "train", "evaluate")
    own = [f"lib/learning/{name}.py" for name in OWN]
    return {
        "settings": {part: asdict(getattr(one, part)) for part in parts},
        "questions": digest_of(one.questions_dir),
        "base": digest_of(one.base_dir),
        **fingerprints.of(one.system_prompt),
        "arms": fingerprints.digest((name, (ROOT / name).read_bytes()) for name in own),
        **more,
    }


def digest_of(folder: Path) -> str:
    files = [file for file in folder.rglob("*") if file.is_file()]
    if not files:
        raise FileNotFoundError(
            f"{folder} has no files: `make study` makes them, or `make learning` with all that it needs"
        )
    return fingerprints.digest((file.relative_to(folder).as_posix(), file.read_bytes()) for file in files)


def go_on(folder: Path, work: Path, found: dict[str, Any]) -> None:
    """Keep what a killed try left in `folder` and `work` if it was begun from the same inputs, else remove it; note the inputs."""
    record, text = folder / "inputs.json", json.loads(json.dumps(found))
    if not record.exists() or json.loads(record.read_text(encoding="utf-8")) != text:
        for left in (folder, work):
            shutil.rmtree(left, ignore_errors=True)
        write_json(record, text)
