"""Plugin storage through its service: `keyhouse get rosey theme --space trivia --store
nats://host:4222`.

The API reports a value with its revision, but not its expiry. A listing has only keys.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from keyhouse.errors import UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.service.nats_client import connect_to_service
from keyhouse.service.remote import Remote, RemoteRow
from keyhouse.store import ANY, Unset
from keyhouse_rosey.client import KeyChange, PluginStorage, tenant_of

__all__ = ["connect"]


async def connect(url: str, space: str, token: str | None) -> "PluginRemote":
    """Connect to NATS at `url`, which includes user and password if NATS requires them. The space
    is the plugin."""
    if token is not None:
        raise UsageError(
            "Plugin storage takes neither --token nor KEYHOUSE_TOKEN: the user is in the URL, "
            "nats://user:password@host."
        )
    connection = await connect_to_service(url, tenant_of(space))
    return PluginRemote(connection, PluginStorage(connection, space))


class PluginRemote(Remote):
    def __init__(self, connection: NatsClient, storage: PluginStorage) -> None:
        self.connection = connection
        self.storage = storage

    async def get(self, key: str) -> RemoteRow | None:
        stored = await self.storage.found(key)
        if stored is None:
            return None
        return RemoteRow(key, msgspec.json.encode(stored.value), stored.revision)

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        if reverse:
            raise UsageError(
                "Plugin storage lists keys in ascending order only: name the engine or the data"
                " folder as --store."
            )
        if keys_only:
            for key in await self.storage.keys(prefix):
                yield RemoteRow(key)
            return
        async for item in self.storage.items(prefix):
            yield RemoteRow(item.key, msgspec.json.encode(item.value), item.revision)

    async def count(self, prefix: str) -> int:
        return await self.storage.count(prefix)

    async def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        await self.get("-")  # fail if no service runs: a watch would wait for one without end
        watching = self.storage.watch(prefix, since=since, started=started)
        async with aclosing(watching) as changes:
            async for change in changes:
                yield _row(change)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        document: Any = msgspec.json.decode(value)
        if isinstance(expect, Unset):
            await self.storage.set(key, document, ttl=ttl)
            return RemoteRow(key, value)
        return RemoteRow(key, value, await self.storage.cas(key, document, expect, ttl=ttl))

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        if expect is not ANY:
            raise UsageError(
                "Plugin storage deletes a key at any revision: name the engine or the data folder"
                " as --store."
            )
        return await self.storage.delete(key)

    async def close(self) -> None:
        await self.connection.close()


def _row(change: KeyChange) -> RemoteRow:
    if change.deleted:
        return RemoteRow(change.key, revision=change.revision, gone=True)
    return RemoteRow(change.key, msgspec.json.encode(change.value), change.revision)
