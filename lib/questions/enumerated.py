"""Makes the large set of questions: every structure that a graph's own schema gives, verified, split and put into words."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib import loop
from lib.files import write_json, write_jsonl
from lib.graph.query import QueryError, Reader
from lib.graph.trusted import Trusted
from lib.questions.audit import audit, variety
from lib.questions.demonstrations import fill
from lib.questions.draw import candidates
from lib.questions.enumerate import read_ties, specs
from lib.questions.hints import hint, hinted
from lib.questions.lexicon import Lexicon
from lib.questions.signature import Signature, hops, signature
from lib.questions.spec import Spec, query
from lib.questions.structures import NEW_COMBINATION, NEW_COMPONENT, Structure
from lib.questions.supply import APART_SET, PART, SPLITS, Instance, Line, Supply, question_line, useless
from lib.questions.together import Together
from lib.questions.values import Lookup, read_pools
from lib.questions.verify import SECONDS, Verifier
from lib.questions.wording import LEAST, fill_words, skeleton, wordings

PER_STRUCTURE = 12  # questions at most
WANTED = dict(zip(SPLITS, (8, 1, 3, PER_STRUCTURE), strict=True))
FEWEST = 4  # questions of a structure, or it is dropped
AT_ONCE = 4  # queries: planning many side by side makes all of them slow
TRIES, BATCH = (
    5,
    8,
)  # candidates for each question that is wanted; and how many are tried at once where some are rejected
PATIENCE = 20  # candidates without a single question, after which a structure is given up
SHORT = 0.35  # share of the structures with one hop or none, at most
FEW_SHORT = 40  # of these are kept in any case: a small graph has few others
COMBINATIONS = 0.12  # share of the structures held out though all their components are trained on
RARE_PATHS = 6  # of four hops, with all their structures
NEW = {
    "extra": (1, 3, 14),
    "aggregation with extras": (2, 3, 10),
}  # kind of component -> how many held out, of what size


def generate_all(uri: str, schema: dict[str, Any], settings: dict[str, Any], seed: int, out: Path) -> dict[str, Any]:
    """Write the four splits, training (.jsonl), structures.jsonl and summary.json to `out`, and return the summary.

    schema: of the graph behind `uri` (schema.json). settings: `training` questions over `training_structures`, drawn from
    train; `most` structures are tried, a seeded draw of all that the schema gives (0: all). Equal graphs, settings and seeds give equal bytes. Raises ValueError for a graph that fills no structure.
    """
    return loop.run(_generate(uri, schema, settings, seed, Path(out)))


async def _generate(uri: str, schema: dict[str, Any], settings: dict[str, Any], seed: int, out: Path) -> dict[str, Any]:
    lookup, reader = Trusted(uri, at_once=8, timeout=600.0), Trusted(uri, timeout=4 * SECONDS)
    try:
        made = await _Set.enumerate(lookup, Lexicon(schema), seed, int(settings.get("most", 0)))
        await made.verify(lookup, reader)
    finally:
        await lookup.close()
        await reader.close()
    files = {split: made.questions(split) for split in SPLITS}
    training = draw_training(files["train"], int(settings["training"]), int(settings["training_structures"]), seed)
    summary = made.summary(files, training)
    for name, lines in (files | {"training": training, "structures": made.structure_lines()}).items():
        write_jsonl(out / f"{name}.jsonl", lines)
    write_json(out / "summary.json", summary)
    return summary


class _Set:
    """Structures by id, the specs that they come from, and verified instances by split."""

    def __init__(self, lexicon: Lexicon, chosen: list[Spec], dropped: Counter[str], seed: int):
        self.lexicon, self.seed, self.unmade = lexicon, seed, dropped
        self.enumerated = len(chosen)
        self.specs: dict[str, Spec] = {}
        self.structures: dict[str, Structure] = {}
        for spec in chosen:
            texts = wordings(spec, lexicon, seed)
            if len(texts) < LEAST:
                self.unmade[f"no natural sentence for {spec.form!r}"] += 1
                continue
            self.specs[spec.id] = spec
            self.structures[spec.id] = Structure(
                spec.id, query(spec), texts, ordered=spec.form == "ordered", hint=hint(spec, lexicon)
            )
        self.signatures = {s.id: signature(s.query) for s in self.structures.values()}
        for i, why in hold_out(self.signatures, seed).items():
            self.structures[i] = replace(self.structures[i], held_out=why)
        self.supplies: dict[str, dict[str, Supply]] = {}
        self.dropped: dict[str, str] = {}
        self.rejected: Counter[str] = Counter()

    @classmethod
    async def enumerate(cls, lookup: Reader, lexicon: Lexicon, seed: int, most: int) -> _Set:
        chosen, dropped = specs(lexicon, await read_ties(lookup, lexicon), seed)
        if 0 < most < len(chosen):
            dropped["beyond the number asked for"] = len(chosen) - most
            drawn = set(random.Random(f"structures {seed}").sample([s.id for s in chosen], most))
            chosen = [s for s in chosen if s.id in drawn]
        return cls(lexicon, chosen, dropped, seed)

    # ------------------------------------------------------------ verified instances
    async def verify(self, lookup: Trusted, reader: Trusted) -> None:
        """Fill each structure from the graph; drop what can't be filled, and what is always answered alike."""
        self.pools = await read_pools(lookup, self.lexicon, list(self.specs.values()), self.seed)
        naming = sorted({t.name for t in self.lexicon.things.values() if t.name})
        verifier = Together(reader, self.pools.shared_names, ("displayName", *naming), AT_ONCE)
        values = Lookup(lookup, self.pools, self.seed)
        with tqdm(desc="questions", total=PER_STRUCTURE * len(self.structures)) as bar:
            room = asyncio.Semaphore(2 * AT_ONCE)
            await asyncio.gather(*[self._fill(s, values, verifier, bar, room) for s in self.structures.values()])
        self._balance()
        self._name_novelty()
        if not any(not self.structures[i].held_out for i in self.supplies):
            why = Counter(self.dropped.values()) or self.unmade or Counter({"its schema has no names": 1})
            raise ValueError(
                "The graph fills no structure to train on: it is too small, or its schema has no names. What was dropped: "
                + "; ".join(f"{reason} ({n})" for reason, n in why.most_common(5))
            )

    async def _fill(
        self, structure: Structure, values: Lookup, verifier: Verifier, bar: tqdm, room: asyncio.Semaphore
    ) -> None:
        async with room:
            await self._filled(structure, values, verifier, bar)

    async def _filled(self, structure: Structure, values: Lookup, verifier: Verifier, bar: tqdm) -> None:
        spec = self.specs[structure.id]
        try:
            if await values.twice(spec):
                self.dropped[structure.id] = "a path that may come to one relationship twice"
                return
            found = await values.anchors(spec)
        except QueryError as error:  # too long a text, or too much to look through: one structure less
            self.dropped[structure.id] = f"its values can't be looked up: {error.kind}"
            return
        mine = {}
        for split in SPLITS:
            if bool(structure.held_out) == (split == APART_SET):
                rng = random.Random(f"{structure.id} {split} {self.seed}")
                stream = candidates(structure, found, self.pools, PART[split], rng)
                mine[split] = Supply(structure, split, stream, verifier, bar)
                mine[split].tries, mine[split].batch, mine[split].patience = TRIES, BATCH, PATIENCE
        first = APART_SET if structure.held_out else "train"
        await mine[first].grow(WANTED[first])
        why = useless(mine[first])
        if why is None:
            for split in list(mine)[1:]:
                await mine[split].grow(WANTED[split])
            if first == "train":
                await mine[first].grow(
                    PER_STRUCTURE - sum(min(len(s.taken), WANTED[n]) for n, s in mine.items() if n != first)
                )
            if sum(len(s.taken) for s in mine.values()) < FEWEST or len(mine[first].taken) < min(FEWEST, 3):
                why = f"fewer than {FEWEST} questions in this graph"
        self.rejected += sum((s.rejected for s in mine.values()), Counter())
        if why:
            self.dropped[structure.id] = why
        else:
            self.supplies[structure.id] = mine

    def _balance(self) -> None:
        """Keep the structures in their own order, and drop short ones beyond their share, the least filled first."""
        self.supplies = {i: self.supplies[i] for i in self.structures if i in self.supplies}
        self.dropped = {i: self.dropped[i] for i in self.structures if i in self.dropped}
        short = [i for i in self.supplies if len(self.specs[i].hops) <= 1]
        most = max(FEW_SHORT, int(SHORT / (1 - SHORT) * (len(self.supplies) - len(short))))
        short.sort(key=lambda i: sum(len(s.taken) for s in self.supplies[i].values()))
        for i in short[: max(0, len(short) - most)] if len(self.supplies) > len(short) else []:
            self.dropped[i] = f"one hop or none, beyond {SHORT:.0%} of the structures"
            del self.supplies[i]

    def _name_novelty(self) -> None:
        """Say of each held-out structure whether its components are trained on, now that it is known what is."""
        known = frozenset().union(
            *(self.signatures[i].components() for i in self.supplies if not self.structures[i].held_out)
        )
        for i in self.supplies:
            if self.structures[i].held_out:
                why = NEW_COMBINATION if self.signatures[i].components() <= known else NEW_COMPONENT
                self.structures[i] = replace(self.structures[i], held_out=why)

    # ------------------------------------------------------------ lines
    def questions(self, split: str) -> list[Line]:
        """In turn: the first of each structure in a seeded order, then the second of each."""
        rng = random.Random(f"in turn {split} {self.seed}")
        taken = {i: s[split].taken[: self._most(s, split)] for i, s in self.supplies.items() if split in s}
        drawn: list[tuple[str, int, Instance]] = []
        for turn in range(max(map(len, taken.values()), default=0)):
            now = [(i, turn, instances[turn]) for i, instances in taken.items() if turn < len(instances)]
            rng.shuffle(now)
            drawn += now
        return [self._line(f"{split}-{n:04d}", split, i, turn, x) for n, (i, turn, x) in enumerate(drawn, 1)]

    def _most(self, mine: dict[str, Supply], split: str) -> int:
        if split != "train":
            return WANTED[split]
        return PER_STRUCTURE - sum(min(len(s.taken), WANTED[n]) for n, s in mine.items() if n != split)

    def _line(self, name: str, split: str, i: str, turn: int, instance: Instance) -> Line:
        structure = self.structures[i]
        order = list(wordings_of(split, len(structure.wordings)))
        random.Random(f"wordings {i} {split} {self.seed}").shuffle(order)
        text = fill_words(structure.wordings[order[turn % len(order)]], instance.slots)
        given = hinted(instance.query, self.seed) and structure.hint
        return question_line(name, split, instance, text, fill(structure.hint, instance.slots) if given else None)

    def structure_lines(self) -> list[Line]:
        """What each structure is: template, wordings, hint, and why it is held out, if it is."""
        return [
            {
                "id": i,
                "query": self.structures[i].query,
                "wordings": list(self.structures[i].wordings),
                "hint": self.structures[i].hint,
                "held_out": self.structures[i].held_out or None,
                "hops": len(self.specs[i].hops),
                "form": self.specs[i].form,
            }
            for i in self.supplies
        ]

    def summary(self, files: dict[str, list[Line]], training: list[Line]) -> dict[str, Any]:
        """What was made and dropped and why, in figures."""
        every = [q for lines in files.values() for q in lines]
        structures = [self.structures[i] for i in self.supplies]
        lengths = Counter(hops(s.query) for s in structures)
        skeletons = [len({skeleton(w) for w in s.wordings}) for s in structures]
        by_why = Counter(self.dropped.values())
        training_files = {"train": files["train"], "training": training}
        return {
            "counts": {name: len(lines) for name, lines in (files | {"training": training}).items()},
            "structures": len(structures),
            "structures by hops": {str(n): lengths[n] for n in sorted(lengths)},
            "share with one hop or none": round((lengths[0] + lengths[1]) / len(structures), 4),
            "structures by form": dict(sorted(Counter(self.specs[i].form for i in self.supplies).items())),
            "structures by split": dict(sorted(Counter(s.held_out or "trained on" for s in structures).items())),
            "enumerated": self.enumerated,
            "not enumerated, by component": dict(sorted(self.unmade.items())),
            "dropped structures": dict(sorted(by_why.items())),
            "dropped structures, by form": dict(sorted(Counter(self.specs[i].form for i in self.dropped).items())),
            "rejected questions, by rule": dict(sorted(self.rejected.items())),
            "left out of the schema": self.lexicon.left_out,
            "words written down": self.lexicon.written,
            "values": self.pools.sizes(),
            "values left out": self.pools.left_out,
            "skeletons per structure": {"least": min(skeletons), "mean": round(sum(skeletons) / len(skeletons), 2)},
            "words": variety([q["question"] for q in every]),
            "hints": share(q["hint"] is not None for q in every),
            "training": shares(training),
            "train": shares(files["train"]),
            "common": audit(training_files, {s: files[s] for s in SPLITS[1:]}, self.seed),
        }


def wordings_of(split: str, n: int) -> range:
    """Which of a structure's n wordings a split may use: the last three only held-out questions, the one before dev."""
    train = n - WANTED["dev"] - WANTED[SPLITS[2]]
    return dict(zip(SPLITS, (range(train), range(train, train + 1), range(train + 1, n), range(n)), strict=True))[split]


def hold_out(signatures: dict[str, Signature], seed: int) -> dict[str, str]:
    """Which structures are never trained on, and why, by a seeded rule: all those with a few components chosen to be new
    (a condition on what a thing is tied to, an aggregate with its extras, paths of four hops), and COMBINATIONS of the
    others, whose components all occur in some that stay."""
    rng = random.Random(f"hold out {seed}")
    owners: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for i, of in signatures.items():
        for component in sorted(of.components()):
            owners[component].append(i)
    apart: dict[str, str] = {}
    for kind, (number, least, most) in NEW.items():
        chosen = sorted(c for c, who in owners.items() if c[0] == kind and least <= len(who) <= most)
        chosen = [c for c in chosen if kind == "extra" or len(c) > 2]
        for component in rng.sample(chosen, min(number, len(chosen))):
            apart |= dict.fromkeys(owners[component], NEW_COMPONENT)
    paths = sorted(c for c in owners if c[0] == "path" and c[1].count("->") == 4)
    for component in rng.sample(paths, min(RARE_PATHS, len(paths) // 4)):
        apart |= dict.fromkeys(owners[component], NEW_COMPONENT)
    left = Counter(c for i, of in signatures.items() if i not in apart for c in of.components())
    others = sorted(set(signatures) - set(apart))
    rng.shuffle(others)
    wanted = int(COMBINATIONS * len(signatures))
    for i in others:
        components = signatures[i].components()
        if wanted and all(left[c] > 2 for c in components):
            apart[i] = NEW_COMBINATION
            left.subtract(components)
            wanted -= 1
    return apart


def draw_training(train: list[Line], questions: int, structures: int, seed: int) -> list[Line]:
    """`questions` of the train split over `structures` of its structures: the structures by a seeded draw that keeps the
    split's shares by hops, then the first question of each, the second of each, and so on. Fewer where there are fewer."""
    rng = random.Random(f"training {seed}")
    by_hops: dict[int, list[str]] = defaultdict(list)
    for q in train:
        if q["structure"] not in by_hops[q["hops"]]:
            by_hops[q["hops"]].append(q["structure"])
    total = sum(map(len, by_hops.values()))
    chosen: list[str] = []
    ahead: list[tuple[float, str]] = []
    for ids in (sorted(by_hops[n]) for n in sorted(by_hops)):
        rng.shuffle(ids)
        quota = structures * len(ids) / max(1, total)
        chosen += ids[: int(quota)]
        ahead += [((k + 1) - quota, ids[k]) for k in range(int(quota), len(ids))]
    chosen += [i for _, i in sorted(ahead)[: max(0, structures - len(chosen))]]
    left = {i: [q for q in train if q["structure"] == i] for i in sorted(set(chosen))}
    drawn: list[Line] = []
    while len(drawn) < questions and any(left.values()):
        turn = [i for i in left if left[i]]
        rng.shuffle(turn)
        drawn += [left[i].pop(0) for i in turn[: questions - len(drawn)]]
    return drawn


def shares(lines: list[Line]) -> dict[str, Any]:
    """A file of questions in figures: by hops, difficulty, structure and hint."""
    n = max(1, len(lines))
    lengths = Counter(q["hops"] for q in lines)
    per_structure = Counter(Counter(q["structure"] for q in lines).values())
    return {
        "questions": len(lines),
        "structures": len({q["structure"] for q in lines}),
        "share by hops": {str(k): round(lengths[k] / n, 4) for k in sorted(lengths)},
        "structures by number of questions": {str(k): per_structure[k] for k in sorted(per_structure)},
        "share with filters": share(q["difficulty"]["filters"] > 0 for q in lines),
        "share with extras": share(q["difficulty"]["extras"] > 0 for q in lines),
        "share with a hint": share(q["hint"] is not None for q in lines),
    }


def share(found: Iterable[bool]) -> float:
    known = list(found)
    return round(sum(known) / max(1, len(known)), 4)
