"""What a run creates on a hosted service is noted before it is created, and what a dead run left there is deleted for sure."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from small_models import lfm2
from tinker import types
from tinker.lib.public_interfaces.rest_client import RestClient
from tinker.lib.public_interfaces.service_client import ServiceClient

from lib import watchdog
from lib.backends import local, remote
from lib.backends.futures import API
from lib.files import write_json
from lib.updates import Kept

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = (0.0,)
THREE = (0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lfm2(tmp_path_factory.mktemp("models") / "lfm2"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder; no watchdog is started beside it."""
    monkeypatch.setattr(remote, "watch", lambda run, owner: None)
    folder = tmp_path / "data" / "runs" / "big"
    folder.mkdir(parents=True)
    return folder


def answered(value: Any) -> API[Any]:
    done: Future[Any] = Future()
    done.set_exception(value) if isinstance(value, Exception) else done.set_result(value)
    return API(done)


class Silent:
    """An answer that never comes, for who doesn't wait for ever."""

    def result(self, timeout: float | None = None) -> Any:
        assert timeout is not None
        raise TimeoutError("no answer")


class Service:
    """A service's memory, as `tinker.RestClient` shows it, over the local backend's checkpoints. `faults`: of the next
    deletions: "refused", "dropped" (the connection), "silent" (no answer), "lied" (said to be done, and isn't), None. `late`:
    looks at its checkpoints that show none yet."""

    def __init__(self, client: local.ServiceClient):
        self.client, self.rest = client, client.create_rest_client()
        self.active: set[str] = set()
        self.faults: list[str | None] = []
        self.asked = self.late = 0

    def __call__(self, user_metadata: dict[str, str] | None = None, **options: Any) -> Any:
        assert user_metadata is not None
        self.active.add(user_metadata[remote.TAG])
        return self.client

    def list_checkpoints(self, training_run_id: str) -> API[types.CheckpointsListResponse]:
        if self.late:
            self.late -= 1
            return answered(types.CheckpointsListResponse(checkpoints=[]))
        return self.rest.list_checkpoints(training_run_id)

    def search_sessions(self, request: types.SessionSearchRequest) -> API[types.SessionSearchResponse]:
        assert request.statuses is not None and request.statuses[0].type == "active"
        found = [
            types.SessionSummary(session_id=name, created_at="2026-11-30T00:00:00Z", owner="", project_id="",
                                 checkpoints_count=0)
            for name in self.active if name == request.user_metadata[remote.TAG]
        ]  # fmt: skip
        return answered(types.SessionSearchResponse(sessions=found))

    def delete_checkpoint_from_tinker_path(self, tinker_path: str) -> Any:
        self.asked += 1
        match self.faults.pop(0) if self.faults else None:
            case "refused":
                return answered(tinker.RequestFailedError("not now", request_id="r", category="server"))
            case "dropped":
                raise httpx.ConnectError("hung up")
            case "silent":
                return Silent()
            case "lied":
                return answered(None)
        return self.rest.delete_checkpoint_from_tinker_path(tinker_path)

    def paths(self) -> set[str]:
        return {c.tinker_path for run in self.client.service.checkpoints.run_ids()
                for c in self.client.service.checkpoints.list(run)}  # fmt: skip


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with local.serving(tmp_path / "remote", seed=0) as client, pytest.MonkeyPatch.context() as monkeypatch:
        hosted = Service(client)
        monkeypatch.setattr(tinker, "ServiceClient", lambda **_: pytest.fail("the watchdog opened a session"))
        monkeypatch.setattr(tinker, "RestClient", lambda **_: hosted)
        yield hosted


def work(run: Path, service: Service, base: str, names: list[str], stage: str = "train-seed-0") -> list[str]:
    """What a stage creates: a session, and weights under these names. Returns their paths; the process then ends."""
    with remote.Book(run, stage, "tinker", "") as book:
        client = remote.noted(service, book)()
        training = client.create_lora_training_client(base).result()
        paths = [training.save_state(name).result().path for name in names]
        paths.append(training.save_weights_for_sampler("final").result().path)
        noted = {thing.where for thing in remote.things(run)}
        assert set(paths) <= noted and {thing.kind for thing in remote.things(run)} == {"session", "weights"}
        assert (
            watchdog.sweep(run, pauses=AT_ONCE) == {} and set(paths) <= service.paths()
        )  # it lives: nothing is touched
    service.active.clear()
    return paths


def test_what_a_dead_run_left_is_deleted_and_the_final_weights_are_kept(run: Path, service: Service, base: str) -> None:
    *rolling, state, final = work(run, service, base, ["000005", "000010", "final"])
    write_json(run / "train" / "seed-0" / "checkpoint.json", {"state": state, "sampler": final})
    assert watchdog.sweep(run, pauses=AT_ONCE) == {}
    assert service.paths() == {state, final}
    assert {thing.where for thing in remote.things(run)} == {state, final}
    assert service.asked == len(rolling)
    assert watchdog.listed(run).count("kept") == 2


def test_an_unfinished_training_keeps_what_it_goes_on_from(run: Path, service: Service, base: str) -> None:
    good, first, second, weights = work(run, service, base, ["000001", "000005", "000010"])
    record = Kept.file(run.parents[1] / "work" / "big" / "train-seed-0")
    write_json(record, asdict(Kept(update=10, state=second, replaced=[first], good=good, good_update=1)))
    assert watchdog.sweep(run, pauses=AT_ONCE) == {}
    assert service.paths() == {second, good}
    assert watchdog.sweep(run, abandon=True, pauses=AT_ONCE) == {}
    assert not service.paths() and not remote.things(run)
    record.write_text('{"update": 10, "sta')  # torn: who can't tell what is needed deletes nothing
    assert weights
    with pytest.raises(ValueError, match="Unterminated"):
        watchdog.sweep(run, pauses=AT_ONCE)


def test_a_trial_that_was_killed_goes_on_from_nothing(run: Path, service: Service, base: str) -> None:
    state, _ = work(run, service, base, ["000001"], "trial")
    write_json(Kept.file(run.parents[1] / "work" / "big" / "trial"), asdict(Kept(update=1, state=state)))
    assert watchdog.sweep(run, pauses=AT_ONCE) == {} and not service.paths()


def test_what_was_being_saved_at_the_kill_is_looked_for_again(run: Path, service: Service, base: str) -> None:
    work(run, service, base, [])
    *noted, _ = remote.path(run).read_bytes().splitlines(keepends=True)  # but not that the service answered
    remote.path(run).write_bytes(b"".join(noted))
    service.late = 1
    assert watchdog.sweep(run, pauses=THREE) == {}
    assert not service.paths() and not remote.things(run)


def test_nothing_is_abandoned_that_a_living_process_may_need(
    run: Path, service: Service, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state, weights = work(run, service, base, ["000005"])
    write_json(Kept.file(run.parents[1] / "work" / "big" / "train-seed-0"), asdict(Kept(update=5, state=state)))
    told = ["big", "--data", str(run.parents[1]), "--abandon"]
    with pytest.raises(SystemExit):
        watchdog.main(told)
    assert "say both" in capsys.readouterr().err
    with remote.Book(run, "train-seed-0", "tinker", "") as book:
        book.intend("session")
        with pytest.raises(SystemExit, match="'big' is going on"):
            watchdog.main([*told, "--delete"])
        assert service.paths() == {state, weights}


@pytest.mark.parametrize(
    "faults", [["refused"], ["dropped"], ["silent"], ["lied"], ["lied", "refused", "dropped", "silent"]]
)
def test_it_goes_on_until_the_service_shows_it_no_more(
    run: Path, service: Service, base: str, faults: list[str | None]
) -> None:
    work(run, service, base, [])
    service.faults = [*faults]
    left = watchdog.sweep(run, pauses=AT_ONCE * len(faults))
    reasons = {"refused": "not now", "dropped": "hung up", "silent": "TimeoutError", "lied": "still shows it"}
    assert [thing.kind for thing in left] == ["weights"] and reasons[faults[-1]] in next(iter(left.values()))
    assert [thing.kind for thing in remote.things(run)] == ["weights"]  # not crossed out
    assert watchdog.sweep(run, pauses=THREE) == {}
    assert not service.paths() and not remote.things(run)


def test_a_session_that_is_still_active_is_named(
    run: Path, service: Service, base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "PAUSES", AT_ONCE)
    work(run, service, base, [])
    service.active = {remote.things(run)[0].name}
    told = ["big", "--data", str(run.parents[1])]
    watchdog.main(told)
    assert capsys.readouterr().out.count("its process has ended") == 2
    with pytest.raises(SystemExit, match=r"left on the service:\n  session(.|\n)*still shows it") as stopped:
        watchdog.main([*told, "--delete"])
    assert stopped.value.code != 0 and not service.paths()
    service.active.clear()
    watchdog.main([*told, "--delete"])
    assert "nothing is left" in capsys.readouterr().out
    for name in ("small", ""):
        with pytest.raises(SystemExit, match=f"there is no run '{name}'"):
            watchdog.main([name, *told[1:]])


CREATES = """
import sys
from pathlib import Path
from lib.backends import remote
remote.watch = lambda run, owner: None
book = remote.Book(Path(sys.argv[1]), "train-seed-0", "tinker", "")
for number in range(100_000):
    book.intend("weights", f"tinker://run/weights/{number}")
    print(number, flush=True)
"""


def test_a_kill_loses_no_intention_and_frees_the_lock(run: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", CREATES, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    owner = remote.things(run)[0].owner
    assert not remote.gone(run, owner)
    os.kill(process.pid, signal.SIGKILL)
    said = 20 + len(process.stdout.read().splitlines())
    process.wait()
    assert remote.gone(run, owner) and remote.gone(run, owner, wait=True)
    with remote.lock_file(run, owner).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # another who asks
        assert remote.gone(run, owner)
    assert said <= len(remote.things(run)) <= said + 1


FILLS = """
import resource, signal, sys
from pathlib import Path
from lib.backends import remote
run = Path(sys.argv[1])
remote.path(run).parent.mkdir(parents=True)
remote.append(run, {"event": "opened"})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (remote.path(run).stat().st_size + 5,) * 2)
remote.append(run, {"event": "intended"})
"""


def test_what_a_full_disk_takes_only_part_of_is_not_created(run: Path) -> None:
    """The limit on a file's size does what a full disk does."""
    said = subprocess.run([sys.executable, "-c", FILLS, str(run)], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode and "make room, and start the step again" in said.stderr


@given(cut=st.integers(0, 400))
@hypothesis(max_examples=60)
def test_a_torn_line_hides_nothing_but_itself(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run = tmp_path_factory.mktemp("torn")
    (run / "spend").mkdir()
    lines: list[dict[str, Any]] = [{"event": "opened", "owner": "o", "backend": "tinker", "base_url": ""}]
    lines += [{"event": "intended", "thing": name, "owner": "o", "kind": "weights", "where": name} for name in "ab"]
    lines += [{"event": "made", "thing": "a", "where": "A"}, {"event": "gone", "thing": "b"}]
    for line in lines:
        remote.append(run, line)
    whole = remote.path(run).read_bytes()
    remote.path(run).write_bytes(whole[:cut])
    torn = remote.things(run)
    remote.append(run, lines[0])
    assert remote.things(run) == torn
    remote.append(run, {"event": "intended", "thing": "c", "owner": "o", "kind": "session", "where": ""})
    assert remote.things(run)[:-1] == torn and remote.things(run)[-1].name == "c"


WATCHED = """
import sys, time
from pathlib import Path
from lib.backends import remote
with remote.Book(Path(sys.argv[1]), "evaluate-base", "nowhere", "") as book:
    book.intend("session")
    print("made", flush=True)
    time.sleep(600)
"""


def test_the_watchdog_beside_a_run_acts_when_that_is_killed(tmp_path: Path) -> None:
    """It outlives the run, and says what it couldn't do: its backend here doesn't exist."""
    run = tmp_path / "data" / "runs" / "big"
    run.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", WATCHED, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "made\n"
    log = run / "spend" / "watchdog.log"
    assert log.read_text() == ""
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(600):
        if "No module named 'lib.backends.nowhere'" in log.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"the watchdog said only {log.read_text()!r}")


def test_what_is_asked_of_tinker_is_in_the_installed_sdk() -> None:
    for name, asked in {
        "list_checkpoints": ("run",),
        "delete_checkpoint_from_tinker_path": ("tinker://run/weights/a",),
        "search_sessions": (types.SessionSearchRequest(user_metadata={remote.TAG: "x"}),),
    }.items():
        inspect.signature(getattr(RestClient, name)).bind(None, *asked)
    inspect.signature(ServiceClient.__init__).bind(None, base_url="", user_metadata={})
    assert "model_id" in inspect.getsource(tinker.TrainingClient.__init__)
    assert "tinker_path" in types.Checkpoint.model_fields and "sessions" in types.SessionSearchResponse.model_fields


def test_a_metered_client_notes_through_both(run: Path, service: Service, base: str, tmp_path: Path) -> None:
    import paid_service

    from lib.backends import ledger, meter

    table = paid_service.table(tmp_path / "prices.yaml", base)
    with remote.Book(run, "train", "tinker", "") as book:
        made = meter.metered(
            remote.noted(service, book), provider="stand-in", model=base, ledger=ledger.path(run), stage="train",
            limit=1.0, table=table,
        )  # fmt: skip
        with made() as client:
            training = client.create_lora_training_client(base).result()
            state = training.save_state("a").result().path
        again = made().create_training_client_from_state(state).result()
        final = again.save_weights_for_sampler("b").result().path
        assert [t.where for t in remote.things(run) if t.kind == "weights"] == [state, final]
    assert json.loads(remote.path(run).read_text().splitlines()[0])["event"] == "opened"
