"""The playlist service in this process, on an engine of the test and a bus on a NATS server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http import make_app
from keyhouse.nats.bus import Bus
from keyhouse.service.host import ServiceHost
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.store import Store
from keyhouse_playlist import SYSTEM
from keyhouse_playlist.accounts.delivery import Delivery
from keyhouse_playlist.catalog.tables import (
    CatalogItem,
    SnapshotInfo,
    build_catalog,
    publish_catalog,
)
from keyhouse_playlist.schema import BLESSED
from keyhouse_playlist.stores import PlaylistStores

API = "/playlist/api/v1"
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000, "queue_interval_seconds": 0}


def item(video_id: str, title: str, *categories: str, seconds: int | None = 60) -> CatalogItem:
    return CatalogItem(
        video_id=video_id,
        title=title,
        categories=list(categories),
        manifest_url=f"https://media.example/{video_id}.json",
        duration_seconds=seconds,
    )


def fill(folder: Path, items: Iterable[CatalogItem], snapshot: str = "s1") -> None:
    """Put a catalog into a data folder."""
    info = SnapshotInfo(snapshot_id=snapshot, source="test", created_at="2026-01-01T00:00:00Z")
    publish_catalog(build_catalog(folder, info, items), folder / "catalog.sqlite3")


class Visitor:
    """A browser: a client with its own cookies and address."""

    def __init__(self, service: "PlaylistService", address: str = "192.0.2.1") -> None:
        transport = httpx.ASGITransport(service.app, client=(address, 4711))
        self._service = service
        self.http = httpx.AsyncClient(
            transport=transport, base_url=f"http://localhost{API}", timeout=60
        )

    async def __call__(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return await self.http.request(method, path, **options)

    async def get(self, path: str, **query: Any) -> Any:
        response = await self.http.get(path, params=query or None)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: object = None, status: int = 200) -> Any:
        response = await self("POST", path, body)
        assert response.status_code == status, response.text
        return response.json()

    async def sign_in(self, username: str) -> None:
        await self.post("/auth/otp/request", {"username": username})
        code = self._service.codes[username.strip()]
        answer = await self.post("/auth/otp/verify", {"username": username, "otp": code})
        assert answer["status"] == "ok", answer


class PlaylistService:
    """A running service: its app, its stores, and the codes that it sent."""

    def __init__(self, spec: ServiceSpec, engine: Engine, folder: Path, clock: Clock) -> None:
        self.spec = spec
        self.app = make_app([spec])
        self.engine = engine
        self.folder = folder
        self.clock = clock
        self.stores = PlaylistStores(engine, "default")
        self.codes: dict[str, str] = {}

    async def prepare(self) -> None:
        """Do what the service does at its start."""
        [prepare] = [task for task in self.spec.tasks if task.__name__ == "prepare"]
        await prepare()

    def visitor(self, address: str = "192.0.2.1") -> Visitor:
        return Visitor(self, address)

    async def member(self, username: str, address: str = "192.0.2.1") -> Visitor:
        visitor = self.visitor(address)
        await visitor.sign_in(username)
        return visitor


@asynccontextmanager
async def playlist_service(
    folder: Path,
    *,
    engine: Engine | None = None,
    bus: Bus | None = None,
    robot_engine: Engine | None = None,
    clock: Clock | None = None,
    run_tasks: bool = False,
    **settings: Any,
) -> AsyncIterator[PlaylistService]:
    """Build the service. Without an engine its rows are in memory; without a bus NATS is off."""
    clock = clock or ManualClock()
    codes: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        if engine is None:
            engine = MemoryEngine(clock=clock)
            stack.push_async_callback(engine.close)

        async def opener(url: str, name: str) -> Engine:
            assert robot_engine is not None, (url, name)
            return robot_engine

        host = await stack.enter_async_context(
            ServiceHost(bus=bus, opener=opener if robot_engine is not None else None)
        )
        context = ServiceContext(
            engine=ServedEngine(engine),
            data=folder,
            metrics=CollectorRegistry(),
            settings={"admins": ["Ada"], **FAST, **settings},
            host=host,
        )
        service = PlaylistService(await SYSTEM.service(context), engine, folder, clock)
        service.codes = codes
        tasks = [asyncio.ensure_future(task()) for task in service.spec.tasks] if run_tasks else []
        try:
            with _recording(codes):
                yield service
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def run(
    folder: Path,
    work: Callable[[PlaylistService], Awaitable[None]],
    *,
    items: Sequence[CatalogItem] = (),
    blessed: Sequence[str] = ("Bob",),
    **settings: Any,
) -> None:
    """Run a test on a service with a catalog and blessed members."""

    async def main() -> None:
        if items:
            fill(folder, items)
        async with playlist_service(folder, **settings) as service:
            await service.stores.acl.put(BLESSED, list(blessed))
            await work(service)

    asyncio.run(main())


def document(id: str, name: str, **members: object) -> dict[str, object]:
    """Return a playlist as another program writes it."""
    at = "2025-12-18T12:34:56+00:00"
    return {
        "playlist_id": id,
        "name": name,
        "items": [{"video_id": "v"}],
        "created_by": "Theo",
        "created_at": at,
        "updated_at": at,
        "schema_version": 1,
        **members,
    }


async def write(store: Store, key: str, value: object) -> None:
    """Write a row as another program does."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    await store.engine.commit(store.space, Batch(puts=(Put(key, data),)))


class _recording:
    """Records the codes that are sent, in place of sending them."""

    def __init__(self, codes: dict[str, str]) -> None:
        self._codes = codes
        self._original = Delivery.__call__

    def __enter__(self) -> None:
        codes = self._codes

        async def record(self: Delivery, username: str, code: str) -> None:
            codes[username] = code

        Delivery.__call__ = record  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        Delivery.__call__ = self._original  # type: ignore[method-assign]


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
