"""Which returned column stands for which reference column: a search that is exact wherever it ends, and always ends.

The reference's columns get a partner one after the other, the most promising first. What the tables have in common in
the columns paired so far bounds what any completion can reach, and so prunes. Rows without a partner are dropped, at
the start those whose cells, in whatever order, are no row's of the other table. Equal rows are carried once, with their
number, and of equal columns in one table only one is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice, permutations
from math import perm
from operator import itemgetter, mul
from typing import NamedTuple

BUDGET = 1_500_000  # rows looked at in one search: about a second
FEW = 6  # so many choices of columns are simply tried
FIRST = 64  # rows by which partners are guessed

Rows = Counter[tuple]  # distinct rows with their numbers
Bounds = list[list[int]]  # rows in common in each of their distinct columns and ours, taken alone


def best_pairing(ours: Rows, theirs: Rows, known: int) -> tuple[int, bool]:
    """(most rows in common under one pairing of the columns, whether that is proved) for two tables of equal width.

    known: what some pairing is known to reach; the answer where none is better, or none better was found in time.
    """
    if perm(width := len(next(iter(ours), ()))) <= FEW:
        return _best_of_few(ours, theirs, width, known), True
    known = max(known, _likely(ours, theirs))
    if known == min(ours.total(), theirs.total()):
        return known, True
    our_bags, their_bags = list(map(_bag, ours)), list(map(_bag, theirs))
    shared = {bag: number for number, bag in enumerate(set(our_bags).intersection(their_bags))}
    search = _Search(_Table.of(ours, our_bags, shared), _Table.of(theirs, their_bags, shared))
    most = min(search.ours.size, search.theirs.size)
    if known >= most:
        return known, True
    if most == ours.total() == theirs.total():
        if search.run(search.equal_contents(), most - 1) == most:
            return most, True
        if search.ended and known == most - 1:  # no pairing is perfect
            return known, True
    return search.run(search.shared_contents(), known), search.ended


def perfect_pairing(ours: Rows, theirs: Rows) -> tuple[bool, bool]:
    """(whether some choice of our columns gives exactly their rows, whether that is proved), for equally many rows."""
    width, size = len(next(iter(theirs))), theirs.total()
    if perm(len(next(iter(ours))), width) <= FEW:
        return _best_of_few(ours, theirs, width, size - 1) == size, True
    if _likely(ours, theirs) == size:
        return True, True
    search = _Search(*(_Table.of(rows, [0] * len(rows), {0: 0}) for rows in (ours, theirs)))
    found = search.run(search.equal_contents(), size - 1) == size
    return found, found or search.ended


def in_common(a: Counter, b: Counter) -> int:
    """Size of the intersection of two multisets."""
    if len(a) == a.total() and len(b) == b.total():
        return len(a.keys() & b.keys())  # sets: many times as fast
    if len(a) > len(b):
        a, b = b, a
    return sum(min(number, b[key]) for key, number in a.items() if key in b)


def _best_of_few(ours: Rows, theirs: Rows, width: int, known: int) -> int:
    """The most rows in common under any choice of our columns, or `known` if that is no less: the likeliest come first,
    and the last are mostly not needed. A choice can't reach more than there are cells of theirs in our columns."""
    columns = _columns(ours, len(next(iter(ours))))
    weights, their_weights = _weights(ours), _weights(theirs)
    contents = list(map(set, columns))
    within = [
        [_sum(map(cells.__contains__, column), their_weights) for cells in contents]
        for column in _columns(theirs, width)
    ]
    choices = []
    for choice in permutations(range(len(columns)), width):
        choices.append((min((within[j][i] for j, i in enumerate(choice)), default=0), choice))
    for most, choice in sorted(choices, key=lambda pair: -pair[0]):
        if most <= known:
            break
        rows = _count(zip(*(columns[i] for i in choice), strict=True), weights)
        known = max(known, in_common(rows, theirs))
    return known


def _likely(ours: Rows, theirs: Rows) -> int:
    """Rows in common if each of their columns takes the one of ours that has most cells of its first rows: mostly the
    answer, and found without what the search needs of each row."""
    free = dict(enumerate(_columns(ours, len(next(iter(ours))))))
    contents = {i: set(column) for i, column in free.items()}
    partners = []
    for cells in zip(*islice(theirs, FIRST), strict=True):
        i = max(free, key=lambda i: sum(map(contents[i].__contains__, cells)))
        partners.append(free.pop(i))
    return in_common(_count(zip(*partners, strict=True), _weights(ours)), theirs)


def _columns(rows: Rows, width: int) -> list[tuple]:
    return [tuple(map(itemgetter(i), rows)) for i in range(width)]  # zip(*rows) would take a million arguments


def _weights(rows: Rows) -> list[int] | None:
    return list(rows.values()) if rows.total() > len(rows) else None


def _sum(numbers: Iterable[int], weights: Sequence[int] | None) -> int:
    return sum(numbers) if weights is None else sum(map(mul, numbers, weights))


def _bag(row: tuple) -> Hashable:
    """What stays the same when a row's cells change places. Values with one hash do no harm: it is used as a bound."""
    return tuple(sorted(map(hash, row)))


class _Live(NamedTuple):
    """The rows of one table that may still have a partner: their positions, and a number for their cells paired so far."""

    rows: Sequence[int]
    paired: Sequence[int]

    def keys(self, column: Sequence[Hashable]) -> list[tuple]:
        cells = column if len(column) == len(self.rows) else [column[row] for row in self.rows]
        return list(zip(self.paired, cells, strict=True))

    def narrowed(self, keys: list[tuple], numbers: dict[tuple, int]) -> _Live:
        kept = [(row, numbers[key]) for row, key in zip(self.rows, keys, strict=True) if key in numbers]
        return _Live([row for row, _ in kept], [number for _, number in kept])


class _Table(NamedTuple):
    columns: list[tuple]  # the distinct ones, over the distinct rows that may have a partner
    copies: list[int]  # how often each is there
    weights: list[int] | None  # number of each row; None if all are single
    size: int  # their sum
    live: _Live
    contents: list[Counter]  # of each column: its cells, together with what the row as a whole is

    @classmethod
    def of(cls, rows: Rows, bags: Sequence[Hashable], shared: dict) -> _Table:
        kept = [
            (row, weight, shared[bag]) for (row, weight), bag in zip(rows.items(), bags, strict=True) if bag in shared
        ]
        copies = Counter(zip(*(row for row, _, _ in kept), strict=True))
        size = sum(weight for _, weight, _ in kept)
        weights = [weight for _, weight, _ in kept] if size > len(kept) else None
        live = _Live(range(len(kept)), [bag for _, _, bag in kept])
        contents = [_count(live.keys(column), weights) for column in copies]
        return cls(list(copies), list(copies.values()), weights, size, live, contents)

    def counted(self, keys: list[tuple], live: _Live) -> Counter:
        return _count(keys, self.weights and [self.weights[row] for row in live.rows])


class _Search:
    def __init__(self, ours: _Table, theirs: _Table):
        self.ours, self.theirs = ours, theirs
        self.ended = True  # whether the last run looked at all that could have been better

    def equal_contents(self) -> Bounds:
        """Only columns with the same contents can be partners if all rows are to be in common."""
        kinds: dict[frozenset, int] = {}
        ours, theirs = (
            [kinds.setdefault(frozenset(contents.items()), len(kinds)) for contents in table.contents]
            for table in (self.ours, self.theirs)
        )
        return [[self.theirs.size if a == b else 0 for a in ours] for b in theirs]

    def shared_contents(self) -> Bounds | None:
        """None if even that costs too much."""
        pairs = len(self.ours.columns) * len(self.theirs.columns)
        if pairs * min(len(self.ours.live.rows), len(self.theirs.live.rows)) > 8 * BUDGET:
            return None
        return [[in_common(a, b) for a in self.ours.contents] for b in self.theirs.contents]

    def run(self, bounds: Bounds | None, floor: int) -> int:
        """The most rows in common if that is more than `floor`, else `floor`."""
        self.found, self.spent, self.ended = floor, 0, bounds is not None
        if bounds is None:
            return floor
        self.bounds = bounds
        # columns with the fewest possible partners first; copies of one column stand together
        theirs = range(len(self.theirs.columns))
        hardest = sorted(theirs, key=lambda j: (sum(bound > floor for bound in bounds[j]), max(bounds[j]), j))
        self.order = [j for j in hardest for _ in range(self.theirs.copies[j])]
        self.free = list(self.ours.copies)
        most = min(max(bounds[j]) for j in self.order)
        self.found = max(floor, self._first_guess()) if most > floor else floor
        if self.found < most:
            try:
                self._extend([], most, self.ours.live, self.theirs.live)
            except RecursionError:  # a thousand columns
                self.ended = False
        return self.found

    def _first_guess(self) -> int:
        """Rows in common if every column in turn takes the best partner that is left: mostly the answer already."""
        free, partners = self.free[:], []
        for j in self.order:
            i = max((i for i, copies in enumerate(free) if copies), key=self.bounds[j].__getitem__)
            free[i] -= 1
            partners.append(self.ours.columns[i])
        ours = _count(zip(*partners, strict=True), self.ours.weights)
        theirs = _count(zip(*(self.theirs.columns[j] for j in self.order), strict=True), self.theirs.weights)
        return in_common(ours, theirs)

    def _extend(self, pairs: list[tuple[int, int]], common: int, ours: _Live, theirs: _Live) -> None:
        """Pair the next column; `pairs` are (their column, ours), `common` the rows that the tables share in them."""
        if len(pairs) == len(self.order):
            self.found = common
            return
        j = self.order[len(pairs)]
        first = pairs[-1][1] if pairs and pairs[-1][0] == j else 0  # copies take partners in ascending order
        tried = -1
        keys: tuple[list[tuple], list[tuple]] = [], []
        # (- rows in common at most, whether that is an estimate, our column): of equals, those that are known come first
        options = [
            (-min(common, self.bounds[j][i]), bool(pairs) and (j, i) not in pairs, i)
            for i in range(first, len(self.free))
            if self.free[i]
        ]
        heapify(options)
        while options and -options[0][0] > self.found:
            reached, estimated, i = heappop(options)
            if self.spent > BUDGET:
                self.ended = False
                return
            if estimated:
                tried, keys = i, (ours.keys(self.ours.columns[i]), theirs.keys(self.theirs.columns[j]))
                reached = -in_common(self.ours.counted(keys[0], ours), self.theirs.counted(keys[1], theirs))
                self.spent += len(keys[0]) + len(keys[1])
                heappush(options, (reached, False, i))
                continue
            narrowed = ours, theirs
            if len(pairs) + 1 < len(self.order) and (j, i) not in pairs:
                if tried != i:  # only the last one's keys are kept, those of all would fill the memory
                    keys = ours.keys(self.ours.columns[i]), theirs.keys(self.theirs.columns[j])
                numbers = {key: number for number, key in enumerate(set(keys[0]).intersection(keys[1]))}
                narrowed = ours.narrowed(keys[0], numbers), theirs.narrowed(keys[1], numbers)
            self.free[i] -= 1
            self._extend([*pairs, (j, i)], -reached, *narrowed)
            self.free[i] += 1


def _count(keys: Iterable[Hashable], weights: Sequence[int] | None) -> Counter:
    if weights is None:
        return Counter(keys)
    counts: Counter = Counter()
    for key, weight in zip(keys, weights, strict=True):
        counts[key] += weight
    return counts
