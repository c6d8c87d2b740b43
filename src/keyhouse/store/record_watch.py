"""Watches of records: the changes of their rows, decoded."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from keyhouse.engine import CaughtUp, Engine, Row, Span
from keyhouse.errors import DataError, UsageError
from keyhouse.keys.ranges import KeyRange
from keyhouse.schema import Record
from keyhouse.store.entry import Event
from keyhouse.store.long_read import LongWatch
from keyhouse.store.scan import covering_span
from keyhouse.store.unreadable import OnUnreadable, UnreadableRows

T = TypeVar("T")


_REVISION_MAX = 2**63 - 1


def check_watch_start(since: int | None) -> None:
    """Raise UsageError unless a watch can start after `since`."""
    if since is not None and (type(since) is not int or not 0 <= since <= _REVISION_MAX):
        raise UsageError(
            "A watch starts after a revision: a whole number, as an entry or a page has it.",
            since=since,
        )


async def watch_records(
    engine: Engine,
    space: str,
    bound: Record[T],
    keys: KeyRange,
    since: int | None,
    on_unreadable: OnUnreadable,
    caught_up: CaughtUp | None = None,
) -> AsyncGenerator[Event[T], None]:
    """Iterate over the changes of the records of a range; see `Store.watch`."""
    unreadable = UnreadableRows(on_unreadable)
    span, accepts = keys.span, keys.accepts
    at = 0 if accepts is None else bound.template.fields.index(keys.field)
    legacy, names = bound.legacy is not None, bound.template.fields
    watched = covering_span(bound, span) if legacy else span
    pace = LongWatch(space)
    async with aclosing(engine.watch(space, watched, since=since, caught_up=caught_up)) as changes:
        async for change in changes:
            if pace.is_due(0 if change.value is None else len(change.value)):
                await pace.turn()
            if legacy and await _is_shadowed(engine, space, bound, span, change.key):
                continue
            values = bound.template.split(bound.current_key(change.key))
            if values is None or (accepts is not None and not accepts(values[at])):
                continue
            record, gone = None, change.value is None
            if change.value is not None:
                try:
                    record = bound.decode(change.value, change.key)
                    gone = not bound.is_live(record, change.key, engine.clock.now())
                except DataError as error:
                    error.fields["revision"] = change.revision
                    row = Row(change.key, change.value, change.revision, change.expires)
                    unreadable.add(row, error)
                    unreadable.rows.clear()  # a watch has no end
                    continue
            record = None if gone else record
            stored = change.value if bound.keeps_unknown and not gone else None
            yield Event(
                record, change.key, values, change.revision, change.expires, gone, names, stored
            )


async def _is_shadowed(
    engine: Engine, space: str, bound: Record[Any], span: Span, key: str
) -> bool:
    """Tell whether a change is none of the records of a span: it is of another key, or of a legacy
    key whose record is at its current key."""
    current = bound.current_key(key)
    if current not in span:
        return True
    return current != key and (await engine.read(space, (current,)))[0] is not None
