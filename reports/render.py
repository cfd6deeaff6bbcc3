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


def main(arguments: list[str] | None = None) -> None:
    """Command line: `python -m reports.render --run tiny`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", required=True, help="name of the run: its files lie in DATA/runs/RUN")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data", help="the data folder (default: the project's data/)"
    )
    parser.add_argument("--source", type=Path, default=ROOT / "reports" / "run.qmd", help="the report's source")
    parser.add_argument("--out", type=Path, help="the page to write (default: reports/_site/RUN.html)")
    parser.add_argument("--fallback", action="store_true", help="don't use Quarto even where it is installed")
    chosen = parser.parse_args(arguments)
    results = chosen.data / "runs" / chosen.run / "results.json"
    if not results.exists():
        parser.exit(
            1, f"{results} isn't there: run `make study` (or the comparison step) for run {chosen.run!r} first\n"
        )
    out = chosen.out or ROOT / "reports" / "_site" / f"{chosen.run}.html"
    parameters: dict[str, object] = {"run": chosen.run, "data": str(chosen.data.resolve())}
    metadata = {"title": f"Run {chosen.run}: does practice on executed queries help?"}
    try:
        render(chosen.source.resolve(), out.resolve(), parameters, metadata, quarto=not chosen.fallback)
    except fallback.ReportError as problem:
        parser.exit(1, f"{problem}\n")
    print(out)


if __name__ == "__main__":
    main()
