"""A library on any engine, and the Studio over it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from keyhouse import Index, Record, RecordCount, Schema, Space, Store, Unique, open_engine
from keyhouse.auth import mint
from keyhouse.engine import Engine
from keyhouse.http import App, make_app
from keyhouse.schema import per_write
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.spec import Keyspace
from keyhouse.studio import (
    SCOPES,
    Studio,
    StudioSettings,
    StudioSystem,
    SystemCatalog,
)

SECRET = "0123456789abcdef0123456789abcdef0123456789"


class Book(msgspec.Struct):
    id: str
    title: str
    author: str
    pages: int = 0
    price: float = 0.0
    tags: list[str] = []
    lender: str = ""


BOOK = Record(
    Book,
    "book:{id}",
    Index("by-author:{author}:{id}"),
    Index("by-tag:{tag}:{id}", each={"tag": "tags"}),
    Unique("title:{title}", value="id"),
    name="book",
    private=("lender",),
    expiry=per_write(),
)


class Shelf(msgspec.Struct):
    place: str
    height: int


SHELF = Record(Shelf, "shelf:{place}", RecordCount("shelves:{height:03d}"), name="shelf")
SCHEMA = Schema("library", BOOK, SHELF, space=Space("a library"), doc="Books on shelves.")


class Library:
    """The Studio over one library, and a client that may sign in."""

    def __init__(
        self, engine: Engine, studio: Studio, app: App, schema: Schema = SCHEMA, space: str = "main"
    ) -> None:
        self.engine = engine
        self.studio = studio
        self.app = app
        self.store = Store(schema, engine, space)

    def client(self, **options: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", **options)

    @asynccontextmanager
    async def signed_in(
        self, *scopes: str, unlocked: bool = False
    ) -> AsyncIterator[httpx.AsyncClient]:
        async with self.client() as client:
            answer = await client.post("/studio/login", data={"token": token(*scopes)})
            assert answer.status_code == 303, answer.text
            if unlocked:
                answer = await client.post("/studio/lock", data={"unlocked": "on"})
                assert answer.status_code == 303, answer.text
            yield client


_ADDRESS = ("k", "mode", "prefix", "record", "q", "by", "id")
_PAGES_OF_FORMS = ("/edit", "/bulk", "/key", "/job")


async def send(
    client: httpx.AsyncClient, path: str, form: dict[str, Any], **options: Any
) -> httpx.Response:
    """Send a form to the address of its page: the key, selection or job is in the address."""
    if not path.endswith(_PAGES_OF_FORMS):
        return await client.post(path, data=form, **options)
    params = {name: value for name, value in form.items() if name in _ADDRESS}
    data = {name: value for name, value in form.items() if name not in _ADDRESS}
    return await client.post(path, params=params, data=data, **options)


def token(*scopes: str) -> str:
    settings = StudioSettings(jwt_secret=SECRET)
    return mint(settings, Path(), "ann", scopes=scopes or SCOPES)


@asynccontextmanager
async def library(
    data: Path,
    engine: Engine | None = None,
    *,
    schema: Schema = SCHEMA,
    figures: OperatorFigures | None = None,
    url: str = "memory:",
    fixed: dict[str, str] | None = None,
    own: Engine | None = None,
) -> AsyncIterator[Library]:
    """Serve the Studio over a library, or over another schema by the name `library`. `url` is
    that of the engine, as pages show it; `own` is the engine of the Studio itself."""
    opened = engine or await open_engine("memory:")
    own = own or await open_engine("memory:")
    system = StudioSystem(
        name="library",
        title="A library",
        engine=url,
        keyspaces=[Keyspace(schema=schema, engine=opened, fixed=fixed or {})],
        figures=figures,
    )
    studio = Studio(SystemCatalog([system]), own, data, StudioSettings(jwt_secret=SECRET))
    try:
        yield Library(opened, studio, make_app([studio.spec()]), schema)
    finally:
        await own.close()
        if engine is None:
            await opened.close()


async def fill(store: Store, books: int = 3) -> None:
    for number in range(books):
        await store.put(
            BOOK,
            Book(
                f"b{number:03d}",
                f"Title {number}",
                "le-guin" if number % 2 else "lem",
                pages=100 + number,
                price=1.10,
                tags=["sf"],
                lender="secret friend",
            ),
        )
    await store.put(SHELF, Shelf("hall", 3))


def run(data: Path, scenario: Callable[[Library], Awaitable[None]], books: int = 3) -> None:
    """Run a scenario in a Studio with a library of some books."""

    async def main() -> None:
        async with library(data) as served:
            await fill(served.store, books)
            await scenario(served)

    asyncio.run(main())
