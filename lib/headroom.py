"""What practice could gain at most by making the model reliable, from the untrained model's episodes alone, before it is paid for.

Practice by reward makes frequent what the model already does now and then: a question that is always right or never right
teaches nothing. `python -m lib.headroom` says how many there are, of the run in params.yaml (from the base arm's
evaluation) or of any file of episodes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from lib import bootstrap, episodes, tally
from lib.episodes import Episode
from lib.settings import ROOT, SETS, SettingsError, load


class NoHeadroom(RuntimeError):
    """There is too little to gain for training to start; the message says how much there is and what to do."""


def headroom(counts: Sequence[tuple[int, int]], rollouts: int) -> dict[str, Any]:
    """What a group of `rollouts` attempts at each question would hold.

    counts: per question (attempts, right ones), attempts being alike in number but for faults.

    Returns `questions`, `samples` (the fewest attempts at one), `one` (pass@1), `any` and `all` (pass@k and pass^k at k =
    samples), `never`, `sometimes`, `always` (shares of questions), `signal` (expected share of groups that are neither all
    right nor all wrong), `gain` (pass@rollouts - pass@1: what would be won if every question that such a group gets right
    at all became reliable) and `method`.

    Where every question has `rollouts` attempts or more, signal and gain are unbiased (hypergeometric, as pass@k). Fewer
    attempts can't give that: both are moments of the questions' rates of an order that so few draws don't identify. Then the
    rates are taken as beta distributed over questions (lib.tally.beta). With one attempt each not even their spread is known:
    signal and gain are None. Raises ValueError for no question.
    """
    if not counts:
        raise ValueError("no question has an episode that counts, so nothing can be said of headroom")
    n, right = np.array(counts).T
    samples, one = int(n.min()), float(np.mean(right / n))
    signal, gain, method = _of_groups(n, right, rollouts, one)
    return {
        "questions": len(counts),
        "samples": samples,
        "rollouts": rollouts,
        "one": one,
        "any": float(np.mean(bootstrap.pass_at_k(n, right, samples))),
        "all": float(np.mean(bootstrap.pass_hat_k(n, right, samples))),
        "never": float(np.mean(right == 0)),
        "sometimes": float(np.mean((right > 0) & (right < n))),
        "always": float(np.mean(right == n)),
        "signal": signal,
        "gain": gain,
        "method": method,
    }


def _of_groups(n: np.ndarray, right: np.ndarray, rollouts: int, one: float) -> tuple[float | None, float | None, str]:
    if n.min() >= rollouts:
        any_right = float(np.mean(bootstrap.pass_at_k(n, right, rollouts)))
        all_right = float(np.mean(bootstrap.pass_hat_k(n, right, rollouts)))
        return any_right - all_right, any_right - one, "unbiased"
    if n.max() == 1:
        return None, None, "none: one attempt a question says nothing about how rates differ"
    parameters = tally.beta(n, right)
    if parameters is None:  # all questions alike
        all_right, none_right = one**rollouts, (1 - one) ** rollouts
    else:
        a, b = parameters
        all_right, none_right = (
            float(np.exp(special.betaln(a + i, b + j) - special.betaln(a, b)))
            for i, j in ((rollouts, 0), (0, rollouts))
        )
    return 1 - all_right - none_right, 1 - none_right - one, "beta-binomial"


def of_episodes(found: Iterable[Episode], rollouts: int) -> dict[str, Any]:
    """The headroom of sampled episodes; those that ended by a fault don't count, nor greedy ones."""
    return headroom(list(tally.counts(found).values()), rollouts)


def must_have(found: dict[str, Any], least: float) -> None:
    """Raises NoHeadroom where the gain is below `least` (test.least_headroom; 0 never stops), or can't be told."""
    if least > 0 and (found["gain"] is None or found["gain"] < least):
        known = "unknown (one attempt a question)" if found["gain"] is None else f"{found['gain']:.3f}"
        raise NoHeadroom(
            f"reliability alone could give {known}, less than test.least_headroom = {least}: of {found['questions']} dev "
            f"questions {found['always']:.0%} were always right and {found['never']:.0%} never. Choose other questions or "
            "another base model, raise train.dev_samples where they are few, or lower test.least_headroom"
        )


def main(arguments: list[str] | None = None) -> None:
    """Command line: print the headroom as JSON; exit status 1 where there are no episodes to tell it from."""
    parser = argparse.ArgumentParser(prog="python -m lib.headroom", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="episodes (default: the base arm's, on held-out instances)")
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    chosen = parser.parse_args(arguments)
    try:
        settings = load(chosen.params, chosen.data)
        file = chosen.file or settings.episodes("base")
        found = [episode for episode in episodes.read(file) if chosen.file or episode.set == SETS[0]]
        first = min((episode.update or 0 for episode in found), default=0)  # later ones are the trained model's
        found = [episode for episode in found if (episode.update or 0) == first]
        print(json.dumps(of_episodes(found, settings.train.rollouts), indent=1))
    except FileNotFoundError as problem:
        way_out = "" if chosen.file else ": `dvc repro evaluate@base` makes it without any training"
        sys.exit(f"{problem.filename} is missing{way_out}")
    except (SettingsError, ValueError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
