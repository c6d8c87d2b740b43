"""Requests, responses and events of the channel."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from keyhouse_playlist.limits import DAYS_KEPT, STATISTICS_ITEMS_MAX
from keyhouse_playlist.messages import PlaylistId
from keyhouse_playlist.schema import ApplyMode


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    playlist_id: PlaylistId
    mode: ApplyMode


class FailedItem(msgspec.Struct):
    video_id: str
    reason: str


class ApplyReply(msgspec.Struct):
    enqueued_count: int
    failed: list[FailedItem]
    apply_id: str
    status: Literal["ok", "cancelled"] = "ok"


class ApplyEvent(msgspec.Struct):
    """The progress of a push, for open pages."""

    apply_id: str
    playlist_id: str
    mode: ApplyMode
    status: Literal["running", "done", "cancelled", "failed"]
    done: int
    total: int
    enqueued_count: int
    failed: list[FailedItem] = []


class LikeEvent(msgspec.Struct):
    video_id: str
    like_count: int


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
