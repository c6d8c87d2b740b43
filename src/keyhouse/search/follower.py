"""Keeps the search file of one space up to date with its store.

Theory of operation. The file has a revision: it shows every change of the space up to it. Of the
processes that share a folder one writes the file, the one with its lock; the others read it.

    state        next
    ----------   ------------------------------------------------------------------------------
    reading      the writer has released the lock, or died    -> opening, within half a second
    opening      another process has the lock                 -> reading
                 the file is there and complete           -> following, since its revision
                 it is missing, damaged, of an old schema -> building
    building     scans the records into a new file, whose revision is the one before the scan; the
                 scan may show later changes, which are then applied again -> following
    following    changes are applied in batches, each with its revision, in one transaction
                 another process has removed the file, since it is damaged    -> opening
                 the changes since the revision are no longer kept         -> building; the old file
                                                                              answers until then

A batch may end within a commit, whose other changes come later. The revision that is stored
is therefore that of the last complete commit: a commit is complete when a change of a later one
comes, or when no further change comes for a moment.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw
import structlog

from keyhouse.engine import Change, Row
from keyhouse.errors import DataError, EngineError, UnavailableError, WatchExpiredError
from keyhouse.file_lock import FileLock
from keyhouse.schema import BoundRecord
from keyhouse.search.file import Document, SearchFile, remove_file
from keyhouse.search.schema import SearchSchema, SearchSource
from keyhouse.store import Store

__all__ = ["SpaceFollower"]

R = TypeVar("R")

SAVE_SECONDS: Final = 1.0
"""Interval at which the revision is written while only other records change."""

RETRY_SECONDS: Final = 0.2
RETRY_SECONDS_MAX: Final = 10.0
"""Backoff while the store or the disk is not available: doubled each time, up to this."""

LOCK_SECONDS: Final = 0.5
"""Interval at which a reader asks for the lock, and the writer whether its file is in place."""

READ_SECONDS: Final = 0.02
"""Interval at which a reader asks for the file's revision while a search waits for one."""

_BATCH = 500
_SAMPLE = 50
_log = structlog.get_logger("keyhouse.search")


class _Bound(NamedTuple):
    source: SearchSource[Any]
    record: BoundRecord[Any]


class SpaceFollower:
    """The search of one space. `executor` has one thread: it writes."""

    def __init__(self, schema: SearchSchema, store: Store, path: Path, executor: Executor) -> None:
        self._schema = schema
        self._store = store
        self._path = path
        self._executor = executor
        self._identity = f"{schema.fingerprint()} {store.space}"
        self._bound = [_Bound(each, store.binding.record(each.record)) for each in schema.sources]
        self.file: SearchFile | None = None
        self.reading = asyncio.Lock()
        """Held while the file is searched, or replaced."""
        self.revision = -1
        """Every change up to this revision can be found."""
        self.rebuilds = 0
        self._saved = -1
        self._saved_at = 0.0
        self._has_unsaved = False
        """True if searched changes were applied whose commit may have more of them."""
        self._changed = asyncio.Event()
        self._awaited = asyncio.Event()
        self._lock = FileLock(path.with_suffix(".lock"))
        self.task = asyncio.create_task(self._run())

    async def close(self, *, delete: bool = False) -> None:
        """Stop, and delete the file if asked to."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        async with self.reading:
            if self.file is not None:
                file, self.file = self.file, None
                is_ahead = self.revision > self._saved and not (file.read_only or delete)
                if is_ahead and self._lock.acquire() and file.is_in_place():
                    with suppress(apsw.Error):  # it is at an earlier revision then
                        await self._in_thread(partial(file.apply, (), self.revision))
                await self._in_thread(file.close)
        if delete:
            for path in (self._path, self._path.with_suffix(".new")):
                await self._in_thread(partial(remove_file, path))
            self._lock.acquire()
        self._lock.release(delete=delete)

    async def repair(self) -> None:
        """Discard the file, and build it again."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._discard()
        self.task = asyncio.create_task(self._run())

    async def reach(self, revision: int, timeout_seconds: float) -> None:
        """Wait until a revision can be found. Raises UnavailableError if it takes too long."""
        if self.file is not None and self.revision >= revision:
            return
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.file is None or self.revision < revision:
                    self._changed.clear()
                    self._awaited.set()
                    await self._changed.wait()
        except TimeoutError:
            sentence = (
                "The search index is being built; try again later."
                if self.file is None
                else "The search index has not reached this revision yet; try again later."
            )
            raise UnavailableError(
                sentence, search=self._schema.name, revision=revision, reached=self.revision
            ) from None

    def fields_of(self, source: int, key: str) -> dict[str, object]:
        """Return the fields of a hit's key."""
        record = self._bound[source].record
        values = record.template.split(key) or ()
        return dict(zip(record.template.fields, values, strict=False))

    # Following

    async def _run(self) -> None:
        try:
            await self._keep_current()
        finally:
            self._lock.release()

    async def _keep_current(self) -> None:
        pause = RETRY_SECONDS
        while True:
            try:
                await self._in_thread(
                    partial(self._path.parent.mkdir, 0o700, parents=True, exist_ok=True)
                )
                while not self._lock.acquire():
                    await self._read()
                revision = await self._open()
                pause = RETRY_SECONDS
                await self._follow_in_place(revision)
            except WatchExpiredError:
                _log.info("search index is too old", **self._names())
                with suppress(EngineError, OSError, apsw.Error):
                    await self._build()
            except apsw.CorruptError as error:
                _log.warning("search index is damaged", reason=str(error), **self._names())
                await self._discard()
            except (EngineError, OSError, apsw.Error) as error:
                _log.warning("search index is behind", reason=str(error), **self._names())
            except Exception:
                _log.exception("search index is behind", **self._names())
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _read(self) -> None:
        """Show the revision that the writer has reached, then wait until it is worth to look
        again."""
        if self.file is not None and not self.file.is_in_place():
            await self._close_file()
        file = self.file or await self._in_thread(
            partial(
                SearchFile.open,
                self._path,
                list(self._schema.fields),
                self._identity,
                read_only=True,
            )
        )
        if file is not None:
            self._show(file, await self._in_thread(partial(getattr, file, "revision")) or 0)
        self._awaited.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOCK_SECONDS):
                await self._awaited.wait()
                await asyncio.sleep(READ_SECONDS)

    async def _close_file(self) -> None:
        async with self.reading:
            file, self.file = self.file, None
            if file is not None:
                with suppress(apsw.Error):
                    await self._in_thread(file.close)

    async def _open(self) -> int:
        """Open the file, or build it; returns its revision."""
        if self.file is not None and self.file.read_only:
            await self._close_file()
        if self.file is None:
            fields = list(self._schema.fields)
            opened = await self._in_thread(
                partial(SearchFile.open, self._path, fields, self._identity)
            )
            revision = None if opened is None else await self._matching_revision(opened)
            if opened is None or revision is None:
                await self._build()
            else:
                self._saved = revision
                self._show(opened, revision)
        return self.revision

    async def _matching_revision(self, file: SearchFile) -> int | None:
        """Return the revision of a file; None, and close it, if it is of another store.

        After a restore, or with another engine, the same revision has other rows. So each row of a
        sample, of the file and of the store, that is not newer than the file must be in the file
        with its revision.
        """
        try:
            revision = await self._in_thread(lambda: file.revision) or 0
            keys = await self._in_thread(partial(file.sample, _SAMPLE))
            rows = [row for row in await self._store.rows(keys) if row is not None]
            rows += await self._stored_sample()
            rows = [row for row in rows if row.revision <= revision]
            known = await self._in_thread(partial(file.revisions, [row.key for row in rows]))
            if known == [row.revision for row in rows]:
                return revision
        except BaseException:
            await asyncio.shield(self._in_thread(file.close))
            raise
        await self._in_thread(file.close)
        return None

    async def _stored_sample(self) -> list[Row]:
        """Return the first and the last records of each source, without their values."""
        rows: list[Row] = []
        for source, record in self._bound:
            span = self._store.span(source.record)
            for reverse in (False, True):
                page = await self._store.row_page(
                    span, limit=_SAMPLE, reverse=reverse, keys_only=True
                )
                rows += [row for row in page.rows if record.template.split(row.key) is not None]
        return rows

    async def _build(self) -> None:
        revision = await self._store.revision()
        fields = list(self._schema.fields)
        path = self._path.with_suffix(".new")
        new = await self._in_thread(partial(SearchFile.create, path, fields, self._identity))
        try:
            documents = 0
            async for rows in self._rows():
                await self._in_thread(partial(new.apply, self._documents(rows)))
                documents += len(rows)
            await self._in_thread(partial(new.finish, revision))
        except BaseException:
            await asyncio.shield(self._in_thread(new.close))
            raise
        async with self.reading:
            old, self.file = self.file, None
            if old is not None:
                await self._in_thread(old.close)
            await self._in_thread(partial(new.move_to, self._path))
            opened = await self._in_thread(
                partial(SearchFile.open, self._path, fields, self._identity)
            )
        if opened is None:
            raise OSError("the search file that was just built cannot be opened")
        self.rebuilds += 1
        self._saved = revision
        self._show(opened, revision)
        _log.info("search index built", documents=documents, **self._names())

    async def _discard(self) -> None:
        await self._close_file()
        await self._in_thread(partial(remove_file, self._path))

    async def _rows(self) -> AsyncGenerator[list[Row], None]:
        for bound in self._bound:
            rows: list[Row] = []
            async for row in self._store.row_scan(self._store.span(bound.source.record)):
                rows.append(row)
                if len(rows) >= _BATCH:
                    yield rows
                    rows = []
            if rows:
                yield rows

    async def _follow_in_place(self, since: int) -> None:
        """Follow until another process removes the file: one that reads it has found it damaged, or
        has forgotten the space."""
        following = asyncio.ensure_future(self._follow(since))
        try:
            while not (await asyncio.wait([following], timeout=LOCK_SECONDS))[0]:
                file, revision = self.file, self.revision
                if file is not None and not file.is_in_place():
                    return await self._discard()
                if file is not None and revision > self._saved:
                    await self._in_thread(partial(file.apply, (), revision))
                    self._saved = max(self._saved, revision)
            following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, since: int) -> None:
        """Apply the changes since a revision, without end."""
        caught_up = _CaughtUp()
        async with (
            aclosing(self._store.row_watch(since=since, caught_up=caught_up)) as changes,
            aclosing(_batches(changes, caught_up)) as batches,
        ):
            async for batch, complete in batches:
                await self._apply(batch, complete)

    async def _apply(self, batch: Sequence[Change], complete: int) -> None:
        """Apply the changes of searched records. The revision of their commit is written at once,
        for readers of the file; others once a second, since they may be written all the time."""
        newest = {change.key: change for change in batch if self._is_searched(change.key)}
        file = self.file
        assert file is not None
        revision = complete if complete > self.revision else None
        now = asyncio.get_running_loop().time()
        is_due = self._has_unsaved or now - self._saved_at >= SAVE_SECONDS
        if newest or (revision is not None and is_due):
            await self._in_thread(partial(file.apply, self._documents(newest.values()), revision))
            self._saved_at = now
            self._saved = self._saved if revision is None else revision
            self._has_unsaved = bool(newest)
        if revision is not None:
            self._show(file, revision)

    def _is_searched(self, key: str) -> bool:
        return any(key.startswith(record.template.head) for _, record in self._bound)

    def _show(self, file: SearchFile, revision: int) -> None:
        self.file, self.revision = file, revision
        self._changed.set()

    # Documents

    def _documents(self, rows: Iterable[Row | Change]) -> Iterator[Document]:
        for row in rows:
            if (document := self._document(row)) is not None:
                yield document

    def _document(self, row: Row | Change) -> Document | None:
        """Return the document of a row; None if it is of no source."""
        for number, (source, record) in enumerate(self._bound):
            if not row.key.startswith(record.template.head):
                continue
            if record.template.split(row.key) is not None:
                if row.value is None:
                    return Document(row.key, row.revision, is_gone=True)
                return self._texts(number, source, record, row, row.value)
        return None

    def _texts(
        self,
        number: int,
        source: SearchSource[Any],
        record: BoundRecord[Any],
        row: Row | Change,
        data: bytes,
    ) -> Document:
        key = row.key
        try:
            value = record.decode(data, key)
            return Document(
                key,
                row.revision,
                number,
                _lists(source.texts(value)),
                {} if source.filters is None else _lists(source.filters(value)) or {},
                key if source.sort is None else _text(source.sort(value)),
                row.expires,
            )
        except DataError as error:  # of another program, or of newer code
            _log.warning("record not searchable", reason=error.sentence, key=key, **self._names())
        except Exception:  # of a function of the declaration: one record must not stop the others
            _log.exception("record not searchable", key=key, **self._names())
        return Document(key, row.revision, number)

    def _names(self) -> dict[str, str]:
        return {"search": self._schema.name, "space": self._store.space}

    async def _in_thread(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _lists(filters: Mapping[str, str | Iterable[str] | None] | None) -> dict[str, list[str]] | None:
    """Return what a declared function returned, with a list of texts for each name."""
    if filters is None:
        return None
    return {
        name: [_text(values)] if isinstance(values, str) else [_text(each) for each in values or ()]
        for name, values in filters.items()
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(
            f"a searched text, filter or sort value is text, not {type(value).__name__}"
        )
    return value


class _CaughtUp:
    """The revision up to which a watch has delivered all changes. `woken` is set by each call, and
    by each change."""

    def __init__(self) -> None:
        self.revision = 0
        self.woken = asyncio.Event()

    def __call__(self, revision: int) -> None:
        self.revision = revision
        self.woken.set()


async def _batches(
    changes: AsyncGenerator[Change, None], caught_up: _CaughtUp
) -> AsyncGenerator[tuple[list[Change], int], None]:
    """Yield the changes as they come, each time with the revision of the last complete commit."""
    queue: asyncio.Queue[Change] = asyncio.Queue(2 * _BATCH)

    async def receive() -> None:
        async for change in changes:
            await queue.put(change)
            caught_up.woken.set()

    receiving = asyncio.create_task(receive())
    latest = 0
    try:
        while True:
            first = await _next(queue, receiving)
            batch = [first]
            while len(batch) < _BATCH and not queue.empty():
                batch.append(queue.get_nowait())
            complete = max(
                (each.revision for each in batch if each.revision < batch[-1].revision), default=0
            )
            complete = max(complete, latest if latest < batch[-1].revision else 0)
            latest = batch[-1].revision
            yield batch, complete
            while queue.empty() and caught_up.revision < latest and not receiving.done():
                caught_up.woken.clear()
                woken = asyncio.create_task(caught_up.woken.wait())
                await asyncio.wait([woken, receiving], return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
            if queue.empty() and caught_up.revision >= latest:
                yield [], latest
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def _next(queue: "asyncio.Queue[Change]", receiving: "asyncio.Task[None]") -> Change:
    """Return the next change, or raise what ended the watch."""
    if not queue.empty():
        return queue.get_nowait()
    getting = asyncio.create_task(queue.get())
    try:
        await asyncio.wait([getting, receiving], return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
    finally:
        getting.cancel()
    await receiving
    raise UnavailableError("The watch of the store ended.")
