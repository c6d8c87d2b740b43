"""The log of changes, for the watches, and what wakes them when there is something new.

Theory of operation
-------------------
`engines.watch_loop` has the loop of a watch. Every space that is watched has a current *wakeup*: an
event, and the log reads that were started since it was created. Waking a space sets the event and
replaces the wakeup. Watches of a space at the same position share their reads.

A space is woken by four sources:

- a commit of this process, at once;
- NOTIFY from other processes, sent after the commit and at most every 20 ms. Inside the
  transaction, NOTIFY takes a server-wide lock until the commit is synced, and all notifying commits
  run one after the other (16 connections reached a quarter of the commits). The notification's own
  transaction does not wait for the disk, because the change is already durable;
- a poll of the heads once a second, because a process may die between commit and NOTIFY;
- a new listening connection (see `listener`), because notifications may have been lost meanwhile.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import CaughtUp, Change, Span
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.listener import Listener, listener_of
from keyhouse.engines.postgres.pool import Pool
from keyhouse.engines.postgres.sql import Statements
from keyhouse.engines.watch_loop import LogPage, watch_log, without_expired
from keyhouse.errors import ClosedError, KeyhouseError

NOTIFY_SECONDS: Final = 0.02
"""Interval between notifications of one process: commits in between share one."""

PAYLOAD_BYTES_MAX: Final = 7_900
"""The server's limit is 8,000. A longer list of spaces is replaced by null: all spaces."""

PAGE_COMMITS: Final = 500
PAGE_BYTES: Final = 1_024 * 1_024
"""Limits of one page of the log."""


class _Wakeup:
    """An event for the next change, and the log reads started since it was created, by position."""

    __slots__ = ("event", "reads")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reads: dict[int, asyncio.Task[LogPage[Change] | KeyhouseError]] = {}


class _WatchedSpace:
    """A watched space: its wakeup, its number of watches, and the newest position of any."""

    __slots__ = ("seen", "wakeup", "watches")

    def __init__(self) -> None:
        self.wakeup = _Wakeup()
        self.seen = 0
        self.watches = 0

    def wake(self) -> None:
        self.wakeup.event.set()
        self.wakeup = _Wakeup()


class _SpaceLog:
    """The log of one space, for one watch."""

    reconnects = True

    def __init__(self, feed: "Feed", space: str, span: Span) -> None:
        self._feed = feed
        self._space = space
        self._span = span
        self._watched: _WatchedSpace
        self._wakeup: _Wakeup

    async def start(self, since: int | None) -> int:
        head = await self._feed.head(self._space)
        self._watched = self._feed.join(self._space)
        return head

    def wakeup(self) -> asyncio.Event:
        self._wakeup = self._watched.wakeup
        return self._wakeup.event

    async def page(self, position: int) -> LogPage[Change]:
        page = await self._feed.read(self._space, position, self._wakeup)
        self._watched.seen = max(self._watched.seen, page.reached)
        entries = [change for change in page.entries if change.key in self._span]
        return msgspec.structs.replace(page, entries=entries)

    async def change(self, entry: Change) -> Change | None:
        return without_expired(entry, self._feed.clock)

    def leave(self) -> None:
        self._feed.leave(self._space, self._watched)


class Feed:
    def __init__(self, pool: Pool, sql: Statements, clock: Clock) -> None:
        self.clock = clock
        self._pool = pool
        self._sql = sql
        self._token = secrets.token_hex(8)
        self._watched: dict[str, _WatchedSpace] = {}
        self._listener: Listener | None = None
        self._channel: str | None = None
        self._unannounced: set[str] = set()
        self._announcer: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listening(self) -> bool:
        return self._channel is not None

    def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return watch_log(_SpaceLog(self, space, span), since, caught_up)

    def committed(self, spaces: Iterable[str]) -> None:
        """Wake the watches of these spaces, here and in other processes."""
        for space in spaces:
            if space in self._watched:
                self._watched[space].wake()
        self._unannounced.update(spaces)
        if self._unannounced and self._announcer is None:
            self._announcer = asyncio.ensure_future(self._announce())

    async def close(self) -> None:
        self._closed = True
        self._wake_all()
        if self._announcer is not None:
            await asyncio.wait([self._announcer])
        if self._listener is not None:
            await self._listener.leave(self)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    def join(self, space: str) -> _WatchedSpace:
        self._check_open()
        if self._listener is None:
            self._listener = listener_of(self._pool.server)
            self._listener.join(self)
        watched = self._watched.setdefault(space, _WatchedSpace())
        watched.watches += 1
        return watched

    def leave(self, space: str, watched: _WatchedSpace) -> None:
        watched.watches -= 1
        if not watched.watches:
            del self._watched[space]

    def _wake_all(self) -> None:
        for watched in self._watched.values():
            watched.wake()

    async def head(self, space: str) -> int:
        head: int = await self._pool.run(
            lambda connection: connection.fetchval(self._sql.head, space)
        )
        return head

    async def read(self, space: str, position: int, wakeup: _Wakeup) -> LogPage[Change]:
        """Return the page of the log after a position, of one read for all who want it."""
        self._check_open()
        if position not in wakeup.reads:
            wakeup.reads[position] = asyncio.ensure_future(self.read_page(space, position))
            wakeup.reads[position].add_done_callback(lambda _: wakeup.reads.pop(position))
        page = await asyncio.shield(wakeup.reads[position])
        if isinstance(page, KeyhouseError):
            raise page
        return page

    async def read_page(self, space: str, position: int) -> LogPage[Change] | KeyhouseError:
        try:
            (pruned, _, _, last, count), *rows = await self._pool.run(
                lambda connection: connection.fetch(
                    self._sql.window, space, position, PAGE_COMMITS, PAGE_BYTES
                )
            )
        except KeyhouseError as error:
            return error
        changes = [
            Change(key, revision, None if value is None else value.encode(), expires)
            for revision, key, value, expires, _ in rows
        ]
        is_complete = len(changes) == count
        reached = (last or position) if is_complete else changes[-1].revision
        more = (
            not is_complete or reached - position >= PAGE_COMMITS
        )  # revisions of a space have no gaps
        return LogPage(changes, reached, pruned or 0, more)

    async def _announce(self) -> None:
        """Notify other processes of commits until none is left to announce."""
        while self._unannounced:
            spaces = sorted(self._unannounced)
            self._unannounced.clear()
            with suppress(KeyhouseError):  # they find it by polling
                await self.notify(spaces)
            await asyncio.sleep(NOTIFY_SECONDS)
        self._announcer = None

    async def notify(self, spaces: list[str]) -> None:
        payload = msgspec.json.encode((self._token, spaces))
        if len(payload) > PAYLOAD_BYTES_MAX:
            payload = msgspec.json.encode((self._token, None))
        text = payload.decode()
        await self._pool.run(lambda connection: connection.fetchval(self._sql.notify, text))

    def _on_notification(
        self, connection: Connection, pid: int, channel: str, payload: str
    ) -> None:
        sender, spaces = msgspec.json.decode(payload, type=tuple[str, list[str] | None])
        if sender == self._token:
            return
        if spaces is None:
            self._wake_all()
            return
        for space in spaces:
            if space in self._watched:
                self._watched[space].wake()

    async def poll(self, connection: Connection) -> None:
        if self._channel is None:
            channel: str = await connection.fetchval(self._sql.channel)
            await connection.add_listener(channel, self._on_notification)
            self._channel = channel
            self._wake_all()
        elif self._watched:
            for space, head in await connection.fetch(self._sql.heads, list(self._watched)):
                if space in self._watched and self._watched[space].seen < head:
                    self._watched[space].wake()

    async def stop_listening(self, connection: Connection) -> None:
        if self._channel is not None:
            await connection.remove_listener(self._channel, self._on_notification)
            self._channel = None

    def lose(self) -> None:
        self._channel = None
