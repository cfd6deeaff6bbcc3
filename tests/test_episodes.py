"""A step may be killed at any moment: what was written stays, once, and nothing half-written is taken for a whole one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.episodes import Episode, Writer, outcome, read, read_timings

REPOSITORY = Path(__file__).parent.parent


def episode(name: str = "e", **changes) -> Episode:
    fields = {
        "id": name,
        "run": "tiny",
        "arm": "control",
        "seed": 0,
        "phase": "evaluate",
        "update": None,
        "set": "held_out_instances",
        "decode": "sampled",
        "question": "q1",
        "structure": "s1",
        "hops": 2,
        "sample": 0,
        "messages": [{"role": "user", "content": "How many?\nReally?"}],
        "calls": [{"query": "RETURN 1", "shown": "1", "error": None}],
        "query": "RETURN 1",
        "rows": [[1, None, "ä", 0.5, True]],
        "row_count": 1,
        "digest": "0" * 64,
        "strict": True,
        "lenient": True,
        "lenient_literal": True,
        "f1": 1.0,
        "reward": 1.0,
        "extra_columns": 0,
        "outcome": "strict",
        "stop": "stop",
        "turns": 2,
        "tokens": {"prompt": 10, "sampled": 5},
        "fault": None,
    }
    return Episode(**{**fields, **changes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evaluate" / "control.jsonl"


def write(path, *names):
    with Writer(path) as writer:
        for name in names:
            writer.write(episode(name))


# --- the record

text = st.text(st.characters(codec=None), max_size=20)  # surrogates and every line end included
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)


@given(text, st.none() | text, st.lists(st.lists(json_values, max_size=3), max_size=3), st.floats(0, 1))
def test_round_trip(said, query, rows, f1):
    e = episode(messages=[{"role": "assistant", "content": said}], query=query, rows=rows, f1=f1)
    line = e.line()
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert Episode.from_line(line) == e and json.loads(line) == asdict(e)


def test_infinity_survives():
    (a, b, c) = Episode.from_line(episode(rows=[[float("inf"), float("-inf"), float("nan")]]).line()).rows[0]
    assert (a, b) == (float("inf"), float("-inf")) and c != c


def test_values_that_no_episode_has_are_refused():
    with pytest.raises(ValueError, match="episode e: outcome is 'right', must be one of error, strict, form"):
        episode(outcome="right")
    with pytest.raises(ValueError, match="phase is 'test'"):
        episode(phase="test")
    with pytest.raises(ValueError, match="decode is 'beam'"):
        episode(decode="beam")
    with pytest.raises(ValueError, match="51 rows, keep the first 50"):
        episode(rows=[[1]] * 51)


def test_lines_of_another_shape_are_refused():
    record = asdict(episode())
    del record["turns"]
    with pytest.raises(ValueError, match=r"missing fields \['turns'\], unknown fields \['speed'\]"):
        Episode.from_line(json.dumps({**record, "speed": 1}).encode())


@pytest.mark.parametrize(
    ("expected", "facts"),
    [
        ("error", {"fault": "server gone", "strict": True, "lenient": True}),
        ("strict", {"strict": True, "lenient": True, "stop": "max_turns"}),
        ("form", {"lenient": True, "stop": "max_turns"}),
        ("no_query", {"query": None, "stop": "max_turns"}),
        ("no_query", {"query": None}),
        ("wrong_turns", {"stop": "max_turns"}),
        ("wrong", {"stop": "max_tokens"}),
        ("wrong", {}),
    ],
)
def test_the_first_outcome_that_fits(expected, facts):
    usual = {"fault": None, "strict": False, "lenient": False, "query": "RETURN 1", "stop": "stop"}
    assert outcome(**{**usual, **facts}) == expected


# --- the file


def test_what_was_written_is_read_and_sorted_at_the_end(path):
    with Writer(path) as writer:
        for name in ("c", "a", "b"):
            writer.write(episode(name))
            assert [e.id for e in read(path)][-1] == name  # there at once, without a flush by the caller
        writer.finish()
    assert [e.id for e in read(path)] == ["a", "b", "c"]
    one = path.read_bytes()
    path.unlink()
    write(path, "b", "a")
    with Writer(path) as writer:
        assert set(writer.done) == {"a", "b"}
        writer.write(episode("c"))
        writer.finish()
    assert path.read_bytes() == one
    assert sorted(p.name for p in path.parent.iterdir()) == ["control.jsonl"]


def test_finishing_twice_changes_nothing(path):
    write(path, "b", "a")
    Writer(path).finish()
    once = path.read_bytes()
    Writer(path).finish()
    assert path.read_bytes() == once


def test_an_id_is_written_once(path):
    with Writer(path) as writer:
        writer.write(episode("a"))
        with pytest.raises(ValueError, match="episode a is there already"):
            writer.write(episode("a"))
    assert len(read(path)) == 1


@given(st.data())
@settings(max_examples=60)
def test_a_torn_last_line_is_removed_and_written_again(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("torn") / "e.jsonl"
    write(path, "a", "b", "c")
    whole = path.read_bytes()
    keep = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:keep])
    with Writer(path) as writer:
        complete = whole[: keep + 1].count(b"\n")  # a line that only lacks its end is whole
        assert list(writer.done) == ["a", "b", "c"][:complete]
        for name in ("a", "b", "c"):
            if name not in writer.done:
                writer.write(episode(name))
    assert path.read_bytes() == whole


def test_a_long_torn_line_is_found(path):
    write(path, "a")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "' + b"x" * 300_000)
    with Writer(path) as writer:
        assert writer.repaired == 300_008 and list(writer.done) == ["a"]
    assert path.read_bytes() == whole


def test_reading_a_file_that_is_cut_off_is_an_error(path):
    write(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"control\.jsonl, line 2: cut off"):
        read(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"\x00\x00\x00", "Expecting value"),
        (b'{"id": "a"', "delimiter"),
        (b"\xff{}", "codec"),
        (b"[1]", "no JSON object"),
    ],
)
@pytest.mark.parametrize("use", [read, Writer])
def test_a_damaged_line_is_named(path, use, damage, message):
    write(path, "a", "b", "c")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
    with pytest.raises(
        ValueError, match=rf"control\.jsonl, line 2: .*{message}.*; remove that line and run its step again"
    ):
        use(path)
    with pytest.raises(ValueError, match="line 2"):  # and the lock was given back
        Writer(path)


@pytest.mark.parametrize("use", [read, Writer])
def test_an_episode_that_is_there_twice_is_named(path, use):
    write(path, "a", "b")
    path.write_bytes(path.read_bytes() + episode("a").line())
    with pytest.raises(ValueError, match=r"line 3: .*episode a is"):
        use(path)


def test_a_full_disk_takes_the_line_back(path):
    script = """
import resource, signal, sys
from dataclasses import replace
from lib.episodes import Episode, Writer
one = Episode.from_line(sys.argv[2].encode())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
with Writer(sys.argv[1]) as writer:
    writer.write(replace(one, id="a"))
    try:
        writer.write(replace(one, id="b", messages=[{"role": "user", "content": "x" * 3000}]))
    except OSError as e:
        assert "run the step again" in str(e) and "control.jsonl" in str(e), e
    else:
        raise AssertionError("no error")
    assert list(writer.done) == ["a"]
    writer.write(replace(one, id="c"))
"""
    command = [sys.executable, "-c", script, str(path), episode().line().decode()]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    assert [e.id for e in read(path)] == ["a", "c"]


# --- processes

WRITING = """
import sys
from dataclasses import replace
from pathlib import Path
from lib.episodes import Episode, Writer
size, count = int(sys.argv[2]), int(sys.argv[3])
one = Episode.from_line(sys.argv[4].encode())
with Writer(Path(sys.argv[1]), Path(sys.argv[1] + ".timings")) as writer:
    print("ready", flush=True)
    for n in range(count):
        if f"{n:05d}" not in writer.done:
            said = [{"role": "user", "content": "x" * size}]
            writer.write(replace(one, id=f"{n:05d}", messages=said), {"seconds": n})
            print(n, flush=True)
    writer.finish()
"""


def writing(path, size, count):
    command = [sys.executable, "-c", WRITING, str(path), str(size), str(count), episode().line().decode()]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("size", "count"), [(100, 4000), (2_000_000, 40)])
def test_a_killed_step_goes_on_without_loss_or_repetition(path, size, count):
    said = []
    for kills in range(1, 4):
        step = writing(path, size, count)
        said += [step.stdout.readline() for _ in range(3 + kills)]
        time.sleep(0.003 * kills)  # somewhere in the middle of a line, with luck
        step.kill()
        said += step.communicate()[0].splitlines()
        assert step.returncode == -signal.SIGKILL
    confirmed = {f"{int(line):05d}" for line in said if line.strip().isdigit()}
    with Writer(path) as writer:
        assert confirmed <= set(writer.done)
    assert writing(path, size, count).wait() == 0
    assert [e.id for e in read(path)] == [f"{n:05d}" for n in range(count)]
    timings = read_timings(Path(f"{path}.timings"))
    assert all(timings[name] == {"seconds": int(name)} for name in timings) and len(timings) >= count - 3


def test_two_writers_collide_clearly(path):
    step = writing(path, 100, 0)
    with Writer(path):
        assert step.wait() == 1
        assert "another process writes this file; wait until it ends, or stop it" in step.stderr.read()
        with pytest.raises(BlockingIOError, match=r"control\.jsonl"):
            Writer(path)
    assert writing(path, 100, 0).wait() == 0


def test_a_writer_that_finishes_never_leaves_the_next_one_on_its_old_file(path):
    first = Writer(path)
    first.write(episode("b"))
    first.write(episode("a"))
    opened = os.open(path, os.O_RDWR)  # what another process may have opened just before
    first.finish()
    assert not os.path.samestat(os.fstat(opened), os.stat(path))
    os.close(opened)
    with Writer(path) as second:
        second.write(episode("c"))
    assert [e.id for e in read(path)] == ["a", "b", "c"]


def test_timings_stand_in_a_sibling_of_their_own(path, tmp_path):
    timings = tmp_path / "timings" / "control.jsonl"
    with Writer(path, timings) as writer:
        writer.write(episode("a"), {"seconds": 1.5})
        writer.write(episode("b"))
    timings.write_bytes(timings.read_bytes() + b'{"id": "c", "sec')
    with Writer(path, timings) as writer:
        writer.write(replace(episode("c"), sample=1), {"seconds": 2.5})
    assert read_timings(timings) == {"a": {"seconds": 1.5}, "c": {"seconds": 2.5}}
    assert b"seconds" not in path.read_bytes()
