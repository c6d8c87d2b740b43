"""Watches: each follows the log of its space, woken by commits of this process and by a poll.

Theory of operation
-------------------
A watch repeats: read a page of the log after its position, read the rows it names, yield them,
advance. The log holds keys only, so the state of each row is compared with its log entry:

| row                           | meaning                          | yields            |
|-------------------------------|----------------------------------|-------------------|
| at the entry's revision       | the newest change of the key     | the row           |
| ... and it has expired        | the previous value is void       | a delete          |
| newer than the entry          | a later entry follows            | nothing           |
| absent, the entry is a delete | deleted                          | a delete          |
| absent, the entry has expired | expired and deleted              | a delete          |
| older, or absent otherwise    | the transaction is being applied | by a second read  |
| foreign, by the second read   | another program replaced it      | the row           |

The second read is transactional and waits for the transaction. A watch that finds no further entry
has caught up: it reports that once for each position. It then polls for commits of other processes,
at an interval that doubles from POLL_SECONDS_MIN to POLL_SECONDS_MAX. While DynamoDB is
unavailable, a started watch waits.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import FOREIGN_REVISION, CaughtUp, Change, Row, Span, check_since, outdated
from keyhouse.engines.dynamodb.items import is_live
from keyhouse.engines.dynamodb.log import ChangedKey, Entry, newest
from keyhouse.engines.dynamodb.reader import Reader
from keyhouse.errors import ClosedError, UnavailableError

POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 1.0
"""Delay until a watch sees a commit of another process: each poll is one small read."""

PAGE_ENTRIES: Final = 100
"""Log entries per page."""


class Feed:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._watches: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._closed = False

    def wake(self, space: str) -> None:
        for event in self._watches.get(space, ()):
            event.set()

    def close(self) -> None:
        self._closed = True
        for space in self._watches:
            self.wake(space)

    async def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        woken = asyncio.Event()
        self._watches[space].add(woken)
        try:
            position = await self._start(space, since)
            idle, reported = 0, None
            while True:
                woken.clear()
                try:
                    entries = await self._reader.entries(space, position, PAGE_ENTRIES)
                    changes = await self._newest(space, span, entries, position) if entries else []
                except UnavailableError:  # it was reachable at the start: wait for it
                    await _wait(woken, POLL_SECONDS_MAX)
                    self._check_open()
                    continue
                self._check_open()
                if entries:
                    if entries[0].before > position:
                        raise outdated(position, entries[0].before + 1)
                    for change in changes:
                        yield change
                    position, idle = entries[-1].revision, 0
                else:
                    if caught_up is not None and position != reported:
                        caught_up(position)
                        reported = position
                    await _wait(woken, min(POLL_SECONDS_MAX, POLL_SECONDS_MIN * 2**idle))
                    idle = 0 if woken.is_set() else min(idle + 1, 10)
                    self._check_open()
        finally:
            self._watches[space].discard(woken)
            if not self._watches[space]:
                del self._watches[space]

    async def _start(self, space: str, since: int | None) -> int:
        self._check_open()
        head = await self._reader.head(space)
        if since is None:
            return head.revision
        if since < head.pruned:
            raise outdated(since, head.pruned + 1)
        if since > head.revision:  # or a transaction that advances the head is being applied
            check_since(since, await self._reader.head_applied(space))
        return since

    async def _newest(
        self, space: str, span: Span, entries: list[Entry], after: int
    ) -> list[Change]:
        changed_keys = [changed for changed in newest(entries, after) if changed.key in span]
        rows = await self._reader.rows(space, [changed.key for changed in changed_keys])
        now = self._clock.now()
        outdated_keys = [
            changed.key
            for changed in changed_keys
            if _is_being_applied(changed, rows.get(changed.key), now)
        ]
        if outdated_keys:
            for key in outdated_keys:
                rows.pop(key, None)
            rows |= await self._reader.rows_applied(space, outdated_keys)
        return _changes(changed_keys, rows, now)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")


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
            live = is_live(row, now)
            changes.append(
                Change(key, revision, row.value, row.expires)
                if live
                else Change(key, revision, None)
            )
    return changes


async def _wait(woken: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
