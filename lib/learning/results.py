"""What came out of the experiment: each arm against the untrained control and against the baseline, with intervals over
trainings and questions, and corrected for having compared many.

A gain's interval takes trainings and structures of questions as drawn from many (`bootstrap.crossed`), its p comes from the same
distribution, and within a family of comparisons p is corrected by Holm's method (1979), an interval by Bonferroni's. Dev
questions give the curves, test questions all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize
from statsmodels.stats.multitest import multipletests

from lib import bootstrap, tally
from lib.bootstrap import pass_at_k, pass_hat_k
from lib.compare import rounded
from lib.episodes import Episode, read
from lib.files import read_jsonl, write_json, write_text
from lib.learning import arms, figures
from lib.learning.arms import BASELINE, BEST, CLEAN, HALF, PARTS, Arm, Declared
from lib.learning.layout import (
    BASE,
    CONTROL,
    STUDY,
    TUNED,
    ArmSettings,
    at_temperature,
    before,
    choice,
    combined,
    folder,
    never_solved,
    settings_of,
)  # fmt: skip
from lib.measures import mean
from lib.plan import APART_SET, FIRST_SET
from lib.settings import PROFILES, SETS, Settings, load
from lib.tally import Count
from lib.updates import TEMPERATURE

LEAST_CONFIDENCE = 1e-9
REACHES = {"reach": FIRST_SET, "reach_new": APART_SET}  # on questions never solved; each is a family of comparisons
GAINS = ("control", "greedy", "tuned", "baseline")  # what an arm is compared with; each is a family of comparisons

Scores = dict[str, float]  # by question


# ---------------------------------------------------------------- answers


@dataclass
class Answers:
    """One model's answers: attempts and right ones by question, the greedy one, and how many a fault ended."""

    sampled: dict[str, Count]
    greedy: Scores
    structure: dict[str, str]
    lost: int

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> Answers:
        """Of episodes of one model."""
        real = [e for e in episodes if e.fault is None]
        greedy = {e.question: float(e.strict) for e in real if e.decode == "greedy"}
        structure = {e.question: e.structure or e.question for e in episodes}
        return cls(tally.counts(real), greedy, structure, len(episodes) - len(real))

    def rates(self) -> Scores:
        """The share of a question's samples that are strictly right."""
        return {question: count.right / count.samples for question, count in self.sampled.items()}

    def chances(self, chance: Callable[..., Any], k: int, among: Sequence[str] | None = None) -> Scores:
        """pass@k or pass^k of each question (of those in `among`) that has k samples at least."""
        some = self.sampled if among is None else [q for q in among if q in self.sampled]
        return {q: float(chance(*self.sampled[q], k)) for q in some if self.sampled[q].samples >= k}


# ---------------------------------------------------------------- comparisons


@dataclass(frozen=True)
class Method:
    """confidence: of an interval. comparisons: of one family, for which intervals are corrected."""

    confidence: float
    comparisons: int = 1


def contrast(
    old: Sequence[Scores], new: Sequence[Scores], structure: Mapping[str, str], method: Method
) -> dict[str, Any]:
    """By how much the trainings `new` score higher, on the questions that all have a score for.

    old: one untrained model, or as many trainings as `new`, in the same order of seeds. Returns `delta` with `low` and `high`,
    `corrected` (the interval at a confidence of 1 - (1 - confidence) / comparisons), `p` (not corrected; two-sided), the mean of
    each training and warnings; of fewer than two structures or trainings only how many questions there are.
    """
    shared = sorted(set.intersection(*(set(scores) for scores in (*old, *new))))
    before = list(old) * len(new) if len(old) == 1 else old
    changes = np.array([[b[q] - a[q] for a, b in zip(before, new, strict=True)] for q in shared], float)
    clusters = [structure[question] for question in shared]
    if len(new) < 2 or len(set(clusters)) < 2:
        return {"questions": len(shared)}
    found = bootstrap.crossed(changes, clusters, method.confidence)
    sure = bootstrap.crossed(changes, clusters, 1 - (1 - method.confidence) / method.comparisons)
    return {
        "questions": len(shared),
        "structures": len(set(clusters)),
        "delta": found.mean,
        "low": found.low,
        "high": found.high,
        "corrected": [sure.low, sure.high],
        "p": p_value(changes, clusters),
        "trainings": list(map(float, changes.mean(axis=0))),
        "warnings": list(found.warnings),
    }


def p_value(changes: np.ndarray, clusters: Sequence[str]) -> float:
    """Two-sided p of no gain: one less the confidence at which the interval of `bootstrap.crossed` just reaches zero, which
    is how a test and an interval of the same t distribution belong together. Never below 1 - bootstrap.SUREST."""

    def beyond(confidence: float) -> float:
        found = bootstrap.crossed(changes, clusters, confidence)
        return abs(found.mean) - (found.high - found.mean)

    if beyond(LEAST_CONFIDENCE) <= 0:
        return 1.0
    if beyond(bootstrap.SUREST) >= 0:
        return 1 - bootstrap.SUREST
    return 1 - float(optimize.brentq(beyond, LEAST_CONFIDENCE, bootstrap.SUREST))


def holm(found: Mapping[str, dict[str, Any]]) -> None:
    """Add `holm`, the p corrected for all comparisons of the family, to each that has a p."""
    family = [one for one in found.values() if "p" in one]
    if family:
        for one, p in zip(family, multipletests([one["p"] for one in family], method="holm")[1], strict=True):
            one["holm"] = float(p)


def verdict(found: Mapping[str, Any], confidence: float) -> str:
    """What a comparison shows, once it is corrected."""
    if found.get("holm", 1.0) >= 1 - confidence:
        return "no difference shown"
    return "better" if found["delta"] > 0 else "worse"


def level(models: Sequence[Scores], structure: Mapping[str, str], confidence: float) -> dict[str, float]:
    """The mean rate of one untrained model, or of several trainings, with its interval."""
    shared = sorted(set.intersection(*map(set, models)))
    values = np.array([[scores[question] for scores in models] for question in shared])
    clusters = [structure[question] for question in shared]
    if len(models) > 1:
        found = bootstrap.crossed(values, clusters, confidence)
    else:
        found = bootstrap.mean(values, clusters, confidence=confidence, widened=True)
    return {"rate": found.mean, "low": found.low, "high": found.high}


# ---------------------------------------------------------------- what was spent


def spent(one: ArmSettings, seeds: Sequence[int], prepass: Sequence[int]) -> dict[str, Any]:
    """Tokens, updates, groups and warnings of an arm's trainings, from their updates.jsonl; tokens with each one's pre-pass."""
    runs = [read_jsonl(one.train_dir(seed) / "updates.jsonl") for seed in seeds]
    lines = [line for run in runs for line in run]
    groups, signal = (sum(line[key] for line in lines) for key in ("groups", "groups_with_signal"))
    return {
        "prepass": prepass,
        "tokens": [
            start + sum(line["tokens_sampled"] for line in run) for start, run in zip(prepass, runs, strict=True)
        ],
        "updates": [len(run) for run in runs],
        "groups": groups,
        "signal": signal / groups,
        "all_right": sum(line["groups_all_right"] for line in lines) / groups,
        "none_right": sum(line["groups_none_right"] for line in lines) / groups,
        "warnings": sum(len(line.get("warnings", ())) for line in lines),
    }


def curve(
    one: ArmSettings, seeds: Sequence[int], prepass: Sequence[int], base: Answers, method: Method
) -> list[dict[str, Any]]:
    """The gain on dev questions over the untrained model, look by look: the regular ones that all trainings had, and the last.

    tokens: sampled until then, the pre-pass included, mean over trainings.
    """
    looks, tokens = [], []
    for seed, start in zip(seeds, prepass, strict=True):
        by: dict[int, list[Episode]] = {}
        for episode in read(one.train_dir(seed) / "dev.jsonl"):
            by.setdefault(episode.update or 0, []).append(episode)
        looks.append({update: Answers.of(found).rates() for update, found in by.items()})
        lines = read_jsonl(one.train_dir(seed) / "updates.jsonl")
        tokens.append([*accumulate((line["tokens_sampled"] for line in lines), initial=start)])
    last = [max(found) for found in looks]
    regular = sorted(set.intersection(*map(set, looks)) - set(last))
    points = [[update] * len(seeds) for update in regular] + [last]
    return [
        {
            "updates": at,
            "tokens": float(np.mean([spent[update] for spent, update in zip(tokens, at, strict=True)])),
            **contrast([base.rates()], [found[u] for found, u in zip(looks, at, strict=True)], base.structure, method),
        }
        for at in points
    ]


# ---------------------------------------------------------------- all of it


@dataclass
class Experiment:
    """All files of the experiment, read once each."""

    settings: Settings
    declared: Declared
    _read: dict[tuple[str, str, str], Answers] = field(default_factory=dict)

    def answers(self, name: str, who: str, part: str = FIRST_SET) -> Answers:
        """part: a set of the test's questions."""
        if (name, who, part) not in self._read:
            found = read(settings_of(self.settings, name).episodes(who))
            for split in SETS:
                self._read[name, who, split] = Answers.of([e for e in found if e.set == split])
        return self._read[name, who, part]

    def trainings(self, name: str, seeds: Sequence[int] | None = None, part: str = FIRST_SET) -> list[Answers]:
        seeds = self.settings.train.seeds if seeds is None else seeds
        return [self.answers(name, f"trained-{seed}", part) for seed in seeds]

    def results(self) -> dict[str, Any]:
        """All numbers of results.json."""
        rules, confidence, facts = self.declared.rules, self.settings.test.confidence, before(self.settings)
        late = combined(self.settings, self.declared)
        whole = {**self.declared.arms, BEST: late[BEST][0]}
        hard = never_solved(self.settings)
        method = Method(confidence, len(whole))
        found = {name: self._arm(name, arm, 1.0, hard, method) for name, arm in whole.items()}
        for against in GAINS:
            holm({name: one["gains"][against] for name, one in found.items() if against in one["gains"]})
        for reach in REACHES:
            holm({name: one[reach] for name, one in found.items()})
        for one in found.values():
            one["verdicts"] = {against: verdict(gain, confidence) for against, gain in one["gains"].items()}
        single = Method(confidence)
        halves = {n: self._arm(n, arm, share, hard, single) for n, (arm, share) in late.items() if n.endswith(HALF)}
        return {
            "budget": facts["budget"],
            "before": facts,
            "rules": asdict(rules),
            "seeds": list(self.settings.train.seeds),
            "confidence": confidence,
            "samples": self.settings.evaluate.samples,
            "choice": choice(self.settings),
            "references": self._references(),
            "never_solved": {s: len(set(hard) & self.answers(BASE, "base", s).sampled.keys()) for s in SETS},
            "order": list(found),
            "arms": found,
            "halves": {name: one | {"not_inferior": self._not_inferior(one)} for name, one in halves.items()},
            "clean": self._clean(single),
            "targets": self._targets(found, halves),
            "published": {part: arms.plain(whole[BASELINE])[part] for part in PARTS},
            "default": self._default(whole[BEST], found[BEST]),
        }

    def _default(self, best: Arm, found: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the default study is to take the best combination: where it was shown to be better than the baseline. And
        whether profiles/tiny.yaml has it, or has the baseline where not."""
        taken = found["verdicts"]["baseline"] == "better"
        has, want = load(PROFILES / f"{STUDY}.yaml").train, best if taken else self.declared.arms[BASELINE]
        return {
            "takes": BEST if taken else BASELINE,
            "settings": {part: arms.plain(want)[part] for part in PARTS},
            "done": all(getattr(has, part) == getattr(want, part) for part in PARTS),
        }

    def _arm(self, name: str, arm: Arm, share: float, hard: Sequence[str], method: Method) -> dict[str, Any]:
        settings, rules, facts = self.settings, self.declared.rules, before(self.settings)
        one, seeds = settings_of(settings, name), settings.train.seeds
        prepass = [0 if arm.prepass is None else facts["prepass"][str(seed)] for seed in seeds]
        mine, control, tuned = self.trainings(name), self.answers(CONTROL, "control"), self.answers(TUNED, "control")
        against = partial(contrast, structure=control.structure, method=method)
        rates, samples = [m.rates() for m in mine], settings.evaluate.samples
        gains = {
            "control": against([control.rates()], rates),
            "greedy": against([control.greedy], [m.greedy for m in mine]),
            "tuned": against([tuned.rates()], rates),
        }
        if name != BASELINE:
            gains["baseline"] = against([m.rates() for m in self.trainings(BASELINE)], rates)

        def chances(chance: Callable[..., Any], k: int) -> dict[str, Any]:
            return against([control.chances(chance, k)], [m.chances(chance, k) for m in mine])

        def reached(split: str) -> dict[str, Any]:
            fresh = self.answers(CONTROL, "control", split)
            old, *new = (m.chances(pass_at_k, rules.reach, hard) for m in (fresh, *self.trainings(name, part=split)))
            return contrast([old], new, fresh.structure, method) | {"control": mean(old.values())}

        baseline = self.declared.arms[BASELINE]
        dev = [e for e in read(folder(settings) / "before" / "dev.jsonl") if e.arm == at_temperature(TEMPERATURE)]
        return {
            "why": arm.why,
            "role": arm.role,
            "changes": [part for part in PARTS if getattr(arm, part) != getattr(baseline, part)],
            "share": share,
            "lost": sum(m.lost for split in SETS for m in self.trainings(name, part=split)),
            **spent(one, seeds, prepass),
            **level(rates, control.structure, method.confidence),
            "gains": gains,
            **{reach: reached(split) for reach, split in REACHES.items()},
            "any": chances(pass_at_k, samples),
            "all": chances(pass_hat_k, samples),
            "curve": curve(one, seeds, prepass, Answers.of(dev), Method(method.confidence)),
        }

    def _references(self) -> dict[str, Any]:
        """The untrained models' rates; greedy is the control's."""
        confidence = self.settings.test.confidence
        base, control, tuned = (
            self.answers(name, who) for name, who in ((BASE, "base"), (CONTROL, "control"), (TUNED, "control"))
        )
        scores = {"base": base.rates(), "control": control.rates(), "greedy": control.greedy, "tuned": tuned.rates()}
        return {name: level([found], control.structure, confidence) for name, found in scores.items()}

    def _not_inferior(self, half: Mapping[str, Any]) -> dict[str, Any]:
        """An arm with half of the budget against the baseline with all of it: its interval must lie above minus the margin."""
        found, margin = half["gains"]["baseline"], self.declared.rules.margin
        return {"margin": margin, "holds": found["low"] > -margin}

    def _clean(self, method: Method) -> dict[str, Any]:
        """The baseline from a clean teacher against the same model untrained."""
        control, seeds = self.answers(CLEAN, "control"), self.declared.rules.clean_seeds
        mine = [m.rates() for m in self.trainings(CLEAN, seeds)]
        one = settings_of(self.settings, CLEAN)
        return {
            "control": level([control.rates()], control.structure, method.confidence),
            **level(mine, control.structure, method.confidence),
            **spent(one, seeds, [0] * len(seeds)),
            "gain": contrast([control.rates()], mine, control.structure, method),
        }

    def _targets(self, arms: Mapping[str, Any], halves: Mapping[str, Any]) -> dict[str, Any]:
        """The figures that the experiment was to reach, each with the arm that came nearest."""
        rules = self.declared.rules
        practised = {name: one for name, one in arms.items() if self._practises(name)}
        clearest = max(practised, key=lambda name: practised[name]["signal"])
        reaching = [(one["reach"]["corrected"][0], name) for name, one in arms.items() if "corrected" in one["reach"]]
        low, furthest = max(reaching, default=(0.0, None))
        half = halves.get(f"{BEST}{HALF}")
        return {
            "signal": {
                "least": rules.signal,
                "arm": clearest,
                "reached": practised[clearest]["signal"] >= rules.signal,
            },
            "half": None if half is None else {"arm": f"{BEST}{HALF}", "reached": self._not_inferior(half)["holds"]},
            "reach": {"arm": furthest, "reached": low > 0},
        }

    def _practises(self, name: str) -> bool:
        return name == BEST or self.declared.arms[name].role != "comparator"


def write(settings: Settings, declared: Declared) -> Path:
    """Write data/learning/results.json, and beside it the figure of the gains."""
    found, out = rounded(Experiment(settings, declared).results()), folder(settings) / "results.json"
    write_json(out, found)
    write_text(out.with_name("gains.svg"), figures.drawn("gains", found) + "\n")
    return out
