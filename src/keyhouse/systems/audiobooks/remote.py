"""A library through its service: `keyhouse list audiobooks --service http://host:8080 --token …`.

The token is that of an admin's login, or an admin's API key. Rows are read only: the service keeps
what belongs together, so changes go through its API.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NoReturn

import msgspec

from keyhouse.errors import UsageError
from keyhouse.service.http_client import AbsentError, HttpClient, service_url, translated
from keyhouse.service.remote import RemoteRow
from keyhouse.store import Unset

__all__ = ["connect"]

ROWS = "/api/v1/rows"
PAGE_ROWS = 500


async def connect(url: str, space: str, token: str | None) -> "LibraryRemote":
    """Return the remote of the library that the service serves. Sends nothing yet."""
    if token is None:
        raise UsageError(
            "The library requires a token: --token, or KEYHOUSE_TOKEN, with an API key of an admin."
        )
    return LibraryRemote(HttpClient(service_url(url, "/audiobooks"), token=token))


class LibraryRemote:
    """Runs the synchronous client in a thread, so that Ctrl-C works while it waits."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def get(self, key: str) -> RemoteRow | None:
        with translated():
            try:
                return _row(await self._read(f"{ROWS}/one", {"key": key}))
            except AbsentError:
                return None

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        params: dict[str, Any] = {
            "prefix": prefix,
            "reverse": str(reverse).lower(),
            "keys_only": str(keys_only).lower(),
            "limit": PAGE_ROWS,
        }
        while True:
            with translated():
                found = await self._read(ROWS, params)
            for plain in found["items"]:
                yield _row(plain)
            if "cursor" not in found:
                return
            params["after"] = found["cursor"]

    async def count(self, prefix: str) -> int:
        return sum([1 async for _ in self.rows(prefix, reverse=False, keys_only=True)])

    def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        raise UsageError("Watch the library by its event streams: /audiobooks/api/v1/events.")

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        _reject_write()

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        _reject_write()

    async def close(self) -> None:
        self._client.close()

    async def _read(self, path: str, params: dict[str, Any]) -> Any:
        response = await asyncio.to_thread(self._client.request, "GET", path, params=params)
        return response.json()["data"]


def _row(plain: dict[str, Any]) -> RemoteRow:
    value = msgspec.json.encode(plain.get("value"))
    return RemoteRow(plain["key"], value, plain["revision"], plain.get("expires"))


def _reject_write() -> NoReturn:
    raise UsageError("Rows of a served library are read only: change it through its API.")
