"""Routes of segments, audio and covers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError
from keyhouse.http import FileResponse, FileRoot, Response, Route
from keyhouse.service.background_operations import BackgroundOperations
from keyhouse.store import Transaction
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.audio_tags import MEDIA_TYPES
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.converter import require_ffmpeg
from keyhouse.systems.audiobooks.covers import Covers
from keyhouse.systems.audiobooks.errors import NoConverterError
from keyhouse.systems.audiobooks.files import below_root
from keyhouse.systems.audiobooks.library import (
    Data,
    Items,
    Library,
    Member,
    data,
    items,
    offset_cursor,
    page_limit,
)
from keyhouse.systems.audiobooks.merger import Merger
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import EDIT, ORGANIZE, VIEW
from keyhouse.systems.audiobooks.records import Segment
from keyhouse.systems.audiobooks.routes.operations import operation_reply
from keyhouse.systems.audiobooks.routes.table import API, add_root, api
from keyhouse.systems.audiobooks.schema import BOOK, DURATION_MAP, SEGMENT
from keyhouse.systems.audiobooks.segments import read_segments, reorder_segments

__all__ = ["file_routes"]

Json = dict[str, Any]


class SegmentsQuery(Struct):
    """`limit`: a page of them; without, all."""

    inactive: bool = False
    limit: int | None = None
    cursor: str | None = None
    offset: int = 0


class FileHandlers:
    def __init__(
        self,
        library: Library,
        books: Books,
        covers: Covers,
        merger: Merger,
        operations: BackgroundOperations,
        run: Any,
    ) -> None:
        self._library = library
        self._store = library.store
        self._books = books
        self._covers = covers
        self._merger = merger
        self._operations = operations
        self._roots: dict[Path, FileRoot] = {}
        self._run = run

    async def segments(
        self, id: Id, query: SegmentsQuery, caller: Member, root: str = ""
    ) -> Data[Items[Json]]:
        """List the segments of a book in order; with `?inactive=true`, the others after them.
        `file_path` is relative to its root, for all who do not organize files."""
        await self._books.get(id)
        durations = await self._store.get(DURATION_MAP, book_id=id)
        starts = {span.id: span.offset_start for span in (durations.segments if durations else ())}

        async def work(tx: Transaction) -> list[Segment]:
            return await read_segments(tx, id)

        found = [each for each in await self._store.transact(work) if each.active or query.inactive]
        limit = max(1, len(found)) if query.limit is None else page_limit(query.limit)
        start = offset_cursor(query.cursor, query.offset)
        following = f"@{start + limit}" if start + limit < len(found) else None
        shown = [
            {
                "chapters": None,
                **SEGMENT.shown(each),
                "file_path": self._shown_path(each, caller),
                "offset_start": starts.get(each.id, 0),
                "audio_url": f"/audiobooks{API}/segments/{each.id}/audio",
            }
            for each in found[start : start + limit]
        ]
        add_root(root, shown)
        return items(shown, total=len(found), cursor=following)

    def _shown_path(self, segment: Segment, caller: Member) -> str:
        if ORGANIZE in caller.scopes:
            return segment.file_path
        place = below_root(segment.file_path, self._library.roots)
        return Path(segment.file_path).name if place is None else str(place[1])

    async def reorder(
        self, id: Id, body: messages.SegmentOrderBody, caller: Member, root: str
    ) -> Data[Items[Json]]:
        """Put the segments of a book into another order."""

        async def work(tx: Transaction) -> None:
            book = await tx.get(BOOK, id=id)
            if book is None:
                raise NotFoundError("There is no such book.", id=id)
            await reorder_segments(tx, book, body.segment_ids)

        await self._books.get(id)
        await self._store.transact(work)
        return await self.segments(id, SegmentsQuery(), caller, root)

    async def merge(
        self, id: Id, body: messages.MergeBody, query: messages.DryRunQuery, caller: Member
    ) -> Response[Data[Json]]:
        """Merge the segments of a book into one file, with the places of all listeners. With
        `?dry_run=true`: show the places before and after."""
        if body.file_path is None:
            await self._books.get(id)
            require_ffmpeg()
            given: Json = {"book_id": id}
            return await operation_reply(
                self._operations, self._store, "transcode", given, caller, wait_seconds=0
            )
        file = await self._merger.check(id, body.file_path)
        if query.dry_run:
            places = await self._merger.preview(id, file)
            shown: Json = {"dry_run": True, "items": places, "count": len(places)}
            return Response(data(shown))
        given = {"book_id": id, "file_path": file.found.path}
        return await operation_reply(
            self._operations, self._store, "merge", given, caller, wait_seconds=30
        )

    async def audio(self, id: Id) -> FileResponse:
        """Send the audio of a segment, whole or by ranges."""
        segment = (await self._library.require(SEGMENT, "segment", id=id)).record
        place = below_root(segment.file_path, self._library.roots)
        if place is None:
            raise NotFoundError("The file is not below a root of the library.", id=id)
        media_type = MEDIA_TYPES.get(segment.format.casefold(), "application/octet-stream")
        return FileResponse(await self._root(place[0]), place[1], media_type=media_type)

    async def _root(self, root: Path) -> FileRoot:
        """Return a root to serve files from; it may be there later than the service."""
        found = self._roots.get(root)
        if found is None:
            if not await self._run(root.is_dir):
                raise NotFoundError("The folder of the library does not exist: is it mounted?")
            found = self._roots[root] = FileRoot(root, run=self._run)
        return found

    async def cover(self, id: Id) -> FileResponse:
        """Send the cover of a book."""
        return await self._covers.get(id)


def file_routes(on: FileHandlers) -> Mapping[str, Route]:
    absent: list[type[KeyhouseError]] = [NotFoundError]
    found: dict[str, Route] = {
        "audio": api.get("/segments/{id}/audio", on.audio, scope=VIEW, problems=absent)
    }
    for name in ("books", "audiobooks"):
        book = f"/{name}/{{id}}"
        found |= {
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
                replies={200: Data[Json], 202: Data[Json]},
            ),
            f"{name}_cover": api.get(f"{book}/cover", on.cover, scope=VIEW, problems=absent),
        }
    return found
