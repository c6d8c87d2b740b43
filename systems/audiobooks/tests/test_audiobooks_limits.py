"""Limits of what a user has, also where many requests come at once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from keyhouse.engine import Span
from keyhouse.errors import UsageError
from keyhouse.settings import read_settings
from keyhouse.store import Store
from keyhouse_audiobooks.accounts import accounts
from keyhouse_audiobooks.limits import API_KEYS_MAX, PLAYLISTS_MAX, PREFERENCE_BYTES_MAX
from keyhouse_audiobooks.listening import listener, playlists, preferences
from keyhouse_audiobooks.settings import AudiobooksSettings
from systems.audiobooks.tests.support.service import LibraryService, on_both_engines
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf
from systems.audiobooks.tests.test_audiobooks_playlists import put_playlists

__all__ = ["shelf"]

PARALLEL = 12


def test_a_quota_is_an_unknown_setting() -> None:
    """A quota was accepted and shown, and nothing was counted against it."""
    for name in ("quota_keys", "quota_bytes"):
        with pytest.raises(UsageError, match="Unknown setting"):
            read_settings(AudiobooksSettings, {name: 5}, table="audiobooks")


def statuses(client: httpx.Client, method: str, requests: list[tuple[str, Any]]) -> Counter[int]:
    """Send requests at once; return how many had each status."""

    def send(request: tuple[str, Any]) -> int:
        path, body = request
        reply = client.request(method, path, json=body)
        assert reply.status_code != 409 or "delete one first" in reply.json()["error"], reply.text
        return reply.status_code

    with ThreadPoolExecutor(PARALLEL) as pool:
        return Counter(pool.map(send, requests))


@on_both_engines
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_playlists_that_are_created_at_once_do_not_exceed_the_maximum(
    service: LibraryService, admin: httpx.Client, is_shared: bool
) -> None:
    owner = None if is_shared else admin.get("/auth/me").json()["data"]["id"]
    service.run(lambda store: put_playlists(store, owner, PLAYLISTS_MAX - 3))
    body: dict[str, Any] = {"name": "P"} | ({"user_id": None} if is_shared else {})
    found = statuses(admin, "POST", [("/playlists", body)] * PARALLEL)
    assert found == {201: 3, 409: PARALLEL - 3}
    assert admin.get("/playlists").json()["data"]["total"] == PLAYLISTS_MAX


def test_bookmarks_have_a_maximum_over_all_books(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "BOOKMARKS_MAX", 3)
    path, phone = f"{shelf.path}/bookmarks", shelf.phone
    at = {"segment_id": shelf.ids[0], "position_seconds": 1}
    assert statuses(phone, "POST", [(path, at)] * PARALLEL) == {201: 3, 409: PARALLEL - 3}
    first = phone.get(path).json()["data"]["items"][0]["id"]
    assert phone.patch(f"{path}/{first}", json={"title": "T"}).status_code == 200
    assert phone.delete(f"{path}/{first}").status_code == 204
    assert is_error(phone.patch(f"{path}/{first}", json={"title": "T"}), 404, "NOT_FOUND")
    assert phone.post(path, json=at).status_code == 201
    assert is_error(phone.post(path, json=at), 409, "CONFLICT")


def test_preferences_have_a_maximum_in_number_and_size(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preferences, "PREFERENCES_MAX", 3)
    requests: list[tuple[str, Any]] = [(f"/preferences/p{each}", each) for each in range(PARALLEL)]
    assert statuses(admin, "PUT", requests) == {200: 3, 409: PARALLEL - 3}
    known = admin.get("/preferences").json()["data"]["items"][0]["key"]
    assert admin.put(f"/preferences/{known}", json="changed").status_code == 200
    assert is_error(admin.put("/preferences/other", json=1), 409, "CONFLICT")
    with service.user(admin, "bob", "viewer") as bob:
        assert bob.put("/preferences/mine", json=1).status_code == 200
    large = "x" * PREFERENCE_BYTES_MAX
    reply = admin.put(f"/preferences/{known}", json=large)
    assert is_error(reply, 422, "VALIDATION_ERROR") and "too large" in reply.json()["error"]
    assert admin.get(f"/preferences/{known}").json()["data"] == "changed"
    assert admin.delete(f"/preferences/{known}").status_code == 204
    assert admin.put("/preferences/other", json=large[:-2]).status_code == 200


def test_a_login_beyond_the_maximum_ends_the_oldest_session(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SESSIONS_MAX", 3)
    others = [service.signed_in("admin") for _ in range(2)]
    assert admin.get("/auth/sessions").json()["data"]["total"] == 3
    others.append(service.signed_in("admin"))
    assert is_error(admin.get("/auth/me"), 401, "UNAUTHORIZED")
    for other in others:
        assert other.get("/auth/sessions").json()["data"]["total"] == 3
    with ThreadPoolExecutor(4) as pool:
        latest = list(pool.map(lambda _: service.signed_in("admin"), range(4)))
    found = [each for each in latest if each.get("/auth/me").status_code == 200]
    assert len(found) == 3 == found[0].get("/auth/sessions").json()["data"]["total"]
    for client in (*others, *latest):
        client.close()


def test_api_keys_that_are_created_at_once_do_not_exceed_the_maximum(
    service: LibraryService, admin: httpx.Client
) -> None:
    for number in range(API_KEYS_MAX - 3):
        made(admin, "auth/api-keys", name=f"k{number}")
    found = statuses(admin, "POST", [("/auth/api-keys", {"name": "k"})] * PARALLEL)
    assert found == {201: 3, 409: PARALLEL - 3}


def test_a_deleted_user_leaves_no_row(service: LibraryService, admin: httpx.Client) -> None:
    with service.user(admin, "bob", "editor") as bob:
        id = bob.get("/auth/me").json()["data"]["id"]
        made(bob, "playlists", name="P")
        bob.put("/preferences/p", json=1)
        made(bob, "auth/api-keys", name="k")
    assert admin.delete(f"/users/{id}").status_code in (200, 204)

    async def keys(store: Store) -> list[str]:
        page = await store.engine.scan("main", Span.prefix(""), limit=10_000, keys_only=True)
        return [row.key for row in page.rows if id in row.key]

    assert service.run(keys) == []


def test_a_change_of_a_whole_playlist_counts_by_its_books(
    admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new order of 1,000 books cost one request, and held up others for 50 ms."""
    counted: list[int] = []
    monkeypatch.setattr(playlists, "report_read", lambda rows, size: counted.append(rows))
    books = [made(admin, "books", title=f"Book {n}")["id"] for n in range(3)]
    created = made(admin, "playlists", name="P", book_ids=books)
    path = f"/playlists/{created['id']}"
    admin.post(f"{path}/reorder", json={"book_ids": books[::-1]}).raise_for_status()
    admin.request("DELETE", f"{path}/books", json={"book_ids": books[:1]}).raise_for_status()
    admin.post(f"{path}/books", json={"book_ids": books}).raise_for_status()
    assert counted == [3, 3, 2, 3]
    found = admin.get(path).json()["data"]["book_ids"]
    assert found == [books[2], books[1], books[0]]
