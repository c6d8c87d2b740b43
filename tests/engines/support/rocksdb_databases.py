"""Opens RocksDB folders for tests, through the engine and as another program would."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from keyhouse.engine import Batch, Put
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb.encoding import FAMILIES


@asynccontextmanager
async def opened(path: Path, **settings: Any) -> AsyncIterator[RocksdbEngine]:
    engine = RocksdbEngine.open(path, **settings)
    try:
        yield engine
    finally:
        await engine.close()


async def put(
    engine: RocksdbEngine,
    *keys: str,
    value: bytes = b"1",
    expires: int | None = None,
    space: str = "s",
) -> int | None:
    return await engine.commit(space, Batch(puts=tuple(Put(key, value, expires) for key in keys)))


def make(path: Path, **values: bytes) -> None:
    async def write() -> None:
        async with opened(path) as engine:
            for key, value in values.items():
                await put(engine, key, value=value)

    asyncio.run(write())


@contextmanager
def families(path: Path) -> Iterator[dict[str, Rdict]]:
    """Open the database as another program would."""
    others = {name: Options(raw_mode=True) for name in FAMILIES if name != "default"}
    database = Rdict(str(path), Options(raw_mode=True), others)
    found = {name: database.get_column_family(name) for name in FAMILIES}
    try:
        yield found
    finally:
        for family in (*found.values(), database):
            family.close()


def contents(path: Path, family: str) -> dict[bytes, bytes]:
    with families(path) as found:
        return {key: value for key, value in found[family].items()}  # type: ignore[misc]  # raw: bytes


def running_with(path: Path) -> str:
    """Return the settings that RocksDB reports."""
    (newest, *_) = sorted(path.glob("OPTIONS-*"), reverse=True)
    return newest.read_text()
