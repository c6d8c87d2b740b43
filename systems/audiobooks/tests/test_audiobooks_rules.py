"""Rules of the keyspace over HTTP: names, titles of any length, unique series, unknown members,
what belongs together, and statistics of works."""

from typing import Any

import httpx
import msgspec
import pytest

from keyhouse.engine import Batch, Put, Span
from keyhouse.store import Store
from keyhouse_audiobooks.schema import (
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    DURATION_MAP,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
)
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made, titles
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf
from systems.audiobooks.tests.test_audiobooks_scan import finished
from tests.support.cases import cases

__all__ = ["shelf"]


def keys(service: LibraryService, prefix: str = "") -> list[str]:
    """Return the keys of the library that start with a text."""

    async def read(store: Store) -> list[str]:
        page = await store.row_page(Span.prefix(prefix), limit=10_000, keys_only=True)
        return [row.key for row in page.rows]

    return service.run(read)


# Names and titles


@cases("name", ["a:b", "50 % off", "Ünïcode: ②", "null", "%3A", "月" * 100])
def test_a_name_may_hold_any_character(admin: httpx.Client, name: str) -> None:
    author = made(admin, "authors", name=name)
    again = admin.post("/authors", json={"name": f"  {name.upper()} "})
    assert (again.status_code, again.json()["data"]["id"]) == (200, author["id"])
    book = made(admin, "books", title=name, tags=[name], author_id=author["id"])
    assert titles(admin, title_prefix=name) == [name]
    assert titles(admin, tag=f" {name} ") == [name]
    assert book["tags"] == [name]


@cases(
    "kind, body",
    [
        ("books", {"title": " \t"}),
        ("books", {"title": "x", "tags": [" "]}),
        ("books", {"title": "x", "tags": [""]}),
        ("books", {"title": "x", "series_position": -1}),
        ("books", {"title": "x" * 5_001}),
        ("authors", {"name": " "}),
        ("series", {"name": "\u3000"}),
        ("works", {"title": ""}),
    ],
)
def test_an_empty_name_is_422_and_changes_nothing(
    service: LibraryService, admin: httpx.Client, kind: str, body: Any
) -> None:
    before = keys(service)
    assert is_error(admin.post(f"/{kind}", json=body), 422, "VALIDATION_ERROR")
    assert keys(service) == before


@pytest.mark.parametrize("letter", ["x", "月", ":", "%"])
def test_a_title_too_long_for_a_key_is_cut_there_and_whole_in_the_record(
    service: LibraryService, admin: httpx.Client, letter: str
) -> None:
    start = letter * 2_000
    names = [f"{start} one", f"{start} two"]
    for name in names:
        assert made(admin, "books", title=name)["title"] == name
        work = made(admin, "works", title=name)
        again = admin.post("/works", json={"title": name})
        assert (again.status_code, again.json()["data"]["id"]) == (200, work["id"])
        author = made(admin, "authors", name=name)
        made(admin, "series", name=name, author_id=author["id"])
    assert sorted(titles(admin, title_prefix=letter * 3)) == names
    assert sorted(titles(admin, title_prefix=start)) == names
    assert titles(admin, title_prefix=f"{start} t") == names[1:]
    assert titles(admin, title_prefix=f"{start} three") == []
    assert max(len(key.encode()) for key in keys(service)) <= 1_024
    book = admin.get("/books").json()["data"]["items"][0]
    assert admin.patch(f"/books/{book['id']}", json={"title": "short"}).status_code == 200
    assert titles(admin, title_prefix="short") == ["short"]


# Series, versions, unknown members


def test_series_are_unique_by_name_and_author(service: LibraryService, admin: httpx.Client) -> None:
    one, two = (made(admin, "authors", name=name)["id"] for name in ("One", "Two"))
    first = made(admin, "series", name="Cycle", author_id=one)
    second = made(admin, "series", name="Cycle", author_id=two)
    other = made(admin, "series", name="Other", author_id=two)
    assert keys(service, "idx:series:name:") == [
        "idx:series:name:cycle",
        "idx:series:name:other",
    ]
    clash = admin.patch(f"/series/{other['id']}", json={"name": "CYCLE"})
    assert is_error(clash, 409, "CONFLICT")
    assert admin.delete(f"/series/{first['id']}").status_code == 204

    async def named(store: Store) -> Any:
        row = await store.row("idx:series:name:cycle")
        return row and msgspec.json.decode(row.value)

    assert service.run(named) == second["id"]  # the name passes on


def test_the_version_is_that_of_the_json_and_unknown_members_are_kept(
    service: LibraryService, admin: httpx.Client
) -> None:
    book = made(admin, "books", title="Dune")

    async def extend(store: Store) -> None:
        """Write a member that this version does not know, as a later program would."""
        key = f"b:{book['id']}"
        row = await store.row(key)
        assert row is not None
        value = {**msgspec.json.decode(row.value), "mood": {"dark": True}}
        batch = Batch(puts=(Put(key, msgspec.json.encode(value), None),))
        await store.engine.commit(store.space, batch)

    service.run(extend)
    for number in range(3):
        changed = admin.patch(f"/books/{book['id']}", json={"narrator": f"N {number}"})
        assert changed.json()["data"]["version"] == 1

    async def stored(store: Store) -> Any:
        row = await store.row(f"b:{book['id']}")
        assert row is not None
        return msgspec.json.decode(row.value)

    assert service.run(stored)["mood"] == {"dark": True}


# Owners and references


def test_a_deleted_user_takes_along_what_is_its_own(shelf: Shelf) -> None:
    shelf.play(50)
    mark = {"segment_id": shelf.ids[0], "position_seconds": 5}
    assert shelf.phone.post(f"{shelf.path}/bookmarks", json=mark).status_code == 201
    assert shelf.phone.put("/preferences/theme", json="dark").status_code == 200
    assert shelf.phone.post("/auth/api-keys", json={"name": "k"}).status_code == 201
    id = shelf.phone.get("/auth/me").json()["data"]["id"]
    shelf.admin.patch(f"/users/{id}", json={"roles": ["editor"]})
    made(shelf.phone, "playlists", name="Mine", book_ids=[shelf.book["id"]])
    plays = shelf.admin.get(f"/stats/books/{shelf.book['id']}").json()
    assert shelf.admin.delete(f"/users/{id}").status_code == 204
    assert [key for key in keys(shelf.service) if id in key] == []
    assert shelf.admin.get(f"/stats/books/{shelf.book['id']}").json() == plays
    assert is_error(shelf.phone.get("/auth/me"), 401, "UNAUTHORIZED")


def test_a_deleted_operation_takes_along_its_log(
    service: LibraryService, admin: httpx.Client
) -> None:
    id = finished(admin, admin.post("/operations/scan"))["id"]
    assert keys(service, "opl:") and f"op:{id}:next_seq" in keys(service, "op:")
    assert admin.get("/operations").json()["data"]["count"] == 1  # the counter is not an operation
    assert admin.delete(f"/operations/{id}").status_code == 204
    assert [key for key in keys(service) if id in key] == []


def test_a_purged_book_takes_along_what_is_its_own(shelf: Shelf) -> None:
    shelf.play(50)
    mark = {"segment_id": shelf.ids[0], "position_seconds": 5}
    shelf.phone.post(f"{shelf.path}/bookmarks", json=mark)
    made(shelf.admin, "playlists", name="All", user_id=None, book_ids=[shelf.book["id"]])
    id = shelf.book["id"]
    expected = ("bf:", "bfi:", "b:duration_map:", "playp:", "playw:", "playe:", "pli:", "stats:")
    assert all(keys(shelf.service, prefix) for prefix in expected)
    assert shelf.admin.get("/books/count").json()["data"] == {"count": 1}
    shelf.admin.delete(shelf.path)
    assert shelf.admin.delete(shelf.path, params={"purge": True}).status_code == 204
    assert [key for key in keys(shelf.service) if id in key or shelf.ids[0] in key] == []


@pytest.mark.parametrize("kind", ["authors", "series", "works"])
def test_what_books_refer_to_is_deleted_only_with_detach(admin: httpx.Client, kind: str) -> None:
    member = {"authors": "author_id", "series": "series_id", "works": "work_id"}[kind]
    body = {"title": "X"} if kind == "works" else {"name": "X"}
    whole = made(admin, kind, **body)["id"]
    listed, binned = (made(admin, "books", title=name, **{member: whole})["id"] for name in "ab")
    admin.delete(f"/books/{binned}")
    assert is_error(admin.delete(f"/{kind}/{whole}"), 409, "CONFLICT")
    admin.delete(f"/books/{listed}")
    admin.delete(f"/books/{listed}", params={"purge": True})
    assert is_error(admin.delete(f"/{kind}/{whole}"), 409, "CONFLICT")  # of the one in the bin
    assert admin.delete(f"/{kind}/{whole}", params={"detach": True}).status_code == 204
    restored = admin.post(f"/books/{binned}/restore").json()["data"]
    assert restored[member] is None
    assert is_error(admin.get(f"/{kind}/{whole}"), 404, "NOT_FOUND")


# Statistics of works


def test_statistics_of_a_work_that_are_missing_are_counted_once(shelf: Shelf) -> None:
    shelf.play(50)
    work, service = shelf.book["work_id"], shelf.service
    other = made(shelf.admin, "books", title="Other edition", work_id=work)["id"]
    shelf.admin.delete(f"/books/{other}")  # books in the bin count

    async def forget(store: Store) -> None:
        async with store.transaction() as tx:
            await tx.add(BOOK_PLAYS, 4, book_id=other)
            await tx.add(BOOK_LISTEN_SECONDS, 400, book_id=other)
            for each in (WORK_PLAYS, WORK_LISTEN_SECONDS):
                await tx.delete(each, work_id=work)

    service.run(forget)
    assert shelf.statistics(f"/stats/works/{work}") == (5, 450)
    assert keys(service, "stats:work:") == [
        f"stats:work:listen_seconds:{work}",
        f"stats:work:plays:{work}",
    ]
    shelf.admin.delete(f"/books/{other}", params={"purge": True})
    assert shelf.statistics(f"/stats/works/{work}") == (1, 50)


def test_a_position_without_a_duration_map_keeps_the_percentage(shelf: Shelf) -> None:
    assert shelf.save(shelf.phone, 1, 50).json()["data"]["progress_pct"] == 50

    async def forget(store: Store) -> Any:
        found = await store.get(DURATION_MAP, book_id=shelf.book["id"])
        await store.delete(DURATION_MAP, book_id=shelf.book["id"])
        return found

    kept = shelf.service.run(forget)
    state = shelf.save(shelf.phone, 2, 50).json()["data"]
    assert (state["progress_pct"], state["status"]) == (50, "in_progress")

    async def restore(store: Store) -> None:
        await store.put(DURATION_MAP, kept, book_id=shelf.book["id"])

    shelf.service.run(restore)
    assert shelf.save(shelf.phone, 2, 50).json()["data"]["progress_pct"] == pytest.approx(83.33)


@cases(
    "position, status",
    [(0.0, "unstarted"), (0.1, "in_progress"), (84.9, "in_progress"), (85.0, "finished")],
)
def test_the_status_follows_the_percentage(shelf: Shelf, position: float, status: str) -> None:
    segment = 0 if position < 1 else 2
    assert shelf.save(shelf.phone, segment, position).json()["data"]["status"] == status
