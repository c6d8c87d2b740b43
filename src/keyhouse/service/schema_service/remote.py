"""One space of a served schema for the data commands: `keyhouse list recipes:BOX --store URL`.

It sends the requests of a remote store, over HTTP or NATS. The service lists records and logs;
counters are read by their keys.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from keyhouse.errors import AccessError, NotFoundError, UsageError
from keyhouse.operations.catalog import Catalog, ServedRecord
from keyhouse.remote_store.record_reads import Transport, next_page
from keyhouse.remote_store.store import open_transport
from keyhouse.schema import MILLISECONDS, Schema
from keyhouse.service.http_client import tenant_of_token
from keyhouse.service.remote import Remote, RemoteRow
from keyhouse.store import ANY, Unset

__all__ = ["SchemaRemote", "SchemaRemotes"]

_PAGE_ITEMS: Final = 500

_encode = msgspec.json.Encoder().encode


class SchemaRemotes:
    """Connects to services of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    async def connect(self, url: str, space: str, token: str | None) -> "SchemaRemote":
        """Return the remote of one space. Sends nothing yet."""
        named: str | None = space
        if url.startswith("http"):
            if token is None:
                raise UsageError(
                    "A served schema requires a token: --token, or KEYHOUSE_TOKEN; `keyhouse token`"
                    " makes one."
                )
            named = None if self.space_of(token) == space else space
        transport = open_transport(self._schema, url, token, named, raise_denied=True)
        return SchemaRemote(self._schema, transport)

    def space_of(self, token: str) -> str:
        only = self._schema.space.name
        return only or tenant_of_token(token, system="module:SCHEMA --space NAME")


class SchemaRemote(Remote):
    def __init__(self, schema: Schema, transport: Transport) -> None:
        self._schema = schema
        self._transport = transport
        self._served = {each.name: each for each in Catalog(schema, {}).every}
        self._is_closed: dict[str, bool] = {}

    async def get(self, key: str) -> RemoteRow | None:
        """Read a row by the route that every kind has: an event has no other, and the address of a
        record without key fields is its list."""
        served, fields = self._find(key)
        body = {served.kind: served.name, "addresses": [fields]}
        [item] = (await self._transport.call("get_many", body))["items"]
        if served.kind == "counter":
            return RemoteRow(key, _encode(item["value"]))
        return None if item is None else _row(item)

    async def closed(self, prefix: str) -> list[str]:
        """Return the records with such keys that the service closes to its callers."""
        named = [each for each in self._served.values() if _may_start(each, prefix)]
        return [each.name for each in named if await self._closes(each)]

    async def _closes(self, served: ServedRecord) -> bool:
        if served.name not in self._is_closed:
            one: dict[str, Any] = {served.kind: served.name, "filters": {}, "limit": 1}
            try:
                await self._transport.call("keys", one)
            except (AccessError, NotFoundError) as error:  # it has been closed, or is not there yet
                if served.name not in error.fields.values():
                    raise
                self._is_closed[served.name] = True
            else:
                self._is_closed[served.name] = False
        return self._is_closed[served.name]

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

    async def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        watched = await self._open(prefix)
        if since is None:
            since = await self._revision(watched)
        started(since)
        queue: asyncio.Queue[RemoteRow | Exception] = asyncio.Queue(1_000)
        tasks = [asyncio.create_task(self._follow(each, since, queue)) for each in watched]
        try:
            while True:
                row = await queue.get()
                if isinstance(row, Exception):
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
        served, fields = self._find(key)
        if served.kind != "record":
            raise UsageError("Only records are put; a counter is added to.", key=key)
        body = {"record": served.name, "fields": fields, "value": msgspec.Raw(value), "ttl": ttl}
        return _row(await self._transport.call("put", {**body, **_expected(expect)}))

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        served, fields = self._find(key)
        was_there = await self.get(key) is not None
        body = {served.kind: served.name, "fields": fields, **_expected(expect)}
        await self._transport.call("delete", body)
        return was_there

    async def close(self) -> None:
        await self._transport.close()

    async def _items(self, served: ServedRecord, reverse: bool) -> AsyncGenerator[RemoteRow, None]:
        body: dict[str, Any] = {served.kind: served.name, "filters": {}, "limit": _PAGE_ITEMS}
        body["order"] = "desc" if reverse else "asc"
        page = await self._transport.call("list", body)
        while True:
            rows = [_row(item) for item in page["items"]]
            if left_out := page.get("unreadable"):
                rows += map(_unreadable, left_out)
                rows.sort(key=lambda row: row.key, reverse=reverse)
            for row in rows:
                yield row
            if "cursor" not in page:
                return
            body["cursor"] = page["cursor"]
            page = await next_page(lambda: self._transport.call("list", body))

    async def _follow(
        self, served: ServedRecord, since: int, queue: "asyncio.Queue[RemoteRow | Exception]"
    ) -> None:
        body: dict[str, Any] = {served.kind: served.name, "fields": {}}
        try:
            async with aclosing(self._transport.changes(body, since)) as changes:
                async for name, item in changes:
                    if name == "unreadable":
                        await queue.put(_unreadable(item))
                    elif name != "caught_up":
                        await queue.put(_row(item, gone=name == "gone"))
        except Exception as error:
            await queue.put(error)

    async def _revision(self, watched: Sequence[ServedRecord]) -> int:
        for served in [*watched, *await self._open("")]:
            if served.kind == "record":
                newest = {"record": served.name, "filters": dict[str, Any](), "limit": 1}
                return int((await self._transport.call("list", newest))["revision"])
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
                "The service has records, and no derived rows: name the engine or the data folder"
                " as --store.",
                key=key,
            )
        return served, {name: msgspec.to_builtins(match.fields[name]) for name in served.fields}


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


def _expected(expect: int | Unset | None) -> dict[str, Any]:
    return {} if expect is ANY else {"expect": expect}
