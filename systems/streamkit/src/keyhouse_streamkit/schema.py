"""Streamkit's key structure: `cust_{customerId}_streamkit_{category}_{identifier}`, category by
category.

The category is literal text in each template, so keys are parsed by the closed list of categories:
`scene_activity` and identifiers with `_` parse correctly. A customer's id never contains
`_streamkit_`, nor a suffix that would form it with the text after it, so customer
`12_streamkit_notes` cannot fall under customer 12.

Key migration: each record is declared at its v2 key, with the document's v1 key as its legacy key.
A record is read at either, and a new one is written at v1, unless a store or the setting `keys`
says otherwise.

The members of a config that the panel needs are required, and the document's other members are
checked if present. Unknown members are stored as sent, since the panel evolves faster than this
page. No default is filled in: a member that was not sent stays absent.

The keys are exactly the document's. There is no index by `updatedAt`: a customer has some hundreds
of configs, and a scan of one category for `since` keeps index rows out of what `wrangler` lists and
imports.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from keyhouse.keys import Regex, Template, TextSegment
from keyhouse.schema import MILLISECONDS, Meta, Record, Schema, Space, sliding

__all__ = [
    "CONFIGS",
    "CONFIG_ID",
    "CUSTOMER",
    "LAYOUT",
    "META",
    "NOTE",
    "NO_IDS",
    "RECORDS",
    "SCENE_ACTIVITY",
    "SCENE_ACTIVITY_SECONDS",
    "SCENE_NAME",
    "SCHEMAS",
    "SWAP",
    "TEXT_CYCLER",
    "Layout",
    "LayoutSource",
    "Note",
    "Number",
    "SceneActivity",
    "Swap",
    "TextCycler",
]

CUSTOMER = Regex(
    "[A-Za-z0-9_-]{1,64}",
    without=("_streamkit_",),
    requirement="must be 1 to 64 of A-Z, a-z, 0-9, _ and -",
)
CONFIG_ID = Regex(
    "[A-Za-z0-9._~-]{1,100}", requirement="must be 1 to 100 of A-Z, a-z, 0-9, '.', _, ~ and -"
)
NO_IDS = frozenset({".", ".."})
"""Config ids that no URL can address, because clients resolve them as relative paths. They are
never created; a stored one can be read."""
SCENE_NAME = TextSegment(chars_max=200)

SCENE_ACTIVITY_SECONDS = 30 * 24 * 3_600
"""Time after its last use at which a scene expires: 30 days."""

Number = int | float
T = TypeVar("T")


def _config(type: type[T], at: str, *, name: str, legacy_at: str) -> Record[T]:
    """A config. The store sets its times; `extra` holds members that this code does not know."""
    return Record(
        type,
        Template(at, customer=CUSTOMER, id=CONFIG_ID),
        legacy_at=Template(legacy_at, customer=CUSTOMER, id=CONFIG_ID),
        name=name,
        created="created_at",
        updated="updated_at",
        times=MILLISECONDS,
        unknown="extra",
    )


# 1. Text cycler configs


class TextCycler(Struct, kw_only=True, rename="camel"):
    """Lines of text that a browser source cycles through."""

    id: str
    name: str
    text_lines: list[str]
    cycle_duration: Number | UnsetType = UNSET
    transition: str | UnsetType = UNSET
    trans_duration: Number | UnsetType = UNSET
    styles: dict[str, Any] | UnsetType = UNSET
    mode: Literal["browser", "legacy"] | UnsetType = UNSET
    created_at: str = ""
    updated_at: str = ""
    extra: dict[str, Any] = {}


TEXT_CYCLER = _config(
    TextCycler,
    "cust_{customer}_streamkit_v2_text-cyclers_{id}",
    name="text-cyclers",
    legacy_at="cust_{customer}_streamkit_text-cyclers_{id}",
)

# 2. Swap configs


class Swap(Struct, kw_only=True, rename="camel"):
    """Two sources that swap places."""

    id: str
    name: str
    source_a: str
    source_b: str
    style: str | UnsetType = UNSET
    duration: Number | UnsetType = UNSET
    easing: str | UnsetType = UNSET
    preserve_aspect: bool | UnsetType = UNSET
    created_at: str = ""
    updated_at: str = ""
    extra: dict[str, Any] = {}


SWAP = _config(
    Swap,
    "cust_{customer}_streamkit_v2_swaps_{id}",
    name="swaps",
    legacy_at="cust_{customer}_streamkit_swaps_{id}",
)

# 3. Layout presets


class LayoutSource(Struct, kw_only=True, rename="camel"):
    """Position and scale of one source in a layout."""

    source_name: str
    position_x: Number | UnsetType = UNSET
    position_y: Number | UnsetType = UNSET
    scale_x: Number | UnsetType = UNSET
    scale_y: Number | UnsetType = UNSET


class Layout(Struct, kw_only=True, rename="camel"):
    """Positions of a scene's sources. Each of `sources` is a LayoutSource, stored with its unknown
    members."""

    id: str
    name: str
    scene: str
    sources: list[dict[str, Any]]
    timestamp: str | UnsetType = UNSET
    created_at: str = ""
    updated_at: str = ""
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        try:
            msgspec.convert(self.sources, list[LayoutSource])
        except msgspec.ValidationError as error:
            raise ValueError(f"sources: {error}") from None


LAYOUT = _config(
    Layout,
    "cust_{customer}_streamkit_v2_layouts_{id}",
    name="layouts",
    legacy_at="cust_{customer}_streamkit_layouts_{id}",
)

# 4. Notes


class Note(Struct, kw_only=True, rename="camel"):
    """A note of the streamer's."""

    id: str
    title: str
    content: str
    created_at: str = ""
    updated_at: str = ""
    extra: dict[str, Any] = {}


NOTE = _config(
    Note,
    "cust_{customer}_streamkit_v2_notes_{id}",
    name="notes",
    legacy_at="cust_{customer}_streamkit_notes_{id}",
)

# 5. Scene activity tracking


class SceneActivity(Struct, kw_only=True, rename="camel"):
    """Number of switches to a scene, and the last one. Each write is a use: the store sets
    `lastUsed`."""

    scene_name: str
    count: int
    last_used: str = ""


SCENE_ACTIVITY = Record(
    SceneActivity,
    Template(
        "cust_{customer}_streamkit_v2_scene_activity_{scene_name}",
        customer=CUSTOMER,
        scene_name=SCENE_NAME,
    ),
    legacy_at=Template(
        "cust_{customer}_streamkit_scene_activity_{scene_name}",
        customer=CUSTOMER,
        scene_name=SCENE_NAME,
    ),
    name="scene_activity",
    updated="last_used",
    times=MILLISECONDS,
    expiry=sliding(SCENE_ACTIVITY_SECONDS),
)

CONFIGS: dict[str, Record[Any]] = {
    record.name: record for record in (TEXT_CYCLER, SWAP, LAYOUT, NOTE)
}
"""Configs by category: the `{type}` of `GET /configs/{type}`."""

RECORDS: dict[str, Record[Any]] = CONFIGS | {SCENE_ACTIVITY.name: SCENE_ACTIVITY}
"""All records by category."""

META = Meta(
    version="cust_{customer}_streamkit_meta_version",
    done="cust_{customer}_streamkit_meta_migration_{id:06d}",
    job="cust_{customer}_streamkit_meta_job_{name}",
    customer=CUSTOMER,
)
"""Progress of a customer's key migration. These rows exist while it runs, and are in no export."""

SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "streamkit",
        *CONFIGS.values(),
        SCENE_ACTIVITY,
        space=Space("a customer", field="customer", segment=CUSTOMER),
        meta=META,
        doc="Configurations and scene activity of an OBS control panel.",
        writes_legacy_keys=True,
    ),
)
