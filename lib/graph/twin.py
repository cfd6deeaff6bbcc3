"""A made-up site with the shape of BIRD's `codebase_community`, at any size, for everybody who has no dump at hand.

Row counts, null shares, value ranges and the long tails follow BIRD's published metadata of that database; names and
texts are made up (lib/graph/prose.py). What points where is planned first (lib/graph/twin_plan.py), texts are made
while the rows stream. As in life, a few keys point nowhere and a few counters disagree with the rows that they count.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from lib.graph.prose import Prose
from lib.graph.tables import Row, SourceError, Tables
from lib.graph.twin_plan import ANSWER, DAY, OPENING, QUESTION, SPAN, Plan, Weighted, ids, tail

BADGE_NAMES, BADGE_GROWTH, BADGE_FLOOR = 153, 0.4, 28
CITIES = 50
VOTED_UNTIL = 0.15  # BIRD's votes end in May 2011: only the first posts have any
VOTE_TYPES = {2: 78.0, 5: 8.5, 1: 5.5, 3: 4.5, 16: 1.8, 15: 0.6, 8: 0.25, 9: 0.3, 11: 0.3, 10: 0.3}  # percent
REVISIONS = {5: 66.0, 4: 6.0, 6: 9.0, 24: 9.0, 25: 4.0, 10: 2.5, 16: 1.5, 33: 0.8, 34: 0.8, 12: 0.4}
ORPHANS = {
    "votes": 0.025,
    "postLinks": 0.02,
    "comments": 0.001,
    "postHistory": 0.002,
    "lost tag": 0.004,
    "accepted": 0.002,
}
# Shares of what is amiss are those of small sites, or some of it would be found in none; BIRD's file has hardly any.
ALL_AMISS_UP_TO = 0.05  # scale; above, the number stays and the share falls


def tables(scale: float, seed: int) -> Tables:
    """The eight tables at `scale` (1 is BIRD's size). Equal seeds give equal rows."""
    if not 0 < scale <= 10:
        raise SourceError(f"graph.scale = {scale} must be above 0 and at most 10 (1 is the size of the real site)")
    site = _Site(scale, seed)
    yield "users", site.user_rows()
    yield "tags", site.tag_rows()
    yield "posts", site.post_rows()
    yield "comments", site.comment_rows()
    yield "votes", site.vote_rows()
    yield "badges", site.badge_rows()
    yield "postLinks", site.link_rows()
    yield "postHistory", site.history_rows()


def _text(seconds: int) -> str:
    return (OPENING + timedelta(seconds=seconds)).isoformat(" ") + ".0"


class _Site(Plan):
    def amiss(self, share: float) -> float:
        return share * min(1.0, ALL_AMISS_UP_TO / self.scale)

    def user_rows(self) -> Iterator[Row]:
        draw, n, posts = self.draw("users"), self.n["users"], self.posts
        prose = Prose(draw)
        self.names: list[str] = []
        cities = prose.distinct("city", CITIES)
        lives = Weighted([1 / (rank + 1.5) for rank in range(CITIES)])
        earned: Counter[int] = Counter()
        for p, score in enumerate(posts.score):
            earned[posts.owner[p]] += max(0, score) * (10 if posts.kind[p] == ANSWER else 5)
        seen = set()
        accounts = sorted(draw.sample(range(2, 5_027_354), n - 1))
        for u in range(n):
            name = "Community" if u == 0 else prose.person()
            while name in seen and draw.random() > 0.02:  # a few share a name all the same
                name = prose.person()
            if u and draw.random() < 0.02:
                name = draw.choice(self.names)
            seen.add(name)
            self.names.append(name)
            gained = earned[u]
            yield {
                "Id": self.user_ids[u],
                "Reputation": min(1 + gained + (100 if draw.random() < 0.3 else 0), 87_393),
                "CreationDate": _text(self.joined[u]),
                "DisplayName": name,
                "LastAccessDate": _text(
                    self.joined[u] + int((SPAN - self.joined[u]) * draw.random() ** (1 if gained else 3))
                ),
                "WebsiteUrl": f"http://{prose.word(2)}.example/{u}" if draw.random() < 0.2014 else None,
                "Location": cities[lives.any(draw)] if draw.random() < 0.2899 else None,
                "AboutMe": prose.body() if draw.random() < 0.2326 else None,
                "Views": min(int(gained**0.7 * draw.random() + 2 * tail(draw, 1.3)), 20_932),
                "UpVotes": min(int(gained**0.8 * 0.1 * draw.random() + 0.6 * tail(draw, 0.9)), 11_442),
                "DownVotes": min(int(0.12 * gained**0.5 * tail(draw, 1.2)), 1_920),
                "AccountId": -1 if u == 0 else accounts[u - 1],
                "Age": min(94, 13 + int(draw.gammavariate(4.5, 4.0))) if draw.random() < 0.2063 else None,
                "ProfileImageUrl": f"http://img.example/{prose.guid()[:8]}.png" if draw.random() < 0.4087 else None,
            }

    def tag_rows(self) -> Iterator[Row]:
        draw, n = self.draw("tags"), self.n["tags"]
        prose = Prose(draw)
        names = prose.distinct("tag", n + 3)
        self.tag_names, self.lost_tags = names[:n], names[n:]  # the last were renamed once, in some questions only
        for t, id_ in enumerate(ids(draw, n, 1, 1.81)):
            excerpt, wiki = self.excerpts.get(t, (None, None))
            off = draw.choice((-1, 1, 2)) if draw.random() < 0.04 else 0
            yield {
                "Id": id_,
                "TagName": self.tag_names[t],
                "Count": max(0, self.tag_uses[t] + off),
                "ExcerptPostId": excerpt,
                "WikiPostId": wiki,
            }

    def post_rows(self) -> Iterator[Row]:
        draw = self.draw("posts")
        prose = Prose(draw)
        titles: set[str] = set()
        for p, kind in enumerate(self.posts.kind):
            row = self._any_post(draw, prose, p)
            if kind == QUESTION:
                title = prose.title()
                while title in titles and draw.random() > 0.01:
                    title = prose.title()
                titles.add(title)
                row |= self._question(draw, p) | {"Title": title}
            elif kind == ANSWER:
                row["ParentId"] = self.posts.id[self.posts.parent[p] or 0]
            yield row

    def _any_post(self, draw: random.Random, prose: Prose, p: int) -> Row:
        posts = self.posts
        owner, editor, edited = posts.owner[p], posts.editor[p], posts.edited[p]
        gone = draw.random() < 0.0151  # the owner deleted the account
        edited_by_gone = editor is not None and draw.random() < 0.0104
        return {
            "Id": posts.id[p],
            "PostTypeId": posts.kind[p],
            "CreaionDate": _text(posts.time[p]),
            "Score": posts.score[p],
            "Body": prose.body() if draw.random() > 0.0024 else None,
            "OwnerUserId": None if gone else self.user_ids[owner],
            "OwnerDisplayName": self.names[owner] if gone or draw.random() < 0.0124 else None,
            "LasActivityDate": _text(posts.active[p]),
            "CommentCount": max(0, posts.comments[p] + (draw.choice((-1, 1)) if draw.random() < 0.02 else 0)),
            "LastEditorUserId": None if editor is None or edited_by_gone else self.user_ids[editor],
            "LastEditorDisplayName": self.names[editor] if editor is not None and edited_by_gone else None,
            "LastEditDate": None if edited is None else _text(edited),
            "CommunityOwnedDate": _text(posts.active[p]) if draw.random() < 0.0268 else None,
        }

    def _question(self, draw: random.Random, p: int) -> Row:
        posts = self.posts
        names = [self.tag_names[t] for t in posts.tags[p]]
        if draw.random() < self.amiss(ORPHANS["lost tag"]):
            names[-1] = draw.choice(self.lost_tags)
        accepted = posts.accepted[p]
        answer = None if accepted is None else posts.id[accepted]
        if answer is not None and draw.random() < self.amiss(ORPHANS["accepted"]):
            answer = self.missing_post(draw)
        score = max(0, posts.score[p])
        return {
            "AcceptedAnswerId": answer,
            "ViewCount": max(1, min(int(draw.lognormvariate(5.3 + 0.35 * score**0.5, 1.0)), 175_495)),
            "Tags": "".join(f"<{name}>" for name in names),
            "AnswerCount": max(0, posts.answers[p] + (draw.choice((-1, 1)) if draw.random() < 0.02 else 0)),
            "FavoriteCount": min(int(score * draw.random() * 1.2), 233)
            if draw.random() < 0.26 + 0.01 * min(score, 10)
            else None,
            "ClosedDate": _text(min(posts.time[p] + int(draw.lognormvariate(11, 1.5)), SPAN))
            if draw.random() < 0.0375
            else None,
        }

    def comment_rows(self) -> Iterator[Row]:
        draw, posts = self.draw("comments"), self.posts
        prose = Prose(draw)
        for id_, (time, p) in zip(ids(draw, len(self.comments), 1, 1.27), self.comments, strict=True):
            author = posts.owner[p] if draw.random() < 0.35 else self.user(draw, self.talks, time)
            gone = draw.random() < 0.0163
            yield {
                "Id": id_,
                "PostId": self.missing_post(draw) if draw.random() < self.amiss(ORPHANS["comments"]) else posts.id[p],
                "Score": min(int(0.45 * tail(draw, 1.25)), 90),
                "Text": prose.remark(),
                "CreationDate": _text(time),
                "UserId": None if gone else self.user_ids[author],
                "UserDisplayName": self.names[author] if gone else None,
            }

    def vote_rows(self) -> Iterator[Row]:
        draw, posts = self.draw("votes"), self.posts
        early = max(50, round(VOTED_UNTIL * len(posts.id)))
        liked = Weighted([0.4 + max(0, s) for s in posts.score[:early]])
        last_day = 286 * DAY
        kinds = [k for k, share in VOTE_TYPES.items() for _ in range(max(1, round(share / 100 * self.n["votes"])))]
        kinds += [2] * (self.n["votes"] - len(kinds))
        planned: list[tuple[int, int, int]] = []
        for kind in kinds[: self.n["votes"]]:
            p = liked.any(draw)
            planned.append((min(posts.time[p], last_day) // DAY * DAY + DAY * int(tail(draw, 0.8)), kind, p))
        planned = sorted((min(time, last_day), kind, p) for time, kind, p in planned)
        for id_, (time, kind, p) in zip(ids(draw, len(planned), 1, 1.118), planned, strict=True):
            yield {
                "Id": id_,
                "PostId": self.missing_post(draw) if draw.random() < self.amiss(ORPHANS["votes"]) else posts.id[p],
                "VoteTypeId": kind,
                "CreationDate": _text(time)[:10],
                "UserId": self.user_ids[self.user(draw, self.edits, time)] if kind in (5, 8) else None,
                "BountyAmount": draw.choice((50, 50, 50, 100, 25, 150, 200, 0))
                if kind == 8 or (kind == 9 and draw.random() < 0.2)
                else None,
            }

    def badge_rows(self) -> Iterator[Row]:
        draw = self.draw("badges")
        names_due = max(BADGE_FLOOR, round(BADGE_NAMES * self.scale**BADGE_GROWTH))
        names = Prose(draw).distinct("badge", names_due)
        common = Weighted([1 / (rank + 1.2) ** 1.1 for rank in range(len(names))])
        planned: list[tuple[int, int, int]] = []
        had: set[tuple[int, int]] = set()
        while len(planned) < self.n["badges"]:
            u, b = max(1, self.asks.any(draw)), common.any(draw)
            if (u, b) in had and draw.random() > 0.05:  # most badges are given once to a user
                continue
            had.add((u, b))
            planned.append((self.joined[u] + int((SPAN - self.joined[u]) * draw.random() ** 2), u, b))
        planned.sort()
        for id_, (time, u, b) in zip(ids(draw, len(planned), 1, 1.155), planned, strict=True):
            yield {"Id": id_, "UserId": self.user_ids[u], "Name": names[b], "Date": _text(time)}

    def link_rows(self) -> Iterator[Row]:
        draw, posts = self.draw("postLinks"), self.posts
        questions = [p for p, kind in enumerate(posts.kind) if kind == QUESTION]
        known = Weighted([0.3 + max(0, posts.score[p]) for p in questions])
        planned = []
        for _ in range(self.n["postLinks"]):
            i = draw.randrange(1, len(questions))
            p, q = questions[i], questions[known.below(draw, i)]
            planned.append((min(posts.time[p] + int(draw.lognormvariate(10, 2)), SPAN), p, q))
        planned.sort()
        for id_, (time, p, q) in zip(ids(draw, len(planned), 108, 302.0), planned, strict=True):
            yield {
                "Id": id_,
                "CreationDate": _text(time),
                "PostId": posts.id[p],
                "RelatedPostId": self.missing_post(draw)
                if draw.random() < self.amiss(ORPHANS["postLinks"])
                else posts.id[q],
                "LinkTypeId": 3 if draw.random() < 0.14 else 1,
            }

    def history_rows(self) -> Iterator[Row]:
        """Each post's first revision (three rows for a question), its last edit, and other revisions up to the number due."""
        draw, posts = self.draw("postHistory"), self.posts
        prose = Prose(draw)
        planned: list[tuple[int, int, int]] = []
        for p, kind in enumerate(posts.kind):
            planned += [(posts.time[p], p, t) for t in ((2, 1, 3) if kind == QUESTION else (2,))]
            if (edited := posts.edited[p]) is not None:
                planned.append((edited, p, 5))
        revised = Weighted([0.2 + tail(draw, 1.4) for _ in posts.kind])
        kinds, weights = list(REVISIONS), list(REVISIONS.values())
        for _ in range(self.n["postHistory"] - len(planned)):
            p = revised.any(draw)
            time = posts.time[p] + int((posts.active[p] - posts.time[p]) * draw.random()) + 1
            planned.append((min(time, SPAN), p, draw.choices(kinds, weights)[0]))
        planned.sort()
        last, guid = None, ""
        for id_, (time, p, kind) in zip(ids(draw, len(planned), 1, 1.276), planned, strict=True):
            if (time, p) != last:
                last, guid = (time, p), prose.guid()
            first = kind in (1, 2, 3)
            user = posts.owner[p] if first or draw.random() < 0.5 else self.user(draw, self.edits, time)
            gone = draw.random() < (0.02 if first else 0.14 + self.amiss(0.02))
            yield {
                "Id": id_,
                "PostHistoryTypeId": kind,
                "PostId": self.missing_post(draw)
                if draw.random() < self.amiss(ORPHANS["postHistory"])
                else posts.id[p],
                "RevisionGUID": guid,
                "CreationDate": _text(time),
                "UserId": None if gone else self.user_ids[user],
                "Text": self._revised_text(draw, prose, p, kind),
                "Comment": "" if first or draw.random() < 0.4 else f"added {draw.randint(2, 400)} characters in body",
                "UserDisplayName": self.names[user] if gone and draw.random() < 0.3 else "",
            }

    def _revised_text(self, draw: random.Random, prose: Prose, p: int, kind: int) -> str:
        if kind in (2, 5):
            return prose.body()
        if kind in (1, 4):
            return prose.title()
        if kind in (3, 6):
            return "".join(f"<{self.tag_names[t]}>" for t in self.posts.tags[p])
        return ""
