"""Says before a run what its test can see, from how often a pilot had each question right: nobody should pay for a test
that can't answer.

    python -m lib.power PILOT.jsonl --questions 186 --samples 4 --seeds 2 --bar 0.05

A line of the pilot is an episode (`question`, `strict`) or a question's counts (`question`, `right`, `samples`). Two or
more samples a question tell how much questions differ; from one, only their mean is known.
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.optimize import brentq

from lib import tally
from lib.files import read_jsonl

WANTED = 0.8  # usual
CORRELATION = 0.1  # assumed share of the variance of changes that lies between structures
GAINS = (0.03, 0.05, 0.10, 0.15)
GRID = 200  # points that stand for the distribution of rates
Count = Literal["questions", "samples", "seeds"]
MOST: dict[Count, int] = {"questions": 1_000_000, "samples": 10_000, "seeds": 10_000}
LEFT_OUT = "that trainings may differ from one to the next in what they gain"


class PilotError(ValueError):
    """A pilot that tells nothing; the message says what is missing."""


@dataclass(frozen=True)
class Design:
    """A test: control and trained on the same questions, `samples` draws each, the trained arm's in every seed.

    structures: groups of equal size that questions come in and that are resampled; None: questions are independent.
    bar: least measured gain that counts. spread: standard deviation of the true gain between trainings.
    """

    questions: int
    samples: int
    seeds: int = 1
    structures: int | None = None
    bar: float = 0.0
    confidence: float = 0.95
    correlation: float = CORRELATION
    spread: float = 0.0

    def resized(self, what: Count, number: int) -> Design:
        """The same with another number; more questions come in more structures, as large as before."""
        if what != "questions":
            return dataclasses.replace(self, **{what: number})
        structures = self.structures and max(1, round(number * self.structures / self.questions))
        return dataclasses.replace(self, questions=number, structures=structures)


def true_rates(right: ArrayLike, samples: ArrayLike) -> NDArray[np.float64]:
    """The rates that questions may truly have, as `GRID` equally likely values, ascending.

    right, samples: per question of the pilot, shape (questions,). They are those of the beta distribution that
    lib.tally.beta fits to the counts; where that sees no spread, all get the mean. Raises PilotError for counts that can't be.
    """
    r, n = np.atleast_1d(np.asarray(right, float)), np.atleast_1d(np.asarray(samples, float))
    if not r.size or r.shape != n.shape:
        raise PilotError(f"right has the shape {r.shape}, samples {n.shape}: need both of every question")
    possible = np.isfinite(n) & (n >= 1) & (r >= 0) & (r <= n)  # of a missing number, nothing is true
    if not possible.all():
        at = int(np.argmin(possible))
        raise PilotError(f"question {at} has {r[at]:g} right of {n[at]:g}: need 0 <= right <= samples >= 1")
    parameters = tally.beta(n, r)
    if parameters is None:
        return np.full(GRID, float(np.mean(r / n)))
    found = stats.beta.ppf((np.arange(GRID) + 0.5) / GRID, *parameters)
    return np.where(found < 1e-9, 0.0, found)  # what no practice lifts, and no float can


def moved(rates: ArrayLike, gain: float) -> NDArray[np.float64]:
    """The rates after practice that gains `gain` on average: the odds of every question multiplied by one number.

    So what is never or always right hardly moves, and the middle moves most, as in gains of reliability. Raises PilotError
    for a gain that the rates leave no room for.
    """
    p = np.asarray(rates, float)
    room = float(np.mean(p > 0) - p.mean())
    if not 0 <= gain < room:
        raise PilotError(f"a gain of {gain:.3f} is out of reach: rates like the pilot's leave room for {room:.3f}")
    if gain == 0:
        return p  # rounding would leave the search without a change of sign
    logits = special.logit(p)
    shift = brentq(lambda x: float(special.expit(logits + x).mean() - p.mean()) - gain, 0.0, 200.0)
    return special.expit(logits + shift)


def error(rates: ArrayLike, gain: float, design: Design) -> float:
    """Standard error of the measured gain over the questions, trainings taken as they are.

    Of one question's change the variance is p(1-p) / samples before, the same over all seeds' samples after, and that of
    the true gain between questions. Structures add to it: `correlation` of the whole is theirs, and counts once a structure.
    """
    before, after = np.asarray(rates, float), moved(rates, gain)
    variance = np.mean(before * (1 - before)) / design.samples
    variance += np.mean(after * (1 - after)) / (design.samples * design.seeds) + np.var(after - before)
    between = design.correlation / (1 - design.correlation) * variance if design.structures else 0.0
    return math.sqrt(variance / design.questions + between / (design.structures or 1))


def _asymmetry(rates: ArrayLike, gain: float, design: Design) -> float:
    """Third central moment of the measured gain, from those of the binomials and of the true gain between questions."""
    before, after = np.asarray(rates, float), moved(rates, gain)
    drawn, more = design.samples, design.samples * design.seeds
    third = after * (1 - after) * (1 - 2 * after) / more**2 - before * (1 - before) * (1 - 2 * before) / drawn**2
    variance = before * (1 - before) / drawn + after * (1 - after) / more
    true = after - before - gain
    return float(np.mean(third + 3 * variance * true + true**3)) / design.questions**2


def chance(rates: ArrayLike, gain: float, design: Design) -> float:
    """Probability of success if the true gain is `gain`: an interval above zero, and a measured gain of the bar.

    The interval's lower end lies t errors below the measured gain, by Student's t with as many degrees of freedom as
    structures (or questions) less one. Its error is estimated from the same changes: where these are skewed, gain and error
    go together, and the lower end has the variance error**2 - t * third moment / error.
    """
    units = design.structures or design.questions
    if units < 2:
        return 0.0
    width, between = error(rates, gain, design), design.spread / math.sqrt(design.seeds)
    t = float(stats.t.ppf((1 + design.confidence) / 2, units - 1))
    end = width * math.sqrt(max(0.25, 1 - t * _asymmetry(rates, gain, design) / max(width, 1e-12) ** 3))
    above_zero = (gain - t * width) / max(math.hypot(end, between), 1e-12)
    above_bar = (gain - design.bar) / max(math.hypot(width, between), 1e-12)
    return float(stats.norm.cdf(min(above_zero, above_bar)))


def smallest_gain(rates: ArrayLike, design: Design, wanted: float = WANTED) -> float | None:
    """Smallest true gain with which the test ends in success with probability `wanted`; None where none does."""
    p = np.asarray(rates, float)
    most = 0.999 * float(np.mean(p > 0) - p.mean())
    if most <= 0 or chance(p, most, design) < wanted:
        return None
    return float(brentq(lambda gain: chance(p, gain, design) - wanted, 0.0, most, xtol=1e-7))


def needed(what: Count, rates: ArrayLike, gain: float, design: Design, wanted: float = WANTED) -> int | None:
    """How many of `what` the test needs to see `gain` with probability `wanted`, all else as in `design`; None where no
    number is enough, as of samples when the questions are too few."""

    def enough(number: int) -> bool:
        return chance(rates, gain, design.resized(what, number)) >= wanted

    return bisect.bisect_left(range(1, MOST[what] + 1), True, key=enough) + 1 if enough(MOST[what]) else None


def outlook(
    right: ArrayLike, samples: ArrayLike, design: Design, wanted: float = WANTED, gains: Sequence[float] = GAINS
) -> dict[str, Any]:
    """What the test can see, as it stands in the plan: the smallest gain, and what other gains would need.

    `needs`: by gain its `chance` in this design, and the `questions`, `samples` or `seeds` that give it `wanted`, the other
    two as planned (None: no number is enough, as for a gain below the bar); `questions_without_bar`: those for an interval
    above zero alone. A gain beyond the rates' room is left out.
    """
    rates = true_rates(right, samples)
    room = float(np.mean(rates > 0) - rates.mean())
    smallest = smallest_gain(rates, design, wanted)
    return {
        "rate": round(float(np.mean(rates)), 6),
        "rates_from": "the rates of single questions" if np.ptp(rates) else "their mean, for no spread shows",
        "smallest_gain": None if smallest is None else round(smallest, 6),
        "wanted": wanted,
        "correlation": design.correlation,
        "left_out": LEFT_OUT,
        "needs": [
            {
                "gain": gain,
                "chance": round(chance(rates, gain, design), 4),
                **{what: needed(what, rates, gain, design, wanted) for what in MOST},
                "questions_without_bar": needed("questions", rates, gain, dataclasses.replace(design, bar=0.0), wanted),
            }
            for gain in gains
            if gain < room
        ],
    }


def read_pilot(path: Path) -> tuple[list[int], list[int]]:
    """Right answers and samples by question, in order of the questions' names, from episodes or from counts."""
    right: dict[str, int] = {}
    samples: dict[str, int] = {}
    for number, line in enumerate(read_jsonl(path), 1):
        if "question" not in line or not ("strict" in line or {"right", "samples"} <= line.keys()):
            raise PilotError(f"{path}, line {number}: needs `question` and either `strict` or `right` and `samples`")
        name = str(line["question"])
        right[name] = right.get(name, 0) + int(line["strict"] if "strict" in line else line["right"])
        samples[name] = samples.get(name, 0) + int(1 if "strict" in line else line["samples"])
    return [right[name] for name in sorted(right)], [samples[name] for name in sorted(samples)]


def described(found: dict[str, Any], design: Design) -> str:
    """The outlook in words and a small table."""
    smallest, wanted = found["smallest_gain"], f"{found['wanted']:.0%}"
    seen = (
        f"the smallest gain seen in {wanted} of cases is {100 * smallest:.1f} points"
        if smallest
        else "sees no gain at all"
    )
    head = (
        f"pilot: {found['rate']:.1%} right (from {found['rates_from']})\n"
        f"test: {design.questions} questions, {design.samples} samples, {design.seeds} seeds: {seen}\n\n"
        f"{'':>12} {'':>8}   needed for {wanted}:\n"
        f"{'gain, points':>12} {'chance':>8} {'questions':>10} {'or samples':>11} {'or seeds':>9} {'questions, no bar':>18}\n"
    )
    rows = [
        f"{100 * one['gain']:12.1f} {one['chance']:8.0%} "
        + " ".join(
            f"{'never' if one[what] is None else one[what]:>{width}}"
            for what, width in (*zip(MOST, (10, 11, 9), strict=True), ("questions_without_bar", 18))
        )
        for one in found["needs"]
    ]
    return head + "\n".join(rows)


def main(arguments: list[str] | None = None) -> None:
    """Command line: the outlook of a test by a pilot file; exit status 1 where the file tells nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pilot", type=Path, help="episodes or counts, a JSON object a line")
    parser.add_argument("--questions", type=int, required=True, help="of the planned test")
    parser.add_argument("--structures", type=int, help="that the questions come in (default: each question by itself)")
    parser.add_argument("--samples", type=int, default=4, help="a question and arm (default: 4)")
    parser.add_argument("--seeds", type=int, default=1, help="trainings (default: 1)")
    parser.add_argument("--bar", type=float, default=0.05, help="least gain that counts (default: 0.05)")
    parser.add_argument("--confidence", type=float, default=0.95, help="of the interval (default: 0.95)")
    parser.add_argument("--spread", type=float, default=0.0, help="of the true gain between trainings (default: 0)")
    parser.add_argument(
        "--gains", type=float, nargs="+", default=GAINS, help="to look at (default: 0.03 0.05 0.1 0.15)"
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    chosen = parser.parse_args(arguments)
    design = Design(chosen.questions, chosen.samples, chosen.seeds, chosen.structures, chosen.bar, chosen.confidence,
                    spread=chosen.spread)  # fmt: skip
    try:
        found = outlook(*read_pilot(chosen.pilot), design, gains=chosen.gains)
    except (OSError, ValueError) as problem:
        parser.exit(1, f"{problem}\n")
    print(json.dumps(found, indent=1) if chosen.json else described(found, design))


if __name__ == "__main__":
    main()
