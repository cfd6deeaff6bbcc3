"""Gives each arm the same number of sampled tokens: what a rollout costs is its tokens, and a pre-pass is paid for as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lib import updates
from lib.episodes import Episode
from lib.settings import Settings
from lib.updates import Group, Guard, Kept, Look, Objective, Rolled, Source


class Spent(Exception):
    """The budget is spent before update `update`, which isn't made."""

    def __init__(self, update: int):
        super().__init__(f"the budget is spent before update {update}")
        self.update = update


class Spending:
    """Sampled tokens of a run's rollouts, those lost to faults included; an episode that is noted again counts once."""

    def __init__(self, budget: int, already: int, episodes: Iterable[Episode] = ()):
        """budget: tokens. already: those of a pre-pass. episodes: of a run that goes on."""
        self.budget, self.already = budget, already
        self._tokens: dict[str, int] = {}  # by episode
        self._groups: set[tuple[int | None, str]] = set()  # (update, question)
        for episode in episodes:
            self.note(episode)

    def note(self, episode: Episode) -> None:
        self._tokens[episode.id] = episode.tokens["sampled"]
        self._groups.add((episode.update, episode.question))

    @property
    def spent(self) -> int:
        """Tokens. Asked between two rounds of groups, all of whose rollouts have ended, so that nobody's pace matters."""
        return self.already + sum(self._tokens.values())

    def groups_left(self) -> int | None:
        """How many groups the rest pays for, to the nearest, at the run's mean so far; None before the first."""
        if not self._groups:
            return None
        return round((self.budget - self.spent) * len(self._groups) / sum(self._tokens.values()))


class Budgeted:
    """A source that ends its run when the budget is spent: the last update takes as many groups as are left to pay for.

    So all arms sample the same, to about half a group; where groups are stopped early, or replaced, to a few.
    """

    def __init__(self, source: Source, spending: Spending):
        self.source, self.spending = source, spending

    def groups(self, update: int, rolled: Sequence[Rolled]) -> Sequence[Group]:
        """Raises Spent where not one more group can be paid for at an update's start."""
        left = self.spending.groups_left()
        if not rolled and left is not None and left < 1:
            raise Spent(update)
        return self.source.groups(update, rolled)[: None if left is None else max(0, left)]


async def until_spent(
    settings: Settings, work: Path, source: Budgeted, look: Look, objective: Objective, guards: Sequence[Guard] = ()
) -> Kept:
    """`updates.run` until the budget is spent, or until `train.updates` are made; returns what it returns.

    The state before the update that isn't made is kept by then, so that nothing is left of the run but to save its weights
    for sampling. Raises what it raises.
    """
    try:
        return await updates.run(settings, work, source, look, objective, guards)
    except Spent as spent:
        made = replace(settings, train=replace(settings.train, updates=spent.update))
        return await updates.run(made, work, source, look, objective, guards)
