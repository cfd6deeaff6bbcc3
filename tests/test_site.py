"""The rendered pages in a real browser: nothing fails, leads nowhere, runs over the edge or breaks a rule of accessibility."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic

from lib import compare, plots
from lib.shown import legible
from reports import browser, check, render, transcripts

pytestmark = pytest.mark.skipif(browser.installed() is None, reason=browser.MISSING)
HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=alert(1)> \u2028 \u202edrow \x00 \ud800 ${x} `"
)


@pytest.fixture(scope="module")
def program():
    with browser.running() as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages of a made-up run with people's questions."""
    folder = tmp_path_factory.mktemp("site")
    made = synthetic.make(folder / "data", gain=0.25, people=6, test={"resamples": 300}, train={"updates": 16})
    plots.save_all(compare.compare(made), made.run_dir / "figures")
    pages = folder / "_site"
    render.render_run("tiny", made.data, pages, quarto=False)
    render.render_site(made.data, pages, quarto=False)
    transcripts.write(made.data, "tiny", pages / "tiny-transcripts.html")
    return pages


@pytest.fixture(scope="module")
def page(site: Path) -> Path:
    return site / "tiny-transcripts.html"


def index_of(page: Path) -> list[dict]:
    return json.loads(check.INDEX.search(page.read_text())[1])["sets"]


def test_every_page_is_in_order(site: Path):
    assert {"index.html", "tiny.html", "tiny-transcripts.html"} <= {file.name for file in site.glob("*.html")}
    assert list(check.problems(site)) == []


def test_what_is_wrong_is_named(tmp_path: Path, program):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<html lang="en"><title>x</title><body><p style="color:#ccc;width:600px">faint</p><a href="gone.html">a</a>'
        '<a href="#nowhere">b</a><img src="https://example.org/x.png" alt="x"><script>throw new Error("broken")</script>'
    )
    assert check.dead_links(bad, tmp_path) == ["#nowhere: no such place on that page", "gone.html leads nowhere"]
    found = " ".join(check.look(program, bad, "", browser.NARROW, "light"))
    for sign in ("asks for https://example.org/x.png", "error: broken", "wider than the window: p", "color-contrast"):
        assert sign in found
    assert any("color-contrast" in one for one in check.look(program, bad, "", browser.WIDE, "dark"))


@pytest.mark.parametrize("outcome", ["strict", "form", "no_query"])
def test_filters_list_what_the_episodes_say(page: Path, program, outcome: str):
    (first, *_) = index_of(page)
    arm = [name for name, _ in first["arms"]].index("trained-0")
    letter = transcripts.LETTERS[outcome]
    wanted = [line[0] for line in first["questions"] if letter in line[4][arm]]
    with browser.page(program) as (shown, problems):
        shown.goto(browser.address(page))
        shown.select_option("#outcome", outcome)
        links = shown.eval_on_selector_all("#list a", "links => links.map((link) => link.href)")
        assert [link.split("q=")[1].split("&")[0] for link in links] == wanted[:50]
        assert shown.text_content("#count").startswith(f"{len(wanted)} of {len(first['questions'])} questions fit")
        assert f"outcome={outcome}" in shown.url and problems == []


def test_change_compares_two_arms(page: Path, program):
    (first, *_) = index_of(page)
    names = [name for name, _ in first["arms"]]

    def right(line: list, arm: str) -> int:
        return line[4][names.index(arm)].split(" ")[0].count("s")

    better = sum(right(line, "trained-0") > right(line, "control") for line in first["questions"])
    never = sum(not any("s" in letters for letters in line[4]) for line in first["questions"])
    with browser.page(program) as (shown, _):
        shown.goto(browser.address(page))
        for name, wanted in (("better", better), ("never", never)):
            shown.select_option("#change", name)
            assert shown.text_content("#count").startswith(f"{wanted} of ")
        shown.fill("#text", "nothing has these words")
        assert shown.text_content("#count").startswith("0 of ") and shown.locator("#list a").count() == 0


def test_a_link_opens_what_it_was_copied_from(page: Path, program):
    with browser.page(program) as (shown, _):
        shown.goto(browser.address(page, "q=held_out_instances-0003"))
        shown.wait_for_selector("#reader h2")
        assert shown.locator(".pane h3").all_text_contents() == ["control", "trained, seed 0"]
        shown.goto(browser.address(page, "q=held_out_structures-0002&arm=base"))
        shown.wait_for_function("document.querySelectorAll('.pane').length === 1")
        assert shown.locator(".pane h3").all_text_contents() == ["base"]
        shown.click("text=greedy >> nth=-1")
        shown.wait_for_function("location.hash.includes('n=')")
        copied, said = shown.url, shown.text_content("#reader")
        with browser.page(program) as (other, _):
            other.goto(copied)
            other.wait_for_selector("#reader h2")
            assert other.text_content("#reader") == said
        shown.goto(browser.address(page, "q=held_out_instances-9999"))
        shown.wait_for_function("document.querySelector('#reader').textContent.includes('no question')")


def test_the_keyboard_reaches_a_question_and_comes_back(page: Path, program):
    with browser.page(program, browser.NARROW) as (shown, _):
        shown.goto(browser.address(page))
        shown.focus("#list a")
        shown.keyboard.press("ArrowDown")
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#reader h2:focus")
        assert not shown.is_visible("#list")
        shown.focus(".steps .back")
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#list li:nth-child(2) a:focus")


def test_hostile_text_stays_text(tmp_path: Path, program):
    made = synthetic.make(tmp_path, train={"seeds": (0,), "updates": 2})
    for file in [made.questions_dir / "held_out_instances.jsonl", made.episodes("control")]:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            for field in ("question", "hint", "query") if "calls" not in line else ("query", "stop", "fault"):
                line[field] = HOSTILE
            line["rows"] = [[HOSTILE]]
            if "calls" in line:
                line |= {
                    "question": line["id"].split("/")[3],
                    "calls": [{"query": HOSTILE, "shown": HOSTILE, "error": HOSTILE}],
                }
                line["messages"] = [{"role": "assistant", "content": HOSTILE}, {"role": "tool", "content": HOSTILE}]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "hostile-transcripts.html"
    transcripts.write(tmp_path, "tiny", page)
    (tmp_path / "hostile-transcripts").rename(tmp_path / "tiny-transcripts")
    with browser.page(program) as (shown, problems):
        shown.on("dialog", lambda _: problems.append("a dialog opened"))
        shown.goto(browser.address(page, "q=held_out_instances-0000&arm=control"))
        shown.wait_for_selector("#reader h2")
        assert shown.text_content("#reader h2") == legible(HOSTILE) and "⟨U+202E⟩" in legible(HOSTILE)
        said = shown.locator(".said").all_text_contents()
        assert said and set(said) == {legible(HOSTILE)}
        assert shown.locator("#reader script, #reader img").count() == 0
        assert shown.title() == "Run tiny: transcripts" and problems == []


def test_a_missing_file_is_named(page: Path, tmp_path: Path, program):
    alone = tmp_path / page.name
    alone.write_bytes(page.read_bytes())
    with browser.page(program) as (shown, _):
        shown.goto(browser.address(alone, "q=held_out_instances-0000"))
        assert "tiny-transcripts/000.js can't be read" in shown.text_content("#reader [role=alert]")


def test_the_same_run_gives_the_same_bytes(site: Path, tmp_path: Path):
    transcripts.write(site.parent / "data", "tiny", tmp_path / "tiny-transcripts.html")
    for file in [site / "tiny-transcripts.html", *sorted((site / "tiny-transcripts").iterdir())]:
        assert file.read_bytes() == (tmp_path / file.relative_to(site)).read_bytes()
