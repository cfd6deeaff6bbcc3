"""What the arms score on people's questions, counted with all of them and with the clean ones, as the plan froze them.

A status was given to every question before any model answered. Neither figure replaces the other: all questions is what
others report for the same set, the clean ones are those whose reference nothing speaks against.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib import bootstrap, measures
from lib.episodes import Episode
from lib.measures import Arm, Method

SCORES = ("strict", "lenient")
ALL, CLEAN = "all", "clean"


def table(
    frozen: Mapping[str, Any],
    arms: Mapping[str, Iterable[Episode]],
    contrasts: Sequence[tuple[str, str]],
    test: Method,
) -> dict[str, Any]:
    """Counts of the human set and the rates of the arms on it.

    frozen: as the plan holds it (lib.questions.human.frozen). arms: each arm's episodes on the human set in one way of
    decoding. contrasts: pairs of arms (before, after).

    Returns {counts: {status: questions}, all: {...}, clean: {...}}; of these two, each has `questions`, `arms` ({arm:
    {questions, episodes, faulty, strict, lenient: {rate, low, high}}}) and `contrasts` ({"after - before": {score: {delta,
    low, high, up, down, same, questions, warnings}}}). Intervals are by paired bootstrap over questions, at the test's
    confidence: people's questions share no structure that would have to be drawn whole.

    Raises ValueError for an episode on a question that isn't in the frozen set, or for a question that an arm has no
    episode of at all: the set was fixed, and so was its size.
    """
    statuses = {question: status for status, found in frozen["statuses"].items() for question in found}
    measured = {name: Arm.of(name, episodes) for name, episodes in arms.items()}
    for name, arm in measured.items():
        seen = set(arm.by_question) | {episode.question for episode in arm.faulty}
        if unknown := sorted(seen - set(statuses)):
            raise ValueError(
                f"{name} answers {unknown[0]!r}, which isn't in the frozen set: evaluate on that set again"
            )
        if missing := sorted(set(statuses) - seen):
            raise ValueError(f"{name} has no episode of {missing[0]!r}: evaluate the human set to its end")
    parts = {ALL: set(statuses), CLEAN: {q for q, status in statuses.items() if status == frozen["clean"]}}
    return {
        "counts": {status: len(found) for status, found in frozen["statuses"].items()},
        **{
            part: {
                "questions": len(among),
                "arms": {name: _rates(arm, among, test) for name, arm in measured.items()},
                "contrasts": {
                    f"{after} - {before}": _contrast(measured[before], measured[after], among, test)
                    for before, after in contrasts
                },
            }
            for part, among in parts.items()
        },
    }


def _rates(arm: Arm, among: set[str], test: Method) -> dict[str, Any]:
    questions = [question for question in sorted(arm.by_question) if question in among]
    out: dict[str, Any] = {
        "questions": len(questions),
        "episodes": sum(len(arm.by_question[question]) for question in questions),
        "faulty": sum(episode.question in among for episode in arm.faulty),
    }
    for score in SCORES if questions else ():
        found = measures.per_question(arm.scores(questions, score))
        rate = bootstrap.mean(found, None, test.resamples, test.seed, test.confidence)
        out[score] = {"rate": rate.mean, "low": rate.low, "high": rate.high}
    return out


def _contrast(before: Arm, after: Arm, among: set[str], test: Method) -> dict[str, Any]:
    questions = [question for question in measures.shared(before, after) if question in among]
    out = {}
    for score in SCORES if questions else ():
        a, b = (measures.per_question(arm.scores(questions, score)) for arm in (before, after))
        found = bootstrap.paired(a, b, None, test.resamples, test.seed, test.confidence)
        out[score] = {
            "questions": len(questions),
            "delta": found.delta,
            "low": found.low,
            "high": found.high,
            "up": found.up,
            "down": found.down,
            "same": found.same,
            "warnings": list(found.warnings),
        }
    return out


def markdown(results: Mapping[str, Any]) -> str:
    """The table for a report: how many questions have which status, then each arm's strict rate with all and the clean.

    results: as `table` returns them. An arm without a usable episode in a part has a dash there.
    """
    lines = ["| status | questions |", "|---|---:|"]
    lines += [f"| {status} | {n} |" for status, n in results["counts"].items()]
    head = " | ".join(f"{part} ({results[part]['questions']})" for part in (ALL, CLEAN))
    lines += ["", f"| strict | {head} |", "|---|---:|---:|"]
    for name in results[ALL]["arms"]:
        cells = [_cell(results[part]["arms"][name].get("strict"), "rate", "") for part in (ALL, CLEAN)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name in results[ALL]["contrasts"]:
        cells = [_cell(results[part]["contrasts"][name].get("strict"), "delta", "+") for part in (ALL, CLEAN)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(found: Mapping[str, Any] | None, key: str, sign: str) -> str:
    if found is None:
        return "-"
    return f"{found[key]:{sign}.3f} [{found['low']:{sign}.3f}, {found['high']:{sign}.3f}]"
