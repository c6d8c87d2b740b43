"""What an operator is shown of plugin storage, as types: the OpenAPI document is made from them."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.systems.rosey.limits import KEYS_PAGE_MAX, PLUGINS_PAGE_MAX

PluginName = Annotated[str, Meta(pattern="^[a-z0-9_-]{1,100}$", examples=["trivia"])]
Time = Annotated[str, Meta(examples=["2026-01-18T12:00:00.000Z"])]
Value = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON."})]


class PluginsQuery(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=PLUGINS_PAGE_MAX, description="How many at most.")] = 100
    cursor: Annotated[str | None, Meta(description="As the page before gave it.")] = None


class PluginQuery(Struct, forbid_unknown_fields=True):
    count: Annotated[
        Literal["known", "now"],
        Meta(
            description="`now`: count what it keeps, which reads all of it; `known`: as it was last counted."
        ),
    ] = "known"


class KeysQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(description="How the keys begin, literally.")] = ""
    limit: Annotated[int, Meta(ge=1, le=KEYS_PAGE_MAX, description="How many at most.")] = 100
    cursor: Annotated[str | None, Meta(description="As the page before gave it.")] = None
    fields: Annotated[
        Literal["all", "keys"],
        Meta(description="`keys`: without sizes, revisions and times, which is cheaper."),
    ] = "all"


class ValueQuery(Struct, forbid_unknown_fields=True):
    key: Annotated[
        str, Meta(description="The whole key.", min_length=1, max_length=255, examples=["theme"])
    ]


class Work(Struct):
    """How often an operation was done in this process, and how long it took."""

    count: int
    mean_ms: float
    p95_ms: Annotated[
        float | None, Meta(description="At most: the end of its step; `null` beyond the last step.")
    ]


class PluginLine(Struct):
    plugin: str
    keys: int | None
    bytes: int | None
    operations: int
    errors: int


class Plugins(Struct):
    """`counted_at` is when keys and bytes were; `null` when they never were."""

    plugins: list[PluginLine]
    truncated: bool
    counted_at: Time | None
    cursor: str | UnsetType = UNSET


class QuotaShown(Struct):
    """`null`: as many as it likes."""

    keys: int | None
    bytes: int | None


class RateShown(Struct):
    """`left` operations are allowed at once now."""

    per_second: float
    burst: int
    left: int


class PluginShown(Struct):
    plugin: str
    keys: int | None
    bytes: int | None
    counted_at: Time | None
    quota: QuotaShown
    rate: RateShown | None
    operations: dict[str, Work]
    errors: dict[str, int]


class KeyLine(Struct):
    """`bytes` is the size of the value as it is stored."""

    key: str
    bytes: int | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    expires_at: Time | UnsetType | None = UNSET


class KeysShown(Struct):
    keys: list[KeyLine]
    truncated: bool
    cursor: str | UnsetType = UNSET


class ValueShown(Struct):
    """A value that somebody has spoiled, which is not JSON, is shown as text in `unreadable`, and `value` is `null`."""

    key: str
    value: Value
    bytes: int
    revision: int
    expires_at: Time | None
    unreadable: str | UnsetType = UNSET


class FiguresShown(Struct):
    """Of this process, since it began."""

    operations: dict[str, Work]
    errors: dict[str, int]
    watches: int
    cleanups: int
    cleaned: Annotated[int, Meta(description="Expired keys that cleanups have removed.")]
    quota: QuotaShown
    rate_per_second: float | None


FIGURES_EXAMPLE: Final[dict[str, Any]] = {
    "operations": {"set": {"count": 4, "mean_ms": 0.31, "p95_ms": 0.5}},
    "errors": {"VALIDATION_ERROR": 1},
    "watches": 0,
    "cleanups": 1,
    "cleaned": 12,
    "quota": {"keys": None, "bytes": None},
    "rate_per_second": None,
}
