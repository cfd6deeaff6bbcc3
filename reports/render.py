"""Turns a report's source and one run's files into a single page that can be read offline.

Quarto renders it where Quarto is installed; elsewhere `reports.fallback` runs the same source through a notebook kernel
and Pandoc, so that nobody needs Quarto to read the result of a run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # so that `python reports/render.py` works as `python -m reports.render` does
    sys.path.insert(0, str(ROOT))

from reports import fallback  # noqa: E402

HERE = ROOT / "reports"
SITE = ("index", "compare", "methods", "glossary", "sources")
LEARNING = ROOT / "experiments" / "learning" / "results.json"
QUARTO_SECONDS = 900


def render(
    source: Path, out: Path, parameters: dict[str, object], metadata: dict[str, str], quarto: bool = True
) -> Path:
    """Render `source` (.qmd) to the page `out`.

    parameters replace those in the cell tagged `parameters`; metadata replaces entries of the front matter (title ...).
    With `quarto` the installed Quarto is used, if there is one. Raises fallback.ReportError (naming file and line) or
    subprocess.CalledProcessError; the page of an earlier rendering is left alone then.
    """
    program = shutil.which("quarto") if quarto else None
    if program is None:
        return fallback.render(source, out, parameters, metadata)
    if "tags: [parameters]" not in source.read_text(encoding="utf-8"):
        parameters = {}  # Quarto refuses some for a page that takes none
    # Quarto writes its output into the current folder, so it runs in the source's own one.
    scratch = source.with_name(out.name)
    command = [program, "render", source.name, "--to", "html", "--no-execute-daemon", "-o", scratch.name]
    for name, value in parameters.items():
        command += ["-P", f"{name}:{value}"]
    for name, text in metadata.items():
        command += ["-M", f"{name}:{text}"]
    environment = {**os.environ, "QUARTO_PYTHON": sys.executable}
    subprocess.run(command, check=True, cwd=source.parent, env=environment, timeout=QUARTO_SECONDS)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(scratch, out)
    return out


def render_run(run: str, data: Path, folder: Path, quarto: bool = True) -> list[Path]:
    """The pages of one run: its write-up RUN.html and its figures RUN-figures.html. Raises as `render` does."""
    parameters: dict[str, object] = {"run": run, "data": str(data.resolve())}
    titles = {
        "run": ("", f"Run {run}: does practice on executed queries help?"),
        "figures": ("-figures", f"Run {run}: figures"),
    }
    return [
        render(HERE / f"{name}.qmd", folder.resolve() / f"{run}{end}.html", parameters, {"title": title}, quarto)
        for name, (end, title) in titles.items()
    ]


def render_site(data: Path, folder: Path, quarto: bool = True) -> list[Path]:
    """The pages around the runs: the list of runs, their comparison, the experiment on learning per rollout, methods, glossary,
    sources. Raises as `render` does."""
    parameters: dict[str, object] = {"data": str(data.resolve())}
    pages = [render(HERE / f"{name}.qmd", folder.resolve() / f"{name}.html", parameters, {}, quarto) for name in SITE]
    return [*pages, render_learning(LEARNING, folder, quarto)]


def render_learning(results: Path, folder: Path, quarto: bool = True) -> Path:
    """The page of the experiment on learning per rollout, from its results. Raises as `render` does."""
    parameters: dict[str, object] = {"results": str(results.resolve())}
    return render(HERE / "learning.qmd", folder.resolve() / "learning.html", parameters, {}, quarto)


def main(arguments: list[str] | None = None) -> None:
    """Command line: `python -m reports.render --run tiny` for a run's pages, `--site` for those around the runs."""
    parser = argparse.ArgumentParser(prog="python -m reports.render", description=__doc__.split("\n\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="name of the run whose pages to write: its files lie in DATA/runs/RUN")
    what.add_argument(
        "--site", action="store_true", help="write the pages around the runs: index, compare, methods ..."
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data", help="the data folder (default: the project's data/)"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "_site", help="the folder to write into (default: reports/_site)"
    )
    parser.add_argument("--fallback", action="store_true", help="don't use Quarto even where it is installed")
    chosen = parser.parse_args(arguments)
    results = chosen.data / "runs" / str(chosen.run) / "results.json"
    if chosen.run and not results.exists():
        parser.exit(
            1, f"{results} isn't there: run `make study` (or the comparison step) for run {chosen.run!r} first\n"
        )
    try:
        if chosen.run:
            written = render_run(chosen.run, chosen.data, chosen.out, not chosen.fallback)
        else:
            written = render_site(chosen.data, chosen.out, not chosen.fallback)
    except fallback.ReportError as problem:
        parser.exit(1, f"{problem}\n")
    print(*written, sep="\n")


if __name__ == "__main__":
    main()
