"""Dumps as they are found: marks, missing attributes, forbidden characters, long texts, broken files."""

import json

import pytest

from lib import graph
from lib.graph.stackexchange import CHUNK, FILES, tables
from lib.graph.tables import SourceError


def dump(folder, **rows):
    """The eight files with given rows as XML text, the others empty."""
    folder.mkdir(exist_ok=True)
    for table, name in FILES.items():
        (folder / name).write_text(
            f"<?xml version='1.0' encoding='utf-8'?>\n<{table}>\n{rows.get(table, '')}\n</{table}>"
        )
    return folder


def read(folder):
    return {table: list(rows) for table, rows in tables(folder)}


def test_names_are_bird_s(tmp_path):
    posts = (
        '<row Id="1" PostTypeId="1" CreationDate="2011-01-01T00:00:00.000" LastActivityDate="2011-01-02T00:00:00.000"/>'
    )
    row = read(dump(tmp_path / "d", posts=posts))["posts"][0]
    assert (row["CreaionDate"], row["LasActivityDate"], row["Title"]) == (
        "2011-01-01T00:00:00.000",
        "2011-01-02T00:00:00.000",
        None,
    )


def test_newer_tags(tmp_path):
    assert read(dump(tmp_path / "d", posts='<row Id="1" Tags="|a|b-c|"/>'))["posts"][0]["Tags"] == "<a><b-c>"


def test_byte_order_mark_and_forbidden_characters(tmp_path):
    folder = dump(tmp_path / "d", users='<row Id="1" DisplayName="a&#x1F;b&#11;c&#x0;d&#xA;e&amp;f"/>')
    text = (folder / "Users.xml").read_bytes().replace(b"a&#x1F;", b"a\x01&#x1F;")
    (folder / "Users.xml").write_bytes(b"\xef\xbb\xbf" + text)
    assert read(folder)["users"][0]["DisplayName"] == "abcd\ne&f"


@pytest.mark.parametrize("shift", range(12))
def test_escapes_across_chunks(tmp_path, shift):
    long = "x" * (CHUNK - 150 + shift * 3)
    folder = dump(tmp_path / "d", users=f'<row Id="1" AboutMe="{long}&#x1F;&amp;&#x1F;&lt;' + "&quot;" * 20_000 + '"/>')
    about = read(folder)["users"][0]["AboutMe"]
    assert about == long + "&<" + '"' * 20_000


def test_ten_thousand_rows_stay_small(tmp_path):
    folder = dump(tmp_path / "d", comments="".join(f'<row Id="{i}" Text="{"y" * 300}"/>\n' for i in range(10_000)))
    assert sum(len(row["Text"]) for row in read(folder)["comments"]) == 3_000_000


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "not xml"])
def test_a_broken_file_is_named_with_the_way_out(tmp_path, damage):
    folder = dump(tmp_path / "d", votes='<row Id="1"/>\n<row Id="2"/>')
    file = folder / "Votes.xml"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"cut": file.read_bytes()[:-20], "empty": b"", "not xml": b"PK\x03\x04zip"}[damage])
    with pytest.raises(SourceError, match=r"Votes\.xml.*graph\.path"):
        graph.build("stackexchange", 1.0, 0, str(folder), tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_a_real_dump_keeps_its_texts(tmp_path, dumps):
    counts = graph.build("stackexchange", 1.0, 0, str(dumps["c"]), tmp_path / "graph")
    assert counts["unreadable"] == {}
    assert (tmp_path / "graph" / "nodes" / "Post.csv").stat().st_size > 150_000
    assert json.loads((tmp_path / "graph" / "counts.json").read_text()) == counts
