"""Helpers for rows in a private bucket, as seen by the engine and by other programs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats.js.errors
from nats.js.kv import KeyValue

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.jetstream import JetstreamEngine
from tests.support.nats_servers import SharedBucket, shared_bucket
from tests.support.polling import until

ALL = Span()


def run(
    folder: Path,
    scenario: Callable[[SharedBucket], Awaitable[None]],
    *,
    space: str | None = "s",
    clock: Clock | None = None,
    changes_kept: int = 100_000,
    more: str = "",
) -> None:
    async def main() -> None:
        async with shared_bucket(
            folder, space=space, clock=clock, changes_kept=changes_kept, more=more
        ) as there:
            await scenario(there)

    asyncio.run(main())


async def put(
    engine: JetstreamEngine, *keys: str, value: bytes = b"1", expires: int | None = None
) -> int:
    revision = await engine.commit("s", Batch(puts=tuple(Put(key, value, expires) for key in keys)))
    assert revision is not None
    return revision


async def value(engine: JetstreamEngine, key: str) -> bytes | None:
    (row,) = await engine.read("s", [key])
    return None if row is None else row.value


async def keys_of(kv: KeyValue) -> list[str]:
    """List keys with the driver; on a busy machine its first listing may be empty."""
    return sorted(await until(kv.keys, retry=nats.js.errors.NoKeysError))
