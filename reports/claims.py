"""Every claim of a write-up with what it rests on, so that a referee can check them off one by one.

A claim holds no value of its own: it names a key of results.json, and its value is what stands there.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lib import plan
from lib.compare import points
from reports.markdown import code, count, escape, interval, listed, percent, table

LATER = "exploratory"  # what no line of the plan announced
Results = dict[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """What is said, where its value stands, the function that made it, and the plan's key that announced it ("": none)."""

    said: str
    key: Key  # path into results.json
    code: str  # module.function
    announced: Key = ()  # path into the plan
    unit: str = "points"  # points, percent, count, p or held


def claims(results: Results) -> list[Claim]:
    """All claims of a run's write-up: what was planned, what was declared exploratory, what came later."""
    return [*_planned(results), *_declared(results), *_later(results)]


def _planned(results: Results) -> Iterator[Claim]:
    first = ("contrasts", plan.FIRST_SET)
    contrast = "lib.measures.contrast"
    yield Claim("trained − control, strict (first endpoint)", (*first, "sampled", "trained - control", "strict"), contrast,
                ("first_endpoint",))  # fmt: skip
    yield Claim("the same, greedy (second endpoint)", (*first, "greedy", "trained - control", "strict"), contrast,
                ("second_endpoint",))  # fmt: skip
    yield Claim("control − base, within the margin?", ("equivalence",), "lib.measures.equivalence", ("equivalence",))
    yield Claim("control equals base", ("equivalence", "holds"), "lib.measures.equivalence", ("equivalence",), "held")
    for name, one in results["predictions"].items():
        yield Claim(f"foretold: {one['text']}", ("predictions", name, "held"), "lib.compare.predictions",
                    ("predictions", name), "held")  # fmt: skip
    yield Claim("sets with episodes lost to faults", ("checks", "faulty"), "lib.compare.checks", ("faults",), "count")
    if results["human"] and results["human"]["sampled"]["all"]["contrasts"].get("trained - control", {}).get("strict"):
        yield Claim("trained − control on people's questions", ("human", "sampled", "all", "contrasts", "trained - control",
                    "strict"), "lib.human_results.table", ("human",))  # fmt: skip


def _declared(results: Results) -> Iterator[Claim]:
    def open_(name: str) -> Key:
        return ("exploratory", name)

    bounds = {
        "form_at_most": "at most so much of it is form",
        "substance_at_least": "at least so much of it is substance",
    }
    for part, words in bounds.items() if results["form_and_substance"]["gain"] > 0 else ():
        yield Claim(f"the gain: {words}", ("form_and_substance", part), "lib.measures.form_and_substance",
                    open_("form and substance"))  # fmt: skip
    if results["mistakes"]["planted"] is not None:
        yield Claim("removal of planted mistakes (below zero: there were more)", ("mistakes", "planted", "gain"),
                    "lib.mistakes.mistakes", open_("mistakes by kind"))  # fmt: skip
    if plan.APART_SET in results["contrasts"]:
        key = ("contrasts", plan.APART_SET, "sampled", "trained - control", "strict")
        yield Claim("trained − control on held-out structures", key, "lib.measures.contrast", open_(plan.APART_SET))
    for hop, row in results["by_hops"].items():
        if row["questions"]:
            words = f"trained − control on questions of {hop} hop{'s' * (hop != '1')}"
            yield Claim(words, ("by_hops", hop), "lib.measures.contrast", open_("hops"))
    for group, row in results["groups"]["by base"].items():
        for arm in ("control", "trained") if row["questions"] else ():
            words = f"{arm}'s strict rate on questions that base had {group} right"
            yield Claim(words, ("groups", "by base", group, arm), "lib.measures.by_untrained",
                        open_("never, sometimes, always"), "percent")  # fmt: skip
    for name, words in (("any", "any sample of a question right"), ("all", "all samples of a question right")):
        yield Claim(f"trained − control, {words}", ("reach_gain", name), "lib.measures.reach_gain",
                    open_("reach and reliability"))  # fmt: skip
    first: Key = ("contrasts", plan.FIRST_SET, "sampled", "trained - control", "strict")
    for way in ("up", "down", "same"):
        words = {"up": "questions that rose", "down": "questions that fell", "same": "questions that stayed"}[way]
        yield Claim(words, (*first, way), "lib.measures.difference", open_("structures"), "count")
    yield Claim("questions that no arm ever had right", ("never_solved",), "lib.mistakes.never_solved",
                open_("structures"), "count")  # fmt: skip


def _later(results: Results) -> Iterator[Claim]:
    sampled = ("contrasts", plan.FIRST_SET, "sampled")
    for arm in ("base", "control", "trained"):
        key: Key = ("arms", plan.FIRST_SET, "sampled", arm, "strict", "rate")
        yield Claim(f"{arm}'s strict rate", key, "lib.measures.summary", unit="percent")
    for score in ("lenient", "lenient_literal"):
        yield Claim(f"trained − control, {score}", (*sampled, "trained - control", score), "lib.measures.contrast")
    for seed in results["plan"]["seeds"]:
        key = (*sampled, f"trained-{seed} - control", "strict")
        yield Claim(f"trained, seed {seed} − control, strict", key, "lib.measures.contrast")
    yield Claim("mean gain over trainings (t-interval)", ("seeds", "mean"), "lib.compare.over_seeds")
    yield Claim("p by flipping the signs of structures", (*sampled, "trained - control", "strict", "sign_flip"),
                "lib.bootstrap.sign_flip", unit="p")  # fmt: skip
    if results["provenance"]["contrast"]["questions"]:
        yield Claim("trained − control, right nodes looked at", ("provenance", "contrast"), "lib.compare.provenance")
    for name, words in (("gain", "what reliability alone could give"), ("signal", "groups with a signal, expected")):
        yield Claim(words, ("headroom", name), "lib.headroom.of_episodes", unit="percent")
    yield Claim("a second count agrees", ("recount", "agrees"), "lib.recount.recount", unit="held")
    yield Claim("verdicts judged anew", ("recount", "judged"), "lib.recount.recount", unit="count")
    yield Claim("the plan stands", ("checks", "plan", "stands"), "lib.plan.check", unit="held")


def at(tree: Any, key: Sequence[str]) -> Any:
    """What stands in a tree of dictionaries under a path. KeyError names the path that leads nowhere."""
    for i, part in enumerate(key):
        if not isinstance(tree, dict) or part not in tree:
            raise KeyError(" > ".join(key[: i + 1]))
        tree = tree[part]
    return tree


def shown(claim: Claim, results: Results) -> tuple[str, str]:
    """A claim's value and interval as text; an empty interval where the file has none."""
    value = at(results, claim.key)
    around = value if isinstance(value, dict) else at(results, claim.key[:-1])
    low, high = (around.get("low"), around.get("high")) if isinstance(around, dict) else (None, None)
    if claim.unit == "points":
        number = value["delta"] if isinstance(value, dict) else value
        dagger = "†" if isinstance(value, dict) and value.get("warnings") else ""
        return points(number), "" if low is None else interval(low, high) + dagger
    if claim.unit == "percent":
        return percent(value), "" if low is None or high is None else f"[{low * 100:.1f}, {high * 100:.1f}]"
    if claim.unit == "count":
        return count(value if isinstance(value, int) else len(value)), ""
    if claim.unit == "p":
        return f"{value:.2g}" if value >= 0.0001 else "< 0.0001", ""
    return {True: "yes", False: "no", None: "can't be said"}[value], ""


def ledger(results: Results) -> str:
    """The claims as a table, each with a box to check off."""
    rows = []
    for claim in claims(results):
        value, ends = shown(claim, results)
        box = f'<input type="checkbox" aria-label="checked: {html.escape(claim.said, quote=True)}">'
        evidence = f"{code(' › '.join(claim.key))} by {code(claim.code)}"
        announced = code(" › ".join(claim.announced)) if claim.announced else LATER
        rows.append([box, escape(claim.said), escape(f"{value} {ends}".strip()), evidence, announced])
    return table(["✓", "claim", "value", "in results.json, made by", "announced in plan.json"], rows, escaped=True)


def counted(results: Results) -> str:
    """In words: how many claims there are, and how many of them the plan announced."""
    every = claims(results)
    kinds = [
        (sum(c.announced[:1] not in ((), ("exploratory",)) for c in every), "tested or foretold in the plan"),
        (sum(c.announced[:1] == ("exploratory",) for c in every), "declared there as exploratory"),
        (sum(not c.announced for c in every), "announced nowhere, and so exploratory too"),
    ]
    return f"Of {count(len(every))} claims {listed([f'{count(number)} are {words}' for number, words in kinds])}."
