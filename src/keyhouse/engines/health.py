"""Health checks of an engine's file or server, by URL: versions, durability, free space, clock.

An engine with checks has a module `health` with one function, `check_health`. Checks change
nothing, and run while other processes have the engine open.
"""

import os
import shutil
from collections.abc import Iterator
from importlib import import_module
from typing import Final, Literal

import msgspec

from keyhouse.engines.registry import SCHEMES

__all__ = ["HealthCheck", "check_health"]

FREE_BYTES_MIN: Final = 512 * 1_024 * 1_024
"""Less free disk space than this is a warning: SQLite needs some even to delete."""

FREE_BYTES_BAD: Final = 64 * 1_024 * 1_024

_MODULES: Final = {
    "sqlite": "keyhouse.engines.sqlite.health",
    "postgres": "keyhouse.engines.postgres.health",
    "rocksdb": "keyhouse.engines.rocksdb.health",
    "jetstream": "keyhouse.engines.jetstream.health",
    "dynamodb": "keyhouse.engines.dynamodb.health",
}


CLOCK_SECONDS_MAX: Final = 2.0
"""With a larger difference, rows expire early for some programs and late for others."""


def format_size(size: float) -> str:
    """Format a number of bytes for people."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


class HealthCheck(msgspec.Struct, frozen=True):
    """One result. `bad` must be repaired, `warn` should be considered; `fix` tells how."""

    name: str
    value: str
    state: Literal["ok", "warn", "bad"] = "ok"
    fix: str = ""


async def check_health(url: str) -> list[HealthCheck]:
    """Run the checks of the engine that the URL names; empty if it has none."""
    module = _MODULES.get(SCHEMES[url.partition(":")[0]])
    if module is None:
        return []
    checks: list[HealthCheck] = await import_module(module).check_health(url)
    return checks


def free_space(path: str) -> Iterator[HealthCheck]:
    """Check the free space of the disk that holds a file or folder."""
    usage = shutil.disk_usage(
        path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    )
    value = f"{usage.free / 1e9:,.1f} GB free of {usage.total / 1e9:,.1f} GB"
    if usage.free < FREE_BYTES_MIN:
        state: Literal["warn", "bad"] = "bad" if usage.free < FREE_BYTES_BAD else "warn"
        yield HealthCheck(
            "free disk",
            value,
            state,
            "Free some space: on a full disk every commit fails, and deleting needs space too.",
        )
    else:
        yield HealthCheck("free disk", value)


def clock_skew(seconds: float, *, within: float = CLOCK_SECONDS_MAX) -> HealthCheck:
    """Check a server's clock. `within`: the allowed difference, or the precision of `seconds`."""
    value = f"the server's is {abs(seconds):.1f} s {'ahead' if seconds > 0 else 'behind'}"
    if abs(seconds) > within:
        return HealthCheck(
            "clock",
            value,
            "warn",
            "Synchronise both with NTP: each program decides by its clock which rows have expired.",
        )
    return HealthCheck("clock", value)
