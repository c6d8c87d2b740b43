"""Statistics of a running service as an operator's view returns them: `/metrics` in brief, since
the process started."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from keyhouse.metrics import SECONDS, Timing
from keyhouse.service.runtime import ServiceRuntime

__all__ = [
    "STATS_EXAMPLE",
    "OperationStats",
    "QuotaView",
    "RateView",
    "ServiceStats",
    "operation_count",
    "operation_stats",
    "quota_view",
    "rate_view",
    "service_stats",
]


class OperationStats(Struct):
    """Number and duration of one operation, in this process."""

    count: int
    mean_ms: float
    p95_ms: Annotated[
        float | None,
        Meta(description="Upper bound: the end of its histogram bucket; `null` past the last."),
    ]


class QuotaView(Struct):
    """`null`: unlimited."""

    keys: int | None
    bytes: int | None


class RateView(Struct):
    """`left`: operations allowed at once now."""

    per_second: float
    burst: int
    left: int


class ServiceStats(Struct):
    """Statistics of this process since it started."""

    operations: dict[str, OperationStats]
    errors: dict[str, int]
    watches: int
    cleanups: int
    cleaned: Annotated[int, Meta(description="Expired keys deleted by cleanups.")]
    quota: QuotaView
    rate_per_second: float | None


STATS_EXAMPLE: Final[dict[str, Any]] = {
    "operations": {"set": {"count": 4, "mean_ms": 0.31, "p95_ms": 0.5}},
    "errors": {"VALIDATION_ERROR": 1},
    "watches": 0,
    "cleanups": 1,
    "cleaned": 12,
    "quota": {"keys": None, "bytes": None},
    "rate_per_second": None,
}


def service_stats(runtime: ServiceRuntime[Any]) -> ServiceStats:
    metrics = runtime.metrics
    return ServiceStats(
        operations=operation_stats(metrics.timings()),
        errors=metrics.errors(),
        watches=metrics.watches,
        cleanups=sum(metrics.sweeps.steps),
        cleaned=metrics.swept,
        quota=quota_view(runtime),
        rate_per_second=None if runtime.rates is None else runtime.rates.per_second,
    )


def operation_stats(timings: Mapping[str, Sequence[Timing]]) -> dict[str, OperationStats]:
    """Return the statistics of operations by name, each summed over its timings."""
    return {operation: _stats(each) for operation, each in timings.items()}


def operation_count(timings: Sequence[Timing]) -> int:
    return sum(sum(timing.steps) for timing in timings)


def quota_view(runtime: ServiceRuntime[Any]) -> QuotaView:
    return QuotaView(runtime.quota.keys or None, runtime.quota.bytes or None)


def rate_view(runtime: ServiceRuntime[Any], tenant: str) -> RateView | None:
    """Return the rate of a tenant; None if the service has no rate limit."""
    rates = runtime.rates
    if rates is None:
        return None
    return RateView(rates.per_second, rates.burst, rates.left(tenant))


def _stats(timings: Sequence[Timing]) -> OperationStats:
    count = operation_count(timings)
    below, p95 = 0, None
    for end, *steps in zip(SECONDS, *(timing.steps for timing in timings), strict=False):
        below += sum(steps)
        if below >= 0.95 * count:
            p95 = end * 1_000
            break
    seconds = sum(timing.seconds for timing in timings)
    return OperationStats(count, round(seconds * 1_000 / max(count, 1), 3), p95)
