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

The second read is transactional and waits for the transaction. A watch that has caught up polls for
commits of other processes, at an interval that doubles from POLL_SECONDS_MIN to POLL_SECONDS_MAX.
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
from keyhouse.errors import ClosedError

POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 1.0
"""Delay until a watch sees a commit of another process: each poll is one small read."""

PAGE_ENTRIES: Final = 100
"""Log entries per page."""


class _Poll:
    """Set by commits of this process. A wait also ends after an interval that doubles."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.idle = 0

    def is_set(self) -> bool:
        return self.event.is_set()

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(POLL_SECONDS_MAX, POLL_SECONDS_MIN * 2**self.idle)):
                await self.event.wait()
        self.idle = 0 if self.event.is_set() else min(self.idle + 1, 10)


class Feed:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self.reader = reader
        self.clock = clock
        self.polls: defaultdict[str, set[_Poll]] = defaultdict(set)
        self._closed = False

    def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return watch_log(_SpaceLog(self, space, span), since, caught_up)

    def wake(self, space: str) -> None:
        for poll in self.polls.get(space, ()):
            poll.event.set()

    def close(self) -> None:
        self._closed = True
        for space in self.polls:
            self.wake(space)

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")


class _SpaceLog:
    """The log of one space, for one watch."""

    reconnects = True

    def __init__(self, feed: Feed, space: str, span: Span) -> None:
        self._feed = feed
        self._space = space
        self._span = span
        self._poll = _Poll()
        self._pruned = 0

    async def start(self, since: int | None) -> int:
        self._feed.check_open()
        revision, self._pruned = await self._feed.reader.head(self._space)
        if since is not None and since > revision:
            # A transaction that advances the head may be being applied.
            revision = await self._feed.reader.head_applied(self._space)
        self._feed.polls[self._space].add(self._poll)
        return revision

    def wakeup(self) -> _Poll:
        self._poll.event.clear()
        return self._poll

    async def page(self, position: int) -> LogPage[Change]:
        self._feed.check_open()
        entries = await self._feed.reader.entries(self._space, position, PAGE_ENTRIES)
        if not entries:
            return LogPage([], position, self._pruned)
        self._poll.idle = 0
        if entries[0].before > position:
            return LogPage([], position, entries[0].before)
        changes = await self._newest(newest(entries, position))
        return LogPage(changes, entries[-1].revision, self._pruned, more=True)

    async def change(self, entry: Change) -> Change | None:
        return without_expired(entry, self._feed.clock)

    def leave(self) -> None:
        polls = self._feed.polls
        polls[self._space].discard(self._poll)
        if not polls[self._space]:
            del polls[self._space]

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
