"""Preparation of spaces: migrations, and indexes that old data lacks, as leased jobs at start.

A space is prepared in the background, one after the other. Until then its reads by an index that is
not complete, and its writes while migrations are pending, are 503 with the progress. A new space
needs no preparation: its first write notes that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog

from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError, KeyhouseError, LeaseError, PreparingError
from keyhouse.schema import Derived, Record, Schema
from keyhouse.store import (
    MARK_SPACE,
    Store,
    build_indexes,
    index_progress,
    migrate,
    missing_indexes,
    note_new_space,
    version,
)

__all__ = ["Preparation", "SpaceState"]

RETRY_SECONDS: Final = 5.0
"""Pause before spaces that another process prepares, or that failed, are tried again."""

_log = structlog.get_logger("keyhouse.service")


class SpaceState:
    """The state of one space. A request asks until it is ready, and no further.

    `is_writable`: its migrations are applied, and a new space is noted. `is_complete`: it lacks no
    index.
    """

    __slots__ = ("_is_migrated", "_store", "is_complete", "is_writable")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_migrated = not store.schema.migrations
        self.is_writable = self.is_complete = store.schema.meta is None

    async def check_index(self, record: Record[Any], derived: Derived) -> None:
        """Raise PreparingError while an index is not complete."""
        missing = await missing_indexes(self._store)
        self.is_complete = not missing
        if any(each is derived for _, each in missing):
            raise PreparingError(
                "The index is being built: try again later.",
                record=record.name,
                index=derived.template.text,
                records_done=await index_progress(self._store, record, derived),
                retry_after=1,
            )

    async def check_complete(self) -> None:
        """Raise PreparingError while any index is not complete."""
        missing = await missing_indexes(self._store)
        self.is_complete = not missing
        for record, derived in missing:
            await self.check_index(record, derived)

    async def check_write(self) -> None:
        """Note a new space before its first write; raise PreparingError while migrations are
        pending."""
        if not self._is_migrated:
            await self._check_version()
        await note_new_space(self._store)
        self.is_writable = True

    async def _check_version(self) -> None:
        store = self._store
        if (at := await version(store)) < store.schema.version:
            if (await store.row_page(limit=1)).rows:
                raise PreparingError(
                    "The space is being migrated: try again later.",
                    version=at,
                    newest=store.schema.version,
                    retry_after=1,
                )
            await migrate(store)
        self._is_migrated = True


class Preparation:
    """The background task that prepares all spaces of a served schema."""

    def __init__(self, schema: Schema, engine: Engine, open_space: Callable[[str], Store]) -> None:
        self._schema = schema
        self._engine = engine
        self._open_space = open_space

    async def run(self) -> None:
        """Prepare every space that has rows. Spaces that fail are tried again until all are
        prepared."""
        if self._schema.meta is None:
            return
        left = [space async for space in self._spaces()]
        while left:
            left = [space for space in left if not await self._prepare(space)]
            if left:
                await asyncio.sleep(RETRY_SECONDS)

    async def _spaces(self) -> AsyncIterator[str]:
        async for space in self._engine.spaces():
            try:
                self._schema.space.bound(space)
            except KeyFieldError:
                continue
            if space != MARK_SPACE:
                yield space

    async def _prepare(self, space: str) -> bool:
        """Prepare one space; return whether that is done."""
        store = self._open_space(space)
        try:
            if not (await store.row_page(limit=1)).rows:
                return True  # it was erased since, and must not be written
            for done in await migrate(store) if self._schema.migrations else ():
                _log.info(
                    "migrated",
                    space=space,
                    migration=done.migration.id,
                    records=done.records,
                    rows=done.rows,
                )
            for record, derived, records in await build_indexes(store):
                _log.info(
                    "index complete",
                    space=space,
                    record=record.name,
                    index=derived.template.text,
                    records=records,
                )
        except (LeaseError, PreparingError):
            return False  # another process works on it, or erases it
        except KeyhouseError as error:
            _log.error("preparation failed", space=space, error=str(error))
            return False
        return True
