"""Asks what gives a model more learning per rollout: ways of choosing questions, of replacing groups that teach nothing, and
of turning rewards into updates, each with the same budget of sampled tokens, from the same base model, by the same test.

An experiment of its own, beside the study (`make learning`; experiments/learning has its pipeline, settings and arms). Its
steps: what is known before (`prepare`), the declared arms (`practise`), the best combination by the dev questions (`choose`,
`combine`), a clean teacher (`clean`), the test questions (`ask`), and what came out (`results`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer

from lib import fingerprints, loop, tally
from lib.agent import EnvironmentFault, Label, Question, World
from lib.backends.serving import serving
from lib.cold_start import cold_start
from lib.episodes import Episode, Writer, read
from lib.evaluate import (
    ROLLOUTS_AT_ONCE,
    SAMPLER_SEED,
    arm_client,
    label_of,
    questions,
    rollouts,
    sampler,
    together,
    world_for,
)
from lib.faults import Patient
from lib.files import write_json, write_jsonl
from lib.graph import server
from lib.learning import arms, building, imitation
from lib.learning.arms import BASELINE, BEST, CLEAN, HALF, Arm, Declared
from lib.learning.budget import Budgeted, Spending, until_spent
from lib.learning.jobs import JobFailed, database, side_by_side
from lib.measures import mean
from lib.plan import FIRST_SET
from lib.settings import ROOT, Settings, SettingsError, load
from lib.train import DevCurve, Practice, _go_on, _keep_checkpoint, _updates
from lib.updates import TEMPERATURE, Kept

PARAMS = ROOT / "experiments" / "learning" / "params.yaml"
STUDY = "tiny"  # the run whose base model is taken; graph and questions are common to all runs
BASE, CONTROL, TUNED = "base", "control", "tuned"  # untrained: first set of samples, a fresh one, and at the best temperature
OWN = ("arms", "budget", "building", "curricula", "experiment", "guards", "imitation", "objectives", "rates", "sources")


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
        folder = self.data / "learning"
        if self.arm == CLEAN:
            return folder / CLEAN
        return folder / ("combined" if self.arm == BEST or self.arm.endswith(HALF) else "singles") / self.arm

    def episodes(self, arm: str) -> Path:
        return self.data / "learning" / "asked" / self.arm / arm / "episodes.jsonl"

    def work(self, step: str) -> Path:
        return self.data / "work" / self.run / step


def settings_of(settings: Settings, arm: str) -> ArmSettings:
    given = {f.name: getattr(settings, f.name) for f in fields(Settings)}
    if arm == CLEAN:
        given["cold_start"] = replace(settings.taught, wrong_least=0.0, wrong_most=0.0)
    return ArmSettings(**given | {"run": f"{settings.run}-{arm}"}, arm=arm)


# ---------------------------------------------------------------- records


def inputs(one: ArmSettings, **more: Any) -> dict[str, Any]:
    """What a result of the arm hangs on, as digests and plain data, to be kept beside it."""
    parts = ("graph", "questions", "model", "cold_start", "agent", "local", "train", "evaluate")
    own = [f"lib/learning/{name}.py" for name in OWN]
    return {
        "settings": {part: asdict(getattr(one, part)) for part in parts},
        "questions": _digest(one.questions_dir),
        "base": _digest(one.base_dir),
        **fingerprints.of(one.system_prompt),
        "arms": fingerprints.digest((name, (ROOT / name).read_bytes()) for name in own),
        **more,
    }


def _digest(folder: Path) -> str:
    files = [file for file in folder.rglob("*") if file.is_file()]
    if not files:
        raise FileNotFoundError(f"{folder} has no files: `make study` makes them, or `make learning` with all that it needs")
    return fingerprints.digest((file.relative_to(folder).as_posix(), file.read_bytes()) for file in files)


def go_on(folder: Path, work: Path, found: dict[str, Any]) -> None:
    """Keep what a killed try left in `folder` and `work` if it was begun from the same inputs, else remove it; note the inputs."""
    record, text = folder / "inputs.json", json.loads(json.dumps(found))
    if not record.exists() or json.loads(record.read_text(encoding="utf-8")) != text:
        for left in (folder, work):
            shutil.rmtree(left, ignore_errors=True)
        write_json(record, text)


# ---------------------------------------------------------------- before any arm


def prepare(settings: Settings, declared: Declared) -> dict[str, Any]:
    """Write data/learning/before: the base model's pre-pass, the control's dev answers by temperature, and before.json with the
    budget in tokens, what the pre-pass cost, and the temperature by which the control is best.

    Raises ValueError where the pre-pass costs more than the smallest budget.
    """
    one = settings_of(settings, CONTROL)
    folder, work = settings.data / "learning" / "before", one.work("before")
    go_on(folder, work, inputs(one, rules=asdict(declared.rules)))
    with server.running(one.graph_dir, one.data) as uri, serving(one, work, SAMPLER_SEED):
        loop.run(_prepare(one, declared, uri, work, folder))
    shutil.rmtree(work, ignore_errors=True)
    found = known(read(folder / "dev.jsonl"), read(folder / "prepass.jsonl"), settings, declared)
    write_json(folder / "before.json", found)
    return found


async def _prepare(one: ArmSettings, declared: Declared, uri: str, work: Path, folder: Path) -> None:
    rules, pool = declared.rules, questions(one, one.practised)
    first = random.Random("pre-pass").sample(pool, min(rules.prepass_questions, len(pool)))
    base, control = await arm_client(one, "base", work), await arm_client(one, "control", work)
    async with world_for(one, uri, one.agent.query_timeout) as (world, renderer):
        with Writer(folder / "prepass.jsonl") as writer:
            at = replace(one, evaluate=replace(one.evaluate, temperature=TEMPERATURE))
            label = Label(one.run, BASE, 0, "train")
            await _answered(at, base, first, rules.prepass_samples, label, world, renderer, writer)
        with Writer(folder / "dev.jsonl") as writer:
            for temperature in rules.temperatures:
                at = replace(one, evaluate=replace(one.evaluate, temperature=temperature))
                label = Label(one.run, at_temperature(temperature), 0, "dev")
                dev = questions(one, "dev")
                await _answered(at, control, dev, one.evaluate.samples, label, world, renderer, writer)


async def _answered(
    one: ArmSettings,
    client: Any,
    asked: list[Question],
    samples: int,
    label: Label,
    world: World,
    renderer: Renderer,
    writer: Writer,
) -> None:
    """All samples of the questions, in the file."""
    policy, done = sampler(client, one), frozenset(writer.done)
    await rollouts(lambda _: policy, asked, samples, label, world, renderer, one, writer.write, done)
    writer.finish()


def at_temperature(temperature: float) -> str:
    return f"{CONTROL}-{temperature:g}"


def known(dev: Sequence[Episode], prepass: Sequence[Episode], settings: Settings, declared: Declared) -> dict[str, Any]:
    """What before.json holds. Of temperatures that are equally good the first in the rules is the best."""
    rules, train = declared.rules, settings.train
    by = {t: [e for e in dev if e.arm == at_temperature(t) and e.fault is None] for t in rules.temperatures}
    rates = {t: mean(e.strict for e in found) or 0.0 for t, found in by.items()}
    a_rollout = mean(e.tokens["sampled"] for e in by[TEMPERATURE]) or 0.0
    budget = round(rules.updates * train.groups * train.rollouts * a_rollout)
    cost = sum(e.tokens["sampled"] for e in prepass)
    if cost >= budget / 2:
        raise ValueError(
            f"the pre-pass samples {cost} tokens, and an arm may sample {budget}, or half of it: lower prepass_questions or "
            "prepass_samples, or raise updates, in arms.yaml"
        )
    return {
        "budget": budget,
        "prepass": cost,
        "tokens_a_rollout": a_rollout,
        "rates": {f"{t:g}": rate for t, rate in rates.items()},
        "temperature": max(rates, key=lambda t: rates[t]),
    }


def before(settings: Settings) -> dict[str, Any]:
    """What `prepare` wrote. Raises FileNotFoundError."""
    found: dict[str, Any] = _read(settings.data / "learning" / "before" / "before.json", "prepare")
    return found


def _read(file: Path, step: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing: `python -m lib.learning.experiment {step}` writes it") from None


# ---------------------------------------------------------------- an arm learns


def learn(settings: Settings, declared: Declared, name: str, arm: Arm, seed: int, share: float = 1.0) -> None:
    """One run of an arm, with this share of the budget.

    Writes data/learning/.../seed-<seed>, with the files of lib.train.train but its plan. A killed run goes on from the last
    state that was kept, a finished one is left as it is, and one that was begun from other inputs starts over. Raises what
    updates.run raises.
    """
    one = settings_of(settings, name)
    out, work = one.train_dir(seed), one.work(f"train-seed-{seed}")
    facts = before(settings)
    go_on(out, work, inputs(one, arm=arms.plain(arm), share=share, rules=asdict(declared.rules), before=facts))
    if not (out / "updates.jsonl").exists():  # the last file that a run writes
        uri = database(one.graph_dir, one.data)
        with serving(one, work, seed):
            loop.run(Learner(one, declared, arm, seed, share, facts, work, out).learn(uri))
    shutil.rmtree(work, ignore_errors=True)


class Curve(DevCurve):
    """The dev questions during a run; before its first update all runs have the one base model, whose answers are known."""

    async def __call__(self, sampling_client: Any, update: int) -> None:
        if update > 0:
            await super().__call__(sampling_client, update)


async def no_look(sampling_client: Any, update: int) -> None:
    """The base model's answers are known."""


@dataclass
class Learner:
    """One run of an arm."""

    one: ArmSettings
    declared: Declared
    arm: Arm
    seed: int
    share: float
    facts: dict[str, Any]  # before.json
    work: Path
    out: Path

    async def learn(self, uri: str) -> None:
        one, out = self.one, self.out
        _go_on(out, Kept.read(self.work))
        async with world_for(one, uri, one.agent.query_timeout) as (world, renderer):
            with Writer(out / "episodes.jsonl") as practised, Writer(out / "dev.jsonl") as dev:
                curve = Curve(one, self.seed, world, renderer, dev)
                way = self._practise if self.arm.learns == "practice" else self._imitate
                sampled, kept = await way(world, renderer, practised, curve)
                assert kept.state is not None and kept.sampler is not None
                client = await tinker.ServiceClient().create_sampling_client_async(model_path=kept.sampler)
                await curve(Patient(client, one.train.faults), sampled.update)
                practised.finish()
                dev.finish()
        _keep_checkpoint(one, self.work, kept.state, kept.sampler, out)
        write_jsonl(out / "updates.jsonl", _updates(one, out / "episodes.jsonl", sampled.figures))

    async def _practise(self, world: World, renderer: Renderer, writer: Writer, curve: Curve) -> tuple[Kept, Kept]:
        spending = self._spending(writer)
        built = await building.build(
            self.arm,
            self.one,
            updates=max(1, round(self.share * self.declared.rules.updates)),
            seed=self.seed,
            world=world,
            renderer=renderer,
            keep=self._keep(writer, spending),
            known=self._known(writer),
            work=self.work,
        )
        source = Budgeted(built.source, spending, self.one.train.rollouts)
        kept = await until_spent(self.one, self.work, source, curve, built.objective, built.guards)
        return kept, kept

    async def _imitate(self, world: World, renderer: Renderer, writer: Writer, curve: Curve) -> tuple[Kept, Kept]:
        """Sample from the base model until the budget is spent, then learn from what was right."""
        one, spending = self.one, self._spending(writer)
        practice = Practice(one, self.seed, world, renderer, self._keep(writer, spending))
        source = Budgeted(practice, spending, one.train.rollouts)
        sampled = await until_spent(one, self.work, source, no_look, imitation.no_step)
        asked = {q["id"]: q for q in questions(one, one.practised)}
        lessons = imitation.lessons(read(writer.path), asked, world, renderer)
        steps, passes = len(sampled.figures), self.declared.rules.passes
        return sampled, await imitation.imitate(one, self.seed, self.work / "steps", lessons, passes, steps)

    def _spending(self, writer: Writer) -> Spending:
        already = self.facts["prepass"] if self.arm.looks_before else 0
        return Spending(round(self.share * self.facts["budget"]), already, read(writer.path))

    def _keep(self, writer: Writer, spending: Spending) -> Callable[[Episode], None]:
        def keep(episode: Episode) -> None:
            writer.write(episode)
            spending.note(episode)

        return keep

    def _known(self, writer: Writer) -> building.Known:
        prepass = self.one.data / "learning" / "before" / "prepass.jsonl"
        return building.Known(read(prepass) if self.arm.looks_before else [], read(writer.path))


# ---------------------------------------------------------------- steps over all arms


def practise(settings: Settings, declared: Declared) -> None:
    """All declared arms, seed by seed."""
    side_by_side(
        {
            f"{name}, seed {seed}": partial(learn, settings, declared, name, arm, seed)
            for seed in settings.train.seeds
            for name, arm in declared.arms.items()
        },
        "arms",
    )


def dev_rate(settings: Settings, arm: str) -> float:
    """The arm's strict rate on dev questions after its last update, the mean over seeds."""
    rates = []
    for seed in settings.train.seeds:
        found = read(settings_of(settings, arm).train_dir(seed) / "dev.jsonl")
        last = max(e.update or 0 for e in found)
        rates.append(mean(e.strict for e in found if e.update == last and e.fault is None) or 0.0)
    return sum(rates) / len(rates)


def choose(settings: Settings, declared: Declared) -> dict[str, Any]:
    """Write data/learning/chosen.json: for each part the arm with the highest dev rate among the baseline and the arms that
    change it (the first of equal ones), and the combination that this makes."""
    names = {name for part in arms.PARTS for name in declared.singles(part)}
    rates = {name: dev_rate(settings, name) for name in declared.arms if name in names}
    chosen = {part: max(declared.singles(part), key=lambda name: rates[name]) for part in arms.PARTS}
    found = {"rates": rates, "chosen": chosen, "arm": arms.plain(declared.combined(chosen))}
    write_json(settings.data / "learning" / "chosen.json", found)
    return found


def combined(settings: Settings, declared: Declared) -> dict[str, tuple[Arm, float]]:
    """The arms that are known once the choice is made, with their shares of the budget."""
    best = declared.combined(_read(settings.data / "learning" / "chosen.json", "choose")["chosen"])
    halves = {f"{name}{HALF}": best if name == BEST else declared.arms[name] for name in declared.rules.halves}
    return {BEST: (best, 1.0), **{name: (arm, 0.5) for name, arm in halves.items()}}


def combine(settings: Settings, declared: Declared) -> None:
    """The best combination, and the arms with half of the budget."""
    side_by_side(
        {
            f"{name}, seed {seed}": partial(learn, settings, declared, name, arm, seed, share)
            for seed in settings.train.seeds
            for name, (arm, share) in combined(settings, declared).items()
        },
        "combinations",
    )


def clean(settings: Settings, declared: Declared) -> None:
    """The baseline from another base model, which was taught from demonstrations without planted mistakes."""
    one = settings_of(settings, CLEAN)
    facts = one.run_dir / "base.json"
    given = {"cold_start": asdict(one.taught), "model": asdict(one.model), "questions": _digest(one.questions_dir)}
    go_on(one.run_dir, one.work("cold-start"), given)
    if not facts.exists():
        cold_start(one)
    side_by_side(
        {
            f"{CLEAN}, seed {seed}": partial(learn, settings, declared, CLEAN, declared.arms[BASELINE], seed)
            for seed in declared.rules.clean_seeds
        },
        "clean teacher",
    )


# ---------------------------------------------------------------- the test


def never_solved(settings: Settings) -> list[str]:
    """Ids of the test questions that none of the base's first samples had right."""
    found = tally.counts(read(settings_of(settings, BASE).episodes("base")))
    return [question for question, count in found.items() if count.right == 0]


def answer(settings: Settings, name: str, who: str, often: list[str] | None, temperature: float, samples: int) -> None:
    """Write one model's answers to the test questions: so many samples each and one greedy, and `rules.reach`
    samples of the questions `often`.

    name: arm of the experiment. who: "base", "control" or "trained-<seed>", as in lib.evaluate. A killed one goes on, a finished
    one is left as it is.
    """
    one = settings_of(settings, name)
    one = replace(one, evaluate=replace(one.evaluate, temperature=temperature))
