"""The agent: one environment, over the cookbook's tool use, that training and evaluation share so that they can't drift apart.

It knows questions, tools and verdicts, not Cypher: what the tools do and when an answer is right comes from a `World`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import tinker
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.renderers.base import Message, format_content_as_string
from tinker_cookbook.rl.message_env import EnvFromMessageEnv
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    Metrics,
    StepResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
)
from tinker_cookbook.tool_use import AgentToolMessageEnv, Tool

from lib.backends import rollout_key
from lib.episodes import ROWS_KEPT, Episode, outcome
from lib.reward import Score, score
from lib.settings import Agent

Question = dict[str, Any]


class EnvironmentFault(RuntimeError):
    """Something outside the model's control failed (a database that is gone, say): the rollout must not be scored."""


@dataclass
class Attempt:
    """What one rollout did through its tools: the calls in order, and a fault if the world failed it."""

    tools: list[Tool] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)  # {query, shown, error}
    fault: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What was scored (the query, its rows) and how."""

    query: str | None
    rows: list[list[Any]]
    row_count: int
    digest: str | None
    score: Score


class World(Protocol):
    """The seam between the agent and what it acts in; a graph database is the first one."""

    def prompt(self, question: Question) -> list[Message]:
        """The conversation's opening: system prompt and question."""
        ...

    def begin(self) -> Attempt:
        """A fresh attempt with its own tools."""
        ...

    async def verdict(self, question: Question, attempt: Attempt) -> Verdict:
        """Score an attempt, however it ended. Raises EnvironmentFault where that isn't possible."""
        ...


@dataclass(frozen=True)
class Label:
    """Where a group of rollouts belongs; becomes part of each episode and of its id."""

    run: str
    arm: str
    seed: int
    phase: str  # train, dev or evaluate
    decode: str = "sampled"  # or greedy
    update: int | None = None

    def episode_id(self, question: Question, sample: int) -> str:
        when = f"u{self.update:04d}/" if self.update is not None else ""
        return f"{self.arm}/{self.phase}/{when}{self.decode}/{question['id']}/{sample}"


class Rollout(EnvFromMessageEnv):
    """One rollout's environment. It ends the rollout with EnvironmentFault where the world, not the model, failed."""

    def __init__(
        self, renderer: Renderer, messages: list[Message], attempt: Attempt, settings: Agent, key: str, sample: int
    ):
        conversation = AgentToolMessageEnv(
            tools=attempt.tools,
            initial_messages=messages,
            max_turns=settings.max_turns,
            reward_fn=_no_step_reward,
            failed_parse_reward=0.0,
            tool_execution="sequential",
        )
        super().__init__(
            renderer,
            conversation,
            failed_parse_reward=0.0,
            context_overflow_reward=0.0,
            max_trajectory_tokens=settings.max_trajectory_tokens,
            max_generation_tokens=settings.max_tokens,
        )
        self.attempt = attempt
        self.conversation = conversation
        self.key, self.sample = key, sample
        self.turns, self.tokens = 0, {"prompt": 0, "sampled": 0}  # so far: a rollout that is lost has no trajectory
        self._observed = 0
        self.told: dict[str, int] | None = None  # tokens, where who answers counts them in tokens of its own

    async def initial_observation(self):
        # Each rollout is a task of its own, so the key reaches this rollout's sampling calls and no other's.
        rollout_key.set(self.key)
        playing.set(self)
        began = await super().initial_observation()
        if isinstance(began, tuple):
            self._observed = began[0].length
        return began

    async def _render_in_thread(self, messages: list[Message], **kwargs: Any) -> tinker.ModelInput:
        # Short conversations and a memoised tokenizer: a thread hop costs more than the rendering.
        return self.renderer.build_generation_prompt(messages, **kwargs)

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        self.turns += 1
        self.tokens["prompt"] += self._observed
        self.tokens["sampled"] += len(action)
        result = await super().step(action, extra=extra)
        if self.attempt.fault is not None:
            raise EnvironmentFault(self.attempt.fault)
        self._observed = result.next_observation.length
        return result


# The rollout that the current task is playing, for who answers in messages: a sampler needs only the tokens that it is given.
playing: ContextVar[Rollout | None] = ContextVar("playing", default=None)


async def _no_step_reward(history: list[Message]) -> tuple[float, dict[str, float]]:
    """The cookbook grades a step only where the episode ends well-formed; `QuestionGroup` grades every one instead."""
    return 0.0, {}


class QuestionGroup(EnvGroupBuilder):
    """`size` rollouts of one question; graded when they have ended, whatever ended them, and kept as episodes.

    The reward is given through `compute_group_rewards` and not by the environment's steps, because the cookbook's
    `AgentToolMessageEnv` skips its grader after a malformed call, a cut response or an overflowing context.
    """

    def __init__(
        self,
        question: Question,
        size: int,
        world: World,
        renderer: Renderer,
        settings: Agent,
        label: Label,
        keep: Callable[[Episode], None] | None = None,
        first: int = 0,
    ):
        """first: number of the first sample; every number has draws of its own."""
        self.question, self.size, self.world, self.renderer = question, size, world, renderer
        self.settings, self.label, self.first = settings, label, first
        self.keep = keep or (lambda _: None)

    def more(self, size: int) -> QuestionGroup:
        """So many further rollouts of the same question."""
        return QuestionGroup(
            self.question, size, self.world, self.renderer, self.settings, self.label, self.keep, self.first + self.size
        )

    def further(self, made: TrajectoryGroup) -> int:
        """None, whatever was made: all rollouts are asked for at once."""
        return 0

    async def make_envs(self) -> Sequence[Env]:
        return [
            Rollout(
                self.renderer,
                self.world.prompt(self.question),
                self.world.begin(),
                self.settings,
                key=f"{self.label.run}/{self.label.seed}/{self.label.episode_id(self.question, sample)}",
                sample=sample,
            )
            for sample in range(self.first, self.first + self.size)
        ]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        episodes = await asyncio.gather(
            *[self._graded(trajectory, env) for trajectory, env in zip(trajectory_group, env_group, strict=True)]
        )
        for episode in episodes:
            self.keep(episode)
        return [
            (
                e.reward,
                {"strict": float(e.strict), "lenient": float(e.lenient), "f1": e.f1, "calls": float(len(e.calls))},
            )
            for e in episodes
        ]

    def logging_tags(self) -> list[str]:
        return [f"hops{self.question['hops']}"]

    def lost(self, env: Env, fault: str) -> None:
        """Keep a rollout that something outside of the model ended: as far as it came, and without a score."""
        assert isinstance(env, Rollout)
        nothing = Verdict(None, [], 0, None, score(None, self.question["rows"]))
        self.keep(self._episode(env, [], nothing, "fault", fault))

    async def _graded(self, trajectory: Trajectory, env: Env) -> Episode:
        assert isinstance(env, Rollout)
        verdict = await self.world.verdict(self.question, env.attempt)
        return self._episode(env, trajectory.transitions, verdict, str(trajectory.stop_reason or "unknown"), None)

    def _episode(
        self, env: Rollout, turns: list[Transition], verdict: Verdict, stop: str, fault: str | None
    ) -> Episode:
        scored = verdict.score
        return Episode(
            id=self.label.episode_id(self.question, env.sample),
            run=self.label.run,
            arm=self.label.arm,
            seed=self.label.seed,
            phase=self.label.phase,
            update=self.label.update,
            set=self.question["split"],
            decode=self.label.decode,
            question=self.question["id"],
            structure=self.question["structure"],
            hops=self.question["hops"],
            sample=env.sample,
            messages=self._messages(env, turns),
            calls=env.attempt.calls,
            query=verdict.query,
            rows=verdict.rows[:ROWS_KEPT],
            row_count=verdict.row_count,
            digest=verdict.digest,
            strict=scored.strict,
            lenient=scored.lenient,
            lenient_literal=scored.lenient_literal,
            f1=scored.f1,
            reward=scored.reward,
            extra_columns=scored.extra_columns,
            outcome=outcome(fault=fault, strict=scored.strict, lenient=scored.lenient, query=verdict.query, stop=stop),
            stop=stop,
            turns=len(turns) or env.turns,
            tokens=env.told or env.tokens,
            fault=fault,
        )

    def _messages(self, env: Rollout, turns: list[Transition]) -> list[dict[str, Any]]:
        """The conversation from the question on (the system prompt is one for a run, in system_prompt.txt); a response
        that never became a message, cut or malformed, is kept as its text."""
        messages = [plain_message(m) for m in env.conversation.history if m["role"] != "system"]
        said = sum(m["role"] == "assistant" for m in messages)
        for turn in turns[said:]:
            text = self.renderer.tokenizer.decode(turn.ac.tokens)
            messages.append({"role": "assistant", "content": text})
        return messages


def plain_message(message: Message) -> dict[str, Any]:
    """A renderer's message as JSON-able data."""
    plain: dict[str, Any] = {"role": message["role"], "content": format_content_as_string(message["content"])}
    calls = [{"name": c.function.name, "arguments": c.function.arguments} for c in message.get("tool_calls") or []] + [
        {"name": None, "arguments": c.raw_text, "error": c.error} for c in message.get("unparsed_tool_calls") or []
    ]
    if calls:
        plain["tool_calls"] = calls
    return plain
