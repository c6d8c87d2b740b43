"""API keys that are used again: what they cost, and how soon a change of them holds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from keyhouse.clock import Clock
from keyhouse.engine import Engine, Page, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.limits import CHANGES_KEPT
from keyhouse.store import Store
from keyhouse_audiobooks.accounts import api_keys
from keyhouse_audiobooks.records import RolePermissions
from keyhouse_audiobooks.schema import ROLE_PERMISSIONS, USER, USER_SECRETS
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made


class CallCounter(EngineWrapper):
    """Counts the calls that read."""

    calls = 0

    async def read(self, space: str, keys: Sequence[str], **options: Any) -> list[Row | None]:
        self.calls += 1
        return await super().read(space, keys, **options)

    async def scan(self, space: str, span: Span, **options: Any) -> Page:
        self.calls += 1
        return await super().scan(space, span, **options)


def test_a_request_by_api_key_reads_no_more_than_one_by_session(tmp_path: Path) -> None:
    counters: list[CallCounter] = []

    async def opener(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        counters.append(CallCounter(MemoryEngine(clock=clock)))
        return counters[0]

    def calls(client: httpx.Client) -> int:
        client.get("/authors")
        found = []
        for _ in range(3):  # tasks of the service read too, at times
            before = counters[0].calls
            assert client.get("/authors").status_code == 200
            found.append(counters[0].calls - before)
        return min(found)

    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        program = service.client(made(admin, "auth/api-keys", name="k")["key"])
        assert calls(program) == calls(admin)
        program.close()


Change = Callable[[Store, str], object]


async def _delete_keys(store: Store, id: str) -> None:
    secrets = await store.get(USER_SECRETS, user_id=id)
    assert secrets is not None
    await store.put(USER_SECRETS, replace(secrets, hashes={}, api_keys=[]))


async def _disable_user(store: Store, id: str) -> None:
    user = await store.get(USER, id=id)
    assert user is not None
    await store.put(USER, replace(user, status="disabled"))


async def _delete_user(store: Store, id: str) -> None:
    await store.delete(USER, id=id)


async def _take_permissions(store: Store, id: str) -> None:
    await store.put(ROLE_PERMISSIONS, RolePermissions(role="viewer", permissions=[]))


@pytest.mark.parametrize(
    ("change", "status"),
    [(_delete_keys, 401), (_disable_user, 401), (_delete_user, 401), (_take_permissions, 403)],
)
def test_what_another_process_changes_holds_for_the_next_request_by_api_key(
    service: LibraryService, admin: httpx.Client, change: Change, status: int
) -> None:
    with service.user(admin, "bob", "viewer") as bob:
        id = bob.get("/auth/me").json()["data"]["id"]
        with service.client(made(bob, "auth/api-keys", name="k")["key"]) as program:
            for _ in range(2):
                assert program.get("/books").status_code == 200
            service.run(lambda store: change(store, id))  # type: ignore[arg-type,return-value]
            for _ in range(2):
                assert program.get("/books").status_code == status


def test_api_keys_beyond_those_in_memory_are_found_in_the_store(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "OWNERS_MAX", 2)
    keys = [made(admin, "auth/api-keys", name=name) for name in "abc"]
    clients = [service.client(key["key"]) for key in keys]
    for _ in range(2):
        assert [each.get("/books").status_code for each in clients] == [200] * 3
    admin.delete(f"/auth/api-keys/{keys[0]['id']}")
    assert [each.get("/books").status_code for each in clients] == [401, 200, 200]
    wrong = keys[1]["key"][:-1] + ("A" if keys[1]["key"][-1] != "A" else "B")
    with service.client(wrong) as guess:
        assert is_error(guess.get("/books"), 401, "UNAUTHORIZED")
    for client in clients:
        client.close()


def test_an_api_key_makes_no_api_keys(service: LibraryService, admin: httpx.Client) -> None:
    """A leaked key could make another one, which worked after the first was deleted."""
    with service.client(made(admin, "auth/api-keys", name="k")["key"]) as program:
        reply = program.post("/auth/api-keys", json={"name": "child"})
        assert is_error(reply, 403, "FORBIDDEN") and "sign in" in reply.json()["error"]
        page = f"{service.url.removesuffix('/api/v1')}/account/keys"
        assert program.post(page, data={"name": "child"}).status_code in (303, 403)
    assert admin.get("/auth/api-keys").json()["data"]["count"] == 1


def test_an_api_key_makes_changes_and_deletes_no_users(
    service: LibraryService, admin: httpx.Client
) -> None:
    """A leaked key of an admin could make another admin, or set a password, that outlived it."""
    bob = made(admin, "users", username="bob", password=PASSWORD, roles=["viewer"])
    changes: list[dict[str, Any]] = [
        {"roles": ["admin"]},
        {"password": "another horse"},
        {"status": "disabled"},
        {"email": "a@example.org"},
    ]
    new = {"username": "eve", "password": PASSWORD, "roles": ["admin"]}
    with service.client(made(admin, "auth/api-keys", name="k")["key"]) as program:
        before = program.get("/users").json()
        assert is_error(program.post("/users", json=new), 403, "FORBIDDEN")
        for change in changes:
            reply = program.patch(f"/users/{bob['id']}", json=change)
            assert is_error(reply, 403, "FORBIDDEN") and "sign in" in reply.json()["error"]
        assert is_error(program.delete(f"/users/{bob['id']}"), 403, "FORBIDDEN")
        assert program.get("/users").json() == before
    for change in changes:
        assert admin.patch(f"/users/{bob['id']}", json=change).status_code == 200
