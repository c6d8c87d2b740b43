"""NATS KV buckets and keys: six buckets, a schema for each, all keys under `ns/{namespace}/`.

The namespace is a setting of the store, `default` unless configured. Ids are unchanged in the JSON;
in a key, characters that NATS does not allow are escaped: `=3A` for `:`, `=3D` for `=` itself.

Names compare without case. Where only this service writes the key (a requested code, a counted
like), the name is in normal form, so that two spellings are one person; `roles/{username}` is
stored as written, because other programs write it too.

Further keys are not in the document: `names/…` reserves the name of each playlist, `days/…` (in two
buckets) counts by day, for the windows of `top-played` and `top-liked`, `apply/…` names the push
that runs, `pushes/…` has its progress, `plays/…` the counted plays of the last day, and the bucket
of codes has `otp/own/…` (the code of the client that requested it), `otp/lock/…` (failed codes of a
name), `otp/rate/…` (requests in the last minutes) and `ipblock_intent/…` (an address that may block
itself).
"""

from datetime import date
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from keyhouse.keys import NATS, Segment, Template
from keyhouse.schema import Record, Schema, Space, Summary, Unique, at_field, fixed, sliding
from keyhouse.service.background_records import OperationRun
from keyhouse_playlist.keys import IpAddress, PlaylistId
from keyhouse_playlist.limits import DAYS_KEPT, LOCK_SECONDS, PLAY_SECONDS

__all__ = [
    "ACL",
    "ADMINS",
    "ANALYTICS",
    "AUTH",
    "BLESSED",
    "CHANNEL_PLAY",
    "CHANNEL_PUSH",
    "CURRENT",
    "DAYS_KEPT",
    "DAY_LIKES",
    "DAY_PLAYS",
    "GLOBAL_COUNTERS",
    "IP_BLOCK",
    "IP_BLOCK_INTENT",
    "ITEM_COUNTERS",
    "ITEM_LIKES",
    "LIKED",
    "LIKES",
    "OTP_LOCK",
    "OTP_OWN",
    "OTP_RATE",
    "OTP_REQUEST",
    "PLAYLIST",
    "PLAYLISTS",
    "PLAYLIST_COUNTERS",
    "PLAYLIST_INDEX",
    "PLAYLIST_NAME",
    "PUSH_RUN",
    "ROLE",
    "SCHEMAS",
    "SESSION",
    "SNAPSHOT",
    "SNAPSHOTS",
    "VERSION",
    "ApplyMode",
    "ChannelPlay",
    "ChannelPush",
    "DayLikes",
    "DayPlays",
    "GlobalCounters",
    "IpBlock",
    "IpBlockIntent",
    "ItemCounters",
    "ItemLikes",
    "Liked",
    "Maybe",
    "Method",
    "OtpLock",
    "OtpRate",
    "OtpRequest",
    "Playlist",
    "PlaylistCounters",
    "PlaylistItem",
    "Role",
    "RoleOf",
    "Session",
    "Snapshot",
    "index_entry",
    "newer_index_entry",
]

T = TypeVar("T")
Maybe = str | UnsetType | None
Role = Literal["viewer", "blessed", "admin"]
ApplyMode = Literal["preserve_current", "append", "insert_next", "hard_replace"]
Method = Literal["concatenate", "shuffle", "interleave"]

VERSION = ("schema_version", 1)


def _at(text: str, **segments: Segment) -> Template:
    return Template(f"ns/{{namespace}}/{text}", escape=NATS, **segments)


def _bucket(name: str, *records: Record[Any], doc: str, **options: Any) -> Schema:
    space = Space("the bucket of that name", name=name)
    return Schema(name, *records, space=space, fixed={"namespace": "default"}, doc=doc, **options)


def _versioned(type: type[T], key: Template, *derived: Any, **options: Any) -> Record[T]:
    """Return a record with a `schema_version`, whose unknown members are kept."""
    return Record(type, key, *derived, version=VERSION, unknown="keep", **options)


# 4.3.1 kryten_playlist_snapshot


class Snapshot(Struct, kw_only=True):
    """One state of the catalog."""

    snapshot_id: str
    source: str
    created_at: str
    item_count: int
    notes: Maybe = UNSET
    schema_version: int = 1


CURRENT = _versioned(Snapshot, _at("current"), name="current", timestamps=("created_at",))
SNAPSHOT = _versioned(
    Snapshot, _at("snapshots/{snapshot_id}"), name="snapshot", timestamps=("created_at",)
)

SNAPSHOTS = _bucket(
    "kryten_playlist_snapshot",
    CURRENT,
    SNAPSHOT,
    doc="The current catalog snapshot, and earlier ones.",
)

# 4.3.2 kryten_playlist_acl


class RoleOf(Struct, kw_only=True):
    """The role of one user."""

    role: Role
    updated_at: str = ""


ADMINS = Record(list[str], _at("admins"), name="admins", doc="Cytube usernames of the admins.")
BLESSED = Record(list[str], _at("blessed"), name="blessed", doc="Cytube usernames of the blessed.")
ROLE = Record(RoleOf, _at("roles/{username}"), name="role", updated="updated_at", unknown="keep")

ACL = _bucket("kryten_playlist_acl", ADMINS, BLESSED, ROLE, doc="Roles of users.")

# 4.3.3 kryten_playlist_playlists


class PlaylistItem(Struct, kw_only=True):
    video_id: str
    title: Maybe = UNSET
    duration_seconds: int | UnsetType | None = UNSET
    categories: list[str] | UnsetType | None = UNSET


class Playlist(Struct, kw_only=True):
    """A saved playlist."""

    playlist_id: str
    name: str
    items: list[PlaylistItem]
    created_by: str
    created_at: str = ""
    updated_at: str = ""
    forked_from: Maybe = UNSET
    schema_version: int = 1


def index_entry(playlist: Playlist) -> dict[str, str]:
    """Return the entry of a playlist in the index."""
    return {
        "name": playlist.name,
        "created_by": playlist.created_by,
        "created_at": playlist.created_at,
        "updated_at": playlist.updated_at,
    }


def newer_index_entry(document: dict[str, Any]) -> dict[str, object]:
    """Return the entry of a playlist that a newer program wrote, with the members that the index
    of version 2 has as well."""
    texts = ("name", "created_by", "created_at", "updated_at")
    known = ("visibility", "owner", "forked_from_owner")
    items = document.get("items")
    return {
        **{name: document[name] for name in texts if isinstance(document.get(name), str)},
        **{name: document[name] for name in known if name in document},
        **({"item_count": len(items)} if isinstance(items, list) else {}),
    }


PLAYLIST_INDEX = Summary(
    _at("playlists/index"),
    member="playlist_id",
    under="playlists",
    entry=index_entry,
    version=VERSION,
    rebuilt=True,
    newer_entry=newer_index_entry,
)
PLAYLIST_NAME = Unique(_at("names/{name:norm}"), value="playlist_id")
PLAYLIST = _versioned(
    Playlist,
    _at("playlists/{playlist_id}", playlist_id=PlaylistId()),
    PLAYLIST_INDEX,
    PLAYLIST_NAME,
    created="created_at",
    updated="updated_at",
)

PLAYLISTS = _bucket(
    "kryten_playlist_playlists",
    PLAYLIST,
    doc="Saved playlists.",
    overlaps=((PLAYLIST, PLAYLIST_INDEX),),
)

# 4.3.4 kryten_playlist_auth


class OtpRequest(Struct, kw_only=True):
    """A requested code. Its hash never leaves the store. `requester` is the hash of the cookie that
    the client got which requested it."""

    requested_at: str
    expires_at: str
    request_ip: str
    request_user_agent: Maybe = UNSET
    otp_hash: str
    otp_salt: Maybe = UNSET
    attempts_remaining: int
    requester: Maybe = UNSET
    schema_version: int = 1


class Session(Struct, kw_only=True):
    username: str
    role: Role
    created_at: str
    expires_at: str
    ip: str
    schema_version: int = 1


class IpBlock(Struct, kw_only=True):
    blocked_until: str
    reason: Literal["otp_unsolicited", "otp_abuse", "admin_action"]
    created_at: str
    schema_version: int = 1


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


OTP_REQUEST = _versioned(
    OtpRequest,
    _at("otp/request/{username:norm}"),
    name="otp_request",
    timestamps=("requested_at", "expires_at"),
    private=("otp_hash", "otp_salt"),
    expiry=at_field("expires_at"),
)
OTP_OWN = _versioned(
    OtpRequest,
    _at("otp/own/{username:norm}/{requester}"),
    name="otp_own",
    timestamps=("requested_at", "expires_at"),
    private=("otp_hash", "otp_salt"),
    expiry=at_field("expires_at"),
)
OTP_LOCK = _versioned(
    OtpLock,
    _at("otp/lock/{username:norm}"),
    name="otp_lock",
    timestamps=("since", "locked_until"),
    expiry=sliding(LOCK_SECONDS),
)
OTP_RATE = _versioned(
    OtpRate,
    _at("otp/rate/{kind}/{of:norm}"),
    name="otp_rate",
    timestamps=("expires_at",),
    expiry=at_field("expires_at"),
)
SESSION = _versioned(
    Session,
    _at("session/{session_id}"),
    timestamps=("created_at", "expires_at"),
    expiry=at_field("expires_at"),
)
IP_BLOCK = _versioned(
    IpBlock,
    _at("ipblock/{ip}", ip=IpAddress()),
    name="ip_block",
    timestamps=("blocked_until", "created_at"),
    expiry=at_field("blocked_until"),
)
IP_BLOCK_INTENT = _versioned(
    IpBlockIntent,
    _at("ipblock_intent/{ip}", ip=IpAddress()),
    name="ip_block_intent",
    timestamps=("created_at", "expires_at"),
    expiry=at_field("expires_at"),
)

AUTH = _bucket(
    "kryten_playlist_auth",
    OTP_REQUEST,
    OTP_OWN,
    OTP_LOCK,
    OTP_RATE,
    SESSION,
    IP_BLOCK,
    IP_BLOCK_INTENT,
    doc="Codes, sessions and blocked addresses.",
)

# 4.3.5 kryten_playlist_analytics


class GlobalCounters(Struct, kw_only=True):
    items_queued: int = 0
    items_played: int = 0
    duration_queued_seconds: int = 0
    duration_played_seconds: int = 0
    updated_at: str = ""
    schema_version: int = 1


class ItemCounters(Struct, kw_only=True):
    video_id: str
    play_count: int = 0
    queue_count: int = 0
    last_played_at: str | None = None
    last_queued_at: str | None = None
    duration_seconds: int | None = None
    schema_version: int = 1


class PlaylistCounters(Struct, kw_only=True):
    playlist_id: str
    apply_count: int = 0
    last_applied_at: str | None = None
    schema_version: int = 1


class DayPlays(Struct, kw_only=True):
    """Plays of an item on one day (UTC)."""

    day: date
    video_id: str
    play_count: int = 0
    schema_version: int = 1


class ChannelPush(Struct, kw_only=True):
    """The push that runs in a channel, a background operation."""

    apply_id: str
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


GLOBAL_COUNTERS = _versioned(
    GlobalCounters, _at("counters/global"), name="global_counters", updated="updated_at"
)
ITEM_COUNTERS = _versioned(
    ItemCounters,
    _at("items/{video_id}"),
    name="item_counters",
    timestamps=("last_played_at", "last_queued_at"),
)
PLAYLIST_COUNTERS = _versioned(
    PlaylistCounters,
    _at("playlists/{playlist_id}", playlist_id=PlaylistId()),
    name="playlist_counters",
    timestamps=("last_applied_at",),
)
DAY_PLAYS = _versioned(
    DayPlays,
    _at("days/{day:date}/{video_id}"),
    name="day_plays",
    expiry=fixed(DAYS_KEPT * 24 * 3_600),
)

CHANNEL_PUSH = _versioned(ChannelPush, _at("apply/{channel}"), name="channel_push")
PUSH_RUN = Record(OperationRun, _at("pushes/{id:ulid}"), name="push_run")
CHANNEL_PLAY = _versioned(
    ChannelPlay,
    _at("plays/{channel}/{uid}"),
    name="channel_play",
    timestamps=("counted_at",),
    expiry=fixed(PLAY_SECONDS),
)

ANALYTICS = _bucket(
    "kryten_playlist_analytics",
    GLOBAL_COUNTERS,
    ITEM_COUNTERS,
    PLAYLIST_COUNTERS,
    DAY_PLAYS,
    CHANNEL_PUSH,
    PUSH_RUN,
    CHANNEL_PLAY,
    doc="Counts of queued and played items.",
)

# 4.3.6 kryten_playlist_likes


class ItemLikes(Struct, kw_only=True):
    video_id: str
    like_count: int = 0
    updated_at: str = ""
    schema_version: int = 1


class Liked(Struct, kw_only=True):
    """A user's like of an item: until it expires, another like of that user is a duplicate."""

    liked_at: str
    expires_at: str
    schema_version: int = 1


class DayLikes(Struct, kw_only=True):
    """Likes of an item on one day (UTC)."""

    day: date
    video_id: str
    like_count: int = 0
    schema_version: int = 1


ITEM_LIKES = _versioned(
    ItemLikes, _at("items/{video_id}/likes"), name="item_likes", updated="updated_at"
)
LIKED = _versioned(
    Liked,
    _at("dedupe/{video_id}/{user_id:norm}"),
    name="liked",
    timestamps=("liked_at", "expires_at"),
    expiry=at_field("expires_at"),
)
DAY_LIKES = _versioned(
    DayLikes,
    _at("days/{day:date}/{video_id}"),
    name="day_likes",
    expiry=fixed(DAYS_KEPT * 24 * 3_600),
)

LIKES = _bucket(
    "kryten_playlist_likes",
    ITEM_LIKES,
    LIKED,
    DAY_LIKES,
    doc="Likes of items, and recent likes of users.",
)

SCHEMAS: tuple[Schema, ...] = (SNAPSHOTS, ACL, PLAYLISTS, AUTH, ANALYTICS, LIKES)
