"""Renders a Quarto source without Quarto, so that a report needs nothing but the project's own environment.

It knows the part of Quarto's language that reports use: the parameters cell, cells with `#|` options, inline
`{python} expression`, callouts, figures and tables as fenced divs with `fig-` and `tbl-` labels, cross-references.
"""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pypandoc
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FENCE = re.compile(r"^(```+)\{python\}[^\n]*\n(.*?)^\1[ \t]*$", re.S | re.M)
INLINE = re.compile(r"`\{python\}\s+([^`]+)`")
MARKDOWN_SPECIALS = re.compile(r"([\\`*_{}\[\]<>#|~^$@])")
CELL_SECONDS = 600
PANDOC_SECONDS = 120
HERE = Path(__file__).resolve().parent


class ReportError(Exception):
    """The report's source can't be rendered; the message names the file and the line."""


@dataclass
class Piece:
    """A stretch of the source: prose with the cells of its inline expressions, or one code cell."""

    text: str
    line: int
    cell: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Source:
    """A parsed report: front matter, pieces in order, and the notebook that computes them (cell -> line of the source)."""

    path: Path
    head: dict[str, Any]
    pieces: list[Piece]
    notebook: nbformat.NotebookNode
    lines: list[int]


def render(path: Path, out: Path, parameters: dict[str, object], metadata: dict[str, str]) -> Path:
    """Render the .qmd at `path` to the self-contained page `out`, which is replaced only by a whole one.

    Raises ReportError where a cell fails, an option can't be read, or a cross-reference leads nowhere.
    """
    source = parse(path, parameters)
    source.head.update(metadata)
    execute(source)
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        markdown = "\n\n".join(shown for piece in source.pieces if (shown := show(source, piece, Path(folder))))
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
    source = Source(path, head, [], nbformat.v4.new_notebook(), [])
    position = front.end() if front else 0
    for fence in FENCE.finditer(text, position):
        _prose(source, text, position, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        options, code = _options(path, line, fence[2])
        source.pieces.append(Piece(code, line, _cell(source, code, line), options))
        if "parameters" in (options.get("tags") or []):
            _cell(source, "\n".join(f"{name} = {value!r}" for name, value in parameters.items()), line)
        position = fence.end()
    _prose(source, text, position, len(text))
    return source


def _cell(source: Source, code: str, line: int) -> int:
    source.notebook.cells.append(nbformat.v4.new_code_cell(code))
    source.lines.append(line)
    return len(source.notebook.cells) - 1


def _prose(source: Source, text: str, start: int, end: int) -> None:
    """Add a stretch of prose; each inline expression becomes a cell and leaves a mark \\0cell\\0 in the text."""

    def mark(match: re.Match[str]) -> str:
        line = text.count("\n", 0, start + match.start()) + 1
        return f"\0{_cell(source, f'({match[1]})', line)}\0"

    shown = INLINE.sub(mark, text[start:end])
    source.pieces.append(Piece(shown, text.count("\n", 0, start) + 1))


def _options(path: Path, line: int, cell: str) -> tuple[dict[str, Any], str]:
    lines = cell.splitlines()
    head = "\n".join(text[2:].removeprefix(" ") for text in lines if text.startswith("#|"))
    try:
        options = yaml.safe_load(head) or {}
    except yaml.YAMLError as problem:
        raise ReportError(f"{path}:{line}: the cell's `#|` options aren't YAML: {problem}") from None
    return options, "\n".join(text for text in lines if not text.startswith("#|")).strip("\n")


def execute(source: Source) -> None:
    """Run all cells in one kernel, in the source's own folder; the outputs end up in the notebook's cells."""
    client = NotebookClient(
        source.notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": source.path.parent}},
    )
    try:
        client.execute()
    except CellExecutionError as problem:
        failed = next(number for number, cell in enumerate(source.notebook.cells) if _failed(cell))
        message = f"{source.path}:{source.lines[failed]}: {problem.ename}: {problem.evalue}"
        raise ReportError(f"{message}\n  in: {source.notebook.cells[failed].source}") from None


def _failed(cell: nbformat.NotebookNode) -> bool:
    return any(output.output_type == "error" for output in cell.outputs)


def show(source: Source, piece: Piece, folder: Path) -> str:
    """Markdown of one piece after execution; pictures are written into `folder`. Empty where nothing is to be shown."""
    if piece.cell is None:
        return re.sub("\0(\\d+)\0", lambda mark: _inline(source, int(mark[1])), piece.text).strip("\n")
    defaults = source.head.get("execute") or {}

    def option(name: str) -> Any:
        return piece.options.get(name, defaults.get(name, True))

    if not option("include"):
        return ""
    parts = [f"``` python\n{piece.text}\n```"] if option("echo") else []
    if option("output"):
        outputs = source.notebook.cells[piece.cell].outputs
        parts += [
            _output(output, option("output"), piece.cell, folder, number) for number, output in enumerate(outputs)
        ]
    return "\n\n".join(part for part in parts if part)


def _inline(source: Source, cell: int) -> str:
    """An inline value: Markdown as it is, anything else as text with Markdown's signs escaped (as Quarto does)."""
    outputs = [output for output in source.notebook.cells[cell].outputs if output.output_type == "execute_result"]
    if not outputs:
        raise ReportError(
            f"{source.path}:{source.lines[cell]}: the inline expression {source.notebook.cells[cell].source} gives None"
        )
    data = outputs[-1]["data"]
    if "text/markdown" in data:
        return data["text/markdown"].strip()
    text = data["text/plain"].strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":  # the repr of a string
        text = yaml.safe_load(text) if text[0] == '"' else text[1:-1]
    return MARKDOWN_SPECIALS.sub(r"\\\1", text)


def _output(output: nbformat.NotebookNode, wanted: object, cell: int, folder: Path, number: int) -> str:
    """One output of a cell as Markdown; with the option `output: asis` what it printed is Markdown already."""
    if output.output_type == "stream":
        if output.name != "stdout":
            return ""
        return output.text.strip("\n") if wanted == "asis" else f"``` text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    for kind, suffix in (("image/svg+xml", "svg"), ("image/png", "png")):
        if kind in data:
            picture = folder / f"{cell}-{number}.{suffix}"
            picture.write_bytes(data[kind].encode() if suffix == "svg" else base64.b64decode(data[kind]))
            return f"![]({picture})"
    if "text/markdown" in data:
        return data["text/markdown"]
    if "text/html" in data:
        return f"```{{=html}}\n{data['text/html']}\n```"
    return f"``` text\n{data.get('text/plain', '')}\n```"


def to_html(source: Source, markdown: str, folder: Path) -> Path:
    """The page from Markdown by Pandoc with the reports' own template, filter and style."""
    keep = ("title", "subtitle", "author", "abstract", "lang", "bibliography", "csl", "nocite")
    head = {"lang": "en", **{name: source.head[name] for name in keep if name in source.head}}
    document, page = folder / "report.md", folder / "report.html"
    document.write_text(f"---\n{yaml.safe_dump(head, allow_unicode=True)}---\n\n{markdown}\n", encoding="utf-8")
    style = folder / "style.html"
    style.write_text(f"<style>\n{(HERE / 'style.css').read_text(encoding='utf-8')}</style>\n", encoding="utf-8")
    command = [pypandoc.get_pandoc_path(), str(document), "-o", str(page), "--standalone", "--to", "html5"]
    command += ["--from", "markdown", "--mathml", "--embed-resources", "--fail-if-warnings"]
    command += ["--template", str(HERE / "page.html"), "--lua-filter", str(HERE / "filter.lua"), "-H", str(style)]
    command += ["--toc", "--toc-depth=2", "--resource-path", str(source.path.parent), "--wrap=none"]
    command += ["--columns", "9999"]  # in wider lines than this Pandoc gives a table's columns fixed shares of the page
    if "bibliography" in head:
        command += ["--citeproc", "-M", "link-citations=true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PANDOC_SECONDS)
    if done.returncode:
        raise ReportError(f"{source.path}: Pandoc could not make the page: {done.stderr.strip()}")
    return page
