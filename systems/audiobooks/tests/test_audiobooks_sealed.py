"""Sealed emails: a library with a key ring, over HTTP."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse.errors import UsageError
from keyhouse.keyring import KeyRing
from keyhouse.store import Store, verify
from keyhouse.testing.conformance import Opener
from keyhouse_audiobooks.schema import USER, library_schema
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from tests.support import engine_openers

EMAIL = "Ann@Example.org"


@pytest.fixture(params=["sqlite", "rocksdb"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return engine_openers.ALL[request.param](tmp_path)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring.json"
    KeyRing.new("first").save(path)
    return path


def add_ann(admin: httpx.Client) -> None:
    body = {"username": "ann", "password": PASSWORD, "email": EMAIL, "roles": ["viewer"]}
    assert admin.post("/users", json=body).status_code == 201


def emails(admin: httpx.Client) -> list[str | None]:
    return [each["email"] for each in admin.get("/users").json()["data"]["items"]]


def rows(service: LibraryService) -> str:
    """Return all rows of the library as they are stored."""

    async def read(engine: Any) -> str:
        from keyhouse.engine import Span

        page = await engine.scan("main", Span.prefix(""), limit=10_000)
        return "\n".join(f"{row.key} {row.value.decode()}" for row in page.rows)

    return service.on_engine(read)


def check(service: LibraryService, ring: Path, *, tenants: bool = False) -> None:
    """Assert that `verify` finds nothing with the key ring."""

    async def findings(engine: Any) -> list[Any]:
        schema = library_schema(tenants=tenants, sealed=True)
        store = Store(schema, engine, "main", key_ring=KeyRing.load(ring))
        return [each async for each in verify(store)]

    assert service.on_engine(findings) == []


@pytest.mark.parametrize("tenants", [False, True])
def test_an_email_is_stored_sealed_and_stays_unique(
    opener: Opener, tmp_path: Path, ring: Path, tenants: bool
) -> None:
    given: dict[str, Any] = {"key_ring": str(ring), "tenants": tenants}
    with (
        LibraryService(opener, tmp_path / "data", **given) as service,
        service.admin() as admin,
    ):
        add_ann(admin)
        assert emails(admin) == [None, EMAIL]
        stored = rows(service)
        assert "example.org" not in stored.casefold() and '"$enc"' in stored
        twice = {"username": "bob", "password": PASSWORD, "email": EMAIL.upper(), "roles": []}
        assert is_error(admin.post("/users", json=twice), 409, "CONFLICT")
        with service.signed_in("ann") as ann:
            assert ann.patch("/auth/me", json={"email": None}).json()["data"]["email"] is None
        assert admin.post("/users", json=twice).status_code == 201
        check(service, ring, tenants=tenants)


def test_a_library_is_sealed_when_it_gets_a_key_ring_and_again_when_it_rotates(
    opener: Opener, tmp_path: Path, ring: Path
) -> None:
    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        add_ann(admin)
        assert EMAIL in rows(service)
        service.check()
    for key in ("first", "second"):
        if key == "second":
            KeyRing.load(ring).rotated("second").save(ring)
        with (
            LibraryService(opener, tmp_path / "data", key_ring=str(ring)) as service,
            service.signed_in("admin") as admin,
        ):
            assert emails(admin) == [None, EMAIL]
            stored = rows(service)
            assert "example.org" not in stored.casefold() and f'"k":"{key}"' in stored
            check(service, ring)
    with (
        pytest.raises(UsageError, match="set `key_ring`"),
        LibraryService(opener, tmp_path / "data", cost=None),
    ):
        pass
    other = tmp_path / "other.json"
    KeyRing.new("other").save(other)
    with pytest.raises(Exception, match="key"):  # noqa: SIM117
        with LibraryService(opener, tmp_path / "data", key_ring=str(other), cost=None):
            pass


def test_the_schema_with_sealed_members_has_the_same_handles() -> None:
    for tenants in (False, True):
        schema = library_schema(tenants=tenants, sealed=True)
        owner = schema.record_of(USER)
        assert owner is not None and owner.sealed == ("email",)
