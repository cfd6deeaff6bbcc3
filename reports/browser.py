"""Opens pages in a real browser without a screen, for checks, pictures and the benchmark; the study itself needs none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"no browser on PATH ({', '.join(NAMES)}): install Chromium (apt install chromium)"
WIDE, NARROW, HEIGHT = 1280, 380, 900  # pixels


def installed() -> str | None:
    """The browser's program; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def running() -> Iterator[Browser]:
    """The browser, which ends with the block. RuntimeError where none is installed."""
    from playwright.sync_api import sync_playwright

    program = installed()
    if program is None:
        raise RuntimeError(MISSING)
    with sync_playwright() as playwright:
        # no sandbox: it needs rights that containers don't give, and only the project's own pages are opened
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page(
    browser: Browser, width: int = WIDE, scheme: Scheme = "light", height: int = HEIGHT
) -> Iterator[tuple[Page, list[str]]]:
    """(a page, what goes wrong on it): errors, and requests for anything but files, which are stopped."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened, problems = context.new_page(), []

    def refuse(route) -> None:
        problems.append(f"asks for {route.request.url}")
        route.abort()

    opened.route(lambda address: not address.startswith(("file:", "data:", "blob:")), refuse)
    opened.on("pageerror", lambda error: problems.append(f"error: {error}"))
    opened.on("console", lambda said: problems.append(f"console: {said.text}") if said.type == "error" else None)
    try:
        yield opened, problems
    finally:
        context.close()


def address(file: Path, place: str = "") -> str:
    """The address of a page on this disk; place: what stands behind #."""
    return file.resolve().as_uri() + (f"#{place}" if place else "")
