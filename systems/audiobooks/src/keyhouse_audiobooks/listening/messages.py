"""Requests and replies of playback, bookmarks, preferences, statistics and playlists."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.lists import Items
from keyhouse_audiobooks.messages import Id, Name
from keyhouse_audiobooks.records import PlaybackEvent, Playlist, Seconds, Status

SECONDS_AGO_MAX: Final = 366 * 24 * 3_600
"""The largest `seconds_ago`; `places.js` (WAIT_SECONDS_MAX) sends this for older events."""


class PositionBody(Struct, forbid_unknown_fields=True):
    """`seconds_ago`: how long before the request the event happened, for one that had to wait."""

    segment_id: Id
    position_seconds: Seconds
    event_type: Literal["progress", "start", "pause", "complete"] = "progress"
    play_speed: Annotated[float, Meta(gt=0, le=16)] = 1.0
    based_on: Annotated[int, Meta(ge=0)] | None = None
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    seconds_ago: Annotated[float, Meta(ge=0, le=SECONDS_AGO_MAX)] = 0.0


class PlaybackState(Struct, kw_only=True):
    """The state of a book for one listener. `revision` is what `based_on` refers to."""

    user_id: str
    book_id: str
    status: Status = "unstarted"
    status_manual: bool = False
    last_segment_id: str | None = None
    position_seconds: float = 0
    progress_pct: float = 0.0
    last_activity_at: str | None = None
    revision: int = 0
    play_speed: float | None = None


class PlaybackPosition(PlaybackState, kw_only=True):
    segment_id: str | None


class ListenedBook(PlaybackState, kw_only=True):
    book: ShownBook


class ShelvedBook(Struct):
    """A book on a shelf of a listener."""

    book: ShownBook
    progress_pct: float = 0.0
    status: Status = "unstarted"


class ResumeList(Items[ListenedBook], kw_only=True):
    """The books in progress, and the next books of series."""

    next_in_series: list[ShownBook]


class ShownEvent(PlaybackEvent, kw_only=True):
    id: str


class Statistics(Struct, kw_only=True):
    plays: int
    listen_seconds: int
    book_id: str | UnsetType = UNSET
    work_id: str | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class StatusBody(Struct, forbid_unknown_fields=True):
    status: Status


class BookmarkBody(Struct, forbid_unknown_fields=True):
    segment_id: Id
    position_seconds: Seconds
    title: Annotated[str, Meta(max_length=500)] = ""


class BookmarkPatch(Struct, forbid_unknown_fields=True):
    segment_id: Id | UnsetType = UNSET
    position_seconds: Seconds | UnsetType = UNSET
    title: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET


class ShownPreference(Struct):
    key: str
    value: Any


class PlaylistBody(Struct, forbid_unknown_fields=True):
    """`user_id` null: a playlist that all see and admins change."""

    name: Name
    user_id: UnsetType | None = UNSET
    book_ids: list[Id] = []


class PlaylistPatch(Struct, forbid_unknown_fields=True):
    name: Name


class BookIdsBody(Struct, forbid_unknown_fields=True):
    book_ids: Annotated[list[Id], Meta(max_length=1_000)]


class ShownPlaylist(Playlist, kw_only=True):
    """`book_ids`: its books in order, without those in the bin."""

    book_ids: list[str]
