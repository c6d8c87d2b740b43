"""For plugin authors: `kv = PluginStorage(nc, "trivia")`, then `await kv.get("score")`.

It needs nothing but a NATS connection (`nats.connect`). What the service refuses is raised, by its code: see `PluginError`.
With permissions for each plugin (`keyhouse rosey acl`), connect with `inbox_prefix=b"_INBOX_trivia"`.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec
from nats.aio.client import Client
from nats.errors import MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

__all__ = [
    "Change",
    "Conflict",
    "Found",
    "InternalError",
    "InvalidRequest",
    "PluginError",
    "PluginStorage",
    "QuotaExceeded",
    "RateLimited",
    "ServiceUnavailable",
    "StorageFailed",
    "ValueTooLarge",
    "WatchExpired",
]

_SILENCE_SECONDS: Final = 20.0
"""A watch that has been silent so long, heartbeats included, is asked for again."""

_EXPIRED: Final = "The changes since that revision are no longer kept."
_ENDED: Final = "The service could not go on with the watch; its log says why."

_PLUGIN: Final = re.compile(r"[a-z0-9_-]{1,100}")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PluginError(Exception):
    """What the service said no to. `code` is the machine's name for it, the text is for people."""

    codes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class InvalidRequest(PluginError):
    """The request can't be: correct the program."""

    codes: ClassVar[tuple[str, ...]] = (
        "INVALID_JSON",
        "MISSING_FIELD",
        "VALIDATION_ERROR",
        "INVALID_SUBJECT",
        "INVALID_PLUGIN_NAME",
    )


class ValueTooLarge(InvalidRequest):
    codes = ("VALUE_TOO_LARGE",)


class Conflict(PluginError):
    """The key is not as it was expected: read it again, and decide again."""

    codes = ("CONFLICT",)


class RateLimited(PluginError):
    """Too many requests: wait a little."""

    codes = ("RATE_LIMITED",)


class QuotaExceeded(PluginError):
    """The plugin's room is used up: delete something."""

    codes = ("QUOTA_EXCEEDED",)


class StorageFailed(PluginError):
    """The database could not do it now: try again later."""

    codes = ("DATABASE_ERROR",)


class WatchExpired(PluginError):
    """The changes since that revision can't be told: it is too long ago, or of a store that was restored since. Read what
    is there, and watch from now on."""

    codes = ("WATCH_EXPIRED",)


class InternalError(PluginError):
    codes = ("INTERNAL_ERROR",)


class ServiceUnavailable(PluginError):
    """Nobody answered. Of a write that was sent it is not known whether it was done."""

    codes = ("NO_ANSWER",)


_BY_CODE: Final = {
    code: error
    for error in (
        InvalidRequest,
        ValueTooLarge,
        Conflict,
        RateLimited,
        QuotaExceeded,
        StorageFailed,
        WatchExpired,
        InternalError,
        ServiceUnavailable,
    )
    for code in error.codes
}


class Found(msgspec.Struct, frozen=True):
    """A value and the revision it is at."""

    key: str
    value: Any
    revision: int


class Change(msgspec.Struct, frozen=True):
    """A key was set (`value`), or is `deleted`: by a delete, or because it has expired."""

    key: str
    revision: int
    deleted: bool
    value: Any = None


class PluginStorage:
    """The keys of one plugin. `timeout` is for each answer, in seconds. InvalidRequest when no plugin can be called so."""

    def __init__(
        self,
        connection: Client,
        plugin: str,
        *,
        prefix: str = "db.kv",
        changes_prefix: str = "db.changes",
        timeout: float = 5.0,
    ) -> None:
        if _PLUGIN.fullmatch(plugin) is None:  # before it is part of a subject
            raise InvalidRequest(
                "INVALID_PLUGIN_NAME",
                f"A plugin's name is 1 to 100 of a-z, 0-9, _ and -: {plugin!r}",
            )
        self.plugin = plugin
        self._connection = connection
        self._prefix = f"{prefix}.{plugin}"
        self._changes_prefix = f"{changes_prefix}.{plugin}"
        self._timeout = timeout

    # The four of the document

    async def get(self, key: str, default: Any = None) -> Any:
        """The value, or `default` when there is none. To tell a stored `null` from none, give a default of your own."""
        answer = await self._ask("get", {"key": key})
        return answer["value"] if answer["exists"] else default

    async def set(self, key: str, value: Any, *, ttl: int | None = None) -> None:
        """Keep a value, for `ttl` seconds or for good. When this returns, it is on disk."""
        await self._ask("set", {"key": key, "value": value, "ttl": ttl})

    async def delete(self, key: str) -> bool:
        """Whether it was there."""
        return bool((await self._ask("delete", {"key": key}))["deleted"])

    async def keys(self, prefix: str = "") -> list[str]:
        """All keys that begin so, in order, however many."""
        return [key async for key in self._each("list", "keys", prefix)]

    # Beyond

    async def found(self, key: str) -> Found | None:
        """The value with its revision, for `cas`."""
        answer = await self._ask("get", {"key": key, "revision": True})
        return Found(key, answer["value"], answer["revision"]) if answer["exists"] else None

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of the keys that are there."""
        values: dict[str, Any] = (await self._ask("mget", {"keys": list(keys)}))["values"]
        return values

    async def items(self, prefix: str = "") -> AsyncIterator[Found]:
        """Every key that begins so, with its value, in order."""
        async for entry in self._each("scan", "entries", prefix):
            yield msgspec.convert(entry, Found)

    async def count(self, prefix: str = "") -> int:
        return int((await self._ask("count", {"prefix": prefix}))["count"])

    async def incr(self, key: str, by: int = 1, *, ttl: int | None = None) -> int:
        """Add to a whole number, and return it. No two of these get lost, whoever else counts."""
        return int((await self._ask("incr", {"key": key, "by": by, "ttl": ttl}))["value"])

    async def cas(
        self, key: str, value: Any, revision: int | None, *, ttl: int | None = None
    ) -> int:
        """Set the key only if it is at this revision (`None`: not there); its new revision. Else `Conflict`."""
        body = {"key": key, "value": value, "revision": revision, "ttl": ttl}
        return int((await self._ask("cas", body))["revision"])

    async def touch(self, key: str, ttl: int | None) -> bool:
        """Let the key live so long from now on (`None`: for good); whether it is there."""
        return bool((await self._ask("touch", {"key": key, "ttl": ttl}))["exists"])

    async def batch(self, *operations: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Several writes, all or none: `kv.batch({"op": "set", "key": "a", "value": 1}, {"op": "delete", "key": "b"})`."""
        results: list[dict[str, Any]] = (await self._ask("batch", {"ops": list(operations)}))[
            "results"
        ]
        return results

    async def watch(
        self,
        prefix: str = "",
        *,
        since: int | None = None,
        begun: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[Change, None]:
        """The changes of the keys that begin so, from now on or after revision `since`, without end. Begun anew by itself
        when the service is restarted or a message was lost; then a change may come twice, and none is missed. Where that
        can't be, `WatchExpired`; where the service can't go on, what it failed with. `begun` is called once, when the first
        has begun, with the revision that it begins at."""
        while True:
            subject = f"{self._changes_prefix}.{secrets.token_hex(8)}"
            messages = await self._connection.subscribe(subject)
            try:
                answer = await self._ask(
                    "watch", {"subject": subject, "prefix": prefix, "since": since}
                )
                since = int(answer["revision"])
                if begun is not None:
                    begun(since)
                    begun = None
                number = 0
                while True:
                    try:
                        message = await messages.next_msg(timeout=_SILENCE_SECONDS)
                    except NatsTimeoutError:
                        break
                    told = _decode(message.data)
                    number += 1
                    if (code := told.get("end")) in _BY_CODE:
                        raise _BY_CODE[code](code, _ENDED if code != "WATCH_EXPIRED" else _EXPIRED)
                    if told["n"] != number or "end" in told:
                        break
                    if "heartbeat" in told:
                        since = told["revision"]
                    else:
                        yield msgspec.convert(told, Change)
            except ServiceUnavailable:
                await asyncio.sleep(0.5)
            finally:
                await messages.unsubscribe()

    async def _each(self, operation: str, field: str, prefix: str) -> AsyncIterator[Any]:
        cursor: str | None = None
        while True:
            page = await self._ask(operation, {"prefix": prefix, "limit": 1_000, "cursor": cursor})
            for each in page[field]:
                yield each
            if (cursor := page.get("cursor")) is None:
                return

    async def _ask(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            message = await self._connection.request(
                f"{self._prefix}.{operation}", _encoded(body), timeout=self._timeout
            )
        except MaxPayloadError:
            most = self._connection.max_payload
            raise ValueTooLarge(
                "VALUE_TOO_LARGE", f"The request is larger than the {most} bytes of NATS."
            ) from None
        except NoRespondersError:
            raise ServiceUnavailable(
                "NO_ANSWER", "No plugin storage is running on this NATS."
            ) from None
        except NatsTimeoutError:
            raise ServiceUnavailable(
                "NO_ANSWER", f"No answer within {self._timeout:g} s."
            ) from None
        answer: dict[str, Any] = _decode(message.data)
        if answer["success"]:
            return answer
        code = answer["error_code"]
        raise _BY_CODE.get(code, PluginError)(code, answer["message"])


def _encoded(body: Mapping[str, Any]) -> bytes:
    """As JSON. What has none, a NaN or an infinity, would be written as `null`: it is refused, and not kept as nothing."""
    try:
        data = _encode(body)
    except UnicodeEncodeError:
        raise InvalidRequest(
            "VALIDATION_ERROR", "A text holds a lone surrogate, which no UTF-8 has."
        ) from None
    if b"null" in data:
        try:
            json.dumps(msgspec.to_builtins(body, str_keys=True), allow_nan=False)
        except ValueError:
            raise InvalidRequest(
                "VALIDATION_ERROR", "A number in the value is not finite."
            ) from None
    return data
