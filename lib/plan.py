"""Writes down what will be tested, and how, before any training; so that nobody can choose the test after the result.

`python -m lib.plan` writes the plan of the run in params.yaml, `python -m lib.plan --check` compares it with what is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lib import fingerprints, human_set, power
from lib.bootstrap import FEW_CLUSTERS
from lib.files import write_json
from lib.settings import HUMAN, ROOT, SETS, Settings, SettingsError, load

FIRST_SET, APART_SET = SETS
FIRST_TEST = {"set": FIRST_SET, "score": "strict", "decode": "sampled", "contrast": ["control", "trained"]}
SECOND_TEST = {**FIRST_TEST, "decode": "greedy"}
FAULTY_MOST = 0.02  # share of episodes lost to faults outside the model, above which no success is claimed

METHOD = (
    "paired bootstrap over questions, resampled by structure, percentile interval widened by Student's t with degrees of "
    "freedom from the structures' number, sizes and kurtosis (Hesterberg 2015, Kish 1965, Satterthwaite 1946)"
)
FEW_STRUCTURES = (
    f"of fewer than {FEW_CLUSTERS} structures, the outer ends of that interval and of the one over questions"
)
FAULT_RULE = (
    "a fault outside the model stops a step, which goes on from there when it is repeated, so that no episode is written "
    "for it; an episode that is marked as ended by such a fault is left out and counted all the same. In training such an "
    "episode is marked, and neither scored nor trained"
)
QUESTION = (
    "Does a model that already writes some queries answer questions about a graph database better after practice that is "
    "rewarded only by the rows its last query returns, by how much, and what is the gain made of?"
)
ARMS = {
    "base": "the cold-started model",
    "control": "never trained further, but saved and loaded by the trained arm's own route",
    "trained": "the last checkpoint of each seed; the seeds are pooled for the claim and shown one by one beside it",
}
EXPLORATORY = {
    APART_SET: "questions of structures that were never trained on, reported apart and without a target",
    "form and substance": "how much of the gain is the shape of the answer and how much its values",
    "hops": "the contrast by the number of relationships that a question crosses",
    "mistakes by kind": "how much of the gain is the removal of the mistakes planted in the demonstrations",
    "reach and reliability": "pass@k against pass^k",
    "never, sometimes, always": "the contrast by how often the untrained arms answered a question",
    "structures": "gains by structure, changes by question, questions never solved",
}
AS_IT_IS = {"base": "the model as it exists"}  # where none was made and taught
OF_THE_TAUGHT = ("mistakes by kind", "planted")  # nothing was planted in a model that exists
PEOPLE = {
    HUMAN: "people's questions, with all of them and with the clean ones, paired and resampled by question, without a target"
}
HYPOTHESIS = {
    "claim": "practice raises the strict rate on held-out instances over the control's, by at least the bar",
    "because": (
        "an attempt that is right more often than its group's mean is made likelier, and held-out instances need the same "
        "structures of queries as those practised"
    ),
    "against": "the strict rates of trained and control are the same, and what differs is the draw",
}
PREDICTIONS = {
    "reliability": {
        "foretold": "all samples of a question right (pass^k) rises by more than any of them right (pass@k)",
        "because": "only what the model already does now and then is rewarded, so it makes that more frequent and finds little new",
    },
    "cooling": {
        "foretold": "the greedy gain is smaller than the sampled one",
        "because": "part of a sampled gain is a sharper distribution, and a greedy answer is as sharp as can be already",
    },
    "transfer": {
        "foretold": "on held-out structures the interval of the gain includes zero",
        "because": "a model this small learns which query goes with which wording, and those wordings never occur in practice",
    },
    "planted": {
        "foretold": "the removal of planted mistakes makes up more than half of the gain",
        "because": "most of the base model's mistakes are copies of those in its demonstrations, each next to a right way",
    },
}
STOPPING = (
    "each seed is trained for the planned updates and evaluated once, whatever is seen on the way; no seed, update, question "
    "or sample is added or left out after a look. Training ends early only where the look before its first update finds "
    "less headroom than test.least_headroom, and then there is no result"
)


class PlanError(RuntimeError):
    """The plan can't be written or read; the message says which file, why, and the way out."""


def path(settings: Settings) -> Path:
    """Where the plan of the settings' run lies."""
    return settings.run_dir / "plan.json"


def read(settings: Settings) -> dict[str, Any]:
    """The plan as written. Raises PlanError where it is missing or no JSON."""
    file = path(settings)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlanError(
            f"{_name(settings, file)} is missing: write it before training, with `python -m lib.plan`"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise PlanError(
            f"{_name(settings, file)} is damaged ({problem}): put back the file that training started with"
        ) from None


def digest(settings: Settings) -> str:
    """The digest (sha256, hex) of the plan on file, which training records as plan.sha256.

    Raises PlanError where the plan is missing or edited, or no longer fits settings, questions or base model: what is
    trained then would not be what was planned.
    """
    plan = read(settings)
    found = _edited(settings, plan) + _differences(plan, make(settings))
    if found:
        raise PlanError(
            f"{_name(settings, path(settings))} doesn't hold for this training: {'; '.join(found)}. Write it anew before "
            "training"
        )
    return plan["digest"]


def _digest(plan: dict[str, Any]) -> str:
    """Of a plan's content, without its own field `digest`."""
    content = {key: value for key, value in plan.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write(settings: Settings) -> Path:
    """Write data/runs/<run>/plan.json. The same settings and inputs give the same bytes.

    Raises PlanError where an input is missing, or where training has started under another plan than the one that
    would be written.
    """
    plan = make(settings)
    started = _recorded(settings)
    if any(recorded != plan["digest"] for recorded in started.values()):
        raise PlanError(_changed_too_late(settings, plan, started))
    file = path(settings)
    write_json(file, plan)
    return file


def check(settings: Settings) -> list[str]:
    """What differs between the plan on file and what it would be now, in sentences; an empty list if nothing does.

    Covers edits of the file itself, settings, questions, the base model, loop, environment, scorer and prompt, the plan
    that each seed's training recorded, and what each arm's evaluation was stamped with.
    """
    try:
        plan = read(settings)
    except PlanError as problem:
        return [str(problem)]
    found = _edited(settings, plan)
    try:
        found += _differences(plan, make(settings))
    except PlanError as problem:
        found.append(str(problem))
    recorded = _recorded(settings)
    for seed in plan.get("seeds", []):
        if seed not in recorded:
            found.append(
                f"training of seed {seed} recorded no plan ({_name(settings, _record(settings, seed))} is missing)"
            )
        elif recorded[seed] != plan.get("digest"):
            found.append(f"seed {seed} was trained under another plan ({recorded[seed][:12]} instead of this one)")
    return found + [difference for arm in settings.arms for difference in _stamped(settings, plan, arm)]


def stamp(settings: Settings, arm: str) -> Path:
    """Note beside an arm's episodes the plan on file, and what of it no longer held when the arm was evaluated.

    Writes data/runs/<run>/evaluate/plan-<arm>.json with `plan` (the digest) and `differences` (sentences). Raises
    PlanError where there is no plan.
    """
    plan = read(settings)
    differences = _edited(settings, plan) + _differences(plan, make(settings))
    write_json(_stamp(settings, arm), {"plan": plan.get("digest"), "differences": differences})
    return _stamp(settings, arm)


def make(settings: Settings) -> dict[str, Any]:
    """The plan's content, with its digest.

    Raises PlanError where a question file or the base model is missing, or where the confidence allows no equivalence.
    """
    confident(settings.test.confidence)
    questions = {name: _questions(settings, name) for name in SETS}
    people = _people(settings)
    test, taught = settings.test, settings.cold_start is not None
    plan: dict[str, Any] = {
        "run": settings.run,
        "question": QUESTION,
        "hypothesis": HYPOTHESIS,
        "arms": ARMS if taught else ARMS | AS_IT_IS,
        "sets": questions,
        "human": people,
        "first_endpoint": {
            **FIRST_TEST,
            "samples": settings.evaluate.samples,
            "temperature": settings.evaluate.temperature,
            "seeds": "pooled",
            "method": METHOD,
            "few_structures": FEW_STRUCTURES,
            "bar": test.bar,
            "confidence": test.confidence,
            "resamples": test.resamples,
            "success": "the gain is at least the bar and its interval lies above zero",
        },
        "second_endpoint": {
            **SECOND_TEST,
            "samples": 1,
            "why": "practice at a temperature can look like mere cooling; a greedy answer can't be cooled further",
        },
        "equivalence": {
            "set": FIRST_SET,
            "score": "strict",
            "decode": "sampled",
            "contrast": ["base", "control"],
            "margin": test.margin,
            "method": "two one-sided tests, each at one minus the confidence, by the same bootstrap",
            "few_structures": FEW_STRUCTURES,
            "interval": "at twice the confidence less one, which is what two one-sided tests come to",
            "interval_confidence": round(2 * test.confidence - 1, 6),
        },
        "faults": {
            "rule": FAULT_RULE,
            "most": FAULTY_MOST,
        },
        "checkpoint": "the last one; the curve on dev questions chooses none",
        "stopping": STOPPING,
        "exploratory": _fitting(EXPLORATORY, taught) | (PEOPLE if people["questions"] else {}),
        "predictions": _fitting(PREDICTIONS, taught),
        "seeds": list(settings.train.seeds),
        "settings": _plain(settings),
        "inputs": {
            "questions": {
                name: _sha256(settings, settings.questions_dir / f"{name}.jsonl")
                for name in (settings.practised, "dev", *SETS, *(["demonstrations"] if taught else []))
            },
            "base": _folder_sha256(settings, settings.base_dir),
            **_fingerprints(settings),
        },
        "power": _planned_power(settings, questions[FIRST_SET]),
    }
    plan = json.loads(json.dumps(plan))  # tuples become lists, so that a plan equals itself read back
    plan["digest"] = _digest(plan)
    return plan


def _fitting(declared: dict[str, Any], taught: bool) -> dict[str, Any]:
    """What can be asked of the run's model."""
    return {name: one for name, one in declared.items() if taught or name not in OF_THE_TAUGHT}


def confident(confidence: float) -> None:
    """Raises PlanError where the confidence allows no two one-sided tests: their interval is at 2 * confidence - 1."""
    if confidence <= 0.5:
        raise PlanError(
            f"test.confidence is {confidence}: the interval that shows control and base to be equal is at twice that less "
            "one, so it must be above 0.5; 0.95 is usual"
        )


def _planned_power(settings: Settings, first: dict[str, Any]) -> dict[str, Any]:
    """What the test can see, with the base model's dev questions as the pilot; see power.outlook."""
    file = settings.run_dir / "base.json"
    try:
        counts = json.loads(file.read_text(encoding="utf-8"))["dev_counts"]
    except FileNotFoundError:
        raise PlanError(f"{_name(settings, file)} is missing: make the base model (3_base) before the plan") from None
    design = power.Design(
        first["questions"], settings.evaluate.samples, len(settings.train.seeds), first["structures"],
        settings.test.bar, settings.test.confidence,
    )  # fmt: skip
    each = [row["questions"] for row in counts]
    right, samples = (np.repeat([row[key] for row in counts], each) for key in ("right", "samples"))
    return power.outlook(right, samples, design)


def _fingerprints(settings: Settings) -> dict[str, Any]:
    prompt = settings.run_dir / "system_prompt.txt"
    try:
        return fingerprints.of(prompt)
    except FileNotFoundError:
        raise PlanError(f"{_name(settings, prompt)} is missing: make the base model (3_base) before the plan") from None


def _plain(settings: Settings) -> dict[str, Any]:
    plain = dataclasses.asdict(settings)
    # Where the files are is no part of what was planned; what people's questions hold is, by its hash. Endpoints are beside it.
    del plain["data"], plain["graph"]["path"], plain["human"], plain["endpoints"]
    return plain


def _questions(settings: Settings, name: str) -> dict[str, Any]:
    file = settings.questions_dir / f"{name}.jsonl"
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise PlanError(
            f"{_name(settings, file)} is missing: make the questions (2_questions) before the plan"
        ) from None
    return {"questions": len(lines), "structures": len({line["structure"] for line in lines})}


def _people(settings: Settings) -> dict[str, Any]:
    try:
        return human_set.frozen(settings.human_dir)
    except human_set.HumanError as problem:
        raise PlanError(f"data/{HUMAN}: {problem}") from problem


def _name(settings: Settings, file: Path) -> str:
    """The file from the data folder on: messages get into results.json, which is the same on every machine."""
    return f"data/{file.relative_to(settings.data).as_posix()}"


def _sha256(settings: Settings, file: Path) -> str:
    if not file.exists():
        raise PlanError(f"{_name(settings, file)} is missing: make the questions (2_questions) before the plan")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _folder_sha256(settings: Settings, folder: Path) -> str:
    """One digest over the names and contents of a folder's files."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    if not files:
        raise PlanError(f"{_name(settings, folder)} has no files: make the base model (3_base) before the plan")
    lines = [f"{_sha256(settings, file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _recorded(settings: Settings) -> dict[int, str]:
    """Plan digests that training recorded, by seed; a seed folder with files but without a record counts as unknown."""
    found = {}
    for folder in sorted((settings.run_dir / "train").glob("seed-*/")):
        seed = int(folder.name.removeprefix("seed-"))
        record = _record(settings, seed)
        if record.exists():
            found[seed] = (record.read_text(encoding="utf-8").split() or ["nothing"])[0]
        elif any(folder.iterdir()):
            found[seed] = "nothing"
    return found


def _record(settings: Settings, seed: int) -> Path:
    return settings.train_dir(seed) / "plan.sha256"


def _stamp(settings: Settings, arm: str) -> Path:
    return settings.episodes(arm).with_name(f"plan-{arm}.json")


def _stamped(settings: Settings, plan: dict[str, Any], arm: str) -> list[str]:
    """What an arm's stamp says against it."""
    if not settings.episodes(arm).exists():
        return []
    try:
        stamped = json.loads(_stamp(settings, arm).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [f"the evaluation of {arm} recorded no plan ({_name(settings, _stamp(settings, arm))} is missing)"]
    if stamped["plan"] != plan.get("digest"):
        return [f"{arm} was evaluated under another plan ({str(stamped['plan'])[:12]} instead of this one)"]
    return [f"{difference}, when {arm} was evaluated" for difference in stamped["differences"]]


def _edited(settings: Settings, plan: dict[str, Any]) -> list[str]:
    fits = plan.get("digest") == _digest(plan)
    return [] if fits else [f"{_name(settings, path(settings))} was edited: its digest doesn't fit its content"]


def _changed_too_late(settings: Settings, plan: dict[str, Any], started: dict[int, str]) -> str:
    seeds = ", ".join(str(seed) for seed, recorded in started.items() if recorded != plan["digest"])
    try:
        changes = "; ".join(_differences(read(settings), plan)) or "the training output names another plan"
    except PlanError:
        changes = "the plan that it started with is gone"
    return (
        f"training of run {settings.run!r} (seed {seeds}) has started under another plan: {changes}. A plan can't change "
        f"after that: undo the change, or choose another `run` in params.yaml, or delete "
        f"{_name(settings, settings.run_dir / 'train')} to train anew"
    )


def _differences(old: Any, new: Any, where: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in sorted(old.keys() | new.keys()) if where or key != "digest"]
        return [d for key in keys for d in _differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)]
    return [] if old == new else [f"{where}: planned {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def main(arguments: list[str] | None = None) -> None:
    """Command line: write the plan, or with --check compare it; exit status 1 where it can't stand."""
    parser = argparse.ArgumentParser(prog="python -m lib.plan", description=__doc__.split("\n\n")[0])
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    parser.add_argument("--check", action="store_true", help="write nothing; list what differs from the plan on file")
    chosen = parser.parse_args(arguments)
    try:
        settings = load(chosen.params, chosen.data)
        if chosen.check:
            found = check(settings)
            print("\n".join(found) or f"{path(settings)} stands")
            sys.exit(bool(found))
        print(write(settings))
    except (PlanError, SettingsError) as problem:
        parser.exit(1, f"{problem}\n")


if __name__ == "__main__":
    main()
