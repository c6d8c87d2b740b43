"""Snapshots: all spaces as of one moment, on engines that declare them."""

import asyncio

from keyhouse.engine import Batch, Put, Snapshots, Span
from keyhouse.testing.conformance.harness import ALL, SPACE, Harness, scenario


class SnapshotTests:
    @scenario()
    async def test_the_capabilities_declare_snapshots(self, harness: Harness) -> None:
        assert isinstance(harness.engine, Snapshots) == harness.engine.capabilities.snapshots

    @scenario(snapshots=True)
    async def test_a_snapshot_shows_one_moment_of_all_spaces(self, harness: Harness) -> None:
        assert isinstance(harness.engine, Snapshots)
        await harness.put(*"abcdef")
        await harness.engine.commit("other", Batch(puts=(Put("k", b"1"),)))
        async with harness.engine.snapshot() as snapshot:
            first = await snapshot.scan(SPACE, ALL, limit=2)
            await harness.engine.commit(
                SPACE, Batch(puts=(Put("c", b"2"), Put("cc", b"2")), deletes=("d",))
            )
            await harness.engine.commit("other", Batch(deletes=("k",)))
            await harness.engine.commit("new", Batch(puts=(Put("k", b"1"),)))
            rest = await snapshot.scan(SPACE, Span().after("b"), limit=10)
            assert [row.key for row in (*first.rows, *rest.rows)] == list("abcdef")
            assert {row.revision for row in (*first.rows, *rest.rows)} == {first.rows[0].revision}
            assert first.more and not rest.more
            assert [space async for space in snapshot.spaces()] == sorted([SPACE, "other"])
            assert [row.key for row in (await snapshot.scan("other", ALL, limit=5)).rows] == ["k"]
            assert [
                row.key for row in (await snapshot.scan(SPACE, Span("b", "e"), limit=5)).rows
            ] == list("bcd")
        assert await harness.keys() == ["a", "b", "c", "cc", "e", "f"]

    @scenario(snapshots=True)
    async def test_a_snapshot_omits_expired_rows(self, harness: Harness) -> None:
        assert isinstance(harness.engine, Snapshots)
        soon = harness.engine.clock.now() + 1_000
        await harness.engine.commit(SPACE, Batch(puts=(Put("a", b"1", soon), Put("b", b"1"))))
        await harness.engine.commit("brief", Batch(puts=(Put("a", b"1", soon),)))
        async with harness.engine.snapshot() as snapshot:
            assert [row.expires for row in (await snapshot.scan(SPACE, ALL, limit=5)).rows] == [
                soon,
                None,
            ]
            harness.clock.advance(milliseconds=1_000)
            assert [row.key for row in (await snapshot.scan(SPACE, ALL, limit=5)).rows] == ["b"]
            assert [space async for space in snapshot.spaces()] == [SPACE]

    @scenario(snapshots=True)
    async def test_a_snapshot_never_shows_part_of_a_commit(self, harness: Harness) -> None:
        """Each commit writes one number to the first and last row of a space.

        The number is first written to a row of another space.
        """
        assert isinstance(harness.engine, Snapshots)

        async def write() -> None:
            number = 0
            while not done.is_set():
                number += 1
                for space in (SPACE, "zz"):
                    value = b"%d" % number
                    await harness.engine.commit(
                        space, Batch(puts=(Put("a", value), Put("z", value)))
                    )
                    await asyncio.sleep(0)

        done = asyncio.Event()
        await harness.put("a", "z")
        writer = asyncio.create_task(write())
        seen: set[bytes] = set()
        rounds = 0
        while rounds < 20 or (len(seen) < 2 and not writer.done()):  # the disk may be slow
            rounds += 1
            await asyncio.sleep(0)
            async with harness.engine.snapshot() as snapshot:
                values: list[bytes] = []
                for space in (SPACE, "zz"):
                    values += [
                        row.value
                        for row in (await snapshot.scan(space, Span("", "b"), limit=1)).rows
                    ]
                    await asyncio.sleep(0.001)
                    values += [
                        row.value for row in (await snapshot.scan(space, Span("b"), limit=1)).rows
                    ]
                first, last, *others = values
                assert first == last
                assert len(set(others)) < 2
                if others and first != b"1":
                    assert int(first) - int(others[0]) in (0, 1), (
                        "the other space is of the same moment"
                    )
                seen.add(first)
        done.set()
        await writer
        assert len(seen) > 1
