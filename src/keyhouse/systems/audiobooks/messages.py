"""Bodies and parameters of requests."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.normalization import CONTROLS, is_visible
from keyhouse.systems.audiobooks.library import LIMIT_DEFAULT
from keyhouse.systems.audiobooks.records import Seconds, Status

__all__ = [
    "Agent",
    "ApiKeyBody",
    "AuthorBody",
    "AuthorsMergeBody",
    "BatchBody",
    "BookBody",
    "BookDeleteQuery",
    "BookIdsBody",
    "BookPatch",
    "BookQuery",
    "BookmarkBody",
    "BookmarkPatch",
    "DetachQuery",
    "DryRunQuery",
    "Id",
    "LibraryName",
    "LogQuery",
    "LoginBody",
    "LoginName",
    "MergeBody",
    "Name",
    "NameQuery",
    "OrganizeBody",
    "PageQuery",
    "PasswordBody",
    "PlaylistBody",
    "PlaylistPatch",
    "PositionBody",
    "ProfileBody",
    "ScanBody",
    "SearchQuery",
    "SegmentOrderBody",
    "SeriesBody",
    "SeriesPatch",
    "SetupBody",
    "SinceQuery",
    "StatusBody",
    "TenantAgent",
    "TenantBody",
    "Title",
    "TranscodeBody",
    "UserBody",
    "UserPatch",
    "WorkBody",
    "WorkPatch",
]

Id = Annotated[str, Meta(pattern="^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Title = Annotated[str, Meta(min_length=1, max_length=5_000)]
"""Beyond 900 bytes of its normal form, a title is cut in the keys of indexes."""
Username = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=rf"^[^\s{CONTROLS}][^{CONTROLS}]*$")
]
LoginName = Annotated[str, Meta(max_length=64)]
"""A name that no user can have is wrong (401) unless it is longer than any."""
LibraryName = Annotated[str, Meta(max_length=64)]
Password = Annotated[str, Meta(min_length=8, max_length=1_000)]
AnyPassword = Annotated[str, Meta(max_length=1_000)]
SECONDS_AGO_MAX: Final = 366 * 24 * 3_600
"""The largest `seconds_ago`; `places.js` (WAIT_SECONDS_MAX) sends this for older events."""
Email = Annotated[str, Meta(max_length=254, pattern=r"^([^@\s]+@[^@\s]+)?$")]


class NewUser(Struct, forbid_unknown_fields=True):
    username: Username
    password: Password
    email: Email | None = None

    def __post_init__(self) -> None:
        if not is_visible(self.username):
            raise ValueError("the name of a user has a visible character")


class SetupBody(NewUser):
    """`tenant`: the library, where a service has several."""

    tenant: LibraryName | None = None


class LoginBody(Struct, forbid_unknown_fields=True):
    username: LoginName
    password: AnyPassword
    remember_me: bool = False
    tenant: LibraryName | None = None


class ProfileBody(Struct, forbid_unknown_fields=True):
    email: Email | None


class PasswordBody(Struct, forbid_unknown_fields=True):
    current_password: AnyPassword
    new_password: Password


class ApiKeyBody(Struct, forbid_unknown_fields=True):
    name: Name


class UserBody(NewUser):
    roles: list[str] = msgspec.field(default_factory=lambda: ["viewer"])


class UserPatch(Struct, forbid_unknown_fields=True):
    roles: list[str] | UnsetType = UNSET
    status: Literal["active", "disabled"] | UnsetType = UNSET
    email: Email | UnsetType | None = UNSET
    password: Password | UnsetType = UNSET


class Agent(Struct):
    user_agent: str = msgspec.field(name="User-Agent", default="")
    cookie: str = ""


class TenantAgent(Struct):
    user_agent: str = msgspec.field(name="User-Agent", default="")
    cookie: str = ""
    tenant: str | None = msgspec.field(name="X-Tenant", default=None)


class TenantBody(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


class PageQuery(Struct):
    limit: int = LIMIT_DEFAULT
    cursor: str | None = None
    offset: int = 0


SortBy = Literal[
    "title", "author", "series_position", "created_at", "updated_at", "published_year", "duration"
]
Order = Literal["asc", "desc"]


class BookQuery(Struct):
    author_id: Id | None = None
    series_id: Id | None = None
    work_id: Id | None = None
    tag: str | None = None
    genre: str | None = None
    isbn: str | None = None
    title_prefix: str | None = None
    search: str | None = None
    sort_by: SortBy | None = None
    sort_order: Order = "asc"
    limit: int = LIMIT_DEFAULT
    cursor: str | None = None
    offset: int = 0


Tags = list[Annotated[str, Meta(min_length=1, max_length=200)]]


class BookBody(Struct, forbid_unknown_fields=True):
    """A whole book: a member that is absent is unset. To change some members, use PATCH. Members
    that the service sets, such as `author_name`, are rejected: send `author_id`."""

    title: Title
    author_id: Id | None = None
    series_id: Id | None = None
    series_position: Annotated[float, Meta(ge=0, lt=1_000_000)] | None = None
    work_id: Id | None = None
    narrator: str | None = None
    edition: str | None = None
    language: str | None = None
    publisher: str | None = None
    isbn10: str | None = None
    isbn13: str | None = None
    description: str = ""
    published_year: Annotated[int, Meta(ge=-5_000, le=9_999)] | None = None
    tags: Tags = []
    genres: Tags | UnsetType = UNSET


class BookPatch(Struct, forbid_unknown_fields=True):
    title: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET
    series_id: Id | UnsetType | None = UNSET
    series_position: Annotated[float, Meta(ge=0, lt=1_000_000)] | UnsetType | None = UNSET
    work_id: Id | UnsetType | None = UNSET
    narrator: str | UnsetType | None = UNSET
    edition: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    publisher: str | UnsetType | None = UNSET
    isbn10: str | UnsetType | None = UNSET
    isbn13: str | UnsetType | None = UNSET
    description: str | UnsetType = UNSET
    published_year: Annotated[int, Meta(ge=-5_000, le=9_999)] | UnsetType | None = UNSET
    tags: Tags | UnsetType = UNSET
    genres: Tags | UnsetType = UNSET


class BookDeleteQuery(Struct):
    soft_delete: bool = False
    purge: bool = False


class DetachQuery(Struct):
    detach: bool = False


class BatchBody(Struct, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=500)]
    updates: BookPatch


class AuthorBody(Struct, forbid_unknown_fields=True):
    name: Title


class SeriesBody(Struct, forbid_unknown_fields=True):
    name: Title
    author_id: Id | None = None


class SeriesPatch(Struct, forbid_unknown_fields=True):
    name: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET


class WorkBody(Struct, forbid_unknown_fields=True):
    title: Title
    author_id: Id | None = None
    series_id: Id | None = None
    alt_titles: list[Title] = []


class WorkPatch(Struct, forbid_unknown_fields=True):
    title: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET
    series_id: Id | UnsetType | None = UNSET
    alt_titles: list[Title] | UnsetType = UNSET


class NameQuery(Struct):
    name_prefix: str | None = None
    author_id: Id | None = None
    limit: int = LIMIT_DEFAULT
    cursor: str | None = None
    offset: int = 0


class AuthorsMergeBody(Struct, forbid_unknown_fields=True):
    keep_id: Id
    merge_ids: Annotated[list[Id], Meta(min_length=1, max_length=100)]


class SegmentOrderBody(Struct, forbid_unknown_fields=True):
    segment_ids: list[Id]


class PositionBody(Struct, forbid_unknown_fields=True):
    """`seconds_ago`: how long before the request the event happened, for one that had to wait."""

    segment_id: Id
    position_seconds: Seconds
    event_type: Literal["progress", "start", "pause", "complete"] = "progress"
    play_speed: Annotated[float, Meta(gt=0, le=16)] = 1.0
    based_on: Annotated[int, Meta(ge=0)] | None = None
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    seconds_ago: Annotated[float, Meta(ge=0, le=SECONDS_AGO_MAX)] = 0.0


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


class PlaylistBody(Struct, forbid_unknown_fields=True):
    """`user_id` null: a playlist that all see and admins change."""

    name: Name
    user_id: UnsetType | None = UNSET
    book_ids: list[Id] = []


class PlaylistPatch(Struct, forbid_unknown_fields=True):
    name: Name


class BookIdsBody(Struct, forbid_unknown_fields=True):
    book_ids: Annotated[list[Id], Meta(max_length=1_000)]


class MergeBody(Struct, forbid_unknown_fields=True):
    """`file_path` null: the service merges the files itself, with ffmpeg."""

    file_path: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None


class DryRunQuery(Struct):
    dry_run: bool = False


class ScanBody(Struct, forbid_unknown_fields=True):
    """`folder_path`: only this folder, below a root. `force_update`: read unchanged files too."""

    folder_path: str | None = None
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


class SearchQuery(Struct):
    q: str = ""
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    cursor: str | None = None
    after: int = 0


class SinceQuery(Struct):
    since: int | None = None
