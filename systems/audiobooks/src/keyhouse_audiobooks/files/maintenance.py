"""Operations on files and events: organize, transcode and prune."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from keyhouse.errors import ConflictError, UsageError
from keyhouse.rooted_path import open_folder_below
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction, prune
from keyhouse_audiobooks.books.catalog import names_of
from keyhouse_audiobooks.books.segments import segments_of
from keyhouse_audiobooks.files.audio_files import below_root, is_scanned, skip_reason
from keyhouse_audiobooks.files.converter import convert, require_ffmpeg
from keyhouse_audiobooks.files.merger import Merger
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.records import Book, Segment
from keyhouse_audiobooks.schema import AUTHOR, BOOK, BOOKS_BY_TITLE, PLAYBACK, SEGMENT, SERIES

__all__ = ["FIELDS", "Maintenance", "check_pattern", "organized_path", "safe_name"]

DAY_MS: Final = 24 * 3_600 * 1_000
FIELDS: Final = frozenset({"author", "series", "title", "track", "ext"})
_NAME_CHARS_MAX: Final = 120
_NAME_BYTES_MAX: Final = 220
"""With track and extension, less than the 255 of most file systems."""


def check_pattern(pattern: str) -> str:
    """Return a pattern of paths. Raises UsageError if a field of it is unknown or missing, if it
    leads out of its root or to a place that scans leave out, or if it does not keep the extension
    of a file."""
    fields = set(re.findall(r"\{(\w*)\}", pattern))
    plain = re.sub(r"\{\w*\}", "", pattern)
    if fields - FIELDS or "{" in plain or "}" in plain or {"track", "ext"} - fields:
        raise UsageError(
            "A pattern of paths has the fields {track} and {ext}, and may have {author},"
            " {series} and {title}.",
            pattern=pattern,
        )
    parts = [part.strip() for part in pattern.split("/")]
    if not parts[0] or {".", ".."} & set(parts):
        raise UsageError("A pattern of paths stays below its root.", pattern=pattern)
    if reason := skip_reason("/".join(filter(None, parts))):
        raise UsageError(
            "Scans would leave out the files of this pattern.", pattern=pattern, reason=reason
        )
    if not parts[-1].endswith(".{ext}"):
        raise UsageError("A pattern of paths ends in .{ext}.", pattern=pattern)
    return pattern


class Maintenance:
    def __init__(
        self,
        library: Library,
        merger: Merger,
        *,
        pattern: str,
        keep_days: int,
        keep_events: int,
    ) -> None:
        self._library = library
        self._store = library.store
        self._merger = merger
        self._run = library.run
        self.pattern = check_pattern(pattern)
        self._keep_days = keep_days
        self._keep_events = keep_events

    # Organize

    async def organize(self, task: OperationTask) -> None:
        """Move files to the paths of the pattern. A dry run only logs; nothing is overwritten."""
        given = task.input or {}
        pattern = given.get("pattern") or self.pattern
        is_dry = given.get("dry_run", True)
        books = [entry.record async for entry in self._store.scan(BOOK, by=BOOKS_BY_TITLE)]
        for done, book in enumerate(books, 1):
            for segment in await segments_of(self._store, book.id):
                if segment.active:
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
        path = organized_path(pattern, await self._values(book, segment))
        if not is_scanned(path):
            task.log(f"{segment.file_path} stays: scans leave {path!r} out.", "error")
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

    async def _values(self, book: Book, segment: Segment) -> Mapping[str, str]:
        """Return the fields of a pattern."""
        authors = await names_of(self._store, AUTHOR, [book.author_id])
        series = await names_of(self._store, SERIES, [book.series_id])
        return {
            "author": authors.get(book.author_id) or "Unknown author",
            "series": series.get(book.series_id, ""),
            "title": book.title,
            "track": f"{segment.track_number:03d}",
            "ext": segment.format,
        }

    # Transcode

    async def transcode(self, task: OperationTask) -> None:
        """Join the segments of a book to one file beside the first of them, and merge it."""
        require_ffmpeg()
        book_id, format = task.input["book_id"], task.input.get("format", "m4b")
        segments = [each for each in await segments_of(self._store, book_id) if each.active]
        if not segments:
            raise ConflictError("The book has no active segments.", id=book_id)
        book = await self._store.get(BOOK, id=book_id)
        title = book_id if book is None else safe_name(book.title) or book_id
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


def organized_path(pattern: str, values: Mapping[str, str]) -> str:
    """Return the path below a root that a pattern gives. A part without content is left out."""
    parts = [
        re.sub(r"\{(\w+)\}", lambda match: safe_name(values[match[1]]), part).strip()
        for part in pattern.split("/")
    ]
    return "/".join(filter(None, parts))


def safe_name(name: str) -> str:
    """Return a name as a part of a path, valid on every file system; nothing if nothing is left of
    it."""
    plain = re.sub('[\x00-\x1f\x7f-\x9f\u2028\u2029<>:"/\\\\|?*]+', " ", name)
    short = re.sub(r"\s+", " ", plain).strip(" .")[:_NAME_CHARS_MAX].encode()[:_NAME_BYTES_MAX]
    return short.decode(errors="ignore").strip(" .")


def _move_file(root: Path, source: str, target: str) -> None:
    """Move a file below a root, through no link, without overwriting. Raises OSError if there is
    one, or on another disk."""
    *folders, name = source.split(os.sep)
    *new_folders, new_name = target.split(os.sep)
    with (
        open_folder_below(root, folders) as folder,
        open_folder_below(root, new_folders, create=True) as new_folder,
    ):
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
        os.unlink(name, dir_fd=folder)
