"""Pages of decoded records, in key order or in an index's order."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

from keyhouse.engine import Page, Row
from keyhouse.errors import DataError
from keyhouse.schema import Index, Record
from keyhouse.store.entry import Entry, RecordPage
from keyhouse.store.reads.long_read import LongRead, after_read, before_read
from keyhouse.store.reads.scan import Owner, Scan
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")


async def records(
    scan: Scan,
    record: Record[T],
    limit: int,
    cursor: str | None,
    on_unreadable: OnUnreadable,
    step: LongRead | None = None,
) -> RecordPage[T]:
    """Return a page of records in the order of their keys. With `step`, it ends after as many rows
    as that allows; the others are not decoded."""
    unreadable = UnreadableRows(on_unreadable)
    bytes_max = None if step is None else step.bytes_max
    if step is None:
        await before_read(scan.space, limit)
    page, following = await scan.rows(limit, cursor, bytes_max=bytes_max)
    if step is None:
        after_read(page.rows)
    else:
        count = step.keep([len(row.value) for row in page.rows])
        if count < len(page.rows):
            page, following = scan.cut(page, count)
    entries = _entries(scan, record, page.rows, unreadable)
    return RecordPage(entries, following, page.revision, unreadable.rows)


async def all_records(
    scan: Scan, record: Record[T], on_unreadable: OnUnreadable
) -> AsyncGenerator[list[Entry[T]], None]:
    """Iterate over all records in the order of their keys, in pages of bounded size."""
    async with aclosing(scan.pages()) as pages:
        async for page in pages:
            yield _entries(scan, record, page.rows, UnreadableRows(on_unreadable))


def _entries(
    scan: Scan, record: Record[T], rows: Sequence[Row], unreadable: UnreadableRows
) -> list[Entry[T]]:
    decode, values, names = record.decode, scan.values, record.template.fields
    keeps = record.keeps_unknown
    entries: list[Entry[T]] = []
    for row in rows:
        try:
            value = decode(row.value, row.key)
        except DataError as error:
            unreadable.add(row, error)
            continue
        stored = row.value if keeps else None
        entries.append(
            Entry(value, row.key, values(row.key), row.revision, row.expires, names, stored)
        )
    return entries


async def records_by(
    scan: Scan,
    record: Record[T],
    index: Index,
    limit: int,
    cursor: str | None,
    on_unreadable: OnUnreadable,
    step: LongRead | None = None,
) -> RecordPage[T]:
    """Return a page of records in the order of an index. `step` is as in `records`.

    The index rows are read before the records. A record that changed in between, as its revision
    shows, is left out if it no longer has that index row. Records that expire are always compared:
    a clock that was set back shows index rows of an earlier record again.
    """
    unreadable = UnreadableRows(on_unreadable)
    if step is None:
        await before_read(scan.space, limit)
    page, following = await scan.rows(limit, cursor, keys_only=index.value is None)
    bytes_max = None if step is None else step.bytes_max
    owners, rows = await scan.owners(record, index, page.rows, bytes_max)
    if step is None:
        after_read(rows)
    else:
        count = step.keep([0 if row is None else len(row.value) for row in rows])
        if count < len(page.rows):
            page, following = scan.cut(page, count)
            owners, rows = owners[:count], rows[:count]
    entries = _listed_entries(scan, record, index, page, owners, rows, unreadable)
    return RecordPage(entries, following, page.revision, unreadable.rows)


async def all_records_by(
    space: str, scan: Scan, record: Record[T], index: Index, on_unreadable: OnUnreadable
) -> AsyncGenerator[list[Entry[T]], None]:
    """Iterate over all records in the order of an index, in pages of bounded size."""
    read = LongRead(space)
    keys_only = index.value is None
    position: str | None = None
    while True:
        await read.turn()
        page, following = await scan.rows_after(read.rows, position, keys_only=keys_only)
        owners, rows = await scan.owners(record, index, page.rows, read.bytes_max)
        count = read.keep([len(row.value) if row is not None else 0 for row in rows])
        if count < len(page.rows):
            page = Page(page.rows[:count], True, page.revision)
            owners, rows, following = owners[:count], rows[:count], page.rows[-1].key
        unreadable = UnreadableRows(on_unreadable)
        yield _listed_entries(scan, record, index, page, owners, rows, unreadable)
        if (position := following) is None:
            return


def _listed_entries(
    scan: Scan,
    record: Record[T],
    index: Index,
    page: Page,
    owners: Sequence[Owner],
    rows: Sequence[Row | None],
    unreadable: UnreadableRows,
) -> list[Entry[T]]:
    entries: list[Entry[T]] = []
    decode, names, keeps = record.decode, record.template.fields, record.keeps_unknown
    expires_by_field, now = record.expires_by_field, scan.now()
    unchanged_until = page.revision if record.expiry is None else -1
    for listed, owner, row in zip(page.rows, owners, rows, strict=True):
        if isinstance(owner, DataError):
            unreadable.add(listed, owner)
            continue
        if row is None:
            continue
        try:
            found = decode(row.value, row.key)
            if expires_by_field and not record.is_live(found, row.key, now):
                continue
        except DataError as error:
            unreadable.add(row, error)
            continue
        if row.revision <= unchanged_until or listed.key in index.rows(found, owner[0]):
            stored = row.value if keeps else None
            entries.append(
                Entry(found, row.key, owner[0], row.revision, row.expires, names, stored)
            )
    return entries
