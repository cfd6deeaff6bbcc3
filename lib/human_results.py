"""What the arms score on people's questions, counted with all of them and with the clean ones, as the plan froze them.

A status was given to every question before any model answered. Neither figure replaces the other: all questions is what
others report for the same set, the clean ones are those whose reference nothing speaks against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lib import measures
from lib.episodes import DECODES
from lib.human_set import SUSPECT
from lib.measures import Arm, Method

SCORES = ("strict", "lenient")
ALL, CLEAN = "all", "clean"
NO_ROOM = ("max_tokens", "context_overflow")  # stop reasons of an episode that had no room for another word
UNANSWERABLE = ("question_too_long", "answer_too_long", "no_query")  # as lib.evaluate.unanswerable names them


def section(
    frozen: Mapping[str, Any],
    arms: Mapping[str, Mapping[str, Arm]],
    contrasts: Sequence[tuple[str, str]],
    validated: Mapping[str, Any],
    test: Method,
) -> dict[str, Any] | None:
    """The part of results.json on people's questions; None for a run that has none.

    frozen: as the plan holds it (lib.human_set.frozen). arms: way of decoding -> name -> arm, on these questions.
    contrasts: pairs of arms (before, after). validated: what validate.json says of this set.

    Returns {release, counts: {status: questions}, suspected: {reason: questions}, unanswerable: {kind: {all, clean}}, and
    `table` for each way of decoding}. Raises ValueError as `table` does.
    """
    if not frozen["questions"] and not arms:
        return None
    if lacking := [decode for decode in DECODES if decode not in arms]:
        raise ValueError(f"no {lacking[0]} episode answers one of the people's questions: run 5_evaluate to its end")
    parts = _parts(frozen)
    why = Counter(frozen["reasons"][question] for question in frozen["statuses"][SUSPECT])
    return {
        "release": frozen["release"],
        "counts": {status: len(found) for status, found in frozen["statuses"].items()},
        "suspected": dict(sorted(why.items(), key=lambda item: (-item[1], item[0]))),
        "unanswerable": {
            kind: {part: len(among & set(validated.get(kind, ()))) for part, among in parts.items()}
            for kind in UNANSWERABLE
        },
        **{decode: table(frozen, group, contrasts, test) for decode, group in sorted(arms.items())},
    }


def table(
    frozen: Mapping[str, Any], arms: Mapping[str, Arm], contrasts: Sequence[tuple[str, str]], test: Method
) -> dict[str, Any]:
    """The rates of the arms on the human set in one way of decoding.

    Returns {all: {...}, clean: {...}}, each with `questions`, `arms` ({arm: {questions, episodes, faulty, no_room, strict,
    lenient: {rate, low, high}}}) and `contrasts` ({"after - before": {score: as measures.contrast says}}); no_room counts
    episodes that ended because a turn or the whole was as long as it may be. Rates and contrasts are the study's own, by
    question: people's questions share no structure that would have to be drawn whole.

    Raises ValueError for an episode on a question that isn't in the frozen set, or for a question that an arm has no
    episode of at all: the set was fixed, and so was its size.
    """
    parts = _parts(frozen)
    for name, arm in arms.items():
        seen = set(arm.by_question) | {episode.question for episode in arm.faulty}
        if unknown := sorted(seen - parts[ALL]):
            raise ValueError(
                f"{name} answers {unknown[0]!r}, which isn't in the frozen set: evaluate on that set again"
            )
        if missing := sorted(parts[ALL] - seen):
            raise ValueError(f"{name} has no episode of {missing[0]!r}: evaluate the human set to its end")
    return {
        part: {
            "questions": len(among),
            "arms": {name: _rates(arm, among, test) for name, arm in sorted(arms.items())},
            "contrasts": {
                f"{after} - {before}": _contrast(arms[before], arms[after], among, test) for before, after in contrasts
            },
        }
        for part, among in parts.items()
    }


def _parts(frozen: Mapping[str, Any]) -> dict[str, set[str]]:
    return {
        ALL: {question for found in frozen["statuses"].values() for question in found},
        CLEAN: set(frozen["statuses"][frozen["clean"]]),
    }


def _rates(arm: Arm, among: set[str], test: Method) -> dict[str, Any]:
    questions = [question for question in sorted(arm.by_question) if question in among]
    episodes = [episode for question in questions for episode in arm.by_question[question]]
    return {
        "questions": len(questions),
        "episodes": len(episodes),
        "faulty": sum(episode.question in among for episode in arm.faulty),
        "no_room": sum(episode.stop in NO_ROOM for episode in episodes),
        **({score: measures.rate(arm, questions, score, test) for score in SCORES} if questions else {}),
    }


def _contrast(before: Arm, after: Arm, among: set[str], test: Method) -> dict[str, Any]:
    if among.isdisjoint(measures.shared(before, after)):
        return {}
    return {score: measures.contrast(before, after, score, test, among) for score in SCORES}
