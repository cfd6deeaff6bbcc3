"""Makes a run's source, objective and guards from its settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import tinker
from tinker_cookbook.renderers import Renderer

from lib.agent import Label, Question, World
from lib.episodes import Episode
from lib.evaluate import questions
from lib.faults import patiently
from lib.practice import guards
from lib.practice.curricula import Again, Band, Everything, Steps, by_hops, by_length, by_rate, hint_after_wrong
from lib.practice.objectives import TRUNCATED, Counted, Objective, patient_logprobs
from lib.practice.rates import Tries, rates
from lib.practice.sources import Ask, Chosen, Curriculum, Dynamic, Stoppable
from lib.settings import ByRate, InBand, InSteps, Settings, WithHints
from lib.updates import Guard, Source

LEVELS = 4  # of a curriculum by length or rate


async def objective(settings: Settings, seed: int) -> Objective:
    """To be called while a backend is served: a distance from the base needs a client of the base model."""
    taught = settings.train.objective
    given = asdict(taught) | {
        "masked": TRUNCATED if taught.masked else (),
        "shuffled": seed if taught.shuffled else None,
    }
    if not taught.kl:
        return Objective(**given)
    faults = settings.train.faults
    client = await patiently(
        lambda _: tinker.ServiceClient().create_sampling_client_async(base_model=settings.base_model), faults
    )
    return Objective(**given, base=patient_logprobs(client, faults))


def watch(settings: Settings, work: Path, taught: Objective) -> guards.Watch:
    limits = [
        guards.Limit(getattr(guards, one.rule), one.limit, one.window, one.action) for one in settings.train.guards
    ]
    return guards.Watch(work, taught, limits)


@dataclass(frozen=True)
class Way:
    """What a source is made of beside the settings. tries: the base model's and the run's own so far. updates: how many a run
    takes, about; a curriculum is spread over them."""

    settings: Settings
    seed: int
    world: World
    renderer: Renderer
    keep: Callable[[Episode], None]
    tries: Tries
    updates: int

    def source(self, taught: Objective) -> tuple[Source, Guard]:
        """The source, with the guard that says how it chose."""
        train = self.settings.train
        pool = questions(self.settings, self.settings.practised)
        rest = train.questions.rest if isinstance(train.questions, InBand) else math.inf
        chosen = Chosen(pool, train.groups, self.seed, self._curriculum(pool), self.tries, self._ask(taught), rest)
        if train.replacement is None:
            return chosen, chosen.tell
        dynamic = Dynamic(chosen, train.replacement.extra, taught.mixed, train.faults.least_rollouts)
        return dynamic, dynamic.tell

    def _curriculum(self, pool: list[Question]) -> Curriculum:
        match self.settings.train.questions:
            case InBand() as band:
                cut = {name: value for name, value in asdict(band).items() if name not in ("kind", "rest", "prepass")}
                return Band(pool=pool, **cut)
            case InSteps(kind="hops", floor=floor):
                return Steps(levels=by_hops(pool), updates=self.updates, floor=floor)
            case InSteps(kind="length", floor=floor):
                return Steps(levels=by_length(pool, LEVELS), updates=self.updates, floor=floor)
            case ByRate(floor=floor):
                known = rates(pool, self.tries, 0, lambda question: question["structure"], math.inf)
                return Steps(levels=by_rate(known, LEVELS), updates=self.updates, floor=floor)
            case WithHints(share=share):
                return Again(others=Everything(), share=share)
            case _:
                return Everything()

    def _ask(self, taught: Objective) -> Ask:
        t, whole = self.settings, self.settings.train.rollouts
        first = whole if t.train.replacement is None else t.train.replacement.first

        def ask(question: Question, update: int) -> Counted:
            label = Label(t.run, f"trained-{self.seed}", self.seed, "train", update=update)
            given = (question, first, self.world, self.renderer, t.agent, label, self.keep)
            return Counted(*given) if first == whole else Stoppable(*given, rest=whole - first, mixed=taught.mixed)

        return hint_after_wrong(ask, self.tries) if isinstance(t.train.questions, WithHints) else ask
