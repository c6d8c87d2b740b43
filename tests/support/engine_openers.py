"""Opens each engine for tests. An engine added here runs in every test for all engines."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import asyncpg

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.limits import CHANGES_KEPT
from keyhouse.testing.conformance import Opener
from keyhouse.testing.servers.postgres import postgres_server
from tests.support.dynamodb_tables import settings as dynamodb_settings
from tests.support.failure_report import LOGS
from tests.support.nats_servers import name_of, nats_server


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


def jetstream(folder: Path) -> Opener:
    """One bucket for all spaces, named after the folder, on the process's shared server."""

    async def open_jetstream(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        url = f"{nats_server().url}/?bucket={name_of(folder)}&sync=always"
        return JetstreamEngine.open(url, clock=clock, changes_kept=changes_kept)

    return open_jetstream


def jetstream_buckets(folder: Path) -> Opener:
    """One bucket per space."""

    async def open_jetstream(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        url = f"{nats_server().url}/?prefix={name_of(folder)}-&sync=always"
        return JetstreamEngine.open(url, clock=clock, changes_kept=changes_kept)

    return open_jetstream


async def postgres_schema() -> str:
    """Create an empty schema on the process's shared server and return its URL."""
    server, schema = postgres_server(), f"t{secrets.token_hex(8)}"
    LOGS.add(server.folder / "log")
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.close()
    return f"{server.url}&search_path={schema}"


def postgres(folder: Path) -> Opener:
    urls: list[str] = []

    async def open_postgres(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        if not urls:
            urls.append(await postgres_schema())
        return PostgresEngine.open(urls[0], clock=clock, changes_kept=changes_kept)

    return open_postgres


def dynamodb(folder: Path) -> Opener:
    where = dynamodb_settings()

    async def open_dynamodb(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return await DynamoDBEngine.open(where, clock=clock, changes_kept=changes_kept)

    return open_dynamodb


ALL: dict[str, Callable[[Path], Opener]] = {
    "memory": memory,
    "sqlite": sqlite,
    "rocksdb": rocksdb,
    "jetstream": jetstream,
    "jetstream-buckets": jetstream_buckets,
    "postgres": postgres,
    "dynamodb": dynamodb,
}


def chosen(names: str) -> dict[str, Callable[[Path], Opener]]:
    """Return the selected engines: `make test ENGINES=sqlite,postgres`. CI tests all. An unknown
    name raises KeyError."""
    return {name: ALL[name] for name in names.split(",")} if names else ALL


NARROWED = os.environ.get("TEST_ENGINES", "").removeprefix("all")
OPENERS = chosen(NARROWED)
