"""Records for a response of limited size: rows that exceed the size of a step are not decoded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from keyhouse.schema import Index, Record
from keyhouse.store.entry import Entry, RecordPage
from keyhouse.store.reads.long_read import LongRead
from keyhouse.store.reads.record_pages import records, records_by
from keyhouse.store.reads.record_reader import record_entries
from keyhouse.store.reads.record_reads import Between, RecordReads, scan_of
from keyhouse.store.reads.unreadable import OnUnreadable

__all__ = ["first_entries", "page_within", "record_keys"]

T = TypeVar("T")


async def page_within(
    store: RecordReads,
    step: LongRead,
    record: Record[T],
    /,
    *,
    by: Index | None = None,
    limit: int,
    cursor: str | None = None,
    reverse: bool = False,
    prefix: str | None = None,
    between: Between | None = None,
    unreadable: OnUnreadable = "raise",
    **fields: Any,
) -> RecordPage[T]:
    """Return a page as `Store.page` does, of no more rows and bytes than the step allows. It may be
    shorter than `limit`: its cursor continues after it."""
    rows = min(limit, step.rows)
    narrowed: dict[str, Any] = {"prefix": prefix, "between": between, "reverse": reverse}
    if by is None:
        bound = store.binding.record(record)
        scan = scan_of(store, bound, fields, **narrowed)
        return await records(scan, bound, rows, cursor, unreadable, step)
    bound, index = store.binding.index(record, by)
    scan = scan_of(store, index, fields, **narrowed)
    return await records_by(scan, bound, index, rows, cursor, unreadable, step)


def record_keys(
    store: RecordReads, record: Record[Any], addresses: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return the keys of the records at these addresses. Raises KeyFieldError if one is invalid."""
    build = store.binding.record(record).template.build
    return [build(fields) for fields in addresses]


async def first_entries(
    store: RecordReads,
    step: LongRead,
    record: Record[T],
    keys: Sequence[str],
    /,
    *,
    unreadable: OnUnreadable = "raise",
) -> list[Entry[T] | None]:
    """Return the entries at the first of these keys, one at least, as `Store.entries` does: of as
    many as the step allows."""
    bound = store.binding.record(record)
    return await record_entries(store.engine, store.space, bound, keys, unreadable, step)
