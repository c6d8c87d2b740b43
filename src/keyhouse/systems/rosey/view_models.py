"""Queries and responses of the operator's view, from which its OpenAPI document is made."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.service.statistics import OperationStats, QuotaView, RateView
from keyhouse.systems.rosey.limits import KEYS_PAGE_MAX, PLUGINS_PAGE_MAX

PluginName = Annotated[str, Meta(pattern="^[a-z0-9_-]{1,100}$", examples=["trivia"])]
Time = Annotated[str, Meta(examples=["2026-01-18T12:00:00.000Z"])]
Value = Annotated[msgspec.Raw, Meta(extra_json_schema={"description": "Any JSON."})]


class PluginsQuery(Struct, forbid_unknown_fields=True):
    limit: Annotated[
        int, Meta(ge=1, le=PLUGINS_PAGE_MAX, description="Maximum number of items.")
    ] = 100
    cursor: Annotated[str | None, Meta(description="Cursor of the previous page.")] = None


class PluginQuery(Struct, forbid_unknown_fields=True):
    count: Annotated[
        Literal["known", "now"],
        Meta(description="`now`: count by reading all rows; `known`: the last count."),
    ] = "known"


class KeysQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(description="Literal prefix of the keys.")] = ""
    limit: Annotated[int, Meta(ge=1, le=KEYS_PAGE_MAX, description="Maximum number of items.")] = (
        100
    )
    cursor: Annotated[str | None, Meta(description="Cursor of the previous page.")] = None
    fields: Annotated[
        Literal["all", "keys"],
        Meta(description="`keys`: without sizes, revisions and expiries, which is cheaper."),
    ] = "all"


class ValueQuery(Struct, forbid_unknown_fields=True):
    key: Annotated[
        str, Meta(description="The whole key.", min_length=1, max_length=255, examples=["theme"])
    ]


class PluginSummary(Struct):
    plugin: str
    keys: int | None
    bytes: int | None
    operations: int
    errors: int


class PluginList(Struct):
    """`counted_at`: time of the last count of keys and bytes; `null` if there was none."""

    plugins: list[PluginSummary]
    truncated: bool
    counted_at: Time | None
    cursor: str | UnsetType = UNSET


class PluginDetails(Struct):
    plugin: str
    keys: int | None
    bytes: int | None
    counted_at: Time | None
    quota: QuotaView
    rate: RateView | None
    operations: dict[str, OperationStats]
    errors: dict[str, int]


class KeySummary(Struct):
    """`bytes`: size of the stored value."""

    key: str
    bytes: int | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    expires_at: Time | UnsetType | None = UNSET


class KeyList(Struct):
    keys: list[KeySummary]
    truncated: bool
    cursor: str | UnsetType = UNSET


class ValueView(Struct):
    """A stored value that is not JSON is shown as text in `unreadable`, and `value` is `null`."""

    key: str
    value: Value
    bytes: int
    revision: int
    expires_at: Time | None
    unreadable: str | UnsetType = UNSET
