"""Opening, closing, and what is there after it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from keyhouse.engine import Batch, Engine, Put, Row
from keyhouse.errors import ClosedError
from keyhouse.testing.conformance.stage import ALL, PATIENCE_SECONDS, SPACE, Stage, scenario


class Lifetime:
    @scenario()
    async def test_an_engine_declares_what_it_can_do(self, stage: Stage) -> None:
        capabilities = stage.engine.capabilities
        assert capabilities.name
        assert capabilities.commit_rows_max >= 1
        assert capabilities.commit_bytes_max >= 1

    @scenario()
    async def test_an_engine_has_the_clock_it_was_given(self, stage: Stage) -> None:
        assert stage.engine.clock is stage.clock

    @scenario()
    async def test_a_second_close_does_nothing(self, stage: Stage) -> None:
        await stage.put("a")
        await stage.engine.close()
        await stage.engine.close()
        await asyncio.gather(stage.engine.close(), stage.engine.close())

    @scenario()
    async def test_an_engine_that_was_never_used_can_be_closed(self, stage: Stage) -> None:
        await stage.engine.close()

    @scenario()
    async def test_a_closed_engine_says_so(self, stage: Stage) -> None:
        await stage.put("a")
        await stage.engine.close()
        for call in CALLS:
            with pytest.raises(ClosedError):
                await call(stage.engine)

    @scenario()
    async def test_closing_ends_a_watch_that_waits(self, stage: Stage) -> None:
        start = await stage.put("a")
        waiting = asyncio.ensure_future(anext(stage.engine.watch(SPACE, ALL, since=start)))
        await asyncio.sleep(0)
        await stage.engine.close()
        with pytest.raises(ClosedError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await waiting

    @scenario(durable=True)
    async def test_closing_finishes_what_was_begun(self, stage: Stage) -> None:
        """Whatever it was at. Everyone is told, and what one is told is so."""
        for moment in (1, 4, 30):
            names = [f"{moment} of {number}" for number in range(20)]
            tasks = [asyncio.ensure_future(stage.put(name, f"{name}, too")) for name in names]
            for _ in range(moment):
                await asyncio.sleep(0)
            for task in tasks[::5]:
                task.cancel()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await stage.engine.close()
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            await stage.reopen()
            for name, answer in zip(names, answers, strict=True):
                rows = await stage.engine.read(SPACE, [name, f"{name}, too"])
                if isinstance(answer, int):
                    assert rows == [Row(name, b"1", answer), Row(f"{name}, too", b"1", answer)]
                elif isinstance(answer, asyncio.CancelledError):
                    assert (rows[0] is None) == (rows[1] is None)
                else:
                    assert isinstance(answer, ClosedError)
                    assert rows == [None, None]

    @scenario(durable=True)
    async def test_reopening_keeps_every_row(self, stage: Stage) -> None:
        expires = stage.later(1_000)
        await stage.put("gone")
        first = await stage.put("a", value=b'{"n":1}', expires=expires)
        second = await stage.commit(puts={"b": b"2"}, deletes=("gone",), adds={"n": 3})
        assert second is not None
        await stage.put("k", space="another")
        await stage.reopen()
        page = await stage.engine.scan(SPACE, ALL, limit=10)
        assert page.rows == [
            Row("a", b'{"n":1}', first, expires),
            Row("b", b"2", second),
            Row("n", b"3", second),
        ]
        assert [space async for space in stage.engine.spaces()] == ["another", SPACE]

    @scenario(durable=True)
    async def test_revisions_go_on_after_reopening(self, stage: Stage) -> None:
        revisions = []
        for number in range(5):
            revisions.append(await stage.put("a", value=b"%d" % number))
            await stage.reopen()
        assert revisions == sorted(set(revisions))
        assert await stage.commit(checks={"a": revisions[-1]}, puts={"a": b"9"}) is not None

    @scenario(durable=True)
    async def test_revisions_go_on_after_everything_was_deleted_and_pruned(
        self, stage: Stage
    ) -> None:
        last = await stage.put("a", expires=stage.later(1))
        stage.clock.advance(seconds=3 * 24 * 3_600)
        await stage.engine.sweep(limit=10)
        await stage.reopen()
        assert await stage.put("a") > last


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
