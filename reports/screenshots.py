"""Takes the README's pictures of the main pages, so that they show what the pages are: `python -m reports.screenshots`."""

from __future__ import annotations

import argparse
from pathlib import Path

from reports import browser

ROOT = Path(__file__).resolve().parent.parent
SHOTS: dict[str, tuple[str, str, browser.Scheme]] = {  # picture -> page, place on it, colours
    "page_runs": ("index.html", "", "light"),
    "page_run": ("{run}.html", "", "light"),
    "page_transcripts": ("{run}-transcripts.html", "change=better&set=held_out_instances", "dark"),
}
WIDTH, HEIGHT = 1360, 900  # pixels


def take(site: Path, run: str, out: Path) -> list[Path]:
    """Write a PNG for each of SHOTS. FileNotFoundError names a page that isn't there."""
    taken = []
    with browser.running() as program:
        for name, (page, place, scheme) in SHOTS.items():
            file = site / page.format(run=run)
            if not file.exists():
                raise FileNotFoundError(f"{file} isn't there: run `make report` first")
            with browser.page(program, WIDTH, scheme, HEIGHT) as (shown, _):
                shown.goto(browser.address(file, place))
                if place:
                    shown.click("#list li:first-child a")
                    shown.wait_for_selector("#reader h2")
                    shown.evaluate("document.getElementById('reader').scrollIntoView()")
                taken.append(out / f"{name}.png")
                shown.screenshot(path=taken[-1])
    return taken


def main(arguments: list[str] | None = None) -> None:
    """Command line: where the pages are, and where the pictures go."""
    parser = argparse.ArgumentParser(prog="python -m reports.screenshots", description=__doc__)
    parser.add_argument("--run", default="tiny", help="name of the run")
    parser.add_argument("--site", type=Path, default=ROOT / "reports" / "_site", help="the rendered pages")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the folder for the pictures (default: docs/)")
    chosen = parser.parse_args(arguments)
    try:
        print(*take(chosen.site, chosen.run, chosen.out), sep="\n")
    except (FileNotFoundError, RuntimeError) as why:
        parser.exit(1, f"{why}\n")


if __name__ == "__main__":
    main()
