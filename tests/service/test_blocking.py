"""Blocking calls in threads: bounds, cancellation, shutdown."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from keyhouse.errors import BusyError, UnavailableError
from keyhouse.service.blocking import BlockingPool
from tests.support.polling import loop_turns, until


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(limited())


class Gate:
    """A function that blocks until it is opened, and counts how many block."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.calls = 0
        self.most = 0
        self._inside = 0
        self._lock = threading.Lock()

    def __call__(self, value: int = 0) -> int:
        with self._lock:
            self.calls += 1
            self._inside += 1
            self.most = max(self.most, self._inside)
        assert self.open.wait(15)
        with self._lock:
            self._inside -= 1
        return value


def test_a_call_runs_in_another_thread_with_the_callers_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def scenario() -> None:
        pool = BlockingPool()
        name.set("ann")
        assert await pool.run(lambda: (threading.current_thread().name, name.get())) == (
            "keyhouse-blocking-1",
            "ann",
        )
        assert await pool.run(divmod, 7, 2) == (3, 1)
        await pool.close()

    run(scenario)


def test_an_exception_of_the_function_is_raised_to_its_caller() -> None:
    def stop() -> None:
        raise StopIteration

    async def scenario() -> None:
        pool = BlockingPool()
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.run(stop)
        assert pool.running == 0
        await pool.close()

    run(scenario)


def test_threads_and_waiting_calls_are_bounded() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=3, pending_max=5), Gate()
        calls = [asyncio.create_task(pool.run(gate, number)) for number in range(8)]
        await until(lambda: gate.calls == 3)
        assert (pool.running, pool.pending) == (3, 5)
        with pytest.raises(BusyError, match="Too many calls wait"):
            await pool.run(gate)
        gate.open.set()
        assert await asyncio.gather(*calls) == list(range(8))
        assert (gate.calls, gate.most, pool.running, pool.pending) == (8, 3, 0, 0)
        await pool.close()

    run(scenario)


def test_a_cancelled_call_that_waits_never_runs_and_frees_its_place() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=1, pending_max=2), Gate()
        first = asyncio.create_task(pool.run(gate, 1))
        await until(lambda: gate.calls == 1)
        for _ in range(50):  # more than may wait
            waiting = asyncio.create_task(pool.run(gate, 2))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert pool.pending == 0
        last = asyncio.create_task(pool.run(gate, 3))
        await asyncio.sleep(0)
        gate.open.set()
        assert await first == 1 and await last == 3
        assert gate.calls == 2
        await pool.close()

    run(scenario)


def test_a_cancelled_call_that_runs_keeps_its_thread_until_it_returns() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=1), Gate()
        first = asyncio.create_task(pool.run(gate))
        await until(lambda: gate.calls == 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(pool.run(gate))
        await loop_turns(50)
        assert (pool.running, pool.pending, gate.calls) == (1, 1, 1)
        gate.open.set()
        await second
        assert gate.most == 1 and pool.running == 0
        await pool.close()

    run(scenario)


def test_a_call_cancelled_as_it_gets_its_thread_passes_the_thread_on() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=1), Gate()
        first = asyncio.create_task(pool.run(gate, 1))
        await until(lambda: gate.calls == 1)
        second = asyncio.create_task(pool.run(gate, 2))
        third = asyncio.create_task(pool.run(gate, 3))
        await asyncio.sleep(0)
        pool.release()  # as the end of the first does
        second.cancel()
        assert (await asyncio.gather(second, return_exceptions=True))[0].__class__ is (
            asyncio.CancelledError
        )
        pool.running += 1  # the first still runs
        gate.open.set()
        assert await third == 3 and await first == 1
        assert pool.running == 0
        await pool.close()

    run(scenario)


def test_closing_waits_for_running_calls_and_rejects_those_that_wait() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=1), Gate()
        first = asyncio.create_task(pool.run(gate, 1))
        await until(lambda: gate.calls == 1)
        second = asyncio.create_task(pool.run(gate, 2))
        await asyncio.sleep(0)
        closing = asyncio.create_task(pool.close())
        with pytest.raises(UnavailableError, match="shutting down"):
            await second
        assert not closing.done()
        gate.open.set()
        await closing
        assert await first == 1
        with pytest.raises(UnavailableError, match="shutting down"):
            await pool.run(gate)

    run(scenario)


def test_closing_does_not_wait_for_a_call_that_hangs() -> None:
    async def scenario() -> None:
        pool, gate = BlockingPool(threads_max=1), Gate()
        first = asyncio.create_task(pool.run(gate))
        await until(lambda: gate.calls == 1)
        await pool.close(0.01)
        assert pool.running == 1
        gate.open.set()
        await first

    run(scenario)


def test_calls_are_measured() -> None:
    async def scenario() -> None:
        pool, registry = BlockingPool(threads_max=1, pending_max=0), CollectorRegistry()
        registry.register(pool)
        gate = Gate()
        first = asyncio.create_task(pool.run(gate))
        await until(lambda: gate.calls == 1)
        with pytest.raises(BusyError):
            await pool.run(gate)
        page = generate_latest(registry).decode()
        assert 'keyhouse_blocking_calls{state="running"} 1.0' in page
        assert "keyhouse_blocking_refused_total 1.0" in page
        gate.open.set()
        await first
        assert "keyhouse_blocking_seconds_count 1.0" in generate_latest(registry).decode()
        await pool.close()

    run(scenario)
