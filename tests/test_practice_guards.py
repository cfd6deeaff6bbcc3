"""Guards see what they are for, say so with the update's figures, and know after a kill what they knew before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.rl.types import TrajectoryGroup

from lib import updates
from lib.practice import building, guards
from lib.practice.guards import Figures, Limit, Stopped, Watch, measured
from lib.practice.objectives import Objective
from lib.settings import load, profiles
from tests.small_models import lfm2
from tests.toy_questions import Known, ask, pool, said, scored
from tests.toy_training import GROUPS, practise, settings_for, weights

QUESTIONS = pool(12)


def update(*groups: TrajectoryGroup) -> updates.Update:
    return updates.Update(0, [updates.Rolled(ask(QUESTIONS[i], 0), one, []) for i, one in enumerate(groups)], {})


# ------------------------------------------------------------ figures


def test_what_is_measured() -> None:
    right, none, some = scored(1.0, 1.0), scored(0.0, 0.0), scored(1.0, 0.5, 0.0)
    some.trajectories_G[0] = said(10, 11)  # as the first rollout of the others
    some.trajectories_G[1] = said(40, 41, 42, 43)
    found = measured(update(right, none, some), Objective())
    assert found["watch/entropy"] == pytest.approx(0.5)  # each token has the log-probability -0.5
    assert found["watch/tokens"] == pytest.approx((6 * 2 + 4) / 7)
    assert found["watch/same"] == pytest.approx(
        5 / 7
    )  # both of the first two groups say the same, and one of the third
    assert found["watch/strict"] == pytest.approx(3 / 7) and found["watch/worth"] == pytest.approx(3.5 / 7)
    shares = [found[f"watch/{name}"] for name in ("signal", "all_right", "none_right")]
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert 0.8 < found["watch/agreement"] < 1 and found["watch/penalties"] == 0


def test_penalties_are_measured_against_correctness() -> None:
    objective = Objective(credit="strict", repeated=0.1, cap=0.4)
    group = scored(1.0, 0.0, repeated=[0, 2], failed=[0, 0])
    assert measured(update(group), objective)["watch/penalties"] == pytest.approx(0.1 / 0.5)
    wrong = scored(0.0, 0.0, repeated=[0, 2], failed=[0, 0])
    found = measured(update(wrong), objective)
    assert found["watch/penalties"] is None and found["watch/agreement"] is None  # nothing to compare with
    json.dumps(found)


# ------------------------------------------------------------ rules


def history(**figures: list[float | None]) -> list[Figures]:
    length = len(next(iter(figures.values())))
    usual: dict[str, float | None] = {
        "entropy": 1.0, "tokens": 40.0, "same": 0.1, "strict": 0.5, "all_right": 0.2, "penalties": 0.1, "agreement": 0.95
    }  # fmt: skip
    return [
        {
            "update": i,
            **{f"watch/{name}": value for name, value in (usual | {n: v[i] for n, v in figures.items()}).items()},
        }
        for i in range(length)
    ]


FINE = history(strict=[0.5] * 12)
CASES = [
    (guards.entropy, 0.3, history(entropy=[1.0] * 3 + [0.5, 0.29, 0.29, 0.29])),
    (guards.shortening, 0.5, history(tokens=[40.0] * 3 + [30, 19, 19, 19])),
    (guards.lengthening, 2.0, history(tokens=[40.0] * 3 + [60, 81, 81, 81])),
    (guards.repeating, 0.5, history(same=[0.1] * 3 + [0.5, 0.6, 0.6])),
    (guards.thinking_shorter, 0.9, history(tokens=[40.0] * 3 + [35.0] * 3, strict=[0.5] * 3 + [0.49] * 3)),
    (guards.all_right, 0.6, history(all_right=[0.2] * 3 + [0.7] * 3)),
    (guards.penalised, 0.5, history(penalties=[0.1, None, 0.1, None, 0.6, 0.7])),
    (guards.disagreeing, 0.8, history(agreement=[0.9] * 3 + [0.7, None, 0.75])),
]


@pytest.mark.parametrize(("rule", "limit", "past"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_a_rule_sees_what_it_is_for_and_nothing_else(rule: guards.Rule, limit: float, past: list[Figures]) -> None:
    reason = rule(past, limit, 3)
    assert reason is not None and "watch/" in reason and f"{limit:g}" in reason
    assert rule(past[:3], limit, 3) is None, "the last of these is before anything changed"
    assert rule(FINE, limit, 3) is None
    assert [other(past, many, 3) for other, many, _ in CASES if other is not rule].count(None) >= len(CASES) - 2
    assert rule(past, limit, len(past) + 1) is None, "a window needs as many updates"


def test_thinking_shorter_is_no_harm_where_more_is_right() -> None:
    past = history(tokens=[40.0] * 3 + [35.0] * 3, strict=[0.5] * 3 + [0.6] * 3)
    assert guards.thinking_shorter(past, 0.9, 3) is None


def test_the_default_limits_are_quiet_on_a_usual_run(tmp_path: Path) -> None:
    settings = load(profiles()["tiny"])
    limits = building.watch(settings, tmp_path, Objective()).limits
    assert len(limits) == len(settings.train.guards) and {limit.action for limit in limits} == {"warn", "back"}
    for limit in limits:
        assert limit.rule(FINE, limit.limit, limit.window) is None


# ------------------------------------------------------------ a run


class Practice:
    def groups(self, update: int, rolled: Any) -> list[Known]:
        chosen = QUESTIONS[update * GROUPS : (update + 1) * GROUPS]
        return [] if rolled else [Known(q, update, lambda episode: None) for q in chosen]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


def start(base: str, root: Path, limits: list[Limit], *others: updates.Guard) -> updates.Kept:
    objective = Objective()
    guards = [Watch(root, objective, limits), *others]
    return practise(settings_for(base, 4), root, Practice(), objective=objective, guards=guards)


class Killed(Exception):
    pass


def test_a_killed_run_warns_as_an_undisturbed_one(base: str, tmp_path: Path) -> None:
    """The warnings are about more updates than the second start makes."""
    told = [Limit(lambda past, limit, window: f"{len(past)} updates, {past[0]['watch/tokens']:.3f} tokens at first", 0)]

    def kill(update: updates.Update) -> None:
        if update.number == 2:
            raise Killed

    whole = start(base, tmp_path / "whole", told)
    with pytest.raises(Killed):
        start(base, tmp_path / "killed", told, kill)
    again = start(base, tmp_path / "killed", told)
    assert again.figures == whole.figures
    assert [one["warnings"][0].split(",")[0] for one in whole.figures] == [f"{n} updates" for n in (1, 2, 3, 4)]
    assert len({one["watch/tokens"] for one in whole.figures}) > 1


def test_a_stop_says_what_is_kept_and_how_to_go_on(base: str, tmp_path: Path) -> None:
    limits = [Limit(guards.all_right, -1.0, window=2, action="stop"), Limit(guards.penalised, -1.0, window=1)]
    with pytest.raises(
        Stopped, match=r"update 1: watch/all_right is .*; watch/penalties is .*before update 1, tinker://.*`run`"
    ):
        start(base, tmp_path, limits)
    kept = updates.Kept.read(tmp_path)
    noted = json.loads((tmp_path / Watch.STOPPED).read_text())
    assert kept.update == 1 and (noted["update"], noted["kept"], noted["state"]) == (1, 1, kept.state)
    assert "all_right" in noted["reason"] and "warnings" in kept.figures[0]
    with pytest.raises(Stopped):
        start(base, tmp_path, limits)
    undisturbed = start(base, tmp_path / "undisturbed", [])
    assert weights(tmp_path, start(base, tmp_path, [])) == weights(tmp_path / "undisturbed", undisturbed)


def test_what_was_undone_sets_off_no_limit_again_in_a_killed_run_either(base: str, tmp_path: Path) -> None:
    told = [Limit(lambda past, limit, window: f"{len(past)} stand" if len(past) > 2 else None, 0, action="back")]

    def kill(update: updates.Update) -> None:
        if update.number == 3:
            raise Killed

    whole = start(base, tmp_path / "whole", told)
    assert [one.get("warnings") for one in whole.figures] == [None, None, ["3 stand"], None]
    assert [one.get("went_back_to") for one in whole.figures] == [None, None, 1, None]
    with pytest.raises(Killed):
        start(base, tmp_path / "killed", told, kill)
    again = start(base, tmp_path / "killed", told)
    assert again.figures == whole.figures
    assert weights(tmp_path / "killed", again) == weights(tmp_path / "whole", whole)
