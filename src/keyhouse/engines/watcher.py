"""Watches of the embedded engines, SQLite and RocksDB, fed from their log of changes.

Each commit is offered to the watchers of its space. A watcher is in one of two states:

    state     reads from                              next
    -------   -------------------------------------   ----------------------------------------------
    lagging   the log, from `position` to `horizon`   position = horizon                 -> current
    current   the commits offered to it               over PENDING_MAX changes pending,
                                                      or commits missed                  -> lagging

A watcher starts as lagging. When it becomes current, `horizon` is the newest offered revision;
newer commits are offered while it still reads the log up to there.

The log holds keys, not values. A change is delivered only if it is still the newest of its key: the
row is at that revision, or the key was deleted and has no row. Otherwise a newer change follows. A
row that has expired is delivered as deleted: a reader may still hold the value that it replaced.

The rows are read on the event loop. So of the pending changes of one key only the newest is looked
up, a commit that wakes many watchers is read once for all of them, and a watcher that finds nothing
to deliver lets others run.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Protocol

from keyhouse.clock import Clock
from keyhouse.engine import CaughtUp, Change, Row, Span
from keyhouse.errors import KeyhouseError

PENDING_MAX: Final = 10_000
"""Changes pending in memory for one watcher; beyond that it reads the log."""


SKIPPED_MAX: Final = 64
"""Changes looked up and not delivered, before other tasks run: their rows may be large."""

ROWS_SHARED_MAX: Final = 8
"""Rows that watchers share within one turn of the event loop."""


class ChangedKeys(Protocol):
    """The keys of one commit, as the log has them."""

    @property
    def put(self) -> Sequence[str]: ...

    @property
    def deleted(self) -> Sequence[str]: ...


class ChangedKey(NamedTuple):
    """One key in one commit of the log."""

    revision: int
    key: str
    deleted: bool


class Watcher:
    """The pending changes of one watch and its position in the log.

    `lagging`: nothing is offered to it until it has a new horizon.
    """

    __slots__ = ("_pending", "_span", "failure", "horizon", "lagging", "position", "woken")

    def __init__(self, span: Span, position: int) -> None:
        self._span = span
        self._pending: list[ChangedKey] = []
        self.position = position
        self.horizon = position
        self.lagging = True
        self.failure: KeyhouseError | None = None
        self.woken = asyncio.Event()

    def select(self, revision: int, keys: ChangedKeys) -> list[ChangedKey]:
        """Return the changed keys within the span and after the position."""
        if revision <= self.position:
            return []
        put = [ChangedKey(revision, key, False) for key in keys.put if key in self._span]
        return put + [ChangedKey(revision, key, True) for key in keys.deleted if key in self._span]

    def offer(self, revision: int, keys: ChangedKeys) -> None:
        if not self.lagging and (new := self.select(revision, keys)):
            self._pending += new
            self.woken.set()
            if len(self._pending) > PENDING_MAX:
                self.fall_back()

    def take(self, tail: int) -> list[ChangedKey]:
        """Remove and return the pending changes. Everything up to `tail` has been offered."""
        pending, self._pending = self._pending, []
        self.position = max(self.position, tail)
        self.woken.clear()
        return pending

    def fall_back(self) -> None:
        """Drop the pending changes, to read them from the log instead."""
        if self._pending and self.position >= self.horizon:
            self.position = max(self.position, self._pending[0].revision - 1)
        self._pending = []
        self.lagging = True
        self.woken.set()

    def fail(self, failure: KeyhouseError) -> None:
        self.failure = failure
        self.woken.set()


def newest_of_keys(changes: list[ChangedKey]) -> list[ChangedKey]:
    """Return the newest change of each key, in the order of revisions."""
    newest = {changed.key: changed for changed in changes}
    if len(newest) == len(changes):
        return changes
    return [changed for changed in changes if newest[changed.key] is changed]


class LogFeed(ABC):
    """The watchers of an engine, by space. The engine reads the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: dict[str, set[Watcher]] = {}
        self._closed = False
        self._shared_rows: dict[tuple[str, str], Row] = {}
        self._turn = asyncio.Lock()
        """Held for one window of the log: of many late watchers, one reads per turn of the loop."""

    # Implemented by the engine

    @abstractmethod
    def _closed_error(self) -> KeyhouseError: ...

    @abstractmethod
    def _start(self, since: int | None) -> int:
        """Return the newest revision, for a new watcher. Raises if `since` is newer."""
        ...

    @abstractmethod
    def _offered(self) -> int:
        """Return the revision up to which all commits were offered to the current watchers."""
        ...

    def _catch_up(self) -> None:  # noqa: B027  # not every engine has something to do here
        """Offer the commits since then, of other processes as well."""

    @abstractmethod
    def _from_log(self, space: str, watcher: Watcher) -> list[ChangedKey]:
        """Return the next window of the log, up to the horizon; raise `outdated` if pruned."""
        ...

    @abstractmethod
    def _stored(self, space: str, key: str) -> Row | None:
        """Return the row as stored, expired or not."""
        ...

    # Shared by all engines

    async def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        watcher = self._join(space, span, since)
        try:
            while True:
                skipped = 0
                for changed in newest_of_keys(await self._due(space, watcher)):
                    change = self._newest(space, changed)
                    if change is not None:
                        skipped = 0
                        yield change
                    elif (skipped := skipped + 1) == SKIPPED_MAX:
                        skipped = 0
                        await asyncio.sleep(0)
                if watcher.position < watcher.horizon:
                    await asyncio.sleep(0)
                else:
                    if caught_up is not None and not watcher.woken.is_set():
                        caught_up(watcher.position)
                    await watcher.woken.wait()
        finally:
            self._leave(space, watcher)

    def close(self) -> None:
        self._closed = True
        self._fail(self._closed_error())

    def _join(self, space: str, span: Span, since: int | None) -> Watcher:
        if self._closed:
            raise self._closed_error()
        tail = self._start(since)
        watcher = Watcher(span, tail if since is None else since)
        self._watchers.setdefault(space, set()).add(watcher)
        return watcher

    def _leave(self, space: str, watcher: Watcher) -> None:
        self._watchers[space].remove(watcher)
        if not self._watchers[space]:
            del self._watchers[space]

    async def _due(self, space: str, watcher: Watcher) -> list[ChangedKey]:
        if watcher.failure is not None:
            raise watcher.failure
        if watcher.lagging:
            self._catch_up()
            watcher.horizon = self._offered()
            watcher.lagging = False
        if watcher.position < watcher.horizon:
            async with self._turn:
                if watcher.failure is not None:
                    raise watcher.failure
                return self._from_log(space, watcher)
        return watcher.take(self._offered())

    def _newest(self, space: str, changed: ChangedKey) -> Change | None:
        """Return the change as the stored row has it; None if a newer one follows."""
        row = self._shared_rows.get((space, changed.key))
        if row is None or row.revision != changed.revision:
            row = self._stored(space, changed.key)
            if row is not None:
                self._share(space, row)
        if row is None:
            return Change(changed.key, changed.revision, None) if changed.deleted else None
        if row.revision != changed.revision:
            return None
        if row.expires is not None and row.expires <= self._clock.now():
            return Change(row.key, row.revision, None)
        return Change(row.key, row.revision, row.value, row.expires)

    def _share(self, space: str, row: Row) -> None:
        """Keep a row for the other watchers that run in this turn of the event loop."""
        shared = self._shared_rows
        if not shared:
            asyncio.get_running_loop().call_soon(shared.clear)
        if len(shared) < ROWS_SHARED_MAX:
            shared[space, row.key] = row

    def _fall_back(self) -> None:
        """Have every watcher read the log: commits may be missing from those offered."""
        for watcher in self._all():
            watcher.fall_back()

    def _fail(self, failure: KeyhouseError) -> None:
        """Fail each watcher with its own copy of the error, which gets its own traceback."""
        for watcher in self._all():
            watcher.fail(failure.copy())

    def _all(self) -> list[Watcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]
