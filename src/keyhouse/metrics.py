"""What Prometheus is told: the process, the parts, and what was asked of each system's engine.

The engine's figures are counted in plain integers by a wrapper, and become metrics when somebody looks: on the way of a
request they cost two looks at the clock. Faces and systems put metrics of their own into the same registry.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Final

import prometheus_client
from prometheus_client.core import CollectorRegistry, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from keyhouse.engine import Batch, Engine, Page, Row, Span
from keyhouse.engines.wrapper import EngineWrapper

__all__ = ["SECONDS", "MeteredEngine", "Metrics", "Timing"]

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
"""The upper ends of the histograms' steps: from a read in memory to a commit that waits for a server to come back."""


class Metrics:
    """The registry of one running service, with the process's own figures in it."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.GCCollector(registry=self.registry)
        build = prometheus_client.Info("keyhouse_build", "What runs here.", registry=self.registry)
        build.info({"version": version})
        self.ready = prometheus_client.Gauge(
            "keyhouse_system_ready",
            "1 when the system answers.",
            ["system"],
            registry=self.registry,
        )
        self.task_failures = prometheus_client.Counter(
            "keyhouse_task_failures",
            "Background tasks that failed, and were begun again.",
            ["system"],
            registry=self.registry,
        )
        self._engines = _Engines()
        self.registry.register(self._engines)

    def metered(self, system: str, engine: Engine) -> Engine:
        """The engine, counted from now on."""
        metered = MeteredEngine(engine)
        self._engines.by_system[system] = metered
        return metered

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Timing:
    """How often, and how long: one row of a histogram."""

    __slots__ = ("failures", "seconds", "steps")

    def __init__(self) -> None:
        self.steps = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.failures = 0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.steps[bisect_left(SECONDS, seconds)] += 1

    def rising(self) -> list[tuple[str, float]]:
        """Prometheus counts in each step all that are below it too."""
        return list(
            zip([*map(str, SECONDS), "+Inf"], map(float, accumulate(self.steps)), strict=True)
        )


class MeteredEngine(EngineWrapper):
    """Is an Engine. Counts `read`, `scan` and `commit`; a commit whose check did not hold counts as any other."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._read, self._scan, self._commit = engine.read, engine.scan, engine.commit
        self.reads, self.scans, self.commits = Timing(), Timing(), Timing()

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        began = perf_counter()
        try:
            rows = await self._read(space, keys)
        except BaseException:
            self.reads.failures += 1
            raise
        self.reads.add(perf_counter() - began)
        return rows

    async def scan(
        self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        began = perf_counter()
        try:
            page = await self._scan(space, span, limit=limit, reverse=reverse, keys_only=keys_only)
        except BaseException:
            self.scans.failures += 1
            raise
        self.scans.add(perf_counter() - began)
        return page

    async def commit(self, space: str, batch: Batch) -> int | None:
        began = perf_counter()
        try:
            revision = await self._commit(space, batch)
        except BaseException:
            self.commits.failures += 1
            raise
        self.commits.add(perf_counter() - began)
        return revision


class _Engines:
    """The engines' figures, as Prometheus asks for them."""

    def __init__(self) -> None:
        self.by_system: dict[str, MeteredEngine] = {}

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_engine_seconds",
            "How long the engine took to answer.",
            labels=["system", "call"],
        )
        failures = prometheus_client.core.CounterMetricFamily(
            "keyhouse_engine_failures",
            "Calls of the engine that raised an error.",
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
