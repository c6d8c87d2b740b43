"""Libraries opened by name: their rows are checked, migrated and sealed, and their parts put
together."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from keyhouse.auth import load_or_create_secret
from keyhouse.engine import Engine
from keyhouse.errors import LeaseError
from keyhouse.keyring import KeyRing
from keyhouse.schema import Schema
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import ServiceContext
from keyhouse.service.summed_metrics import SummedMetrics
from keyhouse.service.usage import Quota
from keyhouse.store import open_migrated
from keyhouse.systems.audiobooks import SYSTEM
from keyhouse.systems.audiobooks.accounts import login_guard
from keyhouse.systems.audiobooks.assembly import LibraryParts, assemble
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.sealing import check_sealed, seal_users
from keyhouse.systems.audiobooks.settings import AudiobooksSettings
from keyhouse.systems.audiobooks.tenancy import check_prefix, own_roots

__all__ = ["LibraryOpener", "make_library"]

LEASE_RETRY_SECONDS: Final = 0.5
"""Pause before a library that another process migrates or seals is tried again."""

_log = structlog.get_logger("keyhouse.audiobooks")


class LibraryOpener:
    """`metrics` are those of all libraries, which also share the guard of logins."""

    def __init__(
        self,
        context: ServiceContext,
        settings: AudiobooksSettings,
        runtime: ServiceRuntime[Library],
        metrics: SummedMetrics,
    ) -> None:
        self._context = context
        self._settings = settings
        self._runtime = runtime
        self._metrics = metrics
        key = load_or_create_secret(context.data, SYSTEM.name, kind="device")
        self._guard = login_guard(context.engine.clock, key.encode())

    async def open(self, name: str) -> LibraryParts:
        """Open a library, creating it if it is new."""
        engine, settings = self._context.engine, self._settings
        library = self._runtime.tenants.get(name)
        for root in library.roots:
            if not root.is_dir():
                _log.warning("a root is not a folder", root=str(root), library=name)
        await check_prefix(engine, name, tenants=settings.tenants)
        await check_sealed(library.store)
        await self._prepare(library)
        return await assemble(library, settings, self._context, self._guard, self._metrics)

    async def _prepare(self, library: Library) -> None:
        """Migrate the library and seal its users. Waits for another process that does so, or for
        the lease of one that was killed."""
        engine, ring = self._context.engine, self._runtime.key_ring
        while True:
            try:
                await open_migrated(
                    library.store.schema, engine, library.name, key_ring=ring, wait_seconds=0
                )
                if ring is not None:
                    await seal_users(library.store)
                return
            except LeaseError as error:
                _log.info(
                    "waiting for another process", library=library.name, reason=error.sentence
                )
                await asyncio.sleep(LEASE_RETRY_SECONDS)


def make_library(
    settings: AudiobooksSettings,
    folder: Path,
    schema: Schema,
    ring: KeyRing | None,
    name: str,
    engine: Engine,
    quota: Quota,
) -> Library:
    first = settings.library
    return Library(
        name,
        engine,
        quota,
        schema=schema,
        key_ring=ring,
        roots=[Path(each).resolve() for each in own_roots(settings.roots, name, first)],
        folder=folder if name == first else folder / "tenants" / name,
        has_tenants=settings.tenants,
    )
