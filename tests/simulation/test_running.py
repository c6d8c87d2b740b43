"""The simulator itself: time, determinism, faults, and what a failure shows."""

import asyncio
import os
import subprocess
import sys

import pytest

from keyhouse.engine import Batch, Put, Span
from keyhouse.errors import UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.testing.faults import Killed
from keyhouse.testing.simulation import (
    FailedRunError,
    FaultPlan,
    Network,
    StalledError,
    World,
    explore,
    simulate,
)
from tests.simulation.library import library

CALM = FaultPlan(crashes=0, partitions=0, kills=0, clock_jumps=0)
FAULTLESS = Network(slow=0, lost_request=0, lost_reply=0, late_request=0)

TRACE = """
from keyhouse.testing.simulation import simulate
from tests.simulation.library import library
print("\\n".join(simulate(library, 11).trace))
"""


def test_an_hour_of_pauses_takes_no_time() -> None:
    async def scenario(world: World) -> None:
        before = world.clock.now()
        await asyncio.sleep(3_600)
        world.check(world.clock.now() - before == 3_600_000, "the clock follows the loop")
        world.check(world.seconds == 3_600, "the loop has moved")

    assert simulate(scenario, 1, faults=CALM).error is None


def test_tasks_that_all_wait_are_an_error_and_not_a_hang() -> None:
    async def scenario(world: World) -> None:
        await asyncio.Event().wait()

    error = simulate(scenario, 1, faults=CALM).error
    assert isinstance(error, (StalledError, TimeoutError))


def test_a_socket_is_rejected() -> None:
    async def scenario(world: World) -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    assert isinstance(simulate(scenario, 1, faults=CALM).error, UsageError)


def test_a_seed_replays_exactly_in_any_process() -> None:
    run = simulate(library, 11)
    assert run.trace == simulate(library, 11).trace
    assert run.trace != simulate(library, 12).trace
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", TRACE], capture_output=True, text=True, env=environment, check=True
    )
    assert printed.stdout.splitlines() == run.trace


def test_a_failure_shows_its_seed_and_the_shortest_trace_found() -> None:
    async def scenario(world: World) -> None:
        process = world.process("p")
        total = 0

        async def client() -> None:
            nonlocal total
            for random in world.steps("client", 40):
                key = f"k{random.randrange(10)}"
                await process.engine.commit("s", Batch(puts=(Put(key, b"1"),)))
                total += key == "k7"
                world.check(total < 2, "k7 was written twice")

        await asyncio.wait([process.spawn(client())])

    with pytest.raises(FailedRunError) as raised:
        explore(scenario, range(50), faults=FaultPlan(kills=0), network=FAULTLESS)
    run = raised.value.run
    assert (
        f"seed {run.seed} fails: k7 was written twice\nafter 2 steps and 0 faults"
        in f"{raised.value}"
    )
    assert sum("put k7" in line for line in run.trace) == 2


def test_a_scenario_fails_although_the_program_catches_the_check() -> None:
    async def scenario(world: World) -> None:
        try:
            world.check(False, "caught")
        except AssertionError:
            await asyncio.sleep(1)

    assert f"{simulate(scenario, 1, faults=CALM).error}" == "caught"


def test_an_exception_of_a_process_ends_the_run() -> None:
    async def scenario(world: World) -> None:
        async def work() -> None:
            raise ValueError("a bug")

        world.process("p").spawn(work())
        await asyncio.sleep(5)

    assert f"{simulate(scenario, 1, faults=CALM).error}" == "p raised ValueError: a bug"


def test_a_crash_keeps_a_prefix_of_the_pending_commits_and_tells_nobody() -> None:
    seen = set()

    async def scenario(world: World) -> None:
        engine = world.process("p").engine

        async def commit(number: int) -> None:
            with pytest.raises(UnknownOutcomeError):
                await engine.commit("s", Batch(puts=(Put(f"k{number}", b"1"),)))

        commits = [asyncio.create_task(commit(number)) for number in range(4)]
        while len(world.server.pending) < len(commits):
            await asyncio.sleep(0.001)
        order = [batch.puts[0].key for _, batch, _ in world.server.pending]
        world.server.crash()
        await asyncio.gather(*commits)
        with pytest.raises(UnavailableError):
            await engine.read("s", ["k0"])
        world.server.restart()
        page = await engine.scan("s", Span(), limit=9)
        durable = {row.key for row in page.rows}
        world.check(durable == set(order[: len(durable)]), f"{durable} is not a prefix of {order}")
        seen.add(len(durable))

    slow_sync = Network(slow=0, lost_request=0, lost_reply=0, late_request=0, sync_seconds=9)
    assert explore(scenario, range(40), faults=CALM, network=slow_sync) == 40
    assert seen == {0, 1, 2, 3, 4}


def test_a_killed_process_does_nothing_more() -> None:
    async def scenario(world: World) -> None:
        process = world.process("p")

        async def work() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await process.engine.commit("s", Batch(puts=(Put("k", b"1"),)))

        task = process.spawn(work())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.wait([task])
        with pytest.raises(Killed):
            await process.engine.read("s", ["k"])
        world.check(await world.server.rows.read("s", ["k"]) == [None], "it wrote")
        world.check(world.process("p").number == 2, "it starts again")

    assert simulate(scenario, 1, faults=CALM, network=FAULTLESS).error is None


def test_a_process_that_is_cut_off_misses_no_change_when_it_is_back() -> None:
    async def scenario(world: World) -> None:
        process, other = world.process("p"), world.process("other")
        seen: list[str] = []

        async def follow() -> None:
            async for change in process.engine.watch("s", Span(), since=0):
                seen.append(change.key)

        process.spawn(follow())
        for number in range(6):
            if number == 2:
                process.engine.disconnect()
            await other.engine.commit("s", Batch(puts=(Put(f"k{number}", b"1"),)))
            await asyncio.sleep(1)
        world.check(seen == ["k0", "k1"], f"cut off, it saw {seen}")
        process.engine.reconnect()
        await asyncio.sleep(5)
        world.check(seen == [f"k{number}" for number in range(6)], f"it saw {seen}")

    assert simulate(scenario, 1, faults=CALM, network=FAULTLESS).error is None
