"""Makes the study's questions: values from the graph into structures, reference rows by execution, and files by split."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib import loop
from lib.files import read_jsonl, write_json, write_jsonl
from lib.graph import mapping, server
from lib.graph.model import read_schema
from lib.graph.query import Reader
from lib.questions import any_schema, enumerated
from lib.questions.audit import audit
from lib.questions.demonstrations import fill
from lib.questions.draw import Slots, anchors, candidates
from lib.questions.leaks import leaks, vocabulary
from lib.questions.pools import Pools, read_pools
from lib.questions.rewriter import rewriter
from lib.questions.signature import hops
from lib.questions.structures import DEV, HELD_OUT, SLOT, STRUCTURES, TRAIN, Structure
from lib.questions.supply import APART_SET, PART, SPLITS, Instance, Line, Supply, question_line, useless
from lib.questions.verify import Verifier

WORDINGS = dict(zip(SPLITS, (TRAIN, DEV, HELD_OUT, range(8)), strict=True))
DEMONSTRATED = 24  # different queries of a structure among the demonstrations; their values are drawn anew at each use
SLOT_AND_TEXT = re.compile(r"(\{[a-z]+\d?\})")
SMALL = {"train": 1024, "dev": 160, "held_out_instances": 480, APART_SET: 96, "demonstrations": 3000}
EVERY = sys.maxsize
TRIVIAL = (8, 16)  # instances looked at before a structure is called trivial: more where more are wanted


def generate(
    uri: str, settings: dict[str, Any], seed: int, out: Path, graph: Path | None = None, structures: str = "small"
) -> dict[str, Any]:
    """Write train, dev, held_out_instances, held_out_structures and demonstrations (.jsonl) and summary.json to `out`.

    settings: how many of each of these five, by name. graph: folder of the graph behind `uri`; one that isn't a
    community's is asked about in structures made from its schema. The same graph, settings and seed give the same bytes. Where a
    structure can't be filled as often as wanted, others take its place if they can; the summary counts it all, and is
    returned. structures: "small" (these), or "all" that the graph's schema gives: see `_large`; then `graph` is needed.

    Raises ValueError for a graph that fills no structure for training, lib.graph.query.Unavailable for a lost database.
    """
    if structures == "all" and graph is not None:
        return _large(uri, read_schema(graph), settings, seed, Path(out))
    if structures != "small":
        raise ValueError(f"structures = {structures!r}: known are 'small' and, with a graph's folder, 'all'")
    foreign = None if graph is None or mapping.of(graph) is mapping.community() else read_schema(graph)
    return loop.run(_generate(uri, settings, seed, Path(out), foreign))


# ---------------------------------------------------------------- all structures


def _large(uri: str, schema: dict[str, Any], settings: dict[str, Any], seed: int, out: Path) -> dict[str, Any]:
    """Write what lib.questions.enumerated makes, cut to size, with demonstrations.

    settings: as many of each file as it says at most, all that there are where it doesn't; `training`: None, or {questions,
    structures} to draw from train (see enumerated.draw_training). What is drawn is what will be practised, so dev questions
    and held-out instances that are cut to size keep to its structures. `most`: structures to try, drawn by the seed (0: all).
    `rewriter`: None, or {model, url} of the language model that puts them into other words (see rewriter.py).
    """
    other_words = rewriter(settings.get("rewriter"), out.parent / "work")  # what it lacks is said before hours of work
    drawn = settings.get("training") or {"questions": EVERY, "structures": EVERY}
    wanted = {"training": drawn["questions"], "training_structures": drawn["structures"]}
    summary = enumerated.generate_all(uri, schema, wanted | {"most": settings.get("most", 0)}, seed, out)
    structures = {line["id"]: line for line in read_jsonl(out / "structures.jsonl")}
    files = {split: read_jsonl(out / f"{split}.jsonl") for split in SPLITS}
    files["train"] = files["train"][: settings.get("train")]
    training = enumerated.draw_training(files["train"], drawn["questions"], drawn["structures"], seed)
    practised = {q["structure"] for q in training}
    for split in SPLITS[1:]:
        if most := settings.get(split):
            files[split] = [q for q in files[split] if split == APART_SET or q["structure"] in practised][:most]
    if other_words:
        summary |= other_words.rewrite(files, lambda q: slots_of(structures[q["structure"]]["query"], q["query"]))
    demonstrations = worked(training, structures, settings.get("demonstrations") or 0, seed)
    for name, lines in (files | {"training": training, "demonstrations": demonstrations}).items():
        write_jsonl(out / f"{name}.jsonl", lines)
    summary |= _cut_to_size(files, training, demonstrations, seed)
    write_json(out / "summary.json", summary)
    return summary


def _cut_to_size(
    files: dict[str, list[Line]], training: list[Line], demonstrations: list[Line], seed: int
) -> dict[str, Any]:
    """What the summary of the large set says otherwise once it is cut."""
    evaluated = {split: files[split] for split in SPLITS[1:]}
    every = files | {"training": training, "demonstrations": demonstrations}
    common = audit({"train": files["train"], "training": training}, evaluated, seed)
    return {
        "counts": {name: len(lines) for name, lines in every.items()},
        "hops": {name: _count(lines, "hops") for name, lines in every.items()},
        "training": enumerated.shares(training),
        "train": enumerated.shares(files["train"]),
        "evaluation": {split: enumerated.shares(lines) for split, lines in evaluated.items()},
        "common": common,
        "leaks": common,
    }


def worked(train: list[Line], structures: dict[str, Line], number: int, seed: int) -> list[Line]:
    """`number` demonstrations of the large set: each question in each training wording of its structure before any is
    repeated, the structures in turn. In words that a lesson fills anew: values stand in them as they stand in the query.

    train: questions of the split. structures: lines of structures.jsonl, by id.
    """
    mine: dict[str, list[Line]] = {}
    for q in train:
        mine.setdefault(q["structure"], []).append(q)
    turns = []
    for i, some in sorted(mine.items()):
        wordings = structures[i]["wordings"]
        n = len(enumerated.wordings_of("train", len(wordings)))
        each = range(-(-number // len(mine)))
        turns.append([(some[k % len(some)], wordings[(k + k // len(some)) % n]) for k in each])
    drawn = islice(_in_turn(turns, f"demonstrations {seed}"), number)
    return [_worked(f"demonstration-{k:04d}", q, wording, structures) for k, (q, wording) in enumerate(drawn, 1)]


def _worked(name: str, question: Line, wording: str, structures: dict[str, Line]) -> Line:
    template = structures[question["structure"]]["query"]
    slots = slots_of(template, question["query"])
    kept = {key: question[key] for key in ("query", "structure", "hops", "rows")}
    return {
        "id": name,
        "question": fill(wording, slots),
        "slots": slots,
        "template": template,
        "wording": wording,
    } | kept


def slots_of(template: str, query: str) -> Slots:
    """The values that make this query of its template, by slot: texts where the template quotes them, else numbers.

    A kind is "year", "date" or the slot's name without its digit. Raises ValueError for a query of another template.
    """
    parts = SLOT_AND_TEXT.split(template)
    pattern, seen = "", set()
    for part in parts:
        slot = part[1:-1] if SLOT.fullmatch(part) else None
        pattern += re.escape(part) if slot is None else f"(?P={slot})" if slot in seen else f"(?P<{slot}>.+?)"
        seen.add(slot)
    found = re.fullmatch(pattern, query)
    if found is None:
        raise ValueError(f"{query!r} isn't made from the template {template!r}")
    return {
        slot: {"value": _value(text, f"'{{{slot}}}'" in template), "kind": _kind(slot)}
        for slot, text in found.groupdict().items()
    }


def _value(text: str, quoted: bool) -> str | int | float:
    if quoted:
        return text
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _kind(slot: str) -> str:
    kind = slot.rstrip("0123456789")
    return "year" if kind.endswith("year") else "date" if kind.endswith("day") else kind


# ---------------------------------------------------------------- the small set


async def _generate(
    uri: str, settings: dict[str, Any], seed: int, out: Path, schema: dict[str, Any] | None
) -> dict[str, Any]:
    # Looking values up may take as long as it takes: there is no question without them, on a busy machine either.
    lookup, reader = Reader(uri, at_once=8, timeout=600.0), Reader(uri)
    try:
        if schema is None:
            study = _Study(settings, seed, await read_pools(lookup, seed), STRUCTURES)
        else:
            pools = await any_schema.read_pools(lookup, schema, seed)
            study = _Study(settings, seed, pools, any_schema.structures(schema, seed))
        with tqdm(desc="questions", total=study.needed()) as bar:
            await study.open(lookup, Verifier(reader, study.pools.shared_names), bar)
            await study.collect()
    finally:
        await lookup.close()
        await reader.close()
    files = {split: study.questions(split) for split in SPLITS} | {"demonstrations": study.demonstrations()}
    summary = _summary(study, files)
    for name, lines in files.items():
        write_jsonl(out / f"{name}.jsonl", lines)
    write_json(out / "summary.json", summary)
    return summary


class _Study:
    """All supplies, and the lines that they become."""

    def __init__(self, settings: dict[str, Any], seed: int, pools: Pools, structures: tuple[Structure, ...]):
        self.structures = structures
        self.wanted = {name: int(settings[name]) for name in (*SPLITS, "demonstrations")}
        self.seed, self.pools = seed, pools
        self.supplies: dict[str, list[Supply]] = {split: [] for split in SPLITS}
        self.dropped: dict[str, str] = {}

    def needed(self) -> int:
        """Instances to verify, about: what training takes serves the demonstrations as well."""
        trained = sum(not s.held_out for s in self.structures)
        return max(self.wanted["train"], self._demonstrated(trained) * trained) + sum(
            self.wanted[s] for s in SPLITS[1:]
        )

    async def open(self, lookup: Reader, verifier: Verifier, bar: tqdm) -> None:
        """Look up for each structure which values the graph connects; drop those that it can't fill or always answers
        in the same way.

        Raises ValueError where none is left to train on.
        """
        found = await asyncio.gather(*[anchors(s, lookup) for s in self.structures])
        for structure, connected in zip(self.structures, found, strict=True):
            for split in SPLITS:
                if bool(structure.held_out) == (split == APART_SET):
                    rng = random.Random(f"{structure.id} {split} {self.seed}")
                    stream = candidates(structure, connected, self.pools, PART[split], rng)
                    self.supplies[split].append(Supply(structure, split, stream, verifier, bar))
        first = [*self.supplies["train"], *self.supplies[APART_SET]]
        look = min(max(TRIVIAL[0], max(self.wanted.values()) // len(self.structures)), TRIVIAL[1])
        await asyncio.gather(*[s.grow(look) for s in first])
        self.dropped = {s.structure.id: why for s in first if (why := useless(s))}
        for split in SPLITS:
            self.supplies[split] = [s for s in self.supplies[split] if s.structure.id not in self.dropped]
        if not self.supplies["train"]:
            raise ValueError(
                "The graph fills no structure to train on: it is too small for questions.seed, or lacks most relationships"
            )

    def all(self) -> list[Supply]:
        return [s for split in SPLITS for s in self.supplies[split]]

    async def collect(self) -> None:
        """Verify as many instances as are wanted, the same number of each structure where the graph has them."""
        await asyncio.gather(*[_fill(self.supplies[split], self.wanted[split]) for split in SPLITS])
        most = self._demonstrated(len(self.supplies["train"]))
        await asyncio.gather(*[s.grow(most) for s in self.supplies["train"]])

    def _demonstrated(self, structures: int) -> int:
        return min(DEMONSTRATED, -(-self.wanted["demonstrations"] // structures))

    def questions(self, split: str) -> list[Line]:
        turns = []
        for supply in self.supplies[split]:
            order = list(WORDINGS[split])
            random.Random(f"wordings {supply.structure.id} {split} {self.seed}").shuffle(order)
            turns.append([(x, order[i % len(order)]) for i, x in enumerate(supply.taken)])
        drawn = islice(_in_turn(turns, f"{split} {self.seed}"), self.wanted[split])
        return [_question(f"{split}-{i:04d}", split, x, wording) for i, (x, wording) in enumerate(drawn, 1)]

    def demonstrations(self) -> list[Line]:
        """Each instance in each training wording before any is repeated."""
        each = -(-self.wanted["demonstrations"] // len(self.supplies["train"]))
        turns = []
        for supply in self.supplies["train"]:
            some = supply.taken[:DEMONSTRATED]
            turns.append([(some[i % len(some)], (i + i // len(some)) % len(TRAIN)) for i in range(each)])
        drawn = islice(_in_turn(turns, f"demonstrations {self.seed}"), self.wanted["demonstrations"])
        return [_demonstration(f"demonstration-{i:04d}", x, wording) for i, (x, wording) in enumerate(drawn, 1)]


async def _fill(supplies: list[Supply], total: int) -> None:
    """Have `total` instances, the same number from each supply; where one runs dry, the others give more."""
    while live := [s for s in supplies if not s.dry]:
        level = -(-(total - sum(len(s.taken) for s in supplies if s.dry)) // len(live))
        if all(len(s.taken) >= level for s in live):
            return
        await asyncio.gather(*[s.grow(level) for s in live])


def _in_turn(turns: list[list[Any]], seed: str) -> Iterator[Any]:
    """The first of each list, in a seeded order, then the second of each, and so on."""
    rng = random.Random(f"in turn {seed}")
    for i in range(max(map(len, turns), default=0)):
        now = [turn[i] for turn in turns if i < len(turn)]
        rng.shuffle(now)
        yield from now


def _question(name: str, split: str, instance: Instance, wording: int) -> Line:
    return question_line(name, split, instance, fill(instance.structure.wordings[wording], instance.slots), None)


def _demonstration(name: str, instance: Instance, wording: int) -> Line:
    structure = instance.structure
    return {
        "id": name,
        "question": fill(structure.wordings[wording], instance.slots),
        "query": instance.query,
        "structure": structure.id,
        "hops": hops(instance.query),
        "slots": instance.slots,
        "template": structure.query,
        "wording": structure.wordings[wording],
        "rows": instance.rows,
    }


def _summary(study: _Study, files: dict[str, list[Line]]) -> dict[str, Any]:
    """What was made, what was rejected by which rule, and what the splits have in common."""
    evaluation = [q for split in SPLITS[1:] for q in files[split]]
    everything = [q for split in SPLITS for q in files[split]]
    by_id = {s.id for s in study.structures if "question" in s.slots.values()}
    rejected: Counter[str] = sum((s.rejected for s in study.all()), Counter())
    return {
        "counts": {name: len(lines) for name, lines in files.items()},
        "wanted": study.wanted,
        "hops": {name: _count(lines, "hops") for name, lines in files.items()},
        "structures": {s.id: _about(s, study, files) for s in study.structures},
        "dropped structures": study.dropped,
        "rejected": dict(sorted(rejected.items())),
        "values": study.pools.sizes(),
        "values left out": study.pools.left_out,
        "share naming ids": round(sum(q["structure"] in by_id for q in everything) / len(everything), 4),
        "different demonstrations": len({q["question"] for q in files["demonstrations"]}),
        "vocabulary": vocabulary(study.structures),
        "leaks": leaks(study.structures, files["train"] + files["demonstrations"], evaluation),
    }


def _about(structure: Structure, study: _Study, files: dict[str, list[Line]]) -> dict[str, Any]:
    mine = [s for s in study.all() if s.structure is structure]
    return {
        "hops": hops(structure.query),
        "held out": structure.held_out or None,
        "wordings": len(structure.wordings),
        "counts": {name: sum(q["structure"] == structure.id for q in lines) for name, lines in files.items()},
        "rejected": dict(sorted(sum((s.rejected for s in mine), Counter()).items())),
        "exhausted": [s.split for s in mine if s.dry],
    }


def _count(lines: list[Line], key: str) -> dict[str, int]:
    return {str(k): n for k, n in sorted(Counter(line[key] for line in lines).items())}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.questions.generate",
        description="Makes questions about a graph whose folder lib.graph.build or `dvc repro graph` has filled.",
    )
    parser.add_argument(
        "--graph", type=Path, default=Path("data/graph"), help="folder of the graph (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--structures",
        choices=("small", "all"),
        default="all",
        help="all: what the schema gives; small: the study's hand-written ones (default: %(default)s)",
    )
    sizes = parser.add_argument_group(
        "sizes", "How many of each; of the large set at most, and all where nothing is said."
    )
    for name, n in SMALL.items():
        sizes.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"(default for small: {n})")
    large = parser.add_argument_group("all", "The training file, drawn from the train split.")
    large.add_argument("--training", type=int, default=300, help="questions (default: %(default)s)")
    large.add_argument("--training-structures", type=int, default=135, help="structures (default: %(default)s)")
    large.add_argument("--most", type=int, default=0, help="structures to try, drawn by the seed (default: all)")
    args = parser.parse_args()
    given = {name: n for name in SMALL if (n := getattr(args, name)) is not None}
    training = {"questions": args.training, "structures": args.training_structures}
    settings = SMALL | given if args.structures == "small" else {**given, "training": training, "most": args.most}
    with server.running(args.graph) as uri:
        summary = generate(uri, settings, args.seed, args.out, args.graph, args.structures)
    print(json.dumps({name: summary[name] for name in ("counts", "dropped structures")}, indent=1))


if __name__ == "__main__":
    main()
