"""The transactions of an operation of one's own, within the rules of its service: quota, migrations
and the count of usage hold for them as for generated operations.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Never, TypeVar

from keyhouse.errors import DeclarationError
from keyhouse.service.tenants import Tenant
from keyhouse.store import Attempts, GuardedSpace, Transaction

__all__ = ["OperationAttempts"]

R = TypeVar("R")

_INSTEAD: Final = {
    "transaction": "await store.transact(work)",
    "clear": "the operation `clear` of the service",
    "forget": "the command `keyhouse delete --forget`",
}


class OperationAttempts(Attempts):
    """Runs every transaction as one of a tenant."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__()
        self._tenant = tenant

    def check(self, verb: str) -> Never:
        """Raise DeclarationError: `transact` alone checks the quota, and a request must not take
        as long as the others."""
        raise DeclarationError(f"Within an operation, use {_INSTEAD[verb]}.", verb=verb)

    async def run(
        self,
        space: GuardedSpace,
        work: Callable[[Transaction], Awaitable[R]],
        batch_id: str | None = None,
    ) -> tuple[R, int]:
        return await self._tenant.transact(work, batch_id=batch_id)
