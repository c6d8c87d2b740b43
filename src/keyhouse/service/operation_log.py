"""The log of operations: each at DEBUG, slow ones at WARNING, failures by who is at fault.

Above a thousand operations per second, one line in a hundred is logged at DEBUG. Rejections without
a reply, and failures in an outage, when every request is one, are sampled likewise. A failure that
is expected in an outage is one line; any other has its traceback. Values are never logged, and text
is cut at `LOG_TEXT_CHARS_MAX`.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import structlog
from msgspec import Struct

from keyhouse.errors import (
    AccessError,
    ConflictError,
    FullError,
    KeyhouseError,
    LockedError,
    PreparingError,
    UnavailableError,
    UnknownOutcomeError,
)
from keyhouse.service.limits import LOG_TEXT_CHARS_MAX

__all__ = ["OperationLog", "SlowOperation", "error_code", "traceback_fields"]

SAMPLED_ABOVE: Final = 1_000
"""Operations per second up to which every one is logged."""

SAMPLE: Final = 0.01

SLOW_SWEEP_SECONDS: Final = 1.0

SLOW_KEPT: Final = 100
"""Slow operations that a process remembers, the newest ones."""

OUTAGES: Final = (
    UnavailableError,
    UnknownOutcomeError,
    FullError,
    LockedError,
    AccessError,
    ConflictError,
)
"""Errors that an engine or many concurrent callers cause, and that come with every request while
they last."""


class SlowOperation(Struct, frozen=True):
    """An operation that took longer than the limit of its service. `at` is its end, in milliseconds
    since 1970."""

    at: int
    operation: str
    tenant: str
    milliseconds: float
    fields: dict[str, Any]


class OperationLog:
    """`prefix` begins every event and operation name: `kv set`, `operation=kv_set`. `tenant_field`
    names the tenant.

    `slow_seconds` 0: no operation is slow.
    """

    def __init__(
        self,
        system: str,
        slow_seconds: float,
        *,
        prefix: str | None = None,
        tenant_field: str = "tenant",
        rng: random.Random | None = None,
    ) -> None:
        self.logger: Any = structlog.get_logger(f"keyhouse.{system}").bind()
        self._prefix = system if prefix is None else prefix
        self._tenant_field = tenant_field
        self._slow_seconds = slow_seconds or float("inf")
        self._random = (rng or random.Random()).random
        self.slow: deque[SlowOperation] = deque(maxlen=SLOW_KEPT)
        """The newest slow operations."""
        self._second = 0
        self._count = 0
        self._is_busy = False
        self._logs_debug: bool = self.logger.is_enabled_for(logging.DEBUG)
        self.logged_from: float = 0 if self._logs_debug else self._slow_seconds
        """Seconds from which an operation may be logged: a faster one need not be described."""

    def done(self, operation: str, tenant: str, seconds: float, fields: Mapping[str, Any]) -> None:
        """Log a completed operation: every slow one, and a sample of the others at DEBUG. `fields`
        describe it: its key, the size of the response."""
        slow = seconds > self._slow_seconds
        if not slow and not (self._logs_debug and self._is_sampled()):
            return
        milliseconds, described = round(seconds * 1_000, 3), _cut(fields)
        if slow:
            now = time.time_ns() // 1_000_000
            self.slow.append(SlowOperation(now, operation, tenant, milliseconds, described))
        (self.logger.warning if slow else self.logger.debug)(
            f"{self._prefix} {operation}" + (" slow" if slow else ""),
            latency_ms=milliseconds,
            **self._named(operation, tenant),
            **described,
        )

    def failed(
        self,
        operation: str,
        tenant: str,
        error: Exception,
        *,
        answered: bool,
        fields: Mapping[str, Any],
    ) -> None:
        """Log a failed operation. A caller's mistake is logged at DEBUG if the caller got
        a reply (`answered`)."""
        described = {
            **self._named(operation, tenant),
            "error": error_code(error),
            "reason": str(error),
            **_cut(fields),
        }
        is_failure = not isinstance(error, KeyhouseError) or error.status >= 500
        if is_failure and not isinstance(error, PreparingError):  # `preparation` logs it once
            if not isinstance(error, OUTAGES) or self._is_sampled():
                self.logger.error(
                    f"{self._prefix} {operation} failed", **described, **traceback_fields(error)
                )
        elif answered:
            self.logger.debug(f"{self._prefix} {operation} rejected", **described)
        elif self._is_sampled():
            self.logger.warning(f"{self._prefix} {operation} rejected", **described)

    def left_out(self, operation: str, tenant: str, rows: int, first: Exception) -> None:
        """Log that an answer left out rows that do not decode, with the first one's error."""
        if self._is_sampled():
            self.logger.warning(
                f"{self._prefix} {operation} left out rows that do not decode",
                **self._named(operation, tenant),
                rows=rows,
                error=error_code(first),
                reason=str(first)[:LOG_TEXT_CHARS_MAX],
            )

    def swept(self, rows: int, seconds: float) -> None:
        fields = {
            "operation": f"{self._prefix}_cleanup",
            "removed": rows,
            "seconds": round(seconds, 3),
        }
        if seconds > SLOW_SWEEP_SECONDS:
            self.logger.warning(f"{self._prefix} cleanup slow", **fields)
        else:
            self.logger.info(f"{self._prefix} cleanup", **fields)

    def watch_ended(self, tenant: str, subject: str, reason: str) -> None:
        self.logger.debug(
            f"{self._prefix} watch ended",
            **self._named("watch", tenant),
            subject=subject,
            reason=reason,
        )

    def task_failed(self, task: str, error: BaseException | None) -> None:
        """Log background work that failed: a sweep, a usage scan, a watch."""
        self.logger.error(
            f"{self._prefix} {task} failed",
            operation=f"{self._prefix}_{task.replace(' ', '_')}",
            error=error_code(error),
            reason=str(error),
            **traceback_fields(error),
        )

    def _named(self, operation: str, tenant: str) -> dict[str, Any]:
        return {"operation": f"{self._prefix}_{operation}", self._tenant_field: tenant}

    def _is_sampled(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._is_busy = self._count > SAMPLED_ABOVE and second == self._second + 1
            self._second, self._count = second, 0
        self._count += 1
        return not (self._is_busy or self._count > SAMPLED_ABOVE) or self._random() < SAMPLE


def error_code(error: BaseException | None) -> str:
    """Return the code of an error; that of an internal error for any that is not Keyhouse's."""
    return error.code if isinstance(error, KeyhouseError) else KeyhouseError.code


def traceback_fields(error: BaseException | None) -> dict[str, Any]:
    """Return the traceback as a log field; of an outage only the driver's message."""
    if not isinstance(error, OUTAGES):
        return {"exc_info": error}
    cause = error.__cause__
    return {} if cause is None else {"cause": f"{type(cause).__name__}: {cause}"}


def _cut(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value[:LOG_TEXT_CHARS_MAX]}…"
        if isinstance(value, str) and len(value) > LOG_TEXT_CHARS_MAX
        else value
        for name, value in fields.items()
    }
