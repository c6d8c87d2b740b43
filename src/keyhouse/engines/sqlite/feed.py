"""Watches on SQLite: all watchers share one tail of the log; a watcher that lags reads the log
itself.

`pull` reads the new commits of the log once for all, and offers each to the watchers of its space.
It is called after each commit of this process, and by a timer for commits of other processes.
`engines.watcher` has the part that RocksDB shares.
"""

import asyncio
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Row, outdated
from keyhouse.engines.sqlite.change_log import decode
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.engines.watch_loop import ChangedKey
from keyhouse.engines.watcher import LogFeed, Watcher
from keyhouse.errors import ClosedError, KeyhouseError

POLL_SECONDS: Final = 0.05
"""Delay until a watch sees a commit of another process. One small read while a watch is open."""

WINDOW_COMMITS: Final = 100
"""Commits of the log that are read before other tasks may run."""


class Feed(LogFeed):
    def __init__(self, reader: Reader, sql: Statements, clock: Clock) -> None:
        super().__init__(clock)
        self._reader = reader
        self._sql = sql
        self._tail = 0
        self._timer: asyncio.TimerHandle | None = None

    def pull(self) -> None:
        """Offer the new commits.

        An error fails the watchers, not the caller, which has work to finish.
        """
        if self._watchers:
            try:
                while self._pull_window():
                    pass
            except KeyhouseError as error:
                self._fail(error)

    def close(self) -> None:
        self._stop_timer()
        super().close()

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("The engine is closed.")

    def _pull_window(self) -> bool:
        """Return True if there may be more."""
        commits = self._reader.all(self._sql.tail, (self._tail, WINDOW_COMMITS))
        if not commits:
            return False
        if commits[0][0] != self._tail + 1:  # pruned by another process meanwhile
            self._fall_back()
        for revision, space, keys in commits:
            if space in self._watchers:
                decoded = decode(keys)
                for watcher in self._watchers[space]:
                    watcher.offer(revision, decoded)
        self._tail = commits[-1][0]
        return len(commits) == WINDOW_COMMITS

    def _start(self, since: int | None) -> int:
        if self._watchers:
            self.pull()
        else:
            self._tail = self._reader.revision()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._tick)
        is_ahead = since is not None and since > self._tail
        return self._reader.revision() if is_ahead else self._tail

    def _offered(self) -> int:
        return self._tail

    def _catch_up(self) -> None:
        self.pull()

    def leave(self, watcher: Watcher) -> None:
        super().leave(watcher)
        if not self._watchers:
            self._stop_timer()

    def _tick(self) -> None:
        self.pull()
        self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _from_log(self, watcher: Watcher) -> list[ChangedKey]:
        last = min(watcher.position + WINDOW_COMMITS, watcher.log_end)
        oldest, *commits = self._reader.all(
            self._sql.window, (watcher.position, last, watcher.space)
        )
        if watcher.position + 1 < oldest[0]:
            raise outdated(watcher.position, oldest[0])
        changed_keys = [
            changed
            for revision, keys in commits
            for changed in watcher.select(revision, decode(keys))
        ]
        watcher.position = last
        return changed_keys

    def stored(self, space: str, key: str) -> Row | None:
        return self._reader.stored(space, key)
