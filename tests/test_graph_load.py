"""What real dumps hold arrives as it was, and in the same way by both roads: the importer's and Bolt's."""

import contextlib
import datetime
import json
import os

import neo4j
import pytest

from lib import graph
from lib.graph import load, mapping, server
from lib.questions.sql import write

DATE = "2011-01-02 03:04:05.0"
TEXTS = {
    1: 'a "quoted" text, with \'both\' kinds, a comma; and ""two"" in a row"',
    2: r"backslashes \ and \" and \\ and \n at the end \ ".strip(),
    3: "lines\nand\r\nand\rand\n\n",
    4: "control \x01\x02\x07\x08\x0b\x0c\x1b\x1f\x7f\x85 characters",
    5: r"$\hat{\beta} = (X^\top X)^{-1} X^\top y$ \begin{align} a &= b \\ c &= d \end{align}",
    6: "\ufeffa byte order mark before",
    7: "x" * 100_000 + '"\n' + "é" * 50_000,
    8: " spaces around\t",
    9: "👩‍🔬 ﷽ Ω ‮right to left‬ \u2028 \ud800",
    10: "NULL",
    11: '"',
    12: "\\",
    13: "007",
    14: ",",
    15: "\r",
    16: "a null \x00 character",
}
TAGS = ["c++", "c#", ".net", "r", "naïve-bayes", "a'b", 'd"e', "back\\slash", "日本語", "with space", "x,y", ";", "1e3"]


def tables():
    users = [
        {"Id": -1, "DisplayName": "Community", "CreationDate": "1969-07-20 20:17:40.0", "Age": 0},
        {"Id": 1, "DisplayName": 'Jo "the\\n" O\'Neill', "CreationDate": "1901-01-01 00:00:00.123"},
        {"Id": 2, "DisplayName": "", "CreationDate": "2011-13-45", "Reputation": "many"},
        {"Id": 1, "DisplayName": "again"},
        {"Id": 2**62, "DisplayName": "far", "UpVotes": -(2**63), "CreationDate": "2011-01-02T03:04:05.123456+02:00"},
    ]
    posts = [
        {"Id": id_, "PostTypeId": 1, "Body": body, "Title": body[:300], "OwnerUserId": -1, "CreaionDate": DATE}
        for id_, body in TEXTS.items()
    ]
    posts[0]["Tags"] = "".join(f"<{tag}>" for tag in TAGS) + "<not-there>"
    posts[1] |= {"OwnerUserId": 99, "OwnerDisplayName": "gone", "AcceptedAnswerId": 30, "Score": "12"}
    posts[2] |= {"OwnerUserId": None, "LastEditorUserId": 1, "CreaionDate": "yesterday", "Score": 3.0, "ViewCount": 2.5}
    posts += [{"Id": 30, "PostTypeId": 2, "ParentId": 2}, {"Id": 31, "PostTypeId": 99}, {"Id": 32}]
    tags = [{"Id": i, "TagName": name, "Count": i} for i, name in enumerate(TAGS, 1)]
    return {
        "users": users,
        "tags": tags,
        "posts": posts,
        "comments": [{"Id": 1, "PostId": 2, "UserId": 1, "Text": "<b>ok</b>"}],
        "votes": [{"Id": 1, "PostId": 2, "VoteTypeId": 2, "CreationDate": "1969-12-31"}, {"Id": 2, "PostId": 77}],
        "badges": [{"Id": i, "UserId": 1, "Name": name, "Date": DATE} for i, name in enumerate(["A", "A", 'B"\n'], 1)],
        "postLinks": [{"Id": 1, "PostId": 1, "RelatedPostId": 2, "LinkTypeId": 3, "CreationDate": DATE}],
    }  # postHistory stays empty


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph out of everything that a dump can hold."""
    place = tmp_path_factory.mktemp("traps")
    file = place / "codebase_community.sqlite"
    # SQLite takes no half characters
    whole = {t: [{c: _valid(v) for c, v in row.items()} for row in rows] for t, rows in tables().items()}
    graph.build("bird", 1.0, 0, str(write(file, whole.items())), place / "graph")
    return place / "graph"


def _valid(value):
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@contextlib.contextmanager
def empty_server(place, again=False):
    """A server on a store of its own in a folder; `again`: with what is in there, to be read."""
    home = place / "own"
    home.mkdir(exist_ok=again)
    lock = server._lock(home.with_suffix(".lock"))
    size = server.Size("512m", "64m", long=False)
    try:
        with server._serving(home, server.DATA, lock, size, None, loader=not again) as uri:
            yield uri
    finally:
        os.close(lock)


def everything(uri):
    """All nodes, relationships, constraints and indexes, values with their types, in one order."""
    nodes = "MATCH (n) RETURN labels(n) AS labels, properties(n) AS p, [k IN keys(n) | [k, valueType(n[k])]] AS types"
    relationships = (
        "MATCH (a)-[r]->(b) RETURN type(r) AS type, properties(a) AS a, properties(b) AS b, properties(r) AS p, "
        "[k IN keys(r) | [k, valueType(r[k])]] AS types"
    )
    schema = (
        "SHOW INDEXES YIELD name, type, entityType, labelsOrTypes, properties, state, owningConstraint ORDER BY name"
    )
    with neo4j.GraphDatabase.driver(uri) as driver:
        found = [
            sorted(
                json.dumps([_sorted(value) for value in record.values()], default=str, sort_keys=True)
                for record in driver.execute_query(query).records
            )
            for query in (nodes, relationships)
        ]
        return [*found, [record.data() for record in driver.execute_query(schema).records]]


def _sorted(value):
    return sorted(value) if isinstance(value, list) else value


@pytest.fixture(scope="module")
def imported(folder, uri):
    """A server that holds the traps; its store is cached in data/neo4j."""
    with server.running(folder) as address:
        yield address


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A server to be written to, which is shared; ask for `empty`."""
    with empty_server(tmp_path_factory.mktemp("bare")) as address:
        yield address


@pytest.fixture
def empty(bare):
    """A server that holds nothing, and is emptied again."""
    yield bare
    with neo4j.GraphDatabase.driver(bare) as driver, driver.session() as session:
        session.run("MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS").consume()
        for kind, kinds in (("CONSTRAINT", "CONSTRAINTS"), ("INDEX", "INDEXES")):  # a constraint's index goes with it
            for name in session.run(f"SHOW {kinds} YIELD name, type WHERE type <> 'LOOKUP' RETURN name").value():
                session.run(f"DROP {kind} `{name}`").consume()


def test_both_roads_lead_to_the_same_graph(folder, imported, empty):
    load.load(empty, folder)
    assert everything(empty) == everything(imported)


def test_a_node_without_a_label_is_something_else(folder, empty):
    ask(empty, "CREATE ({mine: 1})")
    with pytest.raises(load.HoldsAnother, match="holds another graph"):
        load.load(empty, folder)
    assert ask(empty, "MATCH (n) RETURN n.mine") == [[1]] and ask(empty, "SHOW CONSTRAINTS YIELD name") == []


def test_both_roads_agree_on_the_twin(graph_folder, uri, empty):
    load.load(empty, graph_folder)
    assert everything(empty) == everything(uri)


def test_both_roads_agree_on_every_type_of_value(empty, tmp_path):
    (tmp_path / "things.yaml").write_text(
        "tables:\n  things:\n    node: Thing\n    key: {code: code}\n    columns: {code: text, n: integer, x: float, "
        "b: boolean, t: text, at: datetime, day: date, next: text}\n    relationships: {next: '-[:NEXT]->(Thing)'}\n"
        "  sums:\n    relationship: (a)-[:SUM]->(b)\n    ends: {a: Thing, b: Thing}\n    columns: {a: text, b: text, "
        "share: float, sure: boolean}\nindexes:\n  range: {Thing: [n, x]}\n"
    )
    things = [
        ("a", -5, 0.1 + 0.2, 1, "t", "1899-12-31 23:59:59.999999", "0099-01-01", "b"),
        ("b", 2**63 - 1, 1e300, 0, "", None, None, "a"),
        ("ü,\"'", 0, -0.0, None, None, "2020-02-29", "2020-02-29", "zzz"),
    ]
    pairs = [("a", "b", 0.25, 1), ("a", "b", 0.25, 1), ("b", "nobody", 1, 0)]
    own_database(tmp_path / "things.sqlite", {"things": things, "sums": pairs})
    counts = graph.build("bird", 1, 0, str(tmp_path / "things.sqlite"), tmp_path / "graph")
    assert counts["relationships"] == 4 and counts["keys"]["sums.a+b"]["orphaned"] == 1
    load.load(empty, tmp_path / "graph")
    with server.running(tmp_path / "graph") as one:
        assert everything(one) == everything(empty)
        with neo4j.GraphDatabase.driver(one) as driver:
            record = driver.execute_query("MATCH (n:Thing {code: 'a'}) RETURN n").records[0]["n"]
    assert dict(record) == {
        "code": "a",
        "n": -5,
        "x": 0.1 + 0.2,
        "b": True,
        "t": "t",
        "at": neo4j.time.DateTime(1899, 12, 31, 23, 59, 59, 999_999_000),
        "day": neo4j.time.Date(99, 1, 1),
    }


def own_database(path, rows):
    import sqlite3

    declared = mapping.read(path.with_suffix(".yaml")).tables
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name, values in rows.items():
            columns = ", ".join(f'"{column}"' for column in declared[name].columns)
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            connection.executemany(
                f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(declared[name].columns))})', values
            )
        connection.commit()


def ask(uri, query):
    with neo4j.GraphDatabase.driver(uri) as driver:
        return [list(record.values()) for record in driver.execute_query(query).records]


def test_texts_arrive_as_they_were(imported):
    found = dict(ask(imported, "MATCH (p:Post) WHERE p.body IS NOT NULL RETURN p.postId, p.body"))
    assert found == {id_: _valid(text) for id_, text in TEXTS.items()}
    assert ask(imported, "MATCH (u:User {userId: 1}) RETURN u.displayName") == [['Jo "the\\n" O\'Neill']]
    assert sorted(name for (name,) in ask(imported, "MATCH (b:Badge) RETURN b.name")) == ["A", 'B"\n']


def test_unusual_tags_can_be_asked_for(imported):
    found = ask(imported, "MATCH (:Post {postId: 1})-[:TAGGED]->(t:Tag) RETURN t.tagName")
    assert sorted(name for (name,) in found) == sorted(TAGS)


def test_times_before_1970_and_whole_numbers_of_64_bits(imported):
    (moment,) = ask(imported, "MATCH (u:User {userId: -1}) RETURN u.creationDate")[0]
    assert moment.to_native() == datetime.datetime(1969, 7, 20, 20, 17, 40)
    assert ask(imported, "MATCH (v:Vote {voteId: 1}) RETURN toString(v.creationDate)") == [["1969-12-31"]]
    assert ask(imported, f"MATCH (u:User {{userId: {2**62}}}) RETURN u.upVotes, toString(u.creationDate)") == [
        [-(2**63), "2011-01-02T01:04:05.123456"]
    ]


def test_nobody_is_made_up_for_a_deleted_user(imported):
    query = "MATCH (p:Post {postId: 2}) RETURN p.ownerDisplayName, EXISTS { (:User)-[:OWNS]->(p) }"
    assert ask(imported, query) == [["gone", False]]
    assert ask(imported, "MATCH (n) WHERE any(k IN keys(n) WHERE n[k] = '') RETURN count(n)") == [[0]]


def test_what_is_dropped_is_counted_by_column_and_row(folder):
    counts = json.loads((folder / "counts.json").read_text())
    assert counts["tables"]["users"] == {"rows": 5, "kept": 4, "duplicates": 1, "without_key": 0}
    assert counts["tables"]["postHistory"]["rows"] == 0
    assert counts["unreadable"] == {
        "posts.CreaionDate": {"count": 1, "first_ids": [3]},
        "posts.ViewCount": {"count": 1, "first_ids": [3]},
        "users.CreationDate": {"count": 1, "first_ids": [2]},
        "users.Reputation": {"count": 1, "first_ids": [2]},
    }
    orphaned = {key: c["orphaned"] for key, c in counts["keys"].items() if c["orphaned"]}
    assert orphaned == {"posts.OwnerUserId": 1, "posts.Tags": 1, "votes.PostId": 1}
    assert counts["tags_without_a_row"] == {"not-there": 1}
