"""Operations on files and events: organize, transcode and prune."""

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from keyhouse.errors import ConflictError, UsageError
from keyhouse.rooted_path import open_folder_below
from keyhouse.schema import Record
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction, prune
from keyhouse.systems.audiobooks.converter import convert, require_ffmpeg
from keyhouse.systems.audiobooks.files import below_root, has_control_characters
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.merger import Merger
from keyhouse.systems.audiobooks.records import Book, Segment
from keyhouse.systems.audiobooks.schema import (
    AUTHOR,
    BOOK,
    BOOKS_BY_TITLE,
    PLAYBACK,
    SEGMENT,
    SERIES,
)
from keyhouse.systems.audiobooks.segments import read_segments

__all__ = ["FIELDS", "Maintenance", "check_pattern"]

DAY_MS: Final = 24 * 3_600 * 1_000
FIELDS: Final = frozenset({"author", "series", "title", "track", "ext"})
_NAME_CHARS_MAX: Final = 120
Run = Callable[..., Awaitable[Any]]


def check_pattern(pattern: str) -> str:
    """Return a pattern of paths. Raises UsageError if a field of it is unknown or missing, if it
    leads out of its root, or if it does not keep the extension of a file."""
    fields = set(re.findall(r"\{(\w*)\}", pattern))
    plain = re.sub(r"\{\w*\}", "", pattern)
    if fields - FIELDS or "{" in plain or "}" in plain or {"track", "ext"} - fields:
        raise UsageError(
            "A pattern of paths has the fields {track} and {ext}, and may have {author},"
            " {series} and {title}.",
            pattern=pattern,
        )
    parts = [part.strip() for part in pattern.split("/")]
    if not parts[0] or not all(map(_is_name, filter(None, parts))):
        raise UsageError("A pattern of paths stays below its root.", pattern=pattern)
    if not parts[-1].endswith(".{ext}"):
        raise UsageError("A pattern of paths ends in .{ext}.", pattern=pattern)
    return pattern


class Maintenance:
    def __init__(
        self,
        library: Library,
        merger: Merger,
        run: Run,
        *,
        pattern: str,
        keep_days: int,
        keep_events: int,
    ) -> None:
        self._library = library
        self._store = library.store
        self._merger = merger
        self._run = run
        self._pattern = pattern
        self._keep_days = keep_days
        self._keep_events = keep_events

    # Organize

    async def organize(self, task: OperationTask) -> None:
        """Move files to the paths of the pattern. A dry run only logs; nothing is overwritten."""
        given = task.input or {}
        pattern = given.get("pattern") or self._pattern
        is_dry = given.get("dry_run", True)
        books = [entry.record async for entry in self._store.scan(BOOK, by=BOOKS_BY_TITLE)]
        for done, book in enumerate(books, 1):
            async with self._store.transaction() as tx:
                segments = [each for each in await read_segments(tx, book.id) if each.active]
            for segment in segments:
                await self._organize_one(task, pattern, book, segment, is_dry=is_dry)
            await task.commit(current=done, total=len(books))

    async def _organize_one(
        self, task: OperationTask, pattern: str, book: Book, segment: Segment, *, is_dry: bool
    ) -> None:
        place = below_root(segment.file_path, self._library.roots)
        if place is None:
            task.log(f"{segment.file_path}: not below a root.", "warn")
            return
        root, source = place
        path = await self._path(pattern, book, segment)
        if not all(map(_is_name, path.split("/"))):
            task.log(f"{segment.file_path}: the pattern gives no path below the root.", "error")
            return
        target = str(root / path)
        if target == segment.file_path:
            return
        if is_dry:
            is_free = not os.path.lexists(target)
            task.log(f"{segment.file_path} -> {target}" + ("" if is_free else " (exists)"))
            return
        try:
            await self._run(_move_file, root, source, path)
        except OSError as error:
            task.log(f"{segment.file_path}: {error}", "error")
            return

        async def work(tx: Transaction) -> None:
            current = await tx.get(SEGMENT, id=segment.id)
            if current is not None:
                await tx.put(SEGMENT, replace(current, file_path=target))

        task.log(f"{segment.file_path} -> {target}")
        await task.commit(work)

    async def _path(self, pattern: str, book: Book, segment: Segment) -> str:
        author = await self._name(AUTHOR, book.author_id)
        series = await self._name(SERIES, book.series_id)
        values = {
            "author": author or "Unknown author",
            "series": series,
            "title": book.title,
            "track": f"{segment.track_number:03d}",
            "ext": segment.format,
        }
        parts = [
            re.sub(r"\{(\w+)\}", lambda match: _safe(values[match[1]]), part)
            for part in pattern.split("/")
        ]
        return "/".join(part.strip() for part in parts if part.strip())

    async def _name(self, record: Record[Any], id: str | None) -> str:
        found = None if id is None else await self._store.get(record, id=id)
        return "" if found is None else str(found.name)

    # Transcode

    async def transcode(self, task: OperationTask) -> None:
        """Join the segments of a book to one file beside the first of them, and merge it."""
        require_ffmpeg()
        book_id, format = task.input["book_id"], task.input.get("format", "m4b")
        async with self._store.transaction() as tx:
            segments = [each for each in await read_segments(tx, book_id) if each.active]
        if not segments:
            raise ConflictError("The book has no active segments.", id=book_id)
        book = await self._store.get(BOOK, id=book_id)
        title = book_id if book is None else _safe(book.title)
        target = Path(segments[0].file_path).parent / f"{title}.{format}"
        if not target.exists():
            roots = self._library.roots
            await convert(task, self._run, segments, roots, target, format)
        task.log(f"Wrote {target}.")
        task.input = {"book_id": book_id, "file_path": str(target)}
        await self._merger.merge(task)

    # Prune

    async def prune(self, task: OperationTask) -> None:
        """Delete old playback events. They are counted: no figure changes."""
        pruned = await self.prune_events()
        task.log(f"Deleted {pruned} playback events.")

    async def prune_events(self) -> int:
        if not self._keep_days:
            return 0
        before = self._store.engine.clock.now() - self._keep_days * DAY_MS
        counts = prune(self._store, PLAYBACK, before=before, keep=self._keep_events)
        return max([0, *[count async for count in counts]])


def _is_name(part: str) -> bool:
    """Return whether a part of a path is the name of a file or folder."""
    return part not in ("", ".", "..") and not has_control_characters(part)


def _safe(name: str) -> str:
    """Return a name as one part of a path, valid on every file system."""
    plain = re.sub('[\x00-\x1f\x7f-\x9f\u2028\u2029<>:"/\\\\|?*]+', " ", name)
    return re.sub(r"\s+", " ", plain).strip(" .")[:_NAME_CHARS_MAX].strip(" .")


def _move_file(root: Path, source: str, target: str) -> None:
    """Move a file below a root, through no link, without overwriting. Raises OSError if there is
    one, or on another disk."""
    *folders, name = source.split(os.sep)
    *new_folders, new_name = target.split(os.sep)
    folder = open_folder_below(root, folders)
    try:
        new_folder = open_folder_below(root, new_folders, create=True)
        try:
            os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(new_folder)
    finally:
        os.close(folder)
