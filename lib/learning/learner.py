"""One run of one arm: it practises, or imitates itself, until its budget is spent, and leaves what lib/train.py leaves."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer

from lib import loop
from lib.agent import World
from lib.backends.serving import serving
from lib.episodes import Episode, Writer, read
from lib.evaluate import questions, world_for
from lib.faults import Patient
from lib.files import write_jsonl
from lib.learning import arms, imitation
from lib.learning.arms import Arm, Declared
from lib.learning.budget import Budgeted, Spending, until_spent
from lib.learning.jobs import database
from lib.learning.layout import ArmSettings, before, go_on, inputs, prepass_of, settings_of
from lib.practice import building
from lib.practice.objectives import Objective
from lib.practice.rates import PREPASS, Tries
from lib.settings import Settings
from lib.train import DevCurve, keep_checkpoint, lines, rewind
from lib.updates import Guard, Kept


def learn(settings: Settings, declared: Declared, name: str, arm: Arm, seed: int, share: float = 1.0) -> None:
    """One run of an arm, with this share of the budget.

    Writes data/learning/.../seed-<seed>, with the files of lib.train.train but its plan. A killed run goes on from the last
    state that was kept, a finished one is left as it is, and one that was begun from other inputs starts over. Raises what
    updates.run raises.
    """
    one = settings_of(settings, name)
    one = replace(one, train=replace(arm.of(one.train), guards=declared.rules.guards))
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
        rewind(out, Kept.read(self.work))
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
        keep_checkpoint(one, self.work, kept.state, kept.sampler, out)
        write_jsonl(out / "updates.jsonl", lines(one, out / "episodes.jsonl", sampled.figures))

    async def _practise(self, world: World, renderer: Renderer, writer: Writer, curve: Curve) -> tuple[Kept, Kept]:
        one, objective = self.one, await building.objective(self.one, self.seed)
        source, tell = self._source(world, renderer, writer, objective)
        guards: list[Guard] = [tell, building.watch(one, self.work, objective)]
        kept = await until_spent(one, self.work, source, curve, objective, guards)
        return kept, kept

    async def _imitate(self, world: World, renderer: Renderer, writer: Writer, curve: Curve) -> tuple[Kept, Kept]:
        """Sample from the base model until the budget is spent, then learn from what was right."""
        one, objective = self.one, await building.objective(self.one, self.seed)
        source, tell = self._source(world, renderer, writer, objective)
        sampled = await until_spent(one, self.work, source, no_look, imitation.no_step, [tell])
        asked = {q["id"]: q for q in questions(one, one.practised)}
        lessons = imitation.lessons(read(writer.path), asked, world, renderer)
        steps, passes = len(sampled.figures), self.declared.rules.passes
        return sampled, await imitation.imitate(one, self.seed, self.work / "steps", lessons, passes, steps)

    def _source(self, world: World, renderer: Renderer, writer: Writer, objective: Objective) -> tuple[Budgeted, Guard]:
        """What the arm asks until its budget is spent, and the guard that says how it chose."""
        asked = read(prepass_of(self.one, self.seed) / "prepass.jsonl") if self.arm.prepass is not None else []
        already = sum(episode.tokens["sampled"] for episode in asked)
        spending = Spending(round(self.share * self.facts["budget"]), already, read(writer.path))
        tries = Tries()
        tries.note(asked, PREPASS)
        tries.note(read(writer.path))

        def keep(episode: Episode) -> None:
            writer.write(episode)
            spending.note(episode)
            tries.note([episode])

        updates = max(1, round(self.share * self.declared.rules.updates))
        way = building.Way(self.one, self.seed, world, renderer, keep, tries, updates)
        source, tell = way.source(objective)
        return Budgeted(source, spending), tell
