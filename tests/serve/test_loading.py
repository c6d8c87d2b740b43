"""A process reports that it is ready when its engines answer."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from keyhouse.engine import Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.nats.server import ReservedPort
from keyhouse.serve import engine_opener, health, process
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.listener import ConnectionShare, bind
from keyhouse.serve.parent import Parent
from keyhouse.serve.peers import FOLDER
from keyhouse.serve.server import Addresses, Server
from keyhouse.service.worker import Worker
from keyhouse.settings.settings import Address
from keyhouse.settings.sources import LoadedSettings, load_settings
from tests.serve.support import jars
from tests.support.engine_openers import OPENERS
from tests.support.nats_servers import name_of, nats_server

ROWS = 1_000
USUAL_CHECK_SECONDS = health.CHECK_SECONDS

pytestmark = pytest.mark.skipif(
    "jetstream" not in OPENERS, reason="JetStream is not among the chosen engines"
)


async def fill(url: str) -> None:
    engine = JetstreamEngine.open(url)
    for start in range(0, ROWS, 500):
        puts = tuple(Put(f"k{number}", b"1") for number in range(start, start + 500))
        await engine.commit("shelf", Batch(puts=puts))
    await engine.close()


class Gate:
    """Holds the consumer of a mirror that is to be loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        subscribe = Connection.subscribe

        async def subscribe_when_open(connection: Connection, *consumer: Any) -> Any:
            self.reached.set()
            await self.opened.wait()
            return await subscribe(connection, *consumer)

        monkeypatch.setattr(Connection, "subscribe", subscribe_when_open)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedSettings]:
    monkeypatch.setattr(engine_opener, "PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(process, "tune_gc", lambda: None)
    url = f"{nats_server().url}/?bucket={name_of(tmp_path)}&sync=always"
    asyncio.run(fill(url))
    port = ReservedPort()  # a process that still loads announces none
    place = {
        "data": str(tmp_path),
        "http": f"127.0.0.1:{port.number}",
        "nats": "off",
        "engine": url,
    }
    yield load_settings(place, {}, None, systems=("jars",))


def test_a_process_is_ready_when_its_mirror_is_loaded(
    loaded: LoadedSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million keys it said so after a second, and /ready was 503 for half a minute more."""
    announced: list[Addresses] = []
    answers: list[int] = []

    async def main() -> None:
        gate = Gate(monkeypatch)

        def announce(addresses: Addresses) -> None:
            announced.append(addresses)
            asking.append(asyncio.ensure_future(ask(addresses)))

        async def ask(addresses: Addresses) -> None:
            async with httpx.AsyncClient(base_url=str(addresses.http), timeout=30) as client:
                answers.append((await client.get("/ready")).status_code)
            signal.raise_signal(signal.SIGTERM)

        asking: list[asyncio.Task[None]] = []
        with capture_logs() as lines:
            serving = asyncio.ensure_future(
                process.serve_until_stopped(loaded, {"jars": jars.without_nats}, announce)
            )
            await gate.reached.wait()
            async with asyncio.timeout(30):
                # the first lines may be of a time before the engine knew how much there is
                while not (waiting := [line for line in lines if line.get("total")]):
                    await asyncio.sleep(0)
            assert waiting[0]["event"].startswith("waiting")
            assert waiting[0]["system"] == "jars"
            assert waiting[0]["loaded"] == 0
            assert waiting[0]["total"] >= ROWS
            async with httpx.AsyncClient(timeout=30) as client:
                early = await client.get(f"http://{loaded.settings.http}/ready")
            assert early.status_code == 503
            system = early.json()["systems"]["jars"]
            assert (system["loaded"], system["total"]) == (0, waiting[0]["total"])
            assert "loads its keys" in system["why"]
            assert not announced
            assert not [line for line in lines if line["event"] == "ready"]
            # Checks were short because they had to fail; on a busy machine the next one did too.
            monkeypatch.setattr(health, "CHECK_SECONDS", USUAL_CHECK_SECONDS)
            gate.opened.set()
            async with asyncio.timeout(30):
                await serving
        assert [line for line in lines if line["event"] == "ready"]
        assert answers == [200]

    asyncio.run(main())


def test_a_process_that_still_loads_stops_at_a_signal(
    loaded: LoadedSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        gate = Gate(monkeypatch)
        serving = asyncio.ensure_future(
            process.serve_until_stopped(
                loaded, {"jars": jars.without_nats}, lambda _: pytest.fail("ready")
            )
        )
        await gate.reached.wait()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await serving

    asyncio.run(main())


def test_a_worker_that_takes_the_place_of_another_accepts_no_request_before_it_can_answer(
    loaded: LoadedSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a restart it got half of the requests, and could answer none until it had its keys."""
    (tmp_path / FOLDER).mkdir()

    async def main() -> None:
        gate = Gate(monkeypatch)
        with bind(Address("127.0.0.1", 0)) as bound, socket.socket() as link:
            share = ConnectionShare(ConnectionShare.counts(2), 0)
            data = DataDir.take(tmp_path)
            parent = Parent(Worker(0, 2), 3, data, bound, share, link)
            server = Server(loaded, {"jars": jars.without_nats}, parent)
            starting = asyncio.ensure_future(server.__aenter__())
            await gate.reached.wait()
            async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
                url = f"http://127.0.0.1:{bound.getsockname()[1]}/ready"
                with pytest.raises(httpx.ConnectError):
                    await client.get(url)
                monkeypatch.setattr(health, "CHECK_SECONDS", USUAL_CHECK_SECONDS)
                gate.opened.set()
                await starting
                assert (await client.get(url)).status_code == 200
            await server.__aexit__()
            data.release()

    asyncio.run(main())
