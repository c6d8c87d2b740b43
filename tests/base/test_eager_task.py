"""Work that is begun at once: what it is to `asyncio` until it becomes a task, and when it does."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from keyhouse.eager_task import start


def begun(work: Coroutine[Any, Any, None]) -> asyncio.Future[None] | None:
    """Its end, or `None` when that has been."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(failure: BaseException | None) -> None:
        if failure is None:
            end.set_result(None)
        else:
            end.set_exception(failure)

    return None if start(asyncio.get_running_loop(), work, ended) else end


def test_work_that_never_waits_becomes_no_task() -> None:
    async def scenario() -> None:
        async def work() -> None:
            assert asyncio.current_task() is not caller

        caller = asyncio.current_task()
        assert begun(work()) is None
        assert asyncio.current_task() is caller

    asyncio.run(scenario())


def test_work_that_waits_once_becomes_no_task_and_work_that_waits_again_does() -> None:
    async def scenario() -> None:
        gate = asyncio.get_running_loop().create_future()

        async def work(again: bool) -> None:
            assert await gate == "open"
            assert len(asyncio.all_tasks()) == 1
            if again:
                await asyncio.sleep(0)
                assert asyncio.current_task() in asyncio.all_tasks()

        ends = begun(work(False)), begun(work(True))
        gate.set_result("open")
        for end in ends:
            assert end is not None
            await end

    asyncio.run(scenario())


def test_a_timeout_that_is_entered_before_the_first_wait_ends_the_work_and_not_its_caller() -> None:
    async def scenario() -> None:
        outcome: list[str] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()
            except TimeoutError:
                outcome.append("timed out")
            await asyncio.sleep(0)
            outcome.append("went on")

        end = begun(work())
        assert end is not None
        await end
        assert outcome == ["timed out", "went on"]

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [0, 1, 2])
@pytest.mark.parametrize("cancels", ["at work", "waiting", "as its wait is over"])
def test_work_that_was_begun_can_be_cancelled_and_cleans_up(waits: int, cancels: str) -> None:
    """Whether it is a task by then or not, and whether it is at work, waits, or its wait is over and it has not gone on."""

    async def scenario() -> None:
        cleaned: list[bool] = []
        current: list[Any] = []
        loop = asyncio.get_running_loop()
        gates = [loop.create_future() for _ in range(3)]

        async def work() -> None:
            current.append(asyncio.current_task())
            for gate in gates[:waits]:
                await gate
            try:
                if cancels == "at work":
                    current[0].cancel()
                await gates[2]
            finally:
                cleaned.append(True)

        end = begun(work())
        assert end is not None
        for gate in gates[:waits]:
            gate.set_result(None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if cancels != "at work":
            if cancels == "as its wait is over":
                gates[2].set_result(None)
            assert current[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await end
        assert cleaned == [True] and current[0].cancelling() == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [0, 1])
def test_what_is_waited_for_by_work_that_is_to_be_cancelled_is_cancelled_as_well(
    waits: int,
) -> None:
    """Work that had its end asked for before it waited was told so, and what it then waited for was not: whoever worked on
    that went on for nobody."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gates, awaited = [loop.create_future() for _ in range(waits)], loop.create_future()

        async def work() -> None:
            current: Any = asyncio.current_task()
            for gate in gates:
                await gate
            current.cancel()
            await awaited

        end = begun(work())
        for gate in gates:
            gate.set_result(None)
        assert end is not None
        with pytest.raises(asyncio.CancelledError):
            await end
        assert awaited.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("second", ["a future", "a step"])
def test_a_timeout_between_two_waits_is_heard(second: str) -> None:
    """The task that the rest of the work becomes was made, and had not taken its first step: cancelled then, it ended
    without the work, and a request without an answer."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gate, awaited, outcome = loop.create_future(), loop.create_future(), list[str]()
        limits: list[asyncio.Timeout] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    await gate
                    await (awaited if second == "a future" else asyncio.sleep(0))
            except TimeoutError:
                outcome.append("timed out")
            await asyncio.sleep(0)
            outcome.append("went on")

        end = begun(work())
        gate.set_result(None)
        limits[0].reschedule(0)  # its turn is behind the first wait's, and before the task's
        assert end is not None
        await end
        assert outcome == ["timed out", "went on"] and awaited.cancelled() is (second == "a future")

    asyncio.run(scenario())


def test_what_is_raised_before_and_after_a_wait_comes_out() -> None:
    async def scenario() -> None:
        async def work(*waits: float) -> None:
            for seconds in waits:
                await asyncio.sleep(seconds)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            begun(work())
        for waits in ((0.0,), (0.001,), (0.001, 0.001)):
            end = begun(work(*waits))
            assert end is not None
            with pytest.raises(ZeroDivisionError):
                await end

    asyncio.run(scenario())
