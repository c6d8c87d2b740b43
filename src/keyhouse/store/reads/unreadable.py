"""Rows that a read meets and can't decode: another program wrote them, or newer code did.

The caller of a read of many records chooses whether such a row ends the read.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import DataError, UsageError


class UnreadableRow(msgspec.Struct, frozen=True):
    """A row that does not decode. `error` tells why: NewerError if newer code wrote it, else
    UnreadableError."""

    row: Row
    error: DataError


OnUnreadable = Literal["raise", "skip"] | Callable[[UnreadableRow], object]
"""`raise` ends the read with the row's error, `skip` leaves the row out, and so does a function,
which is called with it."""


class UnreadableRows:
    """The unreadable rows of one read, treated as its caller chose."""

    __slots__ = ("_on_unreadable", "rows")

    def __init__(self, on_unreadable: OnUnreadable) -> None:
        if on_unreadable not in ("raise", "skip") and not callable(on_unreadable):
            raise UsageError(
                "Unreadable rows are handled by `raise`, `skip`, or a function of the row.",
                unreadable=on_unreadable,
            )
        self._on_unreadable = on_unreadable
        self.rows: list[UnreadableRow] = []

    def add(self, row: Row, error: DataError) -> None:
        """Take a row that was just met; raises its error if the caller chose that."""
        if self._on_unreadable == "raise":
            raise error
        unreadable = UnreadableRow(row, error)
        self.rows.append(unreadable)
        if callable(self._on_unreadable):
            self._on_unreadable(unreadable)
