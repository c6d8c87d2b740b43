"""Requests and responses of the HTTP API, from which its OpenAPI document is made."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse_streamkit.configs import FORCED, Operation
from keyhouse_streamkit.limits import (
    BATCH_OPERATIONS_MAX,
    SCENE_NAME_CHARS_MAX,
    TOP_SCENES_MAX,
)
from keyhouse_streamkit.schema import Layout, Note, Swap, TextCycler

Type = Annotated[Literal["text-cyclers", "swaps", "layouts", "notes"], Meta(examples=["notes"])]

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "text-cyclers": {
        "id": "config1",
        "name": "My Text Cycler",
        "textLines": ["Line 1", "Line 2", "Line 3"],
        "cycleDuration": 5000,
        "transition": "fade",
        "transDuration": 300,
        "styles": {"fontSize": "24px", "color": "#ffffff"},
        "mode": "browser",
    },
    "notes": {
        "id": "note1",
        "title": "Stream Ideas",
        "content": "1. Play new game\n2. Chat with viewers",
    },
}

_TIMES: Final = {"createdAt": "2026-01-18T12:00:00.000Z", "updatedAt": "2026-01-18T12:00:00.000Z"}

CONFIG_EXAMPLE: Final = EXAMPLES["notes"] | _TIMES


def _schemas(*, stored: bool) -> dict[str, Any]:
    """Return the JSON Schema of the four types of config, as sent or as stored. Unknown members are
    allowed."""
    kinds = (TextCycler, Swap, Layout, Note)
    _, components = msgspec.json.schema_components(kinds, ref_template="{name}")
    options = []
    for kind in kinds:
        schema = dict(components[kind.__name__])
        properties = {name: part for name, part in schema["properties"].items() if name != "extra"}
        for name in ("createdAt", "updatedAt"):
            properties[name] = {"type": "string", "format": "date-time", "readOnly": True}
        required = [name for name in schema["required"] if stored or name != "id"]
        required += ["createdAt", "updatedAt"] if stored else []
        options.append({**schema, "properties": properties, "required": required})
    return {"anyOf": options}


Config = Annotated[
    dict[str, Any],
    Meta(
        description=(
            f"A config of the path's type. {', '.join(sorted(FORCED - {'id'}))} are ignored."
        ),
        extra_json_schema=_schemas(stored=False),
    ),
]
ConfigJson = Annotated[
    msgspec.Raw,
    Meta(
        description="A config as stored.",
        extra_json_schema={"type": "object", **_schemas(stored=True)},
    ),
]


class ListQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX, description="Maximum number of items.")] = (
        PAGE_ROWS_MAX
    )
    cursor: Annotated[str | None, Meta(description="Cursor of the previous page.")] = None
    since: Annotated[
        str | None,
        Meta(
            description="Only configs with this `updatedAt` or a later one.",
            examples=["2026-01-18T12:00:00.000Z"],
        ),
    ] = None
    fields: Annotated[
        Literal["ids"] | None, Meta(description="`ids`: only the id of each config.")
    ] = None


class TopQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=TOP_SCENES_MAX, description="Maximum number of items.")] = (
        10
    )


class SavedReply(Struct, frozen=True):
    success: bool
    config: ConfigJson


class DeletedReply(Struct, frozen=True):
    """`deleted`: whether the config existed."""

    success: bool
    deleted: bool


class ConfigList(Struct, frozen=True):
    """`count` is of this page. `cursor` is present if more follow."""

    configs: list[Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]]
    count: int
    cursor: str | UnsetType = UNSET


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    operations: Annotated[
        list[Operation],
        Meta(
            min_length=1, max_length=BATCH_OPERATIONS_MAX, description="All are applied, or none."
        ),
    ]


class BatchResult(Struct, frozen=True):
    """Result of one operation."""

    op: Literal["create", "update", "delete"]
    id: str
    config: ConfigJson | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET


class BatchReply(Struct, frozen=True):
    success: bool
    results: list[BatchResult]


class SceneSwitch(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scene_name: Annotated[
        str,
        Meta(min_length=1, max_length=SCENE_NAME_CHARS_MAX, description="The scene switched to."),
    ]


class SceneSwitchReply(Struct, frozen=True, rename="camel"):
    success: bool
    scene_name: str
    count: int
    last_used: str


class SceneCount(Struct, frozen=True, rename="camel"):
    scene_name: str
    count: int
    last_used: str


class TopScenes(Struct, frozen=True):
    """By count, then by last use, descending."""

    scenes: list[SceneCount]
    count: int


class ImportReply(Struct, frozen=True):
    """Entries of the file: written, stored already, and expired."""

    success: bool
    written: int
    unchanged: int
    expired: int


class HealthReply(Struct, frozen=True):
    status: Literal["ok"]
