"""The first screen of a write-up: what was found, in plain words that are true whichever way a run came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lib.compare import points
from reports.markdown import count, interval, percent

if TYPE_CHECKING:
    from reports.parts import Report

SHARE_OF_MOST = 0.5  # of the gain, beyond which its planted part is called the larger one


def bullets(report: Report) -> str:
    """The answer in a few points, as a Markdown list."""
    parts = [
        ("How much", how_much(report)),
        ("What it is made of", made_of(report)),
        ("More often, or more", reach(report)),
        ("Without chance", greedy(report)),
        ("Questions of another build", transfer(report)),
        ("Can it be trusted", trust(report)),
    ]
    return "\n".join(f"- **{name}.** {words}" for name, words in parts) + "\n"


def clear(one: dict[str, Any]) -> str:
    """Which side of zero an interval lies on: higher, lower or neither."""
    return "higher" if one["low"] > 0 else "lower" if one["high"] < 0 else "neither"


def difference(one: dict[str, Any]) -> str:
    """A contrast in points with its interval."""
    return f"{points(one['delta'])} points {interval(one['low'], one['high'])}"


def how_much(report: Report) -> str:
    one, test = report.main, report.plan["first_endpoint"]
    side = {
        "higher": "The interval lies above zero: more than the luck of the draw.",
        "lower": "The interval lies below zero: practice made it worse, by more than the luck of the draw.",
        "neither": "The interval includes zero: this run doesn't show that practice changed anything.",
    }[clear(one)]
    return (
        f"Without practice {percent(one['before'])} of the answers were strictly right, with practice "
        f"{percent(one['after'])}: {difference(one)}, at {percent(test['confidence'], 0)}. {side}"
    )


def made_of(report: Report) -> str:
    """Form, substance and planted mistakes where there was a gain; else that there is nothing to take apart."""
    if report.main["delta"] <= 0:
        return "There was no gain to take apart."
    parts = report.results["form_and_substance"]
    share = report.planted["share_of_gain"] if report.planted else None
    said = (
        f"At most {points(parts['form_at_most'], sign=False)} points are *form* (right values that got into the right "
        f"shape), at least {points(parts['substance_at_least'], sign=False)} *substance* (values that had been wrong)."
    )
    if share is None:
        return said
    part = "the larger part" if share > SHARE_OF_MOST else "not the larger part" if share > 0 else "no part"
    return f"{said} The removal of mistakes that had been planted is {part} of it: {points(report.planted['gain'])} points."


def reach(report: Report) -> str:
    found = report.results["reach_gain"]
    every, some = found["all"], found["any"]
    sides = (clear(every), clear(some))
    words = {
        ("higher", "neither"): "So it does more reliably what it could do before; that it can do more isn't shown.",
        ("higher", "higher"): "So it does more, and does it more reliably.",
        ("neither", "higher"): "So it can do more, but isn't shown to do it more reliably.",
        ("neither", "neither"): "Neither change is clear of zero.",
    }.get(sides, "At least one of the two fell by more than the luck of the draw.")
    return (
        f"That *all* answers to a question are right changes by {difference(every)}, that *any* of them is by "
        f"{difference(some)}. {words}"
    )


def greedy(report: Report) -> str:
    one = report.first["greedy"]["trained - control"]["strict"]
    side = {"higher": "above", "lower": "below"}.get(clear(one))
    words = f"the interval lies {side} zero" if side else "the interval includes zero"
    return f"If the model always says its likeliest words, the difference is {difference(one)}; {words}."


def transfer(report: Report) -> str:
    one = report.transfer
    if one is None:
        return "None were asked in this run."
    words = {"higher": "Practice carried over.", "lower": "Practice did harm there."}.get(
        clear(one), "That practice carries over isn't shown."
    )
    return f"On structures that were never practised it is {difference(one)}. {words}"


def trust(report: Report) -> str:
    found = report.results
    plan_stands = found["checks"]["plan"]["stands"]
    beyond = sum(line["found"] for line in found["hacks"])
    trainings = len(report.plan["seeds"])
    return " ".join(
        (
            "Nothing that was planned had changed at the end." if plan_stands else "**Something planned had changed.**",
            second_count(found["recount"]),
            f"**The search for reward without an answer warns {count(beyond)} time{'s' * (beyond != 1)}.**"
            if beyond
            else "No sign of reward without an answer was found.",
            f"Repeated over {count(trainings)} training{'s' * (trainings != 1)}.",
        )
    )


def second_count(found: dict[str, Any]) -> str:
    if not found["agrees"]:
        return "**A second, separate count doesn't agree.**"
    return "A second, separate count agrees." if found["judged"] else "A second count agrees with the arithmetic alone."
