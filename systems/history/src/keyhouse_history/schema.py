"""Viewing history: one entry for each asset and state of a profile, and rows to list and find them.

| sort key                     | value                                     |
|------------------------------|-------------------------------------------|
| `IN_PROGRESS|{assetId}`, `COMPLETED|{assetId}` | the entry               |
| `IN_PROGRESS`, `COMPLETED`   | the assets in that state                  |
| `/{sport}/{series}/{team}`   | the assets of that team, in either state  |
| `/{show}/{season}`           | the assets of that season, in either state |
| `newest|{time}|{assetId}|{state}` | `1`: the entries, newest first       |
| `entries`                    | the number of entries                     |

A list has at most 1,000 assets; one that lacks some has `"truncated": true`. So a write changes a
bounded number of bytes, however long the history is.

An asset can have both entries: one that is watched again is in progress, and was completed. The
state is part of the key, so moving an entry is a delete and a put in one transaction. An asset
leaves a list when neither of its entries belongs there.

"How do we track when an asset changes hierarchy?" Each row is a function of the entry, so the write
that changes it moves the asset from the old rows to the new ones. An empty list is deleted.

The rows `path.hierarchy…` and `path.sport…` are the lookups by these paths, on every engine;
DynamoDB's own indexes on those attributes are for other programs. Another path is another such row.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.errors import DocumentError
from keyhouse.keys import Template
from keyhouse.schema import (
    MILLISECONDS,
    Declared,
    FromAttribute,
    Index,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
)
from keyhouse_history.limits import ASSETS_LISTED_MAX, MOMENT_MAX
from keyhouse_history.paths import PARTS, Path, hierarchy, sport, teams, whole_prefixes
from keyhouse_history.profile_names import ProfileName

__all__ = [
    "ASSETS_IN_SEASON",
    "ASSETS_IN_STATE",
    "ASSETS_OF_TEAM",
    "BY_HIERARCHY",
    "BY_SPORT",
    "ENTRIES",
    "ENTRY",
    "NEWEST",
    "PATH_ATTRIBUTES",
    "SCHEMAS",
    "Attributes",
    "HistoryEntry",
    "Marks",
    "Number",
    "Seconds",
    "State",
    "clamped",
    "moment_of",
    "with_percentage",
]

State = Literal["IN_PROGRESS", "COMPLETED"]
Number = int | float
Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]

PATH_ATTRIBUTES = ("showCategoryId", "seasonCategoryId", "sport", "series-id", "team-ids")


class Attributes(Struct, kw_only=True, rename="camel"):
    """`a.*`: the viewing itself. The store clamps `progress` to the total time, and sets the
    percentage."""

    asset_id: str
    asset_type: str
    total_time: Seconds
    state: State
    progress: Number
    update_time: str
    progress_percentage: Number | UnsetType = UNSET


class Marks(Struct, kw_only=True):
    """`m.*`: the times at which the asset was completed."""

    timestamps: list[str]


class HistoryEntry(Struct, kw_only=True):
    """Progress of one asset. `ext` holds attributes for finding it; those that make paths are
    text."""

    attr: Attributes
    ext: dict[str, Any] = {}
    m: Marks | UnsetType = UNSET

    def __post_init__(self) -> None:
        ext = self.ext
        for name in PATH_ATTRIBUTES:
            if name in ext and not isinstance(ext[name], str):
                raise ValueError(f"ext.{name} must be text")


def clamped(progress: Number, total: Number) -> tuple[Number, Number]:
    """Return the progress clamped to the total time, and its percentage to two decimals; a whole
    percentage is an integer."""
    progress = min(max(progress, 0), total)
    percentage: Number = round(100 * progress / total, 2) if total else 0
    return progress, int(percentage) if percentage == int(percentage) else percentage


def with_percentage(entry: HistoryEntry) -> Attributes:
    """Return the attributes with progress clamped, and its percentage: the given ones, if they are
    so already."""
    attr = entry.attr
    progress, percentage = clamped(attr.progress, attr.total_time)
    known = attr.progress_percentage
    if progress is attr.progress and percentage == known and type(percentage) is type(known):
        return attr
    return msgspec.structs.replace(attr, progress=progress, progress_percentage=percentage)


def moment_of(entry: HistoryEntry) -> int:
    """Return the entry's time in milliseconds since 1970; 0 if another program stored no time."""
    try:
        moment = MILLISECONDS.parse(entry.attr.update_time)
    except DocumentError:
        return 0
    return moment if 0 <= moment <= MOMENT_MAX else min(max(moment, 0), MOMENT_MAX)


def _ext(name: str) -> FromAttribute:
    """Return a getter of an extended attribute for a key field: None, and so no row, if it is
    empty."""
    return FromAttribute("ext", lambda ext: ext.get(name) or None)


ASSETS_IN_STATE = Summary(
    "{state:IN_PROGRESS|COMPLETED}",
    member="asset",
    under="assetIds",
    members_max=ASSETS_LISTED_MAX,
)

ASSETS_OF_TEAM = Summary(
    Template("/{sport}/{series}/{team}", escape=PARTS),
    member="asset",
    under="assetIds",
    members_max=ASSETS_LISTED_MAX,
    fields={"sport": _ext("sport"), "series": _ext("series-id")},
    each={"team": FromAttribute("ext", lambda ext: teams(ext))},
)

ASSETS_IN_SEASON = Summary(
    Template("/{show}/{season}", escape=PARTS),
    member="asset",
    under="assetIds",
    members_max=ASSETS_LISTED_MAX,
    fields={"show": _ext("showCategoryId"), "season": _ext("seasonCategoryId")},
)

BY_HIERARCHY = Index(
    Template(
        "path.hierarchy{path}|{state:IN_PROGRESS|COMPLETED}|{asset}", escape=PARTS, path=Path()
    ),
    each={"path": FromAttribute("ext", lambda ext: whole_prefixes(hierarchy(ext)))},
)

BY_SPORT = Index(
    Template("path.sport{path}|{state:IN_PROGRESS|COMPLETED}|{asset}", escape=PARTS, path=Path()),
    each={"path": FromAttribute("ext", lambda ext: whole_prefixes(sport(ext)))},
)

NEWEST = Index(
    Template("newest|{at:-013d}|{asset}|{state:IN_PROGRESS|COMPLETED}", escape=PARTS),
    fields={"at": moment_of},
)

ENTRIES = RecordCount("entries")

ENTRY = Record(
    HistoryEntry,
    Template("{state:IN_PROGRESS|COMPLETED}|{asset}", escape=PARTS),
    ASSETS_IN_STATE,
    ASSETS_OF_TEAM,
    ASSETS_IN_SEASON,
    BY_HIERARCHY,
    BY_SPORT,
    NEWEST,
    ENTRIES,
    name="entry",
    fields={"state": "attr.state", "asset": "attr.asset_id"},
    computed={"attr": with_percentage},
    timestamps=("attr.update_time", "m.timestamps"),
    times=MILLISECONDS,
    unknown="keep",
)

_BESIDE_STATES: tuple[Declared, ...] = (
    ENTRY,
    ASSETS_OF_TEAM,
    ASSETS_IN_SEASON,
    BY_HIERARCHY,
    BY_SPORT,
    NEWEST,
    ENTRIES,
)

SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "history",
        ENTRY,
        space=Space("a profile", segment=ProfileName()),
        doc="Assets watched by a profile, with progress, by show, season, sport, series and team.",
        # Keys that start with a field are scanned from the first row; both asset lists are paths.
        overlaps=(
            *((ENTRY, row) for row in ENTRY.derived),
            *((ASSETS_IN_STATE, row) for row in _BESIDE_STATES),
            (ASSETS_OF_TEAM, ASSETS_IN_SEASON),
            (ASSETS_IN_SEASON, ASSETS_OF_TEAM),
        ),
    ),
)
