"""The numbers and tables of a run's report, so that its source holds prose and no logic."""

from __future__ import annotations

import base64
import html
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from lib import plan, plots
from lib.compare import points
from lib.measures import OUTCOMES
from lib.shown import OUTCOME_WORDS
from reports import project, unsolved, worked
from reports.markdown import arm_words, code, count, escape, gain, interval, listed, percent, rate, raw, table

FEW_SEEDS = 5
WORLDS = {  # graph.source -> what it is
    "twin": "a made-up question-and-answer site, shaped like a real one, as a property graph in Neo4j",
    "stackexchange": "the public dump of a Stack Exchange site, as a property graph in Neo4j",
    "bird": "a relational database, its tables made into a property graph in Neo4j",
    "neo4j": "a graph that stood in Neo4j already, and was left as it was",
}
CHANGED = {  # how plan.check's sentences begin -> what has changed
    "inputs.questions": "the questions",
    "inputs.base": "the base model",
    "inputs.loop": "the training loop",
    "inputs.agent": "the agent, its tool or the backend",
    "inputs.environment": "the environment",
    "inputs.scorer": "the scorer",
    "inputs.prompt": "the prompt",
}
Cell = Any


class Report:
    """One run's files, as the report asks for them."""

    def __init__(self, data: Path | str, run: str):
        self.data, self.run = Path(data), run
        self.folder = self.data / "runs" / run
        self.results: dict[str, Any] = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        self.plan: dict[str, Any] = self.results["plan"]
        self.settings: dict[str, Any] = self.plan["settings"]
        self.first = self.results["contrasts"][plan.FIRST_SET]
        self.arms = self.results["arms"][plan.FIRST_SET]
        self.main = self.first["sampled"]["trained - control"]["strict"]
        self.planted = self.results["mistakes"]["planted"]  # None of a model that was taught nothing here
        self.kinds = [kind for kind, share in self.results["base"].get("first_mistakes", {}).items() if share > 0]

    # --- figures and tables, printed by cells with `output: asis` ---

    def figure(self, name: str) -> str:
        """A figure of the run as SVG inside of the page."""
        return raw((self.folder / "figures" / f"{name}.svg").read_text(encoding="utf-8"))

    def gallery(self) -> str:
        """Every figure of the run with what it shows in words, what drew it, and both its files."""
        return "\n".join(map(self._framed, plots.FIGURES))

    def _framed(self, name: str) -> str:
        function = plots.FIGURES[name][0]
        summary = (function.__doc__ or "").split("\n")[0]
        files = []
        for suffix, kind in ((".svg", "image/svg+xml"), (".png", "image/png")):
            content = base64.b64encode((self.folder / "figures" / (name + suffix)).read_bytes()).decode()
            link = (
                f'<a download="{self.run}-{name}{suffix}" href="data:{kind};base64,{content}">{suffix[1:].upper()}</a>'
            )
            files.append(link)
        caption = (
            f"{escape(summary)} {escape(plots.alt(name, self.results))} Drawn by {code(f'lib.plots.{function.__name__}')}. "
            f"Source: figures/{name}.svg from results.json."
        )
        downloads = raw(f'<p class="downloads">{"".join(files)}</p>')
        return f"::: {{#fig-{name.replace('_', '-')}}}\n\n{self.figure(name)}\n{caption}\n\n:::\n\n{downloads}"

    def verdict(self) -> str:
        """The box that the report opens with."""
        found = self.results["verdict"]
        box = "verdict success" if found["verdict"] == "success" else "verdict"
        return raw(
            f'<div class="{box}"><p class="word">{html.escape(found["verdict"].capitalize())}</p>'
            f"<p>By the test that was written down before training: {html.escape(found['reason'])}.</p></div>"
        )

    def pages(self) -> str:
        """Links between the pages of this run."""
        to = {"Write-up": "", "Transcripts": "-transcripts", "Figures": "-figures"}
        links = "".join(f'<a href="{self.run}{end}.html">{words}</a>' for words, end in to.items())
        return raw(
            f'<nav class="run" aria-label="This run">{links}<a href="{self.run}.html#sec-ledger">Claims</a></nav>'
        )

    def alarm(self) -> str:
        """What the page begins with where something that was planned changed after training began; else nothing."""
        differences = self.results["checks"]["plan"]["differences"]
        if not differences:
            return ""
        what = {next((CHANGED[start] for start in CHANGED if one.startswith(start)), "the plan") for one in differences}
        listing = "".join(f"<li>{html.escape(one)}</li>" for one in differences)
        return raw(
            f'<div class="alarm"><p class="word">Changed after training began: {listed(sorted(what))}</p>'
            f"<ul>{listing}</ul><p>What follows was not measured as it had been written down.</p></div>"
        )

    def recipe(self) -> str:
        """Settings of the run, section by section."""
        shown = {key: value for key, value in self.settings.items() if isinstance(value, dict)}
        rows = [
            [section, ", ".join(f"{k} {_plain(v)}" for k, v in values.items() if v != "")]
            for section, values in shown.items()
        ]
        return table(["part", "settings"], rows)

    def questions_table(self) -> str:
        """Questions of each set by hops."""
        hops = self.results["questions"]["hops"]
        crossed = sorted({hop for found in hops.values() for hop in found}, key=int)
        sets = [name for name in self.results["questions"]["counts"] if name in hops]
        rows = [
            [name, self.results["questions"]["counts"][name], *(hops[name].get(hop, 0) for hop in crossed)]
            for name in sets
        ]
        return table(["set", "questions", *(f"{hop} hop{'s' * (hop != '1')}" for hop in crossed)], rows)

    def leaks_table(self) -> str:
        """What training and evaluation questions have in common."""
        return table(["figure", "value"], _flat(self.results["questions"]["leaks"]))

    def planted_table(self) -> str:
        """Each kind of mistake: in the demonstrations, under each arm, and its part of the gain."""
        base = self.results["base"]
        rows = []
        for row in plots.ordered_kinds(self.results):
            taught = [base.get(key, {}).get(row["kind"]) for key in ("first_mistakes", "mistakes")]
            rates = [row["rates"][arm] for arm in ("base", "control", "trained")]
            rows.append([row["kind"], *map(percent, taught), *map(percent, rates), points(row["part_of_gain"])])
        head = [
            "kind",
            "taught, first query",
            "taught, last query",
            "base",
            "control",
            "trained",
            "part of the gain, points",
        ]
        return table(head, rows)

    def power_table(self) -> str:
        """What gains of several sizes would need, as the plan foresaw."""
        found = self.plan["power"]["needs"]
        counts = ("questions", "samples", "seeds", "questions_without_bar")
        rows = [
            [points(one["gain"], sign=False), percent(one["chance"], 0), *(one[what] or "–" for what in counts)]
            for one in found
        ]
        head = ["true gain, points", "chance", "questions", "or samples", "or trainings", "questions, without a bar"]
        return table(head, rows)

    def arms_table(self, name: str = plan.FIRST_SET) -> str:
        """Rates by arm with intervals, each pass beside them."""
        found = self.results["arms"][name]
        rows = []
        for arm in ("base", "control", "trained", *self.seed_arms):
            sampled, greedy = found["sampled"][arm], found["greedy"][arm]
            passes = " · ".join(percent(one["strict"]) for one in sampled["passes"])
            rates = [rate(sampled["strict"]), rate(sampled["lenient"]), percent(sampled["f1"]["rate"])]
            rows.append([arm_words(arm), *rates, percent(greedy["strict"]["rate"]), passes])
        return table(["arm", "strict", "lenient", "row F1", "greedy, strict", "strict, each pass"], rows)

    def contrasts_table(self) -> str:
        """Every contrast on the first set: strict with both kinds of interval, and lenient."""
        pairs = [
            "trained - control",
            *(f"{arm} - control" for arm in self.seed_arms),
            "control - base",
            "trained - base",
        ]
        rows = []
        for decode in ("sampled", "greedy"):
            for pair in pairs:
                strict, lenient = self.first[decode][pair]["strict"], self.first[decode][pair]["lenient"]
                both = [gain(strict), gain(lenient)]
                words = " − ".join(arm_words(arm) for arm in pair.split(" - "))
                rows.append(
                    [words, decode, both[0], interval(*strict["by_question"]), strict["up"], strict["down"], both[1]]
                )
        return table(["contrast", "decoding", "strict", "by question", "up", "down", "lenient"], rows)

    def outcomes_table(self) -> str:
        """Episodes by outcome and arm."""
        rows = []
        for arm in ("base", "control", "trained"):
            found = self.arms["sampled"][arm]["outcomes"]
            rows.append([arm_words(arm), *(count(found[name]) for name in (*OUTCOMES, "error"))])
        return table(["arm", *(OUTCOME_WORDS[name] for name in OUTCOMES), "lost to faults"], rows)

    def headroom_table(self) -> str:
        """What the base model's answers said beforehand of the room for practice."""
        found = self.results["headroom"]
        figures = {
            "right at one attempt (pass@1)": found["one"],
            f"right at least once in {found['samples']} (pass@{found['samples']})": found["any"],
            f"right every time in {found['samples']} (pass^{found['samples']})": found["all"],
            "questions never right": found["never"],
            "questions sometimes right": found["sometimes"],
            "questions always right": found["always"],
            f"groups of {found['rollouts']} attempts with a signal, expected": found["signal"],
            "gain that reliability alone could give": found["gain"],
        }
        return table(["base model, held-out instances", "share"], [[k, percent(v)] for k, v in figures.items()])

    def hacks_table(self) -> str:
        """Each rule of the scan with the arm that comes closest to its limit, or goes furthest beyond."""
        rows = []
        for rule in dict.fromkeys(line["rule"] for line in self.results["hacks"]):
            lines = [line for line in self.results["hacks"] if line["rule"] == rule]
            worst = max(lines, key=lambda line: (line["found"], _beyond(line)))
            share = f"{worst['share']:.2f}" if worst["share"] is not None else "–"
            rows.append([rule, worst["arm"], share, f"{worst['limit']:.2f}", worst["count"], worst["episodes"]])
        return table(["rule", "arm", "share", "limit", "counted", "of"], rows)

    def recount_table(self) -> str:
        """The headline by this study's code and by the second count."""
        figures = self.results["recount"]["figures"]
        return table(
            ["strict", "this study", "second count"], [[name, *map(_exact, two)] for name, two in figures.items()]
        )

    def ran_table(self) -> str:
        """Queries that ran, queries an episode, and how much of the right nodes they looked at, by arm."""
        rows = []
        for arm in ("base", "control", "trained"):
            found, similar = self.arms["sampled"][arm], self.results["provenance"]["rates"][arm]
            rows.append([arm, percent(found["ran"]), f"{found['calls']:.2f}", percent(similar)])
        return table(["arm", "queries that ran", "queries an episode", "right nodes looked at"], rows)

    def reach_table(self) -> str:
        arms = ("base", "control", "trained")
        rows = [
            [found[0]["k"], *(_reached(one, key) for key in ("any", "all") for one in found)]
            for found in zip(*(self.results["reach"][arm] for arm in arms), strict=False)
        ]
        return table(["k", *(f"{word} right, {arm}" for word in ("any", "all") for arm in arms)], rows)

    def groups_table(self) -> str:
        rows = []
        for grouping, found in self.results["groups"].items():
            for name, one in ((name, found[name]) for name in plots.GROUPS):
                rates = [percent(one.get(arm)) for arm in ("base", "control", "trained")]
                rows.append([grouping, name, one["questions"], *rates, one["above_zero"]])
        return table(
            ["grouped", "had it right", "questions", "base", "control", "trained", "trained at least once"], rows
        )

    def hops_table(self) -> str:
        rows = [[f"{hop}", *_contrast_cells(one)] for hop, one in self.results["by_hops"].items() if one["questions"]]
        return table(["hops", "questions", "structures", "control", "trained", "points", "up", "down"], rows)

    def structures_table(self, most: int) -> str:
        """The structures with the largest gains and the largest losses."""
        found = self.results["structures"]
        shown = found if len(found) <= 2 * most else [*found[:most], *found[-most:]]
        rows = [
            [code(one["structure"]), one["hops"], one["questions"], percent(one["before"]), percent(one["after"]),
             points(one["after"] - one["before"])] for one in shown
        ]  # fmt: skip
        return table(["structure", "hops", "questions", "control", "trained", "points"], rows)

    # --- single episodes ---

    @cached_property
    def tried(self) -> worked.ByQuestion:
        """The test's sampled episodes, by question."""
        return worked.by_question(worked.sampled(self.folder))

    @cached_property
    def again(self) -> worked.ByQuestion:
        """The worked examples' new recordings, by question; empty where none were made."""
        return worked.fresh(self.folder)

    def example(self, name: str) -> str:
        """The worked example of that name, as Markdown."""
        return worked.example(self.results["examples"][name], self.run, self.tried, self.again)

    @property
    def again_words(self) -> str:
        if not self.again:
            return "No new recordings were made, so the episodes shown are of those that were counted."
        return (
            f"Each was then asked {count(self.plan['first_endpoint']['samples'])} times anew under every arm, with draws of "
            "their own. A rule that looks for the largest change also finds luck, and new draws don't repeat it. Shown is "
            "the first new recording of control and of trained, whatever it came out as."
        )

    def never_table(self) -> str:
        """The questions that no arm ever had right."""
        return unsolved.reading_list(self.data, self.run, self.results, self.tried)

    def predictions_table(self) -> str:
        rows = [
            [
                one["text"],
                one["because"],
                " and ".join(points(x) if x is not None else "–" for x in one["figures"]),
                _held(one["held"]),
            ]
            for one in self.results["predictions"].values()
        ]
        return table(["foretold", "because", "figures, points", "came true"], rows)

    def sources(self) -> str:
        """Data and programs that a run uses, with their licences."""
        return project.sources(self.settings["graph"]["source"])

    # --- time ---

    @property
    def timings(self) -> list[dict[str, Any]]:
        """Time and memory of each step; empty where none were kept."""
        files = sorted((self.data / "timings" / self.run).glob("*.json"))
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return [one for one in found if isinstance(one, dict) and "cpu_seconds" in one and "wall_seconds" in one]

    def timings_table(self) -> str:
        rows = [
            [
                one["step"],
                f"{one['wall_seconds']:,.0f}",
                f"{one['cpu_seconds']:,.0f}",
                f"{one['peak_memory_bytes'] / 2**30:.1f}",
            ]
            for one in self.timings
        ]
        return table(["step", "seconds", "CPU seconds", "peak memory, GiB"], rows)

    def time_figure(self) -> str:
        seconds = {one["step"]: one["cpu_seconds"] for one in self.timings}
        figure = plots.styled(plots.time_split, seconds)
        drawing = plots.svg(figure, plots.time_alt(seconds))
        plt.close(figure)
        return raw(drawing)

    # --- words ---

    @property
    def seed_arms(self) -> list[str]:
        return [f"trained-{seed}" for seed in self.plan["seeds"]]

    @property
    def totals(self) -> dict[str, float]:
        """Sums over seeds of what training used."""
        found = [one["totals"] for one in self.results["training"].values()]
        return {key: sum(one[key] for one in found) for key in found[0]}

    @property
    def transfer(self) -> dict[str, Any] | None:
        """The contrast on held-out structures, if these were evaluated."""
        found = self.results["contrasts"].get(plan.APART_SET)
        return found["sampled"]["trained - control"]["strict"] if found else None

    @property
    def taught_words(self) -> str:
        """What the model was taught before practice, and what that means for a gain."""
        base = self.results["base"]
        if self.planted is None:
            return f"**No mistakes were planted.** The base model is {self.name_words}; it was taught nothing here."
        taught = f"{count(base['demonstrations'])} demonstrations of which {percent(base['share_right'])} end right"
        if not self.kinds:
            return f"**No mistakes were planted.** Before practice the model was taught from {taught}."
        return (
            "**Mistakes had been planted.** In an earlier trial a model taught from clean demonstrations left almost nothing "
            f"for practice to mend. So this one was first taught from {taught}; the others carry mistakes of named kinds "
            f"({listed(self.kinds)}). {self.planted_words} To unlearn a fault that was planted is no discovery, only "
            "a sign that the machinery works."
        )

    @property
    def name_words(self) -> str:
        """The name of a model that exists, as its backend knows it."""
        return f"`{self.results['base']['name']}` as it is"

    @property
    def scale_words(self) -> str:
        """How large the model is, and what that means for a number from this run."""
        base = self.results["base"]
        known = f"knows {count(base['vocabulary'])} word pieces"
        if self.planted is None:
            size = f"has {count(base['parameters'])} parameters and " if base["parameters"] else ""
            return (
                f"**One model.** It is {self.name_words}, {size}{known}. A number from here says nothing about a model of "
                "another size or family."
            )
        return (
            f"**The scale is small.** The model has {count(base['parameters'])} parameters and {known}; one machine trains "
            "it. The database, the queries, the gradients and the test are real, and the same code is meant to run a "
            "full-size study. A number from here says nothing about a large model."
        )

    @property
    def base_words(self) -> str:
        """What the arm `base` is."""
        return "as it exists" if self.planted is None else "as it was taught from demonstrations"

    @property
    def lesson_words(self) -> str:
        """How the base model came to be, and how the table of mistakes is to be read."""
        base = self.results["base"]
        if self.planted is None:
            return (
                f"The base model is {self.name_words}, taught nothing here. @tbl-planted shows how often the scored queries of "
                "each arm had a mistake of one of the kinds that are known by name"
            )
        return (
            f"The base model learned for {count(base['steps'])} steps from demonstrations of mixed quality. Where a "
            "demonstration is wrong, its mistake is of one of the kinds in @tbl-planted that have a share under *taught*. The "
            "table also shows how often the scored queries of each arm had that mistake"
        )

    @property
    def planted_words(self) -> str:
        """How much of a gain the removal of planted mistakes is."""
        if self.planted is None:
            return "None of them was planted."
        share = self.planted["share_of_gain"]
        part = f"{points(self.planted['gain'])} points {interval(self.planted['low'], self.planted['high'])}"
        if share is None:
            return f"There was no gain to explain; what became of planted mistakes is worth {part}."
        if share <= 0:
            return f"Their removal is no part of the gain of {points(self.main['delta'])} points: {part}."
        return f"**Their removal makes up {share:.0%} of the gain** of {points(self.main['delta'])} points: {part}."

    @property
    def world_words(self) -> str:
        """What the graph was made from, and its size."""
        graph, source = self.results["graph"], self.settings["graph"]["source"]
        return f"{WORLDS[source]}, with {count(graph['nodes'])} nodes and {count(graph['relationships'])} relationships"

    @property
    def local(self) -> bool:
        """Was everything done on one machine?"""
        return bool(self.settings["train"]["backend"] == "local")

    @property
    def cost_words(self) -> str:
        taken = (
            f"Practice took {count(int(self.totals['tokens_sampled']))} sampled tokens and "
            f"{count(int(self.totals['tokens_trained']))} trained tokens over all seeds."
        )
        if self.local:
            return f"Nothing was billed: model, database and training ran on one machine, so there is nothing to meter. {taken}"
        return f"What the hosted backend billed isn't in this run's files. {taken}"

    @property
    def seeds_words(self) -> str:
        number = len(self.plan["seeds"])
        few = (
            "too few to measure how much trainings differ"
            if number < FEW_SEEDS
            else "with the interval over them above"
        )
        return f"{count(number)} in number: {few}."

    @property
    def texts_words(self) -> str:
        """Whose texts the page shows."""
        return f"Texts of the graph are {project.listed()['texts'][self.settings['graph']['source']]['whose']}."

    @property
    def planted_limit(self) -> str:
        if self.planted is None:
            return "None were planted."
        if not self.kinds:
            return "None were planted in this run's demonstrations."
        return "See @sec-base: some of what practice could remove was put there."

    @property
    def over_seeds_words(self) -> str:
        """How the intervals over trainings are to be taken."""
        if self.results["seeds"]["low"] is None:
            return "There is no interval over trainings, since one alone shows nothing of how much they differ."
        few = len(self.plan["seeds"]) < FEW_SEEDS
        return "With so few trainings it is wide, and says little but is honest about what was repeated." if few else ""

    @property
    def form_words(self) -> str:
        """How much of a gain is form and how much substance; that there was none, where there was none."""
        found = self.results["form_and_substance"]
        if found["gain"] <= 0:
            return f"The strict rate changed by {points(found['gain'])} points, so there is no gain to take apart."
        return (
            f"Of {points(found['gain'])} points at most {points(found['form_at_most'], sign=False)} are form (right values "
            f"that got into the right shape) and at least {points(found['substance_at_least'], sign=False)} are substance "
            "(values that had been wrong). These are bounds: an answer that moves from wrong to the wrong shape, while "
            "another moves on from there, leaves no trace in counts."
        )

    @property
    def hypothesis_words(self) -> str:
        said = self.plan["hypothesis"]
        return f"The claim: {said['claim']}; because {said['because']}. Against it stands that {said['against']}."

    @property
    def plan_words(self) -> str:
        checked = self.results["checks"]["plan"]
        if checked["stands"]:
            return "At the end all of it was computed again and nothing had changed."
        return f"**At the end something had changed:** {escape('; '.join(checked['differences']))}."

    @property
    def alike_words(self) -> str:
        """The groups of attempts that all did alike, by what they had in common."""
        groups, signal, right, none = (
            self.totals[f"groups{kind}"] for kind in ("", "_with_signal", "_all_right", "_none_right")
        )
        between = groups - signal - right - none
        return (
            f"in {percent(right / groups)} every attempt earned the whole point, in {percent(none / groups)} none earned "
            f"anything, and in {percent(between / groups)} all earned the same part of it"
        )

    @property
    def disturbed_words(self) -> str:
        """Where practice was interrupted and gone on from, and what it lost to faults; nothing where it wasn't and hasn't."""
        words = []
        for seed, found in sorted(self.results["training"].items()):
            if stops := found.get("interruptions", []):
                where = ", ".join(str(one["update"]) for one in stops)
                anew = sum(one["episodes_made_anew"] for one in stops)
                words.append(
                    f"Practice of seed {seed} was interrupted, and gone on from before update {where}; {count(anew)} episodes of "
                    "unfinished updates were played again (interruptions.jsonl)."
                )
            if lost := found.get("faults", {}).get("rollouts_lost", 0):
                words.append(
                    f"Of seed {seed}'s attempts {count(lost)} were lost to faults outside the model and taught nothing; groups "
                    f"dropped for them: {count(found['faults']['groups_dropped'])} (updates.jsonl)."
                )
        return " ".join(words)

    @property
    def equivalence_words(self) -> str:
        return (
            "equal within the margin"
            if self.results["equivalence"]["holds"]
            else "not shown to be equal within the margin"
        )

    @property
    def power_words(self) -> str:
        smallest, wanted = self.plan["power"]["smallest_gain"], percent(self.plan["power"]["wanted"], 0)
        if smallest is None:
            return f"no true gain was found with which this test ends in success in {wanted} of cases"
        return (
            f"the smallest true gain with which this test ends in success in {wanted} of cases was put at "
            f"{points(smallest, sign=False)} points"
        )

    @property
    def crossed_words(self) -> str:
        """Why the interval over trainings and questions may cover less than it says."""
        if self.results["crossed"]["low"] is None:
            return " (not known: it takes two trainings and two structures at least)"
        found = self.results["crossed"]["warnings"]
        return f" (which may cover less than it says: {'; '.join(found)})" if found else ""

    @property
    def transfer_words(self) -> str:
        one = self.transfer
        if one is None:
            return "None were evaluated in this run."
        clear = "the interval is clear of zero" if one["low"] > 0 or one["high"] < 0 else "the interval includes zero"
        return (
            f"Reported apart and without a target. On {count(one['questions'])} questions of {count(one['structures'])} structures "
            f"that practice never saw, strict accuracy goes from {percent(one['before'])} to {percent(one['after'])}: "
            f"{points(one['delta'])} points {interval(one['low'], one['high'])}; {clear}."
        )

    def transfer_table(self) -> str:
        if self.transfer is None:
            return ""
        text = "Structures that were never practised: rates with intervals. Source: results.json, arms."
        return f"::: {{#tbl-apart}}\n\n{self.arms_table(plan.APART_SET)}\n{text}\n\n:::\n"

    @property
    def headroom_words(self) -> str:
        found, least = self.results["headroom"], self.results["headroom"]["least"]
        stop = (
            f"Had the base model shown less than {percent(least)} on dev questions, training would not have begun."
            if least
            else "No least headroom was set."
        )
        how = {
            "unbiased": "Both are unbiased, since there are at least as many answers to a question as attempts in a group.",
            "beta-binomial": (
                f"A group has {found['rollouts']} attempts and a question only {found['samples']} answers here, so both "
                "come from beta distributed rates that were fitted to the counts."
            ),
        }.get(found["method"], "One answer a question can't tell.")
        signal = percent(self.totals["groups_with_signal"] / self.totals["groups"])
        return f"{how} {stop} In practice {signal} of the groups had a signal."

    @property
    def hack_words(self) -> str:
        found = [line for line in self.results["hacks"] if line["found"]]
        if not found:
            arms = len({line["arm"] for line in self.results["hacks"]})
            return f"Nothing was found: no rule is beyond its limit in any of {arms} groups of episodes."
        told = [
            f"{line['rule']} ({line['arm']}: {count(line['count'])} of {count(line['episodes'])}, such as "
            f"{', '.join(line['examples']) or 'none'})"
            for line in found
        ]
        return f"**Beyond the limit:** {escape('; '.join(told))}."

    @property
    def provenance_words(self) -> str:
        found = self.results["provenance"]
        unknown = sum(found["unknown"].values())
        if not found["contrast"]["questions"]:
            return "Of no question are the nodes known in both arms."
        changed = f"From control to trained the similarity of the nodes changes by {gain(found['contrast'])} points."
        if not unknown:
            return f"{changed} It is known for every answer."
        return (
            f"{changed} For {count(unknown)} answers of all arms it isn't known, since their query or the reference is of another build, "
            "fails when it is asked for nodes, or matches too many; they are left out."
        )

    @property
    def recount_words(self) -> str:
        found = self.results["recount"]
        if found["agrees"] and not found["judged"]:
            return (
                "Both counts agree, but **of the arithmetic alone**: no answer's rows could be judged anew, because they are "
                "wider than the second program judges or were kept in part. So the verdicts rest on one scorer."
            )
        if found["agrees"]:
            return f"Both counts agree, and so do all {count(found['judged'])} verdicts that were judged anew."
        wrong = found["disagreements"]
        return (
            f"**The second count doesn't agree**, which forbids a verdict; {count(len(wrong))} of {count(found['judged'])} verdicts that "
            f"were judged anew came out otherwise{escape(': ' + ', '.join(wrong[:5])) if wrong else ''}."
        )

    @property
    def fault_words(self) -> str:
        faulty, missing = (sum(self.results["checks"][key].values()) for key in ("faulty", "missing"))
        rule = (
            "A fault outside the model, such as a database that is gone, is never scored. In practice the attempt is left out; "
            "elsewhere the step stops, and goes on when it is repeated."
        )
        if not faulty and not missing:
            return f"{rule} No evaluation episode is marked as lost to one, and none is missing."
        return f"{rule} {count(faulty)} evaluation episodes are marked as lost to one and {count(missing)} are missing."

    @property
    def prediction_words(self) -> str:
        failed = [one["text"] for one in self.results["predictions"].values() if one["held"] is False]
        return f"These did not come true: {'; '.join(failed)}." if failed else "None of them failed."

    def parity_section(self) -> str:
        return parity_section(self.folder)

    def time_section(self) -> str:
        """The part of the page that is another in every run: tables of time, kept last."""
        if not self.timings:
            return "No timings were kept for this run.\n"
        words = "Times differ from run to run, so this section is the only one that two runs of the same commit don't share."
        caption = f"CPU time by step. Source: data/timings/{self.run}."
        return (
            f"{words}\n\n::: {{#fig-time}}\n\n{self.time_figure()}\n{caption}\n\n:::\n\n"
            f"::: {{#tbl-time}}\n\n{self.timings_table()}\nTime and memory by step. Source: data/timings/{self.run}.\n\n:::\n"
        )


def parity_section(folder: Path) -> str:
    """What `python -m lib.parity` found of a run, as far as somebody made it look."""
    file = folder / "parity.json"
    if not file.exists():
        return ""
    arms = json.loads(file.read_text(encoding="utf-8"))["arms"]
    rows = [[arm, one["check"], one["outcome"], one["said"]] for arm, found in arms.items() for one in found]
    words = (
        "**Was the trained model served?** Between a trainer's weights and an answer lie saving, loading and a server. These "
        "checks compare both ends, by thresholds that stand in lib/parity.py."
    )
    return f"{words}\n\n::: {{#tbl-parity}}\n\n{table(['arm', 'check', 'outcome', 'found'], rows)}\nSource: parity.json.\n\n:::\n"


def _flat(figures: dict[str, Any], before: str = "") -> list[list[Cell]]:
    """Rows of name and figure from a tree of figures."""
    rows: list[list[Cell]] = []
    for name, value in figures.items():
        rows += _flat(value, f"{before}{name}: ") if isinstance(value, dict) else [[before + name, _plain(value)]]
    return rows


def _beyond(line: dict[str, Any]) -> float:
    """How close a line of the hack scan comes to its limit; an agreement is worse the lower it is."""
    if line["share"] is None:
        return float("-inf")
    return (line["limit"] - line["share"]) if line["least"] else (line["share"] - line["limit"])


def _exact(share: float | None) -> str:
    return percent(share, 4)


def _held(held: bool | None) -> str:
    return {True: "yes", False: "no", None: "can't be said"}[held]


def _contrast_cells(one: dict[str, Any]) -> list[Cell]:
    rates = [percent(one["before"]), percent(one["after"]), gain(one)]
    return [one["questions"], one["structures"], *rates, one["up"], one["down"]]


def _reached(row: dict[str, Any], key: str) -> str:
    return rate({"rate": row[key], "low": row[f"{key}_low"], "high": row[f"{key}_high"]})


def _plain(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)
