"""The operations of the library on files and events, which run in the background: scan, organize,
transcode, merge and prune. Their rows are the document's, `op:` and `opl:`, plus the run row."""

import asyncio
from contextlib import suppress
from typing import Any, Literal, cast

from keyhouse.schema import SECONDS
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import OperationRun, RunStatus
from keyhouse.store import Transaction
from keyhouse_audiobooks.files.audio_files import resolve_below
from keyhouse_audiobooks.files.converter import require_ffmpeg
from keyhouse_audiobooks.files.maintenance import Maintenance, check_pattern
from keyhouse_audiobooks.files.merger import Merger
from keyhouse_audiobooks.files.messages import OrganizeBody, ScanBody
from keyhouse_audiobooks.files.scanner import Scanner
from keyhouse_audiobooks.library import Library, Member
from keyhouse_audiobooks.lists import Items, PageQuery, items, page_limit, stored_page
from keyhouse_audiobooks.records import Operation, OperationLine, OperationProgress
from keyhouse_audiobooks.schema import BOOK, OPERATION, OPERATION_LOG, OPERATION_RUN

__all__ = ["LibraryOperationRecords", "LibraryOperations"]

Level = Literal["info", "warn", "error"]


class LibraryOperationRecords:
    """Writes status and log lines of background operations."""

    run = OPERATION_RUN

    async def write(
        self,
        tx: Transaction,
        run: OperationRun,
        status: RunStatus,
        *,
        ended_at: int | None = None,
        error: str | None = None,
    ) -> None:
        await tx.put(
            OPERATION,
            Operation(
                id=run.id,
                type=cast(Any, run.type),
                status=status,
                started_at=None if run.started_at is None else SECONDS.format(run.started_at),
                completed_at=None if ended_at is None else SECONDS.format(ended_at),
                error=error,
                progress=OperationProgress(current=run.current, total=run.total),
                created_by=run.created_by,
            ),
        )

    async def append(self, tx: Transaction, run: OperationRun, level: Level, message: str) -> None:
        line = OperationLine(timestamp=SECONDS.format(tx.now), level=level, message=message)
        await tx.append(OPERATION_LOG, line, operation_id=run.id)


class LibraryOperations:
    """Starts, lists and cancels operations. `background` runs them."""

    def __init__(
        self,
        library: Library,
        scanner: Scanner,
        merger: Merger,
        maintenance: Maintenance,
    ) -> None:
        self._library = library
        self._store = library.store
        self._merger = merger
        kinds = {
            "scan": OperationKind(run=scanner.scan, resumes=True, exclusive=True),
            "organize": OperationKind(run=maintenance.organize, resumes=True, exclusive=True),
            "transcode": OperationKind(run=maintenance.transcode, resumes=True),
            "merge": OperationKind(run=merger.merge, resumes=True, exclusive=True),
            "prune": OperationKind(run=maintenance.prune, resumes=True, exclusive=True),
        }
        self.background = BackgroundOperations(
            library.store, LibraryOperationRecords(), kinds, name="audiobooks"
        )

    # Start

    async def start_scan(self, body: ScanBody, member: Member) -> Operation:
        """Start a scan of the roots, or of one folder below them."""
        if body.folder_path is not None:
            await self._library.run(resolve_below, body.folder_path, self._library.roots)
        given = {"folder_path": body.folder_path, "force_update": body.force_update}
        return await self._start("scan", given, member)

    async def start_organize(self, body: OrganizeBody, member: Member) -> Operation:
        if body.pattern is not None:
            check_pattern(body.pattern)
        given = {"dry_run": body.dry_run, "pattern": body.pattern}
        return await self._start("organize", given, member)

    async def start_transcode(self, book_id: str, format: str, member: Member) -> Operation:
        """Start joining the files of a book to one. NoConverterError without `ffmpeg`."""
        await self._library.require(BOOK, id=book_id)
        require_ffmpeg()
        return await self._start("transcode", {"book_id": book_id, "format": format}, member)

    async def start_merge(self, book_id: str, file_path: str, member: Member) -> Operation:
        """Start merging the segments of a book into a file, and wait for the end a while."""
        file = await self._merger.check(book_id, file_path)
        given = {"book_id": book_id, "file_path": file.found.path}
        return await self._start("merge", given, member, wait_seconds=30)

    async def start_prune(self, member: Member) -> Operation:
        return await self._start("prune", {}, member)

    async def _start(
        self, type: str, given: dict[str, Any], member: Member, *, wait_seconds: float = 0
    ) -> Operation:
        """Submit an operation, and return it as it is after this time, or at its end."""
        id = await self.background.submit(type, given, created_by=member.subject)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self.background.wait(id, poll_seconds=0.05)
        return await self.get(id)

    # Read and cancel

    async def get(self, id: str) -> Operation:
        return (await self._library.require(OPERATION, id=id)).record

    async def list(self, query: PageQuery) -> Items[Operation]:
        """Return operations, the newest first."""
        listed = await stored_page(self._store, OPERATION, query, reverse=True)
        return listed.of([entry.record for entry in listed.items])

    async def lines(self, id: str, *, after: int = -1, limit: int) -> Items[OperationLine]:
        """Return the log lines of an operation after a sequence number."""
        await self.get(id)
        page = await self._store.page(
            OPERATION_LOG,
            operation_id=id,
            between=(max(0, after + 1), None),
            limit=page_limit(limit),
        )
        return items([entry.record for entry in page.entries])

    async def cancel(self, id: str) -> Operation | None:
        """Cancel an operation; one that has ended is deleted with its log, and None returned."""
        await self.get(id)
        if await self.background.cancel(id):
            return await self.get(id)
        await self._store.delete(OPERATION, id=id)
        return None
