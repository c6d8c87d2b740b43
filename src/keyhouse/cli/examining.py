"""What `doctor` looks at. Each look ends in facts: one that fails is a fact too, with the reason that it failed."""

import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from keyhouse import __version__
from keyhouse.cli.housing import places
from keyhouse.cli.migrating import pending
from keyhouse.cli.opening import opened
from keyhouse.cli.output import number
from keyhouse.engine import Engine, Span
from keyhouse.engines.health import HealthCheck, check_health
from keyhouse.engines.registry import public_url
from keyhouse.errors import KeyhouseError, NewerError
from keyhouse.service.system import System
from keyhouse.store import MARK_SPACE, Finding, verify

LOOKED_ROWS: Final = 5_000
"""Rows whose derived rows are compared here; `keyhouse verify` looks at all."""

SLOW_SECONDS: Final = 1.0

_LIBRARIES: Final = (
    "msgspec",
    "apsw",
    "asyncpg",
    "rocksdict",
    "nats-py",
    "aiobotocore",
    "starlette",
    "typer",
)
_SECRET: Final = ("SECRET", "TOKEN", "PASSWORD", "KEY")


class _Enough(Exception):
    """So many rows were looked at."""


def installation() -> list[HealthCheck]:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    python = platform.python_version()
    old = sys.version_info < (3, 11)
    return [
        HealthCheck("Keyhouse", __version__),
        HealthCheck("Python", python, "bad" if old else "ok", "Use 3.11 or newer." if old else ""),
        HealthCheck("libraries", ", ".join(found)),
        _clock(),
    ]


def _clock() -> HealthCheck:
    now = datetime.now(UTC)
    value = now.strftime("%Y-%m-%d %H:%M:%S UTC")
    built = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    if now < built:
        return HealthCheck(
            "clock",
            value,
            "bad",
            "It is behind the time at which this program was installed: set it by NTP.",
        )
    return HealthCheck("clock", value)


def settings() -> list[HealthCheck]:
    """What the environment says; the value of what sounds like a secret is not shown."""
    found = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith("KEYHOUSE_")
    }
    facts = [HealthCheck(name, _shown(name, value)) for name, value in found.items()]
    if Path("keyhouse.toml").is_file():
        facts.append(HealthCheck("keyhouse.toml", "is here; `keyhouse serve` reads it"))
    return facts or [HealthCheck("environment", "no KEYHOUSE_… is set")]


def no_store() -> HealthCheck:
    """Who asks about a system and names no store must not read that all is well with its rows."""
    return HealthCheck(
        "store",
        "none is named: no rows were looked at",
        "warn",
        "Name it: --store URL, or --data DIR.",
    )


def _shown(name: str, value: str) -> str:
    own = name.removeprefix("KEYHOUSE_")  # which has a KEY in it
    return "is set" if any(word in own for word in _SECRET) else public_url(value)


async def store_of(url: str) -> tuple[list[HealthCheck], bool]:
    """The engine, and whether it could be reached."""
    facts = [HealthCheck("store", public_url(url))]
    start = time.perf_counter()
    try:
        async with opened(url, existing=True) as engine:
            facts += [*_reached(engine, time.perf_counter() - start), *await _marked(engine)]
        facts += await check_health(url)
    except (KeyhouseError, ImportError, OSError) as error:
        fix = "Mend what the message says; the URL is --store, --data or KEYHOUSE_STORE."
        return [*facts, HealthCheck("reachable", str(error), "bad", fix)], False
    return facts, True


def _reached(engine: Engine, seconds: float) -> list[HealthCheck]:
    can, value = engine.capabilities, f"{engine.capabilities.name}, in {seconds * 1_000:,.0f} ms"
    slow = HealthCheck(
        "reachable",
        value,
        "warn",
        "It is slow to answer: look at its load, and at the network between.",
    )
    facts = [slow if seconds > SLOW_SECONDS else HealthCheck("reachable", value)]
    if not can.durable:
        fix = "What is acknowledged can be lost: on NATS run with `sync_interval: always` and say `sync=always` in the URL."
        facts.append(HealthCheck("durable", "no", "warn" if can.name == "memory" else "bad", fix))
    return facts


async def _marked(engine: Engine) -> list[HealthCheck]:
    if not (await engine.scan(MARK_SPACE, Span(), limit=1)).rows:
        return []
    fix = "Run the same `keyhouse move` or `keyhouse restore` again: it goes on, and ends."
    return [
        HealthCheck("unfinished", "a move or a restore into this store has not ended", "bad", fix)
    ]


async def rows_of(system: System, called: str, url: str) -> list[HealthCheck]:
    """`called`: as the person named the system, for the commands that mend."""
    try:
        async with opened(url, existing=True) as engine:
            return [
                await _migrations(system, called, engine),
                await _indexes(system, called, engine),
            ]
    except KeyhouseError as error:
        return [HealthCheck("rows", str(error), "bad", "Mend what the message says.")]


async def _migrations(system: System, called: str, engine: Engine) -> HealthCheck:
    try:
        found = await pending(system, engine, None)
    except NewerError as error:
        return HealthCheck(
            "migrations", str(error), "bad", "Install the newer Keyhouse that wrote it."
        )
    if not found.behind:
        return HealthCheck("migrations", f"none pending in {number(found.spaces, 'space')}")
    value = f"{number(len(found.behind), 'space')} of {found.spaces:,} behind"
    return HealthCheck("migrations", value, "bad", f"Back up, then: keyhouse migrate {called}")


async def _indexes(system: System, called: str, engine: Engine) -> HealthCheck:
    looked, before, all_of_it, findings = 0, 0, True, list[Finding]()

    def seen(rows: int) -> None:
        nonlocal looked
        looked = before + rows
        if looked >= LOOKED_ROWS:
            raise _Enough

    try:
        async for place in places(system, engine, None):
            before = looked
            async for finding in verify(place.store(engine), on_progress=seen):
                findings.append(finding)
    except _Enough:
        all_of_it = False
    value = f"{number(looked, 'row')} compared{'' if all_of_it else ', not all of them'}: "
    if not findings:
        return HealthCheck("index health", value + "all as it should be")
    return HealthCheck(
        "index health",
        value + number(len(findings), "finding"),
        "bad",
        f"keyhouse verify {called} --repair",
    )
