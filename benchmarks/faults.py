"""The fault campaign: whatever fails, and however often the study is killed, it ends as if nothing had happened.

    python benchmarks/faults.py                # 500 faults; prints what was found
    python benchmarks/faults.py --write        # and writes docs/faults.md

A miniature study (training, and the arms base, control and trained-0) is played on a real Neo4j server and on a service that
computes for real, asks money and fails by a seeded plan: tests/faulty_service.py. Its process is killed now and then, and
where a step gives up it is started again, as a person would. What is left in the end is compared with what an undisturbed
study leaves, and the service's books with the study's.

Two kinds of rounds take turns. In `mended` ones no rollout may be lost (train.faults.most is 0): an update that loses any stops
the step. In `lossy` ones some of practice's samples fail for good; they are compared with a study that loses just these.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads don't survive a fork
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tqdm import tqdm

from lib import graph
from lib.backends import ledger, remote
from lib.episodes import Episode, read
from lib.files import read_jsonl, write_text
from lib.graph import server
from lib.settings import ROOT, Settings
from tests import faulty_service
from tests.faulty_service import AFTER, KILLS, KINDS, SPOILT, Plan
from tests.faulty_study import (
    DONE,
    FAULTS,
    KILLED,
    ROLLOUTS,
    STOPPED,
    UPDATES,
    Database,
    books_of,
    copied,
    forked,
    play,
    prepare,
)

PAGE = ROOT / "docs" / "faults.md"
LOST = 0.05  # of practice's samples, in a lossy round
GROUPED = {
    "sample": "sample", "forward_backward": "train", "optim_step": "train", "save_state": "save",
    "save_weights_for_sampler": "save", "save_weights_and_get_sampling_client": "save",
    "delete_checkpoint_from_tinker_path": "delete",
}  # fmt: skip
OPEN = "open"  # a session: all other calls
ENDINGS = MENDED, WITHOUT, LOSSES, AGAIN, WENT_ON = (
    "mended within the tries", "done without", "rollout lost", "step stopped, started again", "process killed, gone on",
)  # fmt: skip


# ------------------------------------------------------------ what is left


def left(study: Settings) -> dict[str, bytes]:
    """What must be the same to the byte. The service names its checkpoints by its sessions: their content is compared."""
    trained = study.train_dir(0)
    kept = [trained / name for name in ("episodes.jsonl", "dev.jsonl", "updates.jsonl")]
    found = {file.name: file.read_bytes() for file in [*kept, *(study.episodes(arm) for arm in study.arms)]}
    for kind, path in json.loads((trained / "checkpoint.json").read_text()).items():
        found[kind] = (study.data / "service" / (path.removeprefix("tinker://") + ".safetensors")).read_bytes()
    return found


def episodes(study: Settings) -> list[Episode]:
    trained = study.train_dir(0)
    names = [trained / "episodes.jsonl", trained / "dev.jsonl", *(study.episodes(arm) for arm in study.arms)]
    return [episode for name in names for episode in read(name)]


def key(episode: Episode) -> str:
    """The rollout's, as the service hears of it."""
    return f"{episode.run}/{episode.seed}/{episode.id}"


def audit(study: Settings, ends: list[str]) -> dict[str, int]:
    """Holds the service's books against the study's; every figure under a name that ends in `!` must be 0."""
    lines, all_episodes = faulty_service.read(books_of(study)), episodes(study)
    samples = [line for line in lines if line.get("call") == "sample"]
    kept: dict[str, int] = {}
    found: Counter[str] = Counter()
    for line in lines:
        if line["event"] == "kept":
            found["answers kept twice!"] += line["name"] in kept
            kept[line["name"]] = line["tokens"]
        elif line["event"] == "asked" and line["call"] == "sample":
            found["answers asked for again!"] += line["name"] in kept
    in_life = {(line["life"], line["name"]) for line in lines if line["event"] == "kept"}
    for line in samples:
        if line["event"] != "done":
            continue
        found["samples paid for"] += 1
        this = line["life"], line["name"]
        if line["fault"] in (*SPOILT, AFTER):
            found["samples paid for whose answer was lost or spoilt"] += 1
        elif this not in in_life and line["seconds"] > FAULTS.answer_within:
            found["samples paid for whose answer came too late"] += 1
        elif this not in in_life:
            found["samples paid for whose answer was on its way at a kill"] += ends[line["life"]] == KILLED
            found["answers lost without a kill!"] += ends[line["life"]] != KILLED
    sampled: dict[str, int] = defaultdict(int)
    for name, tokens in kept.items():
        sampled[name.rpartition("/")[0]] += tokens
    went_on = _went_on(study)
    by_key = {key(episode): episode for episode in all_episodes}
    for rollout, tokens in sampled.items():
        if (episode := by_key.get(rollout)) is not None:
            found["episodes with other tokens than were answered!"] += episode.tokens["sampled"] != tokens
        elif int(rollout.rsplit("/", 1)[1]) >= ROLLOUTS and int(rollout.split("/")[4][1:]) >= went_on:
            found["rollouts that a restart made needless"] += 1
        else:
            found["rollouts answered and in no episode!"] += 1
    found["episodes without an answer!"] += sum(
        episode.fault is None and key(episode) not in sampled for episode in all_episodes
    )
    found["faults of practice in a score!"] += _in_a_score(study, all_episodes)
    found["meter below the bill!"] += sum(line["dollars"] > line["upper"] for line in lines if "upper" in line)
    found["meter below the bill!"] += faulty_service.billed(lines) / 1e9 > ledger.read(ledger.path(study.run_dir)).upper
    noted = {thing.where for thing in remote.things(study.run_dir)}
    files = (study.data / "service").glob("*/*/*.safetensors")
    there = {f"tinker://{'/'.join(file.with_suffix('').parts[-3:])}" for file in files}
    found["checkpoints at the service that nobody noted!"] += len(there - noted)
    return dict(found)


def _went_on(study: Settings) -> int:
    """The first update from which an interrupted practice went on."""
    record = study.train_dir(0) / "interruptions.jsonl"
    return min((line["update"] for line in read_jsonl(record)), default=UPDATES) if record.exists() else UPDATES


def _in_a_score(study: Settings, all_episodes: list[Episode]) -> int:
    """How many lost rollouts have a score, are another phase's than practice, or are part of an update's figures."""
    lost = [episode for episode in all_episodes if episode.fault is not None]
    wrong = sum(e.outcome != "error" or e.reward != 0 or e.phase != "train" for e in lost)
    for line in read_jsonl(study.train_dir(0) / "updates.jsonl"):
        of_it = [e for e in all_episodes if e.phase == "train" and e.update == line["update"]]
        real = [e.reward for e in of_it if e.fault is None]
        wrong += line["rollouts_lost"] != len(of_it) - len(real)
        wrong += abs(line["reward_mean"] - sum(real) / len(real)) > 1e-12
    return wrong


def endings(study: Settings, ends: list[str]) -> Counter[tuple[str, str, str]]:
    """How often a kind of fault was met by a group of calls, and how that ended."""
    lines = faulty_service.read(books_of(study))
    gone = {key(episode) for episode in episodes(study) if episode.fault is not None}
    answered = {(line["life"], line["call"], line["name"]) for line in lines if line["event"] == "answered"}
    met = [line for line in lines if line["event"] == "asked" and line["fault"]]
    failures = Counter((line["life"], line["call"], line["name"]) for line in met)
    found: Counter[tuple[str, str, str]] = Counter()
    for line in met:
        this = line["life"], line["call"], line["name"]
        end = ends[line["life"]]
        if line["fault"] in KILLS:
            ending = WENT_ON
        elif this in answered:
            ending = MENDED if failures[this] < FAULTS.tries else WITHOUT
        elif line["name"].rpartition("/")[0] in gone:
            ending = LOSSES
        else:
            ending = {KILLED: WENT_ON, STOPPED: AGAIN, DONE: WITHOUT}[end]
        found[line["fault"], GROUPED.get(line["call"], OPEN), ending] += 1
    return found


# ------------------------------------------------------------ the campaign


def campaign(number: int, seed: int, folder: Path, graph_folder: Path, database: Database) -> dict[str, Any]:
    """Plays rounds until so many faults were injected, besides those for which rollouts are lost; returns what was found."""
    template = folder / "template"
    template.mkdir()
    if forked(partial(prepare, template, graph_folder), folder / "prepare.txt") != DONE:
        raise RuntimeError(f"no study could be made:\n{(folder / 'prepare.txt').read_text()[-4000:]}")
    found: dict[str, Any] = {
        "rounds": 0,
        "lives": Counter(),
        "endings": Counter(),
        "checks": Counter(),
        "compared": 0,
        "other bytes!": [],
    }
    references: dict[str, dict[str, bytes]] = {}
    met, bar = 0, tqdm(total=number, unit="fault")
    for here in _rounds(folder):
        lossy = here.name.startswith("lossy")
        least = number // 4 if found["rounds"] == 0 else number  # of few faults, too, each kind of round gets some
        chosen = Plan(f"{seed} {here.name}", FAULTS.tries, least - met, LOST if lossy else 0.0)
        # which samples are lost hangs on the round's seed, so each lossy one has a reference of its own
        name = here.name if lossy else "mended"
        if name not in references:
            still = copied(template, folder / f"{name}-undisturbed", lossy)
            play(still, dataclasses.replace(chosen, most=0), database)
            references[name] = left(still)
        study = copied(template, here, lossy)
        ends = play(study, chosen, database, partial(_show, bar, study, met))
        met += faulty_service.injected(faulty_service.read(books_of(study)))
        result = left(study)
        found["rounds"] += 1
        found["lives"].update(ends)
        found["endings"].update(endings(study, ends))
        found["checks"].update(audit(study, ends))
        found["compared"] += len(result)
        found["other bytes!"] += [f"{here.name}: {what}" for what in result if result[what] != references[name][what]]
        if met >= number:
            break
    bar.close()
    return found


def _show(bar: Any, study: Settings, before: int) -> None:
    bar.update(before + faulty_service.injected(faulty_service.read(books_of(study))) - bar.n)


def _rounds(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        yield folder / f"{'lossy' if number % 3 == 0 else 'mended'}-{number}"
        number += 1


def wrong(found: dict[str, Any]) -> list[str]:
    """What must not be."""
    return [*found["other bytes!"], *(f"{name} {n}" for name, n in found["checks"].items() if name.endswith("!") and n)]


def page(found: dict[str, Any], seed: int) -> str:
    """docs/faults.md."""
    endings, lives, checks = found["endings"], found["lives"], found["checks"]
    places = [*dict.fromkeys(GROUPED.values()), OPEN]
    rows = [
        [kind, *(sum(n for (k, p, _), n in endings.items() if (k, p) == (kind, place)) for place in places),
         *(sum(n for (k, _, e), n in endings.items() if (k, e) == (kind, ending)) for ending in ENDINGS)]
        for kind in KINDS
    ]  # fmt: skip
    total = ["**all**", *(sum(column) for column in list(zip(*rows, strict=True))[1:])]
    title = ["fault", *places, *ENDINGS]
    table = [title, ["---", *["--:"] * (len(title) - 1)], *rows, total]
    figures = [[name.removesuffix("!"), n, "0" if name.endswith("!") else ""] for name, n in sorted(checks.items())]
    return PROSE.format(
        seed=seed,
        injected=sum(endings.values()),
        rounds=found["rounds"],
        killed=lives[KILLED],
        stopped=lives[STOPPED],
        compared=found["compared"],
        other=len(found["other bytes!"]),
        table="\n".join("| " + " | ".join(map(str, row)) + " |" for row in table),
        checks="\n".join("| " + " | ".join(map(str, row)) + " |" for row in figures),
    )


PROSE = """# The fault campaign

Written by `python benchmarks/faults.py --write`, seed {seed}. A miniature study was played {rounds} times on a real Neo4j
server and a service that computes for real, asks money and fails by a plan. {injected} faults were injected; the study's process
was killed {killed} times, and {stopped} times a step gave up and was started again. Of {compared} files (episodes, dev questions,
updates, checkpoints, evaluation) **{other}** differ from those of an undisturbed study.

What each fault met (samples, training passes and steps, saving, deleting, opening sessions), and how it ended:

{table}

- *done without*: a state that can't be saved is left out, and a deletion comes later.
- *rollout lost*: marked, counted and in no mean; such rounds are compared with a study that loses the same rollouts.
- *session expired*: all later calls of that session are refused, too, and not counted here.
- *answer lost*, *never answered*, *half an answer*, *no numbers*, *killed after*: the service did its work and was paid for it.

The service's books, which know nothing of the meter, beside the study's:

| | found | must be |
|---|--:|--:|
{checks}

What can't be the same: names of checkpoints and sessions, which the service gives; `interruptions.jsonl`, which says where the
study was interrupted; times; and how many answers are on their way when a process is killed, which can be paid for twice, as no
client can write down what hasn't arrived. The stand-in draws by the rollout's name, so that an answer that is asked for again is
the same; a hosted service draws anew. A query under which the database dies twice, the second time alone, counts as the model's
own mistake, so each life of the study meets one dead database at most.
"""


@contextlib.contextmanager
def _server(given: list[str] | None, folder: Path) -> Iterator[tuple[Path, Database]]:
    """A graph's folder and the server that holds it."""
    if given:
        built, uri, pid = given
        yield Path(built), Database(uri, Path(pid))
        return
    graph.build("twin", 0.015, 0, "", folder / "graph")
    with server.running(folder / "graph") as uri:
        yield folder / "graph", Database(uri, server._replaceable[uri])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500, help="to inject, besides those for which rollouts are lost")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--server", nargs=3, metavar=("GRAPH", "URI", "PID"), help="one that runs, with its pid file")
    chosen = parser.parse_args()
    tqdm.monitor_interval = 0  # its thread wouldn't survive a fork
    with tempfile.TemporaryDirectory() as folder, _server(chosen.server, Path(folder)) as (built, database):
        found = campaign(chosen.faults, chosen.seed, Path(folder), built, database)
    if chosen.write:
        write_text(PAGE, page(found, chosen.seed))
    print(json.dumps({**found, "endings": Counter(ending for *_, ending in found["endings"].elements())}, indent=1))
    if problems := wrong(found):
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
