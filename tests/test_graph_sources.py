"""Every source becomes a graph in the same way: BIRD's files as people download them, and databases that run already."""

import json
import sqlite3
from contextlib import closing

import neo4j
import pytest

from lib import graph
from lib.graph import mapping, server, twin
from lib.graph.model import build_model, reconcile
from lib.graph.tables import SourceError
from lib.questions.sql import write
from tests.conftest import DATA


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The default twin as the SQLite file that BIRD distributes, typos and all."""
    return write(tmp_path_factory.mktemp("bird") / "codebase_community.sqlite", twin.tables(0.015, 0))


@pytest.fixture(scope="module")
def heroes(tmp_path_factory):
    """BIRD's superhero database as a graph's folder, and the file."""
    file = DATA / "bird_superhero" / "superhero.sqlite"
    if not file.is_file():
        pytest.skip(f"BIRD's superhero database isn't here: {file}")
    folder = tmp_path_factory.mktemp("heroes") / "graph"
    graph.build("bird", 1.0, 0, str(file), folder)
    return folder, file


def change(file, tmp_path, *statements):
    """A copy of the database with some statements run on it."""
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        for statement, *values in statements:
            connection.execute(statement, values)
        connection.commit()
    return copy


def ask(uri, query):
    with neo4j.GraphDatabase.driver(uri) as driver:
        return [list(record.values()) for record in driver.execute_query(query).records]


# ---------------------------------------------------------------- BIRD


def test_bird_s_file_gives_the_graph_of_its_rows(file, graph_folder, tmp_path):
    counts = graph.build("bird", 1.0, 0, str(file), tmp_path / "graph")
    assert counts["source"] == "bird"
    same = [p for p in graph_folder.rglob("*") if p.is_file() and p.name != "counts.json"]
    assert len(same) > 20
    for path in same:
        assert path.read_bytes() == (tmp_path / "graph" / path.relative_to(graph_folder)).read_bytes(), path.name


def test_a_dirty_file_is_read_to_its_end(file, tmp_path):
    dirty = change(
        file,
        tmp_path,
        ("UPDATE users SET DisplayName = CAST(X'4A6FFF' AS TEXT), Reputation = 'n/a', Age = 30.5 WHERE Id = -1",),
        ("UPDATE users SET AboutMe = X'C3A9', Views = '12', UpVotes = 7.0 WHERE Id = -1",),
        ("INSERT INTO users SELECT * FROM users WHERE Id = -1",),
        ("INSERT INTO posts (PostTypeId, Body) VALUES (1, 'nobody knows which')",),
        ("UPDATE votes SET CreationDate = '0000-00-00' WHERE Id = (SELECT min(Id) FROM votes)",),
        ("DELETE FROM comments",),
    )
    counts = graph.build("bird", 1.0, 0, str(dirty), tmp_path / "graph")
    assert counts["tables"]["users"]["duplicates"] == 1 and counts["tables"]["posts"]["without_key"] == 1
    assert counts["tables"]["comments"]["rows"] == 0 and "Comment" not in counts["database"]["nodes"]
    assert counts["unreadable"] == {
        "users.Age": {"count": 1, "first_ids": [-1]},
        "users.Reputation": {"count": 1, "first_ids": [-1]},
        "votes.CreationDate": {"count": 1, "first_ids": [1]},
    }
    first = (tmp_path / "graph" / "nodes" / "User.csv").read_text().splitlines()[1]
    assert "Jo\ufffd" in first and ",é," in first and ",12,7," in first
    assert not (tmp_path / "graph" / "nodes" / "Comment.csv").exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE posts RENAME COLUMN CreaionDate TO CreationDate", "posts has no column 'CreaionDate'; it has Id"),
        ("DROP TABLE votes", "for community it lacks votes; it has badges"),
    ],
)
def test_another_schema_is_named(file, tmp_path, statement, message):
    with pytest.raises(SourceError, match=message):
        graph.build("bird", 1.0, 0, str(change(file, tmp_path, (statement,))), tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_no_file_and_no_database_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"is no file.*python -m lib.fetch bird"):
        graph.build("bird", 1.0, 0, str(tmp_path / "codebase_community.sqlite"), tmp_path / "graph")
    (tmp_path / "x.sqlite").write_text("version https://git-lfs.github.com/spec/v1\n" * 20)
    with pytest.raises(SourceError, match="is no SQLite database"):
        graph.build("bird", 1.0, 0, str(tmp_path / "x.sqlite"), tmp_path / "graph")


# ---------------------------------------------------------------- a declared mapping


def test_superheroes_are_reconciled_with_their_tables(heroes):
    folder, file = heroes
    counts = json.loads((folder / "counts.json").read_text())
    reconcile(counts, mapping.of(folder))
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        for table, count in counts["tables"].items():
            (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert count == {"rows": rows, "kept": rows, "duplicates": 0, "without_key": 0}
        (filled,) = connection.execute("SELECT count(race_id) FROM superhero").fetchone()
    assert counts["database"]["relationships"]["OF_RACE"] == filled
    assert counts["relationships"] == 14_800 and not any(key["orphaned"] for key in counts["keys"].values())
    text = graph.schema_text(folder)
    assert "(:Superhero)-[:HAS_ATTRIBUTE {value: INTEGER}]->(:Attribute)" in text and "postTypeId" not in text


PAIRS = {
    "SELECT count(*) FROM superhero s JOIN publisher p ON s.publisher_id = p.id WHERE p.publisher_name = 'DC Comics'": (
        "MATCH (s:Superhero)-[:PUBLISHED_BY]->(:Publisher {name: 'DC Comics'}) RETURN count(*)"
    ),
    "SELECT power_name, count(*) FROM hero_power h JOIN superpower p ON h.power_id = p.id GROUP BY power_name": (
        "MATCH (:Superhero)-[:HAS_POWER]->(p:Superpower) RETURN p.name, count(*)"
    ),
    "SELECT s.superhero_name, h.attribute_value FROM superhero s JOIN hero_attribute h ON h.hero_id = s.id "
    "JOIN attribute a ON a.id = h.attribute_id WHERE a.attribute_name = 'Speed' AND h.attribute_value > 95": (
        "MATCH (s:Superhero)-[h:HAS_ATTRIBUTE]->(:Attribute {name: 'Speed'}) WHERE h.value > 95 RETURN s.name, h.value"
    ),
    "SELECT s.superhero_name FROM superhero s JOIN colour e ON e.id = s.eye_colour_id "
    "JOIN colour h ON h.id = s.hair_colour_id WHERE e.colour = h.colour AND e.colour = 'Blue'": (
        "MATCH (c:Colour {name: 'Blue'})<-[:HAS_EYE_COLOUR]-(s)-[:HAS_HAIR_COLOUR]->(c) RETURN s.name"
    ),
}


def test_superheroes_answer_in_cypher_as_in_sql(heroes):
    folder, file = heroes
    with (
        server.running(folder) as uri,
        closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection,
    ):
        for sql, cypher in PAIRS.items():
            rows = sorted([list(row) for row in connection.execute(sql)], key=str)
            assert rows and sorted(ask(uri, cypher), key=str) == rows, cypher


GOOD = """
tables:
  places: {node: Place, key: {id: placeId}, columns: {id: integer, name: text}}
  people:
    node: Person
    key: {id: personId}
    columns: {id: integer, name: text, home: integer, boss: integer}
    relationships: {home: '-[:LIVES_IN]->(Place)', boss: '<-[:LEADS]-(Person)'}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tables:", "table:", "it needs `tables`"),
        ("node: Place, ", "", "tables.places needs `node` and one `key`"),
        ("name: text}}", "name: string}}", "tables.places.columns.name = 'string'; allowed: integer"),
        ("{home: '-[", "{house: '-[", "tables.people.relationships names 'house'"),
        ("->(Place)", "->(Town)", "a relationship leads to 'Town'"),
        ("->(Place)", "-(Place)", "write -\\[:TYPE\\]->\\(Label\\)"),
        ("->(Place)", "->(Place.name)", "Place.name is no key; name its column in `unique`"),
        ("id: integer, name: text}}", "id: integer, na me: text}}", "'na me' can't be a label, type or property"),
        ("node: Person", "nodes: Person", "tables.people.nodes is unknown; allowed here"),
        ("tables:", "tables: [", "can't be read as a mapping"),
        (
            "node: Person",
            "node: Person\n    unique: [nmae]",
            "tables.people.unique names 'nmae', which is none of its other",
        ),
        (
            "node: Person",
            "node: Person\n    unique: [id]",
            "tables.people.unique names 'id', which is none of its other",
        ),
        (
            "node: Person",
            "node: Person\n    several: {boss: '(a'}",
            "people.several.boss = '\\(a' is no regular expression",
        ),
        ("node: Person", "node: Person\n    several: {boss: a}", "people.several.boss = 'a' needs a group"),
        ("{home: '-[:LIVES_IN]->(Place)', boss: '<-[:LEADS]-(Person)'}", "home", "relationships = 'home'; write"),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path, old, new, message):
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    assert mapping.read(path).constraints == [("Place", "placeId"), ("Person", "personId")]
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(SourceError, match=f"own.yaml.*{message}"):
        mapping.read(path)


def test_a_part_left_empty_counts_as_not_there(tmp_path):
    (tmp_path / "own.yaml").write_text("tables:\n  a:\n    node: A\n    key: {id: id}\n    columns: {id: integer}\n"
                                       "    relationships:\nindexes:\n  range:\n")  # fmt: skip
    assert mapping.read(tmp_path / "own.yaml").tables["a"].references == ()


OWN = """
tables:
  posts:
    node: Post
    key: {id: postId}
    labels: {kind: {1: Question}}
    columns: {id: integer, kind: integer, at: datetime, related: text}
    relationships: {related: '-[:RELATED]->(Post)'}
    several: {related: '<([^<>]+)>'}
  views:
    relationship: (page)-[:SHOWS]->(post)
    ends: {page: Page, post: Question}
    values: {page: number}
    columns: {page: integer, post: integer}
"""


def own_graph(tmp_path, **tables):
    (tmp_path / "own.yaml").write_text(OWN)
    return build_model(
        iter(tables.items()), tmp_path / "graph", {"source": "test"}, mapping.read(tmp_path / "own.yaml")
    )


def test_an_end_may_be_a_second_label(tmp_path):
    posts = [{"id": 1, "kind": 1}, {"id": 2}]
    views = [{"page": 0, "post": 1}, {"page": 5, "post": 2}, {"page": 5, "post": 3}]
    account = own_graph(tmp_path, posts=posts, views=views)["keys"]["views.post"]
    assert (account["relationships"], account["wrong_kind"], account["orphaned"]) == (1, 1, 1)
    assert (tmp_path / "graph" / "relationships" / "SHOWS.csv").read_text().splitlines()[1:] == [
        "0,1"
    ]  # zero is a value


def test_several_keys_in_a_column_are_of_the_other_key_s_kind(tmp_path):
    posts = [{"id": 1, "related": "<2><02><9><x>"}, {"id": 2}]
    counts = own_graph(tmp_path, posts=posts, views=[])
    account = counts["keys"]["posts.related"]
    assert (account["relationships"], account["repeated"], account["orphaned"]) == (1, 1, 1)
    assert counts["unreadable"] == {"posts.related": {"count": 1, "first_ids": [1]}}
    assert (tmp_path / "graph" / "relationships" / "RELATED.csv").read_text().splitlines()[1:] == ["1,2"]


def test_a_time_outside_of_the_calendar_is_counted(tmp_path):
    posts = [{"id": 1, "at": "0001-01-01 00:00:00+02:00"}, {"id": 2, "at": "9999-12-31 23:59:59-02:00"}]
    counts = own_graph(tmp_path, posts=posts, views=[])
    assert counts["unreadable"] == {"posts.at": {"count": 2, "first_ids": [1, 2]}}
    assert counts["nodes"] == 2


def test_a_declaration_beside_the_file_wins(tmp_path):
    (tmp_path / "own.yaml").write_text(GOOD)
    with closing(sqlite3.connect(tmp_path / "own.sqlite")) as connection:
        connection.execute("CREATE TABLE places (id, name)")
        connection.execute("CREATE TABLE people (id, name, home, boss)")
        connection.execute("INSERT INTO places VALUES (1, 'Aax')")
        connection.execute("INSERT INTO people VALUES (1, 'Ann', 1, 2), (2, 'Bob', NULL, NULL), (3, 'Cid', 9, 9)")
        connection.commit()
    counts = graph.build("bird", 1.0, 0, str(tmp_path / "own.sqlite"), tmp_path / "graph")
    assert counts["database"]["relationships"] == {"LEADS": 1, "LIVES_IN": 1}
    assert (tmp_path / "graph" / "relationships" / "LEADS.csv").read_text().splitlines()[1] == "2,1"
    assert [counts["keys"][f"people.{c}"]["orphaned"] for c in ("home", "boss")] == [1, 1]


# ---------------------------------------------------------------- a running database


def test_a_running_database_is_described_as_it_is(uri, graph_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NEO4J_URI", uri)
    before = ask(uri, "MATCH (n) RETURN count(n)"), ask(uri, "SHOW INDEXES YIELD name")
    counts = graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
    made = json.loads((graph_folder / "counts.json").read_text())
    assert (counts["nodes"], counts["relationships"]) == (made["nodes"], made["relationships"])
    found = graph.schema(tmp_path / "graph")
    assert found.pop("contained") == [["Answer", "Post"], ["Question", "Post"]]
    assert found == graph.schema(graph_folder)  # the same words for the same graph, whoever made it
    text = graph.schema_text(tmp_path / "graph")
    assert "Every :Answer is also a :Post." in text and "-[:ANSWERS]->(:Question)" in text
    with server.running(tmp_path / "graph") as used:
        assert used == uri
    assert before == (ask(uri, "MATCH (n) RETURN count(n)"), ask(uri, "SHOW INDEXES YIELD name"))


def test_a_database_that_changed_since_is_named(uri, tmp_path, monkeypatch):
    monkeypatch.setenv("NEO4J_URI", uri)
    graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
    counts = json.loads((tmp_path / "graph" / "counts.json").read_text())
    counts["database"]["nodes"]["User"] += 1
    (tmp_path / "graph" / "counts.json").write_text(json.dumps(counts))
    with (
        pytest.raises(server.ServerError, match=r"no longer.*nodes of User.*Nothing was changed; describe it anew"),
        server.running(tmp_path / "graph"),
    ):
        pass
    monkeypatch.delenv("NEO4J_URI")
    with pytest.raises(server.ServerError, match="describes a running database; set NEO4J_URI"):
        server.running(tmp_path / "graph").__enter__()


def test_no_running_database_is_named(tmp_path, monkeypatch):
    with pytest.raises(SourceError, match="set NEO4J_URI"):
        graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"bolt://127.0.0.1:9 can't be read.*set NEO4J_URI"):
        graph.build("neo4j", 1.0, 0, "", tmp_path / "graph")
