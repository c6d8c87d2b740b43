"""The remote store: the verbs of a Store, as requests of a service.

    async with RemoteStore(BOX, "http://localhost:8080", token) as store:
        await store.put(RECIPE, Recipe(id="pie", title="Pie"))
        async for entry in store.scan(RECIPE, by=BY_TAG, tag="sweet"): …

The space is that of the token. Members that a record keeps private are written, and never read.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from keyhouse.arguments import checked
from keyhouse.clock import SystemClock
from keyhouse.engine import Row
from keyhouse.errors import (
    ContentionError,
    DataError,
    NotFoundError,
    RevisionError,
    UsageError,
)
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.remote_store.addresses import AddressBook
from keyhouse.remote_store.transaction import RemoteTransaction, reject_others
from keyhouse.schema import Counter, Index, Log, Record, Schema
from keyhouse.store import ANY, Entry, Event, OnUnreadable, RecordPage, UnreadableRow, Unset

__all__ = ["RemoteStore", "Transport"]

T = TypeVar("T")
R = TypeVar("R")

_PAGE_ITEMS: Final = 500
"""Items of a page of a scan: the most that a service returns."""


class Transport(Protocol):
    """Carries requests to a service."""

    async def call(self, operation: str, body: dict[str, Any]) -> Any: ...

    def changes(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]: ...

    async def close(self) -> None: ...


class RemoteStore:
    """A schema that a service keeps, bound to the space of a token: the verbs of a `Store`.

    `url` is that of `keyhouse serve` (`http://host:8080`, `nats://host:4222`), with the path of the
    schema where a proxy has given it another one. `space` names the space over NATS, and for tokens
    with the scope `spaces`.
    """

    @checked(UsageError)
    def __init__(
        self, schema: Schema, url: str, token: str | None = None, *, space: str | None = None
    ) -> None:
        self.schema = schema
        self.addresses = AddressBook(schema)
        self._transport = _transport(schema, url, token, space)
        self.now: Callable[[], int] = SystemClock().now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    # Reading

    async def get(self, record: Record[T], /, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        owner = self.addresses.record(record)
        if isinstance(owner, Counter):
            address = self.addresses.of(record, owner.address_of(fields, self.now()))
            answer = await self._transport.call("get", address.target)
            return answer["value"]  # type: ignore[no-any-return]  # a Counter's T is int
        found = await self.entry(record, **fields)
        return None if found is None else found.record

    async def get_many(
        self, record: Record[T], addresses: Iterable[Mapping[str, Any]], /
    ) -> list[T | None]:
        """Return the records at these addresses, in their order; None where there is none."""
        found: list[T | None] = []
        for fields in addresses:
            entry: T | None = await self.get(record, **fields)
            found.append(entry)
        return found

    async def entry(self, record: Record[T], /, **fields: Any) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        address = self.addresses.of(record, fields)
        if not address.fields:
            page = await self.page(record, limit=1)
            return page.entries[0] if page.entries else None
        return await self._found(record, "get", address.target)

    async def lookup(self, record: Record[T], by: Index, /, **fields: Any) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None."""
        name, index = self.addresses.index(record, by)
        named = self.addresses.filters(index, fields, None, None)
        body = {"record": self.addresses.record(record).name, "by": name, "fields": named}
        return await self._found(record, "lookup", body)

    async def page(
        self,
        record: Record[T],
        /,
        *,
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
        `Store.page`; a page has 500 records at most."""
        owner = self.addresses.record(record)
        body: dict[str, Any] = {self.addresses.kind(owner): owner.name, "limit": limit}
        declared: Any = owner
        if by is not None:
            body["by"], declared = self.addresses.index(record, by)
        body["filters"] = self.addresses.filters(declared, fields, prefix, between)
        body |= {"cursor": cursor, "order": "desc" if reverse else "asc"}
        page = await self._transport.call("list", body)
        skipped: list[UnreadableRow] = []
        entries = []
        for item in page["items"]:
            try:
                entries.append(self.addresses.entry(record, item))
            except DataError as error:
                _skip(item, error, unreadable, skipped)
        return RecordPage(entries, page.get("cursor"), page.get("revision", 0), skipped)

    async def scan(
        self,
        record: Record[T],
        /,
        *,
        by: Index | None = None,
        limit: int | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: tuple[Any, Any] | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> AsyncGenerator[Entry[T], None]:
        """Iterate over all records of `page`, or over the first `limit` of them."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError("The limit of a scan is a whole number from 1.", limit=limit)
        cursor, left = None, limit
        while True:
            page = await self.page(
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
            for entry in page.entries:
                yield entry
            left = None if left is None else left - len(page.entries)
            cursor = page.cursor
            if cursor is None or left == 0:
                return

    async def count(self, record: Record[Any], /, **named: Any) -> int:
        """Count the records of `scan` by reading them."""
        return sum([1 async for _ in self.scan(record, **named)])

    async def watch(
        self,
        record: Record[T],
        /,
        *,
        since: int | None = None,
        prefix: str | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Event[T], None]:
        """Iterate over the changes of these records after revision `since` (None: from now on), in
        order, without end.

        A lost connection is opened again, and nothing is missed or repeated. Of several changes of
        one record, a watch that is behind may show the newest alone. Raises WatchExpiredError if
        the changes are no longer available.
        """
        owner = self.addresses.record(record)
        named = self.addresses.filters(owner, fields, None, None)
        if since is None:
            since = (await self._transport.call("list", self._newest(owner)))["revision"]
        body = {self.addresses.kind(owner): owner.name, "fields": named}
        following = next((n for n in self.addresses.names(owner) if n not in fields), None)
        async with aclosing(self._transport.changes(body, since)) as changes:
            async for name, item in changes:
                event = self.addresses.event(record, item, gone=name == "gone")
                if prefix is None or str(event.fields.get(following or "", "")).startswith(prefix):
                    yield event

    # Writing

    async def put(
        self,
        record: Record[T],
        value: T,
        /,
        *,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write a record and all that is derived from it; return the entry as stored."""
        reject_others(record)
        address = self.addresses.of_value(record, value, fields)
        owner = self.addresses.record(record)
        owner.encode(value)  # raises RecordError for a value of another type
        plain = owner.plain(value)
        body = {**address.target, "value": plain, "ttl": ttl, **_expected(expect)}
        return self.addresses.entry(record, await self._transport.call("put", body), plain)

    async def put_many(self, record: Record[T], values: Iterable[T], /) -> list[Entry[T]]:
        """Write several records that hold all fields of their keys: all of them, or none."""
        reject_others(record)
        owner = self.addresses.record(record)
        values = list(values)
        addresses = [self.addresses.of_value(record, value, {}) for value in values]
        plain = [owner.plain(value) for value in values]
        operations = [
            {"op": "put", **address.target, "value": each}
            for address, each in zip(addresses, plain, strict=True)
        ]
        if not operations:
            return []
        answer = await self._transport.call("batch", {"operations": operations})
        return [
            self.addresses.entry(record, item, local)
            for item, local in zip(answer["items"], plain, strict=True)
        ]

    async def update(
        self,
        record: Record[T],
        patch: Any,
        /,
        *,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Change some members of a stored record by a merge patch (RFC 7396), whatever others write
        meanwhile; return the entry as stored."""
        reject_others(record)
        address = self.addresses.of(record, fields)
        if ttl is not None:
            await self.transact(
                lambda tx: tx.update(record, patch, ttl=ttl, expect=expect, **fields)
            )
            found = await self.entry(record, **fields)
            if found is None:
                raise NotFoundError("The record is gone again.", record=record.name)
            return found
        body = {**address.target, "value": patch, **_expected(expect)}
        return self.addresses.entry(record, await self._transport.call("patch", body))

    async def delete(
        self, record: Record[Any], /, *, expect: int | Unset | None = ANY, **fields: Any
    ) -> bool:
        """Delete a record, all that is derived from it and all that belongs to it; return whether
        it was there."""
        reject_others(record)
        address = self.addresses.of(record, fields)
        if not isinstance(expect, Unset):
            await self._transport.call("delete", {**address.target, "expect": expect})
            return expect is not None
        for _ in range(TRANSACTION_ATTEMPTS_MAX):
            found = await self.entry(record, **fields)
            body = {**address.target, "expect": None if found is None else found.revision}
            if found is None:
                return False
            try:
                await self._transport.call("delete", body)
            except RevisionError:
                continue
            return True
        raise _contended()

    async def add(self, counter: Counter, by: int, /, **fields: Any) -> None:
        """Add to a counter. No concurrent add is lost."""
        tx = RemoteTransaction(self)
        await tx.add(counter, by, **fields)
        [operation] = tx.operations()
        await self._transport.call("add", operation)

    async def append(self, log: Log[T], event: T, /, **fields: Any) -> Entry[T]:
        """Append an event to a log, and fold it; return the entry as stored."""
        owner = self.addresses.record(log)
        plain = owner.plain(event)
        body = {"log": owner.name, "fields": fields, "value": _without_order(owner, plain)}
        return self.addresses.entry(log, await self._transport.call("append", body), plain)

    async def transact(
        self, work: Callable[[RemoteTransaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R:
        """Run `work` in a transaction and commit it; run it again from the start when it loses a
        race. See `Store.transact`."""
        if not callable(work):
            raise UsageError("A transaction runs an async function of one argument.", given=work)
        if batch_id is not None:
            raise UsageError("A remote store chooses its batch ids itself.", batch_id=batch_id)
        for _ in range(TRANSACTION_ATTEMPTS_MAX):
            tx = RemoteTransaction(self)
            started = work(tx)
            if not hasattr(started, "__await__"):
                raise UsageError(
                    "A transaction runs an async function: write `async def work(tx): …`, or"
                    " return what the verb of `tx` returns.",
                    work=getattr(work, "__qualname__", repr(work)),
                    returned=type(started).__name__,
                )
            result = await started
            if await self._commit(tx):
                return result
        raise _contended()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RemoteTransaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        tx = RemoteTransaction(self)
        yield tx
        if not await self._commit(tx):
            raise ContentionError(
                "Something read in the transaction changed before it committed: run it again."
            )

    async def _commit(self, tx: RemoteTransaction) -> bool:
        """Apply the batch of a transaction; return False if it lost a race."""
        if operations := tx.operations():
            try:
                await self._transport.call("batch", {"operations": operations})
            except RevisionError:
                return False
        return True

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
            raise UsageError("Give `since`: the schema has no record that tells the newest one.")
        return {"record": listed.name, "limit": 1, "filters": {}}


def _transport(schema: Schema, url: str, token: str | None, space: str | None) -> Transport:
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        from keyhouse.remote_store.http_transport import HttpTransport

        return HttpTransport(url, schema.name, token, space)
    if scheme in ("nats", "tls"):
        from keyhouse.remote_store.nats_transport import NatsTransport

        return NatsTransport(url, schema.name, space or schema.space.name)
    raise UsageError("A service is at a URL such as http://localhost:8080.", url=url)


def _expected(expect: int | Unset | None) -> dict[str, Any]:
    return {} if isinstance(expect, Unset) else {"expect": expect}


def _without_order(log: Record[Any], plain: Any) -> Any:
    """Return an event without its position, which the service assigns."""
    if isinstance(log, Log) and log.order in log.attributes and isinstance(plain, dict):
        return {name: value for name, value in plain.items() if name != log.member(log.order)}
    return plain


def _skip(
    item: dict[str, Any],
    error: DataError,
    unreadable: OnUnreadable,
    skipped: list[UnreadableRow],
) -> None:
    if unreadable == "raise":
        raise error
    row = UnreadableRow(Row(item["key"], b"", item["revision"], None), error)
    skipped.append(row)
    if callable(unreadable):
        unreadable(row)


def _contended() -> ContentionError:
    return ContentionError(
        "The transaction lost every race: too many writers of the same rows. Try again later.",
        attempts=TRANSACTION_ATTEMPTS_MAX,
    )
