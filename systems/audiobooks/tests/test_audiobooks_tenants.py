"""Several libraries in one service, over HTTP, and the conversion of a store."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from keyhouse.clock import ManualClock
from keyhouse.engine import Span
from keyhouse.errors import UsageError
from keyhouse.store import Store, verify
from keyhouse.testing.conformance import Opener
from keyhouse_audiobooks.commands import app
from keyhouse_audiobooks.schema import SCHEMAS, TENANT_PREFIX
from keyhouse_audiobooks.transfer import convert_tenants
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import made, titles
from systems.audiobooks.tests.test_audiobooks_scan import album, books, scan, segments
from tests.support import engine_openers
from tests.support.polling import wait_until

SCHEMA = SCHEMAS[0]
TENANTS = SCHEMA.under(TENANT_PREFIX)
LOGIN = {"username": "admin", "password": PASSWORD}


@pytest.fixture(params=["sqlite", "rocksdb"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return engine_openers.ALL[request.param](tmp_path)


@pytest.fixture
def served(opener: Opener, tmp_path: Path) -> Iterator[LibraryService]:
    """A service with the libraries `main` and `bob`. Afterwards `verify` finds nothing in them."""
    root = str(tmp_path / "{tenant} books")
    with LibraryService(opener, tmp_path / "data", roots=[Path(root)], tenants=True) as service:
        with service.admin() as admin:
            assert admin.post("/tenants", json={"name": "bob"}).status_code == 201
        yield service
        for name in ("main", "bob"):
            service.run(partial(_check, name=name))


async def _check(store: Store, name: str) -> None:
    of_tenant = Store(TENANTS, store.engine, name)
    assert [each async for each in verify(of_tenant)] == []
    page = await store.engine.scan(name, Span.prefix(""), limit=10_000, keys_only=True)
    assert all(row.key.startswith(f"tenant:{name}:") for row in page.rows)


def signed_in(service: LibraryService, tenant: str, *, by_header: bool = False) -> httpx.Client:
    with service.client() as guest:
        body = dict(LOGIN) if by_header else {**LOGIN, "tenant": tenant}
        headers = {"X-Tenant": tenant} if by_header else {}
        if guest.get("/auth/status", headers={"X-Tenant": tenant}).json()["data"]["has_users"]:
            pass
        else:
            reply = guest.post("/auth/setup", json=body, headers=headers)
            assert reply.status_code == 201, reply.text
        reply = guest.post("/auth/login", json=body, headers=headers)
        assert reply.status_code == 200, reply.text
    return service.client(reply.json()["data"]["token"])


def test_each_library_has_its_own_users_books_and_files(
    served: LibraryService, tmp_path: Path
) -> None:
    album(tmp_path / "main books", 1, album="Of main")
    album(tmp_path / "bob books", 1, album="Of Bob")
    with signed_in(served, "main") as main, signed_in(served, "bob", by_header=True) as bob:
        for client in (main, bob):
            scan(client)
        assert [book["title"] for book in books(main)] == ["Of main"]
        assert [book["title"] for book in books(bob)] == ["Of Bob"]
        [book] = books(bob)
        [segment] = segments(bob, book)
        assert bob.get(f"/segments/{segment['id']}/audio").status_code == 200
        for path in (f"/books/{book['id']}", f"/segments/{segment['id']}/audio"):
            assert is_error(main.get(path), 404, "NOT_FOUND")
            forged = main.get(path, headers={"X-Tenant": "bob"})
            assert is_error(forged, 404, "NOT_FOUND")  # the token decides
        assert bob.get("/users").json()["data"]["count"] == 1
        key = bob.post("/auth/api-keys", json={"name": "k"}).json()["data"]["key"]
        with served.client(key) as player:
            assert titles(player) == ["Of Bob"]
        place = {"segment_id": segment["id"], "position_seconds": 1, "event_type": "start"}
        assert bob.post(f"/books/{book['id']}/position", json=place).status_code == 200
        assert bob.get("/stats/me").json()["data"]["plays"] == 1
        rows = bob.get("/rows", params={"prefix": "tenant:bob:b:", "keys_only": True})
        assert f"tenant:bob:b:{book['id']}" in [
            each["key"] for each in rows.json()["data"]["items"]
        ]


def test_only_admins_of_the_first_library_add_libraries(served: LibraryService) -> None:
    with signed_in(served, "main") as main, signed_in(served, "bob") as bob:
        assert is_error(bob.post("/tenants", json={"name": "eve"}), 403, "FORBIDDEN")
        assert is_error(bob.get("/tenants"), 403, "FORBIDDEN")
        for name in ("a b", "eve\n", "", ".."):
            assert is_error(main.post("/tenants", json={"name": name}), 422, "VALIDATION_ERROR")
        assert main.post("/tenants", json={"name": "bob"}).status_code == 200
        found = main.get("/tenants").json()["data"]["items"]
        assert found == [{"name": "main"}, {"name": "bob"}]
    with served.client() as guest:
        absent = {"X-Tenant": "eve"}
        assert is_error(guest.get("/auth/status", headers=absent), 404, "NOT_FOUND")
        assert is_error(guest.post("/auth/setup", json=LOGIN, headers=absent), 404, "NOT_FOUND")
        unknown = guest.post("/auth/login", json={**LOGIN, "tenant": "eve"})
        wrong = guest.post("/auth/login", json={**LOGIN, "password": "wrong horse"})
        assert is_error(unknown, 401, "UNAUTHORIZED") and unknown.json() == wrong.json()


def test_a_rejected_login_shows_the_user_name_that_was_typed(served: LibraryService) -> None:
    """For a library that does not exist, the form had a random name."""
    form = {"username": "admin", "password": "wrong horse"}
    shown = []
    with served.client() as guest:
        for tenant in ("main", "eve"):
            url = served.url.replace("/api/v1", "/login")
            reply = guest.post(url, data={**form, "tenant": tenant})
            assert reply.status_code == 401 and 'value="admin"' in reply.text
            shown.append(reply.text)
    assert shown[0] == shown[1]


def test_a_token_of_another_library_is_401(served: LibraryService) -> None:
    with signed_in(served, "main") as main, signed_in(served, "bob"):
        token = main.headers["authorization"].removeprefix("Bearer ")
        assert token.startswith("main-")
        for forged in (token.replace("main-", "bob-"), token.removeprefix("main-"), f"x{token}"):
            with served.client(forged) as client:
                assert is_error(client.get("/auth/me"), 401, "UNAUTHORIZED")


def test_libraries_are_there_after_a_restart(opener: Opener, tmp_path: Path) -> None:
    given: dict[str, Any] = {"tenants": True}
    with LibraryService(opener, tmp_path / "data", **given) as service:
        with service.admin() as admin:
            admin.post("/tenants", json={"name": "bob"})
        with signed_in(service, "bob") as bob:
            made(bob, "books", title="Dune")
    with (
        LibraryService(opener, tmp_path / "data", **given) as service,
        signed_in(service, "bob") as bob,
    ):
        assert titles(bob) == ["Dune"]

        def found() -> list[Any]:
            reply = bob.get("/search", params={"q": "dune"})
            return list(reply.json()["data"]["items"]) if reply.status_code == 200 else []

        assert [each["title"] for each in wait_until(found)] == ["Dune"]


def test_a_store_is_converted_and_back(opener: Opener, tmp_path: Path) -> None:
    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        made(admin, "books", title="Dune: Messiah", tags=["sand"])
    with (
        pytest.raises(UsageError, match="tenants on"),
        LibraryService(opener, tmp_path / "data", tenants=True, cost=None),
    ):
        pass
    assert _converted(opener, on=True) > 10
    with (
        pytest.raises(UsageError, match="tenants off"),
        LibraryService(opener, tmp_path / "data", cost=None),
    ):
        pass
    with LibraryService(opener, tmp_path / "data", tenants=True, cost=None) as service:
        with signed_in(service, "main") as main:
            assert titles(main, tag="sand") == ["Dune: Messiah"]
        service.run(partial(_check, name="main"))
    assert _converted(opener, on=False) > 10
    with LibraryService(opener, tmp_path / "data") as service:
        with service.signed_in("admin") as admin:
            assert titles(admin, title_prefix="dune:") == ["Dune: Messiah"]
        service.check()


def _converted(opener: Opener, *, on: bool) -> int:
    async def convert() -> int:
        engine = await opener(ManualClock())
        found = await convert_tenants(engine, on=on)
        await engine.close()
        assert all(not each.conflicts for each in found.values())
        return sum(each.moved for each in found.values())

    return asyncio.run(convert())


def test_the_command_converts_a_store(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service, service.admin():
        pass
    url = f"sqlite:{tmp_path / 'rows.db'}"
    ran = CliRunner().invoke(app, ["tenants", "on", "--store", url, "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["main"]["moved"] > 10
    again = CliRunner().invoke(app, ["tenants", "on", "--store", url])
    assert "Moved 0 rows of 1 space." in again.output


def test_a_service_with_one_library_rejects_the_name_of_another(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.client() as guest:
        reply = guest.post("/auth/login", json={**LOGIN, "tenant": "bob"})
        assert is_error(reply, 422, "VALIDATION_ERROR")
        assert guest.post("/auth/login", json={**LOGIN, "tenant": "main"}).status_code == 200


def test_metrics_have_the_operations_and_searches_of_all_libraries(
    served: LibraryService,
) -> None:
    with served.client() as guest:
        assert guest.post("/auth/setup", json={**LOGIN, "tenant": "bob"}).status_code == 201
    for name in ("main", "bob"):
        with signed_in(served, name) as admin:
            (served.folder.parent / f"{name} books").mkdir(exist_ok=True)
            scan(admin)
            admin.get("/search", params={"q": "x"})
    labels = {"type": "scan", "outcome": "completed"}
    metrics = served.metrics
    assert metrics.get_sample_value("audiobooks_operations_total", labels) == 2
    assert metrics.get_sample_value("audiobooks_operations_running") == 0
    assert metrics.get_sample_value("audiobooks_search_spaces") == 2
    assert metrics.get_sample_value("audiobooks_search_seconds_count") == 2
    assert metrics.get_sample_value("audiobooks_search_seconds_bucket", {"le": "+Inf"}) == 2
