"""Writers that go on while servers fall and rise, and that know at the end exactly what must be there.

Each writer has a record of its own and writes it again and again, with rows of every kind derived from it, and counts each
time on one counter of all. What is not there now it tries again; what is unknown it repeats with the same batch id. So at
the end the counter has counted every acknowledged write once, and every record is as its writer last wrote it.
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
from keyhouse.schema import Count, Counter, Index, Record, Schema, Space, Summary, Unique
from keyhouse.store import Store, verify
from keyhouse.store.transaction import Transaction


class Take(Struct, kw_only=True):
    id: str
    number: int
    title: str
    reel: str


BY_NUMBER = Index("idx:take:{number:08d}:{id}")
BY_TITLE = Unique("idx:title:{title:norm}", value="id")
OF_REEL = Count("count:{reel}")
ON_REEL = Summary("reel:{reel}", member="id", under="takes")
TAKE = Record(Take, "take:{id}", BY_NUMBER, BY_TITLE, OF_REEL, ON_REEL)
WRITES = Counter("writes", name="writes")
FILM = Schema("film", TAKE, WRITES, space=Space("a film"))
SPACE = "film"
REELS = 3
SPEED_WRITES = 200
SPEED_TRIES = 10


class Load:
    def __init__(self, engine: Engine, writers: int = 32) -> None:
        self.store = Store(FILM, engine, SPACE)
        self.acknowledged = dict.fromkeys([f"writer-{number}" for number in range(writers)], 0)
        self.times: list[float] = []
        """When each write was acknowledged."""
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

    async def until(self, writes: int, *, seconds: float = 30) -> None:
        """Wait for so many more writes."""
        target = len(self.times) + writes
        async with asyncio.timeout(seconds):
            while len(self.times) < target:
                await asyncio.sleep(0.005)

    async def under_way(self, dice: random.Random) -> None:
        """Wait for some moment at which a commit is asked for and not answered. A fault that comes soon after an answer may
        meet none on a slow machine: the writers were answered together, and read before they write again."""
        while True:
            await asyncio.sleep(dice.uniform(0, 0.02))
            if self._committing:
                return

    async def at_speed(self, per_second: int) -> float:
        """Writes in a second, once they are so many: a fault while little is written proves little. A machine that has much
        else to do is given ten chances."""
        for _ in range(SPEED_TRIES):
            began = time.monotonic()
            await self.until(SPEED_WRITES, seconds=60)
            if (rate := SPEED_WRITES / (time.monotonic() - began)) >= per_second:
                return rate
        raise AssertionError(f"no more than {rate:.0f} writes in a second: it would prove little")

    def longest_outage(self, since: float) -> float:
        moments = [since, *(moment for moment in self.times if moment > since)]
        return max(after - before for before, after in pairwise(moments))

    async def faults(self) -> list[str]:
        """All that is not as it must be."""
        found = [
            f"{finding.kind} {finding.key}: {finding.detail}"
            async for finding in verify(self.store)
        ]
        for writer, number in self.acknowledged.items():
            take = await self.store.get(TAKE, id=writer)
            if take != (_take(writer, number) if number else None):
                found.append(f"{writer} was told of {number}, and it is {take}")
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
            tx.add(WRITES, 1)
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
