"""What `make study` says when the pipeline is through: whether it repeated the committed run, where the time went, what came out."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lib.backends import gauge
from lib.files import write_text
from lib.settings import ROOT, Settings, SettingsError, load

LOCK = ROOT / "dvc.lock"
SHOWN = 8  # paths that are named
UNSTABLE = ("reports/",)  # the page shows timings, which no two runs share


def outputs(lock: str) -> dict[str, str]:
    """Path -> md5 of every output in the text of a dvc.lock, but for those that hold timings."""
    stages = (yaml.safe_load(lock) or {}).get("stages", {})
    found = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}
    return {path: md5 for path, md5 in sorted(found.items()) if not path.startswith(UNSTABLE)}


def compare_locks(now: str, committed: str | None) -> str:
    """In words: which outputs of this run have the committed run's hashes."""
    if committed is None:
        return "No dvc.lock is committed yet, so there is no run to compare this one with."
    here, there = outputs(now), outputs(committed)
    both = here.keys() & there.keys()
    different = sorted(path for path in both if here[path] != there[path])
    lines = [f"{len(both) - len(different)} of {len(here)} outputs have the committed run's hashes."]
    if different:
        lines += [
            f"These differ: {_some(different)}.",
            "Changed code or parameters do that, and so can another kind of processor, whose products differ in the last "
            "bit: from the first trained weights on, everything after may differ then. What the report says of this run "
            "stands all the same.",
        ]
    if unknown := sorted(here.keys() - both):
        lines.append(f"The committed run doesn't have these: {_some(unknown)}.")
    return "\n".join(lines)


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def committed_lock() -> str | None:
    """dvc.lock as committed; None outside of a repository or where it isn't committed."""
    try:
        shown = subprocess.run(["git", "show", "HEAD:./dvc.lock"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout


def times(settings: Settings) -> str:
    """A table of wall time, CPU time and peak memory by step, as the steps recorded them."""
    steps = [json.loads(path.read_text()) for path in sorted(settings.timings_dir.glob("*.json"))]
    if not steps:
        return "no step has been timed yet"
    lines = [f"{'step':<28} {'wall s':>8} {'CPU s':>8} {'peak GB':>8}"]
    for step in steps:
        name = step["step"] if step["finished"] else step["step"] + " (unfinished)"
        peak = step["peak_memory_bytes"] / 2**30
        lines.append(f"{name:<28} {step['wall_seconds']:>8.0f} {step['cpu_seconds']:>8.0f} {peak:>8.1f}")
    wall, cpu = (sum(step[key] for step in steps) for key in ("wall_seconds", "cpu_seconds"))
    peak = max(step["peak_memory_bytes"] for step in steps) / 2**30
    lines.append(f"{'all':<28} {wall:>8.0f} {cpu:>8.0f} {peak:>8.1f}")
    idle = gauge.read(settings.timings_dir)
    lines += [f"{step:<28} {share:>8.0%} of the sampler's time was idle" for step, share in idle.items()]
    return "\n".join(lines)


def verdict(settings: Settings) -> str:
    """The line that a run ends with: verdict, reason, and where the report is."""
    results: dict[str, Any] = json.loads((settings.run_dir / "results.json").read_text(encoding="utf-8"))
    said = results["verdict"]
    return f"{said['verdict']}: {said['reason']} | report: reports/_site/{settings.run}.html"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lib.study", description=__doc__)
    parser.add_argument("what", choices=["settings", "check", "times", "verdict"])
    what = parser.parse_args(arguments).what
    try:
        settings = load()
        if what == "settings":
            return  # read they are: the pipeline's own complaint about a missing section names no key
        if what == "check":
            print(compare_locks(LOCK.read_text(encoding="utf-8"), committed_lock()))
        elif what == "times":
            summary = settings.timings_dir / "summary.txt"
            write_text(summary, times(settings) + "\n")
            print(f"Where the time went: {summary.relative_to(ROOT)}")
        else:
            print(verdict(settings))
    except SettingsError as error:
        parser.exit(1, f"{error}\n")
    except FileNotFoundError as error:
        parser.exit(1, f"{Path(str(error.filename))} isn't there: run `make study` first\n")


if __name__ == "__main__":
    main()
