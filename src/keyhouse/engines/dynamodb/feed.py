"""Watches: each follows the log of its space, woken by commits of this process and by a poll.

Theory of operation
-------------------
`engines.watch_loop` has the loop of a watch. The log holds keys only, so a page is read with the
rows that it names, and the state of each row is compared with its log entry:

| row                           | meaning                          | delivers          |
|-------------------------------|----------------------------------|-------------------|
| at the entry's revision       | the newest change of the key     | the row           |
| ... and it has expired        | the previous value is void       | a delete          |
| newer than the entry          | a later entry follows            | nothing           |
| absent, the entry is a delete | deleted                          | a delete          |
| absent, the entry has expired | expired and deleted              | a delete          |
| older, or absent otherwise    | the transaction is being applied | by a second read  |
| foreign, by the second read   | another program replaced it      | the row           |

The second read is transactional and waits for the transaction.

For commits of other processes one task polls the heads of all watched spaces, those of 100 spaces
in one request, and wakes the watches that have not reached the head of their space. The interval of
a space doubles from POLL_SECONDS to POLL_TICKS_MAX times as long while nothing is new. Spaces are
polled at common multiples of POLL_SECONDS, so that idle ones share their requests.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import FOREIGN_REVISION, CaughtUp, Change, Row, Span
from keyhouse.engines.dynamodb.log import newest
from keyhouse.engines.dynamodb.reader import Reader
from keyhouse.engines.watch_loop import ChangedKey, LogPage, watch_log, without_expired
from keyhouse.errors import ClosedError, KeyhouseError

POLL_SECONDS: Final = 0.1
POLL_TICKS_MAX: Final = 8
"""Delay until a watch sees a commit of another process, and how often as long it is at most."""

PAGE_ENTRIES: Final = 100
"""Log entries per page."""


class _WatchedSpace:
    """The watches of a space, which is polled every so many ticks."""

    __slots__ = ("logs", "ticks")

    def __init__(self) -> None:
        self.logs: set[_SpaceLog] = set()
        self.ticks = 1


class Feed:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self.reader = reader
        self.clock = clock
        self._watched: defaultdict[str, _WatchedSpace] = defaultdict(_WatchedSpace)
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return watch_log(_SpaceLog(self, space, span), since, caught_up)

    def wake(self, space: str) -> None:
        if space in self._watched:
            for log in self._watched[space].logs:
                log.woken.set()

    def join(self, space: str, log: "_SpaceLog") -> None:
        self.check_open()
        self._watched[space].logs.add(log)
        self._watched[space].ticks = 1
        if self._poller is None:
            self._poller = asyncio.ensure_future(self._poll())

    def leave(self, space: str, log: "_SpaceLog") -> None:
        self._watched[space].logs.discard(log)
        if not self._watched[space].logs:
            del self._watched[space]

    async def close(self) -> None:
        self._closed = True
        for space in self._watched:
            self.wake(space)
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait([self._poller])

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    async def _poll(self) -> None:
        """Poll until nothing is watched."""
        tick = 0
        while self._watched:
            await asyncio.sleep(POLL_SECONDS)
            tick += 1
            due = [name for name, watched in self._watched.items() if tick % watched.ticks == 0]
            if due:
                with suppress(KeyhouseError):  # the next tick is another attempt
                    self._on_heads(await self.reader.heads(due))
        self._poller = None

    def _on_heads(self, heads: Mapping[str, int]) -> None:
        for space, head in heads.items():
            if space not in self._watched:
                continue
            watched = self._watched[space]
            late = [log for log in watched.logs if log.position < head]
            for log in late:
                log.woken.set()
            watched.ticks = 1 if late else min(POLL_TICKS_MAX, 2 * watched.ticks)


class _SpaceLog:
    """The log of one space, for one watch."""

    reconnects = True

    def __init__(self, feed: Feed, space: str, span: Span) -> None:
        self._feed = feed
        self._space = space
        self._span = span
        self._pruned = 0
        self.woken = asyncio.Event()
        self.position = 0

    async def start(self, since: int | None) -> int:
        self._feed.check_open()
        revision, self._pruned = await self._feed.reader.head(self._space)
        if since is not None and since > revision:
            # A transaction that advances the head may be being applied.
            revision = await self._feed.reader.head_applied(self._space)
        self._feed.join(self._space, self)
        return revision

    def wakeup(self) -> asyncio.Event:
        self.woken.clear()
        return self.woken

    async def page(self, position: int) -> LogPage[Change]:
        self._feed.check_open()
        self.position = position
        entries = await self._feed.reader.entries(self._space, position, PAGE_ENTRIES)
        if not entries:
            return LogPage([], position, self._pruned)
        if entries[0].before > position:
            return LogPage([], position, entries[0].before)
        changes = await self._newest(newest(entries, position))
        return LogPage(changes, entries[-1].revision, self._pruned, more=True)

    async def change(self, entry: Change) -> Change | None:
        return without_expired(entry, self._feed.clock)

    def leave(self) -> None:
        self._feed.leave(self._space, self)

    async def _newest(self, changed_keys: list[ChangedKey]) -> list[Change]:
        reader = self._feed.reader
        changed_keys = [changed for changed in changed_keys if changed.key in self._span]
        rows = await reader.rows(self._space, [changed.key for changed in changed_keys])
        now = self._feed.clock.now()
        outdated_keys = [
            changed.key
            for changed in changed_keys
            if _is_being_applied(changed, rows.get(changed.key), now)
        ]
        if outdated_keys:
            for key in outdated_keys:
                rows.pop(key, None)
            rows |= await reader.rows_applied(self._space, outdated_keys)
        return _changes(changed_keys, rows, now)


def _is_being_applied(changed: ChangedKey, row: Row | None, now: int) -> bool:
    """Return whether the row is older than the log: its transaction is being applied."""
    if row is not None:
        return row.revision < changed.revision
    return not changed.deleted and (changed.expires is None or changed.expires > now)


def _changes(changed_keys: list[ChangedKey], rows: Mapping[str, Row], now: int) -> list[Change]:
    changes = []
    for key, revision, deleted, expires in changed_keys:
        row = rows.get(key)
        if row is None:
            if deleted or (expires is not None and expires <= now):
                changes.append(Change(key, revision, None))
        elif row.revision in (revision, FOREIGN_REVISION):
            changes.append(Change(key, revision, row.value, row.expires))
    return changes
