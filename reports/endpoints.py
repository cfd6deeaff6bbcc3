"""What a report says about models behind endpoints, which were asked beside the arms, where a run has any."""

from __future__ import annotations

from typing import Any

from reports.markdown import escape, gain, rate, table

WORDS = (
    "These models were asked the same questions, with the same tool, turns and scoring, over an address that speaks OpenAI's "
    "protocol. They are part of no test: a model that is another one differs in more than in what was practised, and what a "
    "service answers to a name can change. Their tokens are counted as the service reports them."
)


def section(found: dict[str, Any], first: str) -> str:
    """The heading, words and table; nothing where there is none. found: `endpoints` of results.json. first: the test's set."""
    if not found:
        return ""
    rows = []
    for name, one in found.items():
        sampled = one["sets"][first]["sampled"]
        above = sampled[f"trained - endpoint-{name}"]
        rows.append(
            [escape(name), escape(one["model"]), rate(sampled["strict"]), rate(sampled["lenient"]), gain(above)]
        )
    head = ("endpoint", "model", "strict", "lenient", "trained above it, points")
    shown = table(head, rows, escaped=True)
    source = "Sampled answers to the test's questions. Source: results.json, endpoints."
    return f"# Other models, beside the test {{#sec-endpoints}}\n\n{WORDS}\n\n{shown}\n\n{source}"
