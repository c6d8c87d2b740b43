"""Which routes an API key may call: a key is the credential of a program, which may leak, so it
changes no account. A new route that changes anything has to be in one of these tables."""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from keyhouse.engine import Engine
from keyhouse.errors import AccessError
from keyhouse.http import Route
from keyhouse.http.html import HtmlPage
from keyhouse_audiobooks.accounts.permissions import ROLES
from keyhouse_audiobooks.library import Member
from systems.audiobooks.tests.support.service import LibraryService
from tests.support import engine_openers

SESSIONS_ONLY = {
    "PATCH /auth/me",
    "PUT /auth/me/password",
    "DELETE /auth/sessions/{id}",
    "POST /auth/api-keys",
    "PATCH /auth/api-keys/{id}",
    "DELETE /auth/api-keys/{id}",
    "POST /users",
    "PATCH /users/{id}",
    "DELETE /users/{id}",
    "POST /tenants",
}
KEYS_TOO = {
    "POST /auth/logout",
    "POST /books",
    "POST /books/batch",
    "PUT /books/{id}",
    "PATCH /books/{id}",
    "DELETE /books/{id}",
    "POST /books/{id}/restore",
    "POST /authors/merge",
    "POST /authors",
    "PUT /authors/{id}",
    "PATCH /authors/{id}",
    "DELETE /authors/{id}",
    "POST /series",
    "PUT /series/{id}",
    "PATCH /series/{id}",
    "DELETE /series/{id}",
    "POST /works",
    "PUT /works/{id}",
    "PATCH /works/{id}",
    "DELETE /works/{id}",
    "PUT /books/{id}/segments/order",
    "POST /books/{id}/merge",
    "PUT /preferences/{key}",
    "DELETE /preferences/{key}",
    "POST /books/{id}/position",
    "PATCH /books/{id}/status",
    "DELETE /books/{id}/status",
    "POST /books/{id}/bookmarks",
    "PATCH /books/{id}/bookmarks/{bookmark_id}",
    "DELETE /books/{id}/bookmarks/{bookmark_id}",
    "POST /playlists",
    "PUT /playlists/{id}",
    "PATCH /playlists/{id}",
    "DELETE /playlists/{id}",
    "POST /playlists/{id}/books",
    "DELETE /playlists/{id}/books",
    "DELETE /playlists/{id}/books/{book_id}",
    "POST /playlists/{id}/reorder",
    "POST /operations/scan",
    "POST /operations/organize",
    "POST /operations/transcode",
    "POST /operations/prune",
    "DELETE /operations/{id}",
}
API = "/api/v1"
KEY = Member(
    tenant="main",
    subject="01J00000000000000000000000",
    scopes=frozenset().union(*ROLES.values()),
    device="key",
    is_session=False,
)


async def requires_session(route: Route, user: str, _: Engine) -> bool:
    """Call a handler with an API key and nothing else: it requires a session before it looks at its
    other arguments. A page shows the error."""
    parameters = route.parameters or inspect.signature(route.handler).parameters
    arguments: dict[str, Any] = dict.fromkeys(parameters)
    if "caller" not in arguments:
        return False
    known = {"caller": replace(KEY, subject=user), "root": ""}
    arguments |= {name: value for name, value in known.items() if name in arguments}
    try:
        reply = await route.handler(**arguments)
    except AccessError as error:
        return "API key" in error.sentence
    except Exception:
        return False
    return isinstance(reply, HtmlPage) and "API key" in reply.html


def test_each_route_that_changes_anything_is_decided_for_api_keys(tmp_path: Path) -> None:
    """An API key could change the email of its user, end its sessions and delete its other keys;
    users were deleted by one, after creating and changing them was forbidden."""
    opener = engine_openers.ALL["memory"](tmp_path)
    with LibraryService(opener, tmp_path / "data", tenants=True) as service:
        assert service.spec is not None
        with service.admin() as admin:
            user = admin.get("/auth/me").json()["data"]["user"]["id"]
        changing = {
            f"{route.method} {route.path.removeprefix(API)}": route
            for route in service.spec.routes
            if route.method != "GET" and route.scope is not None and route.path.startswith(API)
        }
        aliases = {line for line in changing if " /audiobooks" in line}
        assert changing.keys() - aliases == SESSIONS_ONLY | KEYS_TOO
        pages = {
            f"{route.method} {route.path}": route
            for route in service.spec.routes
            if route.method != "GET" and route.scope is not None and API not in route.path
        }
        for line, route in (changing | pages).items():
            needs_session = service.on_engine(partial(requires_session, route, user))
            assert needs_session == (line in SESSIONS_ONLY or line in pages), line
