"""Requests and replies of segments, operations and event streams."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse_audiobooks.lists import LIMIT_DEFAULT
from keyhouse_audiobooks.messages import Id
from keyhouse_audiobooks.records import Chapter, Operation, Seconds

WatchedType = Literal["book", "author", "series", "work"]


class SegmentsQuery(Struct):
    """`limit`: a page of them; without, all."""

    inactive: bool = False
    limit: int | None = None
    cursor: str | None = None
    offset: int = 0


class ShownSegment(Struct, kw_only=True):
    """A segment as it is sent. `file_path` is relative to its root, for all who do not organize
    files; `offset_start` is where it begins in the book."""

    chapters: list[Chapter] | None
    id: str
    book_id: str
    file_path: str
    format: str
    size_bytes: int
    duration_seconds: Seconds
    hash_sha256: str
    track_number: int
    total_tracks: int
    active: bool
    superseded_by: str | None
    title: str | UnsetType = UNSET
    mtime_ns: int | UnsetType = UNSET
    tag_order: list[int] | UnsetType = UNSET
    created_at: str
    updated_at: str
    version: int
    offset_start: Seconds
    audio_url: str = ""


class SegmentOrderBody(Struct, forbid_unknown_fields=True):
    segment_ids: list[Id]


class MergeBody(Struct, forbid_unknown_fields=True):
    """`file_path` null: the service merges the files itself, with ffmpeg."""

    file_path: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None


class DryRunQuery(Struct):
    dry_run: bool = False


class MovedPlace(Struct, kw_only=True):
    """A listener's place before and after a merge."""

    user_id: str
    old_segment_id: str
    old_position_seconds: float
    new_segment_id: str
    new_position_seconds: float
    progress_pct: float


class MergePreview(Struct):
    dry_run: bool
    items: Sequence[MovedPlace]
    count: int


class ScanBody(Struct, forbid_unknown_fields=True):
    """`folder_path`: only this folder, below a root. `force_update`: read unchanged files too."""

    folder_path: Annotated[str, Meta(max_length=4_096)] | None = None
    force_update: bool = False
    priority: Any = None


class OrganizeBody(Struct, forbid_unknown_fields=True):
    dry_run: bool = True
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


TranscodeFormat = Literal["m4b", "mp3", "ogg", "flac"]


class TranscodeBody(Struct, forbid_unknown_fields=True):
    book_id: Id
    format: TranscodeFormat = "m4b"


class LogQuery(Struct):
    after: int = -1
    limit: int = LIMIT_DEFAULT


class SinceQuery(Struct):
    since: int | None = None


class LibraryEventsQuery(SinceQuery):
    """`type`: only records of this type."""

    type: WatchedType | None = None


class ChangeEvent(Struct):
    """A change of a record: its state after it, as JSON, or null if it was deleted."""

    id: str
    type: str
    revision: int
    data: Any


class ShownOperation(Operation, kw_only=True):
    """`message` is the error, or the status."""

    total: int
    message: str
