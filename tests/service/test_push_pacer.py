"""Pushes to many streams leave turns of the event loop to requests."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from keyhouse.service.push_pacer import PUSHES_PER_TURN, PushPacer
from tests.support.polling import loop_turns


class Turns:
    """Notes the turn of the event loop in which each push is done."""

    def __init__(self) -> None:
        self.number = 0
        self.pushed: list[tuple[int, object]] = []
        self._ticking = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self.number += 1
        self._ticking = asyncio.get_running_loop().call_soon(self._tick)

    def push(self, stream: object) -> None:
        self.pushed.append((self.number, stream))

    def per_turn(self) -> list[int]:
        turns = [turn for turn, _ in self.pushed]
        return [turns.count(turn) for turn in sorted({*turns})]

    def close(self) -> None:
        self._ticking.cancel()


def run(scenario: Callable[[Turns], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        turns = Turns()
        async with asyncio.timeout(30):
            await scenario(turns)
        turns.close()

    asyncio.run(limited())


def test_a_turn_has_a_bounded_number_of_pushes_over_all_deliveries() -> None:
    async def scenario(turns: Turns) -> None:
        pacer = PushPacer()
        deliveries = [pacer.push(turns.push, range(each * 100, each * 100 + 30)) for each in (1, 2)]
        many_small = [pacer.push(turns.push, [each]) for each in range(40)]
        await asyncio.gather(*deliveries, *many_small)
        assert sorted(int(str(stream)) for _, stream in turns.pushed) == [
            *range(40),
            *range(100, 130),
            *range(200, 230),
        ]
        assert max(turns.per_turn()) == PUSHES_PER_TURN

    run(scenario)


def test_a_small_delivery_does_not_wait_for_a_large_one() -> None:
    async def scenario(turns: Turns) -> None:
        pacer = PushPacer()
        large = asyncio.ensure_future(pacer.push(turns.push, range(1_000)))
        await asyncio.sleep(0)
        await pacer.push(turns.push, ["small"])
        assert len(turns.pushed) <= 4 * PUSHES_PER_TURN
        await large
        assert [stream for _, stream in turns.pushed if stream != "small"] == [*range(1_000)]

    run(scenario)


def test_a_delivery_to_one_stream_is_done_in_the_same_turn() -> None:
    async def scenario(turns: Turns) -> None:
        pacer = PushPacer()
        for _ in range(3):
            before = turns.number
            await pacer.push(turns.push, ["one"])
            assert turns.number == before
            await loop_turns(3)
        assert len(turns.pushed) == 3

    run(scenario)


def test_an_exception_ends_only_its_delivery() -> None:
    async def scenario(turns: Turns) -> None:
        pacer = PushPacer()

        def fail(stream: int) -> None:
            if stream == 7:
                raise ValueError("seven")
            turns.push(stream)

        failing = asyncio.ensure_future(pacer.push(fail, range(20)))
        await pacer.push(turns.push, range(100, 150))
        with pytest.raises(ValueError, match="seven"):
            await failing
        assert [stream for _, stream in turns.pushed if stream in range(100)] == [*range(7)]
        assert [stream for _, stream in turns.pushed if stream in range(100, 150)] == [
            *range(100, 150)
        ]

    run(scenario)


def test_a_cancelled_delivery_stops() -> None:
    async def scenario(turns: Turns) -> None:
        pacer = PushPacer()
        task = asyncio.ensure_future(pacer.push(turns.push, range(1_000)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        count = len(turns.pushed)
        await pacer.push(turns.push, ["next"])
        assert len(turns.pushed) == count + 1 < 100

    run(scenario)
