"""Health checks of an engine's file or server, by URL: versions, durability, free space, clock.

An engine with checks has a module `health` whose function `check_health` returns a table of
measurements. Checks change nothing, and run while other processes have the engine open.
"""

import os
import shutil
from importlib import import_module
from typing import Final, Literal

import msgspec

from keyhouse.engines.registry import SCHEMES
from keyhouse.engines.retention import split_changes_kept

__all__ = ["HealthCheck", "check_health"]

FREE_BYTES_MIN: Final = 512 * 1_024 * 1_024
"""Less free disk space than this is a warning: SQLite needs some even to delete."""

FREE_BYTES_BAD: Final = 64 * 1_024 * 1_024

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


def measured(
    name: str, value: str, fix: str = "", *, bad: bool = False, warn: bool = False
) -> HealthCheck:
    """Return a measurement. `fix` is for one that is `bad`, or worth a warning."""
    if bad or warn:
        return HealthCheck(name, value, "bad" if bad else "warn", fix)
    return HealthCheck(name, value)


async def check_health(url: str) -> list[HealthCheck]:
    """Run the checks of the engine that the URL names; empty if it has none."""
    engine = SCHEMES[url.partition(":")[0]]
    if engine == "memory":
        return []
    health = import_module(f"keyhouse.engines.{engine}.health")
    checks: list[HealthCheck] = await health.check_health(split_changes_kept(url)[0])
    return checks


def free_space(path: str) -> HealthCheck:
    """Check the free space of the disk that holds a file or folder."""
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    usage = shutil.disk_usage(folder)
    return measured(
        "free disk",
        f"{usage.free / 1e9:,.1f} GB free of {usage.total / 1e9:,.1f} GB",
        "Free some space: on a full disk every commit fails, and deleting needs space too.",
        bad=usage.free < FREE_BYTES_BAD,
        warn=usage.free < FREE_BYTES_MIN,
    )


def clock_skew(seconds: float, *, within: float = CLOCK_SECONDS_MAX) -> HealthCheck:
    """Check a server's clock. `within`: the allowed difference, or the precision of `seconds`."""
    return measured(
        "clock",
        f"the server's is {abs(seconds):.1f} s {'ahead' if seconds > 0 else 'behind'}",
        "Synchronise both with NTP: each program decides by its clock which rows have expired.",
        warn=abs(seconds) > within,
    )
