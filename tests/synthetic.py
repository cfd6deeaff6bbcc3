"""Makes a complete run folder without model or database, with truths that a test can choose and check.

`python -m tests.synthetic FOLDER` leaves one there to look at: compare, draw and render it as any run.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lib import fingerprints, human_set, plan
from lib.episodes import Episode, Writer, read
from lib.files import write_json, write_jsonl, write_text
from lib.human_set import SUSPECT, USABLE
from lib.questions.demonstrations import SILENT, mistakes
from lib.reward import digest
from lib.settings import HUMAN, ROOT, Settings, load

SIZES = {"train": 40, "dev": 24, "held_out_instances": 96, "held_out_structures": 24, "demonstrations": 8}
TEMPLATES = (
    "MATCH (u:User)-[:OWNS]->(q:Question)-[:TAGGED]->(t:Tag) WHERE t.name = 'tag-{n}' AND q.score > {n} RETURN DISTINCT u.displayName",
    "MATCH (u:User) WHERE u.reputation >= {n} RETURN u.displayName",
    "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = 'Name {n}' RETURN count(DISTINCT q.postId)",
    "MATCH (q:Question)-[:TAGGED]->(t:Tag) WHERE t.name = 'tag-{n}' RETURN q.title ORDER BY q.score DESC LIMIT 1",
    "MATCH (u:User)-[:EARNED]->(b:Badge) WHERE b.name = 'Badge {n}' AND u.age < {n} RETURN u.displayName",
    "MATCH (u:User)-[:OWNS]->(q:Question) WHERE u.displayName = 'Name {n}' RETURN avg(q.score)",
)
FAILED = {"query": "MATCH (", "shown": "syntax error", "error": "syntax error"}
DEV_COUNTS = [{"right": r, "samples": 2, "questions": n} for r, n in ((0, 7), (1, 8), (2, 9))]
PROMPT = "You answer questions about a graph database by querying it."


def settings_in(folder: Path, **changes: Any) -> Settings:
    """Settings of the tiny profile with the data folder `folder`, and `run` and sections changed: train={"seeds": (0,)}."""
    settings = load(ROOT / "profiles" / "tiny.yaml", folder)
    for section, values in changes.items():
        new = dataclasses.replace(getattr(settings, section), **values) if isinstance(values, dict) else values
        settings = dataclasses.replace(settings, **{section: new})
    return settings


def question(name: str, i: int) -> dict[str, Any]:
    structure = i % (len(TEMPLATES) if name != "held_out_structures" else 3)
    return {
        "id": f"{name}-{i:04d}",
        "question": f"Question {i} <b>with</b> signs | of *{name}*?",
        "hint": f"n refers to {i}" if i % 3 else None,
        "query": TEMPLATES[structure].replace("{n}", str(i)),
        "rows": [[f"row {i}"]],
        "ordered": False,
        "structure": f"{name if name == 'held_out_structures' else 'structure'}-{structure}",
        "hops": structure % 4,
        "split": name,
        "source": "twin",
        "difficulty": {"hops": structure % 4, "filters": 1, "extras": 0},
    }


def episode(
    arm: str,
    asked: dict[str, Any],
    sample: int,
    outcome: str,
    query: str | None = None,
    decode: str = "sampled",
    phase: str = "evaluate",
    update: int | None = None,
) -> Episode:
    """One episode of the given outcome, with everything that follows from it."""
    strict, lenient = outcome == "strict", outcome in ("strict", "form")
    said = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"name": "run_cypher", "arguments": f'{{"query": "{query}"}}'}],
    }
    rows = [[*row, "more"] if outcome == "form" else row for row in asked["rows"]] if lenient else [[f"row of {query}"]]
    rows = rows if query else []
    when = f"u{update:04d}/" if update is not None else ""
    return Episode(
        id=f"{arm}/{phase}/{when}{decode}/{asked['id']}/{sample}",
        run="tiny",
        arm=arm,
        seed=int(arm.removeprefix("trained-")) if arm.startswith("trained-") else 0,
        phase=phase,
        update=update,
        set=asked["split"],
        decode=decode,
        question=asked["id"],
        structure=asked["structure"],
        hops=asked["hops"],
        sample=sample,
        messages=[
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": asked["question"]},
            said,
            {"role": "tool", "content": "1 row\nname\n<script>alert('rows')</script>"},
            {"role": "assistant", "content": "done"},
        ],
        calls=[{"query": query, "shown": "1 row", "error": None}] if query else [FAILED],
        query=query,
        rows=rows,
        row_count=len(rows),
        digest=digest(rows) if query else None,
        strict=strict,
        lenient=lenient,
        lenient_literal=lenient,
        f1=1.0 if strict else 0.0,
        reward=1.0 if strict else 0.0,
        extra_columns=int(outcome == "form"),
        outcome=outcome,
        stop="max_turns" if outcome == "wrong_turns" else "done",
        turns=2,
        tokens={"prompt": 60, "sampled": 40},
        fault="the database is gone" if outcome == "error" else None,
    )


def answered(arm: str, asked: dict[str, Any], sample: int, rate: float, **kind: Any) -> Episode:
    """A seeded draw: right with probability `rate`, else a planted mistake, another one, or no query at all."""
    rng = random.Random(f"{arm} {asked['id']} {sample} {sorted(kind.items())}")
    if rng.random() < rate:
        return episode(arm, asked, sample, "strict", asked["query"], **kind)
    draw = rng.random()
    if draw < 0.1:
        return episode(arm, asked, sample, "no_query", None, **kind)
    found = mistakes(asked["query"], SILENT)
    if draw < 0.75 and found:
        name, wrong = rng.choice(found)
        return episode(arm, asked, sample, "form" if name == "extra column" else "wrong", wrong, **kind)
    other = f"MATCH (p:Post) WHERE p.title = '{asked['id']}' RETURN p.title"
    return episode(arm, asked, sample, rng.choice(["wrong", "wrong_turns"]), other, **kind)


def difficulty(asked: dict[str, Any]) -> float:
    """The base model's rate on a question: spread out, with some never and some always right."""
    drawn = random.Random(f"difficulty {asked['id']}").random()
    return min(1.0, max(0.0, 1.5 * drawn - 0.2))


def make(folder: Path, gain: float = 0.2, transfer: float = 0.0, people: int = 0, **changes: Any) -> Settings:
    """A whole run in `folder`, ready for compare(): the trained arm's rate on each question is the control's plus `gain`.

    people: questions that people asked, few of which the control has right. The plan is written by plan.write, and the seeds record its digest.
    """
    settings = settings_in(folder, **changes)
    asked = inputs(settings, people)
    plan.write(settings)
    for arm in settings.arms:
        with Writer(settings.episodes(arm)) as writer:
            for name, more in (("held_out_instances", gain), ("held_out_structures", transfer), (HUMAN, gain)):
                for one in asked[name]:
                    rate = difficulty(one) * (1.0 if name == "held_out_instances" else 0.15)
                    rate = min(1.0, rate + more) if arm.startswith("trained") else rate
                    for sample in range(settings.evaluate.samples):
                        writer.write(answered(arm, one, sample, rate))
                    writer.write(answered(arm, one, 0, min(1.0, rate + 0.1), decode="greedy"))
            writer.finish()
        plan.stamp(settings, arm)
    similarities(settings, asked)
    for seed in settings.train.seeds:
        trained(settings, seed, asked["train"], asked["dev"], gain)
    validated: dict[str, Any] = {name: {"oracle": 1.0, "null": 0.0} for name, found in asked.items() if found}
    if people:
        validated[HUMAN] |= {
            "question_too_long": [f"{HUMAN}-0001"],
            "answer_too_long": [],
            "no_query": [f"{HUMAN}-0000"],
        }
    write_json(settings.run_dir / "validate.json", validated)
    return settings


def person(i: int) -> dict[str, Any]:
    """A person's question, as lib.questions.human judges them: every third has a reference that is suspected."""
    judged = (SUSPECT, "the SQL repeats a user for each badge") if i % 3 == 0 else (USABLE, None)
    found = {"structure": None, "status": judged[0], "reason": judged[1], "bird_difficulty": "simple", "sql": None}
    return {**question(HUMAN, i), **found, "answer": {"query": None, "right": True, "rows": None}}


def inputs(settings: Settings, people: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Questions, graph counts and the base model's files; returns the questions by set."""
    asked = {name: [question(name, i) for i in range(size)] for name, size in SIZES.items()}
    for name, found in asked.items():
        write_jsonl(settings.questions_dir / f"{name}.jsonl", found)
    human_set.write([person(i) for i in range(people)], None, settings.human_dir)
    hops = {name: dict(Counter(str(one["hops"]) for one in found)) for name, found in asked.items()}
    leaks = {"evaluation questions": 120, "queries shared": 0, "row sets": {"shared": 0.1, "by chance": 0.1}}
    write_json(settings.questions_dir / "summary.json", {"counts": SIZES, "hops": hops, "leaks": leaks})
    write_json(settings.graph_dir / "counts.json", {"nodes": 5900, "relationships": 14800})
    write_text(settings.base_dir / "config.json", "{}\n")
    write_text(settings.run_dir / "system_prompt.txt", PROMPT + "\n")
    facts = {"steps": 700, "demonstrations": 5000, "structures": 6, "share_right": 0.82, "share_repaired": 0.25}
    planted = {"distinct lost": 0.02, "extra column": 0.05, "boundary": 0.04, "wrong column": 0.03}
    sizes = {
        "vocabulary": 1012,
        "parameters": 912_000,
        "dev_counts": DEV_COUNTS,
        "loss": [3.0, 1.0, 0.4],
    }
    write_json(settings.run_dir / "base.json", {**facts, "mistakes": planted, "first_mistakes": planted, **sizes})
    return asked | {HUMAN: [person(i) for i in range(people)]}


def similarities(settings: Settings, asked: dict[str, list[dict[str, Any]]]) -> None:
    """What lib.provenance would leave: a reference's own query looks at the right nodes, any other at half of them."""
    references = {one["id"]: one["query"] for found in asked.values() for one in found}
    kept = {(e.question, e.query) for arm in settings.arms for e in read(settings.episodes(arm)) if e.query is not None}
    lines = [
        {"question": name, "query": query, "similarity": 1.0 if query == references[name] else 0.5}
        for name, query in sorted(kept)
    ]
    write_jsonl(settings.run_dir / "provenance.jsonl", lines)


def trained(settings: Settings, seed: int, train: list[dict[str, Any]], dev: list[dict[str, Any]], gain: float) -> None:
    """What training leaves behind: episodes (of the last update alone), curves, updates and the digest of the plan."""
    out, arm, rng = settings.train_dir(seed), f"trained-{seed}", random.Random(f"training {seed}")
    write_text(out / "plan.sha256", plan.digest(settings) + "\n")
    last = settings.train.updates
    with Writer(out / "episodes.jsonl") as writer:
        for one in train:
            for sample in range(settings.train.rollouts):
                writer.write(answered(arm, one, sample, difficulty(one), phase="train", update=last - 1))
        writer.finish()
    with Writer(out / "dev.jsonl") as writer:
        for update in range(0, last + 1, settings.train.dev_every):
            for one in dev:
                for sample in range(settings.train.dev_samples):
                    rate = min(1.0, difficulty(one) + gain * update / last)
                    writer.write(answered(arm, one, sample, rate, phase="dev", update=update))
        writer.finish()
    lines = []
    for update in range(last):
        signal, right = rng.randint(6, 9), rng.randint(4, 6)
        lines.append(
            {
                "update": update, "reward_mean": 0.5 + gain * update / last + rng.uniform(-0.08, 0.08), "groups": 16,
                "groups_with_signal": signal, "groups_all_right": right, "groups_none_right": 16 - signal - right,
                "loss": rng.uniform(-40, 40), "grad_norm": 200.0, "tokens_sampled": 5000, "tokens_trained": 9000, "kl": 1e-4,
            }
        )  # fmt: skip
    write_jsonl(out / "updates.jsonl", lines)


def tamper(settings: Settings, part: str, patch: pytest.MonkeyPatch) -> None:
    """Change what a result hangs on, as if it had been changed after training: the project's own files in a copy."""
    if part == "plan":
        plan.path(settings).write_text(plan.path(settings).read_text().replace('"bar": 0.05', '"bar": 0.01', 1))
    elif part == "questions":
        write_jsonl(settings.questions_dir / "dev.jsonl", [question("dev", i) for i in range(1, 25)])
    elif part == "prompt":
        write_text(settings.run_dir / "system_prompt.txt", PROMPT + " Guess.\n")
    elif part == "loop":
        patch.setattr(fingerprints, "loop", lambda: [("rl/train.py", b"another loop")])
    else:
        root = settings.data / "project"
        agent = [file for one in fingerprints.AGENT for file in fingerprints.files(one)]
        for name in (*agent, *fingerprints.SCORER, *fingerprints.PROMPT, fingerprints.LOCK, fingerprints.DATABASE):
            write_text(root / name, (ROOT / name).read_text())
        changed = {"agent": "lib/backends/local.py", "scorer": "lib/reward.py", "environment": fingerprints.DATABASE}
        with (root / changed[part]).open("a") as file:
            file.write("# another\n")
        patch.setattr(fingerprints, "ROOT", root)


if __name__ == "__main__":
    made = make(Path(sys.argv[1]), gain=float(sys.argv[2]) if len(sys.argv) > 2 else 0.2)
    timing = {"finished": True, "cpu_seconds_by_program": {}, "peak_memory_bytes": 2_000_000_000}
    for step, seconds in (("1_graph", 12.0), ("2_questions", 40.0), ("3_base", 260.0), ("4_train-seed-0", 101.0)):
        write_json(
            made.timings_dir / f"{step}.json", {"step": step, "wall_seconds": seconds, "cpu_seconds": seconds, **timing}
        )
