"""The managed server: side by side, no orphans, nothing half-loaded, and clear words when it can't be had."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time

import neo4j
import pytest
import requests

from lib import graph
from lib.graph import jars, load, server
from tests.conftest import ROOT, know_java

SERVE = [sys.executable, "-m", "lib.graph.server"]


def count(uri):
    with neo4j.GraphDatabase.driver(uri) as driver:
        return driver.execute_query("MATCH (n) RETURN count(n) AS n").records[0]["n"]


def alive(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and "Z" not in state


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
    return know_java(tmp_path / "data")


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
    assert uri in server._replaceable  # whose port it is can still be replaced


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


def test_no_importer_is_left_after_kill_9(tmp_path):
    folder, home = tmp_path / "graph", tmp_path / "home"
    graph.build("twin", 0.0001, 0, "", folder)
    home.mkdir()
    endless = [sys.executable, "-c", "import time; time.sleep(600)"]  # where Java would be done within seconds
    code = f"from pathlib import Path\nfrom lib.graph import offline\noffline.run(Path({str(folder)!r}), Path({str(home)!r}), {endless})"
    study = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    pid_file = home / "import" / "java.pid"
    deadline = time.monotonic() + 60
    while not pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    importer = int(pid_file.read_text())
    assert alive(importer)
    study.kill()
    study.wait()
    assert gone(importer)


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


def refusal(graph_folder):
    """What is said where NEO4J_URI can't be used."""
    with pytest.raises(server.ServerError) as refused, server.running(graph_folder):
        pass
    said = str(refused.value)
    assert "\n" not in said and said.endswith("or unset NEO4J_URI to use a server of the study's own")
    return said


def test_an_address_without_a_database_is_named(graph_folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for scheme in ("bolt", "neo4j"):
        monkeypatch.setenv("NEO4J_URI", f"{scheme}://127.0.0.1:{port}")
        said = refusal(graph_folder)
        assert f"{scheme}://127.0.0.1:{port} can't be used" in said and "No database answers at that address" in said
        assert "PASSWORD" not in said


def test_a_wrong_password_is_told_from_a_wrong_database(graph_folder, uri, tmp_path, monkeypatch):
    monkeypatch.setenv("NEO4J_URI", uri)
    monkeypatch.setenv("NEO4J_DATABASE", "nowhere")
    said = refusal(graph_folder)
    assert "nowhere" in said and "Check NEO4J_URI and NEO4J_DATABASE" in said
    monkeypatch.delenv("NEO4J_DATABASE")
    with guarded(tmp_path, monkeypatch) as address:
        monkeypatch.setenv("NEO4J_URI", address)
        for password in (None, "wrong"):
            if password:
                monkeypatch.setenv("NEO4J_PASSWORD", password)
            said = refusal(graph_folder)
            assert "Check NEO4J_USER and NEO4J_PASSWORD" in said and "No database" not in said


@contextlib.contextmanager
def guarded(home, monkeypatch):
    """A server that asks for a password."""
    conf = server.CONF.replace("auth_enabled=false", "auth_enabled=true")
    port, lock = server._free_port(), server._lock(home / "lock")
    with monkeypatch.context() as changed:
        changed.setattr(server, "CONF", conf)
        process = server._start(home, server.DATA, lock, server.Size("512m", "64m", long=False), port, loader=False)
    try:
        deadline = time.monotonic() + server.READY_WITHIN
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield f"bolt://127.0.0.1:{port}"
    finally:
        server._stop(process, home, server.STOP_PATIENCE)
        os.close(lock)


def test_a_slow_start_is_told_from_a_broken_one(graph_folder, uri, monkeypatch):
    monkeypatch.setattr(server, "READY_WITHIN", 0.5)  # none is that fast
    with pytest.raises(server.ServerError) as slow, server.running(graph_folder):
        pass
    log = server.DATA / "neo4j" / "failed-start.log"
    assert "A busy machine may be the cause: then run it again" in str(slow.value) and str(log) in str(slow.value)
    assert log.is_file()


def test_a_missing_graph_is_named(tmp_path):
    with pytest.raises(server.ServerError, match="holds no graph"), server.running(tmp_path / "nowhere"):
        pass


def test_a_full_disk_is_named(graph_folder, scratch, monkeypatch):
    monkeypatch.setattr(server, "NEEDS", 10**18)  # more than any disk has
    with pytest.raises(server.ServerError, match=r"MB free.*free some space"), server.running(graph_folder, scratch):
        pass


def test_a_disk_that_fills_up_while_a_store_is_copied_is_named_in_one_line(graph_folder, uri):
    """As on a full disk: no file of this process may grow beyond some kilobytes."""
    code = f"""
import resource
from pathlib import Path
from lib.graph import server
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    with server.running(Path({str(graph_folder)!r})):
        pass
except server.ServerError as e:
    print(e)
"""
    done = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    said, _ = done.communicate(timeout=120)
    (line,) = said.splitlines()
    assert line.startswith(f"Writing under {server.DATA / 'neo4j'} failed: File too large. The database needs about ")
    assert "MB there: free some space" in line
    assert not [path for path in (server.DATA / "neo4j" / "runs").glob(f"{done.pid}-*") if path.is_dir()]


def test_a_moment_without_network_fails_no_download(tmp_path, monkeypatch):
    pin = next(tuple(reversed(line.split())) for line in jars.PINS.read_text().splitlines())
    (known,) = jars.fetch([pin])
    faults = [requests.ConnectionError("a name can't be resolved"), Half(), None]

    def get(url, **_):
        response = requests.Response()
        response.status_code = 404 if url.endswith(".sha1") else 200
        fault = faults.pop(0) if response.status_code == 200 else None
        if isinstance(fault, OSError):
            raise fault
        response.raw = fault or io.BytesIO(known.read_bytes())
        return response

    monkeypatch.setattr("jgo.util.http.get", get)
    monkeypatch.setattr(jars, "PAUSE", 0.01)
    (fetched,) = jars.fetch([pin], tmp_path)
    assert faults == [] and fetched.is_relative_to(tmp_path) and jars.sha256(fetched) == pin[1]


class Half(io.BytesIO):
    """An answer that breaks off."""

    def __init__(self):
        super().__init__(b"PK")

    def read(self, *_):
        if not (some := super().read(2)):
            raise ConnectionResetError("the connection broke off")
        return some


def test_no_network_and_damaged_jars(tmp_path, monkeypatch):
    monkeypatch.setattr(jars, "PAUSE", 0.01)
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
