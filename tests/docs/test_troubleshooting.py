"""The messages of Python in the guide to troubleshooting are those that the mistakes make."""

import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import Record, Schema, Space, Store, open_engine, sync

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "troubleshooting.md"


class Clip(Struct, kw_only=True):
    id: str
    title: str = ""


CLIP = Record(Clip, "clip:{id}")
BOARD = Schema("clips", CLIP, space=Space("a channel"))
Mistake = Callable[[Any, Any], Awaitable[object]]


async def scan_without_await(store: Any, _: Any) -> object:
    return [entry for entry in store.scan(CLIP)]


async def scan_awaited(store: Any, _: Any) -> object:
    return await store.scan(CLIP)


async def scan_of_sync(_: Any, plain: Any) -> object:
    return [entry async for entry in plain.scan(CLIP)]


async def get_without_await(store: Any, _: Any) -> object:
    with closing(store.get(CLIP, id="a")) as reading:
        return reading.title


async def forgotten_await(store: Any, _: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.get(CLIP, id="a")
    raise Warning(str(caught[0].message))


async def absent(store: Any, _: Any) -> object:
    return (await store.get(CLIP, id="none")).title


async def await_of_sync(_: Any, plain: Any) -> object:
    return await plain.get(CLIP, id="none")


async def list_in_a_transaction(store: Any, _: Any) -> object:
    async with store.transaction() as tx:
        return [entry async for entry in tx.scan(CLIP)]


async def transaction_without_async(store: Any, _: Any) -> None:
    with store.transaction():
        pass


async def error_of_the_package(*_: Any) -> None:
    from keyhouse import UniqueError  # type: ignore[attr-defined]  # noqa: F401


MISTAKES: list[Mistake] = [
    scan_of_sync,
    scan_without_await,
    scan_awaited,
    list_in_a_transaction,
    transaction_without_async,
    get_without_await,
    forgotten_await,
    absent,
    await_of_sync,
    error_of_the_package,
]


async def message_of(mistake: Mistake) -> str:
    async with open_engine("memory:") as engine:
        plain = sync.open_store(BOARD, "memory:", "ann")
        with plain, pytest.raises(Exception) as raised:
            await mistake(Store(BOARD, engine, "ann"), plain)
    return str(raised.value)


def test_the_guide_lists_the_message_of_each_mistake_and_no_other() -> None:
    table = PAGE.read_text().partition("that Python reports itself")[2].partition("\n\n**")[0]
    listed = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    made = [asyncio.run(message_of(mistake)) for mistake in MISTAKES]
    for message in made:
        assert any(message.startswith(each) or each in message for each in listed), message
    for each in listed:
        assert any(each in message for message in made), each
