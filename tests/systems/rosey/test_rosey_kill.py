"""The service is killed and started again under load: no write that was acknowledged is lost.

15 seconds of load besides the starts, 60 for a release. Each writer owns its keys, so what must be
there is known: the value that was acknowledged last, or one that was sent after it and not
answered.
"""

import asyncio
import json
import random
import sys
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from tests.sizes import size
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import nats_server

SECONDS = size(15, 15, 60)
KILLS = 5
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

    async def work(self, until: asyncio.Event) -> None:
        while not until.is_set():
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
    def __init__(self, folder: Path, engine: str | None) -> None:
        self._folder = folder
        self._engine = ["--engine", engine] if engine else []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "keyhouse.cli",
                "serve",
                "rosey",
                "--data",
                str(self._folder),
                *self._engine,
            ),
            *("--nats", nats_server().url, "--http", "off", "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert json.loads(line)["ready"] is True

    async def kill(self) -> None:
        assert self._process is not None and self._process.returncode is None, "it ended by itself"
        self._process.kill()
        await self._process.wait()

    async def end(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), 60)


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
        until = asyncio.Event()
        working = [asyncio.ensure_future(writer.work(until)) for writer in writers]
        before: list[int] = []
        try:
            for _ in range(KILLS):
                start = sum(writer.acknowledged for writer in writers)
                await asyncio.sleep(SECONDS / (KILLS + 1))
                async with asyncio.timeout(60):  # writers wait 2 seconds for replies that are lost
                    while sum(writer.acknowledged for writer in writers) == start:
                        await asyncio.sleep(0.05)
                before.append(sum(writer.acknowledged for writer in writers) - start)
                await service.kill()
                await service.start()
            await asyncio.sleep(SECONDS / (KILLS + 1))
            until.set()
            await asyncio.gather(*working)
            print(f"acknowledged between kills: {before}")
            assert min(before) > 0, "a kill that met no load shows nothing"
            await asyncio.gather(
                *(writer.ask("set", {"key": "last", "value": 1}, 30) for writer in writers)
            )
            for writer in writers:
                await writer.verify()
            assert await service.end() == 0
        finally:
            for task in working:
                task.cancel()
            with suppress(AssertionError, ProcessLookupError):
                await service.kill()
            await client.close()

    asyncio.run(scenario())
