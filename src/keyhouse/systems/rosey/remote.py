"""Plugin storage through its service: `keyhouse get rosey theme --space trivia --service
nats://host:4222`.

The API reports a value with its revision, but not its expiry. A listing has only keys.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import msgspec

from keyhouse.errors import UnknownOutcomeError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.service.nats_client import connect_to_service, translated
from keyhouse.service.remote import RemoteRow
from keyhouse.store import ANY, Unset
from keyhouse.systems.rosey.client import KeyChange, PluginStorage

__all__ = ["connect"]

T = TypeVar("T")


async def connect(url: str, space: str, token: str | None) -> "PluginRemote":
    """Connect to NATS at `url`, which includes user and password if NATS requires them. The space
    is the plugin."""
    if token is not None:
        raise UsageError(
            "Plugin storage takes neither --token nor KEYHOUSE_TOKEN: the user is in the URL, "
            "nats://user:password@host."
        )
    connection = await connect_to_service(url, "rosey", "plugin", space)
    return PluginRemote(connection, PluginStorage(connection, space))


class PluginRemote:
    def __init__(self, connection: NatsClient, storage: PluginStorage) -> None:
        self._connection = connection
        self._storage = storage
        self._translated = partial(translated, "rosey", "plugin", storage.plugin)

    async def get(self, key: str) -> RemoteRow | None:
        with self._translated():
            found = await self._storage.found(key)
        if found is None:
            return None
        return RemoteRow(key, msgspec.json.encode(found.value), found.revision)

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        if reverse:
            raise UsageError("Plugin storage lists keys in ascending order only: use --store.")
        with self._translated():
            if keys_only:
                for key in await self._storage.keys(prefix):
                    yield RemoteRow(key)
                return
            async for found in self._storage.items(prefix):
                yield RemoteRow(found.key, msgspec.json.encode(found.value), found.revision)

    async def count(self, prefix: str) -> int:
        with self._translated():
            return await self._storage.count(prefix)

    async def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        await self.get("-")  # fail if no service runs: a watch would wait for one without end
        with self._translated():
            watching = self._storage.watch(prefix, since=since, started=started)
            async with aclosing(watching) as changes:
                async for change in changes:
                    yield _row(change)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        document: Any = msgspec.json.decode(value)
        if isinstance(expect, Unset):
            await self._write(self._storage.set(key, document, ttl=ttl))
            return RemoteRow(key, value)
        revision = await self._write(self._storage.cas(key, document, expect, ttl=ttl))
        return RemoteRow(key, value, revision)

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        if expect is not ANY:
            raise UsageError("Plugin storage deletes a key at any revision: use --store.")
        return await self._write(self._storage.delete(key))

    async def close(self) -> None:
        await self._connection.close()

    async def _write(self, request: Awaitable[T]) -> T:
        """The outcome of a write without a reply is unknown."""
        with self._translated(UnknownOutcomeError):
            return await request


def _row(change: KeyChange) -> RemoteRow:
    if change.deleted:
        return RemoteRow(change.key, revision=change.revision, gone=True)
    return RemoteRow(change.key, msgspec.json.encode(change.value), change.revision)
