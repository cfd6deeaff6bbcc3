"""A twin into which BIRD's questions are planted, for tests only: names, dates and texts come from BIRD's file at run time.

On a made-up site nearly every human question would be answered by nothing, and nothing equals nothing. Each constant in
the questions' SQL gets rows that it finds, rich enough that a right query and a nearly right one return different rows:
who revised a post isn't who wrote it, who has a badge has it twice, and what is the most is so alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lib.graph.twin import tables
from lib.questions import sql
from lib.questions.human import Asked

SCALE, SEED = 0.005, 0
Row = dict[str, Any]


class Planted:
    """The twin's tables as lists, and what is added to them. Numbers that questions name are set, all others count up."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [dict(row) for row in rows] for name, rows in tables(SCALE, SEED)}
        self._ids = {name: {row["Id"]: row for row in rows} for name, rows in self.tables.items()}
        self._users = {row["DisplayName"]: row for row in reversed(self.tables["users"])}
        self._tags = {row["TagName"]: row for row in self.tables["tags"]}
        self._posts: dict[str, Row] = {}
        self._persons: set[int] = set()
        self._steps = 0
        self.other = self.user("planted reader", Reputation=700, Views=90)
        self.writer = self.user("planted writer", Reputation=800, Views=80)
        self.place = self.post(self.writer, Title="A planted question")

    def step(self) -> int:
        """A number that none had before, so that nothing planted is tied by chance."""
        self._steps += 1
        return self._steps

    def time(self, year: int = 2011) -> str:
        n = self.step()
        return f"{year}-{1 + n % 12:02d}-{1 + n % 28:02d} {n % 24:02d}:{n % 60:02d}:{n * 7 % 60:02d}.0"

    def add(self, table: str, id_: int | None = None, **row: Any) -> Row:
        """A new row, or the row of that number with other values."""
        known = self._ids[table]
        if id_ in known:
            known[id_].update(row)
            return known[id_]
        new = {"Id": id_ if id_ is not None else max(known) + 1, **row}
        known[new["Id"]] = new
        self.tables[table].append(new)
        return new

    # ------------------------------------------------------------ single rows

    def user(self, name: str | None = None, id_: int | None = None, **row: Any) -> Row:
        if name in self._users and id_ is None:
            self._users[name].update(row)
            return self._users[name]
        n = self.step()
        if id_ in self._ids["users"]:
            return self.add("users", id_, **row)
        fixed = {
            "DisplayName": name or f"planted {n}", "Reputation": 1100 + 3 * n, "CreationDate": self.time(2010),
            "LastAccessDate": "2014-09-05 10:00:00.0", "Views": 210 + n, "UpVotes": 101 + n, "DownVotes": 2, "Age": 30,
            "WebsiteUrl": f"http://planted.example/{n}", "Location": f"Planted Town {n}",
        }  # fmt: skip
        new = self.add("users", id_, **(fixed | row))
        self._users.setdefault(new["DisplayName"], new)
        return new

    def post(self, owner: Row, id_: int | None = None, **row: Any) -> Row:
        n = self.step()
        fixed = {
            "PostTypeId": 1, "CreaionDate": self.time(), "LasActivityDate": self.time(2013), "Score": 5 + n % 3,
            "ViewCount": 2500 + 7 * n, "Body": f"Planted body {n}", "Title": f"Planted question {n}", "AnswerCount": n,
            "CommentCount": 2, "FavoriteCount": 5 + n % 40, "OwnerUserId": owner["Id"], "Tags": self.tags(),
        }  # fmt: skip
        if row.get("PostTypeId") == 2:
            fixed |= dict.fromkeys(("Title", "ViewCount", "Tags", "AnswerCount", "FavoriteCount"))
        return self.add("posts", id_, **(fixed | row))

    def tags(self) -> str:
        """Two tags in the order of their letters, the only one that can be had from the graph again."""
        names = sorted(row["TagName"] for row in self.tables["tags"][:12])
        first = self.step() % 11
        return f"<{names[first]}><{names[first + 1]}>"

    def comment(self, post: Row, user: Row, id_: int | None = None, **row: Any) -> Row:
        fixed = {"Score": 1, "Text": f"Planted remark {self.step()}", "CreationDate": self.time(2012)}
        return self.add("comments", id_, PostId=post["Id"], UserId=user["Id"], **(fixed | row))

    def vote(self, post: Row, user: Row | None, id_: int | None = None, **row: Any) -> Row:
        fixed = {"VoteTypeId": 5 if user else 2, "CreationDate": self.time(2010 + self.step() % 2)[:10]}
        return self.add("votes", id_, PostId=post["Id"], UserId=user and user["Id"], **(fixed | row))

    def badge(self, user: Row, name: str, date: str | None = None) -> Row:
        return self.add("badges", None, UserId=user["Id"], Name=name, Date=date or self.time())

    def history(self, post: Row, user: Row, kind: int = 5, **row: Any) -> Row:
        fixed = {"RevisionGUID": "", "Text": f"Planted revision {self.step()}", "Comment": f"planted {kind}",
                 "CreationDate": self.time(), "UserDisplayName": ""}  # fmt: skip
        return self.add(
            "postHistory", None, PostHistoryTypeId=kind, PostId=post["Id"], UserId=user["Id"], **(fixed | row)
        )

    def link(self, post: Row, other: Row, **row: Any) -> Row:
        fixed = {"CreationDate": self.time(2010), "LinkTypeId": 1}
        return self.add("postLinks", None, PostId=post["Id"], RelatedPostId=other["Id"], **(fixed | row))

    # ------------------------------------------------------------ rich ones

    def person(self, user: Row) -> Row:
        """Somebody who wrote, revised, edited, commented, voted and was rewarded, each in another number; once."""
        if user["Id"] in self._persons:
            return user
        self._persons.add(user["Id"])
        owned = [self.post(user, CreaionDate=self.time(2010 + i), Score=50 + i, CommentCount=i) for i in range(3)]
        answer = self.post(user, PostTypeId=2, ParentId=self.place["Id"])
        for post in (*owned, answer):
            self.history(post, user, 2)
            self.comment(post, self.other)
            self.vote(post, None)
        for _ in range(5):  # more than four votes
            self.vote(owned[0], None)
        foreign = self.post(self.writer, LastEditorUserId=user["Id"], LastEditDate=self.time(2012), CommentCount=0)
        for kind in (4, 5, 5, 5, 5, 6):  # revised more than four times
            self.history(foreign, user, kind)
        self.vote(foreign, None)
        for score in (0, 0, 3):
            self.comment(foreign, user, Score=score)
        self.vote(foreign, user)
        self.vote(self.place, user)
        self.badge(user, "Planted Badge", self.time(2011))
        self.badge(user, "Planted Prize", self.time(2013))
        return user

    def thread(self, post: Row) -> Row:
        """What hangs from a post: an editor who isn't its owner, comments, revisions, votes, links."""
        editor = self.user()
        post.update(LastEditorUserId=editor["Id"], LastEditDate=self.time(2013))
        for user in (self.other, editor):
            self.comment(post, user)
            self.history(post, user, 2 if user is editor else 5)
        self.vote(post, editor)
        self.link(post, self.place)
        self.link(post, self.post(self.writer), LinkTypeId=3)
        return post

    def titled(self, title: str, **row: Any) -> Row:
        if title not in self._posts:
            self._posts[title] = self.thread(self.post(self.user(), Title=title, **row))
        return self._posts[title]

    def tag(self, name: str) -> Row:
        if name not in self._tags:
            wiki, excerpt = (self.post(self.writer, PostTypeId=kind, Title=None, Tags=None) for kind in (5, 4))
            self._tags[name] = self.add(
                "tags", None, TagName=name, Count=25, ExcerptPostId=excerpt["Id"], WikiPostId=wiki["Id"]
            )
            for extra in ("", f"<{self.tables['tags'][0]['TagName']}>"):
                self.thread(self.post(self.writer, Tags=f"<{name}>{extra}"))
        return self._tags[name]

    def awarded(self, name: str) -> None:
        """A badge that young and old were given in several years, one of them twice in a year."""
        for year, age in ((2010, 15), (2011, 40), (2011, 41), (2014, 70)):
            user = self.user(Age=age)
            self.badge(user, name, self.time(year))
            self.badge(user, name, self.time(year))
        self.badge(self.user(Age=25), name, self.time(2011))

    def resident(self, place: str, badges: list[str]) -> Row:
        """Somebody who lives there and has those badges, the last one twice; and a neighbour who has the last one."""
        for names in ([*badges, *badges[-1:]], badges[-1:]):
            user = self.person(self.user(Location=place))
            for name in names:
                self.badge(user, name, self.time(2011))
        return user


def planted(asked: list[Asked]) -> dict[str, list[Row]]:
    """The twin's eight tables with rows for every constant of BIRD's SQL; without questions, only with what is the most."""
    site = Planted()
    for question in asked:
        assert question.sql is not None
        _by_column(site, question.sql)
    if asked:
        constants = {q.id: [x.value for x in sql.literals(q.sql or "")] for q in asked}
        _by_question(site, {int(name.removeprefix("bird-")): found for name, found in constants.items()}, asked)
    _extremes(site)
    return site.tables


def write(asked: list[Asked], path: Path) -> Path:
    """The planted twin as a SQLite file."""
    return sql.write(path, planted(asked).items())


def _by_column(site: Planted, code: str) -> None:
    """What the column says that a text is compared with."""
    badges = [str(x.value) for x in sql.literals(code) if x.column == "Name"]
    for literal in sql.literals(code):
        value, column = literal.value, literal.column
        if not isinstance(value, str):
            continue
        if column in ("DisplayName", "UserDisplayName"):
            site.person(site.user(value))
        elif column == "Title" and "%" in value:
            post = site.titled(f"Planted words on {value.strip('%').upper()}", FavoriteCount=8)
            for _ in range(2):
                site.vote(post, site.user(), VoteTypeId=8, BountyAmount=50, CreationDate="2011-03-04")
        elif column == "Title":
            site.titled(value)
        elif column == "Tags":
            site.tag(value.strip("<>"))
        elif column == "TagName":
            site.tag(value)
        elif column == "Name":
            site.awarded(value)
        elif column == "Location":
            site.resident(value, badges or ["Planted Badge"])
        elif column == "WebsiteUrl":
            site.user(WebsiteUrl=value)
        elif column == "Text" and "comments" in code:
            site.comment(site.place, site.user(), Text=value)


def _by_question(site: Planted, constants: dict[int, list[Any]], asked: list[Asked]) -> None:
    """What only the question says: numbers of rows, times, and what must stand out in them."""
    for number, place in ((558, 0), (571, 0), (588, 0), (603, 0), (624, 0), (666, 0), (563, 1), (565, 2)):
        site.person(site.user(id_=constants[number][place]))
    for number in (566, 594, 599, 600, 601, 689):
        site.thread(site.post(site.user(), constants[number][0]))
    user = site._ids["users"]
    site.vote(site.place, user[constants[558][0]], CreationDate=constants[558][1])
    site.comment(site.titled("Planted, closed", ClosedDate=site.time(2014)), user[constants[565][2]],
                 CreationDate=constants[565][3])  # fmt: skip
    site.comment(site.titled("Planted, liked"), user[constants[563][1]], CreationDate=constants[563][0])
    site.thread(site.post(site.writer, ViewCount=constants[562][0]))
    parent = site.post(site.writer, constants[564][0])
    site.comment(site.post(site.other, PostTypeId=2, ParentId=parent["Id"], CommentCount=1, Score=0), site.writer)
    site.vote(site.place, site.user(), constants[568][0])
    site.comment(site.place, site.user(), Score=constants[573][0])
    for post in (site.post(user[constants[603][0]], CreaionDate=site.time(2011), FavoriteCount=33) for _ in range(2)):
        site.history(post, user[constants[603][0]])
    for number in (606, 611, 620):
        site.badge(site.other, "Planted Badge", constants[number][0])
        site.badge(site.other, "Planted Prize", constants[number][0])
    site.comment(site.place, site.other, CreationDate=constants[608][0])
    spoken = next(q for q in asked if q.id == "bird-608").words
    assert spoken is not None
    site.comment(site.place, site.other, CreationDate=spoken.split("localdatetime('")[1][:19].replace("T", " ") + ".0")
    site.post(site.writer, Score=constants[609][0])
    for number in (616, 617):
        site.comment(site.place, site.other, CreationDate=constants[number][0], Score=2)
        site.comment(site.post(site.writer, CreaionDate=constants[number][0]), site.other, Score=3)
    post = site.post(site.writer, CreaionDate=f"{constants[642][0]} 09:00:00.0")
    for kind in (1, 2, 3):
        site.history(post, site.writer, kind, CreationDate=post["CreaionDate"])
    name, year = constants[652][0], constants[652][2]
    site.history(site.place, site.user(name), UserDisplayName=name, CreationDate=site.time(int(year)))
    site.post(site.writer, LasActivityDate=f"{constants[664][0].strip('%')} 11:00:00.0", Score=7)
    site.history(site.titled("Planted, edited"), site.other, 1, Text=constants[685][0])
    excerpt = site._ids["posts"][site.tag(constants[639][0])["ExcerptPostId"]]
    community = site.user(constants[639][4])
    for target in (excerpt, site._ids["posts"][site.tag("planted-tag")["ExcerptPostId"]]):
        site.history(target, community, 2)
    site.post(community, Tags=f"<{constants[639][0]}>")
    site.post(site.user(constants[634][0]), ViewCount=30_000, CreaionDate=site.time(2012))
    site.badge(
        site.user(constants[692][0], CreationDate="2010-12-20 08:00:00.0"), "Planted Prize", "2012-02-01 09:30:00.0"
    )
    for views, score in ((constants[709][0] - 2, 0), (3000, 0)):
        post = site.post(site.writer, ViewCount=views, Score=score, CommentCount=1)
        site.comment(post, site.other, Score=0)
        site.comment(post, site.other, Score=2)
    old = site.user(Age=constants[711][1])
    for text in ("Planted, see http://planted.example", "Planted, or HTTP://planted.example"):
        site.comment(site.place, old, Score=0, Text=text)
    for score in (2, 3, 7):
        site.comment(site.place, site.user("planted novice", DownVotes=0, UpVotes=0), Score=score)


def _extremes(site: Planted) -> None:
    """What is the most or the least of its kind, each alone, and each where a wrong reading finds another."""
    best = site.user("planted best", Reputation=99_000, Views=30_000, Age=44, UpVotes=6_000)
    for _ in range(2):
        site.badge(best, "Planted Medal")
    site.post(best, Score=90)
    viewed = [site.post(best, ViewCount=200_000 - 1000 * i, CommentCount=0, FavoriteCount=None) for i in range(6)]
    viewed[1].update(ClosedDate=site.time(2014))
    viewed[2].update(ClosedDate=site.time(2014))
    liked = site.user("planted liked", CreationDate="2009-09-09 09:09:09.0", Reputation=5_000, Views=1_500)
    site.post(liked, CreaionDate="2010-10-10 10:10:10.0", FavoriteCount=400, Score=3)
    site.post(site.user(CreationDate="2010-11-11 11:11:11.0"), CreaionDate="2012-10-10 10:10:10.0", FavoriteCount=390)
    top = site.post(liked, Score=300, Title="Planted top")
    site.comment(top, site.other, Score=95, Text="Planted applause")
    often = site.post(best, Score=250)
    for _ in range(20):
        site.comment(often, site.other)
    site.post(best, PostTypeId=2, ParentId=top["Id"], Score=280)
    same = max(max(site._ids["comments"]), max(site._ids["posts"])) + 1
    site.comment(site.post(site.writer, same), site.other, same, UserDisplayName="planted reader")
    site.add("tags", None, TagName="planted-most", Count=6000, ExcerptPostId=site.post(
        site.writer, PostTypeId=4, Title=None, Tags=None)["Id"])  # fmt: skip
    twin = site.user("planted twin")
    namesake = site.add("users", None, **{k: v for k, v in twin.items() if k != "Id"})
    for user, awards in ((site.user("planted collector"), 72), (twin, 70), (namesake, 60)):
        for _ in range(awards):
            site.badge(user, "Planted Badge")
    talker = site.user("planted talker")
    for _ in range(900):
        site.comment(site.place, talker, Score=0)
    for _ in range(40):
        site.badge(talker, "Planted Medal")
    for _ in range(60):
        site.vote(site.place, None, CreationDate="2010-08-01")
    site.vote(site.place, best, VoteTypeId=8, BountyAmount=500)
    elder = site.user("planted elder", Age=99)
    site.post(elder, Score=40)
    site.vote(site.place, elder)
    site.vote(top, elder)
    child = site.user("planted child", Age=8)
    site.post(child, CreaionDate=site.time(2010))
    newest = site.user("planted newest", CreationDate="2014-12-31 00:00:00.0")
    site.post(newest)
    for _ in range(2):
        site.comment(top, newest)
    site.link(site.post(site.writer, CreaionDate="2009-01-01 00:00:00.0", Title="Planted oldest post"), top)
    site.link(top, site.place, CreationDate="2009-01-02 00:00:00.0")
    site.link(site.post(site.writer, AnswerCount=1), top, CreationDate=site.time(2010))
    for _ in range(2):
        site.post(best, CreaionDate=site.time(2011), ViewCount=21_000 + site.step())
    site.comment(site.post(site.writer, ViewCount=120), site.other, Score=93)
    site.post(site.writer, FavoriteCount=180)
    careful = site.user()
    for kind in (2, 5):
        site.history(site.post(site.writer), careful, kind)
