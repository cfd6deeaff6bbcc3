"""Says before a run what it will cost, from the tokens that a pilot's rollouts took: nobody should find out afterwards.

    python -m lib.forecast                          the run in params.yaml, by its own base model's evaluation
    python -m lib.forecast PILOT.jsonl ...          by the episodes of any run, such as a two-update trial's
    python -m lib.forecast --provider tinker --model Qwen/Qwen3.8-27B      as if it ran there
    python -m lib.forecast --cached 0.47            with the share of prompt tokens that a trial found cached

Two figures, never one: at most, as if the service cached nothing; and with caching, as if it found every token again that
the rollout had sent before (or the given share, see `python -m lib.spend`). Both with an interval over the questions.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from lib.backends import prices
from lib.backends.meter import MONTH
from lib.backends.prices import Price
from lib.episodes import Episode, read
from lib.mistakes import EXAMPLES
from lib.settings import HUMAN, ROOT, SETS, Settings, SettingsError, load
from lib.updates import KEPT_FOR

RESAMPLES = 2000
CONFIDENCE = 0.95


class ForecastError(ValueError):
    """There is nothing to forecast from; the message says what is missing."""


class Tokens(NamedTuple):
    """Of one rollout."""

    prompt: float  # over all turns
    new: float  # of these, what the rollout hadn't sent before
    sampled: float
    trained: float  # its length as one sequence
    kept: float  # of `trained`, what is left after groups of equal rewards are dropped


@dataclass(frozen=True)
class Pilot:
    """What rollouts take. `tokens`: mean Tokens of each question's rollouts, shape (questions, 5)."""

    tokens: NDArray[np.float64]
    rollouts: int


@dataclass(frozen=True)
class Stage:
    """A part of the run that costs money. `months`: how long each checkpoint may be kept, summed over those that it saves."""

    name: str
    rollouts: int
    trains: bool = False
    anchored: bool = False  # the base model scores what is trained, which groups of equal rewards are as well
    months: float = 0.0


def pilot(episodes: Sequence[Episode]) -> Pilot:
    """What a pilot's rollouts take, by question.

    An episode holds the sum of its prompts. A conversation grows about evenly, so turn t's prompt is taken as first + (t -
    1) * growth, the two fitted to all episodes' sums by least squares: the last prompt is what has to be computed if all
    before it is cached, and with the last answer it is the sequence that is trained (a renderer that takes thoughts out of
    earlier turns makes a sequence of each turn, and trains more). Within a group, the episodes of a training question in an
    update, nothing is trained where rewards are equal; episodes of other phases are taken as trained. Those that a fault ended
    are left out: they broke off, and their reward is none.

    Raises ForecastError for no episode.
    """
    episodes = [e for e in episodes if e.fault is None]
    if not episodes:
        raise ForecastError("the pilot has no episode that ended by itself")
    turns = np.array([max(1, e.turns) for e in episodes], float)
    prompt = np.array([e.tokens["prompt"] for e in episodes], float)
    sampled = np.array([e.tokens["sampled"] for e in episodes], float)
    (first, growth), _ = nnls(np.column_stack([turns, turns * (turns - 1) / 2]), prompt)
    share = (first + growth * (turns - 1)) / np.maximum(first * turns + growth * turns * (turns - 1) / 2, 1e-12)
    new = prompt * np.minimum(share, 1.0)
    trained = new + sampled / turns
    rewards: dict[Any, set[float]] = defaultdict(set)
    for e in episodes:
        rewards[e.arm, e.update, e.question].add(e.reward)
    signal = [e.phase != "train" or len(rewards[e.arm, e.update, e.question]) > 1 for e in episodes]
    rows: dict[str, list[Tokens]] = defaultdict(list)
    for e, *tokens in zip(episodes, prompt, new, sampled, trained, trained * signal, strict=True):
        rows[e.question].append(Tokens(*tokens))
    return Pilot(np.array([np.mean(rows[question], axis=0) for question in sorted(rows)]), len(episodes))


def stages(settings: Settings) -> list[Stage]:
    """What a run asks of the service at most, in the order in which it does: of groups that may be replaced, all are, and only
    those are stopped early."""
    t, tests = settings.train, sum(getattr(settings.questions, split) for split in SETS) + _people(settings)
    dev = settings.questions.dev * t.dev_samples
    looks = math.ceil(t.updates / t.dev_every) + 1  # the last at the final checkpoint
    kept = (
        2 + (t.updates - 1) * KEPT_FOR / MONTH
    )  # the last state and weights are for good, the states before them aren't
    found = [Stage("pilot on dev", dev)]
    practised = t.groups * t.rollouts + (t.replacement.extra * t.replacement.first if t.replacement else 0)
    kept += KEPT_FOR / MONTH * any(guard.action == "back" for guard in t.guards)  # the last good state beside the last
    for seed in t.seeds:
        if t.prepass is not None:
            found.append(Stage(f"pre-pass, seed {seed}", t.prepass.questions * t.prepass.samples))
        found.append(Stage(f"train, seed {seed}", t.updates * practised, True, t.objective.kl > 0, kept))
        found.append(Stage(f"dev curve, seed {seed}", looks * dev))
    for arm in settings.arms:
        found.append(Stage(f"evaluate, {arm}", tests * (settings.evaluate.samples + 1), months=2.0 * (arm != "base")))
    arms = len(settings.arms)
    shown = len(EXAMPLES) * settings.evaluate.samples * arms  # fewer where two rules choose one question
    return [*found, Stage("worked examples", shown, months=2.0 * (arms - 1))]


def _people(settings: Settings) -> int:
    """People's questions, of which the settings don't say how many there are."""
    file = settings.human_dir / f"{HUMAN}.jsonl"
    if not settings.human.questions:
        return 0
    if not file.exists():
        raise ForecastError(f"{file} is missing: `python -m lib.questions.human` counts people's questions")
    return len(file.read_text(encoding="utf-8").splitlines())


@dataclass(frozen=True)
class Cost:
    """US dollars: with caching and at most, each (mean, low, high)."""

    cached: tuple[float, float, float]
    upper: tuple[float, float, float]


def costs(
    found: Pilot, planned: Sequence[Stage], price: Price, cached: float | None = None, seed: int = 0
) -> list[Cost]:
    """What each stage costs, and as the last entry all of them.

    cached: share of prompt tokens that are found cached; None: all that a rollout had sent before. The interval is the
    percentile bootstrap's over the pilot's questions: how much other questions would have taken. It knows nothing of rollouts
    growing longer or shorter by practice.
    """
    if cached is not None and not 0 <= cached <= 1:
        raise ForecastError(f"cached = {cached} must be a share of prompt tokens, from 0 to 1")
    questions = len(found.tokens)
    drawn = np.random.default_rng(seed).multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES)
    means = np.vstack([found.tokens.mean(axis=0), drawn @ found.tokens / questions])
    prompt, new, sampled, trained, kept = means.T / prices.MILLION
    if cached is not None:
        new = prompt * (1 - cached)
    sampling = sampled * price.sample
    discounted, full = new * price.prefill + (prompt - new) * price.cached + sampling, prompt * price.prefill + sampling
    pairs = [
        (
            stage.rollouts
            * (
                discounted
                + stage.trains * (trained if stage.anchored else kept) * price.train
                + stage.anchored * trained * price.prefill
            ),
            stage.rollouts * (full + trained * (stage.trains * price.train + stage.anchored * price.prefill))
            + stage.months * price.checkpoint_gb * price.storage,
        )
        for stage in planned
    ]
    pairs.append((sum(low for low, _ in pairs), sum(high for _, high in pairs)))
    return [Cost(_interval(low), _interval(high)) for low, high in pairs]


def _interval(resampled: NDArray[np.float64]) -> tuple[float, float, float]:
    low, high = np.quantile(resampled[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(resampled[0]), float(low), float(high)


def described(found: Pilot, planned: Sequence[Stage], price: Price | None, cached: float | None = None) -> str:
    """The forecast as a table; without a price, tokens alone."""
    prompt, _, sampled, trained, _ = found.tokens.mean(axis=0)
    priced = costs(found, planned, price, cached) if price else None
    lines = [
        f"a rollout of the pilot ({found.rollouts} of {len(found.tokens)} questions): {prompt:.0f} prompt tokens over its "
        f"turns, {sampled:.0f} sampled, {trained:.0f} as one sequence",
        f"{'stage':<24} {'rollouts':>8} {'prompt, M':>10} {'sampled, M':>10} {'trained, M':>10}"
        + (f"   {'with caching, $':<24} {'at most, $':<24}" if priced else ""),
    ]
    for number, stage in enumerate(planned):
        lines.append(
            f"{stage.name:<24} {stage.rollouts:8} "
            + " ".join(
                f"{stage.rollouts * each / prices.MILLION:10.3f}" for each in (prompt, sampled, trained * stage.trains)
            )
            + (_dollars(priced[number]) if priced else "")
        )
    if priced:
        lines.append(f"{'in all':<24} {sum(stage.rollouts for stage in planned):8} {'':32}{_dollars(priced[-1])}")
    return "\n".join(line.rstrip() for line in lines)


def _dollars(cost: Cost) -> str:
    return "".join(f"   {f'{mean:.2f} [{low:.2f}, {high:.2f}]':<22}" for mean, low, high in (cost.cached, cost.upper))


def of_run(settings: Settings, provider: str, model: str) -> tuple[Cost, Path]:
    """What the whole run costs, and the pilot that says so: the evaluation of this run's base model or, before there is one,
    that of another run. Raises what reading it and the price table raise."""
    own = settings.episodes("base")
    file = own if own.exists() else next(iter(sorted(settings.data.glob("runs/*/evaluate/base.jsonl"))), own)
    return costs(pilot(read(file)), stages(settings), prices.find(provider, model))[-1], file


def in_words(settings: Settings, provider: str, model: str) -> str:
    """What the whole run would cost, for the message that refuses a stage nobody has allowed."""
    try:
        cost, file = of_run(settings, provider, model)
    except (OSError, ValueError) as e:
        return f"There is no forecast ({e}): `python -m lib.forecast PILOT.jsonl` makes one from any run's episodes."
    warning = another_model(file, settings)
    return (
        f"By {file} the whole run would cost ${cost.cached[0]:.2f} with caching and ${cost.upper[0]:.2f} without "
        f"(to ${cost.upper[2]:.2f} with other questions)."
    ) + (f" {warning}" if warning else "")


def another_model(file: Path, settings: Settings, model: str | None = None) -> str | None:
    """What to say where a pilot isn't known to be of this run's model (or of `model`), by the plan that lies above its file."""
    for folder in file.resolve().parents:
        if (plan := folder / "plan.json").exists():
            piloted = json.loads(plan.read_text(encoding="utf-8"))["settings"]["model"]
            wanted = json.loads(json.dumps(asdict(settings.model)))  # tuples are lists there
            if piloted.get("name") == model if model else piloted == wanted:
                return None
            return (
                f"{file} is of ANOTHER MODEL: its turns and the lengths of its answers may be far from what the one to be paid "
                "for takes. Run a trial of two updates with that one, and forecast from it."
            )
    return f"{file} doesn't say which model it is of (no plan.json above it): trust the forecast only if you know."


def main(arguments: list[str] | None = None) -> None:
    """Command line: the forecast of the run in params.yaml; exit status 1 where there is no pilot or no price."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.forecast", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pilots", type=Path, nargs="*", metavar="PILOT", help="files of episodes")
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--provider", help="of the price table (default: the run's backend)")
    parser.add_argument("--model", help="of the price table (default: the run's)")
    parser.add_argument("--cached", type=float, help="share of prompt tokens found cached (default: all sent before)")
    given = parser.parse_args(arguments)
    try:
        settings = load(given.params)
        pilots = given.pilots or [settings.episodes("base")]
        if missing := [str(file) for file in pilots if not file.exists()]:
            raise ForecastError(f"{', '.join(missing)} missing: name a file of episodes, of a trial or another run")
        found = pilot([e for file in pilots for e in read(file)])
        provider = given.provider or settings.train.backend
        price = None
        if provider != "local":
            price = prices.find(provider, given.model or str(getattr(settings.model, "name", "")))
        print(described(found, stages(settings), price, given.cached))
    except (ForecastError, SettingsError, prices.PriceError, OSError, ValueError) as e:
        sys.exit(f"forecast: {e}")
    if price:
        print(f"prices of {price.date}, {price.source}; look at them again before you pay")
    else:
        print("the local backend costs nothing; --provider and --model give the price elsewhere")
    for file in pilots:
        if warning := another_model(file, settings, given.model):
            print(warning)


if __name__ == "__main__":
    main()
