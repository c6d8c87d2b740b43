"""Watches of the engines that keep a log of changes on a disk of their own.

What is committed is offered to the watchers of its space. A watcher that starts at an older revision, or that has let too
much pile up, reads the log on its own up to the tail of that moment, and goes on with what it is offered.

The log names keys. A change is given out only if it is still the newest of its key: the row is at that revision, or the
key was deleted and is gone. One that is not is followed by a newer one. A row that has expired is given out as gone: its
value is nobody's any more, and yet who still holds the value that it replaced must hear of it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Protocol

from keyhouse.clock import Clock
from keyhouse.engine import Change, Row, Span
from keyhouse.errors import KeyhouseError

PENDING_MAX: Final = 10_000
"""Changes that may wait in memory for one watcher; one that is further behind reads the log."""


class Keys(Protocol):
    """What the log says of one commit."""

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
    """What one watch still has to give out, and where it stands in the log.

    It reads the log from behind `position` up to `horizon`; what is newer is offered to it, and waits.

    `behind`: nothing newer is waiting for it, and it needs a new horizon.
    """

    __slots__ = ("_pending", "_span", "behind", "failure", "horizon", "position", "woken")

    def __init__(self, span: Span, position: int) -> None:
        self._span = span
        self._pending: list[ChangedKey] = []
        self.position = position
        self.horizon = position
        self.behind = True
        self.failure: KeyhouseError | None = None
        self.woken = asyncio.Event()

    def mentions(self, revision: int, keys: Keys) -> list[ChangedKey]:
        """The keys that are in its span, and new to it."""
        if revision <= self.position:
            return []
        put = [ChangedKey(revision, key, False) for key in keys.put if key in self._span]
        return put + [ChangedKey(revision, key, True) for key in keys.deleted if key in self._span]

    def offer(self, revision: int, keys: Keys) -> None:
        if not self.behind and (new := self.mentions(revision, keys)):
            self._pending += new
            self.woken.set()
            if len(self._pending) > PENDING_MAX:
                self.miss()

    def take(self, tail: int) -> list[ChangedKey]:
        """All that waits: up to `tail`, everything has been offered."""
        taken, self._pending = self._pending, []
        self.position = max(self.position, tail)
        self.woken.clear()
        return taken

    def miss(self) -> None:
        """Let go of what waits, and find it in the log again."""
        if self._pending and self.position >= self.horizon:
            self.position = max(self.position, self._pending[0].revision - 1)
        self._pending = []
        self.behind = True
        self.woken.set()

    def fail(self, failure: KeyhouseError) -> None:
        self.failure = failure
        self.woken.set()


class LogFeed(ABC):
    """The watchers of an engine, by space. An engine says where its log ends, and reads in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: dict[str, set[Watcher]] = {}
        self._closed = False

    # What an engine says

    @abstractmethod
    def _closed_error(self) -> KeyhouseError: ...

    @abstractmethod
    def _begin(self, since: int | None) -> int:
        """Before a watcher joins: where the log ends. Refused when `since` is still to come."""
        ...

    @abstractmethod
    def _offered(self) -> int:
        """Up to where every watcher that is not behind has been offered all there is."""
        ...

    def _catch_up(self) -> None:  # noqa: B027  # not every engine has something to do here
        """Offer what has been committed since, by whomever."""

    @abstractmethod
    def _from_log(self, space: str, watcher: Watcher) -> list[ChangedKey]:
        """The next window of the log, up to its horizon at most; `outdated` when the log begins behind it."""
        ...

    @abstractmethod
    def _stored(self, space: str, key: str) -> Row | None:
        """The row as it lies there, expired or not."""
        ...

    # What is the same for all

    async def changes(
        self, space: str, span: Span, since: int | None
    ) -> AsyncGenerator[Change, None]:
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

    def close(self) -> None:
        self._closed = True
        self._fail(self._closed_error())

    def _join(self, space: str, span: Span, since: int | None) -> Watcher:
        if self._closed:
            raise self._closed_error()
        tail = self._begin(since)
        watcher = Watcher(span, tail if since is None else since)
        self._watchers.setdefault(space, set()).add(watcher)
        return watcher

    def _leave(self, space: str, watcher: Watcher) -> None:
        self._watchers[space].remove(watcher)
        if not self._watchers[space]:
            del self._watchers[space]

    def _due(self, space: str, watcher: Watcher) -> list[ChangedKey]:
        if watcher.failure is not None:
            raise watcher.failure
        if watcher.behind:
            self._catch_up()
            watcher.horizon = self._offered()
            watcher.behind = False
        if watcher.position < watcher.horizon:
            return self._from_log(space, watcher)
        return watcher.take(self._offered())

    def _newest(self, space: str, mention: ChangedKey) -> Change | None:
        row = self._stored(space, mention.key)
        if row is None:
            return Change(mention.key, mention.revision, None) if mention.deleted else None
        if row.revision != mention.revision:
            return None
        if row.expires is not None and row.expires <= self._clock.now():
            return Change(row.key, row.revision, None)
        return Change(row.key, row.revision, row.value, row.expires)

    def _miss(self) -> None:
        """What was offered may not be all there was: each finds it in the log."""
        for watcher in self._all():
            watcher.miss()

    def _fail(self, failure: KeyhouseError) -> None:
        """One error for each: each adds its own traceback."""
        for watcher in self._all():
            watcher.fail(failure.copy())

    def _all(self) -> list[Watcher]:
        return [watcher for watchers in self._watchers.values() for watcher in watchers]
