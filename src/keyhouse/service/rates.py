"""Rate limits: a bucket of tokens for each tenant, that fills by time.

One number is kept for a tenant: the moment at which its bucket would be full again (the generic
cell rate algorithm). A tenant whose bucket is full need not be remembered, and that bounds the
memory.
"""

import math
from itertools import islice

from keyhouse.clock import Clock, SystemClock
from keyhouse.errors import RateError, UsageError
from keyhouse.limits import RATE_TENANTS_MAX

__all__ = ["RateLimiter"]


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
        self._clock = clock or SystemClock()
        self._tenants_max = tenants_max
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        """How many tenants are remembered."""
        return len(self._full_at)

    def take(self, tenant: str, cost: int = 1) -> float:
        """Take `cost` tokens and return 0; or take none, and return after how many seconds there
        will be enough.

        What costs more than the burst never fits: it counts as the whole burst.
        """
        now = self._clock.now()
        kept, burst_ms = self._full_at, self._burst_ms
        full_at = kept.pop(tenant, 0.0)
        if full_at < now:
            full_at = now
        elif full_at - now > burst_ms:
            full_at = (
                now + burst_ms
            )  # the clock was set back: an empty bucket, and not one that owes
        after = full_at + self._step_ms * (cost if cost < self.burst else self.burst)
        wait = after - now - burst_ms
        if wait <= 1e-6:
            kept[tenant], wait = after, 0.0
        else:
            kept[tenant] = full_at
        if len(kept) > self._tenants_max:
            self._forget(now)
        return wait / 1_000

    def check(self, tenant: str, cost: int = 1) -> None:
        """The same, for a caller who has nothing to say to a refusal: RateError, with the whole
        seconds to wait."""
        wait = self.take(tenant, cost)
        if wait:
            raise RateError("Too many requests: wait, then go on.", retry_after=math.ceil(wait))

    def left(self, tenant: str) -> int:
        """How many tokens a tenant has now. Nothing is taken."""
        owed = max(0.0, self._full_at.get(tenant, 0.0) - self._clock.now())
        return max(0, self.burst - math.ceil(min(owed, self._burst_ms) / self._step_ms - 1e-9))

    def _forget(self, now: int) -> None:
        """Those whose bucket is full again, which loses nothing; else an eighth, those that asked
        the longest ago.

        They stand first, because whoever asks is put to the end. Were it only one of them, all
        would be gone through again for the next tenant, and for each one after it.
        """
        quiet = [tenant for tenant, full_at in self._full_at.items() if full_at <= now]
        for tenant in quiet or list(islice(self._full_at, max(1, self._tenants_max // 8))):
            del self._full_at[tenant]
