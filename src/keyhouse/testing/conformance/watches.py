"""A watch is ordered, misses nothing, repeats nothing, and can be resumed."""

import asyncio

import pytest

from keyhouse.engine import Change, Row, Span
from keyhouse.errors import CounterError, WatchExpiredError
from keyhouse.testing.conformance.harness import (
    ALL,
    SPACE,
    TIMEOUT_SECONDS,
    Harness,
    leave,
    scenario,
    step,
)


class WatchTests:
    @scenario()
    async def test_changes_are_delivered_in_revision_order(self, harness: Harness) -> None:
        start = await harness.put("before")
        revisions = [await harness.put(key, value=b'"%s"' % key.encode()) for key in "cab"]
        assert await harness.changes(since=start) == [
            Change("c", revisions[0], b'"c"'),
            Change("a", revisions[1], b'"a"'),
            Change("b", revisions[2], b'"b"'),
        ]

    @scenario()
    async def test_a_commit_shows_every_row_it_wrote(self, harness: Harness) -> None:
        start = await harness.put("gone")
        expires = harness.later(1_000)
        await harness.put("lasting", expires=expires)
        revision = await harness.commit(
            puts={"a": b"1", "b": b"2"}, deletes=("gone",), adds={"n": 3}
        )
        assert revision is not None
        changes = await harness.changes(since=start)
        assert changes[0].expires == expires
        assert sorted(changes[1:], key=lambda change: change.key) == [
            Change("a", revision, b"1"),
            Change("b", revision, b"2"),
            Change("gone", revision, None),
            Change("n", revision, b"3"),
        ]

    @scenario()
    async def test_a_watch_that_has_caught_up_has_delivered_whole_commits(
        self, harness: Harness
    ) -> None:
        start = await harness.put("before")
        found: list[Change] = []
        caught_up: list[tuple[int, int]] = []
        watch = harness.engine.watch(
            SPACE,
            ALL,
            since=start,
            caught_up=lambda revision: caught_up.append((revision, len(found))),
        )

        async def read() -> None:
            async for change in watch:
                found.append(change)

        reading = asyncio.ensure_future(read())
        try:
            commits = [
                await harness.put(*(f"{commit}-{key}" for key in range(7))) for commit in range(9)
            ]
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not caught_up or caught_up[-1][0] < commits[-1]:
                    await asyncio.sleep(0.01)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await leave(watch)
        for revision, count in caught_up:
            delivered = [change.revision for change in found[:count]]
            complete = [each for each in commits if each <= revision]
            assert delivered == [each for each in complete for _ in range(7)]

    @scenario()
    async def test_an_idle_watch_reports_that_it_has_caught_up(self, harness: Harness) -> None:
        """A program that waits for it before it is ready waited forever, if nobody wrote."""
        newest = await harness.put("before")
        for space, since, least in (
            (SPACE, None, newest),
            (SPACE, newest, newest),
            ("never written", None, 0),
        ):
            reached: asyncio.Queue[int] = asyncio.Queue()
            watch = harness.engine.watch(space, ALL, since=since, caught_up=reached.put_nowait)
            waiting = asyncio.ensure_future(anext(watch))
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    assert await reached.get() >= least
                assert not waiting.done()
            finally:
                waiting.cancel()
                await asyncio.wait([waiting])
                await leave(watch)

    @scenario()
    async def test_a_watch_shows_only_keys_of_its_span(self, harness: Harness) -> None:
        start = await harness.put("x")
        await harness.put("a", "b", "b/1", "b/2", "c")
        await harness.commit(deletes=("a", "b/1"))
        changes = await harness.changes(since=start, span=Span.prefix("b/"))
        assert {change.key for change in changes} == {"b/1", "b/2"}

    @scenario()
    async def test_a_commit_that_wrote_nothing_is_not_delivered(self, harness: Harness) -> None:
        start = await harness.put("a", value=b'"x"')
        assert await harness.commit(checks={"a": None}, puts={"a": b"1"}) is None
        with pytest.raises(CounterError):
            await harness.commit(adds={"a": 1}, puts={"b": b"1"})
        assert await harness.changes(since=start) == []

    @scenario()
    async def test_a_watch_shows_rows_deleted_by_the_sweep(self, harness: Harness) -> None:
        await harness.put("a", "b", expires=harness.later(10))
        start = await harness.put("c")
        harness.clock.advance(milliseconds=10)
        await harness.engine.sweep(limit=10)
        changes = await harness.changes(since=start)
        assert {(change.key, change.value) for change in changes} == {("a", None), ("b", None)}

    @scenario()
    async def test_an_expired_value_is_not_delivered(self, harness: Harness) -> None:
        start = await harness.put("x")
        await harness.put("a", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        assert all(change.value is None for change in await harness.changes(since=start))

    @scenario()
    async def test_the_expiry_of_a_replacing_row_is_delivered(self, harness: Harness) -> None:
        """Otherwise a cache would keep a value older than one that has expired."""
        await harness.put("a", value=b"1")
        page = await harness.engine.scan(SPACE, ALL, limit=10)
        await harness.put("a", value=b"2", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        assert _followed(page.rows, await harness.changes(since=page.revision)) == {}

    @scenario()
    async def test_a_watch_without_since_starts_at_its_first_step(self, harness: Harness) -> None:
        await harness.put("earlier")
        watch = harness.engine.watch(SPACE, ALL)
        await harness.put("before the first step")
        waiting = asyncio.ensure_future(step(watch))
        while not waiting.done():
            await harness.put("after it")
            await asyncio.sleep(0.001)
        assert (await waiting).key == "after it"
        await leave(watch)

    @scenario()
    async def test_a_commit_wakes_a_waiting_watch(self, harness: Harness) -> None:
        start = await harness.put("a")
        watch = harness.engine.watch(SPACE, ALL, since=start)
        for number in range(20):
            waiting = asyncio.ensure_future(step(watch))
            await asyncio.sleep(0)
            revision = await harness.put(f"k{number}")
            assert await waiting == Change(f"k{number}", revision, b"1")
        await leave(watch)

    @scenario()
    async def test_a_page_plus_later_changes_is_the_current_state(self, harness: Harness) -> None:
        await harness.put("a", "b", "c", "d", value=b"1")
        page = await harness.engine.scan(SPACE, ALL, limit=100)
        await harness.put("a", "e", value=b"2")
        await harness.commit(deletes=("b", "e"), adds={"c": 4})
        await harness.put("e", value=b"3")
        rows = _followed(page.rows, await harness.changes(since=page.revision))
        assert rows == {"a": b"2", "c": b"5", "d": b"1", "e": b"3"}

    @scenario()
    async def test_a_watch_can_start_from_the_page_of_an_empty_store(
        self, harness: Harness
    ) -> None:
        page = await harness.engine.scan(SPACE, ALL, limit=1)
        revision = await harness.put("a")
        assert await harness.changes(since=page.revision) == [Change("a", revision, b"1")]

    @scenario()
    async def test_a_watch_resumes_where_it_stopped(self, harness: Harness) -> None:
        position = await harness.put("start")
        expected = [
            Change(f"k{number:02d}", await harness.put(f"k{number:02d}"), b"1")
            for number in range(20)
        ]
        found: list[Change] = []
        while len(found) < 20:
            watch = harness.engine.watch(SPACE, ALL, since=position)
            found += [await step(watch) for _ in range(min(7, 20 - len(found)))]
            position = found[-1].revision
            await leave(watch)
        assert found == expected

    @scenario()
    async def test_a_slow_watcher_gets_the_newest_change_of_every_key(
        self, harness: Harness
    ) -> None:
        start = await harness.put("start")
        for number in range(50):
            await harness.put(f"k{number % 5}", value=b"%d" % number)
        await harness.commit(deletes=("k0",))
        changes = await harness.changes(since=start)
        assert _followed([], changes) == {"k1": b"46", "k2": b"47", "k3": b"48", "k4": b"49"}
        assert _ordered_once(changes)

    @scenario()
    async def test_a_watch_misses_and_repeats_nothing_while_many_write(
        self, harness: Harness
    ) -> None:
        start = await harness.put("start")

        async def write(writer: int) -> None:
            for number in range(20):
                key = f"k{(writer + number) % 10}"
                if number % 5 == 4:
                    await harness.commit(deletes=(key,))
                else:
                    await harness.put(key, f"w{writer}", value=b"%d" % (writer * 100 + number))

        watching = [asyncio.ensure_future(_until(harness, "end", start)) for _ in range(3)]
        await asyncio.gather(*(write(writer) for writer in range(8)))
        await harness.put("end")
        page = await harness.engine.scan(SPACE, ALL, limit=100)
        for changes in await asyncio.gather(*watching):
            assert _followed([], changes) == {
                row.key: row.value for row in page.rows if row.key != "start"
            }
            assert _ordered_once(changes)

    @scenario()
    async def test_a_cancelled_watch_does_not_disturb_the_engine(self, harness: Harness) -> None:
        start = await harness.put("a")
        for _ in range(5):
            waiting = asyncio.ensure_future(step(harness.engine.watch(SPACE, ALL, since=start)))
            await asyncio.sleep(0)
            waiting.cancel()
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError)
        revision = await harness.put("b")
        assert await harness.changes(since=start) == [Change("b", revision, b"1")]

    @scenario(changes_kept=10)
    async def test_a_watch_from_a_pruned_revision_is_rejected(self, harness: Harness) -> None:
        old = await harness.put("a")
        for number in range(100):
            await harness.put(f"k{number}")
        newest = await harness.put("b")
        while await harness.engine.sweep(limit=10):
            pass
        watch = harness.engine.watch(SPACE, ALL, since=old)
        with pytest.raises(WatchExpiredError):
            await step(watch)
        assert await harness.changes(since=newest) == []

    @scenario()
    async def test_a_watch_from_a_future_revision_is_rejected(self, harness: Harness) -> None:
        """After a restore, a watcher would wait for its old revision and miss changes."""
        newest = await harness.put("a")
        for space in (SPACE, "never written"):
            with pytest.raises(WatchExpiredError):
                await step(harness.engine.watch(space, ALL, since=newest + 1_000))
        assert await harness.changes(since=newest) == []

    @scenario(changes_kept=50)
    async def test_a_watch_resumes_across_changes_kept_rows_and_batch_ids(
        self, harness: Harness
    ) -> None:
        """An engine may count rows or commits, per space or in all: it keeps at least this many."""
        start = await harness.put("start")
        expected: dict[str, bytes] = {}
        for number in range(5):
            rows = {f"{number}/{part}": b"%d" % number for part in range(6)}
            assert await harness.commit(puts=rows, id=f"id {number}") is not None
            expected |= rows
            await harness.put(f"k{number}", space="another")
            await harness.engine.sweep(limit=10)
        assert _followed([], await harness.changes(since=start)) == expected

    @scenario(shared=True)
    async def test_a_watch_sees_the_commits_of_another_process(self, harness: Harness) -> None:
        start = await harness.put("a")
        other = await harness.another()
        try:
            watch = other.watch(SPACE, ALL, since=start)
            for number in range(3):
                revision = await harness.put(f"k{number}")
                assert await step(watch) == Change(f"k{number}", revision, b"1")
            await leave(watch)
        finally:
            await other.close()

    @scenario(durable=True)
    async def test_a_watch_resumes_after_reopening(self, harness: Harness) -> None:
        start = await harness.put("a")
        revision = await harness.put("b")
        await harness.reopen()
        assert await harness.changes(since=start) == [Change("b", revision, b"1")]


async def _until(harness: Harness, last: str, since: int) -> list[Change]:
    watch = harness.engine.watch(SPACE, ALL, since=since)
    changes = [await step(watch)]
    while changes[-1].key != last:
        changes.append(await step(watch))
    await leave(watch)
    return changes


def _followed(rows: list[Row], changes: list[Change]) -> dict[str, bytes]:
    """Apply the changes to the rows."""
    held = {row.key: row.value for row in rows}
    for change in changes:
        if change.value is None:
            held.pop(change.key, None)
        else:
            held[change.key] = change.value
    return held


def _ordered_once(changes: list[Change]) -> bool:
    seen = [(change.key, change.revision) for change in changes]
    revisions = [change.revision for change in changes]
    return revisions == sorted(revisions) and len(seen) == len(set(seen))
