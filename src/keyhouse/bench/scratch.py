"""A place to measure in, on the user's own engine, that is removed at the end and is never the user's own rows.

A file or folder gets another one beside it, on the same disk. PostgreSQL gets tables of their own, in the same database;
NATS a bucket of its own, or one for each space where the URL says so. DynamoDB gets spaces with a random name among the
others, which are emptied and forgotten: a table takes rights, time and money that a look should not ask for.
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
_EMPTIED_ROWS: Final = 1_000


class Scratch(msgspec.Struct, frozen=True):
    """`place` is the engine that is measured, `where` what is made on it, both for people. `is_alone`: the engine holds
    nothing else, and may be swept. `folder` is where further files may go; without one, no file is made."""

    url: str
    place: str
    where: str
    name: str
    is_alone: bool
    folder: Path | None = None
    is_shared: bool = False

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    @asynccontextmanager
    async def opened(self, clock: Clock | None = None) -> AsyncIterator[Engine]:
        """The engine. What was written in a shared one is deleted at the end, whatever happened."""
        engine = await open_engine(self.url, clock=clock, create=not self.is_shared)
        try:
            yield engine
        finally:
            if self.is_shared:
                for space in self.spaces:
                    await asyncio.shield(_emptied(engine, space))
            await engine.close()

    @property
    def space(self) -> str:
        return self.name

    @property
    def limit_space(self) -> str:
        return f"{self.name}-limit"

    @property
    def spaces(self) -> tuple[str, str]:
        return self.space, self.limit_space


@asynccontextmanager
async def scratch(url: str | None) -> AsyncIterator[Scratch]:
    """For the engine that the URL names; without one, for SQLite in a temporary file."""
    name = _NAME + secrets.token_hex(6)
    if url is None:
        with tempfile.TemporaryDirectory(prefix=_NAME) as folder:
            yield _file(f"sqlite:{folder}/ours.db", "SQLite", "a temporary file", name, folder)
        return
    front, _, query = url.partition("?")
    scheme, _, path = front.partition(":")
    kind = SCHEMES.get(scheme)
    if kind in ("sqlite", "rocksdb"):
        file = path.removeprefix("///")
        if not os.path.exists(file):
            raise UsageError(
                "There is no such file; look at the URL, or store something there first.", file=file
            )
        with tempfile.TemporaryDirectory(prefix=_NAME, dir=os.path.dirname(file) or ".") as folder:
            made = (
                f"{scheme}:{folder}/ours"
                + (".db" if kind == "sqlite" else "")
                + (f"?{query}" if query else "")
            )
            what = "a file" if kind == "sqlite" else "a folder"
            yield _file(made, public_url(url), f"{what} of its own beside it", name, folder)
    elif kind == "postgres":
        tables = name.replace("-", "_")
        settings = [each for each in query.split("&") if each and not each.startswith("layout=")]
        made = f"{front}?{'&'.join([*settings, f'layout={tables}'])}"
        try:
            yield Scratch(
                made, public_url(url), f"tables of its own, {tables}_…", name, is_alone=True
            )
        finally:
            await asyncio.shield(_dropped(made))
    elif kind == "jetstream":
        settings = [
            each
            for each in query.split("&")
            if each and not each.startswith(("bucket=", "prefix="))
        ]
        own = f"prefix={name}-" if "prefix=" in query else f"bucket={name}"
        made = f"{front}?{'&'.join([*settings, own])}"
        bench = Scratch(made, public_url(url), f"a bucket of its own, {name}…", name, is_alone=True)
        try:
            yield bench
        finally:
            await asyncio.shield(_removed(bench))
    elif kind == "memory":
        yield Scratch(url, "memory", "this process", name, is_alone=True)
    else:
        spaces = f"spaces of its own, {name}…"
        yield Scratch(url, public_url(url), spaces, name, is_alone=False, is_shared=True)


def _file(url: str, place: str, where: str, name: str, folder: str) -> Scratch:
    return Scratch(url, place, where, name, is_alone=True, folder=Path(folder))


async def _dropped(url: str) -> None:
    from keyhouse.engines.sql import migrate

    await asyncio.to_thread(migrate.downgrade, url)


async def _removed(bench: Scratch) -> None:
    from keyhouse.engines.jetstream.removal import remove_buckets

    await remove_buckets(bench.url, bench.spaces)


async def _emptied(engine: Engine, space: str) -> None:
    limit = min(_EMPTIED_ROWS, engine.capabilities.commit_rows_max)
    while keys := [
        row.key for row in (await engine.scan(space, Span(), limit=limit, keys_only=True)).rows
    ]:
        await engine.commit(space, Batch(deletes=tuple(keys)))
    if engine.capabilities.name == "dynamodb":
        from keyhouse.engines.dynamodb import DynamoDBEngine

        assert isinstance(engine, DynamoDBEngine)
        await engine.forget(space)
