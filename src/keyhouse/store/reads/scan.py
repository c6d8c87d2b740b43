"""Scans: pages of rows of a record or an index, with cursors.

A cursor is opaque: it holds a mark of its scan and the last key returned. A page stays within the
span of its scan, even if the key in the cursor was made up.
"""

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.engine import Engine, Page, Row, Span, fitting_rows
from keyhouse.errors import CursorError, DataError
from keyhouse.keys.ranges import KeyRange
from keyhouse.schema import BoundDeclared, BoundIndex, BoundRecord, BoundSchema, KeyValues
from keyhouse.store.arguments import check_page_limit
from keyhouse.store.reads.cursor import decode_cursor, encode_cursor, invalid_cursor
from keyhouse.store.reads.long_read import PAGE_BYTES, PAGE_ROWS, PAGE_ROWS_FIRST, LongRead, walk
from keyhouse.store.stored_keys import PageRequest, read_page, read_records

Between = tuple[Any, Any]
"""The bounds of a range, the second excluded; None means no bound."""

Owner = tuple[KeyValues, str] | DataError
"""The key values and key of the record that an index row leads to, or why it leads to none."""


class BoundSpace(Protocol):
    """A space of an engine, with a schema bound to it: a Store is one."""

    @property
    def engine(self) -> Engine: ...

    @property
    def space(self) -> str: ...

    @property
    def binding(self) -> BoundSchema: ...


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
        "_mark",
        "declared",
        "reverse",
        "space",
        "span",
    )

    def __init__(
        self,
        source: BoundSpace,
        declared: BoundDeclared,
        keys: KeyRange,
        *,
        reverse: bool = False,
        mark: str = "",
    ) -> None:
        self._engine = source.engine
        self.space = source.space
        self._binding = source.binding
        self.declared = declared
        self.span = keys.span
        self._field = keys.field
        self._accepts = keys.accepts
        self._mark = mark
        self.reverse = reverse

    @classmethod
    def narrowed(
        cls,
        source: BoundSpace,
        declared: BoundDeclared,
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
        """Return the position of the last row of a page: its record's key."""
        return self.declared.key_of(page.rows[-1].key)

    def cursor(self, page: Page) -> str | None:
        """Return the cursor of the next page; None if there is none."""
        return self._cursor(self.end(page)) if page.more else None

    def rows_after(
        self,
        limit: int,
        position: str | None,
        *,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Awaitable[Page]:
        """Return up to `limit` rows after a position, no more than fit in `bytes_max`."""
        span = self.span
        if position is not None:
            span = span.rest(position, reverse=self.reverse)
        request = PageRequest(span, limit, self.reverse, keys_only, bytes_max)
        return read_page(self._page, self.declared, request)

    def long_read(self, rows_max: int = PAGE_ROWS) -> LongRead:
        """Return the page sizes of a read of all rows."""
        rows_max = min(rows_max, PAGE_ROWS // len(self.declared.places))
        return LongRead(rows_max, rows=min(PAGE_ROWS_FIRST, rows_max))

    def pages(
        self,
        position: str | None = None,
        *,
        keys_only: bool = False,
        rows_max: int = PAGE_ROWS,
    ) -> AsyncGenerator[Page, None]:
        """Iterate over all rows after a position, in pages of bounded size: see `long_read`."""
        read = self.long_read(rows_max)

        def after(page: Page | None) -> Awaitable[Page]:
            start = position if page is None else self.end(page)
            return self.rows_after(read.rows, start, keys_only=keys_only, bytes_max=read.bytes_max)

        return walk(read, after)

    def values(self, page: Page) -> Sequence[KeyValues]:
        """Return the values of the keys of a page of this scan."""
        if isinstance(page, _KeyedPage):
            return page.values
        split, key_of = self.declared.template.split, self.declared.key_of
        return [split(key_of(row.key)) or () for row in page.rows]

    async def _page(self, declared: BoundDeclared, request: PageRequest) -> Page:
        span, limit, reverse, keys_only, bytes_max = request
        by_field = isinstance(declared, BoundRecord) and declared.expires_by_field
        if by_field or self._accepts is not None or self._binding.filters(declared):
            return await self._filtered(declared, span, limit, keys_only=keys_only and not by_field)
        page = await self._engine.scan(
            self.space,
            span,
            limit=limit,
            reverse=reverse,
            keys_only=keys_only,
            bytes_max=bytes_max,
        )
        if isinstance(declared, BoundRecord):
            split = declared.template.split
            values = [split(row.key) for row in page.rows]
            if None in values:  # another program wrote it
                return await self._filtered(declared, span, limit, keys_only=keys_only)
            return _KeyedPage(page.rows, page.more, page.revision, values)  # type: ignore[arg-type]  # none is None
        return page

    async def _filtered(
        self, declared: BoundDeclared, span: Span, limit: int, *, keys_only: bool
    ) -> Page:
        matching: list[Row] = []
        is_listed = self._row_filter(declared)
        first: Page | None = None
        rows_max = limit + 1
        while len(matching) <= limit:
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
            count = fitting_rows(page.sizes(), PAGE_BYTES)
            matching += filter(is_listed, page.rows[:count])
            if count == len(page.rows) and not page.more:
                break
            span = span.rest(page.rows[count - 1].key, reverse=self.reverse)
            rows_max = min(limit + 1, 4 * count)
        assert first is not None
        return Page(matching[:limit], len(matching) > limit, first.revision)

    def now(self) -> int:
        return self._engine.clock.now()

    async def owners(
        self,
        record: BoundRecord[Any],
        index: BoundIndex,
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

    def _row_filter(self, declared: BoundDeclared) -> Callable[[Row], bool]:
        """Return the test of a row: its key is of the declaration, its field is in the range, and
        its record has not expired by its own field."""
        matches = self._matcher(declared)
        if not isinstance(declared, BoundRecord) or not declared.expires_by_field:
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

    def _matcher(self, declared: BoundDeclared) -> Callable[[str], bool]:
        """Return the test of a key: it is of the declaration, and its field is in the range."""
        split, accepts = declared.template.split, self._accepts
        if accepts is None:
            return lambda key: split(key) is not None
        at = declared.template.fields.index(self._field)
        return lambda key: (values := split(key)) is not None and accepts(values[at])

    def _cursor(self, key: str) -> str:
        return encode_cursor(msgspec.json.encode([self.checksum(), key]))

    def _decode(self, cursor: str) -> str:
        try:
            mark, key = msgspec.json.decode(decode_cursor(cursor), type=tuple[int, str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise invalid_cursor(cursor) from None
        if mark != self.checksum():
            raise CursorError(
                "The cursor is of another scan: pass the same fields and direction.", cursor=cursor
            )
        return key

    def checksum(self) -> int:
        named = f"{self.space}\0{self.span.start}\0{self.span.stop}\0{self.reverse}{self._mark}"
        return zlib.crc32(named.encode())


class _KeyedPage(Page, frozen=True):
    """A page of records, with the values of their keys."""

    values: Sequence[KeyValues]

    def first(self, count: int) -> "_KeyedPage":
        if count == len(self.rows):
            return self
        return _KeyedPage(self.rows[:count], True, self.revision, self.values[:count])


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
