"""Every episode is scored by its last query that ran, however it ends; a fault of the world is never the model's mistake."""

import asyncio
import json
from dataclasses import replace

import pytest
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.rollouts import do_group_rollout, do_single_rollout

from lib import tiny
from lib.agent import EnvironmentFault, Label, QuestionGroup
from lib.episodes import Episode
from lib.graph.query import Reader
from lib.graph.world import CypherWorld
from lib.settings import load
from tests.killed_runs import Words

AGENT = replace(load().agent, max_trajectory_tokens=8192)  # here the system prompt is no token of its own
RIGHT = "MATCH (t:Tag) RETURN count(*)"
WRONG = "MATCH (t:Tag) RETURN count(*) + 1"
BROKEN = "MATCH (t:Tag RETURN count(*)"


def call(query):
    return f"<tool_call>\n{json.dumps({'name': 'run_cypher', 'arguments': {'query': query}})}\n</tool_call>"


class Says(TokenCompleter):
    """A policy that says given texts in turn; a text may come as (text, stop reason)."""

    def __init__(self, tokenizer, said):
        self.tokenizer, self.said, self.seen = tokenizer, list(said), []

    async def __call__(self, model_input, stop, *, max_tokens=None):
        self.seen.append(self.tokenizer.decode(model_input.to_ints()))
        text = self.said.pop(0)
        text, reason = text if isinstance(text, tuple) else (text + "<|im_end|>", "stop")
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[0.0] * len(tokens), stop_reason=reason)


@pytest.fixture(scope="module")
def renderer():
    tokenizer = tiny.build_tokenizer("", ["How many tags are there?"], [RIGHT], ["no rows"], ["Tomar"])
    return get_renderer("qwen3_instruct", tokenizer)


def run(uri, renderer, said, settings=AGENT, want=None, at_once=1, hint=None):
    async def go():
        reader = Reader(uri, at_once=4, timeout=20)
        try:
            rows = want or (await reader.run(RIGHT, 10)).rows
            question = {
                "id": "q-1", "question": "How many tags are there?", "hint": hint, "rows": rows, "query": RIGHT,
                "structure": "s", "hops": 0, "split": "dev",
            }  # fmt: skip
            kept = []
            policy = Says(renderer.tokenizer, said)
            world = CypherWorld(reader, renderer, "(:Tag {tagName})", settings)
            group = QuestionGroup(question, at_once, world, renderer, settings, Label("r", "a", 0, "dev"), kept.append)
            trajectories = await do_group_rollout(group, policy)
            return kept, trajectories, policy
        finally:
            await reader.close()

    return asyncio.run(go())


def outcome_of(uri, renderer, said, **more):
    kept, trajectories, _ = run(uri, renderer, said, **more)
    assert trajectories.get_total_rewards() == [kept[0].reward]
    return kept[0]


def test_a_plain_episode(uri, renderer):
    kept, _, policy = run(uri, renderer, [call(RIGHT), "done"])
    e = kept[0]
    assert (e.outcome, e.strict, e.reward, e.turns, e.query) == ("strict", True, 1.0, 2, RIGHT)
    assert "1 row\ncount(*)" in policy.seen[1], "the model sees rows"
    assert [m["role"] for m in e.messages] == ["user", "assistant", "tool", "assistant"]
    assert e.tokens["sampled"] > 0 and e.tokens["prompt"] > e.tokens["sampled"]


def test_the_last_query_that_ran_counts_and_not_the_last_one(uri, renderer):
    assert outcome_of(uri, renderer, [call(WRONG), call(RIGHT), call(BROKEN), "done"]).outcome == "strict"
    assert outcome_of(uri, renderer, [call(RIGHT), call(WRONG), "done"]).outcome == "wrong"


@pytest.mark.parametrize(
    "ending",
    [
        '<tool_call>\n{"name": "run_cypher", "arguments": {"query": \n</tool_call>',  # malformed: the cookbook skips its grader
        '<tool_call>\n{"name": "run_cypher"',  # never closed
        ("MATCH (t:Tag) RETURN", "length"),  # cut at the turn's token limit
        '<tool_call>\n{"name": "drop_everything", "arguments": {}}\n</tool_call>',
    ],
)
def test_a_right_query_is_scored_whatever_comes_after(uri, renderer, ending):
    said = [call(RIGHT), ending, "done", "done"]
    e = outcome_of(uri, renderer, said)
    assert (e.outcome, e.reward) == ("strict", 1.0)
    assert e.outcome == "strict" and any(m["role"] == "assistant" for m in e.messages[3:]), "the ending is kept"


def test_a_right_query_is_scored_when_the_context_overflows(uri, renderer):
    opening = outcome_of(uri, renderer, ["done"]).tokens["prompt"]
    tight = replace(AGENT, max_tokens=40, max_trajectory_tokens=opening + 300)
    long = call("MATCH (t:Tag) WHERE t.tagName <> '" + "zq" * 60 + "' RETURN count(*)")
    e = outcome_of(uri, renderer, [call(RIGHT), long, long, long], settings=tight)
    assert e.stop == "context_overflow"
    assert e.outcome in ("strict", "wrong") and e.query is not None


def test_running_out_of_turns_is_marked_only_where_the_answer_is_wrong(uri, renderer):
    assert outcome_of(uri, renderer, [call(WRONG)] * AGENT.max_turns).outcome == "wrong_turns"
    assert outcome_of(uri, renderer, [call(RIGHT)] * AGENT.max_turns).outcome == "strict"


def test_an_episode_without_a_query_that_ran(uri, renderer):
    assert outcome_of(uri, renderer, ["done"]).outcome == "no_query"
    assert outcome_of(uri, renderer, [call(BROKEN), "done"]).outcome == "no_query"
    assert outcome_of(uri, renderer, ["done"], want=[[None]]).reward == 0.0


def test_form_is_told_from_substance(uri, renderer):
    e = outcome_of(uri, renderer, [call("MATCH (t:Tag) RETURN count(*), 'tags'"), "done"])
    assert (e.outcome, e.strict, e.lenient, e.extra_columns, e.reward) == ("form", False, True, 1, 0.0)


def test_a_hint_is_shown(uri, renderer):
    _, _, policy = run(uri, renderer, ["done"], hint="tags refers to Tag")
    assert "How many tags are there?\nHint: tags refers to Tag" in policy.seen[0]


def test_writes_are_refused_and_say_so(uri, renderer):
    kept, _, policy = run(uri, renderer, [call("CREATE (t:Tag)"), "done"])
    assert kept[0].calls[0]["error"] == "refused" and "refused" in policy.seen[1]


def test_rows_are_shown_cut_and_scored_whole(uri, renderer):
    query = "MATCH (t:Tag) RETURN t.tagName"

    async def rows():
        reader = Reader(uri, at_once=1, timeout=20)
        try:
            return (await reader.run(query, 25_000)).rows
        finally:
            await reader.close()

    want = asyncio.run(rows())
    kept, _, policy = run(uri, renderer, [call(query), "done"], want=want)
    assert len(want) > 50 and kept[0].outcome == "strict"
    assert (kept[0].row_count, len(kept[0].rows)) == (len(want), 50)
    assert policy.seen[1].count("\n" + want[AGENT.shown_rows][0]) == 0


def test_a_dead_database_ends_the_run_instead_of_scoring_it(renderer, monkeypatch):
    monkeypatch.setattr("lib.graph.query.RETURNS_WITHIN", 2.0)
    with pytest.raises(EnvironmentFault):
        run("bolt://127.0.0.1:9", renderer, [call(RIGHT), "done"], want=[[1]])


def test_siblings_get_keys_of_their_own(uri, renderer):
    from lib.backends import rollout_key

    keys = []

    class Records(Says):
        async def __call__(self, model_input, stop, *, max_tokens=None):
            keys.append(rollout_key.get())
            return TokensWithLogprobs(
                tokens=self.tokenizer.encode("done<|im_end|>", add_special_tokens=False),
                maybe_logprobs=None,
                stop_reason="stop",
            )

    async def go():
        reader = Reader(uri, at_once=4, timeout=20)
        question = {
            "id": "q",
            "question": "?",
            "hint": None,
            "rows": [[1]],
            "structure": "s",
            "hops": 0,
            "split": "dev",
        }
        world = CypherWorld(reader, renderer, "", AGENT)
        await do_group_rollout(
            QuestionGroup(question, 4, world, renderer, AGENT, Label("r", "a", 0, "train", update=3)),
            Records(renderer.tokenizer, []),
        )
        await reader.close()

    asyncio.run(go())
    assert len(set(keys)) == 4 and all("u0003" in k for k in keys)


def test_a_lost_rollout_is_kept_as_an_error_and_others_take_new_numbers(renderer):
    class Gone(Words):
        async def verdict(self, question, attempt):
            raise EnvironmentFault("the database is gone")

    question = {"id": "q", "question": "?", "rows": [[1]], "structure": "s", "hops": 0, "split": "train"}
    kept = []

    async def go():
        label = Label("r", "trained-0", 0, "train", update=3)
        group = QuestionGroup(question, 2, Gone(), renderer, AGENT, label, kept.append)
        first, second = await group.make_envs()
        trajectory = await do_single_rollout(Says(renderer.tokenizer, ["MATCH done"]), first)
        with pytest.raises(EnvironmentFault, match="is gone"):
            await group.compute_group_rewards([trajectory], [first])
        group.lost(first, "the database is gone")
        group.lost(second, "it never began")
        more = group.more(3)
        again = await more.more(1).make_envs()
        return (
            trajectory,
            [env.sample for env in [*await more.make_envs(), *again]],
            {e.key for e in [first, second, *again]},
        )

    trajectory, numbers, keys = asyncio.run(go())
    lost, never = kept
    assert (lost.outcome, lost.fault, lost.reward, lost.strict) == ("error", "the database is gone", 0.0, False)
    assert [m["role"] for m in lost.messages] == ["user", "assistant"] and lost.turns == 1
    turn = trajectory.transitions[0]
    assert lost.tokens == {"prompt": turn.ob.length, "sampled": len(turn.ac.tokens)}
    assert (never.outcome, never.turns, never.tokens) == ("error", 0, {"prompt": 0, "sampled": 0})
    assert numbers == [2, 3, 4, 5] and len(keys) == 3 and len({e.id for e in kept}) == 2
    assert Episode.from_line(lost.line()) == lost
