"""How often each question is answered, from few attempts and over a run: what the choice of questions starts from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from lib.agent import Question
from lib.episodes import Episode
from lib.tally import Count

PREPASS = -1  # the update at which the base model's attempts before a run are noted


class Rate(NamedTuple):
    """What is known of a question's true rate: the posterior's mean, and a central interval of MASS of it."""

    mean: float
    low: float
    high: float


class Tries:
    """How often questions were asked and answered, update by update; the order in which episodes are noted doesn't matter.

    What is read for an update are the tries before it, so a run that goes on finds in its episodes what it had in memory:

        tries = Tries()
        tries.note(read(prepass), PREPASS)
        tries.note(read(out / "episodes.jsonl"))   # of a run that goes on
        keep = lambda episode: (writer.write(episode), tries.note([episode]))
    """

    def note(self, episodes: Iterable[Episode], update: int | None = None) -> None:
        """Add episodes, at their own update or at `update`. An episode that a fault ended counts as asked and not as an
        attempt. ValueError for an episode without an update where none is given."""
        raise NotImplementedError

    def asked(self, question: str, before: int) -> int | None:
        """The last update before `before` at which it was practised; None: never. The pre-pass is no practice."""
        raise NotImplementedError

    def last(self, question: str, before: int) -> Count | None:
        """The attempts at that update; None: never practised."""
        raise NotImplementedError

    def total(self, question: str, before: int) -> Count:
        """All attempts before an update, the pre-pass included."""
        raise NotImplementedError


def rates(
    questions: Iterable[Question],
    tries: Tries,
    before: int,
    alike: Callable[[Question], Hashable],
    half_life: float,
) -> Mapping[str, Rate]:
    """The rate of each question by id, from all attempts before an update; those `half_life` updates old count half."""
    raise NotImplementedError
