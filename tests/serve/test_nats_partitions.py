"""Partitions of a served system: on the embedded nats-server, and on others."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from keyhouse.errors import UnavailableError
from keyhouse.nats.connection import connect
from keyhouse.nats.embedded_users import LISTENER_USER, embedded_url
from keyhouse.nats.endpoint import Endpoint, Request, partition_of
from keyhouse.serve import nats_access
from keyhouse.serve.nats_access import EmbeddedNats
from keyhouse.serve.server import Server, nats_check
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings.sources import load_settings
from tests.nats.support.listeners import ask
from tests.support.nats_servers import nats_server, own_server
from tests.support.polling import until

MAPPINGS = {"tested.*.*": "tested.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(16,1)}}"}


def build(context: ServiceContext) -> ServiceSpec:
    async def handler(request: Request) -> bytes:
        return json.dumps({"subject": request.subject}).encode()

    echo = Endpoint(name="echo", subject="tested.*.*", handler=handler, partition_by=1, public=True)
    return ServiceSpec(name="tested", endpoints=[echo])


@asynccontextmanager
async def served(folder: Path, **flags: Any) -> AsyncIterator[Client]:
    """Serve, and yield a client of the NATS server."""
    given = {"data": str(folder / "data"), "http": "off", "nats_port": 0} | flags
    loaded = load_settings(given, {}, None, systems=("tested",))
    async with asyncio.timeout(60), Server(loaded, {"tested": build}) as addresses:
        assert addresses.nats is not None
        listener = embedded_url(folder / "data", LISTENER_USER)  # it may see the requests of others
        client = await nats.connect(
            listener or addresses.nats, reconnect_time_wait=0.1, max_reconnect_attempts=-1
        )
        try:
            yield client
        finally:
            await client.close()


async def subject_observed(client: Client, name: str = "trivia") -> str:
    """Return the subject of a request as the server delivers it."""
    observed: list[str] = []

    async def note(message: Msg) -> None:
        observed.append(message.subject)

    subscription = await client.subscribe("tested.>", cb=note)
    assert await ask(client, f"tested.{name}.echo") == {"subject": f"tested.{name}.echo"}
    await subscription.unsubscribe()
    [subject] = observed
    return subject


MAPPED = f"tested.trivia.echo.{partition_of('trivia')}"


def plugins(folder: Path) -> dict[str, Any]:
    """Return the configuration of the account of public endpoints."""
    read = json.loads((folder / "data" / "nats" / "nats-server.json").read_text())
    account: dict[str, Any] = read["accounts"]["plugins"]
    return account


def test_the_embedded_server_maps_the_subjects_of_endpoints(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as client:
            assert plugins(tmp_path)["mappings"] == MAPPINGS
            assert await subject_observed(client) == MAPPED

    asyncio.run(story())


def test_a_server_that_was_started_for_an_engine_reloads_the_mappings(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, engine="nats:") as client:
            assert await subject_observed(client) == MAPPED
            assert plugins(tmp_path)["mappings"] == MAPPINGS

    asyncio.run(story())


def test_a_restarted_server_has_the_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[EmbeddedNats] = []

    class Noted(EmbeddedNats):
        def __init__(self, folder: Path, **options: Any) -> None:
            super().__init__(folder, **options)
            servers.append(self)

    monkeypatch.setattr(nats_access, "EmbeddedNats", Noted)

    async def story() -> None:
        async with served(tmp_path) as client:
            [server] = servers
            assert server.process_id is not None
            os.kill(server.process_id, signal.SIGKILL)
            await until(lambda: client.stats["reconnects"])
            # until the service has reconnected
            await until(lambda: ask(client, "tested.trivia.echo"), retry=NoRespondersError)
            assert await subject_observed(client) == MAPPED

    asyncio.run(story())


def test_partitions_of_the_embedded_server_can_be_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, nats_partitions="off") as client:
            assert "mappings" not in plugins(tmp_path)
            assert await subject_observed(client) == "tested.trivia.echo"

    asyncio.run(story())


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("setting", ["on", "auto"])
def test_a_service_answers_on_another_server_with_or_without_mappings(
    tmp_path: Path, maps: bool, setting: str
) -> None:
    async def story(url: str) -> None:
        async with served(tmp_path, nats=url, nats_partitions=setting) as client:
            assert await subject_observed(client) == (MAPPED if maps else "tested.trivia.echo")
            for number in range(32):
                await ask(client, f"tested.t{number}.echo")

    with own_server(tmp_path / "own", mappings=MAPPINGS if maps else None) as server:
        asyncio.run(story(server.url))


def test_a_lost_connection_of_a_partition_is_not_ready() -> None:
    async def story() -> None:
        url = nats_server().url
        async with connect(url) as main, connect(url) as partition:
            check = nats_check(main, [partition])
            await check()
            await partition.close()
            with pytest.raises(UnavailableError, match="is lost"):
                await check()

    asyncio.run(story())
