"""The comparison, on runs whose truth is known because it was made."""

from __future__ import annotations

import dataclasses
import json
import random
from itertools import combinations

import numpy as np
import pytest
import synthetic
from synthetic import episode, question

from lib import compare, human_set, measures, mistakes, plan
from lib.files import write_json
from lib.measures import Arm, Method
from lib.settings import Endpoint
from reports import endpoints

TEST = Method(confidence=0.95, resamples=500)
ASKED = [question("held_out_instances", i) for i in range(12)]
BY_ID = {asked["id"]: asked for asked in ASKED}


def arm(name: str, *outcomes: str) -> Arm:
    """An arm from a string of outcomes a question: s strict, f form, w wrong, t out of turns, n no query, e error."""
    words = {"s": "strict", "f": "form", "w": "wrong", "t": "wrong_turns", "n": "no_query", "e": "error"}
    return Arm.of(
        name,
        [
            episode(
                name,
                asked,
                sample,
                words[letter],
                None if letter == "n" else asked["query"] if letter == "s" else "wrong",
            )
            for asked, letters in zip(ASKED, outcomes, strict=False)
            for sample, letter in enumerate(letters)
        ],
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = synthetic.make(tmp_path_factory.mktemp("run"), gain=0.3, test={"resamples": 1000})
    return settings, compare.compare(settings)


@pytest.fixture
def small(tmp_path):
    """A run of one seed, quick to make, that a test may spoil."""
    return synthetic.make(tmp_path, gain=0.3, train={"seeds": (0,), "updates": 8}, test={"resamples": 300})


def rewrite(settings, name, change):
    """Replace an arm's episode file by change(lines)."""
    file = settings.episodes(name)
    file.write_text("".join(change(file.read_text().splitlines(keepends=True))))


# --- measures on hand-made episodes ---


def test_contrast_of_known_outcomes():
    found = measures.contrast(
        arm("control", "swww", "ssss", "wwww"), arm("trained", "ssww", "sssw", "wwww"), "strict", TEST
    )
    assert found["before"] == pytest.approx(5 / 12) and found["after"] == pytest.approx(5 / 12)
    assert (found["delta"], found["up"], found["down"], found["same"]) == (pytest.approx(0), 1, 1, 1)


def test_a_faulty_episode_is_reported_and_not_counted_as_wrong():
    control, trained = arm("control", "ssww", "ssww"), arm("trained", "ssse", "sswe")
    assert measures.summary(trained, TEST)["faulty"] == 2 and measures.outcomes(trained)["error"] == 2
    assert measures.contrast(control, trained, "strict", TEST)["after"] == pytest.approx((1 + 2 / 3) / 2)
    assert measures.summary(trained, TEST)["strict"]["rate"] == pytest.approx((1 + 2 / 3) / 2)


def test_a_question_lost_to_faults_is_left_out_and_counted():
    found = measures.contrast(arm("control", "ssww", "wwww"), arm("trained", "ssss", "eeee"), "strict", TEST)
    assert found["questions"] == 1 and found["left_out"] == 1 and found["delta"] == pytest.approx(0.5)


def test_a_contrast_of_some_questions_leaves_out_only_some_of_those():
    control, trained = arm("control", "ssww", "wwww", "swww"), arm("trained", "ssss", "eeee", "eeee")
    found = measures.contrast(control, trained, "strict", TEST, [ASKED[0]["id"], ASKED[1]["id"]])
    assert (found["questions"], found["left_out"]) == (1, 1)


def test_form_and_substance_are_bounds_that_add_up():
    control, trained = arm("control", "ffww", "swww"), arm("trained", "ssww", "ssfw")
    found = measures.form_and_substance(measures.flows(control, trained))
    assert found["gain"] == pytest.approx(3 / 8)
    assert found["form_at_most"] == pytest.approx(1 / 8) and found["substance_at_least"] == pytest.approx(2 / 8)


def test_flows_have_the_arms_shares_as_margins():
    control, trained = arm("control", "ssfw", "nnww"), arm("trained", "ssss", "ttws")
    flow = measures.flows(control, trained)
    for name in measures.OUTCOMES:
        assert sum(flow[name].values()) == pytest.approx(measures.outcomes(control)[name] / 8)
        assert sum(flow[other][name] for other in measures.OUTCOMES) == pytest.approx(
            measures.outcomes(trained)[name] / 8
        )


def test_reach_equals_all_subsets():
    one = arm("control", "sswww", "sssss", "wwwww")
    for k, row in enumerate(measures.reach([one], 5, TEST), 1):
        draws = [
            ([e.strict for e in subset])
            for episodes in one.by_question.values()
            for subset in combinations(episodes, k)
        ]
        assert row["any"] == pytest.approx(np.mean([any(draw) for draw in draws]))
        assert row["all"] == pytest.approx(np.mean([all(draw) for draw in draws]))
        assert all(row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] for name in ("any", "all"))
    assert (
        len(measures.reach([arm("control", "sss", "ww")], 5, TEST)) == 3
    )  # nothing is said of more samples than were drawn


def test_groups_by_untrained():
    base, control, trained = (
        arm("base", "wwww", "swww", "ssss"),
        arm("control", "swww", "ssww", "sssw"),
        arm("trained", "wwww", "ssss", "ssss"),
    )
    found = measures.by_untrained([base], [control, trained])
    assert {name: row["questions"] for name, row in found.items()} == {"never": 1, "sometimes": 1, "always": 1}
    assert (
        found["never"]["control"] == 0.25 and found["always"]["control"] == 0.75 and found["never"]["above_zero"] == 0
    )
    assert measures.by_untrained([base, control], [trained])["never"]["questions"] == 0


def test_changes_count_every_question_once():
    found = measures.changes(arm("control", "ssww", "wwww", "ssss"), arm("trained", "sssw", "ssss", "sssw"))
    assert [(row["change"], row["questions"]) for row in found] == [(-0.25, 1), (0.25, 1), (1.0, 1)]


def test_mistakes_add_up_to_the_gain_and_know_their_kinds():
    asked = ASKED[1]  # MATCH (u:User) WHERE u.reputation >= 1 RETURN u.displayName
    boundary = asked["query"].replace(">=", ">")
    control = Arm.of("control", [
        episode("control", asked, 0, "wrong", boundary), episode("control", asked, 1, "wrong", boundary),
        episode("control", asked, 2, "no_query"), episode("control", asked, 3, "wrong", "MATCH (t:Tag) RETURN t.name"),
    ])  # fmt: skip
    trained = Arm.of("trained", [
        episode("trained", asked, 0, "strict", asked["query"]), episode("trained", asked, 1, "wrong", boundary),
        episode("trained", asked, 2, "strict", asked["query"]), episode("trained", asked, 3, "wrong", "MATCH (t:Tag) RETURN t.name"),
    ])  # fmt: skip
    found = mistakes.mistakes([control, trained], control, trained, BY_ID, TEST)
    parts = {row["kind"]: row["part_of_gain"] for row in found["kinds"]}
    assert parts == {"boundary": 0.25, mistakes.OTHER: 0.0, mistakes.SILENT: 0.25}
    assert found["planted"]["gain"] == 0.25 and found["planted"]["share_of_gain"] == pytest.approx(0.5)


def test_a_kind_that_does_no_harm_is_no_mistake():
    asked = ASKED[1]
    harmless = [episode("control", asked, s, "strict", asked["query"].replace(">=", ">")) for s in range(4)]
    control = Arm.of("control", harmless)
    assert mistakes.mistakes([control], control, control, BY_ID, TEST)["kinds"] == []


def test_never_solved_and_examples_follow_their_rules():
    control = arm("control", "wwww", "ffff", "wwww", "ssss", "ssss")
    trained = arm("trained", "wwtw", "ssss", "ssss", "swww", "ssss")
    assert [row["question"] for row in mistakes.never_solved([control, trained], BY_ID)] == [ASKED[0]["id"]]
    chosen = mistakes.examples(control, trained, BY_ID)
    assert chosen["form"]["question"] == ASKED[1]["id"] and chosen["form"]["before"].startswith("control/")
    assert chosen["substance"]["question"] == ASKED[2]["id"]
    assert chosen["regression"]["question"] == ASKED[3]["id"]
    assert chosen["regression"]["counts"]["trained"] == {"strict": 1, "wrong": 3}


def test_no_example_where_nothing_moved_that_way():
    assert mistakes.examples(arm("control", "ssss"), arm("trained", "ssss"), BY_ID) == {
        "form": None, "substance": None, "regression": None,
    }  # fmt: skip


# --- whole runs ---


def test_the_gain_that_was_made_is_found(run):
    _, results = run
    # rates are capped at one, so the true gain is a little below 0.3
    truth = np.mean([
        min(1, synthetic.difficulty(asked) + 0.3) - synthetic.difficulty(asked)
        for asked in (question("held_out_instances", i) for i in range(96))
    ])  # fmt: skip
    found = results["contrasts"]["held_out_instances"]["sampled"]["trained - control"]["strict"]
    assert found["delta"] == pytest.approx(truth, abs=0.05)
    assert results["verdict"]["verdict"] == "success" and found["low"] > 0.05
    assert results["seeds"]["mean"] == pytest.approx(found["delta"], abs=1e-5)
    both = results["crossed"]
    assert both["low"] < found["delta"] < both["high"] and both["warnings"][0] == "only 2 trainings"
    assert found["sign_flip"] == 2 / 2**6  # all six structures rose: the least p that six signs can give
    parts = sum(row["part_of_gain"] for row in results["mistakes"]["kinds"])
    assert parts == pytest.approx(found["delta"], abs=1e-4)
    assert results["predictions"]["transfer"]["held"] is True


def test_results_are_the_same_bytes_whatever_the_order_of_episodes(run, tmp_path):
    settings, _ = run
    file = settings.run_dir / "results.json"
    before = file.read_bytes()
    for name in settings.arms:
        rewrite(settings, name, lambda lines: random.Random(1).sample(lines, len(lines)))
    compare.compare(settings)
    assert file.read_bytes() == before
    assert str(settings.data) not in before.decode()


def test_results_hold_no_more_decimals_than_declared(run):
    _, results = run
    assert compare.rounded(results) == results and results["decimals"] == compare.DECIMALS


def test_training_curves_and_totals(run):
    settings, results = run
    found, train = results["training"]["0"], settings.train
    assert [look["update"] for look in found["dev"]] == list(range(0, train.updates + 1, train.dev_every))
    assert found["totals"]["groups"] == 16 * train.updates and found["reward"]["last"] > found["reward"]["first"]


def test_no_gain_is_no_success(tmp_path):
    settings = synthetic.make(tmp_path, gain=0.0, train={"seeds": (0,), "updates": 8}, test={"resamples": 300})
    verdict = compare.compare(settings)["verdict"]
    assert verdict["verdict"] == "no success" and "below the bar of 5.0 points" in verdict["reason"]


def test_a_gain_whose_interval_includes_zero_is_no_success(run):
    _, results = run
    spoiled = json.loads(json.dumps(results))
    spoiled["contrasts"]["held_out_instances"]["sampled"]["trained - control"]["strict"]["low"] = -0.01
    verdict = compare.verdict(spoiled, results["plan"])
    assert verdict["verdict"] == "no success" and "includes zero" in verdict["reason"]


def test_a_plan_changed_afterwards_is_no_success(small):
    file = plan.path(small)
    file.write_text(file.read_text().replace('"bar": 0.05', '"bar": 0.01'))
    verdict = compare.compare(small)["verdict"]
    assert verdict["verdict"] == "no success" and "was edited" in verdict["reason"]


def test_missing_episodes_and_many_faults_forbid_a_verdict(small):
    tested = "/sampled/held_out_instances-"
    lost = [line for line in small.episodes("trained-0").read_text().splitlines() if tested in line][:5]
    rewrite(small, "trained-0", lambda lines: [line for line in lines if line.rstrip() not in lost])

    def break_some(lines):
        faulty = [json.loads(line) for line in lines]
        for one in [one for one in faulty if tested in one["id"]][:60]:
            one.update(outcome="error", fault="the database is gone", strict=False, reward=0.0)
        return [json.dumps(one) + "\n" for one in faulty]

    rewrite(small, "control", break_some)
    results = compare.compare(small)
    assert results["verdict"]["verdict"] == "no success"
    assert "episodes of held_out_instances are missing" in results["verdict"]["reason"]
    assert "of the episodes of control were lost to faults" in results["verdict"]["reason"]
    assert sum(results["checks"]["faulty"].values()) == 60
    assert set(results["checks"]["missing"].values()) == {5}


def test_an_oracle_that_fails_forbids_a_verdict(small):
    write_json(small.run_dir / "validate.json", {"held_out_instances": {"oracle": 0.99, "null": 0.0}})
    assert "oracle" in compare.compare(small)["verdict"]["reason"]


def test_what_was_not_checked_forbids_a_verdict(small):
    (small.run_dir / "validate.json").unlink()
    greedy = "/greedy/held_out_instances-"
    rewrite(small, "control", lambda lines: [line for i, line in enumerate(lines) if greedy not in line or i % 2])
    reason = compare.compare(small)["verdict"]["reason"]
    assert "validate.json doesn't say" in reason and "greedy episodes of held_out_instances are missing" in reason
    assert str(small.data) not in (small.run_dir / "results.json").read_text()


def test_people_s_questions_stand_apart_and_change_no_verdict(small, tmp_path_factory):
    asked = synthetic.make(
        tmp_path_factory.mktemp("people"), gain=0.3, people=30,
        train={"seeds": (0,), "updates": 8}, test={"resamples": 300},
    )  # fmt: skip
    with_people, without = compare.compare(asked), compare.compare(small)
    assert without["human"] is None and without["plan"]["human"]["questions"] == 0
    found = with_people["human"]
    assert found["counts"]["usable"] == 20 and found["suspected"] == {"the SQL repeats a user for each badge": 10}
    gains = [found["sampled"][part]["contrasts"]["trained - control"]["strict"] for part in ("all", "clean")]
    assert [one["questions"] for one in gains] == [30, 20] and all(one["low"] > 0 for one in gains)
    assert found["unanswerable"]["no_query"] == {"all": 1, "clean": 0}
    assert found["unanswerable"]["question_too_long"] == {"all": 1, "clean": 1}
    for key in ("arms", "contrasts", "verdict", "seeds", "mistakes", "predictions"):
        assert with_people[key] == without[key], key
    assert "human" in with_people["plan"]["exploratory"] and "human" not in without["plan"]["exploratory"]


def test_people_s_questions_can_t_change_once_planned(small):
    human_set.write([synthetic.person(0)], None, small.human_dir)
    verdict = compare.compare(small)["verdict"]
    assert verdict["verdict"] == "no success" and "human.questions: planned 0, now 1" in verdict["reason"]


@pytest.mark.parametrize(("key", "value"), [("score", "lenient"), ("set", "dev"), ("contrast", ["base", "trained"])])
def test_a_plan_of_another_endpoint_is_refused(run, key, value):
    planned = json.loads(json.dumps(run[1]["plan"]))
    planned["first_endpoint"][key] = value
    with pytest.raises(compare.CompareError, match="first_endpoint"):
        compare.must_be_computable(planned)


def test_a_plan_whose_confidence_allows_no_equivalence_is_refused(run):
    planned = json.loads(json.dumps(run[1]["plan"]))
    planned["first_endpoint"]["confidence"] = 0.5
    with pytest.raises(plan.PlanError, match=r"above 0\.5"):
        compare.must_be_computable(planned)


def test_a_missing_arm_names_file_and_step(small):
    small.episodes("control").unlink()
    with pytest.raises(compare.CompareError, match=r"control\.jsonl is missing.*5_evaluate"):
        compare.compare(small)


def test_an_episode_twice_is_an_error(small):
    rewrite(small, "base", lambda lines: [*lines, lines[0]])
    with pytest.raises(ValueError, match=r"base\.jsonl, line \d+: episode base/"):
        compare.compare(small)


def test_a_damaged_episode_file_names_file_and_line(small):
    rewrite(small, "control", lambda lines: [*lines[:3], lines[3][:40] + "\n", *lines[4:]])
    with pytest.raises(ValueError, match=r"control\.jsonl, line 4"):
        compare.compare(small)


def test_control_and_base_are_equal_only_within_the_margin():
    one, other = arm("base", *["sssw"] * 12), arm("control", *["sssw"] * 11, "ssss")
    assert measures.equivalence(one, other, 0.1, TEST)["holds"]
    assert not measures.equivalence(one, other, 0.01, TEST)["holds"]  # though its interval includes zero


def test_equivalence_over_few_structures_needs_the_wider_interval():
    base, control = arm("base", *["sw", "ss"] * 6), arm("control", *["ss", "sw"] * 6)
    found = measures.equivalence(base, control, 0.5, TEST)
    questions = sorted(base.by_question)
    wide = measures.difference(
        base.scores(questions, "strict"), control.scores(questions, "strict"),
        measures.structures(control, questions), Method(0.9, TEST.resamples),
    )  # fmt: skip
    assert (found["low"], found["high"]) == (wide["low"], wide["high"]) and found["confidence"] == pytest.approx(0.9)
    assert wide["low"] <= wide["by_question"][0] < 0 < wide["by_question"][1] <= wide["high"]
    assert not measures.equivalence(base, control, found["high"] * 0.9, TEST)["holds"]


def test_few_structures_are_warned_of_and_give_no_interval_without_width():
    control, trained = arm("control", *["sw"] * 6), arm("trained", *["ss", "sw"] * 3)
    found = measures.difference(
        control.scores([q["id"] for q in ASKED[:6]], "strict"), trained.scores([q["id"] for q in ASKED[:6]], "strict"),
        ["one structure"] * 6, TEST,
    )  # fmt: skip
    assert found["low"] < found["delta"] < found["high"] and "only 1 cluster" in found["warnings"]


def test_points_are_written_alike():
    assert [compare.points(x) for x in (0.0567, -0.012, 0.0001, -0.0001)] == ["+5.7", "−1.2", "0.0", "0.0"]


def test_one_seed_has_no_interval_over_seeds(small):
    results = compare.compare(small)
    assert results["seeds"]["low"] is None and len(results["seeds"]["gains"]) == 1
    assert results["crossed"] == {"low": None, "high": None, "warnings": ["only 1 training or structure"]}
    assert dataclasses.asdict(small)["train"]["seeds"] == (0,)


def test_a_model_behind_an_endpoint_stands_beside_and_decides_nothing(small):
    before = compare.compare(small)
    assert before["endpoints"] == {} and endpoints.section({}, plan.FIRST_SET) == ""
    other = Endpoint(name="other", url="http://localhost:1/v1", model="m", key="")
    asked = dataclasses.replace(small, endpoints=(other,))
    with pytest.raises(compare.CompareError, match=r"`python -m lib\.endpoint other` writes it"):
        compare.compare(asked)
    lines = (line.decode() for line in small.episodes("control").read_bytes().splitlines(keepends=True))
    small.episodes(other.arm).write_text("".join(line.replace('"control', f'"{other.arm}') for line in lines))
    found = compare.compare(asked)
    assert {**found, "endpoints": {}} == before
    sampled = found["endpoints"]["other"]["sets"][plan.FIRST_SET]["sampled"]
    assert sampled["strict"] == before["arms"][plan.FIRST_SET]["sampled"]["control"]["strict"]
    above = before["contrasts"][plan.FIRST_SET]["sampled"]["trained - control"]["strict"]
    assert sampled["trained - endpoint-other"]["delta"] == above["delta"]
    page = endpoints.section(found["endpoints"], plan.FIRST_SET)
    assert page.startswith("# Other models") and compare.points(above["delta"]) in page
