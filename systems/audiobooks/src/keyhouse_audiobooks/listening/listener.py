"""Listening: positions, states, statuses, bookmarks and statistics of one listener.

A position is one commit: the event, the snapshot and the statistics. The revision of a state is
that of the watermark (`playw:`), which only events write; so `based_on` tells exactly whether
another device has moved on.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from keyhouse.errors import NotFoundError
from keyhouse.schema import Counter
from keyhouse.store import CachedReads, Entry, Transaction, append_folded
from keyhouse_audiobooks.books.books import Books
from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.errors import NewerPlaceError, PositionError
from keyhouse_audiobooks.library import Library, Member
from keyhouse_audiobooks.limits import BOOKMARKS_MAX
from keyhouse_audiobooks.listening.messages import (
    BookmarkBody,
    BookmarkPatch,
    ListenedBook,
    PlaybackState,
    PositionBody,
    ShelvedBook,
    ShownEvent,
    Statistics,
)
from keyhouse_audiobooks.listening.playback import Listening, current_place, moment, status
from keyhouse_audiobooks.lists import Items, PageQuery, items, page_limit
from keyhouse_audiobooks.records import (
    Book,
    Bookmark,
    DurationMap,
    PlaybackEvent,
    Progress,
    Segment,
    Status,
    is_binned,
)
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    BOOKMARK,
    BOOKS_BY_TITLE,
    DURATION_MAP,
    PLAYBACK,
    PROGRESS,
    SEGMENT,
    USER_LISTEN_SECONDS,
    USER_PLAYS,
    WATERMARK,
    WORK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
    backfill_work,
)

__all__ = [
    "END_SLACK_SECONDS",
    "Listener",
    "moved_progress",
    "placed_progress",
]

END_SLACK_SECONDS: Final = 0.5
"""Players and tags measure the end of a file a little differently."""

_PLAYED_MAX: Final = 256


class PlayedSegment(NamedTuple):
    """A segment of a book that is being played."""

    book: Book
    durations: DurationMap | None
    segment: Segment


class Listener:
    """The operations of signed-in listeners."""

    def __init__(self, library: Library, books: Books) -> None:
        self.library = library
        self.store = library.store
        self.books = books
        self._played = CachedReads(self.store, _read_played, results_max=_PLAYED_MAX)

    # Position and state

    async def save(self, member: Member, book_id: str, body: PositionBody) -> PlaybackState:
        """Append an event, and return the state after it. NewerPlaceError if another device has
        moved on since `based_on`."""

        at = self.library.now(seconds_ago=body.seconds_ago)
        listened = {"user_id": member.subject, "book_id": book_id}

        async def work(tx: Transaction) -> tuple[Transaction, Progress]:
            played = await self._played.get_in(tx, (book_id, body.segment_id))
            assert played is not None  # it raises for what is absent
            watermark = tx.binding.keys((WATERMARK, listened))
            [before] = await tx.get_each((PROGRESS, listened), ahead=watermark)
            position, durations = _checked(body.position_seconds, played.segment), played.durations
            await self._reject_outdated(tx, member, book_id, body.based_on)
            place = current_place(body.segment_id, position, durations)
            event = PlaybackEvent(
                user_id=member.subject,
                book_id=book_id,
                segment_id=body.segment_id if place is None else place.segment_id,
                position_seconds=position if place is None else place.position_seconds,
                event_type=body.event_type,
                play_speed=body.play_speed,
                created_at=at,
                device=member.device,
            )
            read = {"book": played.book, "durations": durations, "progress": before}
            folded = await append_folded(tx, PLAYBACK, event, read)
            if place is not None:
                [(_, progress, _)] = folded.puts
            else:  # it moved nothing
                progress = await tx.get(PROGRESS, **listened)
            return tx, progress

        tx, progress = await self.store.transact(
            work, batch_id=_batch_id(member, book_id, body.idempotency_key)
        )
        return _state(progress, tx.revision, at, body.play_speed)

    async def _reject_outdated(
        self, tx: Transaction, member: Member, book_id: str, based_on: int | None
    ) -> None:
        if based_on is None:
            return
        keys = {"user_id": member.subject, "book_id": book_id}
        mark = await tx.entry(WATERMARK, **keys)
        if mark is None or mark.revision <= based_on or mark.record.device == member.device:
            return
        progress = await tx.get(PROGRESS, **keys)
        state = None if progress is None else _state_of(progress, mark)
        raise NewerPlaceError(
            "Another device has moved on: resume at its place, or send the position with its"
            " revision.",
            state=state,
            revision=mark.revision,
        )

    async def state(self, user_id: str, book_id: str) -> PlaybackState:
        """Return the state of a book. One that was never opened is `unstarted`."""
        await self.books.get(book_id)
        keys = {"user_id": user_id, "book_id": book_id}
        progress = await self.store.get(PROGRESS, **keys)
        if progress is None:
            return PlaybackState(user_id=user_id, book_id=book_id)
        durations = await self.store.get(DURATION_MAP, book_id=book_id)
        return _state_of(
            moved_progress(progress, durations), await self.store.entry(WATERMARK, **keys)
        )

    async def set_status(
        self, user_id: str, book_id: str, manual: Status | UnsetType
    ) -> PlaybackState:
        """Set the status that wins over the percentage; UNSET clears it."""
        await self.books.get(book_id)

        async def work(tx: Transaction) -> None:
            found = await tx.get(PROGRESS, user_id=user_id, book_id=book_id)
            if found is None and manual is UNSET:
                return
            progress = found or Progress(user_id=user_id, book_id=book_id)
            await tx.put(PROGRESS, replace(progress, manual_status=manual))

        await self.store.transact(work)
        return await self.state(user_id, book_id)

    async def events(self, user_id: str, book_id: str, query: PageQuery) -> Items[ShownEvent]:
        """Return the playback events of a book, the newest first."""
        await self.books.get(book_id)
        page = await self.store.page(
            PLAYBACK,
            user_id=user_id,
            book_id=book_id,
            reverse=True,
            limit=page_limit(query.limit),
            cursor=query.cursor,
        )
        shown = [
            ShownEvent(**asdict(each.record), id=str(each.fields["at"])) for each in page.entries
        ]
        return items(shown, cursor=page.cursor)

    # Lists of one listener

    async def states(self, user_id: str) -> list[PlaybackState]:
        """Return the states of all books that the listener has opened or marked, the last played
        first."""
        rows = [entry.record async for entry in self.store.scan(PROGRESS, user_id=user_id)]
        entries = self.store.scan(WATERMARK, user_id=user_id)
        marks = {entry.fields["book_id"]: entry async for entry in entries}
        states = [_state_of(progress, marks.get(progress.book_id)) for progress in rows]
        states.sort(key=lambda state: (state.last_activity_at or "", state.book_id), reverse=True)
        return states

    async def with_books(self, states: Sequence[PlaybackState]) -> list[ListenedBook]:
        """Return the states of books that are not in the bin, each with its book."""
        shown = await self.books.by_ids([state.book_id for state in states])
        books = {book.id: book for book in shown}
        return [
            ListenedBook(**asdict(state), book=books[state.book_id])
            for state in states
            if state.book_id in books
        ]

    async def shelve(self, user_id: str, books: Sequence[ShownBook]) -> list[ShelvedBook]:
        """Return books with the listener's progress."""
        keys = [{"user_id": user_id, "book_id": book.id} for book in books]
        rows = await self.store.get_many(PROGRESS, keys)
        return [
            ShelvedBook(book)
            if row is None
            else ShelvedBook(book, row.percent_complete, status(row))
            for book, row in zip(books, rows, strict=True)
        ]

    async def of_status(self, user_id: str, wanted: Status) -> list[PlaybackState]:
        states = await self.states(user_id)
        chosen = [state for state in states if state.status == wanted]
        if wanted == "unstarted":
            known = {state.book_id for state in states}
            chosen += [
                PlaybackState(user_id=user_id, book_id=entry.record.id)
                async for entry in self.store.scan(BOOK, by=BOOKS_BY_TITLE)
                if entry.record.id not in known
            ]
        return chosen

    async def next_in_series(self, user_id: str) -> list[str]:
        """Return the next book of each series with a finished one: the lowest position above the
        highest finished, unless the listener has started it."""
        states = {state.book_id: state for state in await self.states(user_id)}
        done = [id for id, state in states.items() if state.status == "finished"]
        rows = await self.store.get_many(BOOK, [{"id": id} for id in done])
        highest: dict[str, float] = {}
        for book in rows:
            if book is not None and book.series_id and book.series_position is not None:
                last = highest.get(book.series_id, book.series_position)
                highest[book.series_id] = max(last, book.series_position)
        ids: list[str] = []
        for series_id, position in highest.items():
            for book in await self.books.in_series(series_id):
                if book.series_position is not None and book.series_position > position:
                    if book.id not in states or states[book.id].status == "unstarted":
                        ids.append(book.id)
                    break
        return ids

    # Bookmarks

    async def bookmarks(self, user_id: str, book_id: str) -> list[Bookmark]:
        await self.books.get(book_id)
        entries = self.store.scan(BOOKMARK, user_id=user_id, book_id=book_id)
        return [entry.record async for entry in entries]

    async def add_bookmark(self, user_id: str, book_id: str, body: BookmarkBody) -> Bookmark:
        mark = Bookmark(
            id=self.library.new_id(),
            user_id=user_id,
            book_id=book_id,
            segment_id=body.segment_id,
            position_seconds=body.position_seconds,
            title=body.title,
        )
        return await self._put_bookmark(mark, is_new=True)

    async def change_bookmark(
        self, user_id: str, book_id: str, id: str, body: BookmarkPatch
    ) -> Bookmark:
        mark = await self.bookmark(user_id, book_id, id)
        for name in ("segment_id", "position_seconds", "title"):
            value = getattr(body, name)
            if value is not UNSET:
                setattr(mark, name, value)
        return await self._put_bookmark(mark, is_new=False)

    async def _put_bookmark(self, mark: Bookmark, *, is_new: bool) -> Bookmark:
        keys = {"user_id": mark.user_id, "book_id": mark.book_id, "id": mark.id}

        async def work(tx: Transaction) -> None:
            book, segment = await tx.get_each(
                (BOOK, {"id": mark.book_id}), (SEGMENT, {"id": mark.segment_id})
            )
            _check_book(book, mark.book_id)
            position = _checked(
                mark.position_seconds, _of_book(segment, mark.book_id, mark.segment_id)
            )
            if is_new:
                await self.library.check_room(
                    tx, BOOKMARK, BOOKMARKS_MAX, noun="bookmarks", user_id=mark.user_id
                )
            elif await tx.get(BOOKMARK, **keys) is None:
                raise NotFoundError("There is no such bookmark.", id=mark.id)
            await tx.put(BOOKMARK, replace(mark, position_seconds=position))

        await self.store.transact(work)
        return await self.bookmark(**keys)

    async def bookmark(self, user_id: str, book_id: str, id: str) -> Bookmark:
        keys = {"user_id": user_id, "book_id": book_id, "id": id}
        return (await self.library.require(BOOKMARK, **keys)).record

    async def delete_bookmark(self, user_id: str, book_id: str, id: str) -> None:
        await self.bookmark(user_id, book_id, id)
        await self.store.delete(BOOKMARK, user_id=user_id, book_id=book_id, id=id)

    # Statistics

    async def of_book(self, id: str) -> Statistics:
        await self.library.require(BOOK, id=id)
        return await self._statistics(BOOK_PLAYS, BOOK_LISTEN_SECONDS, book_id=id)

    async def of_work(self, id: str) -> Statistics:
        """Return the statistics of a work: the sum of its books. A sum that was never stored is
        counted and stored once."""
        await self.library.require(WORK, id=id)
        rows = [
            await self.store.record_row(each, work_id=id)
            for each in (WORK_PLAYS, WORK_LISTEN_SECONDS)
        ]
        if None in rows:
            await backfill_work(self.store, id)
        return await self._statistics(WORK_PLAYS, WORK_LISTEN_SECONDS, work_id=id)

    async def of_user(self, id: str) -> Statistics:
        return await self._statistics(USER_PLAYS, USER_LISTEN_SECONDS, user_id=id)

    async def _statistics(self, plays: Counter, seconds: Counter, **of: Any) -> Statistics:
        return Statistics(
            plays=await self.store.get(plays, **of) or 0,
            listen_seconds=await self.store.get(seconds, **of) or 0,
            **of,
        )


def moved_progress(progress: Progress, durations: DurationMap | None) -> Progress:
    """Return a progress at the same moment of the segments that are active now."""
    if progress.segment_id is None:
        return progress
    place = current_place(progress.segment_id, progress.position_seconds, durations)
    if place is None or place.segment_id == progress.segment_id:
        return progress
    return replace(
        progress, segment_id=place.segment_id, position_seconds=round(place.position_seconds, 3)
    )


def placed_progress(progress: Progress, durations: DurationMap) -> Progress:
    """Return a progress with the percentage that its place is of a book with these durations."""
    place = moment(progress.segment_id or "", progress.position_seconds, durations)
    if place is None or not durations.total_duration:
        return progress
    percent = min(100.0, round(100 * place / durations.total_duration, 2))
    return replace(progress, percent_complete=percent)


async def _read_played(ids: tuple[str, str], tx: Transaction) -> PlayedSegment:
    """Return what is played, by the ids of a book and a segment; NotFoundError if one is absent."""
    book_id, segment_id = ids
    book, durations, segment = await tx.get_each(
        (BOOK, {"id": book_id}),
        (DURATION_MAP, {"book_id": book_id}),
        (SEGMENT, {"id": segment_id}),
    )
    _check_book(book, book_id)
    return PlayedSegment(book, durations, _of_book(segment, book_id, segment_id))


def _check_book(book: Book | None, id: str) -> None:
    if book is None or is_binned(book):
        raise NotFoundError("There is no such book.", id=id)


def _of_book(segment: Segment | None, book_id: str, id: str) -> Segment:
    if segment is None or segment.book_id != book_id:
        raise NotFoundError("The book has no such segment.", segment_id=id)
    return segment


def _checked(position: float, segment: Segment) -> float:
    """Return a position within its file. Raises PositionError (400) if it is beyond the end."""
    end = segment.duration_seconds
    if position > end + END_SLACK_SECONDS:
        raise PositionError("The position is beyond the end of the segment.", end=end)
    return min(position, end)


def _state_of(progress: Progress, mark: Entry[Listening] | None) -> PlaybackState:
    if mark is None:
        return _state(progress, 0, progress.updated_at, None)
    return _state(progress, mark.revision, mark.record.at, mark.record.play_speed)


def _state(progress: Progress, revision: int, at: str, play_speed: float | None) -> PlaybackState:
    return PlaybackState(
        user_id=progress.user_id,
        book_id=progress.book_id,
        status=status(progress),
        status_manual=progress.manual_status is not UNSET,
        last_segment_id=progress.segment_id,
        position_seconds=progress.position_seconds,
        progress_pct=progress.percent_complete,
        last_activity_at=at,
        revision=revision,
        play_speed=play_speed,
    )


def _batch_id(member: Member, book_id: str, key: str | None) -> str | None:
    """Return the id by which the engine applies a repeated request once."""
    if key is None:
        return None
    text = "\0".join((member.subject, book_id, key))
    return f"position-{hashlib.sha256(text.encode()).hexdigest()}"
