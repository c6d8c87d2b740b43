"""What an engine's file or server says of its own health, by URL: versions, durability, room, and the time there.

Each engine that has more to say than the contract does has a module `health` with one function, `look`. Looking changes
nothing, and is done beside whoever has the engine open.
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
"""Less room than this on the disk is worth a word: SQLite needs some even to delete."""

FREE_BYTES_BAD: Final = 64 * 1_024 * 1_024

_LOOKING: Final = {
    "sqlite": "keyhouse.engines.sqlite.health",
    "postgres": "keyhouse.engines.postgres.health",
    "rocksdb": "keyhouse.engines.rocksdb.health",
    "jetstream": "keyhouse.engines.jetstream.health",
    "dynamodb": "keyhouse.engines.dynamodb.health",
}


CLOCK_SECONDS_MAX: Final = 2.0
"""Clocks that differ by more make rows expire early for some and late for others."""


def format_size(size: float) -> str:
    """Bytes, for people."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


class HealthCheck(msgspec.Struct, frozen=True):
    """`bad` must be mended, `warn` should be thought about; `cure` says how."""

    name: str
    value: str
    state: Literal["ok", "warn", "bad"] = "ok"
    fix: str = ""


async def check_health(url: str) -> list[HealthCheck]:
    """What there is to say of the engine that the URL names; nothing, for one that has nothing to add."""
    module = _LOOKING.get(SCHEMES[url.partition(":")[0]])
    if module is None:
        return []
    facts: list[HealthCheck] = await import_module(module).check_health(url)
    return facts


def free_space(path: str) -> Iterator[HealthCheck]:
    """How much the disk has left where a file or folder is."""
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
            "Make room: a full disk refuses every commit, and deleting needs room too.",
        )
    else:
        yield HealthCheck("free disk", value)


def clock_skew(seconds: float, *, within: float = CLOCK_SECONDS_MAX) -> HealthCheck:
    """How far a server's clock is ahead of ours. `within`: as far as it may be, or as exactly as the server tells it."""
    value = f"the server's is {abs(seconds):.1f} s {'ahead' if seconds > 0 else 'behind'}"
    if abs(seconds) > within:
        return HealthCheck(
            "clock",
            value,
            "warn",
            "Set both by NTP: what expires is judged by the clock of each program.",
        )
    return HealthCheck("clock", value)
