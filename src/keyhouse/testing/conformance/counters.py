"""Adds: no update is lost, and a row that is not a counter is left unchanged."""

import pytest

from keyhouse.engine import Row
from keyhouse.errors import CounterError
from keyhouse.limits import COUNTER_MAX
from keyhouse.testing.conformance.harness import SPACE, Harness, scenario

NOT_COUNTERS = (
    b'"1"',
    b"1.0",
    b"1e3",
    b"-",
    b"01",
    b"+1",
    b"null",
    b"true",
    b"{}",
    b"[1]",
    b'""',
    b"1 2",
    b"NaN",
)


class CounterTests:
    @scenario()
    async def test_an_absent_counter_starts_at_0(self, harness: Harness) -> None:
        revision = await harness.commit(adds={"a": 5, "b": -5, "c": 0})
        assert revision is not None
        rows = await harness.engine.read(SPACE, ["a", "b", "c"])
        assert rows == [
            Row("a", b"5", revision),
            Row("b", b"-5", revision),
            Row("c", b"0", revision),
        ]

    @scenario()
    async def test_adds_add_up(self, harness: Harness) -> None:
        for by in (1, 10, -4, 0, 100, -107):
            await harness.commit(adds={"n": by})
        assert await harness.value("n") == b"0"

    @scenario()
    async def test_a_put_integer_is_a_counter(self, harness: Harness) -> None:
        for value, total in ((b"41", b"42"), (b"-1", b"0"), (b"0", b"1"), (b"-41", b"-40")):
            await harness.put("n", value=value)
            await harness.commit(adds={"n": 1})
            assert await harness.value("n") == total

    @scenario()
    async def test_a_row_that_is_not_a_json_integer_is_not_a_counter(
        self, harness: Harness
    ) -> None:
        for value in NOT_COUNTERS:
            revision = await harness.put("n", value=value)
            with pytest.raises(CounterError):
                await harness.commit(adds={"n": 1})
            assert await harness.row("n") == Row("n", value, revision)

    @scenario()
    async def test_a_counter_reaches_its_limits_and_does_not_exceed_them(
        self, harness: Harness
    ) -> None:
        for sign in (1, -1):
            await harness.commit(deletes=("n",))
            await harness.commit(adds={"n": sign * (COUNTER_MAX - 1)})
            await harness.commit(adds={"n": sign})
            assert await harness.value("n") == b"%d" % (sign * COUNTER_MAX)
            with pytest.raises(CounterError):
                await harness.commit(adds={"n": sign})
            assert await harness.value("n") == b"%d" % (sign * COUNTER_MAX)
            await harness.commit(adds={"n": -sign * COUNTER_MAX})
            assert await harness.value("n") == b"0"

    @scenario()
    async def test_an_add_beyond_the_limits_is_rejected_at_once(self, harness: Harness) -> None:
        for by in (COUNTER_MAX + 1, -COUNTER_MAX - 1, 2**64, -(2**64)):
            with pytest.raises(CounterError):
                await harness.commit(adds={"n": by})
        assert await harness.value("n") is None

    @scenario()
    async def test_an_integer_out_of_range_is_not_a_counter(self, harness: Harness) -> None:
        for value in (b"9223372036854775808", b"-9223372036854775808", b"1" + b"0" * 3_999):
            await harness.put("n", value=value)
            with pytest.raises(CounterError):
                await harness.commit(adds={"n": 0})
            assert await harness.value("n") == value

    @scenario()
    async def test_an_add_keeps_the_expiry(self, harness: Harness) -> None:
        expires = harness.later(1_000)
        await harness.put("n", value=b"1", expires=expires)
        revision = await harness.commit(adds={"n": 1})
        assert revision is not None
        assert await harness.row("n") == Row("n", b"2", revision, expires)

    @scenario()
    async def test_an_expired_counter_starts_at_0_and_does_not_expire(
        self, harness: Harness
    ) -> None:
        await harness.put("n", value=b"7", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        revision = await harness.commit(adds={"n": 1})
        assert revision is not None
        assert await harness.row("n") == Row("n", b"1", revision, None)

    @scenario()
    async def test_an_expired_row_that_is_not_a_counter_starts_at_0(self, harness: Harness) -> None:
        await harness.put("n", value=b"{}", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        await harness.commit(adds={"n": 1})
        assert await harness.value("n") == b"1"

    @scenario()
    async def test_a_failed_check_adds_nothing(self, harness: Harness) -> None:
        await harness.commit(adds={"n": 1})
        assert await harness.commit(checks={"n": None}, adds={"n": 1}) is None
        assert await harness.value("n") == b"1"
