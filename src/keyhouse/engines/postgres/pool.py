"""A small connection pool: connections are opened on demand, the last used is reused first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import CONNECTION_LOST, DRIVER, NOT_SENT, translate
from keyhouse.engines.postgres.server import CLOSE_SECONDS, Server
from keyhouse.errors import ClosedError, KeyhouseError

Result = TypeVar("Result")


class Pool:
    """At most `size` connections. Waiting callers are served in order."""

    def __init__(self, server: Server, size: int) -> None:
        self._server = server
        self._idle: list[Connection] = []
        self._size = size
        self._tasks: set[asyncio.Future[Any]] = set()
        self._slots = asyncio.Semaphore(size)
        self._closed = False

    @property
    def server_name(self) -> str:
        return self._server.name

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    async def acquire(self) -> Connection:
        """Return a connection for exclusive use, until `release` or `discard`."""
        self.check_open()
        await self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._server.connect()
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection) -> None:
        self._idle.append(connection)
        self._slots.release()

    def discard(self, connection: Connection) -> None:
        """Close a lost connection, and all idle ones: they may be lost too."""
        for stale in (connection, *self._idle):
            stale.terminate()
        self._idle.clear()
        self._slots.release()

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

    async def close(self) -> None:
        """Wait for running work, then close the connections."""
        if self._closed:
            return
        self._closed = True
        for _ in range(self._size):
            await self._slots.acquire()
        while self._idle:
            await close_quietly(self._idle.pop())


async def close_quietly(connection: Connection) -> None:
    """Close the connection, or terminate it if the server does not respond."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except DRIVER:
        connection.terminate()
