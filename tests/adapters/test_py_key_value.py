"""The py-key-value store: the contract that the library documents for every store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from key_value.aio.errors import InvalidTTLError, SerializationError
from key_value.aio.protocols.key_value import (
    AsyncDestroyCollectionProtocol,
    AsyncDestroyStoreProtocol,
    AsyncEnumerateCollectionsProtocol,
    AsyncEnumerateKeysProtocol,
    AsyncKeyValueProtocol,
)

from keyhouse import open_store
from keyhouse.adapters.py_key_value import KEY_VALUES, KeyhouseStore
from tests.support.polling import until

Work = Callable[[KeyhouseStore], Awaitable[None]]
Run = Callable[[Work], None]


@pytest.fixture(params=["memory", "sqlite"])
def with_store(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'cache.db'}"

    def run(work: Work) -> None:
        async def main() -> None:
            async with open_store(KEY_VALUES, url, "main") as store:
                await work(KeyhouseStore(store))

        asyncio.run(main())

    return run


NAMES = [
    "a",
    "",
    "a:b%c",
    "ключ",
    "🔑" * 100,
    "x" * 5_000,
    "~" + "0" * 64,
    "a\0b",
    " ",
    "/..",
    "\n",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:8]))
def test_any_text_is_a_key_and_a_collection(with_store: Run, name: str) -> None:
    async def work(kv: KeyhouseStore) -> None:
        await kv.put(name, {"of": "key"}, collection="c")
        await kv.put("k", {"of": "collection"}, collection=name or "default_collection")
        assert await kv.get(name, collection="c") == {"of": "key"}
        assert await kv.get("k", collection=name or None) == {"of": "collection"}
        assert await kv.keys("c") == [name]
        assert await kv.delete(name, collection="c") is True
        assert await kv.delete(name, collection="c") is False
        assert await kv.get(name, collection="c") is None

    with_store(work)


VALUES: list[dict[str, Any]] = [
    {},
    {"text": "é🔑", "int": -1, "float": 0.5, "true": True, "none": None},
    {"nested": {"list": [1, [2, {"a": "b"}]], "empty": {}}},
    {"long": "x" * 100_000},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(len(value)))
def test_a_value_returns_as_it_was_put(with_store: Run, value: dict[str, Any]) -> None:
    async def work(kv: KeyhouseStore) -> None:
        await kv.put("a", value)
        assert await kv.get("a") == value
        assert await kv.ttl("a") == (value, None)

    with_store(work)


def test_it_has_the_protocols_of_the_library(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        assert isinstance(kv, AsyncKeyValueProtocol)
        assert isinstance(kv, AsyncEnumerateKeysProtocol)
        assert isinstance(kv, AsyncEnumerateCollectionsProtocol)
        assert isinstance(kv, AsyncDestroyCollectionProtocol)
        assert isinstance(kv, AsyncDestroyStoreProtocol)

    with_store(work)


def test_absent_keys_are_none_and_not_deleted(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        assert await kv.get("a") is None
        assert await kv.ttl("a") == (None, None)
        assert await kv.get_many(["a", "b"]) == [None, None]
        assert await kv.ttl_many(["a"]) == [(None, None)]
        assert await kv.delete("a") is False
        assert await kv.delete_many(["a", "b"]) == 0

    with_store(work)


def test_many_keys_in_one_call(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        await kv.put_many(["a", "b", "c"], [{"n": 1}, {"n": 2}, {"n": 3}], ttl=100)
        assert await kv.get_many(["c", "x", "a", "a"]) == [{"n": 3}, None, {"n": 1}, {"n": 1}]
        [(value, seconds)] = await kv.ttl_many(["b"])
        assert value == {"n": 2} and seconds is not None and 90 < seconds <= 100
        assert await kv.delete_many(["a", "b", "x"]) == 2
        assert await kv.keys() == ["c"]

    with_store(work)


def test_put_many_writes_all_or_nothing(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        with pytest.raises(SerializationError):
            await kv.put_many(["a", "b"], [{"n": 1}, {"n": object()}])
        assert await kv.keys() == []

    with_store(work)


def test_a_value_expires(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        await kv.put("short", {"n": 1}, ttl=0.05)
        await kv.put("long", {"n": 1}, ttl=100)
        await kv.put("renewed", {"n": 1}, ttl=0.05)
        await kv.put("renewed", {"n": 2})

        async def is_expired() -> bool:
            return await kv.get("short") is None

        await until(is_expired)
        assert await kv.get_many(["short", "long", "renewed"]) == [None, {"n": 1}, {"n": 2}]
        assert sorted(await kv.keys()) == ["long", "renewed"]
        assert await kv.delete("short") is False

    with_store(work)


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_ttl_that_is_not_positive_is_rejected(with_store: Run, ttl: int) -> None:
    async def work(kv: KeyhouseStore) -> None:
        with pytest.raises(InvalidTTLError):
            await kv.put("a", {"n": 1}, ttl=ttl)
        assert await kv.get("a") is None

    with_store(work)


def test_a_value_that_is_not_json_is_rejected(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        with pytest.raises(SerializationError):
            await kv.put("a", {"n": object()})
        assert await kv.get("a") is None

    with_store(work)


def test_collections_are_separate_listed_and_destroyed(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        for collection in ("one", "two"):
            for key in ("a", "b"):
                await kv.put(key, {"in": collection}, collection=collection)
        assert await kv.collections() == ["one", "two"]
        assert await kv.collections(limit=1) == ["one"]
        assert await kv.keys("one", limit=1) == ["a"]
        assert await kv.destroy_collection("one") is True
        assert await kv.destroy_collection("one") is False
        assert await kv.get("a", collection="one") is None
        assert await kv.get("a", collection="two") == {"in": "two"}
        await kv.put("a", {"in": "again"}, collection="one")
        assert await kv.collections() == ["one", "two"]
        assert await kv.destroy() is True
        assert await kv.collections() == []
        assert await kv.get("a", collection="two") is None

    with_store(work)


def test_concurrent_puts_of_one_key_leave_one_of_the_values(with_store: Run) -> None:
    async def work(kv: KeyhouseStore) -> None:
        await asyncio.gather(*(kv.put("a", {"n": n}) for n in range(50)))
        found = await kv.get("a")
        assert found is not None and found["n"] in range(50)

    with_store(work)
