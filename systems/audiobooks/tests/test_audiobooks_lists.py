"""Every list of the API: at most 500 at once, and a cursor that leads to the rest."""

import httpx
import pytest

from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf

__all__ = ["shelf"]

LISTS = (
    "/users",
    "/playlists",
    "/preferences",
    "/auth/api-keys",
    "/auth/sessions",
    "/me/unstarted",
    "/books",
    "/authors",
    "/series",
    "/works",
)


def filled(service: LibraryService, admin: httpx.Client) -> None:
    """Put at least three of each kind into a library."""
    for name in "abc":
        service.user(admin, name, "viewer").close()
        service.signed_in("admin").close()
        made(admin, "playlists", name=name)
        made(admin, "auth/api-keys", name=name)
        made(admin, "books", title=name)
        made(admin, "authors", name=name)
        made(admin, "series", name=name)
        made(admin, "works", title=f"Work {name}")
        admin.put(f"/preferences/{name}", json=name)


def check_list(client: httpx.Client, path: str) -> None:
    """Assert that the pages of a list are the list, and that bad limits are rejected."""
    whole = client.get(path, params={"limit": 500}).json()["data"]
    assert whole["count"] == len(whole["items"]) >= 3 and "cursor" not in whole
    found = []
    params = {"limit": "2"}
    for _ in range(len(whole["items"])):
        page = client.get(path, params=params).json()["data"]
        assert 1 <= page["count"] == len(page["items"]) <= 2
        found += page["items"]
        if "cursor" not in page:
            break
        params["cursor"] = page["cursor"]
    assert found == whole["items"]
    skipped = client.get(path, params={"offset": "1"}).json()["data"]["items"]
    assert skipped == whole["items"][1:]
    for bad in ({"limit": "501"}, {"limit": "0"}, {"limit": "x"}, {"offset": "-1"}):
        assert is_error(client.get(path, params=bad), 400, "BAD_REQUEST"), bad


def test_lists_have_pages(service: LibraryService, admin: httpx.Client) -> None:
    filled(service, admin)
    for path in LISTS:
        check_list(admin, path)


@pytest.mark.parametrize("kind", ["authors", "series", "works"])
def test_books_of_an_author_series_or_work_have_pages(admin: httpx.Client, kind: str) -> None:
    name = {"title": "A"} if kind == "works" else {"name": "A"}
    id = made(admin, kind, **name)["id"]
    member = {"authors": "author_id", "series": "series_id", "works": "work_id"}[kind]
    for number in range(3):
        made(admin, "books", title=f"B{number}", **{member: id})
    check_list(admin, f"/{kind}/{id}/books")


def test_the_bin_has_pages(admin: httpx.Client) -> None:
    for title in "abc":
        admin.delete(f"/books/{made(admin, 'books', title=title)['id']}")
    check_list(admin, "/books/soft-deleted")


def test_lists_of_a_listener_have_pages(shelf: Shelf) -> None:
    for seconds in (10, 20, 30):
        shelf.save(shelf.phone, 0, seconds)
        mark = {"segment_id": shelf.ids[0], "position_seconds": seconds}
        shelf.phone.post(f"{shelf.path}/bookmarks", json=mark)
    check_list(shelf.phone, f"{shelf.path}/bookmarks")
    events = shelf.phone.get(f"{shelf.path}/events", params={"limit": 2}).json()["data"]
    rest = {"limit": 2, "cursor": events["cursor"]}
    assert shelf.phone.get(f"{shelf.path}/events", params=rest).json()["data"]["count"] == 1
    skipped = shelf.phone.get(f"{shelf.path}/events", params={"offset": 1})
    assert is_error(skipped, 400, "BAD_REQUEST")
    one = shelf.phone.get("/me/continue", params={"limit": 1}).json()["data"]
    assert one["count"] == one["total"] == 1 and one["next_in_series"] == []
    assert is_error(shelf.phone.get("/me/continue", params={"limit": 501}), 400, "BAD_REQUEST")
