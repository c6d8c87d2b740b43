"""Rate limits: one token bucket per tenant (the generic cell rate algorithm).

One number is stored per tenant: the time at which its bucket will be full again. A tenant with a
full bucket needs no entry, which bounds the memory.

The cost of a long read is known while it runs: it is spent without being checked, and the tenant's
next requests wait for it. The debt is at most one burst.

Workers of one host share the numbers (`limit_table`). A visit to the table costs as much as a short
request over NATS: so a worker takes a few tokens more than it needs, a hundredth of the burst, and
spends them while the bucket still lacks them. They are counted once, so that the rate is exact in
the long run; a burst is exceeded by a hundredth for each worker at most, and not at all if it is
less than a hundred.

Hosts share one more bucket, a row of the tenant (`store.service_rows`). When a process has spent a
fortieth of the burst, it adds that to the row, and then its own bucket lacks at least as much as
the row's. So hosts together exceed a burst by what each of them spends until its next exchange has
ended, and pay it back: the rate is exact in the long run, as far as their clocks agree.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final

from keyhouse.clock import Clock, MonotonicClock, monotonic
from keyhouse.errors import KeyhouseError, RateError, UsageError
from keyhouse.service.limits import (
    PAGE_REQUESTS_BURST,
    PAGE_REQUESTS_PER_SECOND,
    RATE_TENANTS_MAX,
    READ_BYTES_PER_REQUEST,
    READ_ROWS_PER_REQUEST,
)
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.store import update_service_row

__all__ = ["RateLimiter", "SharedRateLimiter", "page_rates"]

_BLOCKS_PER_BURST: Final = 100
_EXCHANGES_PER_BURST: Final = 40
_ROW_SECONDS: Final = 60


class RateLimiter:
    """Each tenant may make `per_second` requests a second in the long run, and `burst` at once."""

    __slots__ = (
        "_burst_ms",
        "_clock",
        "_full_at",
        "_step_ms",
        "_tenants_max",
        "burst",
        "per_second",
    )

    def __init__(
        self,
        per_second: float,
        *,
        burst: int | None = None,
        clock: Clock | None = None,
        tenants_max: int = RATE_TENANTS_MAX,
    ) -> None:
        self.per_second = per_second
        self.burst = max(1, math.ceil(per_second)) if burst is None else burst
        if not (math.isfinite(per_second) and per_second > 0) or self.burst < 1 or tenants_max < 1:
            raise UsageError(
                "A rate, a burst and a number of tenants must be positive.",
                rate=per_second,
                burst=burst,
            )
        self._step_ms = 1_000 / per_second
        self._burst_ms = self._step_ms * self.burst
        self._clock = clock or MonotonicClock()
        self._tenants_max = tenants_max
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of tenants with an entry."""
        return len(self._full_at)

    def take(self, tenant: str, cost: int = 1) -> float:
        """Take `cost` tokens and return 0; or take none, and return the seconds until there are
        enough.

        A cost above the burst never fits, and counts as the whole burst.
        """
        now = self._clock.now()
        entries, burst_ms = self._full_at, self._burst_ms
        full_at = entries.pop(tenant, 0.0)
        if full_at < now:
            full_at = now
        elif full_at - now > 2 * burst_ms:
            full_at = now + burst_ms  # a clock that was set back: treat the bucket as empty
        after = full_at + self._step_ms * (cost if cost < self.burst else self.burst)
        wait = after - now - burst_ms
        if wait <= 1e-6:
            entries[tenant], wait = after, 0.0
        else:
            entries[tenant] = full_at
        if len(entries) > self._tenants_max:
            self._evict(now)
        return wait / 1_000

    def check(self, tenant: str, cost: int = 1, *, taken: int = 0) -> None:
        """Take `cost` tokens; RateError, with the whole seconds to wait, if there are not enough.

        `taken` are those that the same request has taken before: together they count as the whole
        burst at most.
        """
        if taken:
            cost = min(cost, max(0, self.burst - taken))
        if wait := self.take(tenant, cost):
            raise RateError("Too many requests: wait before the next.", retry_after=math.ceil(wait))

    def spend(self, tenant: str, cost: float) -> None:
        """Take `cost` tokens, which are owed if there are not enough."""
        now = self._clock.now()
        full_at = max(self._full_at.pop(tenant, 0.0), now) + self._step_ms * cost
        self._full_at[tenant] = min(full_at, now + 2 * self._burst_ms)
        if len(self._full_at) > self._tenants_max:
            self._evict(now)

    def spend_read(self, tenant: str, rows: int, size: int) -> None:
        """Take the tokens of a long read of this many rows and bytes."""
        self.spend(tenant, max(rows / READ_ROWS_PER_REQUEST, size / READ_BYTES_PER_REQUEST))

    def left(self, tenant: str) -> int:
        """Return the number of tokens that a tenant has now, without taking any."""
        owed = max(0.0, self._full_at.get(tenant, 0.0) - self._clock.now())
        return max(0, self.burst - math.ceil(min(owed, self._burst_ms) / self._step_ms - 1e-9))

    def _evict(self, now: int) -> None:
        """Evict tenants with a full bucket, which loses nothing; else the eighth that was idle
        longest.

        Idle ones come first, because every request moves its tenant to the end. Evicting one at a
        time would go through all entries for every new tenant.
        """
        idle = [tenant for tenant, full_at in self._full_at.items() if full_at <= now]
        for tenant in idle or list(islice(self._full_at, max(1, self._tenants_max // 8))):
            del self._full_at[tenant]


class SharedRateLimiter(RateLimiter):
    """A limit over all workers of a host, and over hosts. `options` are those of RateLimiter."""

    __slots__ = ("_block", "_blocks", "_exchanged", "_exchanges", "_shared", "_spent")

    def __init__(self, shared: SharedLimit, per_second: float, **options: Any) -> None:
        super().__init__(per_second, **options)
        self._shared = shared
        self._block = self.burst // _BLOCKS_PER_BURST if shared.slots is not None else 0
        self._blocks: dict[str, tuple[int, float]] = {}  # tokens left, and until when
        self._exchanged = max(1, self.burst // _EXCHANGES_PER_BURST)
        self._exchanges: dict[str, asyncio.Task[None]] = {}
        self._spent: dict[str, float] = {}

    def take(self, tenant: str, cost: int = 1) -> float:
        wait = self._take_block(tenant, cost) if self._block else self._take(tenant, cost)
        if not wait:
            self._note(tenant, cost)
        return wait

    def spend(self, tenant: str, cost: float) -> None:
        with self._loaded(tenant):
            super().spend(tenant, cost)
        self._note(tenant, cost)

    def left(self, tenant: str) -> int:
        with self._loaded(tenant):
            return super().left(tenant)

    def _take(self, tenant: str, cost: int) -> float:
        with self._loaded(tenant):
            return super().take(tenant, cost)

    def _take_block(self, tenant: str, cost: int) -> float:
        left, until = self._blocks.get(tenant, (0, 0.0))
        if left >= cost and self._clock.now() < until:
            self._blocks[tenant] = left - cost, until
            return 0
        block = self._block
        if cost + block > self.burst or self._take(tenant, cost + block):
            return self._take(tenant, cost)
        if len(self._blocks) > self._tenants_max:
            self._blocks.clear()
        self._blocks[tenant] = block, self._clock.now() + self._step_ms * block
        return 0

    @contextmanager
    def _loaded(self, tenant: str) -> Iterator[None]:
        """Read the tenant's number from the table of the host, and write it back."""
        if self._shared.slots is None:
            yield
            return
        with self._shared.slots.locked(tenant, self._clock.now()) as slot:
            self._full_at[tenant] = slot.value / 1_000
            yield
            full_at = self._full_at.pop(tenant)
            slot.set(round(full_at * 1_000), kept_until=math.ceil(full_at))

    # Over hosts

    def _note(self, tenant: str, cost: float) -> None:
        """Note what was spent; start an exchange when it is enough."""
        if self._shared.engine is None:
            return
        spent = self._spent[tenant] = self._spent.get(tenant, 0.0) + cost
        if spent >= self._exchanged and tenant not in self._exchanges:
            self._exchanges[tenant] = asyncio.ensure_future(self._exchange(tenant))
        elif len(self._spent) > self._tenants_max:
            self._spent.clear()

    async def _exchange(self, tenant: str) -> None:
        """Add what this process has spent to the bucket of all hosts, and take over what is missing
        there. A failure is left to the next exchange."""
        engine = self._shared.engine
        assert engine is not None
        try:
            with suppress(KeyhouseError):
                while (spent := self._spent.get(tenant, 0.0)) >= self._exchanged:

                    def add(value: bytes | None, spent: float = spent) -> tuple[bytes, float]:
                        now = engine.clock.now()
                        full_at = max(_number(value), now) + self._step_ms * spent
                        return b"%.3f" % full_at, full_at - now

                    seconds = 2 * self._burst_ms / 1_000 + _ROW_SECONDS
                    key = self._shared.key(tenant)
                    missing = await update_service_row(engine, key, add, kept_seconds=seconds)
                    self._spent[tenant] = max(0.0, self._spent.pop(tenant, 0.0) - spent)
                    with self._loaded(tenant):
                        full_at = self._clock.now() + min(missing, 2 * self._burst_ms)
                        self._full_at[tenant] = max(self._full_at.pop(tenant, 0.0), full_at)
        finally:
            del self._exchanges[tenant]


def _number(value: bytes | None) -> float:
    try:
        return float(value or 0)
    except ValueError:  # another program has written it
        return 0.0


def page_rates(clock: Clock | None = None, shared: SharedLimit | None = None) -> RateLimiter:
    """Return the limit of requests without a caller, by address, of a service with pages."""
    return limiter(
        shared,
        PAGE_REQUESTS_PER_SECOND,
        burst=PAGE_REQUESTS_BURST,
        clock=None if clock is None else monotonic(clock),
    )


def limiter(shared: SharedLimit | None, per_second: float, **options: Any) -> RateLimiter:
    """Return a limit of this process, or of all that share it."""
    if shared is None:
        return RateLimiter(per_second, **options)
    return SharedRateLimiter(shared, per_second, **options)
