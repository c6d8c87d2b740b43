"""The verbs that read. Each works in one space, on declarations of the catalog, and returns the
reply of both protocols."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET, to_builtins

from keyhouse.errors import NotFoundError, UsageError
from keyhouse.operations.catalog import Fields, ServedDerived, ServedRecord
from keyhouse.operations.limits import (
    SERVED_PAGE_BYTES_MAX,
    SERVED_PAGE_ITEMS_MAX,
    SERVED_PAGE_KEYS_MAX,
)
from keyhouse.operations.omitted_rows import OmittedRows
from keyhouse.operations.page_filters import no_index, page_arguments
from keyhouse.operations.replies import (
    CounterValue,
    FoundItems,
    ListedKeys,
    ServedItem,
    ServedPage,
    SummaryMembers,
    item_of,
)
from keyhouse.operations.requests import PAGE_ITEMS, OnUnreadableItem, Order
from keyhouse.operations.space import ServedSpace
from keyhouse.schema import RecordCount, Summary, Unique
from keyhouse.store import (
    Entry,
    OnUnreadable,
    RecordPage,
    first_entries,
    page_within,
    record_keys,
)
from keyhouse.store.reads.long_read import LongRead

__all__ = [
    "absent",
    "count",
    "get",
    "get_many",
    "keys",
    "lookup",
    "members",
    "page",
    "record_count",
    "sum_of_days",
]


async def get(space: ServedSpace, served: ServedRecord, fields: Fields) -> ServedItem:
    if not space.state.is_readable:
        await space.state.check_read()
    entry = await space.store.entry(served.record, **fields)
    if entry is None:
        raise absent(served, fields)
    return item_of(served, entry)


async def get_many(
    space: ServedSpace,
    served: ServedRecord,
    addresses: Sequence[Mapping[str, Any]],
    *,
    unreadable: OnUnreadableItem = "raise",
    bytes_max: int = SERVED_PAGE_BYTES_MAX,
) -> FoundItems:
    """Return the records at these addresses, or the values of counters, in their order; null where
    there is none. Large ones are cut as a page is: the items are those of the first addresses."""
    if not 1 <= len(addresses) <= SERVED_PAGE_ITEMS_MAX:
        raise UsageError(
            "The number of addresses is out of range.",
            given=len(addresses),
            most=SERVED_PAGE_ITEMS_MAX,
        )
    if not space.state.is_readable:
        await space.state.check_read()
    asked = [served.of_json(fields) for fields in addresses]
    if served.kind == "counter":
        numbers = await space.store.get_many(served.record, asked)
        space.report_read(len(numbers), 0)
        return FoundItems([CounterValue(number or 0) for number in numbers])

    omitted = OmittedRows()
    on_unreadable: OnUnreadable = "raise" if unreadable == "raise" else omitted.add

    def read(step: LongRead, keys: Sequence[str]) -> Awaitable[list[Entry[Any] | None]]:
        return first_entries(space.store, step, served.record, keys, unreadable=on_unreadable)

    keys = record_keys(space.store, served.record, asked)
    item = partial(item_of, served)
    items = await space.pages.read_each(served.name, read, item, keys, bytes_max)
    if omitted:
        await space.state.check_newer()
    return FoundItems(items, omitted.items("get_many", space))


async def lookup(
    space: ServedSpace, served: ServedRecord, by: ServedDerived[Unique], fields: Fields
) -> ServedItem:
    """Return the record that a unique row leads to."""
    await _check_row(space, served, by)
    entry = await space.store.lookup(served.record, by.row, **fields)
    if entry is None:
        pairs = zip(by.row.template.fields, by.row.template.segments, strict=True)
        shown = {name: fields[name] for name, segment in pairs if not segment.innermost.is_hashed}
        raise absent(served, shown)
    return item_of(served, entry)


async def page(
    space: ServedSpace,
    served: ServedRecord,
    filters: Mapping[str, Any],
    *,
    by: str | None = None,
    order: Order = "asc",
    limit: int = PAGE_ITEMS,
    cursor: str | None = None,
    bytes_max: int = SERVED_PAGE_BYTES_MAX,
) -> ServedPage:
    """Return some records: leading fields by equality, the next one by range or prefix.

    `filters` has text or JSON for each parameter: `minutes`, `minutes.from`, `minutes.to`,
    `title.prefix`.
    """
    if not 1 <= limit <= SERVED_PAGE_ITEMS_MAX:
        raise UsageError(
            "The limit of a page is out of range.", limit=limit, most=SERVED_PAGE_ITEMS_MAX
        )
    if by is not None and by not in served.indexes:
        raise no_index(served, by=by)
    index = None if by is None else served.indexes[by]
    await _check_row(space, served, index)
    arguments = page_arguments(served, index, filters)
    omitted = OmittedRows(index)

    def read(step: LongRead, limit: int, cursor: str | None) -> Awaitable[RecordPage[Any]]:
        return page_within(
            space.store,
            step,
            served.record,
            by=None if index is None else index.row,
            limit=limit,
            cursor=cursor,
            reverse=order == "desc",
            unreadable=omitted.add,
            **arguments,
        )

    items, revision, more = await space.pages.read(
        served.name, read, partial(item_of, served), limit, cursor, bytes_max
    )
    if omitted:  # they may be rows of newer code
        await space.state.check_newer()
    left_out = omitted.items("list", space)
    return ServedPage(items, revision, UNSET if more is None else more, left_out)


async def keys(
    space: ServedSpace,
    served: ServedRecord,
    filters: Mapping[str, Any],
    *,
    by: str | None = None,
    order: Order = "asc",
    limit: int = PAGE_ITEMS,
    cursor: str | None = None,
) -> ListedKeys:
    """Return some keys of a record or of a derived row, without values. See `page`."""
    if not 1 <= limit <= SERVED_PAGE_KEYS_MAX:
        raise UsageError("A page has 1 to 1,000 keys.", limit=limit, most=SERVED_PAGE_KEYS_MAX)
    if by is not None and by not in served.derived:
        raise no_index(served, by=by)
    row = None if by is None else served.derived[by]
    await _check_row(space, served, row)
    listed, following = await space.store.keys(
        served.record if row is None else row.row,
        limit=limit,
        cursor=cursor,
        reverse=order == "desc",
        **page_arguments(served, row, filters),
    )
    space.report_read(len(listed), sum(map(len, listed)))
    return ListedKeys(listed, UNSET if following is None else following)


async def record_count(
    space: ServedSpace, served: ServedRecord, by: ServedDerived[RecordCount], fields: Fields
) -> CounterValue:
    """Return the number of records that a count row holds."""
    await _check_row(space, served, by)
    return CounterValue(await space.store.record_count(by.row, **fields))


async def members(
    space: ServedSpace, served: ServedRecord, by: ServedDerived[Summary], fields: Fields
) -> SummaryMembers:
    """Return the members that a summary row lists."""
    await _check_row(space, served, by)
    return SummaryMembers(await space.store.members(by.row, **fields))


async def count(space: ServedSpace, served: ServedRecord, fields: Fields) -> CounterValue:
    """Return the value of a counter."""
    if not space.state.is_readable:
        await space.state.check_read()
    return CounterValue(await space.store.get(served.record, **fields) or 0)


async def sum_of_days(
    space: ServedSpace, served: ServedRecord, fields: Fields, *, days: int
) -> CounterValue:
    """Return the sum of a counter by day over the last days, with today."""
    if not space.state.is_readable:
        await space.state.check_read()
    counter: Any = served.record
    return CounterValue(await space.store.sum_of_days(counter, days, **fields))


async def _check_row(
    space: ServedSpace, served: ServedRecord, by: ServedDerived[Any] | None
) -> None:
    """Raise AccessError for rows that show private members, and PreparingError while a list would
    lack records."""
    if by is not None:
        served.check_shown(by)
    if not space.state.is_readable:
        await space.state.check_read()
    if by is not None and not space.state.is_complete:
        await space.state.check_index(served.record, by.row)


def absent(served: ServedRecord, fields: Fields) -> NotFoundError:
    address = [to_builtins(value) for value in fields.values()]
    return NotFoundError("There is no such record.", record=served.name, address=address)
