"""Entity JSON schemas: the values, in the document's order. Keys and indexes are in `schema`.

`version` is the version of the JSON, not the store's revision. Times are RFC 3339. Members that the
store sets at each write have a default here: versions, times and normalised forms. Members beyond
the document are absent unless set: `deleted_at` of a book in the bin, `token_hash` of a session,
`manual_status` of a progress, `device` of an event, `api_keys` of secrets. A scan writes `source`
(the digest of folder and album) of a book, and `mtime_ns`, `title`, `chapters` and `tag_order`
(disc and track of the tags) of a segment; `edited` names the members of a book that a person
changed, which a scan leaves alone.
"""

import hashlib
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = [
    "VERSION",
    "ApiKey",
    "Argon2Params",
    "Asset",
    "Author",
    "Book",
    "Bookmark",
    "Chapter",
    "DurationMap",
    "Operation",
    "OperationLine",
    "OperationProgress",
    "PlaybackEvent",
    "Playlist",
    "Progress",
    "RolePermissions",
    "Seconds",
    "Segment",
    "SegmentSpan",
    "Series",
    "Session",
    "Setup",
    "Status",
    "User",
    "UserLimits",
    "UserSecrets",
    "Work",
    "digest",
    "is_binned",
    "is_listed",
    "is_scanned",
]

VERSION: Final = ("version", 1)
"""The version of the JSON of every record: its member, and its number."""

Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
Status = Literal["unstarted", "in_progress", "finished", "abandoned"]


class User(Struct, kw_only=True):
    id: str
    username: str
    email: str | None = None
    password_hash_algo: str = "argon2id"
    password_hash: str
    created_at: str = ""
    updated_at: str = ""
    roles: list[str] = []
    status: Literal["active", "disabled"] = "active"
    version: int = 1


class UserSecrets(Struct, kw_only=True):
    """Further secrets of a user, stored as hashes: API keys by name."""

    user_id: str
    hashes: dict[str, str] = {}
    api_keys: list["ApiKey"] | UnsetType = UNSET
    version: int = 1


class UserLimits(Struct, kw_only=True):
    """When a user has last added a thing of which there is a maximum."""

    user_id: str
    version: int = 1
    updated_at: str = ""


class ApiKey(Struct, kw_only=True):
    """An API key. The hash of its secret is in `hashes`, under its id."""

    id: str
    name: str
    created_at: str


class Setup(Struct, kw_only=True):
    """The first admin was created."""

    user_id: str
    created_at: str = ""
    version: int = 1


class Session(Struct, kw_only=True):
    """A login. Its secret is stored as a hash."""

    id: str
    user_id: str
    created_at: str = ""
    expires_at: str
    ip: str
    user_agent: str
    revoked: bool = False
    token_hash: str | UnsetType = UNSET
    version: int = 1


class RolePermissions(Struct, kw_only=True):
    """The permissions of a role."""

    role: str
    permissions: list[str] = []
    version: int = 1


class Author(Struct, kw_only=True):
    id: str
    name: str
    normalized_name: str = ""
    created_at: str = ""
    version: int = 1


class Series(Struct, kw_only=True):
    id: str
    name: str
    normalized_name: str = ""
    author_id: str | None = None
    created_at: str = ""
    version: int = 1


class Work(Struct, kw_only=True):
    """Title-level logical grouping across editions and narrations."""

    id: str
    title: str
    normalized_title: str = ""
    author_id: str | None = None
    alt_titles: list[str] = []
    series_id: str | None = None
    created_at: str = ""
    updated_at: str = ""
    version: int = 1


class Book(Struct, kw_only=True):
    """A logical audiobook."""

    id: str
    title: str
    normalized_title: str = ""
    author_id: str | None = None
    series_id: str | None = None
    series_position: int | float | None = None
    work_id: str | None = None
    narrator: str | None = None
    edition: str | None = None
    language: str | None = None
    publisher: str | None = None
    isbn10: str | None = None
    isbn13: str | None = None
    description: str = ""
    published_year: int | None = None
    cover_asset_id: str | None = None
    tags: list[str] = []
    genres: list[str] | UnsetType = UNSET
    created_at: str = ""
    updated_at: str = ""
    deleted_at: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    edited: list[str] | UnsetType = UNSET
    version: int = 1


def is_scanned(book: Book) -> bool:
    return bool(book.source)


def digest(text: str) -> str:
    """Return a text of any length as part of a key: its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_listed(book: Book) -> bool:
    """Return whether lists show the book: it is not in the bin."""
    return not book.deleted_at


def is_binned(book: Book) -> bool:
    return bool(book.deleted_at)


class Segment(Struct, kw_only=True):
    """A physical media file of a book. `track_number` is its position in the book, whatever the
    tags of the file contain."""

    id: str
    book_id: str
    file_path: str
    format: str
    size_bytes: int
    duration_seconds: Seconds
    hash_sha256: str
    track_number: int
    total_tracks: int
    active: bool = True
    superseded_by: str | None = None
    title: str | UnsetType = UNSET
    mtime_ns: int | UnsetType = UNSET
    tag_order: list[int] | UnsetType = UNSET
    chapters: list["Chapter"] | UnsetType = UNSET
    created_at: str = ""
    updated_at: str = ""
    version: int = 1


class Chapter(Struct, kw_only=True):
    """A chapter within a segment."""

    title: str
    start_seconds: Seconds
    end_seconds: Seconds


class Playlist(Struct, kw_only=True):
    id: str
    name: str
    user_id: str | None = None
    created_at: str = ""
    updated_at: str = ""
    version: int = 1


class PlaybackEvent(Struct, kw_only=True):
    """An event of a player. Immutable; `created_at` is its time, by the clock of the service: for
    one that a device sent later, the time at which it happened."""

    user_id: str
    book_id: str
    segment_id: str
    position_seconds: Seconds
    event_type: Literal["progress", "start", "pause", "complete"]
    play_speed: Annotated[float, Meta(gt=0)] = 1.0
    created_at: str
    device: str | UnsetType = UNSET
    version: int = 1


class Progress(Struct, kw_only=True):
    """A listener's position in a book: the latest snapshot. `manual_status` overrides the status by
    percentage. A book that was never opened has a manual status and no segment."""

    user_id: str
    book_id: str
    segment_id: str | None = None
    position_seconds: Seconds = 0
    percent_complete: float = 0.0
    updated_at: str = ""
    manual_status: Status | UnsetType = UNSET
    version: int = 1


class SegmentSpan(Struct, kw_only=True):
    id: str
    duration: Seconds
    active: bool
    offset_start: Seconds


class DurationMap(Struct, kw_only=True):
    """Start and duration of each segment of a book, for converting positions."""

    segments: list[SegmentSpan] = []
    total_duration: Seconds = 0
    version: int = 1


class Bookmark(Struct, kw_only=True):
    """A place in a book that a listener marked."""

    id: str
    user_id: str
    book_id: str
    segment_id: str
    position_seconds: Seconds
    title: str = ""
    created_at: str = ""
    updated_at: str = ""
    version: int = 1


class OperationProgress(Struct, kw_only=True, frozen=True):
    current: int = 0
    total: int = 0


class Operation(Struct, kw_only=True):
    """A long-running operation. One found running at start-up, or cancelled, is `failed`, and
    `error` gives the reason."""

    id: str
    type: Literal["scan", "organize", "transcode", "merge", "prune"]
    status: Literal["pending", "running", "completed", "failed"] = "pending"
    started_at: str | None = None
    completed_at: str | None = None
    error: str | None = None
    progress: OperationProgress = OperationProgress()
    created_by: str
    version: int = 1


class OperationLine(Struct, kw_only=True):
    """One line of an operation's log. The store sets `seq`."""

    seq: int = 0
    timestamp: str
    level: Literal["info", "warn", "error"]
    message: str
    version: int = 1


class Argon2Params(Struct, kw_only=True):
    """Parameters of password hashing. They hold from the next login on, which hashes a password
    with other parameters again."""

    time_cost: Annotated[int, Meta(ge=1, le=100)]
    memory_cost_kib: Annotated[int, Meta(ge=8, le=4 * 1_024 * 1_024)]
    parallelism: Annotated[int, Meta(ge=1, le=64)]
    hash_bytes: Annotated[int, Meta(ge=16, le=64)]
    salt_bytes: Annotated[int, Meta(ge=8, le=64)]
    version: int = 1

    def __post_init__(self) -> None:
        if self.memory_cost_kib < 8 * self.parallelism:
            raise ValueError("Argon2 needs 8 KiB of memory for each unit of parallelism.")


class Asset(Struct, kw_only=True):
    """A file that is not audio, such as a cover: its path and type."""

    id: str
    path: str
    mime: str
    size_bytes: int
    hash_sha256: str
    book_id: str | UnsetType = UNSET
    created_at: str = ""
    version: int = 1
