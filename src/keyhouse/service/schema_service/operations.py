"""The operations of a served schema, the same for HTTP and NATS.

Each works in one space, on declarations of the catalog, and returns what both protocols send. An
answer shows a value only to callers who may read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET

from keyhouse.engine import Engine
from keyhouse.errors import ConflictError, NewerError, NotFoundError, RevisionError, UsageError
from keyhouse.keyring import KeyRing
from keyhouse.read_meter import report_read
from keyhouse.schema import RecordCount, Schema, Summary, Unique
from keyhouse.schema.operation import OPERATIONS, Access
from keyhouse.service.key_locks import KeyLocks
from keyhouse.service.limits import (
    SERVED_CLEAR_RECORDS,
    SERVED_PAGE_BYTES_MAX,
    SERVED_PAGE_ITEMS_MAX,
    SERVED_PAGE_KEYS_MAX,
)
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.schema_service.answers import (
    ClearedRecords,
    CounterValue,
    FoundItems,
    ListedKeys,
    ServedItem,
    ServedPage,
    SummaryMembers,
    item_of,
)
from keyhouse.service.schema_service.bounded_page import BoundedPages
from keyhouse.service.schema_service.catalog import Fields, ServedDerived, ServedRecord
from keyhouse.service.schema_service.omitted_rows import OmittedRows
from keyhouse.service.schema_service.operation_store import OperationStore
from keyhouse.service.schema_service.page_filters import no_index, page_arguments
from keyhouse.service.schema_service.preparation import Preparation, SpaceState
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota, Reservation
from keyhouse.store import (
    Entry,
    OnUnreadable,
    RecordPage,
    Store,
    Transaction,
    append_in,
    clear,
    first_entries,
    page_within,
    record_keys,
)
from keyhouse.store.reads.long_read import LongRead

__all__ = [
    "OPERATIONS",
    "PAGE_ITEMS",
    "OnUnreadableItem",
    "SpaceOperations",
    "patch_in",
    "put_in",
]

PAGE_ITEMS: Final = 50
"""Items of a page, by default."""

Check = Callable[[int | None], None]
"""Raises RevisionError if a record at this revision (None: no record) must not be written."""

OnUnreadableItem = Literal["raise", "skip"]
"""A record that does not decode is an error of the request, or is left out and named."""

R = TypeVar("R")


class SpaceOperations(Tenant):
    """The operations in one space."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        quota: Quota,
        *,
        schema: Schema,
        preparation: Preparation | None = None,
        key_ring: KeyRing | None = None,
        log: OperationLog | None = None,
    ) -> None:
        super().__init__(name, schema, engine, quota, key_ring=key_ring)
        self.state = SpaceState(
            self.store, preparation or Preparation(schema, engine, lambda space: self.store)
        )
        self._pages = BoundedPages(self.store.space)
        self.large_writes = asyncio.Lock()
        """Held by a write of many records: of one space, one runs at a time."""
        self._adds = KeyLocks()
        self._log = log
        self._operation_stores: dict[Access, OperationStore] = {}

    def operation_store(self, access: Access) -> OperationStore:
        """Return the store for operations of one's own."""
        store = self._operation_stores.get(access)
        if store is None:
            store = self._operation_stores[access] = OperationStore(self, access)
        return store

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        *,
        reservation: Reservation | None = None,
        batch_id: str | None = None,
    ) -> tuple[R, int]:
        """Run a write, unless the space is being migrated."""
        if not self.state.is_writable:
            await self.state.check_write()
        return await self._unless_newer(
            super().transact(work, reservation=reservation, batch_id=batch_id)
        )

    async def _unless_newer(self, write: Awaitable[R]) -> R:
        """Raise PreparingError instead of NewerError if newer code has migrated the space."""
        try:
            return await write
        except NewerError:
            await self.state.check_newer()
            raise  # a row is newer, not the space

    async def watched_store(self) -> Store:
        """Return the store for a watch. Raises PreparingError while a list would: a watch continues
        one."""
        if not self.state.is_readable:
            await self.state.check_read()
        return self.store

    async def get(self, served: ServedRecord, fields: Fields) -> ServedItem:
        if not self.state.is_readable:
            await self.state.check_read()
        found = await self.store.entry(served.record, **fields)
        if found is None:
            raise _absent(served, fields)
        return item_of(served, found)

    async def get_many(
        self,
        served: ServedRecord,
        addresses: Sequence[Mapping[str, Any]],
        *,
        unreadable: OnUnreadableItem = "raise",
        bytes_max: int = SERVED_PAGE_BYTES_MAX,
    ) -> FoundItems:
        """Return the records at these addresses, or the values of counters, in their order; null
        where there is none. Large ones are cut as a page is: the items are those of the first
        addresses."""
        if not 1 <= len(addresses) <= SERVED_PAGE_ITEMS_MAX:
            raise UsageError(
                "The number of addresses is out of range.",
                given=len(addresses),
                most=SERVED_PAGE_ITEMS_MAX,
            )
        if not self.state.is_readable:
            await self.state.check_read()
        asked = [served.of_json(fields) for fields in addresses]
        if served.kind == "counter":
            numbers = await self.store.get_many(served.record, asked)
            report_read(len(numbers), 0)
            return FoundItems([CounterValue(number or 0) for number in numbers])

        omitted = OmittedRows()
        on_unreadable: OnUnreadable = "raise" if unreadable == "raise" else omitted.add

        def read(step: LongRead, keys: Sequence[str]) -> Awaitable[list[Entry[Any] | None]]:
            return first_entries(self.store, step, served.record, keys, unreadable=on_unreadable)

        keys = record_keys(self.store, served.record, asked)
        item = partial(item_of, served)
        items = await self._pages.read_each(served.name, read, item, keys, bytes_max)
        if omitted:
            await self.state.check_newer()
        return FoundItems(items, omitted.items("get_many", self.name, self._log))

    async def lookup(
        self, served: ServedRecord, by: ServedDerived[Unique], fields: Fields
    ) -> ServedItem:
        """Return the record that a unique row leads to."""
        await self._check_row(served, by)
        found = await self.store.lookup(served.record, by.row, **fields)
        if found is None:
            pairs = zip(by.row.template.fields, by.row.template.segments, strict=True)
            shown = {
                name: fields[name] for name, segment in pairs if not segment.innermost.is_hashed
            }
            raise _absent(served, shown)
        return item_of(served, found)

    async def page(
        self,
        served: ServedRecord,
        filters: Mapping[str, Any],
        *,
        by: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = PAGE_ITEMS,
        cursor: str | None = None,
        bytes_max: int = SERVED_PAGE_BYTES_MAX,
    ) -> ServedPage:
        """Return some records: leading fields by equality, the next one by range or prefix.

        `filters` has text or JSON for each parameter: `minutes`, `minutes.from`, `minutes.to`,
        `title.prefix`.
        """
        if not 1 <= limit <= SERVED_PAGE_ITEMS_MAX:
            raise UsageError(
                "The limit of a page is out of range.", limit=limit, most=SERVED_PAGE_ITEMS_MAX
            )
        if by is not None and by not in served.indexes:
            raise no_index(served, by=by)
        index = None if by is None else served.indexes[by]
        await self._check_row(served, index)
        arguments = page_arguments(served, index, filters)
        omitted = OmittedRows(index)

        def read(step: LongRead, limit: int, cursor: str | None) -> Awaitable[RecordPage[Any]]:
            return page_within(
                self.store,
                step,
                served.record,
                by=None if index is None else index.row,
                limit=limit,
                cursor=cursor,
                reverse=order == "desc",
                unreadable=omitted.add,
                **arguments,
            )

        items, revision, more = await self._pages.read(
            served.name, read, partial(item_of, served), limit, cursor, bytes_max
        )
        if omitted:  # they may be rows of newer code
            await self.state.check_newer()
        left_out = omitted.items("list", self.name, self._log)
        return ServedPage(items, revision, UNSET if more is None else more, left_out)

    async def keys(
        self,
        served: ServedRecord,
        filters: Mapping[str, Any],
        *,
        by: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = PAGE_ITEMS,
        cursor: str | None = None,
    ) -> ListedKeys:
        """Return some keys of a record or of a derived row, without values. See `page`."""
        if not 1 <= limit <= SERVED_PAGE_KEYS_MAX:
            raise UsageError("A page has 1 to 1,000 keys.", limit=limit, most=SERVED_PAGE_KEYS_MAX)
        if by is not None and by not in served.derived:
            raise no_index(served, by=by)
        row = None if by is None else served.derived[by]
        await self._check_row(served, row)
        keys, following = await self.store.keys(
            served.record if row is None else row.row,
            limit=limit,
            cursor=cursor,
            reverse=order == "desc",
            **page_arguments(served, row, filters),
        )
        report_read(len(keys), sum(map(len, keys)))
        return ListedKeys(keys, UNSET if following is None else following)

    async def record_count(
        self, served: ServedRecord, by: ServedDerived[RecordCount], fields: Fields
    ) -> CounterValue:
        """Return the number of records that a count row holds."""
        await self._check_row(served, by)
        return CounterValue(await self.store.record_count(by.row, **fields))

    async def members(
        self, served: ServedRecord, by: ServedDerived[Summary], fields: Fields
    ) -> SummaryMembers:
        """Return the members that a summary row lists."""
        await self._check_row(served, by)
        return SummaryMembers(await self.store.members(by.row, **fields))

    async def _check_row(self, served: ServedRecord, by: ServedDerived[Any] | None) -> None:
        """Raise AccessError for rows that show private members, and PreparingError while a list
        would lack records."""
        if by is not None:
            served.check_shown(by.row)
        if not self.state.is_readable:
            await self.state.check_read()
        if by is not None and not self.state.is_complete:
            await self.state.check_index(served.record, by.row)

    async def create(self, served: ServedRecord, plain: Any, fields: Fields) -> ServedItem:
        """Write a record that must not exist. `fields` are the key fields that it does not hold."""
        value = served.value_of(plain, fields)

        async def work(tx: Transaction) -> Entry[Any]:
            return await tx.put_document(served.record, value, plain, expect=None, **fields)

        try:
            entry, revision = await self.transact(work)
        except RevisionError as error:
            raise ConflictError("The record already exists.", key=error.fields["key"]) from None
        return item_of(served, entry, revision)

    async def put(
        self,
        served: ServedRecord,
        plain: Any,
        fields: Fields,
        *,
        check: Check | None = None,
        ttl: float | None = None,
    ) -> tuple[ServedItem, bool]:
        """Write a record; return its item, and whether it is new. Private members that are left out
        stay as they are."""

        async def work(tx: Transaction) -> tuple[Entry[Any], bool]:
            return await put_in(tx, served, plain, fields, check=check, ttl=ttl)

        (entry, is_new), revision = await self.transact(work)
        return item_of(served, entry, revision), is_new

    async def patch(
        self, served: ServedRecord, patch: Any, fields: Fields, *, check: Check | None = None
    ) -> ServedItem:
        """Change some members of a record by a merge patch."""

        async def work(tx: Transaction) -> Entry[Any]:
            return await patch_in(tx, served, patch, fields, check=check)

        entry, revision = await self.transact(work)
        return item_of(served, entry, revision)

    async def delete(
        self, served: ServedRecord, fields: Fields, *, check: Check | None = None
    ) -> bool:
        """Delete a record and all that belongs to it; return whether it was there."""
        if self.store.schema.has_links:
            if not self.state.is_writable:
                await self.state.check_write()
            expected: dict[str, Any] = {}
            if check is not None:
                found = await self.store.entry(served.record, **fields)
                check(None if found is None else found.revision)
                expected = {"expect": None if found is None else found.revision}
            return await self._unless_newer(self.store.delete(served.record, **expected, **fields))

        async def work(tx: Transaction) -> bool:
            if check is not None:
                found = await tx.entry(served.record, **fields)
                check(None if found is None else found.revision)
            return await tx.delete(served.record, **fields)

        return (await self.transact(work))[0]

    async def count(self, served: ServedRecord, fields: Fields) -> CounterValue:
        if not self.state.is_readable:
            await self.state.check_read()
        return CounterValue(await self.store.get(served.record, **fields) or 0)

    async def sum_of_days(self, served: ServedRecord, days: int, fields: Fields) -> CounterValue:
        """Return the sum of a counter by day over the last days, with today."""
        if not self.state.is_readable:
            await self.state.check_read()
        counter: Any = served.record
        return CounterValue(await self.store.sum_of_days(counter, days, **fields))

    async def clear(self) -> ClearedRecords:
        """Delete some records of the space."""
        if not self.state.is_writable:
            await self.state.check_write()
        async with self.large_writes:
            await self.state.check_newer()  # it deletes rows without decoding them
            deleted, done = await clear(self.store, records_max=SERVED_CLEAR_RECORDS)
        if done and self.usage is not None:
            await self.usage.count()
        return ClearedRecords(deleted, not done)

    async def add(
        self,
        served: ServedRecord,
        by: int,
        fields: Fields,
        *,
        key: str | None = None,
        shows_value: bool = True,
    ) -> CounterValue:
        """Add to a counter, once for each idempotency key; return the value that this addition
        made.

        For that its commit depends on the value, so adds of one counter run one after the other;
        those that wait share a commit. A repeat returns the value of now. Without `shows_value`,
        adds do not depend on each other.
        """
        counter: Any = served.record
        dated = counter.address_of(fields, self.store.engine.clock.now())
        target = ("add", served.name, *map(str, fields.values()))
        if not shows_value:
            await self.once(lambda tx: tx.add(counter, by, **dated), key, *target)
            return CounterValue()
        [row] = record_keys(self.store, counter, [dated])

        async def work(tx: Transaction) -> tuple[int, int]:
            with tx.one_write():
                await tx.add(counter, by, **dated)
                return await tx.get(counter, **dated) or 0, tx.rows.revision_read(row)

        if key is None and self.usage is None and self._adds.is_written(row):
            return CounterValue((await self._adds.write_grouped(row, work, self._result))[0])
        with self._adds.write(row) as earlier:
            for each in earlier:
                await each.finished()
            added, revision = await self.once(work, key, *target)
        if added is None or (key is not None and 0 < revision <= added[1]):  # applied before
            return await self.count(served, dated)
        return CounterValue(added[0])

    async def _result(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        return (await self.transact(work))[0]

    async def append(self, served: ServedRecord, plain: Any, fields: Fields) -> ServedItem:
        """Append an event to a log, and fold it."""
        value = served.value_of(plain, fields)

        async def work(tx: Transaction) -> Entry[Any]:
            return await self.append_in(tx, served, value, fields)

        entry, revision = await self.transact(work)
        return item_of(served, entry, revision)

    async def append_in(
        self, tx: Transaction, served: ServedRecord, value: Any, fields: Fields
    ) -> Entry[Any]:
        if served.order in fields:
            raise UsageError(
                "The position of an event is assigned by the service.", field=served.order
            )
        return await append_in(tx, self.store.ids, served.record, value, **fields)  # type: ignore[arg-type]  # it is a Log

    async def once(
        self, work: Callable[[Transaction], Awaitable[R]], key: str | None, *target: str
    ) -> tuple[R | None, int]:
        """Run a transaction; with an idempotency key, only if it was not applied before. A repeat
        returns no result, and the revision of the first."""
        if key is None:
            return await self.transact(work)
        batch_id = sha256("\0".join(("idempotency", *target, key)).encode()).hexdigest()
        if (revision := await self.store.applied(batch_id)) is not None:
            return None, revision
        return await self.transact(work, batch_id=batch_id)


async def put_in(
    tx: Transaction,
    served: ServedRecord,
    plain: Any,
    fields: Fields,
    *,
    check: Check | None = None,
    ttl: float | None = None,
) -> tuple[Entry[Any], bool]:
    """Write a record within a transaction; return its entry, and whether it is new."""
    before = await tx.entry(served.record, **fields)
    if check is not None:
        check(None if before is None else before.revision)
    if before is not None and served.record.private and isinstance(plain, dict):
        stored = served.record.plain(before.record)
        members = [served.record.member(name) for name in served.record.private]
        plain = {name: stored[name] for name in members if name in stored} | plain
    if before is not None:
        plain = served.record.merge_from_row(plain, before.stored)
    value = served.value_of(plain, fields)
    return await tx.put_document(served.record, value, plain, ttl=ttl, **fields), before is None


async def patch_in(
    tx: Transaction,
    served: ServedRecord,
    patch: Any,
    fields: Fields,
    *,
    check: Check | None = None,
    ttl: float | None = None,
) -> Entry[Any]:
    """Change a record by a merge patch within a transaction."""
    before = await tx.entry(served.record, **fields)
    if check is not None:
        check(None if before is None else before.revision)
    if before is None:
        raise _absent(served, fields)
    if served.may_move(patch):
        value, _ = served.record.patched(before.record, patch, before.stored)
        served.check_address(value, fields)
    return await tx.update(served.record, patch, ttl=ttl, **fields)


def _absent(served: ServedRecord, fields: Fields) -> NotFoundError:
    address = [msgspec.to_builtins(value) for value in fields.values()]
    return NotFoundError("There is no such record.", record=served.name, address=address)
