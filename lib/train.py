"""Reinforcement learning from executed queries: what the loop in lib/updates.py practises, looks at and leaves behind."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer
from tqdm import tqdm

from lib import headroom, loop, plan, trialled, updates
from lib.agent import Label, World
from lib.backends.gauge import measured
from lib.backends.serving import copy_checkpoints, serving
from lib.episodes import Episode, Writer, read
from lib.evaluate import arm_client, questions, rollouts, sampler, world_for
from lib.faults import Answers, Patient, patiently
from lib.files import read_jsonl, write_bytes, write_json, write_jsonl, write_text
from lib.graph import server
from lib.practice import building
from lib.practice.rates import PREPASS, Tries
from lib.settings import Alike, Prepass, Settings
from lib.updates import TEMPERATURE, Guard, Kept, Update


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """One run of training from the base model; returns the checkpoint's paths.

    Writes data/runs/<run>/train/seed-<seed>: episodes.jsonl (every rollout), dev.jsonl (dev questions every few updates;
    a curve, which chooses nothing), updates.jsonl (a line an update), plan.sha256, checkpoint.json, checkpoint/,
    interruptions.jsonl where there were any, and prepass.jsonl where the choice of questions needs one. A killed run goes on from the last state that was kept, one update back at
    most; episodes of later updates are played again from the answers that were kept. A finished one is left as it is.

    Raises headroom.NoHeadroom before the first update where the base model leaves less to gain than test.least_headroom,
    and what updates.run raises.
    """
    out = settings.train_dir(seed)
    work = settings.data / "work" / settings.run / f"train-seed-{seed}"
    finished = (out / "updates.jsonl").exists()  # the last file that a run writes
    if not finished:
        trialled.must_have(settings)
    _keep_to_plan(out / "plan.sha256", plan.digest(settings))
    if not _begun(out):
        shutil.rmtree(work, ignore_errors=True)  # whoever removed a run's folder wants no state of it either
    if not finished:
        with (
            server.running(settings.graph_dir, settings.data) as uri,
            serving(settings, work, seed),
            measured(settings.timings_dir, work.name),
        ):
            loop.run(practise(settings, seed, uri, work, out))
    shutil.rmtree(work, ignore_errors=True)
    return json.loads((out / "checkpoint.json").read_text())


def _keep_to_plan(record: Path, digest: str) -> None:
    """Note the plan that a run is made under; one that was begun under another plan can't go on under this one."""
    if record.exists() and record.read_text().strip() != digest and _begun(record.parent):
        raise ValueError(
            f"{record.parent} was begun under another plan ({record.read_text().strip()[:12]}, now {digest[:12]}): "
            "choose another `run` name, or remove that folder to start over"
        )
    write_text(record, digest + "\n")


def _begun(out: Path) -> bool:
    return any((out / name).exists() for name in ("prepass.jsonl", "episodes.jsonl"))


async def practise(settings: Settings, seed: int, uri: str, work: Path, out: Path) -> None:
    _must_suffice(settings)
    rewind(out, Kept.read(work))
    async with world_for(settings, uri, settings.agent.query_timeout) as (world, renderer):
        tries = Tries()
        if settings.train.prepass is not None:
            tries.note(await look_before(settings, settings.train.prepass, seed, world, renderer, work, out), PREPASS)
        with Writer(out / "episodes.jsonl") as practised, Writer(out / "dev.jsonl") as dev:
            tries.note(read(practised.path))

            def keep(episode: Episode) -> None:
                practised.write(episode)
                tries.note([episode])

            objective = await building.objective(settings, seed)
            way = building.Way(settings, seed, world, renderer, keep, tries, settings.train.updates)
            source, tell = way.source(objective)
            curve = DevCurve(settings, seed, world, renderer, dev)
            with bar(settings, seed, work) as tick:
                guards: list[Guard] = [tell, building.watch(settings, work, objective), tick]
                kept = await updates.run(settings, work, source, curve, objective, guards)
            assert kept.state is not None and kept.sampler is not None
            last, faults = settings.train.updates, settings.train.faults
            client = await patiently(
                lambda _: tinker.ServiceClient().create_sampling_client_async(model_path=kept.sampler), faults
            )
            with Answers(updates.answers(work, last)) as answers:
                await curve(Patient(client, faults, answers), last)
            practised.finish()
            dev.finish()
    keep_checkpoint(settings, work, kept.state, kept.sampler, out)
    write_jsonl(out / "updates.jsonl", lines(settings, out / "episodes.jsonl", kept.figures))


async def look_before(
    settings: Settings, prepass: Prepass, seed: int, world: World, renderer: Renderer, work: Path, out: Path
) -> list[Episode]:
    """The base model's answers to some of what is practised, from prepass.jsonl in `out`; what is missing there is asked."""
    pool, faults = questions(settings, settings.practised), settings.train.faults
    asked = random.Random(f"pre-pass {seed}").sample(pool, min(prepass.questions, len(pool)))
    client = await patiently(lambda _: arm_client(settings, "base", work), faults)
    settings = replace(settings, evaluate=replace(settings.evaluate, temperature=TEMPERATURE))
    label = Label(settings.run, "base", seed, "train")
    with Writer(out / "prepass.jsonl") as writer, Answers(work / "answers-prepass.jsonl") as answers:
        policy, done = sampler(Patient(client, faults, answers), settings), frozenset(writer.done)
        await rollouts(
            lambda _: policy,
            asked,
            prepass.samples,
            label,
            world,
            renderer,
            settings,
            writer.write,
            done,
            what="pre-pass",
        )
        writer.finish()
    return read(writer.path)


@contextmanager
def bar(settings: Settings, seed: int, work: Path) -> Iterator[Guard]:
    """A bar over all updates, as a guard that moves it."""
    total, begun = settings.train.updates, Kept.read(work).update
    with tqdm(total=total, initial=begun, desc=f"seed {seed}", unit="update") as shown:

        def moved(update: Update) -> None:
            shown.update(update.number + 1 - shown.n)

        yield moved


def _must_suffice(settings: Settings) -> None:
    """Raises ValueError where there are too few questions: each is to be practised once, or else no two alike in an update."""
    train, have = settings.train, len(questions(settings, settings.practised))
    updates = train.updates if isinstance(train.questions, Alike) else 1
    if have < updates * train.groups:
        raise ValueError(
            f"{updates} updates of {train.groups} questions need {updates * train.groups} questions, and "
            f"{settings.practised}.jsonl has {have}: {_more(settings)} or lower train.{'updates' if updates > 1 else 'groups'}"
        )


def rewind(out: Path, kept: Kept) -> None:
    """Drop what was done after the last state that was kept, and note it: it is played again, from the answers that are kept.

    The dev questions before the next update stay, since they were asked with that very state.
    """
    made = {name: _mended(out / name) for name in ("episodes.jsonl", "dev.jsonl")}
    if not any(made.values()):
        return
    before = {
        "episodes.jsonl": [e for e in made["episodes.jsonl"] if (e.update or 0) < kept.update],
        "dev.jsonl": [e for e in made["dev.jsonl"] if (e.update or 0) <= kept.update],
    }
    record = out / "interruptions.jsonl"
    anew = sum(len(made[name]) - len(before[name]) for name in made)
    known = read_jsonl(record) if record.exists() else []
    write_jsonl(record, [*known, {"update": kept.update, "episodes_made_anew": anew}])
    for name, episodes in before.items():
        write_bytes(out / name, b"".join(e.line() for e in episodes))


def _mended(path: Path) -> list[Episode]:
    """A file's episodes, without a last line that was cut off."""
    if not path.exists():
        return []
    with Writer(path):
        return read(path)


def _more(settings: Settings) -> str:
    """How the setting is called that may give more questions to practise."""
    if settings.questions.structures == "all":
        return "take a larger graph, raise questions.train or questions.training"
    return "raise questions.train"


class DevCurve:
    """The held-out dev questions, asked every few updates: the curve that carries meaning, since updates practise other questions.

    The first look, before any update, is at the base model: there a run stops that has no headroom.
    """

    def __init__(self, settings: Settings, seed: int, world: World, renderer: Renderer, writer: Writer):
        self.settings, self.seed, self.world, self.renderer = settings, seed, world, renderer
        self.writer = writer
        self._questions = questions(settings, "dev")

    async def __call__(self, sampling_client: Any, update: int) -> None:
        policy = sampler(sampling_client, self.settings)
        await rollouts(
            lambda _: policy,
            self._questions,
            self.settings.train.dev_samples,
            Label(self.settings.run, f"trained-{self.seed}", self.seed, "dev", update=update),
            self.world,
            self.renderer,
            self.settings,
            self.writer.write,
            frozenset(self.writer.done),
            what=f"dev, after {update} updates",
        )
        if update == 0:
            first = [e for e in read(self.writer.path) if e.update == 0]
            headroom.must_have(
                headroom.of_episodes(first, self.settings.train.rollouts), self.settings.test.least_headroom
            )


def keep_checkpoint(settings: Settings, root: Path, state: str, sampler_path: str, out: Path) -> None:
    """Copy the final checkpoint, and no other, beside the episodes; a host keeps its own, and only the paths are noted."""
    half = out / "checkpoint.part"
    shutil.rmtree(half, ignore_errors=True)
    state, sampler_path = copy_checkpoints(settings, root, [state, sampler_path], half)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)
    if half.exists():
        half.rename(out / "checkpoint")
    write_json(out / "checkpoint.json", {"state": state, "sampler": sampler_path})


def lines(settings: Settings, episodes: Path, figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line an update: what its rollouts were worth, and what the loop says of its step.

    A rollout that was lost to a fault counts for nothing but its tokens, and a group that was dropped for them as a group alone.
    """
    groups: dict[int, dict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for episode in read(episodes):
        assert episode.update is not None
        groups[episode.update][episode.question].append(episode)
    found = []
    for told in figures:
        everything = groups[told["update"]].values()
        real = [[e for e in group if e.fault is None] for group in everything]
        rewards = [[e.reward for e in group] for group in real if len(group) >= settings.train.faults.least_rollouts]
        flat = [e for group in real for e in group]
        found.append(
            {
                "update": told["update"],
                "reward_mean": sum(e.reward for e in flat) / len(flat),
                "strict_mean": sum(e.strict for e in flat) / len(flat),
                "groups": len(real),
                "groups_with_signal": sum(len(set(g)) > 1 for g in rewards),
                "groups_all_right": sum(min(g) == 1.0 for g in rewards),
                "groups_none_right": sum(max(g) == 0.0 for g in rewards),
                "tokens_sampled": sum(e.tokens["sampled"] for group in everything for e in group),
                "loss": told.get("optim/loss"),
                "grad_norm": told.get("optim/grad_norm"),
                "tokens_trained": told.get("optim/tokens"),
                "kl": told.get("optim/kl_sample_train_v1"),
                "rollouts_lost": told["rollouts_lost"],
                "groups_dropped": told["groups_dropped"],
            }
            | {
                name: value
                for name, value in told.items()
                if name in ("warnings", "went_back_to", "chosen") or name.startswith(("watch/", "forward_backward/"))
            }
        )  # the last are a host's own
    return found
