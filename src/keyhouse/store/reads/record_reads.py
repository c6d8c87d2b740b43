"""Reads of the records of one space: by key, by an index, in pages, and their changes."""

from collections.abc import (
    AsyncGenerator,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from typing import Any, Never, TypeVar

from keyhouse.advice.arguments import unnamed_fields
from keyhouse.engine import CaughtUp, Engine, Row, Span, number_of
from keyhouse.errors import (
    DataError,
    KeyFieldError,
    UsageError,
)
from keyhouse.schema import (
    BoundRecordCount,
    BoundSchema,
    BoundSummary,
    Counter,
    Declared,
    Index,
    KeyMatch,
    KeyValues,
    Record,
    RecordCount,
    Summary,
)
from keyhouse.store.arguments import lookup_key
from keyhouse.store.entry import Entry, Event, RecordPage, UsagePage, entry_of, live_entry
from keyhouse.store.reads.raw_rows import RawRows
from keyhouse.store.reads.record_scan import RecordScan
from keyhouse.store.reads.record_watch import WatchedRecord, check_watch_start, watch_records
from keyhouse.store.reads.records_by_key import record_entries, record_values
from keyhouse.store.reads.scan import Between, Scan
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRow, UnreadableRows
from keyhouse.store.reads.usage import usage
from keyhouse.store.stored_keys import read_record
from keyhouse.store.writes.record_view import key_values

T = TypeVar("T")


class RecordReads(RawRows):
    """The reading half of a Store: records and derived rows by the schema's declarations."""

    def __init__(self, engine: Engine, space: str, binding: BoundSchema) -> None:
        super().__init__(engine, space)
        self.binding = binding
        self._now = engine.clock.now

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        row = (
            await read_record(self.engine, self.space, bound, key)
            if bound.moves
            else (await self.engine.read(self.space, (key,)))[0]  # no call: `get` is the hot path
        )
        if row is None:
            return 0 if isinstance(record, Counter) else None  # type: ignore[return-value]  # a Counter's T is int
        value = bound.decode(row.value, row.key)
        if bound.expires_by_field and not bound.is_live(value, row.key, self._now()):
            return None
        return value

    async def get_many(
        self,
        record: Record[T],
        addresses: Iterable[Mapping[str, Any]],
        /,
        *,
        unreadable: OnUnreadable = "raise",
    ) -> list[T | None]:
        """Return the records at these addresses, in their order, by one read of the engine; None
        for an absent one, and where the row is unreadable, unless that raises.

        An address holds the key fields of one record: `get_many(BOOK, [{"id": "a"}, {"id": "b"}])`.
        """
        bound = self.binding.record(record)
        keys = [bound.template.build(fields) for fields in addresses]
        absent: Any = 0 if isinstance(record, Counter) else None
        return await record_values(self.engine, self.space, bound, keys, absent, unreadable)

    async def entries(
        self,
        record: Record[T],
        addresses: Iterable[Mapping[str, Any]],
        /,
        *,
        unreadable: OnUnreadable = "raise",
    ) -> list[Entry[T] | None]:
        """Return the records at these addresses with their keys, revisions and expiries, in their
        order. See `get_many`; an absent counter is None."""
        bound = self.binding.record(record)
        keys = [bound.template.build(fields) for fields in addresses]
        return await record_entries(self.engine, self.space, bound, keys, unreadable)

    async def entry(
        self, record: Record[T], /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        row = (
            await read_record(self.engine, self.space, bound, key)
            if bound.moves
            else (await self.engine.read(self.space, (key,)))[0]
        )
        if row is None:
            return None
        entry = entry_of(bound, row, key_values(bound, key, fields))
        if bound.expires_by_field and not bound.is_live(entry.record, key, self._now()):
            return None
        return entry

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
        bound, index = self.binding.index(record, by)
        key = lookup_key(bound, index, fields)
        seen = 0
        while True:
            [row] = await self.engine.read(self.space, (key,))
            if row is None or row.revision == seen:
                return None  # it is free, or its record no longer has it
            seen, read = row.revision, row  # once more, in case it changed between the two reads
            try:
                values, owner = index.owner_at(key, row.value)
                found = await read_record(self.engine, self.space, bound, owner)
                if found is None:
                    continue
                read = found
                entry = live_entry(bound, found, values, self._now())
                if entry is not None and key in index.rows(entry.record, values):
                    return entry
            except DataError as error:
                skipped.add(read, error)
                return None

    async def members(
        self, summary: Summary, /, *positional: Never, **fields: Any
    ) -> dict[str, Any]:
        """Return the members that a summary row lists with their entries (None in a plain list)."""
        if positional:
            raise unnamed_fields(summary, positional)
        bound = self.binding.derived(summary, BoundSummary)
        [row] = await self.engine.read(self.space, (bound.template.build(fields),))
        return bound.members(None if row is None else row.value)

    async def record_count(self, count: RecordCount, /, *positional: Never, **fields: Any) -> int:
        """Return the number of records that a RecordCount row holds."""
        if positional:
            raise unnamed_fields(count, positional)
        bound = self.binding.derived(count, BoundRecordCount)
        [row] = await self.engine.read(self.space, (bound.template.build(fields),))
        return 0 if row is None else number_of(row.key, row.value)

    async def sum_of_days(
        self, counter: Counter, days: int, /, *positional: Never, **fields: Any
    ) -> int:
        """Return the sum of a counter by day over the last days (UTC), with today."""
        if positional:
            raise unnamed_fields(counter, positional)
        self.binding.record(counter)  # rejects one of another schema
        if not isinstance(counter, Counter):
            raise UsageError("Only a Counter has a sum of days.", given=repr(counter))
        numbers = await self.get_many(counter, counter.days(days, self._now(), fields))
        return sum(number or 0 for number in numbers)

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
        between: Between | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> RecordPage[T]:
        """Return some records whose leading key fields have these values, in key order.

        With `by`, the key is that of the index. The next field may be narrowed further: with
        `prefix`, it starts with this text; with `between=(low, high)`, it is at least `low` and
        less than `high`, where None means no bound. A row that does not decode raises, unless it is
        to be left out: then the page names it.
        """
        if positional:
            raise unnamed_fields(by or record, positional)
        scan = RecordScan(self, record, by, fields, prefix=prefix, between=between, reverse=reverse)
        return await scan.page(limit, cursor, unreadable)

    async def scan(
        self,
        record: Record[T],
        /,
        *positional: Never,
        by: Index | None = None,
        limit: int | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: Between | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> AsyncGenerator[Entry[T], None]:
        """Iterate over all records of `page`, or over the first `limit` of them. Each page is read
        at its own revision; between them other tasks run."""
        if positional:
            raise unnamed_fields(by or record, positional)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError("The limit of a scan is a whole number from 1.", limit=limit)
        scan = RecordScan(self, record, by, fields, prefix=prefix, between=between, reverse=reverse)
        pages = scan.pages(unreadable)
        left = limit
        async with aclosing(pages):
            async for entries in pages:
                for entry in entries[:left]:
                    yield entry
                if left is not None and (left := left - len(entries)) <= 0:
                    return

    async def keys(
        self,
        declared: Declared,
        /,
        *positional: Never,
        limit: int = 1_000,
        cursor: str | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: Between | None = None,
        **fields: Any,
    ) -> tuple[list[str], str | None]:
        """Return some keys without their values, and the cursor of the next page."""
        if positional:
            raise unnamed_fields(declared, positional)
        scan = Scan.narrowed(
            self,
            self.binding.bound(declared),
            fields,
            prefix=prefix,
            between=between,
            reverse=reverse,
        )
        page = await scan.rows_after(limit, scan.position(limit, cursor), keys_only=True)
        return [row.key for row in page.rows], scan.cursor(page)

    async def count(
        self,
        declared: Declared,
        /,
        *positional: Never,
        prefix: str | None = None,
        between: Between | None = None,
        **fields: Any,
    ) -> int:
        """Count the rows of `page` by reading their keys."""
        if positional:
            raise unnamed_fields(declared, positional)
        scan = Scan.narrowed(
            self, self.binding.bound(declared), fields, prefix=prefix, between=between
        )
        total = 0
        async with aclosing(scan.pages(keys_only=True)) as pages:
            async for page in pages:
                total += len(page.rows)
        return total

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

        The promises are those of `Engine.watch`: nothing is missed and nothing comes twice; an
        expiry shows when it is swept. A record that was written with its own expiry in the past is
        `gone`. A row that does not decode raises, unless it is to be left out; the error has its
        `revision`, and a watch since that resumes after it.

        `caught_up` is called with a revision whenever all changes up to it were delivered: they are
        whole commits.
        """
        if positional:
            raise unnamed_fields(declared, positional)
        skipped = UnreadableRows(unreadable)
        events = self.record_changes(
            declared, since=since, prefix=prefix, caught_up=caught_up, **fields
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, UnreadableRow):
                    skipped.add(event.row, event.error)
                    skipped.rows.clear()  # a watch has no end
                else:
                    yield event

    def record_changes(
        self,
        *declared: Record[T],
        since: int | None = None,
        prefix: str | None = None,
        caught_up: CaughtUp | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Event[T] | UnreadableRow, None]:
        """Iterate over the changes of one or several records as `watch` does, in one order. A row
        that does not decode is one of them. Several records take no prefix and no fields; none of
        them moves.
        """
        check_watch_start(since)
        bound = [self.binding.record(each) for each in declared]
        watched = [
            WatchedRecord(each, each.template.range(fields, prefix=prefix)) for each in bound
        ]
        return watch_records(self.engine, self.space, watched, since, caught_up)

    async def record_row(self, record: Record[Any], /, **fields: Any) -> Row | None:
        """Return the row of a record without decoding it, or None."""
        bound = self.binding.record(record)
        return await read_record(self.engine, self.space, bound, bound.template.build(fields))

    async def record_rows(
        self,
        record: Record[Any],
        /,
        *,
        after: KeyValues | None = None,
        keys_only: bool = False,
        **fields: Any,
    ) -> AsyncGenerator[tuple[KeyValues, Row], None]:
        """Iterate over the rows of records whose leading key fields have these values, without
        decoding them.

        Each comes with the values of its key, once, in key order. `after` resumes behind the record
        of these values.
        """
        bound = self.binding.record(record)
        scan = Scan.narrowed(self, bound, fields)
        position = None if after is None else bound.template.join(after)
        async with aclosing(scan.pages(position, keys_only=keys_only)) as pages:
            async for page in pages:
                for values, row in zip(scan.values(page), page.rows, strict=True):
                    yield values, row

    def span(self, declared: Declared, /, **fields: Any) -> Span:
        """Return the span of a declaration's keys that begin with these fields: for `row_page`."""
        return self.binding.bound(declared).template.span(fields)

    async def usage(self, *declared: Declared) -> AsyncGenerator[UsagePage, None]:
        """Count the keys and bytes of these declarations' rows, or of the whole space, in key
        order.

        Each page is read at its own revision, so a caller that knows the revisions of its writes
        can tell whether a page includes them. Other tasks run between them.
        """
        bound = [self.binding.bound(each) for each in declared]
        async with aclosing(usage(self.engine, self.space, bound)) as pages:
            async for page in pages:
                yield page

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration and the fields of a key; None for a key of no template."""
        if not isinstance(key, str):
            raise KeyFieldError("A key must be text.", key=key)
        return self.binding.find(key)
