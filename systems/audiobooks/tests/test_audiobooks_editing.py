"""The forms of pages that change the library: books, authors, series, playlists and conversion."""

import re
from contextlib import closing

import httpx
import pytest

from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_books import ABSENT, made
from systems.audiobooks.tests.test_audiobooks_pages import browser
from systems.audiobooks.tests.test_audiobooks_scan import album, books, scan


@pytest.fixture
def users(service: LibraryService, admin: httpx.Client) -> LibraryService:
    for role in ("editor", "viewer"):
        service.user(admin, role, role).close()
    return service


def fields(client: httpx.Client, path: str) -> dict[str, str]:
    """Return the inputs and texts of the form of a page."""
    text = client.get(path).text.partition('class="edit"')[2]
    found = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
    return found | dict(re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>([^<]*)</textarea>', text))


def test_the_form_of_a_book_changes_only_what_differs(
    users: LibraryService, admin: httpx.Client
) -> None:
    album(users.roots[0], 1, 5)
    scan(admin)
    [book] = books(admin)
    path = f"books/{book['id']}/edit"
    with closing(browser(users, "editor")) as editor:
        form = fields(editor, path)
        assert form["title"] == book["title"] and form["author"] == book["author_name"]
        assert editor.post(path, data=form).status_code == 303
        [same] = books(admin)
        assert same == book
        new = {
            "author": "Somebody New",
            "series": "Hainish: Cycle",
            "series_position": "1.5",
            "published_year": "1974",
            "isbn13": "978-0-06-051275-0",
            "tags": "Sea, cold\r\nNoir\r\n\r\nNoir",
            "description": "One.\r\nTwo.",
        }
        assert editor.post(path, data=form | new).status_code == 303
        [changed] = books(admin)
        assert changed["author_name"] == "Somebody New"
        assert (changed["series_name"], changed["series_position"]) == ("Hainish: Cycle", 1.5)
        assert changed["tags"] == ["Sea, cold", "Noir"] and changed["description"] == "One.\nTwo."
        assert (changed["published_year"], changed["isbn13"]) == (1974, "9780060512750")
        assert "title" not in changed["edited"] and "author_id" in changed["edited"]
        reply = editor.post(path, data=form | {"title": "Late"})
        assert reply.status_code == 412 and "changed meanwhile" in reply.text
    scan(admin)
    assert books(admin) == [changed]
    users.check()


def test_an_invalid_form_of_a_book_is_shown_again_and_changes_nothing(
    users: LibraryService, admin: httpx.Client
) -> None:
    book = made(admin, "books", title="A")
    path = f"books/{book['id']}/edit"
    with closing(browser(users, "editor")) as editor:
        form = fields(editor, path)
        for bad in (
            {"title": " "},
            {"title": "!" * 5_001},
            {"series_position": "first"},
            {"series_position": "-1"},
            {"published_year": "1974.5"},
            {"isbn13": "9780060512751"},
            {"tags": "x" * 201},
        ):
            reply = editor.post(path, data=form | {"author": "Not Made"} | bad)
            assert reply.status_code == 422, bad
            assert 'role="alert"' in reply.text and 'value="Not Made"' in reply.text
        assert editor.get(f"books/{ABSENT}/edit").status_code == 404
    assert admin.get(f"/books/{book['id']}").json()["data"] == book
    assert admin.get("/authors").json()["data"]["count"] == 0, "no author without its book"


def test_authors_and_series_are_renamed(users: LibraryService, admin: httpx.Client) -> None:
    author = made(admin, "authors", name="A")["id"]
    made(admin, "authors", name="Other")
    series = made(admin, "series", name="S", author_id=author)["id"]
    with closing(browser(users, "editor")) as editor:
        assert editor.post(f"authors/{author}/name", data={"name": "B"}).status_code == 303
        assert editor.post(f"series/{series}/name", data={"name": "T"}).status_code == 303
        assert editor.post(f"authors/{author}/name", data={"name": "other"}).status_code == 409
        assert editor.post(f"authors/{author}/name", data={"name": " "}).status_code == 422
    assert admin.get(f"/authors/{author}").json()["data"]["name"] == "B"
    assert admin.get(f"/series/{series}").json()["data"]["author_id"] == author


def test_playlists_are_made_filled_ordered_and_deleted(
    users: LibraryService, admin: httpx.Client
) -> None:
    one, two, three = (made(admin, "books", title=title)["id"] for title in ("One", "Two", "Three"))
    with closing(browser(users, "editor")) as editor:
        made_at = editor.post("playlists", data={"name": "Winter", "book_id": one})
        path = made_at.headers["location"].removeprefix("/audiobooks/")
        for book in (two, three, two):
            reply = editor.post(f"books/{book}/playlist", data={"playlist_id": path[10:]})
            assert reply.status_code == 303
        assert "Winter" in editor.get(f"books/{two}").text

        def order() -> list[str]:
            return re.findall(r"<strong>(\w+)</strong>", editor.get(path).text)

        assert order() == ["One", "Two", "Three"]
        for book, to in ((three, "up"), (one, "up"), (one, "down"), (two, "out")):
            reply = editor.post(f"{path}/move", data={"book_id": book, "to": to})
            assert reply.status_code == 303
        assert order() == ["Three", "One"]
        assert editor.post(f"{path}/move", data={"book_id": two, "to": "up"}).status_code == 404
        assert editor.post(f"{path}/name", data={"name": "Spring"}).status_code == 303
        assert "Spring" in editor.get("playlists").text
        assert editor.post(f"{path}/delete", data={"confirmed": "no"}).status_code == 400
        with closing(browser(users, "admin")) as other:
            assert other.get(path).status_code == 404
            assert other.post(f"{path}/delete", data={"confirmed": "on"}).status_code == 404
        assert editor.post(f"{path}/delete", data={"confirmed": "on"}).status_code == 303
        assert editor.get(path).status_code == 404
        shared = {"name": "All", "is_shared": "on"}
        assert editor.post("playlists", data=shared).status_code == 403
        with closing(browser(users, "admin")) as other:
            path = other.post("playlists", data=shared).headers["location"][12:]
            assert "Change the playlist" in other.get(path).text
        assert "Change the playlist" not in editor.get(path).text
    with closing(browser(users, "viewer")) as viewer:
        text = viewer.get("playlists").text
        assert "All" in text and "New playlist" not in text
        assert viewer.get(path).status_code == 200
    users.check()


def test_those_without_the_permission_change_nothing(
    users: LibraryService, admin: httpx.Client
) -> None:
    book = made(admin, "books", title="A")["id"]
    playlist = made(admin, "playlists", name="All", user_id=None)["id"]
    with closing(browser(users, "viewer")) as viewer:
        assert viewer.get(f"books/{book}/edit").status_code == 403
        page = viewer.get(f"books/{book}").text
        assert "/edit" not in page and "New playlist" not in page and "/merge" not in page
        for path, form in (
            (f"books/{book}/edit", {"revision": "1", "title": "B"}),
            (f"books/{book}/transcode", {"format": "mp3"}),
            (f"books/{book}/playlist", {"playlist_id": playlist}),
            ("playlists", {"name": "Mine"}),
            (f"playlists/{playlist}/name", {"name": "B"}),
            (f"playlists/{playlist}/move", {"book_id": book, "to": "out"}),
            (f"playlists/{playlist}/delete", {"confirmed": "on"}),
            (f"authors/{ABSENT}/name", {"name": "B"}),
            (f"series/{ABSENT}/name", {"name": "B"}),
        ):
            assert viewer.post(path, data=form).status_code == 403, path
    assert admin.get(f"/books/{book}").json()["data"]["title"] == "A"
    assert admin.get(f"/playlists/{playlist}").json()["data"]["name"] == "All"


def test_a_conversion_without_ffmpeg_says_what_is_missing(
    users: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    book = made(admin, "books", title="A")["id"]
    with closing(browser(users, "editor")) as editor:
        assert "where ffmpeg is on its PATH" in editor.get(f"books/{book}/merge").text
        reply = editor.post(f"books/{book}/transcode", data={"format": "mp3"})
        assert reply.status_code == 501 and "ffmpeg" in reply.text
