"""Metrics of parts that a service has several of, such as one per tenant, added up."""

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import Metric

__all__ = ["SummedMetrics"]


class _Collector(Protocol):
    def collect(self) -> Iterator[Metric]: ...


class SummedMetrics:
    """A Prometheus collector. Samples of the same name and labels are one, with their sum."""

    def __init__(self) -> None:
        self._parts: list[_Collector] = []

    def add(self, part: _Collector) -> None:
        self._parts.append(part)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Any]] = {}
        for part in [*self._parts]:
            for family in part.collect():
                families.setdefault(family.name, family)
                known = sums.setdefault(family.name, {})
                for sample in family.samples:
                    key = (sample.name, tuple(sorted(sample.labels.items())))
                    known[key] = known.get(key, 0.0) + sample.value
        for name, family in families.items():
            metric = Metric(name, family.documentation, family.type)
            for (sample_name, labels), value in sums[name].items():
                metric.add_sample(sample_name, dict(labels), value)
            yield metric
