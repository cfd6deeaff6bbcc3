"""The experiment's arms are what arms.yaml says, cost what they may, are compared as declared, and go through all steps."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats
from tinker_cookbook.renderers import get_renderer

from lib import bootstrap, tiny
from lib.agent import QuestionGroup
from lib.episodes import Episode, read
from lib.evaluate import renderer_for
from lib.files import read_jsonl, write_jsonl, write_text
from lib.learning import arms, budget, experiment, figures, imitation, jobs, layout, learner, results
from lib.learning.arms import BASELINE, BEST, Declared
from lib.settings import ROOT, Settings, SettingsError, load
from tests import synthetic
from tests.killed_runs import SYSTEM, Words

DECLARED = arms.load()


# ------------------------------------------------------------ what is declared


def test_nine_arms_and_more_are_declared_with_five_seeds_on_the_studys_settings() -> None:
    settings, study = load(layout.PARAMS), load(ROOT / "profiles" / "tiny.yaml")
    assert len(DECLARED.arms) + 1 >= 9 and len(settings.train.seeds) == 5
    assert study.run == layout.STUDY
    parts = ("graph", "questions", "human", "model", "cold_start", "agent", "local", "evaluate", "test")
    assert all(getattr(settings, part) == getattr(study, part) for part in parts)
    same = {"seeds", "updates", "dev_every"}
    mine, theirs = (dataclasses.asdict(one.train) for one in (settings, study))
    assert {name for name in mine if mine[name] != theirs[name]} <= same
    assert settings.train.updates > 2 * DECLARED.rules.updates  # the budget ends a run, not this


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms.band.questions.low": 2}, r"arms\.band\.questions\.low = 2\.0 must be at most 1"),
        ({"arms.band.questions.low": 0.9}, r"arms\.band\.questions\.low = 0\.9 must be below its high = 0\.75"),
        ({"arms.band.objective.spread": True}, r"arms\.band\.role = 'single' must change one of .* questions, objective"),
        ({"arms.spread.objective.spred": 1}, r"arms\.spread\.objective\.spred = 1 is no parameter"),
        ({"arms.hops.questions.kind": "hop"}, r"arms\.hops\.questions\.kind = 'hop' is unknown"),
        ({"arms.best": "band"}, r"arms\.best"),
        ({"arms.baseline.role": "single"}, "arms must hold one whose role is baseline"),
        ({"temperatures": [0.5]}, r"temperatures = \[0\.5\] must hold 1\.0"),
        ({"halves": ["bands"]}, "'bands' is none"),
        ({"reach": 1}, "reach = 1 must be at least 2"),
        ({"arms": None}, "arms is missing"),
    ],
    ids=str,
)
def test_what_cant_be_declared_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given = json.loads(json.dumps(yaml.safe_load(arms.ARMS.read_text())))  # without the references to one object
    [(key, value)] = change.items()
    *parents, last = key.split(".")
    place = given
    for parent in parents:
        place = place[parent]
    place[last] = given["arms"][value] if key == "arms.best" else value
    write_text(tmp_path / "arms.yaml", yaml.safe_dump(given))
    with pytest.raises(SettingsError, match=message):
        arms.load(tmp_path / "arms.yaml")


def test_the_best_combination_takes_each_part_from_the_arm_that_was_chosen_for_it() -> None:
    assert DECLARED.singles("questions") == [BASELINE, "band", "recut", "hops"]
    assert "shuffled" not in DECLARED.singles("objective")  # a comparator is no candidate
    best = DECLARED.combined({"questions": "recut", "replacement": "dynamic", "objective": BASELINE})
    assert best.questions == DECLARED.arms["recut"].questions and best.looks_before
    assert best.replacement == DECLARED.arms["dynamic"].replacement
    assert best.objective == DECLARED.arms[BASELINE].objective


# ------------------------------------------------------------ the budget


def rollout(update: int, number: int, tokens: int) -> Episode:
    one = synthetic.episode(
        "trained-0", synthetic.question("train", number), 0, "strict", "RETURN 1", phase="train", update=update
    )
    return dataclasses.replace(one, tokens={"prompt": 9, "sampled": tokens})


class Groups:
    """A source of so many groups an update, forever."""

    def groups(self, update: int, rolled: Any) -> list[Any]:
        return [] if rolled else list(range(4))


def test_an_update_takes_the_groups_that_are_left_to_pay_for_and_a_spent_budget_ends_the_run() -> None:
    spending = budget.Spending(1000, 100)
    source = budget.Budgeted(Groups(), spending, rollouts=2)
    assert source.groups(0, []) == [0, 1, 2, 3]  # nothing is known yet of what a group costs
    for number in range(8):
        spending.note(rollout(0, number, 50))
    spending.note(rollout(0, 7, 50))  # again: counts once
    assert spending.spent == 500 and spending.groups_left(2) == 5
    assert source.groups(0, [object()]) == [] and source.groups(1, []) == [0, 1, 2, 3]
    for number in range(8):
        spending.note(rollout(1, number, 50))
    assert source.groups(2, []) == [0]
    spending.note(rollout(2, 0, 30))
    spending.note(rollout(2, 1, 30))
    with pytest.raises(budget.Spent) as ended:
        source.groups(3, [])
    assert ended.value.update == 3
    again = budget.Spending(1000, 100, [rollout(0, n, 50) for n in range(8)])
    assert again.spent == 500


# ------------------------------------------------------------ statistics


def test_a_p_is_that_of_students_t_where_trainings_alone_differ_and_corrected_as_holm_says() -> None:
    means = np.array([0.02, 0.05, 0.01, 0.07, 0.04])
    changes = np.tile(means, (12, 1))
    clusters = [f"s{i % 6}" for i in range(12)]
    assert results.p_value(changes, clusters) == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-6)
    assert results.p_value(changes * 0, clusters) == 1.0
    assert results.p_value(np.full((12, 5), 0.1), clusters) == pytest.approx(1 - bootstrap.SUREST)
    family = {name: {"p": p} for name, p in zip("abcd", (0.01, 0.04, 0.03, 0.005), strict=True)} | {"e": {}}
    results.holm(family)
    assert [family[name]["holm"] for name in "abcd"] == pytest.approx([0.03, 0.06, 0.06, 0.02])  # Holm 1979


def test_a_contrast_is_over_what_all_have_and_pairs_trainings_with_trainings() -> None:
    structure = {f"q{i}": f"s{i // 2}" for i in range(8)}
    control = {q: 0.5 for q in structure}
    new = [{q: 0.6 + 0.01 * seed for q in structure} for seed in range(3)]
    del new[1]["q7"]
    found = results.contrast([control], new, structure, results.Method(0.95, 10))
    assert found["questions"] == 7 and found["delta"] == pytest.approx(0.11)
    assert found["trainings"] == pytest.approx([0.1, 0.11, 0.12])
    assert found["corrected"][0] < found["low"] < found["delta"] < found["high"] < found["corrected"][1]
    paired = results.contrast(new, [{q: s[q] + 0.02 for q in s} for s in new], structure, results.Method(0.95))
    assert paired["delta"] == pytest.approx(0.02) and paired["p"] == pytest.approx(1 - bootstrap.SUREST)
    assert results.contrast([control], new[:1], structure, results.Method(0.95)) == {"questions": 8}


# ------------------------------------------------------------ jobs


def test_jobs_run_side_by_side_and_the_first_error_is_named(tmp_path: Path) -> None:
    side_by_side = partial(jobs.side_by_side, what="jobs", processes=2)
    side_by_side({name: partial(write_text, tmp_path / name, name) for name in "abc"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    with pytest.raises(jobs.JobFailed, match=r"bad: FileNotFoundError: .*nowhere"):
        side_by_side({"bad": partial(read_jsonl, tmp_path / "nowhere")})


# ------------------------------------------------------------ all steps, in miniature


QUESTIONS = {"train": 24, "dev": 4, "held_out_instances": 8}


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The experiment's settings at the smallest size, with a random base model and questions of four structures."""
    data = tmp_path_factory.mktemp("data")
    chosen = load(layout.PARAMS, data)
    faults = dataclasses.replace(chosen.train.faults, least_rollouts=2, wait=0.0)
    chosen = dataclasses.replace(
        chosen,
        model=dataclasses.replace(chosen.made, hidden=32, layers=("conv", "full_attention"), feed_forward=48, context=256),
        agent=dataclasses.replace(chosen.agent, max_tokens=6, max_turns=1, max_trajectory_tokens=256),
        train=dataclasses.replace(
            chosen.train, seeds=(0, 1), updates=8, groups=2, rollouts=3, dev_every=1, dev_samples=1, faults=faults
        ),
        evaluate=dataclasses.replace(chosen.evaluate, samples=2),
    )
    asked = {name: [synthetic.question(name, i) for i in range(size)] for name, size in QUESTIONS.items()}
    for name, some in asked.items():
        write_jsonl(data / "questions" / f"{name}.jsonl", some)
    texts = [q["question"] for some in asked.values() for q in some]
    base = data / "runs" / layout.STUDY / "base"
    words = [["RETURN"], ["no rows"], ["Tomar"]]
    system = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ""}]
    bare = get_renderer(chosen.agent.renderer, tiny.build_tokenizer("", texts, *words))
    bare.build_generation_prompt(system)  # type: ignore[arg-type]
    tokenizer = tiny.build_tokenizer(SYSTEM, texts, *words)
    tiny.save(base, tokenizer, tiny.build_model(len(tokenizer), chosen.made))
    write_text(base.with_name("system_prompt.txt"), SYSTEM)
    return chosen


@pytest.fixture(scope="module")
def declared() -> Declared:
    """All of arms.yaml's arms, with rules for so small a size."""
    rules = dataclasses.replace(
        DECLARED.rules, updates=2, prepass_questions=2, prepass_samples=1, passes=1, temperatures=(1.0, 0.5), reach=3
    )
    return Declared(rules, DECLARED.arms)


@pytest.fixture(scope="module", autouse=True)
def no_database() -> Any:
    """No database; right is what the words' digest says, since a random model is never right; one process."""
    graded = QuestionGroup._graded

    async def by_words(self: QuestionGroup, *args: Any) -> Episode:
        episode = await graded(self, *args)
        strict = zlib.crc32(json.dumps(episode.messages[-1]).encode()) % 3 == 0
        return dataclasses.replace(episode, strict=strict, reward=float(strict), outcome="strict" if strict else "wrong")

    @contextlib.asynccontextmanager
    async def world_for(settings: Settings, uri: str, timeout: float) -> AsyncIterator[Any]:
        yield Words(), renderer_for(settings)

    def one_by_one(jobs: Mapping[str, Callable[[], object]], what: str) -> None:
        for job in jobs.values():
            job()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuestionGroup, "_graded", by_words)
        for module in (learner, experiment):
            patch.setattr(module, "world_for", world_for)
            patch.setattr(module, "database", lambda *_: "")
        patch.setattr(experiment.server, "running", lambda *_: contextlib.nullcontext(""))
        patch.setattr(experiment, "side_by_side", one_by_one)
        yield


@pytest.fixture(scope="module")
def practised(miniature: Settings, declared: Declared) -> Settings:
    experiment.prepare(miniature, declared)
    experiment.practise(miniature, declared)
    return miniature


def test_every_arm_spends_its_budget_and_no_more(practised: Settings, declared: Declared) -> None:
    facts = layout.before(practised)
    for name, arm in declared.arms.items():
        one = layout.settings_of(practised, name)
        for seed in practised.train.seeds:
            lines = read_jsonl(one.train_dir(seed) / "updates.jsonl")
            tokens = sum(line["tokens_sampled"] for line in lines) + arm.looks_before * facts["prepass"]
            assert abs(tokens - facts["budget"]) < facts["tokens_a_rollout"] * practised.train.rollouts, name
