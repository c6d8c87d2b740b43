"""Values of the keys that the document does not have (see `schema`, which declares the keys), and
the words for the ways to mix and to push playlists."""

from datetime import date
from typing import Literal

from msgspec import Struct

__all__ = [
    "ApplyMode",
    "ChannelPlay",
    "ChannelPush",
    "DayLikes",
    "DayPlays",
    "IpBlockIntent",
    "Method",
    "OtpLock",
    "OtpRate",
]

ApplyMode = Literal["preserve_current", "append", "insert_next", "hard_replace"]
Method = Literal["concatenate", "shuffle", "interleave"]


class OtpLock(Struct, kw_only=True):
    """Failed codes of a name, over all codes that were requested for it."""

    failures: int
    since: str
    locked_until: str | None = None
    schema_version: int = 1


class OtpRate(Struct, kw_only=True):
    """Requests for codes in the last minutes, of a name or from an address."""

    times: list[str]
    expires_at: str
    schema_version: int = 1


class IpBlockIntent(Struct, kw_only=True):
    """An address that sent a code that nobody requested, and may block itself."""

    created_at: str
    expires_at: str
    schema_version: int = 1


class DayPlays(Struct, kw_only=True):
    """Plays of an item on one day (UTC)."""

    day: date
    video_id: str
    play_count: int = 0
    schema_version: int = 1


class DayLikes(Struct, kw_only=True):
    """Likes of an item on one day (UTC)."""

    day: date
    video_id: str
    like_count: int = 0
    schema_version: int = 1


class ChannelPush(Struct, kw_only=True):
    """The push that runs in a channel. It ends at `expires_at` unless its process renews it."""

    apply_id: str
    playlist_id: str
    mode: ApplyMode
    total: int
    done: int = 0
    enqueued_count: int = 0
    is_cancelled: bool = False
    started_at: str
    expires_at: str
    schema_version: int = 1


class ChannelPlay(Struct, kw_only=True):
    """A play that was counted, of one place in a channel's queue.

    `media_id` is the robot's id of the item. `is_reconciled`: it was counted from the robot's
    bucket, and its event has not come.
    """

    video_id: str
    media_id: str = ""
    counted_at: str
    is_reconciled: bool = False
    schema_version: int = 1
