"""The managed server: side by side, no orphans, nothing half-loaded, and clear words when it can't be had."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import neo4j
import pytest

from lib import graph
from lib.graph import jars, load, server
from tests.conftest import ROOT

SERVE = [sys.executable, "-m", "lib.graph.server"]


def count(uri):
    with neo4j.GraphDatabase.driver(uri) as driver:
        return driver.execute_query("MATCH (n) RETURN count(n) AS n").records[0]["n"]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout


def gone(pid, seconds=90):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not alive(pid)


@contextlib.contextmanager
def served(*arguments):
    """`python -m lib.graph.server` in a process of its own, with its URI and the server's process id."""
    process = subprocess.Popen([*SERVE, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        runs = server.DATA / "neo4j" / "runs"
        (pid,) = [int(f.read_text()) for f in runs.glob(f"{process.pid}-*/run/java.pid")]
        yield process, address, pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def scratch(tmp_path, uri):
    """A data folder of its own that knows the jars and Java's archive already."""
    home = tmp_path / "data" / "neo4j"
    home.mkdir(parents=True)
    shutil.copy(server.DATA / "neo4j" / "jars.json", home)
    archive = server._archive(server.DATA)
    if archive.is_file():
        os.link(archive, home / archive.name) if archive.stat().st_dev == home.stat().st_dev else shutil.copy(
            archive, home
        )
    return home.parent


def test_two_side_by_side_and_no_orphan_after_kill_9(uri, graph_folder):
    with served(graph_folder) as (process, other, java):
        assert other != uri
        assert count(other) == count(uri)
        assert alive(java)
        process.send_signal(signal.SIGKILL)
        assert gone(java)
    assert count(uri) > 0


def test_ctrl_c_stops_it_in_order(uri, graph_folder):
    with served(graph_folder) as (process, _, java):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not alive(java)


def test_a_port_in_use_is_named(graph_folder, uri):
    port = int(uri.rsplit(":", 1)[1])
    with pytest.raises(server.PortTaken, match=f"{port}.*in use"), server.running(graph_folder, port=port):
        pass


def test_a_loader_killed_halfway_is_never_taken_for_a_store(scratch, tmp_path):
    folder = tmp_path / "graph"
    graph.build("twin", 0.0001, 0, "", folder)
    code = f"from pathlib import Path\nfrom lib.graph import server\nwith server.running(Path({str(folder)!r}), Path({str(scratch)!r})): pass"
    loader = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE)
    store = scratch / "neo4j" / load.fingerprint(folder)
    deadline = time.monotonic() + 60
    seen = b""
    while b"loading the graph" not in seen and time.monotonic() < deadline:
        seen += loader.stderr.read1(1000)
    loader.kill()
    loader.wait()
    loader.stderr.close()
    assert not store.exists()  # the importer may still be at it; the next one waits for it, and starts over
    with server.running(folder, scratch) as uri:
        load.load(uri, folder)  # whole, or it would raise
    assert store.is_dir()
    assert list((scratch / "neo4j" / "runs").glob("*/data")) == []


def test_a_server_of_one_s_own(uri, graph_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NEO4J_URI", uri)
    with server.running(graph_folder) as used:
        assert used == uri
    graph.build("twin", 0.0001, 7, "", tmp_path / "other")
    before = count(uri)
    with (
        pytest.raises(server.ServerError, match=r"holds another graph.*Nothing was changed"),
        server.running(tmp_path / "other"),
    ):
        pass
    assert count(uri) == before
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:9")
    with pytest.raises(server.ServerError, match="unset NEO4J_URI"), server.running(graph_folder):
        pass


def test_a_missing_graph_is_named(tmp_path):
    with pytest.raises(server.ServerError, match="holds no graph"), server.running(tmp_path / "nowhere"):
        pass


def test_a_full_disk_is_named(graph_folder, scratch, monkeypatch):
    monkeypatch.setattr(server, "NEEDS", 10**18)  # more than any disk has
    with pytest.raises(server.ServerError, match=r"MB free.*free some space"), server.running(graph_folder, scratch):
        pass


def test_no_network_and_damaged_jars(tmp_path, monkeypatch):
    pin = next(tuple(reversed(line.split())) for line in jars.PINS.read_text().splitlines())
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(jars.JarError, match="NEO4J_URI"):
        jars.fetch([pin], tmp_path)
    assert not list(tmp_path.rglob("*.jar"))
    (known,) = jars.fetch([pin])  # had since the server runs; no network needed
    copy = tmp_path / known.relative_to(next(p for p in known.parents if p.name == "repository"))
    copy.parent.mkdir(parents=True)
    copy.write_bytes(known.read_bytes()[:1000])  # as an interrupted download leaves it
    with pytest.raises(jars.JarError, match="fetched"):
        jars.fetch([pin], tmp_path)
    assert jars.sha256(known) == pin[1]


def test_every_jar_is_pinned_without_an_address():
    lines = [line.split() for line in jars.PINS.read_text().splitlines()]
    assert all(len(checksum) == 64 and coordinate.count(":") in (2, 3) for checksum, coordinate in lines)
    assert "//" not in jars.PINS.read_text()
    assert any(coordinate == "org.neo4j:neo4j:2026.07.1" for _, coordinate in lines)


def test_help_is_there():
    done = subprocess.run([*SERVE, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Ctrl-C" in done.stdout
