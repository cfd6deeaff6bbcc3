"""The training loop makes the cookbook's updates; what fails outside of the model is asked again, and else counts for nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tinker
from tinker import types
from tinker_cookbook.rl.types import StepResult, TrajectoryGroup

from lib import faults, updates
from lib.agent import EnvironmentFault
from lib.backends import local, rollout_key, sampling_client, training_client
from lib.backends.futures import API
from lib.backends.ledger import LimitReached
from lib.backends.tokenizer import lock_tokenizer
from tests import cookbook_loops, toy_training
from tests.small_models import lfm2
from tests.toy_training import GROUPS, Group, Practice, practise, settings_for, weights

STEPS = 3
REQUEST = httpx.Request("POST", "http://service.invalid")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))
    lock_tokenizer(folder)
    return folder


@pytest.fixture(autouse=True)
def coarse_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some groups are worth the same throughout, and all of the third update."""
    fine = cookbook_loops.EvenWords.step

    async def step(self: cookbook_loops.EvenWords, action: Any, *, extra: Any = None) -> StepResult:
        done = await fine(self, action, extra=extra)
        constant = int(self.key.split("/")[0]) // GROUPS == 2
        return dataclasses.replace(done, reward=0.5 if constant else float(done.reward > 0.5))

    monkeypatch.setattr(cookbook_loops.EvenWords, "step", step)


@pytest.fixture(scope="module")
def undisturbed(base: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights in the end where nothing fails."""
    root = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        coarse_rewards.__wrapped__(patch)  # type: ignore[attr-defined]
        return weights(root, practise(settings_for(base, STEPS), root))


def test_the_updates_are_the_cookbooks(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every datum with its order, the optimiser's parameters, what is sampled, and all bytes of the weights."""
    there, here, steps = tmp_path / "there", tmp_path / "here", 4
    with monkeypatch.context() as patch:
        theirs = toy_training.record(patch)
        with local.serving(there / "tinker", seed=5):
            cookbook_loops.practise(Path(base), there, steps, die_at=-1)
    with monkeypatch.context() as patch:
        ours = toy_training.record(patch)
        kept = practise(settings_for(base, steps), here)
    assert ours == theirs and len(ours.steps) == steps
    assert weights(here, kept) == cookbook_loops.final_weights(there, "rl")
    sizes = [len(data) for _, _, data in ours.passes]
    assert sizes[2] == 4  # one group of those that are worth the same throughout
    assert min(sizes) < 4 * GROUPS and max(sizes) > 4  # elsewhere some were left out, and some not


# ------------------------------------------------------------ faults


def status(kind: Any, code: int) -> Exception:
    error: Exception = kind("no", response=httpx.Response(code, request=REQUEST), body=None)
    return error


FAULTS = [
    status(tinker.RateLimitError, 429),
    status(tinker.InternalServerError, 503),
    status(tinker.ConflictError, 409),
    status(tinker.NotFoundError, 404),
    tinker.APIConnectionError(request=REQUEST),
    tinker.APITimeoutError(request=REQUEST),
    tinker.RequestFailedError("no", "1", types.RequestErrorCategory.Server),
    httpx.ReadError("cut off"),
    TimeoutError(),
    ConnectionResetError(),
    "no samples",
    "no log-probabilities",
    "no numbers",
]
OWN = [
    status(tinker.BadRequestError, 400),
    tinker.RequestFailedError("no", "1", types.RequestErrorCategory.User),
    LimitReached("all is spent"),
    ValueError("a mistake of ours"),
]


class Sampler:
    """Makes the local sampler fail: `plan` says by rollout, and how often that was asked, with what; None: not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: Any):
        self.asked = Counter[str]()
        usual = sampling_client.SamplingClient.sample_async

        async def sample(client: Any, **asked: Any) -> Any:
            key = str(rollout_key.get())
            self.asked[key] += 1
            fault = plan(key, self.asked[key])
            if isinstance(fault, Exception):
                raise fault
            answer = await usual(client, **asked)
            if fault == "no samples":
                return dataclasses.replace(answer, sequences=[])
            if fault in ("no log-probabilities", "no numbers"):
                [one] = answer.sequences
                logprobs = None if fault == "no log-probabilities" else one.tokens_np * np.nan
                half = types.SampledSequence("stop", "1", tokens_np=one.tokens_np, logprobs_np=logprobs)
                return dataclasses.replace(answer, sequences=[half])
            return answer

        monkeypatch.setattr(sampling_client.SamplingClient, "sample_async", sample)


def test_what_fails_for_a_while_changes_nothing(
    base: str, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(key: str, asked: int) -> Any:
        group, sample = map(int, key.split("/"))
        return FAULTS[(group * 4 + sample) % len(FAULTS)] if asked in (1, 3) else None

    sampler = Sampler(monkeypatch, plan)
    source = Practice()
    kept = practise(settings_for(base, STEPS, tries=3), tmp_path, source)
    assert weights(tmp_path, kept) == undisturbed
    assert set(sampler.asked.values()) == {4} and not source.record["lost"]  # two turns, each asked twice


@pytest.mark.parametrize("error", OWN, ids=lambda e: type(e).__name__)
def test_ones_own_mistakes_stop_a_run_at_once_and_cut_nothing_off(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sampler = Sampler(monkeypatch, lambda key, asked: error if key == "1/2" else None)
    source = Practice()
    with pytest.raises(type(error)) as raised:
        practise(settings_for(base, STEPS), tmp_path, source)
    assert raised.value is error and sampler.asked["1/2"] == 1
    others = {f"{group}/{sample}" for group in range(GROUPS) for sample in range(4)} - {"1/2"}
    assert set(source.record["kept"]) == others and not source.record["lost"]


def test_lost_rollouts_are_in_no_mean_and_aren_t_trained(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"0/1", "3/0", "3/2"}
    sampler = Sampler(monkeypatch, lambda key, asked: FAULTS[0] if key in gone else None)
    sent = toy_training.record(monkeypatch)
    seen: list[updates.Update] = []
    source = Practice()
    practise(settings_for(base, 2, tries=2), tmp_path, source, guards=[seen.append])
    assert set(source.record["lost"]) == gone and {sampler.asked[key] for key in gone} == {2}
    assert [one.figures["rollouts_lost"] for one in seen] == [1, 2]
    assert [one.figures["groups_dropped"] for one in seen] == [0, 0]
    for update, (_, _, data) in zip(seen, sent.passes, strict=True):
        teaching = updates.remove_constant_reward_groups([one.rollouts for one in update.rolled])
        assert len(data) == sum(len(group.trajectories_G) for group in teaching)
        advantages = [max(inputs["advantages"][1], key=abs) for _, inputs in data]
        means = [(group, sum(group.get_total_rewards()) / len(group.trajectories_G)) for group in teaching]
        expected = [reward - mean for group, mean in means for reward in group.get_total_rewards()]
        assert advantages == pytest.approx(expected, abs=1e-6)
    assert "asked 2 times" in seen[0].rolled[0].lost[0] and "RateLimitError" in seen[0].rolled[0].lost[0]


@pytest.mark.parametrize("mended", [True, False])
def test_a_group_with_too_few_is_rolled_again_with_other_draws_or_dropped(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    gone = {"1/0", "1/1", "1/3"}
    Sampler(
        monkeypatch,
        lambda key, asked: (
            EnvironmentFault("gone") if key in gone or (not mended and key in ("1/4", "1/5", "1/6")) else None
        ),
    )
    seen: list[updates.Update] = []
    source = Practice()
    practise(settings_for(base, 1, tries=1, most=0.9, rerolls=1), tmp_path, source, guards=[seen.append])
    [update] = seen
    group = update.rolled[1]
    if mended:
        assert len(group.rollouts.trajectories_G) == 4 and {"1/2", "1/4", "1/5", "1/6"} <= set(source.record["kept"])
        assert len({tuple(t.transitions[0].ac.tokens) for t in group.rollouts.trajectories_G}) == 4  # other draws
    else:
        assert len(group.rollouts.trajectories_G) == 1 and len(group.lost) == 6
    assert update.figures["groups_dropped"] == (0 if mended else 1)
    assert update.figures["rollouts_lost"] == (3 if mended else 6)
    assert len(source.record["kept"]) == len(set(source.record["kept"])) == (12 if mended else 9)


def test_too_many_faults_stop_a_run_which_then_goes_on_from_before_that_update(
    base: str, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(base, STEPS, tries=2, most=0.2)
    with monkeypatch.context() as patch:
        Sampler(patch, lambda key, asked: FAULTS[1] if int(key.split("/")[0]) >= GROUPS else None)
        with pytest.raises(updates.TooManyFaults, match=r"24 of 24 rollouts .* 0\.2 .*InternalServerError.*goes on"):
            practise(settings, tmp_path)
    assert updates.Kept.read(tmp_path).update == 1
    assert weights(tmp_path, practise(settings, tmp_path)) == undisturbed


def test_a_sampler_that_is_stuck_or_gives_half_is_a_fault() -> None:
    class Stuck:
        async def sample_async(self, **asked: Any) -> None:
            await asyncio.sleep(3600)

    few = dataclasses.replace(settings_for("m", 1).train.faults, tries=1, answer_within=0.01)
    with pytest.raises(EnvironmentFault, match=r"TimeoutError.*asked once"):
        asyncio.run(faults.Patient(Stuck(), few).sample_async(num_samples=1))


def test_a_key_that_a_service_repeats_is_in_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-0123456789")

    async def refused(_: int) -> None:
        raise ConnectionError("no such key: tml-0123456789, try again")

    once = dataclasses.replace(settings_for("m", 1).train.faults, tries=1)
    with pytest.raises(EnvironmentFault, match=r"no such key: \[TINKER_API_KEY\], try again \(asked once\)"):
        asyncio.run(faults.patiently(refused, once))


def no_numbers(answer: Any) -> Any:
    """A pass's answer with log-probabilities that are none."""
    for output in answer.loss_fn_outputs:
        output["logprobs"] = types.TensorData.from_numpy(output["logprobs"].to_numpy() * np.float32(np.nan))
    return answer


@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("forward_backward_async", "lost"),
        ("optim_step_async", "lost"),
        ("forward_backward_async", "stuck"),
        ("forward_backward_async", "no numbers"),
        ("forward_backward_async", "half"),
    ],
)
def test_a_step_that_failed_is_made_again_from_the_state_before_it(
    base: str, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, how: str
) -> None:
    """Also where it was done and only its answer was lost, never came, or made no sense."""
    usual = getattr(training_client.TrainingClient, when)
    times = Counter[str]()

    async def failing(self: Any, *args: Any, **options: Any) -> Any:
        future = await usual(self, *args, **options)
        times[when] += 1
        if times[when] != 2:
            return future
        answer = await future.result_async()
        if how == "lost":
            raise FAULTS[4]  # type: ignore[misc]
        if how == "stuck":
            await asyncio.sleep(3600)
        changed: Future[Any] = Future()
        spoilt = (
            no_numbers(answer)
            if how == "no numbers"
            else dataclasses.replace(answer, loss_fn_outputs=answer.loss_fn_outputs[1:])
        )
        changed.set_result(spoilt)
        return API(changed)

    monkeypatch.setattr(training_client.TrainingClient, when, failing)
    within = {"answer_within": 3.0} if how == "stuck" else {}
    kept = practise(settings_for(base, STEPS, **within), tmp_path)
    assert weights(tmp_path, kept) == undisturbed and times[when] == STEPS + 1


def test_a_session_or_a_deletion_that_never_answers_is_given_up(
    base: str, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is opened again; what isn't deleted now is deleted with the next."""
    times = Counter[str]()

    def stuck_at_first(owner: Any, name: str) -> None:
        usual = getattr(owner, name)

        async def method(self: Any, *args: Any, **options: Any) -> Any:
            times[name] += 1
            if times[name] == 1:
                await asyncio.sleep(3600)
            return await usual(self, *args, **options)

        monkeypatch.setattr(owner, name, method)

    stuck_at_first(local.ServiceClient, "create_lora_training_client_async")
    stuck_at_first(local.RestClient, "delete_checkpoint_from_tinker_path_async")
    kept = practise(settings_for(base, STEPS, answer_within=3.0), tmp_path)
    assert weights(tmp_path, kept) == undisturbed and not kept.replaced
    assert times["create_lora_training_client_async"] == 2
    assert {path.stem for path in (tmp_path / "tinker").rglob("*.safetensors")} == {"final"}


def test_a_state_that_cant_be_saved_is_left_out_but_for_the_last(
    base: str, undisturbed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = training_client.TrainingClient.save_state_async
    names: list[str] = []

    async def save(self: Any, name: str, **options: Any) -> Any:
        names.append(name)
        if name.startswith("000002") or name == "final":
            raise FAULTS[0]  # type: ignore[misc]
        return await usual(self, name, **options)

    monkeypatch.setattr(training_client.TrainingClient, "save_state_async", save)
    kept = practise(settings_for(base, STEPS, tries=2), tmp_path)
    assert weights(tmp_path, kept) == undisturbed
    assert names == ["000001", "000002", "000002-1", "final", "final-1"]
    left = {path.stem for path in (tmp_path / "tinker").rglob("*.safetensors")}
    assert left == {"final-1", "final"} and not kept.replaced  # the state and the weights for sampling: no other stays


# ------------------------------------------------------------ what can be exchanged


def test_a_source_is_told_what_came_and_may_want_more(base: str, tmp_path: Path) -> None:
    told: list[tuple[int, list[int]]] = []

    class Replaces(Practice):
        def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
            told.append((update, [len(set(one.rollouts.get_total_rewards())) for one in rolled]))
            if (
                rolled
                and len(rolled) == GROUPS
                and any(len(set(one.rollouts.get_total_rewards())) == 1 for one in rolled)
            ):
                return [Group(100 + update, record=self.record)]
            return [] if rolled else super().groups(update, rolled)

    seen: list[updates.Update] = []
    practise(settings_for(base, STEPS), tmp_path, Replaces(), guards=[seen.append])
    assert [update for update, rewards in told if not rewards] == list(range(STEPS))
    assert (2, [1, 1, 1]) in told and [len(one.rolled) for one in seen][2] == GROUPS + 1
    assert all(len(rewards) in (0, GROUPS, GROUPS + 1) for _, rewards in told)


@pytest.mark.parametrize("first", [1, 2, 3])
def test_rollouts_that_are_asked_for_later_make_one_group_with_those_before(
    base: str, undisturbed: bytes, tmp_path: Path, first: int
) -> None:
    """The same bytes as of rollouts that are all asked for at once."""

    class InParts(Group):
        def further(self, made: TrajectoryGroup) -> int:
            assert len(made.trajectories_G) == len(set(self.record["kept"]) & {f"{self.number}/{i}" for i in range(4)})
            return 4 - len(made.trajectories_G)

    class Source(Practice):
        def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
            return [InParts(one.number, size=first, record=one.record) for one in super().groups(update, rolled)]

    seen: list[updates.Update] = []
    kept = practise(settings_for(base, STEPS), tmp_path, Source(), guards=[seen.append])
    assert weights(tmp_path, kept) == undisturbed
    assert [[len(one.rollouts.trajectories_G) for one in update.rolled] for update in seen] == [[4] * GROUPS] * STEPS


@pytest.mark.parametrize(
    ("gone", "kept"),
    [
        ({"1/0"}, {"1/1", "1/2", "1/3", "1/4"}),  # of the first rollouts: another is made at once
        ({"1/2"}, {"1/0", "1/1", "1/3"}),  # of the later ones: three are enough
        ({"1/0", "1/2", "1/3"}, {"1/1", "1/4"}),  # of both, and what was made again
        ({f"1/{i}" for i in range(9)}, set()),
    ],
)
def test_a_group_in_parts_uses_no_draws_twice_whatever_is_lost(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: set[str], kept: set[str]
) -> None:
    class InParts(Group):
        def further(self, made: TrajectoryGroup) -> int:
            return 2 if made.trajectories_G else 0

        def more(self, size: int) -> Group:
            return InParts(self.number, self.first + self.size, size, self.record)

    class Source(Practice):
        def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
            return [InParts(one.number, size=2, record=one.record) for one in super().groups(update, rolled)]

    Sampler(monkeypatch, lambda key, asked: EnvironmentFault("gone") if key in gone else None)
    seen: list[updates.Update] = []
    source = Source()
    practise(settings_for(base, 1, tries=1, most=0.9, rerolls=1), tmp_path, source, guards=[seen.append])
    assert {key for key in source.record["kept"] if key.startswith("1/")} == kept
    everything = source.record["kept"] + source.record["lost"]
    assert len(everything) == len(set(everything))
    [update] = seen
    assert len(update.rolled[1].rollouts.trajectories_G) == len(kept)
    assert update.figures["groups_dropped"] == (len(kept) < 2)


def test_a_group_that_is_stopped_has_a_mean_and_counts(base: str, tmp_path: Path) -> None:
    class Stopped(Group):
        def further(self, made: TrajectoryGroup) -> int:
            return 0 if len(set(made.get_total_rewards())) == 1 else 2

    class Source(Practice):
        def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
            return [Stopped(one.number, size=2, record=one.record) for one in super().groups(update, rolled)]

    seen: list[updates.Update] = []
    source = Source()
    practise(settings_for(base, STEPS), tmp_path, source, guards=[seen.append])
    rewards = [one.rollouts.get_total_rewards() for update in seen for one in update.rolled]
    assert {len(found) for found in rewards} == {2, 4}
    assert all((len(found) == 2) == (len(set(found[:2])) == 1) for found in rewards)
    assert [update.figures["groups_dropped"] for update in seen] == [0] * STEPS
    assert len(source.record["kept"]) == len(set(source.record["kept"])) == sum(map(len, rewards))


def test_guards_warn_and_stop_before_the_state_is_kept(base: str, undisturbed: bytes, tmp_path: Path) -> None:
    class Collapse(RuntimeError):
        pass

    def guard(update: updates.Update) -> str | None:
        if update.number == 1:
            raise Collapse
        return f"entropy {update.figures['optim/entropy']:.1f}" if update.number == 0 else None

    settings = settings_for(base, STEPS)
    with pytest.raises(Collapse):
        practise(settings, tmp_path, guards=[guard])
    kept = updates.Kept.read(tmp_path)
    assert kept.update == 1 and kept.figures[0]["warnings"][0].startswith("entropy ")
    assert weights(tmp_path, practise(settings, tmp_path)) == undisturbed


class Back:
    """Wants the run to go back after some updates and warns of others; notes the states that are there, and the one kept."""

    def __init__(self, root: Path, after: Sequence[int] = (), warns: Sequence[int] = (), goes_back: bool = True):
        self.root, self.after, self.warns, self.goes_back = root, after, warns, goes_back
        self.there: list[set[str]] = []
        self.kept: list[bytes | None] = []

    def __call__(self, update: updates.Update) -> str | None:
        state = updates.Kept.read(self.root).state
        self.there.append(stems(self.root))
        self.kept.append(state_bytes(self.root, state) if state else None)
        if update.number in self.after:
            raise updates.GoBack("collapsed")
        return "careful" if update.number in self.warns else None


class Killed(Exception):
    """Stands for whatever ends a process."""


def stems(root: Path) -> set[str]:
    return {path.stem for path in (root / "tinker").rglob("*.safetensors")}


def state_bytes(root: Path, state: str) -> bytes:
    return (root / "tinker" / (state.removeprefix("tinker://") + ".safetensors")).read_bytes()


def test_a_run_goes_back_to_the_last_state_that_no_guard_spoke_of(base: str, tmp_path: Path) -> None:
    guard = Back(tmp_path, after=[3], warns=[2])
    kept = practise(settings_for(base, 5), tmp_path, guards=[guard])
    assert [one.get("went_back_to") for one in kept.figures] == [None, None, None, 1, None]
    assert [one.get("warnings") for one in kept.figures] == [None, None, ["careful"], ["collapsed"], None]
    assert guard.kept[4] == guard.kept[1] and len(set(guard.kept)) == 4
    assert guard.there == [set(), {"000001"}, {"000001", "000002"}, {"000001", "000003"}, {"000001", "000004"}]
    assert stems(tmp_path) == {"final"} and (kept.good, kept.good_update, kept.replaced) == (None, 0, [])
    assert (
        kept.state is not None and state_bytes(tmp_path, kept.state) not in guard.kept
    )  # it goes on learning from there


def test_a_killed_run_goes_back_as_an_undisturbed_one(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each update's guards, and before and after each state is noted."""
    usual, settings = updates.write_json, settings_for(base, 5)
    whole = practise(settings, tmp_path / "whole", guards=[Back(tmp_path / "whole", [3], [2])])
    root = tmp_path / "killed"

    def start(noting: int = -1, noted: int = -1, told: int = -1) -> updates.Kept:
        def write(path: Path, value: Any) -> None:
            if value["update"] == noting:
                raise Killed
            usual(path, value)
            if value["update"] == noted:
                raise Killed

        def die(update: updates.Update) -> None:
            if update.number == told:
                raise Killed

        monkeypatch.setattr(updates, "write_json", write)
        return practise(settings, root, guards=[Back(root, [3], [2]), die])

    for number in range(5):
        for point in ({"told": number}, {"noting": number + 1}, {"noted": number + 1}):
            with pytest.raises(Killed):
                start(**point)
            kept = updates.Kept.read(root)
            assert {path for path in (kept.state, kept.good) if path} <= there(root)
    kept = start()
    assert kept.figures == whole.figures and weights(root, kept) == weights(tmp_path / "whole", whole)


def there(root: Path) -> set[str]:
    files = (root / "tinker").rglob("*.safetensors")
    return {f"tinker://{path.relative_to(root / 'tinker').with_suffix('')}" for path in files}


def test_without_a_good_state_a_run_goes_back_to_the_base_model(base: str, tmp_path: Path) -> None:
    async def nothing(groups: list[Any]) -> list[tinker.Datum]:
        return []

    untrained = practise(settings_for(base, 1), tmp_path / "untrained", objective=nothing)
    assert untrained.state is not None
    guard = Back(tmp_path / "run", after=[1], warns=[0])
    kept = practise(settings_for(base, 3), tmp_path / "run", guards=[guard])
    assert kept.figures[1]["went_back_to"] == 0
    assert guard.kept[2] == state_bytes(tmp_path / "untrained", untrained.state) != guard.kept[1]


def test_a_state_that_couldn_t_be_kept_is_none_to_go_back_to(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = training_client.TrainingClient.save_state_async

    async def save(self: Any, name: str, **options: Any) -> Any:
        if name.startswith("000002"):
            raise FAULTS[0]  # type: ignore[misc]
        return await usual(self, name, **options)

    monkeypatch.setattr(training_client.TrainingClient, "save_state_async", save)
    guard = Back(tmp_path, after=[3])
    kept = practise(settings_for(base, 5, tries=1), tmp_path, guards=[guard])
    assert kept.figures[3]["went_back_to"] == 1 and guard.kept[4] == guard.kept[1]
    assert guard.there[2:] == [{"000001"}, {"000001", "000003"}, {"000001", "000004"}] and stems(tmp_path) == {"final"}


def test_a_run_doesn_t_go_back_for_ever(base: str, tmp_path: Path) -> None:
    """The one that stops it says how to go on, and says so again."""
    settings, told = settings_for(base, 6), r"update 4: collapsed\. .*back 3 times .*before update 4, tinker://.*`run`"
    for _ in range(2):
        with pytest.raises(updates.TooManyReturns, match=told):
            practise(settings, tmp_path, guards=[Back(tmp_path, after=[1, 2, 3, 4])])
    assert [one.get("went_back_to") for one in updates.Kept.read(tmp_path).figures] == [None, 0, 0, 0]
    assert practise(settings, tmp_path, guards=[Back(tmp_path)]).update == 6


def test_a_guard_that_stops_comes_before_one_that_goes_back(base: str, tmp_path: Path) -> None:
    def stop(update: updates.Update) -> None:
        raise Killed

    with pytest.raises(Killed):
        practise(settings_for(base, 1), tmp_path, guards=[Back(tmp_path, after=[0]), stop])


def test_without_such_a_guard_no_second_state_is_kept(base: str, undisturbed: bytes, tmp_path: Path) -> None:
    guard = Back(tmp_path, goes_back=False)
    assert weights(tmp_path, practise(settings_for(base, STEPS), tmp_path, guards=[guard])) == undisturbed
    assert guard.there == [set(), {"000001"}, {"000002"}]
    with pytest.raises(updates.GoBack):
        practise(settings_for(base, 1), tmp_path / "other", guards=[Back(tmp_path / "other", [0], goes_back=False)])


def test_a_run_that_ends_early_leaves_no_good_state(base: str, tmp_path: Path) -> None:
    """As one whose budget is spent: lib/learning/budget.py."""

    class Spent(Practice):
        def groups(self, update: int, rolled: Sequence[updates.Rolled]) -> Sequence[Group]:
            if update == 2:
                raise Killed
            return super().groups(update, rolled)

    with pytest.raises(Killed):
        practise(settings_for(base, 4), tmp_path, Spent(), guards=[Back(tmp_path)])
    assert stems(tmp_path) == {"000001", "000002"}
    practise(settings_for(base, 2), tmp_path, guards=[Back(tmp_path)])
    assert stems(tmp_path) == {"000002", "final"}


def test_what_was_kept_before_there_were_returns_can_be_read(tmp_path: Path) -> None:
    old = {"update": 2, "state": "tinker://run/weights/000002", "sampler": None, "figures": [], "replaced": []}
    updates.write_json(updates.Kept.file(tmp_path), old)
    assert updates.Kept.read(tmp_path) == updates.Kept(update=2, state="tinker://run/weights/000002")


def test_another_objective_decides_what_is_trained(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(groups: list[Any]) -> list[tinker.Datum]:
        return []

    sent = toy_training.record(monkeypatch)
    kept = practise(settings_for(base, 2), tmp_path, objective=nothing)
    assert not sent.passes and not sent.steps
    assert [one["update"] for one in kept.figures] == [0, 1] and all("optim/loss" not in one for one in kept.figures)
