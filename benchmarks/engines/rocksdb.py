"""RocksDB against `rocksdict`: the baseline writes 64 commits in one WriteBatch with `sync`.

It runs on the caller's thread, with no caller waiting for a commit, and nothing else can run.
`served` has 64 callers that each wait for theirs, as the engine has, and syncs off the event loop,
as a server must.
"""

import asyncio
import struct
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from benchmarks.engines.commits import (
    DERIVED,
    WRITERS,
    GroupCommit,
    Rows,
    measure_reads,
    of_engine,
    result,
    rows,
    rows_text,
    writing,
)
from keyhouse.bench.comparison import Workload
from keyhouse.bench.result import Result
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb.settings import options


class Bare:
    """Careful hand-written code on the driver alone."""

    def __init__(self, folder: Path) -> None:
        database, families = options(["changes"])
        self._database = Rdict(str(folder), database, families)
        self._changes = self._database.get_column_family_handle("changes")
        self._revision = 0
        self._numbers = count()
        self._sync = WriteOptions()
        self._sync.sync = True
        self._thread = ThreadPoolExecutor(1)

    def by_hand(self, derived: int, group: int, groups: int) -> Workload:
        async def run() -> int:
            for _ in range(groups):
                self._database.write(
                    self._batch([rows(next(self._numbers), derived) for _ in range(group)]),
                    self._sync,
                )
            return group * groups

        return run

    def served(self, group: list[Rows]) -> Awaitable[None]:
        self._database.write(self._batch(group))
        return asyncio.get_running_loop().run_in_executor(
            self._thread, self._database.flush_wal, True
        )

    async def read(self, key: str) -> object:
        data = self._database.get(b"s\0" + key.encode())
        return None if data is None else data[16:]

    def _batch(self, group: list[Rows]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for written in group:
            self._revision += 1
            head = struct.pack(">Qq", self._revision, 2**63 - 1)
            for key, value in written:
                batch[b"s\0" + key.encode()] = head + value
            names = '","'.join([key for key, _ in written])
            batch.put(
                struct.pack(">Q", self._revision), f'["s",["{names}"],[]]'.encode(), self._changes
            )
        return batch

    def close(self) -> None:
        self._thread.shutdown()
        self._database.close()


async def measure(folder: Path, rounds: int, *, quick: bool) -> list[Result]:
    engine, bare = RocksdbEngine.open(folder / "ours"), Bare(folder / "bare")
    ours, served = of_engine(engine), GroupCommit(bare.served)
    results: list[Result] = []
    for derived in (0, DERIVED):
        for writers, commits in ((1, 100), (WRITERS, 6 if quick else 20)):
            workloads = {
                "ours": writing(ours, writers, commits, derived),
                "baseline": bare.by_hand(derived, writers, commits),
                "served": writing(served.commit, writers, commits, derived),
            }
            work = f"commit of {rows_text(derived)}, {writers} writer{'s' if writers > 1 else ''}"
            results.append(await result("rocksdb", work, workloads, rounds))
    results += await measure_reads(
        "rocksdb", engine, bare.read, rounds=rounds, alone=2_000, each=50
    )
    await engine.close()
    bare.close()
    return results
