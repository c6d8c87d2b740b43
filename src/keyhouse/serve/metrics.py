"""The registry of a running service for Prometheus: the process, and of each system the operations
and the calls of its engine. Listeners and systems register their metrics in the same registry.
"""

from collections.abc import Iterator
from typing import Final

import prometheus_client
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from keyhouse.engine import Engine
from keyhouse.scheduling.timing import Timing
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.served_engine import ServedEngine

__all__ = ["Metrics"]


class Metrics:
    """The registry of a running service, with the metrics of the process."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.GCCollector(registry=self.registry)
        build = prometheus_client.Info(
            "keyhouse_build", "The running version.", registry=self.registry
        )
        build.info({"version": version})
        self.ready = prometheus_client.Gauge(
            "keyhouse_system_ready",
            "1 if the system is ready.",
            ["system"],
            registry=self.registry,
        )
        self.task_failures = prometheus_client.Counter(
            "keyhouse_task_failures",
            "Background tasks that failed and were restarted.",
            ["system"],
            registry=self.registry,
        )
        self._engines = _EngineCollector()
        self.registry.register(self._engines)
        self._operations = _OperationCollector()
        self.registry.register(self._operations)

    def served(self, system: str, engine: Engine) -> Engine:
        """Return the engine for services, with its calls counted."""
        served = self._engines.by_system[system] = ServedEngine(engine)
        return served

    def operated(self, system: str, figures: OperatorFigures) -> None:
        """Collect the operations of a system."""
        self._operations.by_system[system] = figures

    def page(self) -> bytes:
        return generate_latest(self.registry)


class _EngineCollector:
    """Collects the timings of all served engines."""

    def __init__(self) -> None:
        self.by_system: dict[str, ServedEngine] = {}

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_engine_seconds",
            "Duration of engine calls.",
            labels=["system", "call"],
        )
        failures = CounterMetricFamily(
            "keyhouse_engine_failures",
            "Engine calls that raised an error.",
            labels=["system", "call"],
        )
        for system, engine in self.by_system.items():
            for call, timing in (
                ("read", engine.reads),
                ("scan", engine.scans),
                ("commit", engine.commits),
            ):
                seconds.add_metric([system, call], timing.rising(), timing.seconds)
                failures.add_metric([system, call], timing.failures)
        yield seconds
        yield failures


class _OperationCollector:
    """Collects the operations of all systems, of all tenants: one name for a dashboard of any
    system."""

    def __init__(self) -> None:
        self.by_system: dict[str, OperatorFigures] = {}

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_operation_seconds",
            "Duration of operations.",
            labels=["system", "operation"],
        )
        errors = CounterMetricFamily(
            "keyhouse_operation_errors",
            "Rejected or failed operations.",
            labels=["system", "error_code"],
        )
        for system, figures in self.by_system.items():
            for operation, timings in figures.operations().items():
                total = Timing.sum_of(timings)
                seconds.add_metric([system, operation], total.rising(), total.seconds)
            for code, count in figures.errors().items():
                errors.add_metric([system, code], count)
        yield seconds
        yield errors
