"""Reads return rows as they were put, in the order of the keys."""

from keyhouse.engine import Batch, Check, Put, Row
from keyhouse.testing.conformance.harness import ALL, SPACE, Harness, scenario


class ReadTests:
    @scenario()
    async def test_an_absent_row_reads_as_null(self, harness: Harness) -> None:
        assert await harness.engine.read(SPACE, ["a"]) == [None]

    @scenario()
    async def test_reading_no_keys_returns_no_rows(self, harness: Harness) -> None:
        assert await harness.engine.read(SPACE, []) == []

    @scenario()
    async def test_a_row_is_read_as_it_was_put(self, harness: Harness) -> None:
        expires = harness.later(1_000)
        revision = await harness.put("a", value=b'{"n":1}', expires=expires)
        row = await harness.row("a")
        assert row == Row("a", b'{"n":1}', revision, expires)
        assert type(row.value) is bytes

    @scenario()
    async def test_a_row_without_an_expiry_has_none(self, harness: Harness) -> None:
        revision = await harness.put("a")
        assert await harness.row("a") == Row("a", b"1", revision, None)

    @scenario()
    async def test_rows_are_returned_in_the_order_of_the_keys(self, harness: Harness) -> None:
        for key in "abc":
            await harness.put(key, value=f'"{key}"'.encode())
        rows = await harness.engine.read(SPACE, ["c", "x", "a", "c", "b"])
        assert [row and row.value for row in rows] == [b'"c"', None, b'"a"', b'"c"', b'"b"']

    @scenario()
    async def test_many_rows_are_read_at_once(self, harness: Harness) -> None:
        keys = [f"k{number:04d}" for number in range(1_000)]
        for start in range(0, 1_000, 50):
            await harness.put(*keys[start : start + 50])
        assert [row and row.key for row in await harness.engine.read(SPACE, keys)] == keys

    @scenario()
    async def test_a_read_of_limited_bytes_returns_the_first_rows(self, harness: Harness) -> None:
        keys = [f"k{number:02d}" for number in range(20)]
        await harness.put(*keys[::2], value=b'"%b"' % (b"x" * 400))
        found: list[str | None] = []
        while len(found) < len(keys):
            rows = await harness.engine.read(SPACE, keys[len(found) :], bytes_max=1_000)
            assert rows
            found += [None if row is None else row.key for row in rows]
        assert found == [key if at % 2 == 0 else None for at, key in enumerate(keys)]
        assert await harness.engine.read(SPACE, [], bytes_max=1_000) == []

    @scenario()
    async def test_a_read_after_a_commit_sees_it(self, harness: Harness) -> None:
        for number in range(50):
            await harness.put("a", value=b"%d" % number)
            assert await harness.value("a") == b"%d" % number

    @scenario(shared=True)
    async def test_an_acknowledged_commit_is_visible_to_every_open_engine(
        self, harness: Harness
    ) -> None:
        other = await harness.another()
        try:
            for number in range(10):
                one, two = (harness.engine, other) if number % 2 else (other, harness.engine)
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
