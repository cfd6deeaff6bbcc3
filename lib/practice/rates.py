"""How often each question is answered, from few attempts and over a run: what the choice of questions starts from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from lib import tally
from lib.agent import Question
from lib.episodes import Episode
from lib.tally import Count

PREPASS = -1  # the update under which the base model's attempts before a run are noted
MASS = 0.9  # of the interval around a rate


class Rate(NamedTuple):
    """What is known of a question's true rate: the posterior's mean, its central interval of MASS, and how many attempts it
    is worth (the sum of the beta distribution's parameters)."""

    mean: float
    low: float
    high: float
    worth: float


class Tries:
    """How often questions were asked and answered, update by update; in what order episodes are noted doesn't matter.

    What is read for an update are the tries before it, so a run that goes on finds in its episodes what it had in memory:

        tries = Tries()
        tries.note(read(prepass), PREPASS)
        tries.note(read(out / "episodes.jsonl"))  # what is left of a run that goes on
        group = Counted(..., keep=lambda episode: (writer.write(episode), tries.note([episode])))
    """

    def __init__(self) -> None:
        self._noted: set[str] = set()  # ids of episodes
        self._counts: dict[str, dict[int, Count]] = defaultdict(dict)  # by question and update

    def note(self, episodes: Iterable[Episode], update: int | None = None) -> None:
        """Add sampled episodes, under `update` or each under its own; one that is there already changes nothing.

        An episode that a fault ended says that its question was asked, and is no attempt. Raises ValueError for an episode
        of no update where none is given.
        """
        for episode in episodes:
            at = episode.update if update is None else update
            if at is None:
                raise ValueError(f"episode {episode.id} belongs to no update: say under which it is to be noted")
            if episode.decode != "sampled" or episode.id in self._noted:
                continue
            self._noted.add(episode.id)
            samples, right = self._counts[episode.question].get(at, Count(0, 0))
            real = episode.fault is None
            self._counts[episode.question][at] = Count(samples + real, right + (real and episode.strict))

    def practised(self, question: str, before: int) -> list[tuple[int, Count]]:
        """The updates before `before` at which a question was asked, in order, each with its attempts; without the pre-pass."""
        return [(update, count) for update, count in self._until(question, before) if update != PREPASS]

    def total(self, question: str, before: int) -> Count:
        """All attempts before an update, the pre-pass included."""
        counts = [count for _, count in self._until(question, before)]
        return Count(sum(count.samples for count in counts), sum(count.right for count in counts))

    def weighted(self, question: str, before: int, half_life: float) -> tuple[float, float, int]:
        """(attempts, right ones, the last update that had any) before an update.

        The last attempts count whole, those `half_life` updates older half: what is known of a question fades only as more
        becomes known. (0, 0, PREPASS) for a question that was never attempted.
        """
        found = self._until(question, before)
        last = found[-1][0] if found else PREPASS
        weights = [0.5 ** ((last - update) / half_life) for update, _ in found]
        attempts = sum(weight * count.samples for weight, (_, count) in zip(weights, found, strict=True))
        return attempts, sum(weight * count.right for weight, (_, count) in zip(weights, found, strict=True)), last

    def _until(self, question: str, before: int) -> list[tuple[int, Count]]:
        return sorted((update, count) for update, count in self._counts.get(question, {}).items() if update < before)


def rates(
    questions: Sequence[Question],
    tries: Tries,
    before: int,
    alike: Callable[[Question], Hashable],
    half_life: float,
) -> dict[str, Rate]:
    """The rate of each question by id, from the attempts before an update.

    alike: what questions of similar difficulty have in common, such as their structure. A few attempts at a question say
    little, so the rate of what is alike is drawn towards that of all questions, and a question's rate towards that of what
    is alike (beta-binomial; Gelman et al., Bayesian Data Analysis, section 5.3). How strongly is told by how much questions
    differ (lib.tally.beta, without weights), and never less than by one attempt; where no difference shows, the prior is the
    uniform distribution.

    half_life: updates. A question's attempts weigh as `Tries.weighted` says. For what is alike they weigh less the older they
    are, so that a question that wasn't asked for long is moved by the fresh rollouts of others.
    """
    asked = [count for q in questions if (count := tries.total(q["id"], before)).samples]
    a, b = (tally.beta(*zip(*asked, strict=True)) if asked else None) or (1.0, 1.0)
    strength, mean = max(1.0, a + b), a / (a + b)
    seen = np.array([tries.weighted(q["id"], before, half_life) for q in questions], float).reshape(-1, 3)
    fresh = 0.5 ** ((before - 1 - seen[:, 2]) / half_life)
    kinds = [alike(q) for q in questions]
    sums: dict[Hashable, np.ndarray] = defaultdict(lambda: np.zeros(2))
    for kind, weight, counts in zip(kinds, fresh, seen[:, :2], strict=True):
        sums[kind] += weight * counts
    prior = np.array([(strength * mean + sums[kind][1]) / (strength + sums[kind][0]) for kind in kinds])
    right, wrong = strength * prior + seen[:, 1], strength * (1 - prior) + seen[:, 0] - seen[:, 1]
    tails = (special.betaincinv(right, wrong, p) for p in _TAILS)
    found = np.stack([right / (right + wrong), *tails, right + wrong], axis=1)
    return {q["id"]: Rate(*map(float, row)) for q, row in zip(questions, found, strict=True)}


_TAILS = ((1 - MASS) / 2, (1 + MASS) / 2)


def within(known: Mapping[str, Rate], low: float, high: float) -> dict[str, float]:
    """The probability that a rate lies from `low` to `high`, by question."""
    mean, worth = (np.array([getattr(rate, name) for rate in known.values()]) for name in ("mean", "worth"))
    below, above = (special.betainc(mean * worth, (1 - mean) * worth, edge) for edge in (low, high))
    return dict(zip(known, map(float, above - below), strict=True))
