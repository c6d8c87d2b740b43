"""Health and readiness, with the routes /health, /ready and /metrics.

A process that responds is alive. A system is ready if its engine responds and its own check passes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from keyhouse import __version__
from keyhouse.errors import KeyhouseError
from keyhouse.http import Response, ResponseSpec, Route
from keyhouse.serve.metrics import Metrics

CHECK_SECONDS: Final = 3.0
"""Timeout of a system's checks."""

CACHE_SECONDS: Final = 1.0
"""Lifetime of a cached result: frequent probes do not load the engine."""

_log = structlog.get_logger("keyhouse.serve")


class SystemHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """`why` (a sentence) and `code` are set if the system is not ready; `loaded` and `total` while
    its engine loads its keys."""

    ready: bool
    code: str | None = None
    why: str | None = None
    loaded: int | None = None
    total: int | None = None


class Readiness(msgspec.Struct, frozen=True):
    ready: bool
    systems: dict[str, SystemHealth]


class Health:
    """Runs the checks of all systems concurrently, and caches the result."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._checks: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._cached: tuple[float, Readiness] | None = None
        self._checking = asyncio.Lock()

    def add(
        self, system: str, *checks: Callable[[], Awaitable[object]], first: bool = False
    ) -> None:
        """Add checks; `first` runs them before the earlier ones, whose failures they explain."""
        added = self._checks.setdefault(system, [])
        at = 0 if first else len(added)
        added[at:at] = checks

    @property
    def systems(self) -> Sequence[str]:
        return [*self._checks]

    async def readiness(self) -> Readiness:
        async with self._checking:
            now = asyncio.get_running_loop().time()
            if self._cached is None or now - self._cached[0] > CACHE_SECONDS:
                self._cached = (now, await self._check_all())
            return self._cached[1]

    async def _check_all(self) -> Readiness:
        results = await asyncio.gather(*(_check(checks) for checks in self._checks.values()))
        systems = dict(zip(self._checks, results, strict=True))
        for name, health in systems.items():
            self._metrics.ready.labels(name).set(health.ready)
        return Readiness(all(health.ready for health in results), systems)


async def _check(checks: list[Callable[[], Awaitable[object]]]) -> SystemHealth:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            for check in checks:
                await check()
    except KeyhouseError as error:
        fields = {name: error.fields.get(name) for name in ("loaded", "total")}
        progress = {name: value for name, value in fields.items() if isinstance(value, int)}
        return SystemHealth(False, error.code, error.sentence, **progress)
    except TimeoutError:
        return SystemHealth(False, "TIMEOUT", "The check timed out.")
    except Exception:
        _log.exception("readiness check failed")
        return SystemHealth(False, KeyhouseError.code, "The check failed; see the log.")
    return SystemHealth(True)


class AllWorkers(Protocol):
    """The workers of a host: `keyhouse.serve.peers`."""

    async def readiness(self) -> Readiness: ...
    async def page(self) -> bytes: ...


def health_routes(
    health: Health, metrics: Metrics, workers: AllWorkers | None = None
) -> Sequence[Route]:
    """Return the routes of this process, or of all `workers` of the host."""
    scraping = asyncio.Lock()
    check = health.readiness if workers is None else workers.readiness

    async def alive() -> dict[str, str]:
        """Report that the process responds, whatever the state of the systems."""
        return {"status": "alive", "version": __version__}

    async def ready() -> Response[Readiness]:
        """Report whether every system is ready, and why not."""
        readiness = await check()
        return Response(readiness, 200 if readiness.ready else 503)

    async def page() -> Response[bytes]:
        """Return the metrics in the text format of Prometheus, after a check of all systems."""
        async with scraping:  # one at a time, in a thread: 15 MB with a thousand plugins
            if workers is not None:
                text = await workers.page()
            else:
                await health.readiness()
                text = await asyncio.to_thread(metrics.page)
        return Response(text, media_type=metrics.content_type)

    readiness: dict[int, Any] = {
        200: Readiness,
        503: ResponseSpec(type=Readiness, about="Some system is not ready, and why."),
    }
    prometheus = ResponseSpec(type=bytes, about="Prometheus text.", media_type=metrics.content_type)
    return (
        Route(method="GET", path="/health", handler=alive, tag="operator"),
        Route(method="GET", path="/ready", handler=ready, replies=readiness, tag="operator"),
        Route(
            method="GET", path="/metrics", handler=page, replies={200: prometheus}, tag="operator"
        ),
    )
