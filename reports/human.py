"""What a report says about people's questions, whether the run asked any or not."""

from __future__ import annotations

from typing import Any

from lib.compare import points
from lib.human_results import ALL, CLEAN
from reports.markdown import arm_words, block, count, escape, gain, interval, percent, rate, table

MEANING = {
    "suspected wrong reference": "the SQL returns other rows than the words ask for",
    "empty": "the reference has no rows, or nothing but NULL and zero, which a wrong query returns as easily",
    "tied at the cut": "chance decides which rows a LIMIT of the reference lets in",
    "SQL and Cypher disagree": "two references, written apart, return other rows",
    "ambiguous name": "several users have a name that the question means one of",
    "usable": "nothing speaks against the reference (an answer in Cypher alone can only be told to be empty)",
}
NONE = (
    "This run asked none: `human.questions` in params.yaml names no file. Whether practice helps with questions that people "
    "wrote is what a full-size study is meant to ask, and is untested here."
)
SMALL = (
    "The set may be small, and the model is: its words are those of the generator, and what people write it reads letter by "
    "letter. A rate near zero says nothing about practice, and the figures are part of no verdict. Questions are resampled "
    "one by one, since they share no structure; where few are solved, few can change, and an interval is then too sure of "
    "itself (a dagger)."
)


def callout(found: dict[str, Any] | None) -> str:
    """The warning on the first page. found: `human` of results.json."""
    if found is None:
        return (
            "**Transfer to human questions is untested here.** It is what a full-size study is meant to ask. This model "
            "reads only the wording of the generator and can't read questions that people wrote."
        )
    one = _main(found, ALL)
    return (
        f"**People's questions were asked as well, {count(found['sampled'][ALL]['questions'])} of them, outside of the "
        f"test** (@sec-human): {points(one['delta'])} points {interval(one['low'], one['high'])} strictly. This model was "
        "taught the wording of the generator alone, so that figure says little about practice."
        if one
        else "**People's questions were asked as well, outside of the test**, but no episode of them can be counted."
    )


def words(found: dict[str, Any] | None) -> str:
    """The section's text above its tables."""
    if found is None:
        return NONE
    release = f" They are those of the {escape(found['release']['name'])} (CC BY-SA 4.0)." if found["release"] else ""
    every, clean = (found["sampled"][part]["questions"] for part in (ALL, CLEAN))
    return (
        f"Beside the test, every arm answered {count(every)} questions that people wrote.{release} Each had its status "
        f"before any model answered, frozen in plan.json; {count(clean)} are usable (*clean*). Results are shown with all of "
        f"them and with the clean ones, for neither replaces the other.\n\n{SMALL}\n\n{_unanswerable(found)}"
    )


def _unanswerable(found: dict[str, Any]) -> str:
    """Which questions nothing could have been right on, so that a zero is not taken for the model's."""
    long, answer, unknown = (
        found["unanswerable"][kind] for kind in ("question_too_long", "answer_too_long", "no_query")
    )
    said = []
    if long[ALL]:
        said.append(
            f"**There is no room for an answer to {count(long[ALL])} of them ({count(long[CLEAN])} clean) in this model's "
            "context:** an episode ends before its first word, and counts as wrong in every arm. Raise `agent.max_trajectory_tokens` "
            "and `model.context` for these."
        )
    if answer[ALL]:
        said.append(
            f"**The reference query of {count(answer[ALL])} ({count(answer[CLEAN])} clean) is longer than a turn "
            "may be** (`agent.max_tokens`), so that only a shorter query could be right."
        )
    if not said:
        said.append("All of them, and their reference queries, fit this model's context.")
    if unknown[ALL]:
        said.append(f"Of {count(unknown[ALL])} no Cypher is known that returns the reference rows.")
    return " ".join(said)


def tables(found: dict[str, Any] | None) -> str:
    """The section's tables, each with its caption and source; nothing for a run without people's questions."""
    if found is None:
        return ""
    statuses = table(
        ["status", "what it means", "questions"],
        [[status, MEANING[status], number] for status, number in found["counts"].items()],
    )
    suspected = table(
        ["why the reference is suspected", "questions"], [[why, number] for why, number in found["suspected"].items()]
    )
    parts = [
        block("human-arms", _arms(found), "Strict and lenient rates, and how many sampled episodes ended since a turn or "
               "the whole was as long as it may be. Source: results.json, human."),
        block("human-contrasts", _contrasts(found), "Paired differences of strict rates in points, over questions. Source: "
               "results.json, human."),
        block("human-statuses", statuses, "Questions by the first status that fits. Source: plan.json, human."),
    ]  # fmt: skip
    if found["suspected"]:
        caption = (
            "Why references are suspected. Scoring counts rows, so a reference that repeats a user for each badge is one of "
            "them where the words ask for users. Source: plan.json, human."
        )
        parts.append(block("human-suspected", suspected, caption))
    return "\n".join(parts)


def _arms(found: dict[str, Any]) -> str:
    rows = []
    for name in found["sampled"][ALL]["arms"]:
        every, clean = (found["sampled"][part]["arms"][name] for part in (ALL, CLEAN))
        greedy = found["greedy"][ALL]["arms"].get(name, {})
        cells = [rate(one[score]) if score in one else "–" for score in ("strict", "lenient") for one in (every, clean)]
        rows.append([arm_words(name), *cells, percent(greedy.get("strict", {}).get("rate")), every["no_room"]])
    return table(
        ["arm", "strict, all", "strict, clean", "lenient, all", "lenient, clean", "greedy strict, all", "no room"], rows
    )


def _contrasts(found: dict[str, Any]) -> str:
    rows = []
    for decode in ("sampled", "greedy"):
        for pair in found[decode][ALL]["contrasts"]:
            both = [found[decode][part]["contrasts"][pair].get("strict") for part in (ALL, CLEAN)]
            words = " − ".join(arm_words(arm) for arm in pair.split(" - "))
            ups = [both[0][way] if both[0] else "–" for way in ("up", "down")]
            rows.append([words, decode, *(gain(one) if one else "–" for one in both), *ups])
    return table(["contrast", "decoding", "all", "clean", "up, all", "down, all"], rows)


def _main(found: dict[str, Any], part: str) -> dict[str, Any] | None:
    one: dict[str, Any] | None = found["sampled"][part]["contrasts"].get("trained - control", {}).get("strict")
    return one
