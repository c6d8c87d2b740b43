"""Reads rows and pages from a bucket's mirror, fetching values that the cache has evicted.

Rows may be written while values are fetched, and a page must show one state. So after each fetch
the result is assembled again from the current mirror, the cache and the fetched values. Rows that
were written meanwhile have just been delivered, with their values.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.retry import until_available

FETCH_AT_ONCE: Final = 64
"""Concurrent value requests."""


async def rows(bucket: Bucket, space: str, keys: Sequence[str], clock: Clock) -> list[Row | None]:
    fetched: dict[int, bytes] = {}
    while True:
        mirror, now = bucket.mirror, clock.now()
        missing: list[Entry] = []
        result: list[Row | None] = []
        for key in keys:
            row = None
            entry = mirror.entry(space, key)
            if entry is not None and entry.is_live(now):
                value = mirror.values.get(entry.sequence)
                if value is None and (value := fetched.get(entry.sequence)) is None:
                    missing.append(entry)
                else:
                    row = Row(key, value, entry.revision, entry.expires)
            result.append(row)
        if not missing:
            return result
        await _fetch(bucket, missing, fetched)


async def page(
    bucket: Bucket,
    space: str,
    span: Span,
    clock: Clock,
    *,
    limit: int,
    reverse: bool,
    keys_only: bool,
) -> Page:
    fetched: dict[int, bytes] = {}
    while True:
        mirror, now = bucket.mirror, clock.now()
        entries = mirror.scan(space, span, reverse=reverse)
        found = list(
            islice(((key, entry) for key, entry in entries if entry.is_live(now)), limit + 1)
        )
        more = len(found) > limit
        if keys_only:
            return Page(
                [Row(key, b"", each.revision, each.expires) for key, each in found[:limit]],
                more,
                mirror.position,
            )
        missing: list[Entry] = []
        page_rows: list[Row] = []
        for key, entry in found[:limit]:
            value = mirror.values.get(entry.sequence)
            if value is None and (value := fetched.get(entry.sequence)) is None:
                missing.append(entry)
            else:
                page_rows.append(Row(key, value, entry.revision, entry.expires))
        if not missing:
            return Page(page_rows, more, mirror.position)
        await _fetch(bucket, missing, fetched)


async def _fetch(bucket: Bucket, missing: Iterable[Entry], fetched: dict[int, bytes]) -> None:
    remaining = iter(missing)
    is_outdated = False
    while some := list(islice(remaining, FETCH_AT_ONCE)):
        values = await asyncio.gather(
            *(until_available(partial(bucket.value, entry)) for entry in some)
        )
        for entry, value in zip(some, values, strict=True):
            if value is None:
                is_outdated = True
            else:
                fetched[entry.sequence] = value
    if is_outdated:
        await until_available(bucket.sync)
