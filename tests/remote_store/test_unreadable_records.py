"""Records that a schema no longer decodes: a Store and a RemoteStore treat them alike."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import UNSET
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from keyhouse import (
    Clock,
    Index,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    UnreadableRow,
    open_engine,
    open_store,
    sync,
)
from keyhouse.cli.rows import view_row
from keyhouse.engine import Engine, Row
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import UnreadableError
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.operations.catalog import Catalog
from keyhouse.operations.omitted_rows import OmittedRows
from keyhouse.service.schema_service.remote import SchemaRemotes
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.spec import ServiceContext
from keyhouse.service.usage import Quota
from tests.remote_store.support.shows import (
    BY_GENRE,
    GUIDE,
    OF_ANOTHER_TYPE,
    ONE_TITLE,
    SHOW,
    Show,
    fill,
)
from tests.service.schema_service.support.served import Served
from tests.support.nats_servers import nats_server
from tests.support.threaded_service import SECRET


async def story(store: Any) -> list[object]:
    """Return what every read of many records does."""
    noted: list[object] = []
    raised: list[Any] = [
        lambda: store.page(SHOW),
        lambda: store.page(SHOW, by=BY_GENRE, genre="drama"),
        lambda: _list(store.scan(SHOW)),
        lambda: store.get(SHOW, id="dark"),
        lambda: store.get_many(SHOW, [{"id": "heat"}, {"id": "dark"}]),
        lambda: store.entries(SHOW, [{"id": "dark"}]),
        lambda: store.lookup(SHOW, ONE_TITLE, title="Dark"),
    ]
    for call in raised:
        with pytest.raises(UnreadableError) as caught:
            await call()
        noted.append(caught.value.sentence)
    for named in ({}, {"by": BY_GENRE, "genre": "drama"}):
        page = await store.page(SHOW, unreadable="skip", **named)
        noted.append([each.key for each in page.entries])
        noted.append([(each.row.key, each.row.revision > 0) for each in page.unreadable])
        noted.append([type(each.error) for each in page.unreadable])
        noted.append([(e.error.fields["record"], e.error.fields["key"]) for e in page.unreadable])
    noted.append([each.key for each in await _list(store.scan(SHOW, unreadable="skip"))])
    met: list[UnreadableRow] = []
    addresses = [{"id": "dark"}, {"id": "heat"}, {"id": "none"}, {"id": "dark"}]
    noted.append(await store.get_many(SHOW, addresses, unreadable=met.append))
    noted.append({each.row.key for each in met})
    found = await store.entries(SHOW, addresses, unreadable="skip")
    noted.append([each and each.key for each in found])
    noted.append(await store.lookup(SHOW, ONE_TITLE, title="Dark", unreadable="skip"))
    noted.append(await store.count(SHOW))
    return noted


async def _list(items: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in items]


async def on_store() -> list[object]:
    async with open_engine("memory:") as engine:
        await fill(engine, "ann")
        return await story(Store(GUIDE, engine, "ann"))


@pytest.fixture(scope="module")
def expected() -> list[object]:
    return asyncio.run(on_store())


async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
    engine = await open_engine("memory:", clock=clock)
    await fill(engine, "ann")
    return engine


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(opened, tmp_path_factory.mktemp("tv"), GUIDE) as running:
        yield running


def test_over_http_unreadable_records_raise_or_are_skipped_as_in_a_store(
    served: Served, expected: list[object]
) -> None:
    async def main() -> list[object]:
        async with RemoteStore(GUIDE, served.url, served.token()) as store:
            return await story(store)

    assert asyncio.run(main()) == expected


@asynccontextmanager
async def over_nats(folder: Path) -> AsyncIterator[RemoteStore]:
    async with open_engine("memory:") as engine:
        await fill(engine, "ann")
        context = ServiceContext(
            engine=engine,
            data=folder,
            metrics=CollectorRegistry(),
            settings={"jwt_secret": SECRET, "rate_per_second": 1e6},
        )
        spec: Any = schema_service(GUIDE)(context)
        url = nats_server().url
        async with (
            connect(url) as serving,
            NatsListener(serving, spec.endpoints, name=spec.name, version="1.0.0"),
            RemoteStore(GUIDE, url, space="ann") as store,
        ):
            yield store


def test_over_nats_unreadable_records_raise_or_are_skipped_as_in_a_store(
    tmp_path: Path, expected: list[object]
) -> None:
    async def main() -> list[object]:
        async with over_nats(tmp_path) as store:
            return await story(store)

    assert asyncio.run(main()) == expected


def test_a_list_names_the_rows_that_it_leaves_out(served: Served) -> None:
    with served.client() as http, capture_logs() as logs:
        page = http.get("/records/show", params={"limit": 2}).json()
    assert [item["key"] for item in page["items"]] == ["show:heat"]
    assert page["unreadable"] == [
        {
            "key": "show:dark",
            "revision": 2,
            "type": "urn:keyhouse:error:unreadable",
            "detail": OF_ANOTHER_TYPE,
        }
    ]
    warnings = [each for each in logs if each["log_level"] == "warning"]
    assert warnings and warnings[0]["rows"] == len(page["unreadable"])
    assert "show:dark" in warnings[0]["reason"]


def test_a_readable_list_has_no_member_unreadable(served: Served) -> None:
    with served.client("bob") as http:
        http.put(
            "/records/show/heat", json={"title": "H", "genre": "g", "year": 1}
        ).raise_for_status()
        assert "unreadable" not in http.get("/records/show").json()


def test_the_description_of_a_list_has_the_member_unreadable(served: Served) -> None:
    described = httpx.get(f"{served.url}/openapi.json", timeout=30).json()
    assert "unreadable" in described["components"]["schemas"]["ShowPage"]["properties"]


def test_without_an_event_loop(served: Served) -> None:
    with sync.RemoteStore(GUIDE, served.url, served.token()) as store:
        with pytest.raises(UnreadableError):
            list(store.scan(SHOW))
        assert [each.key for each in store.scan(SHOW, unreadable="skip")] == ["show:heat"]


def test_open_store_reads_the_same(tmp_path: Path, expected: list[object]) -> None:
    async def main() -> list[object]:
        async with open_engine(f"sqlite:{tmp_path}/tv.db") as engine:
            await fill(engine, "ann")
        async with open_store(GUIDE, f"sqlite:{tmp_path}/tv.db", "ann") as store:
            return await story(store)

    assert asyncio.run(main()) == expected


def test_the_data_commands_show_rows_that_the_service_could_not_read(served: Served) -> None:
    async def main() -> list[tuple[str, object, bool]]:
        remote = await SchemaRemotes(GUIDE).connect(served.url, "ann", served.token())
        rows = remote.rows("", reverse=True, keys_only=False)
        views = [view_row(GUIDE, "ann", row) async for row in rows]
        await remote.close()
        return [(view.key, view.value, bool(view.unreadable)) for view in views]

    heat = {"id": "heat", "title": "Heat", "genre": "drama", "year": 1995}
    assert asyncio.run(main()) == [
        ("show:lost", UNSET, True),
        ("show:heat", heat, False),
        ("show:dark", UNSET, True),
    ]


def test_the_key_of_an_index_row_with_private_members_is_not_shown() -> None:
    by_title = Index("title:{title}:{id}", name="title")
    show = Record(Show, "show:{id}", by_title, name="show", private=("title",))
    schema = Schema("tv", show, space=Space("a home"))
    served = Catalog(schema, {}).find("http", "show")
    omitted = OmittedRows(served.indexes["title"])
    error = UnreadableError("The index row is not JSON.")
    for key in ("title:secret:dark", "show:dark"):
        omitted.add(UnreadableRow(Row(key, b"", 3, None), error))
    items = omitted.items("list", SchemaSpace("ann", MemoryEngine(), Quota(), schema=schema))
    assert [item.key for item in items or ()] == ["title:{title}:{id}", "show:dark"]
