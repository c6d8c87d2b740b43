"""Transactions: every write of records is one, and nothing else turns their changes into a Batch.

Theory of operation. A transaction is optimistic: it takes no locks. It has three parts:

    rows      the rows that it read and will write, which become the Batch (`row_buffer`)
    records   the records in these rows (`record_view`)
    links     what must hold for linked records, asked in `commit` (`link_guard`)

`commit` makes one Batch, and the engine applies it if every check still holds, or not at all. A
failed check is a lost race: the caller runs its work again in a new transaction (`Store.transact`).
So all that was read by key is as it was read, at the moment of the commit; a scan is not protected
against rows that appear in its span.

A put goes through five steps, `apply`, and a delete through the same without a plan:

    1. plan: check the value, set its ids and computed attributes, find its key (`write_plan`);
    2. read the record that it replaces (skipped if nothing depends on it: `is_single_row`), and
       check `expect`;
    3. stamp version, times and expiry, and buffer the record's row;
    4. buffer the difference in the rows that the record owns, and what to add to counts;
    5. read each other row that records share, and merge the difference into it.

Reads see what the transaction has buffered. A write that raises half way leaves nothing behind: the
buffers are restored to what they were before it, and what it read stays checked (`one_write`).
Reads may run concurrently; writes may not, since each decides by rows that the other is about to
write.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Never, Protocol, TypeVar

import msgspec

from keyhouse.advice.arguments import unnamed_fields
from keyhouse.clock import IdSource
from keyhouse.engine import Put
from keyhouse.errors import NotFoundError, RecordError, RevisionError, UsageError
from keyhouse.limits import COUNTER_MAX, EXPIRES_MAX
from keyhouse.schema import BoundRecord, Counter, Index, JobState, KeyValues, Log, Record
from keyhouse.store.arguments import ENDED, check_expect
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.reads.scan import BoundSpace
from keyhouse.store.stored_keys import delete_stored_row, stored_key, written_key
from keyhouse.store.writes import write_plan
from keyhouse.store.writes.link_guard import LinkGuard, LinkNotes, SeenOwners
from keyhouse.store.writes.record_view import RecordView, key_values
from keyhouse.store.writes.row_buffer import Buffered, RowBuffer, Written
from keyhouse.store.writes.shared_rows import entries_of_records, successor_of
from keyhouse.store.writes.write_plan import (
    SharedRowChange,
    WritePlan,
    put_plan,
    restore_plan,
    stored_rows,
)

T = TypeVar("T")

_WRITES: Final = (
    "A transaction writes one record at a time: await each write before you start the next."
)


class WrittenSpace(BoundSpace, Protocol):
    """A space that transactions write: a Store is one. It has the ids of new records, and remembers
    the records that others are linked to."""

    @property
    def ids(self) -> IdSource: ...

    @property
    def seen_owners(self) -> SeenOwners: ...


class Transaction:
    """Reads and buffered writes of one space, committed together: `Store.transact` makes one.

    `is_first_attempt`: another one follows if the commit loses a race, so that it may assume the
    state of rows without reading them.
    """

    __slots__ = ("_blocked", "binding", "links", "now", "records", "revision", "rows", "source")

    def __init__(
        self,
        source: WrittenSpace,
        now: int | None = None,
        *,
        is_first_attempt: bool = False,
    ) -> None:
        engine, binding = source.engine, source.binding
        self.now = engine.clock.now() if now is None else now
        """The one time of this transaction, in the clock's milliseconds."""
        self.binding = binding
        self.source = source
        self.rows = rows = RowBuffer(engine, source.space, is_first_attempt)
        self.records = RecordView(rows, self.now)
        self.links = (
            LinkGuard(rows, binding, self.now, source.seen_owners) if binding.has_links else None
        )
        self.revision = 0
        """The revision of the commit, which is that of every row it wrote; 0 before."""
        self._blocked: str | None = None
        """Why no write may start now; None if one may."""

    # Reading

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        """Return the record, or None. An absent counter is 0."""
        if positional:
            raise unnamed_fields(record, positional)
        found = await self.entry(record, **fields)
        if found is None and isinstance(record, Counter):
            return 0  # type: ignore[return-value]  # a Counter's T is int
        return None if found is None else found.record

    async def entry(
        self, record: Record[T], /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        return await self.records.entry(bound, key, key_values(bound, key, fields))

    async def get_each(
        self, *addresses: tuple[Record[Any], Mapping[str, Any]], ahead: Sequence[str] = ()
    ) -> list[Any]:
        """Return the records at these addresses, in their order, by one read of the engine; None
        for an absent one. Also reads the rows with the keys `ahead`. A record that moves is read
        alone.

        An address is a record and its key fields: `get_each((BOOK, {"id": "a"}), (USER, {"id":
        "u"}))`.
        """
        bound_keys = [
            (bound := self.binding.record(record), bound.template.build(fields))
            for record, fields in addresses
        ]
        keys = [key for bound, key in bound_keys if not bound.moves]
        keys.extend(ahead)
        writes = self.rows.writes
        await self.rows.read([key for key in keys if key not in writes])
        values: list[Any] = []
        for bound, key in bound_keys:
            entry = await self.records.entry(bound, key, ())
            absent = 0 if isinstance(bound.declared, Counter) else None
            values.append(absent if entry is None else entry.record)
        return values

    async def lookup(
        self, record: Record[T], by: Index, /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None."""
        if positional:
            raise unnamed_fields(by, positional)
        bound, index = self.binding.index(record, by)
        key = index.template.build(fields)
        if (row := await self.rows.row(key)) is None:
            return None
        values, owner = index.owner_at(key, row.value)
        found = await self.records.entry(bound, owner, values)
        return found if found is not None and key in index.rows(found.record, values) else None

    async def row(self, key: str) -> Written | None:
        """Return value and expiry of a row as this transaction sees it, or None."""
        row = await self.rows.row(key)
        return None if row is None else (row.value, row.expires)

    # Writing

    async def put(
        self,
        record: Record[T],
        value: T,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write the record and every row derived from it.

        `expect` is the revision that it must be at (None: be absent), else RevisionError. The entry
        shows the record as it is stored: computed attributes, version and times set.
        """
        if positional:
            raise unnamed_fields(record, positional)
        plan = put_plan(self.binding, self.source.ids, record, value, fields, ttl)
        with self.one_write():
            return await self.apply(plan, expect)

    async def put_document(
        self,
        record: Record[T],
        value: T,
        document: Any,
        /,
        *,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write the record as `put` does, with the unknown members of the parsed JSON that its
        value was read from, not those of the stored row. See `Record.keep_from_document`."""
        plan = put_plan(self.binding, self.source.ids, record, value, fields, ttl, document)
        with self.one_write():
            return await self.apply(plan, expect)

    async def update(
        self,
        record: Record[T],
        patch: Any,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Change some members of a stored record by a merge patch (RFC 7396): None removes one.

        Raises NotFoundError if there is no such record. A TTL that was given with the record stays
        as it is.
        """
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        found = await self.entry(record, **fields)
        if found is None:
            if expect is not ANY:
                self._check_expected(bound.template.build(fields), None, expect)
            raise NotFoundError("There is no such record to update.", record=bound.name, **fields)
        value, document = bound.json.patched(found.record, patch, found.stored)
        if ttl is None and bound.expiry is not None and bound.expiry.mode == "write":
            ttl = None if found.expires is None else (found.expires - self.now) / 1_000
        return await self.put_document(record, value, document, ttl=ttl, expect=expect, **fields)

    async def restore(
        self,
        record: Record[T],
        value: T,
        /,
        *positional: Never,
        expires: int | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Put a record as it was: with the times that it holds, expiring at `expires` in the
        clock's milliseconds.

        For imports, for records that come from another key, and for migrations that change events
        of a log, whose fold they leave as it is.
        """
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        if expires is not None and bound.expiry is None:
            raise UsageError("The record is not declared to expire.", record=bound.name)
        if expires is not None and (type(expires) is not int or expires > EXPIRES_MAX):
            raise RecordError(
                "A record expires at a time in the clock's milliseconds.",
                expires=expires,
                most=EXPIRES_MAX,
            )
        with self.one_write():
            return await self.apply(restore_plan(bound, value, fields, expires), expect)

    async def apply(self, plan: WritePlan[T], expect: int | Unset | None = ANY) -> Entry[T]:
        """Buffer a put. If it raises half way, the buffers hold a part of it: a caller whose
        transaction holds something else uses `one_write`."""
        bound, key, rows = plan.bound, plan.key, self.rows
        stored: Entry[T] | None = None
        before: Entry[T] | None = None
        if not bound.is_single_row or expect is not ANY or key in rows.adds:
            at = key
            if bound.moves:
                at = await stored_key(rows, bound, key)
            elif key not in rows.stored and key not in rows.writes:
                await rows.read((key,))
            stored = self.records.seen(bound, at, plan.key_values)
            before = self.records.replaced(bound, stored) if bound.expires_by_field else stored
            if expect is not ANY:
                self._check_expected(key, before, expect)
            if bound.moves:
                key = await written_key(rows, self.binding, bound, key)
        after, put = plan.row(key, before, self.now)
        rows.writes[key] = put
        if rows.adds:
            rows.adds.pop(key, None)
        if bound.derived and (changes := self._derive(bound, stored, after)):
            await self._merge_all(changes)
        if self.links is not None and not plan.is_restored:
            self.links.note_put(bound, before, after)
        return after

    async def delete(
        self,
        record: Record[Any],
        /,
        *positional: Never,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> bool:
        """Delete the record, every row derived from it, and all that belongs to it; return whether
        it was there.

        Raises LinkError in `commit` if other records still refer to it.
        """
        if positional:
            raise unnamed_fields(record, positional)
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        with self.one_write():
            values = await self._delete(bound, key, expect, fields)
            if values is not None and self.links is not None:
                await self.links.delete_owned(bound, key, values, self.delete_record)
        return values is not None

    async def delete_alone(
        self,
        record: Record[Any],
        /,
        *,
        expect: int | Unset | None = ANY,
        job: JobState | None = None,
        **fields: Any,
    ) -> bool:
        """Delete the record and every row derived from it, but not what belongs to it.

        That is deleted by `job`, which the commit starts; without a job, links are not respected:
        for work that deletes all records anyway.
        """
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        with self.one_write():
            values = await self._delete(bound, key, expect, fields)
            if values is not None and job is not None and self.links is not None:
                self.links.note_removal(bound, key, values, job)
        return values is not None

    async def _delete(
        self, bound: BoundRecord[Any], key: str, expect: int | Unset | None, fields: dict[str, Any]
    ) -> KeyValues | None:
        values = key_values(bound, key, fields)
        if expect is not ANY:
            stored = await self.records.stored(bound, key, values)
            self._check_expected(key, self.records.replaced(bound, stored), expect)
        return values if await self.delete_record(bound, key, values) else None

    async def delete_record(self, bound: BoundRecord[Any], key: str, values: KeyValues) -> bool:
        """Buffer the deletion of a bound record and its derived rows; return whether it was
        there."""
        stored = await self.records.stored(bound, key, values)
        if stored is None:
            return False
        await delete_stored_row(self.rows, bound, key)
        await self._merge_all(self._derive(bound, stored, None))
        return self.records.replaced(bound, stored) is not None

    async def add(self, counter: Counter, by: int, /, *positional: Never, **fields: Any) -> None:
        """Add to a counter: concurrent adds do not conflict."""
        if positional:
            raise unnamed_fields(counter, positional)
        if type(by) is not int or abs(by) > COUNTER_MAX:
            raise RecordError("A counter is changed by a whole number of 64 bits.", by=by)
        if not isinstance(counter, Counter):
            raise UsageError("Only a Counter can be added to.", record=repr(counter))
        if self._blocked is ENDED:
            raise UsageError(ENDED)
        bound = self.binding.record(counter)
        fields = counter.address_of(fields, self.now)
        key, rows = bound.template.build(fields), self.rows
        if bound.expiry is not None and key not in rows.writes and key not in rows.adds:
            await self.records.add_expiring(bound, key, by)
        else:
            rows.add(key, by)
        if rows.adds.get(key) == 0:
            del rows.adds[key]
        elif self.links is not None:
            self.links.note_add(bound, key, key_values(bound, key, fields))

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> Entry[T]:
        """Append an event to a log, and fold it in the same commit. See `Store.append`.

        If any part of it fails, nothing of it is written.
        """
        if positional:
            raise unnamed_fields(log, positional)
        from keyhouse.store.writes.log_append import append_event  # it writes through transactions

        with self.one_write():
            return (await append_event(self, log, event, fields))[0]

    async def rewrite(self, record: Record[T], entry: Entry[T], /) -> None:
        """Write a record's derived rows again, whether or not it had them: for migrations that
        declare new ones.

        A put would not write them, since by today's declaration the old record had them too. Counts
        stay as they are: they are counted when the store is opened.
        """
        bound = self.binding.record(record)
        with self.one_write():
            await self._merge_all(self._derive(bound, None, entry, counts=False))

    def write(self, key: str, written: Written | None) -> None:
        """Put or delete one row as it is: for repairs of rows that no record accounts for."""
        self.rows.write(key, written)

    @property
    def pending(self) -> int:
        """Number of rows that a commit would write now."""
        return self.rows.pending

    def discard(self) -> None:
        """Drop all buffered writes; what was read stays checked."""
        self.rows.restore(None)
        if self.links is not None:
            self.links.notes = None

    def _check_expected(
        self, key: str, before: Entry[Any] | None, expect: int | Unset | None
    ) -> None:
        found = None if before is None else before.revision
        if found != expect:
            check_expect(expect)
            raise RevisionError(
                "The record is not at the expected revision.", key=key, expected=expect, found=found
            )

    # Derived rows

    def _derive(
        self,
        bound: BoundRecord[T],
        before: Entry[T] | None,
        after: Entry[T] | None,
        counts: bool = True,
    ) -> list[SharedRowChange]:
        """Buffer the difference between two states of a record in its derived rows. Returns the
        changes of shared rows, for `merge`."""
        rows = self.rows
        if bound.owned:
            rows.writes |= write_plan.owned_changes(bound, before, after)
        if not bound.shared_rows:
            return []
        adds, changes = write_plan.shared_changes(bound, before, after)
        if counts:
            for key, by in adds.items():
                rows.add(key, by)
        return changes

    async def _merge_all(self, changes: list[SharedRowChange]) -> None:
        if len(changes) > 1:
            await self.rows.read([change.key for change in changes])
        for change in changes:
            await self.merge(change)

    async def merge(self, change: SharedRowChange) -> None:
        """Merge one record's change into one row that it shares with others."""
        rows, derived, key = self.rows, change.derived, change.key
        removed, added = change.removed, change.added
        if key not in rows.stored and key not in rows.writes:
            await rows.read((key,))
        found = rows.seen(key)
        row = None if found is None else found.value
        if added is None and derived.has_siblings and await self.still_listed(change):
            return
        base = row
        if derived.has_entries and derived.needs_rebuild(row):
            entries = await entries_of_records(rows, change.bound, derived, key, row)
            base = derived.rebuild(key, row, entries)
        merged = derived.merge(key, base, removed, added)
        if merged is None and row is not None and derived.has_successors:
            merged = await successor_of(rows, derived, key, removed)
        if merged is None:
            if row is not None:
                rows.writes[key] = None
        elif merged != row or (added is not None and derived.is_claimed):
            rows.writes[key] = Put(key, merged, change.expires)

    async def still_listed(self, change: SharedRowChange) -> bool:
        """Return whether another record contributes the same member, which then stays."""
        bound = change.bound
        for sibling in change.derived.siblings(change.key_values):
            entry = await self.records.entry(bound, bound.template.join(sibling), sibling)
            if entry is not None and change.key in stored_rows(change.derived, entry):
                return True
        return False

    # Committing

    async def check_links(self) -> None:
        """Read and check what `commit` would check of linked records. See `LinkGuard.check`."""
        if self.links is not None:
            await self.links.check()

    async def commit(self, *, batch_id: str | None = None) -> int | None:
        """Commit and return the revision; None when a row read here has changed since.

        0 if there is nothing to write; None if assumptions were never checked.
        """
        rows = self.rows
        self._blocked = ENDED
        if not rows.writes and not rows.adds:
            return None if rows.assumed else 0
        if self.links is None:
            revision = await rows.commit(batch_id)
        else:
            revision = await self.links.commit(batch_id, self.delete_record)
        self.revision = revision or 0
        return revision

    def one_write(self) -> "OneWrite":
        """Return the context of one write: if the block raises, nothing of it stays buffered, and
        no other write may start before it ends."""
        return OneWrite(self)


class OneWrite(msgspec.Struct, eq=False):
    """See `Transaction.one_write`."""

    tx: Transaction
    copied: Buffered | None = None
    notes: LinkNotes | None = None

    def __enter__(self) -> None:
        tx = self.tx
        if tx._blocked is not None:
            raise UsageError(tx._blocked)
        tx._blocked = _WRITES
        self.copied = tx.rows.copied()
        if tx.links is not None and tx.links.notes is not None:
            self.notes = tx.links.notes.copy()

    def __exit__(self, kind: object, *_: object) -> None:
        tx = self.tx
        tx._blocked = None
        if kind is not None:
            tx.rows.restore(self.copied)
            if tx.links is not None:
                tx.links.notes = self.notes
