"""Figures of a running service for operators: operations, errors, slow ones, quota, rate, sweeps.

They are those of this process, since it started.
"""

from collections.abc import Sequence

from keyhouse.scheduling.timing import Timing
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog, SlowOperation
from keyhouse.service.rates import RateLimiter
from keyhouse.service.usage import Quota

__all__ = ["OperatorFigures"]


class OperatorFigures:
    """`ServiceSpec.figures` of a service that has a ServiceRuntime."""

    def __init__(
        self, metrics: OperationMetrics, log: OperationLog, quota: Quota, rates: RateLimiter | None
    ) -> None:
        self._metrics = metrics
        self._log = log
        self.quota = quota
        self.rates = rates

    def operations(self, tenant: str | None = None) -> dict[str, list[Timing]]:
        """Return the timings by operation, of all tenants, or of one where metrics have tenants."""
        return self._metrics.timings(tenant)

    def errors(self, tenant: str | None = None) -> dict[str, int]:
        return self._metrics.errors(tenant)

    @property
    def has_tenants(self) -> bool:
        """True if operations and errors are known by tenant."""
        return self._metrics.has_tenants

    @property
    def slow(self) -> Sequence[SlowOperation]:
        """The newest slow operations, the newest last."""
        return [*self._log.slow]

    @property
    def sweeps(self) -> Timing:
        return self._metrics.sweeps

    @property
    def swept(self) -> int:
        """Expired rows that sweeps have deleted."""
        return self._metrics.swept
