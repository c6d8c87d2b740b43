"""The rows that readers see: those of the last durable commit, without writes in flight.

A view is a snapshot of RocksDB and its revision. Both change in one step of the event loop, when a
group of commits is on disk. Reads run on the caller's thread: a cached row costs a few
microseconds, any other a read of the disk, for which the loop waits.

The driver's snapshot reads single rows only: an iterator made from it shows the newest state. So a
scan iterates over the newest state, and reads the rows in flight, whose keys the writer supplies,
from the snapshot one by one.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge

from rocksdict import RdictIter, Snapshot

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.encoding import HEAD, HEAD_BYTES, NEVER, bounds, prefix_of, split_key
from keyhouse.engines.rocksdb.error_map import CLOSED, is_absent, translate
from keyhouse.engines.rocksdb.iterators import bounded, steps
from keyhouse.errors import ClosedError

_head_of = HEAD.unpack_from


class CommittedView:
    """`oldest`: the oldest revision in the log of changes.

    `reopened` is called after the database was reopened: it may hold commits never confirmed.
    """

    def __init__(self, database: Database, clock: Clock, reopened: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._reopened = reopened
        self._snapshot: Snapshot | None = None
        self._closed = False
        self.refresh(database.newest_revision(), database.oldest_revision())

    def refresh(self, revision: int, oldest: int) -> None:
        """Show everything in the database: all of it is durable, at this revision."""
        self._snapshot = self._database.snapshot()
        self._in_flight = _InFlightKeys(())
        self.revision = revision
        self.oldest = oldest

    def hold(self, keys: Collection[bytes]) -> None:
        """Keep showing these rows as they are until the next `refresh`: they are about to be
        written.

        The only method that is also called on the writer's thread.
        """
        self._in_flight = _InFlightKeys(keys)

    def reopen(self) -> None:
        """Reopen the database after a failed write, and show its rows.

        Until there is space for that, the old handle serves reads.
        """
        if self._closed:
            raise ClosedError(CLOSED, folder=self._database.folder)
        if self._database.is_open:
            self._database.check_space()
            self._snapshot = None  # it keeps the folder locked
            self._database.close()
        self._database.open()
        self.refresh(self._database.newest_revision(), self._database.oldest_revision())
        self._reopened()

    def close(self) -> None:
        """Release the snapshot, so that the database can be closed."""
        self._closed = True
        self._snapshot = None

    def rows(
        self, space: str, keys: Sequence[str], bytes_max: int | None = None
    ) -> list[Row | None]:
        snapshot, left = self._current(), sys.maxsize if bytes_max is None else bytes_max
        prefix, now = prefix_of(space), self._clock.now()
        rows: list[Row | None] = []
        for name in [prefix + key.encode() for key in keys]:
            try:
                data = snapshot[name]
            except Exception as error:
                if not is_absent(error):
                    raise translate(error, self._database.folder) from error
                rows.append(None)
                continue
            left -= len(data)
            if left < 0 and rows:
                break
            revision, expires = _head_of(data)
            key = keys[len(rows)]
            if expires == NEVER:
                rows.append(Row(key, data[HEAD_BYTES:], revision))
            else:
                rows.append(
                    Row(key, data[HEAD_BYTES:], revision, expires) if expires > now else None
                )
        return rows

    def stored(self, space: str, key: str) -> Row | None:
        """Return the row as stored, expired or not."""
        data = self._row(prefix_of(space) + key.encode())
        if data is None:
            return None
        revision, expires = _head_of(data)
        return Row(key, data[HEAD_BYTES:], revision, None if expires == NEVER else expires)

    def page(
        self,
        space: str,
        span: Span,
        limit: int,
        *,
        reverse: bool,
        keys_only: bool,
        bytes_max: int | None = None,
    ) -> Page:
        prefix = prefix_of(space)
        start, stop = bounds(prefix, span)  # kept alive while iterating: see `iterators`
        entries = self._range(start, stop, reverse=reverse)
        rows, more = live_rows(
            entries,
            len(prefix),
            self._clock.now(),
            limit,
            keys_only=keys_only,
            bytes_max=bytes_max,
        )
        return Page(rows, more, self.revision)

    def next_space(self, least: bytes) -> str | None:
        """Return the first space from `least` on that has a live row."""
        return live_space(self._range(least, None), self._clock.now())

    def freeze(self) -> tuple[RdictIter, dict[bytes, bytes | None]]:
        """Return the current state: an iterator, and an overlay for the rows in flight.

        While the iterator is referenced, the folder cannot be closed.
        """
        self._current()
        iterator = self.iterator(None)
        return iterator, {key: self._row(key) for key in self._in_flight.keys}

    def _range(
        self, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows from `start` up to `stop`, or backward from there."""
        if stop is not None and stop <= start:
            return iter(())
        self._current()
        newest = steps(self.iterator(stop), start, self._database.folder, reverse=reverse)
        # Read after the iterator was made: else the writer's thread could write between the two.
        in_flight = self._in_flight
        held = in_flight.within(start, stop)
        if not held:
            return newest
        durable = (row for row in newest if row[0] not in in_flight.keys)
        before = (
            (key, data)
            for key in (reversed(held) if reverse else held)
            if (data := self._row(key)) is not None
        )
        return merge(durable, before, reverse=reverse)

    def iterator(self, stop: bytes | None) -> RdictIter:
        return self._database.rows.iter(bounded(stop))

    def _row(self, key: bytes) -> bytes | None:
        try:
            data: bytes = self._current()[key]
        except Exception as error:
            if is_absent(error):
                return None
            raise translate(error, self._database.folder) from error
        return data

    def _current(self) -> Snapshot:
        if self._snapshot is None:
            self.reopen()
        assert self._snapshot is not None
        return self._snapshot


def live_rows(
    entries: Iterable[tuple[bytes, bytes]],
    skip: int,
    now: int,
    limit: int,
    *,
    keys_only: bool = False,
    bytes_max: int | None = None,
) -> tuple[list[Row], bool]:
    """Return up to `limit` live rows, no more than fit in `bytes_max`, and True if there is one
    more.

    `skip`: bytes of the space in a key.
    """
    rows: list[Row] = []
    left = sys.maxsize if bytes_max is None or keys_only else bytes_max
    for key, data in entries:
        revision, expires = _head_of(data)
        if expires == NEVER:
            expires = None
        elif expires <= now:
            continue
        left -= len(data)
        if len(rows) == limit or (left < 0 and rows):
            return rows, True
        rows.append(
            Row(key[skip:].decode(), b"" if keys_only else data[HEAD_BYTES:], revision, expires)
        )
    return rows, False


def live_space(entries: Iterable[tuple[bytes, bytes]], now: int) -> str | None:
    """Return the space of the first live row."""
    for key, data in entries:
        if _head_of(data)[1] > now:
            return split_key(key)[0]
    return None


class _InFlightKeys:
    """The keys of rows that may be in flight. Sorted only when a scan needs them."""

    __slots__ = ("_sorted", "keys")

    def __init__(self, keys: Collection[bytes]) -> None:
        self.keys = keys
        self._sorted: list[bytes] | None = None

    def within(self, start: bytes, stop: bytes | None) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self.keys)
        keys = self._sorted
        end = len(keys) if stop is None else bisect_left(keys, stop)
        return keys[bisect_left(keys, start) : end]
