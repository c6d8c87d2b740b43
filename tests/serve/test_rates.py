"""Rate limits: a burst, then the rate; one tenant never pays for another; the memory is bounded."""

from itertools import pairwise

import pytest

from keyhouse.clock import ManualClock, MonotonicClock, SystemClock, monotonic
from keyhouse.errors import RateError, UsageError
from keyhouse.service.limits import READ_BYTES_PER_REQUEST, READ_ROWS_PER_REQUEST
from keyhouse.service.rates import RateLimiter
from keyhouse.service.settings import TenantSettings, rate_limiter


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = ManualClock()
    rates = RateLimiter(2, burst=3, clock=clock)
    assert [rates.take("ann") for _ in range(4)] == [0, 0, 0, 0.5]
    clock.advance(milliseconds=499)
    assert rates.take("ann") == pytest.approx(0.001)
    clock.advance(milliseconds=1)
    assert [rates.take("ann") for _ in range(2)] == [0, 0.5]
    clock.advance(seconds=3_600)
    assert [bool(rates.take("ann")) for _ in range(4)] == [False, False, False, True]


def test_remaining_tokens_can_be_read_without_taking_one() -> None:
    clock = ManualClock()
    rates = RateLimiter(2, burst=3, clock=clock)
    assert rates.left("ann") == 3 and len(rates) == 0
    for left in (2, 1, 0, 0):
        rates.take("ann")
        assert rates.left("ann") == left
    clock.advance(milliseconds=499)
    assert rates.left("ann") == 0
    clock.advance(milliseconds=1)
    assert rates.left("ann") == 1
    clock.advance(seconds=60)
    assert rates.left("ann") == 3


def test_a_rejection_takes_no_token() -> None:
    clock = ManualClock()
    rates = RateLimiter(1, burst=1, clock=clock)
    rates.take("ann")
    assert {rates.take("ann") for _ in range(100)} == {1}
    clock.advance(seconds=1)
    assert rates.take("ann") == 0


def test_a_tenant_never_pays_for_another() -> None:
    rates = RateLimiter(1, burst=1, clock=ManualClock())
    for _ in range(50):
        rates.take("ann")
    assert rates.take("bob") == 0


def test_work_may_cost_more_than_one() -> None:
    clock = ManualClock()
    rates = RateLimiter(10, burst=10, clock=clock)
    assert rates.take("ann", cost=8) == 0
    assert rates.take("ann", cost=8) == pytest.approx(0.6)
    clock.advance(seconds=0.6)
    assert rates.take("ann", cost=8) == 0
    clock.advance(seconds=60)
    assert rates.take("ann", cost=1_000) == 0, "what is larger than the burst would else never go"
    assert rates.take("ann") > 0


def test_the_error_has_whole_seconds_to_wait() -> None:
    rates = RateLimiter(0.4, burst=1, clock=ManualClock())
    rates.check("ann")
    with pytest.raises(RateError) as refused:
        rates.check("ann")
    assert refused.value.fields == {"retry_after": 3} and refused.value.status == 429


def test_rates_do_not_go_by_the_time_of_day() -> None:
    """Set back, the clock emptied the bucket of every tenant that had asked lately."""
    assert isinstance(monotonic(SystemClock()), MonotonicClock)
    assert isinstance(monotonic(clock := ManualClock()), ManualClock)
    assert monotonic(clock) is clock

    class SetBack(SystemClock):
        hours = 0

        def now(self) -> int:
            return super().now() - 3_600_000 * self.hours

    clock_of_day = SetBack()
    limiter = rate_limiter(TenantSettings(rate_per_second=0.001, rate_burst=2), clock_of_day)
    assert limiter is not None
    limiter.check("ann")
    clock_of_day.hours = 1
    limiter.check("ann")


def test_what_is_spent_without_a_check_is_owed_up_to_a_burst() -> None:
    clock = ManualClock()
    rates = RateLimiter(10, burst=20, clock=clock)
    rates.spend("ann", 25)
    assert rates.left("ann") == 0
    assert rates.take("ann") == pytest.approx(0.6)
    rates.spend("ann", 1_000_000)
    assert rates.take("ann") == pytest.approx(2.1)
    clock.advance(seconds=2.1)
    assert rates.take("ann") == 0
    assert rates.take("bob") == 0


def test_a_long_read_costs_by_rows_or_by_bytes() -> None:
    rates = RateLimiter(1, burst=100, clock=ManualClock())
    rates.spend_read("ann", 10 * READ_ROWS_PER_REQUEST, 1_000)
    assert rates.left("ann") == 90
    rates.spend_read("ann", 1, 20 * READ_BYTES_PER_REQUEST)
    assert rates.left("ann") == 70


def test_a_clock_set_back_locks_no_tenant_out() -> None:
    clock = ManualClock()
    rates = RateLimiter(1, burst=5, clock=clock)
    rates.take("ann")
    clock.advance(seconds=-86_400)
    assert rates.take("ann") == pytest.approx(1), "an empty bucket, at worst"
    clock.advance(seconds=1)
    assert rates.take("ann") == 0


def test_idle_tenants_are_evicted_and_memory_is_bounded() -> None:
    clock = ManualClock()
    rates = RateLimiter(1, burst=2, clock=clock, tenants_max=100)
    for number in range(100):
        rates.take(str(number))
    clock.advance(seconds=1)
    rates.take("new")
    assert len(rates) == 1, "the buckets of the others are full again"
    for number in range(1_000):
        rates.take(str(number))
        assert len(rates) <= 100


def test_the_least_recently_used_tenant_is_evicted_first() -> None:
    rates = RateLimiter(1, burst=1, clock=ManualClock(), tenants_max=2)
    for tenant in ("ann", "bob", "ann", "cid"):
        rates.take(tenant)
    assert rates.take("ann") > 0
    assert rates.take("bob") == 0


@pytest.mark.parametrize(
    ("rate", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (float("inf"), 1), (1, 0)]
)
def test_an_invalid_rate_is_rejected(rate: float, burst: int) -> None:
    with pytest.raises(UsageError):
        RateLimiter(rate, burst=burst)


def test_a_new_tenant_does_not_scan_all_busy_ones() -> None:
    """While no bucket was full again, each new tenant evicted one, and scanned all to find it."""
    clock = ManualClock()
    limiter = RateLimiter(0.001, burst=1, clock=clock, tenants_max=800)
    sizes = []
    for number in range(2_000):
        limiter.take(f"tenant-{number}")
        sizes.append(len(limiter))
    assert max(sizes) == 800
    assert sum(after < before for before, after in pairwise(sizes)) == 12  # an eighth at a time
    assert limiter.left("tenant-1999") == 0
