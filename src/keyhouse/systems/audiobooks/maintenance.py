"""Operations on files and events: organize, transcode and prune."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from keyhouse.errors import ConflictError, RecordError, UsageError
from keyhouse.schema import Record
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction, prune
from keyhouse.systems.audiobooks.audio_tags import MEDIA_TYPES
from keyhouse.systems.audiobooks.errors import NoConverterError
from keyhouse.systems.audiobooks.file_reader import read_one
from keyhouse.systems.audiobooks.files import (
    FoundFile,
    below_root,
    open_regular,
    printable_path,
)
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.merger import Merger
from keyhouse.systems.audiobooks.playback import MERGE_TOLERANCE
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

__all__ = ["FIELDS", "Maintenance", "check_pattern", "require_ffmpeg"]

DAY_MS: Final = 24 * 3_600 * 1_000
FIELDS: Final = frozenset({"author", "series", "title", "track", "ext"})
_NAME_CHARS_MAX: Final = 120
_POLL_SECONDS: Final = 0.2
"""Interval at which a running ffmpeg is checked for cancellation."""
_CODECS: Final = {"mp3": "libmp3lame", "m4b": "aac", "ogg": "libvorbis", "flac": "flac"}

_DEMUXERS: Final = "concat,aac,aiff,asf,flac,mov,mp3,ogg,wav"
"""The readers that ffmpeg may use: none that opens what a file names, such as a playlist. `concat`
is that of our list; in a file of a book, it reads the other files of the book at most."""

Run = Callable[..., Awaitable[Any]]


def check_pattern(pattern: str) -> str:
    """Return a pattern of paths. Raises UsageError if a field of it is unknown, or missing."""
    fields = set(re.findall(r"\{(\w*)\}", pattern))
    plain = re.sub(r"\{\w*\}", "", pattern)
    if fields - FIELDS or "{" in plain or "}" in plain or {"track", "ext"} - fields:
        raise UsageError(
            "A pattern of paths has the fields {track} and {ext}, and may have {author},"
            " {series} and {title}.",
            pattern=pattern,
        )
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise UsageError("A pattern of paths stays below its root.", pattern=pattern)
    return pattern


def require_ffmpeg() -> str:
    """Return the path of ffmpeg. Raises NoConverterError (501) if it is not on the PATH."""
    found = shutil.which("ffmpeg")
    if found is None:
        raise NoConverterError("This needs ffmpeg on the PATH of the service.")
    return found


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
        target = str(place[0] / await self._path(pattern, book, segment))
        if target == segment.file_path:
            return
        if is_dry:
            is_free = not os.path.lexists(target)
            task.log(f"{segment.file_path} -> {target}" + ("" if is_free else " (exists)"))
            return
        try:
            await self._run(_move_file, segment.file_path, target)
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
        program = require_ffmpeg()
        book_id, format = task.input["book_id"], task.input.get("format", "m4b")
        async with self._store.transaction() as tx:
            segments = [each for each in await read_segments(tx, book_id) if each.active]
        if not segments:
            raise ConflictError("The book has no active segments.", id=book_id)
        book = await self._store.get(BOOK, id=book_id)
        title = book_id if book is None else _safe(book.title)
        target = Path(segments[0].file_path).parent / f"{title}.{format}"
        if not target.exists():
            await self._convert(task, program, segments, target, format)
        task.log(f"Wrote {target}.")
        task.input = {"book_id": book_id, "file_path": str(target)}
        await self._merger.merge(task)

    async def _convert(
        self, task: OperationTask, program: str, segments: list[Segment], target: Path, format: str
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            listed = await self._run(_link_all, Path(folder), segments, self._library.roots)
            draft = target.with_name(f".{target.name}.part.{format}")
            command = [program, "-nostdin", "-v", "error", "-xerror", "-y"]
            command += ["-protocol_whitelist", "file", "-format_whitelist", _DEMUXERS]
            command += ["-f", "concat", "-i", str(listed)]
            command += ["-vn", "-c:a", _CODECS[format], f"file:{draft}"]
            try:
                await _run_program(task, command)
                await self._check_duration(draft, segments)
                await self._run(os.link, draft, target)
            finally:
                draft.unlink(missing_ok=True)

    async def _check_duration(self, draft: Path, segments: list[Segment]) -> None:
        """Raise RecordError if a converted file is not as long as the files it was made of: ffmpeg
        leaves out files that it cannot read."""
        expected = sum(each.duration_seconds for each in segments)
        status = draft.stat()
        written = FoundFile(str(draft), status.st_size, status.st_mtime_ns)
        file = await read_one(written, self._library.roots)
        found = 0 if file.tags is None else file.tags.duration_seconds
        if abs(found - expected) > MERGE_TOLERANCE * expected:
            raise RecordError(
                "ffmpeg could not convert all files: scan the library, and see which are broken.",
                expected=expected,
                found=found,
            )

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


async def _run_program(task: OperationTask, command: list[str]) -> None:
    """Run ffmpeg until it ends or the operation is cancelled. Raises RecordError if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    reading = asyncio.ensure_future(process.communicate())
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=_POLL_SECONDS)
            if task.is_cancelled:
                await task.commit()  # raises OperationCancelledError
        _, errors = await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        reading.cancel()
    if process.returncode:
        raise RecordError("ffmpeg failed.", reason=errors.decode(errors="replace")[:500])


def _link_all(folder: Path, segments: list[Segment], roots: Sequence[Path]) -> Path:
    """Link the files as `1.mp3`, `2.mp3` and so on; return the list of these for ffmpeg, which
    takes it for a program: no name of a file or folder is part of it. Raises RecordError."""
    lines = []
    for number, segment in enumerate(segments, 1):
        try:
            open_regular(segment.file_path, roots).close()
        except OSError as error:
            raise RecordError(
                "A file of the book cannot be read: scan the library.",
                path=printable_path(segment.file_path),
                reason=str(error),
            ) from None
        extension = Path(segment.file_path).suffix.lstrip(".").casefold()
        name = f"{number}.{extension}" if extension in MEDIA_TYPES else str(number)
        (folder / name).symlink_to(segment.file_path)
        lines.append(f"file {name}\n")
    listed = folder / "files.txt"
    listed.write_text("".join(lines))
    return listed


def _safe(name: str) -> str:
    """Return a name as one part of a path, valid on every file system."""
    plain = re.sub('[\x00-\x1f\x7f-\x9f\u2028\u2029<>:"/\\\\|?*]+', " ", name)
    return re.sub(r"\s+", " ", plain).strip(" .")[:_NAME_CHARS_MAX].strip(" .")


def _move_file(source: str, target: str) -> None:
    """Move a file without overwriting. Raises OSError if there is one, or on another disk."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.link(source, target, follow_symlinks=False)
    os.unlink(source)
