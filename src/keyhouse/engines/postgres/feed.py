"""Watches: each reads the log of changes on its own, when it is told that there is something new.

Who tells. A commit of this process tells at once. Those of others are told by NOTIFY, outside of the commit's transaction
and at most once in 20 milliseconds: inside of it, NOTIFY takes one lock of the whole server until the commit is synced,
and all who notify commit one after the other (16 connections made a quarter of the commits). Its own does not wait for the
disk: what is told is durable already, and the telling need not be. So a process that dies right
after a commit may take its news with it: once in a second the heads of the watched spaces are looked at. When the
listening connection is lost, all are told as soon as there is a new one.

What is read. A change is given out only if it is still the newest of its key; one that is not is followed by a newer one.
A row that has expired is given out as gone. Watches of a space that are equally far share what they read.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Change, Span, check_since, outdated
from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import DRIVER
from keyhouse.engines.postgres.pool import Pool, close_quietly
from keyhouse.engines.postgres.server import Server
from keyhouse.engines.postgres.sql import Statements
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

POLL_SECONDS: Final = 1.0
"""How late a watch may see a commit whose process died before it could tell."""

NOTIFY_SECONDS: Final = 0.02
"""Between two notifications of one process: what is committed in between goes into one."""

RETRY_SECONDS: Final = 0.25
"""Between two tries to reach a server that is gone."""

PAYLOAD_BYTES_MAX: Final = 7_900
"""The server takes 8,000. One that names more spaces than fit says: any."""

WINDOW_COMMITS: Final = 500
WINDOW_BYTES: Final = 1_024 * 1_024
"""What is read of the log at once."""


class _LogPage(NamedTuple):
    changes: list[Change]
    position: int
    pruned: int
    more: bool


class _Wakeup:
    """Set when there is something new since it was made; and what has been asked of the log since then, by position."""

    __slots__ = ("event", "reads")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reads: dict[int, asyncio.Task[_LogPage | KeyhouseError]] = {}


class _WatchedSpace:
    """A space that is watched, by how many, and how far any of them has come."""

    __slots__ = ("seen", "wakeup", "watches")

    def __init__(self) -> None:
        self.wakeup = _Wakeup()
        self.seen = 0
        self.watches = 0

    def wake(self) -> None:
        self.wakeup.event.set()
        self.wakeup = _Wakeup()


class Feed:
    def __init__(self, server: Server, pool: Pool, sql: Statements, clock: Clock) -> None:
        self._server = server
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._token = secrets.token_hex(8)
        self._watched: dict[str, _WatchedSpace] = {}
        self._listener: asyncio.Task[None] | None = None
        self._unannounced: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._closed = False
        self.listening = False

    async def changes(
        self, space: str, span: Span, since: int | None
    ) -> AsyncGenerator[Change, None]:
        watched = self._join(space)
        try:
            head = await self._head(space)
            check_since(since, head)
            position = head if since is None else since
            has_read = False
            while True:
                self._check_open()
                wakeup = watched.wakeup
                window = await self._read_page(space, position, wakeup)
                if isinstance(window, UnavailableError) and has_read:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if isinstance(window, KeyhouseError):
                    raise window
                if position < window.pruned:
                    raise outdated(position, window.pruned + 1)
                for change in window.changes:
                    if change.key in span:
                        yield self._as_of_now(change)
                has_read = True
                position = window.position
                watched.seen = max(watched.seen, position)
                if not window.more:
                    await wakeup.event.wait()
        finally:
            self._leave(space, watched)

    def committed(self, spaces: Iterable[str]) -> None:
        """Tell the watches of these spaces, here and in other processes."""
        for space in spaces:
            if space in self._watched:
                self._watched[space].wake()
        self._unannounced.update(spaces)
        if self._unannounced and self._sender is None:
            self._sender = asyncio.ensure_future(self._send())

    async def close(self) -> None:
        self._closed = True
        self._wake_all()
        if self._sender is not None:
            await asyncio.wait([self._sender])
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    def _join(self, space: str) -> _WatchedSpace:
        self._check_open()
        if self._listener is None:
            self._listener = asyncio.ensure_future(self._listen())
        watched = self._watched.setdefault(space, _WatchedSpace())
        watched.watches += 1
        return watched

    def _leave(self, space: str, watched: _WatchedSpace) -> None:
        watched.watches -= 1
        if not watched.watches:
            del self._watched[space]

    def _wake_all(self) -> None:
        for watched in self._watched.values():
            watched.wake()

    def _as_of_now(self, change: Change) -> Change:
        expired = change.expires is not None and change.expires <= self._clock.now()
        return Change(change.key, change.revision, None) if expired else change

    async def _head(self, space: str) -> int:
        head: int = await self._pool.run(
            lambda connection: connection.fetchval(self._sql.head, space)
        )
        return head

    async def _read_page(
        self, space: str, position: int, wakeup: _Wakeup
    ) -> _LogPage | KeyhouseError:
        if position not in wakeup.reads:
            wakeup.reads[position] = asyncio.ensure_future(self._read(space, position))
            wakeup.reads[position].add_done_callback(lambda _: wakeup.reads.pop(position))
        return await asyncio.shield(wakeup.reads[position])

    async def _read(self, space: str, position: int) -> _LogPage | KeyhouseError:
        try:
            (pruned, _, _, last, count), *found = await self._pool.run(
                lambda connection: connection.fetch(
                    self._sql.window, space, position, WINDOW_COMMITS, WINDOW_BYTES
                )
            )
        except KeyhouseError as error:
            return error
        changes = [
            Change(key, revision, None if value is None else value.encode(), expires)
            for revision, key, value, expires, _ in found
        ]
        whole = len(changes) == count
        reached = (last or position) if whole else changes[-1].revision
        more = (
            not whole or reached - position >= WINDOW_COMMITS
        )  # within a space, revisions have no holes
        return _LogPage(changes, reached, pruned or 0, more)

    async def _send(self) -> None:
        """Notify of what has been committed, until there is nothing left to tell."""
        while self._unannounced:
            spaces = sorted(self._unannounced)
            self._unannounced.clear()
            with suppress(KeyhouseError):  # they will find it by looking
                await self._notify(spaces)
            await asyncio.sleep(NOTIFY_SECONDS)
        self._sender = None

    async def _notify(self, spaces: list[str]) -> None:
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

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._server.connect()
            except KeyhouseError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await self._listen_on(connection)
            except DRIVER:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self.listening = False
                await close_quietly(connection)

    async def _listen_on(self, connection: Connection) -> None:
        """Until it is lost."""
        lost = asyncio.Event()
        await connection.execute("SET application_name = 'keyhouse watch'")
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(
            await connection.fetchval(self._sql.channel), self._on_notification
        )
        self.listening = True
        self._wake_all()
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await lost.wait()
            if not lost.is_set():
                for space, head in await connection.fetch(self._sql.heads, list(self._watched)):
                    if space in self._watched and self._watched[space].seen < head:
                        self._watched[space].wake()
