"""The scan: folders of audio files become authors, series, works, books and segments. Which files
are a book, and what they say about it, is in `scanned_books`; how it is written, in `book_writer`.

    file                                            segment
    ---------------------------------------------   ---------------------------------------------
    known path, same size and time                  unchanged: the file is not read
    known path, otherwise                           its content is read again
    unknown path, known hash, the old path is gone  moved: the segment gets the new path
    unknown path                                    new, in the book of its folder and album
    gone                                            inactive, never deleted; active when it is back
    not audio                                       a line of the log

Files are read in separate processes, some books at a time, while the books before are committed. A
scan that was interrupted is repeated: all that was committed is then unchanged.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from keyhouse.errors import KeyhouseError
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction
from keyhouse_audiobooks.books.catalog import BookCatalog
from keyhouse_audiobooks.books.covers import Covers
from keyhouse_audiobooks.books.segments import read_segments, write_segments
from keyhouse_audiobooks.files.audio_files import (
    AudioFile,
    FoundFile,
    FoundFiles,
    printable_path,
    resolve_below,
    walk,
)
from keyhouse_audiobooks.files.audio_tags import AudioTags
from keyhouse_audiobooks.files.book_writer import BookWriter
from keyhouse_audiobooks.files.file_reader import read_files
from keyhouse_audiobooks.files.folder_names import ScannedFolders
from keyhouse_audiobooks.files.scanned_books import (
    FILES_PER_COMMIT,
    ScannedBook,
    ScannedFile,
    books_of,
)
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.records import Book, Segment
from keyhouse_audiobooks.schema import SEGMENT

__all__ = ["Scanner"]

FILES_PER_READ: Final = 128


class _Counts(Struct):
    added: int = 0
    changed: int = 0
    moved: int = 0
    missing: int = 0
    broken: int = 0
    unchanged: int = 0

    def __str__(self) -> str:
        parts = (f"{getattr(self, name)} {name}" for name in self.__struct_fields__)
        return ", ".join(parts)


class Scanner:
    def __init__(self, library: Library, catalog: BookCatalog, covers: Covers) -> None:
        self._library = library
        self._store = library.store
        self._writer = BookWriter(library, catalog)
        self._covers = covers
        self._run = library.run

    async def scan(self, task: OperationTask) -> None:
        """Run the operation. Its input may have `folder_path` and `force_update`."""
        given = task.input or {}
        counts = _Counts()
        # One after the other: at once, the threads would only take turns.
        found = await self._walk(task, given.get("folder_path"))
        known = await self._known()
        files = found.files
        missing = known.keys() - {each.path for each in files}
        due = files if given.get("force_update") else _changed(files, known)
        counts.unchanged = len(files) - len(due)
        if due:
            await task.commit(current=counts.unchanged, total=len(files))
        gone = {
            each.hash_sha256: each
            for path, each in ((path, known[path]) for path in missing)
            if not os.path.lexists(path)
        }
        state = _ScanState(known, gone, counts, counts.unchanged, ScannedFolders(files, known))
        async with aclosing(read_files(_chunks(due), len(due), self._library.roots)) as reading:
            async for read in reading:
                state.done += len(read)
                readable = self._readable(read, state, task)
                commits = list(_commits(books_of(readable, state.folders, self._library.roots)))
                for books in commits:
                    await self._commit_all(task, books, state)
                if not commits:
                    await task.commit(current=state.done)
        await self._deactivate(task, [known[path] for path in sorted(missing)], found, counts)
        task.log(f"Scanned {len(files)} files: {counts}.")
        await task.commit(current=len(files), total=len(files))

    async def _known(self) -> dict[str, Segment]:
        """Return all segments by the paths of their files."""
        return {entry.record.file_path: entry.record async for entry in self._store.scan(SEGMENT)}

    async def _walk(self, task: OperationTask, folder: str | None) -> FoundFiles:
        """Return the files of all folders, and log what could not be read."""
        roots = self._library.roots
        chosen = [resolve_below(folder, roots)] if folder else list(roots)
        if not chosen:
            task.log("No roots are configured: set `roots` of [audiobooks].", "warn")
        found = FoundFiles()
        for root in chosen:
            try:
                await self._run(walk, root, found)
            except OSError as error:
                task.log(f"{root}: {error}", "error")
        for path, reason in found.skipped.items():
            task.log(f"{printable_path(path)}: {reason}", "error")
        for extension, paths in sorted(found.unread.items()):
            count = "1 file is" if len(paths) == 1 else f"{len(paths)} files are"
            task.log(f"{count} not read, being .{extension}: {paths[0]}", "warn")
        return found

    def _readable(
        self, read: list[AudioFile], state: "_ScanState", task: OperationTask
    ) -> list[tuple[AudioFile, AudioTags]]:
        """Return the files that could be read, and log the others."""
        state.folders.add_discs(read)
        readable = []
        for file in read:
            if file.tags is None:
                state.counts.broken += 1
                task.log(f"{file.found.path}: {file.error}", "error")
            else:
                readable.append((file, file.tags))
        return readable

    async def _commit_all(
        self, task: OperationTask, books: list[ScannedBook], state: "_ScanState"
    ) -> None:
        """Write the files of some books in one commit. If it fails, each of them by itself: one
        that cannot be stored is a line of the log."""
        try:
            await self._commit(task, books, state)
        except KeyhouseError as error:
            if task.is_cancelled or task.is_lost:
                raise
            if len(books) > 1:
                for book in books:
                    await self._commit_all(task, [book], state)
                return
            task.log(f"{books[0].path}: {error}", "error")
            state.counts.broken += len(books[0].files)

    async def _commit(
        self, task: OperationTask, books: list[ScannedBook], state: "_ScanState"
    ) -> None:
        files_of = [[self._scanned(*file, state) for file in book.files] for book in books]

        async def work(tx: Transaction) -> list[tuple[Book, bool]]:
            return [
                await self._writer.write(tx, book, files, state.emptied)
                for book, files in zip(books, files_of, strict=True)
            ]

        written = await task.commit(work, current=state.done) or []
        for scanned, files, (book, is_new) in zip(books, files_of, written, strict=True):
            for each in files:
                name = each.outcome
                setattr(state.counts, name, getattr(state.counts, name) + 1)
                state.gone.pop(each.file.sha256, None)
            if is_new:
                noun = "file" if len(files) == 1 else "files"
                task.log(f"Added {book.title} ({len(files)} {noun}).")
            if book.cover_asset_id is None:
                tags = [tags for _, tags in scanned.files]
                await self._covers.add(book.id, scanned.folders, tags)
        for old, new in list(state.emptied.items()):
            await self._writer.move_places(old, new)
            task.log(f"All files of book {old} are in book {new} now: it is in the bin.", "warn")
            del state.emptied[old]

    def _scanned(self, file: AudioFile, tags: AudioTags, state: "_ScanState") -> ScannedFile:
        before = state.known.get(file.found.path) or state.gone.get(file.sha256)
        segment_id = self._library.new_id() if before is None else before.id
        return ScannedFile(file, tags, segment_id, before)

    async def _deactivate(
        self, task: OperationTask, segments: list[Segment], found: FoundFiles, counts: _Counts
    ) -> None:
        """Make segments without a file inactive. A folder that could not be read, such as one that
        is not mounted, has no missing files."""
        paths = {each.file_path for each in segments}
        missing: dict[str, list[str]] = {}
        for segment in segments:
            if segment.active and found.has_looked_at(segment.file_path):
                missing.setdefault(segment.book_id, []).append(segment.id)

        for book_id, ids in missing.items():

            async def work(tx: Transaction, book_id: str = book_id, ids: Any = ids) -> int:
                segments = await read_segments(tx, book_id)
                lost = [
                    each
                    for each in segments
                    if each.id in ids and each.active and each.file_path in paths
                ]
                changed = [
                    replace(each, active=False) if each in lost else each for each in segments
                ]
                if lost:
                    await write_segments(tx, book_id, changed)
                return len(lost)

            lost = await task.commit(work) or 0
            counts.missing += lost
            if lost:
                task.log(f"{lost} files of book {book_id} are missing.", "warn")


class _ScanState(Struct):
    """`known` segments by path, and those by hash whose file is gone; `done` files. `emptied` has
    books without files, and the book that has them now."""

    known: dict[str, Segment]
    gone: dict[str, Segment]
    counts: _Counts
    done: int
    folders: ScannedFolders
    emptied: dict[str, str] = {}


def _changed(files: list[FoundFile], known: dict[str, Segment]) -> list[FoundFile]:
    """Return the files that are not known with this size and time, or whose segment is inactive."""
    changed = []
    for each in files:
        segment = known.get(each.path)
        if (
            segment is None
            or segment.mtime_ns != each.mtime_ns
            or segment.size_bytes != each.size
            or (not segment.active and segment.superseded_by is None)
        ):
            changed.append(each)
    return changed


def _chunks(due: list[FoundFile]) -> Iterator[list[FoundFile]]:
    """Yield files in pieces; a folder is never divided."""
    chunk: list[FoundFile] = []
    for each in due:
        is_full = len(chunk) >= FILES_PER_READ
        if is_full and os.path.dirname(each.path) != os.path.dirname(chunk[-1].path):
            yield chunk
            chunk = []
        chunk.append(each)
    if chunk:
        yield chunk


def _commits(books: Iterable[ScannedBook]) -> Iterator[list[ScannedBook]]:
    """Yield books that are written together."""
    together: list[ScannedBook] = []
    for book in books:
        if together and sum(len(each.files) for each in [*together, book]) > FILES_PER_COMMIT:
            yield together
            together = []
        together.append(book)
    if together:
        yield together
