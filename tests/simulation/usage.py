"""Simulated quotas: several writers of one process, in one space.

The rows never exceed the quota, and a count agrees with the rows.
"""

import asyncio
from functools import partial

from keyhouse.errors import ContentionError, QuotaError, UnavailableError, UnknownOutcomeError
from keyhouse.service.usage import Quota, Usage, measure
from keyhouse.store import Store, Transaction
from keyhouse.testing.simulation import World
from tests.store.support.planted_bug_checks import BOOK, LIBRARY, book

QUOTA = Quota(keys=40)
WRITERS = 4
STEPS = 15


async def put(number: int, tx: Transaction) -> None:
    await tx.put(BOOK, book(f"b{number}", f"t{number}", f"s{number % 3}"))


async def delete(number: int, tx: Transaction) -> None:
    await tx.delete(BOOK, id=f"b{number}")


async def usage(world: World) -> None:
    process = world.process("p1")
    store = Store(LIBRARY, process.engine, "l")
    counted = Usage(store, QUOTA)
    rows = Store(LIBRARY, world.server.rows, "l")
    rejected = 0

    async def write(name: str) -> None:
        nonlocal rejected
        for random in world.steps(name, STEPS):
            verb = delete if random.random() < 0.3 else put
            try:
                await counted.transact(partial(verb, random.randrange(16)))
            except QuotaError:
                rejected += 1
            except (UnavailableError, UnknownOutcomeError, ContentionError) as error:
                world.note(name, type(error).__name__)
            stored = (await measure(rows)).keys
            world.check(stored <= QUOTA.keys, f"{stored} keys of {QUOTA.keys} are stored")
            await asyncio.sleep(random.expovariate(10))

    await asyncio.wait([process.spawn(write(f"writer {number}")) for number in range(WRITERS)])
    await world.settle()
    if process.is_alive:
        count, stored = await counted.count(), await measure(rows)
        world.check(count == stored, f"{count} are counted, {stored} are stored")
    world.note("checker", f"{rejected} writes are rejected")
