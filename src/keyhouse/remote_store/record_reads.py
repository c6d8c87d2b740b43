"""The reading half of a remote store: the verbs of a Store, as requests of a service."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Never, Protocol, TypeVar

from keyhouse.advice.arguments import unnamed_fields
from keyhouse.clock import SystemClock, UlidSource
from keyhouse.engine import CaughtUp, Row
from keyhouse.errors import DataError, NotFoundError, RateError, UnavailableError, UsageError
from keyhouse.remote_store.addresses import AddressBook
from keyhouse.remote_store.problems import unreadable_error
from keyhouse.schema import (
    BoundRecordCount,
    BoundSummary,
    Counter,
    Declared,
    Index,
    Operation,
    Record,
    RecordCount,
    Schema,
    Summary,
    Unique,
)
from keyhouse.store import (
    Entry,
    Event,
    OnUnreadable,
    RecordPage,
    UnreadableRows,
    check_watch_start,
)
from keyhouse.store.arguments import check_page_limit

__all__ = ["RemoteRecordReads", "Transport", "next_page"]

T = TypeVar("T")
R = TypeVar("R")

_PAGE_ITEMS: Final = 500
"""Items of a page of a scan: the most that a service returns."""

_PAGE_KEYS: Final = 1_000
"""Keys that a service returns at most."""


class Transport(Protocol):
    """Carries requests to a service."""

    async def call(self, operation: str, body: dict[str, Any]) -> Any: ...

    async def call_own(self, operation: Operation[Any, Any], request: Any) -> Any: ...

    def changes(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]: ...

    async def close(self) -> None: ...


class RemoteRecordReads:
    """Reads the records and derived rows of a schema that a service keeps."""

    def __init__(self, schema: Schema, transport: Transport, space: str | None = None) -> None:
        self.schema = schema
        self.addresses = AddressBook(schema, space)
        self._transport = transport
        self.now: Callable[[], int] = SystemClock().now
        self.new_id: Callable[[], str] = UlidSource(SystemClock()).new

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        if positional:
            raise unnamed_fields(record, positional)
        owner = self.addresses.record(record)
        if isinstance(owner, Counter):
            address = self.addresses.of(record, fields)
            answer = await self._transport.call("get", address.target)
            return answer["value"]  # type: ignore[no-any-return]  # a Counter's T is int
        entry = await self.entry(record, **fields)
        return None if entry is None else entry.record

    async def get_many(
        self,
        record: Record[T],
        addresses: Iterable[Mapping[str, Any]],
        /,
        *,
        unreadable: OnUnreadable = "raise",
    ) -> list[T | None]:
        """Return the records at these addresses, in their order, by one request for each 500; None
        for an absent one, and where it is unreadable, unless that raises. See `Store.get_many`."""
        if isinstance(self.addresses.record(record), Counter):
            return [item["value"] for item in await self._items(record, addresses)]
        entries = await self.entries(record, addresses, unreadable=unreadable)
        return [None if entry is None else entry.record for entry in entries]

    async def entries(
        self,
        record: Record[T],
        addresses: Iterable[Mapping[str, Any]],
        /,
        *,
        unreadable: OnUnreadable = "raise",
    ) -> list[Entry[T] | None]:
        """Return the records at these addresses with their keys, revisions and expiries, in their
        order. See `get_many`. Raises UsageError for a counter."""
        _reject_counter(record)
        skipped = UnreadableRows(unreadable)
        entries: list[Entry[T] | None] = []
        for item in await self._items(record, addresses, skipped, skips=unreadable != "raise"):
            entry: Entry[T] | None = None
            try:
                entry = None if item is None else self.addresses.entry(record, item)
            except DataError as error:
                skipped.add(Row(item["key"], b"", item["revision"], None), error)
            entries.append(entry)
        return entries

    async def _items(
        self,
        record: Record[Any],
        addresses: Iterable[Mapping[str, Any]],
        skipped: UnreadableRows | None = None,
        *,
        skips: bool = False,
    ) -> list[Any]:
        """Return what the service has at these addresses. It may answer for the first of them, if
        they are large: the rest is asked for again. Records that do not decode raise, or with
        `skips` are None and are `skipped`."""
        owner = self.addresses.record(record)
        asked = [dict(self.addresses.of(record, fields).fields) for fields in addresses]
        items: list[Any] = []
        while len(items) < len(asked):
            body: dict[str, Any] = {self.addresses.kind(owner): owner.name}
            body["addresses"] = asked[len(items) : len(items) + _PAGE_ITEMS]
            if skips:
                body["unreadable"] = "skip"
            call = partial(self._transport.call, "get_many", body)
            answer = await (next_page(call) if items else call())
            if not answer["items"]:
                raise UnavailableError("The service answered with no items.")
            if skipped is not None:
                _add_unreadable(skipped, owner, answer)
            items += answer["items"]
        return items

    async def entry(
        self, record: Record[T], /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None. Raises UsageError for a
        counter."""
        if positional:
            raise unnamed_fields(record, positional)
        _reject_counter(record)
        address = self.addresses.of(record, fields)
        if address.kind == "log":  # events have no address over HTTP
            return (await self.entries(record, [fields]))[0]
        if not address.fields:
            page = await self.page(record, limit=1)
            return page.entries[0] if page.entries else None
        return await self._found(record, "get", address.target)

    async def lookup(
        self,
        record: Record[T],
        by: Index,
        /,
        *positional: Never,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None."""
        if positional:
            raise unnamed_fields(by, positional)
        skipped = UnreadableRows(unreadable)
        name, index = self.addresses.index(record, by)
        named = self.addresses.lookup(record, by, fields)
        if not isinstance(index, Unique):  # the verb takes these alone: others are listed
            page = await self.page(record, by=by, limit=1, unreadable=unreadable, **fields)
            return page.entries[0] if page.entries else None
        body = {"record": self.addresses.record(record).name, "by": name, "fields": named}
        try:
            return await self._found(record, "lookup", body)
        except DataError as error:
            skipped.add(_unreadable(error), error)
            return None

    async def page(
        self,
        record: Record[T],
        /,
        *positional: Never,
        by: Index | None = None,
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: tuple[Any, Any] | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> RecordPage[T]:
        """Return some records whose leading key fields have these values, in key order. See
        `Store.page`. A service is asked for 500 of them at a time."""
        if positional:
            raise unnamed_fields(by or record, positional)
        owner = self.addresses.record(record)
        body: dict[str, Any] = {self.addresses.kind(owner): owner.name}
        declared: Any = owner
        if by is not None:
            body["by"], declared = self.addresses.index(record, by)
        body["filters"] = self.addresses.filters(declared, fields, prefix, between)
        body["order"] = _order(reverse)
        skipped = UnreadableRows(unreadable)
        check_page_limit(limit)
        entries: list[Entry[T]] = []
        revision: int | None = None
        while True:
            body |= {"limit": min(limit, _PAGE_ITEMS), "cursor": cursor}
            call = partial(self._transport.call, "list", body)
            page = await (call() if revision is None else next_page(call))
            _add_unreadable(skipped, owner, page)
            for item in page["items"]:
                try:
                    entries.append(self.addresses.entry(record, item))
                except DataError as error:
                    skipped.add(Row(item["key"], b"", item["revision"], None), error)
            revision = page["revision"] if revision is None else revision
            limit -= len(page["items"]) + len(page.get("unreadable", ()))
            cursor = page.get("cursor")
            if cursor is None or limit <= 0:
                return RecordPage(entries, cursor, revision, skipped.rows)

    async def scan(
        self,
        record: Record[T],
        /,
        *positional: Never,
        by: Index | None = None,
        limit: int | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: tuple[Any, Any] | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> AsyncGenerator[Entry[T], None]:
        """Iterate over all records of `page`, or over the first `limit` of them."""
        if positional:
            raise unnamed_fields(by or record, positional)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError("The limit of a scan is a whole number from 1.", limit=limit)
        cursor, left = None, limit
        while True:
            read = partial(
                self.page,
                record,
                by=by,
                limit=_PAGE_ITEMS if left is None else min(left, _PAGE_ITEMS),
                cursor=cursor,
                reverse=reverse,
                prefix=prefix,
                between=between,
                unreadable=unreadable,
                **fields,
            )
            page = await (read() if cursor is None else next_page(read))
            for entry in page.entries:
                yield entry
            left = None if left is None else left - len(page.entries)
            cursor = page.cursor
            if cursor is None or left == 0:
                return

    async def members(
        self, summary: Summary, /, *positional: Never, **fields: Any
    ) -> dict[str, Any]:
        """Return the members that a summary row lists with their entries (None in a plain list)."""
        if positional:
            raise unnamed_fields(summary, positional)
        owner, by, row = self.addresses.row(summary, BoundSummary)
        body = {"record": owner.name, "by": by, "fields": self.addresses.of_row(row, fields)}
        answer = await self._transport.call("members", body)
        return dict(answer["members"])

    async def record_count(self, count: RecordCount, /, *positional: Never, **fields: Any) -> int:
        """Return the number of records that a RecordCount row holds."""
        if positional:
            raise unnamed_fields(count, positional)
        owner, by, row = self.addresses.row(count, BoundRecordCount)
        body = {"record": owner.name, "by": by, "fields": self.addresses.of_row(row, fields)}
        return int((await self._transport.call("record_count", body))["value"])

    async def sum_of_days(
        self, counter: Counter, days: int, /, *positional: Never, **fields: Any
    ) -> int:
        """Return the sum of a counter by day over the last days (UTC), with today."""
        if positional:
            raise unnamed_fields(counter, positional)
        owner = self.addresses.record(counter)
        if not isinstance(owner, Counter):
            raise UsageError("Only a Counter has a sum of days.", given=repr(counter))
        [today] = owner.days(days, self.now(), fields)[:1]  # raises for a counter without days
        named = dict(self.addresses.of(counter, today).fields)
        named.pop(owner.day_field or "")
        body = {"counter": owner.name, "days": days, "fields": named}
        return int((await self._transport.call("sum_of_days", body))["value"])

    async def keys(
        self,
        declared: Declared,
        /,
        *positional: Never,
        limit: int = 1_000,
        cursor: str | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: tuple[Any, Any] | None = None,
        **fields: Any,
    ) -> tuple[list[str], str | None]:
        """Return some keys without their values, and the cursor of the next page. A service is
        asked for 1,000 of them at a time."""
        if positional:
            raise unnamed_fields(declared, positional)
        body, row = self.addresses.target(declared)
        body["filters"] = self.addresses.filters(row, fields, prefix, between)
        body["order"] = _order(reverse)
        check_page_limit(limit)
        keys: list[str] = []
        while True:
            body |= {"limit": min(limit - len(keys), _PAGE_KEYS), "cursor": cursor}
            call = partial(self._transport.call, "keys", body)
            page = await (next_page(call) if keys else call())
            keys += page["keys"]
            cursor = page.get("cursor")
            if cursor is None or len(keys) >= limit:
                return keys, cursor

    async def count(
        self,
        declared: Declared,
        /,
        *positional: Never,
        prefix: str | None = None,
        between: tuple[Any, Any] | None = None,
        **fields: Any,
    ) -> int:
        """Count the rows of `page` by reading their keys."""
        if positional:
            raise unnamed_fields(declared, positional)
        counted, cursor = 0, None
        while True:
            read = partial(
                self.keys, declared, cursor=cursor, prefix=prefix, between=between, **fields
            )
            keys, cursor = await (read() if cursor is None else next_page(read))
            counted += len(keys)
            if cursor is None:
                return counted

    async def watch(
        self,
        declared: Record[T],
        /,
        *positional: Never,
        since: int | None = None,
        prefix: str | None = None,
        unreadable: OnUnreadable = "raise",
        caught_up: CaughtUp | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Event[T], None]:
        """Iterate over the changes of these records after revision `since` (None: from now on), in
        order, without end.

        A lost connection is opened again, and nothing is missed or repeated. Of several changes of
        one record, a watch that is behind may show only the newest. Raises WatchExpiredError if
        the changes are no longer available. A record that the service or this program's schema does
        not decode raises, unless it is to be left out, as in `Store.watch`: of one that the service
        does not decode, the key and the revision are known.

        `caught_up` is called with a revision when all changes up to it were delivered: after each
        commit, and when there is nothing to deliver at the start.
        """
        if positional:
            raise unnamed_fields(declared, positional)
        check_watch_start(since)
        skipped = UnreadableRows(unreadable)
        owner = self.addresses.record(declared)
        named = self.addresses.filters(owner, fields, None, None)
        if since is None:
            since = (await self._transport.call("list", self._newest(owner)))["revision"]
        body = {self.addresses.kind(owner): owner.name, "fields": named}
        following = next((n for n in self.addresses.names(owner) if n not in fields), None)
        async with aclosing(self._transport.changes(body, since)) as changes:
            async for name, item in changes:
                if name == "caught_up":
                    if caught_up is not None:
                        caught_up(item["revision"])
                    continue
                if prefix is not None:
                    values = self.addresses.key_fields(owner, item)
                    if not str(values.get(following or "", "")).startswith(prefix):
                        continue
                try:
                    if name == "unreadable":
                        raise unreadable_error(owner.name, item)
                    event = self.addresses.event(declared, item, gone=name == "gone")
                except DataError as error:
                    error.fields["revision"] = item["revision"]
                    skipped.add(Row(item["key"], b"", item["revision"], None), error)
                    skipped.rows.clear()  # a watch has no end
                    continue
                yield event

    async def _found(
        self, record: Record[T], operation: str, body: dict[str, Any]
    ) -> Entry[T] | None:
        try:
            return self.addresses.entry(record, await self._transport.call(operation, body))
        except NotFoundError as error:
            if "address" not in error.fields:
                raise
            return None

    def _newest(self, owner: Record[Any]) -> dict[str, Any]:
        """Return the request of a list that tells the newest revision."""
        listed: Record[Any] | None = owner if self.addresses.kind(owner) == "record" else None
        own = self.schema.meta.records if self.schema.meta is not None else ()
        for each in self.schema.records:
            if self.addresses.kind(each) == "record" and each not in own:
                listed = listed or each
        if listed is None:
            raise UsageError(
                "Give `since`: the schema has no record that gives the newest revision."
            )
        return {"record": listed.name, "limit": 1, "filters": {}}


def _reject_counter(record: Record[Any]) -> None:
    if isinstance(record, Counter):
        raise UsageError(
            "A service gives only the value of a counter: read it with `get`.",
            counter=record.name,
        )


def _order(reverse: bool) -> str:
    return "desc" if reverse else "asc"


def _add_unreadable(skipped: UnreadableRows, owner: Record[Any], answer: Any) -> None:
    """Take the rows that the service could not read, and has left out of its answer."""
    for item in answer.get("unreadable", ()):
        row = Row(item["key"], b"", item["revision"], None)
        skipped.add(row, unreadable_error(owner.name, item))


def _unreadable(error: DataError) -> Row:
    """Return the row of an error: its key, without its value."""
    return Row(str(error.fields.get("key", "")), b"", 0, None)


async def next_page(read: Callable[[], Awaitable[R]]) -> R:
    """Read the next page of a long read. Pages count towards the rate of the space: if it is used
    up, wait as long as the service asks for."""
    while True:
        try:
            return await read()
        except RateError as error:
            await asyncio.sleep(float(str(error.fields.get("retry_after", 1))))
