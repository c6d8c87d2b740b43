"""Eager tasks: their behaviour in asyncio until a real task takes over."""

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from keyhouse.scheduling.eager_task import Started, start


def started(work: Coroutine[Any, Any, None]) -> asyncio.Future[None] | None:
    """Return a future of the result, or None if it has ended already."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(failure: BaseException | None) -> None:
        if failure is None:
            end.set_result(None)
        else:
            end.set_exception(failure)

    return None if start(asyncio.get_running_loop(), work, ended) else end


def test_work_that_never_waits_creates_no_task() -> None:
    async def scenario() -> None:
        async def work() -> None:
            assert asyncio.current_task() is not caller

        caller = asyncio.current_task()
        assert started(work()) is None
        assert asyncio.current_task() is caller

    asyncio.run(scenario())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio has its own eager tasks")
def test_a_task_is_created_at_the_second_wait() -> None:
    async def scenario() -> None:
        gate = asyncio.get_running_loop().create_future()

        async def work(again: bool) -> None:
            assert await gate == "open"
            assert len(asyncio.all_tasks()) == 1
            if again:
                await asyncio.sleep(0)
                assert asyncio.current_task() in asyncio.all_tasks()

        ends = started(work(False)), started(work(True))
        gate.set_result("open")
        for end in ends:
            assert end is not None
            await end

    asyncio.run(scenario())


def test_a_timeout_entered_before_the_first_wait_cancels_the_work_and_not_its_caller() -> None:
    async def scenario() -> None:
        outcome: list[str] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()
            except TimeoutError:
                outcome.append("timed out")
            await asyncio.sleep(0)
            outcome.append("resumed")

        end = started(work())
        assert end is not None
        await end
        assert outcome == ["timed out", "resumed"]

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [0, 1, 2])
@pytest.mark.parametrize("cancels", ["at work", "waiting", "as its wait is over"])
def test_started_work_can_be_cancelled_in_every_state(waits: int, cancels: str) -> None:
    """Running, waiting, resumed, or as a task."""

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

        end = started(work())
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
def test_a_pending_cancel_cancels_the_next_awaited_future(
    waits: int,
) -> None:
    """Regression: work that was cancelled before it waited got CancelledError, but the future that
    it then awaited was not cancelled.
    """

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gates, awaited = [loop.create_future() for _ in range(waits)], loop.create_future()

        async def work() -> None:
            current: Any = asyncio.current_task()
            for gate in gates:
                await gate
            current.cancel()
            await awaited

        end = started(work())
        for gate in gates:
            gate.set_result(None)
        assert end is not None
        with pytest.raises(asyncio.CancelledError):
            await end
        assert awaited.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("second", ["a future", "a step"])
def test_a_timeout_between_two_waits_cancels_the_work(second: str) -> None:
    """Regression: the task of the remainder was cancelled before its first step, and ended without
    the work: the request had no reply.
    """

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
            outcome.append("resumed")

        end = started(work())
        gate.set_result(None)
        limits[0].reschedule(0)  # its turn is behind the first wait's, and before the task's
        assert end is not None
        await end
        assert outcome == ["timed out", "resumed"] and awaited.cancelled() is (second == "a future")

    asyncio.run(scenario())


def test_exceptions_before_and_after_a_wait_are_passed_on() -> None:
    async def scenario() -> None:
        async def work(*waits: float) -> None:
            for seconds in waits:
                await asyncio.sleep(seconds)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            started(work())
        for waits in ((0.0,), (0.001,), (0.001, 0.001)):
            end = started(work(*waits))
            assert end is not None
            with pytest.raises(ZeroDivisionError):
                await end

    asyncio.run(scenario())


def test_work_that_returns_in_its_first_step_is_done() -> None:
    async def scenario() -> None:
        async def work() -> int:
            return 7

        started = Started(work())
        assert started.is_done and started.result == 7

    asyncio.run(scenario())


def test_work_has_its_own_context() -> None:
    """The reads of a request could count towards the tenant of another one."""

    async def scenario() -> None:
        tenant: ContextVar[str] = ContextVar("tenant", default="")
        gate = asyncio.get_running_loop().create_future()

        async def work(name: str) -> None:
            assert tenant.get() == ""
            tenant.set(name)
            await gate
            assert tenant.get() == name
            await asyncio.sleep(0)
            assert tenant.get() == name

        ends = [started(work("ann")), started(work("bob"))]
        assert tenant.get() == ""
        gate.set_result(None)
        for end in ends:
            assert end is not None
            await end

    asyncio.run(scenario())


def test_work_that_was_stepped_once_is_awaited_to_its_end() -> None:
    async def scenario() -> None:
        async def work(wait: bool) -> int:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            if wait:
                await asyncio.Event().wait()
            return 7

        started = Started(work(wait=False))
        assert not started.is_done and await started == 7
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await Started(work(wait=True))

    asyncio.run(scenario())


def test_work_that_was_stepped_once_sees_its_cancellation() -> None:
    async def scenario() -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async def caller() -> None:
            await Started(work())

        task = asyncio.create_task(caller())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]

    asyncio.run(scenario())
