"""Watches: each durable commit is offered to the watchers of its space; one that is behind reads the log of changes.

All commits are of this process, so nothing has to be polled for. What is the same on SQLite is in `engines.watcher`.
"""

from collections.abc import Iterator
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Row, check_since, outdated
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.encoding import CommittedKeys, decode_keys, number, number_of
from keyhouse.engines.rocksdb.error_map import CLOSED
from keyhouse.engines.rocksdb.iterators import bounded, steps
from keyhouse.engines.rocksdb.view import CommittedView
from keyhouse.engines.watcher import ChangedKey, LogFeed, Watcher
from keyhouse.errors import ClosedError, KeyhouseError

WINDOW_COMMITS: Final = 1_000
"""Commits of the log that are looked at before other tasks get their turn."""


class Feed(LogFeed):
    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(clock)
        self._database = database
        self.view = CommittedView(
            database, clock, reopened=self._miss
        )  # what was never confirmed may be in the log all the same

    def offer(self, commits: list[tuple[int, CommittedKeys]]) -> None:
        """What has just become durable, and is in the view."""
        if self._watchers:
            for revision, keys in commits:
                for watcher in self._watchers.get(keys.space, ()):
                    watcher.offer(revision, keys)

    def _closed_error(self) -> KeyhouseError:
        return ClosedError(CLOSED, folder=self._database.folder)

    def _begin(self, since: int | None) -> int:
        check_since(since, self.view.revision)
        return self.view.revision

    def _offered(self) -> int:
        return self.view.revision

    def _from_log(self, space: str, watcher: Watcher) -> list[ChangedKey]:
        """There is an entry for every revision: where some are missing, they were pruned, perhaps by a group that is on its
        way to the disk, of which the view does not know yet."""
        last = min(watcher.position + WINDOW_COMMITS, watcher.horizon)
        first = watcher.position + 1
        commits = list(self._log(first, last)) if first >= self.view.oldest else []
        if len(commits) < last - watcher.position:
            raise outdated(watcher.position, commits[0][0] if commits else self.view.oldest)
        mentions = [
            mention
            for revision, keys in commits
            if keys.space == space
            for mention in watcher.mentions(revision, keys)
        ]
        watcher.position = last
        return mentions

    def _log(self, first: int, last: int) -> Iterator[tuple[int, CommittedKeys]]:
        """The commits from `first` to `last`, both in. The newest may still be on their way to the disk: `last` is not."""
        reading = bounded(number(last + 1))
        for key, value in steps(
            self._database.changes.iter(reading), number(first), self._database.folder
        ):
            yield number_of(key), decode_keys(value)

    def _stored(self, space: str, key: str) -> Row | None:
        return self.view.stored(space, key)
