"""A step that was killed goes on as if nothing had happened: what is missing is made, and the bytes are the same."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker_cookbook.renderers import get_renderer

from lib import tiny, train
from lib.agent import EnvironmentFault, Label
from lib.backends import local
from lib.episodes import Writer, read
from lib.evaluate import SAMPLER_SEED, renderer_for, rollouts, sampler
from lib.faults import Answers, Patient
from lib.files import read_jsonl, write_jsonl
from lib.graph.query import Reader
from lib.graph.world import CypherWorld
from lib.settings import Settings, load
from lib.updates import Kept
from tests import killed_runs, synthetic
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


def play(settings: Settings, uri: str, out: Path, work: Path, most: int = 10_000) -> list[str]:
    """Four samples of each question into a file of episodes, going on from what is there; the ids of what was made.

    most: answers of the sampler, which fails after so many.
    """
    made: list[str] = []

    class Failing:
        asked = 0

        def __init__(self, client: Any):
            self.client = client

        async def sample_async(self, **asked: Any) -> Any:
            self.asked += 1
            if self.asked > most:
                raise ConnectionError("gone")
            return await self.client.sample_async(**asked)

    async def go() -> None:
        base = await tinker.ServiceClient().create_sampling_client_async(base_model=str(settings.base_dir))
        client = Patient(Failing(base), few, answers)
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

    few = dataclasses.replace(settings.train.faults, tries=1)
    with local.serving(work, SAMPLER_SEED), Answers(work / "answers.jsonl") as answers:
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
    assert play(settings, uri, left, tmp_path / "again") == [missing.id]
    assert left.read_bytes() == whole.read_bytes()


def test_what_was_answered_before_a_service_failed_is_not_asked_again(
    settings: Settings, uri: str, tmp_path: Path
) -> None:
    play(settings, uri, tmp_path / "whole.jsonl", tmp_path / "work")
    left, work = tmp_path / "left.jsonl", tmp_path / "other"
    for most in (7, 5):
        with pytest.raises(EnvironmentFault, match=r"ConnectionError: gone \(asked once\)"):
            play(settings, uri, left, work, most)
    assert len(read_jsonl(work / "answers.jsonl")) == 12  # what had begun was played on, and nothing came twice
    play(settings, uri, left, work)
    assert left.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    whole, disturbed = (read_jsonl(f / "answers.jsonl") for f in (tmp_path / "work", work))
    assert sorted(line["id"] for line in disturbed) == sorted(line["id"] for line in whole)


def test_what_came_after_the_last_state_is_forgotten_and_noted(tmp_path: Path) -> None:
    question = synthetic.question("train", 0)

    def lines(phase: str, last: int) -> list[bytes]:
        return [
            synthetic.episode("trained-0", question, sample, "wrong", "RETURN 1", phase=phase, update=update).line()
            for update in range(last)
            for sample in range(2)
        ]

    practised, dev = lines("train", 4), lines("dev", 4)
    train.rewind(tmp_path, Kept())
    assert not list(tmp_path.iterdir())  # nothing was begun
    (tmp_path / "episodes.jsonl").write_bytes(b"".join(practised) + practised[0][:50])  # killed in the middle of a line
    (tmp_path / "dev.jsonl").write_bytes(b"".join(dev))
    for again in range(2):
        train.rewind(tmp_path, Kept(update=2, state="tinker://run-0000/weights/000002"))
        assert (tmp_path / "episodes.jsonl").read_bytes() == b"".join(practised[:4])
        assert (tmp_path / "dev.jsonl").read_bytes() == b"".join(dev[:6])  # the look before update 2 was at this state
        noted = [json.loads(line) for line in (tmp_path / "interruptions.jsonl").read_text().splitlines()]
        assert (
            noted
            == [
                {"update": 2, "episodes_made_anew": 6},
                {"update": 2, "episodes_made_anew": 0},
            ][: again + 1]
        )
    train.rewind(tmp_path, Kept())
    assert (tmp_path / "episodes.jsonl").read_bytes() == b"" and (tmp_path / "dev.jsonl").read_bytes() == b"".join(
        dev[:2]
    )


def test_a_run_that_is_killed_anywhere_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """Nothing half written is loaded, no update made twice, no episode lost or there twice; and what happened is noted."""
    folders = [tmp_path / name for name in ("killed", "undisturbed")]
    for folder in folders:
        prepare(killed_runs.settings_in(folder))
    command = [sys.executable, "-m", "tests.killed_runs", *map(str, folders), str(tmp_path / "told.json")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    told = json.loads((tmp_path / "told.json").read_text())
    assert [killed for killed, _ in told.values()] == [True] * len(killed_runs.POINTS) + [False]

    killed, undisturbed = (killed_runs.settings_in(folder).train_dir(0) for folder in folders)
    kept = {str(path.relative_to(undisturbed)): path.read_bytes() for path in undisturbed.rglob("*") if path.is_file()}
    assert {"prepass.jsonl", "episodes.jsonl", "dev.jsonl", "updates.jsonl", "checkpoint.json"} < kept.keys()
    assert "interruptions.jsonl" not in kept
    sizes = Counter((e.update, e.question) for e in read(undisturbed / "episodes.jsonl"))
    assert {2, 4} == set(sizes.values())  # of groups that were stopped, and of the others
    assert {name: (killed / name).read_bytes() for name in kept} == kept
    assert {path.name for path in killed.iterdir()} == {path.name for path in undisturbed.iterdir()} | {
        "interruptions.jsonl"
    }
    assert not [path for folder in folders for path in (folder / "work").rglob("*.*")]

    answered, once = ((folder / "answers.txt").read_text().splitlines() for folder in folders)
    assert len(set(answered)) == len(answered) and set(answered) == set(once)  # none was asked again

    before, *states = (state["update"] for _, state in told.values())
    assert before == 0  # in the pre-pass, of which a run's record says nothing
    assert states[:10] == [0, 0, 0, 0, 0, 0, 2, 3, 4, 4]  # never back, and never further than what was saved
    noted = [json.loads(line) for line in (killed / "interruptions.jsonl").read_text().splitlines()]
    assert [one["update"] for one in noted] == states[: len(noted)] and len(noted) == len(killed_runs.POINTS) - 2
    anew = [one["episodes_made_anew"] for one in noted]
    assert min(*anew[2:6], anew[7]) >= 8  # an update's; the others hang on what came first
    assert anew[0] == 0 and not any(anew[8:])  # the looks at what was kept are gone on with


def prepare(chosen: Settings) -> None:
    """Questions and a random base model, for a run without a database."""
    for name, number in (("train", chosen.train.updates * chosen.train.groups), ("dev", 3)):
        asked = [
            {**ASKED[0], "id": f"{name}-{i}", "question": f"What about w{i % 7}?", "split": name} for i in range(number)
        ]
        write_jsonl(chosen.questions_dir / f"{name}.jsonl", asked)
    tokenizer = tiny.build_tokenizer(killed_runs.SYSTEM, [q["question"] for q in asked], ["w0"], ["no rows"], ["Tomar"])
    tiny.save(chosen.base_dir, tokenizer, tiny.build_model(len(tokenizer), chosen.made))
