"""The tables of docs/statistics.md are those that the benchmark made, say what the page claims, and can be made again."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import intervals


@pytest.fixture(scope="module")
def figures():
    return json.loads(intervals.FIGURES.read_text())


def test_the_page_shows_the_figures(figures):
    page = intervals.PAGE.read_text()
    shown = page.split(intervals.BEGIN)[1].split(intervals.END)[0]
    assert shown.strip() == intervals.tables(figures)
    assert set(figures["coverage"]) == {setting.name for setting in intervals.COVERAGE}
    assert set(figures["alarms"]) == {setting.name for setting in intervals.ALARMS}
    assert set(figures["power"]) == {setting.name for setting, *_ in intervals.POWER}


def test_what_the_page_claims_of_large_studies(figures):
    """With 150 questions and 24 structures at least, and trainings that differ by two points at most where there are three."""
    for setting in intervals.COVERAGE:
        few = 0 < len(setting.sizes) < 24 or setting.questions < 150 or setting.seeds == 2
        method = intervals.reliable(setting)
        assert few or 0.93 <= figures["coverage"][setting.name][method] <= 0.97, setting.name
    for setting in intervals.ALARMS:
        assert figures["alarms"][setting.name]["rule"] <= 0.05, setting.name
    for name, one in figures["power"].items():
        assert one["found"] == pytest.approx(one["foretold"], abs=0.03), name
    assert figures["equal_by_mistake"] <= 0.055


def agree(share, runs, figure, of):
    """Two simulated shares differ by no more than four standard errors of their difference."""
    return abs(share - figure) <= 4 * math.sqrt(figure * (1 - figure) * (1 / runs + 1 / of))


def test_a_line_of_each_table_can_be_made_again(figures):
    setting = next(one for one in intervals.COVERAGE if one.name == "24 structures of 8, gains differ by 10 points")
    for method, share in intervals.covered(setting, 300).items():
        assert agree(share, 300, figures["coverage"][setting.name][method], figures["runs"]), method
    (setting, gain, bar), runs = intervals.POWER[1], 300
    found = intervals.foretold(setting, gain, bar, runs)
    assert agree(found["found"], runs, figures["power"][setting.name]["found"], figures["rule_runs"])
    assert found["foretold"] == pytest.approx(figures["power"][setting.name]["foretold"], abs=1e-3)
    setting = intervals.ALARMS[0]
    found = intervals.alarms(setting, runs)
    assert agree(found["interval"], runs, figures["alarms"][setting.name]["interval"], figures["rule_runs"])
