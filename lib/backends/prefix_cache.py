"""Keys and values of past tokens in blocks, shared by all sequences that begin alike.

An agent sends its whole conversation every turn, and a group's rollouts open with the same prompt: what was computed
once is found again by the tokens themselves. Blocks are shared by count of their users and never changed once shared;
a sequence that goes on from the middle of a block gets a copy of that block.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

import numpy as np

BLOCK = 16  # tokens; a multiple of 8 (kernels.py), and small, since what follows a block's last token is read in vain
PRIME = 2**61 - 1


def prefix_hashes(start: int, tokens: Tokens[int]) -> list[int]:
    """A rolling hash of each prefix: entry n is of the first n tokens; `start` keeps different weights apart."""
    value, hashes = start % PRIME, [start % PRIME]
    for token in tokens:
        value = (value * 1_000_003 + token + 1) % PRIME
        hashes.append(value)
    return hashes


@dataclass(eq=False)
class Entry:
    """A sequence whose keys and values lie in `blocks`, as far as `filled` tokens."""

    owner: int  # whose weights computed them
    tokens: list[int]
    blocks: list[int]
    filled: int = 0
    indexed: list[int] = field(default_factory=list)  # its hashes in the index


class BlockPool:
    """The memory of one model shape: `tables` hold one row group per block, block 0 is scratch.

    `shapes`: for each table, the shape of one block. `limit`: bytes for all blocks together, of running and of
    finished sequences; the finished ones used longest ago make room. `least`: blocks that one sequence may need.
    """

    def __init__(self, shapes: list[tuple[int, ...]], limit: int, least: int):
        self.block_bytes = sum(4 * math.prod(s) for s in shapes)
        self.blocks = max(limit // self.block_bytes, least + 2)  # scratch, and one that is copied
        # zeros, not garbage: what is masked counts 0 times itself, and 0 times NaN isn't 0
        self.tables = [np.zeros((self.blocks, *s), np.float32) for s in shapes]
        self.free = list(range(self.blocks - 1, 0, -1))
        self.users = [0] * self.blocks
        self.index: dict[int, Entry] = {}
        self.finished: OrderedDict[int, Entry] = OrderedDict()  # by id, used longest ago first

    def find(self, owner: int, tokens: list[int], hashes: list[int], most: int) -> tuple[Entry | None, int]:
        """The entry that shares the longest prefix of at most `most` tokens, and how many tokens that is."""
        for n in range(most, 0, -1):
            entry = self.index.get(hashes[n])
            if entry is not None and entry.owner == owner and entry.tokens[:n] == tokens[:n]:
                return entry, n
        return None, 0

    def start(
        self, owner: int, tokens: list[int], hashes: list[int], capacity: int, source: Entry | None, shared: int
    ) -> Entry | None:
        """A running sequence with room for `capacity` tokens, `shared` of them taken over; None while memory is short."""
        whole, rest = divmod(shared, BLOCK)
        kept = source.blocks[:whole] if source is not None else []
        original = source.blocks[whole] if source is not None and rest else None
        wanted = -(-capacity // BLOCK) - whole
        for block in [*kept, *([original] if original is not None else [])]:
            self.users[block] += 1  # so that making room can't take them away
        if not self._make_room(wanted):
            self._release([*kept, *([original] if original is not None else [])])
            return None
        own = [self.free.pop() for _ in range(wanted)]
        for block in own:
            self.users[block] = 1
        if original is not None:
            for table in self.tables:
                table[own[0]] = table[original]
            self._release([original])
        if source is not None and id(source) in self.finished:
            self.finished.move_to_end(id(source))
        entry = Entry(owner, list(tokens), kept + own, filled=shared)
        self._add_to_index(entry, hashes, shared)
        return entry

    def finish(self, entry: Entry, tokens: list[int], hashes: list[int]) -> None:
        """The sequence ended with these tokens' keys and values in place; keep them for a conversation that goes on."""
        known, entry.tokens, entry.filled = len(entry.tokens), tokens, len(tokens)
        used = -(-len(tokens) // BLOCK)
        self._release(entry.blocks[used:])
        entry.blocks = entry.blocks[:used]
        self._add_to_index(entry, hashes, min(known, len(tokens)))
        self.finished[id(entry)] = entry

    def drop(self, entry: Entry) -> None:
        """Forget a sequence and give its blocks back."""
        self.finished.pop(id(entry), None)
        for value in entry.indexed:
            del self.index[value]
        entry.indexed = []
        self._release(entry.blocks)

    def _add_to_index(self, entry: Entry, hashes: list[int], start: int) -> None:
        for n in range(start + 1, len(entry.tokens) + 1):
            if hashes[n] not in self.index:
                self.index[hashes[n]] = entry
                entry.indexed.append(hashes[n])

    def _make_room(self, wanted: int) -> bool:
        while len(self.free) < wanted and self.finished:
            self.drop(next(iter(self.finished.values())))
        return len(self.free) >= wanted

    def _release(self, blocks: list[int]) -> None:
        for block in blocks:
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free.append(block)
