"""Small files, written whole or not at all and the same bytes for the same content."""

from __future__ import annotations

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
