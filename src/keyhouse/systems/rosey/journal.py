"""The log of operations: each at DEBUG, slow ones as a warning, failures by whose fault they are.

Above a thousand operations a second, one in a hundred is shown at DEBUG, of refusals that nobody is told of, and of failures
in an outage: while a database is away, each request is one. Such a failure is a line, any other has its traceback. Values
are never logged, and no text that is longer than a key may be.
"""

import logging
import random
import time
from typing import Any, Final

import structlog

from keyhouse.errors import (
    AccessError,
    ConflictError,
    FullError,
    KeyhouseError,
    LockedError,
    UnavailableError,
    UnknownOutcomeError,
)

__all__ = ["Journal", "origin"]

SAMPLED_ABOVE: Final = 1_000
"""Operations in one second that are all shown."""

SAMPLE: Final = 0.01

OUTAGES: Final = (
    UnavailableError,
    UnknownOutcomeError,
    FullError,
    LockedError,
    AccessError,
    ConflictError,
)
"""What is foreseen of an engine, or of many callers at once, and comes with every request while it lasts."""

CHARS_MAX: Final = 255
"""Of a text that a plugin has chosen. A key fits; what is longer is none, and may have a million."""


class Journal:
    def __init__(self, slow_ms: float, *, draw: random.Random | None = None) -> None:
        self._log: Any = structlog.get_logger("keyhouse.rosey").bind()
        self._slow_seconds = slow_ms / 1_000
        self._draw = (draw or random.Random()).random
        self._second = 0
        self._count = 0
        self._busy = False
        self._debugs: bool = self._log.is_enabled_for(logging.DEBUG)

    def wants(self, seconds: float) -> bool:
        """Whether an operation that took so long is to be told: all slow ones, and a sample of the others at DEBUG."""
        return seconds > self._slow_seconds or (self._debugs and self._is_drawn())

    def done(self, operation: str, plugin: str, seconds: float, fields: dict[str, Any]) -> None:
        """`fields` are what is said of the operation besides: its key, and what came of it."""
        slow = seconds > self._slow_seconds
        (self._log.warning if slow else self._log.debug)(
            f"kv {operation}" + (" slow" if slow else ""),
            operation=f"kv_{operation}",
            plugin=plugin,
            latency_ms=round(seconds * 1_000, 3),
            **_short(fields),
        )

    def failed(
        self,
        operation: str,
        plugin: str,
        error: Exception,
        *,
        answered: bool,
        fields: dict[str, Any],
    ) -> None:
        """A mistake of the plugin's that it is told of is nobody else's concern; one that it isn't told of is here only."""
        code = error.code if isinstance(error, KeyhouseError) else KeyhouseError.code
        said = {
            "operation": f"kv_{operation}",
            "plugin": plugin,
            "error": code,
            "reason": str(error),
            **_short(fields),
        }
        if not isinstance(error, KeyhouseError) or error.status >= 500:
            if not isinstance(error, OUTAGES) or self._is_drawn():
                self._log.error(f"kv {operation} failed", **said, **origin(error))
        elif answered:
            self._log.debug(f"kv {operation} refused", **said)
        elif self._is_drawn():
            self._log.warning(f"kv {operation} refused", **said)

    def swept(self, count: int, seconds: float) -> None:
        said = {"operation": "kv_cleanup", "removed": count, "seconds": round(seconds, 3)}
        if seconds > 1:
            self._log.warning("kv cleanup slow", **said)
        else:
            self._log.info("kv cleanup", **said)

    def sweep_failed(self, error: KeyhouseError) -> None:
        self._log.error(
            "kv cleanup failed", operation="kv_cleanup", reason=str(error), **origin(error)
        )

    def census_failed(self, error: KeyhouseError) -> None:
        self._log.error(
            "kv census failed", operation="kv_census", reason=str(error), **origin(error)
        )

    def _is_drawn(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._busy = self._count > SAMPLED_ABOVE and second == self._second + 1
            self._second, self._count = second, 0
        self._count += 1
        return not (self._busy or self._count > SAMPLED_ABOVE) or self._draw() < SAMPLE


def origin(error: BaseException | None) -> dict[str, Any]:
    """How a failure came about: its traceback; of an outage only what the driver said."""
    if not isinstance(error, OUTAGES):
        return {"exc_info": error}
    cause = error.__cause__
    return {} if cause is None else {"cause": f"{type(cause).__name__}: {cause}"}


def _short(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value[:CHARS_MAX]}…"
        if isinstance(value, str) and len(value) > CHARS_MAX
        else value
        for name, value in fields.items()
    }
