"""The experiment's arms are what arms.yaml says, cost what they may, are compared as declared, and go through all steps."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import shutil
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

from lib import bootstrap, tiny, updates
from lib.agent import QuestionGroup, plain_message
from lib.compare import points
from lib.episodes import Episode, read
from lib.evaluate import renderer_for, spoken
from lib.files import read_jsonl, write_json, write_jsonl, write_text
from lib.graph.world import DONE, CypherWorld, asks
from lib.learning import arms, budget, experiment, figures, imitation, jobs, layout, learner, results
from lib.learning.arms import BASELINE, BEST, Declared
from lib.plan import FIRST_SET
from lib.practice import building
from lib.practice.rates import Tries
from lib.settings import ROOT, SETS, Prepass, Replacement, Settings, SettingsError, load
from reports import render
from reports.learning import Learning
from tests import synthetic
from tests.killed_runs import SYSTEM, Words
from tests.test_pipeline import closure

DECLARED = arms.load()


# ------------------------------------------------------------ what is declared


def test_nine_arms_and_more_are_declared_with_five_seeds_on_the_studys_settings() -> None:
    settings, study = load(layout.PARAMS), load(ROOT / "profiles" / "tiny.yaml")
    assert len(DECLARED.arms) + 1 >= 9 and len(settings.train.seeds) == 5
    assert study.run == layout.STUDY
    parts = ("graph", "questions", "human", "model", "cold_start", "agent", "local", "test")
    assert all(getattr(settings, part) == getattr(study, part) for part in parts)
    assert settings.evaluate.temperature == study.evaluate.temperature
    same = {"seeds", "updates", *arms.PARTS}
    mine, theirs = (dataclasses.asdict(one.train) for one in (settings, study))
    assert mine.pop("faults") == {**theirs.pop("faults"), "least_rollouts": 4}
    assert {name for name in mine if mine[name] != theirs[name]} <= same
    assert settings.train.updates > 2 * DECLARED.rules.updates  # the budget ends a run, not this


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms.band.questions.low": 2}, r"arms\.band\.questions\.low = 2\.0 must be at most 1"),
        ({"arms.band.questions.low": 0.9}, r"arms\.band: questions\.low = 0\.9 must be below questions\.high = 0\.4"),
        (
            {"arms.band.questions.prepass.samples": 2},
            r"arms\.recut\.questions\.prepass = .* must be as every other arm's",
        ),
        ({"arms.gated.objective.cap": 0.6}, r"arms\.gated: objective\.cap = 0\.6 is the most that"),
        (
            {"arms.band.objective.spread": True},
            r"arms\.band\.role = 'single' must change one of .* questions, objective",
        ),
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
    assert DECLARED.singles("questions") == [BASELINE, "band", "recut", "replay", "hops"]
    assert "shuffled" not in DECLARED.singles("objective")  # a comparator is no candidate
    best = DECLARED.combined({"questions": "recut", "replacement": "dynamic", "objective": BASELINE})
    assert best.questions == DECLARED.arms["recut"].questions and best.prepass is not None
    assert best.replacement == DECLARED.arms["dynamic"].replacement
    assert best.objective == DECLARED.arms[BASELINE].objective


# ------------------------------------------------------------ the budget


def rollout(update: int, number: int, tokens: int) -> Episode:
    """Of groups of two."""
    one = synthetic.episode(
        "trained-0",
        synthetic.question("train", number // 2),
        number % 2,
        "strict",
        "RETURN 1",
        phase="train",
        update=update,
    )
    return dataclasses.replace(one, tokens={"prompt": 9, "sampled": tokens})


class Groups:
    """A source of so many groups an update, forever."""

    def groups(self, update: int, rolled: Any) -> list[Any]:
        return [] if rolled else list(range(4))


def test_an_update_takes_the_groups_that_are_left_to_pay_for_and_a_spent_budget_ends_the_run() -> None:
    spending = budget.Spending(1000, 100)
    source = budget.Budgeted(Groups(), spending)
    assert source.groups(0, []) == [0, 1, 2, 3]  # nothing is known yet of what a group costs
    for number in range(8):
        spending.note(rollout(0, number, 50))
    spending.note(rollout(0, 7, 50))  # again: counts once
    assert spending.spent == 500 and spending.groups_left() == 5
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
    control = dict.fromkeys(structure, 0.5)
    new = [dict.fromkeys(structure, 0.6 + 0.01 * seed) for seed in range(3)]
    del new[1]["q7"]
    found = results.contrast([control], new, structure, results.Method(0.95, 10))
    assert found["questions"] == 7 and found["delta"] == pytest.approx(0.11)
    assert found["trainings"] == pytest.approx([0.1, 0.11, 0.12])
    assert found["corrected"][0] < found["low"] < found["delta"] < found["high"] < found["corrected"][1]
    paired = results.contrast(new, [{q: s[q] + 0.02 for q in s} for s in new], structure, results.Method(0.95))
    assert paired["delta"] == pytest.approx(0.02) and paired["p"] == pytest.approx(1 - bootstrap.SUREST)
    assert results.contrast([control], new[:1], structure, results.Method(0.95)) == {"questions": 8}


# ------------------------------------------------------------ jobs


def test_jobs_run_side_by_side_and_an_error_says_whose_it_is(tmp_path: Path) -> None:
    some: dict[str, Callable[[], object]] = {name: partial(write_text, tmp_path / name, name) for name in "ab"}
    with pytest.raises(jobs.JobFailed, match=r"bad: FileNotFoundError: .*nowhere"):
        jobs.side_by_side(some | {"bad": partial(read_jsonl, tmp_path / "nowhere")}, "jobs")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


# ------------------------------------------------------------ all steps, in miniature


QUESTIONS = {"train": 24, "dev": 4, "held_out_instances": 8, "held_out_structures": 4}


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The experiment's settings at the smallest size, with a random base model and questions of four structures."""
    data = tmp_path_factory.mktemp("data")
    chosen = load(layout.PARAMS, data)
    faults = dataclasses.replace(chosen.train.faults, least_rollouts=2, wait=0.0)
    chosen = dataclasses.replace(
        chosen,
        model=dataclasses.replace(
            chosen.made, hidden=32, layers=("conv", "full_attention"), feed_forward=48, context=256
        ),
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
    """Arms of each kind, with rules for so small a size."""
    names = (BASELINE, "recut", "early", "anchored", "imitation")
    rules = dataclasses.replace(
        DECLARED.rules,
        updates=2,
        passes=1,
        temperatures=(1.0, 0.5),
        reach=3,
        halves=(BEST,),
    )
    some = {name: DECLARED.arms[name] for name in names}
    few = dataclasses.replace(some["recut"].questions, prepass=Prepass(questions=2, samples=1))
    two = Replacement(extra=1, first=2)
    changed = {
        "recut": dataclasses.replace(some["recut"], questions=few),
        "early": dataclasses.replace(some["early"], replacement=two),
    }
    return Declared(rules, some | changed)


def test_every_arm_can_be_built(miniature: Settings, tmp_path: Path) -> None:
    whole = dataclasses.replace(miniature, train=dataclasses.replace(miniature.train, rollouts=8))
    for name, arm in DECLARED.arms.items():
        one = layout.settings_of(whole, name)
        without = dataclasses.replace(arm.objective, kl=0.0)  # which needs a service, as the miniature has one
        train = dataclasses.replace(arm.of(one.train), objective=without, guards=DECLARED.rules.guards)
        one = dataclasses.replace(one, train=train)
        taught = asyncio.run(building.objective(one, 3))
        assert taught.shuffled == (3 if name == "shuffled" else None)
        source, _ = building.Way(one, 3, Words(), renderer_for(one), lambda _: None, Tries(), 5).source(taught)
        assert len(source.groups(0, [])) == one.train.groups
        assert len(building.watch(one, tmp_path, taught).limits) == len(DECLARED.rules.guards)


@pytest.fixture(scope="module", autouse=True)
def no_database() -> Any:
    """No database; right is what the words' digest says, since a random model is never right; one process."""
    graded = QuestionGroup._graded

    async def by_words(self: QuestionGroup, *args: Any) -> Episode:
        episode = await graded(self, *args)
        strict = zlib.crc32(json.dumps(episode.messages[-1]).encode()) % 3 == 0
        return dataclasses.replace(
            episode, strict=strict, reward=float(strict), outcome="strict" if strict else "wrong"
        )

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
            tokens = sum(line["tokens_sampled"] for line in lines)
            tokens += facts["prepass"][str(seed)] if arm.prepass is not None else 0
            assert abs(tokens - facts["budget"]) < facts["tokens_a_rollout"] * practised.train.rollouts, name


def run_of(settings: Settings, name: str, seed: int) -> dict[str, bytes]:
    """The files of a run, by name."""
    out = layout.settings_of(settings, name).train_dir(seed)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_the_baseline_practises_what_the_study_does_and_others_what_they_say(practised: Settings) -> None:
    first = {name: {} for name in ("baseline", "anchored", "recut")}  # type: ignore[var-annotated]
    for name in first:
        for episode in read(layout.settings_of(practised, name).train_dir(0) / "episodes.jsonl"):
            first[name].setdefault(episode.update, set()).add(episode.question)
    assert first["baseline"][0] == first["anchored"][0]
    assert all(len(asked) <= practised.train.groups for run in first.values() for asked in run.values())
    lines = read_jsonl(layout.settings_of(practised, "recut").train_dir(0) / "updates.jsonl")
    assert all("chosen" in line and "watch/entropy" in line for line in lines)
    lines = read_jsonl(layout.settings_of(practised, "anchored").train_dir(0) / "updates.jsonl")
    assert all(line["watch/k3"] >= 0 for line in lines)


@pytest.mark.parametrize("name", ["early", "imitation"])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(
    practised: Settings, declared: Declared, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_of(practised, name, 0)
    again = partial(experiment.learn, practised, declared, name, declared.arms[name], 0)
    again()
    assert run_of(practised, name, 0) == whole  # a finished one is left as it is
    shutil.rmtree(layout.settings_of(practised, name).train_dir(0))
    with monkeypatch.context() as patch:
        usual = updates.Policy.keep

        async def cut_off(self: updates.Policy, number: int, figures: Any) -> None:
            if number == 1:
                raise KeyboardInterrupt
            await usual(self, number, figures)

        patch.setattr(updates.Policy, "keep", cut_off)
        with pytest.raises(KeyboardInterrupt):
            again()
    again()
    left = run_of(practised, name, 0)
    assert left.pop("interruptions.jsonl") and left == whole


def test_a_run_of_other_inputs_starts_over(practised: Settings, declared: Declared) -> None:
    arm = dataclasses.replace(declared.arms["anchored"], why="Another.")
    before = run_of(practised, "anchored", 1)
    experiment.learn(practised, declared, "anchored", arm, 1)
    after = run_of(practised, "anchored", 1)
    assert before.pop("inputs.json") != after.pop("inputs.json") and before == after


def test_imitation_teaches_token_for_token_what_was_sampled(practised: Settings) -> None:
    """Right answers alone, of a question whose answer took two turns."""
    one = layout.settings_of(practised, "imitation")
    renderer = renderer_for(one)
    world = CypherWorld(None, renderer, "(:Tag)", one.agent)
    asked = synthetic.question("train", 0)
    turns = [asks("RETURN 0"), asks("RETURN 1"), DONE]
    messages = world.prompt(asked)
    kept, sampled = [{"role": "user", "content": asked["question"]}], []
    for said in turns:
        sampled += spoken(renderer, messages, said)
        messages += [said, {"role": "tool", "content": "no rows"}]
        kept += [plain_message(said), {"role": "tool", "content": "no rows"}]
    right = dataclasses.replace(synthetic.episode("trained-0", asked, 0, "strict", "RETURN 1"), messages=kept[:-1])
    wrong = dataclasses.replace(synthetic.episode("trained-0", asked, 1, "wrong", "RETURN 0"), messages=kept[:-1])
    [datum] = imitation.lessons([wrong, right], {asked["id"]: asked}, world, renderer)
    weights, targets = (datum.loss_fn_inputs[name].to_torch() for name in ("weights", "target_tokens"))
    assert targets[weights > 0].tolist() == sampled


@pytest.fixture(scope="module")
def finished(practised: Settings, declared: Declared) -> dict[str, Any]:
    """results.json after all steps; the clean teacher's model is the study's."""

    def taught(one: Settings) -> None:
        shutil.copytree(practised.data / "runs" / layout.STUDY, one.run_dir, dirs_exist_ok=True)
        write_text(one.run_dir / "base.json", "{}")

    experiment.choose(practised, declared)
    experiment.combine(practised, declared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "cold_start", taught)
        experiment.clean(practised, declared)
    experiment.ask(practised, declared)
    found: dict[str, Any] = json.loads(results.write(practised, declared).read_text())
    return found


def test_the_choice_is_the_best_of_each_part_on_dev_questions(
    practised: Settings, declared: Declared, finished: dict[str, Any]
) -> None:
    choice = finished["choice"]
    for part, name in choice["chosen"].items():
        candidates = {one: choice["rates"][one] for one in declared.singles(part)}
        assert name == next(one for one in candidates if candidates[one] == max(candidates.values()))
    last = [read(layout.settings_of(practised, "recut").train_dir(seed) / "dev.jsonl") for seed in (0, 1)]
    rates = [np.mean([e.strict for e in run if e.update == max(f.update or 0 for f in run)]) for run in last]
    assert choice["rates"]["recut"] == pytest.approx(np.mean(rates))
    late = layout.combined(practised, declared)
    assert {name: share for name, (_, share) in late.items()} == {BEST: 1.0, "best-half": 0.5}
    assert late[BEST][0] == late["best-half"][0] == declared.combined(choice["chosen"])


def test_questions_that_the_base_never_solved_are_asked_more_often(
    practised: Settings, finished: dict[str, Any]
) -> None:
    hard = layout.never_solved(practised)
    asked = {split: [f"{split}-{i:04d}" for i in range(QUESTIONS[split])] for split in SETS}
    assert finished["never_solved"] == {split: len(set(some) & set(hard)) for split, some in asked.items()}
    known, new = asked.values()
    for who in ("trained-0", "trained-1"):
        answers = results.Answers.of(read(layout.settings_of(practised, "recut").episodes(who)))
        expected = {q: 3 if q in hard else 2 for q in known} | {q: 3 for q in new if q in hard}
        assert {q: count.samples for q, count in answers.sampled.items()} == expected
        assert sorted(answers.greedy) == known
    for one in finished["arms"].values():
        assert one["reach"]["questions"] == len(set(known) & set(hard))
        assert one["reach_new"]["questions"] == len(set(new) & set(hard))


def answers(settings: Settings, name: str, who: str) -> results.Answers:
    """Those to the first set."""
    found = read(layout.settings_of(settings, name).episodes(who))
    return results.Answers.of([e for e in found if e.set == FIRST_SET])


def test_results_say_of_each_arm_what_was_declared(
    finished: dict[str, Any], declared: Declared, practised: Settings
) -> None:
    assert finished["order"] == [*declared.arms, BEST] and list(finished["halves"]) == ["best-half"]
    for name, one in finished["arms"].items():
        assert set(one["gains"]) == {"control", "greedy", "tuned"} | ({"baseline"} if name != BASELINE else set())
        assert 0 <= one["signal"] <= 1 and len(one["tokens"]) == 2
        tokens = [look["tokens"] for look in one["curve"]]
        assert tokens == sorted(tokens) and tokens[-1] == pytest.approx(np.mean(one["tokens"]))
        mine = [answers(practised, name, f"trained-{s}") for s in (0, 1)]
        control = answers(practised, "control", "control")
        means = [np.mean(list(m.rates().values())) for m in mine]
        assert one["rate"] == pytest.approx(np.mean(means), abs=1e-6)
        expected = np.mean(means) - np.mean(list(control.rates().values()))
        assert one["gains"]["control"]["delta"] == pytest.approx(expected, abs=1e-6)
    for name, one in finished["halves"].items():
        assert one["share"] == 0.5 and max(one["tokens"]) < 0.75 * finished["budget"], name
    for name in figures.FIGURES:
        assert figures.drawn(name, finished).startswith("<svg role=") and "nan" not in figures.FIGURES[name][1](
            finished
        )


# ------------------------------------------------------------ the page


def test_the_page_says_what_the_file_says(practised: Settings, finished: dict[str, Any], tmp_path: Path) -> None:
    page = render.render_learning(practised.data / "learning" / "results.json", tmp_path, quarto=False)
    text = " ".join(re.sub(r"<[^>]*>", " ", page.read_text()).split())
    for one in finished["arms"].values():
        assert points(one["gains"]["control"]["delta"]) in text and one["why"].split("'")[0] in text
    assert f"{finished['budget']:,}" in text and "nan" not in re.findall(r"\b\w+\b", text)


@pytest.mark.parametrize("verdict", ["better", "worse", "no difference shown"])
def test_sentences_are_true_whichever_way_it_came_out(
    practised: Settings, finished: dict[str, Any], tmp_path: Path, verdict: str
) -> None:
    found = json.loads(json.dumps(finished))
    for one in found["arms"].values():
        one["verdicts"] = dict.fromkeys(one["verdicts"], verdict)
    found["targets"]["reach"] = {"arm": None, "reached": False}
    found["choice"]["chosen"] = dict.fromkeys(found["choice"]["chosen"], BASELINE)
    write_json(tmp_path / "results.json", found)
    page = Learning(tmp_path / "results.json")
    start, nothing = page.start(), page.nothing_words()
    assert ("**Better** than the control" in start) == (verdict == "better")
    assert ("**Worse** than the control" in start) == (verdict == "worse")
    assert ("No difference from the control shown" in start) == (verdict == "no difference shown")
    assert "is the baseline once more" in start
    assert ("Every arm was better" in nothing) == (verdict == "better")
    assert nothing.count(verdict) == (1 if verdict == "better" else len(found["arms"]) - 1)
    assert "no arm could be tested" in page.targets()


# ------------------------------------------------------------ the pipeline


def test_a_stage_depends_on_what_it_runs_and_reads() -> None:
    stages = yaml.safe_load((arms.ARMS.parent / "dvc.yaml").read_text())["stages"]
    assert all(stage["desc"].endswith(".") for stage in stages.values())
    for name in ("practise", "combine", "clean"):
        needed = closure("import lib.learning.learner")
        named = set(stages[name]["deps"])
        assert not {file for file in needed if not named & {file, *map(str, Path(file).parents)}}, name
    own = {f"lib/learning/{name}.py" for name in layout.OWN}
    assert own <= set(stages["practise"]["deps"])
    made = {
        key for stage in stages.values() for out in stage["outs"] for key in ([out] if isinstance(out, str) else out)
    }
    for name, stage in stages.items():
        for dep in stage["deps"]:
            assert (
                (ROOT / dep).exists() or dep in made or dep.startswith(("data/graph", "data/questions", "data/runs"))
            ), name
    assert [word for stage in stages.values() for word in stage["cmd"].split()[3:]] == list(experiment.STEPS)


def test_what_is_missing_is_said_with_the_step_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"learning: .*before\.json is missing: .*experiment prepare"):
        experiment.main(["practise", "--data", str(tmp_path)])
