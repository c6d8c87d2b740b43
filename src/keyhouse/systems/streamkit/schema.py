"""Streamkit's key structure: `cust_{customerId}_streamkit_{category}_{identifier}`, category by category.

The category is literal text in each template, so a key is read by the closed list of categories: `scene_activity` and
identifiers that hold `_` are read right. A customer's id never holds `_streamkit_`, nor ends so that it would with what
follows: that is where it ends in a key, and so customer `12_streamkit_notes` can't fall under customer 12.

A config is typed in what the panel needs to show it, and the rest of the document's members are checked if they are there;
members that are in no document yet are kept as they came, since the panel evolves faster than this page. Nothing is
filled in: what was not sent stays absent.

The keys here are exactly the document's. There is no index by `updatedAt`: a customer has some hundreds of configs, and
reading `since` from a scan of one category keeps foreign rows out of what `wrangler` lists and imports.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from keyhouse.keys import Regex, Template, Text
from keyhouse.schema import MILLISECONDS, Meta, Record, Schema, Space, sliding

__all__ = [
    "CONFIGS",
    "CONFIGS_V2",
    "CONFIG_ID",
    "CUSTOMER",
    "LAYOUT",
    "META",
    "NOTE",
    "NO_IDS",
    "SCENE_ACTIVITY",
    "SCENE_ACTIVITY_SECONDS",
    "SCENE_ACTIVITY_V2",
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
"""Config ids that no URL leads to: clients take them for steps up and down. None is made; one that is stored can be read."""
SCENE_NAME = Text(chars_max=200)

SCENE_ACTIVITY_SECONDS = 30 * 24 * 3_600
"""From the last use: a scene that is not switched to for 30 days is forgotten."""

Number = int | float
T = TypeVar("T")


def _config(type: type[T], at: str, *, name: str) -> Record[T]:
    """A config: the store sets its times, and `extra` holds the members that this code does not know."""
    return Record(
        type,
        Template(at, customer=CUSTOMER, id=CONFIG_ID),
        name=name,
        created="created_at",
        updated="updated_at",
        times=MILLISECONDS,
        unknown="extra",
    )


# 1. Text cycler configs


class TextCycler(Struct, kw_only=True, rename="camel"):
    """Lines of text that a browser source shows in turn."""

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
    TextCycler, "cust_{customer}_streamkit_text-cyclers_{id}", name="text-cyclers"
)

# 2. Swap configs


class Swap(Struct, kw_only=True, rename="camel"):
    """Two sources that change places."""

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


SWAP = _config(Swap, "cust_{customer}_streamkit_swaps_{id}", name="swaps")

# 3. Layout presets


class LayoutSource(Struct, kw_only=True, rename="camel"):
    """Where one source of a layout stands."""

    source_name: str
    position_x: Number | UnsetType = UNSET
    position_y: Number | UnsetType = UNSET
    scale_x: Number | UnsetType = UNSET
    scale_y: Number | UnsetType = UNSET


class Layout(Struct, kw_only=True, rename="camel"):
    """Where the sources of a scene stand. Each of `sources` is a LayoutSource, kept whole with what else it holds."""

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


LAYOUT = _config(Layout, "cust_{customer}_streamkit_layouts_{id}", name="layouts")

# 4. Notes


class Note(Struct, kw_only=True, rename="camel"):
    """Text for the streamer's own eyes."""

    id: str
    title: str
    content: str
    created_at: str = ""
    updated_at: str = ""
    extra: dict[str, Any] = {}


NOTE = _config(Note, "cust_{customer}_streamkit_notes_{id}", name="notes")

# 5. Scene activity tracking


class SceneActivity(Struct, kw_only=True, rename="camel"):
    """How often a scene was switched to, and when last. Each write is a use: the store sets `lastUsed`."""

    scene_name: str
    count: int
    last_used: str = ""


def _scene_activity(at: str, *, name: str) -> Record[SceneActivity]:
    return Record(
        SceneActivity,
        Template(at, customer=CUSTOMER, scene_name=SCENE_NAME),
        name=name,
        updated="last_used",
        times=MILLISECONDS,
        expiry=sliding(SCENE_ACTIVITY_SECONDS),
    )


SCENE_ACTIVITY = _scene_activity(
    "cust_{customer}_streamkit_scene_activity_{scene_name}", name="scene_activity"
)

CONFIGS: dict[str, Record[Any]] = {
    record.name: record for record in (TEXT_CYCLER, SWAP, LAYOUT, NOTE)
}
"""The configs by their category: the `{type}` of `GET /configs/{type}`."""

# Key migration: the same records at versioned keys, which reads try first. See `migration`.

CONFIGS_V2: dict[str, Record[Any]] = {
    "text-cyclers": _config(
        TextCycler, "cust_{customer}_streamkit_v2_text-cyclers_{id}", name="v2_text-cyclers"
    ),
    "swaps": _config(Swap, "cust_{customer}_streamkit_v2_swaps_{id}", name="v2_swaps"),
    "layouts": _config(Layout, "cust_{customer}_streamkit_v2_layouts_{id}", name="v2_layouts"),
    "notes": _config(Note, "cust_{customer}_streamkit_v2_notes_{id}", name="v2_notes"),
}
SCENE_ACTIVITY_V2 = _scene_activity(
    "cust_{customer}_streamkit_v2_scene_activity_{scene_name}", name="v2_scene_activity"
)

META = Meta(
    version="cust_{customer}_streamkit_meta_version",
    done="cust_{customer}_streamkit_meta_migration_{id:06d}",
    job="cust_{customer}_streamkit_meta_job_{name}",
    customer=CUSTOMER,
)
"""How far a customer's key migration has come. These rows are there while it runs, and are in no export."""

SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "streamkit",
        *CONFIGS.values(),
        SCENE_ACTIVITY,
        *CONFIGS_V2.values(),
        SCENE_ACTIVITY_V2,
        space=Space("a customer", field="customer", segment=CUSTOMER),
        meta=META,
        doc="Configurations and scene activity of an OBS control panel.",
    ),
)
