"""A made-up hospital whose graph holds what nobody planned for: odd names, odd values, odd shapes. For tests of questions about any schema."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import neo4j
from neo4j.spatial import WGS84Point
from neo4j.time import Duration

SYLLABLES = ["ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu"]
ODD_NAMES = [
    "O'Hara",
    'Say "Ah"',
    "two\nlines",
    "back\\slash",
    "Zoë",
    "北京",
    "",
    " padded ",
    "{count}",
    "A AND B",
    "None",
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


def fill(uri: str, seed: int = 0) -> None:
    """Write the hospital into the empty database behind `uri`, the same for each seed."""
    with neo4j.GraphDatabase.driver(uri, notifications_min_severity="OFF") as driver:
        for labels, rows in nodes(random.Random(f"nodes {seed}")).items():
            driver.execute_query(f"UNWIND $rows AS row CREATE (n{labels}) SET n = row", rows=rows)
        for start, kind, end, rows in relationships(random.Random(f"relationships {seed}")):
            driver.execute_query(
                f"UNWIND $rows AS row MATCH (a{start or ':!%'} {{n: row[0]}}), (b{end} {{n: row[1]}}) "
                f"CREATE (a)-[r:{kind}]->(b) SET r = row[2]",
                rows=rows,
            )
        driver.execute_query("MATCH (x) REMOVE x.n")


def nodes(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Properties of nodes by their labels as a query writes them; `n` numbers the nodes of a label, from 0."""

    def word(n: int) -> str:
        return "".join(rng.choice(SYLLABLES) for _ in range(n)).capitalize()

    def person(n: int) -> str:
        return ODD_NAMES[n] if n < len(ODD_NAMES) else f"{word(2)} {word(3)}"

    made: dict[str, list[dict[str, Any]]] = {
        ":Staff:Doctor": [
            {"full name": person(i), "salary": rng.randint(30, 99) * 100, "on call": i % 3 == 0} for i in range(60)
        ],
        ":Staff:Nurse": [{"full name": person(i % 50), "salary": rng.randint(20, 60) * 100} for i in range(60)],
        ":Staff:Doctor:Nurse": [{"full name": f"{word(2)} {word(2)} {i}", "salary": 5000 + i} for i in range(15)],
        ":`Ward Unit`": [
            {"name": f"{word(2)} Ward", "beds": rng.randint(4, 40), "weekday": WEEKDAYS[i % 5], "pm10": i, "pm25": 100 + i, "in, out": i}
            for i in range(24)
        ],
        ":Patient": [
            {
                "patientId": i - 40,
                "weight": rng.choice([61.5, 70.25, 88.0, 1e300, math.inf, math.nan]),
                "code": i if i % 2 else f"P{i}",
                "allergies": ["dust", "nuts"][: i % 3],
                "home": WGS84Point((float(i % 90), 50.0)),
                "stay": Duration(days=i % 9),
                "admitted": datetime.datetime(2020, 1, 1 + i % 28, tzinfo=datetime.UTC),
                "notes": "calm night " * (400_000 if i == 7 else i % 40),
                "serial": 2**63 - 1 - i % 70,
            }
            for i in range(300)
        ],
        ":`O``Brien``s Tool`": [{"name": f"Tool {word(2)}", "uses": i} for i in range(12)],
        ":`Terms AND Conditions`": [{"last, first": word(3), "pages": i} for i in range(12)],
        ":`Gerät`": [{"bezeichnung": f"G {word(3)}", "preis": 10 * i + 5} for i in range(40)],
        ":`药`": [{"名": word(3), "量": i} for i in range(40)],
        ":FilmStar": [{"name": word(3), "fee": i} for i in range(30)],
        ":`Film Star`": [{"name": word(3), "fee": i} for i in range(30)],
        ":Clinic": [{"name": f"{word(3)} Clinic", "nick": ""} for i in range(30)],
        "": [{"name": word(2)} for i in range(10)],
        ":Empty": [{} for i in range(5)],
    }  # fmt: skip
    for i, clinic in enumerate(made[":Clinic"]):
        clinic["founded"] = neo4j.time.Date(1 + 60 * i, 1 + i % 12, 1 + i % 28)
    for rows in made.values():
        for n, row in enumerate(rows):
            row["n"] = n
    return made


def relationships(rng: random.Random) -> list[tuple[str, str, str, list[list[Any]]]]:
    """(start, type, end, [number of the start, number of the end, properties]): many twice, and some from a node to itself."""

    def drawn(many: int, starts: int, ends: int, **about: Any) -> list[list[Any]]:
        return [[rng.randrange(starts), rng.randrange(ends), {k: v() for k, v in about.items()}] for _ in range(many)]

    loops = [[i, i, {}] for i in range(0, 60, 4)]
    twice = [row for row in drawn(40, 60, 24) for _ in range(2)]
    return [
        (":Patient", "`TREATED BY`", ":Doctor", drawn(700, 300, 60, hours=lambda: rng.randint(1, 40))),
        (":Patient", "`LIES-IN`", ":`Ward Unit`", [[i, i % 24, {}] for i in range(280)]),
        (":Staff", "KNOWS", ":Staff", [*drawn(260, 60, 60), *loops]),
        (":Staff", "WORKS_IN", ":`Ward Unit`", [*drawn(120, 60, 24, since=lambda: rng.randint(1990, 2020)), *twice]),
        (":`Ward Unit`", "`has|or (not)`", ":`O``Brien``s Tool`", drawn(40, 24, 12)),
        (":`Ward Unit`", "`HAS {count}`", ":`Terms AND Conditions`", drawn(40, 24, 12)),
        (":`Ward Unit`", "BESITZT", ":`Gerät`", drawn(120, 24, 40)),
        (":Doctor", "`开`", ":`药`", drawn(200, 60, 40, 量=lambda: rng.randint(1, 9))),
        (":Clinic", "OWNS", ":`Ward Unit`", [[i % 30, i, {}] for i in range(24)]),
        (":Clinic", "REFERS_TO", ":Clinic", drawn(60, 30, 30)),
        (":FilmStar", "VISITED", ":Clinic", drawn(80, 30, 30)),
        (":`Film Star`", "VISITED", ":Clinic", drawn(80, 30, 30)),
        ("", "VISITED", ":Clinic", drawn(10, 10, 30)),
    ]
