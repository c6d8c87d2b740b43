"""Watches of the embedded engines, SQLite and RocksDB, fed from their log of changes.

Each commit is offered to the watchers of its space. A watcher is in one of two states:

    state     reads from                              next
    -------   -------------------------------------   ----------------------------------------------
    lagging   the log, from `position` to `log_end`   position = log_end                 -> current
    current   the commits offered to it               over PENDING_MAX changes pending,
                                                      or commits missed                  -> lagging

A watcher starts as lagging. When it becomes current, `log_end` is the newest offered revision;
newer commits are offered while it still reads the log up to there.

The log holds keys, not values: see `watch_loop`. The rows are read on the event loop. So of the
pending changes of one key only the newest is looked up, and a commit that wakes many watchers is
read once for all of them.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Protocol

from keyhouse.clock import Clock
from keyhouse.engine import CaughtUp, Change, Row, Span
from keyhouse.engines.watch_loop import (
    ChangedKey,
    LogPage,
    newest_change,
    newest_of_keys,
    watch_log,
)
from keyhouse.errors import KeyhouseError

PENDING_MAX: Final = 10_000
"""Changes pending in memory for one watcher; beyond that it reads the log."""

ROWS_SHARED_MAX: Final = 8
"""Rows that watchers share within one turn of the event loop."""


class ChangedKeys(Protocol):
    """The keys of one commit, as the log has them."""

    @property
    def put(self) -> Sequence[str]: ...

    @property
    def deleted(self) -> Sequence[str]: ...


class Watcher:
    """The pending changes of one watch and its position in the log.

    `lagging`: nothing is offered to it until it has a new `log_end`.
    """

    __slots__ = (
        "_feed",
        "_pending",
        "_span",
        "failure",
        "lagging",
        "log_end",
        "position",
        "space",
        "woken",
    )

    reconnects = False

    def __init__(self, feed: "LogFeed", space: str, span: Span) -> None:
        self._feed = feed
        self._span = span
        self._pending: list[ChangedKey] = []
        self.space = space
        self.position = 0
        self.log_end = 0
        self.lagging = True
        self.failure: KeyhouseError | None = None
        self.woken = asyncio.Event()

    async def start(self, since: int | None) -> int:
        newest = self._feed.join(self, since)
        self.position = self.log_end = newest if since is None else since
        return newest

    def wakeup(self) -> asyncio.Event:
        return self.woken

    async def page(self, position: int) -> LogPage[ChangedKey]:
        """Return the next changes, from the log or from those offered."""
        feed = self._feed
        if self.failure is not None:
            raise self.failure
        if self.lagging:
            feed._catch_up()
            self.log_end = feed._offered()
            self.lagging = False
        if self.position < self.log_end:
            async with feed._turn:
                if self.failure is not None:
                    raise self.failure
                changes = feed._from_log(self)
        else:
            changes = self._take(feed._offered())
        return LogPage(newest_of_keys(changes), self.position, 0, self.position < self.log_end)

    async def change(self, entry: ChangedKey) -> Change | None:
        return self._feed.newest(self.space, entry)

    def leave(self) -> None:
        self._feed.leave(self)

    def select(self, revision: int, keys: ChangedKeys) -> list[ChangedKey]:
        """Return the changed keys within the span and after the position."""
        if revision <= self.position:
            return []
        changed = [ChangedKey(key, revision) for key in keys.put if key in self._span]
        if keys.deleted:
            changed += [
                ChangedKey(key, revision, True) for key in keys.deleted if key in self._span
            ]
        return changed

    def offer(self, revision: int, keys: ChangedKeys) -> None:
        if not self.lagging and (new := self.select(revision, keys)):
            self._pending += new
            self.woken.set()
            if len(self._pending) > PENDING_MAX:
                self.fall_back()

    def _take(self, tail: int) -> list[ChangedKey]:
        """Remove and return the pending changes. Everything up to `tail` has been offered."""
        pending, self._pending = self._pending, []
        self.position = max(self.position, tail)
        self.woken.clear()
        return pending

    def fall_back(self) -> None:
        """Drop the pending changes, to read them from the log instead."""
        if self._pending and self.position >= self.log_end:
            self.position = max(self.position, self._pending[0].revision - 1)
        self._pending = []
        self.lagging = True
        self.woken.set()

    def fail(self, failure: KeyhouseError) -> None:
        self.failure = failure
        self.woken.set()


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
        """Return the newest revision, for a new watcher. It may be newer than those offered."""
        ...

    @abstractmethod
    def _offered(self) -> int:
        """Return the revision up to which all commits were offered to the current watchers."""
        ...

    def _catch_up(self) -> None:  # noqa: B027  # not every engine has something to do here
        """Offer the commits since then, of other processes as well."""

    @abstractmethod
    def _from_log(self, watcher: Watcher) -> list[ChangedKey]:
        """Return the next window of the log, up to `log_end`; raise `outdated` if pruned."""
        ...

    @abstractmethod
    def stored(self, space: str, key: str) -> Row | None:
        """Return the row as stored, expired or not."""
        ...

    # Shared by all engines

    def changes(
        self, space: str, span: Span, since: int | None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return watch_log(Watcher(self, space, span), since, caught_up)

    def close(self) -> None:
        self._closed = True
        self._fail(self._closed_error())

    def join(self, watcher: Watcher, since: int | None) -> int:
        """Add a watcher; return the newest revision."""
        if self._closed:
            raise self._closed_error()
        newest = self._start(since)
        self._watchers.setdefault(watcher.space, set()).add(watcher)
        return newest

    def leave(self, watcher: Watcher) -> None:
        self._watchers[watcher.space].remove(watcher)
        if not self._watchers[watcher.space]:
            del self._watchers[watcher.space]

    def newest(self, space: str, changed: ChangedKey) -> Change | None:
        row = self._shared_rows.get((space, changed.key))
        if row is None or row.revision != changed.revision:
            row = self.stored(space, changed.key)
            if row is not None:
                self._share(space, row)
        return newest_change(changed, row, self._clock)

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
