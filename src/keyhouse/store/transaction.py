"""Transactions: every write of records is one, and nothing else turns their changes into a Batch.

Theory of operation. A transaction is optimistic: it takes no locks. It keeps three maps by key
(`row_buffer`):

    _rows      each row that was read, as it was (None: absent)  -> Checks
    _writes    each row to put, or None to delete                -> Puts and deletes
    _adds      what to add to each counter, without reading it   -> Adds

`commit` makes one Batch of them, and the engine applies it if every check still holds, or not at
all. A failed check is a lost race: the caller runs its work again in a new transaction
(`Store.transact`). So all that was read by key is as it was read, at the moment of the commit; a
scan is not protected against rows that appear in its span.

A put or delete of a record goes through four steps:

    1. read the record that it replaces (skipped if nothing depends on it: `is_single_row`);
    2. check `expect`, stamp version, times and expiry, and buffer the record's row;
    3. buffer the difference in the rows that the record owns (`write_plan`);
    4. read each row that it shares with other records, and merge the difference into it.

Reads see what the transaction has buffered: `_writes` first, then `_rows` plus `_adds`. A write
that raises half way leaves nothing behind: the buffers are restored to what they were before it,
and what it read stays checked. Reads may run concurrently; writes may not, since each decides by
rows that the other is about to write.
"""

from typing import Any, Never, TypeVar

from keyhouse.arguments import unnamed_fields
from keyhouse.counter import sum_of
from keyhouse.engine import Put, Span, check_key
from keyhouse.errors import (
    NotFoundError,
    RecordError,
    RevisionError,
    UsageError,
)
from keyhouse.limits import COUNTER_MAX, EXPIRES_MAX
from keyhouse.schema import Counter, Derived, First, JobState, Keys, Log, Record, Summary
from keyhouse.store import write_plan
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.record_buffer import RecordBuffer, key_values
from keyhouse.store.row_buffer import Removal, concurrent_write
from keyhouse.store.summary_rebuild import rebuilt_entries
from keyhouse.store.write_plan import appended_error, stamped, stored_rows

T = TypeVar("T")

Merge = tuple[Record[Any], Any, str, Keys, Any, Any, int | None]
"""The arguments of one `Transaction.merge`."""

_OFFERED = (
    *("get", "entry", "get_each", "lookup", "put", "update", "delete", "add", "append"),
    *("restore", "rewrite", "now", "revision"),
)
"""Verbs that completion offers."""

_SUCCESSOR_PAGE_ROWS = 8

_EXPIRY_MARGIN_MS = 60_000
"""Time before the expiry of a counter in which it is not added to without a check. No commit is in
flight for so long."""


class Transaction(RecordBuffer):
    """Reads and buffered writes of one space, committed together: `Store.transact` makes one."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        """List the verbs for completion, without what the store uses."""
        return [*_OFFERED, *(name for name in object.__dir__(self) if name.startswith("__"))]

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
        return await self._put(record, value, ttl, expect, fields)

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
        return await self._put(record, value, ttl, expect, fields, document)

    async def _put(
        self,
        record: Record[T],
        value: T,
        ttl: float | None,
        expect: int | Unset | None,
        fields: dict[str, Any],
        document: Any = None,
    ) -> Entry[T]:
        bound = self.binding.record(record)
        if bound.appended:
            raise appended_error(bound)
        if self._is_writing:  # what `one_write` does, without the cost of a context
            raise concurrent_write()
        self._is_writing = True
        saved = self._saved()
        try:
            return await self.apply_put(bound, value, ttl, expect, fields, None, document)
        except BaseException:
            self._restore(saved)
            raise
        finally:
            self._is_writing = False

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
        value, document = bound.patched(found.record, patch, found.stored)
        if ttl is None and bound.expiry is not None and bound.expiry.mode == "write":
            ttl = None if found.expires is None else (found.expires - self._now) / 1_000
        return await self._put(record, value, ttl, expect, fields, document)

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
            return await self.apply_put(bound, value, None, expect, fields, restored=(expires,))

    async def apply_put(
        self,
        bound: Record[T],
        value: T,
        ttl: float | None,
        expect: int | Unset | None,
        fields: dict[str, Any],
        restored: tuple[int | None] | None = None,
        document: Any = None,
        address: tuple[Keys, str] | None = None,
    ) -> Entry[T]:
        """Buffer a put of a bound record. If it raises half way, the buffers hold a part of it.

        `put` guards against that; `Store.put` need not, since its transaction holds nothing else.
        `restored` holds the expiry of a record that keeps its times, `document` the JSON that the
        value was read from, `address` its key values and key, if they are known.
        """
        if bound.is_struct and not isinstance(value, bound.type):
            raise bound.other_type(value)
        if bound.generated and restored is None and self.binding.ids is not None:
            value = bound.with_ids(value, self.binding.ids.new)
        if bound.computed:
            value = bound.compute(value)
        keys, key = bound.address(value, fields) if address is None else address
        stored: Entry[T] | None = None
        before: Entry[T] | None = None
        replaced: bytes | None = None
        if not bound.is_single_row or expect is not ANY or key in self._adds:
            if bound.legacy is not None:
                stored = await self._stored(bound, key, keys)
            else:
                if key not in self._rows and key not in self._writes:
                    row = (await self._engine.read(self._space, (key,)))[0]
                    self._rows.setdefault(key, row)
                stored = self.seen(bound, key, keys)
            before = self._replaced(bound, stored) if bound.expires_by_field else stored
            if expect is not ANY:
                self._check_expected(key, before, expect)
            replaced = self._value_at(before.key) if before and bound.keeps_unknown else None
            if bound.legacy is not None:
                key = await self._leave_one_key(bound, key)
        after, put = stamped(
            bound, value, keys, key, before, ttl, self._now, restored, replaced, document
        )
        self._writes[key] = put
        merges = self._derive(bound, stored, after) if bound.derived else ()
        if self._adds:
            self._adds.pop(key, None)
        for merge in merges:
            await self.merge(*merge)
        if self.binding.has_links and restored is None:
            self._note_put(bound, before, after)
        return after

    async def _leave_one_key(self, bound: Record[Any], key: str) -> str:
        """Return the key at which to write a record that has legacy keys, and delete the row at the
        other one.

        That is the current key; the legacy one, if the store writes those and the record is not at
        its current key.
        """
        legacy = bound.legacy_key(key)
        if self.binding.writes_legacy_keys and await self.row(key) is None:
            check_key(legacy)
            return legacy
        if await self.row(legacy) is not None:
            self._writes[legacy] = None
        return key

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
            keys = await self._delete(bound, key, expect, fields)
            if keys is not None and self.binding.has_links:
                await self._delete_owned(bound, key, keys)
        return keys is not None

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
            keys = await self._delete(bound, key, expect, fields)
            if keys is not None and job is not None:
                self._noted().removed[key] = Removal(bound, keys, job)
        return keys is not None

    async def _delete(
        self, bound: Record[Any], key: str, expect: int | Unset | None, fields: dict[str, Any]
    ) -> Keys | None:
        keys = key_values(bound, key, fields)
        if expect is not ANY:
            stored = await self._stored(bound, key, keys)
            self._check_expected(key, self._replaced(bound, stored), expect)
        return keys if await self._delete_alone(bound, key, keys) else None

    async def _delete_alone(self, bound: Record[Any], key: str, keys: Keys) -> bool:
        stored = await self._stored(bound, key, keys)
        if stored is None:
            return False
        self._writes[stored.key] = None
        if bound.legacy is not None and await self.row(bound.legacy_key(key)) is not None:
            self._writes[bound.legacy_key(key)] = None
        self._adds.pop(key, None)
        for merge in self._derive(bound, stored, None):
            await self.merge(*merge)
        return self._replaced(bound, stored) is not None

    async def add(self, counter: Counter, by: int, /, *positional: Never, **fields: Any) -> None:
        """Add to a counter: concurrent adds do not conflict."""
        if positional:
            raise unnamed_fields(counter, positional)
        if type(by) is not int or abs(by) > COUNTER_MAX:
            raise RecordError("A counter is changed by a whole number of 64 bits.", by=by)
        if not isinstance(counter, Counter):
            raise UsageError("Only a Counter can be added to.", record=repr(counter))
        bound = self.binding.record(counter)
        fields = counter.address_of(fields, self._now)
        key = bound.template.build(fields)
        if bound.expiry is not None and key not in self._writes and key not in self._adds:
            await self._add_expiring(bound, key, by)
        else:
            self._add(key, by)
        if self._adds.get(key) == 0:
            del self._adds[key]
        elif self.binding.has_links:
            self._note_add(bound, key, key_values(bound, key, fields))

    async def _add_expiring(self, bound: Record[Any], key: str, by: int) -> None:
        """Add to a counter that expires.

        Its first add puts the row, with its expiry; later ones add without a check, so that they do
        not conflict. But an add to a row that expires before the commit would create one that
        stays: in the last minute, adds are puts too.
        """
        if key in self._rows:
            row = self._rows[key]
        else:
            [row] = await self._engine.read(self._space, (key,))
        expires = None if row is None else row.expires
        if expires is not None and expires - self._now > _EXPIRY_MARGIN_MS:
            self._add(key, by)
            return
        self._rows.setdefault(key, row)
        value = sum_of(key, None if row is None else row.value, by)
        self._writes[key] = Put(key, value, bound.expires(by, expires, None, self._now))

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> None:
        """Append an event to a log, and fold it in the same commit. See `Store.append`."""
        if positional:
            raise unnamed_fields(log, positional)
        from keyhouse.store.jobs.log_append import append_in  # it writes through transactions

        assert self.binding.ids is not None  # that of a store has them
        await append_in(self, self.binding.ids, log, event, **fields)

    async def rewrite(self, record: Record[T], entry: Entry[T], /) -> None:
        """Write a record's derived rows again, whether or not it had them: for migrations that
        declare new ones.

        A put would not write them, since by today's declaration the old record had them too. Counts
        stay as they are: they are counted when the store is opened.
        """
        bound = self.binding.record(record)
        if not isinstance(entry, Entry):
            raise UsageError(
                "The record is rewritten from its Entry, as a read or a scan gives it.", given=entry
            )
        with self.one_write():
            for merge in self._derive(bound, None, entry, counts=False):
                await self.merge(*merge)

    def _check_expected(
        self, key: str, before: Entry[Any] | None, expect: int | Unset | None
    ) -> None:
        found = None if before is None else before.revision
        if found != expect:
            raise RevisionError(
                "The record is not at the expected revision.", key=key, expected=expect, found=found
            )

    # Derived rows

    def _derive(
        self,
        bound: Record[T],
        before: Entry[T] | None,
        after: Entry[T] | None,
        *,
        counts: bool = True,
    ) -> list[Merge]:
        """Buffer the difference between two states of a record in its derived rows.

        Returns the changes of rows that must be read first, because other records share them: each
        for `merge`.
        """
        self._writes |= write_plan.owned_changes(bound, before, after)
        if not bound.shared_rows:
            return []
        expires = None if after is None else after.expires
        same_expiry = before is not None and after is not None and before.expires == expires
        merges: list[Merge] = []
        for derived in (
            bound.changed_shared(before.record, after.record)  # type: ignore[union-attr]  # both are there
            if same_expiry
            else bound.shared_rows
        ):
            removed = {} if before is None else stored_rows(derived, before)
            added = {} if after is None else derived.rows(after.record, after.values)
            if same_expiry and removed == added:
                continue
            if derived.strategy == "add":
                for key in removed.keys() ^ added.keys() if counts else ():
                    self._add(key, added.get(key, 0) - removed.get(key, 0))
            else:
                keys = (after or before).values  # type: ignore[union-attr]  # one of the two is there
                for key in dict.fromkeys((*removed, *added)):
                    merges.append(
                        (bound, derived, key, keys, removed.get(key), added.get(key), expires)
                    )
        return merges

    async def merge(
        self,
        bound: Record[Any],
        derived: Any,
        key: str,
        keys: Keys,
        removed: Any,
        added: Any,
        expires: int | None,
    ) -> None:
        """Merge one record's change into one row that it shares with others."""
        written = await self.row(key)
        row = None if written is None else written[0]
        if (
            added is None
            and isinstance(derived, Summary)
            and await self._still_listed(bound, derived, key, keys)
        ):
            return
        if isinstance(derived, Summary) and derived.needs_rebuild(row):
            rebuilt = await rebuilt_entries(
                self._engine, self._space, bound, derived, key, row, self._writes
            )
            merged = derived.merge(key, row, removed, added, rebuilt)
        else:
            merged = derived.merge(key, row, removed, added)
        if merged is None and row is not None and isinstance(derived, First):
            merged = await self._successor(derived, key, removed)
        if merged is not None:
            # an unchanged row of another record keeps its expiry, and a list its revision
            if merged != row or (added is not None and not isinstance(derived, Summary)):
                self._writes[key] = Put(key, merged, expires)
        elif row is not None:
            self._writes[key] = None

    async def _still_listed(
        self, bound: Record[Any], derived: Derived, key: str, keys: Keys
    ) -> bool:
        """Return whether another record contributes the same member, which then stays."""
        for sibling in derived.siblings(keys):
            entry = await self.entry_at(bound, bound.template.join(sibling), sibling)
            if entry is not None and key in stored_rows(derived, entry):
                return True
        return False

    async def _successor(self, derived: First, key: str, leaving: bytes) -> bytes | None:
        """Return the value of a First row whose holder leaves: the first of the other records in
        `among`, or None."""
        values = derived.template.parse(key)
        assert values is not None
        span = derived.among.template.span(values)
        buffered = sorted(
            (put.key, successor)
            for put in self._writes.values()
            if put is not None
            and put.key in span
            and (successor := derived.successor(put.key, put.value)) != leaving
        )
        stored = await self._stored_successor(derived, span, leaving)
        return min([*buffered[:1], *stored], default=("", None))[1]

    async def _stored_successor(
        self, derived: First, span: Span | None, leaving: bytes
    ) -> list[tuple[str, bytes]]:
        while span is not None:
            page = await self._engine.scan(self._space, span, limit=_SUCCESSOR_PAGE_ROWS)
            for row in page.rows:
                successor = derived.successor(row.key, row.value)
                if successor != leaving and await self.row(row.key) is not None:
                    return [(row.key, successor)]
            span = span.after(page.rows[-1].key) if page.more else None
        return []
