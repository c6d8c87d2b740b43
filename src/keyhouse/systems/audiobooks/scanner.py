"""The scan: folders of audio files become authors, series, works, books and segments.

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
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from keyhouse.errors import KeyFieldError, KeyhouseError
from keyhouse.keys import normal
from keyhouse.normalization import stream_safe
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction
from keyhouse.systems.audiobooks.audio_tags import AudioTags
from keyhouse.systems.audiobooks.book_catalog import BookCatalog
from keyhouse.systems.audiobooks.covers import Covers
from keyhouse.systems.audiobooks.file_reader import read_files
from keyhouse.systems.audiobooks.files import (
    AudioFile,
    FoundFile,
    FoundFiles,
    below_root,
    natural,
    printable_path,
    resolve_below,
    walk,
)
from keyhouse.systems.audiobooks.folder_names import (
    PathNames,
    ScannedFolders,
    book_folder,
    names_of,
)
from keyhouse.systems.audiobooks.isbn import isbn10, isbn13
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.listening import placed_progress
from keyhouse.systems.audiobooks.records import (
    Book,
    Bookmark,
    Progress,
    Segment,
    digest,
    is_binned,
)
from keyhouse.systems.audiobooks.schema import (
    BOOK,
    BOOK_BY_SOURCE,
    BOOKMARK,
    BOOKMARKS_OF_BOOK,
    DURATION_MAP,
    LISTENERS_OF_BOOK,
    PROGRESS,
    SEGMENT,
    join_work,
)
from keyhouse.systems.audiobooks.segments import SEGMENTS_MEMBER, read_segments, write_segments

__all__ = ["Scanner"]

FILES_PER_READ: Final = 128
FILES_PER_COMMIT: Final = 200
TITLE_CHARS_MAX: Final = 200
UNTITLED: Final = "Untitled"

Run = Callable[..., Awaitable[Any]]


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
    """`run` calls a function in a thread."""

    def __init__(self, library: Library, catalog: BookCatalog, covers: Covers, run: Run) -> None:
        self._library = library
        self._store = library.store
        self._catalog = catalog
        self._covers = covers
        self._run = run

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
                commits = list(_commits(self._groups(read, state, task)))
                for groups in commits:
                    await self._commit_all(task, groups, state)
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

    async def _commit_all(
        self, task: OperationTask, groups: "list[Group]", state: "_ScanState"
    ) -> None:
        """Write the files of some folders and albums in one commit. If it fails, each of them by
        itself: one that cannot be stored is a line of the log."""
        try:
            await self._commit(task, groups, state)
        except KeyhouseError as error:
            if task.is_cancelled or task.is_lost:
                raise
            if len(groups) > 1:
                for group in groups:
                    await self._commit_all(task, [group], state)
                return
            task.log(f"{groups[0].path}: {error}", "error")
            state.counts.broken += len(groups[0].files)

    async def _commit(
        self, task: OperationTask, groups: "list[Group]", state: "_ScanState"
    ) -> None:
        scanned = [group.scanned(state, self._library) for group in groups]

        async def work(tx: Transaction) -> list[tuple[Book, bool]]:
            return [
                await self._write_group(tx, group, files, state)
                for group, files in zip(groups, scanned, strict=True)
            ]

        written = await task.commit(work, current=state.done) or []
        for group, files, (book, is_new) in zip(groups, scanned, written, strict=True):
            for each in files:
                name = each.outcome
                setattr(state.counts, name, getattr(state.counts, name) + 1)
                state.gone.pop(each.file.sha256, None)
            if is_new:
                noun = "file" if len(files) == 1 else "files"
                task.log(f"Added {book.title} ({len(files)} {noun}).")
            if book.cover_asset_id is None:
                tags = [tags for _, tags in group.files]
                await self._covers.add(book.id, [Path(each) for each in group.folders], tags)
        for old, new in list(state.emptied.items()):
            await self._move_places(old, new)
            task.log(f"All files of book {old} are in book {new} now: it is in the bin.", "warn")
            del state.emptied[old]

    async def _write_group(
        self, tx: Transaction, group: "Group", files: "list[_Scanned]", state: "_ScanState"
    ) -> tuple[Book, bool]:
        """Write the files of one folder and album; return the book, and whether it is new."""
        existing = await tx.lookup(BOOK, BOOK_BY_SOURCE, source=group.source)
        book = None if existing is None else existing.record
        if book is None:
            book = await self._book_of_moved(tx, group, state)
        proposed = await self._proposed(tx, group, book)
        await self._write(tx, proposed, files, state)
        return proposed, book is None

    async def _book_of_moved(
        self, tx: Transaction, group: "Group", state: "_ScanState"
    ) -> Book | None:
        """Return the book of a file that was moved here or is known: its folder was renamed."""
        for file, _ in group.files:
            segment = state.known.get(file.found.path) or state.gone.get(file.sha256)
            if segment is not None:
                return await tx.get(BOOK, id=segment.book_id)
        return None

    async def _proposed(self, tx: Transaction, group: "Group", book: Book | None) -> Book:
        """Return the book as the tags say, except what a person has edited."""
        tags, names, catalog = group.files[0][1], group.names, self._catalog
        title = _title(tags.album, tags.title if len(group.files) == 1 else "", names.title)
        author = _named(tags.author) or _named(names.author)
        series, place = _named(tags.series), tags.series_part
        if not series and _normal(author) == _normal(names.author):
            series, place = _named(names.series), names.place
        author_id = series_id = None
        if author:
            author_id, _ = await catalog.author_in(tx, author)
        if series:
            series_id, _ = await catalog.series_in(tx, series, author_id)
        work_id, _ = await catalog.work_in(tx, title, author_id)
        values: dict[str, Any] = {
            "title": title,
            "author_id": author_id,
            "series_id": series_id,
            "series_position": _whole(place),
            "work_id": work_id,
            "narrator": tags.narrator or None,
            "publisher": tags.publisher or None,
            "language": tags.language or None,
            "description": tags.description,
            "published_year": tags.year,
            "genres": list(dict.fromkeys(filter(_normal, tags.genres))) or UNSET,
            **_isbns(tags.isbn),
        }
        if book is None:
            return Book(id=self._library.new_id(), source=group.source, **values)
        edited = set(book.edited or ())
        kept = {name: value for name, value in values.items() if name not in edited}
        if "title" in edited or "author_id" in edited:
            kept.pop("work_id", None)
        return replace(book, source=group.source, **kept)

    async def _write(
        self, tx: Transaction, proposed: Book, files: "list[_Scanned]", state: "_ScanState"
    ) -> None:
        stored = await tx.get(BOOK, id=proposed.id)
        if stored is None:
            await tx.put(BOOK, proposed)
        elif _without_times(stored) != _without_times(proposed):
            current = replace(proposed, work_id=stored.work_id)
            if proposed.work_id != stored.work_id:
                await join_work(tx, current, proposed.work_id)
            else:
                await tx.put(BOOK, current)
        segments = {each.id: each for each in await read_segments(tx, proposed.id)}
        for file in files:
            segment = file.segment(segments, proposed.id)
            segments[segment.id] = segment
            if file.is_known:
                elsewhere = await tx.get(SEGMENT, id=segment.id)
                is_elsewhere = elsewhere is not None and elsewhere.book_id != proposed.id
                if elsewhere is not None and is_elsewhere and await self._leave(tx, elsewhere):
                    state.emptied[elsewhere.book_id] = proposed.id
        ordered = list(segments.values())
        if SEGMENTS_MEMBER not in (proposed.edited or ()):
            ordered.sort(key=_order)
        await write_segments(tx, proposed.id, ordered)

    async def _leave(self, tx: Transaction, segment: Segment) -> bool:
        """Take a segment out of the book that it was in: its album has changed. A book without
        files is put into the bin; return whether it was."""
        rest = [each for each in await read_segments(tx, segment.book_id) if each.id != segment.id]
        await tx.delete(SEGMENT, id=segment.id)
        await write_segments(tx, segment.book_id, rest)
        book = await tx.get(BOOK, id=segment.book_id)
        if book is None or is_binned(book) or any(each.active for each in rest):
            return False
        await tx.put(BOOK, replace(book, deleted_at=self._library.now()))
        return True

    async def _move_places(self, old: str, new: str) -> None:
        """Give the listeners of a book without files their places in the book that has them now,
        unless they have one there."""
        progress = self._store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=old)
        for before in [entry.record async for entry in progress]:

            async def move(tx: Transaction, before: Progress = before) -> None:
                there = await tx.get(PROGRESS, user_id=before.user_id, book_id=new)
                durations = await tx.get(DURATION_MAP, book_id=new)
                if there is None and durations is not None:
                    await tx.put(PROGRESS, placed_progress(replace(before, book_id=new), durations))

            await self._store.transact(move)
        marks = self._store.scan(BOOKMARK, by=BOOKMARKS_OF_BOOK, book_id=old)
        for mark in [entry.record async for entry in marks]:

            async def move_mark(tx: Transaction, mark: Bookmark = mark) -> None:
                await tx.delete(BOOKMARK, user_id=mark.user_id, book_id=old, id=mark.id)
                await tx.put(BOOKMARK, replace(mark, book_id=new))

            await self._store.transact(move_mark)

    def _groups(
        self, read: list[AudioFile], state: "_ScanState", task: OperationTask
    ) -> "Iterator[Group]":
        """Yield the files of each book; of very many, in parts."""
        groups: dict[tuple[str, str], list[tuple[AudioFile, AudioTags]]] = {}
        state.folders.add_discs(read)
        for each in read:
            if each.tags is None:
                state.counts.broken += 1
                task.log(f"{each.found.path}: {each.error}", "error")
                continue
            path = state.folders.book_path(each.found.path, each.tags)
            album = _normal(each.tags.album) or each.tags.album
            groups.setdefault((path, album), []).append((each, each.tags))
        for (path, album), files in groups.items():
            source = digest(f"{path}\0{album}")
            place = below_root(path, self._library.roots)
            names = names_of(path if place is None else str(place[0]), path)
            for start in range(0, len(files), FILES_PER_COMMIT):
                yield Group(path, names, source, files[start : start + FILES_PER_COMMIT])

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


class Group(Struct):
    """Files of one book, by its path and album."""

    path: str
    names: PathNames
    source: str
    files: list[tuple[AudioFile, AudioTags]]

    @property
    def folders(self) -> list[str]:
        """The folders that may have a cover: those of the files, and that of the discs."""
        own = [os.path.dirname(file.found.path) for file, _ in self.files]
        return list(dict.fromkeys([*own, self.path]))

    def scanned(self, state: _ScanState, library: Library) -> "list[_Scanned]":
        return [_Scanned(file, tags, state.known, state.gone, library) for file, tags in self.files]


class _Scanned:
    """A file that was read, and what becomes of it."""

    def __init__(
        self,
        file: AudioFile,
        tags: AudioTags,
        known: dict[str, Segment],
        gone: dict[str, Segment],
        library: Library,
    ) -> None:
        self.file = file
        self.tags = tags
        self._before = known.get(file.found.path)
        self.outcome = "changed"
        if self._before is None:
            self._before = gone.get(file.sha256)
            self.outcome = "added" if self._before is None else "moved"
        self.is_known = self._before is not None
        self._id = library.new_id() if self._before is None else self._before.id

    def segment(self, segments: dict[str, Segment], book_id: str) -> Segment:
        before = segments.get(self._id) or self._before
        number = len(segments) + 1 if before is None else before.track_number
        superseded = None if before is None else before.superseded_by
        return Segment(
            id=self._id,
            book_id=book_id,
            file_path=self.file.found.path,
            format=self.tags.format,
            size_bytes=self.file.found.size,
            duration_seconds=self.tags.duration_seconds,
            hash_sha256=self.file.sha256,
            track_number=number,
            total_tracks=1,
            active=superseded is None,
            superseded_by=superseded,
            created_at="" if before is None else before.created_at,
            title=self.tags.title or UNSET,
            mtime_ns=self.file.found.mtime_ns,
            tag_order=[self._disc(), self.tags.track or 0],
            chapters=self.tags.chapters or UNSET,
        )

    def _disc(self) -> int:
        return self.tags.disc or book_folder(os.path.dirname(self.file.found.path))[1] or 0


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


def _commits(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Yield groups that are written together."""
    together: list[Group] = []
    for group in groups:
        if together and sum(len(each.files) for each in [*together, group]) > FILES_PER_COMMIT:
            yield together
            together = []
        together.append(group)
    if together:
        yield together


def _order(segment: Segment) -> tuple[Any, ...]:
    name = os.path.basename(segment.file_path)
    return (not segment.active, segment.tag_order or [0, 0], natural(name), segment.file_path)


def _title(*candidates: str) -> str:
    for each in candidates:
        if named := _named(each):
            return named
    return UNTITLED


def _named(text: str) -> str:
    """Return a name that can be part of a key, or nothing."""
    text = stream_safe(text.strip()[:TITLE_CHARS_MAX].strip())
    return text if _normal(text) else ""


def _normal(text: str) -> str:
    """Return the normal form, or nothing for text that cannot be normalized: a file's tags must not
    fail the scan."""
    try:
        return normal(text)
    except KeyFieldError:
        return ""


def _whole(number: float | None) -> int | float | None:
    return int(number) if number is not None and number == int(number) else number


def _isbns(text: str) -> dict[str, str]:
    for name, parse in (("isbn13", isbn13), ("isbn10", isbn10)):
        try:
            return {name: parse(text)} if text else {}
        except KeyhouseError:
            continue
    return {}


def _without_times(book: Book) -> Book:
    return replace(book, updated_at="", normalized_title="")
