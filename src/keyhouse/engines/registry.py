"""Opens engines by URL. A driver is imported only when its engine is opened."""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, runtime_checkable

from msgspec.structs import replace

from keyhouse.advice.install import install_line
from keyhouse.advice.nearest import nearest
from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.opening import Opening
from keyhouse.engines.retention import Kept, split_changes_kept
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError

__all__ = ["SCHEMES", "LoadingEngine", "ServerEngine", "open_engine", "public_url"]


@runtime_checkable
class ServerEngine(Engine, Protocol):
    """An engine on a server."""

    async def connect(self) -> None:
        """Connect to the server, or raise; also raises if it has no connection for reads or for
        writes."""
        ...


@runtime_checkable
class LoadingEngine(Engine, Protocol):
    """An engine that reads its rows into memory before it serves the first call."""

    def loaded(self) -> tuple[int, int]:
        """Return how much is loaded, of how much."""
        ...


def open_engine(url: str, *, clock: Clock | None = None, create: bool = True) -> Opening[Engine]:
    """Open the engine that `url` names: `await` it, or use it with `async with`, which closes it.

    - `memory:` lives in this process.
    - `sqlite:folder/file.db` is a file; `sqlite:///folder/file.db` is relative to the working
      directory, `sqlite:////folder/file.db` is absolute.
    - `rocksdb:folder` is a folder for one process at a time, with the same spellings.
    - `postgresql://user:password@host/database` is a set of tables.
    - `nats://host:4222/?bucket=name` is a bucket of NATS JetStream, or with `prefix=text` one per
      space; see `keyhouse.engines.jetstream.settings`.
    - `dynamodb://table?region=eu-west-1` is two DynamoDB tables; `endpoint=` is the address of a
      service other than AWS; see `keyhouse.engines.dynamodb.settings`.

    `?layout=NAME` (SQL, DynamoDB) selects a system's layout; any other name becomes a prefix of the
    SQL tables. Missing files, folders, tables and buckets are created; with `create=False` they
    raise UsageError.

    `changes_kept=NUMBER` and `changes_seconds=NUMBER` (every engine) set how many changes the log
    keeps for watches, and of how much time; see `keyhouse.engines.retention`.

    A server is contacted before this returns, and errors are raised here; afterwards the engine
    reconnects by itself.
    """
    return Opening(_open(url, clock, create))


async def _open(url: str, clock: Clock | None, create: bool) -> Engine:
    if not isinstance(url, str):
        raise UsageError("An engine URL must be text, such as sqlite:data.db.", given=url)
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise UsageError(
            "Unknown scheme in the engine URL; write one such as sqlite:data.db.",
            url=public_url(url),
            **(nearest(scheme, sorted(SCHEMES)) if colon else {"known": sorted(SCHEMES)}),
        )
    bare, kept = split_changes_kept(url)
    rest = bare.partition(":")[2]
    return await _OPENERS[SCHEMES[scheme]](bare, rest, clock or SystemClock(), kept, create)


@contextmanager
def _driver(engine: str, library: str, extra: str) -> Iterator[None]:
    """Import an engine; if its driver is missing, raise an ImportError that tells the command."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"The {engine} engine needs {library}: {install_line(extra)}") from error


async def _open_memory(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    from keyhouse.engines.memory import MemoryEngine

    if rest.strip("/"):
        raise UsageError("The memory engine has no name; write memory:", url=url)
    return MemoryEngine(clock=clock, changes_kept=kept)


async def _open_sqlite(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    bare, layout = split_layout(url)
    path = sqlite_file(bare)
    _require_existing(path, create)
    with _driver("SQLite", "apsw", "sqlite"):
        from keyhouse.engines.sqlite import SqliteEngine
    return SqliteEngine.open(path, clock=clock, changes_kept=kept, layout=layout, create=create)


async def _open_postgres(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    with _driver("PostgreSQL", "asyncpg", "postgres"):
        from keyhouse.engines.postgres import PostgresEngine
    return await _connected(PostgresEngine.open(url, clock=clock, changes_kept=kept, create=create))


async def _open_rocksdb(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    path = rest.removeprefix("///")
    if not path or path.startswith("//"):
        raise UsageError("Invalid RocksDB URL; write rocksdb:///folder", url=url)
    if "?" in path:
        raise UsageError(
            "Unknown setting in the RocksDB URL; it has only changes_kept= and changes_seconds=.",
            url=url,
        )
    _require_existing(path, create)
    with _driver("RocksDB", "rocksdict", "rocksdb"):
        from keyhouse.engines.rocksdb import RocksdbEngine
    return RocksdbEngine.open(path, clock=clock, changes_kept=kept)


def _require_existing(path: str, create: bool) -> None:
    if not create and not os.path.exists(path):
        raise UsageError(
            "The file does not exist; check the URL, or store something there first.", file=path
        )


async def _open_jetstream(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    with _driver("JetStream", "nats-py", "jetstream"):
        from keyhouse.engines.jetstream import JetstreamEngine
    return await _connected(
        JetstreamEngine.open(url, clock=clock, changes_kept=kept, create=create)
    )


async def _open_dynamodb(url: str, rest: str, clock: Clock, kept: Kept, create: bool) -> Engine:
    with _driver("DynamoDB", "aiobotocore", "dynamodb"):
        from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
    settings = Settings.of(url)
    return await _connected(
        DynamoDBEngine(
            settings if create else replace(settings, create=False), clock=clock, changes_kept=kept
        )
    )


async def _connected(engine: ServerEngine) -> Engine:
    """Connect the engine, or close it and raise."""
    try:
        await engine.connect()
    except BaseException:
        await engine.close()
        raise
    return engine


_OPENERS: Final[dict[str, Callable[[str, str, Clock, Kept, bool], Awaitable[Engine]]]] = {
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
"""URL schemes and their engines."""
