"""The folder as of one moment. An iterator of RocksDB goes on showing what there was when it was made, wherever it is sent.

While a snapshot is held, the folder can't be opened anew, which is what the engine does after a disk that was full.
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
    """Is a View."""

    def __init__(self, view: CommittedView, clock: Clock, folder: str) -> None:
        moment = view.moment()
        self._at: RdictIter | None = moment[0]
        self._before = moment[1]
        self._revision = view.revision
        self._clock = clock
        self._folder = folder

    @property
    def clock(self) -> Clock:
        return self._clock

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        prefix = prefix_of(space)
        rows, more = live_rows(
            self._walk(*bounds(prefix, span)), len(prefix), self._clock.now(), limit
        )
        return Page(rows, more, self._revision)

    async def spaces(self) -> AsyncIterator[str]:
        space = live_space(self._walk(b"", None), self._clock.now())
        while space is not None:
            yield space
            space = live_space(self._walk(space.encode() + b"\1", None), self._clock.now())

    def close(self) -> None:
        self._at = None

    def _walk(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        found = self._steps(start, stop)
        if not self._before:
            return found
        others = (row for row in found if row[0] not in self._before)
        before = sorted(
            (key, data)
            for key, data in self._before.items()
            if data is not None and start <= key and (stop is None or key < stop)
        )
        return merge(others, before)

    def _steps(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Only one walk is under way at a time: they share the iterator."""
        if self._at is None:
            raise ClosedError(CLOSED, folder=self._folder)
        found = steps(self._at, start, self._folder)
        return found if stop is None else takewhile(lambda row: row[0] < stop, found)
