"""What one watch still has to give out, and where it stands in the log of changes, for every engine that keeps one."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from keyhouse.engine import Span
from keyhouse.errors import KeyhouseError

PENDING_MAX: Final = 10_000
"""Changes that may wait in memory for one watcher; one that is further behind reads the log."""


class Keys(Protocol):
    """What the log says of one commit."""

    @property
    def put(self) -> Sequence[str]: ...

    @property
    def deleted(self) -> Sequence[str]: ...


class Mention(NamedTuple):
    """One key in one commit of the log."""

    revision: int
    key: str
    deleted: bool


class Watcher:
    """It reads the log from behind `position` up to `horizon`; what is newer is offered to it, and waits.

    `behind`: nothing newer is waiting for it, and it needs a new horizon.
    """

    __slots__ = ("_pending", "_span", "behind", "failure", "horizon", "position", "woken")

    def __init__(self, span: Span, position: int) -> None:
        self._span = span
        self._pending: list[Mention] = []
        self.position = position
        self.horizon = position
        self.behind = True
        self.failure: KeyhouseError | None = None
        self.woken = asyncio.Event()

    def mentions(self, revision: int, keys: Keys) -> list[Mention]:
        """The keys that are in its span, and new to it."""
        if revision <= self.position:
            return []
        put = [Mention(revision, key, False) for key in keys.put if key in self._span]
        return put + [Mention(revision, key, True) for key in keys.deleted if key in self._span]

    def offer(self, revision: int, keys: Keys) -> None:
        if not self.behind and (new := self.mentions(revision, keys)):
            self._pending += new
            self.woken.set()
            if len(self._pending) > PENDING_MAX:
                self.miss()

    def take(self, tail: int) -> list[Mention]:
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
