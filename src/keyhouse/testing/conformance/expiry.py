"""Expired is absent, at once, by the engine's clock; the sweep only takes the row off the disk."""

from keyhouse.engine import Row
from keyhouse.limits import EXPIRES_MAX
from keyhouse.testing.conformance.stage import ALL, SPACE, Stage, scenario


class Expiry:
    @scenario()
    async def test_a_row_is_there_until_the_moment_it_expires(self, stage: Stage) -> None:
        expires = stage.later(100)
        revision = await stage.put("a", expires=expires)
        stage.clock.set(expires - 1)
        assert await stage.row("a") == Row("a", b"1", revision, expires)
        assert await stage.keys() == ["a"]
        stage.clock.set(expires)
        assert await stage.row("a") is None
        assert await stage.keys() == []
        assert await stage.keys(reverse=True) == []

    @scenario()
    async def test_a_row_put_with_an_expiry_that_has_passed_is_absent(self, stage: Stage) -> None:
        await stage.put("now", expires=stage.clock.now())
        await stage.put("long ago", expires=1)
        assert await stage.keys() == []
        assert await stage.engine.read(SPACE, ["now", "long ago"]) == [None, None]

    @scenario()
    async def test_an_expired_row_is_not_read_among_others(self, stage: Stage) -> None:
        await stage.put("a", "c")
        await stage.put("b", expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        assert [row and row.key for row in await stage.engine.read(SPACE, ["a", "b", "c"])] == [
            "a",
            None,
            "c",
        ]
        page = await stage.engine.scan(SPACE, ALL, limit=10, keys_only=True)
        assert [row.key for row in page.rows] == ["a", "c"]

    @scenario()
    async def test_a_page_is_filled_with_live_rows(self, stage: Stage) -> None:
        await stage.put(*(f"a{number:02d}" for number in range(20)), expires=stage.later(10))
        await stage.put("b", "c", "d")
        stage.clock.advance(milliseconds=10)
        page = await stage.engine.scan(SPACE, ALL, limit=2)
        assert [row.key for row in page.rows] == ["b", "c"]
        assert page.more

    @scenario()
    async def test_a_check_sees_an_expired_row_as_absent(self, stage: Stage) -> None:
        revision = await stage.put("a", expires=stage.later(10))
        stage.clock.advance(milliseconds=9)
        assert await stage.commit(checks={"a": None}, puts={"b": b"1"}) is None
        assert await stage.commit(checks={"a": revision}, puts={"b": b"1"}) is not None
        stage.clock.advance(milliseconds=1)
        assert await stage.commit(checks={"a": revision}, puts={"b": b"2"}) is None
        assert await stage.commit(checks={"a": None}, puts={"b": b"3"}) is not None
        assert await stage.value("b") == b"3"

    @scenario()
    async def test_a_put_over_an_expired_row_is_a_new_row(self, stage: Stage) -> None:
        await stage.put("a", value=b"1", expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        revision = await stage.put("a", value=b"2")
        assert await stage.row("a") == Row("a", b"2", revision, None)
        assert await stage.engine.sweep(limit=10) == 0
        assert await stage.value("a") == b"2"

    @scenario()
    async def test_the_sweep_removes_what_has_expired_and_says_how_many(self, stage: Stage) -> None:
        await stage.put("a", "b", "c", expires=stage.later(10))
        await stage.put("later", expires=stage.later(11))
        await stage.put("never")
        assert await stage.engine.sweep(limit=10) == 0
        stage.clock.advance(milliseconds=10)
        assert await stage.engine.sweep(limit=10) == 3
        assert await stage.engine.sweep(limit=10) == 0
        assert await stage.keys() == ["later", "never"]

    @scenario()
    async def test_the_sweep_is_bounded(self, stage: Stage) -> None:
        await stage.put(*(f"k{number}" for number in range(10)), expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        swept = [await stage.engine.sweep(limit=4) for _ in range(4)]
        assert swept == [4, 4, 2, 0]
        assert await stage.keys() == []

    @scenario()
    async def test_the_sweep_goes_through_all_spaces(self, stage: Stage) -> None:
        for space in ("a", "b", "c"):
            await stage.put("k", expires=stage.later(10), space=space)
            await stage.put("kept", space=space)
        stage.clock.advance(milliseconds=10)
        assert await stage.engine.sweep(limit=10) == 3
        for space in ("a", "b", "c"):
            assert await stage.keys(space=space) == ["kept"]

    @scenario()
    async def test_a_large_sweep_removes_everything_it_was_allowed_to(self, stage: Stage) -> None:
        for share in stage.shares([f"k{number}" for number in range(2_000)]):
            await stage.put(*share, expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        assert await stage.engine.sweep(limit=1_500) == 1_500
        assert await stage.engine.sweep(limit=1_500) == 500

    @scenario()
    async def test_an_expired_row_can_be_deleted(self, stage: Stage) -> None:
        await stage.put("a", expires=stage.later(10))
        stage.clock.advance(milliseconds=10)
        assert await stage.commit(deletes=("a",)) is not None
        assert await stage.row("a") is None
        assert await stage.engine.sweep(limit=10) == 0

    @scenario()
    async def test_the_last_expiry_that_there_is_is_kept_to_the_millisecond(
        self, stage: Stage
    ) -> None:
        await stage.put("a", expires=EXPIRES_MAX)
        row = await stage.row("a")
        assert row is not None and row.expires == EXPIRES_MAX
        assert await stage.engine.sweep(limit=10) == 0
        stage.clock.set(EXPIRES_MAX)
        assert await stage.row("a") is None
        assert await stage.engine.sweep(limit=10) == 1

    @scenario(durable=True)
    async def test_an_expiry_is_kept_over_reopening(self, stage: Stage) -> None:
        await stage.put("a", expires=stage.later(10))
        await stage.reopen()
        assert await stage.keys() == ["a"]
        stage.clock.advance(milliseconds=10)
        await stage.reopen()
        assert await stage.keys() == []
        assert await stage.engine.sweep(limit=10) == 1
