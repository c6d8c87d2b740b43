"""A snapshot of the folder. A RocksDB iterator shows the state at its creation, wherever it seeks.

While a snapshot is open, the engine cannot reopen the folder, as it does after a full disk.
"""

from collections.abc import AsyncIterator, Iterator
from heapq import merge
from itertools import takewhile

from rocksdict import RdictIter

from keyhouse.clock import Clock
from keyhouse.engine import Page, Span
from keyhouse.engines.rocksdb.encoding import bounds, prefix_of
from keyhouse.engines.rocksdb.error_map import CLOSED
from keyhouse.engines.rocksdb.iterators import steps
from keyhouse.engines.rocksdb.view import CommittedView, live_rows, live_space
from keyhouse.errors import ClosedError


class Snapshot:
    """Implements ReadView."""

    def __init__(self, view: CommittedView, clock: Clock, folder: str) -> None:
        iterator, in_flight = view.freeze()
        self._iterator: RdictIter | None = iterator
        self._overlay = in_flight
        self._revision = view.revision
        self.clock = clock
        self._folder = folder

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        prefix = prefix_of(space)
        rows, more = live_rows(
            self._range(*bounds(prefix, span)), len(prefix), self.clock.now(), limit
        )
        return Page(rows, more, self._revision)

    async def spaces(self) -> AsyncIterator[str]:
        space = live_space(self._range(b"", None), self.clock.now())
        while space is not None:
            yield space
            space = live_space(self._range(space.encode() + b"\1", None), self.clock.now())

    def close(self) -> None:
        self._iterator = None

    def _range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        entries = self._steps(start, stop)
        if not self._overlay:
            return entries
        others = (row for row in entries if row[0] not in self._overlay)
        overlay = sorted(
            (key, data)
            for key, data in self._overlay.items()
            if data is not None and start <= key and (stop is None or key < stop)
        )
        return merge(others, overlay)

    def _steps(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over a range. One at a time: all share the iterator."""
        if self._iterator is None:
            raise ClosedError(CLOSED, folder=self._folder)
        entries = steps(self._iterator, start, self._folder)
        return entries if stop is None else takewhile(lambda row: row[0] < stop, entries)
