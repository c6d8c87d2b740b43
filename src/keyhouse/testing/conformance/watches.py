"""A watch is ordered, misses nothing, repeats nothing, and can be taken up again."""

import asyncio

import pytest

from keyhouse.engine import Change, Row, Span
from keyhouse.errors import CounterError, WatchExpiredError
from keyhouse.testing.conformance.stage import ALL, SPACE, Stage, leave, scenario, step


class Watches:
    @scenario()
    async def test_changes_come_in_the_order_of_their_revisions(self, stage: Stage) -> None:
        start = await stage.put("before")
        revisions = [await stage.put(key, value=b'"%s"' % key.encode()) for key in "cab"]
        assert await stage.changes(since=start) == [
            Change("c", revisions[0], b'"c"'),
            Change("a", revisions[1], b'"a"'),
            Change("b", revisions[2], b'"b"'),
        ]

    @scenario()
    async def test_a_commit_shows_every_row_it_wrote(self, stage: Stage) -> None:
        start = await stage.put("gone")
        expires = stage.later(1_000)
        await stage.put("lasting", expires=expires)
        revision = await stage.commit(puts={"a": b"1", "b": b"2"}, deletes=("gone",), adds={"n": 3})
        assert revision is not None
        changes = await stage.changes(since=start)
        assert changes[0].expires == expires
        assert sorted(changes[1:], key=lambda change: change.key) == [
            Change("a", revision, b"1"),
            Change("b", revision, b"2"),
            Change("gone", revision, None),
            Change("n", revision, b"3"),
        ]

    @scenario()
    async def test_only_keys_of_the_span_show(self, stage: Stage) -> None:
        start = await stage.put("x")
        await stage.put("a", "b", "b/1", "b/2", "c")
        await stage.commit(deletes=("a", "b/1"))
        changes = await stage.changes(since=start, span=Span.prefix("b/"))
        assert {change.key for change in changes} == {"b/1", "b/2"}

    @scenario()
    async def test_what_wrote_nothing_does_not_show(self, stage: Stage) -> None:
        start = await stage.put("a", value=b'"x"')
        assert await stage.commit(checks={"a": None}, puts={"a": b"1"}) is None
        with pytest.raises(CounterError):
            await stage.commit(adds={"a": 1}, puts={"b": b"1"})
        assert await stage.changes(since=start) == []

    @scenario()
    async def test_a_sweep_shows_what_it_removed(self, stage: Stage) -> None:
        await stage.put("a", "b", expires=stage.later(10))
        start = await stage.put("c")
        stage.clock.advance(milliseconds=10)
        await stage.engine.sweep(limit=10)
        changes = await stage.changes(since=start)
        assert {(change.key, change.value) for change in changes} == {("a", None), ("b", None)}

    @scenario()
    async def test_an_expired_value_is_not_given_out(self, stage: Stage) -> None:
        start = await stage.put("x")
        await stage.put("a", expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        assert all(change.value is None for change in await stage.changes(since=start))

    @scenario()
    async def test_who_holds_a_value_hears_that_a_row_which_replaced_it_has_expired(
        self, stage: Stage
    ) -> None:
        """Else a cache would go on with a value that is older than one that nobody may see any more."""
        await stage.put("a", value=b"1")
        page = await stage.engine.scan(SPACE, ALL, limit=10)
        await stage.put("a", value=b"2", expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        assert _followed(page.rows, await stage.changes(since=page.revision)) == {}

    @scenario()
    async def test_without_since_a_watch_starts_with_its_first_step(self, stage: Stage) -> None:
        await stage.put("earlier")
        watch = stage.engine.watch(SPACE, ALL)
        await stage.put("before the first step")
        waiting = asyncio.ensure_future(step(watch))
        while not waiting.done():
            await stage.put("after it")
            await asyncio.sleep(0.001)
        assert (await waiting).key == "after it"
        await leave(watch)

    @scenario()
    async def test_a_waiting_watch_is_told_of_a_commit(self, stage: Stage) -> None:
        start = await stage.put("a")
        watch = stage.engine.watch(SPACE, ALL, since=start)
        for number in range(20):
            waiting = asyncio.ensure_future(step(watch))
            await asyncio.sleep(0)
            revision = await stage.put(f"k{number}")
            assert await waiting == Change(f"k{number}", revision, b"1")
        await leave(watch)

    @scenario()
    async def test_a_page_and_the_changes_since_are_the_state_now(self, stage: Stage) -> None:
        await stage.put("a", "b", "c", "d", value=b"1")
        page = await stage.engine.scan(SPACE, ALL, limit=100)
        await stage.put("a", "e", value=b"2")
        await stage.commit(deletes=("b", "e"), adds={"c": 4})
        await stage.put("e", value=b"3")
        rows = _followed(page.rows, await stage.changes(since=page.revision))
        assert rows == {"a": b"2", "c": b"5", "d": b"1", "e": b"3"}

    @scenario()
    async def test_the_page_of_an_empty_store_can_be_watched_from(self, stage: Stage) -> None:
        page = await stage.engine.scan(SPACE, ALL, limit=1)
        revision = await stage.put("a")
        assert await stage.changes(since=page.revision) == [Change("a", revision, b"1")]

    @scenario()
    async def test_a_watch_is_taken_up_again_where_it_stopped(self, stage: Stage) -> None:
        position = await stage.put("start")
        expected = [
            Change(f"k{number:02d}", await stage.put(f"k{number:02d}"), b"1")
            for number in range(20)
        ]
        found: list[Change] = []
        while len(found) < 20:
            watch = stage.engine.watch(SPACE, ALL, since=position)
            found += [await step(watch) for _ in range(min(7, 20 - len(found)))]
            position = found[-1].revision
            await leave(watch)
        assert found == expected

    @scenario()
    async def test_a_watcher_that_is_behind_gets_the_newest_change_of_every_key(
        self, stage: Stage
    ) -> None:
        start = await stage.put("start")
        for number in range(50):
            await stage.put(f"k{number % 5}", value=b"%d" % number)
        await stage.commit(deletes=("k0",))
        changes = await stage.changes(since=start)
        assert _followed([], changes) == {"k1": b"46", "k2": b"47", "k3": b"48", "k4": b"49"}
        assert _ordered_once(changes)

    @scenario()
    async def test_nothing_is_missed_or_repeated_while_many_write(self, stage: Stage) -> None:
        start = await stage.put("start")

        async def write(writer: int) -> None:
            for number in range(40):
                key = f"k{(writer + number) % 10}"
                if number % 5 == 4:
                    await stage.commit(deletes=(key,))
                else:
                    await stage.put(key, f"w{writer}", value=b"%d" % (writer * 100 + number))

        watching = [asyncio.ensure_future(_until(stage, "end", start)) for _ in range(3)]
        await asyncio.gather(*(write(writer) for writer in range(8)))
        await stage.put("end")
        page = await stage.engine.scan(SPACE, ALL, limit=100)
        for changes in await asyncio.gather(*watching):
            assert _followed([], changes) == {
                row.key: row.value for row in page.rows if row.key != "start"
            }
            assert _ordered_once(changes)

    @scenario()
    async def test_a_watch_that_is_given_up_leaves_the_engine_in_order(self, stage: Stage) -> None:
        start = await stage.put("a")
        for _ in range(5):
            waiting = asyncio.ensure_future(step(stage.engine.watch(SPACE, ALL, since=start)))
            await asyncio.sleep(0)
            waiting.cancel()
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError)
        revision = await stage.put("b")
        assert await stage.changes(since=start) == [Change("b", revision, b"1")]

    @scenario(changes_kept=10)
    async def test_a_revision_older_than_what_is_kept_is_refused(self, stage: Stage) -> None:
        old = await stage.put("a")
        for number in range(100):
            await stage.put(f"k{number}")
        newest = await stage.put("b")
        while await stage.engine.sweep(limit=10):
            pass
        watch = stage.engine.watch(SPACE, ALL, since=old)
        with pytest.raises(WatchExpiredError):
            await step(watch)
        assert await stage.changes(since=newest) == []

    @scenario()
    async def test_a_revision_that_is_still_to_come_is_refused(self, stage: Stage) -> None:
        """Whoever watched a store before it was restored would wait for its old revision, and miss what comes before it."""
        newest = await stage.put("a")
        for space in (SPACE, "never written"):
            with pytest.raises(WatchExpiredError):
                await step(stage.engine.watch(space, ALL, since=newest + 1_000))
        assert await stage.changes(since=newest) == []

    @scenario(changes_kept=50)
    async def test_so_many_rows_and_batch_ids_back_a_watch_is_taken_up_again(
        self, stage: Stage
    ) -> None:
        """Whatever an engine counts, rows or commits, those of a space or of all: it keeps this much."""
        start = await stage.put("start")
        expected: dict[str, bytes] = {}
        for number in range(5):
            rows = {f"{number}/{part}": b"%d" % number for part in range(6)}
            assert await stage.commit(puts=rows, id=f"id {number}") is not None
            expected |= rows
            await stage.put(f"k{number}", space="another")
            await stage.engine.sweep(limit=10)
        assert _followed([], await stage.changes(since=start)) == expected

    @scenario(shared=True)
    async def test_a_watch_sees_the_commits_of_another_process(self, stage: Stage) -> None:
        start = await stage.put("a")
        other = await stage.another()
        try:
            watch = other.watch(SPACE, ALL, since=start)
            for number in range(3):
                revision = await stage.put(f"k{number}")
                assert await step(watch) == Change(f"k{number}", revision, b"1")
            await leave(watch)
        finally:
            await other.close()

    @scenario(durable=True)
    async def test_a_watch_is_taken_up_again_after_reopening(self, stage: Stage) -> None:
        start = await stage.put("a")
        revision = await stage.put("b")
        await stage.reopen()
        assert await stage.changes(since=start) == [Change("b", revision, b"1")]


async def _until(stage: Stage, last: str, since: int) -> list[Change]:
    watch = stage.engine.watch(SPACE, ALL, since=since)
    changes = [await step(watch)]
    while changes[-1].key != last:
        changes.append(await step(watch))
    await leave(watch)
    return changes


def _followed(rows: list[Row], changes: list[Change]) -> dict[str, bytes]:
    """What someone holds who had the rows and was told the changes."""
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
