"""How often a model answered each question, from its episodes: a measure of difficulty that stands beside the questions and never decides about splits.

`python -m lib.questions.pass_rates FOLDER EPISODES...` writes FOLDER_pass_rates.jsonl, next to the folder of the
questions and not in it: the folder is an output of a step that knows no model.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib import episodes, tally
from lib.episodes import Episode
from lib.files import read_jsonl, write_jsonl
from lib.questions.supply import SPLITS, Line


def path_of(folder: Path) -> Path:
    """Where the pass rates of a folder of questions stand."""
    return folder.with_name(f"{folder.name}_pass_rates.jsonl")


def pass_rates(questions: Iterable[Line], found: Iterable[Episode]) -> list[dict[str, Any]]:
    """A line {id, arm, episodes, strict} for each question and arm, sorted by both.

    episodes: how many sampled ones there are, those apart that failed outside of the model's control. strict: the share
    of them that is right by the strict score, from 0 to 1. Raises ValueError for an episode of another set's question.
    """
    asked = {q["id"]: q for q in questions}
    by_arm: dict[str, list[Episode]] = defaultdict(list)
    for episode in found:
        if episode.question not in asked or asked[episode.question]["structure"] != episode.structure:
            raise ValueError(
                f"episode {episode.id} answers {episode.question} of structure {episode.structure!r}, which isn't among "
                "these questions; name the folder of the questions that were asked"
            )
        by_arm[episode.arm].append(episode)
    return sorted(
        (
            {"id": name, "arm": arm, "episodes": samples, "strict": round(right / samples, 4)}
            for arm, kept in by_arm.items()
            for name, (samples, right) in tally.counts(kept).items()
        ),
        key=lambda line: (line["id"], line["arm"]),
    )


def write(folder: Path, files: Iterable[Path]) -> Path:
    """Write the pass rates of the questions in `folder` by the episodes in `files`, and return where."""
    questions = [q for split in SPLITS if (file := folder / f"{split}.jsonl").exists() for q in read_jsonl(file)]
    rates = pass_rates(questions, (episode for file in files for episode in episodes.read(file)))
    write_jsonl(path_of(folder), rates)
    return path_of(folder)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lib.questions.pass_rates", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="folder of the questions")
    parser.add_argument("episodes", type=Path, nargs="+", help="episodes of one or more arms (.jsonl)")
    args = parser.parse_args(arguments)
    print(write(args.folder, args.episodes))


if __name__ == "__main__":
    main()
