"""Asks the worked examples' questions anew, so that what a report shows was not picked among the answers that were counted.

The comparison chooses these questions by the counts of the test, and a choice among many flatters: the question that
changed most is partly the one with the most luck. New draws, with a seed of their own, carry none of that luck. `python -m
lib.examples` writes data/runs/<run>/examples.jsonl, episodes like any other; they are part of no rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
from pathlib import Path

import tinker

from lib import loop
from lib.agent import EnvironmentFault, Question
from lib.backends.ledger import LimitReached
from lib.backends.meter import SpendRefused
from lib.backends.serving import BackendMissing, serving
from lib.episodes import Episode, Writer
from lib.evaluate import arm_client, label_of, questions, rollouts, sampler, world_for
from lib.faults import Answers, Patient
from lib.graph import server
from lib.plan import FIRST_SET
from lib.settings import ROOT, Settings, SettingsError, load

FRESH_SEED = 1  # of the service; the evaluation's is 0, and draws are keyed by it


class ExamplesError(RuntimeError):
    """The examples can't be asked; the message names the file and what to do."""


def path(settings: Settings) -> Path:
    return settings.run_dir / "examples.jsonl"


def chosen(settings: Settings) -> list[Question]:
    """The questions of the comparison's worked examples, each once, in order of their ids."""
    results = settings.run_dir / "results.json"
    if not results.exists():
        raise ExamplesError(f"{results} is missing: compare the run first, with `python -m lib.compare`")
    found = json.loads(results.read_text(encoding="utf-8"))["examples"].values()
    wanted = {one["question"] for one in found if one is not None}
    return [question for question in questions(settings, FIRST_SET) if question["id"] in wanted]


def record(settings: Settings) -> Path:
    """Write as many new samples as the test took, of each arm on each chosen question. The same seeds give the same bytes.

    A start after a kill asks for none again that was answered.
    """
    asked = chosen(settings)
    work = settings.data / "work" / settings.run / "examples"
    kept: list[Episode] = []
    if asked:
        with (
            server.running(settings.graph_dir, settings.data) as uri,
            serving(settings, work, FRESH_SEED),
            Answers(work / f"answers-{_compared(settings)}.jsonl") as answers,
        ):
            loop.run(_record(settings, asked, uri, work, kept, answers))
        shutil.rmtree(work, ignore_errors=True)
    path(settings).unlink(missing_ok=True)  # the writer appends, and these are made anew as a whole
    with Writer(path(settings)) as writer:
        for episode in kept:
            writer.write(episode)
        writer.finish()
    return path(settings)


def _compared(settings: Settings) -> str:
    """A name for the arms as they were compared, so that no answer of others is taken for theirs."""
    return hashlib.sha256((settings.run_dir / "results.json").read_bytes()).hexdigest()[:12]


async def _record(
    settings: Settings, asked: list[Question], uri: str, work: Path, kept: list[Episode], answers: Answers | None = None
) -> None:
    def keep(episode: Episode) -> None:
        kept.append(dataclasses.replace(episode, id=episode.id.replace("/evaluate/", "/fresh/", 1)))

    async with world_for(settings, uri, settings.agent.evaluation_query_timeout) as (world, renderer):
        for arm in settings.arms:
            policy = sampler(Patient(await arm_client(settings, arm, work), settings.train.faults, answers), settings)
            await rollouts(
                lambda _: policy,  # noqa: B023  # used before the loop goes on
                asked,
                settings.evaluate.samples,
                label_of(settings, arm),
                world,
                renderer,
                settings,
                keep,
                what=f"{arm}, examples",
            )


def main(arguments: list[str] | None = None) -> None:
    """Command line: record the examples of the run in params.yaml; exit status 1 where that isn't possible."""
    parser = argparse.ArgumentParser(prog="python -m lib.examples", description=__doc__.split("\n\n")[0])
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    given = parser.parse_args(arguments)
    try:
        print(record(load(given.params, given.data)))
    except (
        ExamplesError, SettingsError, BackendMissing, SpendRefused, LimitReached, server.ServerError, EnvironmentFault,
        tinker.TinkerError, OSError, ValueError,
    ) as e:  # fmt: skip
        sys.exit(f"examples: {e}")


if __name__ == "__main__":
    main()
