"""Draws the experiment's figures from its results.json, in the study's one style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import plots
from lib.compare import points
from lib.learning.arms import BASELINE

Found = dict[str, Any]  # results.json
COLUMNS = 3  # of small pictures


def ordered(found: Found) -> dict[str, Found]:
    """The arms as they were declared; a file's keys are in the order of the alphabet."""
    return {name: found["arms"][name] for name in found["order"]}


def gains(found: Found) -> Figure:
    """Each arm over the control, and over the baseline, with corrected intervals."""
    arms = ordered(found)
    figure, axes = plt.subplots(1, 2, figsize=(plots.WIDTH, 0.8 + 0.3 * len(arms)), sharey=True)
    for axis, against in zip(axes, ("control", "baseline"), strict=True):
        rows = [(y, one["gains"][against]) for y, one in enumerate(arms.values()) if against in one["gains"]]
        _intervals(axis, rows, f"gain over the {against}, points")
    _names(axes[0], list(arms))
    return figure


def gains_alt(found: Found) -> str:
    return f"Intervals of the gain by arm, in points. {_said(found, 'control')}. {_said(found, 'baseline')}."


def curves(found: Found) -> Figure:
    """Gain on dev questions against sampled tokens, an arm a picture, over the baseline's in grey."""
    arms = ordered(found)
    rows = math.ceil(len(arms) / COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(plots.WIDTH, 1.6 * rows), sharex=True, sharey=True)
    for axis, (name, one) in zip(axes.flat, arms.items(), strict=False):
        _curve(axis, arms[BASELINE]["curve"], plots.ARM["base"])
        if name != BASELINE:
            _curve(axis, one["curve"], plots.ARM["trained"])
        axis.set_title(name, fontsize=9)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
        axis.yaxis.set_major_formatter(lambda value, _: points(value).removesuffix(".0"))
    for axis in axes.flat[len(arms) :]:
        axis.remove()
    figure.supxlabel("sampled tokens, the pre-pass included", fontsize=9)
    figure.supylabel("gain on dev questions, points", fontsize=9)
    return figure


def curves_alt(found: Found) -> str:
    last = "; ".join(f"{name} {_span(one['curve'][-1])}" for name, one in ordered(found).items())
    return f"Lines of the gain on dev questions over sampled tokens, an arm a picture beside the baseline. At the end: {last}."


def signal(found: Found) -> Figure:
    """Of all groups sampled, replaced ones included: with a signal, all right, none right."""
    arms, target = ordered(found), found["targets"]["signal"]["least"]
    figure, axis = plt.subplots(figsize=(plots.WIDTH, 0.8 + 0.3 * len(arms)))
    left = np.zeros(len(arms))
    kinds = {
        "signal": ("with a signal", "strict"),
        "all_right": ("all right", "form"),
        "none_right": ("none right", "no_query"),
    }
    for key, (label, colour) in kinds.items():
        width = np.array([one[key] for one in arms.values()])
        axis.barh(range(len(arms)), width, 0.7, left=left, color=plots.OUTCOME[colour], label=label)
        left += width
    axis.axvline(target, color=plots.INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axis.set(xlabel="share of all groups sampled (dashed: the target)", xlim=(0, 1))
    axis.xaxis.set_major_formatter(plots.PercentFormatter(1, decimals=0))
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    _names(axis, list(arms))
    return figure


def signal_alt(found: Found) -> str:
    shares = ", ".join(f"{name} {one['signal']:.0%}" for name, one in ordered(found).items())
    return f"Stacked bars: share of all sampled groups with a signal: {shares}."


def reach(found: Found) -> Figure:
    """What is newly reached, on questions that the base never solved, beside what became reliable, on all."""
    arms, k, often = ordered(found), found["samples"], found["rules"]["reach"]
    figure, axes = plt.subplots(1, 3, figsize=(plots.WIDTH, 0.8 + 0.3 * len(arms)), sharey=True)
    titles = (f"never solved: pass@{often}", f"never solved, new: pass@{often}", f"all: pass^{k}")
    for axis, key, title in zip(axes, ("reach", "reach_new", "all"), titles, strict=True):
        _intervals(axis, [(y, one[key]) for y, one in enumerate(arms.values())], "gain over the control, points")
        axis.set_title(title, fontsize=9)
    _names(axes[0], list(arms))
    return figure


def reach_alt(found: Found) -> str:
    said = "; ".join(
        f"{name} {_span(one['reach'])}, {_span(one['reach_new'])} and {_span(one['all'])}"
        for name, one in ordered(found).items()
    )
    return (
        "Corrected intervals by arm of reach on questions never solved, of practised and of new structures, and of reliability on "
        f"all, in points: {said}."
    )


def _intervals(axis: Axes, rows: Sequence[tuple[int, Found]], label: str) -> None:
    for y, one in rows:
        if "delta" in one:
            low, high = one["corrected"]
            axis.plot([low, high], [y, y], color=plots.ARM["trained"], linewidth=1.4, solid_capstyle="butt")
            axis.plot(
                [one["low"], one["high"]], [y, y], color=plots.ARM["trained"], linewidth=3.5, solid_capstyle="butt"
            )
            axis.plot(one["delta"], y, marker=plots.MARKER["trained"], color=plots.ARM["trained"], markersize=6)
    axis.axvline(0, color=plots.INK, linewidth=0.9)
    axis.set(xlabel=label)
    axis.xaxis.set_major_formatter(lambda value, _: points(value).removesuffix(".0"))


def _names(axis: Axes, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), list(names))
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(False, axis="y")


def _curve(axis: Axes, looks: Sequence[Found], colour: str) -> None:
    known = [look for look in looks if "delta" in look]
    x, y, low, high = (np.array([0.0, *(look[key] for look in known)]) for key in ("tokens", "delta", "low", "high"))
    axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(x, y, marker="o", markersize=2.5, linewidth=1.2, color=colour)


def _said(found: Found, against: str) -> str:
    arms = {name: one["gains"][against] for name, one in ordered(found).items() if against in one["gains"]}
    return f"Over the {against}: " + "; ".join(f"{name} {_span(one)}" for name, one in arms.items())


def _span(one: Found) -> str:
    return f"{points(one['delta'])} from {points(one['low'])} to {points(one['high'])}" if "delta" in one else "unknown"


FIGURES: dict[str, tuple[Callable[[Found], Figure], Callable[[Found], str]]] = {
    "gains": (gains, gains_alt),
    "curves": (curves, curves_alt),
    "signal": (signal, signal_alt),
    "reach": (reach, reach_alt),
}


def drawn(name: str, found: Found) -> str:
    """A figure as an SVG element, with what it shows in words; the same results give the same text."""
    draw, said = FIGURES[name]
    figure = plots.styled(draw, found)
    drawing = plots.svg(figure, said(found))
    plt.close(figure)
    return drawing
