"""The part of a Store that its own jobs use: it imports them, so they cannot import it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from keyhouse.clock import IdSource
from keyhouse.engine import Engine, Row
from keyhouse.schema import Record
from keyhouse.store.binding import Binding
from keyhouse.store.entry import Entry
from keyhouse.store.transaction import Transaction

R = TypeVar("R")


class StoreLike(Protocol):
    space: str
    binding: Binding
    ids: IdSource

    @property
    def engine(self) -> Engine: ...

    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R: ...

    async def get(self, record: Record[Any], /, **fields: Any) -> Any: ...

    def scan(self, record: Record[Any], /) -> AsyncIterator[Entry[Any]]: ...

    def row_scan(self) -> AsyncGenerator[Row, None]: ...

    async def check_newer(self) -> None: ...
