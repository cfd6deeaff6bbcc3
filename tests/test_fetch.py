"""Downloads say what they are about to do, go on where they stopped, and are checked; against a server on this machine."""

import dataclasses
import hashlib
import io
import re
import sqlite3
import subprocess
import sys
import threading
import zipfile
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lib import fetch
from tests.conftest import ROOT


class Server(BaseHTTPRequestHandler):
    """Serves one file, with ranges; `cut` ends the first answers after so many bytes."""

    content, cut, asked, ranges, tag = b"", 0, [], True, '"one"'

    def do_HEAD(self):
        self._head(200, len(self.content))

    def do_GET(self):
        start = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and self.ranges and self.headers.get("If-Range", self.tag) == self.tag:
            start = int(wanted[1])
        type(self).asked.append(start)
        self._head(206 if start else 200, len(self.content) - start)
        body = self.content[start:]
        if self.cut:
            body, type(self).cut = body[: self.cut], 0
        self.wfile.write(body)

    def _head(self, status, length):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", self.tag)
        self.end_headers()

    def log_message(self, *_):
        pass


def archive():
    """BIRD's archive with one small database."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE users (Id INTEGER)")
        database = connection.serialize()
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as databases:
        databases.writestr("__MACOSX/dev_databases/superhero/superhero.sqlite", b"no")
        databases.writestr("dev_databases/codebase_community/codebase_community.sqlite", database)
    with zipfile.ZipFile(outer, "w") as whole:
        whole.writestr("dev_20240627/dev.json", "[]")
        whole.writestr("dev_20240627/dev_databases.zip", inner.getvalue())
    return outer.getvalue()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """BIRD as a server on this machine has it, an own record, and no pauses."""
    handler = type("Handler", (Server,), {"content": archive(), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(fetch, "RECORD", tmp_path / "downloads.sha256")
    monkeypatch.setattr(fetch, "PAUSE", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    address = f"http://127.0.0.1:{server.server_port}/dev.zip"
    yield handler, dataclasses.replace(fetch.data_set("bird", tmp_path / "raw"), address=address)
    server.shutdown()
    server.server_close()


def test_it_says_what_it_is_about_to_do_and_asks_for_a_yes(served, capsys):
    handler, wanted = served
    with pytest.raises(fetch.FetchError, match="Nothing was downloaded; add --yes"):
        fetch.fetch(wanted, agreed=False)
    said = capsys.readouterr().out
    assert wanted.address in said and "0.0 MB, CC BY-SA 4.0" in said and str(wanted.archive) in said
    assert handler.asked == [] and not wanted.archive.exists()


def test_it_is_unpacked_and_its_hash_recorded(served, capsys):
    handler, wanted = served
    fetch.fetch(wanted, agreed=True)
    assert wanted.path.read_bytes()[:6] == b"SQLite" and wanted.path.with_name("dev.json").read_text() == "[]"
    assert fetch.recorded(wanted.address) == hashlib.sha256(handler.content).hexdigest()
    assert sorted(p.name for p in wanted.path.parent.iterdir()) == ["codebase_community.sqlite", "dev.json", "dev.zip"]
    assert "set graph.source: bird and graph.path:" in capsys.readouterr().out
    fetch.fetch(wanted, agreed=False)  # it is there: nothing to agree to
    assert handler.asked == [0]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up_again(served, ranges):
    handler, wanted = served
    handler.cut, handler.ranges = 300, ranges
    fetch.fetch(wanted, agreed=True)
    assert handler.asked == [0, 300 if ranges else 0]
    assert wanted.archive.read_bytes() == handler.content


def test_a_second_run_goes_on_unless_the_file_is_another_one(served):
    handler, wanted = served
    part = wanted.archive.with_name("dev.zip.part")
    part.parent.mkdir(parents=True)
    for tag, goes_on_at in (('"one"', 200), ('"old"', 0)):
        part.write_bytes(handler.content[:200])
        part.with_name("dev.zip.tag").write_text(f"{tag} {len(handler.content)}")
        handler.asked.clear()
        fetch.fetch(wanted, agreed=True)
        assert handler.asked == [goes_on_at]
        assert wanted.archive.read_bytes() == handler.content
        wanted.archive.unlink()


def test_other_bytes_than_recorded_are_refused(served):
    _, wanted = served
    fetch.RECORD.write_text(f"{'0' * 64}  {wanted.address}\n")
    with pytest.raises(fetch.FetchError, match=r"dev\.zip has the sha256 .*damaged file, or another release"):
        fetch.fetch(wanted, agreed=True)
    assert not wanted.path.exists()


PAGE = b"<html>Not today</html>"


@pytest.mark.parametrize(
    ("name", "said"), [("bird", "can't be unpacked"), ("stackexchange:french", "is no 7z archive")]
)
def test_a_page_in_place_of_the_file_is_not_recorded(served, tmp_path, name, said):
    handler, bird = served
    handler.content = PAGE
    wanted = dataclasses.replace(fetch.data_set(name, tmp_path / "raw"), address=bird.address)
    with pytest.raises(fetch.FetchError, match=f"{said}.*remove it and run it again"):
        fetch.fetch(wanted, agreed=True)
    assert fetch.recorded(wanted.address) is None


def test_a_7z_archive_is_recorded_and_left_packed(served, tmp_path, capsys):
    handler, bird = served
    handler.content = bytes.fromhex("377abcaf271c") + b"and so on"
    wanted = dataclasses.replace(fetch.data_set("stackexchange:french", tmp_path / "raw"), address=bird.address)
    fetch.fetch(wanted, agreed=True)
    assert fetch.recorded(wanted.address) == hashlib.sha256(handler.content).hexdigest()
    assert "7z x -o" in capsys.readouterr().out


def test_without_network_it_says_where_to_put_the_file(served):
    handler, wanted = served
    away = dataclasses.replace(wanted, address="http://127.0.0.1:9/dev.zip")
    with pytest.raises(fetch.FetchError, match=rf"put it at {re.escape(str(wanted.archive))}"):
        fetch.fetch(away, agreed=True)
    wanted.archive.parent.mkdir(parents=True)
    wanted.archive.write_bytes(handler.content)  # by hand
    fetch.fetch(away, agreed=False)
    assert wanted.path.is_file()


def test_what_the_archive_lacks_is_named(served, tmp_path):
    _, wanted = served
    other = dataclasses.replace(fetch.data_set("bird:formula_1", tmp_path / "raw"), address=wanted.address)
    with pytest.raises(fetch.FetchError, match=r"holds no formula_1\.sqlite; it has codebase_community\.sqlite"):
        fetch.fetch(other, agreed=True)


def test_a_full_disk_is_named(served, monkeypatch):
    _, wanted = served
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(fetch.FetchError, match="MB free, and"):
        fetch.fetch(wanted, agreed=True)


def test_sites_by_their_short_and_full_names(tmp_path):
    names = {"french": "french.stackexchange.com", "stats.meta": "stats.meta.stackexchange.com"}
    for short, full in {**names, "askubuntu.com": "askubuntu.com", "mathoverflow.net": "mathoverflow.net"}.items():
        wanted = fetch.data_set(f"stackexchange:{short}", tmp_path)
        assert wanted.address.endswith(f"/{full}.7z") and wanted.path == tmp_path / "stackexchange" / full
    for name in ("wikipedia", "stackexchange"):
        with pytest.raises(fetch.FetchError, match="choose bird, bird:<database> or stackexchange:<site>"):
            fetch.data_set(name)


def test_the_command_ends_with_one_clear_line():
    done = subprocess.run([sys.executable, "-m", "lib.fetch", "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "is no data set" in done.stderr
