"""The library as it is served, in a separate thread, and clients that are signed in."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from keyhouse.engine import Engine
from keyhouse.store import Store, verify
from keyhouse.testing.conformance import Opener
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.records import Argon2Params
from keyhouse_audiobooks.schema import ARGON2_PARAMS, SCHEMAS, TENANT_PREFIX
from tests.support.threaded_service import ThreadedService

on_both_engines = pytest.mark.parametrize("service", ["sqlite", "rocksdb"], indirect=True)
"""Runs a test on the default engine and on that of production."""

CHEAP = Argon2Params(time_cost=1, memory_cost_kib=8, parallelism=1, hash_bytes=32, salt_bytes=16)
PASSWORD = "correct horse"

R = TypeVar("R")


class LibraryService(ThreadedService):
    """A service on a socket. Passwords are hashed at the lowest cost; None: the default one."""

    def __init__(
        self,
        opener: Opener,
        folder: Path,
        *,
        roots: Sequence[Path] = (),
        cost: Argon2Params | None = CHEAP,
        docs: bool = False,
        **settings: Any,
    ) -> None:
        self.roots = list(roots)
        self._cost = cost
        super().__init__(
            opener,
            folder,
            SYSTEM.service,
            "/audiobooks/api/v1",
            runs_tasks=True,
            docs=docs,
            roots=[str(root) for root in roots],
            **settings,
        )

    async def prepare(self, engine: Engine) -> None:
        self.folder.mkdir(exist_ok=True)
        if self._cost is not None:
            await self._store(engine).put(ARGON2_PARAMS, self._cost)

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        return self.http(token, **options)

    def admin(self) -> httpx.Client:
        """Return a client of the admin, whom it creates."""
        with self.client() as guest:
            guest.post("/auth/setup", json={"username": "admin", "password": PASSWORD})
        return self.signed_in("admin")

    def signed_in(self, username: str) -> httpx.Client:
        with self.client() as guest:
            reply = guest.post("/auth/login", json={"username": username, "password": PASSWORD})
        assert reply.status_code == 200, reply.text
        return self.client(reply.json()["data"]["token"])

    def user(self, admin: httpx.Client, username: str, *roles: str) -> httpx.Client:
        """Return a client of a new user with these roles."""
        body = {"username": username, "password": PASSWORD, "roles": list(roles)}
        reply = admin.post("/users", json=body)
        assert reply.status_code == 201, reply.text
        return self.signed_in(username)

    def run(self, work: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
        """Run a function of the store on the loop of the service."""
        return self.on_engine(lambda engine: work(self._store(engine)))

    def _store(self, engine: Engine) -> Store:
        """Return the store of the first library."""
        has_tenants = self._settings.get("tenants")
        schema = SCHEMAS[0].under(TENANT_PREFIX) if has_tenants else SCHEMAS[0]
        return Store(schema, engine, "main")

    def check(self) -> None:
        """Assert that `verify` finds nothing: no stale row and no orphan."""

        async def findings(store: Store) -> list[Any]:
            return [each async for each in verify(store)]

        assert self.run(findings) == []
