"""Roles by every route: a caller without its permission gets 403, a guest 401, and the reply has the
error format."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyhouse.systems.audiobooks.permissions import ROLES
from tests.support import engine_openers
from tests.systems.audiobooks.support.service import LibraryService
from tests.systems.audiobooks.test_audiobooks_auth import is_error

ID = "01J00000000000000000000000"
OPEN = {
    ("GET", "/api/v1/auth/status"),
    ("POST", "/api/v1/auth/setup"),
    ("POST", "/api/v1/auth/login"),
}
STREAMS = ("/events", "/operations/events")
PERMISSIONS = {
    "library.view": (
        "GET /books",
        "GET /audiobooks",
        "GET /books/{id}",
        "GET /books/count",
        "GET /books/soft-deleted",
        "GET /books/{id}/segments",
        "GET /books/{id}/cover",
        "GET /books/{id}/state",
        "POST /books/{id}/position",
        "PATCH /books/{id}/status",
        "DELETE /books/{id}/status",
        "GET /books/{id}/events",
        "GET /books/{id}/bookmarks",
        "POST /books/{id}/bookmarks",
        "PUT /preferences/{id}",
        "GET /segments/{id}/audio",
        "GET /authors",
        "GET /series",
        "GET /works/{id}/books",
        "GET /me/continue",
        "GET /me/finished",
        "GET /playlists",
        "GET /search",
        "GET /stats/books/{id}",
        "GET /stats/me",
    ),
    "library.edit_metadata": (
        "POST /books",
        "PUT /books/{id}",
        "PATCH /audiobooks/{id}",
        "POST /books/batch",
        "PUT /books/{id}/segments/order",
        "POST /authors",
        "POST /authors/merge",
        "PATCH /series/{id}",
        "PUT /works/{id}",
    ),
    "library.delete": (
        "DELETE /books/{id}",
        "POST /books/{id}/restore",
        "DELETE /authors/{id}",
        "DELETE /series/{id}",
        "DELETE /works/{id}",
    ),
    "library.organize": (
        "POST /books/{id}/merge",
        "POST /operations/organize",
        "POST /operations/transcode",
    ),
    "scan.trigger": (
        "POST /operations/scan",
        "GET /operations",
        "GET /operations/{id}",
        "GET /operations/{id}/logs",
        "DELETE /operations/{id}",
    ),
    "settings.manage": ("POST /operations/prune",),
    "playlists.create": (
        "POST /playlists",
        "PATCH /playlists/{id}",
        "DELETE /playlists/{id}",
        "POST /playlists/{id}/books",
        "POST /playlists/{id}/reorder",
    ),
    "users.manage": ("GET /users", "POST /users", "PATCH /users/{id}", "DELETE /users/{id}"),
}
CASES = [(permission, each) for permission, found in PERMISSIONS.items() for each in found]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryService]:
    folder: Path = tmp_path_factory.mktemp("roles")
    with LibraryService(engine_openers.ALL["sqlite"](folder), folder / "data") as served:
        yield served


@pytest.fixture(scope="module")
def clients(library: LibraryService) -> Iterator[dict[str, httpx.Client]]:
    admin = library.admin()
    found = {role: library.user(admin, f"a {role}", role) for role in ROLES}
    found["none"] = library.user(admin, "without a role")
    yield found
    for client in (admin, *found.values()):
        client.close()


@pytest.mark.parametrize(("permission", "request_line"), CASES)
def test_a_route_needs_its_permission(
    library: LibraryService,
    clients: dict[str, httpx.Client],
    permission: str,
    request_line: str,
) -> None:
    method, path = request_line.replace("{id}", ID).split(" ")
    with library.client() as guest:
        assert is_error(guest.request(method, path), 401, "UNAUTHORIZED")
    for role in ("none", "viewer", "editor"):
        reply = clients[role].request(method, path)
        if permission in ROLES.get(role, ()):
            assert reply.status_code not in (401, 403), (role, reply.text)
        else:
            assert is_error(reply, 403, "FORBIDDEN")
    assert clients["admin"].request(method, path).status_code not in (401, 403)


def test_every_route_but_three_needs_a_caller(library: LibraryService) -> None:
    with library.client() as guest:
        base = library.url.removesuffix("/api/v1")
        document = guest.get(f"{base}/openapi.json").json()
        checked = 0
        for path, methods in document["paths"].items():
            for method in methods:
                if (method.upper(), path) in OPEN or not path.startswith("/api/v1"):
                    continue
                for field in ("{id}", "{bookmark_id}", "{book_id}", "{key}", "{status}"):
                    path = path.replace(field, "finished" if field == "{status}" else ID)
                reply = guest.request(method, base + path)
                assert is_error(reply, 401, "UNAUTHORIZED"), (method, path)
                checked += 1
        assert checked > 100


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NOT_FOUND"),
        ("PUT", "/auth/login", 405, "BAD_REQUEST"),
        ("GET", "/auth/status?x=1", 400, "BAD_REQUEST"),
    ],
)
def test_errors_of_the_http_layer_have_the_same_format(
    library: LibraryService, method: str, path: str, status: int, code: str
) -> None:
    with library.client() as guest:
        assert is_error(guest.request(method, path), status, code)
