"""Watches: one tail of the log of changes for all watchers of a process, and the log itself for one that is behind.

`pull` reads what is new in the log, once for all, and offers each commit to the watchers of its space. It is called after
each commit of this process, and by a timer for those of others. A watcher that starts at an older revision, or that has
let too much pile up, reads the log on its own up to where the tail is then, and goes on with what it is offered.

The log names keys. A change is given out only if it is still the newest of its key: the row is at that revision, or the
key was deleted and is gone. One that is not is followed by a newer one. A row that has expired is given out as gone: its
value is nobody's any more, and yet who still holds the value that it replaced must hear of it.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from keyhouse.clock import Clock
from keyhouse.engine import Change, Span, check_since
from keyhouse.engines.sqlite.changes import decode
from keyhouse.engines.sqlite.reader import Reader
from keyhouse.engines.sqlite.sql import Statements
from keyhouse.engines.watcher import Mention, Watcher
from keyhouse.errors import ClosedError, KeyhouseError, WatchExpiredError

POLL_SECONDS: Final = 0.05
"""How late a watch may see a commit of another process. It is one small read, made only while something is watched."""

WINDOW_COMMITS: Final = 1_000
"""Commits of the log that are looked at before other tasks get their turn."""


class Feed:
    def __init__(self, reader: Reader, sql: Statements, clock: Clock) -> None:
        self._reader = reader
        self._sql = sql
        self._clock = clock
        self._watchers: dict[str, set[Watcher]] = {}
        self._tail = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

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

    def pull(self) -> None:
        """Never raises: it is called beside work that must go on. The watchers raise it."""
        if self._watchers:
            try:
                while self._pull_window():
                    pass
            except KeyhouseError as error:
                self._fail(error)

    def close(self) -> None:
        self._closed = True
        self._stop_timer()
        self._fail(ClosedError("The engine is closed."))

    def _pull_window(self) -> bool:
        """Whether there may be more."""
        commits = self._reader.all(self._sql.tail, (self._tail, WINDOW_COMMITS))
        if not commits:
            return False
        if commits[0][0] != self._tail + 1:  # pruned by another process while this one did not run
            for watcher in self._all():
                watcher.miss()
        for revision, space, keys in commits:
            if space in self._watchers:
                decoded = decode(keys)
                for watcher in self._watchers[space]:
                    watcher.offer(revision, decoded)
        self._tail = commits[-1][0]
        return len(commits) == WINDOW_COMMITS

    def _join(self, space: str, span: Span, since: int | None) -> Watcher:
        if self._closed:
            raise ClosedError("The engine is closed.")
        if self._watchers:
            self.pull()
        else:
            self._tail = self._reader.revision()
        if since is not None and since > self._tail:
            check_since(since, self._reader.revision())
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._tick)
        watcher = Watcher(span, self._tail if since is None else since)
        self._watchers.setdefault(space, set()).add(watcher)
        return watcher

    def _leave(self, space: str, watcher: Watcher) -> None:
        self._watchers[space].remove(watcher)
        if not self._watchers[space]:
            del self._watchers[space]
        if not self._watchers:
            self._stop_timer()

    def _tick(self) -> None:
        self.pull()
        self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, space: str, watcher: Watcher) -> list[Mention]:
        if watcher.failure is not None:
            raise watcher.failure
        if watcher.behind:
            self.pull()
            watcher.horizon = self._tail
            watcher.behind = False
        if watcher.position < watcher.horizon:
            return self._from_log(space, watcher)
        return watcher.take(self._tail)

    def _from_log(self, space: str, watcher: Watcher) -> list[Mention]:
        last = min(watcher.position + WINDOW_COMMITS, watcher.horizon)
        oldest, *commits = self._reader.all(self._sql.window, (watcher.position, last, space))
        if watcher.position + 1 < oldest[0]:
            raise WatchExpiredError(
                "The changes since that revision are no longer kept; scan again, then watch from the page's revision.",
                since=watcher.position,
                oldest=oldest[0],
            )
        mentions = [mention for revision, keys in commits for mention in watcher.mentions(revision, decode(keys))]
        watcher.position = last
        return mentions

    def _newest(self, space: str, mention: Mention) -> Change | None:
        row = self._reader.stored(space, mention.key)
        if row is None:
            return Change(mention.key, mention.revision, None) if mention.deleted else None
        if row.revision != mention.revision:
            return None
        if row.expires is not None and row.expires <= self._clock.now():
            return Change(row.key, row.revision, None)
        return Change(row.key, row.revision, row.value, row.expires)

    def _all(self) -> list[Watcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]

    def _fail(self, failure: KeyhouseError) -> None:
        for watcher in self._all():
            watcher.fail(failure)
