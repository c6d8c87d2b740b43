"""`keyhouse doctor`: check the installation and a store, and print how to fix each problem.

Each check returns facts. A check that fails is a fact too, with the reason.
"""

import asyncio
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from keyhouse import __version__
from keyhouse.cli.commands.migrate import find_pending, find_unbuilt, step_failure
from keyhouse.cli.options import Json, OptionalSystem, StoreName, examples
from keyhouse.cli.output import Part, Report, number, show
from keyhouse.cli.spaces import targets
from keyhouse.cli.systems import load_object, load_system
from keyhouse.cli.target import STORE, data_folder, engine_at, find_store_url, store_option
from keyhouse.engine import Engine
from keyhouse.engines.health import HealthCheck, check_health
from keyhouse.engines.url import public_url
from keyhouse.errors import KeyhouseError, NewerError, UnreadableError, UsageError
from keyhouse.nats.embedded_users import embedded_url, requires_password
from keyhouse.schema import Migration, Schema
from keyhouse.service.system import System
from keyhouse.settings.sources import named_systems
from keyhouse.store import MARK_SPACE, Finding, migrate, verify

PROBLEMS = 1
"""Exit code when something must be fixed."""

CHECKED_ROWS: Final = 5_000
"""Rows whose derived rows are compared; `keyhouse verify` compares all."""

SLOW_SECONDS: Final = 1.0

_MARKS = {"ok": "✓", "warn": "!", "bad": "✗"}
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
_ABSENT: Final = {"file", "table", "bucket"}
"""The field of the error of a store that does not exist."""


class _EnoughRows(Exception):
    """CHECKED_ROWS rows were compared."""


@examples(
    "keyhouse doctor",
    "keyhouse doctor audiobooks --store sqlite:library.db",
    "keyhouse doctor --store postgresql://keyhouse@host/library --json",
)
def doctor(
    system: OptionalSystem = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Check the installation and a store; print how to fix it.

    Checks the store's durability, free disk space and clock; with SYSTEM, also its rows. Without
    SYSTEM, checks all systems that the settings of keyhouse serve name; with --store, only if it is
    one. If they name none, and there is no store, checks only the installation. Changes nothing.
    Exit code 1: something must be fixed.
    """
    parts = asyncio.run(_doctor(system, store))
    facts = [fact for part in parts.values() for fact in part]
    bad = [fact for fact in facts if fact.state == "bad"]
    findings = [{"part": title, "facts": part} for title, part in parts.items()]
    show({"wrong": len(bad), "findings": findings}, lambda _: _report(parts, len(bad)), json=json)
    if bad:
        raise typer.Exit(PROBLEMS)


def _report(parts: dict[str, list[HealthCheck]], problems: int) -> Report:
    def mark(fact: HealthCheck) -> str:
        return f"{_MARKS[fact.state]} {fact.name}"

    text = f"{number(problems, 'problem')} to fix." if problems else "No problems."
    tables = [
        Part(title, [(mark(fact), fact.value) for fact in part]) for title, part in parts.items()
    ]
    fixes = [
        (mark(fact), fact.fix) for part in parts.values() for fact in part if fact.state != "ok"
    ]
    return Report("Doctor", text, [*tables, Part("What to do", fixes)])


async def _doctor(system: str | None, store: str | None) -> dict[str, list[HealthCheck]]:
    parts = {
        "Installation": check_installation(),
        "Settings": [*check_settings(), *check_embedded_nats(data_folder(store))],
    }
    if system is not None:
        return parts | await _check_system(system, store)
    named = named_systems(os.environ)
    is_url = data_folder(store) is None and (store or os.environ.get(STORE))
    if len(named) == 1 or not is_url:
        for each in named:
            if _is_service(each):
                continue
            found = await _check_system(each, store, is_named=False)
            facts = found.pop("Store")
            parts |= {"Store" if len(named) == 1 else f"Store of {each}": facts} | found
        if named:
            return parts
    if (url := find_store_url(None, store)) is not None:
        parts["Store"], _ = await check_store(url)
    return parts


async def _check_system(
    system: str, store: str | None, *, is_named: bool = True
) -> dict[str, list[HealthCheck]]:
    """Return the facts about a system's store and rows. Unless it is named by the arguments, its
    store may not exist yet."""
    loaded = load_system(system)
    if (url := find_store_url(system, store)) is None:
        fix = "Name it: --store URL, or --store FOLDER."
        return {"Store": [HealthCheck("store", "not named: no rows were checked", "warn", fix)]}
    facts, is_reachable = await check_store(url, is_named=is_named or store is not None)
    if not is_reachable:
        return {"Store": facts}
    named = f"{system}{store_option(store)}"
    return {"Store": facts, f"Rows of {system}": await check_rows(loaded, named, url)}


def _is_service(system: str) -> bool:
    """Return whether it is a service of the user's own, without a schema to check rows by."""
    return ":" in system and not isinstance(load_object(system), Schema)


# The installation


def check_installation() -> list[HealthCheck]:
    from importlib.metadata import PackageNotFoundError, version  # slow: help does not need it

    libraries = []
    for name in _LIBRARIES:
        try:
            libraries.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return [
        HealthCheck("Keyhouse", __version__),
        HealthCheck("Python", platform.python_version()),
        HealthCheck("libraries", ", ".join(libraries)),
        _check_clock(),
    ]


def _check_clock() -> HealthCheck:
    now = datetime.now(UTC)
    value = now.strftime("%Y-%m-%d %H:%M:%S UTC")
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    if now < installed:
        fix = "It is earlier than the installation of this program: set it by NTP."
        return HealthCheck("clock", value, "bad", fix)
    return HealthCheck("clock", value)


def check_settings() -> list[HealthCheck]:
    """Return the settings in the environment, without the values of likely secrets."""
    variables = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith("KEYHOUSE_")
    }
    facts = [HealthCheck(name, _public(name, value)) for name, value in variables.items()]
    if Path("keyhouse.toml").is_file():
        facts.append(HealthCheck("keyhouse.toml", "found; `keyhouse serve` reads it"))
    return facts or [HealthCheck("environment", "no KEYHOUSE_… variable is set")]


def check_embedded_nats(data: Path | None) -> list[HealthCheck]:
    """Return who can connect to the embedded NATS server of a data folder, if it has one."""
    url = embedded_url(data)
    if url is None:
        return []
    name = "embedded NATS"
    if requires_password(data):
        return [HealthCheck(name, "requires the password of its data folder")]
    return [HealthCheck(name, "local programs reach plugin storage and served schemas, no buckets")]


def _public(name: str, value: str) -> str:
    own = name.removeprefix("KEYHOUSE_")  # the prefix contains KEY
    return "is set" if any(word in own for word in _SECRET) else public_url(value)


# The store


async def check_store(url: str, *, is_named: bool = True) -> tuple[list[HealthCheck], bool]:
    """Return facts about the engine, and whether it is reachable. Unless it is named, it may not
    exist yet."""
    facts = [HealthCheck("store", public_url(url))]
    start = time.perf_counter()
    try:
        async with engine_at(url, existing=True) as engine:
            facts += _check_engine(engine, time.perf_counter() - start)
            facts += await _check_moves(engine)
        facts += await check_health(url)
    except UnreadableError as error:
        fix = "Stop its programs, restore a backup into a new store, and check the disk."
        return [*facts, HealthCheck("damage", str(error), "bad", fix)], False
    except (KeyhouseError, ImportError, OSError) as error:
        if not is_named and isinstance(error, UsageError) and _ABSENT & set(error.fields):
            fix = "`keyhouse serve` creates it when it starts."
            return [*facts, HealthCheck("reachable", str(error), "warn", fix)], False
        fix = "Fix the cause; the URL comes from --store, KEYHOUSE_STORE or the settings."
        if url.startswith("nats://"):
            fix += " The embedded NATS server runs only while `keyhouse serve` does."
        return [*facts, HealthCheck("reachable", str(error), "bad", fix)], False
    return facts, True


def _check_engine(engine: Engine, seconds: float) -> list[HealthCheck]:
    can, value = engine.capabilities, f"{engine.capabilities.name}, in {seconds * 1_000:,.0f} ms"
    slow = HealthCheck(
        "reachable", value, "warn", "Slow to respond: check its load, and the network."
    )
    facts = [slow if seconds > SLOW_SECONDS else HealthCheck("reachable", value)]
    if can.name == "memory":
        fix = "Rows end with the program: to keep them, name another engine."
        facts.append(HealthCheck("durable", "no", "warn", fix))
    elif not can.durable:
        fix = (
            "Acknowledged writes can be lost: run NATS with `sync_interval: always`, and add"
            " `sync=always` to the URL."
        )
        facts.append(HealthCheck("durable", "no", "bad", fix))
    return facts


async def _check_moves(engine: Engine) -> list[HealthCheck]:
    if MARK_SPACE not in [space async for space in engine.spaces()]:
        return []
    fix = "Run the same `keyhouse move` or `keyhouse restore` again: it resumes."
    value = "a move or a restore into this store is incomplete"
    return [HealthCheck("unfinished", value, "bad", fix)]


# The rows


async def check_rows(system: System, name: str, url: str) -> list[HealthCheck]:
    """Return facts about the rows. `name` is the SYSTEM argument with the options that name the
    store, for the commands to run."""
    try:
        async with engine_at(url, existing=True) as engine:
            migrations = await _check_migrations(system, name, engine)
            built = [await _check_built(system, name, engine)] if migrations.state == "ok" else []
            return [
                migrations,
                *built,
                await _check_indexes(system, name, engine, [migrations, *built]),
            ]
    except KeyhouseError as error:
        return [HealthCheck("rows", str(error), "bad", "Fix the cause in the message.")]


async def _check_migrations(system: System, name: str, engine: Engine) -> HealthCheck:
    try:
        pending = await find_pending(system, engine, None)
    except NewerError as error:
        fix = "Run the newer version of your program: it has migrated the space."
        return HealthCheck("migrations", str(error), "bad", fix)
    if not pending.behind:
        return HealthCheck("migrations", f"none pending in {number(pending.spaces, 'space')}")
    value = f"pending in {len(pending.behind):,} of {number(pending.spaces, 'space')}"
    for target in pending.targets:
        try:
            await migrate(target.store(engine), dry_run=True, on_progress=_stop_after_checked)
        except _EnoughRows:
            continue
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a step is the user's code: it may raise anything
            return HealthCheck(
                "migrations",
                f"{value}; fails in `{target.space}`: {step_failure(error)}",
                "bad",
                "Correct the step, or the record that it names, until this succeeds: keyhouse"
                f" migrate {name} --dry-run --space {target.space}",
            )
    return HealthCheck("migrations", value, "bad", f"Back up, then: keyhouse migrate {name}")


def _stop_after_checked(migration: Migration, records: int) -> None:
    if records >= CHECKED_ROWS:
        raise _EnoughRows


async def _check_built(system: System, name: str, engine: Engine) -> HealthCheck:
    unbuilt = await find_unbuilt(system, engine, None)
    if not unbuilt:
        return HealthCheck("indexes", "all built")
    what = f"{number(len(unbuilt), 'index', 'indexes')} to build: {unbuilt[0].index}"
    more = ", …" if len(unbuilt) > 1 else ""
    return HealthCheck("indexes", what + more, "bad", f"keyhouse migrate {name} --reindex")


async def _check_indexes(
    system: System, name: str, engine: Engine, earlier: list[HealthCheck]
) -> HealthCheck:
    """Compare rows. Problems of `earlier` checks come first: their fix may write the rows."""
    checked, before, is_all, findings = 0, 0, True, list[Finding]()

    def on_progress(rows: int) -> None:
        nonlocal checked
        checked = before + rows
        if checked >= CHECKED_ROWS:
            raise _EnoughRows

    try:
        async for target in targets(system, engine, None):
            before = checked
            async for finding in verify(target.store(engine), on_progress=on_progress):
                findings.append(finding)
    except _EnoughRows:
        is_all = False
    value = f"{number(checked, 'row')} compared{'' if is_all else ', not all'}: "
    if not findings:
        return HealthCheck("index health", value + "no problems")
    fix = f"keyhouse verify {name} --repair"
    if all(finding.kind == "newer" for finding in findings):
        fix = "Run the newer version of your program: it wrote these rows."
    elif any(check.state == "bad" for check in earlier):
        fix = f"After the step above, if doctor still finds it: {fix}"
    return HealthCheck("index health", value + number(len(findings), "finding"), "bad", fix)
