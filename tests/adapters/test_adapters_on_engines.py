"""Every adapter on every engine, with names that are hard to store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from keyhouse import Store, SystemClock
from keyhouse.adapters.aiocache_backend import CACHES, KeyhouseCache
from keyhouse.adapters.langgraph_checkpoints import CHECKPOINTS, KeyhouseSaver
from keyhouse.adapters.py_key_value import KEY_VALUES, KeyhouseStore
from keyhouse.adapters.starlette_sessions import SESSIONS, KeyhouseSessionStore
from keyhouse.engine import Engine
from tests.support.engine_openers import OPENERS

NAMES = ["a", "a:b%c", "ключ *.>", "🔑" * 100, "x" * 5_000, "~0", "a\0b", " ", "/..", "\n"]


async def key_values(engine: Engine) -> None:
    kv = KeyhouseStore(Store(KEY_VALUES, engine, "kv"))
    for name in NAMES:
        await kv.put_many(NAMES, [{"of": name + key} for key in NAMES], collection=name, ttl=100)
    for name in NAMES:
        expected = [{"of": name + key} for key in NAMES]
        assert await kv.get_many(NAMES, collection=name) == expected
        assert sorted(await kv.keys(name)) == sorted(NAMES)
    assert sorted(await kv.collections()) == sorted(NAMES)
    assert await kv.delete_many(NAMES, collection=NAMES[0]) == len(NAMES)
    assert await kv.destroy() and await kv.collections() == []


async def cache(engine: Engine) -> None:
    cache = KeyhouseCache(Store(CACHES, engine, "cache"), timeout=60)
    await cache.multi_set([(name, [name]) for name in NAMES], ttl=100)
    assert await cache.multi_get(NAMES) == [[name] for name in NAMES]
    assert [await cache.increment("n") for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ValueError):
        await cache.add("n", 1)
    assert await cache.clear() and not await cache.exists("n")


async def sessions(engine: Engine) -> None:
    sessions = KeyhouseSessionStore(Store(SESSIONS, engine, "sessions"))
    for name in NAMES:
        await sessions.write(name, name.encode(), 60, 60)
    assert [await sessions.read(name, 60) for name in NAMES] == [name.encode() for name in NAMES]


async def checkpoints(engine: Engine) -> None:
    @checkpointer_test(name="keyhouse")  # type: ignore[untyped-decorator]
    async def saver() -> AsyncIterator[KeyhouseSaver]:
        yield KeyhouseSaver(Store(CHECKPOINTS, engine, "threads"))

    report = await validate(saver, capabilities={"put", "put_writes", "delete_thread"})
    assert [each for result in report.results.values() for each in result.failures] == []


@pytest.mark.long
@pytest.mark.parametrize("engine_name", list(OPENERS))
def test_the_adapters_work_on_every_engine(engine_name: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = await OPENERS[engine_name](tmp_path)(SystemClock())
        for scenario in (key_values, cache, sessions, checkpoints):
            await scenario(engine)
        await engine.close()

    asyncio.run(main())
