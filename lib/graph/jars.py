"""Where the database's program files come from: pinned by coordinate and checksum, fetched once, checked once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from lib.files import write_json
from lib.graph.errors import first_line

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext

PINS = Path(__file__).with_name("jars.sha256")
AT_ONCE = 8
TRIES, PAUSE = 5, 1.0  # seconds before the second try, doubled before each further one
OTHER_WAYS = (
    "Connect once and run it again (what was fetched is kept), copy ~/.m2/repository from a machine that has the jars, "
    "or name a running server in NEO4J_URI"
)


class JarError(RuntimeError):
    """The jars can't be had, or aren't the ones that were pinned; the message names the jar and the way out."""


def classpath(data: Path) -> str:
    """The Java class path of the pinned server. The marker `data/neo4j/jars.json` remembers that all were checked."""
    pins = PINS.read_text()
    marker = data / "neo4j" / "jars.json"
    pinned = hashlib.sha256(pins.encode()).hexdigest()
    jars = _remembered(marker, pinned)
    if jars is None:
        jars = fetch([tuple(reversed(line.split())) for line in pins.splitlines()])
        write_json(marker, {"pins": pinned, "jars": [[str(jar), jar.stat().st_size] for jar in jars]})
    return os.pathsep.join(map(str, jars))


def _remembered(marker: Path, pinned: str) -> list[Path] | None:
    try:
        checked = json.loads(marker.read_text())
        whole = checked["pins"] == pinned and all(os.path.getsize(jar) == size for jar, size in checked["jars"])
    except (OSError, ValueError, KeyError):
        return None
    return [Path(jar) for jar, _ in checked["jars"]] if whole else None


def fetch(pins: list[tuple[str, ...]], repository: Path | None = None) -> list[Path]:
    """Every (coordinate, sha256) as a checked file in the local Maven repository. Raises JarError."""
    from jgo.maven import MavenContext  # slow to import, and needed once in the life of a checkout

    context = MavenContext(timeout=60, repo_cache=repository)
    wanted = [(context.create_dependency(coordinate).artifact, checksum) for coordinate, checksum in pins]
    missing = [(artifact, checksum) for artifact, checksum in wanted if sha256(_home(artifact)) != checksum]
    if missing:
        try:
            _download(missing, context)
        except OSError as e:  # the network's errors among them
            raise JarError(f"The database's jars could not be fetched: {_reason(e)}. {OTHER_WAYS}") from e
    return [_home(artifact) for artifact, _ in wanted]


def _download(missing: list[tuple[Artifact, str]], context: MavenContext) -> None:
    """Into a folder beside, checked, then renamed: an interrupted download leaves no half jar under its name."""
    from jgo.maven import MavenContext

    context.repo_cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.repo_cache, prefix=".fetching-") as folder:
        aside = MavenContext(timeout=context.timeout, repo_cache=Path(folder))

        def one(job: tuple[Artifact, str]) -> None:
            target, checksum = job
            try:
                part = _resolved(aside.create_dependency(_coordinate(target)).artifact)
            except RuntimeError as e:
                raise JarError(f"{_coordinate(target)} is not to be had: {_reason(e)}. {OTHER_WAYS}") from e
            if (got := sha256(part)) != checksum:
                raise JarError(
                    f"{target.filename} has the sha256 {got}, but {PINS.name} pins {checksum}: a damaged download or "
                    "another file. Run it again; if it stays so, don't trust the source"
                )
            _home(target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(part, _home(target))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [pool.submit(one, job) for job in missing]
            try:
                for job in tqdm(jobs, desc="the database's jars, once", unit="jar", file=sys.stderr):
                    job.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _resolved(artifact: Artifact) -> Path:
    """The downloaded file. What fails for a moment only, as the look-up of a name can, is tried again."""
    for attempt in range(TRIES - 1):
        try:
            return artifact.resolve()
        except OSError:
            _home(artifact).unlink(missing_ok=True)  # the beginning of a file
            time.sleep(PAUSE * 2**attempt)
    return artifact.resolve()


def sha256(path: Path) -> str | None:
    """Hex digest of a file's bytes; None if there is no file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _home(artifact: Artifact) -> Path:
    path = artifact.cached_path
    assert path is not None
    return path


def _coordinate(artifact: Artifact) -> str:
    return ":".join(filter(None, (artifact.groupId, artifact.artifactId, artifact.version, artifact.classifier)))


def _reason(e: BaseException) -> str:
    return textwrap.shorten(first_line(e), 300, placeholder=" ...")
