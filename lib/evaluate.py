"""Runs arms over question sets into episode files, and proves with two scripted agents that the path to a score is sound."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.completers import StopCondition, TinkerTokenCompleter, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.renderers.base import Message
from tinker_cookbook.rl.rollouts import do_single_rollout
from tqdm import tqdm

from lib import graph, loop, tally
from lib.agent import EnvironmentFault, Label, Question, QuestionGroup, World
from lib.backends.gauge import measured
from lib.backends.serving import copy_checkpoints, serving
from lib.backends.tokenizer import lock_tokenizer
from lib.episodes import Episode, Writer
from lib.faults import Answers, Patient, patiently
from lib.files import read_jsonl, write_json
from lib.graph import server
from lib.graph.query import CACHE, Reader
from lib.graph.world import DONE, CypherWorld, asks
from lib.settings import HUMAN, SETS, Settings, SettingsError, load

ROLLOUTS_AT_ONCE = 192  # more than a sampler's rows, for those that wait for the database; which has a limit of its own
SAMPLER_SEED = 0  # an arm's draws differ by its name, which is part of every rollout's key


def questions(settings: Settings, split: str) -> list[Question]:
    folder = settings.human_dir if split == HUMAN else settings.questions_dir
    return read_jsonl(folder / f"{split}.jsonl")


def asked_sets(settings: Settings) -> dict[str, list[Question]]:
    """The test's questions by set: the generated ones, and people's where the run has any."""
    people = questions(settings, HUMAN)
    return {split: questions(settings, split) for split in SETS} | ({HUMAN: people} if people else {})


def renderer_for(settings: Settings, model: Path | None = None) -> Renderer:
    """The renderer over the tokenizer of a model's folder (the base model's), safe to use from several threads."""
    return get_renderer(settings.agent.renderer, lock_tokenizer(str(model or settings.base_dir)))


@asynccontextmanager
async def world_for(settings: Settings, uri: str, timeout: float) -> AsyncIterator[tuple[World, Renderer]]:
    """The graph's world with its reader open."""
    renderer = renderer_for(settings)
    reader = Reader(uri, at_once=settings.agent.queries_at_once, timeout=timeout, cache=CACHE)
    try:
        yield CypherWorld(reader, renderer, graph.schema_text(settings.graph_dir), settings.agent), renderer
    finally:
        await reader.close()
        print(reader.report(), file=sys.stderr)  # depends on who came first, so it is in no file


async def rollouts(
    policy: Callable[[Question], TokenCompleter],
    asked: Sequence[Question],
    samples: int,
    label: Label,
    world: World,
    renderer: Renderer,
    settings: Settings,
    keep: Callable[[Episode], None],
    done: frozenset[str] = frozenset(),
    what: str = "",
    places: asyncio.Semaphore | None = None,
) -> None:
    """`samples` episodes of each question, handed to `keep`, but for those in `done`.

    places: how many rollouts go on at once, first come, first served; to be shared by calls that go on beside each other.

    Raises EnvironmentFault where the world or a service fails: nothing more is begun then, what has begun is played to its
    end and kept, and the next start goes on from there.
    """
    places = places or asyncio.Semaphore(ROLLOUTS_AT_ONCE)
    failed = False
    missing = [(q, s) for q in asked for s in range(samples) if label.episode_id(q, s) not in done]
    bar = tqdm(
        total=len(asked) * samples, initial=len(asked) * samples - len(missing), desc=what or label.arm, unit="episode"
    )

    async def one(question: Question, sample: int) -> None:
        nonlocal failed
        group = QuestionGroup(question, 1, world, renderer, settings.agent, label, keep, first=sample)
        try:
            async with places:
                if failed:
                    return
                [env] = await group.make_envs()
                trajectory = await do_single_rollout(policy(question), env)
            await group.compute_group_rewards([trajectory], [env])
        except BaseException:
            failed = True
            raise
        bar.update()

    try:
        await loop.ended(*(one(question, sample) for question, sample in missing))
    finally:
        bar.close()


def sampler(client: Any, settings: Settings, greedy: bool = False) -> TokenCompleter:
    temperature = 0.0 if greedy else settings.evaluate.temperature
    return TinkerTokenCompleter(client, max_tokens=settings.agent.max_tokens, temperature=temperature)


def evaluate(settings: Settings, arm: str) -> Path:
    """Write an arm's episodes over the evaluation sets: k samples a question, and one greedy.

    arm: "base", "control" or "trained-<seed>". Returns the episode file. Resumes where a killed run stopped.
    """
    if arm not in settings.arms:
        raise ValueError(f"arm {arm!r} is unknown; this run has {', '.join(settings.arms)}")
    work = settings.data / "work" / settings.run / f"evaluate-{arm}"
    if not settings.episodes(arm).exists():
        shutil.rmtree(work, ignore_errors=True)  # whoever removed an arm's episodes wants no answers of it either
    with (
        server.running(settings.graph_dir, settings.data) as uri,
        serving(settings, work, SAMPLER_SEED),
        measured(settings.timings_dir, work.name),
    ):
        loop.run(_evaluate(settings, arm, uri, work))
    shutil.rmtree(work, ignore_errors=True)
    return settings.episodes(arm)


async def _evaluate(settings: Settings, arm: str, uri: str, work: Path) -> None:
    faults = settings.train.faults
    client = await patiently(lambda _: arm_client(settings, arm, work), faults)
    with Answers(work / "answers.jsonl") as answers:
        patient = Patient(client, faults, answers)
        await ask_sets(settings, arm, lambda decode, _: sampler(patient, settings, greedy=decode == "greedy"), uri)


async def ask_sets(settings: Settings, arm: str, policy: Callable[[str, Renderer], TokenCompleter], uri: str) -> None:
    """Have a policy, which is told the decoding, answer all sets of the test into the arm's file of episodes."""
    places = asyncio.Semaphore(ROLLOUTS_AT_ONCE)
    async with world_for(settings, uri, settings.agent.evaluation_query_timeout) as (world, renderer):
        with Writer(settings.episodes(arm)) as writer:
            done = frozenset(writer.done)

            def part(split: str, asked: list[Question], decode: str, samples: int) -> Coroutine[Any, Any, None]:
                asks = policy(decode, renderer)
                label, what = label_of(settings, arm, decode), f"{arm}, {split}, {decode}"
                return rollouts(
                    lambda _: asks, asked, samples, label, world, renderer, settings, writer.write, done, what, places
                )

            await loop.ended(
                *(  # beside each other, or each would wait for the slowest of the one before
                    part(split, asked, decode, samples)
                    for decode, samples in (("sampled", settings.evaluate.samples), ("greedy", 1))
                    for split, asked in asked_sets(settings).items()
                )
            )
            writer.finish()


def label_of(settings: Settings, arm: str, decode: str = "sampled") -> Label:
    """Where the answers of an arm belong; its seed is that of its training, 0 for an arm that had none."""
    seed = int(arm.removeprefix("trained-")) if arm.startswith("trained-") else 0
    return Label(settings.run, arm, seed, "evaluate", decode)


async def arm_client(settings: Settings, arm: str, work: Path) -> tinker.SamplingClient:
    """The sampling client of an arm.

    control and trained take one route, so that the route itself can't be the difference: saved state, loaded into a
    fresh training session, weights saved for sampling. Only the control's state was never trained.
    """
    base = settings.base_model
    if arm == "base":
        return await tinker.ServiceClient().create_sampling_client_async(base_model=base)
    if arm == "control":
        fresh = await tinker.ServiceClient().create_lora_training_client_async(base, rank=settings.train.lora_rank)
        state = (await (await fresh.save_state_async("control")).result_async()).path
    else:
        trained = settings.train_dir(int(arm.removeprefix("trained-")))
        state = json.loads((trained / "checkpoint.json").read_text())["state"]
        [state] = copy_checkpoints(settings, trained / "checkpoint", [state], work)
    loaded = await tinker.ServiceClient().create_training_client_from_state_async(state)
    saved = await (await loaded.save_weights_for_sampler_async(arm)).result_async()
    return await tinker.ServiceClient().create_sampling_client_async(model_path=saved.path)


async def dev_counts(settings: Settings, uri: str) -> list[dict[str, int]]:
    """How many of the dev questions the base model had strictly right in `right` of `samples` draws at the set temperature;
    a pilot, by which the plan says what the test can see. To be called while a backend is served."""
    kept: list[Episode] = []
    base = await tinker.ServiceClient().create_sampling_client_async(base_model=settings.base_model)
    client = Patient(base, settings.train.faults)
    async with world_for(settings, uri, settings.agent.query_timeout) as (world, renderer):
        policy = sampler(client, settings)
        await rollouts(
            lambda _: policy,
            questions(settings, "dev"),
            settings.train.dev_samples,
            Label(settings.run, "base", 0, "dev"),
            world,
            renderer,
            settings,
            kept.append,
            what="base, dev",
        )
    found = Counter(tally.counts(kept).values())
    return [{**one._asdict(), "questions": questions} for one, questions in sorted(found.items())]


class Scripted(TokenCompleter):
    """An agent that says given messages in turn; one rollout each."""

    def __init__(self, renderer: Renderer, opening: list[Message], said: list[Message]):
        self._actions = [spoken(renderer, opening, message) for message in said]

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        tokens = self._actions.pop(0)
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[0.0] * len(tokens), stop_reason="stop")


def spoken(renderer: Renderer, opening: list[Message], message: Message) -> list[int]:
    """The tokens that a model would have to sample to say `message` after `opening`."""
    prompt = renderer.build_generation_prompt(opening).to_ints()
    rest = renderer.build_generation_prompt([*opening, message, {"role": "user", "content": ""}]).to_ints()[
        len(prompt) :
    ]
    stops = {s for s in renderer.get_stop_sequences() if isinstance(s, int)}
    return rest[: next(i for i, token in enumerate(rest) if token in stops) + 1]


def validate(settings: Settings) -> dict[str, Any]:
    """The oracle (replays the reference query) must score 1.0 and the null agent 0.0, through the whole path.

    Writes data/runs/<run>/validate.json, {set: {oracle, null}}; for people's questions with what `unanswerable` finds among
    them, and without `oracle` where it can replay none. Raises AssertionError naming the set and agent that fail.
    """
    with server.running(settings.graph_dir, settings.data) as uri:
        rates = loop.run(_validate(settings, uri))
    write_json(settings.run_dir / "validate.json", rates)
    for split, by_agent in rates.items():
        for agent, expected in (("oracle", 1.0), ("null", 0.0)):
            if by_agent.get(agent, expected) != expected:
                raise AssertionError(
                    f"{agent} agent scores {by_agent[agent]:.4f} on {split}, not {expected}: the path from question "
                    "to score is broken, and no arm's figure on this set means anything"
                )
    return rates


async def _validate(settings: Settings, uri: str) -> dict[str, dict[str, Any]]:
    async with world_for(settings, uri, settings.agent.evaluation_query_timeout) as (world, renderer):

        async def rate(agent: str, split: str, asked: Sequence[Question]) -> dict[str, float]:
            kept: list[Episode] = []

            def script(question: Question) -> TokenCompleter:
                said = [asks(question["query"]), DONE] if agent == "oracle" else [DONE]
                return Scripted(renderer, world.prompt(question), said)

            label = Label(settings.run, agent, 0, "evaluate", "greedy")
            what = f"{agent}, {split}"
            await rollouts(script, asked, 1, label, world, renderer, settings, kept.append, what=what)
            return {agent: sum(e.reward for e in kept) / len(kept)} if kept else {}

        rates: dict[str, dict[str, Any]] = {}
        for split, asked in ({"dev": questions(settings, "dev")} | asked_sets(settings)).items():
            unfit = unanswerable(asked, world, renderer, settings) if split == HUMAN else {}
            never = {*unfit.get("question_too_long", ()), *unfit.get("no_query", ())}
            replayed = [question for question in asked if question["id"] not in never]
            rates[split] = unfit | await rate("oracle", split, replayed) | await rate("null", split, asked)
    return rates


def unanswerable(
    asked: Sequence[Question], world: World, renderer: Renderer, settings: Settings
) -> dict[str, list[str]]:
    """People's questions, by id, that no agent can answer within the settings, or that the oracle can't replay.

    question_too_long: the prompt leaves no room for a turn within agent.max_trajectory_tokens, so that every episode ends
    before its first one. answer_too_long: the reference query is longer than a turn's agent.max_tokens. no_query: no Cypher
    is known that returns the reference rows. An episode on one of them counts as any other; the report says how many.
    """
    agent = settings.agent
    found: dict[str, list[str]] = {"question_too_long": [], "answer_too_long": [], "no_query": []}
    for question in asked:
        opening, query = world.prompt(question), question["query"]
        if renderer.build_generation_prompt(opening).length + agent.max_tokens > agent.max_trajectory_tokens:
            found["question_too_long"].append(question["id"])
        if query is None:
            found["no_query"].append(question["id"])
        elif len(spoken(renderer, opening, asks(query))) > agent.max_tokens:
            found["answer_too_long"].append(question["id"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["validate"], help="validate: oracle and null agents over every evaluation set")
    parser.parse_args()
    try:
        settings = load()
        rates = validate(settings)
    except (AssertionError, SettingsError, server.ServerError, EnvironmentFault, OSError, ValueError) as e:
        sys.exit(f"validate: {e}")
    print(json.dumps(rates, indent=1))
    if long := len(rates.get(HUMAN, {}).get("question_too_long", [])):
        print(
            f"{long} of people's questions leave no room for an answer within agent.max_trajectory_tokens = "
            f"{settings.agent.max_trajectory_tokens}, so every arm will be wrong on them: raise it, and model.context with it",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
