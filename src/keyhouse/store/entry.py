"""Results of the store: entries, pages, events and usage."""

from typing import Any, Generic, TypeVar

import msgspec

from keyhouse.engine import Row
from keyhouse.schema import BoundRecord, KeyValues
from keyhouse.store.reads.unreadable import UnreadableRow

T = TypeVar("T")


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """One stored record. `values` are the fields of its key in order, `fields` the same by name;
    `revision` is 0 until its transaction commits. `stored` is the JSON of its row, if the record
    keeps members that its type does not have."""

    record: T
    key: str
    values: KeyValues
    revision: int
    expires: int | None = None
    names: tuple[str, ...] = ()
    stored: bytes | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the record's key by name, as `store.get(RECORD, **entry.fields)` takes
        them."""
        return dict(zip(self.names, self.values, strict=True))


def entry_of(bound: BoundRecord[T], row: Row, values: KeyValues) -> Entry[T]:
    """Return the record of a row, whose key has these values. Raises DataError."""
    key, data = row.key, row.value
    stored = data if bound.keeps_unknown else None
    record = bound.decode(data, key)
    return Entry(record, key, values, row.revision, row.expires, bound.key_fields, stored)


def live_entry(bound: BoundRecord[T], row: Row, values: KeyValues, now: int) -> Entry[T] | None:
    """Return the record of a row; None if it has expired by its own field. Raises DataError."""
    entry = entry_of(bound, row, values)
    if bound.expires_by_field and not bound.is_live(entry.record, row.key, now):
        return None
    return entry


class RecordPage(msgspec.Struct, Generic[T], frozen=True):
    """Some records of a scan. `cursor` is that of the next page; None on the last one.

    A page may be short without being the last, if records were deleted while it was read.
    `watch(since=revision)` gives every change that it does not show. `unreadable` are the rows that
    were left out because they do not decode.
    """

    entries: list[Entry[T]]
    cursor: str | None
    revision: int
    unreadable: list[UnreadableRow] = []


class Event(msgspec.Struct, Generic[T], frozen=True):
    """A record was put, or is `gone`: then `record` is None. A record of any JSON may be None as
    well. `stored` is as in an Entry."""

    record: T | None
    key: str
    values: KeyValues
    revision: int
    expires: int | None = None
    gone: bool = False
    names: tuple[str, ...] = ()
    stored: bytes | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the record's key by name."""
        return dict(zip(self.names, self.values, strict=True))


class UsagePage(msgspec.Struct, frozen=True):
    """Keys and bytes (of keys and values) of some consecutive rows, all read at `revision`.

    Keys up to and including `through` are counted; None on the final page, which ends the space.
    """

    keys: int
    bytes: int
    through: str | None
    revision: int


class Unset(msgspec.Struct, frozen=True):
    """No expectation was given; `None` would mean "absent"."""


ANY = Unset()
