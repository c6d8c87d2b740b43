"""Where the row of a record is: at its key, or at the legacy key that it had before.

Theory of operation. A record declared with `legacy_at` *moves*: its row is at its legacy key or at
its own one. It moves in one direction only, from the legacy key to its own, in one commit that
writes the one row and deletes the other. Three rules follow, and nothing else of the store knows
them; other modules call these functions for every record:

    read    The rows of one read are not of one moment. So the legacy key is read first, and a
            record that was found at neither key is looked up once more at its own.
    order   Both templates have the same tail, so legacy keys order as the record's own ones do, and
            two scans merge.
    copy    A row at a legacy key whose record is at its own key too is a copy: a run of
            `migrate_keys` made it, or another program. It is not listed and not counted.

The hot paths that ask `moves` themselves only save a call: they read a key as `read_record` and
`stored_key` would. A wrapper of an engine cannot do it: a commit checks the row that was read, at
the key at which it was read, and raw rows and entries show that key (ADR 0054).
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from keyhouse.engine import Engine, Page, Row, Span, check_key
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.schema import BoundDeclared, BoundRecord, BoundSchema
from keyhouse.store.writes.row_buffer import RowBuffer

_TOGETHER_MAX: Final = 4
"""Moving records that are read at once by a read of limited size."""


async def read_record(engine: Engine, space: str, bound: BoundRecord[Any], key: str) -> Row | None:
    """Return the row of the record at a key, or None."""
    if not bound.moves:
        return (await engine.read(space, (key,)))[0]
    legacy, own = await engine.read(space, (bound.legacy_key(key), key))
    return own or legacy or (await engine.read(space, (key,)))[0]


async def read_records(
    engine: Engine,
    space: str,
    bound: BoundRecord[Any],
    keys: Sequence[str],
    bytes_max: int | None = None,
) -> list[Row | None]:
    """Return the rows of the records at these keys, in their order; None where there is none. With
    `bytes_max`, those of the first keys, as `Engine.read` returns them."""
    if not keys:
        return []
    if not bound.moves:
        return await engine.read(space, keys, bytes_max=bytes_max)
    if bytes_max is not None:
        if len(keys) * VALUE_BYTES_MAX > bytes_max:
            keys = keys[:_TOGETHER_MAX]
        bytes_max = sys.maxsize
    count, both = len(keys), [*map(bound.legacy_key, keys), *keys]
    rows = await engine.read(space, both, bytes_max=bytes_max)
    found = [own or legacy for legacy, own in zip(rows[:count], rows[count:], strict=True)]
    if missing := [at for at, row in enumerate(found) if row is None]:
        again = await engine.read(space, [keys[at] for at in missing])
        for at, row in zip(missing, again, strict=True):
            found[at] = row
    return found


async def stored_key(rows: RowBuffer, bound: BoundRecord[Any], key: str) -> str:
    """Return the key at which the row of a record is, as a transaction sees it, and read the row;
    its own key if there is no row."""
    if not bound.moves:
        await rows.row(key)
        return key
    legacy, stored = bound.legacy_key(key), rows.stored
    is_first_read = key not in stored and legacy not in stored
    await rows.read((legacy, key))
    if is_first_read and stored[key] is None and stored[legacy] is None:
        del stored[key]
        await rows.read((key,))
    return legacy if rows.seen(key) is None and rows.seen(legacy) is not None else key


async def written_key(
    rows: RowBuffer, binding: BoundSchema, bound: BoundRecord[Any], key: str
) -> str:
    """Return the key at which to write a record, and delete the row at the other one.

    That is its own key; the legacy one, if the schema writes those and the record is not at its own
    key.
    """
    if not bound.moves:
        return key
    legacy = bound.legacy_key(key)
    if binding.schema.writes_legacy_keys and await rows.row(key) is None:
        check_key(legacy)
        return legacy
    if await rows.row(legacy) is not None:
        rows.writes[legacy] = None
    return key


async def delete_stored_row(rows: RowBuffer, bound: BoundRecord[Any], key: str) -> None:
    """Buffer the deletion of the row of a record, and of its copy."""
    if bound.moves:
        await stored_key(rows, bound, key)
        for each in bound.stored_keys(key):
            if rows.seen(each) is not None:
                rows.writes[each] = None
    else:
        rows.writes[key] = None
    rows.adds.pop(key, None)


async def copies(
    engine: Engine, space: str, bound: BoundRecord[Any], keys: Sequence[str]
) -> frozenset[str]:
    """Return those of the keys that are legacy ones whose record is at its own key too."""
    if not bound.moves:
        return frozenset()
    moved = {key: own for key in keys if (own := bound.key_of(key)) != key}
    rows = await engine.read(space, list(moved.values())) if moved else []
    return frozenset(key for key, row in zip(moved, rows, strict=True) if row is not None)


class PageRequest(NamedTuple):
    """The rows of a page: up to `limit` of a span, no more than fit in `bytes_max`."""

    span: Span
    limit: int
    reverse: bool
    keys_only: bool
    bytes_max: int | None


ReadPage = Callable[[BoundDeclared, PageRequest], Awaitable[Page]]
"""Reads a page of the rows of a declaration at one place."""


def read_page(read: ReadPage, declared: BoundDeclared, request: PageRequest) -> Awaitable[Page]:
    """Return a page of the rows of a declaration, each record once, ordered by their keys."""
    if isinstance(declared, BoundRecord) and declared.moves:
        return _merged_page(read, declared, request)
    return read(declared, request)


async def _merged_page(read: ReadPage, bound: BoundRecord[Any], request: PageRequest) -> Page:
    assert bound.legacy is not None
    reverse, limit = request.reverse, request.limit
    span = _legacy_span(bound, request.span)
    legacy = await read(bound.legacy, request._replace(span=span))
    pages = [legacy, await read(bound, request)]
    key_of = bound.key_of
    rows = {key_of(row.key): row for page in pages for row in page.rows}
    ends = [key_of(page.rows[-1].key) for page in pages if page.more]
    keys = sorted(rows, reverse=reverse)
    if ends:  # beyond the end of a page that has more, rows are missing
        end = max(ends) if reverse else min(ends)
        keys = [key for key in keys if (key >= end if reverse else key <= end)]
    more = bool(ends) or len(keys) > limit
    return Page([rows[key] for key in keys[:limit]], more, legacy.revision)


def covering_span(bound: BoundRecord[Any], span: Span) -> Span:
    """Return one span over all keys at which the rows of these records may be, and what lies
    between."""
    if not bound.moves:
        return span
    legacy = _legacy_span(bound, span)
    stop = None if span.stop is None or legacy.stop is None else max(span.stop, legacy.stop)
    return Span(min(span.start, legacy.start), stop)


def _legacy_span(bound: BoundRecord[Any], span: Span) -> Span:
    """Return the legacy keys of the records whose own keys are in a span."""
    assert bound.legacy is not None
    head, whole = bound.template.head, Span.prefix(bound.legacy.template.head)
    start = bound.legacy_key(span.start) if span.start.startswith(head) else whole.start
    if span.stop is None or not span.stop.startswith(head):
        return Span(start, whole.stop)
    return Span(start, bound.legacy_key(span.stop))
