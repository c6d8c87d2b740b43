"""A customer's configs and scenes through the service: `keyhouse list streamkit --service http://host:8080 --token …`.

The face knows a config by its type and id, and finds it at either version of its key. It tells the revision of one config,
and lists all that a customer keeps by its export, which is in no order of keys and tells no revisions.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from keyhouse.errors import (
    AccessError,
    CallerError,
    EngineError,
    KeyhouseError,
    RateError,
    RevisionError,
    ScopeError,
    TokenError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.schema import Record
from keyhouse.service.remote import RemoteRow
from keyhouse.store import Unset
from keyhouse.systems.streamkit import client
from keyhouse.systems.streamkit.client import Streamkit
from keyhouse.systems.streamkit.versions import CONFIG_PAIRS
from keyhouse.systems.streamkit.wrangler import Item

__all__ = ["connect"]

MOUNT: Final = "/streamkit"
"""Where `keyhouse serve` has it, if the URL names no path."""

TENANT_CLAIMS: Final = ("customerId", "userId", "sub")
"""As a service reads them that is not told otherwise. The first that a token has names its customer."""

_KINDS: Final[tuple[tuple[type[client.StreamkitError], type[KeyhouseError]], ...]] = (
    (client.InvalidError, CallerError),
    (client.ExistsError, RevisionError),
    (client.ChangedError, RevisionError),
    (client.TooMuchError, RateError),
    (client.ServiceError, EngineError),
    (client.StreamkitError, AccessError),
)


async def connect(url: str, space: str, token: str | None) -> "ConfigRemote":
    """`token`: of the customer that is the space. Nothing is sent yet."""
    if not url.startswith(("http://", "https://")):
        raise UsageError("Streamkit is asked over HTTP: --service http://host:8080.")
    if token is None:
        raise UsageError(
            "Streamkit asks for a token: --token, or KEYHOUSE_TOKEN; `keyhouse token` makes one."
        )
    customer = space_of(token)
    if customer != space:
        raise UsageError("The token stands for another customer.", customer=customer, space=space)
    return ConfigRemote(
        Streamkit(url if urlsplit(url).path.strip("/") else url.rstrip("/") + MOUNT, token=token)
    )


class _Config(NamedTuple):
    """What a key names: the record as the client knows it, and the id."""

    record: Record[Any]
    id: str


class ConfigRemote:
    """The client waits for its answers in a thread, so that Ctrl-C is heard meanwhile."""

    def __init__(self, panel: Streamkit) -> None:
        self._panel = panel

    async def get(self, key: str) -> RemoteRow | None:
        config = _config(key)
        if config is None:
            return next((told for told in await self._all() if told.key == key), None)
        with _translated():
            try:
                found = await asyncio.to_thread(self._panel.get, config.record.type, config.id)
            except client.NotFoundError:
                return None
        return RemoteRow(key, config.record.encode(found.value), _revision(found.etag), None)

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        found = [told for told in await self._all() if told.key.startswith(prefix)]
        for told in sorted(found, key=lambda told: told.key, reverse=reverse):
            yield told

    async def count(self, prefix: str) -> int:
        return sum(told.key.startswith(prefix) for told in await self._all())

    def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        raise UsageError(
            "Streamkit's service tells no changes: watch the rows, by --store or --data."
        )

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        record, id = _written(key)
        if ttl is not None:
            raise UsageError("A config has no time to live.", key=key)
        config = record.parse(value)
        if config.id != id:
            raise UsageError(
                "The value is called another thing than its key.", key=key, id=config.id
            )
        with _translated(UnknownOutcomeError):
            found = await asyncio.to_thread(self._put, config, expect)
        return RemoteRow(key, record.encode(found.value), _revision(found.etag), None)

    def _put(self, config: Any, expect: int | Unset | None) -> client.Found[Any]:
        if isinstance(expect, int):
            return self._panel.replace(config, if_match=_etag(expect))
        if expect is None:
            return self._panel.create(config)
        try:
            return self._panel.replace(config)
        except client.NotFoundError:
            return self._panel.create(config)

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        record, id = _written(key)
        if expect is None:
            raise UsageError(
                "What is to be deleted can't be expected to be absent: name its revision.", key=key
            )
        tag = _etag(expect) if isinstance(expect, int) else None
        with _translated(UnknownOutcomeError):
            return await asyncio.to_thread(self._panel.delete, record.type, id, if_match=tag)

    async def close(self) -> None:
        self._panel.close()

    async def _all(self) -> list[RemoteRow]:
        with _translated():
            items = msgspec.json.decode(
                await asyncio.to_thread(self._panel.export), type=list[Item]
            )
        return [
            RemoteRow(
                str(each.key),
                str(each.value).encode(),
                expires=None if each.expiration is None else each.expiration * 1_000,
            )
            for each in items
        ]


def _config(key: str) -> _Config | None:
    """`None`: it is no config, but a scene."""
    for pair in CONFIG_PAIRS.values():
        for record in (pair.v2, pair.v1):
            if (found := record.template.split(key)) is not None:
                return _Config(pair.v1, str(found[-1]))
    return None


def _written(key: str) -> _Config:
    config = _config(key)
    if config is None:
        raise UsageError(
            "A scene is counted by the service itself, at each switch to it: it can't be written.",
            key=key,
        )
    return config


def space_of(token: str) -> str:
    """Whom the token names, unproved: the service proves it. It is read so that no other customer's config is answered for
    the one that was asked for."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=dict[str, Any]
        )
    except (IndexError, binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise UsageError(
            "This is not a token: `keyhouse token streamkit --customer ID` makes one."
        ) from None
    named = next((str(claims[name]) for name in TENANT_CLAIMS if name in claims), None)
    if named is None:
        raise UsageError("The token names no customer.", claims=list(TENANT_CLAIMS))
    return named


def _etag(revision: int) -> str:
    return f'"{revision}"'


def _revision(etag: str) -> int:
    return int(etag.strip('"'))


def _reason(error: client.StreamkitError) -> str:
    """What the service says, with a reason of its own if it gives one."""
    return f"{error.detail} {error.fields['reason']}" if "reason" in error.fields else error.detail


@contextmanager
def _translated(silent: type[EngineError] = UnavailableError) -> Iterator[None]:
    try:
        yield
    except client.UnauthorizedError as error:
        kind: type[KeyhouseError] = ScopeError if error.status == ScopeError.status else TokenError
        raise kind("The service does not accept the token for this.", reason=error.detail) from None
    except client.StreamkitError as error:
        kind = next(ours for theirs, ours in _KINDS if isinstance(error, theirs))
        raise kind(
            "The service refused it.",
            **error.fields | {"status": error.status, "reason": _reason(error)},
        ) from None
    except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise UnavailableError("The service can't be reached.", reason=str(error)) from None
    except (httpx.HTTPError, msgspec.MsgspecError, ValueError, KeyError) as error:
        reason = str(error) or type(error).__name__
        raise silent(
            "What answers there is no Streamkit service, or it broke off.", reason=reason
        ) from None
