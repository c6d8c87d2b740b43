"""Playlists of many users: what a page reads of them, how many there are, and their migration."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from keyhouse.clock import Clock
from keyhouse.engine import Engine, Page, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.limits import CHANGES_KEPT
from keyhouse.store import Store, migrate
from keyhouse_audiobooks.limits import PLAYLIST_BOOKS_MAX, PLAYLISTS_MAX
from keyhouse_audiobooks.records import Playlist
from keyhouse_audiobooks.schema import PLAYLIST, SCHEMAS, SHARED_PLAYLISTS
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made
from systems.audiobooks.tests.test_audiobooks_pages import browser


class RowCounter(EngineWrapper):
    """Counts the rows that are read."""

    rows = 0

    async def read(self, space: str, keys: Sequence[str], **options: Any) -> list[Row | None]:
        self.rows += len(keys)
        return await super().read(space, keys, **options)

    async def scan(self, space: str, span: Span, **options: Any) -> Page:
        page = await super().scan(space, span, **options)
        self.rows += len(page.rows)
        return page


async def put_playlists(store: Store, owner: str | None, count: int) -> None:
    new = store.ids.new
    await store.put_many(
        PLAYLIST, [Playlist(id=new(), name="P", user_id=owner) for _ in range(count)]
    )


def test_pages_do_not_read_the_playlists_of_other_users(tmp_path: Path) -> None:
    counters: list[RowCounter] = []

    async def opener(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        counters.append(RowCounter(MemoryEngine(clock=clock)))
        return counters[0]

    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        service.user(admin, "viewer", "viewer").close()
        book = made(admin, "books", title="A")["id"]
        shared = made(admin, "playlists", name="For all", user_id=None, book_ids=[book])
        owner = admin.get("/auth/me").json()["data"]["id"]
        with closing(browser(service, "viewer")) as viewer, service.signed_in("viewer") as api:

            def rows(path: str, client: httpx.Client = viewer) -> int:
                client.get(path)
                found = []
                for _ in range(3):  # tasks of the service read too, at times
                    before = counters[0].rows
                    assert client.get(path).status_code == 200
                    found.append(counters[0].rows - before)
                return min(found)

            pages = (f"books/{book}", viewer), ("playlists", viewer), ("/playlists", api)
            few = [rows(*page) for page in pages]
            service.run(lambda store: put_playlists(store, owner, 1_000))
            assert [rows(*page) for page in pages] == few
            assert f"/playlists/{shared['id']}" in viewer.get(f"books/{book}").text
            assert re.search(r"\b1\s+book\b", viewer.get("playlists").text)
        service.check()


def test_a_user_has_a_maximum_of_playlists(service: LibraryService, admin: httpx.Client) -> None:
    owner = admin.get("/auth/me").json()["data"]["id"]
    service.run(lambda store: put_playlists(store, owner, PLAYLISTS_MAX - 1))
    last = made(admin, "playlists", name="The last")
    reply = admin.post("/playlists", json={"name": "Too many"})
    assert is_error(reply, 409, "CONFLICT") and "delete one first" in reply.json()["error"]
    with closing(browser(service, "admin")) as pages:
        page = pages.post("playlists", data={"name": "Too many"})
        assert page.status_code == 409 and "delete one first" in page.text
    assert made(admin, "playlists", name="For all", user_id=None)["user_id"] is None
    with closing(service.user(admin, "bob", "editor")) as other:
        assert made(other, "playlists", name="Mine")["name"] == "Mine"
    assert admin.delete(f"/playlists/{last['id']}").status_code == 204
    made(admin, "playlists", name="Another")


def test_all_users_share_a_maximum_of_playlists(
    service: LibraryService, admin: httpx.Client
) -> None:
    service.run(lambda store: put_playlists(store, None, PLAYLISTS_MAX))
    reply = admin.post("/playlists", json={"name": "Too many", "user_id": None})
    assert is_error(reply, 409, "CONFLICT")


def test_a_playlist_has_a_maximum_of_books(service: LibraryService, admin: httpx.Client) -> None:
    ids = [made(admin, "books", title="A")["id"]]
    many = [f"{number:026d}" for number in range(PLAYLIST_BOOKS_MAX)]
    path = f"/playlists/{made(admin, 'playlists', name='P', book_ids=ids)['id']}"
    for reply in (
        admin.post(f"{path}/books", json={"book_ids": many}),
        admin.post("/playlists", json={"name": "P", "book_ids": ids + many}),
    ):
        assert is_error(reply, 422, "VALIDATION_ERROR") and "too many books" in reply.text
    assert admin.get(path).json()["data"]["book_ids"] == ids


def test_playlists_of_an_older_library_are_found_after_the_migration() -> None:
    async def work() -> None:
        engine = MemoryEngine()
        store = Store(SCHEMAS[0], engine, "main")
        await put_playlists(store, None, 3)
        indexed = [entry.key async for entry in store.scan(PLAYLIST, by=SHARED_PLAYLISTS)]
        keys, _ = await store.keys(SHARED_PLAYLISTS)
        async with store.transaction() as tx:
            for key in keys:
                tx.write(key, None)
            tx.write("meta:version", (b"9", None))
        assert [one.migration.id for one in await migrate(store)] == [10]
        assert [entry.key async for entry in store.scan(PLAYLIST, by=SHARED_PLAYLISTS)] == indexed
        await engine.close()

    asyncio.run(work())
