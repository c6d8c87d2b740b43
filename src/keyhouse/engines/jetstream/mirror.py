"""An in-memory index of one bucket, in key order: every row without its value.

Theory of operation
-------------------
The feed delivers the messages of the bucket's stream one by one, in stream order. Readers must see
whole commits, so the mirror publishes only states in which every delivered commit is complete.
`position` is the sequence of the published state; `delivered` is the last sequence received.

A message carries the revision of its commit: the sequence of the commit's last message. Until that
sequence has been delivered or passed, the message is *pending*. The last message itself may never
arrive, because a later commit replaced it (a stream keeps one message per subject). Pending
messages are therefore applied all at once or not at all: a row that is missing from an earlier
commit may be among the pending messages of a later one.

| state                 | a message is            | readers see        | ends when                |
|-----------------------|-------------------------|--------------------|--------------------------|
| LOADING               | applied, keys unsorted  | nothing: they wait | all commits complete (1) |
| SERVING, none pending | applied if it completes | all delivered      | a commit arrives in part |
| SERVING, some pending | appended to the pending | up to `position`   | all commits complete (2) |
| closed                | never delivered         | the last state     | never (3)                |

1. `finish_loading` sorts the keys and publishes the state.
2. `delivered` has reached `_complete_at`: the pending messages are applied.
3. `close` releases all waiters; they continue on the mirror that replaces this one.

Deleted rows leave tombstones until the sweep prunes them: a resumed watch must report the delete,
and a writer needs the sequence that the server expects at the subject. `horizon` is the retention
floor: the newest revision up to which tombstones may have been pruned.

An erased space is dropped as a whole (`erase`): the rows of other spaces are not touched.

The entries of a space are kept in sequence order, newest last, so the changes since a revision are
the tail of the dict. Values live in a bounded cache beside the index (`value_cache`).
"""

import asyncio
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import Enum, auto
from itertools import count, takewhile
from typing import Final, NamedTuple

from keyhouse.engine import Span
from keyhouse.engines.jetstream.layout import RowKey, digest_of
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.value_cache import ValueCache

_HEAP_SLACK: Final = 1_024
"""Stale expiries tolerated before the heap is rebuilt, beyond one per live expiry."""


class MirrorState(Enum):
    LOADING = auto()
    SERVING = auto()


class _SpaceIndex:
    """The rows of one space. `keys` is sorted, without tombstones; it is empty while loading."""

    __slots__ = ("entries", "keys")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []

    def put(self, key: str, entry: Entry, *, is_sorted: bool) -> Entry | None:
        """Store an entry and return the one it replaces."""
        before = self.entries.pop(key, None)
        self.entries[key] = entry
        if is_sorted:
            was_row = before is not None and not before.is_tombstone
            if entry.is_tombstone and was_row:
                del self.keys[bisect_left(self.keys, key)]
            elif not entry.is_tombstone and not was_row:
                insort(self.keys, key)
        return before

    def remove(self, key: str) -> None:
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
        self.state = MirrorState.LOADING
        self.position = 0
        self.delivered = 0
        self.horizon = 0
        self.horizon_sequence = 0
        """Sequence of the `horizon` message that was applied last."""
        self.pruned = 0
        """Tombstones up to this sequence have been removed."""
        self.announced_at = 0
        self.erasures = 0
        """Erased spaces so far. Caches of a reader are void when it changes."""
        self._complete_at = 0
        """Once this sequence is delivered, every pending commit is complete."""
        self._pending: list[tuple[RowKey, Entry]] = []
        self._spaces: dict[str, _SpaceIndex] = {}
        self._names: dict[str, str] = {}  # of the spaces, by their digests
        self._tombstones: dict[RowKey, int] = {}  # in sequence order
        self.expiries: list[tuple[int, int, RowKey]] = []  # a heap; entries may be stale
        self._expiring = 0
        self._next_change: asyncio.Event | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    # Called by the feed

    def deliver(self, row_key: RowKey, entry: Entry, value: bytes) -> None:
        """Accept the next message, in stream order."""
        if not entry.is_tombstone:
            self.values.put(entry.sequence, value)
        self._complete_at = max(self._complete_at, entry.revision)
        if self.state is MirrorState.LOADING:
            self._apply(row_key, entry)
        else:
            self._pending.append((row_key, entry))
        self.advance(entry.sequence)

    def advance(self, sequence: int) -> None:
        """Record that no further message up to `sequence` will arrive."""
        self.delivered = max(self.delivered, sequence)
        if self.delivered >= self._complete_at and self.state is MirrorState.SERVING:
            for row_key, entry in self._pending:
                self._apply(row_key, entry)
            self._pending.clear()
            self.position = self.delivered
            self._notify()

    def finish_loading(self) -> bool:
        """Publish the loaded rows if every commit is complete; return whether the mirror serves."""
        if self.state is MirrorState.LOADING and self.delivered >= self._complete_at:
            for rows in self._spaces.values():
                rows.sort()
            self.state = MirrorState.SERVING
            self.advance(self.delivered)
        return self.state is MirrorState.SERVING

    def prune(self, sequence: int, horizon: int, pruned: int, at: int) -> None:
        """Apply the horizon announced at time `at`: drop the tombstones up to `pruned`.

        Watches cannot resume before `horizon`.
        """
        self.horizon, self.horizon_sequence, self.pruned, self.announced_at = (
            horizon,
            sequence,
            pruned,
            at,
        )
        for row_key, _ in self.tombstones(pruned):
            self._spaces[row_key.space].remove(row_key.key)
            del self._tombstones[row_key]

    def erase(self, digest: str, upto: int) -> None:
        """Drop the entries of one space up to a sequence: their messages were purged."""
        self.erasures += 1
        self._pending = [
            (row_key, entry)
            for row_key, entry in self._pending
            if entry.sequence > upto or digest_of(row_key.space) != digest
        ]
        space = self._names.get(digest)
        if space is None:
            return
        rows = self._spaces[space]
        erased = list(takewhile(lambda item: item[1].sequence <= upto, rows.entries.items()))
        for key, entry in erased:
            del rows.entries[key]
            self._tombstones.pop(RowKey(space, key), None)
            self._expiring -= entry.expires is not None
            self.values.drop(entry.sequence)
        if not rows.entries:
            del self._spaces[space], self._names[digest]
        elif self.state is MirrorState.SERVING:
            rows.sort()

    def remove_purged(self, row_key: RowKey, sequence: int) -> None:
        """Remove a row that another program purged: the server has no message up to `sequence`."""
        rows = self._spaces.get(row_key.space)
        entry = rows.entries.get(row_key.key) if rows is not None else None
        if rows is not None and entry is not None and entry.sequence <= sequence:
            rows.remove(row_key.key)
            self._tombstones.pop(row_key, None)
            self._expiring -= entry.expires is not None
            self.values.drop(entry.sequence)
            self._notify()

    # Called by readers

    def entry(self, space: str, key: str) -> Entry | None:
        rows = self._spaces.get(space)
        return rows.entries.get(key) if rows is not None else None

    def scan(self, space: str, span: Span, *, reverse: bool) -> Iterator[tuple[str, Entry]]:
        """Yield the rows of the span, expired ones included. Do not hold the iterator over an
        await."""
        rows = self._spaces.get(space)
        if rows is None:
            return
        start = bisect_left(rows.keys, span.start)
        stop = len(rows.keys) if span.stop is None else bisect_left(rows.keys, span.stop)
        for index in range(stop - 1, start - 1, -1) if reverse else range(start, stop):
            key = rows.keys[index]
            yield key, rows.entries[key]

    def changes_since(self, space: str, revision: int) -> list[tuple[str, Entry]]:
        """Return the newest entry of each key that changed after `revision`, in order."""
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
        """Return the spaces with a live row, sorted."""
        return sorted(
            space
            for space, rows in self._spaces.items()
            if any(rows.entries[key].is_live(now) for key in rows.keys)
        )

    def take_expired(self, now: int, limit: int) -> list[Expired]:
        """Return expired rows, each once. Callers that do not remove one must `requeue` it."""
        expired: list[Expired] = []
        while self.expiries and len(expired) < limit and self.expiries[0][0] <= now:
            _, sequence, row_key = heapq.heappop(self.expiries)
            entry = self.entry(*row_key)
            if entry is not None and entry.sequence == sequence:
                expired.append(Expired(row_key, sequence))
        return expired

    def requeue(self, expired: list[Expired]) -> None:
        for row_key, sequence in expired:
            entry = self.entry(*row_key)
            if entry is not None and entry.sequence == sequence and entry.expires is not None:
                heapq.heappush(self.expiries, (entry.expires, sequence, row_key))

    def tombstones(self, upto: int) -> list[tuple[RowKey, int]]:
        """Return the tombstones up to sequence `upto`, each with its sequence."""
        return list(takewhile(lambda item: item[1] <= upto, self._tombstones.items()))

    # Waiting

    def next_change(self) -> asyncio.Event:
        """Return an event that is set when the published state changes."""
        if self._next_change is None:
            self._next_change = asyncio.Event()
        return self._next_change

    def position_reached(self, sequence: int) -> "asyncio.Future[None]":
        """Return a future that completes when `sequence` is published, or on `close`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.position >= sequence and self.state is MirrorState.SERVING:
            future.set_result(None)
        else:
            heapq.heappush(self._waiters, (sequence, next(self._order), future))
        return future

    def close(self) -> None:
        """Release all waiters: this mirror is no longer fed, and they must use its replacement."""
        for _, _, future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()
        self._notify()

    def _apply(self, row_key: RowKey, entry: Entry) -> None:
        rows = self._spaces.get(row_key.space)
        if rows is None:
            rows = self._spaces[row_key.space] = _SpaceIndex()
            self._names[digest_of(row_key.space)] = row_key.space
        before = rows.put(row_key.key, entry, is_sorted=self.state is MirrorState.SERVING)
        self._tombstones.pop(row_key, None)
        if entry.is_tombstone:
            self._tombstones[row_key] = entry.sequence
        if before is not None:
            self.values.drop(before.sequence)
            self._expiring -= before.expires is not None
        if entry.expires is not None:
            self._expiring += 1
            heapq.heappush(self.expiries, (entry.expires, entry.sequence, row_key))
            if len(self.expiries) > 2 * self._expiring + _HEAP_SLACK:
                self._compact()

    def _compact(self) -> None:
        """Drop the stale expiries of rows that were written again."""
        self.expiries = [
            (expires, sequence, row_key)
            for expires, sequence, row_key in self.expiries
            if (entry := self.entry(*row_key)) is not None and entry.sequence == sequence
        ]
        heapq.heapify(self.expiries)

    def _notify(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.position:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._next_change is not None:
            self._next_change.set()
            self._next_change = None
