"""Requests and responses of the HTTP API."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse.normalization import CONTROL_CHARACTERS, CONTROLS
from keyhouse.systems.playlist.catalog_item import CatalogItem
from keyhouse.systems.playlist.limits import (
    BLOCK_HOURS_DEFAULT,
    BLOCK_HOURS_MAX,
    DAYS_KEPT,
    OTP_SECONDS,
    PLAYLIST_ITEMS_MAX,
    PLAYLIST_NAME_CHARS_MAX,
    SEARCH_ITEMS_MAX,
    STATISTICS_ITEMS_MAX,
    USERNAME_CHARS_MAX,
    VIDEO_ID_CHARS_MAX,
)
from keyhouse.systems.playlist.names import checked_username
from keyhouse.systems.playlist.own_values import Method
from keyhouse.systems.playlist.schema import ApplyMode, Role

_NAME = rf"^\s*[^\s{CONTROLS}]([^{CONTROLS}]*[^\s{CONTROLS}])?\s*$"

Username = Annotated[
    str,
    Meta(
        max_length=USERNAME_CHARS_MAX,
        pattern=_NAME,
        examples=["TacoBelmont"],
    ),
]
PlaylistName = Annotated[
    str,
    Meta(
        max_length=PLAYLIST_NAME_CHARS_MAX,
        examples=["Halloween Marathon"],
        extra_json_schema={"pattern": _NAME},
    ),
]
ItemTitle = Annotated[
    str,
    Meta(extra_json_schema={"pattern": rf"^\s*[^{CONTROL_CHARACTERS}]*\s*$"}, examples=["Alien"]),
]
VideoId = Annotated[str, Meta(min_length=1, max_length=VIDEO_ID_CHARS_MAX, examples=["8FnmbsrWl"])]

# Sign-in


class OtpRequestBody(msgspec.Struct, forbid_unknown_fields=True):
    username: Username

    def __post_init__(self) -> None:
        self.username = checked_username(self.username)


class OtpSent(msgspec.Struct):
    status: Literal["sent"] = "sent"
    expires_in_seconds: int = OTP_SECONDS


class OtpVerifyBody(msgspec.Struct, forbid_unknown_fields=True):
    username: Username
    otp: Annotated[str, Meta(max_length=64, examples=["7K2QX94B"])]

    def __post_init__(self) -> None:
        self.username = checked_username(self.username)


class OtpResult(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "invalid", "locked", "unrequested"]
    role: Role | UnsetType = UNSET
    attempts_remaining: int | UnsetType = UNSET
    retry_after_seconds: int | UnsetType = UNSET
    can_block_ip: bool | UnsetType = UNSET
    default_block_hours: int | UnsetType = UNSET


class CodeHeaders(msgspec.Struct):
    """`cookie` has the cookie of the client that requested a code."""

    user_agent: Annotated[str | None, Meta(description="The client's program.")] = msgspec.field(
        default=None, name="User-Agent"
    )
    cookie: Annotated[str, Meta(description="Cookies, such as that of a requested code.")] = ""


class IpBlockBody(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["block"]
    hours: Annotated[int, Meta(ge=1, le=BLOCK_HOURS_MAX)] = BLOCK_HOURS_DEFAULT
    ip: str | None = None


class IpBlocked(msgspec.Struct):
    blocked_until: str
    status: Literal["blocked"] = "blocked"


class SessionReply(msgspec.Struct):
    username: str
    role: str
    expires_at: str


class Done(msgspec.Struct):
    status: Literal["ok"] = "ok"


# Catalog


class CatalogQuery(msgspec.Struct):
    q: Annotated[str, Meta(description="Words that an item must have.")] = ""
    category: Annotated[
        list[str], Meta(description="Categories that an item must have; repeatable.")
    ] = []
    limit: Annotated[int, Meta(ge=1, le=SEARCH_ITEMS_MAX)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0
    facets: bool = False


class Facets(msgspec.Struct):
    category: dict[str, int]


class SearchReply(msgspec.Struct):
    snapshot_id: str | None
    total: int
    items: list[CatalogItem]
    facets: Facets | UnsetType = UNSET


class Categories(msgspec.Struct):
    categories: list[str]


# Playlists


class ItemBody(msgspec.Struct, forbid_unknown_fields=True):
    video_id: VideoId
    title: ItemTitle | UnsetType | None = UNSET
    duration_seconds: int | UnsetType | None = UNSET
    categories: list[str] | UnsetType | None = UNSET
    thumbnail_url: str | UnsetType | None = UNSET
    """Responses have it; it is that of the catalog, and not stored."""


Items = Annotated[list[ItemBody], Meta(max_length=PLAYLIST_ITEMS_MAX)]


class PlaylistsQuery(msgspec.Struct):
    mine: bool = False
    search: Annotated[str, Meta(description="Text in the name; case and accents are ignored.")] = ""


class PlaylistSummary(msgspec.Struct):
    playlist_id: str
    name: str
    created_by: str
    item_count: int
    total_duration_seconds: int
    created_at: str
    updated_at: str
    forked_from: str | UnsetType | None = UNSET
    read_only: bool | UnsetType = UNSET
    """Set if a newer program wrote the document."""


class PlaylistList(msgspec.Struct):
    total: int
    playlists: list[PlaylistSummary]


class CreateBody(msgspec.Struct, forbid_unknown_fields=True):
    name: PlaylistName
    items: Items = []


class Created(msgspec.Struct):
    playlist_id: str
    name: str


class ReplaceBody(msgspec.Struct, forbid_unknown_fields=True):
    """A member that is absent stays as it is."""

    name: PlaylistName | UnsetType = UNSET
    items: Items | UnsetType = UNSET


class ForkBody(msgspec.Struct, forbid_unknown_fields=True):
    name: PlaylistName | None = None


PlaylistDocument = dict[str, Any]
"""A playlist as it is stored, with title and duration of its items from the catalog."""

# Marathons


class MarathonSource(msgspec.Struct, forbid_unknown_fields=True):
    playlist_id: str
    label: str | None = None


class MarathonBody(msgspec.Struct, forbid_unknown_fields=True):
    sources: list[MarathonSource]
    method: Method
    shuffle_seed: str | int | float | None = None
    interleave_pattern: str | None = None
    preserve_episode_order: bool = True


class SaveMarathonBody(MarathonBody, forbid_unknown_fields=True):
    """The playlist's name comes last: a Struct's required members precede the others."""

    name: PlaylistName | UnsetType = UNSET


class MarathonItem(msgspec.Struct):
    video_id: str
    title: str | None


class MarathonReply(msgspec.Struct):
    items: list[MarathonItem]
    warnings: list[str]
    shuffle_seed: str | UnsetType = UNSET


# Queue and statistics


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    playlist_id: str
    mode: ApplyMode


class FailedItem(msgspec.Struct):
    video_id: str
    reason: str


class ApplyReply(msgspec.Struct):
    enqueued_count: int
    failed: list[FailedItem]
    apply_id: str
    status: Literal["ok", "cancelled"] = "ok"


class QueueItem(msgspec.Struct):
    uid: int | str | None
    video_id: str
    title: str
    duration_seconds: int | None
    queued_by: str | None
    starts_at: str | None = None


class NowPlaying(msgspec.Struct):
    uid: int | str | None
    video_id: str
    title: str
    duration_seconds: int | None
    current_time: float
    paused: bool
    queued_by: str | None


class QueueReply(msgspec.Struct):
    items: list[QueueItem]
    current: NowPlaying | None
    total_seconds: int


class StatisticsQuery(msgspec.Struct):
    window_days: Annotated[int, Meta(ge=1, le=DAYS_KEPT)] = 30
    limit: Annotated[int, Meta(ge=1, le=STATISTICS_ITEMS_MAX)] = 50


class CountedItem(msgspec.Struct):
    video_id: str
    title: str | None
    count: int
    thumbnail_url: str | None


class CountedItems(msgspec.Struct):
    items: list[CountedItem]


class CurrentStatistics(msgspec.Struct):
    """The item that is playing now, if any, with its counts."""

    video_id: str | None
    title: str | None
    playing: bool
    play_count: int = 0
    like_count: int = 0


class LikeReply(msgspec.Struct):
    status: Literal["ok", "duplicate"]
    video_id: str
    like_count: int
