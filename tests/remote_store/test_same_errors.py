"""A call that a Store rejects is rejected by a RemoteStore with the same error, and no request."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    Clock,
    Counter,
    Index,
    Meta,
    Owner,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    Unique,
    open_engine,
    sliding,
)
from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError, UnavailableError
from tests.service.schema_service.support.served import Served


class Show(Struct, kw_only=True):
    id: str
    title: str
    genre: str
    year: int = 2000
    cast: list[str] = []


class Episode(Struct, kw_only=True):
    show: str
    number: int


class Presence(Struct, kw_only=True):
    user: str
    at: str = ""


BY_GENRE = Index("idx:show:genre:{genre}:{id}")
BY_YEAR = Index("idx:show:year:{year:04d}:{id}")
BY_CAST = Index("idx:show:cast:{actor}:{id}", each={"actor": "cast"})
ONE_TITLE = Unique("idx:show:title:{title:norm}", value="id")
SHOW = Record(Show, "show:{id}", BY_GENRE, BY_YEAR, BY_CAST, ONE_TITLE)
EPISODE = Record(Episode, "episode:{show}:{number:03d}", belongs_to=Owner(SHOW))
PRESENCE = Record(Presence, "presence:{user}", expiry=sliding(5))
VIEWS = Counter("views:{id}")
GUIDE = Schema("tv", SHOW, EPISODE, PRESENCE, VIEWS, meta=Meta(), space=Space("a home"))
OTHER = Record(Show, "other:{id}")

Call = Callable[[Any], Any]
DARK = Show(id="dark", title="Dark", genre="drama")

REJECTED: list[Call] = [
    lambda s: s.get(SHOW, ident="a"),
    lambda s: s.get(SHOW, id="a", ident="b"),
    lambda s: s.get(SHOW, id=3),
    lambda s: s.get(SHOW),
    lambda s: s.get(OTHER, id="a"),
    lambda s: s.get(BY_GENRE, id="a"),
    lambda s: s.entry(EPISODE, show="dark"),
    lambda s: s.get_many(SHOW, [{"ident": "a"}]),
    lambda s: s.page(SHOW, by=BY_GENRE, gnre="drama"),
    lambda s: s.page(SHOW, by=BY_GENRE, year=2000),
    lambda s: s.page(SHOW, by=BY_GENRE, id="dark"),
    lambda s: s.page(SHOW, by=BY_YEAR, between=("a", "b")),
    lambda s: s.page(SHOW, by=BY_YEAR, between=3),
    lambda s: s.page(SHOW, by=BY_YEAR, prefix="2", between=(1, 2)),
    lambda s: s.page(SHOW, by=BY_YEAR, year=1, id="a", prefix="b"),
    lambda s: s.page(EPISODE, by=BY_GENRE),
    lambda s: s.page(SHOW, limit=0),
    lambda s: s.page(SHOW, limit=10_001),
    lambda s: s.page(SHOW, limit="5"),
    lambda s: s.page(SHOW, unreadable="hide"),
    lambda s: s.keys(SHOW, limit=10_001),
    lambda s: s.keys(SHOW, gnre="drama"),
    lambda s: s.count(EPISODE, number=3),
    lambda s: s.lookup(SHOW, BY_GENRE),
    lambda s: s.lookup(SHOW, ONE_TITLE),
    lambda s: s.lookup(SHOW, ONE_TITLE, titel="Dark"),
    lambda s: s.lookup(EPISODE, ONE_TITLE, title="Dark"),
    lambda s: s.put(SHOW, DARK, ttl=4),
    lambda s: s.put(PRESENCE, Presence(user="ann"), ttl=-1),
    lambda s: s.put(SHOW, DARK, id="other"),
    lambda s: s.put(SHOW, DARK, ident="other"),
    lambda s: s.put(SHOW, Presence(user="ann")),
    lambda s: s.put(EPISODE, Episode(show="dark", number=-1)),
    lambda s: s.update(SHOW, {"year": 1}, ident="a"),
    lambda s: s.delete(SHOW, ident="a"),
    lambda s: s.add(VIEWS, 1, show="dark"),
]


async def raised(store: Any, call: Call) -> tuple[type, str, dict[str, object]]:
    with pytest.raises(KeyhouseError) as caught:
        await call(store)
    return type(caught.value), caught.value.sentence, caught.value.fields


@pytest.mark.parametrize("at", range(len(REJECTED)))
def test_the_same_error_without_a_request(at: int) -> None:
    async def main() -> None:
        async with (
            open_engine("memory:") as engine,
            RemoteStore(GUIDE, "http://127.0.0.1:1", "token") as remote,  # nothing listens there
        ):
            expected = await raised(Store(GUIDE, engine, "ann"), REJECTED[at])
            assert await raised(remote, REJECTED[at]) == expected

    asyncio.run(main())


def test_the_error_of_a_schema_whose_keys_begin_with_the_space() -> None:
    record = Record(Show, "{home}:show:{id}")
    schema = Schema("tv", record, space=Space("a home", field="home"))

    async def main() -> None:
        async with (
            open_engine("memory:") as engine,
            RemoteStore(schema, "http://127.0.0.1:1", "token") as remote,
            RemoteStore(schema, "http://127.0.0.1:1", "token", space="ann") as named,
        ):
            store = Store(schema, engine, "ann")
            for call in (lambda s: s.get(record, ident="a"), lambda s: s.page(record, home="b")):
                kind, sentence, fields = await raised(store, call)
                assert await raised(named, call) == (kind, sentence, fields)
                fields["template"] = "{home}:show:{id}"
                assert await raised(remote, call) == (kind, sentence, fields)

    asyncio.run(main())


def test_a_service_that_is_not_there_is_named_by_its_url() -> None:
    async def main() -> None:
        async with RemoteStore(GUIDE, "http://ann:secret@127.0.0.1:1", "token") as remote:
            kind, _, fields = await raised(remote, lambda s: s.get(SHOW, id="a"))
            assert kind is UnavailableError and fields["url"] == "http://127.0.0.1:1/tv"

    asyncio.run(main())


async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
    return await open_engine("memory:", clock=clock)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tv")
    with Served(opened, folder, GUIDE, rate_per_second=1e6) as running:
        yield running


def test_pages_that_are_longer_than_those_of_a_service(served: Served) -> None:
    async def main() -> None:
        async with RemoteStore(GUIDE, served.url, served.token()) as store:
            for start in range(0, 1_200, 100):
                numbers = range(start, start + 100)
                await store.put_many(
                    SHOW, [Show(id=f"{n:04d}", title=f"{n}", genre="g") for n in numbers]
                )
            page = await store.page(SHOW, limit=1_100)
            assert (len(page.entries), page.entries[-1].fields) == (1_100, {"id": "1099"})
            rest = await store.page(SHOW, limit=5_000, cursor=page.cursor)
            assert (len(rest.entries), rest.cursor) == (100, None)
            keys, cursor = await store.keys(BY_GENRE, genre="g", limit=1_150)
            assert len(keys) == 1_150
            keys, cursor = await store.keys(BY_GENRE, genre="g", limit=1_150, cursor=cursor)
            assert (len(keys), cursor) == (50, None)
            found = await store.lookup(SHOW, BY_GENRE, genre="g", id="0003")
            assert found is not None and found.fields == {"id": "0003"}

    asyncio.run(main())
