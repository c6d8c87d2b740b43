"""The meter of long reads: a listener learns how much was read for a request.

A request handler sets `read_meter` in its own context; the store reports each page of a long read.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

ReadMeter = Callable[[int, int], None]
"""Takes a number of rows and their bytes. It must not raise: the read continues."""

read_meter: Final[ContextVar[ReadMeter | None]] = ContextVar("read_meter", default=None)
