"""The store: a schema on an engine, bound to one space. It is where a program reads and writes.

    store = Store(SCHEMA, engine, "library-1")
    await store.put(BOOK, Book(id=…, title="…"))
    book = await store.get(BOOK, id=…)
    async for entry in store.scan(BOOK, by=BOOKS_BY_SERIES, series_id=…): …

Every write is a transaction that is retried when it loses a race. A store caches no rows, so there
may be any number of them; but with one store per space, writers that lost a race wait for each
other instead of racing again, and the version of the space is read once.
"""

import asyncio
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

from msgspec.structs import force_setattr

from keyhouse.clock import IdSource, UlidSource
from keyhouse.counter import number_of
from keyhouse.engine import Engine, Row, Span
from keyhouse.errors import (
    ContentionError,
    DataError,
    KeyFieldError,
    NewerError,
    UnreadableError,
    UsageError,
)
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.schema import (
    Count,
    Counter,
    Declared,
    Derived,
    Index,
    KeyMatch,
    Keys,
    Record,
    Schema,
    Summary,
    migration_job,
)
from keyhouse.store.binding import Binding
from keyhouse.store.entry import ANY, Entry, Event, RecordPage, Unset, UsagePage
from keyhouse.store.raw_rows import RawRows
from keyhouse.store.record_reader import read_records, record_values
from keyhouse.store.record_watch import watch_records
from keyhouse.store.removal import delete_with_owned
from keyhouse.store.scan import (
    Scan,
    all_records,
    all_records_by,
    records,
    records_by,
    usage,
)
from keyhouse.store.transaction import Transaction, appended_error
from keyhouse.store.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")
R = TypeVar("R")

Between = tuple[Any, Any]
"""The bounds of a range, the second excluded; None is no bound."""

_REVISION_MAX = 2**63 - 1
_USAGE_PAGE_ROWS = 250
_VERSION_CHECK_MS = 10_000
"""Interval at which a store that writes reads the version of its space."""

_ATTEMPTS_BEFORE_BACKOFF = 8
"""Attempts of a transaction that loses to other processes before it waits between two of them."""


class Store(RawRows):
    """`fixed` are the schema's settings, such as `namespace="main"`. `ids` draws the ids of logs.

    `writes_legacy_keys`: records that have legacy keys are written there, unless they are at their
    current keys already. So that old readers find them, until every program knows the current keys.
    None: as the schema says.
    """

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        space: str,
        *,
        ids: IdSource | None = None,
        writes_legacy_keys: bool | None = None,
        **fixed: str,
    ) -> None:
        if not isinstance(schema, Schema):
            raise UsageError("A store is of a Schema.", given=schema)
        if not hasattr(engine, "commit"):
            raise UsageError("A store is on an engine, which `open_engine` opens.", given=engine)
        if ids is not None and not isinstance(ids, IdSource):
            raise UsageError("The ids of a store come from an IdSource.", given=ids)
        if unknown := sorted(set(fixed) - set(schema.fixed)):
            raise UsageError(
                "The schema has no such setting.", settings=unknown, known=sorted(schema.fixed)
            )
        super().__init__(engine, space)
        self.schema = schema
        self.ids: IdSource = ids or UlidSource(engine.clock)
        self.binding = Binding(
            schema,
            {**schema.fixed, **fixed, **schema.space.bound(space)},
            writes_legacy_keys=(
                schema.writes_legacy_keys if writes_legacy_keys is None else writes_legacy_keys
            ),
        )
        self._now = engine.clock.now
        self._retry_lock = asyncio.Lock()
        self._has_version = schema.meta is not None
        self._version_checked_at = -_VERSION_CHECK_MS

    # Reading

    async def get(self, record: Record[T], /, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        if bound.legacy is None:
            row = (await self.engine.read(self.space, (key,)))[0]
        else:
            row = (await read_records(self.engine, self.space, bound, (key,)))[0]
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
        where there is none, and where the row is unreadable, unless that raises.

        An address holds the key fields of one record: `get_many(BOOK, [{"id": "a"}, {"id": "b"}])`.
        """
        bound = self.binding.record(record)
        keys = [bound.template.build(fields) for fields in addresses]
        absent: Any = 0 if isinstance(record, Counter) else None
        return await record_values(self.engine, self.space, bound, keys, absent, unreadable)

    async def entry(self, record: Record[T], /, **fields: Any) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        return await Transaction(self.engine, self.space, self.binding).entry(record, **fields)

    async def lookup(
        self, record: Record[T], by: Index, /, *, unreadable: OnUnreadable = "raise", **fields: Any
    ) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None."""
        skipped = UnreadableRows(unreadable)
        bound, index = self.binding.index(record, by)
        key = index.template.build(fields)
        seen = 0
        while True:
            [row] = await self.engine.read(self.space, (key,))
            if row is None or row.revision == seen:
                return None  # it is free, or its record no longer has it
            seen, read = row.revision, row  # once more, in case it changed between the two reads
            try:
                values, owner = index.owner_at(key, row.value)
                [found] = await read_records(self.engine, self.space, bound, (owner,))
                if found is None:
                    continue
                read = found
                value = bound.decode(found.value, found.key)
                if bound.is_live(value, found.key, self._now()) and key in index.rows(
                    value, values
                ):
                    return Entry(value, found.key, values, found.revision, found.expires)
            except DataError as error:
                skipped.add(read, error)
                return None

    async def members(self, summary: Summary, /, **fields: Any) -> dict[str, Any]:
        """Return the members that a summary row lists, each with its entry (None in a plain list)."""
        bound = self.binding.derived(summary, Summary)
        [row] = await self.engine.read(self.space, (bound.template.build(fields),))
        return bound.members(None if row is None else row.value)

    async def total(self, count: Count, /, **fields: Any) -> int:
        """Return the number of records that a Count row counts."""
        bound = self.binding.derived(count, Count)
        [row] = await self.engine.read(self.space, (bound.template.build(fields),))
        return 0 if row is None else number_of(row.key, row.value)

    async def sum_of_days(self, counter: Counter, days: int, /, **fields: Any) -> int:
        """Return the sum of a counter by day over the last days (UTC), with today."""
        bound = self.binding.record(counter)
        if not isinstance(bound, Counter):
            raise UsageError("Only a Counter has a sum of days.", given=repr(counter))
        numbers = await self.get_many(counter, bound.days(days, self._now(), fields))
        return sum(number or 0 for number in numbers)

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
        between: Between | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> RecordPage[T]:
        """Return some records whose leading key fields have these values, in key order.

        With `by`, the key is that of the index. The next field may be narrowed further: with
        `prefix`, it starts with this text; with `between=(low, high)`, it is at least `low` and
        less than `high`, where None is no bound. A row that does not decode raises, unless it is to
        be left out: then the page names it.
        """
        if by is None:
            bound = self.binding.record(record)
            scan = self._scan(bound, fields, prefix=prefix, between=between, reverse=reverse)
            return await records(scan, bound, limit, cursor, unreadable)
        bound, index = self.binding.index(record, by)
        scan = self._scan(index, fields, prefix=prefix, between=between, reverse=reverse)
        return await records_by(scan, bound, index, limit, cursor, unreadable)

    async def scan(
        self,
        record: Record[T],
        /,
        *,
        by: Index | None = None,
        limit: int | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: Between | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> AsyncGenerator[Entry[T], None]:
        """Iterate over all records of `page`, or over the first `limit` of them. Each page is read
        at its own revision; between two of them other tasks run."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError("The limit of a scan is a whole number from 1.", limit=limit)
        if by is None:
            bound = self.binding.record(record)
            scan = self._scan(bound, fields, prefix=prefix, between=between, reverse=reverse)
            pages = all_records(scan, bound, unreadable)
        else:
            bound, index = self.binding.index(record, by)
            scan = self._scan(index, fields, prefix=prefix, between=between, reverse=reverse)
            pages = all_records_by(self.space, scan, bound, index, unreadable)
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
        *,
        limit: int = 1_000,
        cursor: str | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        between: Between | None = None,
        **fields: Any,
    ) -> tuple[list[str], str | None]:
        """Return some keys without their values, and the cursor of the next page."""
        scan = self._scan(
            self._bound(declared), fields, prefix=prefix, between=between, reverse=reverse
        )
        page, following = await scan.rows(limit, cursor, keys_only=True)
        return [row.key for row in page.rows], following

    async def count(
        self,
        declared: Declared,
        /,
        *,
        prefix: str | None = None,
        between: Between | None = None,
        **fields: Any,
    ) -> int:
        """Count the rows of `page` by reading their keys."""
        scan = self._scan(self._bound(declared), fields, prefix=prefix, between=between)
        total = 0
        async with aclosing(scan.pages(keys_only=True)) as pages:
            async for page in pages:
                total += len(page.rows)
        return total

    async def watch(
        self,
        declared: Record[T],
        /,
        *,
        since: int | None = None,
        prefix: str | None = None,
        unreadable: OnUnreadable = "raise",
        **fields: Any,
    ) -> AsyncGenerator[Event[T], None]:
        """Iterate over the changes of these records after revision `since` (None: from now on), in
        order, without end.

        The promises are those of `Engine.watch`: nothing is missed and nothing comes twice; an
        expiry shows when it is swept. A record that was written with its own expiry in the past is
        `gone`. A row that does not decode raises, unless it is to be left out; the error has its
        `revision`, and a watch since that resumes after it.
        """
        if since is not None and (type(since) is not int or not 0 <= since <= _REVISION_MAX):
            raise UsageError(
                "A watch starts after a revision: a whole number, as an entry or a page has it.",
                since=since,
            )
        bound = self.binding.record(declared)
        keys = bound.template.range(fields, prefix=prefix)
        events = watch_records(self.engine, self.space, bound, keys, since, unreadable)
        async with aclosing(events):
            async for event in events:
                yield event

    async def record_row(self, record: Record[Any], /, **fields: Any) -> Row | None:
        """Return the row of a record without decoding it, or None; at its legacy key if it is
        there."""
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        if bound.legacy is None:
            return (await self.engine.read(self.space, (key,)))[0]
        # as `read_records`, without its lists: a record found at neither key may just have moved
        old, current = await self.engine.read(self.space, (bound.legacy_key(key), key))
        return current or old or (await self.engine.read(self.space, (key,)))[0]

    async def record_rows(
        self,
        record: Record[Any],
        /,
        *,
        after: Keys | None = None,
        keys_only: bool = False,
        **fields: Any,
    ) -> AsyncGenerator[tuple[Keys, Row], None]:
        """Iterate over the rows of records whose leading key fields have these values, without
        decoding them.

        Each comes with the values of its key, once, in key order. `after` resumes behind the record
        of these values.
        """
        bound = self.binding.record(record)
        scan = self._scan(bound, fields)
        position = None if after is None else bound.template.join(after)
        async with aclosing(scan.pages(position, keys_only=keys_only)) as pages:
            async for page in pages:
                for row in page.rows:
                    yield scan.values(row.key), row

    def span(self, declared: Declared, /, **fields: Any) -> Span:
        """Return the span of a declaration's keys that begin with these fields: for `row_page`."""
        return self._bound(declared).template.span(fields)

    async def usage(
        self, *declared: Declared, page_rows: int = _USAGE_PAGE_ROWS
    ) -> AsyncGenerator[UsagePage, None]:
        """Count the keys and bytes of these declarations' rows, or of the whole space, in key
        order.

        Each page is read at its own revision, so a caller that knows the revisions of its writes
        can tell whether a page includes them. Other tasks run between two pages.
        """
        bound = [self._bound(each) for each in declared]
        async with aclosing(usage(self.engine, self.space, bound, page_rows)) as pages:
            async for page in pages:
                yield page

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration and the fields of a key; None for a key of no template."""
        if not isinstance(key, str):
            raise KeyFieldError("A key must be text.", key=key)
        return self.binding.find(key)

    # Writing

    async def put(
        self,
        record: Record[T],
        value: T,
        /,
        *,
        ttl: int | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write a record and all that is derived from it; return the entry as stored. See
        `Transaction.put`."""
        if self._has_version and self._version_check_due():
            await self._reject_newer()
        bound = self.binding.record(record)
        if bound.appended:
            raise appended_error(bound)
        tx = Transaction(self.engine, self.space, self.binding, self._now())
        entry = await tx.apply_put(bound, value, ttl, expect, fields)
        revision = await tx.commit()
        if revision is None:

            async def work(tx: Transaction) -> tuple[Entry[T], Transaction]:
                return await tx.put(record, value, ttl=ttl, expect=expect, **fields), tx

            entry, tx = await self._retry(work, None)
            revision = tx.revision
        force_setattr(entry, "revision", revision)  # it was made here, and nobody else has it yet
        return entry

    async def delete(
        self, record: Record[Any], /, *, expect: int | Unset | None = ANY, **fields: Any
    ) -> bool:
        """Delete a record, all that is derived from it and all that belongs to it; return whether
        it was there.

        A job deletes more than one commit can hold; another call resumes it if this one is
        interrupted (see `removal`). Raises LinkError if other records still refer to it.
        """
        if self.binding.has_links and self.binding.links(self.binding.record(record))[1]:
            return await delete_with_owned(self, record, expect, fields)
        return await self.transact(lambda tx: tx.delete(record, expect=expect, **fields))

    async def add(self, counter: Counter, by: int, /, **fields: Any) -> None:
        """Add to a counter. No concurrent add is lost."""

        async def work(tx: Transaction) -> None:
            await tx.add(counter, by, **fields)

        await self.transact(work)

    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R:
        """Run `work` in a transaction and commit it; run it again from the start when it loses a
        race.

        `work` must only read and write through the transaction. With a `batch_id`, a repeat after
        an unknown outcome is applied once.
        """
        if self._has_version and self._version_check_due():
            await self._reject_newer()
        tx = Transaction(self.engine, self.space, self.binding)
        result = await work(tx)
        if await tx.commit(batch_id=batch_id) is not None:
            return result
        return await self._retry(work, batch_id)

    async def _retry(self, work: Callable[[Transaction], Awaitable[R]], batch_id: str | None) -> R:
        """Run work that has lost a race again, one at a time within this store, until it commits."""
        async with self._retry_lock:
            for attempt in range(1, TRANSACTION_ATTEMPTS_MAX):
                tx = Transaction(self.engine, self.space, self.binding)
                result = await work(tx)
                if await tx.commit(batch_id=batch_id) is not None:
                    return result
                await self._pause(attempt)
        raise self._contended()

    @asynccontextmanager
    async def transaction(self, *, batch_id: str | None = None) -> AsyncIterator[Transaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        if self._has_version and self._version_check_due():
            await self._reject_newer()
        tx = Transaction(self.engine, self.space, self.binding)
        yield tx
        if await tx.commit(batch_id=batch_id) is None:
            raise ContentionError(
                "Something read in the transaction changed before it committed: run it again."
            )

    def _version_check_due(self) -> bool:
        """Tell whether the version of the space was not read yet, or not for a while."""
        return not 0 <= self._now() - self._version_checked_at < _VERSION_CHECK_MS

    async def _reject_newer(self) -> None:
        """Raise NewerError if newer code has migrated the space or is migrating it: this code would
        write the old shape.

        See ADR 0044.
        """
        meta, now = self.schema.meta, self._now()
        assert meta is not None
        version, job = self.binding.record(meta.version), self.binding.record(meta.job)
        keys = (
            version.template.build({}),
            job.template.build({"name": migration_job(self.schema.version + 1)}),
        )
        stored, migrating = await self.engine.read(self.space, keys)
        with suppress(UnreadableError):  # `verify` reports it, and its repair must be written
            if migrating is not None or (
                stored is not None
                and version.decode(stored.value, stored.key) > self.schema.version
            ):
                raise NewerError(
                    "Newer code has migrated the space or is migrating it: use the newer program.",
                    space=self.space,
                    known=self.schema.version,
                )
        self._version_checked_at = now

    def _scan(
        self,
        bound: Declared,
        fields: dict[str, Any],
        *,
        prefix: str | None = None,
        between: Between | None = None,
        reverse: bool = False,
    ) -> Scan:
        keys = bound.template.range(fields, prefix=prefix, between=between)
        # a range that a span alone does not tell apart is part of what a cursor belongs to
        mark = "" if keys.accepts is None else f"\0{prefix}\0{between}"
        return Scan(self.engine, self.space, self.binding, bound, keys, reverse=reverse, mark=mark)

    def _bound(self, declared: Declared) -> Declared:
        return (
            self.binding.derived(declared)
            if isinstance(declared, Derived)
            else self.binding.record(declared)
        )

    async def _pause(self, attempt: int) -> None:
        if attempt >= _ATTEMPTS_BEFORE_BACKOFF:
            await asyncio.sleep(random.uniform(0, 0.001 * min(attempt, 50)))

    def _contended(self) -> ContentionError:
        return ContentionError(
            "The transaction lost every race: too many writers of the same rows. Try again later.",
            attempts=TRANSACTION_ATTEMPTS_MAX,
            space=self.space,
        )
