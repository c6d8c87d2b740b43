"""The connection that listens for notifications: one for all engines of an event loop on one URL.

It polls as well: once a second each engine reads the heads of its watched spaces, because a process
may die between its commit and its NOTIFY. Each engine starts to listen by itself, so that one whose
tables are missing does not disturb the others.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import DRIVER, translate
from keyhouse.engines.postgres.server import Server, close_quietly
from keyhouse.errors import KeyhouseError, UnreadableError

POLL_SECONDS: Final = 1.0
"""Delay until a watch sees a commit whose process died before it could notify."""

RETRY_SECONDS: Final = 0.25
"""Delay between attempts to reach an unavailable server."""


class Listening(Protocol):
    async def poll(self, connection: Connection) -> None:
        """Listen on the connection, if not yet, and look for changes."""
        ...

    async def stop_listening(self, connection: Connection) -> None: ...

    def lose(self) -> None:
        """The connection was lost."""
        ...


class Listener:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._joined: list[Listening] = []
        self._left: list[Listening] = []
        self._lost = False
        self._woken = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    def join(self, member: Listening) -> None:
        self._joined.append(member)
        self._woken.set()

    async def leave(self, member: Listening) -> None:
        self._joined.remove(member)
        self._left.append(member)
        self._woken.set()
        if not self._joined:
            _listeners.get(asyncio.get_running_loop(), {}).pop(_key(self._server), None)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            with suppress(*DRIVER, KeyhouseError):
                await self._listen(await self._server.reach())
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self, connection: Connection) -> None:
        """Listen and poll until the connection is lost."""
        self._lost = False
        connection.add_termination_listener(self._on_termination)
        try:
            await connection.execute("SET application_name = 'keyhouse watch'")
            while not self._lost:
                self._woken.clear()
                await self._poll(connection)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._woken.wait()
        finally:
            self._left.clear()
            for member in self._joined:
                member.lose()
            await close_quietly(connection)

    async def _poll(self, connection: Connection) -> None:
        while self._left:
            await self._left.pop().stop_listening(connection)
        for member in list(self._joined):
            try:
                await member.poll(connection)
            except DRIVER as error:
                if not isinstance(translate(error, self._server.name), UnreadableError):
                    raise

    def _on_termination(self, connection: Connection) -> None:
        self._lost = True
        self._woken.set()


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], Listener]] = (
    WeakKeyDictionary()
)
"""The listeners in use, like the pools: an engine belongs to one event loop."""


def listener_of(server: Server) -> Listener:
    listeners = _listeners.setdefault(asyncio.get_running_loop(), {})
    if _key(server) not in listeners:
        listeners[_key(server)] = Listener(server)
    return listeners[_key(server)]


def _key(server: Server) -> tuple[str, int]:
    return server.url, server.connections
