"""Asks when a small model begins to compose: accuracy on structures that it never saw, by the number of those that it was taught.

An experiment of its own, beside the study (`make structures`; experiments/structures has its pipeline and settings). For
each size the same model gets the same number of demonstrations and of updates, spread over so many structures of the large
set; each size's structures are among the next one's, and all sizes answer the same questions. Cold start, practice and
evaluation are the study's own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from lib import bootstrap, graph, human_set, plan, plots
from lib.agent import EnvironmentFault
from lib.cold_start import cold_start
from lib.compare import rounded
from lib.episodes import read
from lib.evaluate import evaluate, validate
from lib.files import read_jsonl, write_json, write_jsonl
from lib.graph import server
from lib.questions.demonstrations import fill
from lib.questions.enumerated import shares, wordings_of
from lib.questions.generate import generate, slots_of, worked
from lib.questions.signature import signature
from lib.questions.supply import APART_SET, SPLITS, Line
from lib.settings import ROOT, SETS, Settings, SettingsError, load
from lib.train import train

PARAMS = ROOT / "experiments" / "structures" / "params.yaml"
ALL = "all"
LONGEST = 40  # characters of a value
SEED = 0  # of practice: one run a size
ARMS = {"base": "after the cold start", f"trained-{SEED}": "after practice"}
TRAINED_SET = SETS[0]
LABELS = {APART_SET: "never seen", TRAINED_SET: "taught at every size, asked anew"}


@dataclass(frozen=True, kw_only=True)
class Sized(Settings):
    """The settings of one size. Graph and people's questions (none) are common to all sizes, the rest is a size's own."""

    size: str = field(metadata={"internal": True})

    @property
    def graph_dir(self) -> Path:
        return self.data / "structures" / "graph"

    @property
    def human_dir(self) -> Path:
        return self.data / "structures" / "human"

    @property
    def set_dir(self) -> Path:
        """The whole large set, from which each size takes its questions."""
        return self.data / "structures" / "set"

    @property
    def questions_dir(self) -> Path:
        return self.data / "structures" / "questions" / self.size

    @property
    def run_dir(self) -> Path:
        return self.data / "structures" / self.size


def sized(settings: Settings, size: str) -> Sized:
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return Sized(**given | {"run": f"{settings.run}-{size}"}, size=size)


# ---------------------------------------------------------------- questions


def make_questions(settings: Settings, sizes: list[str]) -> dict[str, Any]:
    """Write the graph, the large set, and for each size its five files of questions and structures.json.

    sizes: numbers of structures as texts, ascending; "all" is every one that is trained on. Returns what each size has.
    Raises ValueError for a size that the set can't fill.
    """
    whole = sized(settings, ALL)
    of = settings.graph
    graph.build(of.source, of.scale, of.seed, str(ROOT / of.path), whole.graph_dir)
    human_set.write([], None, whole.human_dir)
    with server.running(whole.graph_dir, settings.data) as uri:
        generate(
            uri,
            {},
            settings.questions.seed,
            whole.set_dir,
            whole.graph_dir,
            "all",
        )
    structures = {line["id"]: line for line in read_jsonl(whole.set_dir / "structures.jsonl")}
    read = {split: read_jsonl(whole.set_dir / f"{split}.jsonl") for split in SPLITS}
    long = with_long_values((q for some in read.values() for q in some), structures)
    lines = {split: plain([q for q in some if q["structure"] not in long], structures) for split, some in read.items()}
    order = nested({q["structure"]: q["hops"] for q in lines["train"]}, settings.questions.seed)
    first = chosen(order, sizes[0])
    return {size: _write(sized(settings, size), structures, lines, chosen(order, size), first) for size in sizes}


def with_long_values(questions: Iterable[Line], structures: dict[str, Line]) -> set[str]:
    """Structures that name things by texts of more than LONGEST characters, as titles are: a model this small would fail
    at spelling them, whatever it knows of structures."""
    slots = ((q["structure"], slots_of(structures[q["structure"]]["query"], q["query"])) for q in questions)
    return {i for i, found in slots if any(len(str(s["value"])) > LONGEST for s in found.values())}


def plain(questions: Iterable[Line], structures: dict[str, Line]) -> list[Line]:
    """The questions in words that the small model's demonstrations use: values as the query has them, and no hint."""
    said = []
    for q in questions:
        structure = structures[q["structure"]]
        wordings = [structure["wordings"][i] for i in wordings_of(q["split"], len(structure["wordings"]))]
        text = random.Random(f"plain {q['id']}").choice(wordings)
        said.append({**q, "question": fill(text, slots_of(structure["query"], q["query"])), "hint": None})
    return said


def nested(hops: dict[str, int], seed: int) -> list[str]:
    """Structures in an order of which each beginning has, as nearly as can be, the shares by hops of the whole."""
    by_hops: dict[int, list[str]] = defaultdict(list)
    for name in sorted(hops):
        by_hops[hops[name]].append(name)
    placed: list[tuple[float, int, str]] = []
    for n, names in sorted(by_hops.items()):
        random.Random(f"nested {n} {seed}").shuffle(names)
        placed += [((i + 0.5) / len(names), n, name) for i, name in enumerate(names)]
    return [name for _, _, name in sorted(placed)]


def chosen(order: list[str], size: str) -> list[str]:
    """The first `size` structures. Raises ValueError where there are fewer."""
    if size == ALL:
        return order
    if not size.isdigit() or not 0 < int(size) <= len(order):
        raise ValueError(
            f"size {size!r} in experiments/structures/dvc.yaml must be {ALL!r} or a number from 1 to {len(order)}, "
            "the structures that this graph's large set trains on"
        )
    return order[: int(size)]


def _write(
    settings: Sized, structures: dict[str, Line], lines: dict[str, list[Line]], mine: list[str], first: list[str]
) -> dict[str, Any]:
    wanted, taught = settings.questions, set(mine)
    trained = [q for q in lines["train"] if q["structure"] in taught]
    files = {
        "train": trained[: settings.train.updates * settings.train.groups],
        "dev": [q for q in lines["dev"] if q["structure"] in first][: wanted.dev],
        TRAINED_SET: [q for q in lines[TRAINED_SET] if q["structure"] in first][: wanted.held_out_instances],
        APART_SET: lines[APART_SET][: wanted.held_out_structures],
        "demonstrations": worked(trained, structures, wanted.demonstrations, wanted.seed),
    }
    for name, some in files.items():
        write_jsonl(settings.questions_dir / f"{name}.jsonl", some)
    known = frozenset().union(*(signature(structures[i]["query"]).components() for i in mine))
    asked = {q["structure"] for q in files[APART_SET]}
    facts = {
        "structures": len(mine),
        "taught": mine,
        "familiar": sorted(i for i in asked if signature(structures[i]["query"]).components() <= known),
        "novelty": {i: structures[i]["held_out"] for i in sorted(asked)},
        "demonstrations": len(files["demonstrations"]),
        "practised": shares(files["train"]),
        "asked": {name: shares(files[name]) for name in SETS},
    }
    write_json(settings.questions_dir / "structures.json", facts)
    return facts


# ---------------------------------------------------------------- steps of one size


def practise(settings: Sized) -> None:
    """Write the plan of this size's run, then practise: nothing of it can change once practice has begun."""
    plan.write(settings)
    train(settings, SEED)


def ask(settings: Sized) -> None:
    """Prove the path from question to score, then ask both arms."""
    validate(settings)
    for arm in ARMS:
        evaluate(settings, arm)


# ---------------------------------------------------------------- results


def results(settings: Settings, sizes: list[str]) -> dict[str, Any]:
    """What came out, by size: rates with intervals over structures, what practice added, what the next size added."""
    runs = {size: sized(settings, size) for size in sizes}
    facts = {size: json.loads((run.questions_dir / "structures.json").read_text()) for size, run in runs.items()}
    found = {
        size: {arm: _Answers(run.episodes(arm), settings.test.confidence) for arm in ARMS} for size, run in runs.items()
    }
    untrained, trained = ARMS
    return rounded(
        {
            "sizes": {
                size: {
                    **{key: facts[size][key] for key in ("structures", "demonstrations", "practised")},
                    "familiar structures": len(facts[size]["familiar"]),
                    "base": json.loads((run.run_dir / "base.json").read_text())["dev_strict"],
                    "groups with a signal": sum(
                        u["groups_with_signal"] for u in read_jsonl(run.train_dir(SEED) / "updates.jsonl")
                    ),
                    "arms": {
                        arm: {name: answers.rates(name) for name in SETS}
                        | {"familiar": answers.rates(APART_SET, among=set(facts[size]["familiar"]))}
                        | {
                            why: answers.rates(
                                APART_SET, among={i for i, w in facts[size]["novelty"].items() if w == why}
                            )
                            for why in sorted(set(facts[size]["novelty"].values()))
                        }
                        for arm, answers in found[size].items()
                    },
                    "practice": {name: found[size][trained].over(found[size][untrained], name) for name in SETS},
                }
                for size, run in runs.items()
            },
            "steps": [
                {
                    "from": a,
                    "to": b,
                    **{arm: {name: found[b][arm].over(found[a][arm], name) for name in SETS} for arm in ARMS},
                }
                for a, b in pairwise(sizes)
            ],
            "asked": facts[sizes[0]]["asked"],
            "settings": {
                part: asdict(getattr(settings, part)) for part in ("graph", "model", "cold_start", "train", "evaluate")
            },
        }
    )


class _Answers:
    """One arm's strict scores: for each set and decoding, a row of samples a question, in the order of their ids."""

    def __init__(self, file: Path, confidence: float):
        self.confidence = confidence
        self._strict: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        self._structure: dict[str, str] = {}
        for episode in sorted(read(file), key=lambda e: e.id):
            self._strict[episode.set, episode.decode][episode.question].append(episode.strict)
            self._structure[episode.question] = str(episode.structure)

    def scores(self, name: str, decode: str, among: set[str] | None = None) -> tuple[np.ndarray, list[str]]:
        """Shape (questions, samples), and each question's structure; among: only of these structures."""
        rows = {
            q: row
            for q, row in sorted(self._strict[name, decode].items())
            if among is None or self._structure[q] in among
        }
        return np.array(list(rows.values()), dtype=float), [self._structure[q] for q in rows]

    def rates(self, name: str, among: set[str] | None = None) -> dict[str, Any]:
        """Sampled and greedy rate with its interval; of no question at all, only that there is none."""
        found: dict[str, Any] = {}
        for decode in ("sampled", "greedy"):
            scores, structures = self.scores(name, decode, among)
            found |= {"questions": len(scores), "structures": len(set(structures))}
            if len(scores):
                rate = bootstrap.mean(scores, structures, confidence=self.confidence, widened=True)
                found[decode] = {"rate": rate.mean, "low": rate.low, "high": rate.high}
        return found

    def over(self, other: _Answers, name: str) -> dict[str, Any]:
        """By how much this arm answers more of the same questions than the other."""
        found = {}
        for decode in ("sampled", "greedy"):
            (mine, structures), (theirs, _) = self.scores(name, decode), other.scores(name, decode)
            gain = bootstrap.paired(theirs, mine, structures, confidence=self.confidence, widened=True)
            found[decode] = {key: getattr(gain, key) for key in ("delta", "low", "high", "up", "down")}
        return found


def figure(found: dict[str, Any]) -> Figure:
    """Sampled accuracy against the number of structures taught: never seen ones left, those taught at every size right."""
    with plt.style.context(plots.STYLE):
        drawn, axes = plt.subplots(1, 2, figsize=(plots.WIDTH, 3.0), sharey=True)
        taught = [size["structures"] for size in found["sizes"].values()]
        for axis, (name, label) in zip(axes, LABELS.items(), strict=True):
            for shift, (arm, words), kind in zip((0.98, 1.02), ARMS.items(), ("base", "trained"), strict=True):
                rates = [size["arms"][arm][name]["sampled"] for size in found["sizes"].values()]
                middle = np.array([r["rate"] for r in rates])
                error = np.abs([[r["low"] for r in rates], [r["high"] for r in rates]] - middle)
                style = {"color": plots.ARM[kind], "marker": plots.MARKER[kind], "capsize": 3, "markersize": 5}
                axis.errorbar(np.array(taught) * shift, middle, error, label=words, **style)
            axis.set_xscale("log")
            axis.set_xticks(taught, [str(n) for n in taught])
            axis.minorticks_off()
            axis.set(title=label, xlabel="structures taught")
        axes[0].set(ylabel="strictly right", ylim=(0, None))
        axes[0].yaxis.set_major_formatter(plots.PercentFormatter(1, decimals=0))
        axes[0].legend()
    return drawn


def alt(found: dict[str, Any]) -> str:
    """What the figure shows, in words."""
    rates = "; ".join(
        f"{size['structures']} structures: "
        + ", ".join(f"{size['arms'][arm][APART_SET]['sampled']['rate']:.1%} {words}" for arm, words in ARMS.items())
        for size in found["sizes"].values()
    )
    return (
        f"Points with intervals, by the number of structures taught. Strictly right on structures never seen: {rates}."
    )


def write_results(settings: Settings, sizes: list[str]) -> Path:
    """Write data/structures/results.json and the figure beside it."""
    folder = settings.data / "structures"
    found = results(settings, sizes)
    write_json(folder / "results.json", found)
    plots.save(figure(found), alt(found), folder / "figures" / "structures")
    return folder / "results.json"


STEPS: dict[str, Callable[[Sized], Any]] = {"cold-start": cold_start, "practise": practise, "ask": ask}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lib.composition", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=["questions", *STEPS, "results"])
    parser.add_argument("--sizes", nargs="+", required=True, help="numbers of structures, ascending, or 'all'")
    parser.add_argument("--params", type=Path, default=PARAMS, help="the parameter file (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    args = parser.parse_args(arguments)
    try:
        settings = load(args.params, args.data)
        if args.step == "questions":
            for size, facts in make_questions(settings, args.sizes).items():
                print(
                    f"{size}: {facts['structures']} structures, {len(facts['familiar'])} of those never seen have only known parts"
                )
        elif args.step == "results":
            print(write_results(settings, args.sizes))
        else:
            for size in args.sizes:
                STEPS[args.step](sized(settings, size))
    except (
        AssertionError,
        SettingsError,
        plan.PlanError,
        server.ServerError,
        EnvironmentFault,
        OSError,
        ValueError,
    ) as e:
        sys.exit(f"structures: {e}")


if __name__ == "__main__":
    main()
