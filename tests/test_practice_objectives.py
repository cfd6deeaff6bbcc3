"""What rewards teach: with no option set the loop's own objective to the byte, and by each option what its formula says."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup

from lib import tiny, updates
from lib.agent import EnvironmentFault, Label
from lib.backends import local
from lib.backends.losses import importance_sampling
from lib.graph.query import Reader
from lib.graph.world import CypherWorld
from lib.practice.objectives import TRUNCATED, Counted, Objective, Scored, k3, patient_logprobs
from lib.settings import FORM
from tests.small_models import lfm2
from tests.test_agent import AGENT, BROKEN, RIGHT, Says, call
from tests.toy_questions import scored
from tests.toy_training import practise, settings_for, weights

REWARDS = st.lists(st.sampled_from([0.0, 0.25, 0.6, FORM, 1.0]), min_size=2, max_size=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


@pytest.fixture(scope="module")
def rolled(base: str, tmp_path_factory: pytest.TempPathFactory) -> list[list[TrajectoryGroup]]:
    """What a model rolled out for three updates; its weights change after each."""
    seen: list[list[TrajectoryGroup]] = []

    async def objective(groups: list[TrajectoryGroup]) -> list[tinker.Datum]:
        seen.append(groups)
        return await updates.centred(groups)

    practise(settings_for(base, 3), tmp_path_factory.mktemp("rolled"), objective=objective)
    return seen


def worth(group: TrajectoryGroup, *rewards: float) -> TrajectoryGroup:
    """The same rollouts with other rewards."""
    paid = [
        dataclasses.replace(t, transitions=[dataclasses.replace(turn, reward=0.0) for turn in t.transitions])
        for t in group.trajectories_G
    ]
    return dataclasses.replace(group, trajectories_G=paid, final_rewards_G=list(rewards))


def plain(data: Sequence[tinker.Datum]) -> list[Any]:
    """Data to the byte."""
    return [
        (d.model_input.to_ints(), {k: (v.dtype, v.to_numpy().tobytes()) for k, v in d.loss_fn_inputs.items()})
        for d in data
    ]


def trained(objective: Objective, *groups: TrajectoryGroup) -> list[tinker.Datum]:
    return asyncio.run(objective(list(groups)))


def advantages(data: Sequence[tinker.Datum]) -> list[float]:
    """One of each rollout; all of its sampled tokens have the same, and no other token has any."""
    found = []
    for datum in data:
        given, sampled = (datum.loss_fn_inputs[name].to_torch() for name in ("advantages", "mask"))
        [one] = set(given[sampled > 0].tolist())
        assert not given[sampled == 0].any()
        found.append(one)
    return found


# ------------------------------------------------------------ with nothing set


def test_with_nothing_set_it_is_the_loops_own_to_the_byte(rolled: list[list[TrajectoryGroup]]) -> None:
    flat = [worth(group, 0.5, 0.5, 0.5, 0.5) for group in rolled[0]]
    for groups in (*rolled, [*rolled[1], *flat], flat, []):
        assert plain(trained(Objective(), *groups)) == plain(asyncio.run(updates.centred(groups)))


def test_with_nothing_set_a_run_ends_in_the_same_bytes(base: str, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    settings = settings_for(base, 2)
    assert weights(here, practise(settings, here, objective=Objective())) == weights(there, practise(settings, there))


# ------------------------------------------------------------ advantages


@settings(deadline=None)
@given(
    rewards=REWARDS,
    spread=st.booleans(),
    shuffled=st.sampled_from([None, 0, 1]),
    constant=st.sampled_from([1.0, 300.0]),
)
def test_advantages_of_a_group_sum_to_nought(
    rewards: list[float], spread: bool, shuffled: int | None, constant: float
) -> None:
    found = advantages(trained(Objective(spread=spread, shuffled=shuffled, constant=constant), scored(*rewards)))
    assert len(found) == len(rewards) and sum(found) == pytest.approx(0, abs=1e-3)
    if len(set(rewards)) > 1:
        size = torch.tensor(found).std(correction=0).item() * constant
        assert size == pytest.approx(1 if spread else torch.tensor(rewards).std(correction=0).item(), rel=1e-3)


@settings(deadline=None)
@given(rewards=REWARDS, seed=st.integers(0, 9))
def test_shuffled_rewards_are_the_groups_own_and_the_same_when_an_update_is_made_again(
    rewards: list[float], seed: int
) -> None:
    group, objective = scored(*rewards), Objective(shuffled=seed)
    once, own = advantages(trained(objective, group)), advantages(trained(Objective(), group))
    assert sorted(once) == pytest.approx(sorted(own), abs=1e-6) and once == advantages(trained(objective, group))


def test_shuffled_rewards_say_nothing_of_the_answers(rolled: list[list[TrajectoryGroup]]) -> None:
    """Over many groups and seeds a right answer's advantage is as often below nought as above."""
    groups = [worth(group, 1.0, 0.0, 0.0, 0.0) for update in rolled for group in update]
    first = [advantages(trained(Objective(shuffled=seed), group))[0] > 0 for group in groups for seed in range(40)]
    assert sum(first) / len(first) == pytest.approx(0.25, abs=0.08)
    assert all(advantages(trained(Objective(), group))[0] > 0 for group in groups)


def test_what_was_cut_off_is_in_no_mean_and_isn_t_trained() -> None:
    group = scored(1.0, 0.0, 0.0, 1.0)
    for place, stop in ((1, "max_tokens"), (3, "context_overflow")):
        group.trajectories_G[place] = dataclasses.replace(group.trajectories_G[place], stop_reason=stop)
    group.trajectories_G[0] = dataclasses.replace(group.trajectories_G[0], stop_reason="max_turns")
    cut = Objective(masked=TRUNCATED)
    data = trained(cut, group)
    assert advantages(data) == [0.5, -0.5] and [d.model_input.to_ints()[-1] for d in data] == [10, 12]
    assert advantages(trained(Objective(), group)) == [0.5, -0.5, -0.5, 0.5]
    for trajectory, place in zip(group.trajectories_G, range(4), strict=True):
        group.trajectories_G[place] = dataclasses.replace(trajectory, stop_reason="max_tokens")
    assert trained(cut, group) == [] and not cut.mixed(group)


# ------------------------------------------------------------ worth


@settings(max_examples=150, deadline=None)
@given(
    credit=st.sampled_from(["reward", "strict", "f1", "lenient"]),
    most=st.floats(0, 1.2),
    each=st.tuples(st.floats(0, 2), st.floats(0, 2)),
    cap=st.floats(-0.1, 1.1),
    calls=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=4),
    f1=st.floats(0, 1),
)
def test_no_wrong_answer_is_ever_worth_as_much_as_a_right_one(
    credit: Any, most: float, each: tuple[float, float], cap: float, calls: list[tuple[int, int]], f1: float
) -> None:
    try:
        objective = Objective(credit=credit, most=most, repeated=each[0], failed=each[1], cap=cap)
    except ValueError:
        return
    wrong = min(f1, FORM)
    repeated, failed = zip(*calls, strict=True)
    group = scored(1.0, wrong, 0.0, 1.0, f1=[1, f1, 0, 1], lenient=[1, 1, 0, 1], repeated=repeated, failed=failed)
    right, form, nothing, also_right = objective.worths(group)
    assert min(right, also_right) > max(form, nothing)
    assert all(0 <= penalty <= cap for penalty in objective.penalties(group))


@pytest.mark.parametrize(
    ("credit", "expected"),
    [("reward", [1, 0.6, 0]), ("strict", [1, 0, 0]), ("f1", [1, 0.3, 0.2]), ("lenient", [1, 0.5, 0])],
)
def test_what_a_rollout_is_worth(credit: Any, expected: list[float]) -> None:
    group = scored(1.0, 0.6, 0.0, f1=[1, 0.6, 0.4], lenient=[1, 1, 0])
    assert Objective(credit=credit, most=0.5).worths(group) == pytest.approx(expected)


def test_penalties_are_small_and_capped() -> None:
    group = scored(1.0, 0.0, 0.0, repeated=[0, 2, 9], failed=[1, 0, 9])
    objective = Objective(credit="strict", repeated=0.02, failed=0.05, cap=0.1)
    assert objective.worths(group) == pytest.approx([0.95, -0.04, -0.1])
    with pytest.raises(KeyError):  # a group that doesn't count its calls has no penalties to speak of
        objective.worths(scored(1.0, 0.0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"most": 1.0}, "must be worth less"),
        ({"cap": 0.1}, "could be worth no more than a wrong one"),
        ({"credit": "f1", "most": 0.95, "cap": 0.05}, "could be worth no more than a wrong one"),
        ({"constant": 0.0}, "more than 0"),
        ({"kl": 0.1}, "needs a base"),
    ],
)
def test_options_that_don_t_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Objective(**options)


def test_a_group_counts_its_calls_and_says_what_was_cut_off(uri: str) -> None:
    """On the database: a query once more, one that fails, and a message that is none; then one that is cut."""
    renderer = get_renderer("qwen3_instruct", tiny.build_tokenizer("", ["?"], [RIGHT], ["no rows"], ["Tomar"]))
    malformed = '<tool_call>\n{"name": "run_cypher", "arguments": {"query": \n</tool_call>'
    cut = ("MATCH (t:Tag) RETURN", "length")

    async def go(*says: Any) -> TrajectoryGroup:
        reader = Reader(uri, at_once=4, timeout=20)
        try:
            rows = (await reader.run(RIGHT, 10)).rows
            question = {"id": "q", "question": "?", "rows": rows, "structure": "s", "hops": 0, "split": "train"}
            world, label = CypherWorld(reader, renderer, "(:Tag)", AGENT), Label("r", "a", 0, "train", update=0)
            group = Counted(question, 1, world, renderer, AGENT, label).more(1)
            assert isinstance(group, Counted) and (group.first, group.size) == (1, 1)
            return await do_group_rollout(group, Says(renderer.tokenizer, says))
        finally:
            await reader.close()

    for says, counted, truncated in (
        ([call(RIGHT), call(RIGHT), call(BROKEN), malformed], (1, 2), False),
        ([call(RIGHT), cut], (0, 0), True),
    ):
        group = asyncio.run(go(*says))
        [metrics], [trajectory] = group.metrics_G, group.trajectories_G
        assert (metrics["repeated"], metrics["failed"]) == counted and metrics["strict"] == 1
        assert group.final_rewards_G == [1.0] and (trajectory.stop_reason in TRUNCATED) == truncated


# ------------------------------------------------------------ the distance from the base


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1))
def test_k3_is_never_below_nought(pairs: list[tuple[float, float]]) -> None:
    policy, reference = torch.tensor(pairs, dtype=torch.float64).T
    assert (k3(policy, reference) >= 0).all() and not k3(policy, policy).any()


def by_base(base: str, root: Path, ask: Callable[[Scored], Awaitable[Any]]) -> Any:
    """What `ask` returns of the base model's log-probabilities."""

    async def go() -> Any:
        client = await tinker.ServiceClient().create_sampling_client_async(base_model=base)
        return await ask(patient_logprobs(client, settings_for(base, 1).train.faults))

    with local.serving(root / "tinker", seed=5):
        return asyncio.run(go())


def test_the_distance_has_the_gradient_of_k3_and_constant_groups_keep_it(
    base: str, rolled: list[list[TrajectoryGroup]], tmp_path: Path
) -> None:
    weight, constant = 0.3, 2.0
    flat = worth(rolled[2][0], 0.5, 0.5, 0.5, 0.5)
    groups = [flat, *rolled[2][1:], worth(rolled[2][0], 0.0, 0.0, 0.0, 0.0)]

    async def ask(scores: Scored) -> Any:
        pulled, own = (
            Objective(kl=weight, base=scores, constant=constant),
            Objective(kl=1e-30, base=scores, constant=constant),
        )
        data, without = await pulled(groups), await own(groups)
        reference = [await scores(d.model_input.append_int(d.loss_fn_inputs["target_tokens"].data[-1])) for d in data]
        return data, without, reference, pulled.figures["k3"]

    data, without, reference, distance = by_base(base, tmp_path, ask)
    assert len(data) == len(without) == sum(len(group.trajectories_G) for group in groups)
    distances = []
    for datum, bare, scores in zip(data, without, reference, strict=True):
        inputs, before = ({k: v.to_torch() for k, v in d.loss_fn_inputs.items()} for d in (datum, bare))
        sampled, theirs = inputs["mask"] > 0, torch.tensor(scores[1:])
        assert inputs["advantages"][sampled].any() and not inputs["advantages"][~sampled].any()
        logprobs = inputs["logprobs"].clone().requires_grad_()
        importance_sampling(logprobs, inputs, {}).backward()
        found, logprobs.grad = logprobs.grad, None
        term = weight / constant * k3(logprobs, theirs)[sampled].sum()
        (importance_sampling(logprobs, before, {}) + term).backward()
        torch.testing.assert_close(found, logprobs.grad, atol=1e-6, rtol=1e-4)
        distances.append(k3(inputs["logprobs"], theirs)[sampled])
    assert distance == pytest.approx(torch.cat(distances).mean().item(), rel=1e-5) and distance > 0


def test_the_base_is_at_no_distance_from_itself(base: str, rolled: list[list[TrajectoryGroup]], tmp_path: Path) -> None:
    async def ask(scores: Scored) -> Any:
        objective = Objective(kl=1.0, base=scores)
        return await objective(rolled[0]), objective.figures["k3"]

    data, distance = by_base(base, tmp_path, ask)
    own = trained(Objective(), *rolled[0])
    assert distance == pytest.approx(0, abs=1e-6) and len(data) == len(own)
    for one, other in zip(data, own, strict=True):
        ours, theirs = (d.loss_fn_inputs["advantages"].to_torch() for d in (one, other))
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)


def test_half_an_answer_of_the_base_is_a_fault(base: str) -> None:
    class Half:
        async def compute_logprobs_async(self, text: tinker.ModelInput) -> list[float | None]:
            return [None, -1.0, float("nan")]

    faults = dataclasses.replace(settings_for(base, 1).train.faults, tries=2)
    for tokens in ([1, 2, 3], [1, 2]):
        with pytest.raises(EnvironmentFault, match=r"HalfAnswer.*asked 2 times"):
            asyncio.run(patient_logprobs(Half(), faults)(tinker.ModelInput.from_ints(tokens)))
