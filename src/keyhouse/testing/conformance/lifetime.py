"""Open, close and reopen."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from keyhouse.engine import Batch, Engine, Put, Row
from keyhouse.errors import ClosedError
from keyhouse.testing.conformance.harness import ALL, SPACE, TIMEOUT_SECONDS, Harness, scenario


class LifetimeTests:
    @scenario()
    async def test_an_engine_declares_its_capabilities(self, harness: Harness) -> None:
        capabilities = harness.engine.capabilities
        assert capabilities.name
        assert capabilities.commit_rows_max >= 1
        assert capabilities.commit_bytes_max >= 1

    @scenario()
    async def test_an_engine_uses_the_clock_it_was_opened_with(self, harness: Harness) -> None:
        assert harness.engine.clock is harness.clock

    @scenario()
    async def test_a_second_close_does_nothing(self, harness: Harness) -> None:
        await harness.put("a")
        await harness.engine.close()
        await harness.engine.close()
        await asyncio.gather(harness.engine.close(), harness.engine.close())

    @scenario()
    async def test_an_engine_that_was_never_used_can_be_closed(self, harness: Harness) -> None:
        await harness.engine.close()

    @scenario()
    async def test_a_closed_engine_raises_closed_error(self, harness: Harness) -> None:
        await harness.put("a")
        await harness.engine.close()
        for call in CALLS:
            with pytest.raises(ClosedError):
                await call(harness.engine)

    @scenario()
    async def test_close_ends_a_waiting_watch(self, harness: Harness) -> None:
        start = await harness.put("a")
        waiting = asyncio.ensure_future(anext(harness.engine.watch(SPACE, ALL, since=start)))
        await asyncio.sleep(0)
        await harness.engine.close()
        with pytest.raises(ClosedError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await waiting

    @scenario(durable=True)
    async def test_close_finishes_commits_in_flight(self, harness: Harness) -> None:
        """Every caller gets a result, and the result is true."""
        for moment in (1, 4, 30):
            names = [f"{moment} of {number}" for number in range(20)]
            tasks = [asyncio.ensure_future(harness.put(name, f"{name}, too")) for name in names]
            for _ in range(moment):
                await asyncio.sleep(0)
            for task in tasks[::5]:
                task.cancel()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await harness.engine.close()
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            await harness.reopen()
            for name, answer in zip(names, answers, strict=True):
                rows = await harness.engine.read(SPACE, [name, f"{name}, too"])
                if isinstance(answer, int):
                    assert rows == [Row(name, b"1", answer), Row(f"{name}, too", b"1", answer)]
                elif isinstance(answer, asyncio.CancelledError):
                    assert (rows[0] is None) == (rows[1] is None)
                else:
                    assert isinstance(answer, ClosedError)
                    assert rows == [None, None]

    @scenario(durable=True)
    async def test_every_row_survives_reopening(self, harness: Harness) -> None:
        expires = harness.later(1_000)
        await harness.put("gone")
        first = await harness.put("a", value=b'{"n":1}', expires=expires)
        second = await harness.commit(puts={"b": b"2"}, deletes=("gone",), adds={"n": 3})
        assert second is not None
        await harness.put("k", space="another")
        await harness.reopen()
        page = await harness.engine.scan(SPACE, ALL, limit=10)
        assert page.rows == [
            Row("a", b'{"n":1}', first, expires),
            Row("b", b"2", second),
            Row("n", b"3", second),
        ]
        assert [space async for space in harness.engine.spaces()] == ["another", SPACE]

    @scenario(durable=True)
    async def test_revisions_continue_after_reopening(self, harness: Harness) -> None:
        revisions = []
        for number in range(5):
            revisions.append(await harness.put("a", value=b"%d" % number))
            await harness.reopen()
        assert revisions == sorted(set(revisions))
        assert await harness.commit(checks={"a": revisions[-1]}, puts={"a": b"9"}) is not None

    @scenario(durable=True)
    async def test_revisions_continue_after_everything_was_deleted_and_pruned(
        self, harness: Harness
    ) -> None:
        last = await harness.put("a", expires=harness.later(1))
        harness.clock.advance(seconds=3 * 24 * 3_600)
        await harness.engine.sweep(limit=10)
        await harness.reopen()
        assert await harness.put("a") > last


async def _read(engine: Engine) -> None:
    await engine.read(SPACE, ["a"])


async def _scan(engine: Engine) -> None:
    await engine.scan(SPACE, ALL, limit=1)


async def _commit(engine: Engine) -> None:
    await engine.commit(SPACE, Batch(puts=(Put("a", b"1"),)))


async def _watch(engine: Engine) -> None:
    await anext(engine.watch(SPACE, ALL, since=0))


async def _sweep(engine: Engine) -> None:
    await engine.sweep(limit=1)


async def _spaces(engine: Engine) -> None:
    await anext(engine.spaces())


CALLS: tuple[Callable[[Engine], Awaitable[None]], ...] = (
    _read,
    _scan,
    _commit,
    _watch,
    _sweep,
    _spaces,
)
