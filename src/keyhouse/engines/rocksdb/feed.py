"""Watches on RocksDB: each durable commit is offered to the watchers of its space.

All commits are of this process, so nothing is polled. `engines.watcher` has the part that SQLite
shares.
"""

from collections.abc import Iterator
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Row, outdated
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.encoding import CommittedKeys, decode_keys, number, number_of
from keyhouse.engines.rocksdb.error_map import CLOSED
from keyhouse.engines.rocksdb.iterators import bounded, steps
from keyhouse.engines.rocksdb.view import CommittedView
from keyhouse.engines.watch_loop import ChangedKey
from keyhouse.engines.watcher import LogFeed, Watcher
from keyhouse.errors import ClosedError, KeyhouseError

WINDOW_COMMITS: Final = 100
"""Commits of the log that are read before other tasks may run."""


class Feed(LogFeed):
    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(clock)
        self._database = database
        # After a reopen, the log may hold commits that were never confirmed.
        self.view = CommittedView(database, clock, reopened=self._fall_back)

    def offer(self, commits: list[tuple[int, CommittedKeys]]) -> None:
        """Offer commits that have just become durable and are in the view."""
        if self._watchers:
            for revision, keys in commits:
                for watcher in self._watchers.get(keys.space, ()):
                    watcher.offer(revision, keys)

    def _closed_error(self) -> KeyhouseError:
        return ClosedError(CLOSED, folder=self._database.folder)

    def _start(self, since: int | None) -> int:
        return self.view.revision

    def _offered(self) -> int:
        return self.view.revision

    def _from_log(self, watcher: Watcher) -> list[ChangedKey]:
        """Every revision has an entry, so missing ones were pruned.

        Perhaps by a group in flight, which the view does not show yet.
        """
        last = min(watcher.position + WINDOW_COMMITS, watcher.log_end)
        first = watcher.position + 1
        commits = list(self._log(first, last)) if first >= self.view.oldest else []
        if len(commits) < last - watcher.position:
            raise outdated(watcher.position, commits[0][0] if commits else self.view.oldest)
        changed_keys = [
            changed
            for revision, keys in commits
            if keys.space == watcher.space
            for changed in watcher.select(revision, keys)
        ]
        watcher.position = last
        return changed_keys

    def _log(self, first: int, last: int) -> Iterator[tuple[int, CommittedKeys]]:
        """Yield the commits from `first` to `last`, inclusive.

        `last` is durable; newer entries may not be.
        """
        reading = bounded(number(last + 1))
        for key, value in steps(
            self._database.changes.iter(reading), number(first), self._database.folder
        ):
            yield number_of(key), decode_keys(value)

    def stored(self, space: str, key: str) -> Row | None:
        return self.view.stored(space, key)
