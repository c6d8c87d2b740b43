"""Watches of records: the changes of their rows, decoded."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from keyhouse.engine import CaughtUp, Change, Engine, Row, Span
from keyhouse.errors import DataError, UsageError
from keyhouse.keys.ranges import KeyRange
from keyhouse.schema import BoundRecord, KeyValues
from keyhouse.store.entry import Event
from keyhouse.store.reads.unreadable import UnreadableRow
from keyhouse.store.stored_keys import copies, covering_span

T = TypeVar("T")


_REVISION_MAX = 2**63 - 1


def check_watch_start(since: int | None) -> None:
    """Raise UsageError unless a watch can start after `since`."""
    if since is not None and (type(since) is not int or not 0 <= since <= _REVISION_MAX):
        raise UsageError(
            "A watch starts after a revision: a whole number, as an entry or a page has it.",
            since=since,
        )


class WatchedRecord(Generic[T]):
    """A bound record, and the range of its keys that is watched."""

    __slots__ = (
        "_accepts",
        "_at",
        "_names",
        "_split",
        "_start",
        "_stop",
        "bound",
        "span",
    )

    def __init__(self, bound: BoundRecord[T], keys: KeyRange) -> None:
        self.bound = bound
        self._names = bound.template.fields
        self._split = bound.template.split
        self._start, self._stop = keys.span.start, keys.span.stop
        self._accepts = keys.accepts
        self._at = 0 if keys.accepts is None else self._names.index(keys.field)
        self.span = covering_span(bound, keys.span)

    def values(self, key: str) -> KeyValues | None:
        """Return the values of a record's key, where a row was found; None if it is not
        watched."""
        key = self.bound.key_of(key)
        if key < self._start or (self._stop is not None and key >= self._stop):
            return None
        values = self._split(key)
        if values is None or (self._accepts is not None and not self._accepts(values[self._at])):
            return None
        return values

    def event(self, change: Change, values: KeyValues, now: int) -> Event[T]:
        """Return a change decoded. Raises DataError."""
        bound, key, value = self.bound, change.key, change.value
        record, gone = None, True  # a record of any JSON may be None as well
        if value is not None:
            found = bound.decode(value, key)
            if bound.is_live(found, key, now):
                record, gone = found, False
        stored = value if bound.keeps_unknown and not gone else None
        return Event(
            record, key, values, change.revision, change.expires, gone, self._names, stored
        )


async def watch_records(
    engine: Engine,
    space: str,
    records: Sequence[WatchedRecord[T]],
    since: int | None,
    caught_up: CaughtUp | None = None,
) -> AsyncGenerator[Event[T] | UnreadableRow, None]:
    """Iterate over the changes of records in one order, also those that do not decode; see
    `Store.watch`. Where there are several records, none moves."""
    watch = engine.watch(space, _covering(records), since=since, caught_up=caught_up)
    async with aclosing(watch) as changes:
        async for change in changes:
            for each in records:
                values = each.values(change.key)
                if values is not None:
                    break
            else:
                continue
            if await copies(engine, space, each.bound, [change.key]):
                continue
            try:
                event: Event[T] | UnreadableRow = each.event(change, values, engine.clock.now())
            except DataError as error:
                assert change.value is not None
                error.fields["revision"] = change.revision
                row = Row(change.key, change.value, change.revision, change.expires)
                event = UnreadableRow(row, error)
            yield event


def _covering(records: Sequence[WatchedRecord[T]]) -> Span:
    """Return one span over those of all records."""
    stops = [each.span.stop for each in records if each.span.stop is not None]
    stop = max(stops) if len(stops) == len(records) else None
    return Span(min(each.span.start for each in records), stop)
