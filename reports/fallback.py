"""Renders a Quarto source without Quarto, so that a report needs nothing but the project's own environment.

It knows the part of Quarto's language that reports use: the parameters cell, cells with `#|` options, inline
`{python} expression`, callouts, figures and tables as fenced divs with `fig-` and `tbl-` labels, cross-references, and
files that the front matter includes before the body. Cells run in this process, one page after the other, each in a
namespace of its own: a kernel a page would take most of the time that a site has.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pypandoc
import yaml

FENCE = re.compile(r"^(```+)\{python\}[^\n]*\n(.*?)^\1[ \t]*$", re.S | re.M)
INLINE = re.compile(r"`\{python\}\s+([^`]+)`")
MARKDOWN_SPECIALS = re.compile(r"([\\`*_{}\[\]<>#|~^$@])")
PANDOC_SECONDS = 120
HERE = Path(__file__).resolve().parent


class ReportError(Exception):
    """The report's source can't be rendered; the message names the file and the line."""


@dataclass
class Cell:
    """A stretch of Python: code of a fenced cell, or one inline expression; `line` is where its code begins."""

    code: str
    line: int
    options: dict[str, Any] = field(default_factory=dict)
    shown: str = ""  # what it printed and what it came to, as Markdown


@dataclass
class Source:
    """A parsed report: front matter, and its pieces in order: prose with marks \\0n\\0 for inline cells, or a fenced cell."""

    path: Path
    head: dict[str, Any]
    pieces: list[str | Cell]
    cells: list[Cell]  # in the order in which they run


def render(path: Path, out: Path, parameters: dict[str, object], metadata: dict[str, str]) -> Path:
    """Render the .qmd at `path` to the self-contained page `out`, which is replaced only by a whole one.

    Raises ReportError where a cell fails, an option can't be read, or a cross-reference leads nowhere.
    """
    source = parse(path, parameters)
    source.head.update(metadata)
    execute(source)
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        markdown = "\n\n".join(shown for piece in source.pieces if (shown := show(source, piece)))
        page = to_html(source, markdown, Path(folder))
        out.parent.mkdir(parents=True, exist_ok=True)
        half = out.with_name(out.name + ".half")
        half.write_bytes(page.read_bytes())
        half.replace(out)
    return out


def parse(path: Path, parameters: dict[str, object]) -> Source:
    """Split the source into prose and code; `parameters` become a cell right after the one tagged `parameters`."""
    text = path.read_text(encoding="utf-8")
    front = re.match(r"---\n(.*?)\n---\n", text, re.S)
    head = (yaml.safe_load(front[1]) or {}) if front else {}
    source = Source(path, head, [], [])
    position = front.end() if front else 0
    for fence in FENCE.finditer(text, position):
        _prose(source, text, position, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        cell = Cell(fence[2], line + 1, _options(path, line, fence[2]))
        source.pieces.append(cell)
        source.cells.append(cell)
        if "parameters" in (cell.options.get("tags") or []):
            given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
            source.cells.append(Cell(given, line))
        position = fence.end()
    _prose(source, text, position, len(text))
    return source


def _prose(source: Source, text: str, start: int, end: int) -> None:
    """Add a stretch of prose; each inline expression becomes a cell and leaves a mark in the text."""

    def mark(match: re.Match[str]) -> str:
        line = text.count("\n", 0, start + match.start()) + 1
        source.cells.append(Cell(match[1].strip(), line, {"inline": True}))
        return f"\0{len(source.cells) - 1}\0"

    source.pieces.append(INLINE.sub(mark, text[start:end]))


def _options(path: Path, line: int, code: str) -> dict[str, Any]:
    head = "\n".join(text[2:].removeprefix(" ") for text in code.splitlines() if text.startswith("#|"))
    try:
        return yaml.safe_load(head) or {}
    except yaml.YAMLError as problem:
        raise ReportError(f"{path}:{line}: the cell's `#|` options aren't YAML: {problem}") from None


def execute(source: Source) -> None:
    """Run all cells in one namespace, in the source's own folder, and keep what each of them shows."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    before = list(sys.path)
    try:
        with contextlib.chdir(source.path.parent):
            for cell in source.cells:
                cell.shown = _run(source, cell, namespace)
    finally:
        sys.path[:] = before


def _run(source: Source, cell: Cell, namespace: dict[str, Any]) -> str:
    """What a cell shows: its prints, and the value of a last line that is an expression."""
    printed = io.StringIO()
    try:
        tree = ast.parse(f"({cell.code})" if cell.options.get("inline") else cell.code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value = None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, str(source.path), "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(source.path), "eval"), namespace)
    except Exception as problem:
        raise ReportError(_failure(source, cell, problem)) from problem
    if cell.options.get("inline"):
        if value is None:
            raise ReportError(f"{source.path}:{cell.line}: the inline expression {cell.code} gives None")
        return _inline(value)
    text = printed.getvalue().strip("\n")
    if cell.options.get("output") != "asis" and text:
        text = f"``` text\n{text}\n```"
    return "\n\n".join(part for part in (text, "" if value is None else _inline(value)) if part)


def _failure(source: Source, cell: Cell, problem: Exception) -> str:
    """File, line of the source, and the line itself."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(source.path)]
    inside = frames[-1].lineno if frames else getattr(problem, "lineno", None)
    line = cell.line + (inside or 1) - 1
    code = linecache.getline(str(source.path), line).strip()
    return f"{source.path}:{line}: {type(problem).__name__}: {problem}\n  in: {code}"


def _inline(value: Any) -> str:
    """A value in the page: Markdown as it is, anything else as text with Markdown's signs escaped (as Quarto does)."""
    if hasattr(value, "_repr_markdown_"):
        return str(value._repr_markdown_()).strip()
    return MARKDOWN_SPECIALS.sub(r"\\\1", str(value))


def show(source: Source, piece: str | Cell) -> str:
    """Markdown of one piece after execution. Empty where nothing is to be shown."""
    if isinstance(piece, str):
        return re.sub("\0(\\d+)\0", lambda mark: source.cells[int(mark[1])].shown, piece).strip("\n")
    defaults = source.head.get("execute") or {}

    def option(name: str) -> Any:
        return piece.options.get(name, defaults.get(name, True))

    if not option("include"):
        return ""
    code = "\n".join(line for line in piece.code.splitlines() if not line.startswith("#|")).strip("\n")
    parts = [f"``` python\n{code}\n```"] if option("echo") else []
    if option("output"):
        parts.append(piece.shown)
    return "\n\n".join(part for part in parts if part)


def to_html(source: Source, markdown: str, folder: Path) -> Path:
    """The page from Markdown by Pandoc with the reports' own template, filter and style."""
    keep = ("title", "subtitle", "lang")
    head = {"lang": "en", **{name: source.head[name] for name in keep if name in source.head}}
    document, page = folder / "report.md", folder / "report.html"
    document.write_text(f"---\n{yaml.safe_dump(head, allow_unicode=True)}---\n\n{markdown}\n", encoding="utf-8")
    style = folder / "style.html"
    style.write_text(f"<style>\n{(HERE / 'style.css').read_text(encoding='utf-8')}</style>\n", encoding="utf-8")
    command = [pypandoc.get_pandoc_path(), str(document), "-o", str(page), "--standalone", "--to", "html5"]
    command += ["--from", "markdown", "--mathml", "--embed-resources", "--fail-if-warnings"]
    command += ["--template", str(HERE / "page.html"), "--lua-filter", str(HERE / "filter.lua"), "-H", str(style)]
    if ((source.head.get("format") or {}).get("html") or {}).get("toc"):
        command += ["--toc", "--toc-depth=2"]
    command += ["--resource-path", str(source.path.parent), "--wrap=none"]
    command += ["--columns", "9999"]  # in wider lines than this Pandoc gives a table's columns fixed shares of the page
    before = source.head.get("include-before-body") or []
    for name in [before] if isinstance(before, str) else before:
        command += ["-B", str(source.path.parent / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PANDOC_SECONDS)
    if done.returncode:
        raise ReportError(f"{source.path}: Pandoc could not make the page: {done.stderr.strip()}")
    return page
