"""Simulated tasks that processes share: each killed, cut off and started again.

The task runs in one process at a time, once in each interval, and 15 seconds after its runner was
killed in another one.
"""

import asyncio
from functools import partial
from itertools import pairwise

from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask
from keyhouse.testing.simulation import SimulatedProcess, World

INTERVAL = 60.0
WORK_MAX = 20.0
CONTINUED = 15.0


async def shared_tasks(world: World) -> None:
    running: list[str] = []
    starts: list[float] = []

    async def run(process: SimulatedProcess) -> float:
        world.check(not running, f"{process.name} runs beside {running}")
        running.append(process.name)
        starts.append(world.seconds)
        try:
            await asyncio.sleep(world.random.uniform(0, WORK_MAX))
        finally:
            running.remove(process.name)
        return INTERVAL

    async def live(name: str) -> None:
        while True:
            process = world.process(name)
            task = SharedTask(process.engine, "count", INTERVAL, OperationLog("counting", 1))

            await asyncio.wait([process.spawn(task.run(partial(run, process)))])
            await asyncio.sleep(1)

    living = [asyncio.create_task(live(name)) for name in ("p1", "p2", "p3")]
    await world.settle(0)
    calm = world.seconds
    await asyncio.sleep(6 * INTERVAL)
    for task in living:
        task.cancel()
    later = [calm, *(at for at in starts if at > calm), world.seconds]
    gaps = [after - before for before, after in pairwise(later)]
    most = INTERVAL + WORK_MAX + CONTINUED
    world.check(max(gaps) <= most, f"no run for {max(gaps)} s: {later}")
    world.check(min(gaps[1:-1]) >= INTERVAL, f"two runs in {min(gaps[1:-1])} s: {later}")
