"""A process that runs counting operations on a SQLite file until it is killed, or none is left.

Prints the id of the operation, a new one if its second argument is a number to count to, and then
each count that it sees, so that a test can kill it in the middle however fast the machine is.
"""

import asyncio
import sys

from keyhouse import open_engine
from tests.service.support.background import COUNT, RECORDS, counting, store_on

LEASE_SECONDS = 0.3


async def main(path: str, work: str) -> None:
    engine = await open_engine(f"sqlite:{path}")
    store = store_on(engine)
    operations = counting(store, lease_seconds=LEASE_SECONDS)
    id = await operations.submit("count", int(work)) if work.isdigit() else work
    print(id, flush=True)
    runner = asyncio.create_task(operations.run())
    while await store.count(RECORDS.run):
        print(await store.get(COUNT, id=id), flush=True)
        await asyncio.sleep(0.002)
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
