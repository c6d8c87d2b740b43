"""Requests and responses of playlists and marathons."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse.normalization import CONTROL_CHARACTERS
from keyhouse_playlist.limits import PLAYLIST_ITEMS_MAX, VIDEO_ID_CHARS_MAX
from keyhouse_playlist.messages import PlaylistId, PlaylistName
from keyhouse_playlist.schema import Method

ItemTitle = Annotated[
    str,
    Meta(extra_json_schema={"pattern": rf"^\s*[^{CONTROL_CHARACTERS}]*\s*$"}, examples=["Alien"]),
]
VideoId = Annotated[str, Meta(min_length=1, max_length=VIDEO_ID_CHARS_MAX, examples=["8FnmbsrWl"])]


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


class DocumentItem(msgspec.Struct):
    """An item of a stored playlist: title, duration and thumbnail are those of the catalog, if it
    knows the item."""

    video_id: str
    title: str | UnsetType | None = UNSET
    categories: list[str] | UnsetType | None = UNSET
    duration_seconds: int | UnsetType | None = UNSET
    thumbnail_url: str | UnsetType | None = UNSET


class PlaylistDocument(msgspec.Struct):
    """A stored playlist, with all members that the program gave it which wrote it."""

    playlist_id: str
    name: str
    items: list[DocumentItem]
    created_by: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET
    forked_from: str | UnsetType | None = UNSET
    schema_version: int | UnsetType = UNSET
    read_only: bool | UnsetType = UNSET
    """Set if a newer program wrote the document."""
    status: str | UnsetType = UNSET
    """`ok`: it was changed."""


# Marathons


class MarathonSource(msgspec.Struct, forbid_unknown_fields=True):
    playlist_id: PlaylistId
    label: Annotated[str, Meta(max_length=1_000)] | None = None


class MarathonBody(msgspec.Struct, forbid_unknown_fields=True):
    sources: list[MarathonSource]
    method: Method
    shuffle_seed: Annotated[str, Meta(max_length=1_000)] | int | float | None = None
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
