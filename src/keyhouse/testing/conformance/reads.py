"""Rows come back as they were put, in the order asked."""

from keyhouse.engine import Batch, Check, Put, Row
from keyhouse.testing.conformance.stage import ALL, SPACE, Stage, scenario


class Reads:
    @scenario()
    async def test_an_absent_row_is_none(self, stage: Stage) -> None:
        assert await stage.engine.read(SPACE, ["a"]) == [None]

    @scenario()
    async def test_no_keys_give_no_rows(self, stage: Stage) -> None:
        assert await stage.engine.read(SPACE, []) == []

    @scenario()
    async def test_a_row_is_read_as_it_was_put(self, stage: Stage) -> None:
        expires = stage.later(1_000)
        revision = await stage.put("a", value=b'{"n":1}', expires=expires)
        row = await stage.row("a")
        assert row == Row("a", b'{"n":1}', revision, expires)
        assert type(row.value) is bytes

    @scenario()
    async def test_a_row_without_an_expiry_has_none(self, stage: Stage) -> None:
        revision = await stage.put("a")
        assert await stage.row("a") == Row("a", b"1", revision, None)

    @scenario()
    async def test_rows_come_in_the_order_of_the_keys_asked(self, stage: Stage) -> None:
        for key in "abc":
            await stage.put(key, value=f'"{key}"'.encode())
        rows = await stage.engine.read(SPACE, ["c", "x", "a", "c", "b"])
        assert [row and row.value for row in rows] == [b'"c"', None, b'"a"', b'"c"', b'"b"']

    @scenario()
    async def test_many_rows_are_read_at_once(self, stage: Stage) -> None:
        keys = [f"k{number:04d}" for number in range(1_000)]
        for start in range(0, 1_000, 50):
            await stage.put(*keys[start : start + 50])
        assert [row and row.key for row in await stage.engine.read(SPACE, keys)] == keys

    @scenario()
    async def test_a_read_after_a_commit_sees_it(self, stage: Stage) -> None:
        for number in range(50):
            await stage.put("a", value=b"%d" % number)
            assert await stage.value("a") == b"%d" % number

    @scenario(shared=True)
    async def test_whoever_has_the_store_open_sees_what_another_was_told(
        self, stage: Stage
    ) -> None:
        other = await stage.another()
        try:
            for number in range(10):
                one, two = (stage.engine, other) if number % 2 else (other, stage.engine)
                revision = await one.commit(SPACE, Batch(puts=(Put("a", b"%d" % number),)))
                assert revision is not None
                assert await two.read(SPACE, ["a"]) == [Row("a", b"%d" % number, revision)]
                page = await two.scan(SPACE, ALL, limit=1)
                assert (
                    page.rows == [Row("a", b"%d" % number, revision)] and page.revision == revision
                )
                assert await two.commit(SPACE, Batch(checks=(Check("a", revision),))) == revision
        finally:
            await other.close()
