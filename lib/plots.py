"""Draws a run's figures from results.json in one style (plots.mplstyle), the same bytes for the same results.

Colours are Okabe and Ito's, which stay apart for the colour-blind; arms also differ by marker. Text and axes have one ink
colour of their own in the SVG, so that a dark page can turn it by a style sheet.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib import plan
from lib.compare import points
from lib.measures import OUTCOMES
from lib.shown import OUTCOME_WORDS

Results = dict[str, Any]
GROUPS = ("never", "sometimes", "always")
INK, GRID = "#1f2328", "#c8cdd3"
ARM = {"base": "#8a8f96", "control": "#0072b2", "trained": "#d55e00"}
MARKER = {"base": "s", "control": "o", "trained": "D"}
SEEDS = ("#d55e00", "#cc79a7", "#e69f00", "#009e73", "#56b4e9")
OUTCOME = {"strict": "#009e73", "form": "#56b4e9", "wrong": "#d55e00", "wrong_turns": "#cc79a7", "no_query": "#8a8f96"}
WIDTH = 6.4  # inches
STYLE = Path(__file__).with_name("plots.mplstyle")


def draw(name: str, results: Results) -> Figure:
    """The figure of that name in FIGURES. The caller closes it (`save` does)."""
    return styled(FIGURES[name][0], results)


def styled(function: Callable[[Any], Figure], data: Any) -> Figure:
    """A figure drawn in the one style, by any of the functions below."""
    with plt.style.context(STYLE):
        return function(data)


def alt(name: str, results: Results) -> str:
    """What the figure shows, in words, for those who don't see it."""
    return FIGURES[name][1](results)


def save_all(results: Results, folder: Path) -> list[Path]:
    """Write every figure as SVG and PNG into `folder`; the same results give the same bytes."""
    written = []
    for name in FIGURES:
        written += save(draw(name, results), alt(name, results), folder / name)
    return written


def save(figure: Figure, text: str, stem: Path) -> list[Path]:
    """Write one figure as <stem>.svg and <stem>.png and close it."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {".svg": svg(figure, text).encode(), ".png": _png(figure, text)}
    plt.close(figure)
    for suffix, content in files.items():
        half = stem.with_name(f"{stem.name}{suffix}.part")
        half.write_bytes(content)
        os.replace(half, stem.with_name(stem.name + suffix))
    return [stem.with_name(stem.name + suffix) for suffix in files]


def svg(figure: Figure, text: str) -> str:
    """The figure as an SVG element that can stand in a page: a description, no fixed size, no ids but those it uses."""
    out = io.StringIO()
    with plt.style.context(STYLE):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = out.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<g id=\"[^\"]*\">", "<g>", drawing)
    drawing = re.sub(r"\n\s*<metadata>.*?</metadata>", "", drawing, flags=re.S)
    label = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _png(figure: Figure, text: str) -> bytes:
    out = io.BytesIO()
    with plt.style.context(STYLE):
        figure.savefig(out, format="png", dpi=160, facecolor="white", metadata={"Software": None, "Description": text})
    return out.getvalue()


def _first(results: Results, decode: str = "sampled") -> dict[str, Any]:
    return results["contrasts"][plan.FIRST_SET][decode]


def _seeds(results: Results) -> list[tuple[str, str]]:
    """(seed, colour), in the plan's order."""
    return [(str(seed), SEEDS[i % len(SEEDS)]) for i, seed in enumerate(results["plan"]["seeds"])]


def _percent(axes: Axes, which: str = "y") -> None:
    (axes.yaxis if which == "y" else axes.xaxis).set_major_formatter(PercentFormatter(1, decimals=0))


# --- training ---------------------------------------------------------------------------------------------------------


def dev_curve(results: Results) -> Figure:
    """Held-out dev questions by update beside the training reward, which is another thing."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.9), sharey=True)
    for seed, colour in _seeds(results):
        looks = results["training"][seed]["dev"]
        x, y = [look["update"] for look in looks], np.array([look["strict"]["rate"] for look in looks])
        low, high = (np.array([look["strict"][end] for look in looks]) for end in ("low", "high"))
        left.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        left.plot(x, y, marker="o", markersize=3.5, color=colour, label=f"seed {seed}")
        updates = results["training"][seed]["updates"]
        right.plot(
            [line["update"] for line in updates], [line["reward_mean"] for line in updates], color=colour, linewidth=1
        )
    left.set(title="held-out dev questions, strict", xlabel="update")
    right.set(title="training reward (other questions each time)", xlabel="update")
    _percent(left)
    left.legend(loc="lower right")
    return figure


def _dev_alt(results: Results) -> str:
    parts = []
    for seed, _ in _seeds(results):
        looks = results["training"][seed]["dev"]
        first, last = looks[0]["strict"]["rate"], looks[-1]["strict"]["rate"]
        parts.append(f"seed {seed} from {first:.0%} to {last:.0%}")
    return (
        f"Line chart of strict accuracy on dev questions by update: {', '.join(parts)}; beside it the training reward."
    )


def signal(results: Results) -> Figure:
    """Share of groups that could teach something, and the loss, by update."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.6))
    for seed, colour in _seeds(results):
        updates = results["training"][seed]["updates"]
        x = [line["update"] for line in updates]
        left.plot(
            x, [line["groups_with_signal"] / line["groups"] for line in updates], color=colour, label=f"seed {seed}"
        )
        right.plot(x, [np.nan if line["loss"] is None else line["loss"] for line in updates], color=colour, linewidth=1)
    left.set(title="groups with a signal", xlabel="update", ylim=(0, 1))
    right.set(title="loss (no learning curve)", xlabel="update")
    right.axhline(0, color=INK, linewidth=0.8)
    _percent(left)
    left.legend(loc="best")
    return figure


def _signal_alt(results: Results) -> str:
    totals = [results["training"][seed]["totals"] for seed, _ in _seeds(results)]
    share = sum(t["groups_with_signal"] for t in totals) / max(1, sum(t["groups"] for t in totals))
    return f"Two line charts by update: the share of groups with a signal ({share:.0%} over all updates), and the loss."


# --- the test ---------------------------------------------------------------------------------------------------------


def arms(results: Results) -> Figure:
    """Each arm's rate with its interval, and every pass as a point of its own."""
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.9), sharey=True)
    found = results["arms"][plan.FIRST_SET]
    for axis, score in zip(axes, ("strict", "lenient"), strict=True):
        for x, (name, colour) in enumerate(ARM.items()):
            arm = found["sampled"][name]
            passes = [one[score] for one in arm["passes"]]
            spread = np.linspace(-0.28, -0.12, len(passes)) if len(passes) > 1 else [-0.2]
            axis.plot(x + np.array(spread), passes, ".", color=colour, alpha=0.7, markersize=5)
            rate = arm[score]
            error = [[rate["rate"] - rate["low"]], [rate["high"] - rate["rate"]]]
            axis.errorbar(x, rate["rate"], error, fmt=MARKER[name], color=colour, capsize=4, markersize=7)
            greedy = found["greedy"][name][score]["rate"]
            axis.plot(x + 0.2, greedy, marker="_", color=colour, markersize=12, markeredgewidth=2)
        axis.set_xticks(range(len(ARM)), list(ARM))
        axis.set(title=score, xlim=(-0.5, len(ARM) - 0.5))
        axis.grid(False, axis="x")
    _percent(axes[0])
    return figure


def _arms_alt(results: Results) -> str:
    found = results["arms"][plan.FIRST_SET]["sampled"]
    rates = ", ".join(f"{name} {found[name]['strict']['rate']:.1%}" for name in ARM)
    return f"Points with intervals for three arms, strict and lenient; strict: {rates}. Small points are single passes."


def gain(results: Results) -> Figure:
    """The paired gain against zero and the bar, with what stands beside it."""
    rows = _gain_rows(results)
    figure, axis = plt.subplots(figsize=(WIDTH, 0.9 + 0.33 * len(rows)))
    bar, margin = results["plan"]["first_endpoint"]["bar"], results["equivalence"]["margin"]
    for y, (label, delta, low, high, colour, main) in enumerate(rows):
        axis.plot([low, high], [y, y], color=colour, linewidth=3 if main else 1.6, solid_capstyle="butt")
        axis.plot(delta, y, marker="D" if main else "o", color=colour, markersize=8 if main else 5)
        if label.startswith("control − base"):
            axis.plot(
                [-margin, -margin, np.nan, margin, margin], [y - 0.3, y + 0.3, np.nan, y - 0.3, y + 0.3], color=INK
            )
    axis.axvline(0, color=INK, linewidth=0.9)
    axis.axvline(bar, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axis.text(bar, -0.72, " bar", ha="left", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [row[0] for row in rows])
    axis.set(ylim=(len(rows) - 0.4, -0.95), xlabel="difference in strict accuracy, percentage points")
    axis.xaxis.set_major_formatter(lambda value, _: points(value).removesuffix(".0"))
    axis.grid(False, axis="y")
    return figure


def _gain_rows(results: Results) -> list[tuple[str, float, float, float, str, bool]]:
    sampled, greedy, seeds = _first(results), _first(results, "greedy"), results["seeds"]
    main, red, blue = sampled["trained - control"]["strict"], ARM["trained"], ARM["control"]
    rows = [("trained − control (the test)", main["delta"], main["low"], main["high"], red, True)]
    for seed, colour in _seeds(results):
        one = sampled[f"trained-{seed} - control"]["strict"]
        rows.append((f"   seed {seed}", one["delta"], one["low"], one["high"], colour, False))
    if seeds["low"] is not None:
        rows.append(("   over seeds (t)", seeds["mean"], seeds["low"], seeds["high"], red, False))
    one = greedy["trained - control"]["strict"]
    rows.append(("   greedy", one["delta"], one["low"], one["high"], red, False))
    apart = results["contrasts"].get(plan.APART_SET, {}).get("sampled", {})
    if apart:
        one = apart["trained - control"]["strict"]
        rows.append(("   held-out structures", one["delta"], one["low"], one["high"], red, False))
    same = results["equivalence"]
    label = f"control − base ({same['confidence']:.0%} interval)"
    return [*rows, (label, same["delta"], same["low"], same["high"], blue, False)]


def _gain_alt(results: Results) -> str:
    main, bar = _first(results)["trained - control"]["strict"], results["plan"]["first_endpoint"]["bar"]
    return (
        f"Interval plot: trained minus control {points(main['delta'])} points, from {points(main['low'])} to "
        f"{points(main['high'])}, against a bar of {points(bar, sign=False)}; seeds, greedy and base below."
    )


# --- what the gain is made of -----------------------------------------------------------------------------------------


def flows(results: Results) -> Figure:
    """Outcomes under control at the left, under trained at the right, and the expected flow between them."""
    flow = results["flows"]
    names = [name for name in OUTCOMES if sum(flow[name].values()) or sum(flow[a][name] for a in OUTCOMES)]
    figure, axis = plt.subplots(figsize=(WIDTH, 3.4))
    gap = 0.03
    left = _stack({name: sum(flow[name].values()) for name in names}, gap)
    right = _stack({name: sum(flow[other][name] for other in names) for name in names}, gap)
    start, end = dict(left), dict(right)
    for a in names:
        for b in names:
            if flow[a][b] > 0:
                axis.add_patch(_band(start[a], end[b], flow[a][b], OUTCOME[a if a != "strict" else b], a != b))
            start[a], end[b] = start[a] - flow[a][b], end[b] - flow[a][b]
    for tops, x, side, before in ((left, 0.0, "right", True), (right, 1.0, "left", False)):
        for name in names:
            share = sum(flow[name].values()) if before else sum(flow[other][name] for other in names)
            axis.add_patch(Rectangle((x - 0.012, tops[name] - share), 0.024, share, color=OUTCOME[name]))
            label = f"{OUTCOME_WORDS[name]}  {share:.1%}" if before else f"{share:.1%}  {OUTCOME_WORDS[name]}"
            axis.text(
                x + (-0.03 if before else 0.03), tops[name] - share / 2, label, ha=side, va="center", fontsize=8.5
            )
    axis.set(
        xlim=(-0.62, 1.62), ylim=(min(min(left.values()), min(right.values())) - 0.12, 1 + gap * len(names) + 0.06)
    )
    axis.text(0, 1 + gap * len(names) + 0.02, "control", ha="center", weight="bold")
    axis.text(1, 1 + gap * len(names) + 0.02, "trained", ha="center", weight="bold")
    axis.axis("off")
    return figure


def _stack(shares: dict[str, float], gap: float) -> dict[str, float]:
    """Top edge of each share, piled downwards with gaps."""
    tops, top = {}, 1 + gap * (len(shares) - 1)
    for name, share in shares.items():
        tops[name] = top
        top -= share + gap
    return tops


def _band(left: float, right: float, width: float, colour: str, changed: bool) -> PathPatch:
    curve = [Outline.MOVETO, Outline.CURVE4, Outline.CURVE4, Outline.CURVE4, Outline.LINETO]
    codes = [*curve, Outline.CURVE4, Outline.CURVE4, Outline.CURVE4, Outline.CLOSEPOLY]
    x0, x1, low_left, low_right = 0.012, 0.988, left - width, right - width
    outline = [(x0, left), (0.5, left), (0.5, right), (x1, right), (x1, low_right), (0.5, low_right), (0.5, low_left),
               (x0, low_left), (x0, left)]  # fmt: skip
    return PathPatch(Outline(outline, codes), facecolor=colour, alpha=0.5 if changed else 0.18, linewidth=0)


def _flows_alt(results: Results) -> str:
    flow = results["flows"]
    repaired = sum(flow[name]["strict"] for name in OUTCOMES if name != "strict")
    lost = sum(flow["strict"][name] for name in OUTCOMES if name != "strict")
    return f"Flow diagram of outcomes from control to trained: {repaired:.1%} of episodes become right, {lost:.1%} cease to be."


def changes(results: Results) -> Figure:
    """How many questions changed by how much."""
    figure, axis = plt.subplots(figsize=(WIDTH, 2.7))
    found = results["changes"]
    x, n = np.array([step["change"] for step in found]), [step["questions"] for step in found]
    width = 0.9 / (results["plan"]["first_endpoint"]["samples"] * len(results["plan"]["seeds"]))
    colours = [ARM["control"] if value < 0 else "#8a8f96" if value == 0 else ARM["trained"] for value in x]
    axis.bar(x, n, width=width, color=colours)
    axis.set(
        xlim=(-1.08, 1.08), xlabel="change of a question's strict rate, trained − control, points", ylabel="questions"
    )
    axis.xaxis.set_major_formatter(lambda value, _: points(value).removesuffix(".0"))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(False, axis="x")
    return figure


def _changes_alt(results: Results) -> str:
    found = results["changes"]
    up, same, down = (
        sum(step["questions"] for step in found if np.sign(step["change"]) == sign) for sign in (1, 0, -1)
    )
    return f"Histogram of changes by question: {up} questions up, {same} unchanged, {down} down."


def groups(results: Results) -> Figure:
    """Control and trained on questions that base never, sometimes or always answered."""
    figure, axis = plt.subplots(figsize=(WIDTH, 2.7))
    found = {name: results["groups"]["by base"][name] for name in GROUPS}
    for i, arm in enumerate(("control", "trained")):
        rates = [found[name][arm] or 0 for name in found]
        bars = axis.bar(np.arange(len(found)) + 0.38 * (i - 0.5), rates, 0.36, color=ARM[arm], label=arm)
        axis.bar_label(bars, [f"{rate:.0%}" for rate in rates], fontsize=8)
    axis.set_xticks(range(len(found)), [f"{name}\n({group['questions']} questions)" for name, group in found.items()])
    axis.set(ylim=(0, 1.12), ylabel="strict")
    _percent(axis)
    axis.grid(False, axis="x")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def _groups_alt(results: Results) -> str:
    found = results["groups"]["by base"]
    parts = [
        f"{name} ({found[name]['questions']}) from {found[name]['control']:.0%} to {found[name]['trained']:.0%}"
        for name in GROUPS
        if found[name]["questions"]
    ]
    return f"Bars of strict accuracy, control and trained, by how often base had a question right: {'; '.join(parts)}."


def hops(results: Results) -> Figure:
    """The paired gain by the number of relationships that a question crosses."""
    found = {hop: row for hop, row in results["by_hops"].items() if row["questions"]}
    figure, axis = plt.subplots(figsize=(WIDTH, 1.0 + 0.36 * len(found)))
    for y, row in enumerate(found.values()):
        axis.plot([row["before"], row["after"]], [y, y], color=GRID, linewidth=3, zorder=1)
        axis.plot(row["before"], y, MARKER["control"], color=ARM["control"], label="control" if y == 0 else None)
        axis.plot(row["after"], y, MARKER["trained"], color=ARM["trained"], label="trained" if y == 0 else None)
    axis.set_yticks(range(len(found)), [f"{hop} hops ({row['questions']})" for hop, row in found.items()])
    axis.set(xlim=(0, 1), ylim=(len(found) - 0.5, -0.5), xlabel="strict")
    _percent(axis, "x")
    axis.grid(False, axis="y")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def _hops_alt(results: Results) -> str:
    rows = [
        f"{hop} hops {row['before']:.0%} to {row['after']:.0%}"
        for hop, row in results["by_hops"].items()
        if row["questions"]
    ]
    return f"Pairs of points by number of hops, control to trained: {'; '.join(rows)}."


def ordered_kinds(results: Results) -> list[dict[str, Any]]:
    """Kinds of mistakes, planted ones first, the control's most frequent first."""
    rows = results["mistakes"]["kinds"]
    return sorted(rows, key=lambda row: (not row["planted"], -row["rates"]["control"], row["kind"]))


def mistakes(results: Results) -> Figure:
    """Episodes that aren't right, by what is wrong with the query, under control and trained."""
    rows = ordered_kinds(results)
    figure, axis = plt.subplots(figsize=(WIDTH, 0.9 + 0.36 * len(rows)))
    for y, row in enumerate(rows):
        for arm, shift in (("control", -0.19), ("trained", 0.19)):
            hatch = None if row["planted"] else "////"
            axis.barh(
                y + shift, row["rates"][arm], 0.36, color=ARM[arm], hatch=hatch, edgecolor=GRID, linewidth=0,
                label=arm if y == 0 else None,
            )  # fmt: skip
    axis.set_yticks(range(len(rows)), [row["kind"] for row in rows])
    axis.set(ylim=(len(rows) - 0.5, -0.5), xlabel="share of all episodes (hatched: not planted)")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g}%")
    axis.grid(False, axis="y")
    axis.legend(loc="lower right")
    return figure


def _mistakes_alt(results: Results) -> str:
    planted = [row["rates"] for row in results["mistakes"]["kinds"] if row["planted"]]
    before, after = (sum(rate[arm] for rate in planted) for arm in ("control", "trained"))
    return f"Bars by kind of mistake: planted kinds are {before:.1%} of the episodes under control, {after:.1%} under trained."


def reach(results: Results) -> Figure:
    """At least one of k right, and all of k right."""
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 2.8), sharey=True)
    for axis, (key, title) in zip(
        axes, (("any", "reach: any of k right"), ("all", "reliability: all of k right")), strict=True
    ):
        for name, colour in ARM.items():
            k = [row["k"] for row in results["reach"][name]]
            axis.plot(k, [row[key] for row in results["reach"][name]], marker=MARKER[name], color=colour, label=name)
        axis.set(title=title, xlabel="k samples")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _percent(axes[0])
    axes[1].legend(loc="best")
    return figure


def _reach_alt(results: Results) -> str:
    control, trained = results["reach"]["control"][-1], results["reach"]["trained"][-1]
    return (
        f"Two line charts over k: at {control['k']} samples any right goes from {control['any']:.0%} (control) to "
        f"{trained['any']:.0%} (trained), all right from {control['all']:.0%} to {trained['all']:.0%}."
    )


def difficulty(results: Results) -> Figure:
    """Structures from the hardest to the easiest for the control, and where the trained arm stands on each."""
    found = sorted(results["structures"], key=lambda row: (row["before"], row["after"], row["structure"]))
    x = np.arange(len(found)) + 1
    before, after = (np.array([row[key] for row in found]) for key in ("before", "after"))
    figure, axis = plt.subplots(figsize=(WIDTH, 2.9))
    axis.vlines(x, before, after, color=GRID, linewidth=2.5, zorder=1)
    axis.plot(x, before, MARKER["control"], color=ARM["control"], markersize=4.5, label="control")
    axis.plot(x, after, MARKER["trained"], color=ARM["trained"], markersize=4.5, label="trained")
    axis.set(xlabel="structures, the control's hardest first", ylabel="strict", ylim=(-0.04, 1.04))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _percent(axis)
    axis.grid(False, axis="x")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def _difficulty_alt(results: Results) -> str:
    found = results["structures"]
    up, down = (sum(np.sign(row["after"] - row["before"]) == sign for row in found) for sign in (1, -1))
    least, most = (choose(row["before"] for row in found) for choose in (min, max))
    return (
        f"Points for {len(found)} structures of questions, the control's hardest first: its rates reach from {least:.0%} to "
        f"{most:.0%}; the trained arm is above it on {up} and below it on {down}."
    )


def cost(results: Results) -> Figure:
    """Tokens that practice took, summed up over updates, and those of one answer under each arm."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 2.6), width_ratios=(3, 2))
    for seed, colour in _seeds(results):
        updates = results["training"][seed]["updates"]
        x = [line["update"] for line in updates]
        for key, line in (("tokens_trained", "-"), ("tokens_sampled", (0, (4, 2)))):
            label = f"{key.removeprefix('tokens_')}, seed {seed}"
            left.plot(x, np.cumsum([one[key] or 0 for one in updates]), color=colour, linestyle=line, label=label)
    left.set(title="tokens of practice, summed up", xlabel="update")
    left.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
    left.legend(loc="upper left", fontsize=7.5)
    found = results["arms"][plan.FIRST_SET]["sampled"]
    bars = right.bar(list(ARM), [found[arm]["tokens_sampled"] for arm in ARM], 0.6, color=list(ARM.values()))
    right.bar_label(bars, [f"{found[arm]['tokens_sampled']:.0f}" for arm in ARM], fontsize=8)
    right.set(title="tokens of an answer")
    right.margins(y=0.15)
    right.grid(False, axis="x")
    return figure


def _cost_alt(results: Results) -> str:
    totals = [results["training"][seed]["totals"] for seed, _ in _seeds(results)]
    sampled, trained = (sum(one[f"tokens_{kind}"] for one in totals) for kind in ("sampled", "trained"))
    found = results["arms"][plan.FIRST_SET]["sampled"]
    answers = ", ".join(f"{arm} {found[arm]['tokens_sampled']:.0f}" for arm in ARM)
    return (
        f"Lines of tokens summed up over updates: {sampled:,.0f} sampled and {trained:,.0f} trained over all seeds; beside "
        f"them bars of the tokens that one answer takes: {answers}."
    )


# --- several runs, and time -------------------------------------------------------------------------------------------


def forest(runs: Sequence[Results]) -> Figure:
    """The paired gain of several runs, each against its own bar."""
    figure, axis = plt.subplots(figsize=(WIDTH, 0.75 + 0.36 * len(runs)))
    for y, results in enumerate(runs):
        one, bar = _first(results)["trained - control"]["strict"], results["plan"]["first_endpoint"]["bar"]
        axis.plot([one["low"], one["high"]], [y, y], color=ARM["trained"], linewidth=3, solid_capstyle="butt")
        axis.plot(one["delta"], y, marker=MARKER["trained"], color=ARM["trained"], markersize=8)
        axis.plot([bar, bar], [y - 0.35, y + 0.35], color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axis.axvline(0, color=INK, linewidth=0.9)
    axis.set_yticks(range(len(runs)), [results["run"] for results in runs])
    axis.set(
        ylim=(len(runs) - 0.5, -0.5), xlabel="trained − control, strict, percentage points (dashed: the run's bar)"
    )
    axis.xaxis.set_major_formatter(lambda value, _: points(value).removesuffix(".0"))
    axis.grid(False, axis="y")
    return figure


def forest_alt(runs: Sequence[Results]) -> str:
    said = []
    for results in runs:
        one = _first(results)["trained - control"]["strict"]
        said.append(f"{results['run']} {points(one['delta'])} from {points(one['low'])} to {points(one['high'])}")
    return f"Interval plot of the paired gain in points, one line a run: {'; '.join(said)}."


def time_split(seconds: dict[str, float]) -> Figure:
    """Where the time went, one bar a step. Drawn from timings, so it is no part of what is the same in every run."""
    figure, axis = plt.subplots(figsize=(WIDTH, 0.8 + 0.3 * len(seconds)))
    bars = axis.barh(list(seconds), list(seconds.values()), color=ARM["control"])
    axis.bar_label(bars, [f"{value:,.0f} s" for value in seconds.values()], fontsize=8, padding=3)
    axis.set(xlabel="CPU seconds", ylim=(len(seconds) - 0.5, -0.5))
    axis.margins(x=0.12)
    axis.grid(False, axis="y")
    return figure


def time_alt(seconds: dict[str, float]) -> str:
    longest = max(seconds, key=lambda step: (seconds[step], step))
    return f"Bars of CPU seconds by step, {sum(seconds.values()):,.0f} in all; the longest is {longest}."


FIGURES: dict[str, tuple[Callable[[Results], Figure], Callable[[Results], str]]] = {
    "dev_curve": (dev_curve, _dev_alt),
    "signal": (signal, _signal_alt),
    "arms": (arms, _arms_alt),
    "gain": (gain, _gain_alt),
    "flows": (flows, _flows_alt),
    "changes": (changes, _changes_alt),
    "groups": (groups, _groups_alt),
    "hops": (hops, _hops_alt),
    "mistakes": (mistakes, _mistakes_alt),
    "reach": (reach, _reach_alt),
    "difficulty": (difficulty, _difficulty_alt),
    "cost": (cost, _cost_alt),
}


def main(arguments: list[str] | None = None) -> None:
    """Command line: draw all figures of a results file into the folder `figures` beside it."""
    parser = argparse.ArgumentParser(prog="python -m lib.plots", description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, help="data/runs/<run>/results.json")
    chosen = parser.parse_args(arguments)
    if not chosen.results.exists():
        parser.exit(1, f"{chosen.results} isn't there: compare the run first, with `python -m lib.compare`\n")
    results = json.loads(chosen.results.read_text(encoding="utf-8"))
    for file in save_all(results, chosen.results.parent / "figures"):
        print(file)


if __name__ == "__main__":
    main()
