"""Plugin storage through its service: `keyhouse get rosey theme --space trivia --service
nats://host:4222`.

The API reports a value with its revision, but not its expiry. A listing has keys alone.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from keyhouse.errors import (
    AccessError,
    EngineError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.nats.client import NatsClient
from keyhouse.nats.errors import PermissionDeniedError, connection_problem
from keyhouse.service.remote import RemoteRow
from keyhouse.store import ANY, Unset
from keyhouse.systems.rosey.client import KeyChange, PluginError, PluginStorage, ServiceUnavailable

__all__ = ["connect"]

CONNECT_SECONDS: Final = 10

T = TypeVar("T")


async def connect(url: str, space: str, token: str | None) -> "PluginRemote":
    """Connect to NATS at `url`, which includes user and password if NATS requires them. The space
    is the plugin."""
    if not url.startswith(("nats://", "tls://")):
        raise UsageError("Plugin storage is reached over NATS: --service nats://host:4222.")
    if token is not None:
        raise UsageError(
            "Plugin storage takes neither --token nor KEYHOUSE_TOKEN: the user is in the URL, "
            "nats://user:password@host."
        )
    errors: list[Exception] = []

    async def collect(error: Exception) -> None:
        errors.append(error)

    connection = NatsClient(raise_denied=True)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect(
                url.split(","),
                connect_timeout=CONNECT_SECONDS,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # with 0, nats-py retries without end
                reconnect_time_wait=0,
                error_cb=collect,
                inbox_prefix=f"_INBOX_{space}".encode(),
            )
            with _translated(space):
                await connection.check_inbox()
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        await connection.close()
        cause = errors[-1] if errors else error
        raise UnavailableError(
            connection_problem(cause)
            or "No NATS server accepts this connection: start keyhouse serve, or name another.",
            reason=str(cause) or type(cause).__name__,
        ) from None
    except BaseException:
        await connection.close()
        raise
    return PluginRemote(connection, PluginStorage(connection, space))


class PluginRemote:
    def __init__(self, connection: Client, storage: PluginStorage) -> None:
        self._connection = connection
        self._storage = storage
        self._plugin = storage.plugin

    async def get(self, key: str) -> RemoteRow | None:
        with _translated(self._plugin):
            found = await self._storage.found(key)
        if found is None:
            return None
        return RemoteRow(key, msgspec.json.encode(found.value), found.revision)

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        if reverse:
            raise UsageError("Plugin storage lists keys in ascending order only: use --store.")
        with _translated(self._plugin):
            if keys_only:
                for key in await self._storage.keys(prefix):
                    yield RemoteRow(key)
                return
            async for found in self._storage.items(prefix):
                yield RemoteRow(found.key, msgspec.json.encode(found.value), found.revision)

    async def count(self, prefix: str) -> int:
        with _translated(self._plugin):
            return await self._storage.count(prefix)

    async def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        await self.get("-")  # fail if no service runs: a watch would wait for one without end
        with _translated(self._plugin):
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
        with _translated(self._plugin, UnknownOutcomeError):
            return await request


@contextmanager
def _translated(plugin: str, unanswered: type[EngineError] = UnavailableError) -> Iterator[None]:
    try:
        yield
    except ServiceUnavailable as error:
        raise unanswered("The service did not reply.", reason=error.message) from None
    except PluginError as error:
        raise error.to_local() from None
    except PermissionDeniedError as error:
        raise AccessError(
            "NATS does not let this user act for that plugin: name the plugin's own user in the "
            "URL, nats://PLUGIN:PASSWORD@host:4222. `keyhouse rosey acl` prints the permissions.",
            plugin=plugin,
            reason=str(error),
        ) from None
    except NatsError as error:
        reason = str(error) or type(error).__name__
        raise unanswered("The connection to NATS was lost.", reason=reason) from None


def _row(change: KeyChange) -> RemoteRow:
    if change.deleted:
        return RemoteRow(change.key, revision=change.revision, gone=True)
    return RemoteRow(change.key, msgspec.json.encode(change.value), change.revision)
