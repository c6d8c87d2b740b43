"""Scans of records, in the order of their keys or of an index: one page, or all pages in turn."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from keyhouse.engine import Page, Row
from keyhouse.errors import DataError
from keyhouse.schema import Index, Record
from keyhouse.store.entry import Entry, RecordPage
from keyhouse.store.reads.long_read import LongRead, after_read, before_read
from keyhouse.store.reads.scan import Between, BoundSpace, Owner, Scan
from keyhouse.store.reads.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")


class RecordScan(Generic[T]):
    """One scan of records. With an index, its rows are read before the records.

    A record that changed in between, as its revision shows, is left out if it no longer has that
    index row. Records that expire are always compared: a clock that was set back shows index rows
    of an earlier record again.
    """

    __slots__ = ("_index", "_record", "_rows")

    def __init__(
        self,
        source: BoundSpace,
        record: Record[T],
        by: Index | None,
        fields: Mapping[str, Any],
        *,
        prefix: str | None = None,
        between: Between | None = None,
        reverse: bool = False,
    ) -> None:
        index: Index | None = None
        if by is None:
            bound = source.binding.record(record)
        else:
            bound, index = source.binding.index(record, by)
        self._record = bound
        self._index = index
        self._rows = Scan.narrowed(
            source,
            bound if index is None else index,
            fields,
            prefix=prefix,
            between=between,
            reverse=reverse,
        )

    async def page(
        self,
        limit: int,
        cursor: str | None,
        on_unreadable: OnUnreadable,
        step: LongRead | None = None,
    ) -> RecordPage[T]:
        """Return a page of records. With `step`, it has no more rows and bytes than that allows;
        the others are not decoded."""
        unreadable = UnreadableRows(on_unreadable)
        position = self._rows.position(limit, cursor)
        if step is None:
            await before_read(self._rows.space, limit)
            found = await self._after(position, limit, None)
            after_read(found.rows)
        else:
            found = await self._after(position, min(limit, step.rows), step.bytes_max)
            found = found.first(step.keep(found.sizes()))
        entries = self._entries(found, unreadable)
        following = self._rows.cursor(found.page)
        return RecordPage(entries, following, found.page.revision, unreadable.rows)

    async def pages(self, on_unreadable: OnUnreadable) -> AsyncGenerator[list[Entry[T]], None]:
        """Iterate over all records, in pages of bounded size: see `long_read`."""
        read = self._rows.long_read()
        position: str | None = None
        while True:
            await read.turn()
            found = await self._after(position, read.rows, read.bytes_max)
            found = found.first(read.keep(found.sizes()))
            yield self._entries(found, UnreadableRows(on_unreadable))
            if not found.page.more:
                return
            position = self._rows.end(found.page)

    async def _after(self, position: str | None, limit: int, bytes_max: int | None) -> "_Found":
        """Return up to `limit` records after a position, no more than fit in `bytes_max`."""
        index = self._index
        if index is None:
            page = await self._rows.rows_after(limit, position, bytes_max=bytes_max)
            return _Found(page, (), page.rows)
        page = await self._rows.rows_after(limit, position, keys_only=index.value is None)
        owners, rows = await self._rows.owners(self._record, index, page.rows, bytes_max)
        return _Found(page, owners, rows).first(len(rows))

    def _entries(self, found: "_Found", unreadable: UnreadableRows) -> list[Entry[T]]:
        if self._index is not None:
            return self._indexed_entries(self._index, found, unreadable)
        record, values = self._record, self._rows.values
        decode, names, keeps = record.decode, record.template.fields, record.keeps_unknown
        entries: list[Entry[T]] = []
        for row in found.page.rows:
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

    def _indexed_entries(
        self, index: Index, found: "_Found", unreadable: UnreadableRows
    ) -> list[Entry[T]]:
        record, entries = self._record, list[Entry[T]]()
        decode, names, keeps = record.decode, record.template.fields, record.keeps_unknown
        expires_by_field, now = record.expires_by_field, self._rows.now()
        unchanged_until = found.page.revision if record.expiry is None else -1
        for listed, owner, row in zip(found.page.rows, found.owners, found.rows, strict=True):
            if isinstance(owner, DataError):
                unreadable.add(listed, owner)
                continue
            if row is None:
                continue
            try:
                value = decode(row.value, row.key)
                if expires_by_field and not record.is_live(value, row.key, now):
                    continue
            except DataError as error:
                unreadable.add(row, error)
                continue
            if row.revision <= unchanged_until or listed.key in index.rows(value, owner[0]):
                stored = row.value if keeps else None
                entries.append(
                    Entry(value, row.key, owner[0], row.revision, row.expires, names, stored)
                )
        return entries


class _Found:
    """A page of a scan, and the rows of its records. With an index, the rows of the page are the
    index's, and `owners` the records that they lead to."""

    __slots__ = ("owners", "page", "rows")

    def __init__(self, page: Page, owners: Sequence[Owner], rows: Sequence[Row | None]) -> None:
        self.page = page
        self.owners = owners
        self.rows = rows

    def sizes(self) -> list[int]:
        return [0 if row is None else len(row.value) for row in self.rows]

    def first(self, count: int) -> "_Found":
        """Return the first rows of it; the page then has more."""
        if count == len(self.page.rows):
            return self
        page = Page(self.page.rows[:count], True, self.page.revision)
        return _Found(page, self.owners[:count], self.rows[:count])
