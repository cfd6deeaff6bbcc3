"""Compares the arms of a run by the plan that was written before training, and keeps every figure of the report in one file.

`python -m lib.compare` writes data/runs/<run>/results.json. It reads episodes, the plan, and the summaries of the steps
before; it asks no model and no database anything.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from lib import bootstrap, episodes, hacks, headroom, human_results, measures, mistakes, plan
from lib.episodes import Episode
from lib.files import read_jsonl, write_json
from lib.measures import Arm, Method
from lib.recount import recount
from lib.settings import HUMAN, ROOT, Settings, SettingsError, load

DECIMALS = 6  # of every rate and interval in results.json: far finer than any interval, coarser than float noise
ALL = "trained"  # the seeds of the trained arm, pooled
Arms = dict[tuple[str, str], dict[str, Arm]]  # (set, decode) -> arm's name -> arm


class CompareError(RuntimeError):
    """The run can't be compared; the message names the file and what to do."""


def compare(settings: Settings) -> dict[str, Any]:
    """Write data/runs/<run>/results.json and return it. The same inputs give the same bytes.

    Raises CompareError or plan.PlanError where a step's output is missing, ValueError naming file and line where an
    episode is damaged or there twice.
    """
    planned = plan.read(settings)
    must_be_computable(planned)
    arms = load_arms(settings, planned)
    questions = {
        question["id"]: question for name in planned["sets"] for question in read_jsonl(_questions(settings, name))
    }
    test = Method(planned["first_endpoint"]["confidence"], planned["first_endpoint"]["resamples"])
    by_set = _by_set(arms)
    people = by_set.pop(HUMAN, {})
    results: dict[str, Any] = {
        "run": planned["run"],
        "decimals": DECIMALS,
        "plan": planned,
        "arms": {name: measured_arms(found, test) for name, found in by_set.items()},
        "contrasts": {name: contrasts(found, test) for name, found in by_set.items()},
        **first_set(arms[plan.FIRST_SET, "sampled"], questions, planned, test),
        "training": {str(seed): training(settings, seed, test) for seed in planned["seeds"]},
        "base": _json(settings.run_dir / "base.json"),
        "graph": _parts(settings.graph_dir / "counts.json", ("nodes", "relationships")),
        "questions": _parts(settings.questions_dir / "summary.json", ("counts", "hops", "leaks")),
        "provenance": provenance(settings, arms[plan.FIRST_SET, "sampled"], test),
        "headroom": headroom_of(arms[plan.FIRST_SET, "sampled"]["base"], planned),
        "hacks": hack_scan(settings, planned, arms, questions),
        "checks": checks(settings, planned, arms),
    }
    results["recount"] = counted_again(settings, results)
    results["endpoints"] = beside(settings, arms, test)
    results["human"] = by_people(people, results["checks"]["validate"] or {}, planned, test)
    results["seeds"] = over_seeds(results, planned)
    results["predictions"] = predictions(results, planned)
    results["verdict"] = verdict(results, planned)
    results = rounded(results)
    write_json(settings.run_dir / "results.json", results)
    return results


def must_be_computable(planned: dict[str, Any]) -> None:
    """Raises CompareError where the plan's endpoints are others than those computed here, PlanError for its confidence."""
    for name, computed in (("first_endpoint", plan.FIRST_TEST), ("second_endpoint", plan.SECOND_TEST)):
        wanted = {key: planned[name][key] for key in computed}
        if wanted != computed:
            raise CompareError(
                f"the plan's {name} is {wanted}, but what is computed is {computed}: write the plan anew"
            )
    plan.confident(planned["first_endpoint"]["confidence"])


def load_arms(settings: Settings, planned: dict[str, Any]) -> Arms:
    """All evaluation episodes by set and decoding, with the pooled arm `trained` beside the seeds' own."""
    trained = [f"trained-{seed}" for seed in planned["seeds"]]
    groups: dict[tuple[str, str], dict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for name in ("base", "control", *trained):
        file = settings.episodes(name)
        if not file.exists():
            raise CompareError(f"{file} is missing: evaluate arm {name!r} (5_evaluate) first")
        for episode in episodes.read(file):
            groups[episode.set, episode.decode][name].append(episode)
            if name in trained:
                groups[episode.set, episode.decode][ALL].append(episode)
    arms = {key: {name: Arm.of(name, found) for name, found in group.items()} for key, group in sorted(groups.items())}
    empty = [
        f"{name}, {decode}, {arm.name}"
        for (name, decode), group in arms.items()
        for arm in group.values()
        if not arm.by_question
    ]
    if empty:
        raise CompareError(f"every episode of {'; '.join(empty)} was lost to faults: evaluate again")
    for key in ((plan.FIRST_SET, "sampled"), (plan.FIRST_SET, "greedy")):
        missing = [name for name in ("base", "control", ALL, *trained) if not (key in arms and name in arms[key])]
        if missing:
            raise CompareError(f"no {key[1]} episodes on {key[0]} of {', '.join(missing)}: run 5_evaluate to its end")
    return arms


def measured_arms(found: dict[str, dict[str, Arm]], test: Method) -> dict[str, Any]:
    """Rates of each arm, by way of decoding."""
    return {
        decode: {
            name: {**measures.summary(arm, test), "outcomes": measures.outcomes(arm)}
            for name, arm in sorted(group.items())
        }
        for decode, group in found.items()
    }


def contrasts(found: dict[str, dict[str, Arm]], test: Method) -> dict[str, Any]:
    """Paired differences by way of decoding, contrast (`after - before`) and score."""
    return {
        decode: {
            f"{after} - {before}": {
                score: measures.contrast(group[before], group[after], score, test) for score in measures.SCORES
            }
            for before, after in _pairs(group)
        }
        for decode, group in found.items()
    }


def _pairs(group: dict[str, Arm]) -> list[tuple[str, str]]:
    trained = sorted(name for name in group if name.startswith(ALL))
    pairs = [("base", "control"), *(("control", name) for name in trained), ("base", ALL)]
    return [(before, after) for before, after in pairs if before in group and after in group]


def by_people(
    found: dict[str, dict[str, Arm]], validated: dict[str, Any], planned: dict[str, Any], test: Method
) -> dict[str, Any] | None:
    """What the arms score on people's questions; None where the run has none. It is part of no verdict."""
    pairs = _pairs(found.get("sampled", {}))
    return human_results.section(planned["human"], found, pairs, validated.get(HUMAN, {}), test)


def beside(settings: Settings, arms: Arms, test: Method) -> dict[str, Any]:
    """Models behind endpoints, by name: their rates by set and way of decoding, and how far the trained arm is above them.

    Exploratory, and part of no verdict: another model differs in more than what was practised.
    """
    found = {}
    for endpoint in settings.endpoints:
        file = settings.episodes(endpoint.arm)
        if not file.exists():
            raise CompareError(f"{file} is missing: `python -m lib.endpoint {endpoint.name}` writes it")
        groups: dict[tuple[str, str], list[Episode]] = defaultdict(list)
        for episode in episodes.read(file):
            groups[episode.set, episode.decode].append(episode)
        sets: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, kept in sorted(groups.items()):
            arm, name = Arm.of(endpoint.arm, kept), f"{ALL} - {endpoint.arm}"
            above = measures.contrast(arm, arms[key][ALL], "strict", test)
            sets[key[0]][key[1]] = {**measures.summary(arm, test), "outcomes": measures.outcomes(arm), name: above}
        found[endpoint.name] = {"model": endpoint.model, "sets": dict(sets)}
    return found


def first_set(
    group: dict[str, Arm], questions: dict[str, dict[str, Any]], planned: dict[str, Any], test: Method
) -> dict[str, Any]:
    """Everything that looks inside of the gain on the first endpoint's set and draws."""
    base, control, trained = group["base"], group["control"], group[ALL]
    seeds = [group[f"trained-{seed}"] for seed in planned["seeds"]]
    samples = planned["first_endpoint"]["samples"]
    hops = sorted({episode.hops for episode in control.episodes})
    flow = measures.flows(control, trained)

    def at(hop: int) -> list[str]:
        return [question for question, found in control.by_question.items() if found[0].hops == hop]

    return {
        "equivalence": measures.equivalence(base, control, planned["equivalence"]["margin"], test),
        "flows": flow,
        "form_and_substance": measures.form_and_substance(flow),
        "reach": {
            "base": measures.reach([base], samples, test),
            "control": measures.reach([control], samples, test),
            ALL: measures.reach(seeds, samples, test),
        },
        "reach_gain": measures.reach_gain(control, seeds, test),
        "crossed": measures.crossed(control, seeds, test),
        "by_hops": {str(hop): measures.contrast(control, trained, "strict", test, at(hop)) for hop in hops},
        "groups": {
            "by base": measures.by_untrained([base], [control, trained]),
            "by control": measures.by_untrained([control], [base, trained]),
            "by base and control": measures.by_untrained([base, control], [base, control, trained]),
        },
        "changes": measures.changes(control, trained),
        "structures": measures.by_structure(control, trained),
        "mistakes": mistakes.mistakes(
            [base, control, trained, *seeds],
            control,
            trained,
            questions,
            test,
            planned["settings"]["cold_start"] is not None,
        ),
        "never_solved": mistakes.never_solved([base, control, trained], questions),
        "examples": mistakes.examples(control, trained, questions),
    }


def headroom_of(base: Arm, planned: dict[str, Any]) -> dict[str, Any]:
    """What the base arm's episodes say of practice's room, with the least that the plan asked for."""
    found = headroom.of_episodes(base.episodes, planned["settings"]["train"]["rollouts"])
    return {**found, "least": planned["settings"]["test"]["least_headroom"]}


def provenance(settings: Settings, group: dict[str, Arm], test: Method) -> dict[str, Any]:
    """How much of the right nodes each arm's scored queries looked at, as lib.provenance found it; an episode without a
    query looked at none."""
    file = settings.run_dir / "provenance.jsonl"
    if not file.exists():
        raise CompareError(f"{file} is missing: `python -m lib.provenance` writes it")
    similar = {(line["question"], line["query"]): line["similarity"] for line in read_jsonl(file)}

    def similarity(episode: Episode) -> float:
        if episode.query is None:
            return 0.0
        if (episode.question, episode.query) not in similar:
            raise CompareError(
                f"{file} lacks the query of {episode.id}: write it anew, with `python -m lib.provenance`"
            )
        found = similar[episode.question, episode.query]
        return math.nan if found is None else found

    arms = {name: group[name] for name in ("base", "control", ALL)}
    return measures.provenance(arms, "control", ALL, similarity, test)


def hack_scan(
    settings: Settings, planned: dict[str, Any], arms: Arms, questions: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Ways to earn reward without answering: in each arm on the first set, and in the last quarter of each seed's practice."""
    group = arms[plan.FIRST_SET, "sampled"]
    tested = {name: group[name].episodes for name in ("base", "control", ALL)}
    found = hacks.scan(tested, [one for one in questions.values() if one["split"] == plan.FIRST_SET])
    practised = {one["id"]: one for one in read_jsonl(_questions(settings, "train"))}
    for seed in planned["seeds"]:
        late = planned["settings"]["train"]["updates"] * 3 // 4
        kept = [e for e in episodes.read(settings.train_dir(seed) / "episodes.jsonl") if (e.update or 0) >= late]
        asked = sorted({episode.question for episode in kept})
        found += hacks.scan({f"practice, seed {seed}": kept}, [practised[name] for name in asked])
    return found


def counted_again(settings: Settings, results: dict[str, Any]) -> dict[str, Any]:
    """The headline beside what lib.recount makes of the same files; agrees: nothing differs. Where no rows could be judged
    anew (judged is 0: all of them wide, or kept in part) it repeats the arithmetic alone, and the report says so."""
    again = recount(settings.run_dir, settings.questions_dir, plan.FIRST_SET)
    arms = results["arms"][plan.FIRST_SET]["sampled"]
    gain = results["contrasts"][plan.FIRST_SET]["sampled"]["trained - control"]["strict"]["delta"]
    pairs = {name: [arms[name]["strict"]["rate"], again["rates"].get(name)] for name in ("base", "control", ALL)}
    pairs["gain"] = [gain, again["gain"]]
    same = all(other is not None and math.isclose(one, other, abs_tol=1e-9) for one, other in pairs.values())
    return {
        "figures": pairs,
        "judged": again["judged"],
        "disagreements": again["disagreements"],
        "agrees": same and not again["disagreements"],
    }


def training(settings: Settings, seed: int, test: Method) -> dict[str, Any]:
    """One seed's curves: the dev questions by update, and one line an update of what the loop reported; and what came between:
    faults, and where the run was killed and gone on from."""
    folder = settings.train_dir(seed)
    for name in ("updates.jsonl", "dev.jsonl"):
        if not (folder / name).exists():
            raise CompareError(f"{folder / name} is missing: train seed {seed} (4_train) first")
    updates = read_jsonl(folder / "updates.jsonl")
    looks: dict[int, list[Episode]] = defaultdict(list)
    for episode in episodes.read(folder / "dev.jsonl"):
        looks[episode.update or 0].append(episode)
    dev = []
    for update, found in sorted(looks.items()):
        arm = measures.summary(Arm.of(f"update {update}", found), test)
        dev.append(
            {"update": update, **{key: arm[key] for key in ("questions", "episodes", "faulty", "strict", "lenient")}}
        )
    losses = [line["loss"] for line in updates if line["loss"] is not None]
    interruptions = folder / "interruptions.jsonl"
    quarter = max(1, len(updates) // 4)
    keys = ("groups", "groups_with_signal", "groups_all_right", "groups_none_right", "tokens_sampled", "tokens_trained")
    return {
        "updates": updates,
        "dev": dev,
        "totals": {key: sum(line[key] or 0 for line in updates) for key in keys},
        "faults": {key: sum(line.get(key, 0) for line in updates) for key in ("rollouts_lost", "groups_dropped")},
        "interruptions": read_jsonl(interruptions) if interruptions.exists() else [],
        "reward": {
            "updates": quarter,
            "first": measures.mean([line["reward_mean"] for line in updates[:quarter]]),
            "last": measures.mean([line["reward_mean"] for line in updates[-quarter:]]),
        },
        "loss": {
            "least": min(losses, default=None),
            "most": max(losses, default=None),
            "positive": sum(loss > 0 for loss in losses),
        },
    }


def over_seeds(results: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """Each seed's gain, and a t-interval of their mean, which covers what differs from one training to the next."""
    found = results["contrasts"][plan.FIRST_SET]["sampled"]
    gains = [found[f"trained-{seed} - control"]["strict"]["delta"] for seed in planned["seeds"]]
    if len(gains) < 2:
        return {"gains": gains, "mean": gains[0], "low": None, "high": None}
    low, high = bootstrap.t_interval(gains, planned["first_endpoint"]["confidence"])
    return {"gains": gains, "mean": measures.mean(gains), "low": low, "high": high}


def predictions(results: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """What the plan foretold, with the two figures that decide and whether it came true (None: can't be said)."""
    first = results["contrasts"][plan.FIRST_SET]
    gain = first["sampled"]["trained - control"]["strict"]["delta"]
    apart = results["contrasts"].get(plan.APART_SET, {}).get("sampled", {}).get("trained - control", {}).get("strict")
    greedy = first["greedy"]["trained - control"]["strict"]["delta"]
    reach = results["reach_gain"]
    share = (results["mistakes"]["planted"] or {}).get("share_of_gain")
    found: dict[str, tuple[Any, Any, bool | None]] = {
        "reliability": (reach["all"]["delta"], reach["any"]["delta"], reach["all"]["delta"] > reach["any"]["delta"]),
        "cooling": (greedy, gain, greedy < gain),
        "transfer": (apart["low"], apart["high"], apart["low"] <= 0 <= apart["high"]) if apart else (None, None, None),
        "planted": (share, 0.5, None if share is None else share > 0.5),
    }
    return {
        name: {
            "text": one["foretold"],
            "because": one["because"],
            "figures": list(found[name][:2]),
            "held": found[name][2],
        }
        for name, one in planned["predictions"].items()
    }


def checks(settings: Settings, planned: dict[str, Any], arms: Arms) -> dict[str, Any]:
    """What must hold before a verdict may be read: the plan stands, no episode is missing, few are faulty, the path is sound."""
    differences = plan.check(settings)
    sizes = {name: found["questions"] for name, found in {**planned["sets"], HUMAN: planned["human"]}.items()}
    missing, faulty = {}, {}
    for (name, decode), group in arms.items():
        samples = planned["first_endpoint"]["samples"] if decode == "sampled" else 1
        expected = sizes[name] * samples
        for arm in group.values():
            lost = expected * (len(planned["seeds"]) if arm.name == ALL else 1) - len(arm.episodes) - len(arm.faulty)
            missing[f"{name}, {decode}, {arm.name}"] = lost
            faulty[f"{name}, {decode}, {arm.name}"] = len(arm.faulty)
    file = settings.run_dir / "validate.json"
    return {
        "plan": {"stands": not differences, "differences": differences},
        "missing": {key: lost for key, lost in missing.items() if lost},
        "faulty": {key: lost for key, lost in faulty.items() if lost},
        "validate": _json(file) if file.exists() else None,
    }


def verdict(results: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """The sentence that a run ends with: success only if the planned test says so and nothing speaks against reading it."""
    first = planned["first_endpoint"]
    found = results["contrasts"][plan.FIRST_SET]["sampled"]["trained - control"]["strict"]
    interval = f"{points(found['delta'])} points [{points(found['low'])}, {points(found['high'])}] over the control"
    against = objections(results, planned)
    if against:
        return {
            "verdict": "no success",
            "reason": f"the test can't be read: {'; '.join(against)} (measured: {interval})",
        }
    bar = f"the bar of {points(first['bar'], sign=False)} points"
    if found["delta"] < first["bar"]:
        return {"verdict": "no success", "reason": f"the gain of {interval} is below {bar}"}
    if found["low"] <= 0:
        return {
            "verdict": "no success",
            "reason": f"the gain of {interval} reaches {bar}, but its interval includes zero",
        }
    return {"verdict": "success", "reason": f"the gain of {interval} reaches {bar} and its interval lies above zero"}


def objections(results: dict[str, Any], planned: dict[str, Any]) -> list[str]:
    """Reasons why the planned test can't be read on these episodes, in words."""
    found, checked = [], results["checks"]
    if not checked["plan"]["stands"]:
        found.append("the plan doesn't stand (" + "; ".join(checked["plan"]["differences"]) + ")")
    for decode in ("sampled", "greedy"):
        if any(key.startswith(f"{plan.FIRST_SET}, {decode}") for key in checked["missing"]):
            found.append(f"{decode} episodes of {plan.FIRST_SET} are missing")
    for name, arm in results["arms"][plan.FIRST_SET]["sampled"].items():
        share = arm["faulty"] / max(1, arm["faulty"] + arm["episodes"])
        if share > planned["faults"]["most"]:
            found.append(f"{share:.1%} of the episodes of {name} were lost to faults")
    if not results["recount"]["agrees"]:
        found.append("a second count of the same episodes doesn't agree")
    validated = checked["validate"] or {}
    unchecked = [name for name in planned["sets"] if name not in validated]
    if unchecked:
        found.append(f"validate.json doesn't say whether the scoring of {' and '.join(unchecked)} is sound")
    if not sound(validated):
        found.append("the oracle doesn't score one, or the null agent not zero")
    return found


def sound(validated: dict[str, Any]) -> bool:
    """Does replaying the reference score 1 and saying nothing 0 on every set? People's questions may allow no replay."""
    return all(rates["null"] == 0 and rates.get("oracle", name == HUMAN) == 1 for name, rates in validated.items())


def points(share: float, sign: bool = True) -> str:
    """A share as percentage points with one decimal: 0.0567 is +5.7."""
    text = f"{share * 100:+.1f}" if sign else f"{share * 100:.1f}"
    return text.replace("+0.0", "0.0").replace("-0.0", "0.0").replace("-", "−")


def rounded(value: Any) -> Any:
    """The same structure with every float rounded, so that the last bits of a sum never change the file."""
    if isinstance(value, float):
        return (round(value, DECIMALS) + 0.0) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _by_set(arms: Arms) -> dict[str, dict[str, dict[str, Arm]]]:
    found: dict[str, dict[str, dict[str, Arm]]] = {}
    for (name, decode), group in arms.items():
        found.setdefault(name, {})[decode] = group
    return found


def _questions(settings: Settings, name: str) -> Path:
    return settings.questions_dir / f"{name}.jsonl"


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CompareError(f"{file} is missing: run the step that writes it, or all with `make study`") from None


def _parts(file: Path, names: tuple[str, ...]) -> dict[str, Any]:
    found = _json(file)
    return {name: found[name] for name in names}


def main(arguments: list[str] | None = None) -> None:
    """Command line: compare the run in params.yaml and print its verdict; exit status 1 where that isn't possible."""
    parser = argparse.ArgumentParser(prog="python -m lib.compare", description=__doc__.split("\n\n")[0])
    parser.add_argument("--params", type=Path, default=ROOT / "params.yaml", help="the parameter file")
    parser.add_argument("--data", type=Path, default=None, help="another data folder than the project's")
    chosen = parser.parse_args(arguments)
    try:
        found = compare(load(chosen.params, chosen.data))["verdict"]
    except (CompareError, plan.PlanError, SettingsError, ValueError) as problem:
        parser.exit(1, f"{problem}\n")
    print(f"{found['verdict']}: {found['reason']}")


if __name__ == "__main__":
    main()
