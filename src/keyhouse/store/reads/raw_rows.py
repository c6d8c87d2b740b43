"""Raw rows: what is stored in one space, whether or not a schema knows it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from keyhouse.engine import CaughtUp, Change, Engine, Page, Row, Span, check_key
from keyhouse.store.arguments import check_page_limit
from keyhouse.store.reads.long_read import LongRead, paced_pages

_WHOLE = Span()


class RawRows:
    """Reads of the rows of one space. It needs no schema; a Store is one."""

    def __init__(self, engine: Engine, space: str) -> None:
        self.engine = engine
        self.space = space

    async def row(self, key: str) -> Row | None:
        """Return the row at a key, or None."""
        check_key(key)
        return (await self.engine.read(self.space, (key,)))[0]

    async def rows(self, keys: Sequence[str]) -> list[Row | None]:
        """Return the rows at these keys, in their order, by one read of the engine; None where
        there is none."""
        for key in keys:
            check_key(key)
        return await self.engine.read(self.space, keys) if keys else []

    async def rows_in_pages(self, keys: Sequence[str]) -> AsyncGenerator[list[Row | None], None]:
        """Iterate over the rows at these keys in pages of bounded size, in their order. A caller
        that has enough reads no more."""
        for key in keys:
            check_key(key)
        read = LongRead()
        start = 0
        while start < len(keys):
            rows = await self.engine.read(
                self.space, keys[start : start + read.rows], bytes_max=read.bytes_max
            )
            count = read.fit([0 if row is None else len(row.value) for row in rows])
            yield rows[:count]
            start += count

    async def row_page(
        self,
        span: Span = _WHOLE,
        *,
        limit: int = 100,
        reverse: bool = False,
        keys_only: bool = False,
    ) -> Page:
        """Return up to `limit` rows of a span, read at the page's `revision`. `keys_only` leaves
        the values empty.

        While `page.more`, the next page is `span.after(page.rows[-1].key)`, or `before` it when
        `reverse`.
        """
        check_page_limit(limit)
        return await self.engine.scan(
            self.space, span, limit=limit, reverse=reverse, keys_only=keys_only
        )

    async def row_scan(
        self, span: Span = _WHOLE, *, reverse: bool = False, keys_only: bool = False
    ) -> AsyncGenerator[Row, None]:
        """Iterate over all rows of a span, page by page: each page is read at its own revision, and
        between them other tasks run."""
        pages = paced_pages(self.engine, self.space, span, reverse=reverse, keys_only=keys_only)
        async with aclosing(pages):
            async for page in pages:
                for row in page.rows:
                    yield row

    async def row_watch(
        self,
        span: Span = _WHOLE,
        *,
        since: int | None = None,
        caught_up: CaughtUp | None = None,
    ) -> AsyncGenerator[Change, None]:
        """Iterate over the changes of a span as `Engine.watch` does."""
        watch = self.engine.watch(self.space, span, since=since, caught_up=caught_up)
        async with aclosing(watch) as changes:
            async for change in changes:
                yield change

    async def revision(self) -> int:
        """Return the newest revision of the space: `watch` since it gives every later change."""
        return (await self.engine.scan(self.space, _WHOLE, limit=1, keys_only=True)).revision
