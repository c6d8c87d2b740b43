"""Tenants: the store and usage of each, cached while in use.

A tenant is named by a token, a subject or a path, never by the payload; everything below takes the
tenant from here.
"""

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Generic, TypeVar

from keyhouse.engine import Engine
from keyhouse.keyring import KeyRing
from keyhouse.nats.limits import TENANTS_CACHED
from keyhouse.schema import Schema
from keyhouse.service.usage import Quota, Reservation, Usage
from keyhouse.store import Store, Transaction

__all__ = ["Tenant", "Tenants"]


R = TypeVar("R")


class Tenant:
    """One tenant. A system adds what it needs in a subclass. `usage` is None where the quota is
    unlimited."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        engine: Engine,
        quota: Quota,
        *,
        key_ring: KeyRing | None = None,
    ) -> None:
        """Raises KeyFieldError for a name that the schema's space does not allow."""
        self.name = name
        self.store = Store(schema, engine, name, key_ring=key_ring)
        self.usage = Usage(self.store, quota) if quota else None

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        *,
        reservation: Reservation | None = None,
        batch_id: str | None = None,
    ) -> tuple[R, int]:
        """Run `work` in a transaction, within the quota; return its result and the revision of the
        commit."""
        if self.usage is not None:
            return await self.usage.transact(work, reservation=reservation, batch_id=batch_id)
        return await self.store.attempts.run(self.store, work, batch_id)

    @property
    def is_busy(self) -> bool:
        """True while operations are in flight whose state would be lost by eviction."""
        return self.usage is not None and self.usage.is_busy


T = TypeVar("T", bound=Tenant)


class Tenants(Generic[T]):
    """An LRU cache of tenants. Busy ones are not evicted.

    `on_evict` is called after an eviction, for caches that hold references to tenants.
    """

    def __init__(
        self,
        make: Callable[[str], T],
        *,
        tenants_max: int = TENANTS_CACHED,
    ) -> None:
        self._make = make
        self.tenants_max = tenants_max
        self.on_evict: Callable[[], None] | None = None
        self._cached: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, name: str) -> T:
        """Return the tenant; KeyFieldError for an invalid name."""
        cached = self._cached
        tenant = cached.pop(name, None)
        if tenant is None:
            tenant = self._make(name)
            if len(cached) >= self.tenants_max:
                self._evict()
        cached[name] = tenant  # the most recently used is last
        return tenant

    def cached(self, name: str) -> T | None:
        return self._cached.get(name)

    def _evict(self) -> None:
        """Drop an eighth of the tenants, least recently used first: one at a time would go through
        all for each."""
        idle = (name for name, tenant in self._cached.items() if not tenant.is_busy)
        for name in list(islice(idle, max(1, self.tenants_max // 8))):
            del self._cached[name]
        if self.on_evict is not None:
            self.on_evict()
