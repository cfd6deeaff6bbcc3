"""The training loop: groups are rolled out, their rewards become advantages, an optimiser step follows, and what a killed run
goes on from is kept. A guard can make it go back to the last good state, which is one whose rollouts no guard spoke of.

Three things can be exchanged, and the loop knows nothing else of them: which groups an update takes (`Source`), what their
rewards teach (`Objective`), and who looks at an update before the next one (`Guard`). Rollouts, data and step are the Tinker
cookbook's own functions, so that with the defaults the updates are those of its loop (tests/test_updates.py compares them).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import tinker
from tinker_cookbook.completers import TinkerTokenCompleter, TokenCompleter
from tinker_cookbook.rl.data_processing import (
    assemble_training_data,
    compute_advantages,
    remove_constant_reward_groups,
)
from tinker_cookbook.rl.metrics import compute_kl_sample_train
from tinker_cookbook.rl.rollouts import do_single_rollout
from tinker_cookbook.rl.train import train_step
from tinker_cookbook.rl.types import Env, Metrics, Trajectory, TrajectoryGroup

from lib.agent import EnvironmentFault
from lib.faults import Answers, HalfAnswer, Patient, outside, patiently
from lib.files import write_json
from lib.loop import ended
from lib.settings import Faults, Settings

KEPT_FOR = 3 * 24 * 3600  # seconds that a host keeps a state that isn't deleted: over a weekend
RETURNS = 3  # a run, to earlier states: each undoes what was paid for, and what comes again after three comes always
TEMPERATURE = 1.0  # of practice: the loss takes the sampler's log-probabilities for the policy's own


class TooManyFaults(RuntimeError):
    """More of an update's rollouts were lost to faults than the settings allow; the message gives the last reason."""


class GoBack(Exception):
    """Raised by a guard that has the attribute `goes_back`: the run is to go on from its last good state."""


class TooManyReturns(RuntimeError):
    """A guard wants the run to go back once more than RETURNS; the message says why, which state is kept, and how to go on."""


class Group(Protocol):
    """One question's rollouts, as `lib.agent.QuestionGroup`."""

    size: int

    async def make_envs(self) -> Sequence[Env]: ...

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Asked for each rollout by itself, once it has ended. Raises EnvironmentFault where nobody can tell."""
        ...

    def more(self, size: int) -> Group:
        """So many further rollouts of the question, with draws of their own."""
        ...

    def further(self, made: TrajectoryGroup) -> int:
        """How many rollouts the group is to have beyond those that were made: asked once, when its first `size` have ended."""
        ...

    def lost(self, env: Env, fault: str) -> None:
        """Told of a rollout that a fault ended."""
        ...


@dataclass(frozen=True)
class Rolled:
    """What came of a group: the rollouts that ended by themselves, with their rewards, and why others were lost."""

    group: Group
    rollouts: TrajectoryGroup
    lost: list[str]


@dataclass(frozen=True)
class Update:
    """An update that was made: all that was rolled out for it, and its figures by name."""

    number: int
    rolled: list[Rolled]
    figures: dict[str, Any]


class Source(Protocol):
    """Says which groups an update takes."""

    def groups(self, update: int, rolled: Sequence[Rolled]) -> Sequence[Group]:
        """What is rolled out next for an update: asked with nothing in `rolled` first, and then with all that was rolled out
        for it so far, until nothing more is wanted.

        A run that goes on has a new source: what that must know of earlier updates stands in the run's episodes.
        """
        ...


Objective = Callable[[list[TrajectoryGroup]], Awaitable[list[tinker.Datum]]]  # what is trained, of all groups
# A warning, which is kept with the figures. It raises GoBack where the run must go back, and all else where it must stop.
Guard = Callable[[Update], str | None]
Look = Callable[[Any, int], Awaitable[None]]  # at the policy (its sampling client) before an update


async def centred(groups: list[TrajectoryGroup]) -> list[tinker.Datum]:
    """A rollout's advantage is its reward less its group's mean.

    A group with one reward for all teaches nothing and is left out; if there is no other, one stays, as in the cookbook's loop.
    """
    teaching = remove_constant_reward_groups(groups)
    return assemble_training_data(teaching, compute_advantages(teaching))[0]


async def run(
    settings: Settings,
    work: Path,
    source: Source,
    look: Look,
    objective: Objective = centred,
    guards: Sequence[Guard] = (),
) -> Kept:
    """All updates of a run that aren't made yet; returns what is kept in the end, with the last weights for sampling.

    work: folder of what a killed run goes on from. look: called before every `train.dev_every`th update, the first included.

    Where a guard has a true `goes_back`, a second state is kept, the last good one. An update after which the run goes back to
    it has `went_back_to` among its figures: the number of the update before which that state stood, 0 for the base model.

    Raises TooManyFaults, TooManyReturns, EnvironmentFault where the service fails and no rollout can be blamed, what else a
    guard raises, and what a client raises that is no fault. Called again, it goes on from the last update that was kept.
    """
    t = settings.train
    policy = await Policy.open(settings, work)
    figures = list(policy.kept.figures)
    may_go_back = any(getattr(guard, "goes_back", False) for guard in guards)
    for number in range(policy.kept.update, t.updates):
        with Answers(answers(work, number)) as kept:
            client = Patient(await policy.sampler(), t.faults, kept)
            _, rolled = await ended(policy.keep(number, figures), _played(settings, number, client, source, look))
        update = Update(number, rolled, _lost(rolled, t.faults))
        if data := await objective([one.rollouts for one in rolled if _whole(one, t.faults)]):
            update.figures.update(await policy.step(number, data))
        warnings, back = _told(guards, update, may_go_back)
        if warnings:
            update.figures["warnings"] = warnings
        if back:
            _check_returns(update, policy.kept, figures)
            update.figures["went_back_to"] = await policy.go_back()
        elif may_go_back and not warnings:
            policy.approve(number)
        figures.append({"update": number, **update.figures})
    await policy.keep(t.updates, figures)
    return await policy.finish()


def answers(work: Path, number: int) -> Path:
    """File of what the policy before update `number` answered; kept until the state after that update is."""
    return work / f"answers-{number:06d}.jsonl"


async def _played(settings: Settings, number: int, client: Any, source: Source, look: Look) -> list[Rolled]:
    """All that is sampled for an update."""
    if number % settings.train.dev_every == 0:
        await look(client, number)
    policy = TinkerTokenCompleter(client, max_tokens=settings.agent.max_tokens, temperature=TEMPERATURE)
    rolled: list[Rolled] = []
    while groups := source.groups(number, rolled):
        rolled += await ended(*(_rolled(group, policy, settings.train.faults) for group in groups))
    return rolled


async def _rolled(group: Group, policy: TokenCompleter, faults: Faults) -> Rolled:
    """A group's rollouts, the further ones among them: together they are one group, with one mean.

    Where too few are left, the lost ones are made again with other draws, which are as good: the policy is the same, and what
    was lost said nothing of it.
    """
    made: list[tuple[Trajectory, float, Metrics]] = []
    lost: list[str] = []
    batch = group

    async def roll() -> None:
        for one in await ended(*(_rollout(batch, env, policy) for env in await batch.make_envs())):
            lost.append(one) if isinstance(one, str) else made.append(one)

    await roll()
    for again in range(faults.rerolls):
        if len(made) >= faults.least_rollouts:
            break
        await asyncio.sleep(faults.wait * 2**again)
        batch = batch.more(group.size - len(made))
        await roll()
    if many := group.further(_together(made)):
        batch = batch.more(many)
        await roll()
    return Rolled(group, _together(made), lost)


def _together(made: list[tuple[Trajectory, float, Metrics]]) -> TrajectoryGroup:
    return TrajectoryGroup([t for t, _, _ in made], [reward for _, reward, _ in made], [m for _, _, m in made])


async def _rollout(group: Group, env: Env, policy: TokenCompleter) -> tuple[Trajectory, float, Metrics] | str:
    """A rollout with its reward, or the fault that ended it."""
    try:
        trajectory = await do_single_rollout(policy, env)
        [(reward, metrics)] = await group.compute_group_rewards([trajectory], [env])
    except EnvironmentFault as fault:
        group.lost(env, str(fault))
        return str(fault)
    return trajectory, reward, metrics


def _whole(one: Rolled, faults: Faults) -> bool:
    return len(one.rollouts.trajectories_G) >= faults.least_rollouts


def _lost(rolled: list[Rolled], faults: Faults) -> dict[str, Any]:
    """The figures of what was lost. Raises TooManyFaults."""
    reasons = [reason for one in rolled for reason in one.lost]
    made = len(reasons) + sum(len(one.rollouts.trajectories_G) for one in rolled)
    if len(reasons) > faults.most * made:
        raise TooManyFaults(
            f"{len(reasons)} of {made} rollouts were lost to faults, more than train.faults.most = {faults.most:g} allows; the "
            f"last one: {reasons[-1]}. Mend that and start the step again: it goes on before this update"
        )
    return {"rollouts_lost": len(reasons), "groups_dropped": sum(not _whole(one, faults) for one in rolled)}


def _told(guards: Sequence[Guard], update: Update, may_go_back: bool) -> tuple[list[str], bool]:
    """What all guards say of an update, and whether one of them wants the run to go back."""
    said, back = [], False
    for guard in guards:
        try:
            warning = guard(update)
        except GoBack as reason:
            if not may_go_back:
                raise  # no good state is known
            warning, back = str(reason), True
        if warning:
            said.append(warning)
    return said, back


def _check_returns(update: Update, kept: Kept, figures: list[dict[str, Any]]) -> None:
    """figures: of the updates before. Raises TooManyReturns."""
    if (returns := sum("went_back_to" in one for one in figures)) < RETURNS:
        return
    reasons = "; ".join(update.figures["warnings"])
    raise TooManyReturns(
        f"update {update.number}: {reasons}. The run went back {returns} times before. {kept.way_on()}"
    )


@dataclass(frozen=True)
class Kept:
    """What a run goes on from; written only when all that it names is saved, and in one piece."""

    update: int = 0  # the next one
    state: str | None = None  # weights and optimiser before it; None: the base model's
    sampler: str | None = None  # the last weights for sampling, once all updates are made
    figures: list[dict[str, Any]] = field(default_factory=list)  # of the updates before
    replaced: list[str] = field(default_factory=list)  # earlier states, which may not be deleted yet
    good: str | None = None  # the state that the run would go back to; None: the base model's
    good_update: int = 0  # the update before which that stood

    NAME: ClassVar[str] = "kept.json"

    def way_on(self) -> str:
        """What to say where a guard stops the run."""
        return (
            f"What is kept is the state before update {self.update}, {self.state or 'that of the base model'}. Started again, this "
            "run goes on from there and stops here again: choose another `run` name with a lower train.learning_rate or another "
            "objective, or raise the guard's limit if this is no harm"
        )

    @classmethod
    def file(cls, work: Path) -> Path:
        return work / cls.NAME

    @classmethod
    def read(cls, work: Path) -> Kept:
        file = cls.file(work)
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else cls()


class Policy:
    """The model in training, from the last state that was kept."""

    def __init__(self, settings: Settings, work: Path):
        self.settings, self.work, self.kept = settings, work, Kept.read(work)

    @classmethod
    async def open(cls, settings: Settings, work: Path) -> Policy:
        policy = cls(settings, work)
        await patiently(lambda _: policy._open(policy.kept.state), settings.train.faults)
        return policy

    async def _open(self, state: str | None) -> None:
        """A new session, from a state or the base model."""
        about = {"renderer_name": self.settings.agent.renderer}
        self.service = tinker.ServiceClient()
        if state is None:
            self.client = await self.service.create_lora_training_client_async(
                self.settings.base_model, rank=self.settings.train.lora_rank, user_metadata=about
            )
        else:
            self.client = await self.service.create_training_client_from_state_with_optimizer_async(
                state, user_metadata=about
            )

    async def sampler(self) -> tinker.SamplingClient:
        """A client over the weights as they are now."""
        return await patiently(
            lambda _: self.client.save_weights_and_get_sampling_client_async(), self.settings.train.faults
        )

    async def step(self, number: int, data: list[tinker.Datum]) -> dict[str, Any]:
        """One pass and one optimiser step; returns its figures.

        How much of a step that failed was done, nobody knows: it is made again from the state before it, if that was kept.
        """
        t = self.settings.train

        async def made(tried: int) -> dict[str, Any]:
            if tried:
                await self._open(self.kept.state)
            figures: dict[str, Any] = {}
            logprobs = await train_step(data, self.client, t.learning_rate, 1, t.loss, metrics=figures)
            if (scored := [len(one) for one in logprobs]) != (sent := [datum.model_input.length for datum in data]):
                raise HalfAnswer(f"so many tokens trained: {sent}, log-probabilities of the trainer: {scored}")
            if not all(one.isfinite().all() for one in logprobs):
                raise HalfAnswer("the trainer's log-probabilities are no numbers")
            return figures | compute_kl_sample_train(data, logprobs)

        again = t.faults if self.kept.update == number else replace(t.faults, tries=1)
        return await patiently(made, again)

    def approve(self, number: int) -> None:
        """The state before update `number` is good, if it was kept. That is noted with the next state: a run that is killed
        before comes by here again."""
        if number == self.kept.update:
            replaced = [*self.kept.replaced, *_paths(self.kept.good)]
            self.kept = replace(self.kept, good=self.kept.state, good_update=number, replaced=replaced)

    async def go_back(self) -> int:
        """To the weights and the optimiser of the good state; returns the number of the update before which it stood."""
        await patiently(lambda _: self._open(self.kept.good), self.settings.train.faults)
        return self.kept.good_update

    async def keep(self, number: int, figures: list[dict[str, Any]]) -> None:
        """Save the state before update `number`, then note it, then delete those that nobody needs any more.

        Where the service fails, the run goes on: the next state is another try. The last one must succeed.
        """
        if number == self.kept.update:
            return
        last, figures = number == self.settings.train.updates, list(figures)
        try:
            name, ttl_seconds = "final" if last else f"{number:06d}", None if last else KEPT_FOR
            state = await self._save("save_state_async", name, ttl_seconds)
        except EnvironmentFault as fault:
            if last:
                raise
            print(f"the state before update {number} isn't kept: {fault}", file=sys.stderr)
            return
        before = [] if self.kept.state == self.kept.good else _paths(self.kept.state)
        replaced = [*self.kept.replaced, *before]
        self._note(replace(self.kept, update=number, state=state, sampler=None, figures=figures, replaced=replaced))
        await self._delete_replaced()

    async def finish(self) -> Kept:
        """Save the last weights for sampling; there is nothing to go back to any more."""
        if self.kept.sampler is None:
            sampler = await self._save("save_weights_for_sampler_async", "final", None)
            replaced = [*self.kept.replaced, *_paths(self.kept.good)]
            self._note(replace(self.kept, sampler=sampler, replaced=replaced, good=None, good_update=0))
        await self._delete_replaced()
        return self.kept

    async def _save(self, method: str, name: str, ttl_seconds: int | None) -> str:
        """Its path. A try that failed may have taken its name."""

        async def saved(tried: int) -> str:
            named = f"{name}-{tried}" if tried else name
            path: str = (await (await getattr(self.client, method)(named, ttl_seconds=ttl_seconds)).result_async()).path
            return path

        return await patiently(saved, self.settings.train.faults)

    def _note(self, kept: Kept) -> None:
        write_json(Kept.file(self.work), asdict(kept))
        self.kept = kept
        for number in range(kept.update):
            answers(self.work, number).unlink(missing_ok=True)

    async def _delete_replaced(self) -> None:
        """What can't be deleted now is tried again after the next state; a host drops it in the end."""
        left = []
        for path in self.kept.replaced:
            try:
                async with asyncio.timeout(self.settings.train.faults.answer_within):
                    await self.service.create_rest_client().delete_checkpoint_from_tinker_path_async(path)
            except tinker.NotFoundError:
                continue
            except Exception as error:
                if outside(error):
                    left.append(path)
                elif not isinstance(error, tinker.TinkerError):
                    raise
        self.kept = replace(self.kept, replaced=left)


def _paths(state: str | None) -> list[str]:
    """The base model is no path."""
    return [] if state is None else [state]
