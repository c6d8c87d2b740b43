"""Set-up, sign-in, sessions, API keys, users and roles, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from keyhouse.store import Store
from keyhouse_audiobooks.accounts.accounts import COOKIE
from keyhouse_audiobooks.schema import SESSION, USER, USER_SECRETS
from systems.audiobooks.tests.support.service import (
    CHEAP,
    PASSWORD,
    LibraryService,
    on_both_engines,
)
from tests.support import engine_openers
from tests.support.cases import cases

LOGIN = {"username": "admin", "password": PASSWORD}


def is_error(reply: httpx.Response, status: int, code: str) -> bool:
    body = reply.json()
    assert (reply.status_code, body["code"], body["status"]) == (status, code, status), body
    assert isinstance(body["error"], str) and set(body) <= {"error", "code", "status", "data"}
    return True


def test_the_status_tells_whether_there_is_a_user(service: LibraryService) -> None:
    with service.client() as guest:
        before = {
            "has_users": False,
            "auth_enabled": True,
            "requires_auth": True,
            "bootstrap_ready": True,
        }
        assert guest.get("/auth/status").json() == {"data": before}
        service.admin().close()
        after = {**before, "has_users": True, "bootstrap_ready": False}
        assert guest.get("/auth/status").json() == {"data": after}


@on_both_engines
def test_five_set_ups_at_once_make_one_admin(service: LibraryService) -> None:
    def set_up(number: int) -> int:
        with service.client() as guest:
            body = {"username": f"admin{number}", "password": PASSWORD}
            return guest.post("/auth/setup", json=body).status_code

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(set_up, range(5))) == [201, 409, 409, 409, 409]

    async def users(store: Store) -> int:
        return await store.count(USER)

    assert service.run(users) == 1


@cases(
    "body",
    [
        {"username": "ann", "password": "short12"},
        {"username": "", "password": PASSWORD},
        {"username": "ann"},
        {"username": "ann", "password": PASSWORD, "email": "no address"},
        {"username": "ann", "password": PASSWORD, "role": "admin"},
        [],
    ],
)
def test_an_invalid_set_up_is_422_and_changes_nothing(service: LibraryService, body: Any) -> None:
    with service.client() as guest:
        assert is_error(guest.post("/auth/setup", json=body), 422, "VALIDATION_ERROR")
        assert guest.get("/auth/status").json()["data"]["bootstrap_ready"]


INVISIBLE = [
    *("\u200b", "\u3164", "\u00ad", "\u2060", "\ufeff", "\u115f\u1160", "\u2800", "\uffa0"),
    *(
        "\u0301",
        "\u00a0\u200b",
        "\ue000",
        "\u202eadmin",
        "ad\u2066min",
        "ann\u2028",
        "ann\x7f",
        "a\x85",
    ),
]


@cases("name", INVISIBLE)
def test_a_name_that_nobody_can_read_is_not_given_to_a_user(
    service: LibraryService, admin: httpx.Client, name: str
) -> None:
    body = {"username": name, "password": PASSWORD}
    with service.client() as guest:
        assert is_error(guest.post("/auth/setup", json=body), 422, "VALIDATION_ERROR")
    assert is_error(admin.post("/users", json=body), 422, "VALIDATION_ERROR")
    assert admin.get("/users").json()["data"]["count"] == 1


def test_every_spelling_that_finds_a_user_has_the_device_of_the_user(
    service: LibraryService, admin: httpx.Client
) -> None:
    """The guard folded the case only: with `Vic `, others at the address kept out a known device,
    and each spelling had its own attempts."""
    body = {"username": "Vic É", "password": PASSWORD}
    assert admin.post("/users", json=body).status_code == 201
    with service.client() as browser, service.client() as guest:
        assert browser.post("/auth/login", json=body).status_code == 200
        for number in range(15):
            guest.post("/auth/login", json={"username": f"x{number}", "password": "wrong"})
        assert guest.post("/auth/login", json=body).status_code == 429
        for spelling in ("vic é ", " VIC  É", "\uff36ic É", "Vic E\u0301", "vic\u00a0\u00c9"):
            reply = browser.post("/auth/login", json={**body, "username": spelling})
            assert reply.status_code == 200, ascii(spelling)


def test_a_login_answers_user_session_and_token(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.client() as guest:
        reply = guest.post("/auth/login", json={**LOGIN, "username": "ADMIN"})
        found = reply.json()["data"]
        assert set(found) == {"user", "session", "token"}
        assert set(found["user"]) == {"id", "username", "email", "roles", "status", "created_at"}
        assert found["user"]["roles"] == ["admin"] and found["user"]["username"] == "admin"
        assert found["session"]["expires_at"] == "2026-01-02T00:00:00Z"
        cookie = reply.headers["set-cookie"]
        assert cookie.startswith(f"session_id={found['token']}; ")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Max-Age=86400" in cookie
        assert guest.get("/auth/me").json()["data"]["username"] == "admin"  # by the cookie
        remembered = guest.post("/auth/login", json={**LOGIN, "remember_me": True})
        assert remembered.json()["data"]["session"]["expires_at"] == "2026-01-08T00:00:00Z"


def test_one_setting_is_the_lifetime_of_a_session_and_of_its_cookie(tmp_path: Path) -> None:
    """Constants, a condition that was written twice and a sentence of the login page said it."""
    with (
        LibraryService(
            engine_openers.ALL["memory"](tmp_path),
            tmp_path / "data",
            session_hours=1.5,
            remembered_session_hours=72,
        ) as service,
        service.admin(),
        service.client() as guest,
    ):
        for remember, seconds, expires in (
            (False, 5_400, "2026-01-01T01:30:00Z"),
            (True, 259_200, "2026-01-04T00:00:00Z"),
        ):
            reply = guest.post("/auth/login", json={**LOGIN, "remember_me": remember})
            assert reply.json()["data"]["session"]["expires_at"] == expires
            cookie = reply.headers.get_list("set-cookie")[0]
            assert f"Max-Age={seconds}" in cookie.split("; ")
        page = guest.get(guest.base_url.join("/audiobooks/login"))
        assert "Stay signed in for 3 days" in page.text


def test_an_unknown_user_and_a_wrong_password_get_the_same_401(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.client() as guest:
        wrong = guest.post("/auth/login", json={**LOGIN, "password": "wrong horse"})
        unknown = guest.post("/auth/login", json={**LOGIN, "username": "nobody"})
    assert is_error(wrong, 401, "UNAUTHORIZED") and is_error(unknown, 401, "UNAUTHORIZED")
    assert wrong.json() == unknown.json()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_sixteenth_failed_login_of_an_address_is_429(tmp_path: Any, engine: str) -> None:
    with (
        LibraryService(engine_openers.ALL[engine](tmp_path), tmp_path / "data") as service,
        service.client() as guest,
    ):
        body = {"username": "x", "password": "wrong"}
        statuses = [
            guest.post("/auth/login", json={**body, "username": f"user{number}"}).status_code
            for number in range(15)
        ]
        assert statuses == [401] * 15
        blocked = guest.post("/auth/login", json=body)
        assert is_error(blocked, 429, "TOO_MANY_REQUESTS")
        assert 0 < int(blocked.headers["retry-after"]) <= 900


def test_a_signed_out_session_is_401(service: LibraryService, admin: httpx.Client) -> None:
    assert admin.post("/auth/logout").status_code == 200
    assert is_error(admin.get("/auth/me"), 401, "UNAUTHORIZED")
    assert is_error(admin.get("/users"), 401, "UNAUTHORIZED")


def test_a_session_ends_when_it_expires(service: LibraryService, admin: httpx.Client) -> None:
    service.clock.advance(seconds=24 * 3_600)
    assert is_error(admin.get("/auth/me"), 401, "UNAUTHORIZED")

    async def sweep(store: Store) -> int:
        await store.engine.sweep(limit=100)
        return await store.count(SESSION)

    assert service.run(sweep) == 0


def test_a_password_change_ends_the_other_sessions(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.signed_in("admin") as other, service.client() as guest:
        body = {"current_password": "wrong", "new_password": "another horse"}
        assert is_error(admin.put("/auth/me/password", json=body), 403, "FORBIDDEN")
        body["current_password"] = PASSWORD
        assert admin.put("/auth/me/password", json=body).status_code == 200
        assert admin.get("/auth/me").status_code == 200
        assert is_error(other.get("/auth/me"), 401, "UNAUTHORIZED")
        assert guest.post("/auth/login", json=LOGIN).status_code == 401
        assert guest.post("/auth/login", json={**LOGIN, "password": "another horse"}).is_success


def test_sessions_are_listed_and_ended_one_by_one(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.signed_in("admin") as other, service.user(admin, "ann", "viewer") as ann:
        listed = admin.get("/auth/sessions").json()["data"]
        assert listed["count"] == 2 and [each["current"] for each in listed["items"]].count(True)
        second = next(each for each in listed["items"] if not each["current"])
        assert is_error(ann.delete(f"/auth/sessions/{second['id']}"), 404, "NOT_FOUND")
        assert admin.delete(f"/auth/sessions/{second['id']}").status_code == 204
        assert other.get("/auth/me").status_code == 401


def test_an_api_key_is_shown_once_and_works_as_bearer(
    service: LibraryService, admin: httpx.Client
) -> None:
    made = admin.post("/auth/api-keys", json={"name": "player"})
    assert made.status_code == 201
    key = made.json()["data"]
    with service.client(key["key"]) as player:
        assert player.get("/auth/me").json()["data"]["username"] == "admin"
        listed = admin.get("/auth/api-keys")
        assert key["key"].split(".")[1] not in listed.text and "player" in listed.text
        renamed = admin.patch(f"/auth/api-keys/{key['id']}", json={"name": "phone"})
        assert renamed.json()["data"]["name"] == "phone"
        assert admin.delete(f"/auth/api-keys/{key['id']}").status_code == 204
        assert player.get("/auth/me").status_code == 401
    assert is_error(admin.get(f"/auth/api-keys/{key['id']}"), 404, "NOT_FOUND")


def test_an_api_key_survives_a_password_change_and_is_not_a_cookie(
    service: LibraryService, admin: httpx.Client
) -> None:
    key = admin.post("/auth/api-keys", json={"name": "player"}).json()["data"]["key"]
    body = {"current_password": PASSWORD, "new_password": "another horse"}
    assert admin.put("/auth/me/password", json=body).status_code == 200
    with service.client(key) as player, service.client() as browser:
        assert player.get("/auth/me").status_code == 200, "a separate credential"
        rejected = browser.get("/auth/me", headers={"Cookie": f"{COOKIE.name}={key}"})
        assert is_error(rejected, 401, "UNAUTHORIZED")
        assert "send it in a header" in rejected.json()["error"]


def test_no_secret_is_stored_or_sent_in_clear(service: LibraryService, admin: httpx.Client) -> None:
    token = admin.headers["authorization"].split(".")[1]
    key = admin.post("/auth/api-keys", json={"name": "player"}).json()["data"]["key"].split(".")[1]

    async def stored(store: Store) -> str:
        rows = []
        for record in (USER, SESSION, USER_SECRETS):
            rows += [row.value async for _, row in store.record_rows(record)]
        return b"".join(rows).decode()

    rows = service.run(stored)
    assert token not in rows and key not in rows and PASSWORD not in rows
    assert "$argon2id$" in rows
    for path in ("/auth/me", "/users", "/auth/sessions", "/auth/api-keys"):
        assert "hash" not in admin.get(path).text


def test_users_are_managed_and_the_last_admin_stays(
    service: LibraryService, admin: httpx.Client
) -> None:
    me = admin.get("/auth/me").json()["data"]["id"]
    with service.user(admin, "ann", "editor") as ann:
        twice = {"username": "ANN", "password": PASSWORD, "roles": []}
        assert is_error(admin.post("/users", json=twice), 409, "CONFLICT")
        unknown = {"username": "bob", "password": PASSWORD, "roles": ["king"]}
        assert is_error(admin.post("/users", json=unknown), 422, "VALIDATION_ERROR")
        assert is_error(ann.get("/users"), 403, "FORBIDDEN")
        for change in ({"roles": ["viewer"]}, {"status": "disabled"}):
            assert is_error(admin.patch(f"/users/{me}", json=change), 409, "CONFLICT")
        assert is_error(admin.delete(f"/users/{me}"), 409, "CONFLICT")
        her = ann.get("/auth/me").json()["data"]["id"]
        assert admin.patch(f"/users/{her}", json={"roles": ["admin"]}).is_success
        assert ann.get("/users").json()["data"]["count"] == 2  # at once
        assert admin.patch(f"/users/{her}", json={"status": "disabled"}).is_success
        assert ann.get("/auth/me").status_code == 401
        assert admin.delete(f"/users/{her}").status_code == 204
    assert admin.get("/users").json()["data"]["count"] == 1


@on_both_engines
def test_two_admins_cannot_remove_each_other_at_once(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.user(admin, "ann", "admin") as ann:
        ids = [each.get("/auth/me").json()["data"]["id"] for each in (admin, ann)]
        with ThreadPoolExecutor(2) as pool:
            replies = pool.map(
                lambda pair: pair[0].patch(f"/users/{pair[1]}", json={"roles": ["viewer"]}),
                [(admin, ids[1]), (ann, ids[0])],
            )
            statuses = sorted(each.status_code for each in replies)
        assert statuses[0] == 200 and statuses[1] in (403, 409)


def test_a_changed_cost_is_applied_at_the_next_login(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service, service.admin():
        pass

    async def stored(store: Store) -> str:
        [entry] = [entry async for entry in store.scan(USER)]
        return entry.record.password_hash

    costly = replace(CHEAP, time_cost=2, memory_cost_kib=16)
    with LibraryService(opener, tmp_path / "data", cost=costly) as service:
        assert "m=8,t=1" in service.run(stored)
        service.signed_in("admin").close()
        assert "m=16,t=2" in service.run(stored)
