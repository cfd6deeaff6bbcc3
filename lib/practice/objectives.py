"""What an update's rewards teach: objectives for `lib.updates.run` that differ from its own at one on-policy step.

All of it is about training. Evaluation scores correctness alone and knows nothing of this file.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import tinker
import torch
from tinker_cookbook.rl.data_processing import assemble_training_data
from tinker_cookbook.rl.types import Env, Metrics, StopReason, Trajectory, TrajectoryGroup

from lib.agent import QuestionGroup, Rollout
from lib.faults import HalfAnswer, patiently
from lib.loop import ended
from lib.settings import Faults, too_dear

TRUNCATED = (StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)  # cut off by a limit on tokens, not by the model
EPSILON = 1e-6  # added to a standard deviation

Scored = Callable[
    [tinker.ModelInput], Awaitable[list[float | None]]
]  # a text's log-probabilities, None for its first token


class Counted(QuestionGroup):
    """A question's group whose metrics also say how many of a rollout's calls were `repeated`, and how many `failed`.

    Repeated is a query that the rollout ran before, to the letter; failed one that ended in an error, or a message that
    could not be parsed.
    """

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        graded = await super().compute_group_rewards(trajectory_group, env_group)
        return [
            (reward, metrics | _calls(trajectory, env))
            for (reward, metrics), trajectory, env in zip(graded, trajectory_group, env_group, strict=True)
        ]

    def more(self, size: int) -> Counted:
        batch = copy.copy(self)
        batch.first, batch.size = self.first + self.size, size
        return batch


def _calls(trajectory: Trajectory, env: Env) -> Metrics:
    assert isinstance(env, Rollout)
    calls = env.attempt.calls
    unparsed = sum(turn.metrics.get("parse_error", 0.0) for turn in trajectory.transitions)
    return {
        "repeated": float(len(calls) - len({call["query"] for call in calls})),
        "failed": sum(call["error"] is not None for call in calls) + unparsed,
    }


@dataclass(frozen=True, kw_only=True)
class Objective:
    """An objective by its options; with none set it gives what `lib.updates.centred` gives, to the byte.

    credit: what a rollout is worth. A right answer is worth 1; a wrong one as `lib.reward` says (`reward`: its F1, at most
    lib.settings.FORM), nothing (`strict`), or `most` times its F1 or its lenient score.
    repeated, failed, cap: taken off a rollout for each such call (`Counted`), and at most. Penalties need a gap between right
    and wrong that is larger than the cap, so that no right answer is worth less than a wrong one.
    masked: stop reasons whose rollouts are in no mean and aren't trained, such as TRUNCATED. What a fault ended is never here.
    shuffled: a seed; worths change places within each group, so that as much is trained, and nothing said about the answers.
    spread: advantages are divided by the group's standard deviation (GRPO, arXiv:2402.03300), not by its mean alone.
    constant: the sum over all tokens is divided by it (Dr. GRPO, arXiv:2503.20783). Tinker's losses are such sums, so 1 is
    the default; another value changes an update only by what clipping and Adam's epsilon make of the gradient's size.
    kl: weight of the k3 distance from the base (see `pull`), which constant groups take part in. base: scores texts by it.

    Raises ValueError for options that don't go together.
    """

    credit: Literal["reward", "strict", "f1", "lenient"] = "reward"
    most: float = 0.5
    repeated: float = 0.0
    failed: float = 0.0
    cap: float = 0.0
    masked: tuple[str, ...] = ()
    shuffled: int | None = None
    spread: bool = False
    constant: float = 1.0
    kl: float = 0.0
    base: Scored | None = None
    figures: dict[str, float] = field(default_factory=dict, init=False)  # of the last call, for guards

    def __post_init__(self) -> None:
        if not 0 <= self.most < 1:
            raise ValueError(f"most = {self.most:g}: a wrong answer must be worth less than a right one, and 0 or more")
        if self.cap < 0 or too_dear(self.cap, self.credit, self.most):
            raise ValueError(
                f"cap = {self.cap:g}: with credit {self.credit!r} and most = {self.most:g} a right answer could be worth no more than "
                "a wrong one; lower it"
            )
        if self.constant <= 0:
            raise ValueError(f"constant = {self.constant:g} must be more than 0")
        if self.kl and self.base is None:
            raise ValueError(f"kl = {self.kl:g} needs a base: patient_logprobs of a frozen client of the base model")

    async def __call__(self, groups: list[TrajectoryGroup]) -> list[tinker.Datum]:
        """As `lib.updates.Objective`. Raises EnvironmentFault where the base can't be asked."""
        kept = [one for group in groups if (one := self.kept(group)).trajectories_G]
        if not self.kl:
            kept = list(filter(self.mixed, kept)) or kept[:1]  # as the cookbook: see lib.updates.centred
        data, _ = assemble_training_data(kept, [self._advantages(group) for group in kept])
        if self.base is not None:
            self.figures["k3"] = await pull(data, self.base, self.kl / self.constant)
        return data

    def kept(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """A group without its masked rollouts."""
        stay = [i for i, trajectory in enumerate(group.trajectories_G) if trajectory.stop_reason not in self.masked]
        if len(stay) == len(group.trajectories_G):
            return group
        return replace(
            group,
            trajectories_G=[group.trajectories_G[i] for i in stay],
            final_rewards_G=[group.final_rewards_G[i] for i in stay],
            metrics_G=[group.metrics_G[i] for i in stay],
        )

    def worths(self, group: TrajectoryGroup) -> list[float]:
        """What each rollout of a group is worth."""
        credits = map(self._credit, group.get_total_rewards(), group.metrics_G)
        return [credit - penalty for credit, penalty in zip(credits, self.penalties(group), strict=True)]

    def penalties(self, group: TrajectoryGroup) -> list[float]:
        """What is taken off each rollout, from 0 to `cap`. Raises KeyError for a group that isn't `Counted`."""
        if not self.cap:
            return [0.0] * len(group.metrics_G)
        return [min(self.cap, self.repeated * m["repeated"] + self.failed * m["failed"]) for m in group.metrics_G]

    def mixed(self, group: TrajectoryGroup) -> bool:
        """Whether the rollouts that count differ in worth, so that the group teaches something."""
        return len(set(self.worths(self.kept(group)))) > 1

    def _credit(self, reward: float, metrics: Metrics) -> float:
        if self.credit == "reward":
            return reward
        if metrics["strict"]:
            return 1.0
        return 0.0 if self.credit == "strict" else self.most * metrics[self.credit]

    def _advantages(self, group: TrajectoryGroup) -> torch.Tensor:
        worths = torch.tensor(self.worths(group) if self.shuffled is None else self._shuffled(group))
        advantages = worths - worths.mean()
        if self.spread and self.mixed(group):  # of a constant group it would enlarge what rounding left
            advantages = advantages / (worths.std(correction=0) + EPSILON)
        return advantages / self.constant

    def _shuffled(self, group: TrajectoryGroup) -> list[float]:
        """Drawn by what the group said, since that is another in each update, and the same where an update is made again."""
        said = [turn.ac.tokens for trajectory in group.trajectories_G for turn in trajectory.transitions]
        worths = self.worths(group)
        random.Random(f"shuffled {self.shuffled} {said}").shuffle(worths)
        return worths


def k3(policy: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Schulman's estimator of a sampled token's KL(policy || base), from the log-probabilities of both; never below 0.

    http://joschu.net/blog/kl-approx.html
    """
    ratio = base - policy
    return ratio.expm1() - ratio


async def pull(data: Sequence[tinker.Datum], base: Scored, weight: float) -> float:
    """Add to the advantages, at each sampled token, what makes their gradient that of the loss plus `weight` times k3.

    k3's gradient is (1 - base / policy) that of the log-probability, in GRPO as here; in expectation it is the gradient of
    KL(base || policy) at each token (Tang and Munos, arXiv:2506.09477). Returns the mean of k3 over sampled tokens.
    """
    texts = [one.model_input.append_int(int(one.loss_fn_inputs["target_tokens"].data[-1])) for one in data]
    scored = await ended(*map(base, texts))
    distances = []
    for one, logprobs in zip(data, scored, strict=True):
        inputs = one.loss_fn_inputs
        sampled = inputs["mask"].to_torch() > 0
        policy, reference = inputs["logprobs"].to_torch(), torch.tensor(logprobs[1:])
        pulled = torch.where(sampled, weight * (reference - policy).expm1(), 0.0)
        inputs["advantages"] = tinker.TensorData.from_torch(inputs["advantages"].to_torch() + pulled)
        distances.append(k3(policy, reference)[sampled])
    return float(torch.cat(distances).mean()) if distances else 0.0


def patient_logprobs(client: Any, faults: Faults) -> Scored:
    """A sampling client's compute_logprobs, asked as often as the settings allow; raises EnvironmentFault after that."""

    async def scored(text: tinker.ModelInput) -> list[float | None]:
        answer: list[float | None] = await client.compute_logprobs_async(text)
        if len(answer) != text.length or not all(one is not None and math.isfinite(one) for one in answer[1:]):
            raise HalfAnswer(f"log-probabilities of {text.length} tokens asked for, {len(answer)} given, or no numbers")
        return answer

    return lambda text: patiently(lambda _: scored(text), faults)
