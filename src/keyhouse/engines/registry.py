"""Engines by URL. An engine's driver is imported when its engine is opened, and not before."""

import os
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec.structs import replace

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError

__all__ = ["SCHEMES", "open_engine", "public_url"]


class _Server(Engine, Protocol):
    async def connect(self) -> None:
        """Reach the server, or say why that can't be."""
        ...


async def open_engine(url: str, *, clock: Clock | None = None, create: bool = True) -> Engine:
    """Open the engine that `url` names.

    `memory:` is in this process, and gone with it. `sqlite:folder/file.db` is a file, made when it is not there; as a URL,
    `sqlite:///folder/file.db` starts in the working directory and `sqlite:////folder/file.db` at the root. `rocksdb:folder`
    is a folder of one process at a time, made when it is not there, and spelled the same way. `nats://host:4222/?bucket=name`
    is a bucket of NATS JetStream, or with `prefix=text` one for each space; see `keyhouse.engines.jetstream.settings`.
    `postgresql://user:password@host/database` is tables in a database, made when they are not there. In the two SQL engines
    `?layout=NAME` says how tables are called: by a system's name as its document asks, by another with that name in front.
    `dynamodb://table?region=eu-west-1` is two tables of DynamoDB, made when they are not there; `endpoint=` says where it is
    if it is not AWS, and `layout=history` how items look; see `keyhouse.engines.dynamodb.settings`.
    With `create=False`, nothing is made that is not there: no file, folder, table or bucket; UsageError.

    A server is reached before this returns, and what keeps it from being used is said here; after that, it may come and go.
    """
    if not isinstance(url, str):
        raise UsageError(
            "An engine is opened by its URL, which is text such as sqlite:data.db.", given=url
        )
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise UsageError(
            "No engine has this scheme; a URL is such as sqlite:data.db.",
            url=public_url(url),
            known=sorted(SCHEMES),
        )
    return await _OPENERS[SCHEMES[scheme]](url, rest, clock or SystemClock(), create)


async def _open_memory(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    from keyhouse.engines.memory import MemoryEngine

    if rest.strip("/"):
        raise UsageError("The memory engine has no name: its URL is memory:", url=url)
    return MemoryEngine(clock=clock)


async def _open_sqlite(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    bare, layout = split_layout(url)
    path = sqlite_file(bare)
    _refuse_missing(path, create)
    try:
        from keyhouse.engines.sqlite import SqliteEngine
    except ModuleNotFoundError as error:
        raise ImportError("The SQLite engine needs apsw: pip install 'keyhouse[sqlite]'") from error
    return SqliteEngine.open(path, clock=clock, layout=layout, create=create)


async def _open_postgres(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    try:
        from keyhouse.engines.postgres import PostgresEngine
    except ModuleNotFoundError as error:
        raise ImportError(
            "The PostgreSQL engine needs asyncpg: pip install 'keyhouse[postgres]'"
        ) from error
    return await _reached(PostgresEngine.open(url, clock=clock, create=create))


async def _open_rocksdb(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    path = rest.removeprefix("///")
    if not path or path.startswith("//"):
        raise UsageError("A RocksDB URL names a folder: rocksdb:///folder", url=url)
    if "?" in path:
        raise UsageError("A RocksDB URL has no settings.", url=url)
    _refuse_missing(path, create)
    try:
        from keyhouse.engines.rocksdb import RocksdbEngine
    except ModuleNotFoundError as error:
        raise ImportError(
            "The RocksDB engine needs rocksdict: pip install 'keyhouse[rocksdb]'"
        ) from error
    return RocksdbEngine.open(path, clock=clock)


def _refuse_missing(path: str, create: bool) -> None:
    if not create and not os.path.exists(path):
        raise UsageError(
            "There is no such file; look at the URL, or store something there first.", file=path
        )


async def _open_jetstream(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    try:
        from keyhouse.engines.jetstream import JetstreamEngine
    except ModuleNotFoundError as error:
        raise ImportError(
            "The JetStream engine needs nats-py: pip install 'keyhouse[jetstream]'"
        ) from error
    return await _reached(JetstreamEngine.open(url, clock=clock, create=create))


async def _open_dynamodb(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    try:
        from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
    except ModuleNotFoundError as error:
        raise ImportError(
            "The DynamoDB engine needs aiobotocore: pip install 'keyhouse[dynamodb]'"
        ) from error
    settings = Settings.of(url)
    return await _reached(
        DynamoDBEngine(settings if create else replace(settings, create=False), clock=clock)
    )


async def _reached(engine: _Server) -> Engine:
    """The engine, when its server has answered."""
    try:
        await engine.connect()
    except BaseException:
        await engine.close()
        raise
    return engine


_OPENERS: Final[dict[str, Callable[[str, str, Clock, bool], Awaitable[Engine]]]] = {
    "dynamodb": _open_dynamodb,
    "jetstream": _open_jetstream,
    "memory": _open_memory,
    "postgres": _open_postgres,
    "rocksdb": _open_rocksdb,
    "sqlite": _open_sqlite,
}

SCHEMES: Final = {
    "dynamodb": "dynamodb",
    "memory": "memory",
    "nats": "jetstream",
    "postgres": "postgres",
    "postgresql": "postgres",
    "rocksdb": "rocksdb",
    "sqlite": "sqlite",
    "tls": "jetstream",
}
"""What a URL may begin with, and the engine that it means."""
