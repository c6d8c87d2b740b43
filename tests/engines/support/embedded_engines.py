"""The embedded engines, SQLite and RocksDB.

They share `engines/thread_commit_queue.py` and `engines/watcher.py`, which are tested on both.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, ParamSpec

import apsw
import pytest
from rocksdict import WriteBatch

from keyhouse.engine import Batch, Change, Put, Span
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb import feed as rocksdb_feed
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.engines.sqlite import feed as sqlite_feed
from keyhouse.testing.conformance.harness import leave, step
from tests.support.engine_openers import OPENERS

Embedded = SqliteEngine | RocksdbEngine
Arguments = ParamSpec("Arguments")


class Kind(NamedTuple):
    name: str
    opener: Callable[..., Embedded]
    file: str
    feed: ModuleType

    @property
    def thread(self) -> str:
        """Return the name of the thread that waits for the disk."""
        return f"keyhouse-{self.name}_0"

    def open(self, folder: Path, **options: Any) -> Embedded:
        return self.opener(folder / self.file, **options)

    @asynccontextmanager
    async def opened(self, folder: Path, **options: Any) -> AsyncIterator[Embedded]:
        engine = self.open(folder, **options)
        try:
            yield engine
        finally:
            await engine.close()


KINDS = [
    kind
    for kind in (
        Kind("sqlite", SqliteEngine.open, "rows.db", sqlite_feed),
        Kind("rocksdb", RocksdbEngine.open, "rows", rocksdb_feed),
    )
    if kind.name in OPENERS
]

both = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def awaited(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    @wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Witness:
    """Records the thread of each write and each sync of an open engine. A sync waits while
    `may_sync` is not set."""

    def __init__(self, engine: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[str] = []
        self.syncs: list[str] = []
        self.may_sync = threading.Event()
        self.may_sync.set()
        if isinstance(engine, SqliteEngine):
            engine.writer.connection.exec_trace = self._see_statement
        else:
            self._see_calls(monkeypatch)

    @property
    def turns(self) -> list[str]:
        """Return the threads of the writes, without repetitions."""
        return [thread for thread, _ in groupby(self.writes)]

    def _see_statement(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        seen = {"INSERT": self.writes, "COMMIT": self.syncs}.get(sql.partition(" ")[0])
        if seen is not None:
            seen.append(threading.current_thread().name)
        if seen is self.syncs:
            self.may_sync.wait()
        return True

    def _see_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write, sync = Database.write, Database.sync

        def seen_write(database: Database, batch: WriteBatch) -> None:
            self.writes.append(threading.current_thread().name)
            write(database, batch)

        def seen_sync(database: Database) -> None:
            self.syncs.append(threading.current_thread().name)
            self.may_sync.wait()
            sync(database)

        monkeypatch.setattr(Database, "write", seen_write)
        monkeypatch.setattr(Database, "sync", seen_sync)


def one(number: int, value: bytes = b"1") -> Batch:
    return Batch(puts=(Put(f"k{number:04d}", value),))


async def put(engine: Embedded, key: str, value: bytes = b"1", space: str = "s") -> int | None:
    return await engine.commit(space, Batch(puts=(Put(key, value),)))


async def count(engine: Embedded) -> int:
    return len((await engine.scan("s", Span(), limit=10_000, keys_only=True)).rows)


async def taken(engine: Embedded, *, since: int, last: str) -> list[Change]:
    watch = engine.watch("s", Span(), since=since)
    changes = [await step(watch)]
    while changes[-1].key != last:
        changes.append(await step(watch))
    await leave(watch)
    return changes


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user without root's permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)
