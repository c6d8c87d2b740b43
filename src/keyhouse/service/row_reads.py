"""Stored rows over a service's API, for the operator: an engine that one process has open, such as
RocksDB, is looked into through the service. Rows are read only, and never show secrets.

A system's routes check who may read, and put these into the form of its responses. A page ends at
`SERVED_PAGE_BYTES_MAX`, and is read, decoded and encoded in turns with the work of others.
"""

from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from keyhouse.engine import Row, Span
from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.operations.limits import SERVED_PAGE_BYTES_MAX
from keyhouse.scheduling.work_turns import LongWork
from keyhouse.schema import Counter
from keyhouse.store import Store

__all__ = ["ROWS_MAX", "RowQuery", "RowsPage", "RowsQuery", "ShownRow", "read_row", "read_rows"]

ROWS_MAX: Final = 500
"""Rows in one response."""

_encode = msgspec.json.Encoder().encode


class RowsQuery(msgspec.Struct):
    """`after`: the last key of the page before."""

    prefix: str = ""
    after: str | None = None
    reverse: bool = False
    keys_only: bool = False
    limit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = ROWS_MAX


class RowQuery(msgspec.Struct):
    key: str


class ShownRow(msgspec.Struct, omit_defaults=True):
    """A row; `expires` is in milliseconds since 1970."""

    key: str
    revision: int
    value: Any = None
    expires: int | None = None


class RowsPage(msgspec.Struct, omit_defaults=True):
    """Rows in key order. `cursor` is `after` of the next page, if there is one."""

    items: list[ShownRow]
    cursor: str | None = None


async def read_rows(store: Store, query: RowsQuery) -> RowsPage:
    """Return the rows whose keys start with a text."""
    span = Span.prefix(query.prefix)
    if query.after is not None:
        span = span.before(query.after) if query.reverse else span.after(query.after)
    shown: list[ShownRow] = []
    size, work = 0, LongWork(store.space)
    scan = store.row_scan(span, reverse=query.reverse, keys_only=query.keys_only)
    async with aclosing(scan) as rows:
        async for row in rows:
            if len(shown) == query.limit or size >= SERVED_PAGE_BYTES_MAX:
                return RowsPage(shown, shown[-1].key)
            await work.turn()
            shown.append(_shown(store, row, keys_only=query.keys_only))
            size += len(row.key) + len(row.value)
    return RowsPage(shown)


async def read_row(store: Store, key: str) -> ShownRow:
    """Return the row at a key. Raises NotFoundError if there is none."""
    row = await store.row(key)
    if row is None:
        raise NotFoundError("There is no such row.", key=key)
    return _shown(store, row)


def _shown(store: Store, row: Row, *, keys_only: bool = False) -> ShownRow:
    return ShownRow(row.key, row.revision, None if keys_only else _value(store, row), row.expires)


def _value(store: Store, row: Row) -> msgspec.Raw | None:
    """Return the value as JSON; None if it is unreadable and may hold secrets, or is not JSON."""
    match = store.find(row.key)
    if match is not None and match.is_record and not isinstance(match.record.declared, Counter):
        record = match.record
        try:
            return msgspec.Raw(_encode(record.json.shown(record.decode(row.value, row.key))))
        except KeyhouseError:
            if record.declared.private:
                return None
    try:
        msgspec.json.decode(row.value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(row.value)
