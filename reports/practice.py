"""What practice did, in sentences, from the plan's settings of training: every option says what it changes and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.markdown import percent

STEPS = {"hops": "the number of relationships crossed", "length": "the length of the reference query"}


def described(train: Mapping[str, Any]) -> str:
    """Size, choice of questions, what an attempt earns, and what is learned from it."""
    return " ".join([_size(train), *_choice(train), _earned(train["objective"]), _learned(train)])


def _size(train: Mapping[str, Any]) -> str:
    return (
        f"Practice is reinforcement learning: {train['updates']} updates, each with {train['groups']} questions and "
        f"{train['rollouts']} attempts at each."
    )


def _choice(train: Mapping[str, Any]) -> list[str]:
    questions, found = train["questions"], []
    if (before := questions.get("prepass")) is not None:
        found.append(
            f"Before the first, the base model answered {before['questions']} of the questions to practise, "
            f"{before['samples']} times each; by that, and by practice itself, it is estimated how often each is answered."
        )
    match questions["kind"]:
        case "band":
            rest = 1 - questions["easy"] - questions["never"]
            found.append(
                f"Of an update's questions {percent(rest, 0)} are such as are answered between {percent(questions['low'], 0)} "
                f"and {percent(questions['high'], 0)} of the time; {percent(questions['easy'], 0)} are easier, and "
                f"{percent(questions['never'], 0)} were never solved."
            )
        case "rate":
            found.append("Questions go from those answered most often to those answered least often.")
        case "hints":
            found.append(
                f"Up to {percent(questions['share'], 0)} of an update are questions that were all wrong before, asked once more "
                "with a hint."
            )
        case kind if kind in STEPS:
            found.append(f"Questions go from easy to hard, by {STEPS[kind]}.")
    return found


def _earned(taught: Mapping[str, Any]) -> str:
    wrong = {
        "reward": "else its row overlap, a little below one at most",
        "strict": "else none",
        "f1": f"else {taught['most']:g} times its row overlap",
        "lenient": f"else {taught['most']:g} if it is right but for extra columns",
    }[taught["credit"]]
    said = f"An attempt earns one point if it is strictly right, {wrong}."
    if taught["cap"]:
        said += (
            f" A query that it ran before costs it {taught['repeated']:g}, and a call that failed {taught['failed']:g}, "
            f"together {taught['cap']:g} at most."
        )
    if taught["masked"]:
        said += " Attempts that a limit on tokens cut off count for nothing."
    if taught["shuffled"]:
        said += " **Points were dealt out anew among a question's attempts, by chance: this run is a check, and taught nothing.**"
    return said


def _learned(train: Mapping[str, Any]) -> str:
    taught, replaced = train["objective"], train["replacement"]
    said = "What counts is how much better an attempt did than the other attempts at the same question"
    if taught["spread"]:
        said += ", in units of their standard deviation"
    if taught["kl"]:
        said += f". Moving away from the base model costs as well (k3, weight {taught['kl']:g}), where all attempts did alike that alone"
    else:
        said += "; a question where all attempts did alike teaches nothing and is dropped"
    if replaced and replaced["extra"]:
        said += f". Another takes its place, up to {replaced['extra']} times an update"
    if replaced and replaced["first"] < train["rollouts"]:
        said += f". Where the first {replaced['first']} attempts did alike, the others weren't made"
    return f"{said}."
