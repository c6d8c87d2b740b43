"""A process that runs counting operations on a SQLite file until it is killed, or none is left.

Prints the id of a new operation if its third argument is a number to count to.
"""

import asyncio
import sys

from keyhouse import open_engine
from tests.service.support.background import RECORDS, counting, store_on

LEASE_SECONDS = 0.3


async def main(path: str, submitted: str) -> None:
    engine = await open_engine(f"sqlite:{path}")
    store = store_on(engine)
    operations = counting(store, lease_seconds=LEASE_SECONDS)
    if submitted:
        print(await operations.submit("count", int(submitted)), flush=True)
    print("running", flush=True)
    runner = asyncio.create_task(operations.run())
    while await store.count(RECORDS.run):
        await asyncio.sleep(0.01)
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
