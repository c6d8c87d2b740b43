"""Scans: pages of records in key order or in an index's order, cursors, and counts.

A cursor is opaque: it names the scan it belongs to and the last key seen, and asks for what follows. It can't leave the
span of its scan, whatever it holds.
"""

import asyncio
import base64
import binascii
import zlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TypeVar

import msgspec

from keyhouse.engine import Engine, Page, Row, Span
from keyhouse.errors import CursorError, UsageError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import Declared, Index, Record
from keyhouse.store.binding import Binding
from keyhouse.store.entry import Entry, RecordPage, UsagePage

T = TypeVar("T")


class Scan:
    """One scan of a declaration's rows: where it runs, in which direction, and what it leaves out."""

    __slots__ = ("_binding", "_engine", "_space", "declared", "reverse", "span")

    def __init__(
        self,
        engine: Engine,
        space: str,
        binding: Binding,
        declared: Declared,
        span: Span,
        *,
        reverse: bool,
    ) -> None:
        if type(reverse) is not bool:
            raise UsageError("A scan is `reverse` or not: True or False.", reverse=reverse)
        self._engine = engine
        self._space = space
        self._binding = binding
        self.declared = declared
        self.span = span
        self.reverse = reverse

    async def rows(
        self, limit: int, cursor: str | None, *, keys_only: bool = False
    ) -> tuple[Page, str | None]:
        """Up to `limit` rows of this shape, and the cursor to what follows."""
        check_page_limit(limit)
        span = self.span if cursor is None else self._left(self.span, self._opened(cursor))
        if not self._binding.filters(self.declared):
            page = await self._engine.scan(
                self._space, span, limit=limit, reverse=self.reverse, keys_only=keys_only
            )
            return page, self._cursor(page.rows[-1].key) if page.more else None
        return await self._filtered(span, limit, keys_only=keys_only)

    async def _filtered(
        self, span: Span, limit: int, *, keys_only: bool
    ) -> tuple[Page, str | None]:
        kept: list[Row] = []
        split = self.declared.template.split
        first: Page | None = None
        while len(kept) <= limit:
            page = await self._engine.scan(
                self._space, span, limit=limit + 1, reverse=self.reverse, keys_only=keys_only
            )
            first = first or page
            kept += [row for row in page.rows if split(row.key) is not None]
            if not page.more:
                break
            span = self._left(span, page.rows[-1].key)
        assert first is not None
        more = len(kept) > limit
        return Page(kept[:limit], more, first.revision), self._cursor(
            kept[limit - 1].key
        ) if more else None

    def _left(self, span: Span, key: str) -> Span:
        return span.before(key) if self.reverse else span.after(key)

    def _cursor(self, key: str) -> str:
        return (
            base64.urlsafe_b64encode(msgspec.json.encode([self._mark(), key])).decode().rstrip("=")
        )

    def _opened(self, cursor: str) -> str:
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            mark, key = msgspec.json.decode(
                base64.b64decode(padded, b"-_", validate=True), type=tuple[int, str]
            )
        except (binascii.Error, ValueError, AttributeError, msgspec.MsgspecError):
            raise CursorError(
                "Not a cursor: pass one exactly as a page gave it.", cursor=cursor
            ) from None
        if mark != self._mark():
            raise CursorError(
                "The cursor is of another scan: pass the same fields and direction.", cursor=cursor
            )
        return key

    def _mark(self) -> int:
        named = f"{self._space}\0{self.span.start}\0{self.span.stop}\0{self.reverse}"
        return zlib.crc32(named.encode())


def check_page_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 rows.", limit=limit, most=PAGE_ROWS_MAX)


async def usage(
    engine: Engine, space: str, declared: Sequence[Declared], page_rows: int
) -> AsyncGenerator[UsagePage, None]:
    """Count the rows of these declarations, or all rows if there are none, a page at a time."""
    check_page_limit(page_rows)
    matches = [each.template.split for each in declared]
    spans = _joined([each.template.span({}) for each in declared]) if declared else [Span()]
    while spans:
        page = await engine.scan(space, spans[0], limit=page_rows)
        rows = [
            row
            for row in page.rows
            if not matches or any(match(row.key) is not None for match in matches)
        ]
        size = sum([len(row.key.encode()) + len(row.value) for row in rows])
        if page.more:
            last: str | None = page.rows[-1].key
            spans[0] = spans[0].after(page.rows[-1].key)
        else:
            last = spans.pop(0).stop if len(spans) > 1 else None
        yield UsagePage(len(rows), size, last, page.revision)
        if last is None:
            return
        await asyncio.sleep(0)  # an engine that never blocks would keep all other tasks waiting


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


async def records(scan: Scan, record: Record[T], limit: int, cursor: str | None) -> RecordPage[T]:
    """A page of the records at their own keys."""
    page, following = await scan.rows(limit, cursor)
    split, decode = record.template.split, record.decode
    entries = [
        Entry(decode(row.value, row.key), row.key, split(row.key) or (), row.revision, row.expires)
        for row in page.rows
    ]
    return RecordPage(entries, following, page.revision)


async def records_by(
    engine: Engine,
    space: str,
    scan: Scan,
    record: Record[T],
    index: Index,
    limit: int,
    cursor: str | None,
) -> RecordPage[T]:
    """A page of the records that an index lists, in its order.

    The index rows and the records are read one after the other. A record that changed in between, which its revision shows,
    is left out if it no longer earns its place. Of records that expire, each is asked: a clock that was set back shows again
    what an earlier one had earned.
    """
    page, following = await scan.rows(limit, cursor, keys_only=index.value is None)
    owners = [index.owner_at(row.key, row.value) for row in page.rows]
    rows = await engine.read(space, [key for _, key in owners]) if owners else []
    entries: list[Entry[T]] = []
    for listed, (values, _), row in zip(page.rows, owners, rows, strict=True):
        if row is None:
            continue
        found = record.decode(row.value, row.key)
        unchanged = row.revision <= page.revision and record.expiry is None
        if unchanged or listed.key in index.rows(found, values):
            entries.append(Entry(found, row.key, values, row.revision, row.expires))
    return RecordPage(entries, following, page.revision)
