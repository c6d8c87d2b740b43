"""One space of a served schema for the data commands: `keyhouse list recipes:BOX --service URL`.

The service lists records and logs. Counters are read by their keys.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from keyhouse.errors import UnknownOutcomeError, UsageError, WatchExpiredError
from keyhouse.schema import MILLISECONDS, Schema
from keyhouse.service.http_client import (
    HttpClient,
    TooMuchError,
    service_url,
    tenant_of_token,
    translated,
)
from keyhouse.service.remote import RemoteRow
from keyhouse.service.schema_service.catalog import Catalog, ServedRecord
from keyhouse.store import ANY, Unset

__all__ = ["SchemaRemote", "SchemaRemotes"]

TENANT_CLAIMS: Final = ("customerId", "userId", "sub")
_PAGE_ITEMS: Final = 500

_encode = msgspec.json.Encoder().encode


class SchemaRemotes:
    """Connects to services of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    async def connect(self, url: str, space: str, token: str | None) -> "SchemaRemote":
        """Return the remote of one space. Sends nothing yet."""
        url = service_url(url, f"/{self._schema.name}")
        if token is None:
            raise UsageError(
                "A served schema requires a token: --token, or KEYHOUSE_TOKEN; `keyhouse token`"
                " makes one."
            )
        named = {} if self.space_of(token) == space else {"Keyhouse-Space": space}
        return SchemaRemote(self._schema, url, token, named)

    def space_of(self, token: str) -> str:
        only = self._schema.space.name
        return only or tenant_of_token(token, TENANT_CLAIMS, system="module:SCHEMA --space NAME")


class SchemaRemote:
    """Runs a synchronous client in a thread, so that Ctrl-C works while it waits."""

    def __init__(self, schema: Schema, url: str, token: str, headers: dict[str, str]) -> None:
        self._schema = schema
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", **headers}
        self._client = HttpClient(url, token=token)
        self._sent = headers
        self._served = {each.name: each for each in Catalog(schema, {}).every}
        self._closed: frozenset[str] | None = None

    async def get(self, key: str) -> RemoteRow | None:
        """Read a row by the route that every kind has: an event has no other, and the address of a
        record without key fields is its list."""
        served, fields = self._find(key)
        with translated():
            page = await self._request(
                "POST", f"/get-many/{served.name}", json={"addresses": [fields]}
            )
        [found] = page["items"]
        if served.kind == "counter":
            return RemoteRow(key, _encode(found["value"]))
        return None if found is None else _row(found)

    async def closed(self, prefix: str) -> list[str]:
        """Return the records with such keys that the service does not serve over HTTP."""
        if self._closed is None:
            with translated():
                described = await self._request("GET", "/schema")
            shown = {each["name"] for each in described["records"]}
            self._closed = frozenset(self._served) - shown
        return [name for name in self._closed if _may_start(self._served[name], prefix)]

    async def rows(
        self, prefix: str, *, reverse: bool, keys_only: bool
    ) -> AsyncIterator[RemoteRow]:
        """Iterate over the records and events of all open kinds, in key order."""
        lists = [
            self._items(each, reverse)
            for each in await self._open(prefix)
            if each.kind != "counter"
        ]
        heads = [await anext(each, None) for each in lists]
        choose = max if reverse else min
        while any(head is not None for head in heads):
            at = choose(
                (index for index, head in enumerate(heads) if head is not None),
                key=lambda index: heads[index].key,  # type: ignore[union-attr]  # chosen above
            )
            row, heads[at] = heads[at], await anext(lists[at], None)
            if row is not None and row.key.startswith(prefix):
                yield row

    async def count(self, prefix: str) -> int:
        return sum([1 async for _ in self.rows(prefix, reverse=False, keys_only=True)])

    async def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        watched = await self._open(prefix)
        if since is None:
            since = await self._revision()
        started(since)
        queue: asyncio.Queue[RemoteRow | BaseException] = asyncio.Queue(1_000)
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=60) as http:
            tasks = [
                asyncio.create_task(self._follow(http, each, since, queue)) for each in watched
            ]
            try:
                while True:
                    row = await queue.get()
                    if isinstance(row, BaseException):
                        raise row
                    if row.key.startswith(prefix):
                        yield row
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        served, path = self._address(key)
        if served.kind != "record":
            raise UsageError("Only records are put; a counter is added to.", key=key)
        query = "" if ttl is None else f"?ttl={ttl}"
        headers = {"Content-Type": "application/json", **_conditions(expect)}
        with translated(UnknownOutcomeError):
            return _row(await self._request("PUT", path + query, content=value, headers=headers))

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        _, path = self._address(key)
        was_there = await self.get(key) is not None
        with translated(UnknownOutcomeError):
            await self._request("DELETE", path, headers=_conditions(expect))
        return was_there

    async def close(self) -> None:
        self._client.close()

    async def _items(self, served: ServedRecord, reverse: bool) -> AsyncGenerator[RemoteRow, None]:
        query = {"limit": str(_PAGE_ITEMS), "order": "desc" if reverse else "asc"}
        while True:
            with translated():
                page = await self._page(f"/{served.kind}s/{served.name}", query)
            rows = [_row(item) for item in page["items"]]
            if left_out := page.get("unreadable"):
                rows += map(_unreadable, left_out)
                rows.sort(key=lambda row: row.key, reverse=reverse)
            for row in rows:
                yield row
            if "cursor" not in page:
                return
            query["cursor"] = page["cursor"]

    async def _follow(
        self,
        http: httpx.AsyncClient,
        served: ServedRecord,
        since: int,
        queue: "asyncio.Queue[RemoteRow | BaseException]",
    ) -> None:
        query = {"record": served.name, "since": str(since)}
        try:
            with translated():
                async with http.stream("GET", "/watch", params=query) as response:
                    response.raise_for_status()
                    async with aclosing(_events(response)) as events:
                        async for row in events:
                            await queue.put(row)
            raise WatchExpiredError("The watch ended: list the records again, then watch.")
        except Exception as error:
            await queue.put(error)

    async def _revision(self) -> int:
        for served in await self._open(""):
            if served.kind == "record":
                with translated():
                    path = f"/records/{served.name}"
                    page = await self._request("GET", path, params={"limit": "1"})
                return int(page["revision"])
        raise UsageError("The schema has no record to watch: give --since.")

    async def _open(self, prefix: str) -> list[ServedRecord]:
        """Return what the service serves of the records with such keys."""
        closed = await self.closed(prefix)
        return [
            each
            for name, each in self._served.items()
            if name not in closed and _may_start(each, prefix)
        ]

    def _find(self, key: str) -> tuple[ServedRecord, dict[str, Any]]:
        """Return the record of a key and its key fields, as JSON values."""
        match = self._schema.find(key)
        served = None if match is None else self._served.get(match.record.name)
        if match is None or served is None or match.declared is not match.record:
            raise UsageError(
                "The service has records, and no derived rows: read them from the store, with"
                " --store or --data.",
                key=key,
            )
        return served, {name: msgspec.to_builtins(match.fields[name]) for name in served.fields}

    def _address(self, key: str) -> tuple[ServedRecord, str]:
        """Return the record of a key and the path of its address."""
        served, fields = self._find(key)
        parts = [quote(_text(value), safe="") for value in fields.values()]
        return served, "/".join([f"/{served.kind}s/{served.name}", *parts])

    async def _page(self, path: str, query: dict[str, str]) -> Any:
        """Return a page of a list; wait for the rate of the space before the next one."""
        while True:
            try:
                return await self._request("GET", path, params=query)
            except TooMuchError as error:
                if "cursor" not in query:
                    raise
                await asyncio.sleep(error.retry_after or 1)

    async def _request(self, method: str, path: str, **options: Any) -> Any:
        options["headers"] = {**self._sent, **options.get("headers", {})}
        response = await asyncio.to_thread(self._client.request, method, path, **options)
        return msgspec.json.decode(response.content) if response.content else None


async def _events(response: httpx.Response) -> AsyncGenerator[RemoteRow, None]:
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            if name == "expired":
                return
            item = msgspec.json.decode(value)
            yield _unreadable(item) if name == "unreadable" else _row(item, gone=name == "gone")


def _row(item: dict[str, Any], *, gone: bool = False) -> RemoteRow:
    expires = item["expires_at"]
    return RemoteRow(
        item["key"],
        _encode(item["value"]) if "value" in item else msgspec.UNSET,
        item["revision"],
        None if expires is None else MILLISECONDS.parse(expires),
        gone=gone,
    )


def _unreadable(item: dict[str, Any]) -> RemoteRow:
    return RemoteRow(item["key"], revision=item["revision"], unreadable=item["detail"])


def _may_start(served: ServedRecord, prefix: str) -> bool:
    head = served.record.template.head
    return head.startswith(prefix) or prefix.startswith(head)


def _conditions(expect: int | Unset | None) -> dict[str, str]:
    if expect is None:
        return {"If-None-Match": "*"}
    return {} if expect is ANY else {"If-Match": f'"{expect}"'}


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
