"""How long a verdict takes as results grow, and what column pairing and value rules cost over simpler comparisons.

    python benchmarks/scoring.py                  # up to 1,000,000 rows, 4 GB of memory, some minutes
    python benchmarks/scoring.py --rows 10000 100000

Tables of four columns (a key, a name, a float, a date-time), reference and result in different order. `columns moved`: the
result's columns are permuted, too; `one row wrong`: as well, and one key is another. Compared, on the same rows with the
columns in place, which these can't find: `counter`, equality of multisets of rows (Spider's rule, without its columns),
and `pandas`, both frames sorted by all columns and compared with `DataFrame.equals`. Then the tables that could blow up.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.reward import score

Table = list[list[Any]]
ALIKE = 25_000  # rows of the tables that could blow up


def seconds(run: Callable[[], Any], rounds: int) -> float:
    """CPU time of the fastest round."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def made(rows: int, draw: random.Random) -> tuple[Table, Table]:
    """(result, reference): the same rows in two orders."""
    want = [[i, f"name {i % 997}", draw.random(), f"2010-07-{1 + i % 28:02d} 19:12:{i % 60:02d}"] for i in range(rows)]
    return draw.sample(want, rows), want


def counter(got: Table, want: Table) -> bool:
    return Counter(map(tuple, got)) == Counter(map(tuple, want))


def frames(got: Table, want: Table) -> bool:
    first, second = (
        frame.sort_values(list(frame.columns), ignore_index=True) for frame in map(pd.DataFrame, (got, want))
    )
    return first.equals(second)


def curve(rows: int, rounds: int) -> dict[str, Any]:
    """Nanoseconds per row of each way, and how many times as long as the peers ours takes."""
    got, want = made(rows, random.Random(rows))
    moved = [row[::-1] for row in got]
    wrong = [[*moved[0][:-1], -1], *moved[1:]]
    assert counter(got, want) and frames(got, want) and score(moved, want).strict and not score(wrong, want).strict
    taken = {
        "in place": seconds(lambda: score(got, want), rounds),
        "columns moved": seconds(lambda: score(moved, want), rounds),
        "one row wrong": seconds(lambda: score(wrong, want), rounds),
        "counter": seconds(lambda: counter(got, want), rounds),
        "pandas": seconds(lambda: frames(got, want), rounds),
    }
    return {
        "rows": rows,
        "ns_per_row": {way: round(1e9 * s / rows) for way, s in taken.items()},
        "in place / counter": round(taken["in place"] / taken["counter"], 1),
        "in place / pandas": round(taken["in place"] / taken["pandas"], 1),
    }


def alike() -> dict[str, tuple[Table, Table]]:
    """Tables whose columns can be paired in 20! ways that no look at the columns alone rules out."""
    draw = random.Random(0)
    same = [[i] * 20 for i in range(ALIKE)]
    bits = [[draw.random() < 0.5 for _ in range(20)] for _ in range(ALIKE)]
    other = [[draw.random() < 0.5 for _ in range(20)] for _ in range(ALIKE)]
    mixed = [list(row) for row in zip(*(draw.sample(range(ALIKE), ALIKE) for _ in range(20)), strict=True)]
    order = draw.sample(range(20), 20)
    return {
        "20 equal columns": (same[::-1], same),
        "20 equal columns, one cell wrong": ([[-1, *same[0][1:]], *same[1:]], same),
        "20 columns of the same values": ([[row[i] for i in order] for row in mixed[::-1]], mixed),
        "the same, every tenth row wrong": (
            [[-1 if n % 10 == 0 and i == 0 else row[i] for i in order] for n, row in enumerate(mixed)],
            mixed,
        ),
        "20 columns of bits, moved": ([[row[i] for i in order] for row in bits[::-1]], bits),
        "20 columns of bits, unrelated": (other, bits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options = parser.parse_args()
    for rows in options.rows:
        print(json.dumps(curve(rows, 3 if rows <= 100_000 else 1)), flush=True)
    for name, (got, want) in alike().items():
        taken = seconds(lambda got=got, want=want: score(got, want), 1)
        found = score(got, want)
        verdict = {"strict": found.strict, "f1": round(found.f1, 5), "flagged": found.flagged}
        print(json.dumps({"columns alike": name, "rows": ALIKE, "seconds": round(taken, 2), **verdict}), flush=True)


if __name__ == "__main__":
    main()
