"""All runs of a data folder side by side: the front page's list, and what they may be compared by."""

from __future__ import annotations

import hashlib
import html
import json
import subprocess
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from lib import measures, plan, plots
from lib.compare import points
from lib.measures import Arm, Method
from lib.settings import ROOT
from reports.markdown import block, code, count, escape, gain, interval, percent, rate, raw, table
from reports.parts import Report
from reports.worked import sampled

SCALE = 30.0  # points, to either side of zero, that a card's bar shows at least


class Runs:
    """The compared runs of a data folder, in order of their names; `unread` names those whose results this code can't read."""

    def __init__(self, data: Path | str):
        self.data = Path(data)
        self.found: list[Report] = []
        self.unread: list[str] = []
        for file in sorted((self.data / "runs").glob("*/results.json")):
            try:
                self.found.append(Report(self.data, file.parent.name))
            except (KeyError, TypeError, json.JSONDecodeError):
                self.unread.append(file.parent.name)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [report.results for report in self.found]

    # --- the front page ---

    def cards(self) -> str:
        """One card a run: verdict, gain with its interval, and what it was."""
        if not self.found:
            return "No run has been compared yet: `make study` makes one.\n"
        return raw("\n".join(map(card, self.found)))

    def unread_words(self) -> str:
        if not self.unread:
            return ""
        names = ", ".join(code(name) for name in self.unread)
        return f"Left out, since their results.json was written by another version of the comparison: {names}.\n"

    # --- the comparison ---

    def forest(self) -> str:
        """The figure of all gains."""
        figure = plots.styled(plots.forest, self.results)
        drawing = plots.svg(figure, plots.forest_alt(self.results))
        plots.plt.close(figure)
        return raw(drawing)

    def gains_table(self) -> str:
        rows = []
        for report in self.found:
            greedy = report.first["greedy"]["trained - control"]["strict"]
            apart = gain(report.transfer) if report.transfer else "–"
            rows.append(
                [_link(report), gain(report.main), gain(greedy), apart, escape(report.results["verdict"]["verdict"])]
            )
        head = ["run", "gain, strict", "greedy", "held-out structures", "verdict"]
        return table(head, rows, escaped=True)

    def made_of_table(self) -> str:
        rows = []
        for report in self.found:
            parts, reach = report.results["form_and_substance"], report.results["reach_gain"]
            bounds = [
                points(parts[key]) if parts["gain"] > 0 else "–" for key in ("form_at_most", "substance_at_least")
            ]
            cells = [
                *bounds,
                points(report.planted["gain"]) if report.planted else "–",
                gain(reach["all"]),
                gain(reach["any"]),
            ]
            rows.append([_link(report), *cells])
        head = ["run", "form, at most", "substance, at least", "planted, removed", "all right", "any right"]
        return table(head, rows, escaped=True)

    def arms_table(self) -> str:
        rows = []
        for report in self.found:
            arms = report.arms["sampled"]
            rows.append([_link(report), *(rate(arms[arm]["strict"]) for arm in ("base", "control", "trained"))])
        return table(["run", "base", "control", "trained"], rows, escaped=True)

    @property
    def how_many(self) -> str:
        """What there is to compare."""
        number = len(self.found)
        if number < 2:
            return (
                "There are fewer than two runs here, so there is nothing to compare yet. A second one is made by another "
                "`run` name and other settings in params.yaml, and `make study`."
            )
        return f"There are {count(number)} runs, in order of their names."

    def settings_section(self) -> str:
        """The settings in which the runs differ, as a table."""
        if len(self.found) < 2:
            return "There is no other run to differ from.\n"
        caption = "Settings that aren't the same in all runs. Source: plan.json of each run, settings."
        return block("settings", self.settings_table(), caption)

    def settings_table(self) -> str:
        flat = [_flat(report.settings) for report in self.found]
        keys = sorted({key for one in flat for key in one if key != "run"})
        rows = [
            [code(key), *(escape(one.get(key, "–")) for one in flat)]
            for key in keys
            if len({o.get(key) for o in flat}) > 1
        ]
        return table(["setting", *(report.run for report in self.found)], rows, escaped=True)

    def paired_section(self) -> str:
        """The trained arms of runs that were asked the same questions, as a table."""
        if not self.same_questions():
            return "No other run here was asked the very same questions.\n"
        caption = (
            "Strict rates of the trained arms of two runs, paired question by question and resampled by structure. "
            "Exploratory: no plan announced it. Source: the evaluate/ folders of both runs."
        )
        return block("paired", self.paired_table(), caption)

    def paired_table(self) -> str:
        """The trained arms of any two runs that were asked the same questions, paired question by question."""
        rows = []
        for one, other in self.same_questions():
            test = Method(one.plan["first_endpoint"]["confidence"], one.plan["first_endpoint"]["resamples"])
            arms = [Arm.of("trained", _trained(report)) for report in (one, other)]
            found = measures.contrast(arms[0], arms[1], "strict", test)
            rates = [percent(found["after"]), percent(found["before"])]
            rows.append([f"{_link(other)} − {_link(one)}", *rates, gain(found), str(found["up"]), str(found["down"])])
        head = ["trained arms", "first named", "second named", "difference", "up", "down"]
        return table(head, rows, escaped=True)

    def same_questions(self) -> list[tuple[Report, Report]]:
        """Pairs of runs whose plans name the same test questions, by their digest."""

        def asked(report: Report) -> Any:
            return report.plan["inputs"]["questions"][plan.FIRST_SET]

        return [(one, other) for one, other in combinations(self.found, 2) if asked(one) == asked(other)]


def _link(report: Report) -> str:
    return f"[{escape(report.run)}]({report.run}.html)"


def _trained(report: Report) -> list[Any]:
    return [e for e in sampled(report.folder) if e.set == plan.FIRST_SET and e.arm.startswith("trained")]


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in settings.items():
        out |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: json.dumps(value)}
    return out


def card(report: Report) -> str:
    """A run as a card of HTML."""
    found, one = report.results, report.main
    success = found["verdict"]["verdict"] == "success"
    graph, training = found["graph"], report.totals
    facts = {
        "profile": profile(report.settings),
        "data": f"{report.settings['graph']['source']}: {count(graph['nodes'])} nodes, {count(graph['relationships'])} relationships",
        "test": f"{count(one['questions'])} questions, {count(report.plan['first_endpoint']['samples'])} samples each, "
        f"{count(len(report.plan['seeds']))} training{'s' * (len(report.plan['seeds']) != 1)}",
        "cost": f"{'nothing billed' if report.local else 'billed by the host'}, {count(int(training['tokens_trained']))} tokens trained",
        "plan": f"{report.plan['digest'][:12]}, {planned_on(report.folder / 'plan.json')}",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
    changed = (
        ""
        if found["checks"]["plan"]["stands"]
        else '<p class="changed">Something planned changed after training began.</p>'
    )
    ends = interval(one["low"], one["high"])
    name = html.escape(report.run)
    to = f'<a href="{name}.html">Write-up</a> · <a href="{name}-transcripts.html">Transcripts</a> · <a href="{name}-figures.html">Figures</a>'
    return (
        f'<article class="card{" success" * success}"><h2><a href="{name}.html">{name}</a>'
        f'<span class="word">{html.escape(found["verdict"]["verdict"])}</span></h2>'
        f'<p class="gain">{points(one["delta"])} points <small>{ends} over the control, bar '
        f"{points(report.plan['first_endpoint']['bar'], sign=False)}</small></p>{changed}{bar(report)}"
        f"<dl>{listed}</dl><p>{to}</p></article>"
    )


def bar(report: Report) -> str:
    """The gain's interval as a thin drawing: zero as a line, the bar as a dashed one."""
    one, target = report.main, report.plan["first_endpoint"]["bar"]
    reach = max(SCALE, *(abs(one[end]) * 100 * 1.1 for end in ("low", "high")))

    def x(share: float) -> float:
        return round(300 + share * 100 * 290 / reach, 1)

    text = f"{points(one['delta'])} points, from {points(one['low'])} to {points(one['high'])}; the bar is {points(target, sign=False)}"
    lines = (
        f'<line x1="10" x2="590" y1="14" y2="14" style="stroke: #c8cdd3" stroke-width="1"/>'
        f'<line x1="{x(0)}" x2="{x(0)}" y1="2" y2="26" style="stroke: #1f2328" stroke-width="1.5"/>'
        f'<line x1="{x(target)}" x2="{x(target)}" y1="2" y2="26" style="stroke: #1f2328" stroke-width="1.5" stroke-dasharray="4 3"/>'
        f'<line x1="{x(one["low"])}" x2="{x(one["high"])}" y1="14" y2="14" style="stroke: #d55e00" stroke-width="5"/>'
        f'<circle cx="{x(one["delta"])}" cy="14" r="7" style="fill: #d55e00"/>'
    )
    return f'<svg role="img" aria-label="{html.escape(text)}" viewBox="0 0 600 28" width="100%">{lines}</svg>'


def profile(settings: dict[str, Any]) -> str:
    """The name of the file in profiles/ that has these settings, but for the run's name and what no plan holds."""
    for file in sorted((ROOT / "profiles").glob("*.yaml")):
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
        if all(_same(settings[key], given.get(key)) for key in settings if key != "run"):
            return file.stem
    return "settings of its own"


def _same(planned: Any, given: Any) -> bool:
    if isinstance(planned, dict) and isinstance(given, dict):
        return all(planned[key] == given.get(key) for key in planned)
    return bool(planned == given)


@cache
def planned_on(file: Path) -> str:
    """The day of the commit whose dvc.lock first held this very plan: no file has a date that a copy of it would keep."""
    digest = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()  # as dvc.lock names outputs
    command = ["git", "log", "--reverse", "--format=%cs", f"-S{digest}", "--", "dvc.lock"]
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        said = []
    return f"committed {said[0]}" if said else "not committed"
