"""Usage of a space: rows and bytes of some declarations, counted a page at a time."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from keyhouse.engine import Engine, Span
from keyhouse.schema import BoundDeclared, BoundRecord
from keyhouse.store.entry import UsagePage
from keyhouse.store.reads.long_read import PAGE_ROWS_FIRST, LongRead, paced_pages
from keyhouse.store.stored_keys import copies

USAGE_PAGE_ROWS: Final = 250


async def usage(
    engine: Engine, space: str, declared: Sequence[BoundDeclared]
) -> AsyncGenerator[UsagePage, None]:
    """Count the rows of these declarations, or all rows if there are none, a page at a time."""
    records = [each for each in declared if isinstance(each, BoundRecord)]
    templates = [template for each in declared for template in each.places]
    matches = [template.split for template in templates]
    spans = _joined([template.span({}) for template in templates]) if declared else [Span()]
    read = LongRead(USAGE_PAGE_ROWS, rows=min(PAGE_ROWS_FIRST, USAGE_PAGE_ROWS))
    for span in spans:
        through = None if span is spans[-1] else span.stop
        async with aclosing(paced_pages(engine, space, span, read=read)) as pages:
            async for page in pages:
                rows = [
                    row
                    for row in page.rows
                    if not matches or any(match(row.key) is not None for match in matches)
                ]
                for record in records:
                    copied = await copies(engine, space, record, [row.key for row in rows])
                    rows = [row for row in rows if row.key not in copied]
                size = sum([len(row.key.encode()) + len(row.value) for row in rows])
                last = page.rows[-1].key if page.more else through
                yield UsagePage(len(rows), size, last, page.revision)


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
