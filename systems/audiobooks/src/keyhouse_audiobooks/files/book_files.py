"""The files of books: their segments as they are shown and ordered, and their audio."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import asdict

from keyhouse.errors import NotFoundError
from keyhouse.http import FileResponse, FileRoot
from keyhouse.store import Transaction
from keyhouse_audiobooks.accounts.permissions import ORGANIZE
from keyhouse_audiobooks.books.books import Books
from keyhouse_audiobooks.books.segments import reorder_segments, segments_of
from keyhouse_audiobooks.files.audio_files import below_root
from keyhouse_audiobooks.files.audio_tags import MEDIA_TYPES
from keyhouse_audiobooks.files.messages import SegmentsQuery, ShownSegment
from keyhouse_audiobooks.library import Library, Member
from keyhouse_audiobooks.lists import Items, PageQuery, items, offset_cursor, page_of
from keyhouse_audiobooks.records import Seconds, Segment
from keyhouse_audiobooks.schema import BOOK, DURATION_MAP, SEGMENT

__all__ = ["BookFiles"]


class BookFiles:
    def __init__(self, library: Library, books: Books) -> None:
        self._library = library
        self._store = library.store
        self._books = books
        self._roots: dict[Path, FileRoot] = {}

    async def segments(
        self, id: str, member: Member, query: SegmentsQuery | None = None
    ) -> Items[ShownSegment]:
        """Return the segments of a book in order, the inactive ones last, if they are asked for."""
        query = query or SegmentsQuery()
        await self._books.get(id)
        durations = await self._store.get(DURATION_MAP, book_id=id)
        starts = {span.id: span.offset_start for span in (durations.segments if durations else ())}

        segments = await segments_of(self._store, id)
        found = [each for each in segments if each.active or query.inactive]
        if query.limit is None:
            rest = found[offset_cursor(query.cursor, query.offset) :]
            listed = items(rest, total=len(found))
        else:
            listed = page_of(found, PageQuery(query.limit, query.cursor, query.offset))
        return listed.of(
            [self._shown(each, member, starts.get(each.id, 0)) for each in listed.items]
        )

    def _shown(self, segment: Segment, member: Member, start: Seconds) -> ShownSegment:
        chapters = None if segment.chapters is UNSET else segment.chapters
        path = segment.file_path
        if ORGANIZE not in member.scopes:
            place = below_root(path, self._library.roots)
            path = Path(path).name if place is None else str(place[1])
        members = {**asdict(segment), "chapters": chapters, "file_path": path}
        return ShownSegment(**members, offset_start=start)

    async def reorder(self, id: str, ids: Sequence[str]) -> None:
        """Put the segments of a book into another order."""

        async def work(tx: Transaction) -> None:
            book = await tx.get(BOOK, id=id)
            if book is None:
                raise NotFoundError("There is no such book.", id=id)
            await reorder_segments(tx, book, ids)

        await self._books.get(id)
        await self._store.transact(work)

    async def audio(self, id: str) -> FileResponse:
        """Send the audio of a segment, whole or by ranges."""
        segment = (await self._library.require(SEGMENT, id=id)).record
        place = below_root(segment.file_path, self._library.roots)
        if place is None:
            raise NotFoundError("The file is not below a root of the library.", id=id)
        media_type = MEDIA_TYPES.get(segment.format.casefold(), "application/octet-stream")
        return FileResponse(await self._root(place[0]), place[1], media_type=media_type)

    async def _root(self, root: Path) -> FileRoot:
        """Return a root to serve files from; it may be there later than the service."""
        opened = self._roots.get(root)
        if opened is None:
            if not await self._library.run(root.is_dir):
                raise NotFoundError("The folder of the library does not exist: is it mounted?")
            opened = self._roots[root] = FileRoot(root, run=self._library.run)
        return opened
