"""Roles by every route: a caller without its permission gets 403, a guest 401, and the reply has
the error format."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyhouse.store import Store
from keyhouse_audiobooks.accounts.permissions import ROLES
from keyhouse_audiobooks.records import RolePermissions
from keyhouse_audiobooks.schema import ROLE_PERMISSIONS
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from tests.support import engine_openers

PERMISSIONS_OF_ALL = {
    *("library.view", "library.edit_metadata", "library.delete", "library.organize"),
    *("scan.trigger", "integrations.manage", "users.manage", "settings.manage"),
    *("playlists.create", "requests.create", "requests.approve"),
}
ID = "01J00000000000000000000000"
OPEN = {
    ("GET", "/api/v1/auth/status"),
    ("POST", "/api/v1/auth/setup"),
    ("POST", "/api/v1/auth/login"),
}
FIELDS = {"{id}": ID, "{bookmark_id}": ID, "{book_id}": ID, "{key}": "k", "{status}": "finished"}
ROLE_TABLE = {
    "admin": {*PERMISSIONS_OF_ALL},
    "editor": PERMISSIONS_OF_ALL - {"integrations.manage", "users.manage", "settings.manage"},
    "viewer": {"library.view", "requests.create"},
    "none": set[str](),
}
PERMISSIONS = {
    "": (
        "POST /auth/logout",
        "GET /auth/me",
        "PATCH /auth/me",
        "PUT /auth/me/password",
        "GET /auth/sessions",
        "DELETE /auth/sessions/{id}",
        "GET /auth/api-keys",
        "POST /auth/api-keys",
        "GET /auth/api-keys/{id}",
        "PATCH /auth/api-keys/{id}",
        "DELETE /auth/api-keys/{id}",
    ),
    "users.manage": (
        "GET /users",
        "POST /users",
        "GET /users/{id}",
        "PATCH /users/{id}",
        "DELETE /users/{id}",
    ),
    "library.view": (
        "GET /search",
        "GET /books",
        "GET /books/count",
        "GET /books/soft-deleted",
        "GET /books/{id}",
        "GET /authors",
        "GET /authors/count",
        "GET /authors/{id}",
        "GET /authors/{id}/books",
        "GET /series",
        "GET /series/count",
        "GET /series/{id}",
        "GET /series/{id}/books",
        "GET /works",
        "GET /works/count",
        "GET /works/{id}",
        "GET /works/{id}/books",
        "GET /segments/{id}/audio",
        "GET /books/{id}/segments",
        "GET /books/{id}/cover",
        "GET /me/continue",
        "GET /me/{status}",
        "GET /preferences",
        "GET /preferences/{key}",
        "PUT /preferences/{key}",
        "DELETE /preferences/{key}",
        "GET /stats/books/{id}",
        "GET /stats/works/{id}",
        "GET /stats/me",
        "POST /books/{id}/position",
        "GET /books/{id}/position",
        "GET /books/{id}/state",
        "PATCH /books/{id}/status",
        "DELETE /books/{id}/status",
        "GET /books/{id}/events",
        "GET /books/{id}/bookmarks",
        "POST /books/{id}/bookmarks",
        "GET /books/{id}/bookmarks/{bookmark_id}",
        "PATCH /books/{id}/bookmarks/{bookmark_id}",
        "DELETE /books/{id}/bookmarks/{bookmark_id}",
        "GET /playlists",
        "GET /playlists/{id}",
        "GET /events",
    ),
    "library.edit_metadata": (
        "POST /books",
        "POST /books/batch",
        "PUT /books/{id}",
        "PATCH /books/{id}",
        "POST /authors/merge",
        "POST /authors",
        "PUT /authors/{id}",
        "PATCH /authors/{id}",
        "POST /series",
        "PUT /series/{id}",
        "PATCH /series/{id}",
        "POST /works",
        "PUT /works/{id}",
        "PATCH /works/{id}",
        "PUT /books/{id}/segments/order",
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
    "playlists.create": (
        "POST /playlists",
        "PUT /playlists/{id}",
        "PATCH /playlists/{id}",
        "DELETE /playlists/{id}",
        "POST /playlists/{id}/books",
        "DELETE /playlists/{id}/books",
        "DELETE /playlists/{id}/books/{book_id}",
        "POST /playlists/{id}/reorder",
    ),
    "settings.manage": (
        "GET /rows",
        "GET /rows/one",
        "POST /operations/prune",
    ),
    "scan.trigger": (
        "POST /operations/scan",
        "GET /operations",
        "GET /operations/events",
        "GET /operations/{id}",
        "GET /operations/{id}/status",
        "GET /operations/{id}/logs",
        "GET /operations/{id}/events",
        "DELETE /operations/{id}",
    ),
}
CASES = [(permission, each) for permission, found in PERMISSIONS.items() for each in found]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryService]:
    folder: Path = tmp_path_factory.mktemp("roles")
    with LibraryService(engine_openers.ALL["sqlite"](folder), folder / "data", docs=True) as served:
        yield served


@pytest.fixture(scope="module")
def clients(library: LibraryService) -> Iterator[dict[str, httpx.Client]]:
    admin = library.admin()
    found = {role: library.user(admin, f"a {role}", role) for role in ROLES}
    found["none"] = library.user(admin, "without a role")
    yield found
    for client in (admin, *found.values()):
        client.close()


def filled(path: str) -> str:
    for field, value in FIELDS.items():
        path = path.replace(field, value)
    return path


def status_of(client: httpx.Client, method: str, path: str) -> int:
    """Return the status of a request without a body; a stream is not read."""
    with client.stream(method, path) as reply:
        return reply.status_code


@pytest.mark.parametrize(("permission", "request_line"), CASES)
def test_a_route_needs_its_permission(
    library: LibraryService,
    clients: dict[str, httpx.Client],
    permission: str,
    request_line: str,
) -> None:
    method, path = filled(request_line).split(" ")
    with library.client() as guest:
        assert is_error(guest.request(method, path), 401, "UNAUTHORIZED")
    if path == "/auth/logout":
        return  # it would end the sessions of the other cases
    for role, permissions in ROLE_TABLE.items():
        if permission in permissions or not permission:
            assert status_of(clients[role], method, path) not in (401, 403), role
        else:
            assert is_error(clients[role].request(method, path), 403, "FORBIDDEN")


def test_the_roles_are_those_of_the_table() -> None:
    assert {role: set(permissions) for role, permissions in ROLES.items()} == {
        role: permissions for role, permissions in ROLE_TABLE.items() if role != "none"
    }


def test_the_table_has_every_route(library: LibraryService) -> None:
    with library.client() as guest:
        document = guest.get(f"{library.url.removesuffix('/api/v1')}/openapi.json").json()
    found = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/api/v1") and (method.upper(), path) not in OPEN
    }
    listed = {request_line for _, request_line in CASES}
    aliases = {each for each in found if " /audiobooks" in each}
    assert found - aliases == listed
    assert {each.replace(" /audiobooks", " /books") for each in aliases} == {
        each for each in listed if re.match(r"\S+ /books", each)
    }


@pytest.mark.parametrize("role", ["editor", "viewer"])
def test_changed_permissions_of_a_role_take_effect_at_once(
    library: LibraryService, clients: dict[str, httpx.Client], role: str
) -> None:
    async def store_permissions(store: Store, permissions: list[str]) -> None:
        row = RolePermissions(role=role, permissions=permissions)
        await store.put(ROLE_PERMISSIONS, row)

    before = clients[role].get("/books").status_code
    library.run(lambda store: store_permissions(store, ["scan.trigger"]))
    assert is_error(clients[role].get("/books"), 403, "FORBIDDEN")
    assert clients[role].get("/operations").status_code == 200
    library.run(lambda store: store_permissions(store, list(ROLES[role])))
    assert (before, clients[role].get("/books").status_code) == (200, 200)


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
