"""The requests of a served schema: parameters of a query, bodies, and the one body of NATS."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType

from keyhouse.operations.limits import (
    IDEMPOTENCY_KEY_CHARS_MAX,
    SERVED_PAGE_ITEMS_MAX,
    SERVED_PAGE_KEYS_MAX,
)
from keyhouse.schema.counter import DAYS_MAX

__all__ = [
    "DAYS",
    "KEY_PAGING",
    "PAGE_ITEMS",
    "PAGING",
    "TTL",
    "IdempotencyKey",
    "Increment",
    "OnUnreadableItem",
    "Order",
    "Parameter",
    "RecordAddresses",
    "SchemaRequest",
]

PAGE_ITEMS: Final = 50
"""Items of a page, by default."""

Order = Literal["asc", "desc"]
OnUnreadableItem = Literal["raise", "skip"]
"""A record that does not decode is an error of the request, or is left out and named."""

IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARS_MAX)]

Parameter = tuple[str, Any, Any]
"""A parameter of a query: its name, type and default."""

_ORDER: Final[Parameter] = ("order", Order, "asc")
_CURSOR: Final[Parameter] = ("cursor", str | None, None)
_LIMIT: Final = Annotated[int, Meta(ge=1, le=SERVED_PAGE_ITEMS_MAX)]
_KEY_LIMIT: Final = Annotated[int, Meta(ge=1, le=SERVED_PAGE_KEYS_MAX)]
PAGING: Final[tuple[Parameter, ...]] = (_ORDER, ("limit", _LIMIT, PAGE_ITEMS), _CURSOR)
KEY_PAGING: Final[tuple[Parameter, ...]] = (_ORDER, ("limit", _KEY_LIMIT, PAGE_ITEMS), _CURSOR)
DAYS: Final[tuple[Parameter, ...]] = (("days", Annotated[int, Meta(ge=1, le=DAYS_MAX)], NODEFAULT),)
TTL: Final[tuple[Parameter, ...]] = (("ttl", float | None, None),)


class RecordAddresses(msgspec.Struct, forbid_unknown_fields=True):
    """The key fields of some records. A record that does not decode is an error, or with `skip` a
    null."""

    addresses: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=SERVED_PAGE_ITEMS_MAX)]
    unreadable: OnUnreadableItem = "raise"


class Increment(msgspec.Struct, forbid_unknown_fields=True):
    by: int


class SchemaRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request over NATS. `fields` is the address, or the filters of a list.

    `expect` is the revision that a record must be at to be written; null: it must not exist.
    """

    record: str | UnsetType = UNSET
    counter: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    fields: dict[str, Any] = {}
    value: Any = UNSET
    by: int | str | UnsetType = UNSET
    order: Order = "asc"
    limit: int = PAGE_ITEMS
    days: int | UnsetType = UNSET
    addresses: list[dict[str, Any]] | UnsetType = UNSET
    unreadable: OnUnreadableItem = "raise"
    cursor: str | None = None
    expect: int | UnsetType | None = UNSET
    ttl: float | None = None
    idempotency_key: IdempotencyKey | None = None
    operations: list[msgspec.Raw] | UnsetType = UNSET
    since: int | None = None
    subject: str | UnsetType = UNSET
    stop: bool = False
