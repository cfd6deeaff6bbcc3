"""The twin has the shape of the real site: columns, null shares, ranges, long tails, and what disagrees in life."""

import hashlib
import json
from collections import Counter
from itertools import pairwise

import pytest

from lib.graph import mapping, twin
from lib.graph.tables import SourceError
from lib.graph.twin_plan import SIZES, sizes

TABLES = {name: table.columns for name, table in mapping.community().tables.items()}
DEFAULT = 0.015


def rows(scale, seed):
    return {table: list(rows) for table, rows in twin.tables(scale, seed)}


def digest(tables):
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


@pytest.fixture(scope="module")
def site():
    return rows(DEFAULT, 0)


@pytest.fixture(scope="module")
def metadata(bird):
    tables = json.loads((bird / "codebase_community_metadata_arcwise.json").read_text())["tables"]
    return {table["name"]: table for table in tables}


def test_equal_seeds_give_equal_bytes(site):
    assert digest(site) == digest(rows(DEFAULT, 0))
    assert digest(site) != digest(rows(DEFAULT, 1))


def test_columns_are_bird_s(metadata):
    for table, columns in TABLES.items():
        assert {c["name"]: c["type"] for c in metadata[table]["columns"]} == columns


def test_full_size_is_bird_s(metadata):
    assert sizes(1.0) == {table: metadata[table]["row_count"] for table in SIZES}


def test_null_shares_are_near_bird_s(site, metadata):
    for table, columns in TABLES.items():
        known = {c["name"]: c["null_fraction"] for c in metadata[table]["columns"]}
        for column in columns:
            share = sum(row.get(column) is None for row in site[table]) / len(site[table])
            assert share == pytest.approx(known[column], abs=0.05), (table, column)


def test_numbers_stay_in_bird_s_ranges(site, metadata):
    for table, columns in TABLES.items():
        known = {c["name"]: (c["min_value"], c["max_value"]) for c in metadata[table]["columns"]}
        for column, kind in columns.items():
            values = [v for row in site[table] if (v := row.get(column)) is not None]
            if kind == "integer" and values:
                assert max(values) <= known[column][1], (table, column)
                assert column.endswith("Id") or min(values) >= known[column][0], (table, column)


def test_nothing_is_starved(site):
    assert len(site["tags"]) >= 60
    assert len({row["Name"] for row in site["badges"]}) >= 25
    small = rows(0.0001, 0)
    assert all(len(small[table]) >= floor for table, (_, _, floor) in SIZES.items() if table != "posts")


def test_degrees_have_long_tails(site):
    for table, column in (("posts", "OwnerUserId"), ("comments", "UserId"), ("posts", "ParentId"), ("badges", "Name")):
        degrees = sorted(Counter(v for row in site[table] if (v := row.get(column)) is not None).values(), reverse=True)
        top = sum(degrees[: max(1, len(degrees) // 10)])
        assert top > 0.25 * sum(degrees), (table, column)
        assert degrees[0] >= 5 * degrees[len(degrees) // 2], (table, column)


def test_threads_make_sense(site):
    posts = {row["Id"]: row for row in site["posts"]}
    answers = Counter(row["ParentId"] for row in posts.values() if row["PostTypeId"] == 2)
    wrong_counts = 0
    for post in posts.values():
        if post["PostTypeId"] == 2:
            assert posts[post["ParentId"]]["PostTypeId"] == 1
            assert posts[post["ParentId"]]["CreaionDate"] < post["CreaionDate"]
        if post["PostTypeId"] == 1:
            accepted = posts.get(post["AcceptedAnswerId"])
            assert accepted is None or accepted["ParentId"] == post["Id"]
            wrong_counts += post["AnswerCount"] != answers[post["Id"]]
        assert post["LasActivityDate"] >= post["CreaionDate"]
    assert 0 < wrong_counts < 0.1 * len(posts)
    assert all(a["CreaionDate"] <= b["CreaionDate"] for a, b in pairwise(site["posts"]))


def test_names(site):
    users = site["users"]
    assert (users[0]["Id"], users[0]["DisplayName"]) == (-1, "Community")
    names = [row["DisplayName"] for row in users]
    plain = [n for n in names if len(n.split()) == 2 and n.replace(" ", "").isalpha() and n.isascii()]
    assert len(plain) > 0.85 * len(names)
    assert 0.9 * len(names) < len(set(names)) < len(names)
    tags = [row["TagName"] for row in site["tags"]]
    assert all(t == t.lower() and t.replace("-", "").isalpha() and t.isascii() for t in tags)
    places = {row["Location"] for row in users} - {None}
    assert 30 <= len(places) <= 50 and all(p.isalpha() for p in places)


@pytest.mark.parametrize("scale", [0, -1, 11])
def test_an_impossible_scale_is_named(scale):
    with pytest.raises(SourceError, match=r"graph\.scale"):
        next(iter(twin.tables(scale, 0)))
