"""Publishes the rendered site, and nothing that mustn't be: says what would go out, and refuses where a page tells too much.

`python -m reports.publish` lists the pages and what speaks against each. Nothing leaves the machine without `--push`,
which puts the pages, with the workflow that deploys them, on the branch gh-pages of the remote as one commit.
"""

from __future__ import annotations

import argparse
import getpass
import html
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lib.settings import HUMAN, ROOT
from reports import project, render

SITE = ROOT / "reports" / "_site"
WORKFLOW = Path(".github") / "workflows" / "pages.yml"
BRANCH = "gh-pages"
SHORTEST = 4  # letters of a name that is searched for: a shorter one is part of too many words
EVERYBODY = {"root", "user", "admin", "localhost", "ubuntu", "debian", "runner", "build"}  # names that tell nothing
AROUND = {f"{name}.html" for name in (*render.SITE, "learning")}
SECRETS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token": re.compile(
        r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{30,}|sk-[\w-]{20,}|tml-[\w-]{20,}|hf_\w{30,}|xox[abp]-[\w-]{10,})"
    ),
    "a password": re.compile(r"(?i)\b(?:password|passwd|api[_-]?key|secret)\b[\"']?\s*[=:]\s*[\"'][^\"'\s]{6,}[\"']"),
    "an address with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]+:[^\s/@\"'<>]+@"),
}
PATHS = re.compile(
    r"(?<![\w./:~-])(?:/(?:home|Users|root|tmp|private|mnt|opt|srv|var|work|workspace|data)/[\w.@+-]+|[A-Z]:\\\w+)"
)
DATA_URI = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+")


class PublishError(RuntimeError):
    """The site can't be published; the message says why and what to do."""


def problems(
    site: Path, data: Path, allowed: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, list[str]]:
    """What speaks against each page of a folder: page -> reasons, empty for one that may go out.

    allowed: graph sources (and `people`) whose texts somebody has read the licence of. A page of a run whose files aren't
    in `data` is held back too, since nothing tells whose texts it shows.
    """
    telling = private(environment)
    found = {}
    for page in sorted(path for path in site.rglob("*") if path.is_file()):
        try:
            reasons = list(told(page.read_text(encoding="utf-8"), telling))
        except UnicodeDecodeError:
            reasons = ["it is no text, so nothing tells what it tells"]
        name = page.relative_to(site)
        found[name.as_posix()] = [*reasons, *foreign(name.parts[0], data, allowed)]
    return found


def private(environment: Mapping[str, str]) -> dict[str, str]:
    """What is this machine's or this person's own, by what it is: text -> name."""
    names = {
        str(ROOT): "the path of this project",
        str(Path.home()): "the path of a home folder",
        socket.gethostname(): "the name of this machine",
        getpass.getuser(): "the name of a user",
    }
    kept = {text: what for text, what in names.items() if len(text) >= SHORTEST and text.lower() not in EVERYBODY}
    secret = re.compile(r"(?i)password|secret|token|api_?key|credential")
    values = {value: f"the value of {name}" for name, value in environment.items() if secret.search(name)}
    return kept | {value: what for value, what in values.items() if len(value) >= 2 * SHORTEST}


def told(text: str, telling: Mapping[str, str]) -> Iterator[str]:
    """Reasons in a page's own text: paths, names of machines and people, secrets."""
    plain = html.unescape(DATA_URI.sub("", text))
    for secret, what in telling.items():
        if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", plain):
            yield what
    for what, pattern in SECRETS.items():
        if pattern.search(plain):
            yield what
    if (path := PATHS.search(plain)) is not None:
        yield f"a path of a machine ({path[0]})"


def foreign(page: str, data: Path, allowed: Sequence[str]) -> Iterator[str]:
    """Reasons in whose texts a page shows. Pages around the runs show none."""
    run = run_of(page, data)
    if run is None:
        return
    file = data / "runs" / run / "plan.json"
    if not file.exists():
        yield f"{file.name} of run {run} isn't there, so it can't be told whose texts these are"
        return
    planned = json.loads(file.read_text(encoding="utf-8"))
    shown = [planned["settings"]["graph"]["source"], *(["people"] if planned[HUMAN]["questions"] else [])]
    for source, one in ((name, project.listed()["texts"][name]) for name in shown):
        if one["publish"] != "yes" and source not in allowed:
            yield f"texts of source {source} ({one['whose']}); if you may publish them, say --texts {source}"


def run_of(page: str, data: Path) -> str | None:
    """The run that a file of the site is about, by the name of it or of its folder; None for the pages around the runs."""
    if page in AROUND:
        return None
    runs = [folder.name for folder in (data / "runs").glob("*") if folder.is_dir()]
    fitting = [run for run in runs if re.fullmatch(rf"{re.escape(run)}(-transcripts|-figures)?(\..*)?", page)]
    return max(fitting, key=len, default=page.split(".")[0])


def push(site: Path, pages: Sequence[str], root: Path = ROOT, remote: str = "origin") -> str:
    """Put the pages and the workflow on the remote's branch gh-pages, as one commit without a past; returns its hash.

    The working tree and its branches stay as they are. Raises PublishError where there is no such remote, or git fails.
    """
    url = _git(root, "remote", "get-url", remote)
    with tempfile.TemporaryDirectory(prefix="publish-") as name:
        folder = Path(name)
        for page in pages:
            (folder / "site" / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(site / page, folder / "site" / page)
        (folder / "site" / ".nojekyll").touch()
        (folder / WORKFLOW).parent.mkdir(parents=True)
        shutil.copyfile(ROOT / WORKFLOW, folder / WORKFLOW)
        _git(folder, "init", "--quiet", "--initial-branch", BRANCH)
        for key in ("user.name", "user.email"):
            _git(folder, "config", key, _git(root, "config", key))
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", "The site")
        _git(folder, "push", "--quiet", "--force", url, BRANCH)
        return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or "it gives no reason"
        raise PublishError(f"git {arguments[0]} {arguments[1] if len(arguments) > 1 else ''} failed: {said}")
    return done.stdout.strip()


def main(arguments: list[str] | None = None) -> None:
    """Command line: list what would be published; with --push publish it. Exit status 1 where something speaks against it."""
    parser = argparse.ArgumentParser(prog="python -m reports.publish", description=__doc__.split("\n\n")[0])
    parser.add_argument("--site", type=Path, default=SITE, help="the folder of pages (default: reports/_site)")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data", help="the data folder (default: the project's data/)"
    )
    parser.add_argument("--texts", nargs="*", default=[], choices=list(project.listed()["texts"]), metavar="SOURCE",
                        help="graph sources whose texts you may publish: you have read their licence")  # fmt: skip
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="PAGE", help="pages that stay here")
    parser.add_argument("--push", action="store_true", help=f"push the pages to the branch {BRANCH} of origin")
    chosen = parser.parse_args(arguments)
    found = problems(chosen.site, chosen.data, chosen.texts) if chosen.site.is_dir() else {}
    pages = {page: reasons for page, reasons in found.items() if page not in chosen.leave_out}
    if "index.html" not in pages:
        parser.exit(1, f"{chosen.site}/index.html isn't there: run `make report` first\n")
    for page, reasons in pages.items():
        size = (chosen.site / page).stat().st_size
        print(f"{page:<32} {size / 1e6:6.2f} MB  {'; '.join(reasons) or 'ok'}")
    if against := [page for page, reasons in pages.items() if reasons]:
        held = " ".join(against)
        parser.exit(
            1, f"not published: {len(against)} of {len(pages)} pages tell too much. Mend them, or --leave-out {held}\n"
        )
    if not chosen.push:
        print(f"Nothing was published. To push these {len(pages)} pages: make publish CONFIRM=yes")
        return
    try:
        print(f"pushed to {BRANCH}: {push(chosen.site, list(pages))[:12]}")
    except PublishError as problem:
        sys.exit(f"publish: {problem}")


if __name__ == "__main__":
    main()
