"""NATS JetStream against `nats-py`: `KeyValue.put` of one row, an atomic batch of several by hand.

The baseline checks and mirrors nothing, and the stream is its change log. Its read is
`KeyValue.get` from any replica; the engine's is as fresh as the leader. The run starts a server
that syncs always.
"""

import json
import secrets
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js.kv import KeyValue

from benchmarks.engines.commits import SPACE, Rows, measure_commits, measure_reads
from keyhouse.bench.result import Result
from keyhouse.engine import Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.nats.server import NatsServer
from keyhouse.testing.servers.nats_cluster import NatsCluster

BARE = "bare"


class Bare:
    """Careful hand-written code on the driver alone, into a bucket that the engine made."""

    def __init__(self, client: Client, kv: KeyValue) -> None:
        self._client = client
        self._kv = kv

    async def read(self, key: str) -> object:
        return await self._kv.get(key)

    async def write(self, group: list[Rows]) -> None:
        written = [row for each in group for row in each]
        if len(written) == 1:
            await self._kv.put(*written[0])
            return
        batch = secrets.token_hex(12)
        for number, (key, value) in enumerate(written[:-1], 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._client.publish(f"$KV.{BARE}.{key}", value, headers=headers)
        headers = {
            "Nats-Batch-Id": batch,
            "Nats-Batch-Sequence": str(len(written)),
            "Nats-Batch-Commit": "1",
        }
        key, value = written[-1]
        reply = await self._client.request(f"$KV.{BARE}.{key}", value, timeout=30, headers=headers)
        assert "error" not in json.loads(reply.data), reply.data


async def measure(folder: Path, rounds: int, *, quick: bool, replicas: int = 1) -> list[Result]:
    server = NatsServer(folder) if replicas == 1 else NatsCluster(folder, nodes=replicas)
    server.start()
    try:
        server.ready()
        return await _measure(server.url, rounds, quick, replicas)
    finally:
        server.stop()


async def _measure(url: str, rounds: int, quick: bool, replicas: int) -> list[Result]:
    engine = JetstreamEngine.open(f"{url}/?prefix=&sync=always&replicas={replicas}")
    for space in (BARE, SPACE):
        await engine.commit(space, Batch(puts=(Put("first", b"1"),)))
    client = await nats.connect(url.split(","))
    bare = Bare(client, await client.jetstream().key_value(BARE))
    name = "jetstream" if replicas == 1 else f"jetstream-r{replicas}"
    results = await measure_commits(
        name,
        engine,
        bare.write,
        rounds=rounds,
        alone=12 if quick else 40,
        each=4 if quick else 12,
        rows_max=960,
    )
    results += await measure_reads(name, engine, bare.read, rounds=rounds, alone=100, each=50)
    await engine.close()
    await client.close()
    return results
