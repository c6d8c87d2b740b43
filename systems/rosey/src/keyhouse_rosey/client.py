"""The client for plugin authors: `kv = PluginStorage(nc, "trivia")`, then `await kv.get("score")`.

It needs only a NATS connection (`nats.connect`). Errors are those of `keyhouse.errors`, by their
code. With permissions per plugin (`keyhouse rosey acl`), connect with
`inbox_prefix=b"_INBOX_trivia"`.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import msgspec
from nats.aio.client import Client

from keyhouse.nats.client_connection import connect_client
from keyhouse.nats.embedded_users import embedded_url, with_embedded_user
from keyhouse.service.nats_client import NatsServiceClient, NatsTenant
from keyhouse_rosey.errors import invalid_name
from keyhouse_rosey.messages import READS

__all__ = ["KeyChange", "PluginStorage", "StoredValue", "tenant_of"]

_URL_DEFAULT: Final = "nats://127.0.0.1:4222"
_PREFIX: Final = "db.kv"
_CHANGES_PREFIX: Final = "db.changes"
_PLUGIN: Final = re.compile(r"[a-z0-9_-]{1,100}")


class StoredValue(msgspec.Struct, frozen=True):
    """A value and its revision."""

    key: str
    value: Any
    revision: int


class KeyChange(msgspec.Struct, frozen=True):
    """A key was set to `value`, or `deleted`: by a delete, or because it expired."""

    key: str
    revision: int
    deleted: bool
    value: Any = None


def tenant_of(
    plugin: str, prefix: str = _PREFIX, changes_prefix: str = _CHANGES_PREFIX
) -> NatsTenant:
    """Return the subjects of a plugin. Raises PluginNameError for an invalid name."""
    if _PLUGIN.fullmatch(plugin) is None:  # before it is part of a subject
        raise invalid_name(plugin)
    return NatsTenant(
        plugin,
        f"{prefix}.{plugin}",
        f"{changes_prefix}.{plugin}",
        service="plugin storage",
        kind="plugin",
        acl="keyhouse rosey acl",
    )


class PluginStorage(NatsServiceClient):
    """The keys of one plugin. `timeout` is in seconds, per reply. Raises PluginNameError for an
    invalid plugin name."""

    def __init__(
        self,
        connection: Client,
        plugin: str,
        *,
        prefix: str = _PREFIX,
        changes_prefix: str = _CHANGES_PREFIX,
        timeout: float = 5.0,
    ) -> None:
        tenant = tenant_of(plugin, prefix, changes_prefix)
        super().__init__(connection, tenant, reads=READS, timeout=timeout)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, plugin: str, url: str | None = None, **options: Any
    ) -> AsyncIterator["PluginStorage"]:
        """Connect until the block ends: `async with PluginStorage.connect("trivia") as kv`.

        `url` is by default that of the embedded server of `KEYHOUSE_DATA`, or `keyhouse-data`. If
        that has a password (`nats_auth`), it is found there. `options` are those of nats-py. Raises
        UnavailableError if no server answers; a connection that is lost later is restored.
        """
        given = with_embedded_user(url) if url is not None else embedded_url()
        connection = await connect_client(given or _URL_DEFAULT, **options)
        try:
            yield cls(connection, plugin)
        finally:
            await connection.close()

    # The operations of the document

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or `default` if the key is absent. Pass a default of your own to tell a
        stored `null` from it."""
        reply = await self.request("get", {"key": key})
        return reply["value"] if reply["exists"] else default

    async def set(self, key: str, value: Any, *, ttl: int | None = None) -> None:
        """Store a value, for `ttl` seconds or without expiry. When this returns, it is durable."""
        await self.request("set", {"key": key, "value": value, "ttl": ttl})

    async def delete(self, key: str) -> bool:
        """Delete a key and return whether it existed."""
        return bool((await self.request("delete", {"key": key}))["deleted"])

    async def keys(self, prefix: str = "") -> list[str]:
        """Return all keys with this prefix, in order."""
        return [key async for key in self.items_of("list", "keys", {"prefix": prefix})]

    # Further operations

    async def found(self, key: str) -> StoredValue | None:
        """Return the value with its revision, for `cas`."""
        reply = await self.request("get", {"key": key, "revision": True})
        return StoredValue(key, reply["value"], reply["revision"]) if reply["exists"] else None

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of those keys that exist."""
        values: dict[str, Any] = (await self.request("mget", {"keys": list(keys)}))["values"]
        return values

    async def items(self, prefix: str = "") -> AsyncIterator[StoredValue]:
        """Iterate over all keys with this prefix and their values, in order."""
        async for entry in self.items_of("scan", "entries", {"prefix": prefix}):
            yield msgspec.convert(entry, StoredValue)

    async def count(self, prefix: str = "") -> int:
        return int((await self.request("count", {"prefix": prefix}))["count"])

    async def incr(self, key: str, by: int = 1, *, ttl: int | None = None) -> int:
        """Add to a whole number and return the sum. No concurrent update is lost."""
        return int((await self.request("incr", {"key": key, "by": by, "ttl": ttl}))["value"])

    async def cas(
        self, key: str, value: Any, revision: int | None, *, ttl: int | None = None
    ) -> int:
        """Set the key if it is at this revision (None: absent) and return the new one;
        ConflictError otherwise."""
        body = {"key": key, "value": value, "revision": revision, "ttl": ttl}
        return int((await self.request("cas", body))["revision"])

    async def touch(self, key: str, ttl: int | None) -> bool:
        """Set the key to expire in `ttl` seconds (None: never) and return whether it exists."""
        return bool((await self.request("touch", {"key": key, "ttl": ttl}))["exists"])

    async def batch(self, *operations: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Apply several writes, all or none: `kv.batch({"op": "set", "key": "a", "value": 1},
        {"op": "delete", "key": "b"})`."""
        results: list[dict[str, Any]] = (await self.request("batch", {"ops": list(operations)}))[
            "results"
        ]
        return results

    async def watch(
        self,
        prefix: str = "",
        *,
        since: int | None = None,
        started: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[KeyChange, None]:
        """Iterate over the changes of keys with this prefix, from now on or after revision `since`,
        without end.

        The watch restarts by itself when the service restarts or a message is lost; no change is
        missed. Raises WatchExpiredError if that is impossible, or the error with which the service
        stopped the watch. `started` is called once, with the revision at which the watch starts."""
        async with aclosing(self.requests.watch({"prefix": prefix}, since, started)) as changes:
            async for change in changes:
                if not isinstance(change, int):
                    yield msgspec.convert(change, KeyChange)
