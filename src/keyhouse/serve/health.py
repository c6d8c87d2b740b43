"""Whether the service is alive, and whether each system can answer now: what a load balancer and an operator ask.

Alive is who answers at all. Ready is who could take a request: the engine answers, and the system says nothing against it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from keyhouse.errors import KeyhouseError
from keyhouse.metrics import Metrics

CHECK_SECONDS: Final = 3.0
"""How long a check may take: who is slower is not ready."""

KEPT_SECONDS: Final = 1.0
"""How long an answer holds, so that asking often costs the engine nothing."""

_log = structlog.get_logger("keyhouse.serve")


class SystemHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """`why` is a sentence, and `code` the machine's name for it, of a system that is not ready."""

    ready: bool
    code: str | None = None
    why: str | None = None


class Readiness(msgspec.Struct, frozen=True):
    ready: bool
    systems: dict[str, SystemHealth]


class Health:
    """Asks each system's checks, all at once, and keeps what they said for a moment."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._checks: dict[str, list[Callable[[], Awaitable[object]]]] = {}
        self._last: tuple[float, Readiness] | None = None
        self._asking = asyncio.Lock()

    def add(self, system: str, *checks: Callable[[], Awaitable[object]]) -> None:
        self._checks.setdefault(system, []).extend(checks)

    async def readiness(self) -> Readiness:
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._last is None or now - self._last[0] > KEPT_SECONDS:
                self._last = (now, await self._look())
            return self._last[1]

    async def _look(self) -> Readiness:
        answers = await asyncio.gather(*(_check(checks) for checks in self._checks.values()))
        systems = dict(zip(self._checks, answers, strict=True))
        for name, health in systems.items():
            self._metrics.ready.labels(name).set(health.ready)
        return Readiness(all(health.ready for health in answers), systems)


async def _check(checks: list[Callable[[], Awaitable[object]]]) -> SystemHealth:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            for check in checks:
                await check()
    except KeyhouseError as error:
        return SystemHealth(False, error.code, error.sentence)
    except TimeoutError:
        return SystemHealth(False, "TIMEOUT", "It did not answer in time.")
    except Exception:
        _log.exception("a readiness check failed")
        return SystemHealth(False, KeyhouseError.code, "Its check failed; the log says how.")
    return SystemHealth(True)
