"""Reads the XML dump of a Stack Exchange site as the eight tables, so that the study runs on real data too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import ParseError

from defusedxml.ElementTree import iterparse

from lib.graph import mapping
from lib.graph.tables import Row, SourceError, Tables

TABLES = mapping.community().tables
FILES = {table: f"{table[0].upper()}{table[1:]}.xml" for table in TABLES}
# The dump spells these right; the tables keep BIRD's spelling.
ATTRIBUTES = {("posts", "CreaionDate"): "CreationDate", ("posts", "LasActivityDate"): "LastActivityDate"}
# XML 1.0 forbids these, escaped or not, and dumps hold them all the same.
FORBIDDEN = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:x(?:0*[0-8bcBCeEfF]|0*1[0-9a-fA-F])|0*(?:[0-8]|1[124-9]|2[0-9]|3[01]));"
)
CHUNK = 1 << 16
LONGEST_ESCAPE = 12  # bytes
WAY_OUT = "set graph.path to a folder with the eight files of a site's dump, unpacked: " + ", ".join(FILES.values())


def tables(folder: Path) -> Tables:
    """The eight tables of the dump in `folder`, streamed. Raises SourceError naming the file."""
    for name in FILES.values():
        if not (folder / name).is_file():
            raise SourceError(f"{folder / name} is missing; {WAY_OUT}")
    for table, name in FILES.items():
        yield table, _rows(table, folder / name)


def _rows(table: str, path: Path) -> Iterator[Row]:
    attributes = {column: ATTRIBUTES.get((table, column), column) for column in TABLES[table].columns}
    seen = 0
    try:
        with path.open("rb") as file:
            elements = iterparse(_Cleaned(file), events=("start", "end"))
            _, root = next(elements)
            for event, element in elements:
                if event == "end" and element.tag == "row":
                    seen += 1
                    row = {column: element.get(attribute) for column, attribute in attributes.items()}
                    if (row.get("Tags") or "").startswith("|"):  # dumps since 2024: |a|b| for <a><b>
                        row["Tags"] = "".join(f"<{tag}>" for tag in row["Tags"].strip("|").split("|"))
                    yield row
                    root.clear()  # or the whole file would stay in memory
    except (ParseError, StopIteration, UnicodeDecodeError, OSError) as e:
        raise SourceError(
            f"{path} can't be read after {seen} rows ({e or 'it is empty'}); unpack or fetch that file again, or {WAY_OUT}"
        ) from e


class _Cleaned:
    """A file without the characters that XML forbids, and without a byte order mark before the declaration."""

    def __init__(self, file: BinaryIO):
        self._file, self._held = file, b""
        self._first = True

    def read(self, size: int = CHUNK) -> bytes:
        while True:
            fresh = self._file.read(CHUNK)
            data, self._held = self._held + fresh, b""
            cut = data.rfind(b"&", max(0, len(data) - LONGEST_ESCAPE))
            if fresh and cut >= 0 and b";" not in data[cut:]:  # the escape may go on in the next chunk
                data, self._held = data[:cut], data[cut:]
            if self._first:
                self._first = False
                data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
            data = FORBIDDEN.sub(b"", data)
            if data or not fresh:
                return data
