"""A forgotten space leaves nothing behind, and other spaces do not notice."""

import asyncio
from contextlib import suppress

from keyhouse.engine import Add, Batch, Check, Put
from keyhouse.testing.conformance.harness import ALL, SPACE, Harness, leave, scenario, step

ROWS = 60
LAST = "k30"


class ForgetTests:
    @scenario()
    async def test_a_forgotten_space_has_no_rows_and_others_keep_theirs(
        self, harness: Harness
    ) -> None:
        await _fill(harness)
        await harness.put("k", space="other")
        await harness.engine.forget(SPACE)
        assert await harness.keys() == []
        assert await harness.value("k", space="other") == b"1"
        assert [space async for space in harness.engine.spaces()] == ["other"]

    @scenario()
    async def test_a_space_can_be_used_again_after_it_was_forgotten(self, harness: Harness) -> None:
        await _fill(harness)
        await harness.engine.forget(SPACE)
        assert await harness.commit(checks={"k00": None}, puts={"k00": b"2"}) is not None
        assert await harness.value("k00") == b"2"
        assert await harness.keys() == ["k00"]

    @scenario(durable=True)
    async def test_a_forgotten_space_stays_empty_after_a_restart(self, harness: Harness) -> None:
        await _fill(harness)
        await harness.engine.forget(SPACE)
        await harness.put("new")
        await harness.reopen()
        assert await harness.keys() == ["new"]

    @scenario()
    async def test_the_batch_ids_of_a_forgotten_space_are_unknown(self, harness: Harness) -> None:
        assert await harness.commit(adds={"n": 1}, id="once") is not None
        await harness.engine.forget(SPACE)
        assert await harness.commit(adds={"n": 1}, id="once") is not None
        assert await harness.value("n") == b"1"

    @scenario()
    async def test_expired_rows_are_forgotten(self, harness: Harness) -> None:
        await harness.put("k", expires=harness.later(10))
        harness.clock.advance(milliseconds=20)
        await harness.engine.forget(SPACE)
        assert await harness.engine.sweep(limit=10) == 0

    @scenario()
    async def test_a_watch_of_another_space_continues(self, harness: Harness) -> None:
        await _fill(harness)
        start = await harness.put("a", space="other")
        watch = harness.engine.watch("other", ALL, since=start)
        await harness.put("b", space="other")
        assert (await step(watch)).key == "b"
        await harness.engine.forget(SPACE)
        await harness.put("c", space="other")
        assert (await step(watch)).key == "c"
        await leave(watch)
        assert [change.key for change in await harness.changes(since=start, space="other")] == [
            "b",
            "c",
        ]

    @scenario()
    async def test_forgetting_nothing_is_not_an_error(self, harness: Harness) -> None:
        await harness.engine.forget("never used")
        await harness.engine.forget("never used")
        assert [space async for space in harness.engine.spaces()] == []

    @scenario()
    async def test_a_call_that_was_interrupted_is_finished_by_the_next(
        self, harness: Harness
    ) -> None:
        for turns in (1, 2, 5, 20, 100):
            await _fill(harness)
            forgetting = asyncio.ensure_future(harness.engine.forget(SPACE))
            for _ in range(turns):
                await asyncio.sleep(0)
            forgetting.cancel()
            with suppress(asyncio.CancelledError):
                await forgetting
            await harness.engine.forget(SPACE)
            assert await harness.keys() == []

    @scenario()
    async def test_the_last_row_is_there_until_everything_else_is_erased(
        self, harness: Harness
    ) -> None:
        for turns in (1, 5, 20, 100, 1_000):
            await _fill(harness)
            forgetting = asyncio.ensure_future(harness.engine.forget(SPACE, last=LAST))
            for _ in range(turns):
                await asyncio.sleep(0)
            forgetting.cancel()
            with suppress(asyncio.CancelledError):
                await forgetting
            if LAST not in await harness.keys():
                assert await harness.keys() == []
                assert await harness.commit(adds={"n": 1}, id="a batch") is not None
                assert await harness.value("n") == b"1", "its batch ids were not erased"
            await harness.engine.forget(SPACE, last=LAST)
            assert await harness.keys() == []

    @scenario(shared=True)
    async def test_another_process_sees_a_space_that_was_forgotten_as_empty(
        self, harness: Harness
    ) -> None:
        """It kept the mark of the erasure, and rejected the tenant until it was restarted."""
        other = await harness.another()
        try:
            for turn in range(2):
                await _fill(harness)
                await harness.put("k", space="other")
                assert (await other.read(SPACE, [LAST]))[0] is not None
                assert await other.commit(SPACE, _once()) is not None
                await harness.engine.forget(SPACE, last=LAST)
                assert await other.read(SPACE, [LAST, "k01"]) == [None, None]
                assert (await other.scan(SPACE, ALL, limit=10)).rows == []
                assert [space async for space in other.spaces()] == ["other"]
                created = Batch(checks=(Check(LAST, None),), puts=(Put(LAST, b"%d" % turn),))
                assert await other.commit(SPACE, created) is not None
                assert await other.commit(SPACE, _once()) is not None
                assert await harness.value("n") == b"1", "its batch ids were not erased"
                assert await harness.keys() == [LAST, "n"]
                assert await harness.value("k", space="other") == b"1"
        finally:
            await other.close()

    @scenario(shared=True)
    async def test_another_process_sees_what_is_written_after_a_space_was_forgotten(
        self, harness: Harness
    ) -> None:
        other = await harness.another()
        try:
            await _fill(harness)
            assert (await other.read(SPACE, [LAST]))[0] is not None
            await harness.engine.forget(SPACE, last=LAST)
            await harness.put("new", value=b"2")
            page = await other.scan(SPACE, ALL, limit=10)
            assert [(row.key, row.value) for row in page.rows] == [("new", b"2")]
            assert (await other.read(SPACE, [LAST]))[0] is None
        finally:
            await other.close()

    @scenario(shared=True)
    async def test_a_watch_in_another_process_continues_after_a_space_was_forgotten(
        self, harness: Harness
    ) -> None:
        other = await harness.another()
        try:
            await _fill(harness)
            start = await harness.put("a", space="other")
            watch = other.watch("other", ALL, since=start)
            await harness.put("b", space="other")
            assert (await step(watch)).key == "b"
            await harness.engine.forget(SPACE, last=LAST)
            await harness.put("c", space="other")
            assert (await step(watch)).key == "c"
            await leave(watch)
        finally:
            await other.close()


def _once() -> Batch:
    return Batch(adds=(Add("n", 1),), id="once")


async def _fill(harness: Harness) -> None:
    keys = [f"k{number:02d}" for number in range(ROWS)]
    for share in harness.shares(keys):
        await harness.put(*share, expires=harness.later(60_000))
    await harness.put(*keys[:10])
    await harness.commit(deletes=(keys[0],), id="a batch")
