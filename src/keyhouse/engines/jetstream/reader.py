"""Rows and pages out of a bucket's mirror. Values that it does not hold are fetched, many at once.

While values are fetched, rows are written. A row that was read alone is then looked at again. A page must be of one moment,
so it is put together again from what was fetched and what is in the mirror now: what was written meanwhile has just come
by, and its value with it.
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
"""Values that are asked for at the same time."""


async def rows(bucket: Bucket, space: str, keys: Sequence[str], clock: Clock) -> list[Row | None]:
    fetched: dict[int, bytes] = {}
    while True:
        mirror, now = bucket.mirror, clock.now()
        cold: list[Entry] = []
        found: list[Row | None] = []
        for key in keys:
            row = None
            entry = mirror.entry(space, key)
            if entry is not None and entry.is_live(now):
                value = mirror.values.get(entry.sequence)
                if value is None and (value := fetched.get(entry.sequence)) is None:
                    cold.append(entry)
                else:
                    row = Row(key, value, entry.revision, entry.expires)
            found.append(row)
        if not cold:
            return found
        await _fetch(bucket, cold, fetched)


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
        cold: list[Entry] = []
        shown: list[Row] = []
        for key, entry in found[:limit]:
            value = mirror.values.get(entry.sequence)
            if value is None and (value := fetched.get(entry.sequence)) is None:
                cold.append(entry)
            else:
                shown.append(Row(key, value, entry.revision, entry.expires))
        if not cold:
            return Page(shown, more, mirror.position)
        await _fetch(bucket, cold, fetched)


async def _fetch(bucket: Bucket, cold: Iterable[Entry], fetched: dict[int, bytes]) -> None:
    waiting = iter(cold)
    overtaken = False
    while some := list(islice(waiting, FETCH_AT_ONCE)):
        values = await asyncio.gather(
            *(until_available(partial(bucket.value, entry)) for entry in some)
        )
        for entry, value in zip(some, values, strict=True):
            if value is None:
                overtaken = True
            else:
                fetched[entry.sequence] = value
    if overtaken:
        await until_available(bucket.sync)
