"""Scans of records, in the order of their keys or of an index: one page, or all pages in turn."""

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from keyhouse.engine import Page, Row
from keyhouse.errors import DataError
from keyhouse.schema import BoundIndex, Index, Record
from keyhouse.store.entry import Entry, RecordPage, entry_of, live_entry
from keyhouse.store.reads.long_read import LongRead, one_page_bytes, walk
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
        index: BoundIndex | None = None
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
            page = await self._after(position, limit, one_page_bytes(limit))
        else:
            page = await self._after(position, min(limit, step.rows), step.bytes_max)
            page = page.first(step.fit(page.sizes()))
        entries = self._entries(page, unreadable)
        following = self._rows.cursor(page.listed)
        return RecordPage(entries, following, page.listed.revision, unreadable.rows)

    async def pages(self, on_unreadable: OnUnreadable) -> AsyncGenerator[list[Entry[T]], None]:
        """Iterate over all records, in pages of bounded size: see `long_read`."""
        read = self._rows.long_read()

        def after(page: _ScanPage | None) -> Awaitable[_ScanPage]:
            position = None if page is None else self._rows.end(page.listed)
            return self._after(position, read.rows, read.bytes_max)

        async with aclosing(walk(read, after)) as pages:
            async for page in pages:
                yield self._entries(page, UnreadableRows(on_unreadable))

    async def _after(self, position: str | None, limit: int, bytes_max: int | None) -> "_ScanPage":
        """Return up to `limit` records after a position, no more than fit in `bytes_max`."""
        index = self._index
        if index is None:
            page = await self._rows.rows_after(limit, position, bytes_max=bytes_max)
            return _ScanPage(page, (), page.rows)
        page = await self._rows.rows_after(limit, position, keys_only=index.value is None)
        owners, rows = await self._rows.owners(self._record, index, page.rows, bytes_max)
        return _ScanPage(page, owners, rows).first(len(rows))

    def _entries(self, page: "_ScanPage", unreadable: UnreadableRows) -> list[Entry[T]]:
        if self._index is not None:
            return self._indexed_entries(self._index, page, unreadable)
        record, listed = self._record, page.listed
        entries: list[Entry[T]] = []
        for row, values in zip(listed.rows, self._rows.values(listed), strict=True):
            try:
                entries.append(entry_of(record, row, values))
            except DataError as error:
                unreadable.add(row, error)
        return entries

    def _indexed_entries(
        self, index: BoundIndex, page: "_ScanPage", unreadable: UnreadableRows
    ) -> list[Entry[T]]:
        record, entries = self._record, list[Entry[T]]()
        now = self._rows.now()
        # rows of an older version may be at places that the upgraded records do not derive
        is_certain = record.expiry is None and record.declared.upgrade is None
        unchanged_until = page.listed.revision if is_certain else -1
        for listed, owner, row in zip(page.listed.rows, page.owners, page.rows, strict=True):
            if isinstance(owner, DataError):
                unreadable.add(listed, owner)
                continue
            if row is None:
                continue
            try:
                entry = live_entry(record, row, owner[0], now)
            except DataError as error:
                unreadable.add(row, error)
                continue
            if entry is not None and (
                row.revision <= unchanged_until or listed.key in index.rows(entry.record, owner[0])
            ):
                entries.append(entry)
        return entries


class _ScanPage:
    """A page of a scan, and the rows of its records. With an index, the rows of the page are the
    index's, and `owners` the records that they lead to."""

    __slots__ = ("listed", "owners", "rows")

    def __init__(self, listed: Page, owners: Sequence[Owner], rows: Sequence[Row | None]) -> None:
        self.listed = listed
        self.owners = owners
        self.rows = rows

    @property
    def more(self) -> bool:
        return self.listed.more

    def sizes(self) -> list[int]:
        return [0 if row is None else len(row.value) for row in self.rows]

    def first(self, count: int) -> "_ScanPage":
        """Return the first rows of it; the page then has more."""
        if count == len(self.listed.rows):
            return self
        return _ScanPage(self.listed.first(count), self.owners[:count], self.rows[:count])
