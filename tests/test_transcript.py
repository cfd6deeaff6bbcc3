"""What a model or a database said is shown, never executed."""

from __future__ import annotations

import json

from lib.transcript import as_html, matching, side_by_side

HOSTILE = "<script>alert(1)</script>"
EPISODE = {
    "arm": "control",
    "question": "q-1",
    "structure": HOSTILE,
    "decode": "sampled",
    "sample": 0,
    "outcome": "wrong",
    "reward": 0.5,
    "row_count": 3,
    "stop": "done",
    "fault": HOSTILE,
    "query": f"RETURN '{HOSTILE}'",
    "messages": [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": f"How many {HOSTILE}?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "run_cypher", "arguments": json.dumps({"query": HOSTILE})}]},
        {"role": "assistant", "content": "", "tool_calls": [{"name": HOSTILE, "arguments": "no JSON " + HOSTILE}]},
        {"role": HOSTILE, "content": [{"type": "text", "text": HOSTILE}]},
    ],
}  # fmt: skip


def test_everything_is_escaped():
    page = side_by_side(EPISODE, EPISODE)
    assert "<script" not in page and page.count("&lt;script&gt;") >= 16


def test_a_call_is_shown_as_its_query():
    assert "run_cypher: &lt;script&gt;" in as_html(EPISODE) and "no JSON" in as_html(EPISODE)


def test_episodes_are_found_by_their_fields():
    other = EPISODE | {"arm": "base", "outcome": "strict"}
    assert matching([EPISODE, other], arm="base", outcome="") == [other]
    assert matching([EPISODE, other], arm="", structure=None) == [EPISODE, other]
