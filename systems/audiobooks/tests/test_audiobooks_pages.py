"""The pages over HTTP: who may see them, what they escape, and the files that they load."""

import re
from pathlib import Path

import httpx
import pytest

from keyhouse_audiobooks import web
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from tests.support import engine_openers

ASSETS = Path(web.__file__).parent / "assets"
LISTENERS_PAGES = ("", "books", "authors", "series", "tags", "playlists", "search?q=x", "account")
SCOPED = {
    "operations": ("admin", "editor"),
    "bin": ("admin", "editor"),
    "users": ("admin",),
}


def browser(service: LibraryService, user: str = "") -> httpx.Client:
    """Return a client that has a cookie and follows no redirect."""
    client = service.http(cookies={})
    client.base_url = httpx.URL(service.url.removesuffix("api/v1"))
    if user:
        reply = client.post("login", data={"username": user, "password": PASSWORD})
        assert reply.status_code == 303, reply.text
        assert "HttpOnly; SameSite=Strict" in reply.headers["set-cookie"]
    return client


@pytest.fixture
def users(service: LibraryService, admin: httpx.Client) -> LibraryService:
    for role in ("editor", "viewer"):
        service.user(admin, role, role).close()
    return service


def test_pages_are_for_those_with_the_permission(users: LibraryService) -> None:
    for role in ("admin", "editor", "viewer"):
        client = browser(users, role)
        for path in LISTENERS_PAGES:
            assert client.get(path).status_code == 200, (role, path)
        for path, roles in SCOPED.items():
            expected = 200 if role in roles else 403
            reply = client.get(path)
            assert reply.status_code == expected, (role, path)
            assert reply.headers["content-type"].startswith("text/html")
        navigation = client.get("").text
        assert ("Operations" in navigation) == (role != "viewer")
        assert ("Users" in navigation) == (role == "admin")


def test_a_visitor_is_led_to_the_login_and_back_but_nowhere_else(users: LibraryService) -> None:
    guest = browser(users)
    reply = guest.get("books?sort=author")
    assert reply.status_code == 303
    assert reply.headers["location"].startswith("/audiobooks/login?next=%2Faudiobooks%2Fbooks")
    for next in ("https://evil.example/", "//evil.example", "/studio/", "/audiobooks/\\evil"):
        body = {"username": "viewer", "password": PASSWORD, "next": next}
        reply = guest.post("login", data=body)
        assert reply.headers["location"] == "/audiobooks/", next
    signed_out = browser(users)
    assert (
        signed_out.post("operations/scan", data={"folder_path": "x"}).headers["location"]
        == "/audiobooks/login"
    )


def test_a_form_of_another_site_is_rejected(users: LibraryService) -> None:
    client = browser(users, "admin")
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    book, author = f"books/{'0' * 26}", f"authors/{'0' * 26}/name"
    own = (f"{book}/edit", f"{book}/transcode", f"{book}/playlist", author, "playlists")
    for path in ("operations/scan", "logout", "users", *own):
        reply = client.post(path, data={"username": "mallory"}, headers=foreign)
        assert reply.status_code == 403, path
    login = {"username": "viewer", "password": PASSWORD}
    assert client.post("login", data=login, headers=foreign).status_code == 403


def test_an_error_of_a_page_is_a_page(users: LibraryService) -> None:
    client = browser(users, "viewer")
    for path, status in (
        ("books/none", 400),
        (f"books/{'0' * 26}", 404),
        ("books?sort=nonsense", 400),
        ("books?cursor=nonsense", 400),
        ("login?unknown=1", 400),
    ):
        reply = client.get(path)
        assert reply.status_code == status, (path, reply.text)
        assert reply.headers["content-type"].startswith("text/html"), path
        assert "<h1>" in reply.text, path
    reply = client.post("books/x/status", data={"status": "nonsense"})
    assert reply.status_code == 400
    assert reply.headers["content-type"].startswith("text/html")


def test_text_of_others_is_escaped(users: LibraryService, admin: httpx.Client) -> None:
    title = "<img src=x onerror=alert(1)>"
    author = admin.post("/authors", json={"name": f'"{title}'}).json()["data"]["id"]
    body = {"title": title, "author_id": author, "description": title, "tags": [title]}
    book = admin.post("/books", json=body).json()["data"]["id"]
    client = browser(users, "viewer")
    for path in ("", "books", f"books/{book}", "authors", f"authors/{author}", "tags"):
        text = client.get(path).text
        assert "<img src=x" not in text and "&lt;img src=x" in text, path
    policy = client.get("").headers["content-security-policy"]
    assert "unsafe" not in policy and "script-src 'self'" in policy


def test_tags_are_listed_as_written_with_their_books(
    users: LibraryService, admin: httpx.Client
) -> None:
    for title, tags in (("A", ["Sea: Cold", "Noir"]), ("B", ["sea: cold"]), ("C", [])):
        assert admin.post("/books", json={"title": title, "tags": tags}).status_code == 201
    text = browser(users, "viewer").get("tags").text
    found = re.findall(r'tag=[^"]*">([^<]*)</a>\s*<span class="quiet">\s*(\d+)\s+books?\s*<', text)
    assert found == [("Noir", "1"), ("Sea: Cold", "2")]


def test_the_scripts_write_text_and_never_markup() -> None:
    for file in ASSETS.glob("*.js"):
        source = file.read_text()
        for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in source, f"{file.name}: {word}"


def test_pages_have_no_inline_script_or_style() -> None:
    for file in (ASSETS.parent / "templates").glob("*.html"):
        source = file.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|hx-on", source), file.name
        assert not re.search(r"<script(?![^>]*\ssrc=)", source), file.name


def test_the_service_worker_keeps_every_file_of_the_pages(service: LibraryService) -> None:
    source = (ASSETS / "service_worker.js").read_text()
    for file in ASSETS.iterdir():
        if file.suffix in (".js", ".css") and file.name != "service_worker.js":
            assert f'"{file.name}"' in source, f"{file.name} is missing offline"
    guest = browser(service)
    paths = re.findall(r"`\$\{HOME\}([\w.-]+)`", source)
    assert {*paths} == {"offline", "app.webmanifest"}
    for path in paths:
        assert guest.get(path).status_code == 200, path
    manifest = guest.get("app.webmanifest")
    assert manifest.headers["content-type"] == "application/manifest+json"
    for icon in manifest.json()["icons"]:
        assert guest.get(icon["src"]).content[:4] == b"\x89PNG"


def test_the_first_page_is_small(users: LibraryService) -> None:
    """The page, its styles and its scripts, compressed as they are sent."""
    client = browser(users, "viewer")
    files = ["library.css", *(file.name for file in ASSETS.glob("*.js"))]
    total = len(client.get("").content)
    for name in files:
        if name == "service_worker.js":
            continue
        reply = client.get(f"assets/{name}", headers={"Accept-Encoding": "gzip"})
        total += int(reply.headers["content-length"])
    assert total < 30_000


def test_the_login_asks_for_the_library_where_there_are_several(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with (
        LibraryService(opener, tmp_path / "data", tenants=True) as service,
        service.admin() as admin,
    ):
        assert admin.post("/tenants", json={"name": "bob"}).status_code == 201
        setup = {"username": "bob", "password": PASSWORD, "tenant": "bob"}
        assert admin.post("/auth/setup", json=setup).status_code == 201
        guest = browser(service)
        assert 'name="tenant"' in guest.get("login").text
        login = {"username": "bob", "password": PASSWORD}
        for tenant, status in (("bob", 303), ("", 401), ("none", 401)):
            client = browser(service)
            reply = client.post("login", data={**login, "tenant": tenant})
            assert reply.status_code == status, tenant
            if status == 303:
                assert "bob" in client.get("").text


def test_pages_below_the_path_of_a_proxy_lead_below_it(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with (
        LibraryService(opener, tmp_path / "data", root_path="/family") as service,
        service.admin() as admin,
    ):
        book = admin.post("/books", json={"title": "A", "tags": ["t"]}).json()["data"]["id"]
        guest = browser(service)
        reply = guest.get("books")
        login = "/family/audiobooks/login?next=%2Faudiobooks%2Fbooks"
        assert reply.headers["location"].startswith(login)
        form = {"username": "admin", "password": PASSWORD, "next": "/audiobooks/books"}
        reply = guest.post("login", data=form)
        assert reply.headers["location"] == "/family/audiobooks/books"
        assert "Path=/family/audiobooks" in reply.headers["set-cookie"]
        pages = (
            "",
            "books",
            "tags",
            "users",
            "operations",
            "account",
            f"books/{book}/edit",
            "books/none",
        )
        for path in (*pages, f"books/{book}", "playlists", "bin", "offline", "login"):
            text = guest.get(path).text
            links = re.findall(r'(?:href|src|action)="([^"#]+)"', text)
            assert links and all(link.startswith("/family/") for link in links), (path, links)
        made = guest.post("playlists", data={"name": "Mine"})
        assert made.headers["location"].startswith("/family/audiobooks/playlists/")
        assert 'aria-current="page">Home' in guest.get("").text


def test_an_empty_books_page_leads_to_the_scan(users: LibraryService) -> None:
    for role in ("admin", "viewer"):
        text = browser(users, role).get("books").text
        assert ('href="/audiobooks/operations">Scan</a>' in text) == (role == "admin")
        assert "The library is empty" in text
        assert "No book matches" in browser(users, role).get("books?status=finished").text


def test_a_number_of_plays_agrees_with_its_noun(users: LibraryService) -> None:
    text = browser(users, "admin").get("account").text
    assert re.search(r"<dt>\s*plays\s*</dt>\s*<dd>0</dd>", text)
