"""Slow operations, and durations of operations and engine calls, by system, in this process."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.http.metrics import HttpMetrics
from keyhouse.scheduling.timing import SECONDS, Timing
from keyhouse.service.served_engine import ServedEngine
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.private_keys import fields_of, has_hidden
from keyhouse.studio.rendering import MASK
from keyhouse.studio.settings import ADMIN

QUANTILES: Final = (0.5, 0.95, 0.99)


class CallFigures(msgspec.Struct, kw_only=True):
    """Operations of a system, or calls of its engine, since the process started. Quantiles are the
    ends of their histogram buckets in milliseconds; null past the last one."""

    system: str
    call: str
    count: int
    failures: int
    mean_ms: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    slow: int


class ErrorFigures(msgspec.Struct):
    """Operations of a system that were rejected or have failed, by the code of the error."""

    system: str
    code: str
    count: int


class SlowLine(msgspec.Struct, kw_only=True):
    """One slow operation. `what` describes it: its key or its path."""

    system: str
    operation: str
    tenant: str
    at: int
    milliseconds: float
    what: str


class SlowPage(msgspec.Struct):
    """`slow` are the newest operations that exceeded the `slow_seconds` of their system. `slow`
    requests and calls of an engine took longer than `slow_ms`. `requests` are those of HTTP, by
    route; the last `requests_cut`, by slow requests and mean, are left out. `errors` are those of
    operations."""

    slow_ms: float
    slow: list[SlowLine]
    operations: list[CallFigures]
    errors: list[ErrorFigures]
    requests: list[CallFigures]
    requests_cut: int
    calls: list[CallFigures]


class Figures:
    """`requests` are the metrics of the app, once it is made."""

    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog
        self.requests: HttpMetrics | None = None

    async def page(self, caller: Caller) -> SlowPage:
        """Slow operations, the newest first; durations by system, the slowest kinds first."""
        systems = self._catalog.systems.values()
        calls = [
            call_figures(system.name, name, [timing])
            for system in systems
            for engine in system.engines
            if isinstance(engine, ServedEngine)
            for name, timing in (
                ("read", engine.reads),
                ("scan", engine.scans),
                ("commit", engine.commits),
            )
        ]
        operations = [each for system in systems for each in operation_figures(system)]
        requests = self._requests()
        for figures in (calls, operations, requests):
            figures.sort(key=lambda each: (-each.slow, -each.mean_ms))
        return SlowPage(
            slow_ms=SLOW_SECONDS * 1_000,
            slow=_slow_lines(systems, ADMIN in caller.scopes),
            operations=operations,
            errors=[
                ErrorFigures(system.name, code, count)
                for system in systems
                if system.figures is not None
                for code, count in sorted(system.figures.errors().items())
            ],
            requests=requests[:ROUTES_MAX],
            requests_cut=len(requests[ROUTES_MAX:]),
            calls=calls,
        )

    def _requests(self) -> list[CallFigures]:
        """Return the durations of the systems' HTTP routes. A status of 500 and above has
        failed."""
        if self.requests is None:
            return []
        found: list[CallFigures] = []
        for (method, route), timings in self.requests.by_route().items():
            system = route[1:].partition("/")[0]
            if system in self._catalog.systems:
                figures = call_figures(system, f"{method} {route}", [each for _, each in timings])
                figures.failures = sum(sum(each.steps) for code, each in timings if code >= 500)
                found.append(figures)
        return found


def operation_figures(system: StudioSystem, tenant: str | None = None) -> list[CallFigures]:
    """Return the durations of a system's operations, of all tenants or of one."""
    if system.figures is None:
        return []
    timings = system.figures.operations(tenant)
    return [call_figures(system.name, name, each) for name, each in timings.items()]


def _slow_lines(systems: Iterable[StudioSystem], sees_private: bool) -> list[SlowLine]:
    lines = [
        SlowLine(
            system=system.name,
            operation=each.operation,
            tenant=each.tenant,
            at=each.at,
            milliseconds=each.milliseconds,
            what=" ".join(
                f"{name}={_shown(system, value, sees_private)}"
                for name, value in each.fields.items()
            ),
        )
        for system in systems
        if system.figures is not None
        for each in system.figures.slow
    ]
    return sorted(lines, key=lambda each: -each.at)[:SLOW_LINES_MAX]


def _shown(system: StudioSystem, value: object, sees_private: bool) -> object:
    """Return a field of an operation. Text may be the key of a row, or a value that a client asked
    for, and so a private member."""
    if sees_private or not isinstance(value, str) or not any(map(has_hidden, system.schemas)):
        return value
    matches = filter(None, (schema.find(value) for schema in system.schemas))
    is_open = any(not fields_of(each) for each in matches)
    return value if is_open else MASK


SLOW_LINES_MAX: Final = 200
ROUTES_MAX: Final = 100
SLOW_SECONDS: Final = 0.1


def call_figures(system: str, call: str, timings: Sequence[Timing]) -> CallFigures:
    total = Timing.sum_of(timings)
    steps, count = total.steps, sum(total.steps)
    quantiles: dict[str, Any] = {
        f"p{round(100 * each)}_ms": _quantile(steps, count, each) for each in QUANTILES
    }
    slow = sum(
        number
        for end, number in zip((*SECONDS, float("inf")), steps, strict=True)
        if end > SLOW_SECONDS
    )
    return CallFigures(
        system=system,
        call=call,
        count=count,
        failures=total.failures,
        mean_ms=round(1_000 * total.seconds / max(1, count), 3),
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
