"""The store of an operation of one's own: the verbs of a Store, within the rules of its service.

Every write is a transaction of the tenant, so that quota, migrations and the count of usage hold
for it as for generated operations.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Never, TypeVar

from keyhouse.errors import DeclarationError
from keyhouse.schema.operation import Access
from keyhouse.service.tenants import Tenant
from keyhouse.store import Store, Transaction
from keyhouse.store.store import write_in_read

__all__ = ["OperationStore"]

R = TypeVar("R")


class OperationStore(Store):
    """The store of one space for operations of one access. With `read`, a write raises."""

    def __init__(self, tenant: Tenant, access: Access) -> None:
        store = tenant.store
        super().__init__(
            store.schema, store.engine, store.space, ids=store.ids, key_ring=store.key_ring
        )
        self._tenant = tenant
        self._access = access

    async def _transact(
        self, work: Callable[[Transaction], Awaitable[R]], batch_id: str | None = None
    ) -> tuple[R, int]:
        """Run a transaction within the quota."""
        if self._access == "read":
            raise write_in_read()
        return await self._tenant.transact(work, batch_id=batch_id)

    def transaction(self, *, batch_id: str | None = None) -> Never:
        """Raise DeclarationError: the quota is checked by `transact`."""
        raise _not_here("transaction", "await store.transact(work)")

    async def clear(self, *, on_progress: Callable[[int], None] | None = None) -> Never:
        """Raise DeclarationError: a request must not take that long."""
        raise _not_here("clear", "the operation `clear` of the service")

    async def forget(self, **named: Any) -> Never:
        """Raise DeclarationError: a space is erased where it is stored."""
        raise _not_here("forget", "the command `keyhouse delete --forget`")


def _not_here(verb: str, instead: str) -> DeclarationError:
    return DeclarationError(f"Within an operation, use {instead}.", verb=verb)
