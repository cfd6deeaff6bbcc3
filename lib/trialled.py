"""Whether a paid training may start: only after a trial of two updates passed, with the same settings and the same code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from lib import fingerprints
from lib.settings import Settings

# What a trial and the whole run may differ in: how long, how often and with which seeds.
LENGTH = ("seeds", "updates", "dev_every", "dev_samples")


class TrialMissing(RuntimeError):
    """A paid training was started without a trial that fits; the message says which, why, and the command for it."""


def path(settings: Settings) -> Path:
    return settings.run_dir / "trial.json"


def digest(settings: Settings) -> str:
    """Of what a trial tries: model, agent, training but for its length, and the code, prompt and packages that do it."""
    train = {name: value for name, value in dataclasses.asdict(settings.train).items() if name not in LENGTH}
    about = {
        "model": dataclasses.asdict(settings.model),
        "agent": dataclasses.asdict(settings.agent),
        "local": settings.local and dataclasses.asdict(settings.local),
        "train": train,
        **fingerprints.of(settings.run_dir / "system_prompt.txt"),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def must_have(settings: Settings) -> None:
    """Raises TrialMissing where training costs money and no trial of these settings has passed; local training needs none."""
    if settings.local is not None:
        return
    way = f"run `python -m lib.trial` first: two updates of run {settings.run!r}, which say what the whole will cost"
    try:
        found = json.loads(path(settings).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TrialMissing(f"no trial: {path(settings)} is missing, and this training is paid for; {way}") from None
    if found["digest"] != digest(settings):
        raise TrialMissing(f"{path(settings)} is of other settings, code or packages than those now; {way}")
    if not found["passed"]:
        refused = [one["check"] for one in found["findings"] if one["outcome"] == "refused"]
        raise TrialMissing(f"the trial did not pass ({', '.join(refused)}; see {path(settings)}): mend that, and {way}")
