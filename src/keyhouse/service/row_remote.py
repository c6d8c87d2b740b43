"""Remotes of services over HTTP, by what their API shows: rows as `row_reads` does, read only, for
systems whose rows belong together (`RowsRemote`); or records, all of them at once (`ListedRemote`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeVar

import msgspec

from keyhouse.errors import UsageError
from keyhouse.service.http_client import AbsentError, HttpClient, translated
from keyhouse.service.remote import RemoteRow
from keyhouse.service.row_reads import ROWS_MAX
from keyhouse.store import Unset

__all__ = ["ListedRemote", "RowsRemote"]

C = TypeVar("C", bound=HttpClient)

ROWS: Final = "/api/v1/rows"


class ListedRemote(ABC, Generic[C]):
    """Reads rows from a list of all of them, whatever its order. Its synchronous client runs in a
    thread, so that Ctrl-C works while it waits.

    A system adds `get`, `put` and `delete`.
    """

    no_watch: ClassVar[str]
    """The error of a watch, with the alternative."""

    def __init__(self, client: C) -> None:
        self._client = client

    @abstractmethod
    def read_all(self) -> list[RemoteRow]:
        """Request all rows. Runs in a thread."""

    async def all_rows(self) -> list[RemoteRow]:
        with translated():
            return await asyncio.to_thread(self.read_all)

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        rows = [row for row in await self.all_rows() if row.key.startswith(prefix)]
        for row in sorted(rows, key=lambda row: row.key, reverse=reverse):
            yield row

    async def count(self, prefix: str) -> int:
        return sum(row.key.startswith(prefix) for row in await self.all_rows())

    def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        raise UsageError(self.no_watch)

    async def close(self) -> None:
        self._client.close()


class RowsRemote:
    """Runs the synchronous client in a thread, so that Ctrl-C works while it waits.

    `query` is added to each request. `member` holds the response, if it is within another object.
    `events` is the path of the event stream, for who wants to watch.
    """

    def __init__(
        self,
        client: HttpClient,
        *,
        events: str,
        query: Mapping[str, str] | None = None,
        member: str | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._query = dict(query or {})
        self._member = member

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
            "limit": ROWS_MAX,
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
        raise UsageError(f"Rows of this service are watched by its event streams: {self._events}.")

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        _reject_write()

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        _reject_write()

    async def close(self) -> None:
        self._client.close()

    async def _read(self, path: str, params: dict[str, Any]) -> Any:
        query = {**self._query, **params}
        response = await asyncio.to_thread(self._client.request, "GET", path, params=query)
        found = response.json()
        return found if self._member is None else found[self._member]


def _row(plain: dict[str, Any]) -> RemoteRow:
    value = msgspec.json.encode(plain.get("value"))
    return RemoteRow(plain["key"], value, plain["revision"], plain.get("expires"))


def _reject_write() -> NoReturn:
    raise UsageError("Rows of this service are read only: change them through its API.")
