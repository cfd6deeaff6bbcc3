"""The record that everything downstream reads: one JSON line per rollout, kept so that a killed step loses nothing.

Training, evaluation, viewer, figures and report read only these files. A line goes to the operating system in one piece
as soon as its rollout ends, so it outlives the process that wrote it; what a kill or a full disk leaves of a line is
removed at the next start. Timings, which differ from run to run, stand in a sibling file under the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, KeysView
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lib.files import Appended, parsed

OUTCOMES = ("error", "strict", "form", "no_query", "wrong_turns", "wrong")  # the first that fits
PHASES = ("train", "dev", "evaluate")
DECODES = ("sampled", "greedy")
OUT_OF_TURNS = "max_turns"  # as the rollout's stop reason says it
ROWS_KEPT = 50  # of a scored result; its digest covers all of them


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout: what was asked, said, run and scored."""

    id: str
    run: str
    arm: str  # base, control, trained-<seed>; in training the arm that it makes
    seed: int
    phase: str  # one of PHASES
    update: int | None  # of training, from 0
    set: str  # the questions' split
    decode: str  # one of DECODES
    question: str  # its id
    structure: str | None  # None: a person's question
    hops: int
    sample: int  # from 0, within question and update
    messages: list[dict[str, Any]]  # {role, content, tool_calls?}, as sent and received, from the question on
    calls: list[dict[str, Any]]  # {query, shown, error}, one per use of the tool
    query: str | None  # the scored one: the last that ran without an error
    rows: list[list[Any]]  # its first ROWS_KEPT rows
    row_count: int
    digest: str | None  # of all its rows
    strict: bool
    lenient: bool
    lenient_literal: bool
    f1: float
    reward: float
    extra_columns: int
    outcome: str  # one of OUTCOMES
    stop: str  # why the rollout ended
    turns: int
    tokens: dict[str, int]  # {prompt, sampled}, summed over turns
    fault: str | None  # what went wrong outside the model's control

    def __post_init__(self) -> None:
        for name, known in (("outcome", OUTCOMES), ("phase", PHASES), ("decode", DECODES)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"episode {self.id}: {name} is {getattr(self, name)!r}, must be one of {', '.join(known)}"
                )
        if len(self.rows) > ROWS_KEPT:
            raise ValueError(f"episode {self.id}: {len(self.rows)} rows, keep the first {ROWS_KEPT}")

    def line(self) -> bytes:
        """The episode as a JSON line; keys sorted, as in the study's other files, so that rewriting one changes no byte."""
        return _line({name: getattr(self, name) for name in _FIELDS})

    @classmethod
    def from_line(cls, line: bytes) -> Episode:
        """The inverse of `line`. ValueError says what is wrong with it."""
        record = parsed(line)
        if record.keys() != set(_FIELDS):
            missing, unknown = sorted(set(_FIELDS) - record.keys()), sorted(record.keys() - set(_FIELDS))
            raise ValueError(f"no episode: missing fields {missing}, unknown fields {unknown}")
        return cls(**record)


_FIELDS = tuple(field.name for field in fields(Episode))


def outcome(*, fault: str | None, strict: bool, lenient: bool, query: str | None, stop: str) -> str:
    """The first of OUTCOMES that fits.

    An episode that failed outside the model's control is no evidence, whatever its score; a right answer counts even
    if the turns ran out; of the wrong ones, those that ran no query come before those that ran out of turns.
    """
    if fault is not None:
        return "error"
    if strict:
        return "strict"
    if lenient:
        return "form"
    if query is None:
        return "no_query"
    return "wrong_turns" if stop == OUT_OF_TURNS else "wrong"


def read(path: Path) -> list[Episode]:
    """All episodes of a file. ValueError names the file and the line that is damaged, cut off, or there twice."""
    return [episode for _, episode in _numbered(path)]


def read_timings(path: Path) -> dict[str, dict[str, Any]]:
    """Timings by episode id; an episode whose step was killed right after it may have none."""
    timings = {}
    for number, line in _lines(path):
        with _naming(path, number):
            timing = parsed(line)
            timings[timing.pop("id")] = timing
    return timings


class Writer:
    """Appends episodes to a file; one process at a time.

    At the start a last line that was cut off is removed (`repaired`: its bytes) and the ids that are there are in
    `done`, so that a step that was killed goes on with the rest:

        with Writer(path, timings) as writer:
            for ... in work:
                if id not in writer.done:
                    writer.write(episode, {"seconds": ...})
            writer.finish()

    Raises BlockingIOError if another process writes the file, ValueError if a line in it is damaged.
    """

    def __init__(self, path: Path, timings: Path | None = None):
        self.path = Path(path)
        with ExitStack() as opened:
            self._file = Appended(self.path)
            opened.callback(self._file.close)
            self._timings = None if timings is None else Appended(Path(timings))
            if self._timings is not None:
                opened.callback(self._timings.close)
            self.repaired = self._file.repair()
            self._places: dict[str, tuple[int, int]] = {}  # id -> offset and length of its line
            offset = 0
            for number, line in _lines(self.path):
                with _naming(self.path, number):
                    self._note(Episode.from_line(line).id, offset, len(line))
                offset += len(line)
            if self._timings is not None:
                self._timings.repair()
            self._opened = opened.pop_all()

    @property
    def done(self) -> KeysView[str]:
        """Ids of the episodes in the file."""
        return self._places.keys()

    def write(self, episode: Episode, timing: dict[str, Any] | None = None) -> None:
        """Append an episode (and its timings). ValueError for an id that is there already."""
        line = episode.line()
        self._note(episode.id, self._file.size, len(line))
        try:
            self._file.append(line)
        except OSError:
            del self._places[episode.id]
            raise
        if timing is not None and self._timings is not None:
            self._timings.append(_line({"id": episode.id, **timing}))

    def finish(self) -> None:
        """Sort the file by id, atomically, and close it: its bytes no longer depend on which rollout ended first."""
        self._file.rewrite(self._places[name] for name in sorted(self._places))
        self.close()

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, name: str, offset: int, length: int) -> None:
        if name in self._places:
            raise ValueError(f"{self.path}: episode {name} is there already; ask `done` before a rollout is made")
        self._places[name] = offset, length


def _line(record: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(record, sort_keys=True, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # half a surrogate pair, as a model's escapes may hold it
        return (json.dumps(record, sort_keys=True) + "\n").encode()


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open(path, "rb") as file:  # bytes, since text would also be split at other line ends than \n
        yield from enumerate(file, 1)


def _numbered(path: Path) -> Iterator[tuple[int, Episode]]:
    first_seen: dict[str, int] = {}
    for number, line in _lines(path):
        with _naming(path, number):
            if not line.endswith(b"\n"):
                raise ValueError("cut off, since its step was killed or is still writing")
            episode = Episode.from_line(line)
            if episode.id in first_seen:
                raise ValueError(f"episode {episode.id} is in line {first_seen[episode.id]} already")
        first_seen[episode.id] = number
        yield number, episode


@contextmanager
def _naming(path: Path, number: int) -> Iterator[None]:
    try:
        yield
    except ValueError as e:
        way_out = "remove that line and run its step again, which makes the episode anew"
        raise ValueError(f"{path}, line {number}: {e}; {way_out}") from e
