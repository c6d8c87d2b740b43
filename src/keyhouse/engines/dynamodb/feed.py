"""Watches: each follows the log of its space, woken by this process's commits and by a timer for those of others.

The log names keys; a change is given out with the row as it is. One that the row has outgrown is followed by a newer one.
A row that is older than its entry in the log belongs to a transaction that is being applied: it is read again by a
transactional read, which waits for that. A row that has expired is given out as gone: its value is nobody's any more,
and yet who still holds the value that it replaced must hear of it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Change, Row, Span, check_since, outdated
from keyhouse.engines.dynamodb.items import is_live
from keyhouse.engines.dynamodb.log import ChangedKey, Entry, newest
from keyhouse.engines.dynamodb.reader import Reader
from keyhouse.errors import ClosedError, UnavailableError

POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 1.0
"""How late a watch may see a commit of another process: one small read, made less often while nothing happens."""

WINDOW_ENTRIES: Final = 100
"""Entries of the log that are looked at in one go."""


class Feed:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._closed = False

    def tell(self, space: str) -> None:
        for event in self._waiting.get(space, ()):
            event.set()

    def close(self) -> None:
        self._closed = True
        for space in self._waiting:
            self.tell(space)

    async def changes(
        self, space: str, span: Span, since: int | None
    ) -> AsyncGenerator[Change, None]:
        woken = asyncio.Event()
        self._waiting[space].add(woken)
        try:
            position = await self._start(space, since)
            idle = 0
            while True:
                woken.clear()
                try:
                    entries = await self._reader.entries(space, position, WINDOW_ENTRIES)
                    changes = await self._newest(space, span, entries, position) if entries else []
                except UnavailableError:  # since it began: it is waited for
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
                    await _wait(woken, min(POLL_SECONDS_MAX, POLL_SECONDS_MIN * 2**idle))
                    idle = 0 if woken.is_set() else min(idle + 1, 10)
                    self._check_open()
        finally:
            self._waiting[space].discard(woken)
            if not self._waiting[space]:
                del self._waiting[space]

    async def _start(self, space: str, since: int | None) -> int:
        self._check_open()
        head = await self._reader.head(space)
        if since is None:
            return head.revision
        if since < head.pruned:
            raise outdated(since, head.pruned + 1)
        if since > head.revision:  # or what moves the head is being applied
            check_since(since, await self._reader.head_applied(space))
        return since

    async def _newest(
        self, space: str, span: Span, entries: list[Entry], after: int
    ) -> list[Change]:
        changed_keys = [changed for changed in newest(entries, after) if changed.key in span]
        rows = await self._reader.rows(space, [changed.key for changed in changed_keys])
        now = self._clock.now()
        doubted = [
            changed.key
            for changed in changed_keys
            if _is_doubtful(changed, rows.get(changed.key), now)
        ]
        if doubted:
            for key in doubted:
                rows.pop(key, None)
            rows |= await self._reader.rows_applied(space, doubted)
        return _changes(changed_keys, rows, now)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")


def _is_doubtful(changed: ChangedKey, row: Row | None, now: int) -> bool:
    """The row is not as new as the log."""
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
        elif row.revision == revision:
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
