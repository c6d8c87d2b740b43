"""What readers see: the rows as of the last commit that is durable, and not what is being written at the moment.

A view is a snapshot of RocksDB and the revision that it stands for. Both change in one step of the event loop, when a group
of commits is on disk. Reads run on the caller's thread: a row that is cached costs a few microseconds, one that is not costs
a read of the disk, for which the loop waits.

A driver's snapshot gives single rows only: an iterator made from it shows what is newest all the same. So a scan goes over
what is newest, and takes the rows that are being written, which the writer names, from the snapshot one by one.
"""

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
    """`oldest`: the first revision whose change is kept. `reopened` is called when the database had to be opened anew: it
    may hold what was never confirmed."""

    def __init__(self, database: Database, clock: Clock, reopened: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._reopened = reopened
        self._snapshot: Snapshot | None = None
        self._closed = False
        self.refresh(database.newest_revision(), database.oldest_revision())

    def refresh(self, revision: int, oldest: int) -> None:
        """Show everything that is in the database: it is durable, and of this revision."""
        self._snapshot = self._database.snapshot()
        self._in_flight = _InFlightKeys(())
        self.revision = revision
        self.oldest = oldest

    def hold(self, keys: Collection[bytes]) -> None:
        """Go on showing these rows as they are, though they are about to be written, until the next `refresh`. This alone
        is called on the writer's thread as well, before it writes."""
        self._in_flight = _InFlightKeys(keys)

    def reopen(self) -> None:
        """Open the database anew after a write has failed, and show what it holds. Until there is room for that, the old
        handle goes on serving reads."""
        if self._closed:
            raise ClosedError(CLOSED, folder=self._database.folder)
        if self._database.is_open:
            self._database.check_room()
            self._snapshot = None  # it would keep the folder locked
            self._database.close()
        self._database.open()
        self.refresh(self._database.newest_revision(), self._database.oldest_revision())
        self._reopened()

    def close(self) -> None:
        """Hold nothing of the database, so that it can be closed."""
        self._closed = True
        self._snapshot = None

    def rows(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        snapshot = self._shown()
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
        """The row as it lies there, expired or not."""
        data = self._row(prefix_of(space) + key.encode())
        if data is None:
            return None
        revision, expires = _head_of(data)
        return Row(key, data[HEAD_BYTES:], revision, None if expires == NEVER else expires)

    def page(self, space: str, span: Span, limit: int, *, reverse: bool, keys_only: bool) -> Page:
        prefix = prefix_of(space)
        start, stop = bounds(prefix, span)  # held for as long as the walk: see `walk`
        found = self._walk(start, stop, reverse=reverse)
        rows, more = live_rows(found, len(prefix), self._clock.now(), limit, keys_only=keys_only)
        return Page(rows, more, self.revision)

    def next_space(self, least: bytes) -> str | None:
        """The first space from `least` on that holds a live row."""
        return live_space(self._walk(least, None), self._clock.now())

    def moment(self) -> tuple[RdictIter, dict[bytes, bytes | None]]:
        """What shows all rows as they are now, however long it is held: an iterator, and what to show in place of the rows
        that it finds at some keys. As long as anyone has the iterator, the folder can't be closed."""
        self._shown()
        at = self._iterator(None)
        return at, {key: self._row(key) for key in self._in_flight.keys}

    def _walk(
        self, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start` up to `stop`, or backward from there."""
        if stop is not None and stop <= start:
            return iter(())
        self._shown()
        newest = steps(self._iterator(stop), start, self._database.folder, reverse=reverse)
        in_flight = (
            self._in_flight
        )  # asked after the iterator was made: else the writer's thread could write between the two
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

    def _iterator(self, stop: bytes | None) -> RdictIter:
        return self._database.rows.iter(bounded(stop))

    def _row(self, key: bytes) -> bytes | None:
        try:
            data: bytes = self._shown()[key]
        except Exception as error:
            if is_absent(error):
                return None
            raise translate(error, self._database.folder) from error
        return data

    def _shown(self) -> Snapshot:
        if self._snapshot is None:
            self.reopen()
        assert self._snapshot is not None
        return self._snapshot


def live_rows(
    found: Iterable[tuple[bytes, bytes]],
    skip: int,
    now: int,
    limit: int,
    *,
    keys_only: bool = False,
) -> tuple[list[Row], bool]:
    """Up to `limit` rows that have not expired, and whether there is one more. `skip`: bytes of the space in a key."""
    rows: list[Row] = []
    for key, data in found:
        revision, expires = _head_of(data)
        if expires == NEVER:
            expires = None
        elif expires <= now:
            continue
        if len(rows) == limit:
            return rows, True
        rows.append(
            Row(key[skip:].decode(), b"" if keys_only else data[HEAD_BYTES:], revision, expires)
        )
    return rows, False


def live_space(found: Iterable[tuple[bytes, bytes]], now: int) -> str | None:
    """The space of the first row that has not expired."""
    for key, data in found:
        if _head_of(data)[1] > now:
            return split_key(key)[0]
    return None


class _InFlightKeys:
    """The keys of rows that may be on their way to the disk. They are put in order only when a scan asks for it."""

    __slots__ = ("_in_order", "keys")

    def __init__(self, keys: Collection[bytes]) -> None:
        self.keys = keys
        self._in_order: list[bytes] | None = None

    def within(self, start: bytes, stop: bytes | None) -> list[bytes]:
        if self._in_order is None:
            self._in_order = sorted(self.keys)
        order = self._in_order
        return order[
            bisect_left(order, start) : len(order) if stop is None else bisect_left(order, stop)
        ]
