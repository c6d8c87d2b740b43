"""Records and rows for a response of limited size: what exceeds it is not decoded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from keyhouse.engine import Page, Row
from keyhouse.schema import Declared, Index, Record
from keyhouse.store.entry import Entry, RecordPage
from keyhouse.store.reads.long_read import LongRead
from keyhouse.store.reads.record_scan import RecordScan
from keyhouse.store.reads.records_by_key import record_entries
from keyhouse.store.reads.scan import Between, BoundSpace, Scan
from keyhouse.store.reads.unreadable import OnUnreadable

__all__ = ["first_entries", "page_within", "record_keys", "rows_while"]

T = TypeVar("T")


async def page_within(
    store: BoundSpace,
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
    scan = RecordScan(store, record, by, fields, prefix=prefix, between=between, reverse=reverse)
    return await scan.page(limit, cursor, unreadable, step)


def record_keys(
    store: BoundSpace, record: Record[Any], addresses: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return the keys of the records at these addresses. Raises KeyFieldError if one is invalid."""
    build = store.binding.record(record).template.build
    return [build(fields) for fields in addresses]


async def first_entries(
    store: BoundSpace,
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


async def rows_while(
    store: BoundSpace,
    declared: Declared,
    fits: Callable[[Row], bool],
    *,
    limit: int = 1_000,
    cursor: str | None = None,
    prefix: str | None = None,
    keys_only: bool = False,
    **fields: Any,
) -> tuple[list[Row], str | None]:
    """Return up to `limit` rows, undecoded, until one does not fit; and the cursor of the rest.

    No more is read than fits, but for a part of a page. If the first row does not fit, there are
    none, and the cursor is the one given.
    """
    scan = Scan.narrowed(store, store.binding.bound(declared), fields, prefix=prefix)
    rows: list[Row] = []
    position = scan.position(limit, cursor)
    async with aclosing(scan.pages(position, keys_only=keys_only, rows_max=limit)) as pages:
        async for page in pages:
            for row in page.rows:
                if len(rows) == limit or not fits(row):
                    following = scan.cursor(Page(rows, True, page.revision)) if rows else cursor
                    return rows, following
                rows.append(row)
            if len(rows) == limit:
                return rows, scan.cursor(page)
    return rows, None
