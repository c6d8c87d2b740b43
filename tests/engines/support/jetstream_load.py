"""Writers that keep writing while servers fail, and know exactly what must be stored at the end.

Each writer rewrites its own record, with every kind of derived row, and increments a shared
counter. It retries what is unavailable, and repeats unknown outcomes with the same batch id. At the
end the counter equals the acknowledged writes, and every record is as last written.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from msgspec import Struct

from keyhouse.engine import Engine
from keyhouse.errors import UnavailableError, UnknownOutcomeError
from keyhouse.schema import Counter, Index, Record, RecordCount, Schema, Space, Summary, Unique
from keyhouse.store import Store, verify
from keyhouse.store.writes.transaction import Transaction
from tests.support.polling import until


class Take(Struct, kw_only=True):
    id: str
    number: int
    title: str
    reel: str


BY_NUMBER = Index("idx:take:{number:08d}:{id}")
BY_TITLE = Unique("idx:title:{title:norm}", value="id")
OF_REEL = RecordCount("count:{reel}")
ON_REEL = Summary("reel:{reel}", member="id", under="takes")
TAKE = Record(Take, "take:{id}", BY_NUMBER, BY_TITLE, OF_REEL, ON_REEL)
WRITES = Counter("writes", name="writes")
FILM = Schema("film", TAKE, WRITES, space=Space("a film"))
SPACE = "film"
REELS = 3
SPEED_WRITES = 200
SPEED_TRIES = 10
HANG_SECONDS = 120


class Load:
    def __init__(self, engine: Engine, writers: int = 32) -> None:
        self.store = Store(FILM, engine, SPACE)
        self.acknowledged = dict.fromkeys([f"writer-{number}" for number in range(writers)], 0)
        self.times: list[float] = []
        """Time of each acknowledged write."""
        self.unknown = 0
        self.unavailable = 0
        self._committing: set[str] = set()
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(self._write(writer)) for writer in self.acknowledged]
        try:
            yield
        finally:
            self._stopping = True
            await asyncio.gather(*tasks)

    async def until(self, writes: int) -> None:
        """Wait for this many more writes."""
        target = len(self.times) + writes
        await until(lambda: len(self.times) >= target)

    async def held_up(self, seconds: float) -> None:
        """Wait until no write was acknowledged for this time."""
        await until(lambda: time.monotonic() - self.times[-1] >= seconds)

    async def under_way(self, dice: random.Random) -> None:
        """Wait until a commit is in flight.

        A fault soon after a reply may hit none on a slow machine: all writers were answered
        together and read before they write again.
        """
        while True:
            await asyncio.sleep(dice.uniform(0, 0.02))
            if self._committing:
                return

    async def at_speed(self, per_second: int) -> float:
        """Wait for a minimum write rate and return it: a fault during few writes proves little. A
        busy machine gets ten attempts."""
        for _ in range(SPEED_TRIES):
            began = time.monotonic()
            await self.until(SPEED_WRITES)
            if (rate := SPEED_WRITES / (time.monotonic() - began)) >= per_second:
                return rate
        raise AssertionError(f"no more than {rate:.0f} writes in a second: it would prove little")

    def longest_outage(self, since: float) -> float:
        moments = [since, *(moment for moment in self.times if moment > since)]
        return max(after - before for before, after in pairwise(moments))

    async def faults(self) -> list[str]:
        """Return every deviation from the expected state."""
        found = [
            f"{finding.kind} {finding.key}: {finding.detail}"
            async for finding in verify(self.store)
        ]
        for writer, number in self.acknowledged.items():
            take = await self.store.get(TAKE, id=writer)
            if take != (_take(writer, number) if number else None):
                found.append(f"{writer} got {number} acknowledgements, and its record is {take}")
        total = await self.store.get(WRITES)
        if total != sum(self.acknowledged.values()):
            found.append(
                f"{sum(self.acknowledged.values())} writes were acknowledged, and {total} counted"
            )
        return found

    async def _write(self, writer: str) -> None:
        while not self._stopping:
            number = self.acknowledged[writer] + 1
            await self._written(writer, number)
            self.acknowledged[writer] = number
            self.times.append(time.monotonic())

    async def _written(self, writer: str, number: int) -> None:
        async def work(tx: Transaction) -> None:
            self._committing.discard(writer)
            await tx.put(TAKE, _take(writer, number))
            await tx.add(WRITES, 1)
            self._committing.add(writer)

        while True:
            try:
                return await self.store.transact(work, batch_id=f"{writer}/{number}")
            except UnknownOutcomeError:
                self.unknown += 1
            except UnavailableError:
                self.unavailable += 1
            finally:
                self._committing.discard(writer)
            await asyncio.sleep(0.02)


def _take(writer: str, number: int) -> Take:
    return Take(
        id=writer,
        number=number,
        title=f"{writer} take {number}",
        reel=f"{writer} reel {number % REELS}",
    )
