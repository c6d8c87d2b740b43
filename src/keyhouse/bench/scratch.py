"""A scratch area on the user's engine: separate from the user's rows, and removed at the end.

A file or folder gets another one next to it, on the same disk. PostgreSQL gets separate tables in
the same database; NATS a separate bucket, or one per space where the URL has a prefix. DynamoDB
gets spaces with a random name in the user's tables, emptied at the end: a new table needs rights,
time and money that a benchmark should not require.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Engine, Span
from keyhouse.engines.registry import SCHEMES, open_engine, public_url
from keyhouse.errors import UsageError

_NAME: Final = "keyhouse-bench-"
_DELETED_PER_COMMIT: Final = 1_000


class Scratch(msgspec.Struct, frozen=True):
    """`engine_url` is the measured engine and `location` the area made on it, both for people.

    `is_exclusive`: the engine at `url` holds nothing else, so it may be swept. `is_shared`: the
    area is two spaces among the user's. `folder` is where more files may go, None: nowhere.
    """

    url: str
    engine_url: str
    location: str
    name: str
    is_exclusive: bool
    folder: Path | None = None
    is_shared: bool = False

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    @asynccontextmanager
    async def open(self, clock: Clock | None = None) -> AsyncIterator[Engine]:
        """Open the engine; on exit, rows written to a shared one are deleted."""
        engine = await open_engine(self.url, clock=clock, create=not self.is_shared)
        try:
            yield engine
        finally:
            if self.is_shared:
                for space in self.spaces:
                    await asyncio.shield(_delete_space(engine, space))
            await engine.close()

    @property
    def space(self) -> str:
        return self.name

    @property
    def baseline_space(self) -> str:
        return f"{self.name}-baseline"

    @property
    def spaces(self) -> tuple[str, str]:
        return self.space, self.baseline_space


@asynccontextmanager
async def open_scratch(url: str | None) -> AsyncIterator[Scratch]:
    """Make a scratch area on the engine of this URL; None: SQLite in a temporary file."""
    name = _NAME + secrets.token_hex(6)
    if url is None:
        with tempfile.TemporaryDirectory(prefix=_NAME) as folder:
            yield _in_folder(f"sqlite:{folder}/ours.db", "SQLite", "a temporary file", name, folder)
        return
    front, _, query = url.partition("?")
    scheme, _, path = front.partition(":")
    kind = SCHEMES.get(scheme)
    settings = [each for each in query.split("&") if each]
    if kind in ("sqlite", "rocksdb"):
        file = path.removeprefix("///")
        if not os.path.exists(file):
            raise UsageError("File not found. Check the URL, or create the store.", file=file)
        with tempfile.TemporaryDirectory(prefix=_NAME, dir=os.path.dirname(file) or ".") as folder:
            extension = ".db" if kind == "sqlite" else ""
            made = f"{scheme}:{folder}/ours{extension}" + (f"?{query}" if query else "")
            what = "a file" if kind == "sqlite" else "a folder"
            yield _in_folder(made, public_url(url), f"{what} next to it", name, folder)
    elif kind == "postgres":
        tables = name.replace("-", "_")
        settings = [each for each in settings if not each.startswith("layout=")]
        made = f"{front}?{'&'.join([*settings, f'layout={tables}'])}"
        location = f"separate tables, {tables}_…"
        try:
            yield Scratch(made, public_url(url), location, name, is_exclusive=True)
        finally:
            await asyncio.shield(_drop_tables(made))
    elif kind == "jetstream":
        settings = [each for each in settings if not each.startswith(("bucket=", "prefix="))]
        bucket = f"prefix={name}-" if "prefix=" in query else f"bucket={name}"
        made = f"{front}?{'&'.join([*settings, bucket])}"
        location = f"a separate bucket, {name}…"
        scratch = Scratch(made, public_url(url), location, name, is_exclusive=True)
        try:
            yield scratch
        finally:
            await asyncio.shield(_remove_buckets(scratch))
    elif kind == "memory":
        yield Scratch(url, "memory", "this process", name, is_exclusive=True)
    else:
        location = f"separate spaces, {name}…"
        yield Scratch(url, public_url(url), location, name, is_exclusive=False, is_shared=True)


def _in_folder(url: str, engine_url: str, location: str, name: str, folder: str) -> Scratch:
    return Scratch(url, engine_url, location, name, is_exclusive=True, folder=Path(folder))


async def _drop_tables(url: str) -> None:
    from keyhouse.engines.sql import migrate

    await asyncio.to_thread(migrate.downgrade, url)


async def _remove_buckets(scratch: Scratch) -> None:
    from keyhouse.engines.jetstream.bucket import delete_buckets

    await delete_buckets(scratch.url, scratch.spaces)


async def _delete_space(engine: Engine, space: str) -> None:
    limit = min(_DELETED_PER_COMMIT, engine.capabilities.commit_rows_max)
    while keys := [
        row.key for row in (await engine.scan(space, Span(), limit=limit, keys_only=True)).rows
    ]:
        await engine.commit(space, Batch(deletes=tuple(keys)))
    if engine.capabilities.name == "dynamodb":
        from keyhouse.engines.dynamodb import DynamoDBEngine

        assert isinstance(engine, DynamoDBEngine)
        await engine.forget(space)
