"""A batch with an id is applied once: what makes an unknown outcome safe to repeat."""

import asyncio

import pytest

from keyhouse.errors import CounterError
from keyhouse.limits import BATCH_ID_BYTES_MAX, BATCH_ID_KEPT_SECONDS
from keyhouse.testing.conformance.stage import SPACE, Stage, scenario


class BatchIds:
    @scenario()
    async def test_a_repeated_batch_is_not_applied_again_and_gives_its_first_revision(
        self, stage: Stage
    ) -> None:
        first = await stage.commit(adds={"n": 1}, id="once")
        assert await stage.commit(adds={"n": 1}, id="once") == first
        await stage.put("other")
        assert await stage.commit(adds={"n": 1}, id="once") == first
        assert await stage.value("n") == b"1"

    @scenario()
    async def test_a_repeated_batch_is_recognised_though_its_checks_no_longer_hold(
        self, stage: Stage
    ) -> None:
        first = await stage.commit(checks={"a": None}, puts={"a": b"1"}, id="once")
        assert first is not None
        assert await stage.commit(checks={"a": None}, puts={"a": b"1"}, id="once") == first

    @scenario()
    async def test_repeating_a_batch_does_not_bring_back_what_it_wrote(self, stage: Stage) -> None:
        await stage.commit(puts={"a": b"1"}, id="once")
        await stage.commit(deletes=("a",))
        await stage.commit(puts={"a": b"1"}, id="once")
        assert await stage.value("a") is None

    @scenario()
    async def test_another_id_is_another_batch(self, stage: Stage) -> None:
        for number in range(5):
            await stage.commit(adds={"n": 1}, id=f"id {number}")
        await stage.commit(adds={"n": 1})
        await stage.commit(adds={"n": 1})
        assert await stage.value("n") == b"7"

    @scenario()
    async def test_an_id_is_of_one_space(self, stage: Stage) -> None:
        for space in (SPACE, "another"):
            await stage.commit(space=space, adds={"n": 1}, id="once")
            await stage.commit(space=space, adds={"n": 1}, id="once")
            assert await stage.value("n", space=space) == b"1"

    @scenario()
    async def test_a_batch_that_lost_a_check_is_not_remembered(self, stage: Stage) -> None:
        await stage.put("a")
        assert await stage.commit(checks={"a": None}, puts={"b": b"1"}, id="once") is None
        await stage.commit(deletes=("a",))
        assert await stage.commit(checks={"a": None}, puts={"b": b"1"}, id="once") is not None
        assert await stage.value("b") == b"1"

    @scenario()
    async def test_a_batch_that_was_refused_is_not_remembered(self, stage: Stage) -> None:
        await stage.put("n", value=b"null")
        with pytest.raises(CounterError):
            await stage.commit(adds={"n": 1}, id="once")
        await stage.commit(deletes=("n",))
        assert await stage.commit(adds={"n": 1}, id="once") is not None
        assert await stage.value("n") == b"1"

    @scenario()
    async def test_an_id_is_remembered_for_a_day_and_not_much_longer(self, stage: Stage) -> None:
        first = await stage.commit(adds={"n": 1}, id="once")
        stage.clock.advance(seconds=BATCH_ID_KEPT_SECONDS - 1)
        await stage.engine.sweep(limit=10)
        assert await stage.commit(adds={"n": 1}, id="once") == first
        stage.clock.advance(seconds=2)
        second = await stage.commit(adds={"n": 1}, id="once")
        assert second != first
        stage.clock.advance(seconds=2 * BATCH_ID_KEPT_SECONDS)
        await stage.engine.sweep(limit=10)
        assert await stage.commit(adds={"n": 1}, id="once") not in (first, second)
        assert await stage.value("n") == b"3"

    @scenario()
    async def test_a_batch_repeated_at_the_same_time_is_applied_once(self, stage: Stage) -> None:
        revisions = await asyncio.gather(
            *(stage.commit(adds={"n": 1}, id="once") for _ in range(16))
        )
        assert len(set(revisions)) == 1
        assert await stage.value("n") == b"1"

    @scenario()
    async def test_an_id_may_be_any_text_up_to_its_limit(self, stage: Stage) -> None:
        ids = [
            "'",
            "%",
            "a b",
            "\n",
            "..",
            ">",
            "é",
            "x" * BATCH_ID_BYTES_MAX,
            "\U0001f600" * (BATCH_ID_BYTES_MAX // 4),
        ]
        for id in ids * 2:
            await stage.commit(adds={"n": 1}, id=id)
        assert await stage.value("n") == b"%d" % len(ids)

    @scenario(durable=True)
    async def test_an_id_is_remembered_after_reopening(self, stage: Stage) -> None:
        first = await stage.commit(adds={"n": 1}, id="once")
        await stage.reopen()
        assert await stage.commit(adds={"n": 1}, id="once") == first
        assert await stage.value("n") == b"1"
