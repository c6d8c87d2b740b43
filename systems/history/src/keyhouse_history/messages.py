"""Requests and responses of the HTTP API, from which its OpenAPI document is made."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse_history.limits import EVENTS_MAX, PAGE_ENTRIES_MAX, SECONDS_MAX
from keyhouse_history.schema import Attributes, Marks, State

Type = Annotated[
    Literal["all", "resume", "watched"],
    Meta(description="All entries, those in progress, or those completed.", examples=["all"]),
]
Profile = Annotated[str, Meta(description="The profile.", examples=["profile-1"])]
AssetId = Annotated[str, Meta(description="The asset.", examples=["1981"])]

_Total = Annotated[int, Meta(ge=0, le=SECONDS_MAX)] | Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
_Progress = (
    Annotated[int, Meta(ge=-SECONDS_MAX, le=SECONDS_MAX)]
    | Annotated[float, Meta(ge=-SECONDS_MAX, le=SECONDS_MAX)]
)

EXT_EXAMPLE: Final = {
    "showCategoryId": "1446",
    "seasonCategoryId": "1450",
    "sport": "cricket",
    "series-id": "4",
    "team-ids": "60091,60092",
}
EVENT_EXAMPLE: Final[dict[str, Any]] = {
    "assetType": "tv-episode",
    "totalTime": 6604,
    "progress": 2518,
    "updateTime": "2021-01-27T23:37:42.155Z",
    "ext": EXT_EXAMPLE,
}
ENTRY_EXAMPLE: Final[dict[str, Any]] = {
    "attr": {
        "assetId": "1981",
        "assetType": "tv-episode",
        "totalTime": 6604,
        "state": "IN_PROGRESS",
        "progress": 2518,
        "updateTime": "2021-01-27T23:37:42.155Z",
        "progressPercentage": 38.13,
    },
    "ext": EXT_EXAMPLE,
}


class EntryShape(Struct, kw_only=True):
    """An entry, for the document."""

    attr: Attributes
    ext: dict[str, Any]
    m: Marks | UnsetType = UNSET


def _entry_schema() -> dict[str, Any]:
    _, parts = msgspec.json.schema_components((EntryShape,), ref_template="{name}")
    shape = dict(parts["EntryShape"])
    shape["properties"] = {
        "attr": parts["Attributes"],
        "ext": {"type": "object"},
        "m": parts["Marks"],
    }
    return shape


EntryJson = Annotated[
    msgspec.Raw,
    Meta(description="An entry as stored.", extra_json_schema=_entry_schema()),
]


class ViewingBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A viewing. Progress is clamped to 0 and the total time; without a state, it decides.

    `ext` left out keeps the stored one, and an empty one clears it.
    """

    asset_type: str
    total_time: _Total
    progress: _Progress
    update_time: Annotated[
        str,
        Meta(description="RFC 3339 with a zone.", examples=["2021-01-27T23:37:42.155Z"]),
    ]
    state: State | None = None
    ext: dict[str, Any] | None = None


class BatchEvent(ViewingBody, frozen=True, kw_only=True, rename="camel"):
    """A viewing of an asset."""

    asset_id: str


class EventsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An invalid event fails alone."""

    events: Annotated[
        list[Any],
        Meta(
            min_length=1,
            max_length=EVENTS_MAX,
            description="Taken in the order of `updateTime`, each by its own commit.",
        ),
    ]


_Stored = Annotated[
    bool | UnsetType,
    Meta(description="False if a full profile has only newer entries; else it is absent."),
]


class EventReply(Struct, frozen=True):
    """`applied` is false for an event that changed nothing; `entry` is the stored one, unless
    `stored` is false."""

    entry: EntryJson
    applied: bool
    stored: _Stored = UNSET


class EventError(Struct, frozen=True):
    code: str
    detail: str


class EventResult(Struct, frozen=True, rename="camel"):
    """The result of one event: `applied`, or `error`."""

    asset_id: Any
    applied: bool | UnsetType = UNSET
    stored: _Stored = UNSET
    error: EventError | UnsetType = UNSET


class EventsReply(Struct, frozen=True):
    """The results, in the order of the request. A stale event is neither applied nor failed."""

    results: list[EventResult]
    applied: int
    failed: int


class AssetReply(Struct, frozen=True):
    """The entries of an asset, newest first."""

    entries: list[EntryJson]


class FacetReply(Struct, frozen=True):
    """Newest first. `cursor` is present if more follow."""

    entries: list[EntryJson]
    cursor: str | UnsetType = UNSET


class StateCounts(Struct, frozen=True, rename="camel"):
    in_progress: int
    completed: int


class SportReply(Struct, frozen=True):
    """`counts` are of all pages."""

    entries: list[EntryJson]
    counts: StateCounts
    cursor: str | UnsetType = UNSET


class ShowReply(Struct, frozen=True):
    """`current` is the entry that was watched last, in progress or completed; `counts` are of all
    pages."""

    entries: list[EntryJson]
    current: EntryJson | None
    counts: StateCounts
    cursor: str | UnsetType = UNSET


class ReindexReply(Struct, frozen=True):
    """Rows that were checked, and those that were repaired."""

    checked: int
    repaired: int


_Limit = Annotated[int, Meta(ge=1, le=PAGE_ENTRIES_MAX, description="Maximum number of entries.")]
_Cursor = Annotated[str | None, Meta(description="Cursor of the previous page.")]


class AssetQuery(Struct, frozen=True):
    assets: Annotated[
        list[str], Meta(description="Only these assets; repeatable, or a comma-separated list.")
    ] = []
    limit: _Limit = 50
    cursor: _Cursor = None


class ShowQuery(Struct, frozen=True):
    season: Annotated[list[str], Meta(description="Only this season; repeatable.")] = []
    limit: _Limit = 50
    cursor: _Cursor = None


class SportQuery(Struct, frozen=True):
    series: Annotated[str | None, Meta(description="Only this series.")] = None
    team: Annotated[str | None, Meta(description="Only this team of the series.")] = None
    limit: _Limit = 50
    cursor: _Cursor = None


class WatchQuery(Struct, frozen=True):
    since: (
        Annotated[
            int, Meta(ge=0, le=2**63 - 1, description="Revision after which events are sent.")
        ]
        | None
    ) = None
