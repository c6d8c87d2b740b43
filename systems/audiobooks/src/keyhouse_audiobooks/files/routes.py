"""Routes of segments, audio, covers and `operations`, and the event streams."""

from collections.abc import Mapping

from msgspec.structs import asdict

from keyhouse.errors import (
    BusyError,
    ConflictError,
    DocumentError,
    KeyhouseError,
    NotFoundError,
    RecordError,
)
from keyhouse.http import EventStream, FileResponse, Response, ResponseSpec, Route, decode_optional
from keyhouse_audiobooks.accounts.permissions import EDIT, MANAGE_SETTINGS, ORGANIZE, SCAN, VIEW
from keyhouse_audiobooks.errors import NoConverterError
from keyhouse_audiobooks.files import messages
from keyhouse_audiobooks.files.messages import MergePreview, ShownOperation, ShownSegment
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.lists import Items, PageQuery
from keyhouse_audiobooks.messages import Data, Id
from keyhouse_audiobooks.records import Operation, OperationLine
from keyhouse_audiobooks.route_table import api, api_url

__all__ = ["file_routes", "operation_routes"]

Started = Response[Data[ShownOperation]]


class FileHandlers:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def segments(
        self, id: Id, query: messages.SegmentsQuery, caller: Member, root: str
    ) -> Data[Items[ShownSegment]]:
        """List the segments of a book in order; with `?inactive=true`, the others after them.
        `file_path` is relative to its root, for all who do not organize files."""
        listed = await self._library(caller).files.segments(id, caller, query)
        for each in listed.items:
            each.audio_url = api_url(root, f"segments/{each.id}/audio")
        return Data(listed)

    async def reorder(
        self, id: Id, body: messages.SegmentOrderBody, caller: Member, root: str
    ) -> Data[Items[ShownSegment]]:
        """Put the segments of a book into another order."""
        await self._library(caller).files.reorder(id, body.segment_ids)
        return await self.segments(id, messages.SegmentsQuery(), caller, root)

    async def merge(
        self, id: Id, body: messages.MergeBody, query: messages.DryRunQuery, caller: Member
    ) -> Response[Data[MergePreview]] | Started:
        """Merge the segments of a book into one file, with the places of all listeners. With
        `?dry_run=true`: show the places before and after."""
        library = self._library(caller)
        if body.file_path is None:
            await library.books.get(id)
            return _started(await library.operations.start_transcode(id, "m4b", caller))
        if query.dry_run:
            places = await library.merger.preview(id, body.file_path)
            return Response(Data(MergePreview(True, places, len(places))))
        return _started(await library.operations.start_merge(id, body.file_path, caller))

    async def audio(self, id: Id, caller: Member) -> FileResponse:
        """Send the audio of a segment, whole or by ranges."""
        return await self._library(caller).files.audio(id)

    async def cover(self, id: Id, caller: Member) -> FileResponse:
        """Send the cover of a book."""
        return await self._library(caller).covers.get(id)


def file_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = FileHandlers(libraries)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    merged = ResponseSpec(
        type=Data[MergePreview] | Data[ShownOperation],
        about="The places of a dry run, or the operation, which has ended.",
    )
    table: dict[str, Route] = {
        "audio": api.get("/segments/{id}/audio", on.audio, scope=VIEW, problems=absent)
    }
    for name in ("books", "audiobooks"):
        book = f"/{name}/{{id}}"
        table |= {
            f"{name}_segments": api.get(
                f"{book}/segments", on.segments, scope=VIEW, problems=absent
            ),
            f"{name}_order": api.put(
                f"{book}/segments/order", on.reorder, scope=EDIT, problems=absent
            ),
            f"{name}_merge": api.post(
                f"{book}/merge",
                on.merge,
                scope=ORGANIZE,
                problems=[NotFoundError, ConflictError, NoConverterError],
                replies={200: merged, 202: Data[ShownOperation]},
            ),
            f"{name}_cover": api.get(f"{book}/cover", on.cover, scope=VIEW, problems=absent),
        }
    return table


class OperationHandlers:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def scan(self, body: bytes, caller: Member) -> Started:
        """Start a scan of the roots, or of one folder below them (`folder_path`)."""
        asked = decode_optional(body, messages.ScanBody)
        return _started(await self._library(caller).operations.start_scan(asked, caller))

    async def organize(self, body: bytes, caller: Member) -> Started:
        """Move files to the paths of a pattern; by default a dry run, which only logs."""
        asked = decode_optional(body, messages.OrganizeBody)
        return _started(await self._library(caller).operations.start_organize(asked, caller))

    async def transcode(self, body: messages.TranscodeBody, caller: Member) -> Started:
        """Join the files of a book to one, with ffmpeg, and merge it."""
        operations = self._library(caller).operations
        return _started(await operations.start_transcode(body.book_id, body.format, caller))

    async def prune(self, caller: Member) -> Started:
        """Delete playback events that are older than the settings keep them."""
        return _started(await self._library(caller).operations.start_prune(caller))

    async def list(self, query: PageQuery, caller: Member) -> Data[Items[ShownOperation]]:
        """List the operations, the newest first."""
        listed = await self._library(caller).operations.list(query)
        return Data(listed.of([_shown(each) for each in listed.items]))

    async def get(self, id: Id, caller: Member) -> Data[ShownOperation]:
        """Return an operation with its progress."""
        return Data(_shown(await self._library(caller).operations.get(id)))

    async def logs(
        self, id: Id, query: messages.LogQuery, caller: Member
    ) -> Data[Items[OperationLine]]:
        """List the log lines of an operation after a sequence number."""
        operations = self._library(caller).operations
        return Data(await operations.lines(id, after=query.after, limit=query.limit))

    async def cancel(self, id: Id, caller: Member) -> Response[Data[ShownOperation] | None]:
        """Cancel an operation; one that has ended is deleted with its log."""
        cancelled = await self._library(caller).operations.cancel(id)
        if cancelled is None:
            return Response(None, 204)
        return Response(Data(_shown(cancelled)))

    async def events(self, query: messages.SinceQuery, caller: Member) -> EventStream:
        """Stream the changes of operations, until the session ends."""
        return self._library(caller).events.operations(query.since, caller)

    async def line_events(self, id: Id, query: messages.SinceQuery, caller: Member) -> EventStream:
        """Stream the log lines of an operation, until the session ends."""
        library = self._library(caller)
        await library.operations.get(id)
        return library.events.lines(id, query.since, caller)

    async def library_events(
        self, query: messages.LibraryEventsQuery, caller: Member
    ) -> EventStream:
        """Stream the changes of books, authors, series and works, until the session ends."""
        return self._library(caller).events.catalog(query.type, query.since, caller)


def _shown(operation: Operation) -> ShownOperation:
    return ShownOperation(
        **asdict(operation),
        total=operation.progress.total,
        message=operation.error or operation.status,
    )


def _started(operation: Operation) -> Started:
    """Return an operation with status 200 if it has ended meanwhile, else 202."""
    has_ended = operation.status in ("completed", "failed")
    return Response(Data(_shown(operation)), 200 if has_ended else 202)


def operation_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = OperationHandlers(libraries)
    absent: list[type[KeyhouseError]] = [NotFoundError]
    shown = Data[ShownOperation]
    started = {200: shown, 202: shown}
    one = "/operations/{id}"
    return {
        "scan": api.post(
            "/operations/scan",
            on.scan,
            scope=SCAN,
            replies=started,
            body_type=messages.ScanBody,
            problems=[BusyError, DocumentError, RecordError, NotFoundError],
        ),
        "organize": api.post(
            "/operations/organize",
            on.organize,
            scope=ORGANIZE,
            replies=started,
            body_type=messages.OrganizeBody,
            problems=[DocumentError, RecordError],
        ),
        "transcode": api.post(
            "/operations/transcode",
            on.transcode,
            scope=ORGANIZE,
            replies=started,
            problems=[NotFoundError, NoConverterError],
        ),
        "prune": api.post("/operations/prune", on.prune, scope=MANAGE_SETTINGS, replies=started),
        "list_operations": api.get("/operations", on.list, scope=SCAN),
        "operation_events": api.get("/operations/events", on.events, scope=SCAN),
        "operation": api.get(one, on.get, scope=SCAN, problems=absent),
        "operation_status": api.get(f"{one}/status", on.get, scope=SCAN, problems=absent),
        "operation_logs": api.get(f"{one}/logs", on.logs, scope=SCAN, problems=absent),
        "operation_lines": api.get(f"{one}/events", on.line_events, scope=SCAN, problems=absent),
        "cancel": api.delete(
            one, on.cancel, scope=SCAN, problems=absent, replies={200: shown, 204: None}
        ),
        "library_events": api.get("/events", on.library_events, scope=VIEW),
    }
