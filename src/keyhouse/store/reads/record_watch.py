"""Watches of records: the changes of their rows, decoded."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from keyhouse.engine import CaughtUp, Change, Engine, Row, Span
from keyhouse.errors import DataError, UsageError
from keyhouse.keys.ranges import KeyRange
from keyhouse.schema import Keys, Record
from keyhouse.store.entry import Event
from keyhouse.store.reads.long_read import LongWatch
from keyhouse.store.reads.scan import covering_span
from keyhouse.store.reads.unreadable import UnreadableRow

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
        "_bound",
        "_names",
        "_split",
        "_start",
        "_stop",
        "has_legacy",
        "span",
    )

    def __init__(self, bound: Record[T], keys: KeyRange) -> None:
        self._bound = bound
        self._names = bound.template.fields
        self._split = bound.template.split
        self._start, self._stop = keys.span.start, keys.span.stop
        self._accepts = keys.accepts
        self._at = 0 if keys.accepts is None else self._names.index(keys.field)
        self.has_legacy = bound.legacy is not None
        self.span = covering_span(bound, keys.span) if self.has_legacy else keys.span

    def values(self, key: str) -> Keys | None:
        """Return the values of a key, which may be a legacy one; None if it is not watched."""
        if self.has_legacy:
            key = self._bound.current_key(key)
        if key < self._start or (self._stop is not None and key >= self._stop):
            return None
        values = self._split(key)
        if values is None or (self._accepts is not None and not self._accepts(values[self._at])):
            return None
        return values

    async def is_shadowed(self, engine: Engine, space: str, key: str) -> bool:
        """Return whether a key is a legacy one whose record is at its current key."""
        current = self._bound.current_key(key)
        return current != key and (await engine.read(space, (current,)))[0] is not None

    def event(self, change: Change, values: Keys, now: int) -> Event[T]:
        """Return a change decoded. Raises DataError."""
        bound, key, value = self._bound, change.key, change.value
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
    `Store.watch`. Where there are several records, none has a legacy key."""
    pace = LongWatch(space)
    watch = engine.watch(space, _covering(records), since=since, caught_up=caught_up)
    async with aclosing(watch) as changes:
        async for change in changes:
            if pace.is_due(0 if change.value is None else len(change.value)):
                await pace.turn()
            for each in records:
                values = each.values(change.key)
                if values is not None:
                    break
            else:
                continue
            if each.has_legacy and await each.is_shadowed(engine, space, change.key):
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
