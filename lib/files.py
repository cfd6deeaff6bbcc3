"""Files of JSON: small ones, written whole or not at all and the same bytes for the same content, and ones that grow by lines."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, then rename over it: a killed step leaves no half file. OSError names a full disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, sort_keys=True, ensure_ascii=False) + "\n" for line in lines))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All lines; ValueError names the file and the line that is damaged."""
    lines = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError as e:
                raise ValueError(f"{path}, line {number}: no JSON ({e}); remove the file and run its step again") from e
    return lines


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a JSON line; ValueError where it isn't one with an id."""
    record = json.loads(line)
    if not isinstance(record, dict) or "id" not in record:
        raise ValueError("no JSON object with an id")
    return record


class Appended:
    """A file of lines that grows by whole lines and is held by one process at a time."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current():
                    break
            except BlockingIOError as e:
                os.close(self._fd)
                message = "another process writes this file; wait until it ends, or stop it"
                raise BlockingIOError(errno.EWOULDBLOCK, message, str(path)) from e
            os.close(self._fd)
        self.size = os.fstat(self._fd).st_size

    def _is_current(self) -> bool:
        """False if the file was replaced by its former holder after it was opened here."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def repair(self) -> int:
        """Complete a last line that only lacks its end, remove one that was cut off; returns the bytes removed."""
        start, block = self.size, 1 << 16
        while start:
            begin = max(0, start - block)
            end = os.pread(self._fd, start - begin, begin).rfind(b"\n")
            start = begin + end + 1
            if end >= 0:
                break
        last = os.pread(self._fd, self.size - start, start)
        if not last:
            return 0
        try:
            parsed(last)
        except ValueError:
            os.ftruncate(self._fd, start)
            self.size = start
            return len(last)
        self.append(b"\n")
        return 0

    def append(self, line: bytes) -> None:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as e:
            os.ftruncate(self._fd, self.size)  # or the next line would go on where this one broke off
            message = f"{e.strerror}; the line was taken back, run the step again once that is cured"
            raise OSError(e.errno, message, str(self.path)) from e
        self.size += len(line)

    def rewrite(self, places: Iterable[tuple[int, int]]) -> None:
        """Put another order of the lines, given by offset and length, in the file's place."""
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            for offset, length in places:
                file.write(os.pread(self._fd, length, offset))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def close(self) -> None:
        os.close(self._fd)
