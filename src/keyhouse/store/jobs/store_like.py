"""The part of a Store that its own jobs use: it imports them, so they cannot import it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from keyhouse.engine import Row
from keyhouse.schema import Record
from keyhouse.store.entry import Entry
from keyhouse.store.writes.attempts import GuardedSpace
from keyhouse.store.writes.transaction import Transaction

R = TypeVar("R")


class StoreLike(GuardedSpace, Protocol):
    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R: ...

    async def get(self, record: Record[Any], /, **fields: Any) -> Any: ...

    def scan(self, record: Record[Any], /) -> AsyncIterator[Entry[Any]]: ...

    def row_scan(self) -> AsyncGenerator[Row, None]: ...
