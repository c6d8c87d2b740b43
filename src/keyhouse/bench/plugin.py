"""Rows 1 and 2: a plugin's `get` and `set` over NATS, against an echo with the same client.

The server, the echo and the service are processes of their own, on other cores than the client. The echo is the least
that an answer over NATS costs: it reads nothing and writes nothing.
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

from keyhouse.bench.child import child
from keyhouse.bench.contest import Contestant, contest
from keyhouse.bench.cores import apart
from keyhouse.bench.figure import Figure
from keyhouse.nats.server import NatsServer

IN_FLIGHT: Final = 64
KEYS: Final = 1_000
VALUE: Final = {"players": ["alice", "bob"], "round": 2, "question": "x" * 60}
ECHO: Final = "an echo"

Ask = Callable[[int], Awaitable[object]]
Others = Mapping[str, Contestant] | None


class Asker:
    """The one client of all contestants. `service` is the number of the process that it asks."""

    def __init__(self, client: Client, service: int) -> None:
        self.client = client
        self.service = service
        self._gets = [json.dumps({"key": f"game_{number}"}).encode() for number in range(KEYS)]
        self._sets = [
            json.dumps({"key": f"game_{number}", "value": VALUE}).encode() for number in range(KEYS)
        ]

    async def get(self, number: int) -> None:
        answer = await self.client.request(
            "db.kv.trivia.get", self._gets[number % KEYS], timeout=30
        )
        assert answer.data.startswith(b'{"success":true,"exists":true'), answer.data

    async def set(self, number: int) -> None:
        answer = await self.client.request(
            "db.kv.trivia.set", self._sets[number % KEYS], timeout=30
        )
        assert answer.data == b'{"success":true}', answer.data

    async def echo_get(self, number: int) -> None:
        await self.client.request("echo.get", self._gets[number % KEYS], timeout=30)

    async def echo_set(self, number: int) -> None:
        await self.client.request("echo.set", self._sets[number % KEYS], timeout=30)

    def many(
        self, ask: Ask, count: int, in_flight: int = IN_FLIGHT, spent: list[float] | None = None
    ) -> Contestant:
        """So many requests, so many of them under way at once; `spent` is given how long each took."""

        async def work() -> int:
            numbers = iter(range(count))

            async def again() -> None:
                for number in numbers:
                    start = time.perf_counter()
                    await ask(number)
                    if spent is not None:
                        spent.append(time.perf_counter() - start)

            await asyncio.gather(*(again() for _ in range(in_flight)))
            return count

        return work


@asynccontextmanager
async def asking(folder: Path, engine: str | None = None) -> AsyncIterator[Asker]:
    """A client of a server of its own, on which the echo and the service answer, with every key set once."""
    server = NatsServer(folder / "nats")
    with apart() as begin_to_ask:
        server.start()
        try:
            await asyncio.get_running_loop().run_in_executor(None, server.ready)
            where = engine or f"sqlite:{folder}/rosey.db?layout=rosey"
            async with (
                child("keyhouse.bench.responder", server.url, "echo", log=folder / "echo.log"),
                child(
                    "keyhouse.bench.responder", server.url, where, log=folder / "rosey.log"
                ) as service,
            ):
                begin_to_ask()
                client = await nats.connect(server.url)
                try:
                    asker = Asker(client, service.process)
                    await asker.many(asker.set, KEYS)()
                    yield asker
                finally:
                    await client.close()
        finally:
            server.stop()


async def gets(
    asker: Asker,
    *,
    rounds: int,
    count: int,
    others: Mapping[str, Contestant] | None = None,
    **more: Any,
) -> Figure:
    contestants = {"ours": asker.many(asker.get, count), "limit": asker.many(asker.echo_get, count)}
    results = await contest(contestants | dict(others or {}), rounds=rounds)
    work = "plugin get over NATS, 64 in flight"
    return Figure(
        row="1",
        work=work,
        unit="get/s",
        results=list(results.values()),
        goal=0.80,
        against=ECHO,
        **more,
    )


async def sets(
    asker: Asker,
    *,
    rounds: int,
    count: int,
    others: Mapping[str, Contestant] | None = None,
    **more: Any,
) -> Figure:
    contestants = {"ours": asker.many(asker.set, count), "limit": asker.many(asker.echo_set, count)}
    results = await contest(contestants | dict(others or {}), rounds=rounds)
    work = "plugin set over NATS, durable, 64 in flight"
    return Figure(
        row="2",
        work=work,
        unit="set/s",
        results=list(results.values()),
        goal=0.60,
        against=ECHO,
        **more,
    )
