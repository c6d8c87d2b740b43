"""Changes of records that the service does not decode, in the watch of a remote store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from keyhouse import RemoteStore, Store, UnreadableRow
from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import UnreadableError
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.service.schema_service.remote import SchemaRemotes
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from tests.remote_store.support.shows import (
    GUIDE,
    OF_ANOTHER_TYPE,
    OLD,
    OLD_GUIDE,
    SHOW,
    OldShow,
    fill,
)
from tests.service.schema_service.support.events import watching
from tests.service.schema_service.support.served import ENGINES, Served, start_server
from tests.support.engine_openers import ALL
from tests.support.nats_servers import nats_server
from tests.support.polling import until
from tests.support.threaded_service import SECRET

WriteOld = Callable[[str], Awaitable[object]]


async def write_old(engine: Engine, id: str) -> None:
    """Write a show of the old version."""
    await Store(OLD_GUIDE, engine, "ann").put(OLD, OldShow(id=id, title=id.title(), genre="wild"))


async def story(store: Any, write_old: WriteOld) -> list[object]:
    """Return what a watch tells of records that do not decode, stored and new."""
    noted: list[object] = []
    met: list[UnreadableRow] = []
    async with aclosing(store.watch(SHOW, since=0, unreadable=met.append)) as events:
        first = await anext(events)
        noted += [first.key, [(each.row.key, type(each.error)) for each in met]]
        noted += [met[0].error.fields["record"], met[0].error.sentence]
        assert [each.error.fields["revision"] for each in met] == [
            each.row.revision for each in met
        ]
        last = met[-1].row.revision
        assert met[0].row.revision < last < first.revision
    for since, key in ((0, "show:dark"), (met[0].row.revision, "show:lost")):
        async with aclosing(store.watch(SHOW, since=since)) as events:
            with pytest.raises(UnreadableError) as caught:
                await anext(events)
        noted += [caught.value.fields["key"] == key, caught.value.sentence]
    async with aclosing(store.watch(SHOW, since=last)) as events:
        noted.append((await anext(events)).key)  # a watch since the error's revision resumes
    named = store.watch(SHOW, since=0, prefix="l", unreadable=met.append)
    met.clear()
    async with aclosing(named) as events:
        waiting = asyncio.ensure_future(anext(events))
        await until(lambda: met)
        noted.append([each.row.key for each in met])
        await write_old("lynx")
        await until(lambda: len(met) >= 2)
        noted.append(met[-1].row.key)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return noted


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Engine]:
    folder.mkdir()
    engine = await ALL[kind](folder)(ManualClock())
    try:
        await fill(engine, "ann")
        yield engine
    finally:
        await engine.close()


async def on_store(kind: str, folder: Path) -> list[object]:
    async with opened(kind, folder) as engine:
        return await story(Store(GUIDE, engine, "ann"), partial(write_old, engine))


async def over_nats(kind: str, folder: Path) -> list[object]:
    url = nats_server().url
    async with opened(kind, folder) as engine:
        context = ServiceContext(
            engine=engine,
            data=folder,
            metrics=CollectorRegistry(),
            settings={"jwt_secret": SECRET, "rate_per_second": 1e6},
        )
        spec: Any = schema_service(GUIDE)(context)
        async with (
            connect(url) as serving,
            NatsListener(serving, spec.endpoints, name=spec.name, version="1.0.0"),
            RemoteStore(GUIDE, url, space="ann") as store,
        ):
            return await story(store, partial(write_old, engine))


async def over_http(served: Served) -> list[object]:
    def write(id: str) -> Awaitable[object]:
        return asyncio.to_thread(served.on_engine, lambda engine: write_old(engine, id))

    async with RemoteStore(GUIDE, served.url, served.token()) as store:
        return await story(store, write)


@contextmanager
def filled(kind: str, folder: Path) -> Iterator[Served]:
    folder.mkdir()
    with Served(ALL[kind](folder), folder, GUIDE) as served:
        served.on_engine(lambda engine: fill(engine, "ann"))
        yield served


@pytest.mark.parametrize("kind", ENGINES)
def test_a_watch_tells_of_unreadable_records_as_that_of_a_store_does(
    kind: str, tmp_path: Path
) -> None:
    """The service logged them, and sent nothing to its watchers."""
    start_server(kind)
    expected = asyncio.run(asyncio.wait_for(on_store(kind, tmp_path / "store"), 60))
    assert expected[0] == "show:heat"
    assert expected[1] == [("show:dark", UnreadableError), ("show:lost", UnreadableError)]
    assert asyncio.run(asyncio.wait_for(over_nats(kind, tmp_path / "nats"), 60)) == expected
    with filled(kind, tmp_path / "http") as served:
        assert asyncio.run(asyncio.wait_for(over_http(served), 60)) == expected


def test_the_event_of_an_unreadable_record_names_its_key(tmp_path: Path) -> None:
    with filled("sqlite", tmp_path / "tv") as served, served.client() as http:
        with watching(http, "record=show&since=0") as events:
            dark, _, heat = islice(events, 3)
        assert (dark.name, heat.name) == ("unreadable", "put")
        assert dark.data == {
            "key": "show:dark",
            "revision": int(dark.id or 0),
            "type": "urn:keyhouse:error:unreadable",
            "detail": OF_ANOTHER_TYPE,
        }
        with watching(http, "record=show", last=dark.data["revision"]) as events:
            assert next(events).data["key"] == "show:lost", "it is resumed after it"


def test_the_watch_of_the_data_commands_shows_unreadable_rows(tmp_path: Path) -> None:
    async def main(served: Served) -> list[tuple[str, bool]]:
        remote = await SchemaRemotes(GUIDE).connect(served.url, "ann", served.token())
        async with aclosing(remote.watch("", 0, lambda revision: None)) as rows:
            found = [await anext(rows) for _ in range(3)]
        await remote.close()
        return [(row.key, isinstance(row.unreadable, str)) for row in found]

    with filled("sqlite", tmp_path / "tv") as served:
        rows = asyncio.run(asyncio.wait_for(main(served), 60))
    assert rows == [("show:dark", True), ("show:lost", True), ("show:heat", False)]
