"""Remotes of services over HTTP, by what their API shows: rows as `row_reads` does, read only, for
systems whose rows belong together (`rows_remote`); or records, all of them at once
(`ListedRemote`).
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from keyhouse.advice.http_arguments import service_url
from keyhouse.errors import NotFoundError, UsageError
from keyhouse.service.http_client import HttpClient, translated
from keyhouse.service.remote import Remote, RemoteRow
from keyhouse.service.row_reads import ROWS_MAX

__all__ = ["ListedRemote", "RowsRemote", "rows_remote"]

C = TypeVar("C", bound=HttpClient)

ROWS: Final = "/api/v1/rows"


class ListedRemote(Remote, Generic[C]):
    """Reads rows from a list of all of them, whatever its order. Its synchronous client runs in a
    thread, so that Ctrl-C works while it waits.

    A system adds `get`, `put` and `delete`.
    """

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

    async def close(self) -> None:
        self._client.close()


def rows_remote(
    mount: str, *, space: str, token: str, member: str | None = None
) -> Callable[[str, str, str | None], Awaitable["RowsRemote"]]:
    """Return the `remote` of a system whose API, below `mount`, shows its stored rows.

    `space` is the parameter that names the space, `token` says which token the routes require, and
    `member` holds the response, if it is within another object.
    """

    async def connect(url: str, name: str, given: str | None) -> RowsRemote:
        """Return the remote of one space. Sends nothing yet."""
        if given is None:
            raise UsageError(
                f"The service requires a token: --token, or KEYHOUSE_TOKEN, with {token}."
            )
        client = HttpClient(service_url(url, mount), token=given)
        return RowsRemote(client, {space: name}, member, events=f"{mount}/api/v1/events")

    return connect


class RowsRemote(Remote):
    """Runs the synchronous client in a thread, so that Ctrl-C works while it waits.

    `query` is added to each request; `events` is the path of the event stream, for who wants to
    watch.
    """

    lists_derived = True

    def __init__(
        self, client: HttpClient, query: dict[str, str], member: str | None, *, events: str
    ) -> None:
        self._client = client
        self.no_watch = f"Rows of this service are watched by its event streams: {events}."
        self._query = query
        self._member = member

    async def get(self, key: str) -> RemoteRow | None:
        with translated():
            try:
                return _row(await self._read(f"{ROWS}/one", {"key": key}))
            except NotFoundError:
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
                page = await self._read(ROWS, params)
            for plain in page["items"]:
                yield _row(plain)
            if "cursor" not in page:
                return
            params["after"] = page["cursor"]

    async def close(self) -> None:
        self._client.close()

    async def _read(self, path: str, params: dict[str, Any]) -> Any:
        query = {**self._query, **params}
        response = await asyncio.to_thread(self._client.request, "GET", path, params=query)
        answer = response.json()
        return answer if self._member is None else answer[self._member]


def _row(plain: dict[str, Any]) -> RemoteRow:
    value = msgspec.json.encode(plain.get("value"))
    return RemoteRow(plain["key"], value, plain["revision"], plain.get("expires"))
