"""Slow operations and durations: how the engines of each system answer, in this process."""

from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.metrics import SECONDS, MeteredEngine, Timing
from keyhouse.studio.catalog import SystemCatalog

QUANTILES: Final = (0.5, 0.95, 0.99)


class CallFigures(msgspec.Struct, kw_only=True):
    """Calls of an engine since the process started. Quantiles are the ends of their histogram
    buckets in milliseconds; null past the last one."""

    system: str
    call: str
    count: int
    failures: int
    mean_ms: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    slow: int


class SlowPage(msgspec.Struct):
    """`slow` calls took longer than `slow_ms`."""

    slow_ms: float
    calls: list[CallFigures]


class Figures:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def page(self, caller: Caller) -> SlowPage:
        """Durations of engine calls by system, the slowest kinds first."""
        calls = [
            call_figures(system.name, name, timing)
            for system in self._catalog.systems.values()
            for engine in system.engines
            if isinstance(engine, MeteredEngine)
            for name, timing in (
                ("read", engine.reads),
                ("scan", engine.scans),
                ("commit", engine.commits),
            )
        ]
        calls.sort(key=lambda each: (-each.slow, -each.mean_ms))
        return SlowPage(SLOW_SECONDS * 1_000, calls)


SLOW_SECONDS: Final = 0.1


def call_figures(system: str, call: str, timing: Timing) -> CallFigures:
    count = sum(timing.steps)
    quantiles: dict[str, Any] = {
        f"p{round(100 * each)}_ms": _quantile(timing.steps, count, each) for each in QUANTILES
    }
    slow = sum(
        steps
        for end, steps in zip((*SECONDS, float("inf")), timing.steps, strict=True)
        if end > SLOW_SECONDS
    )
    return CallFigures(
        system=system,
        call=call,
        count=count,
        failures=timing.failures,
        mean_ms=round(1_000 * timing.seconds / max(1, count), 3),
        slow=slow,
        **quantiles,
    )


def _quantile(steps: list[int], count: int, share: float) -> float | None:
    below = 0
    for end, each in zip(SECONDS, steps, strict=False):
        below += each
        if count and below >= share * count:
            return end * 1_000
    return None
