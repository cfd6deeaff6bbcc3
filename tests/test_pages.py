"""The pages around a write-up: claims that lead to their evidence, the reading list, worked examples, the list of runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re

import pytest
import synthetic
from test_report import text_of

from lib import compare, examples, plots
from lib.files import write_json
from reports import claims, render, short, unsolved, worked
from reports.parts import Report
from reports.runs import Runs

SMALL = {"test": {"resamples": 200}, "train": {"updates": 4, "seeds": (0, 1)}}
WORLDS = {  # run -> what is changed, and the gain that it was given
    "better": {"gain": 0.25},
    "same": {"gain": 0.0},
    "worse": {"gain": -0.3},
    "dump": {"gain": 0.1, "graph": {"source": "stackexchange", "path": "/somewhere/french"}},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Several runs side by side in one data folder, whose questions are the same."""
    folder = tmp_path_factory.mktemp("runs")
    for run, changes in WORLDS.items():
        made = synthetic.make(folder, run=run, **SMALL, **changes)
        plots.save_all(compare.compare(made), made.run_dir / "figures")
    return folder


@pytest.fixture(scope="module")
def site(data, tmp_path_factory):
    """All pages of all these runs, as text by name."""
    out = tmp_path_factory.mktemp("site")
    written = render.render_site(data, out, quarto=False)
    for run in WORLDS:
        written += render.render_run(run, data, out, quarto=False)
    return {page.name: page.read_text() for page in written}


def test_every_claim_leads_to_its_value_its_code_and_the_plan(data):
    for run in WORLDS:
        results = Report(data, run).results
        found = claims.claims(results)
        assert len(found) > 30 and len({(claim.key, claim.said) for claim in found}) == len(found)
        for claim in found:
            module, function = claim.code.rsplit(".", 1)
            assert callable(getattr(importlib.import_module(module), function)), claim
            if claim.announced:
                claims.at(results["plan"], claim.announced)
            assert claims.shown(claim, results)[0]
        table = claims.ledger(results)
        assert table.count('type="checkbox"') == len(found)


def test_the_ledger_shows_what_stands_in_the_file(data):
    results = Report(data, "better").results
    one = results["contrasts"]["held_out_instances"]["sampled"]["trained - control"]["strict"]
    value, ends = claims.shown(claims.claims(results)[0], results)
    assert value == compare.points(one["delta"]) and compare.points(one["low"]) in ends
    with pytest.raises(KeyError, match="verdict > nothing"):
        claims.at(results, ("verdict", "nothing"))


def test_the_first_screen_is_true_whichever_way_a_run_came_out(data, site):
    for run in WORLDS:
        report = Report(data, run)
        start = short.how_much(report)
        side = short.clear(report.main)
        assert ("above zero" in start, "below zero" in start) == (side == "higher", side == "lower")
        gained = report.main["delta"] > 0
        assert ("no gain to take apart" in short.made_of(report)) == (not gained)
        text = text_of(site[f"{run}.html"])
        assert ("Their removal makes up" in text) <= gained and "nan" not in re.findall(r"\b\w+\b", text)
    assert short.clear(Report(data, "worse").main) == "lower" and short.clear(Report(data, "better").main) == "higher"


def test_a_run_over_a_dump_says_so(site):
    dump, made_up = text_of(site["dump.html"]), text_of(site["better.html"])
    assert "public dump of a Stack Exchange site" in dump and "made-up question-and-answer site" not in dump
    assert (
        "contributors" in dump and "contributors" not in made_up.split("Sources, licences")[1].split("Every number")[0]
    )
    assert "/somewhere" not in site["dump.html"]


def test_the_reading_list_holds_every_question_and_who_solved_it(data):
    report = Report(data, "same")
    listed = report.never_table()
    assert listed.count("transcripts.html#q=") == len(report.results["never_solved"]) > 0
    wanted = {one["question"] for one in report.results["never_solved"]}
    elsewhere = unsolved.solved_elsewhere(data, "same", report.results, wanted)
    solved = {e.question for e in worked.sampled(data / "runs" / "better") if e.strict}
    assert {name for name, runs in elsewhere.items() if "better" in runs} == wanted & solved
    report.results["plan"]["inputs"]["questions"]["held_out_instances"] = "another"
    assert unsolved.solved_elsewhere(data, "same", report.results, wanted) == {}


def test_what_attempts_have_in_common():
    asked = synthetic.question("held_out_instances", 1)
    tried = [synthetic.episode("base", asked, i, "wrong", "MATCH (p:Post) RETURN p.title") for i in range(3)]
    said = unsolved.in_common(tried, "MATCH (u:User) RETURN u.age")
    assert said.startswith("3 attempts, 1 different query; 100% wrong; the same rows in 3")
    assert "none used `User` and `age`" in said and "all used `Post` and `title`" in said
    assert unsolved.in_common([], "RETURN 1") == ""
    silent = [synthetic.episode("base", asked, 0, "no_query")]
    assert unsolved.in_common(silent, "RETURN 1") == "1 attempts, 0 different queries; 100% no query"


def test_new_recordings_stand_beside_the_counts(data):
    report = Report(data, "better")
    found = report.results["examples"]["regression"] or report.results["examples"]["substance"]
    name = found["question"]
    again = [
        dataclasses.replace(e, id=e.id.replace("/evaluate/", "/fresh/")) for e in report.tried[name] if e.sample < 2
    ]
    shown = worked.shown(found, report.tried[name], again)
    assert [e.arm.split("-")[0] for e in shown] == ["control", "trained"]
    assert all(e.sample == 0 and "/fresh/" in e.id for e in shown)  # the first, whatever it came out as
    said = worked.example(found, "better", report.tried, {name: again})
    assert "asked anew" in said and f"better-transcripts.html#q={name}" in said
    before = worked.shown(found, report.tried[name], ())
    assert {e.id for e in before} == {found["before"], found["after"]}
    assert worked.example(None, "better", {}, {}) == "No question moved that way."


def test_examples_are_asked_once_each_and_only_after_the_comparison(data):
    settings = synthetic.settings_in(data, run="better", **SMALL)
    results = json.loads((settings.run_dir / "results.json").read_text())
    wanted = {one["question"] for one in results["examples"].values() if one}
    assert [one["id"] for one in examples.chosen(settings)] == sorted(wanted)
    with pytest.raises(examples.ExamplesError, match="compare the run first"):
        examples.chosen(dataclasses.replace(settings, run="nothing"))


def test_the_front_page_lists_every_run(data, site):
    text = text_of(site["index.html"])
    for run in WORLDS:
        report = Report(data, run)
        assert compare.points(report.main["delta"]) in text and f'href="{run}.html"' in site["index.html"]
        assert report.results["verdict"]["verdict"] in text and report.plan["digest"][:12] in text


def test_runs_that_asked_the_same_are_compared_question_by_question(data, site):
    runs = Runs(data)
    assert len(runs.same_questions()) == 6 and "graph.source" in runs.settings_table()
    one, other = Report(data, "better"), Report(data, "worse")
    row = next(row for row in runs.paired_table().splitlines() if "[worse](worse.html) − [better]" in row)
    assert compare.points(other.main["after"] - one.main["after"]) in row
    assert "fewer than two runs" not in text_of(site["compare.html"])


def test_a_folder_with_one_run_none_or_a_foreign_one(data, tmp_path):
    assert Runs(tmp_path).cards().startswith("No run has been compared yet")
    write_json(tmp_path / "runs" / "old" / "results.json", {"run": "old"})
    runs = Runs(tmp_path)
    assert runs.unread == ["old"] and "`old`" in runs.unread_words()
    assert "fewer than two runs" in runs.how_many and "no other run" in runs.settings_section()


def test_no_page_is_heavy_or_loads_anything(site):
    for name, page in site.items():
        assert len(page.encode()) < 3_000_000, name
        assert not re.search(r"src=|@import|<link\b|<script\b|<iframe\b", page), name
        assert len(re.findall(r"<h1\b[^>]*class=\"title\"", page)) == 1 and 'lang="en"' in page


def test_links_between_pages_resolve(site):
    for name, page in site.items():
        for target, anchor in re.findall(r'href="([\w.-]*\.html)?(?:#([\w-]+))?"', page):
            if target.endswith("-transcripts.html"):
                continue  # pages of their own
            assert not target or target in site, (name, target)
            if anchor:
                assert f'id="{anchor}"' in site[target or name], (name, target, anchor)


def test_the_gallery_has_every_figure_with_words_and_files(site):
    page = site["better-figures.html"]
    assert len(re.findall(r"<figure\b", page)) == len(plots.FIGURES)
    assert len(re.findall(r'download="better-[\w]+\.(?:svg|png)"', page)) == 2 * len(plots.FIGURES)
    for name in plots.FIGURES:
        assert f"lib.plots.{name}" in page


def test_the_style_file_is_the_one_style():
    assert "rc_context" not in plots.Path(plots.__file__).read_text()
    assert plots.plt.style.library is not None and plots.STYLE.exists()
