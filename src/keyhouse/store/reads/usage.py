"""Usage of a space: rows and bytes of some declarations, counted a page at a time."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from keyhouse.engine import Engine, Row, Span
from keyhouse.schema import Declared, Record
from keyhouse.store.entry import UsagePage
from keyhouse.store.reads.long_read import PAGE_ROWS_FIRST, LongRead, span_pages
from keyhouse.store.reads.scan import check_page_limit


async def usage(
    engine: Engine, space: str, declared: Sequence[Declared], page_rows: int
) -> AsyncGenerator[UsagePage, None]:
    """Count the rows of these declarations, or all rows if there are none, a page at a time."""
    check_page_limit(page_rows)
    moved = [each for each in declared if isinstance(each, Record) and each.legacy is not None]
    declared = [*declared, *(each.legacy for each in moved if each.legacy is not None)]
    matches = [each.template.split for each in declared]
    spans = _joined([each.template.span({}) for each in declared]) if declared else [Span()]
    read = LongRead(space, page_rows, rows=min(PAGE_ROWS_FIRST, page_rows))
    for span in spans:
        through = None if span is spans[-1] else span.stop
        async with aclosing(span_pages(engine, space, span, read=read)) as pages:
            async for page in pages:
                rows = [
                    row
                    for row in page.rows
                    if not matches or any(match(row.key) is not None for match in matches)
                ]
                for record in moved:
                    rows = await _without_copies(engine, space, record, rows)
                size = sum([len(row.key.encode()) + len(row.value) for row in rows])
                last = page.rows[-1].key if page.more else through
                yield UsagePage(len(rows), size, last, page.revision)


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
