"""Which questions an update takes: no question twice, no group too many, the same again after a kill."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import updates
from lib.episodes import Episode
from lib.practice.curricula import Again, Band, Everything, Steps, by_hops, by_length, by_rate, hint_after_wrong
from lib.practice.objectives import Objective
from lib.practice.rates import PREPASS, Tries, rates
from lib.practice.sources import Chosen, Curriculum, Dynamic, Stoppable, shared_out
from lib.updates import Rolled, Update
from tests import synthetic
from tests.small_models import lfm2
from tests.toy_questions import SIZE, Known, ask, episodes, names, play, pool, scored
from tests.toy_training import practise, settings_for, weights

mixed = Objective().mixed


def band(questions: list[dict[str, Any]], **changes: Any) -> Band:
    return Band(
        pool=questions, **{"low": 0.25, "high": 0.75, "sure": 0.5, "easy": 0.1, "never": 0.1, "every": 0, **changes}
    )


def prepass(questions: list[dict[str, Any]], right: Any, samples: int = 4) -> Tries:
    """Tries that hold a pre-pass in which question q had right(q) of its attempts right."""
    tries = Tries()
    for q in questions:
        found = [i < right(q) for i in range(samples)]
        base = [synthetic.episode("base", q, i, "strict" if r else "wrong", "RETURN 1") for i, r in enumerate(found)]
        tries.note(base, PREPASS)
    return tries


# ------------------------------------------------------------ rates


def test_a_rate_is_drawn_towards_what_is_alike() -> None:
    questions = pool(12)
    tries = prepass(questions[:-1], lambda q: 4 * (q["structure"] != "structure-5"))
    known = rates(questions, tries, 0, lambda q: q["structure"], math.inf)
    asked, unasked = known[questions[5]["id"]], known[questions[11]["id"]]  # both of the structure that is never right
    easy = known[questions[0]["id"]]
    assert asked.mean < unasked.mean < 0.5 < easy.mean < 1
    assert unasked.high - unasked.low > asked.high - asked.low
    assert all(0 <= rate.low < rate.high <= 1 for rate in known.values())


def test_a_rate_is_the_posterior_of_the_beta_binomial() -> None:
    """Where no difference between questions shows, the priors are uniform and then as strong as two attempts."""
    questions = pool(2)
    tries = prepass(questions, lambda q: 2)
    [rate, _] = rates(questions, tries, 0, lambda q: "all", math.inf).values()
    prior = (1 + 4) / (2 + 8)
    assert rate.mean == pytest.approx((2 * prior + 2) / (2 + 4))


def test_older_attempts_weigh_less_and_an_episode_counts_once() -> None:
    [q] = pool(1)
    tries = prepass([q], lambda _: 4)
    played = episodes(q, 3, [False] * 4)
    for _ in range(2):
        tries.note(reversed(played))
    tries.note([synthetic.episode("trained-0", q, 9, "error", phase="train", update=3)])
    assert tries.weighted(q["id"], 4, 2.0) == tries.weighted(q["id"], 9, 2.0) == (4 * 0.25 + 4, 4 * 0.25, 3)
    assert tries.weighted("never", 4, 2.0) == (0, 0, PREPASS)
    assert tries.total(q["id"], 4) == (8, 4) and tries.total(q["id"], 3) == (4, 4)
    assert tries.practised(q["id"], 4) == [(3, (4, 0))] and tries.practised(q["id"], 3) == []
    with pytest.raises(ValueError, match="belongs to no update"):
        tries.note([synthetic.episode("base", q, 0, "strict", "RETURN 1")][:1] or [])


def test_a_question_that_wasn_t_asked_for_long_is_moved_by_what_is_alike_and_not_forgotten() -> None:
    questions = pool(12)  # 0 and 6 are of one structure, 1 and 7 of another
    tries = prepass(questions, lambda q: 0)
    tries.note(episodes(questions[0], 9, [True] * 4))
    known, before = (rates(questions, tries, now, lambda q: q["structure"], 3.0) for now in (10, 9))
    moved, other = (known[questions[i]["id"]].mean - before[questions[i]["id"]].mean for i in (6, 7))
    assert moved > 0.03 > other and known[questions[6]["id"]].mean < known[questions[0]["id"]].mean
    long_after = rates(questions, tries, 60, lambda q: q["structure"], 3.0)
    assert long_after[questions[7]["id"]].mean < 0.25


# ------------------------------------------------------------ sources


def test_everything_is_each_question_once_in_a_seeded_order() -> None:
    order = pool(23)
    random.Random("practice 3").shuffle(order)
    tries = Tries()
    played = names(play(Chosen(pool(23), 5, 3, Everything(), tries, ask), range(4), tries))
    assert played == [[q["id"] for q in order[5 * update : 5 * update + 5]] for update in range(4)]


KINDS = ("everything", "band", "re-cut", "hops", "rate", "length", "again")


def curriculum(kind: str, questions: list[dict[str, Any]], tries: Tries) -> Curriculum:
    match kind:
        case "band":
            return band(questions)
        case "re-cut":
            return band(questions, every=2, half_life=3.0, alike="hops")
        case "hops":
            return Steps(levels=by_hops(questions), updates=6, floor=0.1)
        case "rate":
            return Steps(levels=by_rate(band(questions).rates(0, tries), 3), updates=6, floor=0.0)
        case "length":
            return Steps(levels=by_length(questions, 3), updates=6, floor=0.2)
        case "again":
            return Again(others=Everything(), share=0.25)
    return Everything()


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    many=st.integers(4, 30),
    size=st.integers(1, 4),
    extra=st.integers(0, 5),
    rest=st.sampled_from([0, 2, math.inf]),
    seed=st.integers(0, 3),
    killed=st.integers(0, 5),
)
def test_no_question_twice_no_group_too_many_and_the_same_after_a_kill(
    kind: str, many: int, size: int, extra: int, rest: float, seed: int, killed: int
) -> None:
    questions = pool(many)

    def begin() -> tuple[Dynamic, Tries]:
        tries = prepass(questions, lambda q: round(4 * synthetic.difficulty(q)))
        asks = hint_after_wrong(ask, tries)
        return Dynamic(
            Chosen(questions, size, seed, curriculum(kind, questions, tries), tries, asks, rest), extra, mixed, 2
        ), tries

    source, tries = begin()
    run = play(source, range(6), tries)
    for found, asked in zip(run, names(run), strict=True):
        teaching = sum(mixed(one.rollouts) for one in found)
        assert len(set(asked)) == len(asked) and size <= len(asked) <= size + extra
        assert all(len(one.rollouts.trajectories_G) == SIZE for one in found)
        assert teaching >= size or len(asked) == min(many, size + extra)

    again, remembers = begin()
    for one in [one for found in run[:killed] for one in found]:  # what the run's episodes say of the updates before
        question, rights = one.group.question, [worth == 1 for worth in one.rollouts.final_rewards_G]  # type: ignore[attr-defined]
        remembers.note(episodes(question, one.group.label.update, rights))  # type: ignore[attr-defined]
    assert names(play(again, range(killed, 6), remembers)) == names(run)[killed:]


@settings(deadline=None)
@given(
    weights=st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
    many=st.integers(0, 20),
    turns=st.integers(1, 60),
)
def test_shares_come_whole_and_on_average(weights: list[int], many: int, turns: int) -> None:
    shares = [w / sum(weights) for w in weights]
    given = [shared_out(shares, many, turn) for turn in range(turns)]
    assert all(sum(one) == many and min(one) >= 0 for one in given)
    assert all(abs(n - share * many) < 1 + 1e-6 for one in given for n, share in zip(one, shares, strict=True))
    means = [sum(one[i] for one in given) / turns for i in range(len(shares))]
    assert means == pytest.approx([share * many for share in shares], abs=2.5 * (1 + math.log2(turns)) / turns)


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="the pool has 3"):
        Chosen(pool(3), 4, 0, Everything(), Tries(), ask)


def told(source: Chosen, update: int) -> dict[str, int]:
    one = updates.Update(update, [], {})
    assert source.tell(one) is None
    found: dict[str, int] = one.figures["chosen"]
    return found


def test_a_band_that_is_used_up_is_widened_to_the_nearest_and_then_questions_are_reused() -> None:
    questions = pool(24)
    right = {q["id"]: (2 if i < 4 else 3 if i < 12 else 4) for i, q in enumerate(questions)}
    alone = {q["id"]: {**q, "structure": "one"} for q in questions}
    questions = list(alone.values())
    tries = prepass(questions, lambda q: right[q["id"]])
    inside = band(questions, low=0.4, high=0.62, sure=0.3, easy=0.0, never=0.0)
    known = inside.rates(0, tries)
    assert {name for name, rate in known.items() if rate.mean <= 0.62} == {q["id"] for q in questions[:4]}
    source = Chosen(questions, 4, 1, inside, tries, ask)
    run, counted = [], []
    for update in range(7):
        run += names(play(source, [update], tries, rate=lambda q: 0.5))
        counted.append(told(source, update))
    assert [sorted({right[name] for name in asked}) for asked in run[:6]] == [[2], [3], [3], [4], [4], [4]]
    assert run[6] == run[0] or set(run[6]) == set(run[0])  # least recently asked
    assert [one["widened"] for one in counted] == [0, 4, 4, 4, 4, 4, 0] and counted[6]["reused"] == 4
    assert all(one["missing"] == 0 and one["band"] == 4 for one in counted)


def test_a_question_that_rested_is_fresh_again() -> None:
    questions = pool(24)
    tries = prepass(questions, lambda q: 2 if q["id"] < questions[4]["id"] else 4)
    inside = band([{**q, "structure": q["id"]} for q in questions], easy=0.0, never=0.0)
    run = names(play(Chosen(inside.pool, 4, 1, inside, tries, ask, rest=1), range(5), tries))
    assert set(run[0]) == set(run[2]) == set(run[4]) == {q["id"] for q in questions[:4]}
    assert not set(run[1]) & set(run[0]) and not set(run[3]) & set(run[0])


def test_floors_keep_their_share() -> None:
    questions = [{**q, "structure": q["id"]} for q in pool(120)]
    kind = {q["id"]: (0, 2, 4)[i % 3] for i, q in enumerate(questions)}
    tries = prepass(questions, lambda q: kind[q["id"]])
    inside = band(questions, easy=0.1, never=0.15)
    run = play(Chosen(questions, 4, 0, inside, tries, ask), range(10), tries, rate=lambda q: kind[q["id"]] / 4)
    asked = [kind[name] for one in names(run) for name in one]
    assert asked.count(4) == pytest.approx(0.1 * 40, abs=1) and asked.count(0) == pytest.approx(0.15 * 40, abs=1)


def test_what_was_never_solved_comes_before_what_was_never_asked() -> None:
    questions = [{**q, "structure": q["id"]} for q in pool(40)]
    wrong, right = questions[:3], questions[3:20]
    tries = prepass(wrong, lambda q: 0)
    for q in right:
        tries.note(episodes(q, -1, [True] * 4))
    inside = band(questions, easy=0.0, never=0.5)
    [_, _, never] = inside.parts(0, tries)
    assert [never.distance(q) for q in wrong] == [0, 0, 0]
    unasked, solved = ([never.distance(q) for q in some] for some in (questions[20:], right))
    assert min(unasked) > 0 and max(unasked) < min(solved)
    asked = names(play(Chosen(questions, 4, 0, inside, tries, ask), range(2), tries, rate=lambda q: 0.0))
    assert {q["id"] for q in wrong} <= {name for one in asked for name in one}


def test_a_cut_anew_follows_the_run_and_the_first_one_doesn_t() -> None:
    questions = pool(30)
    tries = prepass(questions, lambda q: 2)
    play(Chosen(questions, 5, 0, Everything(), tries, ask), range(4), tries, rate=lambda q: 1.0)
    first, anew = band(questions), band(questions, every=2, half_life=2.0)
    assert first.rates(4, tries) == first.rates(0, tries) == anew.rates(1, tries)
    assert anew.rates(4, tries) == anew.rates(5, tries) != anew.rates(3, tries)
    assert all(anew.rates(4, tries)[q["id"]].mean > anew.rates(0, tries)[q["id"]].mean for q in questions)


def test_steps_go_from_the_first_level_to_the_last() -> None:
    questions = pool(200)
    hops = {q["id"]: q["hops"] for q in questions}
    steps = Steps(levels=by_hops(questions), updates=7, floor=0.0)
    assert {q["hops"] for q in questions} == {0, 1, 2, 3}
    run = names(play(Chosen(questions, 8, 0, steps, tries := Tries(), ask), range(7), tries))
    assert [{hops[name] for name in asked} for asked in run[::2]] == [{0}, {1}, {2}, {3}]
    floored = Steps(levels=by_hops(questions), updates=7, floor=0.1)
    assert [part.share for part in floored.parts(0, Tries())] == pytest.approx([0.7, 0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match="more than there is"):
        Steps(levels=by_hops(questions), updates=7, floor=0.3)


def test_levels_are_quantiles() -> None:
    questions = pool(12)
    tries = prepass(questions, lambda q: q["hops"])
    easy_first = by_rate(band(questions).rates(0, tries), 3)
    short_first = by_length(questions, 4)
    for levels in (easy_first, short_first):
        assert sorted(levels) == sorted(q["id"] for q in questions)
    assert [list(easy_first.values()).count(level) for level in range(3)] == [4, 4, 4]
    assert all(q["hops"] >= 2 for q in questions if easy_first[q["id"]] == 0)
    lengths = [[len(q["query"]) for q in questions if short_first[q["id"]] == level] for level in range(4)]
    assert all(max(a) <= min(b) for a, b in itertools.pairwise(lengths))


def test_a_hint_is_given_after_an_all_wrong_group_and_in_no_update_twice() -> None:
    questions = pool(20)
    tries = Tries()
    source = Chosen(questions, 4, 0, Again(others=Everything(), share=0.5), tries, hint_after_wrong(ask, tries))
    run = play(source, range(4), tries, rate=lambda q: 0.0)
    asked = [{one.group.question["id"]: one.group.question["hint"] for one in found} for found in run]  # type: ignore[attr-defined]
    hints = {q["id"]: q["hint"] for q in questions}
    seen: set[str] = set()
    for update in asked:
        for name, hint in update.items():
            assert hint == (hints[name] if name in seen else None)
        seen |= set(update)
    again = [name for update in asked[1:] for name, hint in update.items() if hint]
    assert len(again) == len(set(again)) >= 4 and all(hints[name] for name in again)


def test_constant_groups_are_replaced_and_stay() -> None:
    questions = pool(40)
    solvable = {q["id"] for i, q in enumerate(questions) if i % 2}
    tries = Tries()
    source = Dynamic(Chosen(questions, 4, 0, Everything(), tries, ask), 20, mixed, 2)
    [found] = play(source, [0], tries, rate=lambda q: 0.5 if q["id"] in solvable else 0.0)
    teaching = [mixed(one.rollouts) for one in found]
    assert sum(teaching) == 4 < len(found)
    thin = Dynamic(source.source, 20, mixed, SIZE + 1)  # groups too small to be trained teach nothing either
    assert len(thin.groups(0, found)) == 4


def test_a_group_is_stopped_where_its_first_rollouts_are_worth_the_same_and_that_is_counted() -> None:
    questions = pool(40)

    def first(question: dict[str, Any], update: int) -> Stoppable:
        whole = ask(question, update)
        given = (question, 2, whole.world, whole.renderer, whole.settings, whole.label, whole.keep)
        return Stoppable(*given, rest=2, mixed=mixed)

    source = Dynamic(Chosen(questions, 4, 0, Everything(), Tries(), first), 0, mixed, 2)
    groups = source.groups(0, [])
    worths = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.4, 0.0)]
    more = [group.further(scored(*found)) for group, found in zip(groups, worths, strict=True)]
    assert more == [0, 2, 0, 2]
    later = groups[1].more(2)
    assert (later.first, later.size) == (2, 2) and (groups[1].first, groups[1].size) == (0, 2)
    made = [scored(*found, *found[::-1]) if many else scored(*found) for found, many in zip(worths, more, strict=True)]
    rolled = [Rolled(group, found, []) for group, found in zip(groups, made, strict=True)]
    assert source.groups(0, rolled) == []  # none is replaced
    update = Update(0, rolled, {})
    source.tell(update)
    assert update.figures["chosen"]["stopped"] == 2 and update.figures["chosen"]["all"] == 4


# ------------------------------------------------------------ a run


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


class Killed(Exception):
    pass


def test_a_run_that_is_killed_goes_on_with_the_same_questions_and_ends_in_the_same_bytes(
    base: str, tmp_path: Path
) -> None:
    """With a band that is cut anew, replaced groups, and a real model; the episodes are all that outlives the first start."""
    questions = pool(18)
    seen: dict[str, list[Episode]] = {"whole": [], "killed": []}

    def start(name: str, guards: list[updates.Guard]) -> updates.Kept:
        root = tmp_path / name
        before = updates.Kept.read(root).update
        seen[name] = [episode for episode in seen[name] if (episode.update or 0) < before]
        tries = prepass(questions, lambda q: random.Random(q["id"]).randrange(5))
        tries.note(seen[name])

        def keep(episode: Episode) -> None:
            seen[name].append(episode)
            tries.note([episode])

        inside = band(questions, every=1, half_life=1.0)
        chosen = Chosen(questions, 3, 0, inside, tries, lambda q, update: Known(q, update, keep), rest=1)
        source = Dynamic(chosen, 2, lambda group: len({reward > 0.5 for reward in group.get_total_rewards()}) > 1, 2)
        return practise(settings_for(base, 3), root, source, guards=[chosen.tell, *guards])

    def kill(update: updates.Update) -> None:
        if update.number == 1:
            raise Killed

    kept = start("whole", [])
    with pytest.raises(Killed):
        start("killed", [kill])
    assert {episode.update for episode in seen["killed"]} == {0, 1}
    again = start("killed", [])
    assert weights(tmp_path / "killed", again) == weights(tmp_path / "whole", kept)
    assert again.figures == kept.figures and all("band" in one["chosen"] for one in kept.figures)
    assert {e.id for e in seen["killed"]} == {e.id for e in seen["whole"]}
    assert len({e.question for e in seen["whole"] if e.update == 0}) > 3  # some were replaced
