"""A few connections, made when they are needed. Each serves one caller at a time, the last used first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import CONNECTION_LOST, DRIVER, NOT_SENT, translate
from keyhouse.engines.postgres.server import CLOSE_SECONDS, Server
from keyhouse.errors import ClosedError, KeyhouseError

Result = TypeVar("Result")


class Pool:
    """At most `size` connections. Waiting callers are served in their order."""

    def __init__(self, server: Server, size: int) -> None:
        self._server = server
        self._free: list[Connection] = []
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
        """A connection for the caller alone, until it gives it back."""
        self.check_open()
        await self._slots.acquire()
        try:
            while self._free:
                connection = self._free.pop()
                if not connection.is_closed():
                    return connection
            return await self._server.connect()
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection) -> None:
        self._free.append(connection)
        self._slots.release()

    def discard(self, connection: Connection) -> None:
        """In place of `give`, for one that was lost. Those that lie idle are let go as well: the same may have hit them."""
        for lost in (connection, *self._free):
            lost.terminate()
        self._free.clear()
        self._slots.release()

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """What `work` answers, which may be done twice: see `answer`.

        A caller that goes away does not break the work off, which would cost the connection.
        """
        task = asyncio.ensure_future(self.run_with_retry(work))
        self._tasks.add(task)  # the loop itself would let go of it
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Future[Any]) -> None:
        """Whether or not the caller has gone: the loop complains of an error that nobody has looked at."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def run_with_retry(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """For a caller that nobody cancels. Work is done again when its connection turns out to have been lost."""
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
            answer = await work(connection)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(
                error, (*CONNECTION_LOST, *NOT_SENT)
            ):
                self.release(connection)
            else:
                self.discard(connection)
            raise
        self.release(connection)
        return answer

    async def close(self) -> None:
        """Wait for what was begun, then let go of the connections."""
        if self._closed:
            return
        self._closed = True
        for _ in range(self._size):
            await self._slots.acquire()
        while self._free:
            await close_quietly(self._free.pop())


async def close_quietly(connection: Connection) -> None:
    """Close it in good order, if the server is still there to hear it."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except DRIVER:
        connection.terminate()
