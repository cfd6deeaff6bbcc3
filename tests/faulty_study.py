"""The miniature study of the fault campaign: a process that is killed, gives up and is started again until it is over.

Each of its lives is a process of its own, forked before any thread was started, since importing takes longest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import os
import pickle
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import neo4j
import tinker
from neo4j.exceptions import DriverError, Neo4jError

from lib import evaluate, faults, files, plan, train, trialled
from lib.backends import ledger, local, prices, remote
from lib.backends.tokenizer import lock_tokenizer
from lib.cold_start import system_prompt
from lib.files import Appended, write_json, write_jsonl, write_text
from lib.graph import server
from lib.settings import Faults, Settings
from lib.updates import TooManyFaults
from tests import faulty_service, paid_service, taught
from tests.faulty_service import Books, Plan, Service

UPDATES, GROUPS, ROLLOUTS = 4, 2, 4
FAULTS = Faults(tries=3, wait=0.01, answer_within=10.0, least_rollouts=3, rerolls=1, most=0.0)
DONE, STOPPED, KILLED = "done", "stopped", "killed"
STOP = 75  # exit status of a life whose step gave up for a fault
HUNG, MOST_LIVES = 1800, 300  # seconds and lives after which something else is wrong
DATABASE_WITHIN = 600.0  # seconds that a killed database may take to answer again


@dataclass(frozen=True)
class Database:
    """The server behind the study, and the file with its process's id."""

    uri: str
    pid: Path

    def wait(self) -> None:
        """Until it answers: who starts a step again looks first."""
        deadline = time.monotonic() + DATABASE_WITHIN
        while True:
            try:
                with neo4j.GraphDatabase.driver(self.uri) as driver:
                    driver.execute_query("RETURN 1")
                server.answers(self.uri)
                return
            except (DriverError, Neo4jError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kill(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(self.uri.rsplit(":", 1)[1])), timeout=1).close()
        except OSError:
            return False
        os.kill(int(self.pid.read_text()), signal.SIGKILL)
        return True


def prepare(folder: Path, graph_folder: Path) -> None:
    """The miniature's graph, questions and model, and what a hosted run has before its training."""
    here = taught.study(folder, graph_folder, local.CPU)
    sizes: dict[str, Any] = {"updates": UPDATES, "groups": GROUPS, "rollouts": ROLLOUTS, "dev_every": 2}
    hosted = dataclasses.replace(here.train, backend="tinker", grad_clip_norm=0.0, faults=FAULTS, **sizes)
    study = dataclasses.replace(here, local=None, train=hosted)
    asked = evaluate.questions(study, "train")
    practised = [{**asked[i % len(asked)], "id": f"train-{i}"} for i in range(UPDATES * GROUPS)]
    write_jsonl(study.questions_dir / "train.jsonl", practised)
    lock_tokenizer(study.base_model).save_pretrained(study.base_dir)
    write_text(study.run_dir / "system_prompt.txt", system_prompt(evaluate.renderer_for(study), study))
    (folder / "settings.pickle").write_bytes(pickle.dumps(study))


def copied(template: Path, folder: Path, lossy: bool) -> Settings:
    """A study of its own, of either kind."""
    shutil.copytree(template, folder, symlinks=True)
    study: Settings = pickle.loads((template / "settings.pickle").read_bytes())
    if lossy:
        losing = dataclasses.replace(study.train.faults, most=0.5)
        study = dataclasses.replace(study, train=dataclasses.replace(study.train, faults=losing))
    study = dataclasses.replace(study, data=folder)
    write_json(trialled.path(study), {"digest": trialled.digest(study), "passed": True, "findings": []})
    return study


def steps(study: Settings) -> dict[str, Callable[[], Any]]:
    arms = {arm: partial(evaluate.evaluate, study, arm) for arm in study.arms}
    return {"train": partial(train.train, study, 0), **arms}


def isolate(study: Settings, service: Service, database: Database) -> None:
    """The study's process, as if the service were hosted. Without a plan, without a memory of results, so that each query meets
    the database, and without the watchdog, which asks a service that is elsewhere."""
    book = service.books
    keep, append, write = faults.Answers.keep, Appended.append, files.write_bytes
    table = paid_service.table(study.data / "prices.yaml", study.base_model)
    price = prices.find("stand-in", study.base_model, table)

    def noted(self: faults.Answers, name: str, answer: Any) -> None:
        keep(self, name, answer)
        book.note("kept", name=name, tokens=len(answer.sequences[0].tokens))

    def half_a_line(self: Appended, line: bytes) -> None:
        if service.tear.is_set():
            os.write(self._fd, line[: len(line) // 2])
            faulty_service.die()
        append(self, line)

    def half_a_file(path: Path, content: bytes) -> None:
        if service.tear.is_set():
            path.with_name(path.name + ".part").write_bytes(content[: len(content) // 2])
            faulty_service.die()
        write(path, content)

    for owner, name, value in (
        (tinker, "ServiceClient", service),
        (prices, "find", lambda *_: price),
        (plan, "digest", lambda _: "0" * 64),
        (server, "running", lambda *_: contextlib.nullcontext(database.uri)),
        (evaluate, "CACHE", 0),
        (remote, "watch", lambda *_: None),
        (faults.Answers, "keep", noted),
        (Appended, "append", half_a_line),
        (files, "write_bytes", half_a_file),
    ):
        setattr(owner, name, value)


def life(study: Settings, chosen: Plan, database: Database) -> None:
    """The study from where the last life left it, to its end or a fault that is more than it bears."""
    books = Books(books_of(study))
    finished = {line["name"] for line in books.lines if line["event"] == "step"}
    spent = ledger.path(study.run_dir)
    with local.serving(study.data / "service", seed=1, training="lora", grad_clip_norm=0.0) as client:
        service = Service(
            client, chosen, books, database.kill, lambda: ledger.read(spent).upper if spent.exists() else 0.0
        )
        isolate(study, service, database)
        for name, step in steps(study).items():
            if name not in finished:
                step()
                books.note("step", name=name)


def books_of(study: Settings) -> Path:
    return study.data / "books.jsonl"


def forked(work: Callable[[], None], log: Path) -> str:
    """How it ended in a process of its own, which is forked before any thread was started, since importing takes longest.

    Raises RuntimeError where it ended by anything but a fault.
    """
    child = os.fork()
    if child == 0:
        os.environ["ALLOW_SPEND"] = "1000"
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.dump_traceback_later(HUNG, exit=True)
        try:
            work()
        except BaseException as error:
            traceback.print_exc()
            gave_up = isinstance(error, TooManyFaults) or (isinstance(error, Exception) and faults.outside(error))
            os._exit(STOP if gave_up else 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return KILLED
    if status and os.waitstatus_to_exitcode(status) != STOP:
        raise RuntimeError(f"the study failed ({log}):\n{log.read_text()[-4000:]}")
    return STOPPED if status else DONE


def play(study: Settings, chosen: Plan, database: Database, told: Callable[[], None] = lambda: None) -> list[str]:
    """How each life ended, the last one with the study."""
    ends: list[str] = []
    while not ends or ends[-1] != DONE:
        if len(ends) == MOST_LIVES:
            raise RuntimeError(f"{MOST_LIVES} lives, and the study isn't over: {study.data}")
        database.wait()
        ends.append(forked(partial(life, study, chosen, database), study.data / "output.txt"))
        told()
    return ends
