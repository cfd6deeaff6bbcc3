"""The plan of a made-up site: some integers a row, drawn before any row is written, so that rows fit together."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import datetime
from itertools import accumulate

# table: rows at scale 1 (BIRD's), how they grow with the scale, and the fewest
SIZES = {
    "users": (40_325, 1.0, 200),
    "posts": (91_966, 1.0, 400),
    "comments": (174_285, 1.0, 400),
    "votes": (38_930, 1.0, 300),
    "badges": (79_851, 1.0, 600),
    "tags": (1_032, 0.65, 72),  # a vocabulary grows slower than the texts
    "postLinks": (11_102, 1.0, 120),
    "postHistory": (303_155, 1.0, 1_200),
}
OPENING = datetime(2010, 7, 19, 6, 55, 26)
SPAN = int((datetime(2014, 9, 14, 1, 0, 0) - OPENING).total_seconds())
DAY = 86_400
QUESTION, ANSWER, WIKI, EXCERPT = 1, 2, 4, 5
OTHER_KINDS = (3, 6, 6, 7)
QUESTION_SHARE, ANSWER_SHARE, EXCERPT_SHARE = 0.4666, 0.5193, 0.5775
EDITED_SHARE = 0.4897
TAGS_A_QUESTION = (0.16, 0.31, 0.27, 0.16, 0.10)


def sizes(scale: float) -> dict[str, int]:
    return {table: max(floor, round(n * scale**growth)) for table, (n, growth, floor) in SIZES.items()}


def tail(draw: random.Random, alpha: float) -> float:
    """A draw from a Pareto distribution that starts at 0."""
    return draw.paretovariate(alpha) - 1


class Weighted:
    """Draws indices below a bound in proportion to weights, in logarithmic time."""

    def __init__(self, weights: list[float]):
        self._sums = list(accumulate(weights))

    def below(self, draw: random.Random, bound: int) -> int:
        return min(bisect_right(self._sums, draw.random() * self._sums[bound - 1]), bound - 1)

    def any(self, draw: random.Random) -> int:
        return self.below(draw, len(self._sums))


class Posts:
    """The plan of all posts in the order of their ids; None where a post has none."""

    def __init__(self, n: int):
        self.kind = [0] * n
        self.time = [0] * n
        self.owner = [0] * n
        self.score = [0] * n
        self.parent: list[int | None] = [None] * n
        self.accepted: list[int | None] = [None] * n
        self.edited: list[int | None] = [None] * n
        self.editor: list[int | None] = [None] * n
        self.active = [0] * n
        self.answers = [0] * n
        self.comments = [0] * n
        self.tags: list[tuple[int, ...]] = [()] * n
        self.id = [0] * n


class Plan:
    """Who joined when, which post answers which, who wrote, edited and talked: everything but texts and counters."""

    def __init__(self, scale: float, seed: int):
        self.seed, self.n = seed, sizes(scale)
        self.scale = scale
        self._plan_users()
        self._plan_posts()
        self._plan_comments()

    def draw(self, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{what}")  # a generator of its own for each table and plan

    # ------------------------------------------------------------ plans

    def _plan_users(self) -> None:
        draw, n = self.draw("plan users"), self.n["users"]
        self.joined = sorted(int(SPAN * (draw.random() ** 0.7)) for _ in range(n))
        self.joined[0] = 0  # the system user, -1
        self.user_ids = ids(draw, n - 1, 2, 1.382)
        self.user_ids.insert(0, -1)
        activity = [0.02] + [min(tail(draw, 1.05), 400.0) for _ in range(n - 1)]
        self.asks = Weighted([a**0.5 for a in activity])
        self.answers = Weighted([a**0.9 for a in activity])
        self.talks = Weighted([a**1.15 for a in activity])
        self.edits = Weighted([a**1.35 for a in activity])

    def user(self, draw: random.Random, weights: Weighted, time: int) -> int:
        """Index of a user who had joined by then, in proportion to the weights."""
        return weights.below(draw, max(2, bisect_right(self.joined, time)))

    def _plan_posts(self) -> None:
        draw, n = self.draw("plan posts"), self.n["posts"]
        questions, answers = round(n * QUESTION_SHARE), round(n * ANSWER_SHARE)
        tags = self.n["tags"]
        described = sorted(draw.sample(range(tags), round(EXCERPT_SHARE * tags)))
        asked = sorted(int(SPAN * (0.001 + 0.998 * draw.random() ** 0.75)) for _ in range(questions))
        plan: list[tuple[int, int, int]] = [(time, QUESTION, q) for q, time in enumerate(asked)]
        popular = Weighted([0.35 + min(tail(draw, 1.6), 60) for _ in range(questions)])
        for _ in range(answers):
            q = popular.any(draw)
            delay = int(min(draw.lognormvariate(10.5, 2.2), 0.9 * (SPAN - asked[q]))) + 60
            plan.append((asked[q] + delay, ANSWER, q))
        for tag in described:
            time = int(SPAN * draw.uniform(0.02, 0.95))
            plan += [(time, WIKI, tag), (time + 1, EXCERPT, tag)]
        rest = max(1, self.n["posts"] - len(plan))
        plan += [(int(SPAN * draw.random()), draw.choice(OTHER_KINDS), 0) for _ in range(rest)]
        plan.sort()
        posts = self.posts = Posts(len(plan))
        posts.id = ids(draw, len(plan), 1, 1.2546)
        place = {of: p for p, (_, kind, of) in enumerate(plan) if kind == QUESTION}
        self.excerpts: dict[int, tuple[int, int]] = {}
        wikis = {of: p for p, (_, kind, of) in enumerate(plan) if kind == WIKI}
        replies: dict[int, list[int]] = {}
        for p, (time, kind, of) in enumerate(plan):
            posts.kind[p], posts.time[p], posts.active[p] = kind, time, time
            weights = self.asks if kind == QUESTION else self.answers if kind == ANSWER else self.edits
            posts.owner[p] = self.user(draw, weights, time)
            posts.score[p] = score(draw)
            if kind == ANSWER:
                posts.parent[p] = place[of]
                replies.setdefault(place[of], []).append(p)
            elif kind == EXCERPT:
                self.excerpts[of] = (posts.id[p], posts.id[wikis[of]])
            if kind in (WIKI, EXCERPT):
                posts.score[p] = 0
                posts.owner[p] = 0 if draw.random() < 0.1 else posts.owner[p]  # the system user
        self._plan_threads(draw, replies)
        self._plan_tags(draw)

    def _plan_threads(self, draw: random.Random, replies: dict[int, list[int]]) -> None:
        posts = self.posts
        answered = (
            0.342 * QUESTION_SHARE * self.n["posts"] / max(1, len(replies))
        )  # so that 34% of questions accept one
        for q, given in replies.items():
            posts.answers[q] = len(given)
            posts.active[q] = max(posts.active[q], posts.time[given[-1]])
            if draw.random() < answered:
                best = max(given, key=lambda p: (posts.score[p], -p))
                chosen = best if draw.random() < 0.7 else draw.choice(given)
                posts.accepted[q] = chosen
                posts.score[chosen] = max(posts.score[chosen], 1 + int(tail(draw, 1.4)))
        for p in sorted(draw.sample(range(len(posts.id)), round(EDITED_SHARE * len(posts.id)))):
            edited = min(posts.time[p] + int(draw.lognormvariate(9.5, 2.5)) + 30, SPAN)
            posts.edited[p], posts.active[p] = edited, max(posts.active[p], edited)
            kind = draw.random()
            posts.editor[p] = (
                posts.owner[p] if kind < 0.55 else 0 if kind < 0.57 else self.user(draw, self.edits, edited)
            )

    def _plan_tags(self, draw: random.Random) -> None:
        posts, n = self.posts, self.n["tags"]
        rank = list(range(n))
        draw.shuffle(rank)
        weights = Weighted([1 / (rank[t] + 2.5) ** 0.95 for t in range(n)])
        self.tag_uses: Counter[int] = Counter()
        for p, kind in enumerate(posts.kind):
            if kind == QUESTION:
                wanted = draw.choices((1, 2, 3, 4, 5), TAGS_A_QUESTION)[0]
                chosen: dict[int, None] = {}
                while len(chosen) < wanted:
                    chosen[weights.any(draw)] = None
                posts.tags[p] = tuple(chosen)
                self.tag_uses.update(list(chosen))

    def _plan_comments(self) -> None:
        """(time, post) of each comment, in order of time."""
        draw, posts = self.draw("plan comments"), self.posts
        talked = Weighted([0.25 + min(tail(draw, 1.5), 18) if k in (QUESTION, ANSWER) else 0.02 for k in posts.kind])
        planned = []
        for _ in range(self.n["comments"]):
            p = talked.any(draw)
            delay = int(min(draw.lognormvariate(9.0, 2.6), 0.95 * (SPAN - posts.time[p])))
            planned.append((posts.time[p] + max(0, delay), p))
            posts.comments[p] += 1
        self.comments = sorted(planned)

    def missing_post(self, draw: random.Random) -> int:
        """An id between two posts: one that was deleted."""
        known = self.posts.id
        while True:
            guess = draw.randint(1, known[-1])
            place = bisect_left(known, guess)
            if known[place] != guess:
                return guess


def ids(draw: random.Random, n: int, first: int, stretch: float) -> list[int]:
    """`n` rising ids with gaps, from `first` to about n * stretch."""
    ids, id_ = [], first
    for _ in range(n):
        ids.append(id_)
        id_ += 1 + (int(draw.expovariate(1 / (stretch - 1))) if stretch > 2 else draw.random() < stretch - 1)
    return ids


def score(draw: random.Random) -> int:
    """A post's score: mostly 0 to 3, a long tail up to 192, a few below zero."""
    if draw.random() < 0.035:
        return max(-19, -1 - int(tail(draw, 2.0)))
    return min(192, int(1.7 * tail(draw, 1.35) + draw.random()))
