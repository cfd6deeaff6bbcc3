"""The numbers, tables and sentences of the page on learning per rollout, all from one results.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lib.compare import points
from lib.learning.arms import BASELINE, HALF
from lib.learning.figures import drawn, ordered
from reports.markdown import code, count, escape, interval, listed, percent, rate, raw, table

GONE = "–"
REACHES = ("reach", "reach_new")  # on practised structures, and on new ones
AGAINST = {
    "control": "control",
    "tuned": "control at its best temperature",
    "greedy": "control, both asked greedily,",
    "baseline": "baseline",
}


class Learning:
    """The experiment by its results. Raises FileNotFoundError where they are missing."""

    def __init__(self, results: Path | str):
        self.found: dict[str, Any] = json.loads(Path(results).read_text(encoding="utf-8"))
        self.arms = ordered(self.found)
        self.rules: dict[str, Any] = self.found["rules"]

    def figure(self, name: str) -> str:
        return raw(drawn(name, self.found))

    # --- words ---

    @property
    def against(self) -> dict[str, dict[str, list[str]]]:
        """The arms by what a comparison showed of them: comparison -> verdict -> names."""
        found: dict[str, dict[str, list[str]]] = {}
        for name, one in self.arms.items():
            for against, verdict in one["verdicts"].items():
                found.setdefault(against, {}).setdefault(verdict, []).append(name)
        return found

    def start(self) -> str:
        """The answer in a few sentences, true whichever way it came out."""
        return "\n".join(f"- {self._said(*one)}" for one in AGAINST.items()) + f"\n- {self._choice()}\n"

    def _said(self, against: str, words: str) -> str:
        by = self.against.get(against, {})
        parts = [
            f"**{verdict}** than the {words}: {_codes(by[verdict])}" for verdict in ("better", "worse") if verdict in by
        ]
        rest = by.get("no difference shown", [])
        if rest:
            parts.append(f"no difference from the {words} shown: {_codes(rest)}")
        said = "; ".join(parts)
        return (
            f"{said[0].upper()}{said[1:]}." if not said.startswith("**") else f"{said[:2]}{said[2].upper()}{said[3:]}."
        )

    def _choice(self) -> str:
        chosen = self.found["choice"]["chosen"]
        parts = listed([f"{part} of {code(name)}" for part, name in chosen.items()])
        same = set(chosen.values()) == {BASELINE}
        end = ", which is the baseline once more, with draws of its own" if same else ""
        return f"The best combination by dev questions takes the {parts}{end}."

    def targets(self) -> str:
        """The figures that were to be reached."""
        found = self.found["targets"]
        signal, half, reach = found["signal"], found["half"], found["reach"]
        share = self.arms[signal["arm"]]["signal"]
        rows = [
            [
                f"groups with a signal, of all sampled, at least {percent(signal['least'], 0)}",
                _reached(signal["reached"]),
                f"most: {code(signal['arm'])}, {percent(share)}",
            ]
        ]
        if half is not None:
            gain = self.found["halves"][half["arm"]]["gains"]["baseline"]
            margin = points(self.rules["margin"], sign=False)
            rows.append(
                [
                    f"with half of the tokens no more than {margin} points below the baseline",
                    _reached(half["reached"]),
                    f"{code(half['arm'])}: {_span(gain)}",
                ]
            )
        best = "no arm could be tested" if reach["arm"] is None else self._reach_of(reach["arm"])
        rows.append(
            [
                "reach on questions never solved, of practised structures, corrected interval above zero",
                _reached(reach["reached"]),
                best,
            ]
        )
        return table(["what was to be reached", "reached", "the arm that came nearest"], rows, escaped=True)

    def _reach_of(self, name: str) -> str:
        return f"{code(name)}: {_span(self.arms[name]['reach'], 'corrected')}"

    def never_solved(self) -> str:
        """How many questions there are, and how many of them a fresh control solves, which is the same beside every arm."""
        known, new = self.found["never_solved"].values()
        fresh = (next(iter(self.arms.values()))[reach]["control"] for reach in REACHES)
        solved = [GONE if one is None else percent(one) for one in fresh]
        return (
            f"{count(known)} of structures that were practised, of which fresh samples of the control solve {solved[0]}, and "
            f"{count(new)} of new ones ({solved[1]})"
        )

    def half_words(self) -> str:
        """What half of the budget does, for both arms that had it."""
        said = []
        for name, one in self.found["halves"].items():
            holds = "isn't inferior to" if one["not_inferior"]["holds"] else "can't be shown to be as good as"
            of = name.removesuffix(HALF)
            share = sum(one["tokens"]) / len(one["tokens"]) / self.found["budget"]
            said.append(
                f"- {code(of)} with {percent(share)} of the tokens {holds} the baseline with all of them: "
                f"{_span(one['gains']['baseline'])} points."
            )
        return "\n".join(said) + "\n"

    def nothing_words(self) -> str:
        """What didn't help: no difference from the baseline shown, or worse."""
        by = self.against.get("baseline", {})
        names = [name for verdict in ("no difference shown", "worse") for name in by.get(verdict, [])]
        if not names:
            return "Every arm was better than the baseline.\n"
        lines = [
            f"- {code(name)} ({', '.join(self.arms[name]['changes']) or self.arms[name]['role']}): "
            f"{_span(self.arms[name]['gains']['baseline'])} points over the baseline; {self.arms[name]['verdicts']['baseline']}."
            for name in names
        ]
        return "\n".join(lines) + "\n"

    def default_words(self) -> str:
        """What changed in the default study because of it."""
        found = self.found["default"]
        if found["takes"] == BASELINE:
            said = "Nothing: the combination wasn't shown to be better than the baseline, so the default practises as published"
            others = [
                n for n in self.against.get("baseline", {}).get("better", []) if self.arms[n]["role"] == "comparator"
            ]
            if others:
                said += f" (what was, {_codes(others)}, is no reinforcement, and was declared as a comparator alone)"
        else:
            what = ", ".join(f"`train.{part}`" for part, changed in self._changed(found["settings"]).items() if changed)
            said = f"The combination was shown to be better than the baseline, so the default takes it: {what}"
        done = "" if found["done"] else " (profiles/tiny.yaml doesn't have this yet)"
        return f"{said}{done}.\n"

    def _changed(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        own = self.found["published"]
        return {part: settings[part] != own[part] for part in settings}

    def clean_words(self) -> str:
        """What practice gives where no mistakes were planted."""
        one = self.found["clean"]
        return (
            f"A base model taught without planted mistakes is right in {rate(one['control'])} before practice and in "
            f"{rate(one)} after it, over {count(len(one['tokens']))} trainings: {_span(one['gain'])} points. Of its groups "
            f"{percent(one['signal'])} had a signal.\n"
        )

    # --- tables ---

    def arms_table(self) -> str:
        rows = [
            [code(name), escape(", ".join(one["changes"]) or one["role"]), escape(one["why"])]
            for name, one in self.arms.items()
        ]
        return table(["arm", "changes", "why"], rows, escaped=True)

    def gains_table(self) -> str:
        def cell(one: Mapping[str, Any], against: str) -> str:
            return _span(one["gains"][against]) if against in one["gains"] else GONE

        rows = [
            [
                code(name),
                percent(one["rate"]),
                *(cell(one, against) for against in ("control", "greedy", "tuned", "baseline")),
                _p(one["gains"].get("baseline", {})),
            ]
            for name, one in self.arms.items()
        ]
        head = ["arm", "strict", "over control", "greedy", "over tuned", "over baseline", "p, baseline"]
        return table(head, rows, escaped=True)

    def references_table(self) -> str:
        words = {
            "base": "base, first samples",
            "control": "control",
            "greedy": "control, greedy",
            "tuned": f"control, temperature {self.found['before']['temperature']:g}",
        }
        rows = [[words[name], rate(one)] for name, one in self.found["references"].items()]
        return table(["untrained", "strict"], rows, escaped=True)

    def spent_table(self) -> str:
        budget = self.found["budget"]
        rows = [
            [
                code(name),
                percent(sum(one["tokens"]) / len(one["tokens"]) / budget),
                count(round(sum(one["prepass"]) / len(one["prepass"]))),
                f"{min(one['updates'])} to {max(one['updates'])}",
                count(one["groups"]),
                percent(one["signal"]),
                percent(one["all_right"]),
                percent(one["none_right"]),
                count(one["warnings"]),
            ]
            for name, one in self.arms.items()
        ]
        head = [
            "arm", "tokens, of budget", "pre-pass", "updates", "groups", "with a signal", "all right", "none right", "warnings",
        ]  # fmt: skip
        return table(head, rows, escaped=True)

    def reach_table(self) -> str:
        rows = [
            [
                code(name),
                *(cell for where in REACHES for cell in (_span(one[where], "corrected"), _p(one[where]))),
                _span(one["any"]),
                _span(one["all"]),
            ]
            for name, one in self.arms.items()
        ]
        k, often = self.found["samples"], self.rules["reach"]
        new = f"pass@{often}, never solved, new"
        head = ["arm", f"pass@{often}, never solved", "p", new, "p", f"pass@{k}, all", f"pass^{k}, all"]
        return table(head, rows, escaped=True)

    def choice_table(self) -> str:
        chosen = self.found["choice"]
        parts: Callable[[str], str] = lambda name: ", ".join(p for p, one in chosen["chosen"].items() if one == name)  # noqa: E731
        rows = [
            [code(name), percent(found), parts(name) or GONE]
            for name in self.arms
            if (found := chosen["rates"].get(name)) is not None
        ]
        return table(["arm", "dev questions, strict", "chosen for"], rows, escaped=True)


def _codes(names: list[str]) -> str:
    return listed([code(name) for name in names])


def _reached(reached: bool) -> str:
    return "yes" if reached else "no"


def _span(one: Mapping[str, Any], ends: str = "") -> str:
    """A contrast in points with its interval, or its corrected one; a dash where there is none."""
    if "delta" not in one:
        return GONE
    low, high = one["corrected"] if ends else (one["low"], one["high"])
    return f"{points(one['delta'])} {interval(low, high)}"


def _p(one: Mapping[str, Any]) -> str:
    """Corrected by Holm's method."""
    if "holm" not in one:
        return GONE
    return "<0.001" if one["holm"] < 0.001 else f"{one['holm']:.3f}"
