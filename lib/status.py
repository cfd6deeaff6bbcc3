"""Says how far a run is while it goes on: read from the files that it writes anyway, so that looking disturbs nothing.

    python -m lib.status                    the run in params.yaml
    python -m lib.status RUN --follow       again every few seconds, until interrupted
    python -m lib.status RUN --html FILE    as a page that loads itself anew, written again with --follow
    python -m lib.status RUN --json         for other programs
    python -m lib.status RUN --tensorboard FOLDER, --wandb FOLDER    each update's figures, for those programs

Nothing shown here is a result: rewards are those of practice, on other questions in each update, and the time that is left
is a guess from the step's pace since it was started (of an evaluation that goes on after a kill: too low a guess).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lib.backends import gauge, ledger
from lib.episodes import Episode
from lib.files import read_jsonl, write_text
from lib.settings import HUMAN, ROOT, SETS, SettingsError, load

SHOWN_UPDATES, SHOWN_EPISODES, WIDTH = 8, 5, 110  # lines, lines, characters of a line
EVERY = 10.0  # seconds, between looks of --follow and loads of the page
STYLE = ROOT / "reports" / "style.css"
TITLES = {
    "reward": "reward of practice",
    "strict": "strictly right",
    "signal": "groups with a signal",
    "masked": "rollouts ended by a fault",
}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}: {stage}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1 class="title">{name}</h1>
<p class="subtitle">{stage}</p>
<p><label><input type="checkbox" id="again" checked> load this page again while the run goes on</label></p>
{figures}
<h2>Practice, update by update</h2>
{charts}
<h2>Steps</h2>
{parts}
<h2>Last episodes</h2>
{last}
</main>
<script>
setInterval(() => document.getElementById("again").checked && location.reload(), {milliseconds});
</script>
</body>
</html>
"""


TRAINING = {"prepass": "pre-pass", "episodes": "train"}  # a training's files that grow, and what the step is called


class StatusError(ValueError):
    """There is no such run; the message names those that there are."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A step that asks the model. `of`: rollouts in all, None where the run's settings aren't known. `before`: of those that
    are done, how many were so when it was last started. Times are seconds."""

    name: str
    done: int
    of: int | None
    before: int
    began: float | None
    written: float | None

    @property
    def complete(self) -> bool:
        return self.of is not None and self.done >= self.of


def status(run: Path) -> dict[str, Any]:
    """How far a run's folder is: {run, stage, parts, updates, tokens, cost, seconds_left, quiet_seconds, idle, last}.

    Raises StatusError for a run that was never planned here.
    """
    settings = _settings(run)
    if settings is None and not run.is_dir():
        known = sorted(path.name for path in run.parent.glob("*") if path.is_dir())
        raise StatusError(f"there is no run {run.name!r} in {run.parent}; there is {', '.join(known) or 'none'}")
    kept = {
        file: list(_episodes(file))
        for pattern in (*(f"train/*/{name}.jsonl" for name in TRAINING), "evaluate/*.jsonl")
        for file in sorted(run.glob(pattern))
    }
    parts = _parts(run, settings, kept)
    everything = [episode for episodes in kept.values() for episode in episodes]
    current = _current(parts)
    written = max((part.written for part in parts if part.written is not None), default=None)
    return {
        "run": run.name,
        "stage": _stage(run, parts, current),
        "parts": [{"name": part.name, "done": part.done, "of": part.of} for part in parts],
        "updates": [line for file in kept if file.name == "episodes.jsonl" for line in _updates(kept[file])],
        "updates_planned": settings and settings["train"]["updates"],
        "tokens": {kind: sum(e.tokens[kind] for e in everything) for kind in ("prompt", "sampled")},
        "masked": sum(e.fault is not None for e in everything),
        "cost": _cost(run),
        "seconds_left": _left(parts, current),
        "quiet_seconds": None if written is None or current is None else round(max(0.0, time.time() - written)),
        "idle": gauge.read(run.parents[1] / "timings" / run.name),
        "last": [_brief(e) for e in _newest(kept)],
    }


def _settings(run: Path) -> dict[str, Any] | None:
    """The run's settings as its plan holds them or, before there is one, those of params.yaml if they are this run's."""
    if (run / "plan.json").exists():
        planned: dict[str, Any] = json.loads((run / "plan.json").read_text(encoding="utf-8"))
        return planned["settings"] | {"people": planned["human"]["questions"]}
    with contextlib.suppress(SettingsError):
        chosen = load()
        if chosen.run == run.name:
            file = chosen.human_dir / f"{HUMAN}.jsonl"
            return dataclasses.asdict(chosen) | {"people": file.read_bytes().count(b"\n") if file.exists() else 0}
    return None


def _episodes(file: Path) -> Iterator[Episode]:
    """The whole episodes of a file that may be growing: a last line without its end is still being written."""
    with contextlib.suppress(FileNotFoundError), file.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                with contextlib.suppress(ValueError, TypeError):
                    yield Episode.from_line(line)


def _parts(run: Path, settings: dict[str, Any] | None, kept: dict[Path, list[Episode]]) -> list[Part]:
    """The steps in the order in which the run takes them: untrained arms, then each seed's practice, then its arm."""
    sizes: dict[Path, int] = {}
    if settings is not None:
        t, tests = settings["train"], sum(settings["questions"][split] for split in SETS) + settings["people"]
        asked = tests * (settings["evaluate"]["samples"] + 1)
        for arm in ("base", "control"):
            sizes[run / "evaluate" / f"{arm}.jsonl"] = asked
        for seed in t["seeds"]:
            folder = run / "train" / f"seed-{seed}"
            if (first := t["questions"].get("prepass")) is not None:
                pool = (settings["questions"]["training"] or {}).get("questions", settings["questions"]["train"])
                sizes[folder / "prepass.jsonl"] = min(first["questions"], pool) * first["samples"]
            sizes[folder / "episodes.jsonl"] = t["updates"] * t["groups"] * t["rollouts"]
        for seed in t["seeds"]:
            sizes[run / "evaluate" / f"trained-{seed}.jsonl"] = asked
    for file in kept:
        sizes.setdefault(file, 0)
    return [
        Part(
            _name(file),
            _done(file, kept.get(file, []), settings),
            of or None,
            _before(file, settings),
            _time(_begun(file)),
            _time(file),
        )
        for file, of in sizes.items()
    ]


def _name(file: Path) -> str:
    if file.stem in TRAINING:
        return f"{TRAINING[file.stem]}, {file.parent.name.replace('-', ' ')}"
    return f"evaluate, {file.stem}"


def _done(file: Path, episodes: Sequence[Episode], settings: dict[str, Any] | None) -> int:
    """Of the rollouts that are planned: what replaces a lost one in practice comes on top of them, with further numbers, and
    so do groups that replace others. An update that is over counts whole, though groups of it were stopped early."""
    if settings is None or file.name != "episodes.jsonl":
        return len(episodes)
    t = settings["train"]
    an_update = t["groups"] * t["rollouts"]
    if file.with_name("updates.jsonl").exists():
        return int(t["updates"] * an_update)
    last = max((e.update or 0 for e in episodes), default=0)
    made = sum(e.update == last and e.sample < t["rollouts"] for e in episodes)
    return int(last * an_update + min(made, an_update))


def _before(file: Path, settings: dict[str, Any] | None) -> int:
    """What a training went on from; an evaluation doesn't note it."""
    record = file.with_name("interruptions.jsonl")
    if settings is None or file.name != "episodes.jsonl" or not record.exists():
        return 0
    t, update = settings["train"], read_jsonl(record)[-1]["update"]
    return int(update * t["groups"] * t["rollouts"])


def _begun(file: Path) -> Path:
    """What is written each time that a step starts."""
    return file.parent / ("plan.sha256" if file.stem in TRAINING else f"plan-{file.stem}.json")


def _time(file: Path) -> float | None:
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_mtime
    return None


def _current(parts: Sequence[Part]) -> Part | None:
    """The step that goes on, or that was the last to be interrupted."""
    going = [part for part in parts if part.began is not None and not part.complete]
    return max(going, key=lambda part: max(part.began or 0.0, part.written or 0.0), default=None)


def _stage(run: Path, parts: Sequence[Part], current: Part | None) -> str:
    if (run / "results.json").exists():
        return "compared"
    if current is not None:
        return current.name
    if parts and all(part.complete for part in parts):
        return "asked, not yet compared"
    done = [part.name for part in parts if part.complete]
    if done:
        return f"after {done[-1]}"
    return (
        "planned"
        if (run / "plan.json").exists()
        else "base model ready"
        if (run / "base.json").exists()
        else "not begun"
    )


def _left(parts: Sequence[Part], current: Part | None) -> float | None:
    """Seconds that all rollouts still to come take at the current step's pace; None where nobody can say."""
    if current is None or current.began is None or current.written is None or current.done <= current.before:
        return None
    pace = (current.written - current.began) / (current.done - current.before)
    return round(pace * sum(max(0, (part.of or 0) - part.done) for part in parts))


def _updates(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    """A line an update. Rollouts that a fault ended are counted and are no part of the means."""
    by_update: dict[tuple[int, int], list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_update[episode.seed, episode.update or 0].append(episode)
    lines = []
    for (seed, update), made in sorted(by_update.items()):
        real = [e for e in made if e.fault is None]
        rewards: dict[str, set[float]] = defaultdict(set)
        for e in real:
            rewards[e.question].add(e.reward)
        lines.append(
            {
                "seed": seed,
                "update": update,
                "rollouts": len(made),
                "reward": _mean([e.reward for e in real]),
                "strict": _mean([e.strict for e in real]),
                "signal": _mean([len(found) > 1 for found in rewards.values()]),
                "masked": 1 - len(real) / len(made),
                "tokens": sum(e.tokens["sampled"] for e in made),
            }
        )
    return lines


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _cost(run: Path) -> dict[str, float] | None:
    """By the ledger, in US dollars; None for a run that costs nothing."""
    file = ledger.path(run)
    if not file.exists():
        return None
    account = ledger.read(file)
    limit = account.sessions[-1]["limit"] if account.sessions else 0.0
    return {"estimate": account.estimate, "at_most": account.upper, "in_flight": account.in_flight, "limit": limit}


def _newest(kept: dict[Path, list[Episode]]) -> list[Episode]:
    """The last lines of the file that was written last."""
    files = [file for file, episodes in kept.items() if episodes]
    return kept[max(files, key=lambda file: _time(file) or 0.0)][-SHOWN_EPISODES:] if files else []


def _brief(episode: Episode) -> dict[str, Any]:
    asked = next((m["content"] for m in episode.messages if m["role"] == "user"), "")
    return {"id": episode.id, "question": asked, "query": episode.query, "outcome": episode.outcome}


# --- for people -------------------------------------------------------------------------------------------------------


def described(found: dict[str, Any]) -> str:
    """The status as lines of text."""
    lines = [f"{found['run']}: {found['stage']}", *(_part_line(part) for part in found["parts"])]
    if found["updates"]:
        lines += ["", f"{'seed':>4} {'update':>6} {'reward':>7} {'strict':>7} {'signal':>7} {'masked':>7}"]
        lines += [_update_line(line) for line in found["updates"][-SHOWN_UPDATES:]]
    lines += ["", *(f"{name:<10}{words}" for name, words in figures(found))]
    if found["last"]:
        lines += ["", "last episodes"]
        lines += [
            f"{one['outcome']:<12}" + _cut(f"{one['question']} | {one['query'] or 'no query'}") for one in found["last"]
        ]
    return "\n".join(lines)


def figures(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, in words) of everything that is one figure."""
    tokens, cost = found["tokens"], found["cost"]
    said = [("tokens", f"{tokens['prompt']:,} of prompts, {tokens['sampled']:,} sampled")]
    if found["masked"]:
        said.append(("masked", f"{found['masked']} rollouts ended by a fault and aren't scored"))
    if cost:
        said.append(
            (
                "cost",
                f"${cost['estimate']:.2f} by the meter, at most ${cost['at_most']:.2f} of ${cost['limit']:.2f} allowed",
            )
        )
    if found["seconds_left"] is not None:
        said.append(("left", f"about {_duration(found['seconds_left'])}, by the pace of this step"))
    if found["quiet_seconds"] is not None:
        said.append(("written", f"{_duration(found['quiet_seconds'])} ago"))
    said += [("idle", f"{share:.0%} of the sampler's time in {step}") for step, share in found["idle"].items()]
    return said


def _part_line(part: dict[str, Any]) -> str:
    of = f" of {part['of']:,} ({part['done'] / part['of']:.0%})" if part["of"] else ""
    return f"  {part['name']:<24}{part['done']:,}{of}"


def _update_line(line: dict[str, Any]) -> str:
    rates = " ".join(f"{_rate(line[key]):>7}" for key in ("reward", "strict", "signal", "masked"))
    return f"{line['seed']:>4} {line['update']:>6} {rates}"


def _rate(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cut(text: str) -> str:
    """One line, without the signs by which a model's text could steer the terminal."""
    text = "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


# --- as a page --------------------------------------------------------------------------------------------------------


def page(found: dict[str, Any]) -> str:
    """The status as a page that needs nothing else and loads itself anew, unless told not to."""
    charts = "".join(f'<figure tabindex="0">{drawing}</figure>' for drawing in _charts(found["updates"]))
    return PAGE.format(
        name=escape(found["run"]),
        stage=escape(found["stage"]),
        style=STYLE.read_text(encoding="utf-8"),
        milliseconds=int(EVERY * 1000),
        figures=_table("figures", ("what", "so far"), figures(found)),
        parts=_table(
            "steps",
            ("step", "rollouts", "of"),
            [(part["name"], f"{part['done']:,}", f"{part['of']:,}" if part["of"] else "") for part in found["parts"]],
        ),
        charts=charts or "<p>No update has begun.</p>",
        last=_table("last", ("outcome", "question", "query"), [_row(one) for one in found["last"]]),
    )


def _row(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["outcome"], one["question"], one["query"] or "no query"


def _table(about: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One that can be scrolled, by keys as well, where the window is narrow."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div id="tbl-{about}" tabindex="0">{table}</div>'


def _charts(updates: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Reward and strict, then signal and masked share, by update: as SVG, a line for each seed."""
    if not updates:
        return
    from matplotlib import pyplot as plt  # slow to import, and only the page has figures

    from lib import plots

    def draw(keys: tuple[str, str]) -> Any:
        figure, sides = plt.subplots(1, 2, figsize=(plots.WIDTH, 2.6), sharey=True)
        for axes, key in zip(sides, keys, strict=True):
            for seed in sorted({line["seed"] for line in updates}):
                of_seed = [(line["update"], line[key]) for line in updates if line["seed"] == seed]
                points = [(update, value) for update, value in of_seed if value is not None]
                colour = plots.SEEDS[seed % len(plots.SEEDS)]
                axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, label=f"seed {seed}")
            axes.set(title=TITLES[key], xlabel="update", ylim=(-0.02, 1.02))
        sides[0].legend(loc="best")
        return figure

    for keys in (("reward", "strict"), ("signal", "masked")):
        figure = plots.styled(draw, keys)
        latest = updates[-1]
        words = "; ".join(f"{TITLES[key]}: {_rate(latest[key])} in update {latest['update']}" for key in keys)
        yield plots.svg(figure, words)
        plt.close(figure)


# --- command line -----------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> None:
    """Command line: say how far a run is; exit status 1 for one that isn't there."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.status", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="its name (default: that of params.yaml)")
    parser.add_argument("--follow", action="store_true", help=f"again every {EVERY:.0f} seconds")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page instead")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.add_argument(
        "--tensorboard", type=Path, metavar="FOLDER", help="write each update's figures for TensorBoard"
    )
    parser.add_argument("--wandb", type=Path, metavar="FOLDER", help="and for Weights & Biases, in its offline form")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="another data folder than the project's")
    given = parser.parse_args(arguments)
    try:
        run = given.data / "runs" / (given.run or load().run)
        sinks = _sinks(run.name, given.tensorboard, given.wandb)
        with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as opened:
            for sink in sinks:
                opened.callback(sink.close)
            while True:
                found = status(run)
                for sink in sinks:
                    sink.take(found)
                _show(found, given.html, given.json, given.follow)
                if not given.follow:
                    break
                time.sleep(EVERY)
    except (StatusError, SettingsError, OSError, ValueError) as e:
        sys.exit(f"status: {e}")


def _sinks(run: str, tensorboard: Path | None, wandb: Path | None) -> list[Any]:
    if tensorboard is None and wandb is None:
        return []
    from lib import loggers  # slow to import, and only who asks for them needs them

    return loggers.sinks(run, tensorboard, wandb)


def _show(found: dict[str, Any], html: Path | None, as_json: bool, again: bool) -> None:
    if html is not None:
        write_text(html, page(found))
    elif as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
    else:
        print(("\x1b[2J\x1b[H" if again and sys.stdout.isatty() else "") + described(found), flush=True)


if __name__ == "__main__":
    main()
