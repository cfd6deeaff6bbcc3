"""Who looks at an update before the next one: figures of all that was rolled out for it, and limits that warn,
make a run go back to its last good state, or stop it.

A killed run goes on as it was: what a limit remembers of earlier updates stands in their figures, which the loop keeps.

What rollouts show of a collapse was done by the steps before them, so a run goes back to the last state whose own rollouts set
off no limit, not even one that warns; before there is one, to the base model. The limits then forget the updates from that
state on (`standing`): their steps are undone, and their figures would set off the same limit at once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

from lib.files import write_json
from lib.practice.objectives import Objective
from lib.updates import GoBack, Kept, Update

Figures = dict[str, Any]
Rule = Callable[
    [Sequence[Figures], float, int], str | None
]  # (figures of all updates that stand, limit, window) -> a reason


class Stopped(RuntimeError):
    """A guard stopped the run; the message says why, which state is kept, and how to go on."""


@dataclass(frozen=True)
class Limit:
    """A rule's threshold, over so many updates, and what happens beyond it."""

    rule: Rule
    limit: float
    window: int = 5
    action: Literal["warn", "back", "stop"] = "warn"


class Watch:
    """A guard over all limits. It adds what it measured to the update's figures, as `measured` names them.

    A warning, or why the run goes back, is kept with the update's figures by the loop. A stop is raised before the update's
    state is kept, and noted in the file STOPPED of the run's work folder. Of several limits, one that stops comes before one
    that goes back, and that before one that warns.
    """

    STOPPED = "stopped.json"

    def __init__(self, work: Path, objective: Objective, limits: Sequence[Limit]):
        """work: the folder of `lib.updates.run`, where the figures of earlier updates are."""
        self.work, self.objective, self.limits = work, objective, limits
        self.goes_back = any(limit.action == "back" for limit in limits)  # `lib.updates.run` asks for it
        self._figures: dict[int, Figures] | None = None  # by update

    def __call__(self, update: Update) -> str | None:
        """All reasons to warn, in one text; None where there are none. Raises GoBack and Stopped."""
        if self._figures is None:
            self._figures = {one["update"]: one for one in Kept.read(self.work).figures}
        update.figures.update(measured(update, self.objective))
        self._figures[update.number] = update.figures  # not a copy: the loop adds where the run went back to
        past = standing(self._figures)
        found = [(limit.action, limit.rule(past, limit.limit, limit.window)) for limit in self.limits]
        reasons = "; ".join(reason for _, reason in found if reason)
        actions = {action for action, reason in found if reason}
        if "stop" in actions:
            self._stop(update.number, reasons)
        if "back" in actions:
            raise GoBack(reasons)
        return reasons or None

    def _stop(self, number: int, reason: str) -> None:
        kept = Kept.read(self.work)
        write_json(
            self.work / self.STOPPED, {"update": number, "reason": reason, "kept": kept.update, "state": kept.state}
        )
        raise Stopped(f"update {number}: {reason}. {kept.way_on()}")


def standing(figures: Mapping[int, Figures]) -> list[Figures]:
    """Figures of the updates whose steps weren't undone: of those before `went_back_to`, and after the return.

    figures: by update, in their order.
    """
    numbers: list[int] = []
    for number, one in figures.items():
        numbers.append(number)
        if "went_back_to" in one:
            numbers = [earlier for earlier in numbers if earlier < one["went_back_to"]]
    return [figures[number] for number in numbers]


def measured(update: Update, objective: Objective) -> Figures:
    """Figures of an update's rollouts, those of replaced groups and without signal included.

    watch/entropy: minus the mean log-probability of sampled tokens, an estimate in nats a token.
    watch/tokens: sampled a rollout.
    watch/same: share of rollouts that say, token for token, what a rollout of another question says.
    watch/strict, watch/worth: means over rollouts.
    watch/signal, watch/all_right, watch/none_right: shares of groups.
    watch/agreement: correlation of worth and strict score; None where one of them never varies.
    watch/penalties: size of what penalties are to the advantages, by that of the strict score; None where that is 0.
    watch/k3: of an objective with a base.
    """
    groups = [one.rollouts for one in update.rolled if one.rollouts.trajectories_G]
    rollouts = [rollout for group in groups for rollout in group.trajectories_G]
    logprobs = [p for rollout in rollouts for turn in rollout.transitions for p in turn.ac.logprobs]
    strict = [[m["strict"] for m in group.metrics_G] for group in groups]
    worths = [objective.worths(group) for group in groups]
    all_strict, all_worths = (list(itertools.chain.from_iterable(found)) for found in (strict, worths))
    correctness, penalties = _centred(strict), _centred([objective.penalties(group) for group in groups])
    return {
        "watch/entropy": -math.fsum(logprobs) / max(1, len(logprobs)),
        "watch/tokens": len(logprobs) / max(1, len(rollouts)),
        "watch/same": _same(groups),
        "watch/strict": _mean(all_strict),
        "watch/worth": _mean(all_worths),
        "watch/signal": _mean([float(objective.mixed(group)) for group in groups]),
        "watch/all_right": _mean([float(min(found) == 1) for found in strict]),
        "watch/none_right": _mean([float(max(found) == 0) for found in strict]),
        "watch/agreement": _correlation(all_worths, all_strict),
        "watch/penalties": penalties / correctness if correctness else None,
        **{f"watch/{name}": value for name, value in objective.figures.items()},
    }


# ------------------------------------------------------------ rules


def entropy(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Collapse: the entropy is less than `limit` times what it was over the first updates."""
    return _fallen(past, "entropy", limit, window)


def shortening(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Collapse: a rollout has less than `limit` times the tokens that it had over the first updates."""
    return _fallen(past, "tokens", limit, window)


def lengthening(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Collapse: a rollout has more than `limit` times the tokens that it had over the first updates."""
    first, last = _first(past, "tokens", window), _last(past, "tokens", window)
    if first is None or last is None or last <= limit * first:
        return None
    return f"watch/tokens is {last:.3g}, more than {limit:g} times the {first:.3g} of the first {window} updates"


def repeating(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Collapse: more than this share of the rollouts say what is said to another question as well."""
    return _above(past, "same", limit, window)


def thinking_shorter(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """A rollout has less than `limit` times the tokens of the updates just before, and no more answers are right."""
    earlier = past[:-window]
    was, tokens = _last(earlier, "tokens", window), _last(past, "tokens", window)
    knew, right = _last(earlier, "strict", window), _last(past, "strict", window)
    if was is None or tokens is None or knew is None or right is None or tokens >= limit * was or right > knew:
        return None
    return (
        f"watch/tokens fell from {was:.3g} to {tokens:.3g} over {window} updates, to less than {limit:g} times, and "
        f"watch/strict went from {knew:.3f} to {right:.3f}"
    )


def all_right(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """More than this share of the groups are right throughout: what is practised has become too easy."""
    return _above(past, "all_right", limit, window)


def penalised(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Penalties are more than `limit` times what correctness is to the advantages."""
    return _above(past, "penalties", limit, window)


def disagreeing(past: Sequence[Figures], limit: float, window: int) -> str | None:
    """Worth and strict score correlate by less than `limit`: something else than a right answer is rewarded."""
    last = _last(past, "agreement", window)
    if last is None or last >= limit:
        return None
    return f"watch/agreement is {last:.3f} over the last {window} updates, less than {limit:g}"


def _fallen(past: Sequence[Figures], name: str, limit: float, window: int) -> str | None:
    first, last = _first(past, name, window), _last(past, name, window)
    if first is None or last is None or last >= limit * first:
        return None
    return f"watch/{name} is {last:.3g}, less than {limit:g} times the {first:.3g} of the first {window} updates"


def _above(past: Sequence[Figures], name: str, limit: float, window: int) -> str | None:
    last = _last(past, name, window)
    if last is None or last <= limit:
        return None
    return f"watch/{name} is {last:.3f} over the last {window} updates, more than {limit:g}"


def _first(past: Sequence[Figures], name: str, window: int) -> float | None:
    """A figure's mean over the first updates, once that many others have followed."""
    return _last(past[:window], name, window) if len(past) >= 2 * window else None


def _last(past: Sequence[Figures], name: str, window: int) -> float | None:
    """A figure's mean over the last updates that have it, of which there must be so many."""
    values = [one[f"watch/{name}"] for one in past[-window:]]
    told = [value for value in values if value is not None]
    return _mean(told) if len(values) == window and told else None


# ------------------------------------------------------------ figures


def _same(groups: Sequence[TrajectoryGroup]) -> float:
    said = [[_said(rollout) for rollout in group.trajectories_G] for group in groups]
    questions = Counter(text for group in said for text in set(group))
    return _mean([float(questions[text] > 1) for group in said for text in group])


def _said(rollout: Trajectory) -> tuple[int, ...]:
    return tuple(token for turn in rollout.transitions for token in turn.ac.tokens)


def _centred(groups: Sequence[Sequence[float]]) -> float:
    """Mean size of the values' distances from their groups' means."""
    return _mean([abs(value - _mean(group)) for group in groups for value in group])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(1, len(values))


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    return float(np.corrcoef(a, b)[0, 1]) if len(set(a)) > 1 and len(set(b)) > 1 else None
