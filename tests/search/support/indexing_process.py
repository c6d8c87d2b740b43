"""A process that writes volumes to a SQLite file and keeps their index, until it is killed."""

import asyncio
import sys
from pathlib import Path

from keyhouse import open_engine
from tests.search.support.library import VOLUME, Volume, index_on, store_on


async def main(folder: Path) -> None:
    engine = await open_engine(f"sqlite:{folder}/rows.db")
    store = store_on(engine)
    index = index_on(engine, folder / "search")
    following = asyncio.create_task(index.run())
    print("running", flush=True)
    number = await store.count(VOLUME)
    while not following.done():
        for offset in range(20):
            id = str((number * 7 + offset) % 400)
            await store.put(VOLUME, Volume(id=id, title=f"Title {number % 13}", about="round"))
            number += 1
        await store.delete(VOLUME, id=str(number % 50))
        print("wrote", flush=True)
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
