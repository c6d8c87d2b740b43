"""Merging the segments of a book into one file.

The new file plays the same moments, so every place is converted by the durations: the old segments
stay in the map, inactive, where they were. One commit replaces the segments. The places of
listeners are moved in the same commit if they fit into it, else in chunks afterwards: a place that
was not moved yet is converted whenever it is read or continued.
"""

from pathlib import Path
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from keyhouse.errors import ConflictError, NotFoundError, RecordError
from keyhouse.service.background_task import OperationTask
from keyhouse.store import Transaction
from keyhouse_audiobooks.books.segments import duration_map, read_segments, take_out, write_segments
from keyhouse_audiobooks.files.audio_files import AudioFile, FoundFile, is_scanned, resolve_below
from keyhouse_audiobooks.files.file_reader import read_one
from keyhouse_audiobooks.files.messages import MovedPlace
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.listening.listener import moved_progress
from keyhouse_audiobooks.listening.playback import MERGE_TOLERANCE, current_place
from keyhouse_audiobooks.records import Bookmark, DurationMap, Progress, Segment, digest, is_binned
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOKMARK,
    BOOKMARKS_OF_BOOK,
    DURATION_MAP,
    LISTENERS_OF_BOOK,
    PROGRESS,
    SEGMENT,
    SEGMENTS_BY_PATH,
)

__all__ = ["Merger"]

PLACES_PER_COMMIT: Final = 2_000


class Merger:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._store = library.store
        self._run = library.run

    async def check(self, book_id: str, file_path: str) -> AudioFile:
        """Read the file of a merge. Raises RecordError or ConflictError if it does not fit."""
        book = await self._store.get(BOOK, id=book_id)
        if book is None or is_binned(book):
            raise NotFoundError("There is no such book.", id=book_id)
        path: Path = await self._run(resolve_below, file_path, self._library.roots)
        if not path.is_file() or not is_scanned(path.name):
            raise RecordError("The path is not an audio file.", path=file_path)
        status = path.stat()
        found = FoundFile(str(path), status.st_size, status.st_mtime_ns)
        file = await read_one(found, self._library.roots)
        if file.tags is None:
            raise RecordError("The file is not audio that can be read.", reason=file.error)
        durations = await self._store.get(DURATION_MAP, book_id=book_id)
        total = 0 if durations is None else durations.total_duration
        if not total:
            raise ConflictError("The book has no active segments to merge.", id=book_id)
        if abs(file.tags.duration_seconds - total) > MERGE_TOLERANCE * total:
            raise ConflictError(
                "The duration of the file differs from that of the segments by more than 2 %.",
                file=file.tags.duration_seconds,
                segments=total,
            )
        return file

    async def preview(self, book_id: str, file_path: str) -> list[MovedPlace]:
        """Return where each listener's place would be after a merge."""
        segment = self._segment(book_id, await self.check(book_id, file_path))

        async def work(tx: Transaction) -> DurationMap:
            old = [_superseded(each, segment.id) for each in await read_segments(tx, book_id)]
            before = await tx.get(DURATION_MAP, book_id=book_id)
            return duration_map([segment], old, before)

        after = await self._store.transact(work)
        places: list[MovedPlace] = []
        async for entry in self._store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=book_id):
            before = entry.record
            moved = moved_progress(before, after)
            if before.segment_id is not None and moved.segment_id is not None:
                places.append(
                    MovedPlace(
                        user_id=before.user_id,
                        old_segment_id=before.segment_id,
                        old_position_seconds=before.position_seconds,
                        new_segment_id=moved.segment_id,
                        new_position_seconds=moved.position_seconds,
                        progress_pct=before.percent_complete,
                    )
                )
        return places

    async def merge(self, task: OperationTask) -> None:
        """Run the operation. Its input has `book_id` and `file_path`. It can be repeated from any
        point."""
        book_id, file_path = task.input["book_id"], task.input["file_path"]
        if task.checkpoint is None:
            await self._replace(task, book_id, await self._merged(book_id, file_path))
        await self._move_places(task, book_id)
        task.log("All places are moved.")

    async def _merged(self, book_id: str, file_path: str) -> Segment:
        file = await self.check(book_id, file_path)
        segment = self._segment(book_id, file)
        known = self._store.scan(SEGMENT, by=SEGMENTS_BY_PATH, path=digest(segment.file_path))
        async for entry in known:  # a scan has found the file before
            return replace(segment, id=entry.record.id)
        return segment

    async def _replace(self, task: OperationTask, book_id: str, segment: Segment) -> None:
        progress = [
            entry.record
            async for entry in self._store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=book_id)
        ]
        fits = 3 * len(progress) < self._store.engine.capabilities.commit_rows_max // 2

        async def work(tx: Transaction) -> None:
            stored = await tx.get(SEGMENT, id=segment.id)
            if stored is not None and stored.book_id != book_id:
                await take_out(tx, stored)
            others = [each for each in await read_segments(tx, book_id) if each.id != segment.id]
            old = [_superseded(each, segment.id) for each in others]
            await write_segments(tx, book_id, [segment, *old])
            if fits:
                durations = await tx.get(DURATION_MAP, book_id=book_id)
                for each in progress:
                    await _move(tx, each.user_id, book_id, durations)

        task.log(f"{len(progress)} listeners; the new segment is {segment.id}.")
        await task.commit(work, checkpoint="replaced", current=1, total=2)

    async def _move_places(self, task: OperationTask, book_id: str) -> None:
        """Move every place that is still in a superseded segment, in chunks."""
        durations = await self._store.get(DURATION_MAP, book_id=book_id)
        active = {span.id for span in (durations.segments if durations else ()) if span.active}
        listeners = [
            entry.record.user_id
            async for entry in self._store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=book_id)
            if entry.record.segment_id not in active
        ]
        marks = [
            entry.record
            async for entry in self._store.scan(BOOKMARK, by=BOOKMARKS_OF_BOOK, book_id=book_id)
            if entry.record.segment_id not in active
        ]
        limit = min(PLACES_PER_COMMIT, self._store.engine.capabilities.commit_rows_max // 4)
        for start in range(0, max(len(listeners), len(marks)), limit):
            chunk, marked = listeners[start : start + limit], marks[start : start + limit]

            async def work(
                tx: Transaction, chunk: list[str] = chunk, marked: list[Bookmark] = marked
            ) -> None:
                now = await tx.get(DURATION_MAP, book_id=book_id)
                for user_id in chunk:
                    await _move(tx, user_id, book_id, now)
                for mark in marked:
                    await _move_bookmark(tx, mark, now)

            await task.commit(work, current=1, total=2)
        await task.commit(current=2, total=2)

    def _segment(self, book_id: str, file: AudioFile) -> Segment:
        assert file.tags is not None  # checked
        return Segment(
            id=self._library.new_id(),
            book_id=book_id,
            file_path=file.found.path,
            format=file.tags.format,
            size_bytes=file.found.size,
            duration_seconds=file.tags.duration_seconds,
            hash_sha256=file.sha256,
            track_number=1,
            total_tracks=1,
            mtime_ns=file.found.mtime_ns,
            title=file.tags.title or UNSET,
            chapters=file.tags.chapters or UNSET,
        )


def _superseded(segment: Segment, by: str) -> Segment:
    if not segment.active:
        return segment
    return replace(segment, active=False, superseded_by=by)


async def _move(tx: Transaction, user_id: str, book_id: str, durations: DurationMap | None) -> None:
    progress = await tx.get(PROGRESS, user_id=user_id, book_id=book_id)
    if progress is None:
        return
    moved: Progress = moved_progress(progress, durations)
    if moved is not progress:
        await tx.put(PROGRESS, moved)


async def _move_bookmark(tx: Transaction, mark: Bookmark, durations: DurationMap | None) -> None:
    keys = {"user_id": mark.user_id, "book_id": mark.book_id, "id": mark.id}
    current = await tx.get(BOOKMARK, **keys)
    if current is None:
        return
    place = current_place(current.segment_id, current.position_seconds, durations)
    if place is not None and place.segment_id != current.segment_id:
        position = round(place.position_seconds, 3)
        await tx.put(
            BOOKMARK, replace(current, segment_id=place.segment_id, position_seconds=position)
        )
