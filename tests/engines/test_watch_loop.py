"""The loop of watches, on a log in a list: waking, pages, caught-up reports, lost servers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Change, Row
from keyhouse.engines.watch_loop import (
    SKIPPED_MAX,
    ChangedKey,
    LogPage,
    newest_change,
    newest_of_keys,
    watch_log,
)
from keyhouse.errors import UnavailableError, WatchExpiredError


class ListLog:
    """Revision n put the key `kn`. `failures` are raised by the next pages."""

    def __init__(self, newest: int = 0, *, reconnects: bool = True, page_max: int = 10) -> None:
        self.reconnects = reconnects
        self.newest = newest
        self.pruned = 0
        self.page_max = page_max
        self.skipped: set[int] = set()
        self.failures: list[Exception] = []
        self.left = 0
        self.on_page: Callable[[], None] = lambda: None
        self._event = asyncio.Event()

    def commit(self) -> None:
        self.newest += 1
        self._event.set()
        self._event = asyncio.Event()

    async def start(self, since: int | None) -> int:
        return self.newest

    def wakeup(self) -> asyncio.Event:
        return self._event

    async def page(self, position: int) -> LogPage[int]:
        if self.failures:
            raise self.failures.pop(0)
        reached = min(self.newest, position + self.page_max)
        page = LogPage(
            range(position + 1, reached + 1), reached, self.pruned, reached < self.newest
        )
        self.on_page()
        return page

    async def change(self, entry: int) -> Change | None:
        return None if entry in self.skipped else Change(f"k{entry}", entry, b"1")

    def leave(self) -> None:
        self.left += 1


def awaited(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    run.__name__ = test.__name__
    return run


async def taken(watch: AsyncGenerator[Change, None], count: int) -> list[int]:
    return [(await anext(watch)).revision for _ in range(count)]


@awaited
async def test_pages_follow_each_other_without_a_gap() -> None:
    log = ListLog(25)
    watch = watch_log(log, 2, None)
    assert await taken(watch, 23) == list(range(3, 26))
    await watch.aclose()
    assert log.left == 1


@awaited
async def test_a_commit_between_the_read_of_a_page_and_the_wait_is_not_missed() -> None:
    log = ListLog(1)
    log.on_page = lambda: log.commit() if log.newest < 5 else None
    watch = watch_log(log, 0, None)
    assert await taken(watch, 5) == [1, 2, 3, 4, 5]
    await watch.aclose()


@awaited
async def test_a_position_is_reported_once_and_only_when_the_watch_waits() -> None:
    log, reported = ListLog(25), list[int]()
    watch = watch_log(log, 0, reported.append)
    await taken(watch, 25)
    waiting = asyncio.ensure_future(anext(watch))
    for _ in range(5):
        await asyncio.sleep(0)
        log.wakeup().set()  # nothing new
        log._event = asyncio.Event()
    await asyncio.sleep(0)
    assert reported == [25]
    log.commit()
    assert (await waiting).revision == 26
    await watch.aclose()


@awaited
async def test_a_started_watch_waits_for_a_server_that_comes_back() -> None:
    log = ListLog(3)
    log.failures = [UnavailableError("No server."), UnavailableError("No server.")]
    watch = watch_log(log, 0, None)
    assert await taken(watch, 3) == [1, 2, 3]
    await watch.aclose()


@awaited
async def test_a_watch_on_a_file_does_not_wait_for_a_failed_disk() -> None:
    log = ListLog(3, reconnects=False)
    log.failures = [UnavailableError("The disk failed.")]
    with pytest.raises(UnavailableError):
        await anext(watch_log(log, 0, None))
    assert log.left == 1


@awaited
async def test_a_pruned_and_a_future_position_are_rejected_and_released() -> None:
    log = ListLog(9)
    log.pruned = 5
    assert await taken(watch_log(log, 5, None), 1) == [6]
    for since in (4, 10):
        with pytest.raises(WatchExpiredError):
            await anext(watch_log(log, since, None))
    assert log.left >= 2


@awaited
async def test_other_tasks_run_while_nothing_is_delivered() -> None:
    log = ListLog(10 * SKIPPED_MAX, page_max=10 * SKIPPED_MAX)
    log.skipped = set(range(log.newest))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    watch = watch_log(log, 0, None)
    assert await taken(watch, 1) == [log.newest]
    assert turns >= 9
    counting.cancel()
    await watch.aclose()


def test_only_the_newest_change_of_a_key_is_looked_up() -> None:
    changes = [ChangedKey("a", 1), ChangedKey("b", 2), ChangedKey("a", 3, True)]
    assert newest_of_keys(changes) == changes[1:]


@pytest.mark.parametrize(
    ("deleted", "row", "change"),
    [
        (False, Row("k", b"1", 7), Change("k", 7, b"1")),
        (False, Row("k", b"1", 7, 100), Change("k", 7, None)),  # it has expired
        (False, Row("k", b"1", 8), None),
        (False, None, None),
        (True, None, Change("k", 7, None)),
        (True, Row("k", b"1", 8), None),
    ],
)
def test_a_change_is_delivered_as_the_stored_row_has_it(
    deleted: bool, row: Row | None, change: Change | None
) -> None:
    assert newest_change(ChangedKey("k", 7, deleted), row, ManualClock(100)) == change
