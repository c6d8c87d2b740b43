"""JetStream: our commits and reads against the bare driver doing the same durable work, in the same run.

    python -m benchmarks.jetstream [REPLICAS]

Bare, a commit of one row is `KeyValue.put`, and one of six is an atomic batch by hand. It checks and mirrors nothing.
`bare in groups` puts all that waits into one atomic batch, as we do. The servers are started for the run, and sync always.
Bare, a read is `KeyValue.get`, from any replica; ours is as fresh as the leader.
"""

import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js.kv import KeyValue

from benchmarks.contest import Contestant, contest
from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.server import NatsCluster, NatsServer

ROUNDS = 7
VALUE = b'{"title":"' + b"v" * 280 + b'"}'
Rows = list[tuple[str, bytes]]
Commit = Callable[[Rows], Awaitable[object]]
BARE, OURS = "bare", "ours"


def rows(number: int, derived: int) -> Rows:
    """A record of about 300 bytes, and its derived rows."""
    record = [(f"t/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", VALUE)]
    return record + [(f"idx/track/{n}/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", b"1") for n in range(derived)]


class Bare:
    """What a careful person writes with the driver alone, into a bucket that was made by the engine."""

    def __init__(self, client: Client, kv: KeyValue) -> None:
        self._client = client
        self._kv = kv
        self._waiting: list[tuple[Rows, asyncio.Future[None]]] = []
        self._working: asyncio.Future[None] | None = None

    async def one(self, written: Rows) -> None:
        if len(written) == 1:
            await self._kv.put(*written[0])
        else:
            await self._write(written)

    async def in_groups(self, written: Rows) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((written, answer))
        if self._working is None:
            self._working = asyncio.ensure_future(self._serve())
        await answer

    async def _serve(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            size = 960 // len(self._waiting[0][0])
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            await self._write([row for written, _ in group for row in written])
            for _, answer in group:
                answer.set_result(None)
            await asyncio.sleep(0)
        self._working = None

    async def _write(self, written: Rows) -> None:
        batch = secrets.token_hex(12)
        for number, (key, value) in enumerate(written[:-1], 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._client.publish(f"$KV.{BARE}.{key}", value, headers=headers)
        headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(written)), "Nats-Batch-Commit": "1"}
        key, value = written[-1]
        answer = await self._client.request(f"$KV.{BARE}.{key}", value, timeout=30, headers=headers)
        assert "error" not in json.loads(answer.data), answer.data


def writing(commit: Commit, writers: int, commits: int, derived: int) -> Contestant:
    """Commits per second, of so many writers at once."""

    async def work() -> int:
        async def write(writer: int) -> None:
            for number in range(commits):
                await commit(rows(writer * commits + number, derived))

        await asyncio.gather(*(write(writer) for writer in range(writers)))
        return writers * commits

    return work


def reading(read: Callable[[str], Awaitable[object]], readers: int, reads: int) -> Contestant:
    async def work() -> int:
        async def again() -> None:
            for number in range(reads):
                await read(rows(number % 40, 0)[0][0])

        await asyncio.gather(*(again() for _ in range(readers)))
        return readers * reads

    return work


async def main(replicas: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder)) if replicas == 1 else NatsCluster(Path(folder), nodes=replicas)
        server.start()
        try:
            server.ready()
            await measure(server.url, replicas)
        finally:
            server.stop()


async def measure(url: str, replicas: int) -> None:
    engine = JetstreamEngine.open(f"{url}/?prefix=&sync=always&replicas={replicas}")
    for space in (BARE, OURS):
        await engine.commit(space, Batch(puts=(Put("first", b"1"),)))
    client = await nats.connect(url.split(","))
    kv = await client.jetstream().key_value(BARE)
    bare = Bare(client, kv)

    async def ours(written: Rows) -> None:
        await engine.commit(OURS, Batch(puts=tuple([Put(key, value) for key, value in written])))

    for writers, commits in ((1, 40), (64, 4)):
        for derived in (0, 5):
            contestants = {"ours": writing(ours, writers, commits, derived)}
            contestants["bare"] = writing(bare.one, writers, commits, derived)
            if writers > 1:
                contestants["bare in groups"] = writing(bare.in_groups, writers, commits, derived)
            await show(f"{writers} writers, {derived + 1} rows a commit", contestants)
    for readers in (1, 64):
        contestants = {
            "ours": reading(lambda key: engine.read(OURS, [key]), readers, 100),
            "bare": reading(kv.get, readers, 100),
        }
        await show(f"{readers} readers of a row", contestants)
    contestants = {"ours": reading(lambda key: engine.scan(OURS, Span("t/"), limit=100), 1, 30)}
    await show("a page of 100 rows", contestants)
    await engine.close()
    await client.close()


async def show(title: str, contestants: dict[str, Contestant]) -> None:
    results = await contest(contestants, rounds=ROUNDS)
    ours = results["ours"].median
    print(f"{title}: ours {ours:,.0f}/s")
    for name, result in results.items():
        if name != "ours":
            print(f"    {name}: {result.median:,.0f}/s, ours is {ours / result.median:.2f} of it", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
