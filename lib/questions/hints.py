"""Hints of the kind "X refers to Y", made from a query's parts: what a word of the question is in the graph."""

from __future__ import annotations

import random
import re

from lib.graph.mapping import quoted
from lib.questions.lexicon import Lexicon, Property
from lib.questions.spec import CONDITIONS, Exists, Filter, Hop, Spec
from lib.questions.wording import agreed, article, filter_phrases

SHARE = 0.92  # of the questions; people's hints come about as often
MOST = 3  # parts of a hint


def hinted(query: str, seed: int) -> bool:
    """Whether a question gets its hint: for a query and a seed always the same."""
    return random.Random(f"hint {query} {seed}").random() < SHARE


def hint(spec: Spec, lexicon: Lexicon) -> str:
    """At most MOST parts, with the query's slots: first what its words say least about."""
    parts = [*_measure(spec, lexicon), *_filters(spec, lexicon), *_exists(spec, lexicon), *_hops(spec, lexicon)]
    parts += _names(spec, lexicon)
    return "; ".join(list(dict.fromkeys(parts))[:MOST])


def _measure(spec: Spec, lexicon: Lexicon) -> list[str]:
    if not spec.measure:
        return []
    about, p = lexicon.thing(spec.labels[spec.subject]).properties[spec.measure], quoted(spec.measure)
    noun = f"number of {about.counted}" if about.counted else about.noun
    highest, lowest, _ = about.degrees
    most, least, more = ("most", "fewest", "more") if about.counted else about.degrees
    told = about.counted or about.noun
    return {
        "avg": [f"average {noun} refers to avg({p})"],
        "avg per": [f"average {noun} refers to avg({p})"],
        "sum": [f"total {noun} refers to sum({p})"],
        "max": [f"{highest} {noun} refers to max({p})"],
        "min": [f"{lowest} {noun} refers to min({p})"],
        "gap": [f"difference between the {highest} and the {lowest} {noun} refers to max({p}) - min({p})"],
        "first": [f"earliest {about.date} refers to min({p})"],
        "last": [f"latest {about.date} refers to max({p})"],
        "top": [f"{most} {told} refers to the largest {p}"],
        "best": [f"{most} {told} refers to the largest {p}"],
        "worst": [f"{least} {told} refers to the smallest {p}"],
        "ordered": [f"the order refers to {p}, largest first"],
        "compare": [f"{more} {told} refers to the larger {p}"],
    }.get(spec.form, [f"{noun} refers to {p}"])


def _filters(spec: Spec, lexicon: Lexicon) -> list[str]:
    whole = [spec.whole] if isinstance(spec.whole, Filter) else []
    found = []
    for f in [*spec.filters, *whole]:
        label = spec.labels[f.at]
        thing = lexicon.thing(label)
        if f.edge:
            about = lexicon.edge(label, spec.hops[f.at]).properties[f.property]
        else:
            about = thing.properties.get(f.property, Property())
        condition = CONDITIONS[f.kind].replace("{x}", quoted(f.property)).replace("{s2}", f"{{{f.slot}2}}")
        condition = condition.replace("{s}", f"{{{f.slot}}}")
        if f.property in (thing.name, thing.id) and f.kind in ("is", "id", "either"):
            continue
        if f.edge and about.event:
            said = [f"{about.event} {'in' if f.kind == 'year' else f.kind} {{v}}"]
        else:
            said = filter_phrases(f, about, "that")
        text = _bare(agreed(said[0], True)).replace("{v}", f"{{{f.slot}}}")
        found.append(f"{text} refers to {condition}")
    return found


def _exists(spec: Spec, lexicon: Lexicon) -> list[str]:
    found = []
    for e in [*spec.exists, *([spec.whole] if isinstance(spec.whole, Exists) else [])]:
        edge = lexicon.edge(spec.labels[e.at], e.hop)
        text = _bare(agreed((edge.none if e.negated else edge.some)[0], True))
        found.append(f"{text} refers to {'no ' if e.negated else ''}{_pattern(spec.labels[e.at], e.hop)}")
    return found


def _hops(spec: Spec, lexicon: Lexicon) -> list[str]:
    found = []
    for i, hop in enumerate(spec.hops):
        start, there = spec.labels[i], hop
        if i + 1 <= spec.subject:  # said from the subject's side
            start, there = hop.label, Hop(hop.type, not hop.forward, spec.labels[i])
        verb = agreed(lexicon.edge(start, there).verb, True)
        one, other = lexicon.thing(start).nouns[0][1], lexicon.thing(there.label).nouns[0][0]
        said = f"{one} {verb.replace('{x}', f'{article(other)} {other}')}"
        found.append(f"{said} refers to {_pattern(start, there)}")
    return found


def _names(spec: Spec, lexicon: Lexicon) -> list[str]:
    at = spec.group if spec.group >= 0 else spec.subject
    thing = lexicon.thing(spec.labels[at])
    return (
        [f"{thing.asked[0]} of {article(thing.nouns[0][0])} {thing.nouns[0][0]} refers to {quoted(thing.name)}"]
        if thing.name
        else []
    )


def _pattern(start: str, hop: Hop) -> str:
    arrow = f"[:{quoted(hop.type)}]"
    return f"(:{quoted(start)}){f'-{arrow}->' if hop.forward else f'<-{arrow}-'}(:{quoted(hop.label)})"


def _bare(text: str) -> str:
    return re.sub(r"^(?:who|that|with an?|with) (?!at least)", "", text)
