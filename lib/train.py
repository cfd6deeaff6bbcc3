"""Reinforcement learning from executed queries: the cookbook's loop, unmodified and configured here, with every rollout kept."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chz
import tinker
from tinker_cookbook import checkpoint_utils
from tinker_cookbook.eval.evaluators import SamplingClientEvaluator
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl import train as rl
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tqdm import tqdm

from lib import headroom, loop, plan
from lib.agent import Label, Question, QuestionGroup, World
from lib.backends.gauge import measured
from lib.backends.serving import copy_checkpoints, serving
from lib.episodes import Episode, Writer, read
from lib.evaluate import questions, rollouts, sampler, world_for
from lib.files import read_jsonl, write_bytes, write_json, write_jsonl, write_text
from lib.graph import server
from lib.settings import Settings

RESUME_EVERY = 5  # updates, at least, between checkpoints that a killed run goes on from


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """One run of training from the base model; returns the checkpoint's paths.

    Writes data/runs/<run>/train/seed-<seed>: episodes.jsonl (every rollout), dev.jsonl (dev questions every few updates;
    a curve, which chooses nothing), updates.jsonl (a line an update), plan.sha256, checkpoint.json and checkpoint/.
    A killed run goes on from its last checkpoint; episodes of updates after it are made anew.

    Raises headroom.NoHeadroom before the first update where the base model leaves less to gain than test.least_headroom.
    """
    out = settings.train_dir(seed)
    work = settings.data / "work" / settings.run / f"train-seed-{seed}"
    _keep_to_plan(out / "plan.sha256", plan.digest(settings))
    with (
        server.running(settings.graph_dir, settings.data) as uri,
        serving(settings, work, seed),
        measured(settings.timings_dir, work.name),
    ):
        loop.run(_train(settings, seed, uri, work, out))
    return json.loads((out / "checkpoint.json").read_text())


def _keep_to_plan(record: Path, digest: str) -> None:
    """Note the plan that a run is made under; one that was begun under another plan can't go on under this one."""
    if record.exists() and record.read_text().strip() != digest and (record.parent / "episodes.jsonl").exists():
        raise ValueError(
            f"{record.parent} was begun under another plan ({record.read_text().strip()[:12]}, now {digest[:12]}): "
            "choose another `run` name, or remove that folder to start over"
        )
    write_text(record, digest + "\n")


async def _train(settings: Settings, seed: int, uri: str, work: Path, out: Path) -> None:
    log = work / "log"
    resumed = checkpoint_utils.get_last_checkpoint(str(log)) if log.exists() else None
    start = resumed.batch if resumed else 0
    for name in ("episodes.jsonl", "dev.jsonl"):
        _forget_after(out / name, start)
    async with world_for(settings, uri, settings.agent.query_timeout) as (world, renderer):
        with Writer(out / "episodes.jsonl") as practised, Writer(out / "dev.jsonl") as dev:
            dataset = Practice(settings, seed, world, renderer, practised.write, start)
            curve = DevCurve(settings, seed, world, renderer, dev, dataset)
            # Once it is done it must not be called again: its last line may name a rolling checkpoint that it removed.
            if _final(log) is None:
                await rl.main(_config(settings, log, dataset, curve))
            dataset.close()
            final = _final(log)
            assert final is not None and final.state_path is not None and final.sampler_path is not None
            client = await tinker.ServiceClient().create_sampling_client_async(model_path=final.sampler_path)
            await curve(client, update=settings.train.updates)
            practised.finish()
            dev.finish()
    _keep_checkpoint(settings, work, final.state_path, final.sampler_path, out)
    write_jsonl(out / "updates.jsonl", _updates(out / "episodes.jsonl", read_jsonl(log / "metrics.jsonl")))
    shutil.rmtree(work)


def _final(log: Path) -> checkpoint_utils.CheckpointRecord | None:
    """The finished run's checkpoint: the only one with weights for sampling."""
    return checkpoint_utils.get_last_checkpoint(str(log), required_key="sampler_path") if log.exists() else None


def _config(settings: Settings, log: Path, dataset: Practice, curve: DevCurve) -> rl.Config:
    t = settings.train
    return rl.Config(
        log_path=str(log),
        model_name=settings.base_model,
        base_url=t.base_url or None,
        recipe_name="executed_queries",
        renderer_name=settings.agent.renderer,
        dataset_builder=PracticeBuilder(dataset=lambda: dataset),
        learning_rate=t.learning_rate,
        lora_rank=t.lora_rank,
        loss_fn=t.loss,
        max_tokens=settings.agent.max_tokens,
        temperature=1.0,
        max_steps=t.updates,
        remove_constant_reward_groups=True,
        evaluator_builders=[lambda: curve],
        eval_every=t.dev_every,
        save_every=0,
        rolling_save_every=_resume_every(t.updates),
        ttl_seconds=None,
        num_groups_to_log=0,  # its trees of HTML and JSON took tens of MB a run; the episodes hold it all
        rollout_json_export=False,
    )


def _resume_every(updates: int) -> int:
    """How often to keep a checkpoint: never after the last update, or a run that is killed between that one and the
    final one would find its work done, and the cookbook would never write the final one."""
    return next(every for every in range(RESUME_EVERY, RESUME_EVERY + updates + 2) if updates % every)


class Practice(RLDataset):
    """The train questions in a seeded order, a batch of groups an update; no question comes twice."""

    def __init__(
        self,
        settings: Settings,
        seed: int,
        world: World,
        renderer: Renderer,
        keep: Callable[[Episode], None],
        start: int,
    ):
        self.settings, self.seed, self.world, self.renderer, self.keep = settings, seed, world, renderer, keep
        self.next_update = start
        self._bar = tqdm(total=settings.train.updates, initial=start, desc=f"seed {seed}", unit="update")
        self._questions = questions(settings, settings.practised)
        random.Random(f"practice {seed}").shuffle(self._questions)
        needed = settings.train.updates * settings.train.groups
        if len(self._questions) < needed:
            raise ValueError(
                f"{settings.train.updates} updates of {settings.train.groups} questions need {needed} questions, and "
                f"{settings.practised}.jsonl has {len(self._questions)}: {_more(settings)} or lower train.updates"
            )

    def __len__(self) -> int:
        return len(self._questions) // self.settings.train.groups

    def get_batch(self, index: int) -> list[EnvGroupBuilder]:
        self._bar.update(index - self._bar.n)
        self.next_update = index + 1
        size = self.settings.train.groups
        label = Label(self.settings.run, f"trained-{self.seed}", self.seed, "train", update=index)
        return [self._group(q, label) for q in self._questions[index * size : (index + 1) * size]]

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


@chz.chz
class PracticeBuilder(RLDatasetBuilder):
    dataset: Any  # a function, since the cookbook copies its configuration deeply

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self.dataset(), None


class DevCurve(SamplingClientEvaluator):
    """The held-out dev questions, asked every few updates: the curve that carries meaning, since each update practises other questions.

    The first look, before any update, is at the base model: there a run stops that has no headroom.
    """

    def __init__(
        self, settings: Settings, seed: int, world: World, renderer: Renderer, writer: Writer, dataset: Practice
    ):
        self.settings, self.seed, self.world, self.renderer = settings, seed, world, renderer
        self.writer, self.dataset = writer, dataset
        self._questions = questions(settings, "dev")

    async def __call__(self, sampling_client: tinker.SamplingClient, update: int | None = None) -> dict[str, float]:
        update = self.dataset.next_update if update is None else update
        kept: list[Episode] = []
        policy = sampler(sampling_client, self.settings)
        await rollouts(
            lambda _: policy,
            self._questions,
            self.settings.train.dev_samples,
            Label(self.settings.run, f"trained-{self.seed}", self.seed, "dev", update=update),
            self.world,
            self.renderer,
            self.settings,
            kept.append,
            what=f"dev, after {update} updates",
        )
        if update == 0:
            headroom.must_have(
                headroom.of_episodes(kept, self.settings.train.rollouts), self.settings.test.least_headroom
            )
        for episode in sorted(kept, key=lambda e: e.id):
            if episode.id not in self.writer.done:
                self.writer.write(episode)
        return {"dev/strict": sum(e.strict for e in kept) / len(kept)}


def _forget_after(path: Path, update: int) -> None:
    """Drop what a killed run did after its last checkpoint: it will be done again, with other weights on a hosted service."""
    if path.exists():
        with Writer(path):
            pass  # repairs a torn last line
        write_bytes(path, b"".join(e.line() for e in read(path) if e.update is not None and e.update < update))


def _keep_checkpoint(settings: Settings, root: Path, state: str, sampler_path: str, out: Path) -> None:
    """Copy the final checkpoint, and no other, beside the episodes; a host keeps its own, and only the paths are noted."""
    half = out / "checkpoint.part"
    shutil.rmtree(half, ignore_errors=True)
    state, sampler_path = copy_checkpoints(settings, root, [state, sampler_path], half)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)
    if half.exists():
        half.rename(out / "checkpoint")
    write_json(out / "checkpoint.json", {"state": state, "sampler": sampler_path})


def _updates(episodes: Path, logged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line an update. Rewards and groups come from the episodes: the cookbook's own figures cover only the groups
    that were left after constant ones were removed."""
    groups: dict[int, dict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for episode in read(episodes):
        assert episode.update is not None
        groups[episode.update][episode.question].append(episode)
    by_step = {m["step"]: m for m in logged if "step" in m and any(name.startswith("optim/") for name in m)}
    lines = []
    for update in sorted(groups):
        rewards = [[e.reward for e in group] for group in groups[update].values()]
        flat = [r for group in rewards for r in group]
        metrics = by_step.get(update, {})
        lines.append(
            {
                "update": update,
                "reward_mean": sum(flat) / len(flat),
                "strict_mean": sum(e.strict for g in groups[update].values() for e in g) / len(flat),
                "groups": len(rewards),
                "groups_with_signal": sum(len(set(g)) > 1 for g in rewards),
                "groups_all_right": sum(min(g) == 1.0 for g in rewards),
                "groups_none_right": sum(max(g) == 0.0 for g in rewards),
                "tokens_sampled": sum(e.tokens["sampled"] for g in groups[update].values() for e in g),
                "loss": metrics.get("optim/loss"),
                "grad_norm": metrics.get("optim/grad_norm"),
                "tokens_trained": metrics.get("optim/tokens"),
                "kl": metrics.get("optim/kl_sample_train_v1"),
            }
            | {name: value for name, value in metrics.items() if name.startswith("forward_backward/")}  # a host's own
        )
    return lines
