"""RocksDB: our commits against the bare driver doing the same durable work, in the same run.

    python -m benchmarks.rocksdb [FOLDER]

The same bytes are made durable by all: the rows with their revision, and one row of changes for each commit. `by hand` puts
64 commits in a batch and writes it with `sync`, one batch after the other: nobody waits for an answer. `served by hand` has
64 callers that each wait for theirs, as ours have, and syncs beside the event loop, as a server has to.
"""

import asyncio
import shutil
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from benchmarks.contest import Contestant, contest
from keyhouse.engine import Batch, Put
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb.settings import options

WRITERS = 64
COMMITS = 20
ROUNDS = 11
VALUE = b'{"title":"' + b"v" * 280 + b'"}'
Rows = list[tuple[str, bytes]]


def rows(number: int, derived: int) -> Rows:
    """A record of about 300 bytes, and its derived rows."""
    record = [(f"t:{number:012d}:01ARZ3NDEKTSV4RRFFQ69G5FAV", VALUE)]
    return record + [(f"idx:track:{n}:{number:012d}:01ARZ3NDEKTSV4RRFFQ69G5FAV", b"1") for n in range(derived)]


class Hand:
    """What a careful person writes with the driver alone."""

    def __init__(self, folder: Path) -> None:
        database, families = options(["changes"])
        self.database = Rdict(str(folder), database, families)
        self._changes = self.database.get_column_family_handle("changes")
        self._revision = 0
        self._numbers = count()
        self._sync = WriteOptions()
        self._sync.sync = True
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Rows, asyncio.Future[int]]] = []
        self._working = False

    def _add(self, batch: WriteBatch, written: Rows) -> None:
        self._revision += 1
        head = struct.pack(">Qq", self._revision, 2**63 - 1)
        for key, value in written:
            batch[b"s\0" + key.encode()] = head + value
        names = '","'.join([key for key, _ in written])
        batch.put(struct.pack(">Q", self._revision), f'["s",["{names}"],[]]'.encode(), self._changes)

    def write(self, derived: int, group: int, groups: int) -> int:
        for _ in range(groups):
            batch = WriteBatch(raw_mode=True)
            for _ in range(group):
                self._add(batch, rows(next(self._numbers), derived))
            self.database.write(batch, self._sync)
        return group * groups

    def serve(self, written: Rows) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((written, answer))
        if not self._working:
            self._working = True
            loop.call_soon(self._flush)
        return answer

    def _flush(self) -> None:
        group, self._waiting = self._waiting, []
        self._working = bool(group)
        if group:
            batch = WriteBatch(raw_mode=True)
            for written, _ in group:
                self._add(batch, written)
            self.database.write(batch)
            loop = asyncio.get_running_loop()
            synced = self._thread.submit(self.database.flush_wal, True)
            synced.add_done_callback(lambda _: loop.call_soon_threadsafe(self._tell, group))

    def _tell(self, group: list[tuple[Rows, asyncio.Future[int]]]) -> None:
        for _, answer in group:
            answer.set_result(1)
        asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        self._thread.shutdown()
        self.database.close()


def ours(engine: RocksdbEngine) -> Callable[[Rows], Awaitable[object]]:
    async def commit(written: Rows) -> object:
        return await engine.commit("s", Batch(puts=tuple([Put(key, value) for key, value in written])))

    return commit


def writers(commit: Callable[[Rows], Awaitable[object]], derived: int, callers: int, commits: int) -> Contestant:
    numbers = count()

    async def write() -> None:
        for _ in range(commits):
            await commit(rows(next(numbers), derived))

    async def run() -> int:
        await asyncio.gather(*(write() for _ in range(callers)))
        return callers * commits

    return run


def by_hand(hand: Hand, derived: int, group: int, groups: int) -> Contestant:
    async def run() -> int:
        return hand.write(derived, group, groups)

    return run


async def main(folder: Path) -> None:
    engine, hand = RocksdbEngine.open(folder / "ours"), Hand(folder / "hand")
    for derived, callers, commits in ((0, WRITERS, COMMITS), (5, WRITERS, COMMITS), (0, 1, 100), (5, 1, 100)):
        results = await contest(
            {
                "keyhouse": writers(ours(engine), derived, callers, commits),
                "served by hand": writers(hand.serve, derived, callers, commits),
                "by hand": by_hand(hand, derived, callers, commits),
            },
            rounds=ROUNDS,
        )
        speed = {name: result.median for name, result in results.items()}
        ratios = ", ".join(
            f"{name} {speed[name]:,.0f}/s ({speed['keyhouse'] / speed[name]:.2f})"
            for name in speed
            if name != "keyhouse"
        )
        print(f"{1 + derived} rows, {callers} writers: keyhouse {speed['keyhouse']:,.0f}/s; {ratios}", flush=True)
    await engine.close()
    hand.close()


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="keyhouse-", dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        asyncio.run(main(place))
    finally:
        shutil.rmtree(place)
