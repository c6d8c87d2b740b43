"""A transaction: reads that are remembered, writes that wait, and one commit in which all of it still holds.

What one change of a record writes is `keyhouse.store.write_plan`'s. Every row that was read becomes a check on its revision (or
absence); every record that is put or deleted carries its derived rows with it, by the difference between what the old
record had and what the new one has. A row written here is seen by later reads here.

Reads by key are protected against change until the commit; a scan is not protected against rows that appear in it. Reads may
be under way together; of writes there is one at a time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from keyhouse.counter import sum_of
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, Span, check_key, check_limits
from keyhouse.errors import RecordError, RevisionError, UsageError
from keyhouse.limits import COUNTER_MAX, EXPIRES_MAX
from keyhouse.schema import Counter, Derived, First, Index, Keys, Log, Record, Summary
from keyhouse.store import write_plan
from keyhouse.store.binding import Binding
from keyhouse.store.entry import ANY, Entry, RowChange, Unset, Written
from keyhouse.store.write_plan import keyed, settled, stored_rows

T = TypeVar("T")

Merge = tuple[Record[Any], Any, str, Keys, Any, Any, int | None]
"""The arguments of one `Transaction.merge`."""


class Transaction:
    __slots__ = (
        "_adds",
        "_engine",
        "_is_whole",
        "_is_writing",
        "_now",
        "_rows",
        "_space",
        "_writes",
        "binding",
        "revision",
    )

    def __init__(self, engine: Engine, space: str, binding: Binding) -> None:
        self._engine = engine
        self._space = space
        self.binding = binding
        self._now = engine.clock.now()
        self._rows: dict[str, Row | None] = {}
        self._writes: dict[str, Put | None] = {}
        self._adds: dict[str, int] = {}
        self._is_writing = self._is_whole = False
        self.revision = 0
        """Of the commit, once it was made: that of every row it wrote."""

    @property
    def pending(self) -> int:
        """How many rows a commit would write now."""
        return len(self._writes) + len(self._adds)

    @property
    def now(self) -> int:
        """The one time of this transaction, in the clock's milliseconds."""
        return self._now

    async def get(self, record: Record[T], /, **fields: Any) -> T | None:
        """The record, or `None`. An absent counter is 0."""
        found = await self.entry(record, **fields)
        if found is None and isinstance(record, Counter):
            return 0  # type: ignore[return-value]  # a Counter's T is int
        return None if found is None else found.record

    async def entry(self, record: Record[T], /, **fields: Any) -> Entry[T] | None:
        """The record with its key, revision and expiry, or `None`."""
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        return await self._entry(bound, key, _values(bound, key, fields))

    async def lookup(self, record: Record[T], by: Index, /, **fields: Any) -> Entry[T] | None:
        """The record that a Unique or First row leads to, or `None`."""
        bound, index = self.binding.index(record, by)
        key = index.template.build(fields)
        if (written := await self.row(key)) is None:
            return None
        values, owner = index.owner_at(key, written[0])
        found = await self._entry(bound, owner, values)
        return found if found is not None and key in index.rows(found.record, values) else None

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
        """Write the record, and every row derived from it. `expect`: the revision it must be at (`None`: be absent), else
        RevisionError. The entry shows the record as stored: computed fields, version and times set."""
        bound = self.binding.record(record)
        if bound.appended:
            raise UsageError(
                "An event enters its log by `append`, which folds it too; to write one anew as it was, use `restore`.",
                log=bound.name,
            )
        self._begin()  # as `_alone` does, without its cost
        kept = self._kept()
        try:
            return await self._put(bound, value, ttl, expect, fields)
        except BaseException:
            self._restore(kept)
            raise
        finally:
            self._is_writing = False

    async def put_event(self, log: Log[T], event: T, /, **fields: Any) -> Entry[T]:
        """Write an event at a place that is free: the half of `append` that does not fold."""
        with self._alone():
            return await self._put(self.binding.record(log), event, None, None, fields)

    async def restore(
        self,
        record: Record[T],
        value: T,
        /,
        *,
        expires: int | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Put a record as it was, or is elsewhere: the times that the value holds stay, and it expires at `expires`, in the
        clock's milliseconds. For imports, for a record that comes from another key, and for migrations that change events
        of a log: what was folded of them stays."""
        bound = self.binding.record(record)
        if expires is not None and bound.expiry is None:
            raise UsageError("The record is not declared to expire.", record=bound.name)
        if expires is not None and (type(expires) is not int or expires > EXPIRES_MAX):
            raise RecordError(
                "A record expires at a time in the clock's milliseconds.",
                expires=expires,
                most=EXPIRES_MAX,
            )
        with self._alone():
            return await self._put(bound, value, None, expect, fields, kept=(expires,))

    async def _put(
        self,
        bound: Record[T],
        value: T,
        ttl: int | None,
        expect: int | Unset | None,
        fields: dict[str, Any],
        *,
        kept: tuple[int | None] | None = None,
    ) -> Entry[T]:
        """`kept`: when the record expires, if that and its times are settled."""
        value, keys, key = keyed(bound, value, fields)
        before: Entry[T] | None = None
        if bound.legacy is not None:
            return await self._put_at_either_key(bound, value, keys, key, ttl, expect, kept)
        looks = not bound.is_single_row or expect is not ANY or key in self._adds
        if looks and (
            key in self._writes or key in self._adds or await self._read(key) is not None
        ):
            before = await self._entry(bound, key, keys)
        if expect is not ANY:
            self._check_expected(key, before, expect)
        after, put = settled(bound, value, keys, key, before, ttl, self._now, kept)
        self._writes[key] = put
        self._adds.pop(key, None)
        for merge in self._derive(bound, before, after):
            await self.merge(*merge)
        return after

    async def _put_at_either_key(
        self,
        bound: Record[T],
        value: T,
        keys: Keys,
        key: str,
        ttl: int | None,
        expect: int | Unset | None,
        kept: tuple[int | None] | None,
    ) -> Entry[T]:
        """Write a record that has legacy keys: at its current key, and then not at its legacy key; or at its legacy
        key, if the store writes those and the record is not at its current key yet."""
        before, legacy = await self._entry(bound, key, keys), bound.legacy_key(key)
        if expect is not ANY:
            self._check_expected(key, before, expect)
        if self.binding.writes_legacy_keys and await self.row(key) is None:
            check_key(legacy)
            key = legacy
        elif await self.row(legacy) is not None:
            self._writes[legacy] = None
        after, self._writes[key] = settled(bound, value, keys, key, before, ttl, self._now, kept)
        for merge in self._derive(bound, before, after):
            await self.merge(*merge)
        return after

    async def delete(
        self, record: Record[Any], /, *, expect: int | Unset | None = ANY, **fields: Any
    ) -> bool:
        """Delete the record and every row derived from it; whether it was there."""
        bound = self.binding.record(record)
        key = bound.template.build(fields)
        with self._alone():
            before = await self._entry(bound, key, _values(bound, key, fields))
            if expect is not ANY:
                self._check_expected(key, before, expect)
            if before is None:
                return False
            self._writes[before.key] = None
            if bound.legacy is not None and await self.row(bound.legacy_key(key)) is not None:
                self._writes[bound.legacy_key(key)] = None
            self._adds.pop(key, None)
            for merge in self._derive(bound, before, None):
                await self.merge(*merge)
        return True

    def add(self, counter: Counter, by: int, /, **fields: Any) -> None:
        """Add to a counter, without reading it: adds of others between now and the commit are no conflict."""
        if type(by) is not int or abs(by) > COUNTER_MAX:
            raise RecordError("A counter is changed by a whole number of 64 bits.", by=by)
        if not isinstance(counter, Counter):
            raise UsageError("Only a Counter can be added to.", record=repr(counter))
        key = self.binding.record(counter).template.build(fields)
        self._add(key, by)
        if self._adds.get(key) == 0:
            del self._adds[key]

    async def rewrite(self, record: Record[T], entry: Entry[T], /) -> None:
        """Write a record's derived rows again, whether or not it had them: for migrations that declare new ones. A put would not,
        since by today's declaration the old record had them too. Counts are left as they are: `verify` recounts them."""
        bound = self.binding.record(record)
        if not isinstance(entry, Entry):
            raise UsageError(
                "The record is rewritten from its Entry, as a read or a scan gives it.", given=entry
            )
        with self._alone():
            for merge in self._derive(bound, None, entry, counts=False):
                await self.merge(*merge)

    async def row(self, key: str) -> Written | None:
        """The row as this transaction sees it: value and expiry."""
        if key in self._writes:
            put = self._writes[key]
            return None if put is None else (put.value, put.expires)
        row = await self._read(key)
        value, expires = (None, None) if row is None else (row.value, row.expires)
        if key in self._adds:
            return sum_of(key, value, self._adds[key]), expires
        return None if value is None else (value, expires)

    async def changes(self) -> list[RowChange]:
        """Return the rows that a commit would write now, each with its stored value and its new one.

        Rows that were written without a read are read here, and checked by the commit. Rows that are only added to are
        read without a check, so that adds still never conflict.
        """
        await self.prefetch([key for key in self._writes if key not in self._rows])
        changes = [
            RowChange(key, _value(self._rows[key]), None if put is None else put.value)
            for key, put in self._writes.items()
        ]
        if self._adds:
            stored = await self._engine.read(self._space, list(self._adds))
            for (key, by), row in zip(self._adds.items(), stored, strict=True):
                changes.append(RowChange(key, _value(row), sum_of(key, _value(row), by)))
        return changes

    def write(self, key: str, written: Written | None) -> None:
        """Put or delete one row as it is: for the store's own mending, where no record speaks for the row."""
        self._writes[key] = None if written is None else Put(key, *written)

    def forget(self) -> None:
        """Drop what was to be written; what was read stays checked."""
        self._writes.clear()
        self._adds.clear()

    async def commit(self, *, batch_id: str | None = None) -> int | None:
        """The revision; `None` when something read here has changed since. Nothing to write: revision 0."""
        if not self._writes and not self._adds:
            return 0
        batch = self._batch(batch_id)
        check_limits(batch, self._engine.capabilities)
        revision = await self._engine.commit(self._space, batch)
        self.revision = revision or 0
        return revision

    async def holds(self) -> bool:
        """Whether all that was read here still is as it was: then it stood together at one moment."""
        keys = list(self._rows)
        now = await self._engine.read(self._space, keys)
        return all(
            _revision(self._rows[key]) == _revision(row) for key, row in zip(keys, now, strict=True)
        )

    def _batch(self, batch_id: str | None) -> Batch:
        checks = tuple(
            [Check(key, None if row is None else row.revision) for key, row in self._rows.items()]
        )
        puts = tuple([put for put in self._writes.values() if put is not None])
        gone: list[str] = []
        if len(puts) < len(self._writes):
            gone = [
                key
                for key, put in self._writes.items()
                if put is None and self._rows.get(key, ...) is not None
            ]
        adds = tuple([Add(key, by) for key, by in self._adds.items()]) if self._adds else ()
        return Batch(checks, puts, tuple(gone), adds, batch_id)

    async def _read(self, key: str) -> Row | None:
        if key not in self._rows:
            row = (await self._engine.read(self._space, (key,)))[0]
            self._rows.setdefault(
                key, row
            )  # the first of two reads at once is the one that must hold
        return self._rows[key]

    async def prefetch(self, keys: Sequence[str]) -> None:
        """Read rows that will be needed in one call."""
        missing = [key for key in keys if key not in self._rows]
        if missing:
            for key, row in zip(
                missing, await self._engine.read(self._space, missing), strict=True
            ):
                self._rows.setdefault(key, row)

    async def stored_key(self, bound: Record[Any], key: str) -> str:
        """Return the key at which a bound record is: its legacy key while there is no row at its current one."""
        if bound.legacy is None:
            return key
        legacy = bound.legacy_key(key)
        is_first_read = key not in self._rows and legacy not in self._rows
        await self.prefetch((legacy, key))
        if is_first_read and self._rows[key] is None and self._rows[legacy] is None:
            # it may have moved between the two reads
            [self._rows[key]] = await self._engine.read(self._space, (key,))
        is_legacy = await self.row(key) is None and await self.row(legacy) is not None
        return legacy if is_legacy else key

    async def _entry(self, bound: Record[T], key: str, keys: Keys) -> Entry[T] | None:
        if bound.legacy is not None:
            key = await self.stored_key(bound, key)
        written = await self.row(key)
        if written is None:
            return None
        row = self._rows.get(key)
        revision = row.revision if row is not None and key not in self._writes else 0
        return Entry(bound.decode(written[0], key), key, keys, revision, written[1])

    def _check_expected(
        self, key: str, before: Entry[Any] | None, expect: int | Unset | None
    ) -> None:
        found = None if before is None else before.revision
        if found != expect:
            raise RevisionError(
                "The record is not at the revision expected.", key=key, expected=expect, found=found
            )

    def _add(self, key: str, by: int) -> None:
        if key in self._writes:
            put = self._writes[key]
            value, expires = (None, None) if put is None else (put.value, put.expires)
            self._writes[key] = Put(key, sum_of(key, value, by), expires)
        else:  # where a Count comes to 0, it is written: `verify` tells by the row whether records came and went
            self._adds[key] = self._adds.get(key, 0) + by

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written within, by several calls, is written as a whole, or, when something of it is refused, not at all.
        One at a time, and not within another."""
        if self._is_whole:
            raise _at_once()
        self._is_whole = True
        try:
            with self._all_or_nothing():
                yield
        finally:
            self._is_whole = False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call that writes: all of it, or nothing."""
        self._begin()
        try:
            with self._all_or_nothing():
                yield
        finally:
            self._is_writing = False

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        kept = self._kept()
        try:
            yield
        except BaseException:
            self._restore(kept)
            raise

    def _begin(self) -> None:
        """Of two that write at once, each would decide by what it has read of a row that the other is about to write, and
        take back the other's writes along with its own."""
        if self._is_writing:
            raise _at_once()
        self._is_writing = True

    def _kept(self) -> tuple[dict[str, Put | None], dict[str, int]] | None:
        """What is to be written so far, to go back to when a call is refused half way."""
        return (self._writes.copy(), self._adds.copy()) if self._writes or self._adds else None

    def _restore(self, kept: tuple[dict[str, Put | None], dict[str, int]] | None) -> None:
        self._writes, self._adds = ({}, {}) if kept is None else kept

    def _derive(
        self,
        bound: Record[T],
        before: Entry[T] | None,
        after: Entry[T] | None,
        *,
        counts: bool = True,
    ) -> list[Merge]:
        """Carry the difference between two states of one record into its derived rows; what must look at a row that others
        share is left to `merge`."""
        self._writes |= write_plan.own_rows(bound, before, after)
        expires = None if after is None else after.expires
        kept = before is not None and after is not None and before.expires == expires
        merges: list[Merge] = []
        for derived in bound.shared_rows:
            removed = {} if before is None else stored_rows(derived, before)
            added = {} if after is None else derived.rows(after.record, after.values)
            if kept and removed == added:
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
        """Carry one record's difference into one row that it shares with others."""
        written = await self.row(key)
        row = None if written is None else written[0]
        if (
            added is None
            and isinstance(derived, Summary)
            and await self._still_listed(bound, derived, key, keys)
        ):
            return
        merged = derived.merge(key, row, removed, added)
        if merged is None and row is not None and isinstance(derived, First):
            merged = await self._successor(derived, key, removed)
        if merged is not None:
            if (
                added is not None or merged != row
            ):  # else it is another's, which has an expiry of its own
                self._writes[key] = Put(key, merged, expires)
        elif row is not None:
            self._writes[key] = None

    async def _still_listed(
        self, bound: Record[Any], derived: Derived, key: str, keys: Keys
    ) -> bool:
        """Whether another record lists the same member there: then it stays."""
        for sibling in derived.siblings(keys):
            entry = await self._entry(bound, bound.template.join(sibling), sibling)
            if entry is not None and key in stored_rows(derived, entry):
                return True
        return False

    async def _successor(self, derived: First, key: str, leaving: bytes) -> bytes | None:
        """The next holder of a row whose first one leaves."""
        values = derived.template.parse(key)
        assert values is not None
        span = derived.among.template.span(values)
        new = (
            (put.key, put.value)
            for put in self._writes.values()
            if put is not None and put.key in span
        )
        successors = sorted(
            (at, successor)
            for at, value in new
            if (successor := derived.successor(at, value)) != leaving
        )
        stored = await self._stored_successor(derived, span, leaving)
        return min([*successors[:1], *stored], default=("", None))[1]

    async def _stored_successor(
        self, derived: First, span: Span | None, leaving: bytes
    ) -> list[tuple[str, bytes]]:
        while span is not None:
            page = await self._engine.scan(self._space, span, limit=8)
            for row in page.rows:
                if (
                    successor := derived.successor(row.key, row.value)
                ) != leaving and await self.row(row.key) is not None:
                    return [(row.key, successor)]
            span = span.after(page.rows[-1].key) if page.more else None
        return []


def _at_once() -> UsageError:
    return UsageError(
        "A transaction writes one record at a time: await each write before you begin the next."
    )


def _revision(row: Row | None) -> int | None:
    return None if row is None else row.revision


def _value(row: Row | None) -> bytes | None:
    return None if row is None else row.value


def _values(bound: Record[Any], key: str, fields: dict[str, Any]) -> Keys:
    return bound.template.as_read(key, tuple([fields[name] for name in bound.template.fields]))
