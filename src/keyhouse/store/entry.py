"""What the store gives back: a record with where it was, at which revision, and until when."""

from typing import Generic, NamedTuple, TypeVar

import msgspec

from keyhouse.schema import Keys

T = TypeVar("T")


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """One stored record. `values` are its key's fields in order; `revision` is 0 until the transaction has committed."""

    record: T
    key: str
    values: Keys
    revision: int
    expires: int | None = None

    def at(self, revision: int) -> "Entry[T]":
        """The same, once it is committed."""
        return Entry(self.record, self.key, self.values, revision, self.expires)


class RecordPage(msgspec.Struct, Generic[T], frozen=True):
    """Some records of a scan. `cursor` asks for what follows; `None`: that was the end. A page may be short and yet not the
    last, where records went away while it was read. `watch(since=revision)` gives every change it does not show."""

    entries: list[Entry[T]]
    cursor: str | None
    revision: int


class Event(msgspec.Struct, Generic[T], frozen=True):
    """A record was put (`record`), or is `gone`: then there is none, and `None` stands there. A record may be `None` too."""

    record: T | None
    key: str
    values: Keys
    revision: int
    expires: int | None = None
    gone: bool = False


class UsagePage(msgspec.Struct, frozen=True):
    """Keys and bytes (of keys and values) of some consecutive rows, all read at `revision`.

    Keys up to and including `through` are counted; None on the final page, which ends the space.
    """

    keys: int
    bytes: int
    through: str | None
    revision: int


class RowChange(NamedTuple):
    """One row of a commit: its stored value and its new one; None where the row is absent."""

    key: str
    before: bytes | None
    after: bytes | None


class Unset(msgspec.Struct, frozen=True):
    """No expectation was given; `None` would mean "absent"."""


ANY = Unset()

Written = tuple[bytes, int | None]
"""What a row will be: its value and expiry."""
