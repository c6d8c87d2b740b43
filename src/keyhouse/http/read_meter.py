"""The meter of large reads: a listener learns how much was read for a request.

A request handler sets `read_meter` in its own context; the engine of a service reports each large
read, and a service what it reads by itself.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

__all__ = ["ReadMeter", "read_meter", "report_read"]

ReadMeter = Callable[[int, int], None]
"""Takes a number of rows and their bytes. It must not raise: the read continues."""

read_meter: Final[ContextVar[ReadMeter | None]] = ContextVar("read_meter", default=None)


def report_read(rows: int, size: int) -> None:
    """Report what was read for the request that runs, if it has a meter."""
    if (meter := read_meter.get()) is not None:
        meter(rows, size)
