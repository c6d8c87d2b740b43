"""Scans: pages of rows of a record or an index, with cursors.

A cursor is opaque: it holds a mark of its scan and the last key returned. A page stays within the
span of its scan, even if the key in the cursor was made up.
"""

import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.engine import Engine, Page, Row, Span, fitting_rows
from keyhouse.errors import CursorError, DataError, UsageError
from keyhouse.keys.ranges import KeyRange
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import Declared, Index, Keys, Record
from keyhouse.store.binding import Binding
from keyhouse.store.reads.cursor import decode_cursor, encode_cursor, invalid_cursor
from keyhouse.store.reads.long_read import PAGE_BYTES, PAGE_ROWS, PAGE_ROWS_FIRST, LongRead
from keyhouse.store.reads.record_reader import read_records

Between = tuple[Any, Any]
"""The bounds of a range, the second excluded; None means no bound."""

Owner = tuple[Keys, str] | DataError
"""The key values and key of the record that an index row leads to, or why it leads to none."""


class BoundSpace(Protocol):
    """A space of an engine, with a schema bound to it: a Store is one."""

    @property
    def engine(self) -> Engine: ...

    @property
    def space(self) -> str: ...

    @property
    def binding(self) -> Binding: ...


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
        "_values",
        "declared",
        "reverse",
        "space",
        "span",
    )

    def __init__(
        self,
        source: BoundSpace,
        declared: Declared,
        keys: KeyRange,
        *,
        reverse: bool = False,
        mark: str = "",
    ) -> None:
        check_reverse(reverse)
        self._engine = source.engine
        self.space = source.space
        self._binding = source.binding
        self.declared = declared
        self._legacy: Record[Any] | None = None  # a scan of it reads both keys
        if isinstance(declared, Record) and declared.legacy is not None:
            self._legacy = declared
        self.span = keys.span
        self._field = keys.field
        self._accepts = keys.accepts
        self._mark = mark
        self.reverse = reverse
        self._values: dict[str, Keys | None] = {}
        """Values of the keys of the page that was read last."""

    @classmethod
    def narrowed(
        cls,
        source: BoundSpace,
        declared: Declared,
        fields: Mapping[str, Any],
        *,
        prefix: str | None = None,
        between: Between | None = None,
        reverse: bool = False,
    ) -> "Scan":
        """Return the scan of the rows whose leading key fields have these values, and whose next
        one starts with `prefix` or lies `between` two values."""
        keys = declared.template.range(fields, prefix=prefix, between=between)
        # a range that a span alone does not tell apart is part of what a cursor belongs to
        mark = "" if keys.accepts is None else f"\0{prefix}\0{between}"
        return cls(source, declared, keys, reverse=reverse, mark=mark)

    def position(self, limit: int, cursor: str | None) -> str | None:
        """Return the position after which the page of a cursor starts; None: at the start."""
        check_page_limit(limit)
        return None if cursor is None else self._decode(cursor)

    def end(self, page: Page) -> str:
        """Return the position of the last row of a page: its key, or its record's current key."""
        return self._position(page.rows[-1])

    def cursor(self, page: Page) -> str | None:
        """Return the cursor of the next page; None if there is none."""
        return self._cursor(self.end(page)) if page.more else None

    async def rows_after(
        self,
        limit: int,
        position: str | None,
        *,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        """Return up to `limit` rows after a position, no more than fit in `bytes_max`."""
        span = self.span if position is None else self._rest(self.span, position)
        if self._legacy is None:
            return await self._page(self.declared, span, limit, keys_only, bytes_max)
        return await self._merged(self._legacy, span, limit, keys_only, bytes_max)

    def long_read(self, rows_max: int = PAGE_ROWS) -> LongRead:
        """Return the sizes and turns of a read of all pages."""
        rows_max = min(rows_max, PAGE_ROWS if self._legacy is None else PAGE_ROWS // 2)
        return LongRead(self.space, rows_max, rows=min(PAGE_ROWS_FIRST, rows_max))

    async def pages(
        self,
        position: str | None = None,
        *,
        keys_only: bool = False,
        rows_max: int = PAGE_ROWS,
    ) -> AsyncGenerator[Page, None]:
        """Iterate over all rows after a position, in pages of bounded size: see `long_read`."""
        read = self.long_read(rows_max)
        while True:
            await read.turn()
            page = await self.rows_after(
                read.rows, position, keys_only=keys_only, bytes_max=read.bytes_max
            )
            count = read.keep([len(row.value) for row in page.rows])
            if count < len(page.rows):
                page = Page(page.rows[:count], True, page.revision)
            yield page
            if not page.more:
                return
            position = self.end(page)

    def values(self, key: str) -> Keys:
        """Return the values of a key that this scan returned."""
        if self._legacy is not None:
            key = self._legacy.current_key(key)
        elif found := self._values.get(key):
            return found
        return self.declared.template.split(key) or ()

    def _position(self, row: Row) -> str:
        """Return the row's place in the scan: its key, or its record's current key."""
        return row.key if self._legacy is None else self._legacy.current_key(row.key)

    async def _merged(
        self, record: Record[Any], span: Span, limit: int, keys_only: bool, bytes_max: int | None
    ) -> Page:
        """Return a page of the records at current and legacy keys, in the order of current keys,
        each once.

        Both templates have the same tail, so legacy keys order as current ones do. Legacy keys are
        read first: a record that moves meanwhile is seen at both keys, not at neither.
        """
        assert record.legacy is not None
        pages = [
            await self._page(declared, each, limit, keys_only, bytes_max)
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

    async def _page(
        self, declared: Declared, span: Span, limit: int, keys_only: bool, bytes_max: int | None
    ) -> Page:
        by_field = isinstance(declared, Record) and declared.expires_by_field
        if by_field or self._accepts is not None or self._binding.filters(declared):
            return await self._filtered(declared, span, limit, keys_only=keys_only and not by_field)
        page = await self._engine.scan(
            self.space,
            span,
            limit=limit,
            reverse=self.reverse,
            keys_only=keys_only,
            bytes_max=bytes_max,
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
        read = LongRead(self.space)
        rows_max = limit + 1
        while len(matching) <= limit:
            await read.turn()
            page = await self._engine.scan(
                self.space,
                span,
                limit=rows_max,
                reverse=self.reverse,
                keys_only=keys_only,
                bytes_max=PAGE_BYTES,
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
        self,
        record: Record[Any],
        index: Index,
        listed: Sequence[Row],
        bytes_max: int | None = None,
    ) -> tuple[list[Owner], list[Row | None]]:
        """Return the owners of index rows, and the rows of their records. With `bytes_max`, those
        of the first index rows, whose records fit in it, one at least."""
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
        found = await read_records(self._engine, self.space, record, keys, bytes_max)
        if len(found) < len(owners):
            found = _in_places(owners, found)
        return owners[: len(found)], found

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
        return encode_cursor(msgspec.json.encode([self._checksum(), key]))

    def _decode(self, cursor: str) -> str:
        try:
            mark, key = msgspec.json.decode(decode_cursor(cursor), type=tuple[int, str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise invalid_cursor(cursor) from None
        if mark != self._checksum():
            raise CursorError(
                "The cursor is of another scan: pass the same fields and direction.", cursor=cursor
            )
        return key

    def _checksum(self) -> int:
        named = f"{self.space}\0{self.span.start}\0{self.span.stop}\0{self.reverse}{self._mark}"
        return zlib.crc32(named.encode())


def _in_places(owners: Sequence[Owner], found: Sequence[Row | None]) -> list[Row | None]:
    """Return the rows of the owners, as far as they were read: None for what leads to none."""
    left = list(reversed(found))
    rows: list[Row | None] = []
    for owner in owners:
        is_lost = isinstance(owner, DataError)
        if not is_lost and not left:
            break
        rows.append(None if is_lost else left.pop())
    return rows


def check_reverse(reverse: bool) -> None:
    if type(reverse) is not bool:
        raise UsageError("A scan is `reverse` or not: True or False.", reverse=reverse)


def check_page_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 rows.", limit=limit, most=PAGE_ROWS_MAX)


def _legacy_span(record: Record[Any], span: Span) -> Span:
    """Return the legacy keys of the records whose current keys are in a span of their keys."""
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
