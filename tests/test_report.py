"""The report: every number from a file, model text harmless, the same bytes again, and readable without a network."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil

import pytest
import synthetic

from lib import compare, plan, plots
from lib.files import read_jsonl, write_json, write_jsonl
from lib.measures import Method
from reports import fallback, markdown, parts, render

SOURCE = render.ROOT / "reports" / "run.qmd"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    made = synthetic.make(tmp_path_factory.mktemp("run"), gain=0.25, test={"resamples": 300}, train={"updates": 16})
    results = compare.compare(made)
    plots.save_all(results, made.run_dir / "figures")
    return made


@pytest.fixture(scope="module")
def page(settings, tmp_path_factory):
    """The page without timings."""
    out = tmp_path_factory.mktemp("page")
    render.main(["--run", "tiny", "--data", str(settings.data), "--out", str(out), "--fallback"])
    return (out / "tiny.html").read_text()


def text_of(page: str) -> str:
    body = re.sub(r"<(style|svg|math)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.mark.parametrize("source", sorted((render.ROOT / "reports").glob("*.qmd")), ids=lambda path: path.stem)
def test_no_number_is_typed(source):
    assert typed(source.read_text()) == []


def typed(source: str) -> list[str]:
    """Numbers in the prose of a source, in digits or in words; code and inline code may hold any."""
    prose = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    prose = re.sub(r"`[^`\n]*`|\{#[^}]*\}", "", fallback.INLINE.sub("", fallback.FENCE.sub("", prose)))
    prose = re.sub(
        r"F1|There are three arms|[Tt]wo (one-sided|curves|intervals|arms|overlapping|bars|runs|mistakes)", "", prose
    )
    words = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|hundred|thousand|million|per cent"
    return re.findall(rf"(?<![A-Za-z])\d[\d.,]*|\b(?:{words})\b", prose)


def test_a_typed_number_is_found():
    source = (
        "---\nx: 5\n---\nThe gain is 14.5 points in two runs, twelve of `3`, `{python} 7`.\n\n```{python}\n8\n```\n"
    )
    assert typed(source) == ["14.5", "twelve"]


def test_what_disturbed_practice_is_said_and_only_then(page, settings):
    assert parts.Report(settings.data, "tiny").disturbed_words == "" and "interrupted" not in text_of(page)
    folder = settings.train_dir(0)
    record, updates = folder / "interruptions.jsonl", (folder / "updates.jsonl").read_text()
    try:
        write_jsonl(record, [{"update": 3, "episodes_made_anew": 40}, {"update": 7, "episodes_made_anew": 2}])
        lines = [line | {"rollouts_lost": 2, "groups_dropped": 0} for line in read_jsonl(folder / "updates.jsonl")]
        write_jsonl(folder / "updates.jsonl", lines)
        disturbed = parts.Report(settings.data, "tiny")
        disturbed.results["training"]["0"] = compare.training(settings, 0, Method(0.95, 100))
    finally:
        record.unlink()
        (folder / "updates.jsonl").write_text(updates)
    words = disturbed.disturbed_words
    assert "Practice of seed 0 was interrupted, and gone on from before update 3, 7; 42 episodes" in words
    assert f"Of seed 0's attempts {2 * len(lines)} were lost" in words and "seed 1" not in words


def test_the_first_screen_says_what_must_be_known(page, settings):
    results = json.loads((settings.run_dir / "results.json").read_text())
    start = text_of(page)
    start = start[start.index("What was asked.") : start.index("The world is a made-up")]
    assert results["verdict"]["reason"] in start and "scale is small" in start
    assert "untested here" in start and "no discovery" in start and "of the gain" in start
    for answer in ("How much.", "What it is made of.", "More often, or more.", "Without chance.", "Can it be trusted."):
        assert answer in start
    for kind in ("distinct lost", "extra column", "boundary"):
        assert kind in start


def test_nothing_is_red_where_nothing_changed(page):
    assert 'class="alarm"' not in page


@pytest.mark.parametrize("part", ["plan", "questions", "scorer", "environment", "loop", "prompt"])
def test_what_changed_after_training_is_named_in_red(settings, tmp_path, monkeypatch, part):
    shutil.copytree(settings.data, tmp_path, dirs_exist_ok=True)
    copy = dataclasses.replace(settings, data=tmp_path)
    synthetic.tamper(copy, part, monkeypatch)
    report = parts.Report(tmp_path, "tiny")
    assert report.alarm() == ""
    report.results["checks"]["plan"]["differences"] = plan.check(copy)
    name = {"loop": "the training loop"}.get(part, f"the {part}")
    assert 'class="alarm"' in report.alarm() and f"Changed after training began: {name}<" in report.alarm()


def test_both_counts_the_scan_and_the_headroom_are_shown(page, settings):
    text, results = text_of(page), json.loads((settings.run_dir / "results.json").read_text())
    one, other = results["recount"]["figures"]["gain"]
    assert text.count(f"{one:.4%}") == 2 and one == other and "Both counts agree" in text
    assert "Nothing was found" in text and f"{results['headroom']['signal']:.1%}" in text


def test_findings_are_named_with_arm_count_and_examples(settings):
    report = parts.Report(settings.data, "tiny")
    line = next(line for line in report.results["hacks"] if line["rule"] == "no call" and line["arm"] == "trained")
    line.update(found=True, count=300, share=0.4, examples=["trained-0/evaluate/sampled/x-1/0"])
    assert "no call (trained: 300 of" in report.hack_words and "x-1/0" in report.hack_words
    assert "0.40" in next(row for row in report.hacks_table().splitlines() if "no call" in row)
    report.results["recount"].update(agrees=False, disagreements=["trained-0/a"])
    assert "forbids a verdict" in report.recount_words and "trained-0/a" in report.recount_words


def test_every_part_of_a_write_up_is_there(page):
    text = text_of(page)
    for part in (
        "Setting and recipe", "How training went", "weak evidence", "no learning curve", "as it was written down", "The arms",
        "each pass", "bars may overlap", "Headroom", "Can the numbers be trusted?", "Form and substance", "Worked examples", "A regression", "Regression to the mean",
        "By number of hops", "Question by question", "Never solved", "Claims, one by one", "Limits", "foretold",
        "Wasted data", "Cost", "What next", "Sources, licences, attribution",
    ):  # fmt: skip
        assert part in text, part


def test_numbers_on_the_page_are_those_of_the_results(page, settings):
    results = json.loads((settings.run_dir / "results.json").read_text())
    text = text_of(page)
    found = results["contrasts"]["held_out_instances"]["sampled"]["trained - control"]["strict"]
    assert f"{compare.points(found['delta'])} points" in text
    for arm in ("base", "control", "trained"):
        assert markdown.rate(results["arms"]["held_out_instances"]["sampled"][arm]["strict"]) in text


def test_text_of_models_and_questions_is_escaped(page):
    assert "<script" not in page
    assert "&lt;script&gt;alert(" in page
    assert "<b>with</b>" not in page and "&lt;b&gt;with&lt;/b&gt;" in page


def test_figures_have_descriptions_and_tables_name_their_file(page):
    figures = re.findall(r"<figure\b.*?</figure>", page, flags=re.S)
    assert len(figures) == len(plots.FIGURES)
    for figure in figures:
        assert re.search(r'<svg [^>]*aria-label="[^"]{40,}"', figure) and "Source:" in figure
    captions = re.findall(r"<caption>.*?</caption>", page, flags=re.S)
    assert len(captions) > 10 and all("Source:" in caption for caption in captions)


def test_the_page_needs_no_network(page):
    assert not re.search(
        r"""src=|href=["'](?!#|https://|[\w.-]+\.html)|url\(|@import|<link\b|<img\b|<iframe\b""",
        page.replace("url(#", ""),
    )
    assert 'href="https://' in page  # links to sources may be followed, nothing is loaded


def test_the_same_run_gives_the_same_bytes(settings, page, tmp_path):
    render.main(["--run", "tiny", "--data", str(settings.data), "--out", str(tmp_path), "--fallback"])
    assert (tmp_path / "tiny.html").read_text() == page
    assert str(settings.data) not in page


def test_timings_stand_at_the_end_where_there_are_any(settings, page, tmp_path):
    assert "No timings were kept" in page
    timing = {"finished": True, "wall_seconds": 1234.0, "cpu_seconds": 999.0, "peak_memory_bytes": 2**30}
    file = settings.timings_dir / "1_graph.json"
    write_json(file, {"step": "1_graph", **timing})
    report = parts.Report(settings.data, "tiny")
    shown = report.time_section()
    file.unlink()
    assert "1,234" in shown and "two runs of the same commit" in shown


def test_figures_are_the_same_bytes_again(settings, tmp_path):
    results = json.loads((settings.run_dir / "results.json").read_text())
    for file in plots.save_all(results, tmp_path):
        assert file.read_bytes() == (settings.run_dir / "figures" / file.name).read_bytes(), file.name


def test_a_run_without_held_out_structures_or_gain_still_has_a_report(settings, tmp_path):
    results = json.loads((settings.run_dir / "results.json").read_text())
    del results["contrasts"]["held_out_structures"], results["arms"]["held_out_structures"]
    results["mistakes"]["planted"]["share_of_gain"] = None
    results["examples"]["form"] = None
    results["seeds"].update(low=None, high=None)
    results["checks"]["plan"]["differences"] = ["inputs.scorer: planned <1>, now 2"]
    folder = tmp_path / "runs" / "tiny"
    write_json(folder / "results.json", results)
    plots.save_all(results, folder / "figures")
    (folder / "evaluate").symlink_to(settings.run_dir / "evaluate")
    page = fallback.render(SOURCE, tmp_path / "x.html", {"run": "tiny", "data": str(tmp_path)}, {}).read_text()
    text = text_of(page)
    assert page.index('class="alarm"') < page.index('class="verdict') and "planned <1>" in text and "<1>" not in page
    assert "None were evaluated" in text and "no gain to explain" in text and "No question moved that way" in text


def test_people_s_questions_have_a_section_of_their_own(page, tmp_path):
    text = text_of(page)
    assert "This run asked none: human.questions in params.yaml names no file" in text
    made = synthetic.make(tmp_path, people=30, test={"resamples": 300}, train={"updates": 4, "seeds": (0,)})
    results = compare.compare(made)
    plots.save_all(results, made.run_dir / "figures")
    text = text_of(fallback.render(SOURCE, tmp_path / "x.html", {"run": "tiny", "data": str(tmp_path)}, {}).read_text())
    found = results["human"]["sampled"]
    assert "untested here" not in text and "every arm answered 30 questions that people wrote" in text
    assert "There is no room for an answer to 1 of them (1 clean)" in text
    assert "the SQL repeats a user for each badge" in text and "nothing speaks against the reference" in text
    for part in ("all", "clean"):
        assert markdown.rate(found[part]["arms"]["trained"]["strict"]) in text
        assert markdown.gain(found[part]["contrasts"]["trained - control"]["strict"]) in text


def test_a_missing_run_is_one_clear_message(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        render.main(["--run", "nothing", "--data", str(tmp_path)])
    assert stop.value.code == 1 and "results.json isn't there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("\n```{python}\nimport json\n1 / 0\n```\n", r"x\.qmd:7: ZeroDivisionError(.|\n)*in: 1 / 0"),
        ("\n```{python}\n#| echo: false\nx =\n```\n", r"x\.qmd:7: SyntaxError"),
        ("\nSee @fig-nowhere.\n", "@fig-nowhere leads nowhere"),
        ("\n```{python}\n#| label: [\n1\n```\n", r"x\.qmd:5: the cell's `#\|` options"),
        ("\nText `{python} None`.\n", r"x\.qmd:5: the inline expression"),
    ],
)
def test_mistakes_in_a_source_name_file_and_line_and_leave_the_old_page(tmp_path, body, message):
    source, out = tmp_path / "x.qmd", tmp_path / "x.html"
    source.write_text("---\ntitle: x\n---\n" + body)
    out.write_text("old")
    with pytest.raises(fallback.ReportError, match=message):
        fallback.render(source, out, {}, {})
    assert out.read_text() == "old"


def test_the_fallback_knows_what_reports_use(tmp_path):
    source = tmp_path / "x.qmd"
    source.write_text(
        '---\ntitle: x\n---\n\n```{python}\n#| tags: [parameters]\n#| include: false\nname = "old"\n```\n\n'
        "Hello `{python} name`, see @tbl-one.\n\n::: {.callout-warning}\n## Mind\nthis\n:::\n\n::: {#tbl-one}\n"
        '```{python}\n#| output: asis\n#| echo: false\nprint("| a |\\n|---|\\n| 1 |")\n```\n\nA caption.\n:::\n'
    )
    page = fallback.render(source, tmp_path / "x.html", {"name": "a *new* one"}, {"title": "T"}).read_text()
    assert "Hello a *new* one" in page and "<title>T</title>" in page
    assert 'class="callout-title"' in page and re.search(r"<caption>.*Table.1\..*A caption", page, re.S)


def test_table_cells_are_escaped_and_numbers_stand_right():
    made = markdown.table(["a", "b"], [["x|y", 1234], ["<i>", 5]])
    assert "x\\|y" in made and "1,234" in made and "\\<i\\>" in made and "|:---|---:|" in made


def test_a_raw_block_cannot_be_closed_from_inside():
    assert markdown.raw("a\n````\nb").startswith("`````{=html}")
