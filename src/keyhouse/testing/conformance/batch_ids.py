"""A batch with an id is applied once, so that it can be repeated after an unknown outcome."""

import asyncio

import pytest

from keyhouse.errors import CounterError
from keyhouse.limits import BATCH_ID_BYTES_MAX, BATCH_ID_KEPT_SECONDS
from keyhouse.testing.conformance.harness import SPACE, Harness, scenario


class BatchIdTests:
    @scenario()
    async def test_a_repeated_batch_is_applied_once_and_returns_its_first_revision(
        self, harness: Harness
    ) -> None:
        first = await harness.commit(adds={"n": 1}, id="once")
        assert await harness.commit(adds={"n": 1}, id="once") == first
        await harness.put("other")
        assert await harness.commit(adds={"n": 1}, id="once") == first
        assert await harness.value("n") == b"1"

    @scenario()
    async def test_a_repeated_batch_is_recognised_though_its_checks_no_longer_hold(
        self, harness: Harness
    ) -> None:
        first = await harness.commit(checks={"a": None}, puts={"a": b"1"}, id="once")
        assert first is not None
        assert await harness.commit(checks={"a": None}, puts={"a": b"1"}, id="once") == first

    @scenario()
    async def test_repeating_a_batch_does_not_restore_deleted_rows(self, harness: Harness) -> None:
        await harness.commit(puts={"a": b"1"}, id="once")
        await harness.commit(deletes=("a",))
        await harness.commit(puts={"a": b"1"}, id="once")
        assert await harness.value("a") is None

    @scenario()
    async def test_another_id_is_another_batch(self, harness: Harness) -> None:
        for number in range(5):
            await harness.commit(adds={"n": 1}, id=f"id {number}")
        await harness.commit(adds={"n": 1})
        await harness.commit(adds={"n": 1})
        assert await harness.value("n") == b"7"

    @scenario()
    async def test_a_batch_id_belongs_to_one_space(self, harness: Harness) -> None:
        for space in (SPACE, "another"):
            await harness.commit(space=space, adds={"n": 1}, id="once")
            await harness.commit(space=space, adds={"n": 1}, id="once")
            assert await harness.value("n", space=space) == b"1"

    @scenario()
    async def test_the_id_of_a_batch_with_a_failed_check_is_not_stored(
        self, harness: Harness
    ) -> None:
        await harness.put("a")
        assert await harness.commit(checks={"a": None}, puts={"b": b"1"}, id="once") is None
        await harness.commit(deletes=("a",))
        assert await harness.commit(checks={"a": None}, puts={"b": b"1"}, id="once") is not None
        assert await harness.value("b") == b"1"

    @scenario()
    async def test_the_id_of_a_rejected_batch_is_not_stored(self, harness: Harness) -> None:
        await harness.put("n", value=b"null")
        with pytest.raises(CounterError):
            await harness.commit(adds={"n": 1}, id="once")
        await harness.commit(deletes=("n",))
        assert await harness.commit(adds={"n": 1}, id="once") is not None
        assert await harness.value("n") == b"1"

    @scenario()
    async def test_a_batch_id_is_kept_for_a_day_and_not_much_longer(self, harness: Harness) -> None:
        first = await harness.commit(adds={"n": 1}, id="once")
        harness.clock.advance(seconds=BATCH_ID_KEPT_SECONDS - 1)
        await harness.engine.sweep(limit=10)
        assert await harness.commit(adds={"n": 1}, id="once") == first
        harness.clock.advance(seconds=2)
        second = await harness.commit(adds={"n": 1}, id="once")
        assert second != first
        harness.clock.advance(seconds=2 * BATCH_ID_KEPT_SECONDS)
        await harness.engine.sweep(limit=10)
        assert await harness.commit(adds={"n": 1}, id="once") not in (first, second)
        assert await harness.value("n") == b"3"

    @scenario()
    async def test_a_batch_repeated_at_the_same_time_is_applied_once(
        self, harness: Harness
    ) -> None:
        revisions = await asyncio.gather(
            *(harness.commit(adds={"n": 1}, id="once") for _ in range(16))
        )
        assert len(set(revisions)) == 1
        assert await harness.value("n") == b"1"

    @scenario()
    async def test_an_id_may_be_any_text_up_to_its_limit(self, harness: Harness) -> None:
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
            await harness.commit(adds={"n": 1}, id=id)
        assert await harness.value("n") == b"%d" % len(ids)

    @scenario(durable=True)
    async def test_a_batch_id_survives_reopening(self, harness: Harness) -> None:
        first = await harness.commit(adds={"n": 1}, id="once")
        await harness.reopen()
        assert await harness.commit(adds={"n": 1}, id="once") == first
        assert await harness.value("n") == b"1"
