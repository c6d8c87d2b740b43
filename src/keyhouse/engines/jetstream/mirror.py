"""The rows of a bucket as the stream tells them: keys in order, and of each row all but its value. Values are kept apart.

Messages come one by one, commits are to be seen whole. What has come of a commit waits until its last message has come, or
one behind it: the last may have been replaced already. And it waits for all that came after it, because a row of it that is
missing may have been replaced by one that waits. So what is shown is always a state in which the bucket was, at `position`.

A row that is gone leaves its entry, until the sweep prunes it: watches that take up again need to know, and a writer needs
the sequence that the server expects. `horizon` is the newest revision up to which such entries may have been pruned.

Entries lie in the order of their sequences: the newest last, so that the changes since a revision are the end of the list.
"""

import asyncio
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count, takewhile
from typing import Final, NamedTuple

from keyhouse.engine import Span
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.value_cache import ValueCache

_HEAP_SLACK: Final = 1_024


class _Rows:
    """Of one space. While they are loaded, keys are not in order yet."""

    __slots__ = ("entries", "keys")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []

    def put(self, key: str, entry: Entry, *, loading: bool) -> Entry | None:
        """The entry that it replaces."""
        before = self.entries.pop(key, None)
        self.entries[key] = entry
        if not loading:
            there = before is not None and not before.is_tombstone
            if entry.is_tombstone and there:
                del self.keys[bisect_left(self.keys, key)]
            elif not entry.is_tombstone and not there:
                insort(self.keys, key)
        return before

    def forget(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None and not entry.is_tombstone:
            del self.keys[bisect_left(self.keys, key)]

    def sort(self) -> None:
        self.keys = sorted(key for key, entry in self.entries.items() if not entry.is_tombstone)


class Expired(NamedTuple):
    row_key: RowKey
    sequence: int


class Mirror:
    def __init__(self, values: ValueCache) -> None:
        self.values = values
        self.position = 0
        self.delivered = 0
        self.horizon = 0
        self.horizon_sequence = 0
        self.pruned = 0
        self.announced_at = 0
        self.loading = True
        self._complete_at = 0  # when this has been delivered, everything that waits is whole
        self._pending: list[tuple[RowKey, Entry]] = []
        self._spaces: dict[str, _Rows] = {}
        self._tombstones: dict[RowKey, int] = {}  # in the order of their sequences
        self._expiries: list[tuple[int, int, RowKey]] = []
        self._expiring = 0
        self._next_change: asyncio.Event | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    # What the feed tells

    def deliver(self, row_key: RowKey, entry: Entry, value: bytes) -> None:
        """The next message, in the order of the stream."""
        if not entry.is_tombstone:
            self.values.put(entry.sequence, value)
        self._complete_at = max(self._complete_at, entry.revision)
        if self.loading:
            self._apply(row_key, entry)
        else:
            self._pending.append((row_key, entry))
        self.advance(entry.sequence)

    def advance(self, sequence: int) -> None:
        """Nothing up to there is still to come."""
        self.delivered = max(self.delivered, sequence)
        if self.delivered >= self._complete_at and not self.loading:
            for row_key, entry in self._pending:
                self._apply(row_key, entry)
            self._pending.clear()
            self.position = self.delivered
            self._notify()

    def finish_loading(self) -> bool:
        """Show what was loaded, if it is whole."""
        if self.loading and self.delivered >= self._complete_at:
            for rows in self._spaces.values():
                rows.sort()
            self.loading = False
            self.advance(self.delivered)
        return not self.loading

    def prune(self, sequence: int, horizon: int, pruned: int, at: int) -> None:
        """Watches can't begin before `horizon`; up to `pruned`, what is gone has left no entry. Announced `at` that time."""
        self.horizon, self.horizon_sequence, self.pruned, self.announced_at = (
            horizon,
            sequence,
            pruned,
            at,
        )
        for row_key, _ in self.tombstones(pruned):
            self._spaces[row_key.space].forget(row_key.key)
            del self._tombstones[row_key]

    def remove_purged(self, row_key: RowKey, sequence: int) -> None:
        """The server has no message of that row up to `sequence`: somebody has purged it."""
        rows = self._spaces.get(row_key.space)
        entry = rows.entries.get(row_key.key) if rows is not None else None
        if rows is not None and entry is not None and entry.sequence <= sequence:
            rows.forget(row_key.key)
            self._tombstones.pop(row_key, None)
            self._expiring -= entry.expires is not None
            self.values.drop(entry.sequence)
            self._notify()

    # What it shows

    def entry(self, space: str, key: str) -> Entry | None:
        rows = self._spaces.get(space)
        return rows.entries.get(key) if rows is not None else None

    def scan(self, space: str, span: Span, *, reverse: bool) -> Iterator[tuple[str, Entry]]:
        """The rows of the span that are not gone, expired ones among them. Not to be kept over an await."""
        rows = self._spaces.get(space)
        if rows is None:
            return
        start = bisect_left(rows.keys, span.start)
        stop = len(rows.keys) if span.stop is None else bisect_left(rows.keys, span.stop)
        for index in range(stop - 1, start - 1, -1) if reverse else range(start, stop):
            key = rows.keys[index]
            yield key, rows.entries[key]

    def changes_since(self, space: str, revision: int) -> list[tuple[str, Entry]]:
        """The newest entry of each key that has changed after `revision`, in order."""
        rows = self._spaces.get(space)
        changed: list[tuple[str, Entry]] = []
        if rows is not None:
            for key in reversed(rows.entries):
                entry = rows.entries[key]
                if entry.revision <= revision:
                    break
                changed.append((key, entry))
        changed.reverse()
        return changed

    def spaces(self, now: int) -> list[str]:
        """Those that hold a live row, in order."""
        return sorted(
            space
            for space, rows in self._spaces.items()
            if any(rows.entries[key].is_live(now) for key in rows.keys)
        )

    def take_expired(self, now: int, limit: int) -> list[Expired]:
        """Rows that have expired, and that are not in an earlier answer. Who does not remove one gives it `back`."""
        found: list[Expired] = []
        while self._expiries and len(found) < limit and self._expiries[0][0] <= now:
            _, sequence, row_key = heapq.heappop(self._expiries)
            entry = self.entry(*row_key)
            if entry is not None and entry.sequence == sequence:
                found.append(Expired(row_key, sequence))
        return found

    def requeue(self, expired: list[Expired]) -> None:
        for row_key, sequence in expired:
            entry = self.entry(*row_key)
            if entry is not None and entry.sequence == sequence and entry.expires is not None:
                heapq.heappush(self._expiries, (entry.expires, sequence, row_key))

    def tombstones(self, upto: int) -> list[tuple[RowKey, int]]:
        """What is gone since `upto` or longer, with its sequence."""
        return list(takewhile(lambda item: item[1] <= upto, self._tombstones.items()))

    # Waiting for it

    def next_change(self) -> asyncio.Event:
        """Set when something more is shown."""
        if self._next_change is None:
            self._next_change = asyncio.Event()
        return self._next_change

    def position_reached(self, sequence: int) -> "asyncio.Future[None]":
        """Done when everything up to there is shown, or when the mirror has come to its `end`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.position >= sequence and not self.loading:
            future.set_result(None)
        else:
            heapq.heappush(self._waiters, (sequence, next(self._order), future))
        return future

    def close(self) -> None:
        """It is not fed any more: whoever waits for it is woken, and looks for another."""
        for _, _, future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()
        self._notify()

    def _apply(self, row_key: RowKey, entry: Entry) -> None:
        rows = self._spaces.get(row_key.space)
        if rows is None:
            rows = self._spaces[row_key.space] = _Rows()
        before = rows.put(row_key.key, entry, loading=self.loading)
        self._tombstones.pop(row_key, None)
        if entry.is_tombstone:
            self._tombstones[row_key] = entry.sequence
        if before is not None:
            self.values.drop(before.sequence)
            self._expiring -= before.expires is not None
        if entry.expires is not None:
            self._expiring += 1
            heapq.heappush(self._expiries, (entry.expires, entry.sequence, row_key))
            if len(self._expiries) > 2 * self._expiring + _HEAP_SLACK:
                self._compact()

    def _compact(self) -> None:
        """Rows that were written again have left their older expiries."""
        self._expiries = [
            (expires, sequence, row_key)
            for expires, sequence, row_key in self._expiries
            if (entry := self.entry(*row_key)) is not None and entry.sequence == sequence
        ]
        heapq.heapify(self._expiries)

    def _notify(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.position:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._next_change is not None:
            self._next_change.set()
            self._next_change = None
