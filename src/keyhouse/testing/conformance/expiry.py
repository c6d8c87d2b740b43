"""An expired row is absent at once, by the engine's clock; the sweep only frees its space."""

from keyhouse.engine import Row
from keyhouse.limits import EXPIRES_MAX
from keyhouse.testing.conformance.harness import ALL, SPACE, Harness, scenario


class ExpiryTests:
    @scenario()
    async def test_a_row_is_visible_until_its_expiry(self, harness: Harness) -> None:
        expires = harness.later(100)
        revision = await harness.put("a", expires=expires)
        harness.clock.set(expires - 1)
        assert await harness.row("a") == Row("a", b"1", revision, expires)
        assert await harness.keys() == ["a"]
        harness.clock.set(expires)
        assert await harness.row("a") is None
        assert await harness.keys() == []
        assert await harness.keys(reverse=True) == []

    @scenario()
    async def test_a_row_put_with_a_past_expiry_is_absent(self, harness: Harness) -> None:
        await harness.put("now", expires=harness.clock.now())
        await harness.put("long ago", expires=1)
        assert await harness.keys() == []
        assert await harness.engine.read(SPACE, ["now", "long ago"]) == [None, None]

    @scenario()
    async def test_a_read_of_several_rows_omits_expired_ones(self, harness: Harness) -> None:
        await harness.put("a", "c")
        await harness.put("b", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        assert [row and row.key for row in await harness.engine.read(SPACE, ["a", "b", "c"])] == [
            "a",
            None,
            "c",
        ]
        page = await harness.engine.scan(SPACE, ALL, limit=10, keys_only=True)
        assert [row.key for row in page.rows] == ["a", "c"]

    @scenario()
    async def test_a_page_is_filled_with_live_rows(self, harness: Harness) -> None:
        await harness.put(*(f"a{number:02d}" for number in range(20)), expires=harness.later(10))
        await harness.put("b", "c", "d")
        harness.clock.advance(milliseconds=10)
        page = await harness.engine.scan(SPACE, ALL, limit=2)
        assert [row.key for row in page.rows] == ["b", "c"]
        assert page.more

    @scenario()
    async def test_a_check_sees_an_expired_row_as_absent(self, harness: Harness) -> None:
        revision = await harness.put("a", expires=harness.later(10))
        harness.clock.advance(milliseconds=9)
        assert await harness.commit(checks={"a": None}, puts={"b": b"1"}) is None
        assert await harness.commit(checks={"a": revision}, puts={"b": b"1"}) is not None
        harness.clock.advance(milliseconds=1)
        assert await harness.commit(checks={"a": revision}, puts={"b": b"2"}) is None
        assert await harness.commit(checks={"a": None}, puts={"b": b"3"}) is not None
        assert await harness.value("b") == b"3"

    @scenario()
    async def test_a_put_over_an_expired_row_is_a_new_row(self, harness: Harness) -> None:
        await harness.put("a", value=b"1", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        revision = await harness.put("a", value=b"2")
        assert await harness.row("a") == Row("a", b"2", revision, None)
        assert await harness.engine.sweep(limit=10) == 0
        assert await harness.value("a") == b"2"

    @scenario()
    async def test_the_sweep_deletes_expired_rows_and_returns_their_number(
        self, harness: Harness
    ) -> None:
        await harness.put("a", "b", "c", expires=harness.later(10))
        await harness.put("later", expires=harness.later(11))
        await harness.put("never")
        assert await harness.engine.sweep(limit=10) == 0
        harness.clock.advance(milliseconds=10)
        assert await harness.engine.sweep(limit=10) == 3
        assert await harness.engine.sweep(limit=10) == 0
        assert await harness.keys() == ["later", "never"]

    @scenario()
    async def test_the_sweep_deletes_no_more_than_its_limit(self, harness: Harness) -> None:
        await harness.put(*(f"k{number}" for number in range(10)), expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        swept = [await harness.engine.sweep(limit=4) for _ in range(4)]
        assert swept == [4, 4, 2, 0]
        assert await harness.keys() == []

    @scenario()
    async def test_the_sweep_covers_all_spaces(self, harness: Harness) -> None:
        for space in ("a", "b", "c"):
            await harness.put("k", expires=harness.later(10), space=space)
            await harness.put("kept", space=space)
        harness.clock.advance(milliseconds=10)
        assert await harness.engine.sweep(limit=10) == 3
        for space in ("a", "b", "c"):
            assert await harness.keys(space=space) == ["kept"]

    @scenario()
    async def test_a_large_sweep_deletes_up_to_its_limit(self, harness: Harness) -> None:
        for share in harness.shares([f"k{number}" for number in range(2_000)]):
            await harness.put(*share, expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        assert await harness.engine.sweep(limit=1_500) == 1_500
        assert await harness.engine.sweep(limit=1_500) == 500

    @scenario()
    async def test_an_expired_row_can_be_deleted(self, harness: Harness) -> None:
        await harness.put("a", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        assert await harness.commit(deletes=("a",)) is not None
        assert await harness.row("a") is None
        assert await harness.engine.sweep(limit=10) == 0

    @scenario()
    async def test_the_largest_expiry_is_stored_exactly(self, harness: Harness) -> None:
        await harness.put("a", expires=EXPIRES_MAX)
        row = await harness.row("a")
        assert row is not None and row.expires == EXPIRES_MAX
        assert await harness.engine.sweep(limit=10) == 0
        harness.clock.set(EXPIRES_MAX)
        assert await harness.row("a") is None
        assert await harness.engine.sweep(limit=10) == 1

    @scenario(durable=True)
    async def test_an_expiry_survives_reopening(self, harness: Harness) -> None:
        await harness.put("a", expires=harness.later(10))
        await harness.reopen()
        assert await harness.keys() == ["a"]
        harness.clock.advance(milliseconds=10)
        await harness.reopen()
        assert await harness.keys() == []
        assert await harness.engine.sweep(limit=10) == 1
