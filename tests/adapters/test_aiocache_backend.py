"""The aiocache backend: the contract of the library's caches, decorators and locks."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiocache import cached
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
from aiocache.serializers import NullSerializer, PickleSerializer, StringSerializer

from keyhouse import ManualClock, Store, open_engine, open_store
from keyhouse.adapters.aiocache_backend import CACHES, VALUE, KeyhouseCache

Work = Callable[[KeyhouseCache], Awaitable[None]]
Run = Callable[[Work], None]


@pytest.fixture(params=["memory", "sqlite"])
def with_cache(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'cache.db'}"

    def run(work: Work) -> None:
        async def main() -> None:
            async with open_store(CACHES, url, "main") as store:
                await work(KeyhouseCache(store, timeout=60))

        asyncio.run(main())

    return run


def test_values_are_set_read_and_deleted(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        assert await cache.get("a") is None
        assert await cache.get("a", default=1) == 1
        assert await cache.set("a", {"n": [1, None]}) is True
        assert await cache.get("a") == {"n": [1, None]}
        assert await cache.exists("a") is True
        assert await cache.delete("a") == 1
        assert await cache.delete("a") == 0
        assert await cache.exists("a") is False

    with_cache(work)


def test_many_values_in_one_call(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        assert await cache.multi_set([("a", 1), ("b", [2])]) is True
        assert await cache.multi_get(["b", "x", "a"]) == [[2], None, 1]

    with_cache(work)


def test_add_rejects_a_key_that_exists(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        results = await asyncio.gather(
            *(cache.add("a", n) for n in range(20)), return_exceptions=True
        )
        assert results.count(True) == 1
        assert sum(isinstance(result, ValueError) for result in results) == 19

    with_cache(work)


def test_increments_are_exact_and_reject_other_values(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        await asyncio.gather(*(cache.increment("n") for _ in range(20)))
        assert await cache.increment("n", delta=-5) == 15
        await cache.set("text", "abc")
        with pytest.raises(TypeError):
            await cache.increment("text")

    with_cache(work)


@pytest.mark.parametrize("url", ["memory:", "sqlite:{folder}/cache.db"])
def test_values_expire_and_an_expiry_can_be_changed(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with open_engine(url.format(folder=tmp_path), clock=clock) as engine:
            cache = KeyhouseCache(Store(CACHES, engine, "main"), timeout=60)
            for key in ("short", "kept", "counted"):
                await cache.set(key, 1, ttl=0.1)
            assert await cache.expire("kept", 0) is True
            assert await cache.expire("absent", 5) is False
            assert await cache.increment("counted") == 2
            clock.advance(seconds=0.3)
            assert await cache.multi_get(["short", "kept", "counted"]) == [None, 1, None]

    asyncio.run(main())


def test_clearing_a_namespace_leaves_the_others(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        long = "k" * 5_000
        for namespace in ("one:", "two:"):
            for key in ("a", long):
                await cache.set(key, namespace, namespace=namespace)
        assert await cache.clear(namespace="one:") is True
        assert await cache.get("a", namespace="one:") is None
        assert await cache.get(long, namespace="one:") is None
        assert await cache.get(long, namespace="two:") == "two:"
        assert await cache.clear() is True
        assert await cache.get("a", namespace="two:") is None

    with_cache(work)


def test_serializers_of_text_and_bytes(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        for serializer, value in (
            (PickleSerializer(), {1, 2}),
            (StringSerializer(), "é"),
            (NullSerializer(), "text"),
        ):
            cache.serializer = serializer
            await cache.set("a", value)
            assert await cache.get("a") == value
        with pytest.raises(TypeError, match="use a serializer"):
            await cache.set("a", object())

    with_cache(work)


def test_locks_of_the_library(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        running = 0

        async def locked() -> None:
            nonlocal running
            async with RedLock(cache, "key", lease=0.05):
                running += 1

        await asyncio.gather(*(locked() for _ in range(3)))
        assert running == 3
        assert await cache.exists("key-lock") is False
        await cache.set("a", 1)
        async with OptimisticLock(cache, "a") as lock:
            assert await lock.cas(2) is True
            await cache.set("a", 5)
            with pytest.raises(OptimisticLockError):
                await lock.cas(3)
        assert await cache.get("a") == 5

    with_cache(work)


def test_the_decorator_caches(with_cache: Run) -> None:
    async def work(cache: KeyhouseCache) -> None:
        calls: list[Any] = []

        async def square(n: int) -> int:
            calls.append(n)
            return n * n

        decorated = cached(key="square")(square)
        decorated.cache = cache
        assert [await decorated(3), await decorated(3)] == [9, 9]
        assert await cache.raw("count", VALUE) <= 1
        assert len(calls) == 1

    with_cache(work)
