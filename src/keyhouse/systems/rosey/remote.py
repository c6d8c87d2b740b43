"""Plugin storage through its service: `keyhouse get rosey theme --space trivia --service nats://host:4222`.

The face tells a value with its revision, and not when it expires. A listing tells keys alone.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from typing import Any, Final, TypeVar

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from keyhouse.errors import (
    AccessError,
    CallerError,
    DataError,
    EngineError,
    KeyhouseError,
    LimitError,
    QuotaError,
    RateError,
    RevisionError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
    WatchExpiredError,
)
from keyhouse.nats.client import NatsClient
from keyhouse.nats.errors import PermissionDeniedError, connection_problem
from keyhouse.service.remote import Told
from keyhouse.store import ANY, Unset
from keyhouse.systems.rosey.client import (
    Change,
    Conflict,
    InvalidRequest,
    PluginError,
    PluginStorage,
    QuotaExceeded,
    RateLimited,
    ServiceUnavailable,
    StorageFailed,
    ValueTooLarge,
    WatchExpired,
)

__all__ = ["connect"]

CONNECT_SECONDS: Final = 10

_KINDS: Final[tuple[tuple[type[PluginError], type[KeyhouseError]], ...]] = (
    (ValueTooLarge, LimitError),
    (InvalidRequest, CallerError),
    (Conflict, RevisionError),
    (RateLimited, RateError),
    (QuotaExceeded, QuotaError),
    (WatchExpired, WatchExpiredError),
    (StorageFailed, EngineError),
    (PluginError, DataError),
)

T = TypeVar("T")


async def connect(url: str, space: str, token: str | None) -> "PluginRemote":
    """`url`: of NATS, with user and password in it if it asks for them. The space is the plugin."""
    if not url.startswith(("nats://", "tls://")):
        raise UsageError("Plugin storage is asked over NATS: --service nats://host:4222.")
    if token is not None:
        raise UsageError(
            "Plugin storage takes no --token, nor KEYHOUSE_TOKEN: who asks is in the URL, nats://user:password@host."
        )
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    connection = NatsClient(raise_denied=True)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect(
                url.split(","),
                connect_timeout=CONNECT_SECONDS,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # with 0, the driver tries without end
                reconnect_time_wait=0,
                error_cb=note,
                inbox_prefix=f"_INBOX_{space}".encode(),
            )
            with _translated(space=space):
                await connection.check_inbox()
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        await connection.close()
        cause = errors[-1] if errors else error
        sentence = (
            connection_problem(cause)
            or "No NATS server lets us in there: start keyhouse serve, or name another."
        )
        raise UnavailableError(sentence, reason=str(cause) or type(cause).__name__) from None
    except BaseException:
        await connection.close()
        raise
    return PluginRemote(connection, PluginStorage(connection, space))


class PluginRemote:
    def __init__(self, connection: Client, storage: PluginStorage) -> None:
        self._connection = connection
        self._storage = storage

    def _translated(
        self, silent: type[EngineError] = UnavailableError
    ) -> AbstractContextManager[None]:
        return _translated(silent, space=self._storage.plugin)

    async def get(self, key: str) -> Told | None:
        with self._translated():
            found = await self._storage.found(key)
        return (
            None if found is None else Told(key, msgspec.json.encode(found.value), found.revision)
        )

    async def rows(self, prefix: str, *, reverse: bool, keys_only: bool) -> AsyncIterator[Told]:
        if reverse:
            raise UsageError(
                "Plugin storage lists keys from the first to the last only: name the rows by --store."
            )
        with self._translated():
            if keys_only:
                for key in await self._storage.keys(prefix):
                    yield Told(key)
                return
            async for found in self._storage.items(prefix):
                yield Told(found.key, msgspec.json.encode(found.value), found.revision)

    async def count(self, prefix: str) -> int:
        with self._translated():
            return await self._storage.count(prefix)

    async def watch(
        self, prefix: str, since: int | None, begun: Callable[[int], None]
    ) -> AsyncGenerator[Told, None]:
        await self.get("-")  # somebody must be there: a watch would wait for a service without end
        with self._translated():
            async with aclosing(self._storage.watch(prefix, since=since, begun=begun)) as changes:
                async for change in changes:
                    yield _told(change)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> Told:
        document: Any = msgspec.json.decode(value)
        if isinstance(expect, Unset):
            await self._written(self._storage.set(key, document, ttl=ttl))
            return Told(key, value)
        return Told(
            key, value, await self._written(self._storage.cas(key, document, expect, ttl=ttl))
        )

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        if expect is not ANY:
            raise UsageError(
                "Plugin storage deletes a key at whatever revision: name the rows by --store."
            )
        return await self._written(self._storage.delete(key))

    async def close(self) -> None:
        await self._connection.close()

    async def _written(self, work: Awaitable[T]) -> T:
        """Of a write that was not answered it is not known whether it was done."""
        with self._translated(UnknownOutcomeError):
            return await work


@contextmanager
def _translated(silent: type[EngineError] = UnavailableError, *, space: str) -> Iterator[None]:
    try:
        yield
    except ServiceUnavailable as error:
        raise silent("The service did not answer.", reason=error.message) from None
    except PluginError as error:
        kind = next(ours for theirs, ours in _KINDS if isinstance(error, theirs))
        raise kind("The service refused it.", code=error.code, reason=error.message) from None
    except PermissionDeniedError as error:
        raise AccessError(
            "NATS does not let this user ask for that plugin: name the plugin's own user in the URL, "
            "nats://PLUGIN:PASSWORD@host:4222. `keyhouse rosey acl` prints what each may.",
            plugin=space,
            reason=str(error),
        ) from None
    except NatsError as error:
        raise silent(
            "The connection to NATS was lost.", reason=str(error) or type(error).__name__
        ) from None


def _told(change: Change) -> Told:
    if change.deleted:
        return Told(change.key, revision=change.revision, gone=True)
    return Told(change.key, msgspec.json.encode(change.value), change.revision)
