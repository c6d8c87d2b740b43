"""One space of a served schema, as a tenant of the service: the rules within which the verbs of
`keyhouse.operations` run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import TypeVar

from keyhouse.engine import Engine
from keyhouse.errors import NewerError
from keyhouse.http.read_meter import report_read
from keyhouse.keyring import KeyRing
from keyhouse.operations.bounded_page import BoundedPages
from keyhouse.schema import Schema
from keyhouse.schema.operation import Access
from keyhouse.service.key_locks import KeyLocks
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.schema_service.operation_attempts import OperationAttempts
from keyhouse.service.schema_service.preparation import Preparation, SpaceState
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota, Reservation
from keyhouse.store import NoAttempts, Store, Transaction, UnreadableRow

__all__ = ["SchemaSpace"]

R = TypeVar("R")


class SchemaSpace(Tenant):
    """Implements `keyhouse.operations.space.ServedSpace`."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        quota: Quota,
        *,
        schema: Schema,
        preparation: Preparation | None = None,
        key_ring: KeyRing | None = None,
        log: OperationLog | None = None,
    ) -> None:
        super().__init__(name, schema, engine, quota, key_ring=key_ring)
        self.state = SpaceState(
            self.store, preparation or Preparation(schema, engine, lambda space: self.store)
        )
        self.pages = BoundedPages(report_read)
        self.large_writes = asyncio.Lock()
        self._adds = KeyLocks()
        self._log = log
        self._operation_stores: dict[Access, Store] = {}

    @property
    def is_busy(self) -> bool:
        return not self._adds.are_free or super().is_busy

    def operation_store(self, access: Access) -> Store:
        """Return the store for operations of one's own."""
        store = self._operation_stores.get(access)
        if store is None:
            attempts = NoAttempts() if access == "read" else OperationAttempts(self)
            store = self._operation_stores[access] = self.store.with_attempts(attempts)
        return store

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        *,
        reservation: Reservation | None = None,
        batch_id: str | None = None,
    ) -> tuple[R, int]:
        """Run a write, unless the space is being migrated."""
        if not self.state.is_writable:
            await self.state.check_write()
        return await self.unless_newer(
            super().transact(work, reservation=reservation, batch_id=batch_id)
        )

    async def unless_newer(self, write: Awaitable[R]) -> R:
        """Raise PreparingError instead of NewerError if newer code has migrated the space."""
        try:
            return await write
        except NewerError:
            await self.state.check_newer()
            raise  # a row is newer, not the space

    async def once(
        self, work: Callable[[Transaction], Awaitable[R]], key: str | None, *target: str
    ) -> tuple[R | None, int]:
        if key is None:
            return await self.transact(work)
        batch_id = sha256("\0".join(("idempotency", *target, key)).encode()).hexdigest()
        if (revision := await self.store.applied(batch_id)) is not None:
            return None, revision
        return await self.transact(work, batch_id=batch_id)

    async def in_order(
        self, row: str, work: Callable[[Transaction], Awaitable[R]], key: str | None, *target: str
    ) -> tuple[R | None, int]:
        if key is None and self.usage is None and self._adds.is_written(row):
            return await self._adds.write_grouped(row, work, self._result), 0
        with self._adds.write(row) as earlier:
            for each in earlier:
                await each.finished()
            return await self.once(work, key, *target)

    async def _result(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        return (await self.transact(work))[0]

    async def watched_store(self) -> Store:
        """Return the store for a watch. Raises PreparingError while a list would: a watch continues
        one."""
        if not self.state.is_readable:
            await self.state.check_read()
        return self.store

    def report_read(self, rows: int, size: int) -> None:
        report_read(rows, size)

    async def count_usage(self) -> None:
        if self.usage is not None:
            await self.usage.count()

    def left_out(self, operation: str, unreadable: Sequence[UnreadableRow]) -> None:
        if self._log is not None:
            self._log.left_out(operation, self.name, len(unreadable), unreadable[0].error)
