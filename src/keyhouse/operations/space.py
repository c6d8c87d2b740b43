"""One space of a served schema, as the verbs use it. A service implements it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from keyhouse.operations.bounded_page import BoundedPages
from keyhouse.schema import Derived, Record
from keyhouse.store import Store, Transaction, UnreadableRow

__all__ = ["ServedSpace", "ServedState"]

R = TypeVar("R")


class ServedState(Protocol):
    """Checks that a space may be read and written. A flag that is set needs no further check."""

    is_readable: bool
    is_writable: bool
    is_complete: bool

    async def check_read(self) -> None:
        """Raise PreparingError while records are of an older declaration."""
        ...

    async def check_index(self, record: Record[Any], derived: Derived) -> None:
        """Raise PreparingError while an index is not complete."""
        ...

    async def check_write(self) -> None:
        """Raise PreparingError while migrations are pending."""
        ...

    async def check_newer(self) -> None:
        """Raise PreparingError if newer code has migrated the space."""
        ...


class ServedSpace(Protocol):
    """A store, with the rules that hold for its callers."""

    name: str
    store: Store
    pages: BoundedPages
    large_writes: asyncio.Lock
    """Held by a write of many records: of one space, one runs at a time."""

    @property
    def state(self) -> ServedState: ...

    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> tuple[R, int]:
        """Run a write within the quota, unless the space is being migrated; return its result and
        the revision of its commit."""
        ...

    async def unless_newer(self, write: Awaitable[R]) -> R:
        """Run a write; raise PreparingError if newer code has migrated the space."""
        ...

    async def once(
        self, work: Callable[[Transaction], Awaitable[R]], key: str | None, *target: str
    ) -> tuple[R | None, int]:
        """Run a transaction; with an idempotency key, only if it was not applied before. A repeat
        returns no result, and the revision of the first."""
        ...

    async def in_order(
        self, row: str, work: Callable[[Transaction], Awaitable[R]], key: str | None, *target: str
    ) -> tuple[R | None, int]:
        """Run a transaction `once`, after earlier ones of the same row. Transactions that wait may
        share a commit; then the revision is 0."""
        ...

    async def count_usage(self) -> None:
        """Count the rows of the space again, if there is a quota."""
        ...

    def report_read(self, rows: int, size: int) -> None:
        """Count what a request has read towards the rate of its caller."""
        ...

    def left_out(self, operation: str, unreadable: list[UnreadableRow]) -> None:
        """Log rows that an answer leaves out, since they do not decode."""
        ...
