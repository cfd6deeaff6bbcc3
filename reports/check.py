"""Reads a rendered site as a visitor's browser would, and says what is wrong: `python -m reports.check [FOLDER]`.

Each page is opened wide, light and dark, and as narrow as a phone: it must show no error, ask for nothing outside, fit a phone's width,
pass axe's rules for accessibility (in the dark those on colours), and every link in it must lead somewhere.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from reports import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).resolve().parent
LOOKS: tuple[tuple[int, browser.Scheme], ...] = (
    (browser.WIDE, "light"),
    (browser.WIDE, "dark"),
    (browser.NARROW, "light"),
)
# axe's rules that another scheme can break, since it changes nothing but colours
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
INDEX = re.compile(r'<script type="application/json" id="index">(.*?)</script>', re.S)


def problems(site: Path) -> Iterator[str]:
    """What is wrong with the pages in a folder, one line each; nothing where all is well.

    Raises FileNotFoundError where the folder holds no page, RuntimeError where no browser is installed.
    """
    pages = sorted(site.rglob("*.html"))
    if not pages:
        raise FileNotFoundError(f"{site} holds no page: run `make report` first")
    for file in pages:
        yield from (f"{file.name}: {found}" for found in dead_links(file, site))
    with browser.running() as program:
        for file in pages:
            for place in views(file):
                for width, scheme in LOOKS:
                    shown = f"{file.name}{f'#{place}' if place else ''} ({width} px, {scheme})"
                    yield from (f"{shown}: {found}" for found in look(program, file, place, width, scheme))


def views(file: Path) -> list[str]:
    """What to open of a page: of transcripts also a question."""
    found = INDEX.search(file.read_text(encoding="utf-8"))
    sets = json.loads(found[1])["sets"] if found else []
    return ["", *(f"q={one['questions'][0][0]}" for one in sets[:1])]


def look(program: Browser, file: Path, place: str, width: int, scheme: browser.Scheme) -> list[str]:
    """What goes wrong on one page in one size and colour."""
    with browser.page(program, width, scheme) as (page, found):
        page.goto(browser.address(file, place))
        if place:
            page.wait_for_selector("#reader h2")
        return [*found, *overflow(page), *violations(page, COLOURS if scheme == "dark" else {})]


def overflow(page: Page) -> list[str]:
    """The page is wider than the window, and by which elements."""
    wide = page.evaluate(
        """() => {
            const most = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= most) return [];
            const beyond = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > most + 1);
            return beyond.slice(0, 3).map((one) => `${one.tagName.toLowerCase()}.${one.className}`);
        }"""
    )
    return [f"wider than the window: {', '.join(wide)}"] if wide else []


def violations(page: Page, which: dict[str, Any]) -> list[str]:
    """Rules of axe (axe-core, by Deque) that the page breaks, each with its first element; which: an option of axe's."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"], **which}).response["violations"]
    return [f"{one['id']}: {one['help']} ({len(one['nodes'])}, first {one['nodes'][0]['html'][:120]})" for one in found]


def dead_links(file: Path, site: Path) -> list[str]:
    """Links that lead to no page of the site, or to no place on it; links out of the site aren't followed."""
    dead = []
    for link in sorted(set(re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', file.read_text(encoding="utf-8")))):
        parts = urlsplit(unescape(link))
        if parts.scheme or parts.netloc:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file.resolve()
        if not target.is_relative_to(site.resolve()) or not target.is_file():
            dead.append(f"{link} leads nowhere")
        elif parts.fragment and not _there(target, unquote(parts.fragment)):
            dead.append(f"{link}: no such place on that page")
    return dead


def _there(file: Path, place: str) -> bool:
    ids, asked = _places(file)
    question = parse_qs(place).get("q", [""])[0]
    return place in ids or question in asked or (asked != set() and "=" in place and not question)


@lru_cache
def _places(file: Path) -> tuple[set[str], set[str]]:
    """(the ids on a page, the questions that a page of transcripts has)."""
    text = file.read_text(encoding="utf-8")
    found = INDEX.search(text)
    asked = {line[0] for one in json.loads(found[1])["sets"] for line in one["questions"]} if found else set()
    return {unescape(name) for name in re.findall(r'\bid="([^"]*)"', text)}, asked


def main(arguments: list[str] | None = None) -> None:
    """Command line: exit status 1 and a line for each problem."""
    parser = argparse.ArgumentParser(prog="python -m reports.check", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "site", nargs="?", type=Path, default=HERE / "_site", help="the folder (default: reports/_site)"
    )
    site = parser.parse_args(arguments).site
    try:
        found = list(problems(site))
    except (FileNotFoundError, RuntimeError) as why:
        parser.exit(1, f"{why}\n")
    parser.exit(1 if found else 0, "".join(f"{line}\n" for line in found) or f"nothing is wrong with {site}\n")


if __name__ == "__main__":
    main()
