"""How often the intervals hold the truth, how often the test's rule is wrong, and whether power is as foretold: by simulation.

    python benchmarks/intervals.py            # minutes on one core; --write: docs/coverage.json and the tables of docs/statistics.md
    python benchmarks/intervals.py --quick    # a tenth of the runs
    python benchmarks/intervals.py --speed    # the computed interval against scipy's resampled one, printed only

Every run draws questions, structures and trainings anew from populations whose true gain is known, and asks the study's own
functions. Same seeds, same tables.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib import bootstrap, measures, power
from lib.files import write_json, write_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES, PAGE = DOCS / "coverage.json", DOCS / "statistics.md"
BEGIN, END = "<!-- tables: begin (written by benchmarks/intervals.py) -->", "<!-- tables: end -->"
RUNS, RULE_RUNS = 4000, 2000  # for the coverage of an interval, and for the whole rule
RESAMPLES = 2000  # where a distribution can't be computed: clusters of unequal sizes
BAR, MARGIN = 0.05, 0.04

# True rates like the published study's: of 186 questions 36 never right, 38 always, the others .644 on average.
MIDDLE = stats.beta.ppf((np.arange(112) + 0.5) / 112, 1.9, 1.05)
STUDY = np.concatenate([np.zeros(36), MIDDLE, np.ones(38)])
TIED = np.concatenate([np.zeros(84), MIDDLE[::6], np.ones(83)])  # one question in ten can change at all
EVEN = np.linspace(0.25, 0.75, 101)  # no end is near, so that gains may differ widely between structures


@dataclass(frozen=True)
class Setting:
    """A study to draw again and again. Gains are points / 100; `between` and `spread` are standard deviations."""

    name: str
    questions: int = 186
    samples: int = 4
    seeds: int = 1
    rates: Any = None  # STUDY unless said otherwise
    gain: float = 0.03
    sizes: tuple[int, ...] = ()  # questions in each structure
    between: float = 0.0  # of the true gain, between structures
    skewed: bool = False  # a fifth of the structures gains much more than the others
    spread: float = 0.0  # of the true gain, between trainings
    these: bool = False  # the truth is that of the trainings drawn, not of all that could be

    @property
    def population(self) -> Any:
        return STUDY if self.rates is None else self.rates


@dataclass(frozen=True)
class Drawn:
    """One run: scores (questions, samples) before, (questions, seeds * samples) after, and what was true."""

    before: Any
    after: Any
    labels: list[int]
    truth: float


def draws(setting: Setting, runs: int, moved: Any = None) -> Iterator[Drawn]:
    """Runs of a setting. A question gains by its room, p(1-p) over its mean, unless rates after (`moved`) are given."""
    random = np.random.default_rng(zlib.crc32(setting.name.encode()))
    p = setting.population
    room = np.ones(len(p)) if p is EVEN else p * (1 - p) / np.mean(p * (1 - p))
    target = p + setting.gain * room if moved is None else moved
    sizes = np.array(setting.sizes or (1,) * setting.questions)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(runs):
        which = random.integers(0, len(p), len(labels))
        trainings = random.normal(0, setting.spread, setting.seeds)
        if setting.skewed:
            of_structure = np.where(random.random(len(sizes)) < 0.2, 2.0, -0.5) * setting.between
        else:
            of_structure = random.uniform(-1, 1, len(sizes)) * setting.between * math.sqrt(3)
        before = random.random((len(labels), setting.samples)) < p[which, None]
        extra = (of_structure[labels, None] + trainings) * room[which, None]
        after = np.repeat(target[which, None] + extra, setting.samples, axis=1)
        truth = float(np.mean(target - p)) + (float(trainings.mean()) if setting.these else 0.0)
        yield Drawn(before.astype(float), (random.random(after.shape) < after).astype(float), labels.tolist(), truth)


# --- coverage

METHODS = {
    "questions": "percentile, by question",
    "wide": "widened, by question",
    "plain": "percentile, by structure",
    "structures": "widened, by structure",
    "crossed": "two-way, trainings and questions",
    "trainings": "t over trainings",
}
UNEQUAL = tuple(range(1, 16)) + (8,) * 9  # 24 structures, 192 questions

COVERAGE = (
    Setting("186 questions"),
    Setting("150 questions", 150),
    Setting("40 questions", 40),
    Setting("186 questions, one in ten can change", rates=TIED, gain=0.01),
    Setting("40 questions, one in ten can change", 40, rates=TIED, gain=0.01),
    Setting("24 structures of 8, gains alike", sizes=(8,) * 24),
    Setting("24 structures of 8, gains differ by 5 points", sizes=(8,) * 24, rates=EVEN, gain=0.05, between=0.05),
    Setting("24 structures of 8, gains differ by 10 points", sizes=(8,) * 24, rates=EVEN, gain=0.05, between=0.1),
    Setting("24 structures of 8, a fifth gains 25 points", sizes=(8,) * 24, rates=EVEN, gain=0.05, between=0.1, skewed=True),
    Setting("24 structures of 1 to 15, gains differ by 10 points", sizes=UNEQUAL, rates=EVEN, gain=0.05, between=0.1),
    Setting("44 structures of 11, gains differ by 10 points", sizes=(11,) * 44, rates=EVEN, gain=0.05, between=0.1),
    Setting("8 structures of 12, gains differ by 10 points", sizes=(12,) * 8, rates=EVEN, gain=0.05, between=0.1),
    Setting("186 questions, 3 trainings, spread 0", seeds=3),
    Setting("186 questions, 3 trainings, spread 1", seeds=3, spread=0.01),
    Setting("186 questions, 3 trainings, spread 2", seeds=3, spread=0.02),
    Setting("186 questions, 5 trainings, spread 2", seeds=5, spread=0.02),
    Setting("186 questions, 2 trainings, spread 2", seeds=2, spread=0.02),
    Setting("186 questions, 2 trainings 5 points apart (spread 3.5)", seeds=2, spread=0.035),
    Setting("186 questions, 3 trainings, spread 2, these alone", seeds=3, spread=0.02, these=True),
    Setting("24 structures of 8, gains differ by 5 points, 3 trainings, spread 2", sizes=(8,) * 24, rates=EVEN, gain=0.05,
            between=0.05, seeds=3, spread=0.02),
)  # fmt: skip


def intervals(setting: Setting, run: Drawn) -> dict[str, tuple[float, float]]:
    """Each method's interval that makes sense in this setting."""
    found = {}
    for name, widened in (("questions", False), ("wide", True)):
        one = bootstrap.paired(run.before, run.after, widened=widened)
        found[name] = (one.low, one.high)
    if setting.sizes:
        for name, widened in (("plain", False), ("structures", True)):
            many = bootstrap.paired(run.before, run.after, run.labels, RESAMPLES, widened=widened)
            found[name] = (many.low, many.high)
    if setting.seeds > 1:
        by_training = run.after.reshape(len(run.after), setting.seeds, setting.samples).mean(2)
        changes = by_training - run.before.mean(1, keepdims=True)
        both = bootstrap.crossed(changes, run.labels)
        found["crossed"] = (both.low, both.high)
        found["trainings"] = bootstrap.t_interval(changes.mean(0))
    return found


def covered(setting: Setting, runs: int) -> dict[str, float]:
    """Share of runs in which each method's interval holds the truth."""
    held: dict[str, int] = {}
    for run in draws(setting, runs):
        for name, (low, high) in intervals(setting, run).items():
            held[name] = held.get(name, 0) + (low - 1e-9 <= run.truth <= high + 1e-9)
    return {name: number / runs for name, number in held.items()}


# --- the whole rule: false alarms and power

ALARMS = (
    Setting("186 questions", gain=0),
    Setting("186 questions, one in ten can change", rates=TIED, gain=0),
    Setting("40 questions", 40, gain=0),
    Setting("24 structures of 8, gains differ by 10 points", sizes=(8,) * 24, rates=EVEN, gain=0, between=0.1),
    Setting("8 structures of 12, gains differ by 10 points", sizes=(12,) * 8, rates=EVEN, gain=0, between=0.1),
    Setting("44 structures of 11, 2 trainings", sizes=(11,) * 44, seeds=2, rates=EVEN, gain=0, between=0.05),
    Setting("186 questions, 3 trainings, spread 2", seeds=3, spread=0.02, gain=0),
    Setting("186 questions, 2 trainings 5 points apart (spread 3.5)", seeds=2, spread=0.035, gain=0),
)
TEST = measures.Method(0.95, RESAMPLES)


def alarms(setting: Setting, runs: int) -> dict[str, float]:
    """Where the true gain is zero: shares of runs with an interval above zero, and with a success by the whole rule."""
    above = success = 0
    for run in draws(setting, runs):
        found = measures.difference(run.before, run.after, run.labels, TEST)
        above += found["low"] > 0
        success += found["low"] > 0 and found["delta"] >= BAR
    return {"interval": above / runs, "rule": success / runs}


def equal_by_mistake(runs: int) -> float:
    """Share of runs in which arms that differ by the whole margin are called equal."""
    setting = replace(COVERAGE[0], name="equivalence", gain=MARGIN)
    return sum(bootstrap.equivalence(run.before, run.after, MARGIN).equivalent for run in draws(setting, runs)) / runs


POWER = (
    (Setting("186 questions, bar 5"), 0.08, BAR),
    (Setting("186 questions, no bar"), 0.05, 0.0),
    (Setting("40 questions, no bar", 40), 0.10, 0.0),
    (Setting("186 questions, 3 trainings, no bar", seeds=3), 0.04, 0.0),
    (Setting("186 questions, 3 trainings, spread 2, bar 5", seeds=3, spread=0.02), 0.07, BAR),
    (Setting("24 structures of 8, no bar", sizes=(8,) * 24, rates=EVEN), 0.07, 0.0),
    (Setting("44 structures of 11, 2 trainings, bar 5", sizes=(11,) * 44, seeds=2, rates=EVEN), 0.08, BAR),
)


def foretold(setting: Setting, gain: float, bar: float, runs: int) -> dict[str, float]:
    """The chance of success by lib.power, and the share of runs that ended in success."""
    questions = sum(setting.sizes) or setting.questions
    design = power.Design(
        questions, setting.samples, setting.seeds, len(setting.sizes) or None, bar, spread=setting.spread
    )
    independent = power.error(setting.population, gain, replace(design, structures=None))
    likeness = design.correlation / (1 - design.correlation) if setting.sizes else 0.0
    setting = replace(setting, between=independent * math.sqrt(questions * likeness))
    moved, success = power.moved(setting.population, gain), 0
    for run in draws(setting, runs, moved):
        found = measures.difference(run.before, run.after, run.labels, TEST)
        success += found["low"] > 0 and found["delta"] >= bar
    return {"gain": gain, "foretold": power.chance(setting.population, gain, design), "found": success / runs}


# --- tables


def simulate(part: int = 1) -> dict[str, Any]:
    """All figures, of one in `part` of the runs; prints each as it comes."""
    runs = RULE_RUNS // part
    found: dict[str, Any] = {"runs": RUNS // part, "rule_runs": runs, "coverage": {}, "alarms": {}, "power": {}}
    for setting in COVERAGE:
        found["coverage"][setting.name] = covered(setting, found["runs"])
        print(setting.name, found["coverage"][setting.name], flush=True)
    for setting in ALARMS:
        found["alarms"][setting.name] = alarms(setting, runs)
        print(setting.name, found["alarms"][setting.name], flush=True)
    found["equal_by_mistake"] = equal_by_mistake(runs)
    for setting, gain, bar in POWER:
        found["power"][setting.name] = {key: round(x, 4) for key, x in foretold(setting, gain, bar, runs).items()}
        print(setting.name, found["power"][setting.name], flush=True)
    return found


def tables(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    error, rule_error = (math.sqrt(0.95 * 0.05 / found[runs]) for runs in ("runs", "rule_runs"))
    parts = [
        f"{found['runs']:,} simulated studies a line for coverage, {found['rule_runs']:,} for the rule and its power; the "
        f"simulation's own standard error is {error:.1%} and {rule_error:.1%} at shares of 95% or 5%, 0.9% at 80%.",
        "Share of 95% intervals that hold the true gain, that of all questions, structures and trainings which could have "
        "been drawn. Spread: the standard deviation of the true gain between trainings, in points; gains differ between "
        "structures by as much as said, also a standard deviation. Bold: the method to rely on.",
        _table(
            ["study", *METHODS.values()],
            [[one.name, *_cells(one, found["coverage"][one.name])] for one in COVERAGE],
        ),
        "False alarms, where nothing was gained: the interval lies above zero; and the whole rule, which asks for a measured "
        f"gain of {BAR * 100:.0f} points besides.",
        _table(
            ["study", "interval above zero", "whole rule"],
            [
                [name, f"{one['interval']:.1%}", f"{one['rule']:.1%}"]
                for name, one in ((setting.name, found["alarms"][setting.name]) for setting in ALARMS)
            ],
        ),
        f"Arms that truly differ by the margin of {MARGIN * 100:.0f} points are called equal in "
        f"{found['equal_by_mistake']:.1%} of studies (5% are allowed).",
        "Power: the chance of success that `lib.power` foretells, and the share of simulated studies that succeed.",
        _table(
            ["study", "true gain", "foretold", "found"],
            [
                [name, f"{100 * one['gain']:.0f} points", f"{one['foretold']:.1%}", f"{one['found']:.1%}"]
                for name, one in ((setting.name, found["power"][setting.name]) for setting, *_ in POWER)
            ],
        ),
    ]
    return "\n\n".join(parts)


def reliable(setting: Setting) -> str:
    """The method to rely on: over trainings and questions where trainings are drawn too, else by structure if there are."""
    if setting.seeds > 1 and not setting.these:
        return "crossed"
    return "structures" if setting.sizes else "wide"


def _cells(setting: Setting, shares: dict[str, float]) -> list[str]:
    best = reliable(setting)
    words = {method: f"{share:.1%}" for method, share in shares.items()}
    return [f"**{words[method]}**" if method == best else words.get(method, "") for method in METHODS]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, [":---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(found: dict[str, Any]) -> None:
    """Put the tables between the markers of docs/statistics.md."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n\n{tables(found)}\n\n{END}{rest.split(END)[1]}")


def speed(repeats: int = 20) -> dict[str, float]:
    """Milliseconds for the interval of 186 questions with 4 samples: computed, and by scipy's 10,000 resamples."""
    run = next(draws(COVERAGE[0], 1))
    change = run.after.mean(1) - run.before.mean(1)

    def milliseconds(way: Any) -> float:
        way()
        times = []
        for _ in range(repeats):
            start = time.process_time()
            way()
            times.append(time.process_time() - start)
        return 1000 * min(times)

    ours = milliseconds(lambda: bootstrap.paired(run.before, run.after))
    theirs = milliseconds(
        lambda: stats.bootstrap((change,), np.mean, n_resamples=10_000, method="percentile", vectorized=True, rng=0)
    )
    return {"computed_ms": round(ours, 2), "scipy_ms": round(theirs, 1), "ratio": round(theirs / ours)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument(
        "--write", action="store_true", help="write docs/coverage.json and the tables of docs/statistics.md"
    )
    parser.add_argument("--speed", action="store_true", help="time the interval only")
    options = parser.parse_args()
    print(json.dumps(speed()))
    if not options.speed:
        figures = simulate(10 if options.quick else 1)
        print(tables(figures))
        if options.write:
            write_json(FIGURES, figures)
            write_page(figures)
