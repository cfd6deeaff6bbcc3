"""Asks what gives a model more learning per rollout: ways of choosing questions, of replacing groups that teach nothing, and
of turning rewards into updates, each with the same budget of sampled tokens, from the same base model, by the same test.

An experiment of its own, beside the study (`make learning`; experiments/learning has its pipeline, settings and arms). Its
steps: what is known before (`prepare`), the declared arms (`practise`), the best combination by the dev questions (`choose`,
`combine`), a clean teacher (`clean`), the test questions (`ask`), and what came out (`results`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tinker_cookbook.renderers import Renderer

from lib import fingerprints, loop
from lib.agent import EnvironmentFault, Label, Question, World
from lib.backends.serving import serving
from lib.cold_start import cold_start
from lib.episodes import Episode, Writer, read
from lib.evaluate import SAMPLER_SEED, arm_client, label_of, questions, rollouts, sampler, world_for
from lib.faults import Patient
from lib.files import write_json
from lib.graph import server
from lib.learning import arms, results
from lib.learning.arms import BASELINE, CLEAN, Declared
from lib.learning.jobs import JobFailed, database, side_by_side
from lib.learning.layout import (
    BASE,
    CONTROL,
    PARAMS,
    TUNED,
    ArmSettings,
    at_temperature,
    before,
    combined,
    digest_of,
    folder,
    go_on,
    inputs,
    never_solved,
    prepass_of,
    settings_of,
)
from lib.learning.learner import learn
from lib.measures import mean
from lib.plan import APART_SET, FIRST_SET
from lib.settings import ROOT, Settings, SettingsError, load
from lib.train import look_before
from lib.updates import TEMPERATURE

# ---------------------------------------------------------------- before any arm


def prepare(settings: Settings, declared: Declared) -> dict[str, Any]:
    """Write data/learning/before: the base model's pre-pass for each seed, the control's dev answers by temperature, and
    before.json with the budget in tokens, what each pre-pass cost, and the temperature by which the control is best.

    Raises ValueError where a pre-pass costs more than the smallest budget.
    """
    one = settings_of(settings, CONTROL)
    out, work = folder(settings) / "before", one.work("before")
    prepass = declared.prepass and asdict(declared.prepass)
    go_on(out, work, inputs(one, rules=asdict(declared.rules), prepass=prepass))
    with server.running(one.graph_dir, one.data) as uri, serving(one, work, SAMPLER_SEED):
        loop.run(_prepare(one, declared, uri, work, out))
    shutil.rmtree(work, ignore_errors=True)
    seeds = settings.train.seeds if declared.prepass is not None else ()
    asked = {seed: read(prepass_of(settings, seed) / "prepass.jsonl") for seed in seeds}
    found = known(read(out / "dev.jsonl"), asked, settings, declared)
    write_json(out / "before.json", found)
    return found


async def _prepare(one: ArmSettings, declared: Declared, uri: str, work: Path, out: Path) -> None:
    rules, control = declared.rules, await arm_client(one, "control", work)
    async with world_for(one, uri, one.agent.query_timeout) as (world, renderer):
        if declared.prepass is not None:
            for seed in one.train.seeds:
                await look_before(one, declared.prepass, seed, world, renderer, work, prepass_of(one, seed))
        with Writer(out / "dev.jsonl") as writer:
            for temperature in rules.temperatures:
                at = replace(one, evaluate=replace(one.evaluate, temperature=temperature))
                label = Label(one.run, at_temperature(temperature), 0, "dev")
                dev = questions(one, "dev")
                await _answered(at, control, dev, one.evaluate.samples, label, world, renderer, writer)
            writer.finish()


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
    """All samples of the questions that aren't in the file yet."""
    patient, done = Patient(client, one.train.faults), frozenset(writer.done)
    policy = sampler(patient, one, greedy=label.decode == "greedy")
    await rollouts(lambda _: policy, asked, samples, label, world, renderer, one, writer.write, done)


def known(
    dev: Sequence[Episode], prepass: Mapping[int, Sequence[Episode]], settings: Settings, declared: Declared
) -> dict[str, Any]:
    """What before.json holds; `prepass` by seed. Of temperatures that are equally good the first in the rules is the best."""
    rules, train = declared.rules, settings.train
    by = {t: [e for e in dev if e.arm == at_temperature(t) and e.fault is None] for t in rules.temperatures}
    rates = {t: mean(e.strict for e in found) or 0.0 for t, found in by.items()}
    a_rollout = mean(e.tokens["sampled"] for e in by[TEMPERATURE]) or 0.0
    budget = round(rules.updates * train.groups * train.rollouts * a_rollout)
    costs = {str(seed): sum(e.tokens["sampled"] for e in found) for seed, found in prepass.items()}
    if (most := max(costs.values(), default=0)) >= budget / 2:
        raise ValueError(
            f"the pre-pass samples {most} tokens, and an arm may sample {budget}, or half of it: lower its questions or "
            "samples, or raise updates, in arms.yaml"
        )
    return {
        "budget": budget,
        "prepass": costs,
        "tokens_a_rollout": a_rollout,
        "rates": {f"{t:g}": rate for t, rate in rates.items()},
        "temperature": max(rates, key=lambda t: rates[t]),
    }


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
    write_json(folder(settings) / "chosen.json", found)
    return found


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
    code = ("lib/cold_start.py", "lib/questions/demonstrations.py", "lib/tiny.py", *fingerprints.files("lib/backends"))
    given = {
        "settings": {part: asdict(getattr(one, part)) for part in ("model", "cold_start", "agent", "local")},
        "questions": digest_of(one.questions_dir),
        "code": fingerprints.digest((name, (ROOT / name).read_bytes()) for name in code),
    }
    go_on(one.run_dir, one.work("cold-start"), given)
    if not one.system_prompt.exists():  # the last file that it writes
        cold_start(one)
    side_by_side(
        {
            f"{CLEAN}, seed {seed}": partial(learn, settings, declared, CLEAN, declared.arms[BASELINE], seed)
            for seed in declared.rules.clean_seeds
        },
        "clean teacher",
    )


# ---------------------------------------------------------------- the test


@dataclass(frozen=True)
class Asked:
    """One model's share of the test: who answers, at which temperature, and how often each question.

    name: arm of the experiment. who: "base", "control" or "trained-<seed>", as in lib.evaluate. samples: beside one greedy.
    often: ids of questions that get `rules.reach` samples instead; those of new structures, which practice has nothing alike of,
    are asked only then, and never greedily.
    """

    name: str
    who: str
    samples: int
    temperature: float = TEMPERATURE
    often: tuple[str, ...] = ()


def references(settings: Settings, declared: Declared) -> list[Asked]:
    """The untrained models: the base, by which questions count as never solved, and the control, asked as often."""
    reach, new = declared.rules.reach, tuple(q["id"] for q in questions(settings, APART_SET))
    return [
        Asked(BASE, "base", reach, often=new),
        Asked(CONTROL, "control", reach, often=new),
        Asked(TUNED, "control", reach, before(settings)["temperature"]),
        Asked(CLEAN, "control", reach),
    ]


def trained(settings: Settings, declared: Declared) -> list[Asked]:
    """All that were trained."""
    names = [*declared.arms, *combined(settings, declared)]
    some = partial(Asked, samples=settings.evaluate.samples, often=never_solved(settings))
    return [
        *(some(name, f"trained-{seed}") for seed in settings.train.seeds for name in names),
        *(Asked(CLEAN, f"trained-{seed}", settings.evaluate.samples) for seed in declared.rules.clean_seeds),
    ]


def ask(settings: Settings, declared: Declared) -> None:
    """Put the test questions, once and after all choices, to the untrained models and then to the others."""
    for asked, what in ((references, "references"), (trained, "test")):
        some = asked(settings, declared)
        jobs = {f"{one.name}, {one.who}": partial(answer, settings, one, declared.rules.reach) for one in some}
        side_by_side(jobs, what)


def answer(settings: Settings, asked: Asked, reach: int) -> None:
    """Write one model's answers, to data/learning/asked/<name>/<who>. A killed one goes on, a finished one is left as it is."""
    one = settings_of(settings, asked.name)
    one = replace(one, evaluate=replace(one.evaluate, temperature=asked.temperature))
    file, work = one.episodes(asked.who), one.work(f"ask-{asked.who}")
    state = (
        digest_of(one.train_dir(int(asked.who.removeprefix("trained-"))) / "checkpoint") if "-" in asked.who else None
    )
    go_on(file.parent, work, inputs(one, asked=asdict(asked), reach=reach, state=state))
    done = file.with_name("asked.json")  # the last file that this writes
    if not done.exists():
        uri = database(one.graph_dir, one.data)
        with serving(one, work, SAMPLER_SEED):
            loop.run(_answer(one, asked, reach, uri, work))
        write_json(done, asdict(asked))
    shutil.rmtree(work, ignore_errors=True)


async def _answer(one: ArmSettings, asked: Asked, reach: int, uri: str, work: Path) -> None:
    client = await arm_client(one, asked.who, work)
    everything, new, often = questions(one, FIRST_SET), questions(one, APART_SET), frozenset(asked.often)
    parts = (
        ("sampled", asked.samples, [q for q in everything if q["id"] not in often]),
        ("sampled", reach, [q for q in (*everything, *new) if q["id"] in often]),
        ("greedy", 1, everything),
    )
    async with world_for(one, uri, one.agent.evaluation_query_timeout) as (world, renderer):
        with Writer(one.episodes(asked.who)) as writer:
            for decode, samples, some in parts:
                label = label_of(one, asked.who, decode)
                await _answered(one, client, some, samples, label, world, renderer, writer)
            writer.finish()


# ---------------------------------------------------------------- command line

STEPS: dict[str, Callable[[Settings, Declared], object]] = {
    "prepare": prepare,
    "practise": practise,
    "choose": choose,
    "combine": combine,
    "clean": clean,
    "ask": ask,
    "results": results.write,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.learning.experiment",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--params", type=Path, default=PARAMS, help="the parameter file (default: %(default)s)")
    parser.add_argument("--arms", type=Path, default=arms.ARMS, help="the declared arms (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    chosen = parser.parse_args(arguments)
    try:
        declared = arms.load(chosen.arms)
        STEPS[chosen.step](load(chosen.params, chosen.data), declared)
    except (SettingsError, JobFailed, server.ServerError, EnvironmentFault, OSError, ValueError) as error:
        sys.exit(f"learning: {error}")


if __name__ == "__main__":
    main()
