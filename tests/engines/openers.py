"""The engines that are tested, in one list: one that is added here is put to every test that is for all engines."""

from collections.abc import Callable
from pathlib import Path

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.limits import CHANGES_KEPT
from keyhouse.testing.conformance import Opener


def memory(folder: Path) -> Opener:
    async def open_memory(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return MemoryEngine(clock, changes_kept=changes_kept)

    return open_memory


def sqlite(folder: Path) -> Opener:
    async def open_sqlite(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return SqliteEngine.open(folder / "rows.db", clock=clock, changes_kept=changes_kept)

    return open_sqlite


def rocksdb(folder: Path) -> Opener:
    async def open_rocksdb(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return RocksdbEngine.open(folder / "rows", clock=clock, changes_kept=changes_kept)

    return open_rocksdb


OPENERS: dict[str, Callable[[Path], Opener]] = {"memory": memory, "sqlite": sqlite, "rocksdb": rocksdb}
