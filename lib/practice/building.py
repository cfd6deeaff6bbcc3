"""Makes an arm's source, objective and guards from what arms.yaml says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tinker
from tinker_cookbook.renderers import Renderer

from lib.agent import Label, Question, QuestionGroup, World
from lib.episodes import Episode
from lib.evaluate import questions
from lib.learning.arms import Arm, ByHops, InBand, Practised, Taught, Watched
from lib.practice import guards
from lib.practice.curricula import Band, Everything, Steps, by_hops
from lib.practice.objectives import Objective, patient_logprobs
from lib.practice.rates import Tries
from lib.practice.sources import Chosen, Curriculum, Dynamic
from lib.settings import Settings
from lib.train import Practice
from lib.updates import Guard, Source


async def objective(taught: Taught, settings: Settings, seed: int) -> Objective:
    """To be called while a backend is served: a distance from the base needs a client of the base model."""
    given = asdict(taught) | {"shuffled": seed if taught.shuffled else None}
    if not taught.kl:
        return Objective(**given)
    client = await tinker.ServiceClient().create_sampling_client_async(base_model=settings.base_model)
    return Objective(**given, base=patient_logprobs(client, settings.train.faults))


def watch(limits: Sequence[Watched], work: Path, taught: Objective) -> Guard:
    """The limits, all of which warn."""
    return guards.Watch(work, taught, [guards.Limit(getattr(guards, w.rule), w.limit, w.window) for w in limits])


@dataclass(frozen=True)
class Way:
    """What a source is made of beside the arm. updates: how many a run takes, about; a curriculum is spread over them."""

    settings: Settings
    seed: int
    world: World
    renderer: Renderer
    keep: Callable[[Episode], None]
    tries: Tries
    updates: int

    def source(self, arm: Arm, taught: Objective) -> tuple[Source, list[Guard]]:
        """The arm's source, with the guard that says how it chose. The baseline's is the study's own practice."""
        if isinstance(arm.questions, Practised) and arm.replacement is None:
            return Practice(self.settings, self.seed, self.world, self.renderer, self.keep), []
        train = self.settings.train
        pool = questions(self.settings, self.settings.practised)
        chosen = Chosen(pool, train.groups, self.seed, self._curriculum(arm, pool), self.tries, self._ask)
        if arm.replacement is None:
            return chosen, [chosen.tell]
        dynamic = Dynamic(chosen, arm.replacement.extra, taught.mixed, train.faults.least_rollouts)
        return dynamic, [chosen.tell]

    def _curriculum(self, arm: Arm, pool: list[Question]) -> Curriculum:
        match arm.questions:
            case InBand() as band:
                cut = {name: value for name, value in asdict(band).items() if name != "kind"}
                return Band(pool=pool, **cut)
            case ByHops(floor=floor):
                return Steps(levels=by_hops(pool), updates=self.updates, floor=floor)
            case _:
                return Everything()

    def _ask(self, question: Question, update: int) -> QuestionGroup:
        t = self.settings
        label = Label(t.run, f"trained-{self.seed}", self.seed, "train", update=update)
        return QuestionGroup(question, t.train.rollouts, self.world, self.renderer, t.agent, label, self.keep)
