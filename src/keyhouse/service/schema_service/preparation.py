"""Preparation of spaces: migrations, and indexes that old data lacks, as leased jobs at start.

The first worker of a host prepares all spaces in the background, one after the other; of several
hosts, the one that takes the lease of a space. Until then its reads by an index that is not
complete, its reads of records that a migration changes, and its writes while migrations are
pending, are 503 with the progress. A new space needs no preparation: its first write notes that. A
space that another program began beside the service is prepared when a request meets it.

    state of a space   requests                                     `/ready`
    prepared           served                                       ready
    being prepared     503, try again later                         ready
    failed             503 with the reason; tried again by itself   503 with the reason
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from keyhouse.engine import Engine
from keyhouse.errors import (
    KeyFieldError,
    KeyhouseError,
    LeaseError,
    NewerError,
    PreparingError,
)
from keyhouse.schema import Derived, Record, Schema
from keyhouse.service.worker import ALONE, Worker
from keyhouse.store import (
    Store,
    build_indexes,
    index_progress,
    migrate,
    missing_indexes,
    note_new_space,
    stored_spaces,
    version,
)

__all__ = ["Preparation", "SpaceState"]

RETRY_SECONDS: Final = 2.0
"""Pause before spaces that another process prepares, or that failed, are tried again."""

_log = structlog.get_logger("keyhouse.service")


class Preparation:
    """The background task that prepares all spaces of a served schema."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        open_space: Callable[[str], Store],
        *,
        worker: Worker = ALONE,
    ) -> None:
        self._worker = worker
        self._schema = schema
        self._engine = engine
        self._open_space = open_space
        self._pending: dict[str, None] = {}
        self._requested = asyncio.Event()
        self.failures: dict[str, BaseException] = {}
        """Why the last try of a space failed, by its name."""
        self._rejecting: set[str] = set()
        """Spaces that have rejected a request since they were last prepared."""

    async def run(self) -> None:
        """Prepare every space that has rows, then those that are requested."""
        if self._worker.is_first:
            await self.prepare_all()
        while True:
            await self._requested.wait()
            await self._prepare_pending()

    async def prepare_all(self) -> None:
        """Prepare every space that has rows. Spaces that fail are tried again until all are
        prepared."""
        async for space in self._spaces():
            self._pending[space] = None
        await self._prepare_pending()

    async def _prepare_pending(self) -> None:
        while self._pending:
            self._requested.clear()
            for space in list(self._pending):
                if await self._prepare(space):
                    self._pending.pop(space, None)
            if self._pending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._requested.wait(), RETRY_SECONDS)
        self._requested.clear()

    def request(self, space: str) -> None:
        """Prepare a space that a request has met unprepared, unless that is under way."""
        if space not in self._pending:
            self._pending[space] = None
            self._requested.set()

    async def check(self) -> None:
        """Raise PreparingError if spaces could not be prepared: the service is not ready."""
        if self.failures:
            reason = _reason(next(iter(self.failures.values())))
            raise PreparingError(
                f"Spaces could not be prepared ({len(self.failures)}): {reason} Run `keyhouse"
                " doctor`, which tells how to correct it.",
                spaces=len(self.failures),
            )

    def error(
        self, space: str, otherwise: str, /, failure: BaseException | None = None, **fields: object
    ) -> PreparingError:
        """Return the error of a request to a space that is not prepared: the reason why it failed,
        or else a sentence that it is under way. The first one of a space is logged."""
        failure = failure or self.failures.get(space)
        if space not in self._rejecting:
            self._rejecting.add(space)
            _log.warning("requests are rejected until the space is prepared", space=space)
        if failure is None:
            return PreparingError(otherwise, **fields, retry_after=1)
        return PreparingError(
            "The space could not be prepared: its operator runs `keyhouse doctor`, which tells how"
            " to correct it.",
            **fields,
            reason=_reason(failure),
            retry_after=int(RETRY_SECONDS),
        )

    async def _spaces(self) -> AsyncIterator[str]:
        async for space in stored_spaces(self._engine):
            with suppress(KeyFieldError):
                self._schema.space.bound(space)
                yield space

    async def _prepare(self, space: str) -> bool:
        """Prepare one space; return whether that is done."""
        try:
            await self._migrate(self._open_space(space))
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except (LeaseError, PreparingError):
            return False  # another process works on it, or erases it
        except BaseException as error:  # a step is the user's code: it may raise anything
            if repr(error) != repr(self.failures.get(space)):
                _log.error("preparation failed", space=space, error=str(error), exc_info=error)
            self.failures[space] = error
            return False
        self.failures.pop(space, None)
        self._rejecting.discard(space)
        return True

    async def _migrate(self, store: Store) -> None:
        if not (await store.row_page(limit=1)).rows:
            return  # it was erased since, and must not be written
        for done in await migrate(store):
            _log.info(
                "migrated",
                space=store.space,
                migration=done.migration.id,
                records=done.records,
                rows=done.rows,
            )
        for record, derived, records in await build_indexes(store) if self._schema.meta else ():
            _log.info(
                "index complete",
                space=store.space,
                record=record.name,
                index=derived.template.text,
                records=records,
            )


class SpaceState:
    """The state of one space. A request asks until it is ready, and no further.

    `is_writable`: its migrations are applied, and a new space is noted. `is_readable`: no pending
    migration changes the shape of its records, and no newer code has. `is_complete`: it lacks no
    index.
    """

    __slots__ = (
        "_is_migrated",
        "_preparation",
        "_store",
        "is_complete",
        "is_readable",
        "is_writable",
    )

    def __init__(self, store: Store, preparation: Preparation) -> None:
        self._store = store
        self._preparation = preparation
        self._is_migrated = self.is_readable = self.is_writable = False
        self.is_complete = store.schema.meta is None

    async def check_read(self) -> None:
        """Raise PreparingError while records are of an older declaration, or a migration failed."""
        pending = await self._pending_version()
        if pending is not None:
            schema, space = self._store.schema, self._store.space
            if space in self._preparation.failures or any(
                schema.is_former(migration.over) for migration in schema.migrations[pending:]
            ):
                raise self._migrating(pending)
            return
        self.is_readable = self._is_migrated = True

    async def check_index(self, record: Record[Any], derived: Derived) -> None:
        """Raise PreparingError while an index is not complete."""
        missing = await missing_indexes(self._store)
        self.is_complete = not missing
        if any(each is derived for _, each in missing):
            self._preparation.request(self._store.space)
            raise self._preparation.error(
                self._store.space,
                "The index is being built: try again later.",
                record=record.name,
                index=derived.template.text,
                records_done=await index_progress(self._store, record, derived),
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
            if (pending := await self._pending_version()) is not None:
                raise self._migrating(pending)
            await migrate(self._store)  # a new space gets its version
            self._is_migrated = True
        if self._store.schema.meta is not None:
            await note_new_space(self._store)
        self.is_writable = True

    async def check_newer(self) -> None:
        """Raise PreparingError if newer code has migrated the space since it was ready."""
        try:
            await self._store.guard.check_newer()
        except NewerError as error:
            raise self._newer(error) from None

    async def _pending_version(self) -> int | None:
        """Return the version of a space that has rows and pending migrations, else None. Raises
        PreparingError if newer code has migrated it."""
        try:
            at = await version(self._store)
        except NewerError as error:
            raise self._newer(error) from None
        is_behind = at < self._store.schema.version
        return at if is_behind and (await self._store.row_page(limit=1)).rows else None

    def _newer(self, error: NewerError) -> PreparingError:
        self._is_migrated = self.is_readable = self.is_writable = False
        self._preparation.request(self._store.space)
        return self._preparation.error(
            self._store.space, error.sentence, failure=error, newest=self._store.schema.version
        )

    def _migrating(self, at: int) -> PreparingError:
        self._preparation.request(self._store.space)
        return self._preparation.error(
            self._store.space,
            "The space is being migrated: try again later.",
            version=at,
            newest=self._store.schema.version,
        )


def _reason(error: BaseException) -> str:
    """Return the reason of a failure for callers: without values of records."""
    if isinstance(error, KeyhouseError):
        return error.sentence
    return f"A migration's step raised {type(error).__name__}."
