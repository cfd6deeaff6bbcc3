"""Made-up names, titles and texts for the twin: they read like a Q&A site on statistics and belong to nobody."""

from __future__ import annotations

import random
import re

ONSETS = ["b", "br", "c", "d", "dr", "f", "g", "gl", "h", "j", "k", "l", "m", "n", "p", "pr", "qu", "r", "s", "st", "t", "tr", "v", "w", "z"]  # fmt: skip
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "io"]
CODAS = ["", "", "l", "m", "n", "r", "s", "th", "x", "nd", "rk", "sh"]

NOUNS = ["estimator", "variance", "residual", "predictor", "sample", "model", "likelihood", "prior", "posterior", "kernel", "matrix", "cluster", "mean", "median", "quantile", "interval", "hypothesis", "coefficient", "intercept", "outcome", "covariate", "distribution", "density", "threshold", "bias", "loss", "gradient", "series", "trend", "season", "lag", "correlation", "rank", "score", "panel", "survey", "weight", "response", "factor", "contrast", "effect", "power", "error", "outlier", "histogram", "forest", "tree", "network", "layer", "feature"]  # fmt: skip
ADJECTIVES = ["linear", "robust", "sparse", "nested", "censored", "skewed", "paired", "random", "mixed", "fixed", "partial", "marginal", "joint", "conditional", "weighted", "smooth", "penalised", "ordinal", "binary", "continuous", "unbalanced", "noisy", "missing", "small", "heavy-tailed", "stationary", "sequential", "pooled", "exact", "approximate"]  # fmt: skip
VERBS = ["compare", "estimate", "interpret", "bound", "simulate", "transform", "test", "choose", "plot", "predict", "normalise", "combine", "derive", "justify", "report", "compute", "correct", "fit", "check", "explain"]  # fmt: skip
TITLES = [
    "How to {verb} a {adjective} {noun}",
    "How do I {verb} the {noun} of a {adjective} {noun2}?",
    "Why is the {noun} of my {adjective} {noun2} so large?",
    "What is the difference between a {adjective} {noun} and a {adjective2} {noun2}?",
    "Is it valid to {verb} a {noun} with a {adjective} {noun2}?",
    "When should one {verb} the {adjective} {noun}?",
    "{Adjective} {noun} or {adjective2} {noun2}?",
    "Can a {adjective} {noun} be used to {verb} a {noun2}?",
    "Intuition behind the {adjective} {noun}",
    "Which {noun} for a {adjective} {noun2} with few observations?",
    "Proof that the {adjective} {noun} is a {noun2}",
    "{Verb} two {adjective} {noun}s after a {noun2}",
]
SENTENCES = [
    "I have a {adjective} {noun} and want to {verb} its {noun2}.",
    "The {noun} looks {adjective}, but the {noun2} doesn't.",
    "So far I tried to {verb} the {adjective} {noun} by hand.",
    "My {noun2} has about {number} observations in {small} groups.",
    "You can {verb} the {noun} first and then look at the {adjective} {noun2}.",
    "Note that a {adjective} {noun} need not be {adjective2}.",
    "As far as I know the {noun} is {adjective} only for a large {noun2}.",
    "This holds whenever the {noun2} is {adjective} and the {noun} is not.",
    "A plot of the {adjective} {noun} against the {noun2} should tell.",
    "Is there a {adjective} way to {verb} it without the {noun}?",
    "With {number} draws the {noun} changed by less than {small} percent.",
    "In that case I would {verb} the {noun2} instead.",
]
FORMULAS = [
    r"Here $\hat{\beta} = (X^\top X)^{-1} X^\top y$ is the {noun}.",
    r"That is, $y_i = \alpha + \beta x_i + \varepsilon_i$ with a {adjective} {noun}.",
    r"We get $$\mathrm{Var}(\bar{x}) = \frac{\sigma^2}{n}$$ for the {noun}.",
    r"Suppose $X \sim N(\mu, \sigma^2)$ and a {adjective} {noun}.",
    r"The {noun} is $\sum_{i=1}^{n} (x_i - \bar{x})^2$.",
]
REMARKS = [
    "Could you say more about the {noun}?",
    "I think the {adjective} {noun} is what you want.",
    "Thanks, that {noun} was what I missed.",
    "Have you tried to {verb} the {noun2}?",
    "This is a duplicate of the one about the {adjective} {noun}.",
    "+1, the {noun} is {adjective} here.",
    "What do you mean by {adjective} {noun}?",
    "Please add a plot of the {noun2}.",
    "No, a {noun} can be {adjective} and still {adjective2}.",
]
VOWEL_NEXT = re.compile(r"\b([Aa]) (?=[aeiou])")


class Prose:
    """All of it drawn from one generator, so that equal seeds give equal words."""

    def __init__(self, draw: random.Random):
        self._draw = draw

    def word(self, syllables: int) -> str:
        choice = self._draw.choice
        return "".join(choice(ONSETS) + choice(VOWELS) for _ in range(syllables)) + choice(CODAS)

    def person(self) -> str:
        """Mostly two words; now and then one, or one with a number."""
        kind = self._draw.random()
        first = self.word(self._draw.choice((1, 2, 2))).capitalize()
        if kind < 0.90:
            return f"{first} {self.word(self._draw.choice((2, 2, 3))).capitalize()}"
        return f"{first}{self.word(1)}" if kind < 0.96 else f"{first.lower()}{self._draw.randint(10, 9999)}"

    def tag(self) -> str:
        parts = 1 if self._draw.random() < 0.6 else 2
        return "-".join(self.word(self._draw.choice((1, 2, 2, 3) if parts == 1 else (1, 2))) for _ in range(parts))

    def badge(self) -> str:
        return f"{self.word(2).capitalize()} {self.word(self._draw.choice((1, 2))).capitalize()}"

    def city(self) -> str:
        return self.word(self._draw.choice((2, 3))).capitalize()

    def title(self) -> str:
        return self._filled(self._draw.choice(TITLES))

    def body(self) -> str:
        """A few paragraphs of HTML, one in four with a formula."""
        paragraphs = []
        for _ in range(self._draw.choice((1, 1, 2, 2, 3))):
            lines = [self._filled(self._draw.choice(SENTENCES)) for _ in range(self._draw.randint(1, 3))]
            if self._draw.random() < 0.15:
                lines.append(self._formula())
            paragraphs.append(f"<p>{' '.join(lines)}</p>\n")
        return "\n".join(paragraphs)

    def remark(self) -> str:
        line = self._filled(self._draw.choice(REMARKS))
        if self._draw.random() < 0.4:
            line += " " + self._filled(self._draw.choice(SENTENCES))
        return line

    def guid(self) -> str:
        digits = f"{self._draw.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _formula(self) -> str:
        # its braces are LaTeX's, so the two blanks are filled by hand
        line = self._draw.choice(FORMULAS)
        return line.replace("{noun}", self._draw.choice(NOUNS)).replace("{adjective}", self._draw.choice(ADJECTIVES))

    def _filled(self, pattern: str) -> str:
        choice = self._draw.choice
        verb, adjective = choice(VERBS), choice(ADJECTIVES)
        line = pattern.format(
            verb=verb, Verb=verb.capitalize(), adjective=adjective, Adjective=adjective.capitalize(),
            adjective2=choice(ADJECTIVES), noun=choice(NOUNS), noun2=choice(NOUNS),
            number=self._draw.randint(2, 90) * 10, small=self._draw.randint(2, 12),
        )  # fmt: skip
        return VOWEL_NEXT.sub(r"\1n ", line)

    def distinct(self, make: str, n: int) -> list[str]:
        """`n` different results of one of the methods above, in the order in which they were drawn."""
        found: dict[str, None] = {}
        while len(found) < n:
            found[getattr(self, make)()] = None
        return list(found)
