"""Metrics of a service's operations, for Prometheus.

Requests update plain numbers; metrics are built from them when they are scraped. All names have the
service's prefix: `rosey_kv_get_total`, `rosey_kv_get_duration_seconds`, `rosey_kv_errors_total`,
`rosey_kv_keys_total`, and so on. With a tenant label, tenants past `TENANT_LABELS_MAX` share the
label `(others)`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from keyhouse.errors import DeclarationError
from keyhouse.scheduling.timing import Timing
from keyhouse.schema.operation import METRIC_NAMES
from keyhouse.service.limits import TENANT_LABELS_MAX
from keyhouse.service.usage import Size

__all__ = ["OTHERS", "OperationMetrics"]

OTHERS: Final = "(others)"

_METRIC_OF: Final = {"keys": "list_keys"}
"""Names in metrics of operations whose own name is taken: `keys_total` are the stored keys."""


class OperationMetrics:
    """A Prometheus collector. `tenant_label` None: metrics are summed over all tenants.
    `unprepared` returns the number of spaces that could not be prepared.

    A scrape may run in another thread. It iterates over copies of dictionaries, which are made in
    one step; building a list could start a garbage collection, and with it another thread.
    """

    def __init__(
        self,
        prefix: str,
        operations: Sequence[str] = (),
        *,
        tenant_label: str | None = None,
        has_watches: bool = False,
        unprepared: Callable[[], int] | None = None,
    ) -> None:
        self.prefix = prefix
        self._labels = [] if tenant_label is None else [tenant_label]
        self._timings: dict[str, dict[str, Timing]] = {}
        self._tenants: set[str] = set()
        self._errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._stored: dict[str, Size] = {}
        self._has_watches = has_watches
        self._unprepared = unprepared
        self.watches = 0
        self.sweeps = Timing()
        self.swept = 0
        for operation in operations:
            self.add_operation(operation)

    @property
    def has_tenants(self) -> bool:
        """True if metrics have a tenant label."""
        return bool(self._labels)

    def label(self, tenant: str) -> str:
        """Return the label of a tenant: its name, `(others)`, or nothing where tenants have no
        label."""
        if not self._labels or not tenant:
            return ""
        if tenant in self._tenants:
            return tenant
        if len(self._tenants) >= TENANT_LABELS_MAX:
            return OTHERS
        self._tenants.add(tenant)
        return tenant

    def add_operation(self, operation: str) -> None:
        """Declare an operation, before the first scrape. One that is known stays as it is."""
        if operation in METRIC_NAMES:
            raise DeclarationError(
                "Every service has a metric of this name: name the operation differently.",
                operation=operation,
            )
        self._timings.setdefault(operation, {})

    def timing(self, operation: str, tenant: str) -> Timing:
        """Return the timing of one operation and tenant, to be cached by the caller."""
        return self._timings[operation].setdefault(self.label(tenant), Timing())

    def failed(self, tenant: str, code: str) -> None:
        self._errors[self.label(tenant), code] += 1

    def stored(self, sizes: Mapping[str, Size]) -> None:
        """Replace the keys and bytes of each tenant by those of a usage scan."""
        stored: dict[str, Size] = {}
        for tenant, size in sizes.items():
            label = self.label(tenant)
            stored[label] = stored.get(label, Size()) + size
        self._stored = stored

    def export_stored(self) -> dict[str, Size]:
        return self._stored

    def adopt_stored(self, stored: Any) -> None:
        """Show the result of a usage scan of another process."""
        with suppress(msgspec.ValidationError):  # of another version
            self._stored = msgspec.convert(stored, dict[str, Size])

    def timings(self, tenant: str | None = None) -> dict[str, list[Timing]]:
        """Return the timings by operation, of one tenant or of all; operations that never ran are
        left out."""
        if tenant is None:
            return {
                operation: ran
                for operation, by_tenant in self._timings.items()
                if (ran := [timing for timing in by_tenant.copy().values() if any(timing.steps)])
            }
        return {
            operation: [by_tenant[tenant]]
            for operation, by_tenant in self._timings.items()
            if tenant in by_tenant
        }

    def errors(self, tenant: str | None = None) -> dict[str, int]:
        """Return the number of errors by code, of one tenant or of all."""
        errors: defaultdict[str, int] = defaultdict(int)
        for (label, code), count in self._errors.copy().items():
            if tenant is None or label == tenant:
                errors[code] += count
        return dict(errors)

    def collect(self) -> Iterator[Metric]:
        for operation, by_tenant in self._timings.items():
            name = f"{self.prefix}_{_METRIC_OF.get(operation, operation)}"
            total = CounterMetricFamily(name, f"Operations `{operation}`.", labels=self._labels)
            seconds = HistogramMetricFamily(
                f"{name}_duration_seconds",
                f"Duration of `{operation}`.",
                labels=self._labels,
            )
            for tenant, timing in by_tenant.copy().items():
                label = self._label_values(tenant)
                total.add_metric(label, sum(timing.steps))
                seconds.add_metric(label, timing.rising(), timing.seconds)
            yield total
            yield seconds
        yield from self._collect_errors()
        yield from self._collect_storage()
        if self._has_watches:
            yield GaugeMetricFamily(f"{self.prefix}_watches", "Active watches.", value=self.watches)
        if self._unprepared is not None:
            yield GaugeMetricFamily(
                f"{self.prefix}_spaces_unprepared",
                "Spaces whose migration or index build failed at the last try.",
                value=self._unprepared(),
            )

    def _label_values(self, label: str) -> list[str]:
        return [label] if self._labels else []

    def _collect_errors(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            f"{self.prefix}_errors",
            "Operations rejected or failed.",
            labels=[*self._labels, "error_code"],
        )
        for (tenant, code), count in self._errors.copy().items():
            errors.add_metric([*self._label_values(tenant), code], count)
        yield errors

    def _collect_storage(self) -> Iterator[Metric]:
        keys = GaugeMetricFamily(
            f"{self.prefix}_keys_total", "Keys stored, at the last count.", labels=self._labels
        )
        size = GaugeMetricFamily(
            f"{self.prefix}_storage_bytes",
            "Bytes of keys and values stored, at the last count.",
            labels=self._labels,
        )
        for tenant, stored in self._stored.copy().items():
            keys.add_metric(self._label_values(tenant), stored.keys)
            size.add_metric(self._label_values(tenant), stored.bytes)
        yield keys
        yield size
        cleanup = HistogramMetricFamily(
            f"{self.prefix}_cleanup_duration_seconds", "Duration of a sweep of expired rows."
        )
        cleanup.add_metric([], self.sweeps.rising(), self.sweeps.seconds)
        yield cleanup
        yield CounterMetricFamily(
            f"{self.prefix}_cleanup_deleted", "Expired rows deleted by sweeps.", value=self.swept
        )
