"""The rows of one space, sorted by key, without their values.

Theory of operation
-------------------
A bucket may have millions of rows, and every process mirrors all of them, so a row has no object of
its own. It is one element in each of the parallel columns of a block, about 20 bytes beside its
key. An `Entry` is made when a row is read.

A space is a list of blocks in key order; `_firsts` has the least key that belongs to each block,
and the first block begins with the empty key. A lookup bisects that list, then the block. A write
moves at most `BLOCK_ROWS` elements; a block that has more is split in half, an empty one is
removed.

Deleted rows leave the blocks, so that a scan does not pass them. Their tombstones are few, because
the sweep prunes them, and are kept beside the blocks in sequence order.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from keyhouse.engine import Span
from keyhouse.engines.jetstream.message import Entry

BLOCK_ROWS: Final = 512

_NEVER: Final = 2**63 - 1
"""Expiry of a row that does not expire."""


class SpaceRows:
    __slots__ = ("_blocks", "_firsts", "tombstones")

    def __init__(self) -> None:
        self._firsts = [""]
        self._blocks = [_Block()]
        self.tombstones: dict[str, Entry] = {}  # in sequence order

    def __bool__(self) -> bool:
        return bool(self.tombstones or self._blocks[0].keys)

    def get(self, key: str) -> Entry | None:
        block = self._blocks[bisect_right(self._firsts, key) - 1]
        index = bisect_left(block.keys, key)
        if index < len(block.keys) and block.keys[index] == key:
            return block.entry(index)
        return self.tombstones.get(key)

    def put(self, key: str, entry: Entry) -> int:
        """Store an entry. Returns the sequence of the row that it replaces; 0 if there was none."""
        if entry.is_tombstone:
            before = self.remove(key)
            self.tombstones[key] = entry
            return before
        at = bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        keys = block.keys
        index = bisect_left(keys, key)
        if index < len(keys) and keys[index] == key:
            before = block.sequences[index]
            block.replace(index, entry)
            return before
        if self.tombstones:
            self.tombstones.pop(key, None)
        block.insert(index, key, entry)
        if len(keys) > BLOCK_ROWS:
            self._blocks.insert(at + 1, split := block.split())
            self._firsts.insert(at + 1, split.keys[0])
        return 0

    def remove(self, key: str) -> int:
        """Remove a row or tombstone. Returns the sequence of the row; 0 if there was none."""
        self.tombstones.pop(key, None)
        at = bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        index = bisect_left(block.keys, key)
        if index == len(block.keys) or block.keys[index] != key:
            return 0
        sequence = block.sequences[index]
        block.remove(index)
        if not block.keys and len(self._blocks) > 1:
            del self._blocks[at], self._firsts[at]
            self._firsts[0] = ""
        return sequence

    def scan(self, span: Span, *, reverse: bool) -> Iterator[tuple[str, Entry]]:
        """Yield the rows of the span. Do not hold the iterator over an await."""
        first = bisect_right(self._firsts, span.start) - 1
        last = len(self._blocks) if span.stop is None else bisect_left(self._firsts, span.stop)
        blocks = self._blocks[first:last]
        for block in reversed(blocks) if reverse else blocks:
            keys = block.keys
            start = bisect_left(keys, span.start)
            stop = len(keys) if span.stop is None else bisect_left(keys, span.stop)
            for index in range(stop - 1, start - 1, -1) if reverse else range(start, stop):
                yield keys[index], block.entry(index)

    def newer(self, sequence: int) -> list[tuple[str, Entry]]:
        """Return the entries of higher sequences, in their order."""
        newer = [item for item in self.tombstones.items() if item[1].sequence > sequence]
        for block in self._blocks:
            if max(block.sequences, default=0) > sequence:
                newer += [
                    (block.keys[index], block.entry(index))
                    for index, each in enumerate(block.sequences)
                    if each > sequence
                ]
        return sorted(newer, key=_sequence_of)

    def sequences(self, upto: int) -> Iterator[int]:
        """Yield the sequences of the rows up to a sequence."""
        for block in self._blocks:
            yield from (sequence for sequence in block.sequences if sequence <= upto)

    def old_tombstones(self, sequence: int) -> list[tuple[str, Entry]]:
        """Return the tombstones up to a sequence."""
        return list(takewhile(lambda item: item[1].sequence <= sequence, self.tombstones.items()))

    def expired(self, now: int, limit: int) -> list[tuple[str, int]]:
        """Return up to `limit` keys of expired rows, each with its sequence."""
        expired: list[tuple[str, int]] = []
        for block in self._blocks:
            if block.soonest <= now:
                expired += block.expired(now, limit - len(expired))
                if len(expired) == limit:
                    break
        return expired

    def has_live(self, now: int) -> bool:
        """Return whether the space has a row that has not expired."""
        return any(
            block.keys if block.expires is None else max(block.expires, default=0) > now
            for block in self._blocks
        )


class _Block:
    """Parallel columns, one element per row. `following`: how many messages of the row's commit
    follow its own. `expires` is None if no row of the block expires, and `soonest` is at most the
    least of them."""

    __slots__ = ("expires", "following", "keys", "sequences", "soonest")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.sequences = array("Q")
        self.following = array("H")
        self.expires: array[int] | None = None
        self.soonest = _NEVER

    def entry(self, index: int) -> Entry:
        sequence = self.sequences[index]
        expires = _NEVER if self.expires is None else self.expires[index]
        return Entry(
            sequence,
            sequence + self.following[index],
            None if expires == _NEVER else expires,
        )

    def insert(self, index: int, key: str, entry: Entry) -> None:
        self.keys.insert(index, key)
        self.sequences.insert(index, entry.sequence)
        self.following.insert(index, entry.revision - entry.sequence)
        if self.expires is not None:
            self.expires.insert(index, _NEVER)
        if entry.expires is not None:
            self._expire(index, entry.expires)

    def replace(self, index: int, entry: Entry) -> None:
        self.sequences[index] = entry.sequence
        self.following[index] = entry.revision - entry.sequence
        if entry.expires is not None:
            self._expire(index, entry.expires)
        elif self.expires is not None:
            self.expires[index] = _NEVER

    def remove(self, index: int) -> None:
        del self.keys[index], self.sequences[index], self.following[index]
        if self.expires is not None:
            del self.expires[index]

    def split(self) -> "_Block":
        """Move the second half of the rows to a new block."""
        half, block = len(self.keys) // 2, _Block()
        block.keys, self.keys = self.keys[half:], self.keys[:half]
        block.sequences, self.sequences = self.sequences[half:], self.sequences[:half]
        block.following, self.following = self.following[half:], self.following[:half]
        if self.expires is not None:
            block.expires, self.expires = self.expires[half:], self.expires[:half]
            block.soonest = self.soonest
        return block

    def expired(self, now: int, limit: int) -> list[tuple[str, int]]:
        assert self.expires is not None
        self.soonest = min(self.expires, default=_NEVER)
        due = [index for index, expires in enumerate(self.expires) if expires <= now]
        return [(self.keys[index], self.sequences[index]) for index in due[:limit]]

    def _expire(self, index: int, expires: int) -> None:
        if self.expires is None:
            self.expires = array("q", [_NEVER]) * len(self.keys)
        self.expires[index] = expires
        self.soonest = min(self.soonest, expires)


def _sequence_of(item: tuple[str, Entry]) -> int:
    return item[1].sequence
