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
| LOADING               | applied                 | nothing: they wait | all commits complete (1) |
| SERVING, none pending | applied if it completes | all delivered      | a commit arrives in part |
| SERVING, some pending | appended to the pending | up to `position`   | all commits complete (2) |
| closed                | never delivered         | the last state     | never (3)                |

1. `finish_loading` publishes the state.
2. `delivered` has reached `_complete_at`: the pending messages are applied.
3. `close` releases all waiters; they continue on the mirror that replaces this one.

Deleted rows leave tombstones until the sweep prunes them: a resumed watch must report the delete,
and a writer needs the sequence that the server expects at the subject. `horizon` is the retention
floor: the newest revision up to which tombstones may have been pruned.

An erased space is dropped as a whole (`erase`): the rows of other spaces are not touched.

The rows of a space are columns, without an object for each (`space_rows`). A watch reads the newest
changes of the bucket from a short log, and older ones from all rows of its space. Values live in a
bounded cache beside the rows (`value_cache`).
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from itertools import count
from typing import Final, NamedTuple

from keyhouse.engine import Span
from keyhouse.engines.jetstream.layout import RowKey, digest_of
from keyhouse.engines.jetstream.message import MESSAGES_MAX, Entry
from keyhouse.engines.jetstream.space_rows import SpaceRows
from keyhouse.engines.jetstream.value_cache import ValueCache

RECENT_CHANGES: Final = 16_384
"""Changes in the log. A watch that is further behind reads all rows of its space."""


class MirrorState(Enum):
    LOADING = auto()
    SERVING = auto()


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
        self._spaces: dict[str, SpaceRows] = {}
        self._names: dict[str, str] = {}  # of the spaces, by their digests
        self._recent: deque[tuple[int, RowKey]] = deque()  # revision and row of each change
        self._forgotten = 0
        """The newest revision that the log may lack."""
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
        rows, later = self._spaces[space], SpaceRows()
        for sequence in rows.sequences(upto):
            self.values.drop(sequence)
        for key, entry in rows.newer(upto):
            later.put(key, entry)
        if later:
            self._spaces[space] = later
        else:
            del self._spaces[space], self._names[digest]

    def remove_purged(self, row_key: RowKey, sequence: int) -> None:
        """Remove a row that another program purged: the server has no message up to `sequence`."""
        entry = self.entry(*row_key)
        if entry is not None and entry.sequence <= sequence:
            self._spaces[row_key.space].remove(row_key.key)
            self.values.drop(entry.sequence)
            self._notify()

    # Called by readers

    def entry(self, space: str, key: str) -> Entry | None:
        rows = self._spaces.get(space)
        return rows.get(key) if rows is not None else None

    def scan(self, space: str, span: Span, *, reverse: bool) -> Iterator[tuple[str, Entry]]:
        """Yield the rows of the span, expired ones included. Do not hold the iterator over an
        await."""
        rows = self._spaces.get(space)
        return iter(()) if rows is None else rows.scan(span, reverse=reverse)

    def changes_since(self, space: str, revision: int) -> list[tuple[str, Entry]]:
        """Return the newest entry of each key that changed after `revision`, in order."""
        rows = self._spaces.get(space)
        if rows is None:
            return []
        if revision < self._forgotten:
            return [
                item for item in rows.newer(revision - MESSAGES_MAX) if item[1].revision > revision
            ]
        changed: dict[str, Entry] = {}
        for changed_at, (changed_space, key) in reversed(self._recent):
            if changed_at <= revision:
                break
            if changed_space == space and key not in changed and (entry := rows.get(key)):
                changed[key] = entry
        return list(reversed(changed.items()))

    def spaces(self, now: int) -> list[str]:
        """Return the spaces with a live row, sorted."""
        return sorted(space for space, rows in self._spaces.items() if rows.has_live(now))

    def expired(self, now: int, limit: int) -> list[Expired]:
        """Return up to `limit` expired rows."""
        expired: list[Expired] = []
        for space, rows in self._spaces.items():
            expired += [
                Expired(RowKey(space, key), sequence)
                for key, sequence in rows.expired(now, limit - len(expired))
            ]
            if len(expired) == limit:
                break
        return expired

    def tombstones(self, upto: int) -> list[tuple[RowKey, int]]:
        """Return the tombstones up to sequence `upto`, each with its sequence."""
        return [
            (RowKey(space, key), entry.sequence)
            for space, rows in self._spaces.items()
            for key, entry in rows.old_tombstones(upto)
        ]

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
        space, key = row_key
        rows = self._spaces.get(space)
        if rows is None:
            rows = self._spaces[space] = SpaceRows()
            self._names[digest_of(space)] = space
        if before := rows.put(key, entry):
            self.values.drop(before)
        recent = self._recent
        recent.append((entry.revision, row_key))
        if len(recent) > RECENT_CHANGES:
            self._forgotten = recent.popleft()[0]

    def _notify(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.position:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._next_change is not None:
            self._next_change.set()
            self._next_change = None
