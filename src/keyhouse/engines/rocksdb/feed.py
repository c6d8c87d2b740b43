"""Watches: each durable commit is offered to the watchers of its space; one that is behind reads the log of changes.

All commits are of this process, so nothing has to be polled for. A watcher that starts at an older revision, or that has let
too much pile up, reads the log on its own up to the newest commit of that moment, and goes on with what it is offered.

The log names keys. A change is given out only if it is still the newest of its key: the row is at that revision, or the
key was deleted and is gone. One that is not is followed by a newer one. A row that has expired is given out as gone: its
value is nobody's any more, and yet who still holds the value that it replaced must hear of it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from rocksdict import ReadOptions

from keyhouse.clock import Clock
from keyhouse.engine import Change, Span, check_since
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.encoding import Keys, decode_keys, number, number_of
from keyhouse.engines.rocksdb.faults import CLOSED, translated
from keyhouse.engines.rocksdb.view import View
from keyhouse.engines.watcher import Mention, Watcher
from keyhouse.errors import ClosedError, KeyhouseError, WatchExpiredError

WINDOW_COMMITS: Final = 1_000
"""Commits of the log that are looked at before other tasks get their turn."""


class Feed:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._watchers: dict[str, set[Watcher]] = {}
        self._closed = False
        self.view = View(database, clock, reopened=self._miss)

    async def changes(self, space: str, span: Span, since: int | None) -> AsyncGenerator[Change, None]:
        watcher = self._join(space, span, since)
        try:
            while True:
                for mention in self._due(space, watcher):
                    change = self._newest(space, mention)
                    if change is not None:
                        yield change
                if watcher.position < watcher.horizon:
                    await asyncio.sleep(0)
                else:
                    await watcher.woken.wait()
        finally:
            self._leave(space, watcher)

    def offer(self, commits: list[tuple[int, Keys]]) -> None:
        """What has just become durable, and is in the view."""
        if self._watchers:
            for revision, keys in commits:
                for watcher in self._watchers.get(keys.space, ()):
                    watcher.offer(revision, keys)

    def close(self) -> None:
        self._closed = True
        self._fail(ClosedError(CLOSED, folder=self._database.folder))

    def _join(self, space: str, span: Span, since: int | None) -> Watcher:
        if self._closed:
            raise ClosedError(CLOSED, folder=self._database.folder)
        check_since(since, self.view.revision)
        watcher = Watcher(span, self.view.revision if since is None else since)
        self._watchers.setdefault(space, set()).add(watcher)
        return watcher

    def _leave(self, space: str, watcher: Watcher) -> None:
        self._watchers[space].remove(watcher)
        if not self._watchers[space]:
            del self._watchers[space]

    def _due(self, space: str, watcher: Watcher) -> list[Mention]:
        if watcher.failure is not None:
            raise watcher.failure
        if watcher.behind:
            watcher.horizon = self.view.revision
            watcher.behind = False
        if watcher.position < watcher.horizon:
            return self._from_log(space, watcher)
        return watcher.take(self.view.revision)

    def _from_log(self, space: str, watcher: Watcher) -> list[Mention]:
        """There is an entry for every revision: where some are missing, they were pruned, perhaps by a group that is on its
        way to the disk, of which the view does not know yet."""
        last = min(watcher.position + WINDOW_COMMITS, watcher.horizon)
        first = watcher.position + 1
        commits = list(self._log(first, last)) if first >= self.view.oldest else []
        if len(commits) < last - watcher.position:
            raise WatchExpiredError(
                "The changes since that revision are no longer kept; scan again, then watch from the page's revision.",
                since=watcher.position,
                oldest=commits[0][0] if commits else self.view.oldest,
            )
        mentions = [
            mention for revision, keys in commits if keys.space == space for mention in watcher.mentions(revision, keys)
        ]
        watcher.position = last
        return mentions

    def _log(self, first: int, last: int) -> Iterator[tuple[int, Keys]]:
        """The commits from `first` to `last`, both in. The newest may still be on their way to the disk: `last` is not."""
        reading = ReadOptions()
        reading.set_iterate_upper_bound(number(last + 1))
        at = self._database.changes.iter(reading)
        try:
            at.seek(number(first))
            while at.valid():
                yield number_of(at.key()), decode_keys(at.value())
                at.next()
            at.status()
        except Exception as error:
            raise translated(error, self._database.folder) from error
        finally:
            del at

    def _newest(self, space: str, mention: Mention) -> Change | None:
        row = self.view.stored(space, mention.key)
        if row is None:
            return Change(mention.key, mention.revision, None) if mention.deleted else None
        if row.revision != mention.revision:
            return None
        if row.expires is not None and row.expires <= self._clock.now():
            return Change(row.key, row.revision, None)
        return Change(row.key, row.revision, row.value, row.expires)

    def _miss(self) -> None:
        """The database was opened anew: what was never confirmed may have happened, and be in the log."""
        for watcher in self._all():
            watcher.miss()

    def _all(self) -> list[Watcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]

    def _fail(self, failure: KeyhouseError) -> None:
        for watcher in self._all():
            watcher.fail(failure)
