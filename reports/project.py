"""What the site's pages say about the project itself: its steps, its sources, whose texts it shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from lib.settings import ROOT
from reports.markdown import code, escape, table

HERE = Path(__file__).resolve().parent


def pipeline() -> str:
    """The steps of dvc.yaml with what each of them says of itself."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    return table(["step", "what it does"], [[code(name), escape(stage["desc"])] for name, stage in stages.items()],
                 escaped=True)  # fmt: skip


def listed() -> dict[str, Any]:
    """sources.yaml."""
    found: dict[str, Any] = yaml.safe_load((HERE / "sources.yaml").read_text(encoding="utf-8"))
    return found


def sources(source: str | None = None) -> str:
    """Data and programs with their licences, of runs of one graph source or of any."""
    rows = [
        [f"[{one['name']}]({one['link']})", one["use"], one["licence"]]
        for one in listed()["programs"]
        if source is None or source in one.get("when", [source])
    ]
    return table(["source", "used for", "licence"], rows, escaped=True)


def texts() -> str:
    """Whose texts a page shows, by graph source."""
    what = {"yes": "publishes them", "ask": "refuses, unless told that their licence allows it"}
    rows = [[name, one["whose"], what[one["publish"]]] for name, one in listed()["texts"].items()]
    return table(["source", "whose texts", "make publish"], rows)


def rendered_by() -> str:
    """Which of the two renderers is there."""
    return "Here it was Quarto." if shutil.which("quarto") else "Here it was the project's own."
