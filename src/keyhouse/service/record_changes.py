"""The changes of several records of a space in one order, as `Store.watch` gives those of one."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from keyhouse.engine import CaughtUp, Row, Span
from keyhouse.errors import DataError
from keyhouse.schema import Record
from keyhouse.store import Event, Store, UnreadableRow

__all__ = ["watch_several"]


async def watch_several(
    store: Store,
    records: Sequence[Record[Any]],
    *,
    since: int,
    unreadable: Callable[[UnreadableRow], object],
    caught_up: CaughtUp,
) -> AsyncGenerator[Event[Any], None]:
    """Iterate over the changes of records that have no legacy keys. `unreadable` is called with a
    row that does not decode, which is left out."""
    bound = [store.binding.record(each) for each in records]
    async with aclosing(
        store.row_watch(_span(store, records), since=since, caught_up=caught_up)
    ) as (changes):
        async for change in changes:
            for each in bound:
                values = each.template.split(change.key)
                if values is not None:
                    break
            else:
                continue
            record, gone = None, change.value is None
            if change.value is not None:
                try:
                    record = each.decode(change.value, change.key)
                    gone = not each.is_live(record, change.key, store.engine.clock.now())
                except DataError as error:
                    error.fields["revision"] = change.revision
                    row = Row(change.key, change.value, change.revision, change.expires)
                    unreadable(UnreadableRow(row, error))
                    continue
            names = each.template.fields
            found = None if gone else record
            yield Event(found, change.key, values, change.revision, change.expires, gone, names)


def _span(store: Store, records: Sequence[Record[Any]]) -> Span:
    """Return the span from the first to the last of the records' keys."""
    spans = [store.span(each) for each in records]
    stops = [span.stop for span in spans if span.stop is not None]
    last = max(stops) if len(stops) == len(spans) else None
    return Span(min(each.start for each in spans), last)
