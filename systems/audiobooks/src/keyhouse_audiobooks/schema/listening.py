"""Playlists, playback, statistics and bookmarks: keys, in the document's order."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from keyhouse.schema import Counter, FoldResult, Index, Log, Owner, Record
from keyhouse_audiobooks.listening.playback import Listening, count, current_place, percent, unheard
from keyhouse_audiobooks.records import (
    VERSION,
    Bookmark,
    DurationMap,
    PlaybackEvent,
    Playlist,
    Progress,
)
from keyhouse_audiobooks.schema.books import BOOK, WORK
from keyhouse_audiobooks.schema.users import USER

__all__ = [
    "BOOKMARK",
    "BOOKMARKS_OF_BOOK",
    "BOOK_LISTEN_SECONDS",
    "BOOK_PLAYS",
    "DURATION_MAP",
    "ITEMS_OF_BOOK",
    "LISTENERS_OF_BOOK",
    "PLAYBACK",
    "PLAYLIST",
    "PLAYLISTS_OF_USER",
    "PLAYLIST_ITEM",
    "PROGRESS",
    "SHARED_PLAYLISTS",
    "USER_LISTEN_SECONDS",
    "USER_PLAYS",
    "WATERMARK",
    "WORK_LISTEN_SECONDS",
    "WORK_PLAYS",
]

# Playlist

PLAYLISTS_OF_USER = Index("idx:playlist:user:{user_id:ulid}:{id:ulid}")
SHARED_PLAYLISTS = Index(
    "idx:playlist:shared:{id:ulid}", when=lambda playlist: playlist.user_id is None
)
PLAYLIST = Record(
    Playlist,
    "pl:{id:ulid}",
    PLAYLISTS_OF_USER,
    SHARED_PLAYLISTS,
    belongs_to=Owner(USER, by=PLAYLISTS_OF_USER),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)
ITEMS_OF_BOOK = Index(
    "idx:playlist:book:{book_id:ulid}:{playlist_id:ulid}:{position:010d}",
    fields={"book_id": str},
)
PLAYLIST_ITEM = Record(
    str,
    "pli:{playlist_id:ulid}:{position:010d}",
    ITEMS_OF_BOOK,
    belongs_to=(Owner(PLAYLIST), Owner(BOOK, by=ITEMS_OF_BOOK)),
    name="playlist_item",
    doc="The book at that position.",
)

# Playback progress (latest snapshot), and durations for offset conversion

LISTENERS_OF_BOOK = Index("idx:play:book:{book_id:ulid}:{user_id:ulid}")
PROGRESS = Record(
    Progress,
    "playp:{user_id:ulid}:{book_id:ulid}",
    LISTENERS_OF_BOOK,
    belongs_to=(Owner(USER), Owner(BOOK, by=LISTENERS_OF_BOOK)),
    version=VERSION,
    unknown="keep",
    updated="updated_at",
)
DURATION_MAP = Record(
    DurationMap,
    "b:duration_map:{book_id:ulid}",
    name="duration_map",
    version=VERSION,
    unknown="keep",
    belongs_to=Owner(BOOK),
)

# Stats aggregates (derived)

BOOK_PLAYS = Counter("stats:book:plays:{book_id:ulid}", name="book_plays", belongs_to=Owner(BOOK))
USER_LISTEN_SECONDS = Counter(
    "stats:user:listen_seconds:{user_id:ulid}", name="user_listen_seconds", belongs_to=Owner(USER)
)
USER_PLAYS = Counter("stats:user:plays:{user_id:ulid}", name="user_plays", belongs_to=Owner(USER))
BOOK_LISTEN_SECONDS = Counter(
    "stats:book:listen_seconds:{book_id:ulid}", name="book_listen_seconds", belongs_to=Owner(BOOK)
)
WORK_PLAYS = Counter("stats:work:plays:{work_id:ulid}", name="work_plays", belongs_to=Owner(WORK))
WORK_LISTEN_SECONDS = Counter(
    "stats:work:listen_seconds:{work_id:ulid}", name="work_listen_seconds", belongs_to=Owner(WORK)
)

# Playback event (immutable): each updates the snapshot and the statistics in its own commit


def _needs(event: PlaybackEvent) -> dict[str, tuple[Record[Any], dict[str, Any]]]:
    return {
        "book": (BOOK, {"id": event.book_id}),
        "durations": (DURATION_MAP, {"book_id": event.book_id}),
        "progress": (PROGRESS, {"user_id": event.user_id, "book_id": event.book_id}),
    }


def _fold(state: Listening | None, event: PlaybackEvent, found: Mapping[str, Any]) -> FoldResult:
    """Count an event, and move the snapshot. One of an unknown segment counts nothing: the service
    rejects it before it is appended. One of an absent book has no owner, so it is rejected."""
    durations, book, before = found["durations"], found["book"], found["progress"]
    place = current_place(event.segment_id, event.position_seconds, durations)
    if book is None or place is None:
        result = FoldResult(state if state is not None else unheard(event))
        if before is None:  # the event belongs to it
            result.puts = [(PROGRESS, Progress(user_id=event.user_id, book_id=event.book_id), {})]
        return result
    if place.segment_id != event.segment_id:
        event = replace(event, segment_id=place.segment_id, position_seconds=place.position_seconds)
    counted = count(state, event, durations)
    progress = Progress(
        user_id=event.user_id,
        book_id=event.book_id,
        segment_id=place.segment_id,
        position_seconds=place.position_seconds,
        percent_complete=percent(
            event, durations, 0.0 if before is None else before.percent_complete
        ),
    )
    if before is not None:
        progress.manual_status = before.manual_status
    adds: list[tuple[Counter, int, dict[str, Any]]] = [
        (BOOK_PLAYS, counted.plays, {"book_id": event.book_id}),
        (BOOK_LISTEN_SECONDS, counted.listen_seconds, {"book_id": event.book_id}),
        (USER_LISTEN_SECONDS, counted.listen_seconds, {"user_id": event.user_id}),
        (USER_PLAYS, counted.plays, {"user_id": event.user_id}),
    ]
    if book.work_id is not None:
        adds += [
            (WORK_PLAYS, counted.plays, {"work_id": book.work_id}),
            (WORK_LISTEN_SECONDS, counted.listen_seconds, {"work_id": book.work_id}),
        ]
    return FoldResult(
        counted.state, puts=[(PROGRESS, progress, {})], adds=[add for add in adds if add[1]]
    )


WATERMARK = Record(
    Listening,
    "playw:{user_id:ulid}:{book_id:ulid}",
    name="watermark",
    belongs_to=Owner(PROGRESS),
)
PLAYBACK = Log(
    PlaybackEvent,
    "playe:{user_id:ulid}:{book_id:ulid}:{at:ulid}",
    name="playback_event",
    timestamps=("created_at",),
    version=VERSION,
    unknown="keep",
    state=WATERMARK,
    fold=_fold,
    needs=_needs,
    belongs_to=Owner(PROGRESS),
)


# Bookmarks

BOOKMARKS_OF_BOOK = Index("idx:bookmark:book:{book_id:ulid}:{user_id:ulid}:{id:ulid}")
BOOKMARK = Record(
    Bookmark,
    "bm:{user_id:ulid}:{book_id:ulid}:{id:ulid}",
    BOOKMARKS_OF_BOOK,
    belongs_to=(Owner(USER), Owner(BOOK, by=BOOKMARKS_OF_BOOK)),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)
