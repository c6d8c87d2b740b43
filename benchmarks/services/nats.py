"""Cases 1, 2 and 2b: `get` and `set` of plugins over NATS, against an echo with the same client.

The server, the echo and the service are separate processes, on other cores than the client. The
echo is the minimum cost of a reply over NATS: it reads and writes nothing.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import nats
from nats.aio.client import Client

from benchmarks.services.child import child
from benchmarks.services.cpu_affinity import separate_cores
from keyhouse.bench.comparison import Workload, compare
from keyhouse.bench.result import Result
from keyhouse.nats.server import NatsServer

IN_FLIGHT: Final = 64
KEYS: Final = 1_000
MAPPINGS: Final = {"db.kv.*.*": "db.kv.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(16,1)}}"}
"""As those of the embedded server of `keyhouse serve`."""
VALUE: Final = {"players": ["alice", "bob"], "round": 2, "question": "x" * 60}

Request = Callable[[int], Awaitable[object]]


class PluginClient:
    """The one client of all workloads: requests of some plugins in turn.

    `service_pid` is the process of the measured service.
    """

    def __init__(self, client: Client, service_pid: int, plugins: int = 1) -> None:
        self.client = client
        self.service_pid = service_pid
        names = [f"trivia{number}" for number in range(plugins)]
        self._plugins = plugins
        self._get_subjects = [f"db.kv.{name}.get" for name in names]
        self._set_subjects = [f"db.kv.{name}.set" for name in names]
        self._gets = [json.dumps({"key": f"game_{number}"}).encode() for number in range(KEYS)]
        self._sets = [
            json.dumps({"key": f"game_{number}", "value": VALUE}).encode() for number in range(KEYS)
        ]

    def work(self, verb: str) -> str:
        plugins = "a plugin" if self._plugins == 1 else f"{self._plugins} plugins in turn"
        return f"{verb} of {plugins} over NATS, {IN_FLIGHT} in flight"

    async def get(self, number: int) -> None:
        subject = self._get_subjects[number % len(self._get_subjects)]
        reply = await self.client.request(subject, self._gets[number % KEYS], timeout=30)
        assert reply.data.startswith(b'{"success":true,"exists":true'), reply.data

    async def set(self, number: int) -> None:
        subject = self._set_subjects[number % len(self._set_subjects)]
        reply = await self.client.request(subject, self._sets[number % KEYS], timeout=30)
        assert reply.data == b'{"success":true}', reply.data

    async def echo_get(self, number: int) -> None:
        await self.client.request("echo.get", self._gets[number % KEYS], timeout=30)

    async def echo_set(self, number: int) -> None:
        await self.client.request("echo.set", self._sets[number % KEYS], timeout=30)

    def workload(
        self,
        request: Request,
        count: int,
        in_flight: int = IN_FLIGHT,
        latencies: list[float] | None = None,
    ) -> Workload:
        """Return a workload of `count` requests, `in_flight` at once, that appends each latency."""

        async def work() -> int:
            numbers = iter(range(count))

            async def repeat() -> None:
                for number in numbers:
                    start = time.perf_counter()
                    await request(number)
                    if latencies is not None:
                        latencies.append(time.perf_counter() - start)

            await asyncio.gather(*(repeat() for _ in range(in_flight)))
            return count

        return work


@asynccontextmanager
async def plugin_client(
    folder: Path, engine_url: str | None = None, *, plugins: int = 1
) -> AsyncIterator[PluginClient]:
    """Start a NATS server, the echo and the service; yield a client after setting every key."""
    server = NatsServer(folder / "nats", mappings=MAPPINGS)
    module = "benchmarks.services.nats_responder"
    engine_url = engine_url or f"sqlite:{folder}/rosey.db?layout=rosey"
    with separate_cores() as move_to_client_core:
        server.start()
        try:
            await asyncio.get_running_loop().run_in_executor(None, server.ready)
            async with (
                child(module, server.url, "echo", log=folder / "echo.log"),
                child(module, server.url, engine_url, log=folder / "rosey.log") as service,
            ):
                move_to_client_core()
                connection = await nats.connect(server.url)
                try:
                    client = PluginClient(connection, service.pid, plugins)
                    await client.workload(client.set, KEYS)()
                    yield client
                finally:
                    await connection.close()
        finally:
            server.stop()


async def gets(
    client: PluginClient, *, rounds: int, count: int, peers: Mapping[str, Workload], **more: Any
) -> Result:
    workloads = {
        "ours": client.workload(client.get, count),
        "baseline": client.workload(client.echo_get, count),
        **peers,
    }
    measured = await compare(workloads, rounds=rounds)
    return Result(
        work=client.work("get"),
        unit="get/s",
        measurements=list(measured.values()),
        baseline="an echo",
        **more,
    )


async def sets(
    client: PluginClient, *, rounds: int, count: int, peers: Mapping[str, Workload], **more: Any
) -> Result:
    workloads = {
        "ours": client.workload(client.set, count),
        "baseline": client.workload(client.echo_set, count),
        **peers,
    }
    measured = await compare(workloads, rounds=rounds)
    return Result(
        work=client.work("durable set"),
        unit="set/s",
        measurements=list(measured.values()),
        baseline="an echo",
        **more,
    )
