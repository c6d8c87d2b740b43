"""Lists of the API: pages of a list, by a limit and a cursor or an offset."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from keyhouse.errors import UsageError
from keyhouse.schema import Record
from keyhouse.store import Entry, Store

__all__ = [
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "Items",
    "PageQuery",
    "items",
    "offset_cursor",
    "page_limit",
    "page_of",
    "stored_page",
]

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
_CURSOR_CHARS_MAX = 12

T = TypeVar("T")
R = TypeVar("R")


class PageQuery(Struct):
    limit: int = LIMIT_DEFAULT
    cursor: str | None = None
    offset: int = 0


class Items(Struct, Generic[T]):
    items: Sequence[T]
    count: int
    total: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET

    def of(self, items: Sequence[R]) -> "Items[R]":
        """Return the same page with its items in another form."""
        return Items(items, self.count, self.total, self.cursor)


def items(found: Sequence[T], *, total: int | None = None, cursor: str | None = None) -> Items[T]:
    """Return a list as it is sent."""
    return Items(found, len(found), UNSET if total is None else total, cursor or UNSET)


def page_limit(limit: int) -> int:
    """Return the limit of a list. Raises UsageError (400) if it is out of range."""
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError("The limit of a list is from 1 to 500.", limit=limit)
    return limit


def offset_cursor(cursor: str | None, offset: int) -> int:
    """Return where a sorted list continues: its cursor is an offset, `@50`."""
    if cursor is None:
        if offset < 0:
            raise UsageError("An offset is not negative.", offset=offset)
        return offset
    if not cursor.startswith("@") or not cursor[1:].isdecimal() or len(cursor) > _CURSOR_CHARS_MAX:
        raise UsageError("This is not the cursor of this list.", cursor=cursor)
    return int(cursor[1:])


async def stored_page(
    store: Store, record: Record[T], query: PageQuery, **options: Any
) -> Items[Entry[T]]:
    """Return a page of the records of a scan: by its cursor, or by an offset, for which all are
    read."""
    limit = page_limit(query.limit)
    if query.offset or (query.cursor or "").startswith("@"):
        return page_of([entry async for entry in store.scan(record, **options)], query)
    page = await store.page(record, limit=limit, cursor=query.cursor, **options)
    return items(page.entries, cursor=page.cursor)


def page_of(found: Sequence[T], query: PageQuery) -> Items[T]:
    """Return a page of a list that is read whole."""
    size, start = page_limit(query.limit), offset_cursor(query.cursor, query.offset)
    following = start + size
    cursor = f"@{following}" if following < len(found) else None
    return items(found[start:following], total=len(found), cursor=cursor)
