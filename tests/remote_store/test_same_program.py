"""One program on a Store, on a RemoteStore, and without an event loop: the results are equal."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from keyhouse import Clock, RemoteStore, Store, open_engine, sync
from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from tests.remote_store.support.program import BOX, COOKED, RECIPE, Recipe, Within, play
from tests.service.schema_service.support.served import Served
from tests.support.nats_servers import nats_server
from tests.support.threaded_service import SECRET

WATCHED = 3
"""Events that the program reads of its watch."""


async def awaited(store: Any) -> list[object]:
    """Return the transcript of the program on an asynchronous store."""
    transcript: list[object] = []
    program = play(transcript.append)
    result: object = None
    while True:
        try:
            call = program.send(result)
        except StopIteration:
            return transcript
        try:
            if isinstance(call, Within):
                async with store.transaction(batch_id=call.batch_id) as tx:
                    for each in call.calls:
                        await each(tx)
                continue
            started = call(store)
            if isinstance(started, AsyncGenerator):
                result = await _taken(started, endless=_is_watch(call))
            else:
                result = await started
        except KeyhouseError as error:
            result = error


async def _taken(items: AsyncGenerator[Any, None], *, endless: bool) -> list[Any]:
    taken: list[Any] = []
    async with aclosing(items), asyncio.timeout(30):
        async for item in items:
            taken.append(item)
            if endless and len(taken) == WATCHED:
                break
    return taken


def waited(store: Any) -> list[object]:
    """Return the transcript of the program on a synchronous store."""
    transcript: list[object] = []
    program = play(transcript.append)
    result: object = None
    watches = 0
    while True:
        try:
            call = program.send(result)
        except StopIteration:
            return transcript
        try:
            if isinstance(call, Within):
                with store.transaction(batch_id=call.batch_id) as tx:
                    for each in call.calls:
                        each(tx)
                continue
            result = call(store)
            if isinstance(result, Iterator):
                watches = WATCHED if _is_watch(call) else 1_000
                result = list(islice(result, watches))
        except KeyhouseError as error:
            result = error


def _is_watch(call: Any) -> bool:
    return "watch" in call.__code__.co_names


async def on_store() -> list[object]:
    async with open_engine("memory:") as engine:
        return await awaited(Store(BOX, engine, "ann"))


@pytest.fixture(scope="module")
def expected() -> list[object]:
    return asyncio.run(on_store())


async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
    return await open_engine("memory:", clock=clock)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(opened, tmp_path_factory.mktemp("box"), BOX) as running:
        yield running


def test_the_program_over_http(served: Served, expected: list[object]) -> None:
    async def main() -> list[object]:
        async with RemoteStore(BOX, served.url, served.token("http")) as store:
            return await awaited(store)

    assert asyncio.run(main()) == expected


def test_the_program_without_an_event_loop(tmp_path: Path, expected: list[object]) -> None:
    with sync.open_store(BOX, f"sqlite:{tmp_path}/box.db", "ann") as store:
        assert waited(store) == expected


def test_the_program_over_http_without_an_event_loop(
    served: Served, expected: list[object]
) -> None:
    with sync.RemoteStore(BOX, served.url, served.token("sync")) as store:
        assert waited(store) == expected


def test_transactions_over_http_lose_nothing(served: Served) -> None:
    async def main() -> None:
        async with RemoteStore(BOX, served.url, served.token("race")) as store:
            await store.put(RECIPE, Recipe(id="pie", title="Pie"))

            async def cook(tx: Any) -> int:
                recipe = await tx.get(RECIPE, id="pie")
                await tx.put(RECIPE, Recipe(id="pie", title="Pie", minutes=recipe.minutes + 1))
                await tx.add(COOKED, 1, id="pie")
                return int(recipe.minutes) + 1

            results = await asyncio.gather(*(store.transact(cook) for _ in range(16)))
            assert sorted(results) == list(range(1, 17))
            assert await store.get(COOKED, id="pie") == 16

    asyncio.run(main())


def test_the_program_over_nats(tmp_path: Path, expected: list[object]) -> None:
    async def main() -> list[object]:
        async with open_engine("memory:") as engine:
            context = ServiceContext(
                engine=engine,
                data=tmp_path,
                metrics=CollectorRegistry(),
                settings={"jwt_secret": SECRET, "rate_per_second": 1e6},
            )
            spec: Any = schema_service(BOX)(context)
            url = nats_server().url
            async with (
                connect(url) as serving,
                NatsListener(serving, spec.endpoints, name=spec.name, version="1.0.0"),
                RemoteStore(BOX, url, space="ann") as store,
            ):
                transcript = await awaited(store)

                async def cook(tx: Any) -> None:
                    recipe = await tx.get(RECIPE, id="pie")
                    await tx.put(RECIPE, Recipe(id="pie", title="Pie", minutes=recipe.minutes + 1))

                await store.put(RECIPE, Recipe(id="pie", title="Pie"))
                await asyncio.gather(*(store.transact(cook) for _ in range(8)))
                found = await store.get(RECIPE, id="pie")
                assert found is not None and found.minutes == 8
                return transcript

    assert asyncio.run(main()) == expected


def test_over_nats_a_space_is_named() -> None:
    with pytest.raises(UsageError, match="name the space"):
        RemoteStore(BOX, "nats://localhost:4222")
