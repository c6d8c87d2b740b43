"""The service is killed and started again under load: no write that was acknowledged is lost.

Each writer owns its keys, so what must be there is known: the value that was acknowledged last, or
one that was sent after it and not answered.
"""

import asyncio
import json
import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from tests.serve.support.serve_process import serving
from tests.sizes import size
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import nats_server
from tests.support.polling import until

WRITES = size(100, 1_000, 5_000)
"""Acknowledged before each kill."""
KILLS = size(3, 5, 10)
WRITERS = 8


class Writer:
    """Sets, counts, deletes and batches, and remembers what was acknowledged and what was only
    sent."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._plugin = f"plugin-{number % 3}"
        self._key = f"w{number}"
        self._draw = random.Random(number)
        self.acknowledged = 0
        self.last = 0
        self.sent = 0
        self.counted = 0
        self.tried = 0

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._step()
            except (NatsError, TimeoutError):
                await asyncio.sleep(0.05)

    async def ask(self, operation: str, body: object, timeout: float = 2) -> dict[str, object]:
        data = json.dumps(body).encode()
        answer = await self._client.request(
            f"db.kv.{self._plugin}.{operation}", data, timeout=timeout
        )
        decoded: dict[str, object] = json.loads(answer.data)
        return decoded

    async def _step(self) -> None:
        self.sent += 1
        number, kind = self.sent, self._draw.random()
        if kind < 0.5:
            answer = await self.ask("set", {"key": self._key, "value": number})
        elif kind < 0.8:
            ops = [
                {"op": "set", "key": key, "value": number}
                for key in (self._key, f"{self._key}-beside")
            ]
            answer = await self.ask("batch", {"ops": ops})
        else:
            self.tried += 1
            counted = await self.ask("incr", {"key": f"{self._key}-count"})
            self.counted += counted["success"] is True
            self.acknowledged += counted["success"] is True
            return
        if answer["success"] is True:
            self.acknowledged += 1
            self.last = number

    async def verify(self) -> None:
        found = await self.ask(
            "mget", {"keys": [self._key, f"{self._key}-beside", f"{self._key}-count"]}, 30
        )
        values = found["values"]
        assert isinstance(values, dict)
        assert self.last <= values.get(self._key, 0) <= self.sent, (self._key, self.last, values)
        assert values.get(f"{self._key}-beside", 0) <= values.get(self._key, 0)
        assert self.counted <= values.get(f"{self._key}-count", 0) <= self.tried


class Service:
    """The service in a separate process, whose starts do not stop the writers."""

    def __init__(self, folder: Path, engine: str | None) -> None:
        more = ("--engine", engine) if engine else ()
        self._serving = partial(
            serving, folder, "rosey", *more, "--nats", nats_server().url, "--http", "off"
        )

    async def start(self) -> None:
        self._started = self._serving()
        self._served = await asyncio.to_thread(self._started.__enter__)

    async def kill(self) -> None:
        """Kill it. It must not have ended by itself."""
        assert self._served.process.poll() is None
        await asyncio.to_thread(self._started.__exit__, None, None, None)

    async def end(self) -> int:
        return await asyncio.to_thread(self._served.end)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.long
def test_nothing_acknowledged_is_lost_when_the_service_is_killed_under_load(
    engine: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        url = await postgres_schema() if engine == "postgres" else None
        service = Service(tmp_path, url)
        await service.start()
        client = await nats.connect(nats_server().url)
        writers = [Writer(client, number) for number in range(WRITERS)]
        stop = asyncio.Event()
        working = [asyncio.ensure_future(writer.work(stop)) for writer in writers]

        async def load() -> None:
            goal = sum(writer.acknowledged for writer in writers) + WRITES
            await until(lambda: sum(writer.acknowledged for writer in writers) >= goal)

        try:
            for _ in range(KILLS):
                await load()
                await service.kill()
                await service.start()
            await load()
            stop.set()
            await asyncio.gather(*working)
            await asyncio.gather(
                *(writer.ask("set", {"key": "last", "value": 1}, 30) for writer in writers)
            )
            for writer in writers:
                await writer.verify()
            assert await service.end() == 0
        finally:
            for task in working:
                task.cancel()
            with suppress(AssertionError):
                await service.kill()
            await client.close()

    asyncio.run(scenario())
