"""A step that was killed goes on as if nothing had happened: what is missing is made, and the bytes are the same."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker_cookbook.renderers import get_renderer

from lib import tiny, train
from lib.agent import Label
from lib.backends import local
from lib.episodes import Writer, read
from lib.evaluate import SAMPLER_SEED, renderer_for, rollouts, sampler
from lib.graph.query import Reader
from lib.graph.world import CypherWorld
from lib.settings import Settings, load
from tests import synthetic
from tests.conftest import ROOT

SCHEMA = "(:Tag {tagName})"
ASKED: list[dict[str, Any]] = [
    {"id": f"q-{i}", "question": f"How many tags have more than {i} questions?", "hint": None, "rows": [[i]],
     "query": "", "structure": "s", "hops": 0, "split": "held_out_instances"}
    for i in range(4)
]  # fmt: skip


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The miniature's, with a random base model that knows the system prompt."""
    chosen = load(ROOT / "profiles" / "miniature.yaml", data=tmp_path_factory.mktemp("data"))
    texts = [q["question"] for q in ASKED], ["MATCH (t:Tag) RETURN count(*)"], ["no rows"], ["Tomar"]
    bare = get_renderer(chosen.agent.renderer, tiny.build_tokenizer("", *texts))
    system = CypherWorld(None, bare, SCHEMA, chosen.agent).prompt(ASKED[0])[0]["content"]
    assert isinstance(system, str)
    tokenizer = tiny.build_tokenizer(system, *texts)
    tiny.save(chosen.base_dir, tokenizer, tiny.build_model(len(tokenizer), chosen.model))
    return chosen


def play(settings: Settings, uri: str, out: Path, work: Path) -> list[str]:
    """Four samples of each question into a file of episodes, going on from what is there; the ids of what was made."""
    made: list[str] = []

    async def go() -> None:
        client = await tinker.ServiceClient().create_sampling_client_async(base_model=str(settings.base_dir))
        renderer = renderer_for(settings)
        reader = Reader(uri, at_once=4)
        world = CypherWorld(reader, renderer, SCHEMA, settings.agent)
        policy = sampler(client, settings)
        label = Label(settings.run, "base", 0, "evaluate")
        try:
            with Writer(out) as writer:
                before = frozenset(writer.done)
                await rollouts(lambda _: policy, ASKED, 4, label, world, renderer, settings, writer.write, before)
                made.extend(sorted(writer.done - before))
                writer.finish()
        finally:
            await reader.close()

    with local.serving(work, SAMPLER_SEED):
        asyncio.run(go())
    return made


def test_one_missing_sample_is_made_again_to_the_same_byte(settings: Settings, uri: str, tmp_path: Path) -> None:
    whole, left = tmp_path / "whole.jsonl", tmp_path / "left.jsonl"
    play(settings, uri, whole, tmp_path / "work")
    episodes = read(whole)
    assert len({str(e.messages) for e in episodes}) > len(
        ASKED
    )  # samples of one question differ, or this shows nothing
    missing = episodes[6]
    left.write_bytes(b"".join(e.line() for e in reversed(episodes) if e != missing))  # as they ended, not sorted
    assert play(settings, uri, left, tmp_path / "work") == [missing.id]
    assert left.read_bytes() == whole.read_bytes()


def test_what_came_after_the_last_checkpoint_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    question = synthetic.question("train", 0)
    lines = [
        synthetic.episode("trained-0", question, sample, "wrong", "RETURN 1", phase="train", update=update).line()
        for update in range(4)
        for sample in range(2)
    ]
    path.write_bytes(b"".join(lines) + lines[0][:50])  # killed in the middle of a line
    train._forget_after(path, 2)
    assert path.read_bytes() == b"".join(lines[:4])
    train._forget_after(path, 2)
    assert path.read_bytes() == b"".join(lines[:4])
    train._forget_after(path, 0)  # no checkpoint: all of it
    assert path.read_bytes() == b""
    train._forget_after(tmp_path / "none.jsonl", 2)
    assert not (tmp_path / "none.jsonl").exists()


def test_no_checkpoint_to_go_on_from_is_kept_after_the_last_update(settings: Settings, tmp_path: Path) -> None:
    for updates in range(1, 200):
        every = train._resume_every(updates)
        assert updates % every and every >= train.RESUME_EVERY
        assert all(
            updates % fewer == 0 for fewer in range(train.RESUME_EVERY, every)
        )  # and no rarer than that asks for
    t = dataclasses.replace(settings.train, updates=train.RESUME_EVERY)
    changed = dataclasses.replace(settings, train=t)
    config = train._config(changed, tmp_path, None, None)  # type: ignore[arg-type]  # they are only handed on
    assert config.max_steps == t.updates and t.updates % config.rolling_save_every
