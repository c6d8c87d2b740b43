"""Simulated quotas: several writers of one process, or of several that share the quota, in one
space.

The rows never exceed the quota, and a count agrees with the rows. Of several processes, which are
killed and started again, the last one can use all that is free.
"""

import asyncio
from functools import partial

import msgspec

from keyhouse.errors import ContentionError, QuotaError, UnavailableError, UnknownOutcomeError
from keyhouse.service.limits import GRANT_SECONDS
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


async def shared_usage(world: World) -> None:
    quota = msgspec.structs.replace(QUOTA, is_shared=True)
    rows = Store(LIBRARY, world.server.rows, "l")
    rejected = 0

    async def serve(name: str) -> None:
        for start in range(4):
            process = world.process(name)
            counted = Usage(Store(LIBRARY, process.engine, "l"), quota)
            writers = [write(f"{name} {start} {each}", counted) for each in range(2)]
            await asyncio.wait([process.spawn(each) for each in writers])
            await asyncio.sleep(1)

    async def write(name: str, counted: Usage) -> None:
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
            await asyncio.sleep(random.expovariate(10 if random.random() < 0.9 else 0.05))

    await asyncio.gather(*(serve(name) for name in ("p1", "p2", "p3")))
    await world.settle(GRANT_SECONDS)
    counted = Usage(Store(LIBRARY, world.process("p4").engine, "l"), quota)
    try:
        for number in range(QUOTA.keys):
            await counted.transact(partial(put, number))
    except QuotaError as error:
        used, stored = error.fields["used"], (await measure(rows)).keys
        world.check(used == stored, f"{used} keys are thought to be used, {stored} are stored")
    world.note("checker", f"{rejected} writes are rejected")
