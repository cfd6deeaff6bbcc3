"""Every row, key and tag of a source is accounted for, and the database holds what was counted."""

import asyncio
import csv
import json
import os

import pytest

from lib import graph
from lib.graph import load, mapping, model
from lib.graph.query import Reader
from lib.graph.tables import SourceError

TYPES = [
    "ACCEPTED",
    "ANSWERS",
    "CAST",
    "EARNED",
    "HAS_EXCERPT",
    "HAS_WIKI",
    "LAST_EDITED",
    "LINKS_TO",
    "MADE",
    "ON_POST",
    "OWNS",
    "REVISES",
    "TAGGED",
    "WROTE",
]
LABELS = {"User", "Post", "Comment", "Vote", "PostHistory", "Tag", "Badge", "Question", "Answer"}
DATE = "2011-01-02 03:04:05.0"


def build(tmp_path, **tables):
    """Counts of a graph of a few rows; the tables that aren't named are empty."""
    return model.build_model(
        ((t, tables.get(t, [])) for t in mapping.community().tables), tmp_path / "graph", {"source": "test"}
    )


def lines(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def test_the_twin_is_reconciled(graph_folder):
    counts = json.loads((graph_folder / "counts.json").read_text())
    model.reconcile(counts)
    assert sorted(counts["database"]["relationships"]) == sorted(TYPES)
    assert set(counts["database"]["nodes"]) == LABELS
    assert 6_000 <= counts["nodes"] <= 13_000
    assert all(counts["keys"][key]["orphaned"] > 0 for key in ("votes.PostId", "postHistory.PostId"))


@pytest.mark.parametrize("letter", "ac")
def test_real_dumps_are_reconciled(tmp_path, dumps, letter):
    counts = graph.build("stackexchange", 1.0, 0, str(dumps[letter]), tmp_path / "graph")
    model.reconcile(counts)
    assert sorted(counts["database"]["relationships"]) == sorted(TYPES)
    for table, count in counts["tables"].items():
        name = f"{table[0].upper()}{table[1:]}.xml"
        assert count["rows"] == (dumps[letter] / name).read_text().count("<row "), table


def test_the_database_holds_the_graph(uri, graph_folder):
    load.load(uri, graph_folder)  # finds it there; anything else would raise

    async def go():
        reader = Reader(uri)
        try:
            types = "MATCH (u:User {userId: -1}), (v:Vote) RETURN valueType(u.creationDate), valueType(v.creationDate) LIMIT 1"
            keys = "MATCH (n:User) WITH n.userId AS id, count(*) AS n WHERE n > 1 RETURN id"
            empty = "MATCH (n) WHERE any(k IN keys(n) WHERE n[k] = '') RETURN count(n)"
            extra = "MATCH (n:Post) WHERE n.tags IS NOT NULL OR n.creaionDate IS NOT NULL RETURN count(n)"
            return [(await reader.run(q, 5)).rows for q in (types, keys, empty, extra)]
        finally:
            await reader.close()

    types, doubles, empty, extra = asyncio.run(go())
    assert types == [["LOCAL DATETIME NOT NULL", "DATE NOT NULL"]]
    assert (doubles, empty, extra) == ([], [[0]], [[0]])


def test_rebuilding_changes_no_byte(graph_folder, tmp_path):
    graph.build("twin", 0.015, 0, "", tmp_path / "again")
    for file in [*load.files(graph_folder), graph_folder / "counts.json", graph_folder / "schema.json"]:
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(graph_folder)).read_bytes()


def test_what_is_dropped_is_counted(tmp_path):
    users = [
        {"Id": -1, "DisplayName": "Community"},
        {"Id": 1, "CreationDate": "yesterday"},
        {"Id": "1"},
        {"Id": ""},
        {"Id": "x"},
    ]
    posts = [
        {
            "Id": 10,
            "PostTypeId": 1,
            "OwnerUserId": 99,
            "AcceptedAnswerId": 12,
            "Tags": "<a><a><lost>",
            "CreaionDate": DATE,
        },
        {"Id": 11, "PostTypeId": 2, "OwnerUserId": -1, "ParentId": 12, "Body": ""},
        {"Id": 12, "PostTypeId": 2, "ParentId": 10, "LastEditorUserId": 1},
        {"Id": 13, "PostTypeId": 2, "ParentId": 77},
    ]
    tags = [{"Id": 1, "TagName": "a", "Count": 5, "ExcerptPostId": 12}, {"Id": 2, "TagName": "a"}, {"Id": 3}]
    links = [
        {"Id": 1, "PostId": 10, "RelatedPostId": 11, "LinkTypeId": 1, "CreationDate": DATE},
        {"Id": 2, "PostId": 10},
    ]
    counts = build(tmp_path, users=users, posts=posts, tags=tags, postLinks=links)
    assert counts["tables"]["users"] == {"rows": 5, "kept": 2, "duplicates": 1, "without_key": 2}
    assert counts["tables"]["tags"] == {"rows": 3, "kept": 1, "duplicates": 1, "without_key": 1}
    assert counts["unreadable"] == {
        "users.CreationDate": {"count": 1, "first_ids": [1]},
        "users.Id": {"count": 1, "first_ids": [None]},
    }
    assert counts["tags_without_a_row"] == {"lost": 1}
    keys = counts["keys"]
    assert (keys["posts.Tags"]["relationships"], keys["posts.Tags"]["repeated"], keys["posts.Tags"]["orphaned"]) == (
        1,
        1,
        1,
    )
    assert keys["posts.OwnerUserId"]["orphaned"] == 1 and keys["posts.OwnerUserId"]["first_ids"] == [10]
    answers = keys["posts.ParentId"]
    assert (answers["relationships"], answers["wrong_kind"], answers["orphaned"]) == (1, 1, 1)
    assert keys["postLinks.PostId+RelatedPostId"]["orphaned"] == 1
    out = tmp_path / "graph"
    assert lines(out / "relationships" / "TAGGED.csv") == [["10", "1"]]
    assert lines(out / "relationships" / "LINKS_TO.csv") == [["10", "11", "1", "1", "2011-01-02T03:04:05"]]
    assert [row[0] for row in lines(out / "nodes" / "Post.csv")] == [
        "Post;Question",
        "Post;Answer",
        "Post;Answer",
        "Post;Answer",
    ]


def test_a_build_that_fails_leaves_the_old_graph(tmp_path):
    build(tmp_path, users=[{"Id": 1}])
    before = (tmp_path / "graph" / "counts.json").read_bytes()

    def broken():
        yield {"Id": 2}
        raise SourceError("the disk is gone")

    with pytest.raises(SourceError):
        build(tmp_path, users=broken())
    assert (tmp_path / "graph" / "counts.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["graph"]


def test_tables_must_be_whole_and_in_order(tmp_path):
    with pytest.raises(model.ModelError, match="'posts'"):
        model.build_model(iter([("users", []), ("tags", []), ("votes", [])]), tmp_path / "g", {})
    with pytest.raises(model.ModelError, match="no table 'posts'"):
        model.build_model(iter([("users", []), ("tags", [])]), tmp_path / "g", {})


def test_unknown_sources_are_named_with_the_known_ones(tmp_path):
    with pytest.raises(SourceError, match=r"'wikipedia'.*bird, neo4j, stackexchange, twin"):
        graph.build("wikipedia", 1.0, 0, "", tmp_path / "g")


def test_the_schema_says_what_is_there(graph_folder):
    schema = graph.schema(graph_folder)
    assert schema["labels"]["User"]["properties"]["displayName"] == {"type": "text", "share": 1.0}
    assert {
        "start": "User",
        "type": "EARNED",
        "end": "Badge",
        "count": schema["relationships"]["EARNED"]["count"],
    } in schema["patterns"]
    text = graph.schema_text(graph_folder)
    assert "(:Answer)-[:ANSWERS]->(:Question)" in text
    assert "(:User)-[:EARNED {badgeId: INTEGER, date: LOCAL DATETIME}]->(:Badge)" in text
    assert text.count("->") == 15
