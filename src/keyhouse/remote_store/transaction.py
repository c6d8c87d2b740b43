"""Transactions of a remote store: reads with their revisions, and writes in one batch.

Like a transaction of a `Store`, it is optimistic. Each record that it reads is expected at the
revision that it was read at, when the batch is applied; a failed expectation is a lost race, and
`RemoteStore.transact` runs the work again. Reads see what the transaction has buffered.
"""

from collections.abc import Callable
from typing import Any, Final, Never, Protocol, TypeVar

from keyhouse.advice.arguments import unnamed_fields
from keyhouse.errors import NotFoundError, RecordError, RevisionError, UsageError
from keyhouse.limits import COUNTER_MAX
from keyhouse.remote_store.addresses import AddressBook, RecordAddress
from keyhouse.schema import Counter, Index, Log, Record
from keyhouse.store import ANY, Entry, Unset
from keyhouse.store.arguments import ENDED, check_expect

__all__ = ["RemoteReads", "RemoteTransaction", "reject_others"]

T = TypeVar("T")


class _Deleted:
    """A record that the transaction deletes."""


_DELETED: Final = _Deleted()


class RemoteReads(Protocol):
    """The part of a RemoteStore that a transaction reads by."""

    addresses: AddressBook
    new_id: Callable[[], str]

    def now(self) -> int: ...

    async def entry(self, record: Record[T], /, **fields: Any) -> Entry[T] | None: ...

    async def lookup(self, record: Record[T], by: Index, /, **fields: Any) -> Entry[T] | None: ...


class RemoteTransaction:
    """Reads and buffered writes of one space, applied together. See `keyhouse.Transaction`."""

    def __init__(self, store: RemoteReads) -> None:
        self._store = store
        self._read: dict[RecordAddress, int | None] = {}
        self._entries: dict[RecordAddress, Entry[Any] | None] = {}
        self._writes: dict[RecordAddress, tuple[Any, float | None]] = {}
        self._patches: dict[RecordAddress, list[dict[str, Any]]] = {}
        self._adds: dict[RecordAddress, int] = {}
        self._appends: list[dict[str, Any]] = []
        self._has_ended = False

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        """Return the record, or None."""
        if positional:
            raise unnamed_fields(record, positional)
        entry = await self.entry(record, **fields)
        return None if entry is None else entry.record

    async def entry(
        self, record: Record[T], /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record with its key, revision and expiry, or None."""
        if positional:
            raise unnamed_fields(record, positional)
        if isinstance(record, Counter):
            raise UsageError(
                "A counter has no revision, so a transaction of a service cannot depend on it: read"
                " it with the store.",
                counter=record.name,
            )
        address = self._store.addresses.of(record, fields)
        if address in self._writes:
            value, _ = self._writes[address]
            return None if value is _DELETED else self._buffered(record, value, address)
        if address not in self._read:
            entry = await self._store.entry(record, **fields)
            self._read[address] = None if entry is None else entry.revision
            self._entries[address] = entry
        return self._entries[address]

    async def lookup(
        self, record: Record[T], by: Index, /, *positional: Never, **fields: Any
    ) -> Entry[T] | None:
        """Return the record that a Unique or First row leads to, or None. Sees what is stored, and
        not the writes of this transaction."""
        if positional:
            raise unnamed_fields(by, positional)
        entry = await self._store.lookup(record, by, **fields)
        return None if entry is None else await self.entry(record, **entry.fields)

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
        """Write the record. `expect` is the revision that it must be at (None: be absent), else
        RevisionError."""
        if positional:
            raise unnamed_fields(record, positional)
        self._check_writable(record)
        value = self._store.addresses.with_ids(record, value, self._store.new_id)
        address = self._store.addresses.of_value(record, value, fields)
        owner = self._store.addresses.record(record)
        owner.json.encode(value)  # raises RecordError for a value of another type
        await self._expect(record, address, expect)
        self._writes[address] = (value, ttl)
        self._patches.pop(address, None)
        return self._buffered(record, value, address)

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
        """Change some members of a stored record by a merge patch (RFC 7396): None removes one."""
        if positional:
            raise unnamed_fields(record, positional)
        self._check_writable(record)
        address = self._store.addresses.of(record, fields)
        await self._expect(record, address, expect)
        entry = await self.entry(record, **fields)
        if entry is None:
            raise NotFoundError("There is no such record to update.", record=record.name, **fields)
        owner = self._store.addresses.record(record)
        value, _ = owner.json.patched(entry.record, patch, entry.stored)
        if address in self._writes and address not in self._patches:
            ttl = self._writes[address][1] if ttl is None else ttl
            return await self.put(record, value, ttl=ttl, **fields)
        self._writes[address] = (value, None)
        timed = {} if ttl is None else {"ttl": ttl}
        self._patches.setdefault(address, []).append({"value": patch, **timed})
        return self._buffered(record, value, address)

    async def delete(
        self,
        record: Record[Any],
        /,
        *positional: Never,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> bool:
        """Delete the record and all that is derived from it; return whether it was there."""
        if positional:
            raise unnamed_fields(record, positional)
        self._check_writable(record)
        address = self._store.addresses.of(record, fields)
        await self._expect(record, address, expect)
        was_there = await self.entry(record, **fields) is not None
        self._writes[address] = (_DELETED, None)
        self._patches.pop(address, None)
        return was_there

    async def add(self, counter: Counter, by: int, /, *positional: Never, **fields: Any) -> None:
        """Add to a counter: concurrent adds do not conflict."""
        if positional:
            raise unnamed_fields(counter, positional)
        if type(by) is not int or abs(by) > COUNTER_MAX:
            raise RecordError("A counter is changed by a whole number of 64 bits.", by=by)
        if not isinstance(counter, Counter):
            raise UsageError("Only a Counter can be added to.", record=repr(counter))
        self._check_open()
        given = counter.address_of(fields, self._store.now())
        address = self._store.addresses.of(counter, given)
        if len(given) != len(fields):  # the service adds today, by its own clock
            dated = [each for each in address.fields if each[0] != counter.day_field]
            address = address._replace(fields=tuple(dated))
        self._adds[address] = self._adds.get(address, 0) + by

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> None:
        """Append an event to a log, and fold it with the commit."""
        if positional:
            raise unnamed_fields(log, positional)
        owner = self._store.addresses.record(log)
        if not isinstance(owner, Log):
            raise UsageError("Only a Log can be appended to.", record=repr(log))
        self._check_open()
        operation = {"op": "append", "log": owner.name, "fields": fields}
        self._appends.append({**operation, "value": owner.json.plain(event)})

    def operations(self) -> list[dict[str, Any]]:
        """End the transaction, and return the batch: what was read is expected as it was, then
        what is written."""
        self._has_ended = True
        operations: list[dict[str, Any]] = []
        for address, revision in self._read.items():
            if address not in self._writes:
                operations.append({"op": "check", **address.target, "expect": revision})
        for address, (value, ttl) in self._writes.items():
            expected = {"expect": self._read[address]} if address in self._read else {}
            if value is _DELETED:
                operations.append({"op": "delete", **address.target, **expected})
            elif address in self._patches:
                first, *others = self._patches[address]
                operations.append({"op": "patch", **address.target, **first, **expected})
                operations += [{"op": "patch", **address.target, **each} for each in others]
            else:
                plain = self._plain(address.record, value)
                timed = {} if ttl is None else {"ttl": ttl}
                operations.append(
                    {"op": "put", **address.target, "value": plain, **expected, **timed}
                )
        for address, by in self._adds.items():
            operations.append({"op": "add", **address.target, "by": by})
        operations += self._appends
        return operations if len(operations) > len(self._read) or self._changes else []

    @property
    def _changes(self) -> bool:
        return bool(self._writes or self._adds or self._appends)

    def _check_writable(self, record: Record[Any]) -> None:
        reject_others(record)
        self._check_open()

    def _check_open(self) -> None:
        if self._has_ended:
            raise UsageError(ENDED)

    def _plain(self, name: str, value: Any) -> Any:
        return self._store.addresses.schema.record(name).json.plain(value)

    async def _expect(
        self, record: Record[Any], address: RecordAddress, expect: int | Unset | None
    ) -> None:
        if isinstance(expect, Unset):
            return
        entry = await self.entry(record, **dict(address.fields))
        revision = None if entry is None else entry.revision
        if revision != expect:
            check_expect(expect)
            raise RevisionError(
                "The record is not at the expected revision.",
                key="" if entry is None else entry.key,
                expected=expect,
                found=revision,
            )

    def _buffered(self, record: Record[T], value: T, address: RecordAddress) -> Entry[T]:
        names = tuple([name for name, _ in address.fields])
        values = tuple([value for _, value in address.fields])
        template = self._store.addresses.schema.unbound.record(record).template
        key = template.build(dict(address.fields)) if names == template.fields else ""
        return Entry(value, key, values, 0, None, names)


def reject_others(record: Record[Any]) -> None:
    """Raise UsageError for a counter or a log, which a service does not put."""
    if isinstance(record, Counter):
        raise UsageError("A service adds to a counter, and does not put it.", counter=record.name)
    if isinstance(record, Log):
        raise UsageError("Events are written by `append`, which also folds them.", log=record.name)
