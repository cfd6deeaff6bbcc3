"""Two updates of a run, for real, before all of them are paid for: what fails late and dear should fail here.

    python -m lib.trial        the run in params.yaml; a hosted one needs ALLOW_SPEND, as its training does

Trains a run of its own, <run>-trial, over the same model, questions and loop, and pays through the run's ledger, as stage
`trial`. Then the saved state is loaded into a fresh session and sampled, sampler and trainer are compared on the model's own
samples, the checks of `lib.parity` that apply are made, and a fixed answer sheet goes through the real path to a reward.
Writes data/runs/<run>/trial.json: the findings, what an update cost, and what the whole run will take. A paid training
refuses to start without one that passed (`lib.trialled`). One that was killed starts anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from tinker_cookbook.completers import TokenCompleter

from lib import forecast, loop, parity, train, trialled
from lib.agent import EnvironmentFault, Label, Question
from lib.backends import ledger, prices
from lib.backends.ledger import LimitReached
from lib.backends.meter import SpendRefused
from lib.backends.prices import PriceError, Usage
from lib.backends.serving import BackendMissing, copy_checkpoints, serving
from lib.episodes import Episode, read
from lib.evaluate import Scripted, arm_client, questions, rollouts, world_for
from lib.files import read_jsonl, write_json
from lib.findings import OK, REFUSED, Finding, described, passed
from lib.graph import server
from lib.graph.world import DONE, asks
from lib.reward import score
from lib.settings import ROOT, Settings, SettingsError, load

UPDATES = 2
SHEET = 8  # questions of the answer sheet
STAGE = "trial"  # by this name the ledger knows it


class TrialError(RuntimeError):
    """A trial can't be made; the message says what is missing."""


def of(settings: Settings) -> Settings:
    """The trial's own settings: two updates of one seed, with one look at dev questions before and one after.

    It stops for no headroom, which the run itself looks at.
    """
    seed = settings.train.seeds[0]
    shorter = dataclasses.replace(settings.train, updates=UPDATES, seeds=(seed,), dev_every=UPDATES, dev_samples=1)
    stops = dataclasses.replace(settings.test, least_headroom=0.0)
    return dataclasses.replace(settings, run=f"{settings.run}-trial", train=shorter, test=stops)


def trial(settings: Settings) -> dict[str, Any]:
    """Make the trial and return what is written to data/runs/<run>/trial.json.

    Raises TrialError where the base model is missing or the trial's folder holds a run, and what backend, meter and database
    raise.
    """
    if not (settings.run_dir / "base.json").exists():
        raise TrialError(f"{settings.run_dir}/base.json is missing: `make study` makes or takes the base model first")
    short, file = of(settings), ledger.path(settings.run_dir)
    seed, work = short.train.seeds[0], settings.data / "work" / settings.run / STAGE
    if (short.run_dir / "base.json").exists() or ledger.path(short.run_dir).exists():
        raise TrialError(
            f"{short.run_dir} is a run of its own, and a trial would take its place: choose another `run` than {settings.run!r}"
        )
    for folder in (short.run_dir, work):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(settings.base_dir, short.base_dir)
    trialled.path(settings).unlink(missing_ok=True)
    digest = trialled.digest(settings)
    with server.running(settings.graph_dir, settings.data) as uri, serving(settings, work, seed):
        before = _spent(file)
        began = time.monotonic()
        loop.run(train.practise(short, seed, uri, work, short.train_dir(seed)))
        seconds, after = time.monotonic() - began, _spent(file)
        findings = [*loop.run(_sheet(short, uri)), *_served(short, seed, work)]
    shutil.rmtree(work, ignore_errors=True)
    folder = short.train_dir(seed)
    made = [episode for name in ("episodes", "dev") for episode in read(folder / f"{name}.jsonl")]
    looked = read(folder / "prepass.jsonl") if short.train.prepass else []
    found = {
        "run": settings.run,
        "digest": digest,
        "passed": passed(findings),
        "findings": [asdict(finding) for finding in findings],
        "updates": read_jsonl(folder / "updates.jsonl"),
        "cost": None if settings.local else _cost(settings, made, before, after, _spent(file)),
        "time": _time(settings, made, looked, seconds),
    }
    write_json(trialled.path(settings), found)
    return found


async def _sheet(settings: Settings, uri: str) -> list[Finding]:
    """Answers whose reward is known, given by scripted agents through the real path: right ones, none, and wrong ones.

    A wrong answer is another question's reference query, so what its rows are worth is known without the database.
    """
    asked = [q for q in questions(settings, settings.practised) if q["query"] is not None][:SHEET]
    other = {q["id"]: asked[i - 1] for i, q in enumerate(asked)}
    async with world_for(settings, uri, settings.agent.query_timeout) as (world, renderer):

        async def given(
            agent: str, said: Callable[[Question], list[Any]], worth: Callable[[Question], float]
        ) -> Finding:
            def script(question: Question) -> TokenCompleter:
                return Scripted(renderer, world.prompt(question), said(question))

            kept: list[Episode] = []
            label = Label(settings.run, agent, 0, "evaluate", "greedy")
            await rollouts(script, asked, 1, label, world, renderer, settings, kept.append, what=f"{agent} answers")
            got, want = {e.question: e.reward for e in kept}, {q["id"]: worth(q) for q in asked}
            return on_sheet(agent, got, want)

        return [
            await given("right", lambda q: [asks(q["query"]), DONE], lambda _: 1.0),
            await given("no", lambda _: [DONE], lambda _: 0.0),
            await given(
                "wrong",
                lambda q: [asks(other[q["id"]]["query"]), DONE],
                lambda q: score(other[q["id"]]["rows"], q["rows"]).reward,
            ),
        ]


def on_sheet(agent: str, got: dict[str, float], want: dict[str, float]) -> Finding:
    """Whether given answers were worth what they are, by question."""
    off = sorted(name for name in want if abs(got.get(name, -1.0) - want[name]) > 1e-9)
    figures = {"questions": len(want), "off": len(off), "mean": float(np.mean(list(got.values())))}
    if not off:
        return Finding(
            f"{agent} answers", OK, f"{len(want)} rewarded as they must be, {figures['mean']:.2f} on average", figures
        )
    said = f"{len(off)} of {len(want)} not rewarded as they must be ({off[0]}: {got.get(off[0])}, not {want[off[0]]})"
    return Finding(f"{agent} answers", REFUSED, f"{said}: the path from answer to reward is broken", figures)


def _served(short: Settings, seed: int, work: Path) -> list[Finding]:
    """The trained weights by the two ways to them: as the loop left them for sampling, and loaded into a fresh session."""
    renderer = parity.renderer_for(short)
    world = parity.prompts(short, renderer)
    texts = parity.right_answers(questions(short, short.practised)[: parity.TEXTS], world, renderer)
    folder = short.train_dir(seed)
    saved = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    [left] = copy_checkpoints(short, folder / "checkpoint", [saved["sampler"]], work)
    straight = tinker.ServiceClient().create_sampling_client(model_path=left).result()
    fresh = loop.run(arm_client(short, f"trained-{seed}", work))
    loaded = parity.agreement(
        "fresh session",
        parity.by_sampler(straight, texts),
        parity.by_sampler(fresh, texts),
        "saved state, loaded into a fresh session, is another model than the one that was left",
    )
    return [
        loaded,
        *parity.untrained(short, work, texts, renderer),
        *parity.trained(short, seed, work, texts, renderer),
    ]


def _spent(file: Path) -> ledger.Spent:
    """What the trial has cost so far; nothing of a run that costs nothing."""
    return ledger.read(file).stages[STAGE] if file.exists() else ledger.Spent()


def _cost(
    settings: Settings, made: Sequence[Episode], before: ledger.Spent, after: ledger.Spent, all_: ledger.Spent
) -> dict[str, Any]:
    """US dollars, each as an estimate with the caching that the service reported, and at most.

    update: of one, by the tokens of its episodes, since the ledger doesn't tell them from the dev questions'. training: of
    both, the pre-pass and the looks at dev questions, by the ledger. trial: with all checks. whole: the run's forecast from these
    episodes, with its interval over questions.
    """
    price = prices.find(settings.train.backend, settings.base_model)
    prompt = after.prompt - before.prompt
    cached = (after.cached - before.cached) / prompt if prompt else 0.0
    practised = [episode for episode in made if episode.phase == "train"]
    tokens = {name: sum(e.tokens[name] for e in practised) // UPDATES for name in ("prompt", "sampled")}
    trained = (after.trained - before.trained) // UPDATES
    used = Usage(
        prompt=tokens["prompt"], cached=int(cached * tokens["prompt"]), sampled=tokens["sampled"], trained=trained
    )
    whole = forecast.costs(forecast.pilot(made), forecast.stages(settings), price, cached)[-1]
    return {
        "prices_of": price.date,
        "cached": cached,
        "update": {"estimate": price.estimate(used), "upper": price.upper(used)},
        "training": {"estimate": after.estimate - before.estimate, "upper": after.upper - before.upper},
        "trial": {"estimate": all_.estimate - before.estimate, "upper": all_.upper - before.upper},
        "whole": {"estimate": list(whole.cached), "upper": list(whole.upper)},
    }


def _time(settings: Settings, made: Sequence[Episode], looked: Sequence[Episode], seconds: float) -> dict[str, Any]:
    """Wall time of the trial's training, and (mean, low, high) of the whole run's in hours.

    By sampled tokens, at the trial's pace: most of an update is sampling. The interval is that of the tokens a rollout takes,
    by the same bootstrap over questions as the cost's; evaluation keeps more going at once and is faster than this says.
    looked: the pre-pass, which took part of the seconds.
    """
    tokens = prices.Price(
        prefill=0, cached=0, sample=prices.MILLION, train=0, storage=0, checkpoint_gb=0, date="", source=""
    )  # a unit a sampled token
    whole = forecast.costs(forecast.pilot(made), forecast.stages(settings), tokens)[-1].upper
    pace = seconds / max(1, sum(episode.tokens["sampled"] for episode in (*made, *looked)))
    return {"trial_seconds": seconds, "whole_hours": [pace * each / 3600 for each in whole]}


def in_words(found: dict[str, Any]) -> str:
    """What a person reads of a trial."""
    mean, low, high = found["time"]["whole_hours"]
    lines = [
        described(Finding(**one) for one in found["findings"]),
        f"two updates took {found['time']['trial_seconds']:.0f} s; the whole run would take about {mean:.1f} hours "
        f"[{low:.1f}, {high:.1f}]",
    ]
    if cost := found["cost"]:
        estimate, upper = cost["whole"]["estimate"], cost["whole"]["upper"]
        lines += [
            f"an update cost ${cost['update']['estimate']:.2f}, at most ${cost['update']['upper']:.2f}; the trial in all "
            f"${cost['trial']['estimate']:.2f}, at most ${cost['trial']['upper']:.2f}",
            f"the whole run would cost ${estimate[0]:.2f} [{estimate[1]:.2f}, {estimate[2]:.2f}] with {cost['cached']:.0%} of "
            f"prompts cached, and at most ${upper[0]:.2f} [{upper[1]:.2f}, {upper[2]:.2f}], by prices of {cost['prices_of']}",
        ]
    lines.append("passed" if found["passed"] else "NOT passed: a paid training will not start")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Command line: try the run in params.yaml; exit status 1 where the trial isn't passed or can't be made."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.trial", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    given = parser.parse_args(arguments)
    try:
        found = trial(load(given.params, given.data))
    except (
        TrialError, SettingsError, BackendMissing, SpendRefused, LimitReached, PriceError, EnvironmentFault,
        server.ServerError, tinker.TinkerError, OSError, ValueError,
    ) as e:  # fmt: skip
        sys.exit(f"trial: {e}")
    print(in_words(found))
    sys.exit(not found["passed"])


if __name__ == "__main__":
    main()
