"""Routes of `operations`, and the event streams."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, to_builtins

from keyhouse.errors import BusyError, DocumentError, KeyhouseError, NotFoundError, RecordError
from keyhouse.http import EventStream, Response, Route, decode_optional
from keyhouse.schema import Record
from keyhouse.service.background_operations import BackgroundOperations
from keyhouse.service.event_hub import EventHub
from keyhouse.store import Event, Store
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.converter import require_ffmpeg
from keyhouse.systems.audiobooks.errors import NoConverterError
from keyhouse.systems.audiobooks.files import resolve_below
from keyhouse.systems.audiobooks.library import (
    Data,
    Items,
    Library,
    Member,
    data,
    items,
    page_limit,
    page_of,
)
from keyhouse.systems.audiobooks.maintenance import check_pattern
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import MANAGE_SETTINGS, ORGANIZE, SCAN, VIEW
from keyhouse.systems.audiobooks.records import Operation
from keyhouse.systems.audiobooks.routes.table import api
from keyhouse.systems.audiobooks.schema import (
    AUTHOR,
    BOOK,
    OPERATION,
    OPERATION_LOG,
    SERIES,
    WORK,
)

__all__ = ["operation_reply", "operation_routes"]

Json = dict[str, Any]
_WATCHED: Mapping[str, Record[Any]] = {
    "book": BOOK,
    "author": AUTHOR,
    "series": SERIES,
    "work": WORK,
}


class LibraryEventsQuery(Struct):
    """`type`: only records of this type."""

    type: Literal["book", "author", "series", "work"] | None = None
    since: int | None = None


async def operation_reply(
    operations: BackgroundOperations,
    store: Store,
    type: str,
    given: Json,
    caller: Member,
    *,
    wait_seconds: float = 0,
) -> Response[Data[Json]]:
    """Submit an operation, and return it: with status 200 if it ended meanwhile, else 202."""
    id = await operations.submit(type, given, created_by=caller.subject)
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_seconds):
            await operations.wait(id, poll_seconds=0.05)
    operation = await store.get(OPERATION, id=id)
    assert operation is not None  # it was just submitted
    has_ended = operation.status in ("completed", "failed")
    return Response(data(_shown(operation)), 200 if has_ended else 202)


class OperationHandlers:
    """`is_allowed` tells whether a member, whose stream is open, still has a permission."""

    def __init__(
        self,
        library: Library,
        operations: BackgroundOperations,
        hub: EventHub,
        run: Any,
        is_allowed: Callable[[Member, str], Awaitable[bool]],
    ) -> None:
        self._is_allowed = is_allowed
        self._library = library
        self._store = library.store
        self._operations = operations
        self._hub = hub
        self._run = run
        self._encode = _encoder(library.store)

    async def scan(self, body: bytes, caller: Member) -> Response[Data[Json]]:
        """Start a scan of the roots, or of one folder below them (`folder_path`)."""
        asked = decode_optional(body, messages.ScanBody)
        if asked.folder_path is not None:
            await self._run(resolve_below, asked.folder_path, self._library.roots)
        given = {"folder_path": asked.folder_path, "force_update": asked.force_update}
        return await self._submit("scan", given, caller)

    async def organize(self, body: bytes, caller: Member) -> Response[Data[Json]]:
        """Move files to the paths of a pattern; by default a dry run, which only logs."""
        asked = decode_optional(body, messages.OrganizeBody)
        if asked.pattern is not None:
            check_pattern(asked.pattern)
        given = {"dry_run": asked.dry_run, "pattern": asked.pattern}
        return await self._submit("organize", given, caller)

    async def transcode(self, body: messages.TranscodeBody, caller: Member) -> Response[Data[Json]]:
        """Join the files of a book to one, with ffmpeg, and merge it."""
        await self._library.require(BOOK, "book", id=body.book_id)
        require_ffmpeg()
        given = {"book_id": body.book_id, "format": body.format}
        return await self._submit("transcode", given, caller)

    async def prune(self, caller: Member) -> Response[Data[Json]]:
        """Delete playback events that are older than the settings keep them."""
        return await self._submit("prune", {}, caller)

    async def _submit(self, type: str, given: Json, caller: Member) -> Response[Data[Json]]:
        return await operation_reply(self._operations, self._store, type, given, caller)

    async def list(self, query: messages.PageQuery) -> Data[Items[Json]]:
        """List the operations, the newest first."""
        limit = page_limit(query.limit)
        cursor = query.cursor
        if query.offset or (cursor or "").startswith("@"):
            found = [each.record async for each in self._store.scan(OPERATION, reverse=True)]
            rest, following = page_of(found, limit, cursor, query.offset)
            return items([_shown(each) for each in rest], total=len(found), cursor=following)
        page = await self._store.page(OPERATION, reverse=True, limit=limit, cursor=cursor)
        return items([_shown(each.record) for each in page.entries], cursor=page.cursor)

    async def get(self, id: Id) -> Data[Json]:
        """Return an operation with its progress."""
        return data(_shown((await self._library.require(OPERATION, "operation", id=id)).record))

    async def logs(self, id: Id, query: messages.LogQuery) -> Data[Items[Json]]:
        """List the log lines of an operation after a sequence number."""
        await self._library.require(OPERATION, "operation", id=id)
        page = await self._store.page(
            OPERATION_LOG,
            operation_id=id,
            between=(max(0, query.after + 1), None),
            limit=page_limit(query.limit),
        )
        return items([OPERATION_LOG.shown(each.record) for each in page.entries])

    async def cancel(self, id: Id) -> Response[Data[Json] | None]:
        """Cancel an operation; one that has ended is deleted with its log."""
        await self._library.require(OPERATION, "operation", id=id)
        if await self._operations.cancel(id):
            return Response(await self.get(id))
        await self._store.delete(OPERATION, id=id)
        return Response(None, 204)

    async def events(self, query: messages.SinceQuery, caller: Member) -> EventStream:
        """Stream the changes of operations, until the session ends."""
        return self._stream((OPERATION,), query.since, caller, SCAN)

    async def line_events(self, id: Id, query: messages.SinceQuery, caller: Member) -> EventStream:
        """Stream the log lines of an operation, until the session ends."""
        await self._library.require(OPERATION, "operation", id=id)
        lines = self._hub.stream(self._store, OPERATION_LOG, since=query.since, operation_id=id)
        return lines.while_valid(lambda: self._is_allowed(caller, SCAN))

    async def library_events(self, query: LibraryEventsQuery, caller: Member) -> EventStream:
        """Stream the changes of books, authors, series and works, until the session ends."""
        records = [*_WATCHED.values()] if query.type is None else [_WATCHED[query.type]]
        return self._stream(records, query.since, caller, VIEW)

    def _stream(
        self, records: Sequence[Record[Any]], since: int | None, caller: Member, permission: str
    ) -> EventStream:
        stream = self._hub.stream(self._store, *records, since=since, encode=self._encode)
        return stream.while_valid(lambda: self._is_allowed(caller, permission))


def _encoder(store: Store) -> Any:
    """Return a function that encodes a change: the record's id and its new state."""

    def encode(event: Event[Any]) -> tuple[str, Json]:
        match = store.find(event.key)
        assert match is not None and isinstance(match.declared, Record)
        record = match.declared
        id = event.key.rpartition(":")[2]
        known: Json = {"id": id, "type": record.name, "revision": event.revision}
        if event.gone:
            return f"{record.name}.deleted", {**known, "data": None}
        shown = record.shown(event.record)
        shown.pop("source", None)
        return f"{record.name}.updated", {**known, "data": shown}

    return encode


def _shown(operation: Operation) -> Json:
    shown: Json = to_builtins(operation)
    shown["total"] = operation.progress.total
    shown["message"] = operation.error or operation.status
    return shown


def operation_routes(on: OperationHandlers) -> Mapping[str, Route]:
    absent: list[type[KeyhouseError]] = [NotFoundError]
    started = {200: Data[Json], 202: Data[Json]}
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
        "operations": api.get("/operations", on.list, scope=SCAN),
        "operation_events": api.get("/operations/events", on.events, scope=SCAN),
        "operation": api.get(one, on.get, scope=SCAN, problems=absent),
        "operation_status": api.get(f"{one}/status", on.get, scope=SCAN, problems=absent),
        "operation_logs": api.get(f"{one}/logs", on.logs, scope=SCAN, problems=absent),
        "operation_lines": api.get(f"{one}/events", on.line_events, scope=SCAN, problems=absent),
        "cancel": api.delete(
            one,
            on.cancel,
            scope=SCAN,
            problems=absent,
            replies={200: Data[Json], 204: None},
        ),
        "library_events": api.get("/events", on.library_events, scope=VIEW),
    }
