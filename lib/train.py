"""Reinforcement learning from executed queries: what the loop in lib/updates.py practises, looks at and leaves behind."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer
from tqdm import tqdm

from lib import headroom, loop, plan, trialled, updates
from lib.agent import Label, Question, QuestionGroup, World
from lib.backends.gauge import measured
from lib.backends.serving import copy_checkpoints, serving
from lib.episodes import Episode, Writer, read
from lib.evaluate import questions, rollouts, sampler, world_for
from lib.faults import Answers, Patient
from lib.files import read_jsonl, write_bytes, write_json, write_jsonl, write_text
from lib.graph import server
from lib.settings import Settings
from lib.updates import Kept, Rolled


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """One run of training from the base model; returns the checkpoint's paths.

    Writes data/runs/<run>/train/seed-<seed>: episodes.jsonl (every rollout), dev.jsonl (dev questions every few updates;
    a curve, which chooses nothing), updates.jsonl (a line an update), plan.sha256, checkpoint.json, checkpoint/, and
    interruptions.jsonl where there were any. A killed run goes on from the last state that was kept, one update back at
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
    if not (out / "episodes.jsonl").exists():
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
    if record.exists() and record.read_text().strip() != digest and (record.parent / "episodes.jsonl").exists():
        raise ValueError(
            f"{record.parent} was begun under another plan ({record.read_text().strip()[:12]}, now {digest[:12]}): "
            "choose another `run` name, or remove that folder to start over"
        )
    write_text(record, digest + "\n")


async def practise(settings: Settings, seed: int, uri: str, work: Path, out: Path) -> None:
    _go_on(out, Kept.read(work))
    async with world_for(settings, uri, settings.agent.query_timeout) as (world, renderer):
        with Writer(out / "episodes.jsonl") as practised, Writer(out / "dev.jsonl") as dev:
            practice = Practice(settings, seed, world, renderer, practised.write)
            curve = DevCurve(settings, seed, world, renderer, dev)
            kept = await updates.run(settings, work, practice, curve)
            practice.close()
            assert kept.state is not None and kept.sampler is not None
            last = settings.train.updates
            client = await tinker.ServiceClient().create_sampling_client_async(model_path=kept.sampler)
            with Answers(updates.answers(work, last)) as answers:
                await curve(Patient(client, settings.train.faults, answers), last)
            practised.finish()
            dev.finish()
    _keep_checkpoint(settings, work, kept.state, kept.sampler, out)
    write_jsonl(out / "updates.jsonl", _updates(settings, out / "episodes.jsonl", kept.figures))


def _go_on(out: Path, kept: Kept) -> None:
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


class Practice:
    """The train questions in a seeded order, so many an update; no question comes twice."""

    def __init__(
        self, settings: Settings, seed: int, world: World, renderer: Renderer, keep: Callable[[Episode], None]
    ):
        self.settings, self.seed, self.world, self.renderer, self.keep = settings, seed, world, renderer, keep
        self._bar = tqdm(total=settings.train.updates, desc=f"seed {seed}", unit="update")
        self._questions = questions(settings, settings.practised)
        random.Random(f"practice {seed}").shuffle(self._questions)
        needed = settings.train.updates * settings.train.groups
        if len(self._questions) < needed:
            raise ValueError(
                f"{settings.train.updates} updates of {settings.train.groups} questions need {needed} questions, and "
                f"{settings.practised}.jsonl has {len(self._questions)}: {_more(settings)} or lower train.updates"
            )

    def groups(self, update: int, rolled: Sequence[Rolled]) -> list[QuestionGroup]:
        if rolled:
            return []
        self._bar.update(update - self._bar.n)
        size = self.settings.train.groups
        label = Label(self.settings.run, f"trained-{self.seed}", self.seed, "train", update=update)
        return [self._group(q, label) for q in self._questions[update * size : (update + 1) * size]]

    def close(self) -> None:
        self._bar.update(self.settings.train.updates - self._bar.n)
        self._bar.close()

    def _group(self, question: Question, label: Label) -> QuestionGroup:
        t = self.settings
        return QuestionGroup(question, t.train.rollouts, self.world, self.renderer, t.agent, label, self.keep)


def _more(settings: Settings) -> str:
    """How the setting is called that may give more questions to practise."""
    if settings.questions.structures == "all":
        return "take a larger graph, raise questions.train or questions.training"
    return "raise questions.train"


class DevCurve:
    """The held-out dev questions, asked every few updates: the curve that carries meaning, since each update practises other questions.

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


def _keep_checkpoint(settings: Settings, root: Path, state: str, sampler_path: str, out: Path) -> None:
    """Copy the final checkpoint, and no other, beside the episodes; a host keeps its own, and only the paths are noted."""
    half = out / "checkpoint.part"
    shutil.rmtree(half, ignore_errors=True)
    state, sampler_path = copy_checkpoints(settings, root, [state, sampler_path], half)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)
    if half.exists():
        half.rename(out / "checkpoint")
    write_json(out / "checkpoint.json", {"state": state, "sampler": sampler_path})


def _updates(settings: Settings, episodes: Path, figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line an update: what its rollouts were worth, and what the loop says of its step.

    A rollout that was lost to a fault counts for nothing but its tokens, and a group that was dropped for them as a group alone.
    """
    groups: dict[int, dict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for episode in read(episodes):
        assert episode.update is not None
        groups[episode.update][episode.question].append(episode)
    lines = []
    for told in figures:
        everything = groups[told["update"]].values()
        real = [[e for e in group if e.fault is None] for group in everything]
        rewards = [[e.reward for e in group] for group in real if len(group) >= settings.train.faults.least_rollouts]
        flat = [e for group in real for e in group]
        lines.append(
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
                if name == "warnings" or name.startswith("forward_backward/")
            }
        )  # the last are a host's own
    return lines
