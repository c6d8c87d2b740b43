"""Scans: pages of records in key order or in an index's order, cursors, and counts.

A cursor is opaque: it holds a mark of its scan and the last key returned. A page stays within the
span of its scan, even if the key in the cursor was made up.
"""

import base64
import binascii
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from keyhouse.engine import Engine, Page, Row, Span
from keyhouse.errors import CursorError, DataError, UsageError
from keyhouse.keys.ranges import KeyRange
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import Declared, Index, Keys, Record
from keyhouse.store.binding import Binding
from keyhouse.store.entry import Entry, RecordPage, UsagePage
from keyhouse.store.long_read import PAGE_BYTES, PAGE_ROWS, Keep, LongRead, fitting_rows
from keyhouse.store.record_reader import read_records
from keyhouse.store.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")


class Scan:
    """One scan of a declaration's rows: its span and direction.

    A scan of records leaves out rows whose keys the record's template does not build, as other
    programs write them, and records that have expired by their own field.
    """

    __slots__ = (
        "_accepts",
        "_binding",
        "_engine",
        "_field",
        "_legacy",
        "_mark",
        "_space",
        "_values",
        "declared",
        "reverse",
        "span",
    )

    def __init__(
        self,
        engine: Engine,
        space: str,
        binding: Binding,
        declared: Declared,
        keys: KeyRange,
        *,
        reverse: bool,
        mark: str = "",
    ) -> None:
        check_reverse(reverse)
        self._engine = engine
        self._space = space
        self._binding = binding
        self.declared = declared
        self._legacy: Record[Any] | None = None
        if isinstance(declared, Record) and declared.legacy is not None:
            self._legacy = declared
        self.span = keys.span
        self._field = keys.field
        self._accepts = keys.accepts
        self._mark = mark
        self.reverse = reverse
        self._values: dict[str, Keys | None] = {}
        """Values of the keys of the page that was read last."""

    async def rows(
        self, limit: int, cursor: str | None, *, keys_only: bool = False
    ) -> tuple[Page, str | None]:
        """Return up to `limit` rows of the declaration, and the cursor of the next page."""
        check_page_limit(limit)
        position = None if cursor is None else self._decode(cursor)
        page, position = await self.rows_after(limit, position, keys_only=keys_only)
        return page, None if position is None else self._cursor(position)

    async def rows_after(
        self, limit: int, position: str | None, *, keys_only: bool = False
    ) -> tuple[Page, str | None]:
        """Return up to `limit` rows after a position, and the position of the last one if there are
        more.

        The position of a row is its key; of a record at its legacy key, the current key.
        """
        span = self.span if position is None else self._rest(self.span, position)
        if self._legacy is None:
            page = await self._page(self.declared, span, limit, keys_only=keys_only)
        else:
            page = await self._merged(self._legacy, span, limit, keys_only=keys_only)
        return page, self._position(page.rows[-1]) if page.more else None

    async def pages(
        self, position: str | None = None, *, keys_only: bool = False
    ) -> AsyncGenerator[Page, None]:
        """Iterate over all rows after a position, in pages of bounded size: see `long_read`."""
        rows_max = PAGE_ROWS if self._legacy is None else PAGE_ROWS // 2  # it reads both keys
        read = LongRead(self._space, rows_max)
        while True:
            await read.turn()
            page, following = await self.rows_after(read.rows, position, keys_only=keys_only)
            count = read.keep([len(row.value) for row in page.rows])
            if count < len(page.rows):
                page, following = self._cut(page, count)
            yield page
            if (position := following) is None:
                return

    async def rows_while(
        self,
        fits: Callable[[Row], bool],
        limit: int,
        cursor: str | None,
        *,
        keys_only: bool = False,
    ) -> tuple[list[Row], str | None]:
        """Return up to `limit` rows, in pages of bounded size, until one does not fit; and the
        cursor of the next."""
        check_page_limit(limit)
        position = None if cursor is None else self._decode(cursor)
        read = LongRead(self._space)
        rows: list[Row] = []
        while True:
            await read.turn()
            page, following = await self.rows_after(
                min(read.rows, limit - len(rows)), position, keys_only=keys_only
            )
            count = read.keep([len(row.value) for row in page.rows])
            for row in page.rows[:count]:
                if not fits(row):
                    return rows, self._cursor(self._position(rows[-1])) if rows else cursor
                rows.append(row)
            if count < len(page.rows):
                following = self._position(rows[-1])
            if following is None or len(rows) == limit:
                return rows, None if following is None else self._cursor(following)
            position = following

    def values(self, key: str) -> Keys:
        """Return the values of a key that this scan returned."""
        if self._legacy is not None:
            key = self._legacy.current_key(key)
        elif found := self._values.get(key):
            return found
        return self.declared.template.split(key) or ()

    def cut(self, page: Page, count: int) -> tuple[Page, str]:
        """Return the first rows of a page, and the cursor of the next."""
        page, position = self._cut(page, count)
        return page, self._cursor(position)

    def _cut(self, page: Page, count: int) -> tuple[Page, str]:
        page = Page(page.rows[:count], True, page.revision)
        return page, self._position(page.rows[-1])

    def _position(self, row: Row) -> str:
        """Return the row's place in the scan: its key, or its record's current key."""
        return row.key if self._legacy is None else self._legacy.current_key(row.key)

    async def _merged(
        self, record: Record[Any], span: Span, limit: int, *, keys_only: bool
    ) -> Page:
        """Return a page of the records at current and legacy keys, in the order of current keys,
        each once.

        Both templates have the same tail, so legacy keys order as current ones do. Legacy keys are
        read first: a record that moves meanwhile is seen at both keys, not at neither.
        """
        assert record.legacy is not None
        pages = [
            await self._page(declared, each, limit, keys_only=keys_only)
            for declared, each in (
                (record.legacy, _legacy_span(record, span)),
                (record, span),
            )
        ]
        rows = {self._position(row): row for page in pages for row in page.rows}
        ends = [self._position(page.rows[-1]) for page in pages if page.more]
        keys = sorted(rows, reverse=self.reverse)
        if ends:  # beyond the end of a page that has more, rows are missing
            end = max(ends) if self.reverse else min(ends)
            keys = [key for key in keys if (key >= end if self.reverse else key <= end)]
        more = bool(ends) or len(keys) > limit
        return Page([rows[key] for key in keys[:limit]], more, pages[0].revision)

    async def _page(self, declared: Declared, span: Span, limit: int, *, keys_only: bool) -> Page:
        by_field = isinstance(declared, Record) and declared.expires_by_field
        if by_field or self._accepts is not None or self._binding.filters(declared):
            return await self._filtered(declared, span, limit, keys_only=keys_only and not by_field)
        page = await self._engine.scan(
            self._space, span, limit=limit, reverse=self.reverse, keys_only=keys_only
        )
        if isinstance(declared, Record):
            split = declared.template.split
            values = {row.key: split(row.key) for row in page.rows}
            if None in values.values():  # another program wrote it
                return await self._filtered(declared, span, limit, keys_only=keys_only)
            self._values = values
        return page

    async def _filtered(
        self, declared: Declared, span: Span, limit: int, *, keys_only: bool
    ) -> Page:
        matching: list[Row] = []
        is_listed = self._row_filter(declared)
        first: Page | None = None
        read = LongRead(self._space)
        rows_max = limit + 1
        while len(matching) <= limit:
            await read.turn()
            page = await self._engine.scan(
                self._space, span, limit=rows_max, reverse=self.reverse, keys_only=keys_only
            )
            first = first or page
            # the test decodes records that expire by a field: no more of them than fit in a page
            count = fitting_rows([len(row.value) for row in page.rows], PAGE_BYTES)
            matching += filter(is_listed, page.rows[:count])
            if count == len(page.rows) and not page.more:
                break
            span = self._rest(span, page.rows[count - 1].key)
            rows_max = min(limit + 1, 4 * count)
        assert first is not None
        return Page(matching[:limit], len(matching) > limit, first.revision)

    def now(self) -> int:
        return self._engine.clock.now()

    async def owners(
        self, record: Record[Any], index: Index, listed: Sequence[Row]
    ) -> tuple[list["Owner"], list[Row | None]]:
        """Return the owners of index rows, and the rows of their records."""
        owners: list[Owner] = []
        keys: list[str] = []
        owner_at = index.owner_at
        for row in listed:
            try:
                owner = owner_at(row.key, row.value)
            except DataError as error:
                owners.append(error)
            else:
                owners.append(owner)
                keys.append(owner[1])
        found = await read_records(self._engine, self._space, record, keys)
        if len(keys) < len(owners):
            rest = iter(found)
            found = [None if isinstance(owner, DataError) else next(rest) for owner in owners]
        return owners, found

    def _row_filter(self, declared: Declared) -> Callable[[Row], bool]:
        """Return the test of a row: its key is of the declaration, its field is in the range, and
        its record has not expired by its own field."""
        matches = self._matcher(declared)
        if not isinstance(declared, Record) or not declared.expires_by_field:
            return lambda row: matches(row.key)
        record, now = declared, self.now()

        def is_listed(row: Row) -> bool:
            if not matches(row.key):
                return False
            try:
                return record.is_live(record.decode(row.value, row.key), row.key, now)
            except DataError:
                return True  # who reads the record decides about it

        return is_listed

    def _matcher(self, declared: Declared) -> Callable[[str], bool]:
        """Return the test of a key: it is of the declaration, and its field is in the range."""
        split, accepts = declared.template.split, self._accepts
        if accepts is None:
            return lambda key: split(key) is not None
        at = declared.template.fields.index(self._field)
        return lambda key: (values := split(key)) is not None and accepts(values[at])

    def _rest(self, span: Span, key: str) -> Span:
        return span.before(key) if self.reverse else span.after(key)

    def _cursor(self, key: str) -> str:
        return (
            base64.urlsafe_b64encode(msgspec.json.encode([self._checksum(), key]))
            .decode()
            .rstrip("=")
        )

    def _decode(self, cursor: str) -> str:
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            mark, key = msgspec.json.decode(
                base64.b64decode(padded, b"-_", validate=True), type=tuple[int, str]
            )
        except (binascii.Error, ValueError, AttributeError, msgspec.MsgspecError):
            raise CursorError(
                "Not a cursor: pass one exactly as a page gave it.", cursor=cursor
            ) from None
        if mark != self._checksum():
            raise CursorError(
                "The cursor is of another scan: pass the same fields and direction.", cursor=cursor
            )
        return key

    def _checksum(self) -> int:
        named = f"{self._space}\0{self.span.start}\0{self.span.stop}\0{self.reverse}{self._mark}"
        return zlib.crc32(named.encode())


def check_reverse(reverse: bool) -> None:
    if type(reverse) is not bool:
        raise UsageError("A scan is `reverse` or not: True or False.", reverse=reverse)


def check_page_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 rows.", limit=limit, most=PAGE_ROWS_MAX)


async def usage(
    engine: Engine, space: str, declared: Sequence[Declared], page_rows: int
) -> AsyncGenerator[UsagePage, None]:
    """Count the rows of these declarations, or all rows if there are none, a page at a time."""
    check_page_limit(page_rows)
    moved = [each for each in declared if isinstance(each, Record) and each.legacy is not None]
    declared = [*declared, *(each.legacy for each in moved if each.legacy is not None)]
    matches = [each.template.split for each in declared]
    spans = _joined([each.template.span({}) for each in declared]) if declared else [Span()]
    read = LongRead(space)
    while spans:
        await read.turn()
        page = await engine.scan(space, spans[0], limit=min(read.rows, page_rows))
        count = read.keep([len(row.value) for row in page.rows])
        if count < len(page.rows):
            page = Page(page.rows[:count], True, page.revision)
        rows = [
            row
            for row in page.rows
            if not matches or any(match(row.key) is not None for match in matches)
        ]
        for record in moved:
            rows = await _without_copies(engine, space, record, rows)
        size = sum([len(row.key.encode()) + len(row.value) for row in rows])
        if page.more:
            last: str | None = page.rows[-1].key
            spans[0] = spans[0].after(page.rows[-1].key)
        else:
            last = spans.pop(0).stop if len(spans) > 1 else None
        yield UsagePage(len(rows), size, last, page.revision)
        if last is None:
            return


async def _without_copies(
    engine: Engine, space: str, record: Record[Any], rows: list[Row]
) -> list[Row]:
    """Return the rows without those at a legacy key whose record is at its current key too."""
    assert record.legacy is not None
    current = {
        row.key: record.current_key(row.key)
        for row in rows
        if record.legacy.template.split(row.key) is not None
    }
    found = await engine.read(space, list(current.values())) if current else []
    copied = {key for key, row in zip(current, found, strict=True) if row is not None}
    return [row for row in rows if row.key not in copied]


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same keys as spans in key order that neither overlap nor touch."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda each: each.start):
        last = joined[-1] if joined else None
        if last is None or (last.stop is not None and last.stop < span.start):
            joined.append(span)
        elif last.stop is not None and (span.stop is None or span.stop > last.stop):
            joined[-1] = Span(last.start, span.stop)
    return joined


async def records(
    scan: Scan,
    record: Record[T],
    limit: int,
    cursor: str | None,
    on_unreadable: OnUnreadable,
    keep: Keep | None = None,
) -> RecordPage[T]:
    """Return a page of records in the order of their keys. With `keep`, it ends after as many of
    the rows that were read; the others are not decoded."""
    unreadable = UnreadableRows(on_unreadable)
    page, following = await scan.rows(limit, cursor)
    if keep is not None:
        count = keep([len(row.value) for row in page.rows])
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


def _legacy_span(record: Record[Any], span: Span) -> Span:
    """Return the legacy keys of the records whose current keys are in a span of the record's keys."""
    assert record.legacy is not None
    head, whole = record.template.head, Span.prefix(record.legacy.template.head)
    start = record.legacy_key(span.start) if span.start.startswith(head) else whole.start
    if span.stop is None or not span.stop.startswith(head):
        return Span(start, whole.stop)
    return Span(start, record.legacy_key(span.stop))


def covering_span(record: Record[Any], span: Span) -> Span:
    """Return one span over a span of the record's current keys and its legacy keys, and what lies
    between."""
    legacy = _legacy_span(record, span)
    stop = None if span.stop is None or legacy.stop is None else max(span.stop, legacy.stop)
    return Span(min(span.start, legacy.start), stop)


Owner = tuple[Keys, str] | DataError
"""The key values and key of the record that an index row leads to, or why it leads to none."""


async def records_by(
    scan: Scan,
    record: Record[T],
    index: Index,
    limit: int,
    cursor: str | None,
    on_unreadable: OnUnreadable,
    keep: Keep | None = None,
) -> RecordPage[T]:
    """Return a page of records in the order of an index. `keep` is as in `records`.

    The index rows are read before the records. A record that changed in between, as its revision
    shows, is left out if it no longer has that index row. Records that expire are always compared:
    a clock that was set back shows index rows of an earlier record again.
    """
    unreadable = UnreadableRows(on_unreadable)
    page, following = await scan.rows(limit, cursor, keys_only=index.value is None)
    owners, rows = await scan.owners(record, index, page.rows)
    if keep is not None:
        count = keep([0 if row is None else len(row.value) for row in rows])
        if count < len(rows):
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
        owners, rows = await scan.owners(record, index, page.rows)
        count = read.keep([len(row.value) if row is not None else 0 for row in rows])
        if count < len(rows):
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
