"""NATS servers for tests: one per process, with a bucket name for each test, and private ones."""

import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamState
from nats.js.kv import KeyValue

from keyhouse.clock import Clock
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.limits import CHANGES_KEPT
from keyhouse.nats.server import NatsServer
from keyhouse.testing.servers.nats_cluster import NatsCluster
from tests.support.failure_report import LOGS

REPLY_SECONDS: Final = 30
"""Timeout of a reply that must come, from a server that may be slow."""


@cache
def nats_server() -> NatsServer:
    """Return the shared server of this process, started on first use."""
    folder = Path(tempfile.mkdtemp(prefix="keyhouse-nats-"))
    server = NatsServer(folder)
    server.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    LOGS.add(folder / "nats-server.log")
    server.ready()
    return server


@contextmanager
def own_server(folder: Path, **options: Any) -> Iterator[NatsServer]:
    """Run a private server, for tests that stop or kill it."""
    server = NatsServer(folder, **options)
    server.start()
    server.ready()
    try:
        yield server
    finally:
        server.kill()


def url_of(server: NatsServer | NatsCluster, more: str = "") -> str:
    return f"{server.url}/?prefix=&sync=always{more}"


def name_of(folder: Path) -> str:
    """Return a bucket name, unique per folder."""
    return blake2b(str(folder).encode(), digest_size=10).hexdigest()


class SharedBucket(NamedTuple):
    """An engine on a private bucket, with a plain NATS client on the same bucket."""

    engine: JetstreamEngine
    url: str
    bucket: str
    client: Client
    js: JetStreamContext

    async def kv(self) -> KeyValue:
        return await self.js.key_value(self.bucket)

    async def state(self) -> StreamState:
        return (await self.js.stream_info(f"KV_{self.bucket}")).state

    async def api(self, subject: str, **body: object) -> dict[str, Any]:
        answer = await self.client.request(
            f"$JS.API.{subject}", json.dumps(body).encode(), timeout=REPLY_SECONDS
        )
        decoded: dict[str, Any] = json.loads(answer.data)
        assert "error" not in decoded, decoded
        return decoded


@asynccontextmanager
async def shared_bucket(
    folder: Path,
    *,
    space: str | None = "s",
    clock: Clock | None = None,
    changes_kept: int = CHANGES_KEPT,
    more: str = "",
    server: NatsServer | None = None,
) -> AsyncIterator[SharedBucket]:
    """Open with one bucket for `space`, or with one for all spaces if that is None."""
    server = server or nats_server()
    name = name_of(folder)
    url = f"{server.url}/?{'bucket' if space is None else 'prefix'}={name}&sync=always{more}"
    engine = JetstreamEngine.open(url, clock=clock, changes_kept=changes_kept)
    client = await nats.connect(server.url)
    try:
        yield SharedBucket(
            engine,
            url,
            name if space is None else f"{name}{space}",
            client,
            client.jetstream(timeout=REPLY_SECONDS),
        )
    finally:
        await engine.close()
        await client.close()
