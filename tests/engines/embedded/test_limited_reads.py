"""Reads of limited bytes: engines of this process read no more rows than fit, however many the
caller asks for."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.testing.conformance.harness import Opener
from tests.support.engine_openers import memory, rocksdb, sqlite

SMALL, LARGE = b'"s"', b'"%b"' % (b"x" * 100_000)
KEYS = [f"k{number:03d}" for number in range(100)]
BYTES_MAX = 250_000


async def filled(opener: Opener) -> Engine:
    engine = await opener(ManualClock())
    for number, key in enumerate(KEYS):
        await engine.commit("ann", Batch(puts=(Put(key, SMALL if number < 60 else LARGE),)))
    return engine


@pytest.mark.parametrize("opened", [memory, sqlite, rocksdb])
def test_large_rows_after_small_ones_end_a_page(
    opened: Callable[[Path], Opener], tmp_path: Path
) -> None:
    """A page sized by 60 small rows read 50 large ones: 19 MB in one step of the event loop."""

    async def main() -> None:
        engine = await filled(opened(tmp_path))
        page = await engine.scan("ann", Span("k010"), limit=90, bytes_max=BYTES_MAX)
        assert [row.key for row in page.rows] == KEYS[10:62] and page.more
        page = await engine.scan("ann", Span(KEYS[62]), limit=38, bytes_max=BYTES_MAX)
        assert [row.key for row in page.rows] == KEYS[62:64] and page.more
        page = await engine.scan("ann", Span(), limit=90, bytes_max=BYTES_MAX, reverse=True)
        assert [row.key for row in page.rows] == KEYS[:-3:-1] and page.more
        page = await engine.scan("ann", Span(KEYS[98]), limit=90, bytes_max=BYTES_MAX)
        assert [row.key for row in page.rows] == KEYS[98:] and not page.more
        page = await engine.scan("ann", Span(KEYS[70]), limit=5, bytes_max=1)
        assert [row.key for row in page.rows] == KEYS[70:71] and page.more  # one row always fits
        page = await engine.scan("ann", Span(), limit=200, keys_only=True, bytes_max=1)
        assert len(page.rows) == 100 and not page.more
        rows = await engine.read("ann", ["no", *KEYS[58:]], bytes_max=BYTES_MAX)
        assert [row and row.key for row in rows] == [None, *KEYS[58:62]]
        rows = await engine.read("ann", KEYS[70:75], bytes_max=1)
        assert [row and row.key for row in rows] == KEYS[70:71]
        assert await engine.commit("ann", Batch(puts=(Put("z", SMALL),)))  # nothing is left open
        assert len((await engine.scan("ann", Span(), limit=200)).rows) == 101
        await engine.close()

    asyncio.run(main())
