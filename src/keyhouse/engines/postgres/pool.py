"""Connection pools. Engines of one process on one server share the connections.

Theory of operation
-------------------
A server has few connections, and a process may open an engine for each of its systems. So the
connections belong to a `SharedPool`, one for reads and one for writes, which the engines of an
event loop on the same URL share; an engine's `Pool` is its part of it. One more connection listens
for all of them (see `listener`). Connections are opened on
demand, the last used is reused first, and a connection is prepared for the tables of an engine when
that engine uses it first.

| event                                         | the shared pool                                 |
|-----------------------------------------------|-------------------------------------------------|
| nobody needed a connection for `IDLE_SECONDS` | closes it, but keeps one                        |
| the server is out of connections              | works with those it has, and tries again after  |
|                                               | `GROW_SECONDS`; with none, tries again every    |
|                                               | `RETRY_SECONDS`, and a call fails after         |
|                                               | `WAIT_SECONDS`                                  |
| a connection is lost                          | closes all idle ones: they may be lost too      |
| the last engine is closed                     | closes all                                      |
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import (
    CONNECTION_LOST,
    NOT_SENT,
    is_out_of_connections,
    translate,
)
from keyhouse.engines.postgres.server import Server, close_quietly
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError

READERS: Final = 4
"""Of `CONNECTIONS_DEFAULT`: for reads, scans and watches. The others are for writes."""

LOCK_WAITS: Final = 4
"""Calls that wait for a lock of another process at once: other writes need connections too."""

IDLE_SECONDS: Final = 60.0
GROW_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.25
WAIT_SECONDS: Final = 2.0

Kind = Literal["reads", "writes"]
Result = TypeVar("Result")


class SharedPool:
    """At most `size` connections. Waiting callers are served in order."""

    def __init__(self, size: int) -> None:
        self.idle: list[Connection] = []
        self.engines = 0
        self.lock_waits = asyncio.Semaphore(max(1, min(LOCK_WAITS, size - 3)))
        self._slots = asyncio.Semaphore(size)
        self._held = 0
        self._spare = 0
        """The fewest idle connections since the last `trim`: nobody needed as many."""
        self._missing = 0
        """Slots without a connection, because the server had none left."""
        self._prepared: dict[Connection, set[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._trimming: asyncio.TimerHandle | None = None
        self._growing: asyncio.TimerHandle | None = None

    async def acquire(self, server: Server) -> Connection:
        """Return a connection for exclusive use, until `release` or `discard`."""
        await self._slots.acquire()
        if self.idle and server.tables in self._prepared[self.idle[-1]]:  # nearly always
            connection = self.idle.pop()
            if len(self.idle) < self._spare:
                self._spare = len(self.idle)
            if not connection.is_closed():
                self._held += 1
                return connection
            del self._prepared[connection]
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            try:
                connection = await self._take(server)
            except UnavailableError as error:
                if not is_out_of_connections(error):
                    self._slots.release()
                    raise
                self._missing += 1  # the slot stays taken
                self._grow_later()
                try:
                    async with asyncio.timeout_at(None if self._has_any else deadline):
                        await self._slots.acquire()
                except TimeoutError:
                    raise error from None
            except BaseException:
                self._slots.release()
                raise
            else:
                self._held += 1
                return connection

    def release(self, connection: Connection) -> None:
        self.idle.append(connection)
        self._held -= 1
        self._slots.release()
        if self._trimming is None:
            self._trimming = _call_later(IDLE_SECONDS, self.trim)

    def discard(self, connection: Connection) -> None:
        """Close a lost connection, and all idle ones: they may be lost too."""
        for stale in (connection, *self.idle):
            self._prepared.pop(stale, None)
            stale.terminate()
        self.idle.clear()
        self._spare = 0
        self._held -= 1
        self._slots.release()

    def trim(self) -> None:
        """Close the connections that nobody has needed since the last call, but keep one."""
        self._trimming = None
        unneeded = max(0, min(self._spare, len(self.idle) - 1))
        for connection in self.idle[:unneeded]:
            self._prepared.pop(connection, None)
            closing = asyncio.ensure_future(close_quietly(connection))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        del self.idle[:unneeded]
        self._spare = len(self.idle)
        if self._spare > 1:
            self._trimming = _call_later(IDLE_SECONDS, self.trim)

    def grow(self) -> None:
        """Let callers try again to open connections that the server did not have: one caller, if
        there is none to share."""
        self._growing = None
        for _ in range(self._missing if self._has_any else min(1, self._missing)):
            self._missing -= 1
            self._slots.release()
        if self._missing:
            self._grow_later()

    def _grow_later(self) -> None:
        if self._growing is None:
            seconds = GROW_SECONDS if self._has_any else RETRY_SECONDS
            self._growing = _call_later(seconds, self.grow)

    @property
    def _has_any(self) -> bool:
        return bool(self._held or self.idle)

    async def close(self) -> None:
        for timer in (self._trimming, self._growing):
            if timer is not None:
                timer.cancel()
        while self.idle:
            await close_quietly(self.idle.pop())
        if self._closing:
            await asyncio.wait(self._closing)

    async def _take(self, server: Server) -> Connection:
        while self.idle:
            connection = self.idle.pop()
            if len(self.idle) < self._spare:
                self._spare = len(self.idle)
            if not connection.is_closed():
                if server.tables not in self._prepared[connection]:
                    await self._prepare(server, connection)
                return connection
            del self._prepared[connection]
        connection = await server.connect()
        self._prepared[connection] = {server.tables}
        return connection

    async def _prepare(self, server: Server, connection: Connection) -> None:
        try:
            await server.prepare(connection)
        except BaseException:
            del self._prepared[connection]
            connection.terminate()
            raise
        self._prepared[connection].add(server.tables)


def _call_later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int, Kind], SharedPool]] = (
    WeakKeyDictionary()
)
"""The pools in use: an engine belongs to one event loop, and so do its connections."""


class Pool:
    """The part of a shared pool that one engine uses."""

    def __init__(self, server: Server, kind: Kind) -> None:
        self._server = server
        self._key: tuple[str, int, Kind] = (server.url, server.connections, kind)
        self._pool: SharedPool | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._calls = 0
        self._closed = False
        self._finished = asyncio.Event()

    @property
    def server(self) -> Server:
        return self._server

    @property
    def server_name(self) -> str:
        return self._server.name

    @property
    def shared(self) -> SharedPool:
        """The shared pool, joined at the first call."""
        if self._pool is None:
            pools = _shared.setdefault(asyncio.get_running_loop(), {})
            self._pool = pools.get(self._key)
            if self._pool is None:
                both = self._server.connections - 1
                readers = max(1, min(READERS, both // 2))
                size = readers if self._key[2] == "reads" else both - readers
                self._pool = pools[self._key] = SharedPool(size)
            self._pool.engines += 1
        return self._pool

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    async def acquire(self) -> Connection:
        """Return a connection for exclusive use, until `release` or `discard`."""
        self.check_open()
        self._calls += 1
        try:
            return await (self._pool or self.shared).acquire(self._server)
        except BaseException:
            self._on_done()
            raise

    def release(self, connection: Connection) -> None:
        self.shared.release(connection)
        self._on_done()

    def discard(self, connection: Connection) -> None:
        """Close a lost connection, and all idle ones: they may be lost too."""
        self.shared.discard(connection)
        self._on_done()

    async def open_another(self) -> Connection:
        """Open a connection beside the pool, for work that would keep one for long."""
        self.check_open()
        return await self._server.connect()

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work`, which must be safe to repeat: see `run_with_retry`.

        A cancelled caller does not cancel the work, which would cost the connection.
        """
        task = asyncio.ensure_future(self.run_with_retry(work))
        self._tasks.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Future[Any]) -> None:
        """Retrieve the exception: the loop logs one that a cancelled caller never retrieves."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def run_with_retry(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work`, and again if its connection was lost. The caller must not be cancelled."""
        try:
            try:
                return await self._run_once(work)
            except (*CONNECTION_LOST, *NOT_SENT):
                return await self._run_once(work)
        except KeyhouseError:
            raise
        except Exception as error:
            raise translate(error, self._server.name) from error

    async def _run_once(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        connection = await self.acquire()
        try:
            result = await work(connection)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(
                error, (*CONNECTION_LOST, *NOT_SENT)
            ):
                self.release(connection)
            else:
                self.discard(connection)
            raise
        self.release(connection)
        return result

    def _on_done(self) -> None:
        self._calls -= 1
        if self._closed and not self._calls:
            self._finished.set()

    async def close(self) -> None:
        """Wait for running work; then close the connections, if no other engine uses them."""
        if self._closed:
            return
        self._closed = True
        if self._calls:
            await self._finished.wait()
        if self._pool is not None:
            self._pool.engines -= 1
            if not self._pool.engines:
                _shared.get(asyncio.get_running_loop(), {}).pop(self._key, None)
                await self._pool.close()
