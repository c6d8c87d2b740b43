"""Metrics for Prometheus: the process, HTTP requests, and the calls of each system's engine.

Timings are counted in plain integers and become metrics only when they are scraped: a request pays
for two readings of the clock. Listeners and systems register their metrics in the same registry.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Final

import prometheus_client
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from keyhouse.engine import Batch, Engine, Page, Row, Span
from keyhouse.engines.wrapper import EngineWrapper

__all__ = ["SECONDS", "HttpMetrics", "MeteredEngine", "Metrics", "Timing"]

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""Bounds of the histogram buckets: from a read in memory to a commit that waits for a server."""


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

    def metered(self, system: str, engine: Engine) -> Engine:
        """Return the engine with its calls counted."""
        metered = MeteredEngine(engine)
        self._engines.by_system[system] = metered
        return metered

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Timing:
    """Counts and durations: one series of a histogram."""

    __slots__ = ("failures", "seconds", "steps")

    def __init__(self) -> None:
        self.steps = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.failures = 0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.steps[bisect_left(SECONDS, seconds)] += 1

    def rising(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus counts them: each includes all lower ones."""
        return list(
            zip([*map(str, SECONDS), "+Inf"], map(float, accumulate(self.steps)), strict=True)
        )


class HttpMetrics:
    """Requests by method, route and status, requests in flight, and rejected connections.

    The label is the route's template, never the path, which would make a series for each id.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_flight = 0
        self.event_streams = 0
        self._timings: dict[tuple[str, str, int], Timing] = {}
        self._rejected: dict[int, int] = {}
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        try:
            timing = self._timings[key]
        except KeyError:
            timing = self._timings[key] = Timing()
        timing.add(seconds)

    def by_route(self) -> dict[tuple[str, str], list[tuple[int, Timing]]]:
        """Return the timings of each method and route, with their statuses."""
        found: dict[tuple[str, str], list[tuple[int, Timing]]] = {}
        for (method, route, status), timing in self._timings.items():
            found.setdefault((method, route), []).append((status, timing))
        return found

    def reject(self, status: int) -> None:
        """Count a request that the server rejected before it reached a route."""
        self._rejected[status] = self._rejected.get(status, 0) + 1

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_http_request_seconds",
            "Duration of requests.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), timing in self._timings.copy().items():
            seconds.add_metric([method, route, str(status)], timing.rising(), timing.seconds)
        yield seconds
        rejected = CounterMetricFamily(
            "keyhouse_http_refused",
            "Requests rejected before they reached a route, by status.",
            labels=["status"],
        )
        for status, count in self._rejected.copy().items():
            rejected.add_metric([str(status)], count)
        yield rejected
        yield GaugeMetricFamily(
            "keyhouse_http_in_flight", "Requests in flight.", value=self.in_flight
        )
        yield GaugeMetricFamily(
            "keyhouse_http_event_streams", "Open event streams.", value=self.event_streams
        )


class MeteredEngine(EngineWrapper):
    """Counts and times `read`, `scan` and `commit`, whether or not a commit's checks held."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._read, self._scan, self._commit = engine.read, engine.scan, engine.commit
        self.reads, self.scans, self.commits = Timing(), Timing(), Timing()

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        start = perf_counter()
        try:
            rows = await (
                self._read(space, keys)
                if bytes_max is None
                else self._read(space, keys, bytes_max=bytes_max)
            )
        except BaseException:
            self.reads.failures += 1
            raise
        self.reads.add(perf_counter() - start)
        return rows

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        start = perf_counter()
        try:
            page = await self._scan(
                space,
                span,
                limit=limit,
                reverse=reverse,
                keys_only=keys_only,
                bytes_max=bytes_max,
            )
        except BaseException:
            self.scans.failures += 1
            raise
        self.scans.add(perf_counter() - start)
        return page

    async def commit(self, space: str, batch: Batch) -> int | None:
        start = perf_counter()
        try:
            revision = await self._commit(space, batch)
        except BaseException:
            self.commits.failures += 1
            raise
        self.commits.add(perf_counter() - start)
        return revision


class _EngineCollector:
    """Collects the timings of all metered engines."""

    def __init__(self) -> None:
        self.by_system: dict[str, MeteredEngine] = {}

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
