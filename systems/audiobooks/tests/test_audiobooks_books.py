"""Books, authors, series and works over HTTP: creation, lists, changes, the bin and merging."""

from typing import Any

import httpx
import pytest

from keyhouse.store import Store
from keyhouse_audiobooks.schema import BOOK_PLAYS, WORK_PLAYS
from systems.audiobooks.tests.support.service import LibraryService, on_both_engines
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from tests.support.cases import cases
from tests.support.polling import wait_until

ABSENT = "01J00000000000000000000000"


def made(client: httpx.Client, kind: str, **body: Any) -> dict[str, Any]:
    reply = client.post(f"/{kind}", json=body)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["data"])


def titles(client: httpx.Client, **query: Any) -> list[str]:
    reply = client.get("/books", params=query)
    assert reply.status_code == 200, reply.text
    found = reply.json()["data"]
    assert found["count"] == len(found["items"])
    return [each["title"] for each in found["items"]]


def test_a_book_is_the_documents_json_with_names(admin: httpx.Client) -> None:
    author = made(admin, "authors", name="Ursula K. Le Guin")
    series = made(admin, "series", name="Hainish Cycle", author_id=author["id"])
    reply = admin.post(
        "/audiobooks",
        json={
            "title": "The Dispossessed: An Ambiguous Utopia",
            "author_id": author["id"],
            "series_id": series["id"],
            "series_position": 1.5,
            "isbn13": "978-0-06-051275-0",
            "tags": ["Utopia"],
        },
    )
    assert reply.status_code == 201
    book = reply.json()["data"]
    assert book["author_name"] == "Ursula K. Le Guin" and book["series_name"] == "Hainish Cycle"
    assert book["isbn13"] == "9780060512750" and book["series_position"] == 1.5
    assert book["duration"] is None and book["cover_url"] is None
    assert admin.get(f"/books/{book['id']}").json() == {"data": book}
    assert admin.get(f"/audiobooks/{book['id']}").json() == {"data": book}
    assert admin.get("/books/count").json() == {"data": {"count": 1}}


@cases(
    "body",
    [
        {},
        {"title": ""},
        {"title": "  "},
        {"title": "Dune", "isbn13": "9780060512751"},
        {"title": "Dune", "author_id": ABSENT},
        {"title": "Dune", "tags": [""]},
        {"title": 7},
        {"title": "Dune", "series_position": -1},
    ],
)
def test_an_invalid_book_is_422_and_changes_nothing(admin: httpx.Client, body: Any) -> None:
    assert is_error(admin.post("/books", json=body), 422, "VALIDATION_ERROR")
    assert admin.get("/books").json() == {"data": {"items": [], "count": 0}}


@on_both_engines
def test_books_are_filtered_and_sorted(admin: httpx.Client) -> None:
    ann, bob = (made(admin, "authors", name=name)["id"] for name in ("Ann", "Bob"))
    series = made(admin, "series", name="S")["id"]
    work = made(admin, "works", title="W")["id"]
    for title, body in {
        "Alpha": {"author_id": bob, "series_id": series, "series_position": 2, "tags": ["x"]},
        "beta": {"author_id": ann, "series_id": series, "series_position": 1.5, "work_id": work},
        "Gamma: the end": {"author_id": ann, "series_id": series, "published_year": 1999},
        "Álpha two": {"isbn10": "0-441-47812-3", "tags": ["X", "y"], "published_year": 1970},
    }.items():
        made(admin, "books", title=title, **body)
    assert titles(admin) == ["Alpha", "beta", "Gamma: the end", "Álpha two"]
    assert titles(admin, sort_order="desc")[-1] == "Alpha"
    assert titles(admin, series_id=series) == ["beta", "Alpha", "Gamma: the end"]
    assert titles(admin, author_id=ann) == ["beta", "Gamma: the end"]
    assert titles(admin, work_id=work) == ["beta"]
    assert titles(admin, tag="X") == ["Alpha", "Álpha two"]
    assert titles(admin, isbn="0441478123") == ["Álpha two"]
    assert titles(admin, title_prefix="gamma: t") == ["Gamma: the end"]
    assert titles(admin, tag="x", author_id=bob) == ["Alpha"]
    assert titles(admin, sort_by="published_year") == [
        "Álpha two",
        "Gamma: the end",
        "Alpha",
        "beta",
    ]
    assert titles(admin, sort_by="author", sort_order="desc")[0] == "Alpha"
    pages, cursor = [], None
    while True:
        reply = admin.get("/books", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        pages.append(reply.json()["data"]["count"])
        cursor = reply.json()["data"].get("cursor")
        if cursor is None:
            break
    assert pages == [3, 1]
    assert titles(admin, offset=1, limit=2) == ["beta", "Gamma: the end"]
    for query in ({"limit": 501}, {"limit": 0}, {"nonsense": 1}, {"sort_by": "x"}, {"isbn": "1"}):
        assert is_error(admin.get("/books", params=query), 400, "BAD_REQUEST")


def test_if_match_protects_a_change(admin: httpx.Client) -> None:
    book = made(admin, "books", title="Dune")
    tag = admin.get(f"/books/{book['id']}").headers["etag"]
    changed = admin.patch(f"/books/{book['id']}", json={"narrator": "N"}, headers={"If-Match": tag})
    assert changed.status_code == 200 and changed.headers["etag"] != tag
    stale = admin.put(f"/books/{book['id']}", json={"title": "X"}, headers={"If-Match": tag})
    assert is_error(stale, 412, "CONFLICT")
    whole = admin.put(f"/books/{book['id']}", json={"title": "Dune 2"}).json()["data"]
    assert (whole["title"], whole["narrator"]) == ("Dune 2", None)
    assert whole["edited"] == ["narrator", "title"]
    assert is_error(admin.patch(f"/books/{ABSENT}", json={}), 404, "NOT_FOUND")
    assert is_error(admin.get("/books/none"), 404, "NOT_FOUND")
    unknown = admin.patch(f"/books/{book['id']}", json={"titel": "x"})
    assert is_error(unknown, 422, "VALIDATION_ERROR")


def test_a_book_goes_to_the_bin_and_back_and_is_purged(admin: httpx.Client) -> None:
    book = made(admin, "books", title="Dune", tags=["x"])
    path = f"/books/{book['id']}"
    assert is_error(admin.delete(path, params={"purge": True}), 409, "CONFLICT")
    assert admin.delete(path, params={"soft_delete": True}).status_code == 200
    assert titles(admin) == titles(admin, tag="x") == []
    assert is_error(admin.get(path), 404, "NOT_FOUND")
    assert is_error(admin.patch(path, json={"title": "x"}), 404, "NOT_FOUND")
    binned = admin.get("/audiobooks/soft-deleted").json()["data"]
    assert (binned["count"], binned["total"]) == (1, 1) and binned["items"][0]["deleted_at"]
    assert admin.post(f"{path}/restore").json()["data"]["title"] == "Dune"
    assert titles(admin, tag="x") == ["Dune"]
    assert admin.delete(path).status_code == 200
    assert admin.delete(path, params={"purge": True}).status_code == 204
    assert is_error(admin.post(f"{path}/restore"), 404, "NOT_FOUND")
    assert admin.get("/books/soft-deleted").json()["data"]["count"] == 0


@cases("kind", ["authors", "series", "works"])
def test_creation_is_idempotent_by_name(admin: httpx.Client, kind: str) -> None:
    name = "title" if kind == "works" else "name"
    first = made(admin, kind, **{name: "Frank: Herbert"})
    again = admin.post(f"/{kind}", json={name: "  FRANK:   herbert "})
    assert again.status_code == 200 and again.json()["data"] == first
    assert admin.get(f"/{kind}/count").json() == {"data": {"count": 1}}
    assert is_error(admin.post(f"/{kind}", json={name: " "}), 422, "VALIDATION_ERROR")
    renamed = admin.patch(f"/{kind}/{first['id']}", json={name: "Other"}).json()["data"]
    assert renamed[name] == "Other"
    assert admin.delete(f"/{kind}/{first['id']}").status_code == 204
    assert is_error(admin.get(f"/{kind}/{first['id']}"), 404, "NOT_FOUND")


@pytest.mark.parametrize("kind", ["author", "series", "work"])
def test_what_a_binned_book_refers_to_is_deleted_only_with_detach(
    admin: httpx.Client, kind: str
) -> None:
    path = kind if kind == "series" else f"{kind}s"
    body = {"title": "W"} if kind == "work" else {"name": "N"}
    whole = made(admin, path, **body)
    book = made(admin, "books", title="Dune", **{f"{kind}_id": whole["id"]})
    assert admin.get(f"/{path}/{whole['id']}/books").json()["data"]["count"] == 1
    assert is_error(admin.delete(f"/{path}/{whole['id']}"), 409, "CONFLICT")
    admin.delete(f"/books/{book['id']}")
    assert is_error(admin.delete(f"/{path}/{whole['id']}"), 409, "CONFLICT")
    assert admin.delete(f"/{path}/{whole['id']}", params={"detach": True}).status_code == 204
    assert admin.post(f"/books/{book['id']}/restore").json()["data"][f"{kind}_id"] is None


def test_a_series_lists_its_books_in_order(admin: httpx.Client) -> None:
    series = made(admin, "series", name="S")["id"]
    for title, position in (("c", None), ("b", 2), ("a", 1.5), ("z", 1)):
        made(admin, "books", title=title, series_id=series, series_position=position)
    found = admin.get(f"/series/{series}/books").json()["data"]["items"]
    assert [each["title"] for each in found] == ["z", "a", "b", "c"]


@on_both_engines
def test_authors_are_merged_with_their_series_and_works(admin: httpx.Client) -> None:
    keep, other = (made(admin, "authors", name=name)["id"] for name in ("Le Guin", "LeGuin"))
    series = [made(admin, "series", name="Earthsea", author_id=id)["id"] for id in (keep, other)]
    works = [made(admin, "works", title="Tehanu", author_id=id)["id"] for id in (keep, other)]
    lone = made(admin, "works", title="Gifts", author_id=other)["id"]
    body = {"author_id": other, "series_id": series[1], "work_id": works[1]}
    book = made(admin, "books", title="Tehanu", **body)["id"]
    merge = {"keep_id": keep, "merge_ids": [other]}
    assert admin.post("/authors/merge", json=merge).json()["data"]["book_count"] == 1
    found = admin.get(f"/books/{book}").json()["data"]
    assert (found["author_id"], found["series_id"], found["work_id"]) == (
        keep,
        series[0],
        works[0],
    )
    assert admin.get(f"/works/{lone}").json()["data"]["author_id"] == keep
    assert is_error(admin.post("/authors/merge", json=merge), 404, "NOT_FOUND")
    own = {"keep_id": keep, "merge_ids": [keep]}
    assert is_error(admin.post("/authors/merge", json=own), 422, "VALIDATION_ERROR")


def test_a_book_takes_its_statistics_to_another_work(
    service: LibraryService, admin: httpx.Client
) -> None:
    one, two = (made(admin, "works", title=title)["id"] for title in ("One", "Two"))
    book = made(admin, "books", title="Dune", work_id=one)["id"]

    async def play(store: Store) -> None:
        async with store.transaction() as tx:
            await tx.add(BOOK_PLAYS, 3, book_id=book)
            await tx.add(WORK_PLAYS, 3, work_id=one)

    async def plays(store: Store) -> list[Any]:
        return [await store.get(WORK_PLAYS, work_id=id) for id in (one, two)]

    service.run(play)
    assert admin.patch(f"/books/{book}", json={"work_id": two}).is_success
    assert service.run(plays) == [0, 3]
    admin.delete(f"/books/{book}")
    admin.delete(f"/books/{book}", params={"purge": True})
    assert service.run(plays) == [0, 0]


def test_a_batch_changes_many_books_and_names_failures(admin: httpx.Client) -> None:
    ids = [made(admin, "books", title=title)["id"] for title in ("a", "b")]
    body = {"ids": [*ids, ABSENT], "updates": {"tags": ["new"]}}
    found = admin.post("/audiobooks/batch", json=body).json()["data"]
    assert (found["updated"], found["failed"], found["errors"][0]["id"]) == (2, 1, ABSENT)
    assert titles(admin, tag="new") == ["a", "b"]


def test_search_finds_books_by_title_author_series_narrator_and_tag(admin: httpx.Client) -> None:
    author = made(admin, "authors", name="Ursula K. Le Guin")["id"]
    series = made(admin, "series", name="Hainish Cycle")["id"]
    work = made(admin, "works", title="Planet", alt_titles=["Planète"])["id"]
    body = {"author_id": author, "series_id": series, "work_id": work, "tags": ["utopia"]}
    text = {"narrator": "Don Leslie", "description": "Shevek the physicist."}
    book = made(admin, "books", title="The Dispossessed", **body, **text)["id"]
    made(admin, "books", title="Dune")
    for query in (
        "disposs",
        "guin",
        "guin dispossessed",
        "hainish",
        "planete",
        "leslie",
        "utopia",
        "physicist shevek",
    ):
        _finds(admin, query, ["The Dispossessed"])
    assert titles(admin, search="guin") == ["The Dispossessed"]
    _finds(admin, "nothing at all", [])
    admin.delete(f"/books/{book}")
    _finds(admin, "dispossessed", [])


def _finds(client: httpx.Client, query: str, titles: list[str]) -> None:
    """Assert that a search finds these books, once the index has followed the store."""

    def is_found() -> bool:
        reply = client.get("/search", params={"q": query})
        assert reply.status_code == 200, reply.text
        return [each["title"] for each in reply.json()["data"]["items"]] == titles

    wait_until(is_found)


def test_put_of_a_book_clears_nothing_because_of_a_name_that_it_does_not_know(
    admin: httpx.Client,
) -> None:
    """`author_name`, which replies have, was ignored, and the author cleared."""
    author = made(admin, "authors", name="Gabriel")["id"]
    book = made(admin, "books", title="Cien", author_id=author, narrator="N")
    path = f"/books/{book['id']}"
    for name in ("author_name", "series_name", "id", "cover_url", "titel"):
        reply = admin.put(path, json={"title": "Cien años", name: "x"})
        assert is_error(reply, 422, "VALIDATION_ERROR") and name in reply.json()["error"]
    assert admin.get(path).json()["data"] == book


@pytest.mark.parametrize("kind", ["books", "audiobooks", "authors", "series", "works"])
def test_an_etag_holds_until_anything_that_is_shown_changes(admin: httpx.Client, kind: str) -> None:
    """A book with the ETag in If-None-Match was sent again, since it shows other records too."""
    author = made(admin, "authors", name="Ann")["id"]
    body = {"name": "S"} if kind == "series" else {"title": "B", "author_id": author}
    path = f"/{kind}/{author if kind == 'authors' else made(admin, kind, **body)['id']}"
    first = admin.get(path)
    known = {"If-None-Match": first.headers["etag"]}
    again = admin.get(path, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    if kind in ("books", "audiobooks"):
        admin.patch(f"/authors/{author}", json={"name": "Bob"})
    elif kind == "authors":
        made(admin, "books", title="Other", author_id=author)
    elif kind == "series":
        made(admin, "books", title="Other", series_id=path.removeprefix("/series/"))
    else:
        made(admin, "books", title="Other", work_id=path.removeprefix("/works/"))
    assert admin.get(path, headers=known).status_code == 200
    # For a write only the record itself counts.
    change = {"name": "New"} if kind in ("authors", "series") else {"title": "New"}
    match = {"If-Match": first.headers["etag"]}
    changed = admin.patch(path, json=change, headers=match)
    assert changed.status_code == 200, changed.text
    stale = admin.patch(path, json=change, headers=match)
    assert is_error(stale, 412, "CONFLICT")
