"""Resolve STORE, the one target of a command: the URL of an engine, a data folder of `keyhouse
serve`, or the URL of a running service.

    sqlite:data.db, postgresql://host/db, nats://host/?bucket=b    an engine
    keyhouse-data                                                 a data folder: no scheme
    http://host:8080, nats://host:4222                            a service: no bucket, no prefix

It is `--store`, else KEYHOUSE_STORE, else the engine or data folder in the settings of `keyhouse
serve` (the environment and `keyhouse.toml`), else its default data folder, if that exists.
"""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from keyhouse import open_engine
from keyhouse.cli.systems import served_name
from keyhouse.engine import Engine
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse.service.registry import system_names
from keyhouse.settings.engine_urls import embedded_server, is_own_nats, with_server
from keyhouse.settings.settings import EMBEDDED, OFF
from keyhouse.settings.sources import LoadedSettings, load_settings, only_system

__all__ = [
    "STORE",
    "Preflight",
    "data_folder",
    "engine_at",
    "find_service_url",
    "find_store_url",
    "serve_settings",
    "store_option",
    "store_url",
]

STORE: Final = "KEYHOUSE_STORE"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def data_folder(store: str | None) -> Path | None:
    """Return the data folder that STORE names, if it is one."""
    named = store or os.environ.get(STORE)
    if not named or _SCHEME.match(named):
        return None
    if (folder := Path(named)).is_file():
        raise UsageError(
            "This is a file, not a data folder: name its engine, as in sqlite:data.db.", store=named
        )
    return folder


def find_service_url(store: str | None) -> str | None:
    """Return the URL of the running service that STORE names, if it is one."""
    named = store or os.environ.get(STORE) or ""
    if named.startswith(("http://", "https://")):
        return named
    with suppress(ValueError):  # an invalid URL: opening the engine reports it
        if named.startswith(("nats://", "tls://")):
            return (
                None
                if {"bucket", "prefix"} & parse_qs(urlsplit(named).query, True).keys()
                else named
            )
    return None


def find_store_url(system: str | None, store: str | None) -> str | None:
    """Return the URL of the engine that STORE or the settings name, or None if nothing does. Raises
    UsageError for a service."""
    if (service := find_service_url(store)) is not None:
        raise UsageError(
            "This command needs the store itself, not a service: give --store the URL of the"
            " engine, such as sqlite:data.db or nats://host:4222/?bucket=NAME, or the data folder.",
            service=public_url(service),
        )
    folder = data_folder(store)
    if folder is None and (named := store or os.environ.get(STORE)):
        return named
    if system is None:
        if folder is None:
            return None
        raise UsageError(
            "A data folder has a store for each system: name the system.", store=str(folder)
        )
    return _served_url(system.partition("@")[0], folder)


def store_url(system: str | None, store: str | None) -> str:
    """Return the URL that `find_store_url` finds, or raise UsageError. Without a system, that of
    the only one in the settings of `keyhouse serve`."""
    url = find_store_url(only_system(os.environ) if system is None else system, store)
    if url is None:
        raise UsageError(
            "Name the store, with --store or KEYHOUSE_STORE: sqlite:data.db, or a data folder."
            if system is not None
            else "Name the store: --store sqlite:data.db, or a system with --store FOLDER."
        )
    return url


def store_option(store: str | None) -> str:
    """Return the option that names the store, for a command that a message shows.

    Empty if the environment or the settings name it. A URL with a password is not shown.
    """
    if store is None:
        return ""
    return f" --store {store if public_url(store) == store else 'URL'}"


def serve_settings(system: str | None = None, data: Path | None = None) -> LoadedSettings:
    """Return the settings that `keyhouse serve` has here, with this data folder."""
    flags = {} if data is None else {"data": str(data)}
    names = {*system_names(), *(() if system is None else (system,))}
    return load_settings(flags, os.environ, None, systems=tuple(names))


def _served_url(system: str, folder: Path | None) -> str | None:
    """Return the engine of a system by the settings of `keyhouse serve`, or None.

    As `keyhouse serve` finds it: an engine that is set comes before the data folder.
    """
    if system not in system_names() and ":" not in system:
        return None
    name = served_name(system)
    loaded = serve_settings(name, folder)
    settings = loaded.settings
    is_set = name in loaded.engines or {"engine", "data"} & set(loaded.sources)
    if not is_set and not Path(settings.data).is_dir():
        return None
    url = loaded.engine_url(name, alone=settings.systems == (system,))
    if not is_own_nats(url):
        return url
    if settings.nats in (EMBEDDED, OFF):  # it syncs every commit
        return with_server(url, embedded_server(Path(settings.data)), sync="always")
    file = settings.nats_credentials
    return with_server(url, settings.nats, **({"credentials": file} if file else {}))


Preflight = Callable[[], Awaitable[object]]
"""The work on an empty store in memory: it raises what such a store would reject."""


@asynccontextmanager
async def engine_at(
    url: str, *, existing: bool = False, preflight: Preflight | None = None
) -> AsyncIterator[Engine]:
    """Open an engine by its URL, and close it after the block.

    `existing`: do not create a store that does not exist. `preflight`: create it only after this
    succeeds, so that a rejected command leaves nothing behind.
    """
    engine = await _open_engine(url, existing, preflight)
    try:
        yield engine
    finally:
        await engine.close()


async def _open_engine(url: str, existing: bool, preflight: Preflight | None) -> Engine:
    if url.startswith("nats://"):
        url = with_embedded_user(url, Path(serve_settings().settings.data), BUCKETS_USER)
    if preflight is not None:
        with suppress(UsageError):  # it does not exist; other causes are raised again below
            return await open_engine(url, create=False)
        await preflight()
    return await open_engine(url, create=not existing)
