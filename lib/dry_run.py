"""Rehearses a run before it is paid for: what would be tested, what it would cost, and every call that a service would get.

    python -m lib.dry_run                 all profiles
    python -m lib.dry_run tinker-27b      one of them, or a parameter file: params.yaml

The calls aren't listed from what the code is meant to do: its steps run, on a service in this process that writes down what
it is asked (lib/rehearsal.py), with a question and two rollouts where the run has many, since only the number of
samples hangs on how many there are. Nothing is sent anywhere, nothing paid, and nothing written under data/.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lib import evaluate, examples, forecast, loop, train
from lib.backends import prices
from lib.cold_start import system_prompt
from lib.episodes import read
from lib.files import write_json, write_jsonl
from lib.forecast import ForecastError
from lib.mistakes import EXAMPLES
from lib.rehearsal import Call, ends_at_once, rehearsed, small_model
from lib.settings import (
    HUMAN,
    SETS,
    ByRate,
    Human,
    InBand,
    Named,
    Prepass,
    Replacement,
    Settings,
    SettingsError,
    load,
    profiles,
)

NOWHERE = "bolt://127.0.0.1:1"  # an agent that says nothing asks the database nothing


@dataclass(frozen=True)
class Step:
    """What one step of the run would ask of the service: `sample` once for each turn of `rollouts`, and each other call as
    often as `calls` says."""

    name: str
    rollouts: int
    calls: Counter[Call]


def rehearse(settings: Settings, whole: bool = False) -> list[Step]:
    """The steps that ask a service anything, in the order in which the run takes them.

    whole: with as many questions and rollouts as the run has, which takes as long as its rendering and its loops do.
    """
    counts = {stage.name: stage.rollouts for stage in forecast.stages(countable(settings))}
    with tempfile.TemporaryDirectory(prefix="dry-run-") as folder, _quiet():
        small = prepared(countable(settings) if whole else _thinned(countable(settings)), Path(folder))
        steps = [_step(small, "pilot on dev", counts["pilot on dev"], evaluate.dev_counts(small, NOWHERE))]
        for seed in small.train.seeds:
            work, out = Path(folder) / "work" / f"train-{seed}", small.train_dir(seed)
            rollouts = sum(counts.get(f"{part}, seed {seed}", 0) for part in ("pre-pass", "train", "dev curve"))
            steps.append(
                _step(small, f"train, seed {seed}", rollouts, train.practise(small, seed, NOWHERE, work, out), work)
            )
        for arm in small.arms:
            work = Path(folder) / "work" / f"evaluate-{arm}"
            asks = evaluate._evaluate(small, arm, NOWHERE, work)
            steps.append(_step(small, f"evaluate, {arm}", counts[f"evaluate, {arm}"], asks, work))
        work, shown = Path(folder) / "work" / "examples", evaluate.questions(small, SETS[0])[: len(EXAMPLES)]
        asks = examples._record(small, shown, NOWHERE, work, [])
        steps.append(_step(small, "worked examples", counts["worked examples"], asks, work))
    return steps


def _step(
    settings: Settings, name: str, rollouts: int, asks: Coroutine[Any, Any, Any], work: Path | None = None
) -> Step:
    root = settings.data / "service" if work is None or settings.local is None else work  # a host has one for all steps
    with rehearsed(root, settings.train.training, ends_at_once) as rehearsal:
        loop.run(asks)
    return Step(name, rollouts, rehearsal.calls)


def countable(settings: Settings) -> Settings:
    """Without people's questions where they haven't been counted yet; what is said of the run then says so."""
    file = settings.human_dir / f"{HUMAN}.jsonl"
    counted = file.exists() and file.stat().st_size > 0
    return settings if counted else replace(settings, human=Human(questions=""))


def _thinned(settings: Settings) -> Settings:
    """The same steps with the fewest questions and rollouts that they can be taken with."""
    asked, faults, chosen = (
        settings.questions,
        replace(settings.train.faults, least_rollouts=2),
        settings.train.questions,
    )
    if isinstance(chosen, InBand | ByRate):
        chosen = replace(chosen, prepass=Prepass(questions=1, samples=1))
    return replace(
        settings,
        questions=replace(
            asked, dev=1, held_out_instances=1, held_out_structures=1, train=settings.train.updates, training=None
        ),
        train=replace(
            settings.train,
            groups=1,
            rollouts=2,
            dev_samples=1,
            faults=faults,
            questions=chosen,
            replacement=settings.train.replacement and Replacement(extra=1, first=2),
        ),
        evaluate=replace(settings.evaluate, samples=1),
    )


def prepared(settings: Settings, folder: Path) -> Settings:
    """The settings over a folder with made-up questions, a graph of nothing, and a small model under the run's own name."""
    asked = settings.questions
    small = replace(
        settings,
        data=folder,
        questions=replace(asked, training=None),
        cold_start=None,
        test=replace(settings.test, least_headroom=0.0),  # an agent that says nothing has none
    )
    small = replace(
        small, model=Named(name=str(small.base_dir), tokenizer=str(small.base_dir), context=settings.model.context)
    )
    write_json(small.graph_dir / "schema.json", {"labels": {}, "relationships": {}, "patterns": []})
    write_json(small.graph_dir / "counts.json", {"source": "neo4j"})
    small_model(folder / "bare")
    small_model(small.base_dir, system_prompt(evaluate.renderer_for(small, folder / "bare"), small))
    practised = asked.training.questions if asked.training else asked.train
    people = len(evaluate.questions(settings, HUMAN)) if settings.human.questions else 0
    for split, count in {"train": practised, "dev": asked.dev, **{s: getattr(asked, s) for s in SETS}}.items():
        write_jsonl(small.questions_dir / f"{split}.jsonl", _questions(split, count))
    write_jsonl(small.human_dir / f"{HUMAN}.jsonl", _questions(HUMAN, people))
    return small


def _questions(split: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{split}-{i}",
            "question": "?",
            "query": "",
            "rows": [[i]],
            "structure": "s",
            "hops": 0,
            "split": split,
            "hint": None,
        }
        for i in range(count)
    ]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Bars and the loop's log are of no use to somebody who only wants to know what would happen."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def described(settings: Settings, steps: list[Step], pilot: Path | None) -> str:
    """Plan, forecast and the steps' calls, as text. pilot: a file of episodes to forecast from, or None."""
    return "\n".join([*_plan(settings), "", *_forecast(settings, pilot), "", *_calls(settings, steps)])


def _plan(settings: Settings) -> list[str]:
    t, test, asked = settings.train, settings.test, settings.questions
    model = settings.model.name if isinstance(settings.model, Named) else f"made here, {settings.taught.steps} lessons"
    sets = ", ".join(f"{getattr(asked, split)} of {split}" for split in SETS)
    if settings.human.questions:
        sets += f", people's in {settings.human.questions}"
    if countable(settings) != settings:
        sets += " (not in the figures below: they aren't counted until `python -m lib.questions.human` has run)"
    return [
        f"model     {model}; {t.backend} computes, trains {t.training}"
        + (f" of rank {t.lora_rank}" if t.training == "lora" else "")
        + (f", at {t.base_url}" if t.base_url else ""),
        f"practice  {t.updates} updates of {t.groups} questions x {t.rollouts} rollouts, seeds {', '.join(map(str, t.seeds))}; "
        f"learning rate {t.learning_rate:g}, {t.loss}; {asked.dev} dev questions x {t.dev_samples} every {t.dev_every} updates",
        f"options   questions {_plain(asdict(t.questions))}; replacement {_plain(asdict(t.replacement)) if t.replacement else 'none'}; "
        f"objective {_plain(asdict(t.objective))}; guards "
        + ", ".join(f"{guard.rule} {guard.limit:g}: {guard.action}" for guard in t.guards),
        f"asked     {sets}; each {settings.evaluate.samples} times at temperature {settings.evaluate.temperature:g} and "
        f"once greedily, of {', '.join(settings.arms)}",
        f"tested    trained against control on {SETS[0]}: gain at least {test.bar:g} and interval above 0 at "
        f"{test.confidence:.0%} ({test.resamples} resamples); base and control within {test.margin:g}",
    ]


def _plain(section: dict[str, Any]) -> str:
    """A section's values, without those that are off."""
    on = {name: value for name, value in section.items() if value not in (False, 0)}
    return ", ".join(
        f"{name} {f'({_plain(value)})' if isinstance(value, dict) else value}" for name, value in on.items()
    )


def _forecast(settings: Settings, pilot: Path | None) -> list[str]:
    """Tokens, and dollars of a service that has a price; says what the pilot is not of."""
    if pilot is None:
        return [
            "forecast  none: no run has been evaluated here yet; `python -m lib.forecast PILOT.jsonl` takes any episodes"
        ]
    counted, price = countable(settings), None
    if counted.local is None:
        price = prices.find(counted.train.backend, counted.base_model)
    lines = [forecast.described(forecast.pilot(read(pilot)), forecast.stages(counted), price)]
    lines.append(f"prices of {price.date}, {price.source}" if price else "computed here: no service asks money for it")
    if warning := forecast.another_model(pilot, settings):
        lines.append(warning)
    return lines


def _calls(settings: Settings, steps: list[Step]) -> list[str]:
    lines = [f"{'step':<20} {'times':>7}  call"]
    for step in steps:
        samples = " or ".join(_said(settings, call) for call in step.calls if call[0] == "sample")
        lines.append(
            f"{step.name:<20} {step.rollouts:>7}  {samples}, for each of 1 to {settings.agent.max_turns} turns"
        )
        others = [(call, times) for call, times in step.calls.items() if call[0] != "sample"]
        lines += [f"{'':<20} {times:>7}  {_said(settings, call)}" for call, times in others]
    return lines


def _said(settings: Settings, call: Call) -> str:
    name, given = call
    return f"{name}({', '.join(f'{key}={_shown(settings, key, value)}' for key, value in given)})"


def _shown(settings: Settings, key: str, value: Any) -> str:
    if key == "base_model":
        return settings.model.name if isinstance(settings.model, Named) else f"data/runs/{settings.run}/base"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> None:
    """Command line: rehearse profiles or a parameter file; exit status 1 where one can't be."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.dry_run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a profile or a parameter file (default: all profiles)"
    )
    parser.add_argument(
        "--pilot", type=Path, help="episodes to forecast from (default: a base model's evaluation here)"
    )
    given = parser.parse_args(arguments)
    known = profiles()
    for name in given.names or known:
        try:
            settings = load(known.get(name, Path(name)))
            pilots = [settings.episodes("base"), *sorted(settings.data.glob("runs/*/evaluate/base.jsonl"))]
            pilot = given.pilot or next((file for file in pilots if file.exists()), None)
            print(f"== {name}\n{described(settings, rehearse(settings), pilot)}\n", flush=True)
        except (ForecastError, SettingsError, prices.PriceError, OSError, ValueError) as e:
            sys.exit(f"dry run of {name}: {e}")


if __name__ == "__main__":
    main()
