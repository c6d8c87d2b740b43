"""Reads rows and pages from a bucket's mirror, fetching values that the cache has evicted.

Rows may be written while values are fetched, and a page must show one state. So after each fetch
the result is assembled again from the current mirror, the cache and the fetched values. Rows that
were written meanwhile have just been delivered, with their values.

Another program may purge messages, of which nobody is notified. A row whose value is gone although
the mirror is up to date is looked up by its key, and removed (`Bucket.reconcile`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.errors import UnavailableError

FETCH_AT_ONCE: Final = 64
"""Concurrent value requests."""

ATTEMPTS_MAX: Final = 100
"""Assemblies of one result: each takes a request to the server."""


async def rows(bucket: Bucket, space: str, keys: Sequence[str], clock: Clock) -> list[Row | None]:
    fetched: dict[int, bytes] = {}
    for _ in range(ATTEMPTS_MAX):
        mirror, now = bucket.mirror, clock.now()
        missing: dict[str, Entry] = {}
        result: list[Row | None] = []
        for key in keys:
            row = None
            entry = mirror.entry(space, key)
            if entry is not None and entry.is_live(now):
                value = mirror.values.get(entry.sequence)
                if value is None and (value := fetched.get(entry.sequence)) is None:
                    missing[key] = entry
                else:
                    row = Row(key, value, entry.revision, entry.expires)
            result.append(row)
        if not missing:
            return result
        await _fetch(bucket, space, missing, fetched)
    raise _changing(bucket)


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
    for _ in range(ATTEMPTS_MAX):
        mirror, now = bucket.mirror, clock.now()
        entries = mirror.scan(space, span, reverse=reverse)
        live = list(
            islice(((key, entry) for key, entry in entries if entry.is_live(now)), limit + 1)
        )
        more = len(live) > limit
        if keys_only:
            return Page(
                [Row(key, b"", each.revision, each.expires) for key, each in live[:limit]],
                more,
                mirror.position,
            )
        missing: dict[str, Entry] = {}
        page_rows: list[Row] = []
        for key, entry in live[:limit]:
            value = mirror.values.get(entry.sequence)
            if value is None and (value := fetched.get(entry.sequence)) is None:
                missing[key] = entry
            else:
                page_rows.append(Row(key, value, entry.revision, entry.expires))
        if not missing:
            return Page(page_rows, more, mirror.position)
        await _fetch(bucket, space, missing, fetched)
    raise _changing(bucket)


async def _fetch(
    bucket: Bucket,
    space: str,
    missing: Mapping[str, Entry],
    fetched: dict[int, bytes],
) -> None:
    remaining = iter(missing.values())
    outdated: set[int] = set()
    while some := list(islice(remaining, FETCH_AT_ONCE)):
        values = await asyncio.gather(
            *(until_available(partial(bucket.value, entry)) for entry in some)
        )
        for entry, value in zip(some, values, strict=True):
            if value is None:
                outdated.add(entry.sequence)
            else:
                fetched[entry.sequence] = value
    if not outdated:
        return
    await until_available(bucket.sync)
    gone = [
        RowKey(space, key)
        for key, entry in missing.items()
        if entry.sequence in outdated and bucket.mirror.entry(space, key) == entry
    ]
    if gone:
        await until_available(lambda: bucket.reconcile(gone))


def _changing(bucket: Bucket) -> UnavailableError:
    return UnavailableError(
        "The rows change faster than they can be read; try again.", bucket=bucket.names.bucket
    )
