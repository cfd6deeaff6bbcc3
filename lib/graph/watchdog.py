"""Stands between the study and the database's process, so that none is left behind and a dead one is replaced.

It is started with its own interpreter and imports nothing of the study: it has to be there before the server is, and
to outlive the process that wanted the server. Its standard input is a pipe from that process: the pipe's end means
that the process is gone, however it went (a crash, kill -9, a closed terminal), which works on Linux and macOS alike.

usage: python watchdog.py PID_FILE PATIENCE COMMAND...      (PATIENCE: seconds that the server gets to close its files)
"""

import os
import select
import signal
import subprocess
import sys
import time

POLL = 0.2  # seconds
REPLACEMENTS = 50  # deaths without an answer in between, after which something else must be wrong


def main() -> int:
    pid_file, patience, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    parent = os.getppid()
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.append(True))
    server = start(pid_file, command)
    replace = False  # only once its owner has seen it answer: until then, a death is the owner's to report
    deaths = 0
    while (
        not stopping and os.getppid() == parent
    ):  # a forked sibling may hold the pipe open: then the parent's id tells
        readable, _, _ = select.select([0], [], [], POLL)
        if readable:
            if not os.read(0, 1024):
                break
            replace, deaths = True, 0
        if server.poll() is not None:
            deaths += 1
            if not replace or deaths > REPLACEMENTS:
                return server.returncode
            time.sleep(min(0.2 * deaths, 5.0))
            server = start(pid_file, command)
    return stop(server, patience)


def guarded(command: list[str], pid_file: str, patience: float) -> list[str]:
    """What to start, with a pipe as its standard input, so that `command` runs under a watchdog."""
    return [sys.executable, "-I", "-S", __file__, pid_file, str(patience), *command]


def start(pid_file: str, command: list[str]) -> "subprocess.Popen[bytes]":
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    with open(pid_file + ".part", "w") as file:
        file.write(str(server.pid))
    os.replace(pid_file + ".part", pid_file)
    return server


def stop(server: "subprocess.Popen[bytes]", patience: float) -> int:
    server.terminate()
    try:
        return server.wait(patience)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
