"""The replies of a served schema, as both protocols send them."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.errors import error_urn
from keyhouse.operations.catalog import ServedRecord
from keyhouse.schema import MILLISECONDS
from keyhouse.store import Entry, Event, UnreadableRow

__all__ = [
    "ClearedRecords",
    "CounterValue",
    "DeletedRecord",
    "FoundItems",
    "ListedKeys",
    "NewItem",
    "ServedItem",
    "ServedPage",
    "SummaryMembers",
    "UnreadableItem",
    "item_of",
    "unreadable_item",
]


class ServedItem(msgspec.Struct, omit_defaults=True):
    """A record as it is sent. `value` is left out for a caller that may not read."""

    key: str
    fields: dict[str, Any]
    revision: int
    expires_at: str | None
    value: Any = UNSET


class NewItem(ServedItem, omit_defaults=True):
    """A record that did not exist before."""


class UnreadableItem(msgspec.Struct):
    """A row that was left out, since it does not decode. `type` and `detail` are as in a problem:
    the log has the reason."""

    key: str
    revision: int
    type: str
    detail: str


class ServedPage(msgspec.Struct):
    """Some items, each a `ServedItem` as JSON. A watch since `revision` misses nothing; `cursor` is
    that of the next page. `unreadable` are the rows of the page that do not decode."""

    items: list[msgspec.Raw]
    revision: int
    cursor: str | UnsetType
    unreadable: list[UnreadableItem] | UnsetType = UNSET


class FoundItems(msgspec.Struct):
    """The items of some addresses, in their order; null where there is none, and where the row does
    not decode: then `unreadable` has it."""

    items: list[Any]
    unreadable: list[UnreadableItem] | UnsetType = UNSET


class ListedKeys(msgspec.Struct):
    """Some keys; `cursor` is that of the next page."""

    keys: list[str]
    cursor: str | UnsetType = UNSET


class CounterValue(msgspec.Struct):
    value: int | UnsetType = UNSET


class SummaryMembers(msgspec.Struct):
    """The members that a summary row lists, each with its entry; null in a plain list."""

    members: dict[str, Any]


class DeletedRecord(msgspec.Struct):
    """The reply to a delete: whether the record existed."""

    deleted: bool


class ClearedRecords(msgspec.Struct):
    """The number of records that were deleted, and whether more are left: repeat the request."""

    deleted: int
    more: bool


def unreadable_item(unreadable: UnreadableRow, key: str | None = None) -> UnreadableItem:
    """Return a row that does not decode as it is sent. `key` is shown in place of the row's."""
    row, error = unreadable.row, unreadable.error
    return UnreadableItem(
        row.key if key is None else key, row.revision, error_urn(error), error.sentence
    )


def item_of(
    served: ServedRecord,
    entry: Entry[Any] | Event[Any],
    revision: int | None = None,
    kind: type[ServedItem] = ServedItem,
) -> ServedItem:
    """Return an entry as it is sent; `revision` is that of its commit. The event of a record that
    is gone has no value."""
    expires = entry.expires
    return kind(
        entry.key,
        dict(zip(served.fields, entry.values)),  # noqa: B905  # both are those of its key
        entry.revision if revision is None else revision,
        None if expires is None else MILLISECONDS.format(expires),
        UNSET
        if type(entry) is Event and entry.gone
        else entry.record
        if served.is_shown_whole
        else served.record.shown(entry.record, entry.stored),
    )
