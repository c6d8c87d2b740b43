"""The loop of every watch: read a page of the log, deliver its changes, wait.

Theory of operation
-------------------
An engine keeps a log of changes, and gives each watch its own view of it, a `ChangeLog`:

| state      | does                                                   | next                       |
|------------|--------------------------------------------------------|----------------------------|
| starting   | reads the newest revision, checks `since`              | reading                    |
| reading    | takes the wakeup, then reads the page after `position` | delivering                 |
| delivering | yields the page's changes                              | reading if more or woken,  |
|            |                                                        | else waiting               |
| waiting    | reports once that it has caught up, waits to be woken  | reading                    |

The wakeup is taken *before* the page is read, so no change is missed: either the page has it, or
the wakeup is set.

A log may hold keys without values. So a change is looked up when it is due, and delivered only if
it is still the newest of its key: otherwise a newer one follows. A row that has expired meanwhile
is delivered as deleted, because a reader may still hold the value that it replaced. A watch that
finds nothing to deliver lets other tasks run.

If a server is unavailable at the start, the watch raises; later it waits until the server is back.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import CaughtUp, Change, Row, check_since, outdated
from keyhouse.errors import UnavailableError

SKIPPED_MAX: Final = 64
"""Changes looked up and not delivered, before other tasks run: their rows may be large."""

RETRY_SECONDS: Final = 0.25
"""Delay until a watch reads again after the server was unavailable."""

Entry = TypeVar("Entry")


class ChangedKey(NamedTuple):
    """One key in one commit of a log without values."""

    key: str
    revision: int
    deleted: bool = False
    expires: int | None = None


class LogPage(msgspec.Struct, Generic[Entry], frozen=True, gc=False):
    """The entries of the watched span after a position, in revision order, up to `reached`.

    `pruned`: the newest revision that the log no longer has. `more`: read on without waiting.
    """

    entries: Sequence[Entry]
    reached: int
    pruned: int = 0
    more: bool = False


class Wakeup(Protocol):
    """An `asyncio.Event` that is set when the log has changed."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object: ...


class ChangeLog(Protocol[Entry]):
    """The log of an engine as one watch sees it.

    `reconnects`: a log that is unavailable comes back by itself, so a started watch waits for it.
    """

    @property
    def reconnects(self) -> bool: ...

    async def start(self, since: int | None) -> int:
        """Return the newest revision. If it raises, nothing is left to release."""
        ...

    def wakeup(self) -> Wakeup: ...

    async def page(self, position: int) -> LogPage[Entry]:
        """Return the entries after `position`. Raises ClosedError if the engine is closed."""
        ...

    async def change(self, entry: Entry) -> Change | None:
        """Return the change as it is to be delivered now; None if a newer one follows."""
        ...

    def leave(self) -> None:
        """Release what `start` has acquired."""
        ...


async def watch_log(
    log: ChangeLog[Entry], since: int | None, caught_up: CaughtUp | None
) -> AsyncGenerator[Change, None]:
    """Yield the changes of a log: the contract is `Engine.watch`."""
    newest = await log.start(since)
    try:
        check_since(since, newest)
        position = newest if since is None else since
        reported = None
        while True:
            wakeup = log.wakeup()
            try:
                page = await log.page(position)
            except UnavailableError:
                if not log.reconnects:
                    raise
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await wakeup.wait()
                continue
            if position < page.pruned:
                raise outdated(position, page.pruned + 1)
            skipped = 0
            for entry in page.entries:
                change = await log.change(entry)
                if change is not None:
                    skipped = 0
                    yield change
                elif (skipped := skipped + 1) == SKIPPED_MAX:
                    skipped = 0
                    await asyncio.sleep(0)
            position = page.reached
            if page.more:
                await asyncio.sleep(0)
            elif not wakeup.is_set():
                if caught_up is not None and position != reported:
                    caught_up(position)
                    reported = position
                await wakeup.wait()
    finally:
        log.leave()


def newest_of_keys(changes: list[ChangedKey]) -> list[ChangedKey]:
    """Return the newest change of each key, in the order of revisions."""
    if len(changes) < 2:
        return changes
    newest = {changed.key: changed for changed in changes}
    if len(newest) == len(changes):
        return changes
    return [changed for changed in changes if newest[changed.key] is changed]


def newest_change(changed: ChangedKey, row: Row | None, clock: Clock) -> Change | None:
    """Return the change as the stored row has it; None if a newer one follows."""
    if row is None:
        return Change(changed.key, changed.revision, None) if changed.deleted else None
    if row.revision != changed.revision:
        return None
    if row.expires is not None and row.expires <= clock.now():
        return Change(row.key, row.revision, None)
    return Change(row.key, row.revision, row.value, row.expires)


def without_expired(change: Change, clock: Clock) -> Change:
    """Return the change, or a delete in place of a row that has expired."""
    if change.expires is not None and change.expires <= clock.now():
        return Change(change.key, change.revision, None)
    return change
