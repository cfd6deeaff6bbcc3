"""Fetches data sets that are too large to come along: says first what and how much, goes on where it stopped, checks what arrived.

    python -m lib.fetch bird                      BIRD's development set: codebase_community.sqlite and the questions
    python -m lib.fetch bird:superhero            another of its databases
    python -m lib.fetch stackexchange:french      the dump of a Stack Exchange site

Hashes stand in downloads.sha256: one that nobody knew beforehand is recorded there at its first use, and checked from
then on by everybody who has that line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from lib.files import write_text
from lib.graph.errors import first_line
from lib.settings import ROOT

RECORD = Path(__file__).with_name("downloads.sha256")
RAW = ROOT / "data" / "raw"
BIRD = "https://bird-bench.oss-cn-beijing.aliyuncs.com/dev.zip"
STACKEXCHANGE = "https://archive.org/download/stackexchange/{site}.7z"
SEVEN_ZIP = bytes.fromhex("377abcaf271c")  # the first bytes of such an archive
TRIES, PAUSE = 4, 2.0  # seconds before the second try, doubled before each further one
CHUNK = 1 << 20
PATIENCE = 60  # seconds without a byte


class FetchError(RuntimeError):
    """A data set can't be had; the message names the file, the cause and what to do by hand."""


@dataclass(frozen=True)
class DataSet:
    """One file to download, and what it holds: `member` is the SQLite file to take out of BIRD's archive."""

    address: str
    archive: Path
    licence: str
    source: str
    path: Path  # what graph.path is to be
    member: str = ""


def data_set(name: str, raw: Path = RAW) -> DataSet:
    """The data set called `bird`, `bird:<database>` or `stackexchange:<site>`. Raises FetchError for another name."""
    kind, _, which = name.partition(":")
    if kind == "bird":
        file = f"{which or 'codebase_community'}.sqlite"
        folder = raw / "bird"
        return DataSet(BIRD, folder / "dev.zip", "CC BY-SA 4.0", kind, folder / file, file)
    if kind == "stackexchange" and which:
        site = which if which.endswith((".com", ".net")) else f"{which}.stackexchange.com"
        folder = raw / "stackexchange"
        address = STACKEXCHANGE.format(site=site)
        return DataSet(address, folder / f"{site}.7z", "CC BY-SA 4.0, older posts 3.0 and 2.5", kind, folder / site)
    raise FetchError(f"{name!r} is no data set; choose bird, bird:<database> or stackexchange:<site>")


def fetch(wanted: DataSet, agreed: bool) -> None:
    """Have the archive whole and checked, and what is in it unpacked. What is there already isn't fetched again.

    Raises FetchError: not agreed, out of reach, other bytes than recorded, or no room on the disk.
    """
    if not wanted.archive.is_file():
        size, tag = _ask(wanted)
        print(f"{wanted.address}\n  {_megabytes(size)}, {wanted.licence}, to {wanted.archive}", flush=True)
        if not agreed and not _agrees():
            raise FetchError("Nothing was downloaded; add --yes to agree to it")
        _check_room(wanted, size)
        _download(wanted, size, tag)
    found = _checked_hash(wanted)
    if wanted.member:
        _unpack(wanted)
    else:
        _check_kind(wanted)
    _record(wanted, found)
    if wanted.member:
        print(f"In params.yaml, set graph.source: {wanted.source} and graph.path: {_shown(wanted.path)}")
    else:
        print(
            f"Unpack it, for example with `7z x -o{_shown(wanted.path)} {_shown(wanted.archive)}`; in params.yaml, set "
            f"graph.source: {wanted.source} and graph.path: {_shown(wanted.path)}"
        )


def _agrees() -> bool:
    return sys.stdin.isatty() and input("Download it? [y/N] ").strip().lower() in ("y", "yes")


def _by_hand(wanted: DataSet, why: object) -> FetchError:
    return FetchError(
        f"{wanted.address} can't be fetched ({why}). Run it again when there is a network, or get the file in another way, "
        f"put it at {wanted.archive}, and run it again"
    )


# ---------------------------------------------------------------- over the network


def _ask(wanted: DataSet) -> tuple[int | None, str | None]:
    """Size in bytes and version tag, as far as the server says them."""
    try:
        with urllib.request.urlopen(urllib.request.Request(wanted.address, method="HEAD"), timeout=PATIENCE) as answer:
            size = answer.headers.get("Content-Length")
            return (int(size) if size else None), answer.headers.get("ETag")
    except (OSError, HTTPException, ValueError) as e:
        raise _by_hand(wanted, first_line(e)) from e


def _download(wanted: DataSet, size: int | None, tag: str | None) -> None:
    """Into a file beside; a second try, or a second run, goes on where the first stopped if the file is still the same."""
    part, tags = (wanted.archive.with_name(wanted.archive.name + end) for end in (".part", ".tag"))
    part.parent.mkdir(parents=True, exist_ok=True)
    if not tags.is_file() or tags.read_text() != f"{tag} {size}":
        part.unlink(missing_ok=True)
        write_text(tags, f"{tag} {size}")
    for attempt in range(TRIES):
        try:
            _go_on(wanted.address, part, size, tag)
        except urllib.error.HTTPError as e:
            raise _by_hand(wanted, first_line(e)) from e
        except (OSError, HTTPException) as e:
            if attempt == TRIES - 1:
                raise _by_hand(wanted, f"{first_line(e)}; {_megabytes(part)} of it are kept") from e
            time.sleep(PAUSE * 2**attempt)
            continue
        break
    if size is not None and part.stat().st_size != size:
        part.unlink()
        raise _by_hand(wanted, f"it should have {size} bytes and didn't")
    os.replace(part, wanted.archive)
    tags.unlink()


def _go_on(address: str, part: Path, size: int | None, tag: str | None) -> None:
    there = part.stat().st_size if part.is_file() else 0
    if size is not None and there == size:
        return
    request = urllib.request.Request(address)
    if there:
        request.add_header("Range", f"bytes={there}-")
        if tag and not tag.startswith("W/"):
            request.add_header("If-Range", tag)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        whole = answer.status != 206  # it knows no ranges, or the file is another one now
        with (
            part.open("wb" if whole else "ab") as file,
            tqdm(
                desc=part.stem, total=size, initial=0 if whole else there, unit="B", unit_scale=True, file=sys.stderr
            ) as bar,
        ):
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    if size is not None and part.stat().st_size < size:
        raise ConnectionError("the connection ended early")


# ---------------------------------------------------------------- on the disk


def _check_room(wanted: DataSet, size: int | None) -> None:
    wanted.archive.parent.mkdir(parents=True, exist_ok=True)
    part = wanted.archive.with_name(wanted.archive.name + ".part")
    needed = (size or 0) - (part.stat().st_size if part.is_file() else 0)
    if (free := shutil.disk_usage(wanted.archive.parent).free) < needed:
        raise FetchError(f"{wanted.archive.parent} has {_megabytes(free)} free, and {_megabytes(needed)} are needed")


def recorded(address: str) -> str | None:
    """The sha256 that is on record for an address."""
    lines = RECORD.read_text().splitlines() if RECORD.is_file() else []
    return next((hash_ for hash_, of in (line.split(None, 1) for line in lines) if of == address), None)


def _checked_hash(wanted: DataSet) -> str:
    """The archive's sha256, which is the recorded one if there is any."""
    with wanted.archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != (known := recorded(wanted.address) or found):
        raise FetchError(
            f"{wanted.archive} has the sha256 {found}, but {RECORD.name} has {known} for {wanted.address}: a damaged file, or "
            "another release. Remove the file and run it again; if you trust the new release, remove its line first"
        )
    return found


def _record(wanted: DataSet, found: str) -> None:
    """What nobody knew beforehand, once it has proved to be the data set and no page that a server sent in its place."""
    if recorded(wanted.address) is None:
        lines = RECORD.read_text() if RECORD.is_file() else ""
        write_text(RECORD, f"{lines}{found}  {wanted.address}\n")
        print(f"{wanted.archive.name}: sha256 {found}, recorded in {RECORD.name}")


def _check_kind(wanted: DataSet) -> None:
    """Whether a file that isn't unpacked here begins as a 7z archive does."""
    with wanted.archive.open("rb") as file:
        begins = file.read(len(SEVEN_ZIP))
    if begins != SEVEN_ZIP:
        raise FetchError(f"{wanted.archive} is no 7z archive (it begins with {begins!r}); remove it and run it again")


def _unpack(wanted: DataSet) -> None:
    """The database and the questions out of BIRD's archive, which holds the databases in an archive of their own."""
    try:
        with zipfile.ZipFile(wanted.archive) as outer:
            _take(outer, "dev.json", wanted.path.with_name("dev.json"))
            nested = wanted.path.with_name("dev_databases.zip.part")
            try:
                _take(outer, "dev_databases.zip", nested)
                with zipfile.ZipFile(nested) as inner:
                    _take(inner, wanted.member, wanted.path)
            finally:
                nested.unlink(missing_ok=True)
    except (zipfile.BadZipFile, EOFError, OSError) as e:
        raise FetchError(f"{wanted.archive} can't be unpacked ({first_line(e)}); remove it and run it again") from e


def _take(archive: zipfile.ZipFile, name: str, target: Path) -> None:
    """One file of an archive, wherever in it, written whole or not at all."""
    found = [entry for entry in archive.namelist() if Path(entry).name == name and "__MACOSX" not in entry]
    if not found:
        there = sorted({Path(entry).name for entry in archive.namelist() if Path(entry).suffix == Path(name).suffix})
        raise FetchError(f"{archive.filename} holds no {name}; it has {', '.join(there) or 'nothing like it'}")
    part = target.with_name(target.name + ".unpacking")
    with archive.open(found[0]) as packed, part.open("wb") as file:
        shutil.copyfileobj(packed, file, CHUNK)
    os.replace(part, target)


def _megabytes(size: int | Path | None) -> str:
    if isinstance(size, Path):
        size = size.stat().st_size if size.is_file() else 0
    return "of unknown size" if size is None else f"{size / 1e6:,.1f} MB"


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lib.fetch", description="Fetch a data set into data/raw.")
    parser.add_argument(
        "name", help="bird, bird:<database> or stackexchange:<site> (french, stats.meta, askubuntu.com)"
    )
    parser.add_argument("--yes", action="store_true", help="download it without being asked")
    arguments = parser.parse_args()
    try:
        fetch(data_set(arguments.name), arguments.yes)
    except FetchError as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
