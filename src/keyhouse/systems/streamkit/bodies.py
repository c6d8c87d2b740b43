"""What the HTTP face takes and gives, as types: the OpenAPI document is made from them."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.systems.streamkit.configs import FORCED, Operation
from keyhouse.systems.streamkit.limits import (
    BATCH_OPERATIONS_MAX,
    SCENE_NAME_CHARS_MAX,
    TOP_SCENES_MAX,
)
from keyhouse.systems.streamkit.schema import Layout, Note, Swap, TextCycler

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
    """The four types of config, as they are sent or as they are stored. Further members are allowed, and kept."""
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
        description=f"A config of the path's type. What is sent as {', '.join(sorted(FORCED - {'id'}))} is ignored.",
        extra_json_schema=_schemas(stored=False),
    ),
]
StoredConfig = Annotated[
    msgspec.Raw,
    Meta(
        description="A config as it is stored.",
        extra_json_schema={"type": "object", **_schemas(stored=True)},
    ),
]


class ListQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX, description="How many at most.")] = (
        PAGE_ROWS_MAX
    )
    cursor: Annotated[
        str | None, Meta(description="What the page before gave, for what follows.")
    ] = None
    since: Annotated[
        str | None,
        Meta(
            description="Only what has this `updatedAt` or a later one.",
            examples=["2026-01-18T12:00:00.000Z"],
        ),
    ] = None
    fields: Annotated[
        Literal["ids"] | None, Meta(description="`ids`: of each config only its id.")
    ] = None


class TopQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=TOP_SCENES_MAX, description="How many at most.")] = 10


class Saved(Struct, frozen=True):
    success: bool
    config: StoredConfig


class Deleted(Struct, frozen=True):
    """`deleted`: whether there was one."""

    success: bool
    deleted: bool


class Listing(Struct, frozen=True):
    """`count` is of this page. `cursor` is there when something follows."""

    configs: list[Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]]
    count: int
    cursor: str | UnsetType = UNSET


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    operations: Annotated[
        list[Operation],
        Meta(min_length=1, max_length=BATCH_OPERATIONS_MAX, description="All are done, or none."),
    ]


class Outcome(Struct, frozen=True):
    """What became of one operation."""

    op: Literal["create", "update", "delete"]
    id: str
    config: StoredConfig | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET


class Outcomes(Struct, frozen=True):
    success: bool
    results: list[Outcome]


class Switch(Struct, frozen=True, rename="camel"):
    scene_name: Annotated[
        str,
        Meta(min_length=1, max_length=SCENE_NAME_CHARS_MAX, description="The scene switched to."),
    ]


class Switched(Struct, frozen=True, rename="camel"):
    success: bool
    scene_name: str
    count: int
    last_used: str


class Scene(Struct, frozen=True, rename="camel"):
    scene_name: str
    count: int
    last_used: str


class Top(Struct, frozen=True):
    """By count, then by last use, the greatest first."""

    scenes: list[Scene]
    count: int


class ImportedReply(Struct, frozen=True):
    """Entries of the file that were written, that were there already, and that had expired."""

    success: bool
    written: int
    unchanged: int
    expired: int


class Health(Struct, frozen=True):
    status: Literal["ok"]
