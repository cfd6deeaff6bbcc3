"""The comparator without reinforcement: the untrained model's own right answers, taught to it as demonstrations.

The answers are sampled by the practice's own loop, which takes no step meanwhile; so they cost the same budget, and a fault
is never taken for a wrong answer. (Rejection sampling fine-tuning: Yuan et al. 2023, arXiv 2308.01825.)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer, ToolCall
from tinker_cookbook.renderers.base import Message
from tinker_cookbook.rl.train import train_step
from tinker_cookbook.rl.types import TrajectoryGroup
from tinker_cookbook.supervised.data import conversation_to_datum

from lib.agent import Question, World
from lib.episodes import Episode
from lib.settings import Settings
from lib.updates import Kept, Policy


async def no_step(groups: list[TrajectoryGroup]) -> list[tinker.Datum]:
    """The objective of a model that only answers."""
    return []


def lessons(
    episodes: Sequence[Episode], asked: dict[str, Question], world: World, renderer: Renderer
) -> list[tinker.Datum]:
    """The strictly right answers as data for cross entropy, in the order of the episodes' ids.

    asked: questions by id. What the model sampled has a weight, the same in all for each answer; a turn that was malformed is
    taught as the text that it was.
    """
    right = sorted((e for e in episodes if e.strict), key=lambda e: e.id)
    return [conversation_to_datum(_said(e, asked[e.question], world), renderer, max_length=None) for e in right]


def _said(episode: Episode, question: Question, world: World) -> list[Message]:
    """The conversation that an episode records, system prompt included."""
    opening = world.prompt(question)
    after = 1 + max(i for i, message in enumerate(episode.messages) if message["role"] == "user")
    return [*opening, *map(_message, episode.messages[after:])]


def _message(plain: dict[str, Any]) -> Message:
    """The inverse of `agent.plain_message`, of a well-formed message."""
    message: Message = {"role": plain["role"], "content": plain["content"]}
    if calls := [c for c in plain.get("tool_calls", ()) if c["name"] is not None]:
        message["tool_calls"] = [ToolCall(function=ToolCall.FunctionBody(**c)) for c in calls]
    return message


async def imitate(
    settings: Settings, seed: int, work: Path, data: Sequence[tinker.Datum], passes: int, steps: int
) -> Kept:
    """So many passes over the data, each of so many steps of cross entropy, from the base model and with practice's
    optimiser; returns what is kept in the end.

    Each pass has a seeded order of its own. Called again, it goes on from the last step that was kept. Raises ValueError where
    there are fewer data than steps.
    """
    if len(data) < steps:
        raise ValueError(f"{len(data)} right answers for {steps} steps: too few to learn from; raise `updates`")
    policy = await Policy.open(replace(settings, train=replace(settings.train, updates=passes * steps)), work)
    figures = list(policy.kept.figures)
    for number in range(policy.kept.update, passes * steps):
        await policy.keep(number, figures)
        batch = _batch(data, f"imitation {seed} {number // steps}", number % steps, steps)
        told: dict[str, Any] = {}
        await train_step(batch, policy.client, settings.train.learning_rate, 1, "cross_entropy", metrics=told)
        figures.append({"update": number, **told})
    await policy.keep(passes * steps, figures)
    return await policy.finish()


def _batch(data: Sequence[tinker.Datum], order: str, number: int, of: int) -> list[tinker.Datum]:
    """One of so many parts of the data, in the order that the seed `order` gives."""
    shuffled = random.Random(order).sample(list(data), len(data))
    return shuffled[len(data) * number // of : len(data) * (number + 1) // of]
